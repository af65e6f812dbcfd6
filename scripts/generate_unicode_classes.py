#!/usr/bin/env python3
"""Writes src/text/unicode_classes_data.inc: the character classes that pre-tokenisers ask for, as ranges.

Unicode 16.0 is what the Oniguruma inside the `tokenizers` package (0.22 to 0.23) uses, so it is ours. The data come from
the PyPI package unicodedata2, whose version is the Unicode version:

    pip install unicodedata2==16.0.0
    scripts/generate_unicode_classes.py
"""
import pathlib
import sys

UNICODE_VERSION = "16.0.0"

# Order = CharClass in src/text/unicode_classes.h.
OTHER, LETTER, MARK, NUMBER, SPACE = range(5)
WORD_BIT = 8

# Property White_Space, which regular expressions call \s. It is stable: no code point joined or left since Unicode 6.3.
WHITE_SPACE = {*range(0x9, 0xE), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}
# \w is Alphabetic, M, Nd, Pc and Join_Control. Alphabetic is L, Nl and Other_Alphabetic, of which only these are not M.
OTHER_ALPHABETIC_SYMBOLS = {*range(0x24B6, 0x24EA), *range(0x1F130, 0x1F14A), *range(0x1F150, 0x1F16A), *range(0x1F170, 0x1F18A)}
JOIN_CONTROL = {0x200C, 0x200D}


def char_class(category, code_point):
    if code_point in WHITE_SPACE:
        return SPACE
    value = {"L": LETTER, "M": MARK, "N": NUMBER}.get(category[0], OTHER)
    if category[0] in "LM" or category in ("Nd", "Nl", "Pc") or code_point in OTHER_ALPHABETIC_SYMBOLS | JOIN_CONTROL:
        value |= WORD_BIT
    return value


def main():
    import unicodedata2

    if unicodedata2.unidata_version != UNICODE_VERSION:
        sys.exit(f"unicodedata2 has Unicode {unicodedata2.unidata_version}, expected {UNICODE_VERSION}: "
                 f"pip install unicodedata2=={UNICODE_VERSION}")
    ranges = []
    for code_point in range(0x110000):
        value = char_class(unicodedata2.category(chr(code_point)), code_point)
        if not ranges or ranges[-1][1] != value:
            ranges.append((code_point, value))
    lines = [
        f"// Made by scripts/generate_unicode_classes.py from Unicode {UNICODE_VERSION}. Do not edit.",
        "// First code point of a range << 4 | its class and word bit; a range ends where the next begins.",
    ]
    row = ""
    for first, value in ranges:
        item = f"0x{first << 4 | value:x},"
        if len(row) + len(item) + 1 > 120:
            lines.append(row)
            row = ""
        row += (" " if row else "") + item
    lines.append(row)
    target = pathlib.Path(__file__).resolve().parent.parent / "src/text/unicode_classes_data.inc"
    target.write_text("\n".join(lines) + "\n")
    print(f"{target}: {len(ranges)} ranges, {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
