"""What the tokenizer's Python tests and bench/tokenizer share: the vocabularies, the mixed text, the C++ program."""

import json
import lzma
import os
import pathlib
import random
import struct
import subprocess
import unicodedata

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
SHARED = pathlib.Path(os.environ.get("HALFBYTE_SHARED", SOURCE.parent / "shared")) / "data"
VOCABULARIES = ["gpt2", "smollm2", "qwen3", "phi-2", "r1-distill-qwen"]


def program():
    folder = os.environ.get("HALFBYTE_BIN", SOURCE / "build/release/bin")
    return pathlib.Path(folder) / "tokenize_lines"


def read_shared(name):
    """The bytes of shared/data/NAME, or of NAME.xz unpacked."""
    plain = SHARED / name
    if plain.exists():
        return plain.read_bytes()
    return lzma.decompress((SHARED / (name + ".xz")).read_bytes())


def gpt2_json():
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    lines = read_shared("tokenizers/gpt2/merges.txt").decode().split("\n")
    return {
        "added_tokens": [{"id": 50256, "content": "<|endoftext|>", "special": True, "single_word": False, "lstrip": False,
                          "rstrip": False, "normalized": False}],
        "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "vocab": json.loads(read_shared("tokenizers/gpt2/vocab.json")),
                  "merges": [line for line in lines if line and not line.startswith("#version")]},
    }


def vocabulary_file(name, folder):
    """Path of a tokenizer.json of that vocabulary, made in `folder`."""
    path = pathlib.Path(folder) / f"{name}.json"
    if path.exists():
        return path
    if name == "gpt2":
        path.write_text(json.dumps(gpt2_json()))
    elif name == "r1-distill-qwen":
        head = json.loads(read_shared("tokenizers/r1-distill-qwen/tokenizer_head.json"))
        head["model"] = json.loads(read_shared("tokenizers/qwen3/tokenizer.json"))["model"]
        path.write_text(json.dumps(head))
    else:
        path.write_bytes(read_shared(f"tokenizers/{name}/tokenizer.json"))
    return path


def run(path, messages, *flags, element="B"):
    """Sends messages (bytes, or lists of ids with element "i") to the program; returns its output's bytes."""
    data = bytearray()
    for message in messages:
        data += struct.pack("<I", len(message))
        data += message if element == "B" else struct.pack(f"<{len(message)}i", *message)
    done = subprocess.run([program(), str(path), *flags], input=bytes(data), capture_output=True)
    if done.returncode != 0:
        raise RuntimeError(f"{program()} exit code {done.returncode}: {done.stderr.decode(errors='replace')}")
    return done.stdout


def encode(path, texts, *flags):
    output, at, all_ids = run(path, [t.encode() for t in texts], *flags), 0, []
    while at < len(output):
        (count,) = struct.unpack_from("<I", output, at)
        all_ids.append(list(struct.unpack_from(f"<{count}i", output, at + 4)))
        at += 4 + 4 * count
    return all_ids


def decode(path, ids, *flags):
    output, at, texts = run(path, ids, "--decode", *flags, element="i"), 0, []
    while at < len(output):
        (count,) = struct.unpack_from("<I", output, at)
        texts.append(output[at + 4 : at + 4 + count].decode())
        at += 4 + count
    return texts


def odd_code_points():
    """Code points on which the tokenizers package and we differ by the Unicode version of a table, and which tests leave out:
    its NFC is older than utf8proc's (about Unicode 9), and its Digits knows 13 numbers of Unicode 17. Letters and marks
    newer than Python's own tables cannot be checked here and are left out too."""
    from tokenizers import Regex, normalizers, pre_tokenizers

    nfc = normalizers.NFC().normalize_str
    newer = pre_tokenizers.Split(Regex(r"[\p{L}\p{M}]"), "removed").pre_tokenize_str
    odd = {*range(0x11DE0, 0x11DEA), *range(0x16FF4, 0x16FF7)}
    for c in map(chr, range(0x300, 0x30000)):
        if unicodedata.category(c) == "Cs":
            continue
        if unicodedata.category(c) == "Cn" and not newer(c):
            odd.add(ord(c))
        decomposed = unicodedata.normalize("NFD", c)
        if not (unicodedata.combining(c) or decomposed != c or unicodedata.category(c)[0] in "MC"):
            continue
        order = "a" + c + "\u0316\u0301\u0334"
        if nfc(order) != unicodedata.normalize("NFC", order) or nfc(decomposed) != unicodedata.normalize("NFC", decomposed):
            odd.update(map(ord, decomposed))
            odd.add(ord(c))
    return odd


WORDS = """the of and to in is was for that on as with by he at from his it an were are which this be had or not her
I'm you've they'll we'd it's don't DON'T can't y'all'd're 'S 'tis o'clock naïve café résumé Straße ſtrange don’t
Москва привет мир Ελλάδα αθήνα שלום עולם مرحبا بالعالم नमस्ते दुनिया สวัสดีชาวโลก ไทย tiếng Việt Übergröße İstanbul ŒUVRE
こんにちは 世界 カタカナ ひらがな 한국어 텍스트 中文分词 人工智能 量化 模型 繁體字 ﬁ ﬂuent Ⅷ ½ ² ₃ ①② १२३ ٤٥٦ 〇一二三
for(int i=0;i<n;++i){ return x[i]*2.5e-3f; } def __init__(self, *args, **kwargs): #include <vector> std::vector<int>{} => != === && ||
\\alpha \\frac{1}{2} $x^2$ http://example.org/a?b=c&d=%20 user@example.com 2024-11-05T12:34:56Z 3.14159 1,000,000 0xDEADBEEF 1e-9
<|im_start|> <|im_end|> <think> </think> <|endoftext|> <tool_call> <|user|> [INST] </s> <|im_sta rt|> <｜User｜> <｜begin▁of▁sentence｜>
👍 👨‍👩‍👧‍👦 🏳️‍🌈 👋🏽 ❤️ 🇩🇪 😀 … — “quoted” «so» ‘x’ ٪ € ₿ ∑∞≠ ☃ ♞ ︎ ️""".split()
SPACES = [" "] * 12 + ["\n"] * 3 + ["  ", "   ", "\t", "\n\n", "\r\n", "\r", " \n", "\n ", "\t\t", "\u00a0", "\u2003", "\u3000", "\u2028", "\x0b",
          "\x0c", "\x85", "\x1c", "\u180e", "\u200b", "\ufeff", "\x00", "        ", "\n\n\n   \n", ""]
MARKS = ["\u0301", "\u0300", "\u0308", "\u0327", "\u0323", "\u0342", "\u0345", "\u3099", "\u309a", "\u093c", "\u1161", "\u11a8", "\u20dd", "\u0334"]
BLOCKS = [(0x20, 0x7F), (0xA0, 0x250), (0x300, 0x370), (0x370, 0x600), (0x600, 0x780), (0x900, 0xE00), (0xE00, 0xE80), (0x1100, 0x1200),
          (0x1E00, 0x2100), (0x2100, 0x2800), (0x3000, 0x3100), (0x4E00, 0xA000), (0xAC00, 0xD7A4), (0xF900, 0xFB00), (0xFE00, 0x10000),
          (0x10000, 0x11000), (0x1D100, 0x1D800), (0x1F000, 0x1FB00), (0x20000, 0x2A6E0), (0xE0000, 0xE0200), (0, 0x110000)]


def random_character(rng, odd):
    while True:
        c = rng.randrange(*rng.choice(BLOCKS))
        if not 0xD800 <= c < 0xE000 and c not in odd:
            return chr(c)


def random_text(rng, odd, items):
    """Words, numbers, marks, white space and single characters in random order."""
    parts = []
    for _ in range(items):
        kind = rng.random()
        if kind < 0.45:
            parts.append(rng.choice(WORDS))
        elif kind < 0.75:
            parts.append(rng.choice(SPACES))
        elif kind < 0.83:
            parts.append(str(rng.randrange(10 ** rng.randrange(1, 12))))
        elif kind < 0.88:
            parts.append("".join(rng.choice(MARKS) for _ in range(rng.randrange(1, 4))))
        elif kind < 0.90:
            parts.append(rng.choice("aA'-=. \n中é") * rng.randrange(1, 40))
        else:
            parts.append("".join(random_character(rng, odd) for _ in range(rng.randrange(1, 6))))
    return "".join(parts)


def cjk_text(rng, size):
    """Runs of common Chinese characters, the commoner the more often, with Chinese punctuation."""
    out = []
    while size > 0:
        run = "".join(chr(0x4E00 + int(rng.random() ** 2 * 0x2000)) for _ in range(rng.randrange(2, 30)))
        out.append(run + rng.choice("，。、；？！\n"))
        size -= 3 * len(out[-1])
    return "".join(out)


def mixed_texts(size, odd, seed=1):
    """Documents of mixed kind and length, about `size` bytes in all: a third prose (WikiText-2), then this project's own
    code, Chinese, and random text with emoji, numbers, marks and odd white space. The same for the same tree."""
    rng = random.Random(seed)
    wiki = (SHARED / "wikitext2/wiki.test.raw").read_text(encoding="utf-8")
    code = "".join(p.read_text(encoding="utf-8") for p in sorted((SOURCE / "src").rglob("*.cpp")))
    sources = [lambda n: _slice(rng, wiki, n), lambda n: _slice(rng, code, n), lambda n: cjk_text(rng, n),
               lambda n: random_text(rng, odd, max(1, n // 6))]
    texts, total = [], 0
    while total < size:
        length = int(10 ** rng.uniform(1, 4.6))
        texts.append(rng.choices(sources, weights=[4, 3, 2, 3])[0](length))
        total += len(texts[-1].encode())
    return texts


def _slice(rng, text, length):
    start = rng.randrange(max(1, len(text) - length))
    return text[start : start + length]
