"""LiveCodeBench's published files with their private tests unpacked, as `halfbyte eval --questions` reads them:

    python3 -m halfbyte.tasks.livecodebench test6.jsonl livecodebench-v6.jsonl [--most-bytes 1000000]

A private list is published as base64 of a compressed pickle of JSON. A pickle may run code; here it may hold a string alone.
--most-bytes leaves out the questions whose tests are larger, and says how many."""

import argparse
import base64
import contextlib
import io
import json
import os
import pickle
import zlib


class TextAlone(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"found {module}.{name}, expected a string")


def unpacked(packed):
    """The list of tests, from any form: the list itself, JSON, or a packed pickle."""
    if isinstance(packed, list):
        return packed
    if not isinstance(packed, str):
        raise ValueError(f"tests of type {type(packed).__name__}, expected a string or a list")
    if packed.lstrip().startswith("["):
        return json.loads(packed)
    pickled = zlib.decompress(base64.b64decode(packed))
    try:
        text = TextAlone(io.BytesIO(pickled)).load()
    except Exception as error:  # a broken pickle raises whatever its machine stumbles over: IndexError, AttributeError, ...
        raise ValueError(f"the pickle is broken ({error!r})") from error
    if not isinstance(text, str):
        raise ValueError(f"the pickle holds {type(text).__name__}, expected a string")
    tests = json.loads(text)
    if not isinstance(tests, list):
        raise ValueError(f"the pickle's JSON is of type {type(tests).__name__}, expected a list")
    return tests


def convert(source, target, most_bytes=None):
    """Returns (lines written, lines left out). The target is written whole or not at all."""
    written = left_out = 0
    partial = f"{target}.partial"
    try:
        with open(source, encoding="utf-8") as lines, open(partial, "w", encoding="utf-8") as out:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    question = json.loads(line)
                    for key in ("public_test_cases", "private_test_cases"):
                        question[key] = unpacked(question[key])
                except (KeyError, TypeError, ValueError, zlib.error) as error:
                    raise SystemExit(f"error: {source}, line {number}: {error!r}; expected a line of LiveCodeBench") from error
                text = json.dumps(question, ensure_ascii=False)
                if most_bytes is not None and len(text.encode()) > most_bytes:
                    left_out += 1
                    continue
                out.write(text + "\n")
                written += 1
        os.replace(partial, target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(partial)
    return written, left_out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--most-bytes", type=int)
    flags = parser.parse_args()
    written, left_out = convert(flags.source, flags.target, flags.most_bytes)
    print(f"{written} questions written" + (f", {left_out} left out: larger than {flags.most_bytes} bytes" if left_out else ""))


if __name__ == "__main__":
    main()
