"""make_template_corpus.py OUT: seeds for fuzz_chat_template: the cases of template_cases.py, a few to a file."""

import os
import sys

import template_cases

if __name__ == "__main__":
    os.makedirs(sys.argv[1], exist_ok=True)
    # Those that end in a failure would hide the rest of their file.
    cases = template_cases.CASES[:template_cases.CASES.index("{{ missing.x }}")]
    for i in range(0, len(cases), 6):
        with open(os.path.join(sys.argv[1], f"cases_{i:03d}"), "w", encoding="utf-8", newline="") as out:
            out.write("\n".join(cases[i:i + 6]))
