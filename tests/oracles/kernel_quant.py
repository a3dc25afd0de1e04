"""Blocks of GGUF's types by the package `gguf` (quantized by it for Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0; for the K types blocks of random bytes
with finite scales) and the numbers that it finds in them. Writes kernels/tests/data/quant.txt: a type, bits of f32 (empty for the K
types), bytes of the blocks, bits of the numbers in them, all in hexadecimal. gguf 0.19.0, numpy.

    python tests/oracles/kernel_quant.py
"""

import pathlib

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGML_QUANT_SIZES, dequantize, quantize

QUANTIZED = [Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q8_0]
K = [Type.Q4_K, Type.Q5_K, Type.Q6_K]


def rows(draw):
    """Blocks of 32: of weights, with outliers, tiny, huge, zero, constant, halves between levels, two equal extremes."""
    normal = draw.standard_normal((4, 32)) * 0.02
    outlier = draw.standard_normal((2, 32))
    outlier[:, 7] *= 40
    tiny = draw.standard_normal((1, 32)) * 1e-7
    huge = draw.standard_normal((1, 32)) * 3e4
    constant = np.full((1, 32), -0.37)
    halves = (np.arange(32)[None] - 15.5) / 2
    equal = np.where(np.arange(32)[None] % 2 == 0, 1.0, -1.0) * 0.75
    positive = np.abs(draw.standard_normal((1, 32)))
    return np.concatenate([normal, outlier, tiny, huge, np.zeros((1, 32)), constant, halves, equal, positive]).astype(np.float32)


def hard_rows(kind):
    """Blocks of 32 whose roundings need the package's own arithmetic: the first of random ones that the same formula in f64 rounds
    otherwise, ties of several extremes and of halves at scales with no exact inverse, zeros of both signs, subnormal numbers, scales
    that are infinite in binary16."""
    draw = np.random.default_rng(7)
    levels = 16 if kind == Type.Q5_0 else 8
    close = []
    while len(close) < 4:
        x = (draw.standard_normal((200_000, 32)) * 0.02).astype(np.float32)
        if kind == Type.Q8_0:
            close = list(x[:4])
            break
        most = np.take_along_axis(x, np.abs(x).argmax(axis=-1, keepdims=True), axis=-1)
        inverse = np.float32(1) / (most / np.float32(-levels))
        wide = x.astype(np.float64) * inverse.astype(np.float64) + (levels + 0.5)
        narrow = x * inverse + np.float32(levels + 0.5)
        close += list(x[(np.trunc(wide.astype(np.float32)) != np.trunc(narrow)).any(axis=-1)])
    steps = 127 if kind == Type.Q8_0 else levels
    ties = np.concatenate([(np.arange(32)[None] % steps + 0.5) * scale for scale in (0.1, 1 / 3, 7e-5)])
    ties[:, 5] = steps * np.array([0.1, 1 / 3, 7e-5])
    signs = np.where(np.arange(32)[None] % 3 == 0, -1.0, 1.0)
    extremes = np.concatenate([signs * 0.3, -signs * 0.3])
    zeros = np.stack([np.full(32, -0.0), np.where(np.arange(32) == 0, 0.0, -0.0), np.where(np.arange(32) == 0, -0.0, 0.0)])
    ramp = np.arange(-16, 16)[None] / 16
    small = np.concatenate([ramp * scale for scale in (1e-45, 3e-41, 2e-38, 1e-37, 3e-8, 6e-7)])
    large = np.concatenate([ramp * scale for scale in (4e5, 6e5, 1e7, 3.4e38)])
    return np.concatenate([close[:4], ties, extremes, zeros, small, large]).astype(np.float32)


def half(x):
    return np.frombuffer(np.float16(x).tobytes(), np.uint8)


def line(kind, x):
    blocks = quantize(x, kind)
    return [kind.name, x.tobytes().hex(), blocks.tobytes().hex(), dequantize(blocks, kind).astype(np.float32).tobytes().hex()]


def main():
    np.seterr(all="ignore")
    draw = np.random.default_rng(5)
    lines = []
    for kind in QUANTIZED:
        lines.append(line(kind, rows(draw)))
    for kind in [Type.Q4_0, Type.Q5_0, Type.Q8_0]:
        lines.append(line(kind, hard_rows(kind)))
    for kind in K:
        _, size = GGML_QUANT_SIZES[kind]
        blocks = draw.integers(0, 256, (3, size), dtype=np.uint8)
        for block in blocks:
            for at in [208] if kind == Type.Q6_K else [0, 2]:
                block[at : at + 2] = half(draw.uniform(-0.01, 0.01))
        lines.append([kind.name, "", blocks.tobytes().hex(), dequantize(blocks, kind).astype(np.float32).tobytes().hex()])
    out = pathlib.Path(__file__).parents[2] / "kernels/tests/data/quant.txt"
    out.write_text("".join(" ".join(line) + "\n" for line in lines))


main()
