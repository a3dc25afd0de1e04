#!/usr/bin/env python3
"""Writes dpo_<name>.json beside this file: preference optimisation by TRL's own loss on tiny transformers models.

    OMP_NUM_THREADS=1 python train/tests/oracles/dpo_goldens.py   (needs torch, transformers, trl, safetensors, numpy)

Base weights are those of lora_<name>.safetensors. Pair s has a prompt of 3 tokens, a chosen answer of 5 and a rejected one of 4; each
text goes through the model alone. Recorded from float64: log-probabilities of the answers under the initial weights, which are the
reference; losses, rewards and gradient norms of 10 steps of clip_grad_norm_ + AdamW over batches of 4 pairs by
`DPOTrainer.dpo_loss`; and how closely a float32 program can follow each (conditioning.py).
"""
import json
from types import SimpleNamespace

import torch
import transformers
import trl
from conditioning import moved, worst
from safetensors.numpy import load_file
from tiny_runs import BATCH, HERE, STEPS, token, train
from trl.trainer.dpo_config import FDivergenceType

PROMPT, CHOSEN, REJECTED, EPS = 3, 5, 4, 1e-4
# name: (file of the base, loss, beta, label smoothing)
RUNS = {
    "sigmoid": ("lora_gpt2", "sigmoid", 0.5, 0.0),
    "smoothed": ("lora_llama", "sigmoid", 0.3, 0.1),
    "hinge": ("lora_llama", "hinge", 0.7, 0.0),
    "ipo": ("lora_gpt2", "ipo", 0.2, 0.0),
}


def texts(s):
    """The chosen text and the rejected one of a pair."""
    prompt = [token(s, j) for j in range(PROMPT)]
    return prompt + [token(s, 3 + j) for j in range(CHOSEN)], prompt + [token(s + 5, 20 + j) for j in range(REJECTED)]


def log_probabilities(model, first, count, is_mean):
    """Of the chosen answers and of the rejected ones of pairs from `first` on: the sum over an answer's tokens, or their mean."""
    out = []
    for which in (0, 1):
        ids = torch.tensor([texts(s)[which] for s in range(first, first + count)])
        logits = model(input_ids=ids[:, :-1], use_cache=False).logits.log_softmax(-1)
        of_tokens = logits.gather(2, ids[:, 1:, None])[..., 0][:, PROMPT - 1:]
        out.append(of_tokens.mean(1) if is_mean else of_tokens.sum(1))
    return out


def run(weights, dtype, model, loss, beta, smoothing):
    settings = SimpleNamespace(beta=beta, label_smoothing=smoothing, reference_free=False, accelerator=SimpleNamespace(device="cpu"),
                               f_divergence_type=FDivergenceType.REVERSE_KL, f_divergence_params=None)
    is_mean = loss == "ipo"
    series = {"chosen_reward": [], "rejected_reward": [], "reference": []}
    reference = []

    def forward(model, step):
        if step == 0:
            with torch.no_grad():
                reference.extend(log_probabilities(model, 0, STEPS * BATCH, is_mean))
                sums = log_probabilities(model, 0, STEPS * BATCH, False)
                series["reference"] = torch.stack(sums, 1).flatten().tolist()
        own = log_probabilities(model, step * BATCH, BATCH, is_mean)
        theirs = [r[step * BATCH:(step + 1) * BATCH] for r in reference]
        losses, chosen, rejected = trl.DPOTrainer.dpo_loss(settings, *own, *theirs, loss)
        series["chosen_reward"].append(float(chosen.mean()))
        series["rejected_reward"].append(float(rejected.mean()))
        return losses.mean(), losses

    _, record = train(model, weights, dtype, EPS, forward)
    return {}, record | series


for name, (base, loss, beta, smoothing) in RUNS.items():
    record = json.loads((HERE / f"{base}.json").read_text())
    config = transformers.AutoConfig.for_model(**record["config"])
    config._attn_implementation = "eager"
    weights = {k.removeprefix("weight."): v for k, v in load_file(HERE / f"{base}.safetensors").items()
               if k.startswith("weight.") and ".lora_" not in k}

    def of(weights, dtype):
        return run(weights, dtype, transformers.AutoModelForCausalLM.from_config(config), loss, beta, smoothing)

    exact = of(weights, torch.float64)
    others = [of(weights, torch.float32)] + [of(moved(weights, seed), torch.float64) for seed in range(8)]
    versions = {"torch": torch.__version__, "transformers": transformers.__version__, "trl": trl.__version__}
    out = {"versions": versions, "base": base, "loss": loss, "beta": beta, "label_smoothing": smoothing}
    out |= exact[1] | {"torch_f32": worst(exact, others)}
    (HERE / f"dpo_{name}.json").write_text(json.dumps(out, indent=1) + "\n")
    print(name, exact[1]["losses"], exact[1]["grad_norms"][:3])
