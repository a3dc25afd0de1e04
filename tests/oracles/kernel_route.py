"""Routing, losses and gradients as Megatron-Core's router functions compute them on the CPU.

Usage: kernel_route.py > kernels/tests/data/route.txt. Needs torch, megatron-core 0.16.1.
A case: a line `score k scale tokens experts`, then a line each: logits, bias, gradient of the dense
weights, dense weights, load balance and z-loss, gradient of the logits, what capacity 3 keeps by weight.
"""

import torch
from megatron.core.transformer.moe.moe_utils import (
    apply_router_token_dropping,
    compute_routing_scores_for_aux_loss,
    switch_load_balancing_loss_func,
    topk_routing_with_score_function,
    z_loss_func,
)

TOKENS, EXPERTS = 12, 6
generator = torch.Generator().manual_seed(1)


def show(x):
    print(*[repr(v) for v in x.detach().double().reshape(-1).tolist()])


for score in ("SoftmaxTopK", "TopKSoftmax", "Sigmoid"):
    for k, scale in ((1, 1.0), (2, 1.0), (3, 2.5)):
        logits = (2 * torch.randn(TOKENS, EXPERTS, generator=generator)).requires_grad_()
        bias = 0.3 * torch.randn(EXPERTS, generator=generator)
        outer = torch.randn(TOKENS, EXPERTS, generator=generator)
        weights, chosen = topk_routing_with_score_function(
            logits,
            k,
            use_pre_softmax=score == "SoftmaxTopK",
            scaling_factor=scale,
            score_function="sigmoid" if score == "Sigmoid" else "softmax",
            expert_bias=bias if score == "Sigmoid" else None,
        )
        function = "sigmoid" if score == "Sigmoid" else "softmax"
        largest, shares = compute_routing_scores_for_aux_loss(logits, k, function)
        balance = switch_load_balancing_loss_func(shares, largest.sum(0), TOKENS, k, EXPERTS, 1.0)
        z = z_loss_func(logits, 1.0)
        ((weights * outer).sum() + 0.5 * balance + 0.25 * z).backward()
        kept = apply_router_token_dropping(weights, chosen, k, 3 * EXPERTS / (TOKENS * k), "probs")[1]
        print(score, k, scale, TOKENS, EXPERTS)
        for x in (logits, bias, outer, weights, torch.stack([balance, z]), logits.grad, kept):
            show(x)
