#!/usr/bin/env python3
"""Writes hf_<name>.safetensors and hf_<name>.json beside this file, for each model in MODELS.

    OMP_NUM_THREADS=1 python train/tests/oracles/decoder_goldens.py   (needs torch, transformers, safetensors, numpy)

Each is a tiny transformers model as its own class writes it: config.json (under "config") and weights from a seeded
generator, rounded to float32. Recorded from float64 (stored as float32): logits and gradients of the first batch,
weights after 10 steps of clip_grad_norm_ + AdamW. In JSON: losses, gradient norms, and how closely a float32 program
can follow each quantity, as conditioning.py measures it (the test's tolerance is a small multiple of that).
AdamW's eps is 1e-4: biases of keys have a gradient of 0 but for rounding, which a smaller one would blow up.
With "eod" sequences are packed documents: tokens see their own document alone, positions count from its start, and
what follows an end does not count in the loss (Megatron's reset_attention_mask, reset_position_ids, eod_mask_loss).
"""
import json
import sys

import torch
import transformers
from tiny_runs import BATCH, VOCAB, InFormat, states, token, train, write

T, EPS = 16, 1e-4
LLAMA = dict(vocab_size=VOCAB, max_position_embeddings=T, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False)
BLOOM = dict(vocab_size=VOCAB, seq_length=T, hidden_size=24, n_layer=2, n_head=6)
DEEPSEEK = dict(vocab_size=VOCAB, max_position_embeddings=T, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
                num_attention_heads=4, num_key_value_heads=4, kv_lora_rank=8, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=6,
                first_k_dense_replace=1, n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=8, n_group=4,
                topk_group=2, pad_token_id=None)
FALCON = dict(vocab_size=VOCAB, max_position_embeddings=T, hidden_size=16, ffn_hidden_size=24, num_hidden_layers=2,
              num_attention_heads=4)
GEMMA = dict(vocab_size=VOCAB, max_position_embeddings=T, hidden_size=16, intermediate_size=24, num_hidden_layers=3,
             num_attention_heads=4, num_key_value_heads=2, head_dim=8, sliding_window=5, query_pre_attn_scalar=20,
             pad_token_id=None)
GPT_OSS = dict(vocab_size=VOCAB, max_position_embeddings=T, hidden_size=16, intermediate_size=16, num_hidden_layers=2,
               num_attention_heads=4, num_key_value_heads=2, head_dim=8, sliding_window=5, num_local_experts=4,
               num_experts_per_tok=2, router_aux_loss_coef=0.0, pad_token_id=None,
               rope_theta=10.0,  # some pairs are within the ramp
               rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32, truncate=False,
                                 beta_fast=32.0, beta_slow=1.0))
NEOX = dict(vocab_size=VOCAB, max_position_embeddings=T, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
            num_attention_heads=2)


def rope(**kind):
    return dict(rope_parameters=dict(rope_theta=10000.0, **kind))


# name: (class, settings, end-of-document token)
MODELS = {
    # slopes of six heads, two of which are between the powers of the other four
    "bloom": ("Bloom", BLOOM, None),
    "bloom_packed": ("Bloom", BLOOM | dict(n_head=3, layer_norm_epsilon=1e-4, tie_word_embeddings=False), 3),
    # latents of keys and values alone, experts of the best groups, two shared ones
    "deepseek_v2": ("DeepseekV2", DEEPSEEK | dict(q_lora_rank=None, topk_method="group_limited_greedy", n_shared_experts=2,
                                                  routed_scaling_factor=2.0, aux_loss_alpha=0.0), None),
    # latents of queries too, stretched positions and scores, biased scores of experts
    "deepseek_v3": ("DeepseekV3", DEEPSEEK | dict(q_lora_rank=8, n_shared_experts=1, routed_scaling_factor=1.5, rms_norm_eps=1e-5,
                                                  rope_theta=10.0,  # some pairs are within the ramp
                                                  rope_scaling=dict(rope_type="yarn", factor=4.0, mscale=0.7, mscale_all_dim=0.9,
                                                                    original_max_position_embeddings=32, beta_fast=32.0,
                                                                    beta_slow=1.0)), None),
    # the text is longer than the model; the original length is one that the class does not read
    "dynamic": ("Llama", LLAMA | dict(max_position_embeddings=12)
                | rope(rope_type="dynamic", factor=2.0, original_max_position_embeddings=8), None),
    # one norm of both layers and one group of heads; two norms and two groups; layers in turn, a group of each head
    "falcon": ("Falcon", FALCON, None),
    "falcon_groups": ("Falcon", FALCON | dict(new_decoder_architecture=True, num_kv_heads=2, bias=True, activation="relu",
                                              tie_word_embeddings=False, rope_theta=500.0), None),
    "falcon_sequential": ("Falcon", FALCON | dict(parallel_attn=False, multi_query=False, bias=True), 3),
    # a layer with a window and one without; scores and logits that their caps change
    "gemma2": ("Gemma2", GEMMA | dict(num_hidden_layers=2, attn_logit_softcapping=1.5, final_logit_softcapping=2.5), None),
    "gemma2_packed": ("Gemma2", GEMMA | dict(num_hidden_layers=2, layer_types=["full_attention"] * 2, hidden_activation="gelu",
                                             attn_logit_softcapping=None, final_logit_softcapping=2.5, head_dim=4,
                                             tie_word_embeddings=False), 3),
    # two layers with a window and a base of their own, and one without
    "gemma3": ("Gemma3Text", GEMMA | dict(sliding_window_pattern=3), None),
    "gemma3_packed": ("Gemma3Text", GEMMA | dict(num_hidden_layers=2, layer_types=["sliding_attention", "full_attention"],
                                                 rope_theta=500.0, rope_local_base_freq=50.0,
                                                 rope_scaling=dict(rope_type="linear", factor=8.0)), 3),
    # sinks, a layer with a window and one without, experts with biases, all of whose gates and ups are within the bounds; in the
    # second model (LARGE) some are beyond them
    "gpt_oss": ("GptOss", GPT_OSS, None),
    "gpt_oss_packed": ("GptOss", GPT_OSS | dict(num_hidden_layers=1, layer_types=["full_attention"], rope_scaling=None,
                                                rope_theta=500.0, num_experts_per_tok=3), 3),
    # a quarter of a head is turned; attention and feed-forward layer read the same rows
    "gpt_neox": ("GPTNeoX", NEOX, None),
    "gpt_neox_sequential": ("GPTNeoX", NEOX | dict(use_parallel_residual=False, rotary_pct=0.5, rotary_emb_base=500,
                                                   hidden_act="gelu_fast", tie_word_embeddings=True), 3),
    "gpt2_packed": ("GPT2", dict(vocab_size=VOCAB, n_positions=T, n_embd=16, n_layer=2, n_head=4, attn_pdrop=0.0,
                                 embd_pdrop=0.0, resid_pdrop=0.0), 3),
    "llama3": ("Llama", LLAMA | dict(head_dim=8, attention_bias=True, mlp_bias=True)
               | rope(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                      original_max_position_embeddings=8), None),
    "llama_packed": ("Llama", LLAMA | rope(rope_type="default"), 3),
    "mistral": ("Mistral", LLAMA | dict(sliding_window=5) | rope(rope_type="default"), None),
    # norms after the layers, of all queries and of all keys
    "olmo2": ("Olmo2", LLAMA | dict(rope_theta=10000.0, pad_token_id=None), None),
    "olmo2_packed": ("Olmo2", LLAMA | dict(num_key_value_heads=4, tie_word_embeddings=True, rope_theta=500.0,
                                           rms_norm_eps=1e-4, pad_token_id=None), 3),
    # no token has the first two rows of positions
    "opt": ("OPT", dict(vocab_size=VOCAB, max_position_embeddings=T, hidden_size=16, ffn_dim=24, num_hidden_layers=2,
                        num_attention_heads=4, dropout=0.0, pad_token_id=None), None),
    "opt_packed": ("OPT", dict(vocab_size=VOCAB, max_position_embeddings=T, hidden_size=16, ffn_dim=24,
                               num_hidden_layers=2, num_attention_heads=2, dropout=0.0, pad_token_id=None,
                               activation_function="gelu", tie_word_embeddings=False), 3),
    # half of a head is turned; queries, keys and values are one matrix, gates and ups another
    "phi3": ("Phi3", LLAMA | dict(partial_rotary_factor=0.5, sliding_window=6, pad_token_id=None), None),
    "qwen2": ("Qwen2", LLAMA | dict(tie_word_embeddings=True) | rope(rope_type="linear", factor=2.0), None),
    "qwen3": ("Qwen3", LLAMA | dict(head_dim=8) | rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=8),
              None),
}

# Factors of some initial weights.
LARGE = {"gpt_oss_packed": dict(gate_up_proj=10.0)}


def build(kind, settings):
    config = getattr(transformers, kind + "Config")(**settings)
    config._attn_implementation = "eager"
    name = {"GPT2": "GPT2LMHeadModel", "Gemma3Text": "Gemma3ForCausalLM"}.get(kind, kind + "ForCausalLM")
    return getattr(transformers, name)(config)


def packed(ids, eod, dtype):
    """Additive mask, positions and what counts, of inputs `ids`."""
    masks, positions = torch.zeros(*ids.shape, ids.shape[1], dtype=dtype), torch.zeros_like(ids)
    for s, row in enumerate(ids.tolist()):
        start = 0
        for i in range(len(row)):
            if i > 0 and row[i - 1] == eod:
                start = i
            masks[s, i, :start] = torch.finfo(dtype).min
            masks[s, i, i + 1:] = torch.finfo(dtype).min
            positions[s, i] = i - start
    return dict(attention_mask=masks[:, None], position_ids=positions), ids != eod


def by_layer(mask, window):
    """The masks of layers without a window and with one, as Gemma's classes take them."""
    at = torch.arange(mask.shape[-1])
    is_far = at[:, None] - at[None, :] >= window
    return dict(full_attention=mask, sliding_attention=mask.masked_fill(is_far, torch.finfo(mask.dtype).min))


def each_alone(model, ids, eod):
    """Logits of documents one by one: a class that makes its biases of a mask by token takes no other mask."""
    rows = []
    for row in ids:
        ends = [i + 1 for i, token in enumerate(row[:-1].tolist()) if token == eod] + [len(row)]
        parts = [row[a:b] for a, b in zip([0] + ends, ends)]
        rows.append(torch.cat([model(part[None], use_cache=False).logits[0] for part in parts]))
    return torch.stack(rows)


def forward(model, step, eod, dtype):
    ids = torch.tensor([[token(step * BATCH + s, j) for j in range(T + 1)] for s in range(BATCH)])
    if model.config.model_type.startswith("deepseek"):
        # experts' outputs of another format than the weights of their sum would be refused
        sys.modules[type(model).__module__].torch = InFormat(dtype)
    extra, counts = ({}, torch.ones_like(ids[:, 1:], dtype=torch.bool))
    if eod is not None:
        extra, counts = packed(ids[:, :-1], eod, dtype)
        if model.config.model_type.startswith(("gemma", "gpt_oss")):
            extra["attention_mask"] = by_layer(extra["attention_mask"], model.config.sliding_window)
    if eod is not None and model.config.model_type == "bloom":
        logits = each_alone(model, ids[:, :-1], eod)
    else:
        logits = model(ids[:, :-1], use_cache=False, **extra).logits
    return torch.nn.functional.cross_entropy(logits[counts], ids[:, 1:][counts]), logits


for name, (kind, settings, eod) in MODELS.items():
    if len(sys.argv) > 1 and name not in sys.argv[1:]:
        continue
    torch.manual_seed(sum(map(ord, name)))
    model = build(kind, settings)
    weights = {}
    for n, p in (dict(model.named_parameters()) | states(model)).items():
        w = torch.randn(p.shape) * (0.15 if p.dim() > 1 else 0.1)
        # Gemma's norms multiply with 1 + weight
        one = 0.0 if kind.startswith("Gemma") else 1.0
        w = w * LARGE.get(name, {}).get(n.split(".")[-1], 1.0)
        weights[n] = (w + one if "norm" in n or "ln_" in n and n.endswith("weight") else w).numpy()
    run = lambda weights, dtype: train(build(kind, settings), weights, dtype, EPS,
                                       lambda model, step: forward(model, step, eod, dtype))
    # before transformers 5, a whole configuration has settings of generation that no file has
    config = json.loads(model.config.to_json_string(use_diff=transformers.__version__.startswith("4.")))
    write(f"hf_{name}", weights, run, config=config, eod=eod)
