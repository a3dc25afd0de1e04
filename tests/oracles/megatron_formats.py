"""Golden hashes of every token type: python tests/oracles/megatron_formats.py > tests/data/megatron_formats.json

Needs torch, numpy and megatron-core 0.16.1. Writes one dataset for each dtype that IndexedDatasetBuilder knows, without
and with sequence modes, by a formula that the Rust test repeats (document d has d % 4 sequences, sequence s of it has
1 + (3 d + s) % 5 tokens, token j is (7 d + 5 s + j) % 101), merges two of them, and reads them back.
"""
import hashlib, json, logging, os, sys, tempfile, warnings

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
import numpy as np
import torch
from megatron.core.datasets.indexed_dataset import DType, IndexedDataset, IndexedDatasetBuilder, get_bin_path, get_idx_path

folder = tempfile.mkdtemp()


def sha(path):
    return hashlib.sha256(open(path, "rb").read()).hexdigest()


def document(d):
    return [[(7 * d + 5 * s + j) % 101 for j in range(1 + (3 * d + s) % 5)] for s in range(d % 4)]


def write(name, dtype, multimodal, documents):
    prefix = os.path.join(folder, name)
    builder = IndexedDatasetBuilder(get_bin_path(prefix), dtype=dtype, multimodal=multimodal)
    for d in documents:
        sequences = document(d)
        tokens = torch.tensor([t for s in sequences for t in s], dtype=torch.float64)
        lengths = [len(s) for s in sequences]
        builder.add_document(tokens, lengths, [d % 2] * len(lengths) if multimodal else None)
    builder.finalize(get_idx_path(prefix))
    return prefix


def entry(prefix, multimodal):
    data = IndexedDataset(prefix, multimodal=multimodal)
    rows = [data[i] for i in range(len(data))]
    tokens = [int(t) for row in rows for t in (row[0] if multimodal else row)]
    return {
        "bin": sha(get_bin_path(prefix)),
        "idx": sha(get_idx_path(prefix)),
        "sequences": len(data),
        "tokens": hashlib.sha256(np.array(tokens, dtype="<u4").tobytes()).hexdigest(),
    }


out = {}
for dtype in DType:
    numpy_type = DType.dtype_from_code(dtype.value)
    for multimodal in [False, True]:
        name = np.dtype(numpy_type).name + ("_modes" if multimodal else "")
        out[name] = entry(write(name, numpy_type, multimodal, range(40)), multimodal)
parts = [write("part0", np.uint16, True, range(17)), write("part1", np.uint16, True, range(17, 40))]
merged = os.path.join(folder, "merged")
builder = IndexedDatasetBuilder(get_bin_path(merged), dtype=np.uint16, multimodal=True)
for part in parts:
    builder.add_index(part)
builder.finalize(get_idx_path(merged))
out["merged"] = entry(merged, True)
json.dump(out, sys.stdout, indent=1)
print()
