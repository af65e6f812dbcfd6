"""Question files: what an evaluator in another language reads. One JSON object a line:

    {"id": "word-v1-test-3-0012", "task": "word", "level": 3, "prompt": "...", "answer": "42"}

`prompt` is the user's message; a countdown has "numbers" and "target" besides, since its answers are many. The graders
are in core.py and countdown.py: the text behind the last "</think>" is "answer: " and the answer, nothing else.

    python -m halfbyte.tasks.files FOLDER --split test
"""

import argparse
import json
import pathlib

from . import SPLITS, TASKS, VERSION, Question, numbered

# A level. Two-digit products have only about 64 canonical questions in a split.
COUNTS = {"arithmetic": 50, "word": 100, "chain": 80, "countdown": 150, "retrieval": 40}


def line_of(question, split, index):
    return {"id": f"{question.task}-v{VERSION}-{split}-{question.level}-{index:04d}", "task": question.task, "level": question.level,
            "prompt": question.prompt, "answer": question.answer} | {k: question.extra[k] for k in ("numbers", "target") if k in question.extra}


def read_line(line):
    return Question(line["task"], line["level"], line["prompt"], line["answer"], "", line)


def write(path, task, split, count):
    with open(path, "w", encoding="utf-8") as out:
        for level in TASKS[task].LEVELS:
            for index, question in enumerate(numbered(task, level, split, count)):
                out.write(json.dumps(line_of(question, split, index)) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--split", choices=SPLITS[1:], default="validation")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for task, count in COUNTS.items():
        write(args.folder / f"{task}-{args.split}.jsonl", task, args.split, count)


if __name__ == "__main__":
    main()
