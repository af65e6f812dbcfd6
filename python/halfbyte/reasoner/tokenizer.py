"""The reasoner's tokenizer: bytes, about 80 whole words, digits one by one, "\\n\\n" one token. 512 rows.

It is a byte-level BPE in Hugging Face's form (tokenizer.json), so that `tokenizers`, transformers, vLLM and our own text
library read it. Words are whole entries found by `ignore_merges`; only a colon, comma or semicolon takes a space behind
it by a merge. `encode` here is the same function in plain Python, fast enough to write training data; a test holds the
two equal. Any text can be encoded: what is no entry is bytes.
"""

import json
import re

from ..tasks.core import DOUBTS, OPENERS
from ..tasks.word import ITEMS, NAMES

OTHER_WORDS = """add again all and answer as back check compute do does fewer find for from gives has have how is know left
less list make many mod more no of put redo sum than that times to together try we what yes""".split()
WORDS = [*OTHER_WORDS, *OPENERS, *DOUBTS, *NAMES, *ITEMS]
PUNCTUATION = (":", ",", ";")
END_OF_TEXT, START, END, THINK, END_THINK = SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
ROWS = 512                                     # of the embedding, a multiple of 128
WORD_PATTERN = r" ?[A-Za-z]+|\n\n"

CHAT_TEMPLATE = """{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {%- set content = message.content.split('</think>')[-1].lstrip('\\n') %}
    {%- else %}
        {%- set content = message.content %}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""


def byte_alphabet():
    """byte -> the printable character that stands for it in byte-level vocabularies (GPT-2's table)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(others)}


def vocabulary():
    """Token text (plain, not in the byte-level alphabet) of each id but the single bytes, which are ids 0 to 255."""
    texts = [p + " " for p in PUNCTUATION] + ["\n\n"]
    for word in WORDS:
        texts += [word, " " + word]
    return texts + SPECIAL


_TEXTS = vocabulary()
IDS = {text: 256 + i for i, text in enumerate(_TEXTS)}
assert len(IDS) == len(_TEXTS) and 256 + len(_TEXTS) <= ROWS
IDS.update({chr(b): b for b in range(128)})
FIRST_SPECIAL = 256 + len(_TEXTS) - len(SPECIAL)

_PIECE = re.compile("|".join(map(re.escape, SPECIAL)) + r"| ?[A-Za-z]+|\n\n|[:,;] (?![A-Za-z])|.", re.S)


def encode(text):
    """Token ids, control tokens included."""
    try:
        return [IDS[piece] for piece in _PIECE.findall(text)]
    except KeyError:
        ids = []
        for piece in _PIECE.findall(text):
            ids += [IDS[piece]] if piece in IDS else piece.encode()
        return ids


def decode(ids):
    """The text of ids; rows beyond the vocabulary give nothing."""
    out = bytearray()
    for i in ids:
        if i < 256:
            out.append(i)
        elif i - 256 < len(_TEXTS):
            out += _TEXTS[i - 256].encode()
    return out.decode(errors="replace")


def prompt_text(user, thinking=True):
    """The chat template for one user message, up to where the model goes on."""
    return (f"{START}user\n{user}{END}\n{START}assistant\n" + ("" if thinking else f"{THINK}\n\n{END_THINK}\n\n"))


def tokenizer_json():
    alphabet = byte_alphabet()
    written = lambda text: "".join(alphabet[b] for b in text.encode())
    vocab = {alphabet[b]: b for b in range(256)}
    vocab |= {written(text): 256 + i for i, text in enumerate(_TEXTS[:-len(SPECIAL)])}
    added = [{"id": FIRST_SPECIAL + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": text not in (THINK, END_THINK)} for i, text in enumerate(SPECIAL)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": WORD_PATTERN}, "behavior": "Isolated", "invert": False}, byte_level]},
        "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": True,
                  "vocab": vocab, "merges": [[p, written(" ")] for p in PUNCTUATION]},
    }


def tokenizer_config():
    return {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 4608, "eos_token": END,
            "pad_token": END_OF_TEXT, "bos_token": None, "unk_token": None, "add_bos_token": False,
            "clean_up_tokenization_spaces": False, "chat_template": CHAT_TEMPLATE}


def write(folder):
    """tokenizer.json and tokenizer_config.json."""
    for name, content in (("tokenizer.json", tokenizer_json()), ("tokenizer_config.json", tokenizer_config())):
        with open(folder / name, "w", encoding="utf-8") as out:
            json.dump(content, out, ensure_ascii=False, indent=1)
            out.write("\n")
