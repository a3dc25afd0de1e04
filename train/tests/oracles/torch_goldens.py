#!/usr/bin/env python3
"""Writes gpt.safetensors, gpt.json, llama.safetensors, llama.json beside this file.

    python train/tests/oracles/torch_goldens.py        (needs torch, transformers, safetensors, numpy)

Builds tiny GPT2LMHeadModel and LlamaForCausalLM whose weights follow a formula of integers that the Rust test
repeats, in our own storage layout; `to_hf` here is a second, independent description of that layout.
Recorded from float64 (stored as float32): HF weights, logits, gradients of the first batch, weights after 10 steps of
clip_grad_norm_ + AdamW. Recorded in JSON: losses, gradient norms, and for every quantity how closely a float32 program
can follow it, as conditioning.py measures it (the tolerance of the test is a small multiple of that).
"""
import numpy as np
import torch
import transformers
from tiny_runs import BATCH, VOCAB, formula, token, train, write

PADDED, T, D, HEADS, F, LAYERS, EPS = 128, 16, 16, 4, 24, 2, 1e-6


def native(family):
    """name -> array in our layout, salts counted in order."""
    kv = HEADS if family == "gpt" else 2
    packed, e = (HEADS + 2 * kv) * (D // HEADS), D // HEADS
    bias = family == "gpt"
    out = {}

    def add(name, *dims):
        is_norm = "norm" in name and name.endswith("weight")
        salt = len(out)
        w = formula(salt, dims, 0.5 if len(dims) == 2 else 0.25, 1.0 if is_norm else 0.0)
        if name in ("embedding.weight", "head.weight"):
            w[VOCAB:] = 0
        out[name] = w

    def norm(name):
        add(name + ".weight", D)
        if bias:
            add(name + ".bias", D)

    def linear(name, rows, cols, width):
        add(name + ".weight", rows, cols)
        if bias:
            add(name + ".bias", width)

    add("embedding.weight", PADDED, D)
    if family == "gpt":
        add("position.weight", T, D)
    for i in range(LAYERS):
        at = f"layers.{i}"
        fc1 = F if family == "gpt" else 2 * F
        norm(at + ".norm1")
        linear(at + ".qkv", packed, D, packed)
        linear(at + ".out", HEADS * e, D, D)
        norm(at + ".norm2")
        linear(at + ".fc1", fc1, D, fc1)
        linear(at + ".fc2", F, D, D)
    norm("norm")
    if family == "llama":
        add("head.weight", PADDED, D)
    return out, kv


def to_hf(family, w, kv):
    e, per = D // HEADS, HEADS // kv

    def qkv(x):
        groups = x.reshape(kv, per + 2, e, -1)
        q, k, v = groups[:, :per], groups[:, per], groups[:, per + 1]
        return [p.reshape(-1, x.shape[1]) if x.ndim == 2 else p.reshape(-1) for p in (q, k, v)]

    out = {}
    if family == "gpt":
        out["transformer.wte.weight"] = w["embedding.weight"][:VOCAB]
        out["transformer.wpe.weight"] = w["position.weight"]
        for i in range(LAYERS):
            a, b = f"transformer.h.{i}.", f"layers.{i}."
            for k in ("weight", "bias"):
                out[a + "ln_1." + k], out[a + "ln_2." + k] = w[b + "norm1." + k], w[b + "norm2." + k]
            out[a + "attn.c_attn.weight"] = np.concatenate(qkv(w[b + "qkv.weight"])).T
            out[a + "attn.c_attn.bias"] = np.concatenate(qkv(w[b + "qkv.bias"]))
            out[a + "attn.c_proj.weight"], out[a + "attn.c_proj.bias"] = w[b + "out.weight"], w[b + "out.bias"]
            out[a + "mlp.c_fc.weight"], out[a + "mlp.c_fc.bias"] = w[b + "fc1.weight"].T, w[b + "fc1.bias"]
            out[a + "mlp.c_proj.weight"], out[a + "mlp.c_proj.bias"] = w[b + "fc2.weight"], w[b + "fc2.bias"]
        out["transformer.ln_f.weight"], out["transformer.ln_f.bias"] = w["norm.weight"], w["norm.bias"]
    else:
        out["model.embed_tokens.weight"] = w["embedding.weight"][:VOCAB]
        for i in range(LAYERS):
            a, b = f"model.layers.{i}.", f"layers.{i}."
            out[a + "input_layernorm.weight"] = w[b + "norm1.weight"]
            out[a + "post_attention_layernorm.weight"] = w[b + "norm2.weight"]
            for n, p in zip("qkv", qkv(w[b + "qkv.weight"])):
                out[a + f"self_attn.{n}_proj.weight"] = p
            out[a + "self_attn.o_proj.weight"] = w[b + "out.weight"].T
            chunks = w[b + "fc1.weight"].reshape(8, 2, F // 8, D)
            out[a + "mlp.gate_proj.weight"] = chunks[:, 0].reshape(F, D)
            out[a + "mlp.up_proj.weight"] = chunks[:, 1].reshape(F, D)
            out[a + "mlp.down_proj.weight"] = w[b + "fc2.weight"].T
        out["model.norm.weight"], out["lm_head.weight"] = w["norm.weight"], w["head.weight"][:VOCAB]
    return {k: np.ascontiguousarray(v) for k, v in out.items()}


def build(family, kv):
    if family == "gpt":
        c = transformers.GPT2Config(vocab_size=VOCAB, n_positions=T, n_embd=D, n_layer=LAYERS, n_head=HEADS, n_inner=F,
                                    activation_function="gelu_new", attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0,
                                    attn_implementation="eager")
        return transformers.GPT2LMHeadModel(c)
    c = transformers.LlamaConfig(vocab_size=VOCAB, max_position_embeddings=T, hidden_size=D, intermediate_size=F,
                                 num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=kv,
                                 rms_norm_eps=1e-5, rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
                                 attn_implementation="eager", tie_word_embeddings=False)
    return transformers.LlamaForCausalLM(c)


def forward(model, step):
    ids = torch.tensor([[token(step * BATCH + s, j) for j in range(T + 1)] for s in range(BATCH)])
    logits = model(ids[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()), logits


if __name__ == "__main__":
    for family in ("gpt", "llama"):
        w, kv = native(family)
        write(family, to_hf(family, w, kv), lambda weights, dtype: train(build(family, kv), weights, dtype, EPS, forward))
