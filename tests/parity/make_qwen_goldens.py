"""Goldens of Qwen2.5-Coder-0.5B-Instruct or -1.5B- from transformers: writes tests/parity/qwen.hbg. Run as tests/parity/README.md says.

The GGUF of scripts/get-model (Q4_K, Q5_0, Q6_K, Q8_0; the larger one Q4_K and Q6_K) is dequantised by transformers' own reader into FP32.
10 questions in ChatML, greedy, 20 tokens each or until <|im_end|>, with each step's margin between the two largest logits.
"""

import argparse
import os
import pathlib
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

import numpy as np
import torch
import transformers

from halfbyte_reference.container import Writer

GREEDY_TOKENS, END = 20, 151645
QUESTIONS = (
    "What is the capital of France?",
    "Write a Python function that reverses a string.",
    "What does the C function strlen return?",
    "Fix this: for i in range(10) print(i)",
    "What is 17 * 3?",
    "Name three sorting algorithms.",
    "Write a SQL query that counts the rows of table users.",
    "Explain recursion in one sentence.",
    "用中文说你好。",
    "How do I undo the last git commit?",
)


def greedy(model, prompt):
    tokens, margins, cache, step = [], [], None, torch.tensor([prompt])
    while len(tokens) < GREEDY_TOKENS and (not tokens or tokens[-1] != END):
        out = model(step, past_key_values=cache, use_cache=True)
        top = torch.topk(out.logits[0, -1], 2)
        tokens.append(int(top.indices[0]))
        margins.append(float(top.values[0] - top.values[1]))
        cache, step = out.past_key_values, torch.tensor([tokens[-1:]])
    return tokens, margins


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gguf", type=pathlib.Path, help="the file of scripts/get-model qwen2.5-coder-0.5b or -1.5b")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).with_name("qwen.hbg"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.disable_progress_bar()
    where = {"pretrained_model_name_or_path": str(args.gguf.parent), "gguf_file": args.gguf.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
    model = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32, attn_implementation="eager").eval()
    w = Writer()
    w.add("made_with", f"transformers {transformers.__version__}, torch {torch.__version__}, FP32, eager attention, CPU")
    with torch.no_grad():
        for i, question in enumerate(QUESTIONS):
            text = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
            prompt = tokenizer(text, add_special_tokens=False)["input_ids"]
            tokens, margins = greedy(model, prompt)
            w.add(f"chat/q{i}/text", text)
            w.add(f"chat/q{i}/prompt", np.array(prompt, np.int32))
            w.add(f"chat/q{i}/tokens", np.array(tokens, np.int32))
            w.add(f"chat/q{i}/margins", np.array(margins, np.float32))
            print(f"{i:2d} {min(margins):.5f} {tokenizer.decode(tokens)!r}", flush=True)
    w.save(args.out)


if __name__ == "__main__":
    main()
