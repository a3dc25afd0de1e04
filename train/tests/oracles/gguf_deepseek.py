#!/usr/bin/env python3
"""Writes gguf_deepseek_v2.gguf and gguf_deepseek_v3.gguf beside this file.

    python train/tests/oracles/gguf_deepseek.py LLAMA_CPP

The weights of hf_deepseek_v2 and hf_deepseek_v3 (decoder_goldens.py), before training, through llama.cpp's own converter in f32. LLAMA_CPP is
its source, as in the distribution of llama-cpp-python 0.3.36 (vendor/llama.cpp), of which the folders conversion and gguf-py are used.
Differences from the goldens' config.json: V3's `mscale` is `mscale_all_dim`, as in the published models, since files have
one number for both. There is no tokenizer. Made with torch 2.15, transformers 5.24.
"""
import json
import sys
import tempfile
from pathlib import Path

LLAMA_CPP = Path(sys.argv[1])
sys.path[:0] = [str(LLAMA_CPP), str(LLAMA_CPP / "gguf-py")]

import gguf
from conversion.deepseek import DeepseekV2Model
from safetensors.torch import load_file, save_file

HERE = Path(__file__).parent


class WithoutTokenizer(DeepseekV2Model):
    model_arch = gguf.MODEL_ARCH.DEEPSEEK2

    def set_vocab(self):
        self.gguf_writer.add_tokenizer_model("none")


def main():
    for name, model in [("deepseek_v2", "DeepseekV2ForCausalLM"), ("deepseek_v3", "DeepseekV3ForCausalLM")]:
        config = json.loads((HERE / f"hf_{name}.json").read_text())["config"]
        config["architectures"] = [model]
        config["scoring_func"] = "sigmoid" if name == "deepseek_v3" else "softmax"
        if config["rope_scaling"]:
            config["rope_scaling"]["mscale"] = config["rope_scaling"]["mscale_all_dim"]
        golden = load_file(HERE / f"hf_{name}.safetensors")
        weights = {key.removeprefix("weight."): value for key, value in golden.items() if key.startswith("weight.")}
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            (folder / "config.json").write_text(json.dumps(config))
            save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
            out = HERE / f"gguf_{name}.gguf"
            WithoutTokenizer(folder, gguf.LlamaFileType.ALL_F32, out, model_name=name).write()
            print(out.name, out.stat().st_size, "bytes")


main()
