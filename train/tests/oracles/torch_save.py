#!/usr/bin/env python3
"""Writes torch_save_zip.bin, torch_save_legacy.bin and torch_save.json beside this file.

    python train/tests/oracles/torch_save.py   (needs torch; made with torch 2.15.0)

The same table of tensors as torch.save writes it today and as it did before version 1.6: numbers of 32 and 16 bits, a
parameter, a transposed view, two tensors that share a storage, and a buffer of another type. The JSON has the values as
Python reads them back, widened to float64; null for the buffer.
"""
import json
from collections import OrderedDict
from pathlib import Path

import torch

HERE = Path(__file__).parent
whole = torch.arange(12, dtype=torch.float32).reshape(3, 4) / 8 - 0.75
table = OrderedDict([
    ("whole", whole),
    ("row", whole[1]),
    ("half", torch.tensor([0.1, -2.5, 65504.0, 6e-8], dtype=torch.float16)),
    ("turned", torch.arange(6).reshape(2, 3).to(torch.bfloat16).mul(1.7).t()),
    ("parameter", torch.nn.Parameter(torch.tensor([[1e-3], [7.25]]))),
    ("cube", torch.arange(8, dtype=torch.float32).reshape(2, 2, 2)),
    ("positions", torch.arange(5)),
])
table._metadata = OrderedDict(version=1)
torch.save(table, HERE / "torch_save_zip.bin")
torch.save(table, HERE / "torch_save_legacy.bin", _use_new_zipfile_serialization=False)
for name in ("zip", "legacy"):
    back = torch.load(HERE / f"torch_save_{name}.bin", weights_only=True)
    assert all(torch.equal(back[k], v) for k, v in table.items())
record = {k: {"dims": list(v.shape),
              "values": v.detach().double().flatten().tolist() if v.is_floating_point() else None}
          for k, v in table.items()}
(HERE / "torch_save.json").write_text(json.dumps({"torch": torch.__version__, "tensors": record}, indent=1) + "\n")
