"""Writes the golden vectors: `python -m halfbyte_reference.golden --out tests/golden`. See tests/golden/README.md.

All inputs come from Philox (rng.TestData), so the files are the same bytes on every machine.
"""

import argparse
import pathlib

import numpy as np

from . import blocks, formats, golden_decode, linear, residue, rng
from .arith import F32
from .container import Writer

ODD_K = (1, 15, 16, 17, 31, 33, 80, 576)


# --- formats.hbg ------------------------------------------------------------------------------------------------------

def _rounding_inputs(values, extra_seed):
    """Every value, every midpoint, the float32 neighbours of both, both signs, specials, random numbers of all sizes."""
    positive = np.unique(np.abs(values[np.isfinite(values)]))
    ties = (positive[:-1].astype(np.float64) + positive[1:]) / 2
    points = np.concatenate([positive, ties.astype(F32), [positive[-1] * F32(1.0625), positive[-1] * F32(2)]]).astype(F32)
    near = np.concatenate([points, np.nextafter(points, F32(np.inf)), np.nextafter(points, F32(0))])
    data = rng.TestData(extra_seed)
    wide = data.normal(200) * formats.pow2(data.integers(-12, 10, 200))
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.17549435e-38, 3.4028235e38, -3.4028235e38], F32)
    return np.concatenate([near, -near, wide.astype(F32), special]).astype(F32)


def write_formats():
    w = Writer()
    byte = np.arange(256, dtype=np.uint8)
    tables = {"e2m1": (formats.e2m1_decode(byte[:16]), formats.e2m1_encode),
              "e1m2": (formats.e1m2_decode(byte[:16]), formats.e1m2_encode),
              "e4m3": (formats.e4m3_decode(byte), formats.e4m3_encode)}
    for seed, (name, (values, encode)) in enumerate(tables.items()):
        w.add(f"{name}/values", values)
        x = _rounding_inputs(values, seed)
        w.add(f"{name}/x", x)
        w.add(f"{name}/codes", encode(x))
    w.add("e8m0/values", formats.e8m0_decode(byte))
    words = rng.TestData(7).words(400)
    edge = np.array([0, 0x80000000, 0x3F808000, 0x3F818000, 0x3F807FFF, 0x3F808001, 0x7F7FFFFF, 0x7F7F7FFF, 0x7F7F8000,
                     0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0x7F80FFFF, 0xFFFFFFFF, 1, 0x8000, 0x8001, 0x18000,
                     0x007FFFFF, 0x00800000], np.uint32)
    bits = np.concatenate([edge, words])
    w.add("bf16/x_bits", bits)
    w.add("bf16/codes", formats.bf16_encode(bits.view(F32)))
    return w


# --- test rows --------------------------------------------------------------------------------------------------------

def sample_rows(data, k):
    """Five rows of k: plain; outliers and blocks of very different size; zero blocks and tiny values; zeros; large."""
    x = data.normal(5, k)
    block = np.arange(k) // 16
    x[1] = x[1] * formats.pow2(data.integers(-14, 8, block[-1] + 1))[block]
    x[1, k // 2] = F32(177.5)
    x[2] = np.where(block % 3 == 1, F32(0), x[2] * F32(2.0**-30))
    x[2, block % 3 == 2] = x[2, block % 3 == 2] * F32(2.0**-100)      # down to float32 subnormals
    x[3] = 0
    x[4] = x[4] * F32(2.0**70)
    return x.astype(F32)


def sample_weight(data, n, k):
    """Gaussian with outliers, zero blocks, blocks small enough for E4M3 subnormal scales, one zero row."""
    w = data.normal(n, k) * F32(0.05)
    block = np.arange(k) // 16
    size = data.integers(0, 16, n, block[-1] + 1)
    factor = np.where(size == 0, F32(0), np.where(size == 1, F32(2.0**-9), np.where(size == 2, F32(2.0**-13), F32(1))))
    w = w * factor[:, block].astype(F32)
    w[data.integers(0, n), data.integers(0, k)] = F32(0.75)
    if n > 2:
        w[n - 1] = 0
    return w.astype(F32)


def add_blocks(w, prefix, q: blocks.Blocks, dequantised=True):
    """Codes (packed for 4-bit formats), scale bytes, alpha where the format has one, dequantised values."""
    w.add(f"{prefix}/codes", q.codes[:, :q.k] if q.format == "mxfp8" else formats.pack_nibbles(q.codes))
    w.add(f"{prefix}/scales", q.scales)
    if q.format in ("nvfp4", "e1m2"):
        w.add(f"{prefix}/alpha", q.alpha)
    if dequantised:
        w.add(f"{prefix}/values", q.dequantise())


def add_block_forms(w, name, x, static):
    """x [rows, k] in every block format of activations."""
    add_blocks(w, f"{name}/nvfp4_static", blocks.quantise_nvfp4(x, static))
    add_blocks(w, f"{name}/nvfp4_per_token", blocks.quantise_nvfp4(x, blocks.row_alpha(x)))
    for rule in blocks.MX_RULES:
        add_blocks(w, f"{name}/mxfp4_{rule}", blocks.quantise_mxfp4(x, rule), dequantised=rule == "round74")
    add_blocks(w, f"{name}/mxfp8", blocks.quantise_mxfp8(x), dequantised=False)
    for mode, scale in (("static", static), ("per_token", None)):
        codes, scales = blocks.quantise_fp8_rows(x, scale)
        w.add(f"{name}/fp8_{mode}/codes", codes)
        w.add(f"{name}/fp8_{mode}/alpha", scales)


def write_blocks():
    w, static = Writer(), F32(0.0071)
    for k in ODD_K:
        x, name = sample_rows(rng.TestData(1000 + k), k), f"k{k}"
        w.add(f"{name}/x", x)
        w.add(f"{name}/static_alpha", static)
        add_blocks(w, f"{name}/nvfp4_weight", blocks.quantise_nvfp4_weight(x[:3]))       # alpha from the first three rows
        add_block_forms(w, name, x, static)
    # A NaN or an infinity in the second block of 16, in the last element, in every block; a clean row between.
    x = rng.TestData(1999).normal(4, 80)
    x[0, 17], x[1, 79], x[3, ::16] = F32(np.nan), F32(-np.inf), F32(np.inf)
    w.add("nonfinite/x", x)
    w.add("nonfinite/static_alpha", static)
    add_block_forms(w, "nonfinite", x, static)
    # Exponent rules at their borders: amax = m * 2^E with m around 1.5 and 1.75, and both ends of the range.
    m = np.array([1, 1.5, 1.75, 1.9999999, np.nextafter(F32(1.5), F32(2)), np.nextafter(F32(1.75), F32(1))], F32)
    amax = np.concatenate([m, m * F32(2.0**-20), m * F32(2.0**100), m * F32(2.0**-126), m * F32(2.0**126),
                           np.array([1e-45, 1e-40], F32)])
    x = np.zeros((len(amax), 3), F32)
    x[:, 1] = -amax
    x[:, 2] = amax * F32(0.3)
    w.add("borders/x", x)
    for rule in blocks.MX_RULES:
        add_blocks(w, f"borders/mxfp4_{rule}", blocks.quantise_mxfp4(x, rule))
    return w


# --- linear.hbg -------------------------------------------------------------------------------------------------------

NVFP4_MODES = ("f32", "a16", "a16i16", "a8_static", "a8_per_token", "a4_static", "a4_per_token")
MXFP4_MODES = ("f32", "a16", "a16i16", "a8", "a4")
LINEAR_SHAPES = ((3, 1), (5, 15), (16, 16), (17, 17), (8, 31), (33, 33), (19, 80), (21, 136), (7, 576))  # (n, k)


def add_linear_modes(w, name, weight, x, bias, modes, input_scale):
    w.add(f"{name}/w_codes", formats.pack_nibbles(weight.codes))
    w.add(f"{name}/w_scales", weight.scales)
    w.add(f"{name}/w_alpha", weight.alpha[0])
    for mode in modes:
        rows = linear.quantise_rows(x, weight.format, mode, input_scale)
        for key, value in rows.stored.items():
            if key == "codes" and mode.startswith("a4"):
                value = formats.pack_nibbles(value)
            w.add(f"{name}/{mode}/x_{key}", value)
        w.add(f"{name}/{mode}/y", linear.linear_fp4(rows, weight, weight.alpha[0], bias))
        w.add(f"{name}/{mode}/y_exact", linear.exact_fp4(rows, weight, weight.alpha[0], bias))
        if mode not in ("f32", "a16i16"):
            w.add(f"{name}/{mode}/y_tiles", linear.linear_fp4_tiles(rows, weight, weight.alpha[0], bias))


def write_linear():
    w = Writer()
    for n, k in LINEAR_SHAPES:
        data, name = rng.TestData(2000 + k), f"k{k}"
        x, w_float, input_scale = sample_rows(data, k), sample_weight(data, n, k), F32(0.0119)
        if k == 80:
            x[1, 79] = F32(32640 * 2.0**-15)       # the one BF16 significand that a16i16 clamps, largest of its block
            x[1, 64:79] *= F32(2.0**-9)
        bias = data.normal(n) if k % 2 else None
        w.add(f"{name}/x", x)
        w.add(f"{name}/input_scale", input_scale)
        if bias is not None:
            w.add(f"{name}/bias", bias)
        for q, modes in ((blocks.quantise_nvfp4_weight(w_float), NVFP4_MODES), (blocks.quantise_mxfp4(w_float), MXFP4_MODES)):
            real = q.codes[:, :k]
            real[(real == 0) & (data.integers(0, 4, n, k) == 0)] = 8      # files may hold -0
            add_linear_modes(w, f"{name}/{q.format}", q, x, bias, modes, input_scale)
        for fmt, xr, wr in (("bf16", formats.bf16_round(x), formats.bf16_round(w_float)), ("f32", x, w_float)):
            w.add(f"{name}/{fmt}/w", formats.bf16_encode(w_float) if fmt == "bf16" else w_float)
            w.add(f"{name}/{fmt}/y", linear.linear_plain(xr, wr, bias))
            w.add(f"{name}/{fmt}/y_exact", linear.exact_plain(xr, wr, bias))
            if fmt == "bf16":
                w.add(f"{name}/{fmt}/y_tiles", linear.linear_bf16_tiles(xr, wr, bias))
        codes, scale = blocks.quantise_fp8_rows(w_float)
        for key, value in (("w", w_float), ("codes", codes), ("scales", scale),
                           ("y", linear.linear_fp8_weight(formats.bf16_round(x), codes, scale, bias))):
            w.add(f"{name}/fp8/{key}", value)
    return w


# --- residue.hbg ------------------------------------------------------------------------------------------------------

def write_residue():
    w = Writer()
    for fmt in ("nvfp4", "mxfp4"):
        block = 16 if fmt == "nvfp4" else 32
        for n, k in ((5, 17), (19, 80), (6, 264)):
            data = rng.TestData(3000 + k + block)
            x, w_float, score = sample_rows(data, k), sample_weight(data, n, k), np.abs(data.normal(k))
            q = blocks.quantise_nvfp4_weight(w_float) if fmt == "nvfp4" else blocks.quantise_mxfp4(w_float)
            alpha_w, name = q.alpha[0], f"{fmt}/k{k}"
            for key, value in (("x", x), ("score", score), ("w_float", w_float), ("w_alpha", alpha_w),
                               ("w_codes", formats.pack_nibbles(q.codes)), ("w_scales", q.scales)):
                w.add(f"{name}/{key}", value)
            y, base, res = residue.m_ext(x, q, alpha_w)
            add_blocks(w, f"{name}/base", base, dequantised=False)
            add_blocks(w, f"{name}/m_ext/residue", res, dequantised=False)
            w.add(f"{name}/m_ext/y", y)
            for ratio in residue.K_EXT_RATIOS:
                channels = residue.k_ext_channels(score, ratio)
                ws = residue.k_ext_weight(w_float, channels, fmt, alpha_w, ratio)
                y, _, res = residue.k_ext(x, q, ws, channels, alpha_w)
                part = f"{name}/k_ext_{int(ratio * 8)}of8"
                w.add(f"{part}/channels", channels.astype(np.int32))
                if ws is not None:
                    add_blocks(w, f"{part}/w", ws, dequantised=False)
                add_blocks(w, f"{part}/residue", res, dequantised=False)
                w.add(f"{part}/y", y)
            if k > 64:
                order, s = residue.arc_order(score), 64
                wa = residue.arc_weight(w_float, order, s, fmt)
                y, _, res = residue.arc(x, wa, order, s, wa.alpha[0])
                w.add(f"{name}/arc/order", order.astype(np.int32))
                add_blocks(w, f"{name}/arc/w", wa, dequantised=False)
                add_blocks(w, f"{name}/arc/residue", res, dequantised=False)
                w.add(f"{name}/arc/y", y)
    return w


TOPICS = {"formats": write_formats, "blocks": write_blocks, "linear": write_linear, "residue": write_residue,
          **golden_decode.TOPICS}


def main():
    parser = argparse.ArgumentParser(description="Write the golden vectors of docs/numerics.md")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for the .hbg files")
    parser.add_argument("--only", choices=sorted(TOPICS), help="write one topic")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for topic, write in TOPICS.items():
        if args.only in (None, topic):
            path = args.out / f"{topic}.hbg"
            write().save(path)
            print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
