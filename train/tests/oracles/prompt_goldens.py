#!/usr/bin/env python3
"""Writes prompt_<name>.safetensors and prompt_<name>.json beside this file: prompt tuning and p-tuning of PEFT on tiny models.

    OMP_NUM_THREADS=1 python train/tests/oracles/prompt_goldens.py   (needs torch, transformers, peft, safetensors, numpy)

Base weights and the encoder of the virtual tokens come from a seeded generator, rounded to float32. A batch has four texts of 12
tokens after 5 virtual ones; all 12 are predicted, the first from the last virtual token, as PEFT's labels have it. Recorded from float64
(stored as float32): logits and gradients of the first batch, the encoder's weights after 10 steps of clip_grad_norm_ + AdamW on them
alone (matrices decay, biases do not), and the virtual embeddings before and after ("first" and "last"); in JSON the configurations of
model and adapter, losses, gradient norms, and how closely a float32 program can follow each quantity (conditioning.py).
"""
import json

import peft
import torch
import transformers
from tiny_runs import BATCH, BETAS, CLIP, DECAY, LR, STEPS, VOCAB, token, write

T, VIRTUAL, EPS = 16, 5, 1e-4
TEXT = T + 1 - VIRTUAL
GPT2 = dict(vocab_size=VOCAB, n_positions=T, n_embd=16, n_layer=2, n_head=4, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0)
LLAMA = dict(vocab_size=VOCAB, max_position_embeddings=T, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False)
PROMPT = lambda: peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=VIRTUAL)
ENCODER = lambda kind, hidden, layers: lambda: peft.PromptEncoderConfig(
    task_type="CAUSAL_LM", num_virtual_tokens=VIRTUAL, encoder_reparameterization_type=kind, encoder_hidden_size=hidden,
    encoder_num_layers=layers)
# name: (class, settings, adapter)
MODELS = {
    "gpt2": ("GPT2", GPT2, PROMPT),
    "llama": ("Llama", LLAMA, PROMPT),
    "mlp": ("GPT2", GPT2, ENCODER("MLP", 12, 2)),
    "lstm": ("Llama", LLAMA, ENCODER("LSTM", 6, 2)),
}


def build(kind, settings, adapter):
    config = getattr(transformers, kind + "Config")(**settings)
    config._attn_implementation = "eager"
    name = "GPT2LMHeadModel" if kind == "GPT2" else kind + "ForCausalLM"
    base = getattr(transformers, name)(config)
    return peft.get_peft_model(base, adapter()), config


def plain(name):
    """The name in a file: of the base model as without adapters, of the encoder as PEFT's class has it."""
    return name.removeprefix("base_model.").replace("prompt_encoder.default.", "encoder.")


def run(weights, dtype, model):
    model = model.to(dtype).train()
    named = {plain(name): p for name, p in model.named_parameters()}
    assert sorted(named) == sorted(weights), set(named) ^ set(weights)
    with torch.no_grad():
        for name, p in named.items():
            p.copy_(torch.from_numpy(weights[name]).to(dtype))
    trained = {name: p for name, p in named.items() if p.requires_grad}
    assert all(name.startswith("encoder.") for name in trained)
    groups = [{"params": [p for p in trained.values() if p.dim() > 1], "weight_decay": DECAY},
              {"params": [p for p in trained.values() if p.dim() == 1], "weight_decay": 0.0}]
    opt = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS)
    embeddings = lambda: model.get_prompt(1)[0].detach().numpy().copy()
    out, losses, norms = {"first": embeddings()}, [], []
    for step in range(STEPS):
        ids = torch.tensor([[token(step * BATCH + s, j) for j in range(TEXT)] for s in range(BATCH)])
        logits = model(input_ids=ids[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits[:, VIRTUAL - 1:].flatten(0, 1), ids.flatten())
        if step == 0 and dtype == torch.float64:
            # the mean that PEFT makes of its own labels, which the model shifts; the last token is in the input there
            own = model(input_ids=ids[:, :-1], labels=ids[:, :-1], use_cache=False).loss
            ours = torch.nn.functional.cross_entropy(logits[:, VIRTUAL - 1:-1].flatten(0, 1), ids[:, :-1].flatten())
            assert abs(own.item() - ours.item()) < 1e-6, (own, ours)  # the model takes its loss in float32
        opt.zero_grad()
        loss.backward()
        if step == 0:
            out["logits"] = logits.detach().numpy().copy()
            out |= {"grad." + n: p.grad.numpy().copy() for n, p in trained.items()}
        norms.append(float(torch.nn.utils.clip_grad_norm_(trained.values(), CLIP)))
        losses.append(float(loss.detach()))
        opt.step()
    out |= {"final." + n: p.detach().numpy().copy() for n, p in trained.items()} | {"last": embeddings()}
    return out, {"losses": losses, "grad_norms": norms}


for name, (kind, settings, adapter) in MODELS.items():
    torch.manual_seed(sum(map(ord, "prompt" + name)))
    model, config = build(kind, settings, adapter)
    weights = {}
    for n, p in model.named_parameters():
        w = torch.randn(p.shape) * (0.15 if p.dim() > 1 else 0.1) * (3.0 if "_head." in n and "lm_head" not in n else 1.0)
        weights[plain(n)] = (w + 1.0 if "norm" in n or "ln_" in n and n.endswith("weight") else w).numpy()
    own = model.peft_config["default"].to_dict()
    own = {k: v if isinstance(v, (str, int, float, bool, list, dict, type(None))) else str(v) for k, v in own.items()}
    own |= {"peft_type": model.peft_config["default"].peft_type.value, "task_type": "CAUSAL_LM"}
    write(f"prompt_{name}", weights, lambda weights, dtype: run(weights, dtype, build(kind, settings, adapter)[0]),
          config=json.loads(config.to_json_string(use_diff=False)), adapter_config=own, peft=peft.__version__)
