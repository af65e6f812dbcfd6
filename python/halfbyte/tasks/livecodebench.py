"""LiveCodeBench's published files with their private tests unpacked, as `halfbyte eval --questions` reads them:

    python3 -m halfbyte.tasks.livecodebench test6.jsonl livecodebench-v6.jsonl [--most-bytes 1000000]

A private list is published as base64 of a compressed pickle of JSON. A pickle may run code; here it may hold a string alone.
--most-bytes leaves out the questions whose tests are larger, and says how many."""

import argparse
import base64
import io
import json
import pickle
import zlib


class TextAlone(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"found {module}.{name}, expected a string")


def unpacked(packed):
    """The list of tests, from either form."""
    if packed.lstrip().startswith("["):
        return json.loads(packed)
    text = TextAlone(io.BytesIO(zlib.decompress(base64.b64decode(packed)))).load()
    if not isinstance(text, str):
        raise ValueError(f"the pickle holds {type(text).__name__}, expected a string")
    return json.loads(text)


def convert(source, target, most_bytes=None):
    """Returns (lines written, lines left out)."""
    written = left_out = 0
    with open(source, encoding="utf-8") as lines, open(target, "w", encoding="utf-8") as out:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                question = json.loads(line)
                for key in ("public_test_cases", "private_test_cases"):
                    question[key] = unpacked(question[key])
            except (KeyError, TypeError, ValueError, zlib.error, pickle.UnpicklingError, EOFError) as error:
                raise SystemExit(f"error: {source}, line {number}: {error!r}; expected a line of LiveCodeBench") from error
            text = json.dumps(question, ensure_ascii=False)
            if most_bytes is not None and len(text.encode()) > most_bytes:
                left_out += 1
                continue
            out.write(text + "\n")
            written += 1
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
