"""Reasoning tasks made by seeded generators, with exact graders. Standard library only.

    from halfbyte import tasks
    q = tasks.draw(tasks.Rand(7), "word", 3, "validation")
    q.prompt, q.answer, tasks.grade(q, "answer: 42")
    tasks.solution(tasks.Rand(8), q)        # a worked solution: [(text, learn)] and its answer

Splits are disjoint by construction: a question's canonical form (names, wording and order taken away) hashes into one of
64 buckets, of which one is the test split and one the validation split.
"""

from . import arithmetic, chain, countdown, retrieval, word
from .core import BUCKETS, SPLITS, VERSION, Question, final_answer, grade_integer, split_of
from .rand import Rand

TASKS = {module.NAME: module for module in (arithmetic, word, chain, countdown, retrieval)}


def draw_with(rand, task, parameters, split, level=0):
    """A question of any size: `parameters` as in the module's LEVELS or WARM_UP."""
    module = TASKS[task]
    while True:
        facts = module.facts(rand, parameters)
        key = module.key(facts)
        if split_of(task, key) == split:
            break
    asked = module.question(rand, facts)
    question = Question(task, level, asked[0], asked[1], key, asked[2])
    question.facts = (facts, asked)
    return question


def draw(rand, task, level, split):
    """A question of that level and split. Draws until one falls into the split: about 64 times for validation and test."""
    return draw_with(rand, task, TASKS[task].LEVELS[level], split, level)


def numbered(task, level, split, count):
    """The first `count` questions of a level and split: the same ones for everybody, no canonical question twice."""
    questions, keys, attempt = [], set(), 0
    while len(questions) < count:
        if attempt > 20 * count + 1000:
            raise ValueError(f"{task} level {level} has no {count} different questions in the split {split}, found {len(questions)}")
        question = draw(Rand(f"{task} {level} {split} {attempt} v{VERSION}"), task, level, split)
        attempt += 1
        if question.key not in keys:
            keys.add(question.key)
            questions.append(question)
    return questions


def solution(rand, question):
    """([[text, learn], ...], answer): a worked solution in a random valid order and wording. The text goes between
    "<think>\\n" and "</think>\\n\\nanswer: "; parts with learn False are slips that the solution goes on to repair."""
    facts, asked = question.facts
    made = TASKS[question.task].solution(rand, facts, asked)
    text, answer = made if isinstance(made, tuple) else (made, question.answer)
    return text.finish(), answer


def grade(question, completion):
    """Whether a model's whole completion (reasoning and answer) ends in a right answer."""
    answer = final_answer(completion)
    if question.task == countdown.NAME:
        return countdown.grade(question, answer)
    return grade_integer(question, answer)


__all__ = ["BUCKETS", "SPLITS", "TASKS", "VERSION", "Question", "Rand", "draw", "draw_with", "final_answer", "grade", "numbered",
           "solution", "split_of"]
