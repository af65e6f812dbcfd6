"""The tasks: splits are disjoint, graders are exact, solutions are right, and the same seed gives the same questions."""

import hashlib
import itertools
import json
import re

import pytest

from halfbyte import tasks
from halfbyte.tasks import arithmetic, chain, countdown, files, graph, retrieval, word
from halfbyte.tasks.core import Question, write_equation, wrong_value, Text
from halfbyte.tasks.rand import Rand

ALL = [(name, level) for name, module in tasks.TASKS.items() for level in module.LEVELS]


def completion(question, seed):
    steps, answer = tasks.solution(Rand(seed), question)
    return "<think>\n" + "".join(text for text, _ in steps) + "</think>\n\nanswer: " + answer + "<|im_end|>"


# ---- splits

@pytest.mark.parametrize("name", tasks.TASKS)
def test_splits_share_no_canonical_question(name):
    """Also over the shortest questions, where a random split would repeat itself."""
    module = tasks.TASKS[name]
    seen = {split: set() for split in tasks.SPLITS}
    for split in tasks.SPLITS:
        rand = Rand(f"{name} {split}")
        for _ in range(150 if split == "train" else 12):
            for parameters in {module.WARM_UP[0], module.LEVELS[1]}:
                question = tasks.draw_with(rand, name, parameters, split)
                assert tasks.split_of(name, question.key) == split
                seen[split].add(question.key)
    for a, b in itertools.combinations(tasks.SPLITS, 2):
        assert seen[a].isdisjoint(seen[b])
    assert all(seen.values())


def test_every_key_has_one_split_and_the_shares_are_right():
    counts = {split: 0 for split in tasks.SPLITS}
    for i in range(64_000):
        counts[tasks.split_of("word", str(i))] += 1
    assert 800 < counts["test"] < 1200 and 800 < counts["validation"] < 1200
    assert tasks.split_of("chain", "1") in tasks.SPLITS


def test_a_key_forgets_order_and_operand_order():
    assert arithmetic.key((12, 345, "*")) == arithmetic.key((345, 12, "*")) != arithmetic.key((12, 345, "+"))
    assert countdown.key(([3, 1, 2], 9, {})) == countdown.key(([1, 2, 3], 9, {})) != countdown.key(([1, 2, 3], 8, {}))
    a, b = [("ab", 1), ("cd", 2)], [("cd", 2), ("ab", 1)]
    assert retrieval.key(retrieval.Haystack(a, 512)) == retrieval.key(retrieval.Haystack(b, 4096))


def test_a_graph_key_forgets_names_order_and_what_is_not_needed():
    one = graph.Graph([5, 7, 12, 36], [None, None, ("+", 0, 1, None), ("*", 2, None, 3)], [0, 1, 2, 3], 3)
    other = graph.Graph([7, 5, 9, 12, 36], [None, None, None, ("+", 0, 1, None), ("*", 3, None, 3)], [0, 1, 3, 4], 4)
    assert graph.graph_key(one) == graph.graph_key(other)
    minus = graph.Graph([5, 7, 2, 6], [None, None, ("-", 1, 0, None), ("*", 2, None, 3)], [0, 1, 2, 3], 3)
    assert graph.graph_key(one) != graph.graph_key(minus)
    given = graph.Graph([3, 3], [None, ("*", 0, None, 2)], [0, 1], 1)          # a given 2 is not the constant 2
    computed = graph.Graph([3, 2, 6], [None, None, ("*", 0, 1, None)], [0, 1, 2], 2)
    assert graph.graph_key(given) != graph.graph_key(computed)


@pytest.mark.parametrize("name", tasks.TASKS)
def test_wording_does_not_change_the_split(name):
    module = tasks.TASKS[name]
    facts = module.facts(Rand(5), module.LEVELS[1])
    prompts = {module.question(Rand(seed), facts)[0] for seed in range(6)}
    assert len(prompts) > 1 or name in ("arithmetic", "countdown")             # their wording is fixed
    assert module.key(facts) == module.key(module.facts(Rand(5), module.LEVELS[1]))


# ---- solutions and graders

@pytest.mark.parametrize("name, level", ALL)
def test_worked_solutions_are_right_and_in_steps(name, level):
    rand = Rand(f"solutions {name} {level}")
    for i in range(6):
        question = tasks.draw(rand, name, level, "train")
        text = completion(question, i)
        assert tasks.grade(question, text), text
        thinking = text.split("<think>\n")[1].split("</think>")[0]
        assert thinking.endswith("\n") and not thinking.endswith("\n\n") and "\n\n\n" not in thinking
        assert all(step and "\n" not in step.strip("\n") for step in thinking.split("\n\n"))


def evaluate(left):
    """Sums and products of numbers from left to right, products first."""
    total = 0
    for sign, term in re.findall(r"([+-]?)((?:\d+[*/])*\d+)", left):
        value, op = 1, "*"
        for number, following in re.findall(r"(\d+)([*/]?)", term):
            value = value * int(number) if op == "*" else value // int(number)
            op = following
        total += -value if sign == "-" else value
    return total


@pytest.mark.parametrize("name, level", [("word", 4), ("chain", 3), ("countdown", 1), ("retrieval", 1), ("arithmetic", 4)])
def test_only_marked_text_is_wrong(name, level):
    """Every equation that is to be learnt holds; slips are there, marked, and repaired."""
    rand, slips = Rand(f"slips {name}"), 0
    modulus = chain.MODULUS if name == "chain" else None
    for i in range(60):
        question = tasks.draw(rand, name, level, "train")
        marked = [(t, learn) for t, learn in tasks.solution(Rand(f"{i}"), question)[0]]
        slips += sum(not learn for _, learn in marked)
        text = "".join(t if learn else f"<{t}>" for t, learn in marked)
        for left, right in re.findall(r"(?<![\d*/+<>-])(\d+(?:[-+*/]\d+)+)=(\d+)(?![\d*/+-])", text):
            value = evaluate(left)
            assert int(right) == (value % modulus if modulus else value), (left, right, text)
        for left, wrong in re.findall(r"(?<![\d*/+-])(\d+(?:[-+*/]\d+)+)=<(\d+)>", text):
            if name != "arithmetic":                   # a digit operation may slip onto its clamp
                assert int(wrong) != (evaluate(left) % modulus if modulus else evaluate(left))
                assert " no\n\n" in text and "redo" in text
    assert slips > 0 or name == "countdown"


@pytest.mark.parametrize("name, level", ALL)
def test_graders_refuse_what_is_not_the_answer(name, level):
    question = tasks.draw(Rand(f"grade {name} {level}"), name, level, "train")
    good = completion(question, 1)
    assert tasks.grade(question, good)
    body = good.split("</think>")[0]
    for answer in ("", "answer:", "answer: ", "answer: 1x", f"answer: {question.answer}1", f"answer: -{question.answer}",
                   f"answer: {question.answer} or 3", f"The answer: {question.answer}", question.answer):
        assert not tasks.grade(question, f"{body}</think>\n\n{answer}<|im_end|>"), answer
    assert not tasks.grade(question, body), "cut off in its reasoning"
    assert not tasks.grade(question, body + f"\nanswer: {question.answer}"), "an answer inside the reasoning"
    assert tasks.grade(question, f"answer: {question.answer}<|im_end|>"), "no reasoning at all is allowed"


@pytest.mark.parametrize("answer, right", [
    ("3*7=21, 12+21=33", True), ("7*3=21, 21+12=33", True), ("3+7=10, 10+12=22", False), ("3*7=21", False),
    ("12+21=33", False), ("3*7=21, 21+21=42", False), ("3*7=22, 22+12=34", False), ("3*7=21,12+21=33", False),
    ("12/3=4, 4+7=11", False), ("3*7=21, 12+21=33, 33*1=33", False), ("3-7=-4, 12-4=8", False), ("", False),
    ("9999999999*7=3, 3+12=33", False)])
def test_countdown_grader(answer, right):
    question = Question("countdown", 1, "", "", "", {"numbers": [3, 7, 12], "target": 33})
    assert tasks.grade(question, f"answer: {answer}") is right


def test_countdown_division_is_exact():
    question = Question("countdown", 1, "", "", "", {"numbers": [7, 2], "target": 3})
    assert not tasks.grade(question, "answer: 7/2=3")
    assert not tasks.grade(Question("countdown", 1, "", "", "", {"numbers": [7, 0], "target": 0}), "answer: 7/0=0")


def test_a_slip_is_never_the_value():
    rand = Rand(1)
    assert all(wrong_value(rand, v, 100) not in (v, 100) for v in range(100) for _ in range(5))
    text = Text()
    assert write_equation(rand, text, "", 67, "+", 85, modulus=100) == 52


# ---- versions

def test_the_same_seed_gives_the_same_questions():
    """A failure means that VERSION must change, and with it every question file."""
    seen = hashlib.sha256()
    for name, level in ALL:
        question = tasks.draw(Rand(f"version {name} {level}"), name, level, "validation")
        seen.update(f"{question.prompt}|{question.answer}|{completion(question, 3)}".encode())
    assert (tasks.VERSION, seen.hexdigest()[:16]) == (1, "650c3d02d4def0f9")


def test_numbered_questions_are_different_and_graded_from_their_file(tmp_path):
    path = tmp_path / "countdown.jsonl"
    files.write(path, "countdown", "validation", 3)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    asked = [q for level in countdown.LEVELS for q in tasks.numbered("countdown", level, "validation", 3)]
    assert len({q.key for q in asked}) == len(asked) == len(lines) == 6
    for line, question in zip(lines, asked):
        assert line["prompt"] == question.prompt and line["level"] == question.level
        back = files.read_line(line)
        assert tasks.grade(back, f"answer: {line['answer']}") and not tasks.grade(back, "answer: 1+1=2")
    assert [line["id"] for line in lines][:2] == ["countdown-v1-validation-1-0000", "countdown-v1-validation-1-0001"]
    with pytest.raises(ValueError, match="no 90 different questions"):
        tasks.numbered("arithmetic", 2, "test", 90)
    assert tasks.numbered("countdown", 1, "validation", 2) == tasks.numbered("countdown", 1, "validation", 3)[:2]


def test_choices_are_uniform_enough():
    rand = Rand(4)
    counts = [0] * 5
    for _ in range(5000):
        counts[rand.below(5)] += 1
        assert 3 <= rand.between(3, 6) <= 6
    assert min(counts) > 850
    assert sorted(rand.sample(range(9), 9)) == list(range(9))


def test_names_suffice_for_the_longest_questions():
    assert len(word.NAMES) >= max(word.LEVELS.values()) + 2 and len(set(word.NAMES)) == len(word.NAMES)
    assert len(chain.LETTERS) >= max(chain.LEVELS.values()) + 2
