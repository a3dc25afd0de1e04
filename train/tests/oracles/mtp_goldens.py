#!/usr/bin/env python3
"""Writes mtp, mtp_tied and hf_mtp_deepseek, a .safetensors and a .json each, beside this file.

    OMP_NUM_THREADS=1 python train/tests/oracles/mtp_goldens.py
                        (needs torch, megatron-core 0.16.1, transformers, safetensors, numpy)

megatron-core's GPTModel with multi-token prediction (local spec, CPU), two layers like LLaMA's: two depths and a head of its
own; one depth, a tied head and tokens that do not count after an end of document (Megatron's eod_mask_loss). Weights follow a
formula of integers that the Rust test repeats, in our own storage layout, and have the names of DeepSeek-V3's published files.
Recorded from float64 (stored as float32): weights, logits, gradients of the first batch, weights after 10 steps of
clip_grad_norm_ + AdamW. In JSON: losses, losses of each depth, gradient norms, and how closely a float32 program can follow each
quantity, as conditioning.py measures it (the test's tolerance is a small multiple of that).

hf_mtp_deepseek is a DeepseekV3ForCausalLM of transformers with seeded weights and one depth around a layer of its class, in the
order of megatron-core: latent attention and a mixture of experts.

Two parts of megatron-core compute in float32 whatever the format is, and are replaced: its cross entropy by torch's, and the
angles of its rotary embedding by the same formula in the run's format. Losses are sums over tokens divided by the number of
tokens of the batch that count (calculate_per_token_loss).
"""
import json
import os
import sys

import numpy as np
import torch
import transformers
from megatron_cpu import without_cuda, without_tracker
from tiny_runs import BATCH, VOCAB, InFormat, formula, states, token, train, write

without_cuda()

PADDED, T, D, HEADS, KV, F, LAYERS, EPS = 128, 16, 16, 4, 2, 24, 2, 1e-6
E = D // HEADS
FACTOR = 0.3
# name: depths, tied head, end of document
MODELS = {"mtp": (2, False, None), "mtp_tied": (1, True, 3)}


def native(depths, tied):
    """name -> array in our layout, salts counted in order."""
    out = {}

    def add(name, *dims):
        is_norm = "norm" in name
        w = formula(len(out), dims, 0.5 if len(dims) == 2 else 0.25, 1.0 if is_norm else 0.0)
        if name in ("embedding.weight", "head.weight"):
            w[VOCAB:] = 0
        out[name] = w

    def block(at):
        add(at + ".norm1.weight", D)
        add(at + ".qkv.weight", (HEADS + 2 * KV) * E, D)
        add(at + ".out.weight", HEADS * E, D)
        add(at + ".norm2.weight", D)
        add(at + ".fc1.weight", 2 * F, D)
        add(at + ".fc2.weight", F, D)

    add("embedding.weight", PADDED, D)
    for i in range(LAYERS):
        block(f"layers.{i}")
    add("norm.weight", D)
    for k in range(depths):
        for norm in ("enorm", "hnorm", "norm"):
            add(f"mtp.{k}.{norm}.weight", D)
        add(f"mtp.{k}.eh_proj.weight", D, 2 * D)
        block(f"mtp.{k}")
    if not tied:
        add("head.weight", PADDED, D)
    return out


def to_hf(w, depths, tied):
    """Our layout -> the names and layouts of DeepSeek-V3's files, which repeat both tensors of the vocabulary in each depth."""
    out = {}

    def block(a, b):
        groups = w[b + ".qkv.weight"].reshape(KV, HEADS // KV + 2, E, D)
        for n, p in zip("qkv", (groups[:, :-2], groups[:, -2], groups[:, -1])):
            out[a + f"self_attn.{n}_proj.weight"] = p.reshape(-1, D)
        out[a + "self_attn.o_proj.weight"] = w[b + ".out.weight"].T
        chunks = w[b + ".fc1.weight"].reshape(8, 2, F // 8, D)
        out[a + "mlp.gate_proj.weight"] = chunks[:, 0].reshape(F, D)
        out[a + "mlp.up_proj.weight"] = chunks[:, 1].reshape(F, D)
        out[a + "mlp.down_proj.weight"] = w[b + ".fc2.weight"].T
        out[a + "input_layernorm.weight"] = w[b + ".norm1.weight"]
        out[a + "post_attention_layernorm.weight"] = w[b + ".norm2.weight"]

    table, head = w["embedding.weight"][:VOCAB], w["embedding.weight" if tied else "head.weight"][:VOCAB]
    out["model.embed_tokens.weight"], out["model.norm.weight"] = table, w["norm.weight"]
    for i in range(LAYERS):
        block(f"model.layers.{i}.", f"layers.{i}")
    for k in range(depths):
        a, b = f"model.layers.{LAYERS + k}.", f"mtp.{k}"
        block(a, b)
        out[a + "embed_tokens.weight"], out[a + "shared_head.head.weight"] = table, head
        out[a + "shared_head.norm.weight"] = w[b + ".norm.weight"]
        for n in ("enorm", "hnorm", "eh_proj"):
            out[a + n + ".weight"] = w[f"{b}.{n}.weight"]
    if not tied:
        out["lm_head.weight"] = head
    return {k: np.ascontiguousarray(v) for k, v in out.items()}


def parts(depths, tied):
    """megatron-core's name -> (names of the files' tensors, which it has one after the other; or its copies)."""
    out = {"embedding.word_embeddings.weight": ["model.embed_tokens.weight"],
           "decoder.final_layernorm.weight": ["model.norm.weight"]}
    if not tied:
        out["output_layer.weight"] = ["lm_head.weight"]

    def block(theirs, a):
        out.update({theirs + "input_layernorm.weight": [a + "input_layernorm.weight"],
                    theirs + "pre_mlp_layernorm.weight": [a + "post_attention_layernorm.weight"],
                    theirs + "self_attention.linear_qkv.weight": [a + f"self_attn.{n}_proj.weight" for n in "qkv"],
                    theirs + "self_attention.linear_proj.weight": [a + "self_attn.o_proj.weight"],
                    theirs + "mlp.linear_fc1.weight": [a + "mlp.gate_proj.weight", a + "mlp.up_proj.weight"],
                    theirs + "mlp.linear_fc2.weight": [a + "mlp.down_proj.weight"]})

    for i in range(LAYERS):
        block(f"decoder.layers.{i}.", f"model.layers.{i}.")
    for k in range(depths):
        theirs, a = f"mtp.layers.{k}.", f"model.layers.{LAYERS + k}."
        block(theirs + "transformer_layer.", a)
        out |= {theirs + "final_layernorm.weight": [a + "shared_head.norm.weight"]}
        out |= {theirs + n + ".weight": [a + n + ".weight"] for n in ("enorm", "hnorm", "eh_proj")}
    return out


def by_groups(q, k, v):
    """Queries, keys and values packed by group of heads, as megatron-core has them."""
    q, k, v = q.reshape(KV, -1, E, D), k.reshape(KV, 1, E, D), v.reshape(KV, 1, E, D)
    return np.concatenate([q, k, v], axis=1).reshape(-1, D)


def to_megatron(hf, depths, tied):
    out = {}
    for theirs, names in parts(depths, tied).items():
        values = [hf[name] for name in names]
        out[theirs] = by_groups(*values) if len(values) == 3 else np.concatenate(values)
    return out


def from_megatron(found, depths, tied):
    out = {}
    for theirs, names in parts(depths, tied).items():
        value = found[theirs]
        if len(names) == 3:
            groups = value.reshape(KV, HEADS // KV + 2, E, D)
            values = [p.reshape(-1, D) for p in (groups[:, :-2], groups[:, -2], groups[:, -1])]
        else:
            values = np.split(value, len(names))
        out |= dict(zip(names, values))
    for k in range(depths):
        a = f"model.layers.{LAYERS + k}."
        out[a + "embed_tokens.weight"] = out["model.embed_tokens.weight"]
        out[a + "shared_head.head.weight"] = out["model.embed_tokens.weight" if tied else "lm_head.weight"]
    return out


def build(depths, tied, dtype):
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec, get_gpt_mtp_block_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.transformer_config import TransformerConfig

    config = TransformerConfig(
        num_layers=LAYERS, hidden_size=D, num_attention_heads=HEADS, num_query_groups=KV, ffn_hidden_size=F,
        use_cpu_initialization=True, hidden_dropout=0.0, attention_dropout=0.0, params_dtype=dtype, pipeline_dtype=dtype,
        bias_dropout_fusion=False, masked_softmax_fusion=False, bias_activation_fusion=False, apply_rope_fusion=False,
        gradient_accumulation_fusion=False, attention_softmax_in_fp32=False, layernorm_epsilon=1e-5, normalization="RMSNorm",
        gated_linear_unit=True, activation_func=torch.nn.functional.silu, add_bias_linear=False, calculate_per_token_loss=True,
        mtp_num_layers=depths, mtp_loss_scaling_factor=FACTOR)
    spec = get_gpt_layer_local_spec(normalization="RMSNorm")
    model = GPTModel(config, transformer_layer_spec=spec, vocab_size=VOCAB, max_sequence_length=T,
                     share_embeddings_and_output_weights=tied, position_embedding_type="rope", rotary_base=10000,
                     mtp_block_spec=get_gpt_mtp_block_spec(config, spec, use_transformer_engine=False)).to(dtype)
    model.rotary_pos_emb.inv_freq = 1.0 / 10000 ** (torch.arange(0, E, 2, dtype=dtype) / E)

    def cross_entropy(labels, logits):
        losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.T.flatten(), reduction="none")
        return losses.view(T, BATCH).T

    model.compute_language_model_loss = cross_entropy
    return model


def run(weights, dtype, depths, tied, eod):
    from megatron.core.transformer.multi_token_prediction import MTPLossAutoScaler, MTPLossLoggingHelper

    model, seen = build(depths, tied, dtype), []
    model.output_layer.register_forward_hook(lambda module, inputs, outputs: seen.append(outputs[0]))
    further = []

    def forward(model, step):
        ids = torch.tensor([[token(step * BATCH + s, j) for j in range(T + 1)] for s in range(BATCH)])
        mask = torch.ones(BATCH, T, dtype=dtype) if eod is None else (ids[:, :-1] != eod).to(dtype)
        MTPLossLoggingHelper.tracker["values"] = torch.zeros(depths, dtype=dtype)
        MTPLossAutoScaler.set_loss_scale(1 / mask.sum())
        places = torch.arange(T).expand(BATCH, T)
        hidden = torch.ones(1, 1, T, T).triu(1).bool()
        seen.clear()
        losses = model(ids[:, :-1], places, hidden, labels=ids[:, 1:], loss_mask=mask)
        further.append(MTPLossLoggingHelper.tracker["values"].tolist())
        # the model's own logits come after those of its depths
        return (losses * mask).sum() / mask.sum(), seen[-1].transpose(0, 1).contiguous()

    found, series = train(model, to_megatron(weights, depths, tied), dtype, EPS, forward)
    out = {"logits": found["logits"]}
    for kind in ("grad", "final"):
        own = {name[len(kind) + 1:]: value for name, value in found.items() if name.startswith(kind + ".")}
        out |= {f"{kind}.{name}": value for name, value in from_megatron(own, depths, tied).items()}
    series |= {f"mtp_{k + 1}": [losses[k] for losses in further] for k in range(depths)}
    return out, series


DEEPSEEK = dict(
    vocab_size=VOCAB, max_position_embeddings=T, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=4, kv_lora_rank=8, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=6,
    first_k_dense_replace=1, n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=8, n_group=4, topk_group=2,
    pad_token_id=None, q_lora_rank=8, n_shared_experts=1, routed_scaling_factor=1.5, rms_norm_eps=1e-5, rope_theta=10.0,
    num_nextn_predict_layers=1)
EPS_DEEPSEEK = 1e-4


def build_deepseek():
    """A model of transformers with a layer more, which its own forward pass does not run."""
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as classes

    config = transformers.DeepseekV3Config(**DEEPSEEK)
    config._attn_implementation = "eager"
    model = transformers.DeepseekV3ForCausalLM(config)
    depth = classes.DeepseekV3DecoderLayer(config, config.num_hidden_layers)
    norm = lambda: classes.DeepseekV3RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
    depth.enorm, depth.hnorm, depth.shared_head = norm(), norm(), torch.nn.Module()
    depth.shared_head.norm = norm()
    depth.eh_proj = torch.nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
    model.model.layers.append(depth)
    return model


def run_deepseek(weights, dtype):
    further = []

    def forward(model, step):
        # experts' outputs of another format than the weights of their sum would be refused
        sys.modules[type(model).__module__].torch = InFormat(dtype)
        ids = torch.tensor([[token(step * BATCH + s, j) for j in range(T + 1)] for s in range(BATCH)])
        rows = model.model(ids[:, :-1], use_cache=False).last_hidden_state
        logits = model.lm_head(rows)
        own = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        depth, places = model.model.layers[-1], torch.arange(T).expand(BATCH, T)
        ahead = torch.cat([ids[:, 1:-1], torch.zeros(BATCH, 1, dtype=ids.dtype)], dim=1)
        embedded = depth.enorm(model.model.embed_tokens(ahead))
        both = depth.eh_proj(torch.cat([embedded, depth.hnorm(rows)], dim=-1))
        mask = torch.full((T, T), torch.finfo(dtype).min, dtype=dtype).triu(1)[None, None]
        found = depth(both, attention_mask=mask, position_ids=places,
                      position_embeddings=model.model.rotary_emb(both, places))
        found = found[0] if isinstance(found, tuple) else found
        predicted = model.lm_head(depth.shared_head.norm(found))[:, :-1]
        losses = torch.nn.functional.cross_entropy(predicted.flatten(0, 1), ids[:, 2:].flatten(), reduction="none")
        further.append(float(losses.mean().detach()))
        # an expert without a token has a gradient of 0 instead of none: its weights decay
        none = 0 * sum(p.sum() for p in model.parameters())
        more = 0.1 * losses.sum() / (BATCH * T) + none
        return own + more - more.detach(), logits  # its number is the model's own loss

    found, series = train(build_deepseek(), weights, dtype, EPS_DEEPSEEK, forward)
    out = {"logits": found["logits"]}
    for kind in ("grad", "final"):
        own = {name[len(kind) + 1:]: value for name, value in found.items() if name.startswith(kind + ".")}
        out |= {f"{kind}.{name}": value for name, value in with_copies(own).items()}
    return out, series | {"mtp_1": further}


def with_copies(tensors):
    at = f"model.layers.{DEEPSEEK['num_hidden_layers']}."
    return tensors | {at + "embed_tokens.weight": tensors["model.embed_tokens.weight"],
                      at + "shared_head.head.weight": tensors["lm_head.weight"]}


def write_deepseek():
    torch.manual_seed(9)
    model = build_deepseek()
    weights = {}
    for n, p in (dict(model.named_parameters()) | states(model)).items():
        w = torch.randn(p.shape) * (0.15 if p.dim() > 1 else 0.1)
        weights[n] = (w + 1.0 if "norm" in n else w).numpy()
    copies = set(with_copies(weights)) - set(weights)
    run = lambda weights, dtype: run_deepseek({k: v for k, v in weights.items() if k not in copies}, dtype)
    # before transformers 5, a whole configuration has settings of generation that no file has
    config = json.loads(model.config.to_json_string(use_diff=transformers.__version__.startswith("4.")))
    # our own field
    config |= {"num_nextn_predict_layers": 1, "mtp_num_layers": 1}
    write("hf_mtp_deepseek", with_copies(weights), run, config=config, eod=None)


if __name__ == "__main__":
    write_deepseek()
    address = f"tcp://127.0.0.1:{29540 + os.getpid() % 500}"
    torch.distributed.init_process_group("gloo", init_method=address, rank=0, world_size=1)
    import megatron.core
    from megatron.core import parallel_state

    without_tracker()
    parallel_state.initialize_model_parallel(1, 1)
    for name, (depths, tied, eod) in MODELS.items():
        weights = to_hf(native(depths, tied), depths, tied)
        write(name, weights, lambda weights, dtype: run(weights, dtype, depths, tied, eod),
              megatron_core=megatron.core.__version__)
