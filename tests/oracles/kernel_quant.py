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


def half(x):
    return np.frombuffer(np.float16(x).tobytes(), np.uint8)


def main():
    draw = np.random.default_rng(5)
    lines = []
    for kind in QUANTIZED:
        x = rows(draw)
        blocks = quantize(x, kind)
        lines.append([kind.name, x.tobytes().hex(), blocks.tobytes().hex(), dequantize(blocks, kind).astype(np.float32).tobytes().hex()])
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
