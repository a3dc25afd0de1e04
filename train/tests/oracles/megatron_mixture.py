#!/usr/bin/env python3
"""Writes megatron_mixture.safetensors beside this file.

    python train/tests/oracles/megatron_mixture.py        (needs torch, megatron-core 0.16.1, psutil, safetensors)

megatron-core's MoELayer (router, dispatcher, SequentialMLP) on the CPU in float32, on one sequence of 16 tokens:
output y, and gradients of x, router and experts of sum(y * dy) plus its load balance and z-losses, dropless and
dropping over capacity by probability and by position; and with sigmoid scores and a selection bias, which
`get_updated_expert_bias` moves after each of three batches (`bias.N.layers.0.router.bias`). Weights and inputs are random numbers, recorded in our storage
layout (`native`); experts' first matrices lie gate over up in Megatron and in 8 chunks here.
"""
import os
from pathlib import Path

import numpy as np
import torch
from megatron_cpu import without_cuda, without_tracker
from safetensors.numpy import save_file

without_cuda()
T, D, F, EXPERTS, TOP_K, BALANCE, Z, RATE = 16, 16, 24, 4, 2, 0.05, 0.002, 0.1
CASES = {"dropless": (None, "probs"), "probability": (1.0, "probs"), "position": (1.0, "position")}
BIASED = {"bias": None, "bias_over_capacity": 1.0}


torch_topk = torch.topk


def stable_topk(x, k, dim=-1, **rest):
    """Of equal whole numbers torch may take any; dropping by position means the first."""
    if x.is_floating_point():
        return torch_topk(x, k, dim=dim, **rest)
    values, indices = torch.sort(x, dim=dim, descending=True, stable=True)
    return values.narrow(dim, 0, k), indices.narrow(dim, 0, k)


torch.topk = stable_topk


def chunked(fc1):
    """[2f, d], gate over up -> 8 chunks of gate rows and up rows."""
    return fc1.reshape(2, 8, F // 8, D).swapaxes(0, 1).reshape(2 * F, D)


def layer(capacity, policy, **more):
    import megatron.core.transformer.moe.moe_utils as moe_utils
    moe_utils.te_general_gemm = None
    from megatron.core.models.gpt.moe_module_specs import get_moe_module_spec
    from megatron.core.transformer.transformer_config import TransformerConfig
    without_tracker()
    config = TransformerConfig(
        num_layers=1, hidden_size=D, num_attention_heads=4, ffn_hidden_size=F, num_moe_experts=EXPERTS,
        moe_router_topk=TOP_K, moe_router_load_balancing_type="aux_loss", moe_aux_loss_coeff=BALANCE,
        moe_z_loss_coeff=Z, moe_expert_capacity_factor=capacity, moe_token_drop_policy=policy,
        moe_token_dispatcher_type="allgather", moe_router_dtype="fp32", gated_linear_unit=True,
        activation_func=torch.nn.functional.silu, add_bias_linear=False, use_cpu_initialization=True,
        params_dtype=torch.float32, bias_activation_fusion=False, gradient_accumulation_fusion=False, **more)
    spec = get_moe_module_spec(use_te=False, num_experts=EXPERTS, moe_grouped_gemm=False)
    from megatron.core.transformer.spec_utils import build_module
    built = build_module(spec, config=config)
    built.set_layer_number(1)
    return built.train()


def main():
    port = 29540 + os.getpid() % 500
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
    from megatron.core import parallel_state
    parallel_state.initialize_model_parallel(1, 1)
    rng = np.random.default_rng(7)
    normal = lambda *dims: (rng.standard_normal(dims) * 0.5).astype(np.float32)
    x, dy, router = normal(T, D), normal(T, D), normal(EXPERTS, D)
    experts = [(normal(2 * F, D), normal(D, F)) for _ in range(EXPERTS)]
    out = {"x": x, "dy": dy, "layers.0.router.weight": router}
    for e, (fc1, fc2) in enumerate(experts):
        out[f"layers.0.experts.{e}.fc1.weight"], out[f"layers.0.experts.{e}.fc2.weight"] = chunked(fc1), fc2.T

    def filled(moe):
        with torch.no_grad():
            moe.router.weight.copy_(torch.from_numpy(router))
            for local, (fc1, fc2) in zip(moe.experts.local_experts, experts):
                local.linear_fc1.weight.copy_(torch.from_numpy(fc1))
                local.linear_fc2.weight.copy_(torch.from_numpy(fc2))
        return moe

    def run(name, moe, x, has_experts=True):
        given = torch.from_numpy(x[:, None].copy()).requires_grad_()
        moe.zero_grad()
        y, _ = moe(given)
        (y * torch.from_numpy(dy[:, None])).sum().backward()
        out[f"{name}.y"], out[f"{name}.dx"] = y.detach().numpy()[:, 0], given.grad.numpy()[:, 0]
        out[f"{name}.layers.0.router.weight"] = moe.router.weight.grad.numpy().copy()
        for e, local in enumerate(moe.experts.local_experts if has_experts else []):
            out[f"{name}.layers.0.experts.{e}.fc1.weight"] = chunked(local.linear_fc1.weight.grad.numpy())
            out[f"{name}.layers.0.experts.{e}.fc2.weight"] = local.linear_fc2.weight.grad.numpy().T.copy()

    for name, (capacity, policy) in CASES.items():
        run(name, filled(layer(capacity, policy)), x)
    batches = [x, normal(T, D), normal(T, D)]
    out |= {f"x.{step}": batch for step, batch in enumerate(batches)}
    from megatron.core.transformer.moe.moe_utils import get_updated_expert_bias
    for name, capacity in BIASED.items():
        moe = filled(layer(capacity, "probs", moe_router_score_function="sigmoid", moe_router_enable_expert_bias=True,
                           moe_router_bias_update_rate=RATE, moe_router_topk_scaling_factor=1.5))
        for step, batch in enumerate(batches):
            run(f"{name}.{step}", moe, batch, has_experts=False)
            counts = moe.router.local_tokens_per_expert
            moe.router.expert_bias.copy_(get_updated_expert_bias(counts.clone(), moe.router.expert_bias, RATE))
            counts.zero_()
            out[f"{name}.{step}.layers.0.router.bias"] = moe.router.expert_bias.numpy().copy()
    out = {k: np.ascontiguousarray(v) for k, v in out.items()}
    save_file(out, Path(__file__).with_suffix(".safetensors"))
    print({k: float(np.abs(v).sum()) for k, v in out.items() if k.endswith((".y", ".dx"))})


if __name__ == "__main__":
    main()
