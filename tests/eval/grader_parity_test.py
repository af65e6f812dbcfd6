"""The C++ graders against those of python/halfbyte/tasks, on right answers and on thousands of changed ones."""

import json
import os
import pathlib
import random
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

from halfbyte import tasks  # noqa: E402
from halfbyte.tasks.files import line_of  # noqa: E402

PROGRAM = pathlib.Path(os.environ.get("HALFBYTE_BIN", ROOT / "build" / "dev" / "bin")) / "grade_lines"
PIECES = [*"0123456789+-*/=, ", "answer: ", "</think>", "<think>", "<|im_end|>", "\n", "\t", "00", ", 1*1=1"]


def changed(choose, text):
    """The text with one piece put in, taken out, replaced or moved."""
    at = choose.randrange(len(text) + 1)
    kind = choose.randrange(4)
    if kind == 0:
        return text[:at] + choose.choice(PIECES) + text[at:]
    if kind == 1:
        return text[:at] + text[at + choose.randrange(1, 3):]
    if kind == 2:
        return text[:at] + choose.choice(PIECES) + text[at + 1:]
    return text[at:] + text[:at]


def test_graders_agree():
    choose, lines, expected = random.Random(7), [], []
    for name, module in tasks.TASKS.items():
        for level in list(module.LEVELS)[:2]:
            for i in range(12):
                question = tasks.draw(tasks.Rand(f"{name} {level} {i}"), name, level, "train")
                steps, answer = tasks.solution(tasks.Rand(i), question)
                whole = f"<think>\n{steps[0][0][:40]}\n</think>\n\nanswer: {answer}<|im_end|>"
                for attempt in range(40):
                    text = whole if attempt == 0 else f"answer: {answer}" if attempt == 1 else whole
                    for _ in range(0 if attempt < 2 else choose.randrange(1, 3)):
                        text = changed(choose, text)
                    lines.append(line_of(question, "train", len(lines)) | {"completion": text})
                    expected.append(tasks.grade(question, text))
    done = subprocess.run([PROGRAM], input="".join(json.dumps(line) + "\n" for line in lines), capture_output=True, text=True,
                          timeout=300)
    assert done.returncode == 0
    found = [line == "1" for line in done.stdout.split()]
    assert len(found) == len(expected) > 4000
    differences = [(line["answer"], line["completion"], e) for line, e, f in zip(lines, expected, found) if e != f]
    assert not differences, differences[:5]
    assert 300 < sum(expected) < len(expected) - 1000
