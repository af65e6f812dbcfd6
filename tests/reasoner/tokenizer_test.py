"""The reasoner's tokenizer: the plain Python function, tokenizers and the file agree; the chat format is the template's."""

import json
import random

import pytest

from halfbyte import tasks
from halfbyte.reasoner import tokenizer
from halfbyte.tasks import retrieval

PIECES = [" ", "\n", "\n\n", ": ", ", ", "; ", "12", "a", "tom", " has", "É", "<think>", "</think>", "<|im_end|>", "x", "\t",
          "ok", "🙂", "...", "A", " answer", "has", "\r\n", "  ", "\u00a0", "<|im_start|>"]


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    tokenizers = pytest.importorskip("tokenizers")
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer.write(folder)
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


def test_random_text_is_encoded_as_the_package_does(package):
    choose = random.Random(1)
    for _ in range(4000):
        text = "".join(choose.choice(PIECES) for _ in range(choose.randrange(1, 12)))
        ids = tokenizer.encode(text)
        assert ids == package.encode(text).ids, repr(text)
        assert tokenizer.decode(ids) == text == package.decode(ids, skip_special_tokens=False)


@pytest.mark.parametrize("name", tasks.TASKS)
def test_task_text_is_whole_words_and_single_digits(package, name):
    rand = tasks.Rand(name)
    for level in tasks.TASKS[name].LEVELS:
        question = tasks.draw(rand, name, level, "train")
        steps, answer = tasks.solution(rand, question)
        parts = [tokenizer.prompt_text(question.prompt), "<think>\n", *(t for t, _ in steps), f"</think>\n\nanswer: {answer}<|im_end|>"]
        ids = sum(map(tokenizer.encode, parts), [])
        assert ids == package.encode("".join(parts)).ids, "marking slips may not change a token"
        # The roles' names in the frame around the question are spelled in letters.
        written = tokenizer.encode(question.prompt) + sum(map(tokenizer.encode, parts[1:]), [])
        words = [tokenizer.decode([i]).strip() for i in written]
        letters = [w for w in words if w.isalpha() and len(w) == 1]
        if name not in ("chain", "retrieval"):
            assert not letters, "a word of the tasks is no entry of the vocabulary"
        assert all(len(w) == 1 for w in words if w.isdigit())


def test_retrieval_prompts_stay_within_their_tokens():
    rand = tasks.Rand("retrieval")
    for level, most in retrieval.LEVELS.items():
        for _ in range(4):
            prompt = tokenizer.prompt_text(tasks.draw(rand, "retrieval", level, "train").prompt)
            assert most - 12 < len(tokenizer.encode(prompt)) <= most


def test_reserved_keys_are_the_two_letter_words():
    short = {w for w in tokenizer.WORDS if len(w) == 2}
    assert short <= retrieval.RESERVED
    assert not short & set(retrieval.KEYS)


def test_the_vocabulary_is_sound():
    config, content = tokenizer.tokenizer_config(), tokenizer.tokenizer_json()
    ids = [*content["model"]["vocab"].values(), *(t["id"] for t in content["added_tokens"])]
    assert sorted(ids) == list(range(len(ids))) and len(ids) <= tokenizer.ROWS
    assert len(tokenizer.encode("\n\n")) == 1 and len(tokenizer.encode("1234567890")) == 10
    assert tokenizer.encode(config["eos_token"]) == [tokenizer.IDS["<|im_end|>"]]
    json.dumps(content)


@pytest.mark.parametrize("thinking", [True, False])
def test_the_chat_template_is_prompt_text(thinking):
    jinja2 = pytest.importorskip("jinja2")
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    template = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True).from_string(tokenizer.CHAT_TEMPLATE)
    messages = [{"role": "user", "content": "find 12*34"}]
    rendered = template.render(messages=messages, add_generation_prompt=True, enable_thinking=thinking)
    assert rendered == tokenizer.prompt_text("find 12*34", thinking)
    longer = [*messages, {"role": "assistant", "content": "<think>\nx\n</think>\n\nanswer: 408"}, {"role": "user", "content": "find 1+1"}]
    assert template.render(messages=longer, add_generation_prompt=True) == (
        "<|im_start|>user\nfind 12*34<|im_end|>\n<|im_start|>assistant\nanswer: 408<|im_end|>\n" + tokenizer.prompt_text("find 1+1"))
    assert jinja2
