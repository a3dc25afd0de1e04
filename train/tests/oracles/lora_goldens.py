#!/usr/bin/env python3
"""Writes lora_<name>.safetensors and lora_<name>.json beside this file: adapters of PEFT on tiny transformers models.

    OMP_NUM_THREADS=1 python train/tests/oracles/lora_goldens.py [NAME...]   (needs torch, transformers, peft, safetensors, numpy)

Base weights and adapters (B is not zero) come from a seeded generator, rounded to float32; adapters have the names of PEFT's
files. Recorded from float64 (stored as float32): logits and gradients of the first batch, adapters after 10 steps of
clip_grad_norm_ + AdamW on them alone; in JSON the configurations of model and adapter, losses, gradient norms, and how closely a
float32 program can follow each quantity (conditioning.py). GPT-2's c_attn is one layer, as ours is; LLaMA's queries, keys and values
have adapters of their own, so that only its logits and files are compared. Mixtral (experts, router, head) and DeepSeek-V3 (latents,
experts, shared experts, head) share A between the modules that are one layer in ours. `patterns` has modules of other ranks and scales,
`saved` modules that are trained and saved whole.
"""
import json
import sys

import peft
import torch
import transformers
from tiny_runs import BATCH, BETAS, CLIP, DECAY, LR, STEPS, VOCAB, InFormat, states, token, write

T, EPS = 16, 1e-4
GPT2 = dict(vocab_size=VOCAB, n_positions=T, n_embd=16, n_layer=2, n_head=4, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0)
LLAMA = dict(vocab_size=VOCAB, max_position_embeddings=T, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False)
MIXTRAL = LLAMA | dict(num_local_experts=4, num_experts_per_tok=2, sliding_window=None)
DEEPSEEK = dict(vocab_size=VOCAB, max_position_embeddings=T, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
                num_attention_heads=4, num_key_value_heads=4, q_lora_rank=8, kv_lora_rank=8, qk_nope_head_dim=8, qk_rope_head_dim=4,
                v_head_dim=6, first_k_dense_replace=1, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, n_group=2,
                topk_group=2, n_shared_experts=1, routed_scaling_factor=1.5, pad_token_id=None)
# Modules that are one layer in ours.
PACKED = [("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"), ("w1", "w3")]
# name: (class, settings, settings of the adapter)
MODELS = {
    "gpt2": ("GPT2", GPT2, dict(r=4, lora_alpha=6, fan_in_fan_out=True,
                                target_modules=["attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"])),
    "llama": ("Llama", LLAMA, dict(r=3, lora_alpha=5, use_rslora=True, target_modules="all-linear")),
    "mixtral": ("Mixtral", MIXTRAL, dict(r=2, lora_alpha=3, target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "w1", "w2", "w3",
                                                                            "gate", "lm_head"])),
    "deepseek": ("DeepseekV3", DEEPSEEK, dict(r=2, lora_alpha=3, target_modules=[
        "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"])),
    "patterns": ("Llama", LLAMA, dict(
        r=3, lora_alpha=5, target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "down_proj"],
        rank_pattern={r"layers\.1\.self_attn\.[qv]_proj": 2, "v_proj": 4, "^model.layers.0.mlp.down_proj": 1, "mlp.gate": 6},
        alpha_pattern={"v_proj|o_proj": 4, r"1\.mlp\..*": 7})),
    "saved": ("Llama", LLAMA, dict(r=2, lora_alpha=3, target_modules=["q_proj", "down_proj"],
                                   modules_to_save=["lm_head", "embed_tokens", "norm"])),
}
SHARED = ["mixtral", "deepseek"]


def share(model):
    """Lets the modules of a packed layer have one A."""
    for module in model.modules():
        for first, *others in PACKED:
            for other in others:
                if hasattr(getattr(module, other, None), "lora_A"):
                    of = [getattr(module, name).lora_A["default"] for name in (first, other)]
                    of[1].weight = of[0].weight


def build(name, kind, settings, adapter):
    config = getattr(transformers, kind + "Config")(**settings)
    config._attn_implementation = "eager"
    of_class = "GPT2LMHeadModel" if kind == "GPT2" else kind + "ForCausalLM"
    base = getattr(transformers, of_class)(config)
    model = peft.get_peft_model(base, peft.LoraConfig(task_type="CAUSAL_LM", **adapter))
    if name in SHARED:
        share(model)
    return model, config


def plain(name):
    """The name in a file: of the base model as without adapters, of an adapter as PEFT saves it."""
    if ".lora_" in name:
        return name.replace(".default.", ".")
    if ".modules_to_save." in name:
        return name.replace(".modules_to_save.default.", ".")
    return name.removeprefix("base_model.model.").replace(".base_layer.", ".").replace(".original_module.", ".")


def named_in(model):
    """Weights and states by their names in files, shared ones under each of their names."""
    is_tied = model.get_base_model().config.tie_word_embeddings
    return {plain(name): p for name, p in [*model.named_parameters(remove_duplicate=is_tied), *states(model).items()]}


def run(weights, dtype, model):
    model = model.to(dtype).train()
    base = model.get_base_model()
    if base.config.model_type in ("mixtral", "deepseek_v3"):
        # routers compute in float32 whatever the format is
        sys.modules[type(base).__module__].torch = InFormat(dtype)
    named = named_in(model)
    assert sorted(named) == sorted(weights), set(named) ^ set(weights)
    with torch.no_grad():
        for name, p in named.items():
            p.copy_(torch.from_numpy(weights[name]).to(dtype))
    trained = {name: p for name, p in named.items() if p.requires_grad}
    assert all(name.startswith("base_model.") for name in trained)
    parameters = list({id(p): p for p in trained.values()}.values())
    opt = torch.optim.AdamW(parameters, lr=LR, betas=BETAS, eps=EPS, weight_decay=DECAY)
    out, losses, norms = {}, [], []
    for step in range(STEPS):
        ids = torch.tensor([[token(step * BATCH + s, j) for j in range(T + 1)] for s in range(BATCH)])
        logits = model(input_ids=ids[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        # AdamW would pass over the adapters of an expert without tokens
        assert all(p.grad is not None for p in parameters)
        if step == 0:
            out["logits"] = logits.detach().numpy().copy()
            out |= {"grad." + n: p.grad.numpy().copy() for n, p in trained.items()}
        norms.append(float(torch.nn.utils.clip_grad_norm_(parameters, CLIP)))
        losses.append(float(loss.detach()))
        opt.step()
    out |= {"final." + n: p.detach().numpy().copy() for n, p in trained.items()}
    return out, {"losses": losses, "grad_norms": norms}


for name, (kind, settings, adapter) in MODELS.items():
    if len(sys.argv) > 1 and name not in sys.argv[1:]:
        continue
    torch.manual_seed(sum(map(ord, name)))
    model, config = build(name, kind, settings, adapter)
    weights = {}
    drawn = {}
    for n, p in named_in(model).items():
        if id(p) not in drawn:
            w = torch.randn(p.shape) * (0.15 if p.dim() > 1 else 0.1)
            drawn[id(p)] = (w + 1.0 if "norm" in n or "ln_" in n and n.endswith("weight") else w).numpy()
        weights[n] = drawn[id(p)]
    settings_of_peft = model.peft_config["default"].to_dict()
    settings_of_peft["target_modules"] = sorted(settings_of_peft["target_modules"])
    if settings_of_peft["modules_to_save"]:
        settings_of_peft["modules_to_save"] = sorted(settings_of_peft["modules_to_save"])
    settings_of_peft = {k: v if isinstance(v, (str, int, float, bool, list, dict, type(None))) else str(v) for k, v in settings_of_peft.items()}
    write(f"lora_{name}", weights, lambda weights, dtype: run(weights, dtype, build(name, kind, settings, adapter)[0]),
          config=json.loads(config.to_json_string(use_diff=False)), adapter_config=settings_of_peft, peft=peft.__version__)
