#!/usr/bin/env python3
"""Writes tests/data/embedders/: embeddings by transformers of the texts of tests/data/classifiers, and a folder in the form
of Sentence Transformers.

    python tests/oracles/embeddings.py            (needs torch 2.15, transformers 4.57.6, safetensors)

| file | content |
|---|---|
| golden.json | for each model the ids of its texts, and their embeddings: rows of `AutoModel` in float64, their mean over all tokens (`mean`) and the first (`cls`), divided by their length |
| bare/ | `BertModel` of the classifier `bert`, without a prefix in its names, with `modules.json` (Transformer, Pooling by the first token, Normalize) and at most 32 tokens |

The models are those of tests/data/classifiers with their heads left away, and `bare`.
"""
import json
import shutil
from pathlib import Path

import torch
from transformers import AutoModel

DATA = Path(__file__).resolve().parents[1] / "data"
OUT = DATA / "embedders"
MODELS = ["bert", "roberta", "xlm", "distilbert", "deberta_v3", "deberta_v2"]
LONGEST = 32


def embeddings(model, ids):
    with torch.no_grad():
        rows = model(input_ids=torch.tensor([ids])).last_hidden_state[0]
    found = {"mean": rows.mean(0), "cls": rows[0]}
    return {name: (row / row.norm()).tolist() for name, row in found.items()}


def rounded(values):
    return [float(f"{value:.9g}") for value in values]


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    bare = OUT / "bare"
    bert = DATA / "classifiers" / "bert"
    model = AutoModel.from_pretrained(bert, add_pooling_layer=True)
    model.save_pretrained(bare)
    for name in ["tokenizer.json", "tokenizer_config.json"]:
        shutil.copy(bert / name, bare / name)
    kinds = ["Transformer", "Pooling", "Normalize"]
    paths = ["", "1_Pooling", "2_Normalize"]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(zip(paths, kinds))
    ]
    (bare / "modules.json").write_text(json.dumps(modules, indent=1) + "\n")
    (bare / "sentence_bert_config.json").write_text(
        json.dumps({"max_seq_length": LONGEST, "do_lower_case": False}) + "\n"
    )
    (bare / "1_Pooling").mkdir()
    modes = {
        "word_embedding_dimension": model.config.hidden_size,
        "pooling_mode_cls_token": True,
        "pooling_mode_mean_tokens": False,
        "pooling_mode_max_tokens": False,
        "include_prompt": True,
    }
    (bare / "1_Pooling" / "config.json").write_text(json.dumps(modes, indent=1) + "\n")
    golden = {}
    for name in [*MODELS, "bare"]:
        folder = bare if name == "bare" else DATA / "classifiers" / name
        model = AutoModel.from_pretrained(folder, dtype=torch.float64).eval()
        texts = json.loads((DATA / "classifiers" / ("bert" if name == "bare" else name) / "golden.json").read_text())
        rows = []
        for text in texts:
            ids = text["ids"]
            if name == "bare":
                # cut as the tokenizer cuts: the closing token stays
                ids = ids if len(ids) <= LONGEST else ids[: LONGEST - 1] + ids[-1:]
            found = embeddings(model, ids)
            rows.append({"ids": ids, **{key: rounded(row) for key, row in found.items()}})
        golden[name] = rows
    (OUT / "golden.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
