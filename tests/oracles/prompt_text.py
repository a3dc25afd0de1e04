#!/usr/bin/env python3
"""Compares virtual tokens that Millrace started from a text with PEFT's (PromptTuningInit.TEXT), bit for bit.

    python tests/oracles/prompt_text.py BASE ADAPTER TEXT   (needs torch, transformers, peft, safetensors)

BASE: Hugging Face folder with tokenizer.json (written as tokenizer_config.json too, if there is none: PreTrainedTokenizerFast). ADAPTER: from
`millrace convert --to peft` of a fine-tuning with `finetune.prompt.init_text = TEXT` and `train.lr = 1e-30`, which moves nothing.
"""
import json
import sys
from pathlib import Path

import peft
import torch
import transformers
from safetensors.torch import load_file

base, adapter, text = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
config = base / "tokenizer_config.json"
if not config.exists():
    config.write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}) + "\n")
ours = load_file(adapter / "adapter_model.safetensors")["prompt_embeddings"]
settings = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=len(ours), prompt_tuning_init="TEXT",
                                   prompt_tuning_init_text=text, tokenizer_name_or_path=str(base))
model = peft.get_peft_model(transformers.AutoModelForCausalLM.from_pretrained(base), settings)
wanted = model.get_prompt_embedding_to_save("default")
print("ids", transformers.AutoTokenizer.from_pretrained(base)(text)["input_ids"], "rows", tuple(ours.shape))
assert torch.equal(ours, wanted), "the rows differ"
print(f"equal to PEFT {peft.__version__}")
