"""Order of forward passes and warm-up counts of megatron-core's interleaved pipeline schedule.

    python train/tests/oracles/megatron_schedule.py > train/tests/oracles/megatron_schedule.json

Needs megatron-core 0.16.1 (and torch); runs without a GPU and without torch.distributed.
"""
import json
from types import SimpleNamespace

from megatron.core.pipeline_parallel.schedules import get_pp_rank_microbatches, get_schedule_table


def rank_of(p, rank, v):
    group = SimpleNamespace(size=lambda: p, rank=lambda: rank)
    return SimpleNamespace(pp_group=group, virtual_pipeline_model_parallel_size=v)


cases = []
for p in (2, 3, 4):
    for v in (2, 3):
        for m in sorted({p, 2 * p, 3 * p, 2 * p - 1, 3 * p - 1} - {0}):
            if 0 < m % p < p and m > p:
                continue  # Megatron refuses a last group smaller than the pipeline
            table = get_schedule_table(m, v, p)
            warmup = [get_pp_rank_microbatches(m, v, p, p2p_communicator=rank_of(p, r, v))[2] for r in range(p)]
            cases.append({"p": p, "v": v, "m": m, "table": table, "warmup": warmup})
lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
print("[\n" + lines + "\n]")
