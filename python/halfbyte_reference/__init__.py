"""The executable definition of Halfbyte's numerics, in numpy (docs/numerics.md is the same thing in words).

Every function computes in float32 (or exact integers, or float64 where the contract says so) in the contract's order of
operations, so that C++, SIMD and CUDA can equal it bit for bit. Nothing here is fast; everything is meant to be read.

    python -m halfbyte_reference.golden --out tests/golden     writes the golden vectors
"""
