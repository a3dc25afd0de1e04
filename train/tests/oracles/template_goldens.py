#!/usr/bin/env python3
"""Writes template_<name>.safetensors and template_<name>.json beside this file: virtual tokens at places of a text on tiny models.

    OMP_NUM_THREADS=1 python train/tests/oracles/template_goldens.py   (needs torch, transformers, peft, safetensors, numpy)

A batch has four texts of 12 tokens: three, then virtual tokens 0 to 2, four, virtual tokens 3 and 4, and an answer of five, which alone is
predicted, its first token from the last virtual one. The virtual rows are a table (gpt2) or what PEFT's `PromptEncoder` makes of one (a
bidirectional LSTM, llama); the embeddings go to the model as `inputs_embeds`, since PEFT itself has virtual tokens in front alone.

Of tasks and tasks_lstm, texts are of two tasks (TASK_OF): the one above, and two tokens, four virtual ones, six tokens and the answer. The
virtual tokens of the second task are rows of their own in the table, and the encoder makes those of each task in a run of its own, as
NeMo's does. Some batches have one task alone.

Recorded as in prompt_goldens.py: logits and gradients of the first batch, the encoder's weights after 10 steps of clip_grad_norm_ + AdamW on them
alone, the virtual rows before and after, losses, gradient norms, and how closely a float32 program can follow (conditioning.py).
"""
import json

import peft
import torch
import transformers
from peft.tuners.p_tuning import PromptEncoder
from tiny_runs import BATCH, BETAS, CLIP, DECAY, LR, STEPS, VOCAB, token, write

T, EPS, D = 16, 1e-4, 16
# tokens of the text, and virtual ones behind them
ONE, ANSWER = [[(3, 3), (4, 2)]], 5
TWO = [*ONE, [(2, 4), (6, 0)]]
# of sample i, at i modulo 16
TASK_OF = [0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0]
GPT2 = dict(vocab_size=VOCAB, n_positions=T, n_embd=D, n_layer=2, n_head=4, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0)
LLAMA = dict(vocab_size=VOCAB, max_position_embeddings=T, hidden_size=D, intermediate_size=24, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False)


class Table(torch.nn.Module):
    """Prompt tuning: the rows themselves."""

    def __init__(self, count):
        super().__init__()
        self.embedding = torch.nn.Embedding(count, D)

    def forward(self, indices):
        return self.embedding(indices)


def lstm(count):
    return PromptEncoder(peft.PromptEncoderConfig(
        task_type="CAUSAL_LM", num_virtual_tokens=count, encoder_reparameterization_type="LSTM", encoder_hidden_size=6,
        encoder_num_layers=2, token_dim=D, num_transformer_submodules=1, num_attention_heads=4, num_layers=2))


# name: (class, settings, rows, tasks)
MODELS = {"gpt2": ("GPT2", GPT2, Table, ONE), "lstm": ("Llama", LLAMA, lstm, ONE),
          "tasks": ("GPT2", GPT2, Table, TWO), "tasks_lstm": ("Llama", LLAMA, lstm, TWO)}


def virtual(places):
    return sum(count for _, count in places)


def text(places):
    return sum(before for before, _ in places) + ANSWER


def build(kind, settings, rows, tasks):
    config = getattr(transformers, kind + "Config")(**settings)
    config._attn_implementation = "eager"
    name = "GPT2LMHeadModel" if kind == "GPT2" else kind + "ForCausalLM"
    return getattr(transformers, name)(config), rows(sum(map(virtual, tasks))), config


def joined(words, rows, places):
    """Embeddings of a text with the virtual rows of its task at their places."""
    parts, at, row = [], 0, 0
    for before, count in places:
        parts += [words[at:at + before], rows[row:row + count]]
        at, row = at + before, row + count
    return torch.cat([*parts, words[at:]])


def run(weights, dtype, base, encoder, tasks):
    base, encoder = base.to(dtype).train().requires_grad_(False), encoder.to(dtype).train()
    trained = {"encoder." + name: p for name, p in encoder.named_parameters()}
    named = dict(base.named_parameters()) | trained
    assert sorted(named) == sorted(weights), set(named) ^ set(weights)
    with torch.no_grad():
        for name, p in named.items():
            p.copy_(torch.from_numpy(weights[name]).to(dtype))
    groups = [{"params": [p for p in trained.values() if p.dim() > 1], "weight_decay": DECAY},
              {"params": [p for p in trained.values() if p.dim() == 1], "weight_decay": 0.0}]
    opt = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS)
    counts = [virtual(places) for places in tasks]
    starts = [sum(counts[:at]) for at in range(len(tasks))]
    rows = lambda: [encoder(torch.arange(start, start + count)[None])[0] for start, count in zip(starts, counts)]
    recorded = lambda: torch.cat(rows()).detach().numpy().copy()
    out, losses, norms = {"first": recorded()}, [], []
    for step in range(STEPS):
        samples = range(step * BATCH, (step + 1) * BATCH)
        of = [TASK_OF[s % len(TASK_OF)] if len(tasks) > 1 else 0 for s in samples]
        texts = [torch.tensor([token(s, j) for j in range(text(tasks[task]))]) for s, task in zip(samples, of)]
        made = rows()
        embeddings = torch.stack([joined(base.get_input_embeddings()(ids), made[task], tasks[task])[:-1]
                                  for ids, task in zip(texts, of)])
        logits = base(inputs_embeds=embeddings, use_cache=False).logits
        # the loss of the model itself is taken in float32
        answers = torch.cat([ids[-ANSWER:] for ids in texts])
        loss = torch.nn.functional.cross_entropy(logits[:, -ANSWER:].flatten(0, 1), answers)
        opt.zero_grad()
        loss.backward()
        if step == 0:
            out["logits"] = logits.detach().numpy().copy()
            out |= {"grad." + n: p.grad.numpy().copy() for n, p in trained.items()}
        norms.append(float(torch.nn.utils.clip_grad_norm_(trained.values(), CLIP)))
        losses.append(float(loss.detach()))
        opt.step()
    out |= {"final." + n: p.detach().numpy().copy() for n, p in trained.items()} | {"last": recorded()}
    return out, {"losses": losses, "grad_norms": norms}


for name, (kind, settings, rows, tasks) in MODELS.items():
    torch.manual_seed(sum(map(ord, "template" + name)))
    base, encoder, config = build(kind, settings, rows, tasks)
    weights = {}
    for n, p in [*base.named_parameters(), *(("encoder." + n, p) for n, p in encoder.named_parameters())]:
        w = torch.randn(p.shape) * (0.15 if p.dim() > 1 else 0.1) * (3.0 if "_head." in n and "lm_head" not in n else 1.0)
        weights[n] = (w + 1.0 if "norm" in n or "ln_" in n and n.endswith("weight") else w).numpy()
    write(f"template_{name}", weights, lambda weights, dtype: run(weights, dtype, *build(kind, settings, rows, tasks)[:2], tasks),
          config=json.loads(config.to_json_string(use_diff=False)), peft=peft.__version__)
