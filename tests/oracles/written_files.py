"""Programs of others open what Millrace writes: python tests/oracles/written_files.py MILLRACE WORK

Curates, deduplicates, tokenizes and trains 20 steps on two files of the quick start, with exact copies among them so that documents
are removed; exports the documents in every form and the model for transformers; then opens each with the programs that
users open it with. Counts, columns (all of them in every row, null where a document has no value) and every text must agree among
all of them, and the tokens with those that `tokenizers` makes of the texts. transformers' loss on the samples of the
validation, read by megatron-core, must be that of `millrace eval` within 1e-4.
WORK must be new or empty. Prints a row for each check; exit code 1 if any differs.
Needs datasets 5.2.0, pyarrow 26.0.1, duckdb 2.0.1, datatrove[io] 0.10.1, orjson, zstandard 0.25, megatron-core 0.16.1, torch 2.15,
transformers 5.24, tokenizers 0.23.3, numpy 2.4; Python 3.11.
"""

import importlib.metadata
import json
import logging
import os
import subprocess
import sys
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

program, work = str(Path(sys.argv[1]).resolve()), Path(sys.argv[2]).resolve()
work.mkdir(parents=True, exist_ok=True)
if any(work.iterdir()):
    sys.exit(f"{work} is not empty")
os.environ["HF_HOME"] = str(work / "hf_home")

import datasets
import duckdb
import numpy as np
import pyarrow.parquet
import torch
import zstandard
from datatrove.pipeline.readers import JsonlReader, ParquetReader
from loguru import logger
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.datasets.indexed_dataset import IndexedDataset
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

logging.disable(logging.WARNING)
logger.remove()
disable_progress_bar()
datasets.disable_progress_bars()
torch.distributed.get_rank = lambda *a, **k: 0

DATA = Path(__file__).resolve().parents[2] / "pipelines/jobs/tiny/data"
COLUMNS = ["id", "text", "url", "source", "subset", "language", "metadata"]
NAMES, WEIGHTS = ["pile", "copies"], [0.3, 0.7]
SEED, LENGTH, EVAL_SAMPLES = 1234, 64, 16
JOB = """
name = "written"
out = {out}
seed = {seed}
threads = 2
[curate]
inputs = [
  {{ path = {pile}, format = "jsonl", source = "pile" }},
  {{ path = {copies}, format = "jsonl", source = "copies" }},
]
[[curate.step]]
length = {{ min_chars = 20 }}
[dedup]
exact = {{}}
[tokenize]
tokenizer = {{ train = {{ kind = "bpe", vocab = 1024 }} }}
[blend]
seq_length = {length}
split = "90,10,0"
[[blend.dataset]]
name = "pile"
weight = 0.3
[[blend.dataset]]
name = "copies"
weight = 0.7
[model]
family = "llama"
layers = 2
d_model = 64
heads = 4
kv_heads = 2
[train]
steps = 20
global_batch = 8
micro_batch = 4
lr = 2e-3
warmup_steps = 5
eval_every = 10
eval_samples = {eval_samples}
[eval]
samples = {eval_samples}
"""
failed = []


def check(what, found, wanted, shown=None):
    """One row of the table; ``shown`` stands for values that are long."""
    same = found == wanted
    if not same:
        failed.append(what)
    if shown is None or not same:
        shown = found if same else f"found {str(found)[:200]}, wanted {str(wanted)[:200]}"
    print(f"{'same' if same else 'DIFFERENT':<10}{what:<58}{shown}", flush=True)


def millrace(*args):
    done = subprocess.run([program, *map(str, args)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"millrace {' '.join(map(str, args))}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def lines(path):
    """The records of a .jsonl.zst file by zstandard and json."""
    with zstandard.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


# The second input has 50 documents of the first as exact copies, a document without text, and one that is too short.
second = lines(DATA / "pile-00001.jsonl.zst")
second += lines(DATA / "pile-00000.jsonl.zst")[:50]
second += [{"text": ""}, {"text": "short"}, {"text": "Gr\u00fc\u00dfe, \u4e16\u754c \U0001f30d: a \"quoted\" line\nand\ta tab\\.", "id": "odd"}]
with zstandard.open(work / "copies.jsonl.zst", "wt", encoding="utf-8") as file:
    file.writelines(json.dumps(row) + "\n" for row in second)
out, job = work / "out", work / "job.toml"
paths = {"out": out, "pile": DATA / "pile-00000.jsonl.zst", "copies": work / "copies.jsonl.zst"}
job.write_text(JOB.format(seed=SEED, length=LENGTH, eval_samples=EVAL_SAMPLES, **{k: json.dumps(str(v)) for k, v in paths.items()}))
for package in ("datasets", "pyarrow", "duckdb", "datatrove", "megatron-core", "transformers", "tokenizers", "torch", "numpy", "zstandard"):
    print(f"{package} {importlib.metadata.version(package)}", end="; ")
print(millrace("--version").strip())
millrace("run", job)
forms = {form: work / form for form in ("jsonl.zst", "parquet", "hf")}
for form, folder in forms.items():
    # small files, so that there are several
    millrace("export", out, "--to", form, folder, "--file-mb", 2)
checkpoint = max((out / "checkpoints").iterdir())
millrace("convert", "--checkpoint", checkpoint, "--tokenizer", out / "tokens/tokenizer.json", work / "model")

# Documents: rows by json are the reference, texts and counts by Millrace's own records are beside them.
files = {form: sorted(map(str, (folder / "data").iterdir())) for form, folder in forms.items()}
rows = [row for file in files["jsonl.zst"] for row in lines(file)]
manifest = json.loads((out / "manifest.json").read_text())
check("several files of each form", [len(f) > 1 for f in files.values()], [True] * 3, str({k: len(v) for k, v in files.items()}))
check("zstandard: rows, beside the record of dedup", len(rows), manifest["dedup"]["counts"]["kept"])
check("zstandard: copies are not among them", len({r["text"] for r in rows}), len(rows))
check("zstandard: the odd text is unchanged", [r["text"] for r in rows].count(second[-1]["text"]), 1)
check("zstandard: columns of every row", {tuple(r) for r in rows}, {tuple(COLUMNS)}, ", ".join(COLUMNS))
nulls = {c: sum(r[c] is None for r in rows) for c in COLUMNS}
check("zstandard: id, text and source are never null", [nulls[c] for c in ("id", "text", "source")], [0] * 3, f"nulls {nulls}")


def same_rows(what, found):
    check(what, found, rows, f"{len(found)} rows, {len(COLUMNS)} columns")


for form in ("parquet", "hf"):
    tables = [pyarrow.parquet.read_table(f) for f in files[form]]
    check(f"pyarrow: types of {form}", {tuple(map(str, t.schema.types)) for t in tables}, {("string",) * len(COLUMNS)}, "string")
    same_rows(f"pyarrow: {form}", [r for t in tables for r in t.to_pylist()])
loaders = {"jsonl.zst": ("json", files["jsonl.zst"]), "parquet": ("parquet", files["parquet"])}
for form, (loader, names) in loaders.items():
    loaded = datasets.load_dataset(loader, data_files=names, split="train")
    check(f"datasets: columns of {form}", loaded.column_names, COLUMNS, ", ".join(COLUMNS))
    same_rows(f"datasets: {form}", loaded.to_list())
loaded = datasets.load_dataset(str(forms["hf"]))
check("datasets: splits of the folder", list(loaded), ["train"])
same_rows("datasets: the folder, by its card", loaded["train"].to_list())
for form, reader in (("jsonl.zst", "read_json"), ("parquet", "read_parquet"), ("hf", "read_parquet")):
    more = ", format = 'newline_delimited', maximum_object_size = 100000000" if reader == "read_json" else ""
    relation = f"{reader}({files[form]!r}{more})"
    count, texts = duckdb.sql(f"SELECT count(*), count(DISTINCT text) FROM {relation}").fetchall()[0]
    check(f"duckdb: count and different texts of {form}", (count, texts), (len(rows), len(rows)))
    columns = [c[0] for c in duckdb.sql(f"DESCRIBE SELECT * FROM {relation}").fetchall()]
    check(f"duckdb: columns of {form}", columns, COLUMNS, ", ".join(COLUMNS))
    pairs = dict(duckdb.sql(f"SELECT id, text FROM {relation}").fetchall())
    check(f"duckdb: texts of {form} by id", pairs, {r["id"]: r["text"] for r in rows}, f"{len(pairs)} texts")
for name, reader in (
    ("jsonl.zst", JsonlReader(str(forms["jsonl.zst"] / "data"), glob_pattern="*.jsonl.zst", compression="zstd")),
    ("parquet", ParquetReader(str(forms["parquet"] / "data"), glob_pattern="*.parquet")),
    ("hf", ParquetReader(str(forms["hf"] / "data"), glob_pattern="*.parquet")),
):
    documents = list(reader.run())
    check(f"datatrove: id and text of {name}", [(d.id, d.text) for d in documents], [(r["id"], r["text"]) for r in rows], f"{len(documents)} documents")
    sources = [d.metadata["source"] for d in documents]
    check(f"datatrove: source of {name}", sources, [r["source"] for r in rows], f"{len(sources)} sources")

# Tokens: megatron-core's sequences are those that tokenizers makes of the exported texts.
tokenizer = Tokenizer.from_file(str(out / "tokens/tokenizer.json"))
for name in NAMES:
    side = json.loads((out / f"tokens/{name}.json").read_text())
    indexed = IndexedDataset(str(out / "tokens" / name))
    texts = [r["text"] for r in rows if r["source"] == name]
    check(f"megatron-core: documents of {name}", len(indexed.document_indices) - 1, len(texts))
    check(f"megatron-core: tokens of {name}, beside the sidecar", int(indexed.sequence_lengths.sum()), side["tokens"])
    end = side["tokenizer"]["end_of_document"]
    wanted = [e.ids + [end] for e in tokenizer.encode_batch(texts, add_special_tokens=False)]
    check(f"tokenizers: ids of {name}, beside megatron-core's", [indexed[i].tolist() for i in range(len(indexed))], wanted, f"{len(wanted)} documents")
    decoded = [tokenizer.decode(ids[:-1], skip_special_tokens=False) for ids in wanted]
    check(f"tokenizers: decoded texts of {name}", decoded, texts, f"{len(decoded)} texts")

# The model: transformers' loss on the samples of the validation.
model = AutoModelForCausalLM.from_pretrained(work / "model", dtype=torch.float32)
fast = AutoTokenizer.from_pretrained(work / "model")
text = rows[0]["text"]
check("transformers: ids, beside tokenizers", fast(text, add_special_tokens=False).input_ids, tokenizer.encode(text, add_special_tokens=False).ids, f"{len(text)} characters")
check("transformers: vocabulary", model.config.vocab_size, tokenizer.get_vocab_size())


class Ids:
    eod = eos = json.loads((out / "tokens/pile.json").read_text())["tokenizer"]["end_of_document"]
    pad, vocab_size, special_tokens_dict, unique_identifiers = -1, tokenizer.get_vocab_size(), {}, {"class": "Ids"}


config = GPTDatasetConfig(
    random_seed=SEED, sequence_length=LENGTH, blend=([str(out / "tokens" / n) for n in NAMES], WEIGHTS), split="90,10,0",
    path_to_cache=str(work / "cache"), tokenizer=Ids(), reset_position_ids=False, reset_attention_mask=False, eod_mask_loss=False,
    create_attention_mask=False)
_, valid, _ = BlendedMegatronDatasetBuilder(GPTDataset, [160, EVAL_SAMPLES, 0], lambda: True, config).build()
items = [valid[k] for k in range(EVAL_SAMPLES)]
tokens, labels = (torch.stack([i[key] for i in items]) for key in ("tokens", "labels"))
with torch.no_grad():
    logits = model(tokens).logits
check("transformers: every logit is finite", bool(torch.isfinite(logits).all()), True, str(tuple(logits.shape)))
loss = torch.nn.functional.cross_entropy(logits.double().flatten(0, 1), labels.flatten()).item()
ours = json.loads((out / "eval.json").read_text())["valid_loss"]
check("transformers: loss within 1e-4 of millrace eval's", abs(loss - ours) < 1e-4, True, f"{loss:.6f}, millrace {ours:.6f}")
wrong = torch.nn.functional.cross_entropy(logits.double().flatten(0, 1), labels.roll(1).flatten()).item()
check("the bound can fail: labels moved by one", abs(wrong - ours) < 1e-4, False, f"{wrong:.6f}")
print("\n" + ("DIFFERENT: " + "; ".join(failed) if failed else "all the same"))
sys.exit(bool(failed))
