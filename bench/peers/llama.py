"""llama.cpp through the bindings of llama-cpp-python: quantising a file, and timing prompts and decode steps.

Only the module of plain C bindings is loaded; the package's own __init__ pulls in what nobody here needs.
"""

import ctypes
import importlib
import importlib.util
import os
import sys
import time
import types

try:
    import numpy as np
except ImportError:  # load() says so
    np = None

# ggml's numbers of types, and of the file type that each starts from.
TYPES = {"q4_0": 2, "q8_0": 8, "q4_k_m": 12, "mxfp4": 39, "nvfp4": 40, "bf16": 30}
FILE_TYPES = {"q4_0": 2, "q8_0": 7, "q4_k_m": 15, "mxfp4": 2, "nvfp4": 2, "bf16": 32}
QUIET = None  # keeps the log callback alive


def need(*packages):
    """Ends with what is missing, and how to get it."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(f"error: not in this environment: {', '.join(missing)}\n  run bench/peers/install, and this with the python that it made")


def load(verbose=False):
    """The bindings, with the library started."""
    global QUIET
    need("llama_cpp", "numpy")
    spec = importlib.util.find_spec("llama_cpp")
    package = types.ModuleType("llama_cpp")
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules["llama_cpp"] = package
    lib = importlib.import_module("llama_cpp.llama_cpp")
    if not verbose:
        QUIET = lib.llama_log_callback(lambda level, text, data: None)
        lib.llama_log_set(QUIET, ctypes.c_void_p(0))
    lib.llama_backend_init()
    return lib


def quantize(lib, source, target, kind, threads):
    """Writes `source` with every linear of the layers in `kind`; embedding and head as the library chooses for Q4_0 files."""
    if os.path.exists(target):
        return
    params = lib.llama_model_quantize_default_params()
    params.nthread = threads
    params.ftype = FILE_TYPES[kind]
    params.allow_requantize = True
    if kind in ("mxfp4", "nvfp4"):
        overrides = (lib.llama_model_tensor_override * 2)()
        overrides[0].pattern, overrides[0].type = rb"^blk\.", TYPES[kind]
        overrides[1].pattern = None
        params.tt_overrides = ctypes.cast(overrides, type(params.tt_overrides))
    partial = target + ".partial"
    if lib.llama_model_quantize(source.encode(), partial.encode(), ctypes.byref(params)) != 0:
        sys.exit(f"error: llama_model_quantize could not write {target} as {kind}")
    os.replace(partial, target)


class Llama:
    """One file, with sequences that go on from round to round as those of `halfbyte bench --stepped` do."""

    ROOM = 1024  # tokens after the context

    def __init__(self, lib, path, threads, flash=-1):
        """flash: -1 leaves flash attention to the library, 0 turns it off."""
        self.lib, self.threads, self.flash = lib, threads, flash
        params = lib.llama_model_default_params()
        start = time.perf_counter()
        self.model = lib.llama_model_load_from_file(path.encode(), params)
        if not self.model:
            sys.exit(f"error: llama.cpp cannot load {path}")
        self.load_seconds = time.perf_counter() - start
        self.vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))
        self.contexts = {}

    def context(self, tokens, rows):
        params = self.lib.llama_context_default_params()
        params.n_ctx = (tokens + 255) // 256 * 256 * rows
        params.n_batch = params.n_ubatch = 512
        params.n_seq_max = rows
        params.n_threads = params.n_threads_batch = self.threads
        params.flash_attn_type = self.flash
        made = self.lib.llama_init_from_model(self.model, params)
        if not made:
            raise RuntimeError("llama.cpp cannot make a context")
        return made

    def prompt_ids(self, tokens, salt):
        return [(i * 7919 + salt * 104729 + 17) % self.vocab for i in range(tokens)]

    def decode(self, ctx, batch, entries):
        """entries: (token, position, sequence, wants logits)."""
        for i, (token, position, sequence, logits) in enumerate(entries):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, logits
            batch.seq_id[i][0] = sequence
        batch.n_tokens = len(entries)
        if self.lib.llama_decode(ctx, batch) != 0:
            raise RuntimeError("llama_decode failed")

    def pick(self, ctx, index):
        """The most likely token: what both sides do after a step."""
        return int(np.ctypeslib.as_array(self.lib.llama_get_logits_ith(ctx, index), (self.vocab,)).argmax())

    def prompt(self, tokens, salt):
        """Seconds from the prompt to its next token."""
        key = ("prompt", tokens)
        if key not in self.contexts:
            self.contexts[key] = (self.context(tokens + 32, 1), self.lib.llama_batch_init(512, 0, 1))
        ctx, batch = self.contexts[key]
        ids = self.prompt_ids(tokens, salt)
        self.lib.llama_memory_clear(self.lib.llama_get_memory(ctx), True)
        start = time.perf_counter()
        for first in range(0, tokens, 512):
            part = ids[first:first + 512]
            last = first + len(part) == tokens
            self.decode(ctx, batch, [(t, first + i, 0, last and i == len(part) - 1) for i, t in enumerate(part)])
        self.pick(ctx, -1)
        return time.perf_counter() - start

    FILLED = {}  # (context, row, flash): the cache of a sequence, from the first file that computed it

    def fill(self, ctx, batch, row, context):
        """Puts `context` tokens into the cache. What they are does not matter for speed, and some types take minutes to compute them: they
        get the keys and values that the first type computed."""
        saved = self.FILLED.get((context, row, self.flash))
        if saved is not None and self.lib.llama_state_seq_set_data(ctx, saved, len(saved), row) > 0:
            return
        ids = self.prompt_ids(context, row)
        for first in range(0, context, 512):
            part = ids[first:first + 512]
            self.decode(ctx, batch, [(t, first + i, row, i == len(part) - 1) for i, t in enumerate(part)])
        saved = (ctypes.c_uint8 * self.lib.llama_state_seq_get_size(ctx, row))()
        self.lib.llama_state_seq_get_data(ctx, saved, len(saved), row)
        self.FILLED[(context, row, self.flash)] = saved

    def steps(self, rows, context, count):
        """Seconds of each of `count` steps in which `rows` sequences decode."""
        key = (rows, context)
        if key not in self.contexts:
            self.contexts[key] = [self.context(context + self.ROOM, rows), self.lib.llama_batch_init(512, 0, 1), None, 0]
        state = self.contexts[key]
        ctx, batch = state[0], state[1]
        if state[2] is None or state[3] + count > context + self.ROOM:
            self.lib.llama_memory_clear(self.lib.llama_get_memory(ctx), True)
            self.lib.llama_set_n_threads(ctx, self.threads, len(os.sched_getaffinity(0)))
            for row in range(rows):
                self.fill(ctx, batch, row, context)
            self.lib.llama_set_n_threads(ctx, self.threads, self.threads)
            state[2] = [1] * rows
            state[3] = context
        seconds = []
        for _ in range(count):
            start = time.perf_counter()
            self.decode(ctx, batch, [(state[2][row], state[3], row, True) for row in range(rows)])
            state[2] = [self.pick(ctx, row) for row in range(rows)]
            seconds.append(time.perf_counter() - start)
            state[3] += 1
        return seconds
