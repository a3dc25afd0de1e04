"""Goldens of Megatron's samplers: python tests/oracles/megatron_samplers.py PATH/data_samplers.py > tests/data/megatron_samplers.json

PATH is Megatron-LM's megatron/training/datasets (main, d98e8a6); needs torch and megatron-core 0.16.1. Only the sampler
classes are executed. A hash is the first 32 hex digits of SHA-256 over little-endian int64.
"""
import hashlib, json, sys, warnings

warnings.filterwarnings("ignore")
import megatron.core
import numpy as np
import torch

text = open(sys.argv[1]).read()
source = "import numpy as np, random, torch\nfrom torch.utils.data import Dataset\n" + text[text.index("class MegatronPretrainingSampler:"):]
space = {}
exec(source, space)


def sha(values):
    return hashlib.sha256(np.asarray(list(values), dtype="<i8").tobytes()).hexdigest()[:32]


permutations = []
for n, seed in ((1, 0), (2, 1), (10, 0), (1000, 7), (123457, 3), (100000, 2**32 + 5)):
    g = torch.Generator()
    g.manual_seed(seed)
    permutations.append({"n": n, "seed": seed, "hash": sha(torch.randperm(n, generator=g).tolist())})
single, cyclic = [], []
for total, micro, ranks, consumed in ((103, 4, 3, 24), (64, 1, 1, 0), (1000, 8, 4, 320)):
    for rank in range(ranks):
        s = space["MegatronPretrainingSampler"](total, consumed, micro, rank, ranks)
        single.append({"total": total, "micro_batch": micro, "ranks": ranks, "rank": rank, "consumed": consumed, "hash": sha(i for b in s for i in b)})
for total, micro, ranks, epoch, chunk in ((103, 4, 3, 0, 0), (103, 4, 3, 2, 5), (1000, 8, 4, 1, 0), (997, 1, 5, 3, 7), (64, 2, 1, 0, 3)):
    for sharded in (True, False):
        for rank in range(ranks):
            m = micro * ranks
            active = total - total % m
            s = space["MegatronPretrainingRandomSampler"](None, total, epoch * active + chunk * m, micro, rank, ranks, sharded)
            batches = [b for b, _ in zip(s, range(active // m - chunk))]  # every rank the same number
            cyclic.append({"total": total, "micro_batch": micro, "ranks": ranks, "rank": rank, "epoch": epoch, "chunk": chunk,
                           "sharded": sharded, "batches": len(batches), "hash": sha(i for b in batches for i in b)})
print(json.dumps({"made_by": "tests/oracles/megatron_samplers.py", "torch": torch.__version__, "randperm": permutations, "single": single,
                  "cyclic": cyclic}).replace('{"', '\n{"'))
