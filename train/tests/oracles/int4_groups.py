#!/usr/bin/env python3
"""Writes int4_groups.json beside this file: matrices, and their words, scales and weights by compressed-tensors in int4 by groups
(symmetric, round to nearest, scales in bf16), as bits.

    python train/tests/oracles/int4_groups.py   (needs torch 2.15, compressed-tensors 0.20)
"""
import json
from pathlib import Path

import torch
from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.utils import calculate_qparams

torch.manual_seed(11)
bits = lambda t: [int(v) & 0xFFFFFFFF for v in t.contiguous().flatten().view(torch.int32)]
cases = []
for rows, columns, group in [(5, 64, 16), (4, 128, 128), (3, 24, 8), (3, 20, 20)]:
    x = torch.randn(rows, columns) * 0.02
    x[1, :group] = 0
    x[2, 3] = 7.0
    x[0, -group:] = torch.linspace(-0.37, 0.37, group)
    args = QuantizationArgs(num_bits=4, type="int", symmetric=True, strategy="group", group_size=group)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    grouped = x.unflatten(-1, (columns // group, group))
    scale, zero = calculate_qparams(grouped.amin(-1), grouped.amax(-1), args)
    scale = scale.bfloat16().float()
    stored = PackedQuantizationCompressor.compress({"weight": x, "weight_scale": scale, "weight_zero_point": zero}, scheme)
    again = PackedQuantizationCompressor.decompress(stored, scheme)
    assert stored["weight_shape"].tolist() == [rows, columns]
    cases.append({"columns": columns, "group": group, "values": bits(x), "scales": bits(scale), "packed": bits(stored["weight_packed"]),
                  "weights": bits(again["weight"].float())})
Path(__file__).with_suffix(".json").write_text(json.dumps({"cases": cases}) + "\n")
