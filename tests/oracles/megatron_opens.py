"""Megatron opens what a job wrote: millrace blend JOB --dump 4 --json | python tests/oracles/megatron_opens.py OUT

OUT is the job's folder. Builds GPTDataset and BlendedDataset of megatron-core over OUT/tokens with the job's split,
weights, seed and sizes, and compares every index array (by SHA-256) and the tokens of the first samples with the dump.
Needs torch, numpy, megatron-core 0.16.1 and Python 3.11 for tomllib. Ends with `equal` or the first difference.
"""
import hashlib, json, logging, os, sys, tempfile, tomllib, warnings

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
import megatron.core
import numpy as np
import torch
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.datasets.indexed_dataset import IndexedDataset
from megatron.core.datasets.utils import Split

torch.distributed.get_rank = lambda *a, **k: 0
out = sys.argv[1]
dump = json.load(sys.stdin)
job = tomllib.load(open(os.path.join(out, "job.toml"), "rb"))
side = json.load(open(os.path.join(out, "tokens", job["blend"]["dataset"][0]["name"] + ".json")))


class Tokenizer:
    eod = eos = side["tokenizer"]["end_of_document"]
    pad, vocab_size = -1, side["tokenizer"]["vocab"]
    special_tokens_dict = {}
    unique_identifiers = {"class": "Job"}


def sha(a):
    a = np.ascontiguousarray(a)
    return hashlib.sha256(a.astype(a.dtype.newbyteorder("<"), copy=False).tobytes()).hexdigest()


def same(what, ours, theirs):
    if ours != theirs:
        sys.exit(f"DIFFERENT {what}: millrace {ours}, megatron {theirs}")


prefixes = [os.path.join(out, "tokens", d["name"]) for d in job["blend"]["dataset"]]
for p in prefixes:
    d = IndexedDataset(p)
    total = int(d.sequence_lengths.sum())
    print(f"{os.path.basename(p)}: {len(d.document_indices) - 1} documents, {total} tokens, {np.dtype(d.index.dtype).name}")
    sidecar = json.load(open(p + ".json"))
    same("tokens", sidecar["tokens"], total)
    same("documents", sidecar["documents"], len(d.document_indices) - 1)
parts = {p["part"]: p["samples"] for p in dump["parts"]}
sizes = [parts.get(s.name, 0) for s in Split]
config = GPTDatasetConfig(
    random_seed=job["seed"], sequence_length=job["blend"]["seq_length"],
    blend=(prefixes, [float(d["weight"]) for d in job["blend"]["dataset"]]), split=job["blend"]["split"],
    path_to_cache=tempfile.mkdtemp(), tokenizer=Tokenizer(), reset_position_ids=False, reset_attention_mask=False,
    eod_mask_loss=False, create_attention_mask=False)
compared = 0
for part, d in zip(Split, BlendedMegatronDatasetBuilder(GPTDataset, sizes, lambda: True, config).build()):
    ours = dump["splits"].get(part.name)
    if d is None or ours is None:
        continue
    same(f"{part.name} length", ours["len"], len(d))
    same(f"{part.name} dataset_index", ours["dataset_index"], sha(d.dataset_index))
    same(f"{part.name} dataset_sample_index", ours["dataset_sample_index"], sha(d.dataset_sample_index))
    for o, g in zip(ours["datasets"], d.datasets):
        for name in ["document_index", "sample_index", "shuffle_index"]:
            same(f"{part.name} {o['name']} {name}", o[name], sha(getattr(g, name)))
            compared += 1
    for k, o in enumerate(ours["samples"]):
        item = d[k]
        same(f"{part.name} sample {k}", o["tokens"], item["tokens"].tolist() + [int(item["labels"][-1])])
        compared += 1
    compared += 3
print(f"equal: {compared} arrays and samples, megatron-core {megatron.core.__version__}")
