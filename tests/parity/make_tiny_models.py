"""Goldens of the tiny models from transformers: writes tests/parity/tiny.hbg. Run as tests/parity/README.md says.

For each model: FP32 logits (eager attention) and BF16 logits of a fixed 48-token prompt at a few positions, its
log-probabilities at all positions, 64 greedy tokens in FP32 chosen so that every choice is clear.
"""

import argparse
import os
import pathlib
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
import transformers

import tiny_models
from halfbyte_reference.container import Writer
from halfbyte_reference.formats import bf16_encode
from halfbyte_reference.rng import philox_words

POSITIONS = (0, 1, 15, 31, 46, 47)
PROMPT_TOKENS, GREEDY_TOKENS = 48, 64
MIN_MARGIN = 1e-3      # of the greedy choices: far above what the order of FP32 sums can move
MIN_DISTINCT = 12      # different tokens among the 64


def load(folder, dtype):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    return model.eval()


def greedy(model, prompt):
    """Tokens and the least margin between the two largest logits, one token at a time without a cache."""
    ids, least = list(prompt), float("inf")
    for _ in range(GREEDY_TOKENS):
        top = torch.topk(model(torch.tensor([ids])).logits[0, -1].float(), 2)
        ids.append(int(top.indices[0]))
        least = min(least, float(top.values[0] - top.values[1]))
    return ids[len(prompt):], least


def choose_prompt(name, vocab, model):
    """The first of the prompts "name/prompt/0", "/1", ... whose greedy text is no coin toss and not a short loop."""
    for salt in range(50):
        seed = tiny_models.fnv1a64(f"{name}/prompt/{salt}".encode())
        prompt = (philox_words(seed, PROMPT_TOKENS) % vocab).astype(np.int32)
        tokens, margin = greedy(model, prompt.tolist())
        if margin > MIN_MARGIN and len(set(tokens)) >= MIN_DISTINCT:
            return prompt, tokens, margin, salt
    raise SystemExit(f"{name}: no prompt with clear and varied greedy tokens; change the weight rule")


def add_model(w, name, folder):
    fingerprint = tiny_models.write_folder(name, folder)
    config = tiny_models.read_config(name)
    f32, bf16 = load(folder, torch.float32), load(folder, torch.bfloat16)
    stored = {n for n, _ in tiny_models.tensor_shapes(config)}
    used = {n for n, _ in f32.named_parameters()}
    assert used == stored, f"{name}: names differ from transformers': {used ^ stored}"
    prompt, tokens, margin, salt = choose_prompt(name, config["vocab_size"], f32)
    ids = torch.tensor(prompt[None].astype(np.int64))
    logits, logits_bf16 = f32(ids).logits[0], bf16(ids).logits[0].float()
    logprobs = torch.log_softmax(logits.double(), dim=-1)[:-1].gather(1, ids[0, 1:, None])[:, 0]
    w.add(f"{name}/fingerprint", np.uint64(fingerprint))
    w.add(f"{name}/prompt", prompt)
    w.add(f"{name}/positions", np.array(POSITIONS, np.int32))
    w.add(f"{name}/logits", logits[list(POSITIONS)].numpy())
    w.add(f"{name}/logits_bf16", bf16_encode(logits_bf16[list(POSITIONS)].numpy()))
    w.add(f"{name}/logprobs", logprobs.numpy().astype(np.float32))
    w.add(f"{name}/greedy", np.array(tokens, np.int32))
    print(f"{name:20s} prompt {salt}  logits std {logits.std().item():.2f}  least greedy margin {margin:.4f}  "
          f"distinct {len(set(tokens))}  BF16 moves logits by {(logits_bf16 - logits).abs().max().item():.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=pathlib.Path, help="keep the model folders here (default: a temporary folder)")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).with_name("tiny.hbg"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    w = Writer()
    w.add("made_with", f"transformers {transformers.__version__}, torch {torch.__version__}, eager attention, CPU")
    with tempfile.TemporaryDirectory() as scratch, torch.no_grad():
        for name in tiny_models.model_names():
            add_model(w, name, (args.models or pathlib.Path(scratch)) / name)
    w.save(args.out)
    print(f"{args.out}: {args.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
