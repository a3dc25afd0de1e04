"""Golden hashes of Megatron's GPT datasets and blends: python tests/oracles/megatron_samples.py > tests/data/megatron_samples.json

Needs torch, numpy and megatron-core (pip install torch numpy packaging; pip install --no-deps megatron-core==0.16.1).
Toy datasets are written with Megatron's own builder from a formula that the Rust test repeats: lengths =
RandomState(s).randint(1, 40, n), token j of document i = (31 i + 7 j + s) mod 997 + 1, last token 0. Then each case
builds what BlendedMegatronDatasetBuilder builds and hashes every index array, the first items and the descriptions that
name cache files. A hash is the first 32 hex digits of SHA-256 over all arrays, little-endian, one after the other.
"""
import hashlib, json, logging, os, shutil, tempfile, warnings

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
import megatron.core
import numpy as np
import torch
from array_hash import sha
from megatron.core.datasets.blended_dataset import BlendedDataset
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder, get_bin_path, get_idx_path
from megatron.core.datasets.utils import Split

torch.distributed.get_rank = lambda *a, **k: 0
folder = tempfile.mkdtemp()
os.chdir(folder)  # prefixes are part of the descriptions, so they are relative


class Tokenizer:
    special_tokens_dict = {}
    unique_identifiers = {"class": "Toy", "note": "\u00e9 \"quoted\"", "share": 1e-07}
    eod, eos, vocab_size = 0, 0, 1000

    def __init__(self, pad):
        self.pad = pad


def file_sha(path):
    return hashlib.sha256(open(path, "rb").read()).hexdigest()[:32]


def write(name, seed, n):
    builder = IndexedDatasetBuilder(get_bin_path(name), dtype=np.uint16)
    lengths = np.random.RandomState(seed).randint(1, 40, size=n)
    for i, length in enumerate(map(int, lengths)):
        tokens = [(31 * i + 7 * j + seed) % 997 + 1 for j in range(length - 1)] + [0]
        builder.add_document(torch.tensor(tokens), [length])
    builder.finalize(get_idx_path(name))


sets = {"a": (0, 2000), "b": (3, 700)}
sets.update({f"d{i:02}": (100 + i, 60 + 37 * i) for i in range(20)})
for name, args in sets.items():
    write(name, *args)


def items(d, mask):
    out = []
    for k in sorted({0, 1, 2, len(d) // 2, len(d) - 1}):
        if not 0 <= k < len(d):
            continue
        item = d[k]
        out += [item[f].numpy().astype(np.int64) for f in ("tokens", "labels", "loss_mask", "position_ids")]
        if mask:
            out.append(item["attention_mask"].numpy().astype(np.uint8))
    return sha(*out)


cases = []


def case(names, weights, split, seq, sizes, seed, x=True, drop_last=True, pad=-1, eod_mask=False, positions=False,
         attention=False, mask=False, surplus=0.005, per_split=None, npy=False):
    shutil.rmtree("cache", ignore_errors=True)
    blend = dict(blend=(names, weights), split=split) if per_split is None else dict(blend_per_split=per_split)
    config = GPTDatasetConfig(
        random_seed=seed, sequence_length=seq, path_to_cache="cache", tokenizer=Tokenizer(pad),
        reset_position_ids=positions, reset_attention_mask=attention, eod_mask_loss=eod_mask, create_attention_mask=mask,
        add_extra_token_to_sequence=x, drop_last_partial_validation_sequence=drop_last, mid_level_dataset_surplus=surplus,
        **blend)
    out = {"datasets": names, "weights": weights, "split": split, "seq_length": seq, "samples": sizes, "seed": seed,
           "extra_token": x, "drop_last": drop_last, "pad": pad, "eod_mask": eod_mask, "positions": positions,
           "attention": attention, "mask": mask, "surplus": surplus, "per_split": per_split, "parts": {}}
    cases.append(out)
    try:
        built = BlendedMegatronDatasetBuilder(GPTDataset, sizes, lambda: True, config).build()
    except IndexError:  # the blend asks a dataset for more samples than were built for it
        out["refused"] = True
        return
    for part, d in zip(Split, built):
        if d is None or len(d) == 0:
            continue
        mixed = isinstance(d, BlendedDataset)
        below = d.datasets if mixed else [d]
        arrays = [d.dataset_index, d.dataset_sample_index] if mixed else []
        for b in below:
            arrays += [b.document_index, b.sample_index, b.shuffle_index]
        out["parts"][part.name] = {
            "len": len(d), "mixed": mixed, "index": sha(*arrays), "items": items(d, mask),
            "md5": ([d.unique_description_hash] if mixed else []) + [b.unique_description_hash for b in below],
        }
        if npy:
            b = below[0]
            base = f"cache/{b.unique_description_hash}-GPTDataset-{part.name}-"
            out["parts"][part.name]["npy"] = [file_sha(base + f) for f in (
                "description.txt", "document_index.npy", "sample_index.npy", "shuffle_index.npy")]
            if mixed:
                base = f"cache/{d.unique_description_hash}-BlendedDataset-{part.name}-"
                out["parts"][part.name]["npy"] += [file_sha(base + f) for f in (
                    "description.txt", "dataset_index.npy", "dataset_sample_index.npy")]


many = [f"d{i:02}" for i in range(20)]
# several epochs, last epoch kept apart by the 80% rule, and not
case(["a"], [1.0], "949,50,1", 16, [3000, 60, 4], 1234, npy=True)
case(["a"], [2.5], "98,2,0", 16, [4700, 30, 0], 7)
# one epoch, two datasets; a small dataset read many times
case(["a", "b"], [0.3, 0.7], "90,10,0", 16, [500, 40, 0], 1234, npy=True)
case(["a", "b"], [0.2, 0.8], "90,10", 32, [2500, 64, 0], 99)
case(["b", "a"], [3, 1], "80,15,5", 8, [5000, 200, 50], 2**31)
# one dataset as it is: sizes around the end of an epoch, both kinds of sample, every length
for seq in (1 << 1, 7, 64, 1000):
    for x in (True, False):
        case(["a"], None, "949,50,1", seq, [200000 // seq, None, None], 5, x=x, drop_last=x)
for n in (1, 2378, 2379, 2380, 4757, 4758, 4759, 6000, 6400, 7137):
    case(["a"], None, "1", 16, [n, None, None], n)
# no sizes; the last partial validation sample
for seq in (16, 100):
    for x in (True, False):
        case(["b"], None, "70,30", seq, [None, None, None], 11, x=x, drop_last=False)
# items: every flag, padding that is a token of the data or of nothing
for i, pad in enumerate((-1, 0, 5)):
    for flags in range(4):
        case(["a", "b"], [0.5, 0.5], "80,20", 48, [300, 20, 0], 1000 + i, pad=pad,
             eod_mask=bool(flags & 1), positions=bool(flags & 2), attention=flags in (1, 2), mask=flags != 3)
# blends of 3 to 20, pairwise sums of weights from 8 on
for n in (3, 5, 7, 8, 9, 13, 20):
    weights = [float(np.round(1 / (i + 1.3), 5)) for i in range(n)]
    case(many[:n], weights, "90,8,2", 16, [4000, 300, 40], n)
    case(many[:n], None, "90,10", 16, [600 * n // 3, None, 0], n)
case(many, [1.0] * 20, "1", 32, [20000, 0, 0], 2**32 - 1, surplus=0.05)
# no weights: with a size above what there is; exhaustive
case(["a", "b", "d05"], None, "90,9,1", 16, [100000, 10, 3], 21)
case(["a", "b", "d05"], None, "90,9,1", 16, [None, None, None], 21, npy=True)
case(many, None, "1", 16, [None, None, None], 3)
# parts with datasets of their own
case(None, None, None, 16, [2500, 100, None], 8, npy=True,
     per_split=[(["a", "b"], [0.4, 0.6]), (["d07"], None), (["d08", "d09"], None)])
case(None, None, None, 24, [1000, None, 90], 9,
     per_split=[(["d11"], [2.0]), (["d12", "d13", "d14"], None), (["d15", "a"], [9.0, 1.0])])
case(None, None, None, 24, [None, 50, None], 9, per_split=[(["a", "b"], None), (["d03", "d04"], [1.0, 2.0]), None])
print(json.dumps({
    "made_by": "tests/oracles/megatron_samples.py", "megatron_core": megatron.core.__version__,
    "numpy": np.__version__, "torch": torch.__version__,
    "files": {n: {"seed": s, "documents": d, "idx": file_sha(n + ".idx"), "bin": file_sha(n + ".bin")} for n, (s, d) in sets.items()},
    "tokenizer": Tokenizer.unique_identifiers, "cases": cases}).replace('{"datasets"', '\n{"datasets"'))
os.chdir("/")
shutil.rmtree(folder)
