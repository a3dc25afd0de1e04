#!/usr/bin/env python3
"""Writes the folders megatron_dist_mixture_* and megatron_dist_mixture.json beside this file.

    python train/tests/oracles/megatron_dist_mixture.py        (needs torch, numpy, megatron-core 0.16.1, psutil)

Checkpoints of mixtures of experts as megatron-core's dist_checkpointing writes them (format torch_dist) on the CPU, with args of
Megatron-LM's names in common.pt:

    mixture_ep2        every layer a mixture of four experts, softmax of the two best, in float32; SequentialMLP, two processes with
                       two experts each; layers are stacked
    mixture_grouped    a dense layer, then two mixtures of eight experts in four groups with sigmoid scores, a selection bias and a
                       gated shared expert, in bfloat16; GroupedMLP, two processes with four experts each; layers are stored one by one

Every number is a random one that its parameter's name alone decides, so no two experts are alike. megatron_dist_mixture.json has of
a model with SequentialMLP in one process, filled by `dist_checkpointing.load`, the logits in float32 on one sequence and of every
parameter the dims and a fingerprint: the sum of (number of the element + 1) x (its 32 bits) modulo 2^64. GroupedMLP's products need a
GPU; its state does not.
"""
import argparse
import json
import os
import re
import shutil
import warnings
import zlib
from pathlib import Path

import numpy as np
import torch
import torch.multiprocessing as mp
import torch.nn.functional as F
from megatron_cpu import without_cuda, without_tracker

warnings.filterwarnings("ignore")
HERE = Path(__file__).parent
D, HEADS, VOCAB, LENGTH, EP = 16, 4, 64, 16, 2
TOKENS = [3, 17, 60, 0, 5, 5, 41, 22, 9]
BASE = dict(
    hidden_size=D, num_attention_heads=HEADS, kv_channels=D // HEADS, group_query_attention=True, num_query_groups=2, max_position_embeddings=LENGTH,
    seq_length=LENGTH, position_embedding_type="rope", normalization="RMSNorm", norm_epsilon=1e-5, swiglu=True, squared_relu=False, openai_gelu=False,
    bias_gelu_fusion=True, add_bias_linear=False, add_qkv_bias=False, qk_layernorm=False, untie_embeddings_and_output_weights=True, apply_layernorm_1p=False,
    multi_latent_attention=False, rotary_percent=1.0, rotary_base=10000, rotary_interleaved=False, window_size=None, vocab_size=VOCAB, padded_vocab_size=VOCAB,
    moe_router_topk_limited_devices=None, moe_router_force_load_balancing=False, moe_input_jitter_eps=None, moe_apply_probs_on_input=False,
    moe_latent_size=None, moe_expert_capacity_factor=None, moe_token_drop_policy="probs", moe_pad_expert_input_to_capacity=False,
    moe_router_bias_update_rate=1e-3, moe_router_dtype="fp32", iteration=7)
MODELS = {
    "mixture_ep2": dict(
        BASE, num_layers=2, ffn_hidden_size=24, num_experts=4, moe_layer_freq=1, moe_ffn_hidden_size=24, moe_router_topk=2, moe_router_score_function="softmax",
        moe_router_pre_softmax=False, moe_router_topk_scaling_factor=None, moe_router_num_groups=None, moe_router_group_topk=None, moe_router_enable_expert_bias=False,
        moe_router_load_balancing_type="aux_loss", moe_aux_loss_coeff=0.02, moe_z_loss_coeff=None, moe_shared_expert_intermediate_size=None,
        moe_shared_expert_gate=False, moe_grouped_gemm=False, params_dtype=torch.float32),
    "mixture_grouped": dict(
        BASE, num_layers=3, ffn_hidden_size=24, num_experts=8, moe_layer_freq=[0, 1, 1], moe_ffn_hidden_size=8, moe_router_topk=4, moe_router_score_function="sigmoid",
        moe_router_pre_softmax=False, moe_router_topk_scaling_factor=2.5, moe_router_num_groups=4, moe_router_group_topk=2, moe_router_enable_expert_bias=True,
        moe_router_load_balancing_type="seq_aux_loss", moe_aux_loss_coeff=1e-4, moe_z_loss_coeff=1e-3, moe_shared_expert_intermediate_size=16,
        moe_shared_expert_gate=True, moe_grouped_gemm=True, params_dtype=torch.bfloat16),
}


def model_of(settings, is_grouped, ep):
    """A GPTModel of local layers, as Megatron-LM makes it from these args."""
    import megatron.core.transformer.moe.grouped_gemm_util as grouped_gemm
    import megatron.core.transformer.moe.moe_utils as moe_utils
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.transformer_config import TransformerConfig

    moe_utils.te_general_gemm = None
    grouped_gemm.assert_grouped_gemm_is_available = lambda: None
    same = (
        "num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "kv_channels", "num_query_groups", "normalization", "add_bias_linear",
        "add_qkv_bias", "qk_layernorm", "rotary_interleaved", "moe_layer_freq", "moe_ffn_hidden_size", "moe_router_topk", "moe_router_score_function",
        "moe_router_pre_softmax", "moe_router_topk_scaling_factor", "moe_router_num_groups", "moe_router_group_topk", "moe_router_enable_expert_bias",
        "moe_router_load_balancing_type", "moe_aux_loss_coeff", "moe_z_loss_coeff", "moe_shared_expert_intermediate_size", "moe_shared_expert_gate",
        "moe_router_dtype")
    config = TransformerConfig(
        **{name: settings[name] for name in same}, num_moe_experts=settings["num_experts"], moe_grouped_gemm=is_grouped, expert_model_parallel_size=ep,
        layernorm_epsilon=settings["norm_epsilon"], gated_linear_unit=True, activation_func=F.silu, use_cpu_initialization=True, hidden_dropout=0.0,
        attention_dropout=0.0, params_dtype=torch.float32, bias_dropout_fusion=False, masked_softmax_fusion=False, bias_activation_fusion=False,
        gradient_accumulation_fusion=False, moe_token_dispatcher_type="allgather")
    spec = get_gpt_decoder_block_spec(config, use_transformer_engine=False, normalization=settings["normalization"])
    return GPTModel(config, spec, vocab_size=VOCAB, max_sequence_length=LENGTH, parallel_output=False, position_embedding_type="rope",
                    share_embeddings_and_output_weights=False)


def drawn(name, dims):
    """Numbers that the name decides: vectors around what makes a norm do nothing."""
    own = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    noise = 0.2 * torch.randn(dims, generator=own)
    return 1 + noise if "norm" in name else noise


def fill(model, rank, experts):
    """Fills a rank's model by the names that one model of all experts would have; `experts` is the rank's share."""
    tensors = list(model.named_parameters()) + [(name, value) for name, value in model.named_buffers() if name.endswith("expert_bias")]
    with torch.no_grad():
        for name, tensor in tensors:
            if ".experts.weight" in name:
                # all local experts in one matrix, each transposed: [d, f] and [f, d] of Megatron's [out, in]
                first = name.endswith("weight1")
                layer, parts = name.split(".experts.")[0] + ".experts.", []
                for expert in range(rank * experts, (rank + 1) * experts):
                    rows, columns = (tensor.numel() // experts // D, D) if first else (D, tensor.numel() // experts // D)
                    parts.append(drawn(f"{layer}{expert}.{'linear_fc1' if first else 'linear_fc2'}", (rows, columns)).T)
                tensor.copy_(torch.stack(parts).reshape(tensor.shape))
                continue
            local = re.fullmatch(r"(.*\.experts\.)local_experts\.(\d+)\.(.*)\.weight", name)
            if local:
                name = f"{local[1]}{int(local[2]) + rank * experts}.{local[3]}"
            tensor.copy_(drawn(name, tensor.shape))


def start(rank, world, ep, port):
    without_cuda()
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    from megatron.core import parallel_state

    parallel_state.initialize_model_parallel(1, 1, expert_model_parallel_size=ep)
    without_tracker()


def write(rank, name, port):
    """One of the processes that write a checkpoint."""
    start(rank, EP, EP, port)
    from megatron.core import dist_checkpointing

    settings = MODELS[name]
    model = model_of(settings, settings["moe_grouped_gemm"], EP)
    fill(model, rank, settings["num_experts"] // EP)
    model.to(settings["params_dtype"])
    for module in model.modules():
        if hasattr(module, "_maintain_float32_expert_bias"):
            module._maintain_float32_expert_bias()
    state = model.sharded_state_dict(metadata={"singleton_local_shards": False})
    state["args"], state["iteration"] = argparse.Namespace(**settings), 7
    dist_checkpointing.save(state, str(HERE / f"megatron_dist_{name}"))
    torch.distributed.barrier()


def read(rank, name, port, results):
    """One process with SequentialMLP reads it and computes."""
    start(rank, 1, 1, port)
    from megatron.core import dist_checkpointing

    model = model_of(MODELS[name], False, 1)
    with torch.no_grad():
        [parameter.fill_(float("nan")) for parameter in model.parameters()]
    state = model.sharded_state_dict(metadata={"singleton_local_shards": False})
    # what Megatron says of TEGroupedMLP and GroupedMLP: their states are SequentialMLP's
    loaded = dist_checkpointing.load(state, str(HERE / f"megatron_dist_{name}"))
    model.load_state_dict({key: value for key, value in loaded.items() if isinstance(value, torch.Tensor) or "_extra_state" in key})
    count = len(TOKENS)
    mask = ~torch.tril(torch.ones(count, count, dtype=torch.bool))[None, None]
    with torch.no_grad():
        logits = model.eval()(torch.tensor([TOKENS]), torch.arange(count)[None], mask)[0]
    held = dict(model.named_parameters()) | {key: value for key, value in model.named_buffers() if key.endswith("expert_bias")}
    results.put(([[float(x) for x in row] for row in logits], {key: [list(value.shape), fingerprint(value)] for key, value in held.items()}))


def fingerprint(tensor):
    bits = tensor.detach().float().contiguous().numpy().reshape(-1).view(np.uint32).astype(np.uint64)
    return str((np.arange(1, bits.size + 1, dtype=np.uint64) * bits).sum(dtype=np.uint64))


def main():
    mp.set_start_method("spawn")
    results, record = mp.Queue(), {"tokens": TOKENS, "logits": {}, "weights": {}}
    for at, name in enumerate(MODELS):
        folder = HERE / f"megatron_dist_{name}"
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        ranks = [mp.Process(target=write, args=(rank, name, 29930 + at)) for rank in range(EP)]
        [rank.start() for rank in ranks]
        [rank.join() for rank in ranks]
        assert not any(rank.exitcode for rank in ranks), name
        reader = mp.Process(target=read, args=(0, name, 29940 + at, results))
        reader.start()
        record["logits"][name], record["weights"][name] = results.get(timeout=300)
        reader.join()
    import megatron.core

    record["versions"] = {"megatron-core": megatron.core.__version__, "torch": torch.__version__}
    (HERE / "megatron_dist_mixture.json").write_text(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
