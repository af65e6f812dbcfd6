"""The tokenizer against the tokenizers package: same ids, same text.

As a program it searches for differences with fresh random text for as long as asked:
    HALFBYTE_BIN=build/release/bin python tests/text/test_tokenizer_parity.py --seconds 600
"""

import argparse
import json
import os
import pathlib
import random
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RUST_BACKTRACE"] = "0"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import pytest  # noqa: E402
import tokenizer_oracle as oracle  # noqa: E402

tokenizers = pytest.importorskip("tokenizers")
if not (oracle.SHARED / "tokenizers").exists():
    pytest.skip(f"{oracle.SHARED}/tokenizers is not here: set HALFBYTE_SHARED", allow_module_level=True)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("vocabularies")


@pytest.fixture(scope="session")
def odd():
    return oracle.odd_code_points()


def expected_ids(package, text, bos):
    """None where the package itself panics: added tokens whose stripped white space overlaps in some ways."""
    try:
        return package.encode(text, add_special_tokens=bos).ids
    except BaseException as panic:  # pyo3's PanicException is no Exception
        if type(panic).__name__ != "PanicException":
            raise
        return None


def check_encode(path, texts, *, special=True, bos=False):
    package = tokenizers.Tokenizer.from_file(str(path))
    package.encode_special_tokens = not special
    flags = ([] if special else ["--no-special"]) + (["--add-bos"] if bos else [])
    ours = oracle.encode(path, texts, *flags)
    assert len(ours) == len(texts)
    for text, ids in zip(texts, ours):
        expected = expected_ids(package, text, bos)
        if expected is not None and ids != expected:
            at = next((i for i, (a, b) in enumerate(zip(ids, expected)) if a != b), min(len(ids), len(expected)))
            before = package.decode(expected[:at], skip_special_tokens=False)
            raise AssertionError(f"{path.name}: ids differ at {at}: {ids[at:at + 8]} for {expected[at:at + 8]}, behind "
                                 f"{before[-40:]!r} of a text that begins {text[:200]!r}")


def check_decode(path, rng, rounds):
    package = tokenizers.Tokenizer.from_file(str(path))
    size = package.get_vocab_size(with_added_tokens=True)
    lists = [[rng.randrange(size) for _ in range(rng.randrange(40))] for _ in range(rounds)]
    for skip in (True, False):
        ours = oracle.decode(path, lists, *(["--skip-special"] if skip else []))
        for ids, text in zip(lists, ours):
            assert text == package.decode(ids, skip_special_tokens=skip), ids


@pytest.mark.parametrize("name, size", [("gpt2", 5_000_000), ("smollm2", 5_000_000), ("qwen3", 5_000_000), ("phi-2", 500_000),
                                        ("r1-distill-qwen", 500_000)])
def test_mixed_text(name, size, folder, odd):
    texts = oracle.mixed_texts(size, odd)
    assert sum(len(t.encode()) for t in texts) >= size
    check_encode(oracle.vocabulary_file(name, folder), texts)


@pytest.mark.parametrize("name", oracle.VOCABULARIES)
def test_random_text(name, folder, odd):
    rng = random.Random(name)
    texts = [oracle.random_text(rng, odd, rng.randrange(60)) for _ in range(1500)]
    path = oracle.vocabulary_file(name, folder)
    check_encode(path, texts)
    check_encode(path, texts[:500], special=False)
    check_encode(path, texts[:100], bos=True)


@pytest.mark.parametrize("name", oracle.VOCABULARIES)
def test_decode_random_ids(name, folder):
    check_decode(oracle.vocabulary_file(name, folder), random.Random(name), 1500)


def random_tokenizer(rng):
    """A small tokenizer.json with random merges, added tokens with random flags, and random pipeline parts."""
    alphabet = "abcAB'019.-_ĠĊÃ©ĉ"
    vocab = {c: i for i, c in enumerate(alphabet)}
    merges = []
    for _ in range(rng.randrange(40)):
        pair = (rng.choice(list(vocab)), rng.choice(list(vocab)))
        merges.append(list(pair) if rng.random() < 0.5 else " ".join(pair))
        vocab.setdefault("".join(pair), len(vocab))
    if rng.random() < 0.5:
        merges = [m if isinstance(m, list) else m.split(" ") for m in merges]
    else:
        merges = [m if isinstance(m, str) else " ".join(m) for m in merges]
    added = []
    contents = ["<a>", "<a>b", "ab", " ", "  ", "é", "e\u0301", "<a", "b-", "\n", "_", "A'"]
    # Not both of two texts with one normal form: which of them the package finds changes from run to run (a hash map's order).
    contents.remove(rng.choice(["é", "e\u0301"]))
    for content in rng.sample(contents, rng.randrange(5)):
        if content in vocab:
            continue
        flags = {key: rng.random() < 0.4 for key in ("special", "single_word", "lstrip", "rstrip", "normalized")}
        added.append({"id": len(vocab) + len(added), "content": content, **flags})
    split = {"type": "Split", "pattern": {"Regex": rng.choice([r"\s+", r"[ab]+|\d", r"\w+", r"a|b", r"(?i:b)", r"x*", r"[^\s\w]"])},
             "behavior": rng.choice(["Isolated", "Removed"]), "invert": rng.random() < 0.4}
    literal = {"type": "Split", "pattern": {"String": rng.choice(["a", "-", "ab", " "])}, "behavior": "Isolated", "invert": False}
    digits = {"type": "Digits", "individual_digits": rng.random() < 0.5}
    stages = [s for s in (split, literal, digits) if rng.random() < 0.4]
    rng.shuffle(stages)
    byte_level = {"type": "ByteLevel", "add_prefix_space": not stages and rng.random() < 0.5, "trim_offsets": True,
                  "use_regex": rng.random() < 0.6}
    model = {"type": "BPE", "vocab": vocab, "merges": merges, "ignore_merges": rng.random() < 0.3, "fuse_unk": rng.random() < 0.5,
             "unk_token": rng.choice([None, "."]), "dropout": None, "byte_fallback": False,
             "continuing_subword_prefix": None, "end_of_word_suffix": None}
    template = {"type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "a", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                           {"SpecialToken": {"id": "b", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
                "special_tokens": {"a": {"id": "a", "ids": [0], "tokens": ["a"]}, "b": {"id": "b", "ids": [1, 2], "tokens": ["b", "c"]}}}
    processor = rng.choice([None, byte_level, template, {"type": "Sequence", "processors": [byte_level, template]}])
    return {"version": "1.0", "added_tokens": added, "normalizer": rng.choice([None, {"type": "NFC"}]),
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*stages, byte_level]}, "post_processor": processor,
            "decoder": byte_level, "model": model}


def random_sentencepiece(rng):
    """A small tokenizer.json as transformers makes it of a SentencePiece vocabulary, in its older form or its newer one."""
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"<0x{b:02X}>": 3 + b for b in range(256)}
    for c in rng.sample("▁abcAB'019.-_é日\n", 13) + ["▁"]:
        vocab.setdefault(c, len(vocab))
    letters, merges = list(vocab)[259:], []
    for _ in range(rng.randrange(60)):
        pair = (rng.choice(letters), rng.choice(letters))
        if len("".join(pair)) > 8 or list(pair) in merges:
            continue
        merges.append(list(pair))
        letters.append("".join(pair))
        vocab.setdefault("".join(pair), len(vocab))
    added = [{"id": i, "content": c, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for i, c in enumerate(("<unk>", "<s>", "</s>"))]
    for content in rng.sample(["<a>", "<a>b", "  ", "b-", "A'"], rng.randrange(3)):
        if content not in vocab:
            added.append({"id": len(vocab) + len(added) - 3, "content": content, "normalized": False,
                          **{key: rng.random() < 0.4 for key in ("special", "single_word", "lstrip", "rstrip")}})
    to_mark = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    prepend = {"type": "Prepend", "prepend": "▁"}
    scheme = rng.choice(["always", "first", "never"])
    older = rng.random() < 0.5
    front = older or scheme != "never"
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if front else []
    decoder = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}] + strip
    template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}
    return {"version": "1.0", "added_tokens": added,
            "normalizer": {"type": "Sequence", "normalizers": [prepend, to_mark]} if older else None,
            "pre_tokenizer": None if older else {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": False},
            "post_processor": rng.choice([None, template]), "decoder": {"type": "Sequence", "decoders": decoder},
            "model": {"type": "BPE", "vocab": vocab, "merges": merges, "ignore_merges": False, "fuse_unk": rng.random() < 0.5,
                      "unk_token": "<unk>", "dropout": None, "byte_fallback": True, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None}}


def small_text(rng):
    pieces = ["a", "b", "c", "ab", "A", "B", "'", "0", "19", ".", "-", "_", " ", "  ", "\n", "\t", "é", "e\u0301", "<a>", "<a>b", "<a", "x",
              "日", "\u3000", "'S", "\u200d"]
    return "".join(rng.choice(pieces) for _ in range(rng.randrange(24)))


def check_random_tokenizer(rng, folder):
    path = pathlib.Path(folder) / "random.json"
    path.write_text(json.dumps(random_tokenizer(rng)))
    texts = [small_text(rng) for _ in range(60)]
    check_encode(path, texts, special=rng.random() < 0.7, bos=rng.random() < 0.5)


def test_random_tokenizers(tmp_path):
    rng = random.Random(7)
    for _ in range(150):
        check_random_tokenizer(rng, tmp_path)


def check_sentencepiece(rng, folder):
    path = pathlib.Path(folder) / "sentencepiece.json"
    path.write_text(json.dumps(random_sentencepiece(rng)))
    texts = [small_text(rng) + rng.choice(["", "▁", "<s>", " </s> a", "\U0001f600"]) + small_text(rng) for _ in range(60)]
    check_encode(path, texts, special=rng.random() < 0.7, bos=rng.random() < 0.5)
    # Of ids that text gives: a broken run of byte tokens is replaced byte by byte there, by whole broken parts here.
    package = tokenizers.Tokenizer.from_file(str(path))
    lists = [package.encode(text, add_special_tokens=False).ids for text in texts]
    for skip in (True, False):
        for ids, text in zip(lists, oracle.decode(path, lists, *(["--skip-special"] if skip else []))):
            assert text == package.decode(ids, skip_special_tokens=skip), ids


def test_random_sentencepiece_vocabularies(tmp_path):
    rng = random.Random(8)
    for _ in range(100):
        check_sentencepiece(rng, tmp_path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}, tokenizers {tokenizers.__version__}", flush=True)
    rng, odd_points, end, counts = random.Random(arguments.seed), oracle.odd_code_points(), time.time() + arguments.seconds, [0, 0, 0]
    with tempfile.TemporaryDirectory() as folder:
        while time.time() < end:
            path = oracle.vocabulary_file(rng.choice(oracle.VOCABULARIES), folder)
            texts = [oracle.random_text(rng, odd_points, rng.randrange(80)) for _ in range(4000)]
            check_encode(path, texts, special=rng.random() < 0.8, bos=rng.random() < 0.2)
            check_decode(path, rng, 500)
            for _ in range(40):
                check_random_tokenizer(rng, folder)
                check_sentencepiece(rng, folder)
            counts = [counts[0] + len(texts), counts[1] + 500, counts[2] + 40]
            print(f"{counts[0]} texts, {counts[1]} id lists, {counts[2]} random tokenizers: no difference", flush=True)


if __name__ == "__main__":
    main()
