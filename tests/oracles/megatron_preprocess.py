"""Golden hashes of Megatron's preprocessing: python tests/oracles/megatron_preprocess.py MEGATRON_LM > tests/data/preprocess/golden.json

MEGATRON_LM is a checkout of NVIDIA/Megatron-LM (made at d98e8a6); needs torch, numpy, transformers, tokenizers,
zstandard and typing_extensions. Also writes tests/data/preprocess/tokenizer.json (a byte-level BPE of 600 entries
trained on the documents below) and tests/data/preprocess/documents.jsonl: texts of the quick-start sample in three keys,
as strings, as lists of strings (what --split-sentences leaves), empty, and of blanks.

Runs tools/preprocess_data.py itself for every case; the files' SHA-256 are the answer.
"""
import hashlib, io, json, os, random, runpy, subprocess, sys, tempfile, typing

import typing_extensions
import zstandard

here = os.path.dirname(os.path.abspath(__file__))
data = os.path.join(here, "..", "data", "preprocess")
sample = os.path.join(here, "..", "..", "pipelines", "jobs", "tiny", "data")

if len(sys.argv) > 2 and sys.argv[1] == "--run":
    # Megatron-LM asks for Python 3.12; all that 3.11 lacks for this script is one decorator
    if not hasattr(typing, "override"):
        typing.override = typing_extensions.override
    checkout = sys.argv[2]
    sys.path.insert(0, checkout)
    sys.argv = ["preprocess_data.py", *sys.argv[3:]]
    runpy.run_path(os.path.join(checkout, "tools", "preprocess_data.py"), run_name="__main__")
    sys.exit()

checkout = os.path.abspath(sys.argv[1])
os.makedirs(data, exist_ok=True)
texts = []
for name in sorted(n for n in os.listdir(sample) if n.endswith(".jsonl.zst") and not n.startswith("eval")):
    stream = zstandard.ZstdDecompressor().stream_reader(open(os.path.join(sample, name), "rb"))
    texts += [json.loads(line)["text"] for line in io.TextIOWrapper(stream, encoding="utf-8")]
random.seed(1)
texts = [t[:700] for t in random.sample(texts, 120)]
with open(os.path.join(data, "documents.jsonl"), "w", encoding="utf-8") as out:
    for i, text in enumerate(texts):
        lines = text.split("\n")
        record = {
            "id": i,
            "text": ["", "   ", text][0 if i % 17 == 5 else 1 if i % 17 == 9 else 2],
            "sentences": [] if i % 13 == 4 else lines[: i % 5] + [""] + lines[i % 5 : 6],
            "title": lines[0],
        }
        print(json.dumps(record, ensure_ascii=i % 2 == 0), file=out)

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
trainer = trainers.BpeTrainer(
    vocab_size=600, special_tokens=["<|endoftext|>"], initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
)
tokenizer.train_from_iterator(texts, trainer)
tokenizer.save(os.path.join(data, "tokenizer.json"))

cases = [
    {"keys": ["text"], "append_eod": True},
    {"keys": ["text"], "append_eod": False},
    {"keys": ["sentences"], "append_eod": True},
    {"keys": ["text", "sentences", "title"], "append_eod": True},
    {"keys": ["title"], "append_eod": True, "partitions": 2},
]
with tempfile.TemporaryDirectory() as folder:
    model = os.path.join(folder, "model")
    os.makedirs(model)
    tokenizer.save(os.path.join(model, "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}
    json.dump(config, open(os.path.join(model, "tokenizer_config.json"), "w"))
    for n, case in enumerate(cases):
        place = os.path.join(folder, str(n))
        os.makedirs(place)
        source = os.path.join(place, "documents.jsonl")
        open(source, "wb").write(open(os.path.join(data, "documents.jsonl"), "rb").read())
        prefix = os.path.join(place, "out")
        args = ["--input", source, "--output-prefix", prefix, "--tokenizer-type", "HuggingFaceTokenizer"]
        args += ["--tokenizer-model", model, "--workers", "2", "--json-keys", *case["keys"]]
        args += ["--append-eod"] * case["append_eod"]
        if "partitions" in case:
            args += ["--partitions", str(case["partitions"]), "--keep-sequential-samples"]
        command = [sys.executable, os.path.abspath(__file__), "--run", checkout, *args]
        done = subprocess.run(command, capture_output=True, text=True)
        files = {}
        for key in case["keys"]:
            for suffix in ["bin", "idx"]:
                path = f"{prefix}_{key}_document.{suffix}"
                if not os.path.exists(path):
                    sys.exit(f"{path} was not written:\n{done.stdout}\n{done.stderr}")
                files[os.path.basename(path)] = hashlib.sha256(open(path, "rb").read()).hexdigest()
        case["files"] = files
json.dump({"program": "Megatron-LM d98e8a6 tools/preprocess_data.py", "cases": cases}, sys.stdout, indent=1)
print()
