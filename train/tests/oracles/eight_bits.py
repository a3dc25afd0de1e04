#!/usr/bin/env python3
"""Writes eight_bits.json beside this file: rows of numbers, and their bytes and scales by compressed-tensors in FP8 E4M3 and int8
(channel strategy, symmetric), and in FP8 by blocks of 5 x 12 with ragged edges (a scale by compressed-tensors for each, torch's cast), as
bits.

    python train/tests/oracles/eight_bits.py   (needs torch, compressed-tensors 0.20)
"""
import json
from pathlib import Path

import torch
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.lifecycle.forward import quantize
from compressed_tensors.quantization.utils import calculate_qparams

torch.manual_seed(7)
rows = [torch.randn(32) * 0.02 for _ in range(6)]
rows += [torch.zeros(32), torch.full((32,), -0.37), torch.arange(32) / 2 - 8, torch.randn(32) * 1e-30, torch.randn(32) * 1e30]
outlier = torch.randn(32) * 0.02
outlier[5] = 7.0
rows.append(outlier)
x = torch.stack(rows).float()
bits = lambda t: [int(v) & 0xFFFFFFFF for v in t.flatten().view(torch.int32)]
golden = {"columns": 32, "values": bits(x)}
for name, kind, dtype in [("fp8", "float", torch.float8_e4m3fn), ("int8", "int", torch.int8)]:
    args = QuantizationArgs(num_bits=8, type=kind, symmetric=True, strategy="channel")
    scale, zero = calculate_qparams(x.amin(1, keepdim=True), x.amax(1, keepdim=True), args)
    codes = quantize(x, scale, zero, args, dtype=dtype)
    golden[name] = {"scales": bits(scale.float()), "bytes": codes.contiguous().view(torch.uint8).flatten().tolist()}
args = QuantizationArgs(num_bits=8, type="float", symmetric=True, strategy="tensor")
high, wide = 5, 12
codes, scales = torch.zeros_like(x, dtype=torch.float8_e4m3fn), []
for top in range(0, x.shape[0], high):
    for left in range(0, x.shape[1], wide):
        block = x[top : top + high, left : left + wide]
        scale, _ = calculate_qparams(block.amin(), block.amax(), args)
        codes[top : top + high, left : left + wide] = (block / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
        scales.append(scale)
golden["blocks"] = {"high": high, "wide": wide, "scales": bits(torch.cat(scales)), "bytes": codes.view(torch.uint8).flatten().tolist()}
Path(__file__).with_suffix(".json").write_text(json.dumps(golden) + "\n")
