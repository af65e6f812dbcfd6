#!/usr/bin/env python3
"""Times vLLM's Marlin NVFP4 linear (weights in 4 bits, activations BF16) for bench_kernels_cuda --vllm: random weights that rotate
through more memory than the L2 holds, calls in a CUDA graph, the median of some rounds. Prints a JSON list. Needs vLLM and its GPU."""

import argparse
import json
import statistics
import sys

COLD_BYTES = 256 << 20


def fail(message):
    print(f"vllm_linears: {message}", file=sys.stderr)
    sys.exit(2)


try:
    import torch
    from vllm.model_executor.layers.quantization.utils import marlin_utils_fp4 as marlin
except Exception as e:  # whatever an unfit installation raises
    fail(f"{sys.executable} cannot import vLLM's Marlin FP4 kernels: {type(e).__name__}: {e}")


class Layer(torch.nn.Module):
    """What vLLM's NVFP4 method hands to Marlin: codes, block scales, a scale of the whole."""

    def __init__(self, n, k):
        super().__init__()
        def parameter(t):
            return torch.nn.Parameter(t, requires_grad=False)
        self.weight = parameter(torch.randint(0, 256, (n, k // 2), dtype=torch.uint8, device="cuda"))
        self.weight_scale = parameter((torch.rand(n, k // 16, device="cuda") + 0.5).to(torch.float8_e4m3fn))
        self.weight_scale_2 = parameter(torch.tensor([1e-3], dtype=torch.float32, device="cuda"))
        self.weight_global_scale = parameter(torch.tensor([1e-3], dtype=torch.float32, device="cuda"))
        self.params_dtype = torch.bfloat16
        self.output_size_per_partition, self.input_size_per_partition = n, k
        marlin.prepare_fp4_layer_for_marlin(self)


def time_linear(n, k, m, rounds, calls):
    copies = max(2, COLD_BYTES // (n * k * 9 // 16) + 1)
    layers = [Layer(n, k) for _ in range(copies)]
    x = torch.randn(m, k, dtype=torch.bfloat16, device="cuda")

    def call(i):
        layer = layers[i % copies]
        scale = getattr(layer, "weight_global_scale", None)
        return marlin.apply_fp4_marlin_linear(input=x, weight=layer.weight, weight_scale=layer.weight_scale,
                                              weight_scale_2=scale if scale is not None else layer.weight_scale_2,
                                              workspace=layer.workspace, size_n=n, size_k=k)

    for i in range(copies):
        call(i)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(calls):
            call(i)
    times = []
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for _ in range(rounds + 1):
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / calls)
    return statistics.median(times[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="+", required=True, metavar="NxK")
    parser.add_argument("--tokens", nargs="+", type=int, required=True)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--calls", type=int, default=48)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        fail("no CUDA device")
    out = []
    for shape in arguments.shapes:
        n, k = (int(v) for v in shape.split("x"))
        for m in arguments.tokens:
            try:
                us = time_linear(n, k, m, arguments.rounds, arguments.calls)
            except (AttributeError, TypeError) as e:
                fail(f"this vLLM's Marlin has another interface than that of 0.33: {e}")
            out.append({"kernel": "marlin", "n": n, "k": k, "m": m, "us": us})
    print(json.dumps(out))


if __name__ == "__main__":
    main()
