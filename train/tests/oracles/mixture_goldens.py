#!/usr/bin/env python3
"""Writes mixtral.safetensors, mixtral.json, qwen2_moe.safetensors, qwen2_moe.json beside this file.

    python train/tests/oracles/mixture_goldens.py        (needs torch, transformers, safetensors, numpy)

As torch_goldens.py, for mixtures of experts: MixtralForCausalLM, and Qwen2MoeForCausalLM with a dense first layer and
a gated shared expert. The loss that is minimised is cross entropy plus, for each mixture, BALANCE times transformers'
own load_balancing_loss_func of each sequence (over k: theirs counts a token k times), mean over sequences, and Z times
the mean squared log-sum of the router's logits. transformers' routers work in float32 also in a float64 model, so that
float64 weights that are moved (conditioning.py) tell what their rounding comes to; torch's float32 runs in four orders.
"""
import numpy as np
import torch
import transformers
from tiny_runs import BATCH, BETAS, CLIP, DECAY, LR, STEPS, VOCAB, formula, token, write
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

PADDED, T, D, HEADS, KV, F, LAYERS, EPS = 128, 16, 16, 4, 2, 24, 2, 1e-6
EXPERTS, TOP_K, SHARED, BALANCE, Z = 4, 2, 32, 0.05, 0.002


def is_mixture(kind, layer):
    return kind == "mixtral" or layer % 2 == 1


def native(kind):
    """name -> array in our layout, salts counted in order."""
    packed = (HEADS + 2 * KV) * (D // HEADS)
    out = {}

    def add(name, *dims):
        is_norm = "norm" in name
        w = formula(len(out), dims, 0.5 if len(dims) == 2 else 0.25, 1.0 if is_norm else 0.0)
        if name in ("embedding.weight", "head.weight"):
            w[VOCAB:] = 0
        out[name] = w

    def mlp(name, f):
        add(name + ".fc1.weight", 2 * f, D)
        add(name + ".fc2.weight", f, D)

    add("embedding.weight", PADDED, D)
    for i in range(LAYERS):
        at = f"layers.{i}"
        add(at + ".norm1.weight", D)
        add(at + ".qkv.weight", packed, D)
        add(at + ".out.weight", D, D)
        add(at + ".norm2.weight", D)
        if not is_mixture(kind, i):
            mlp(at, F)
            continue
        if kind == "qwen2_moe":
            mlp(at + ".shared", SHARED)
            add(at + ".shared_gate.weight", 1, D)
        add(at + ".router.weight", EXPERTS, D)
        for e in range(EXPERTS):
            mlp(f"{at}.experts.{e}", F if kind == "mixtral" else 16)
    add("norm.weight", D)
    add("head.weight", PADDED, D)
    return out


def to_hf(kind, w):
    """Under the names of published checkpoints."""
    e, per = D // HEADS, HEADS // KV
    out = {"model.embed_tokens.weight": w["embedding.weight"][:VOCAB]}

    def mlp(to, source, names):
        fc1 = w[source + ".fc1.weight"]
        chunks = fc1.reshape(8, 2, fc1.shape[0] // 16, D)
        gate, up, down = names
        out[f"{to}.{gate}.weight"] = chunks[:, 0].reshape(-1, D)
        out[f"{to}.{up}.weight"] = chunks[:, 1].reshape(-1, D)
        out[f"{to}.{down}.weight"] = w[source + ".fc2.weight"].T

    projections = ("gate_proj", "up_proj", "down_proj")
    for i in range(LAYERS):
        a, b = f"model.layers.{i}.", f"layers.{i}."
        out[a + "input_layernorm.weight"] = w[b + "norm1.weight"]
        out[a + "post_attention_layernorm.weight"] = w[b + "norm2.weight"]
        groups = w[b + "qkv.weight"].reshape(KV, per + 2, e, D)
        for n, part in zip("qkv", (groups[:, :per], groups[:, per], groups[:, per + 1])):
            out[a + f"self_attn.{n}_proj.weight"] = part.reshape(-1, D)
        out[a + "self_attn.o_proj.weight"] = w[b + "out.weight"].T
        if not is_mixture(kind, i):
            mlp(a + "mlp", f"layers.{i}", projections)
            continue
        if kind == "mixtral":
            out[a + "block_sparse_moe.gate.weight"] = w[b + "router.weight"]
            for j in range(EXPERTS):
                mlp(f"{a}block_sparse_moe.experts.{j}", f"{b}experts.{j}", ("w1", "w3", "w2"))
        else:
            mlp(a + "mlp.shared_expert", b + "shared", projections)
            out[a + "mlp.shared_expert_gate.weight"] = w[b + "shared_gate.weight"]
            out[a + "mlp.gate.weight"] = w[b + "router.weight"]
            for j in range(EXPERTS):
                mlp(f"{a}mlp.experts.{j}", f"{b}experts.{j}", projections)
    out["model.norm.weight"], out["lm_head.weight"] = w["norm.weight"], w["head.weight"][:VOCAB]
    return {k: np.ascontiguousarray(v) for k, v in out.items()}


def build(kind):
    both = dict(vocab_size=VOCAB, max_position_embeddings=T, hidden_size=D, num_hidden_layers=LAYERS,
                num_attention_heads=HEADS, num_key_value_heads=KV, rms_norm_eps=1e-5, intermediate_size=F,
                rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, num_experts_per_tok=TOP_K,
                attn_implementation="eager", experts_implementation="eager", tie_word_embeddings=False,
                output_router_logits=True)
    if kind == "mixtral":
        return transformers.MixtralForCausalLM(transformers.MixtralConfig(num_local_experts=EXPERTS, **both))
    return transformers.Qwen2MoeForCausalLM(transformers.Qwen2MoeConfig(
        num_experts=EXPERTS, moe_intermediate_size=16, shared_expert_intermediate_size=SHARED, norm_topk_prob=False,
        decoder_sparse_step=2, qkv_bias=False, use_sliding_window=False, **both))


def by_expert(kind, named):
    """transformers stacks the experts of a layer; published checkpoints do not."""
    out = {}
    names = ("w1", "w3", "w2") if kind == "mixtral" else ("gate_proj", "up_proj", "down_proj")
    for name, x in named.items():
        if kind == "mixtral":
            name = name.replace(".mlp.", ".block_sparse_moe.")
        if name.endswith("experts.gate_up_proj"):
            at = name.removesuffix("gate_up_proj")
            for e in range(EXPERTS):
                gate, up = x[e].reshape(2, -1, D)
                out[f"{at}{e}.{names[0]}.weight"], out[f"{at}{e}.{names[1]}.weight"] = gate, up
        elif name.endswith("experts.down_proj"):
            at = name.removesuffix("down_proj")
            for e in range(EXPERTS):
                out[f"{at}{e}.{names[2]}.weight"] = x[e]
        else:
            out[name] = x
    return out


def losses(logits, routers, targets):
    ce = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    balance = z = 0.0
    for layer in routers:
        sequences = layer.reshape(BATCH, T, EXPERTS)
        each = [load_balancing_loss_func((s,), EXPERTS, TOP_K) / TOP_K for s in sequences]
        balance = balance + sum(each) / BATCH
        z = z + torch.logsumexp(layer, dim=-1).square().mean()
    return ce, balance, z


def train(kind, weights, dtype, order=(0, 1, 2, 3)):
    model = build(kind).to(dtype).train()
    named = dict(model.named_parameters())
    with torch.no_grad():
        parts = by_expert(kind, {n: p.data for n, p in named.items()})
        assert sorted(parts) == sorted(weights), set(parts) ^ set(weights)
        for name, part in parts.items():
            part.copy_(torch.from_numpy(weights[name]).to(dtype))
    # a stacked parameter has three dims, so decay is by name
    groups = [{"params": [p for n, p in named.items() if "norm" not in n], "weight_decay": DECAY},
              {"params": [p for n, p in named.items() if "norm" in n], "weight_decay": 0.0}]
    opt = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS)
    out, record = {}, {"losses": [], "grad_norms": [], "balance": [], "z": []}
    tensors = lambda of: {n: x.numpy().copy() for n, x in by_expert(kind, of).items()}
    mixtures = sum(is_mixture(kind, i) for i in range(LAYERS))
    for step in range(STEPS):
        ids = torch.tensor([[token(step * BATCH + s, j) for j in range(T + 1)] for s in order])
        result = model(ids[:, :-1])
        routers = [r for r in result.router_logits if r is not None]
        assert len(routers) == mixtures, len(routers)
        ce, balance, z = losses(result.logits, routers, ids[:, 1:])
        opt.zero_grad()
        (ce + BALANCE * balance + Z * z).backward()
        if step == 0:
            out["logits"] = result.logits.detach().numpy()[np.argsort(order)].copy()
            out |= {"grad." + n: x for n, x in tensors({n: p.grad for n, p in named.items()}).items()}
        record["grad_norms"].append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)))
        record["losses"].append(float(ce.detach()))
        record["balance"].append(float(balance) / mixtures)
        record["z"].append(float(z) / mixtures)
        opt.step()
    out |= {"final." + n: x for n, x in tensors({n: p.detach() for n, p in named.items()}).items()}
    return out, record


for kind in ("mixtral", "qwen2_moe"):
    weights = to_hf(kind, native(kind))
    orders = ((0, 1, 2, 3), (2, 0, 3, 1), (3, 2, 1, 0), (1, 3, 0, 2))
    singles = [train(kind, weights, torch.float32, order) for order in orders]
    write(kind, weights, lambda weights, dtype: train(kind, weights, dtype), singles)
