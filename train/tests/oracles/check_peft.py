#!/usr/bin/env python3
"""Loads with PEFT what `cargo run -p millrace-train --example peft_parity -- OUT` wrote, and compares logits with ours.

    python train/tests/oracles/check_peft.py OUT   (needs torch, transformers, peft)
"""
import json
import sys
from pathlib import Path

import peft
import torch
import transformers

out = Path(sys.argv[1])
for name in ["lora", "lora_mixture", "lora_latents", "prompt", "p_tuning_mlp", "p_tuning_lstm"]:
    config = json.loads((out / name / "adapter_config.json").read_text())
    base = transformers.AutoModelForCausalLM.from_pretrained(config["base_model_name_or_path"])
    record = json.loads((out / name / "logits.json").read_text())
    ids = torch.tensor([record["tokens"]])
    with torch.no_grad():
        of_base = base(ids).logits[0]
        model = peft.PeftModel.from_pretrained(base, out / name).eval()
        found = model(input_ids=ids, use_cache=False).logits[0][-ids.shape[1]:]
    wanted = torch.tensor(record["logits"])
    off = float((found - wanted).abs().max())
    apart = float((of_base - wanted).abs().max())
    print(f"{name}: {off:.2e} apart from PEFT {peft.__version__}, {apart:.2e} from the base model")
    assert off < 1e-4 < apart, name
