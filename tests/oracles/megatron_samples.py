"""Golden hashes of Megatron's datasets: python tests/oracles/megatron_samples.py > tests/data/megatron_samples.json

Needs torch, numpy and megatron-core (pip install torch numpy packaging; pip install --no-deps megatron-core==0.16.1).
Two toy datasets are written with Megatron's own builder from a formula that the Rust test repeats: lengths =
RandomState(s).randint(1, 40, n), token j of document i = (31 i + 7 j + s) mod 997 + 1, last token 0. Then each case
builds GPTDataset / BlendedDataset and hashes every index array and the first samples.
"""
import hashlib, json, logging, os, shutil, tempfile, warnings

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
import megatron.core
import numpy as np
import torch
from megatron.core.datasets.blended_dataset import BlendedDataset
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder, get_bin_path, get_idx_path
from megatron.core.datasets.utils import Split

torch.distributed.get_rank = lambda *a, **k: 0
folder = tempfile.mkdtemp()


class Tokenizer:
    eod, eos, pad, vocab_size = 0, 0, -1, 1000
    special_tokens_dict = {}
    unique_identifiers = {"class": "Toy"}


def sha(a):
    a = np.ascontiguousarray(a)
    return hashlib.sha256(a.astype(a.dtype.newbyteorder("<"), copy=False).tobytes()).hexdigest()


def file_sha(path):
    return hashlib.sha256(open(path, "rb").read()).hexdigest()


def write(name, seed, n):
    prefix = os.path.join(folder, name)
    builder = IndexedDatasetBuilder(get_bin_path(prefix), dtype=np.uint16)
    lengths = np.random.RandomState(seed).randint(1, 40, size=n)
    for i, length in enumerate(map(int, lengths)):
        tokens = [(31 * i + 7 * j + seed) % 997 + 1 for j in range(length - 1)] + [0]
        builder.add_document(torch.tensor(tokens), [length])
    builder.finalize(get_idx_path(prefix))
    return prefix


sets = {"a": (0, 2000), "b": (3, 700)}
prefixes = {name: write(name, *args) for name, args in sets.items()}


def gpt(d):
    return {
        "len": len(d),
        "document_index": sha(d.document_index),
        "sample_index": sha(d.sample_index),
        "shuffle_index": sha(d.shuffle_index),
    }


def case(names, weights, split, seq, sizes, seed):
    shutil.rmtree(os.path.join(folder, "cache"), ignore_errors=True)
    config = GPTDatasetConfig(
        random_seed=seed, sequence_length=seq, blend=([prefixes[n] for n in names], weights), split=split,
        path_to_cache=os.path.join(folder, "cache"), tokenizer=Tokenizer(), reset_position_ids=False,
        reset_attention_mask=False, eod_mask_loss=False, create_attention_mask=False)
    built = BlendedMegatronDatasetBuilder(GPTDataset, sizes, lambda: True, config).build()
    out = {"datasets": names, "weights": weights, "split": split, "seq_length": seq, "samples": sizes, "seed": seed, "splits": {}}
    for part, d in zip(Split, built):
        if d is None:
            continue
        assert isinstance(d, BlendedDataset)
        first = []
        for k in range(4):
            item = d[k]
            tokens = item["tokens"].tolist() + [int(item["labels"][-1])]
            first.append({"dataset": int(item["dataset_id"]), "tokens": tokens})
        out["splits"][part.name] = {
            "len": len(d), "dataset_index": sha(d.dataset_index), "dataset_sample_index": sha(d.dataset_sample_index),
            "datasets": [gpt(x) for x in d.datasets], "samples": first,
        }
    return out


cases = [
    # several epochs, last epoch kept apart by the 80% rule, and not
    case(["a"], [1.0], "949,50,1", 16, [3000, 60, 4], 1234),
    case(["a"], [2.5], "98,2,0", 16, [4700, 30, 0], 7),
    # one epoch, two datasets
    case(["a", "b"], [0.3, 0.7], "90,10,0", 16, [500, 40, 0], 1234),
    # the small dataset is read many times
    case(["a", "b"], [0.2, 0.8], "90,10", 32, [2500, 64, 0], 99),
    case(["b", "a"], [3, 1], "80,15,5", 8, [5000, 200, 50], 2**31),
]
print(json.dumps({
    "made_by": "tests/oracles/megatron_samples.py", "megatron_core": megatron.core.__version__,
    "numpy": np.__version__, "torch": torch.__version__,
    "files": {n: {"seed": sets[n][0], "documents": sets[n][1], "idx": file_sha(p + ".idx"), "bin": file_sha(p + ".bin")} for n, p in prefixes.items()},
    "cases": cases}, indent=1))
shutil.rmtree(folder)
