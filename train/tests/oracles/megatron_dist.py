#!/usr/bin/env python3
"""Writes the folders megatron_dist_* and megatron_dist.json beside this file.

    python train/tests/oracles/megatron_dist.py        (needs torch, megatron-core 0.16.1, psutil)

Checkpoints as megatron-core's dist_checkpointing writes them (format torch_dist) on the CPU, and the logits of the
same models there, in float32, on one sequence:

    gpt_tp1, gpt_tp2    learned positions, LayerNorm, GELU, biases, tied head; args of Megatron-LM's names in common.pt
    llama_tp2           rotary positions, RMSNorm, SwiGLU, grouped queries, norms of queries and keys, untied head;
                        stored in bfloat16; no args

The args are a namespace with the names that Megatron-LM's own parser gives these settings.
"""
import argparse
import json
import os
import shutil
import warnings
from pathlib import Path

import torch
import torch.multiprocessing as mp
import torch.nn.functional as F
from megatron_cpu import without_cuda, without_tracker

warnings.filterwarnings("ignore")
HERE = Path(__file__).parent
LAYERS, D, HEADS, VOCAB, LENGTH = 2, 16, 4, 64, 16
TOKENS = [3, 17, 60, 0, 5, 5, 41, 22, 9]


def model_of(kind, tp):
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.transformer_config import TransformerConfig

    settings = dict(
        num_layers=LAYERS, hidden_size=D, num_attention_heads=HEADS, tensor_model_parallel_size=tp,
        use_cpu_initialization=True, hidden_dropout=0.0, attention_dropout=0.0, params_dtype=torch.float32,
        bias_dropout_fusion=False, masked_softmax_fusion=False, bias_activation_fusion=False,
        gradient_accumulation_fusion=False, init_method_std=0.2)
    if kind == "gpt":
        spec, more = get_gpt_layer_local_spec(), dict(share_embeddings_and_output_weights=True)
    else:
        settings.update(
            num_query_groups=2, normalization="RMSNorm", gated_linear_unit=True, activation_func=F.silu,
            add_bias_linear=False, ffn_hidden_size=24, qk_layernorm=True)
        spec = get_gpt_layer_local_spec(normalization="RMSNorm", qk_layernorm=True)
        more = dict(position_embedding_type="rope", share_embeddings_and_output_weights=False)
    torch.manual_seed(5)
    return GPTModel(TransformerConfig(**settings), spec, vocab_size=VOCAB, max_sequence_length=LENGTH,
                    parallel_output=False, **more)


def args():
    return argparse.Namespace(
        num_layers=LAYERS, hidden_size=D, num_attention_heads=HEADS, ffn_hidden_size=4 * D, kv_channels=D // HEADS,
        group_query_attention=False, num_query_groups=1, max_position_embeddings=LENGTH, seq_length=LENGTH,
        position_embedding_type="learned_absolute", normalization="LayerNorm", norm_epsilon=1e-5, swiglu=False,
        squared_relu=False, openai_gelu=False, bias_gelu_fusion=False, add_bias_linear=True, add_qkv_bias=False,
        qk_layernorm=False, untie_embeddings_and_output_weights=False, apply_layernorm_1p=False,
        rotary_percent=1.0, rotary_base=10000, rotary_interleaved=False, num_experts=None, vocab_size=61,
        padded_vocab_size=VOCAB, params_dtype=torch.float32, iteration=7)


def rank_of(rank, tp, name, port, results):
    kind = name.split("_")[0]
    without_cuda()
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=tp)
    from megatron.core import dist_checkpointing, parallel_state

    parallel_state.initialize_model_parallel(tp, 1)
    without_tracker()
    model = model_of(kind, tp)
    with torch.no_grad():
        for name_, weight in model.named_parameters():
            # norms and biases that are not all alike
            if weight.dim() == 1:
                own = torch.Generator().manual_seed(sum(name_.encode()))
                whole = weight.numel() * (tp if "linear_qkv" in name_ or "linear_fc1" in name_ else 1)
                noise = 0.3 * torch.randn(whole, generator=own)
                part = noise.chunk(whole // weight.numel())
                weight += part[rank if len(part) > 1 else 0]
    state = model.sharded_state_dict()
    if kind == "llama":
        model.bfloat16()
        state = model.sharded_state_dict()
    else:
        state["args"] = args()
        state["iteration"] = 7
    dist_checkpointing.save(state, str(HERE / f"megatron_dist_{name}"))
    model.float()
    tokens = torch.tensor([TOKENS])
    count = len(TOKENS)
    mask = ~torch.tril(torch.ones(count, count, dtype=torch.bool))[None, None]
    logits = model(tokens, torch.arange(count)[None], mask)[0]
    if rank == 0:
        results.put((name, [[float(x) for x in row] for row in logits.detach()]))
    torch.distributed.barrier()


def main():
    mp.set_start_method("spawn")
    results, record = mp.Queue(), {"tokens": TOKENS, "logits": {}}
    for at, (name, tp) in enumerate([("gpt_tp1", 1), ("gpt_tp2", 2), ("llama_tp2", 2)]):
        folder = HERE / f"megatron_dist_{name}"
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        ranks = [mp.Process(target=rank_of, args=(rank, tp, name, 29910 + at, results)) for rank in range(tp)]
        [rank.start() for rank in ranks]
        found, logits = results.get(timeout=300)
        record["logits"][found] = logits
        [rank.join() for rank in ranks]
    import megatron.core

    record["versions"] = {"megatron-core": megatron.core.__version__, "torch": torch.__version__}
    (HERE / "megatron_dist.json").write_text(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
