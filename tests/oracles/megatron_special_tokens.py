"""Golden hashes of Megatron's preprocessing where tokenizers have special tokens:

    python tests/oracles/megatron_special_tokens.py MEGATRON_LM > tests/data/preprocess/special_tokens.json

MEGATRON_LM is a checkout of NVIDIA/Megatron-LM (made at d98e8a6); needs torch, numpy, transformers, tokenizers and
typing_extensions. Runs tools/preprocess_data.py itself (through megatron_preprocess.py) on texts of its own with the
tokenizer of tests/data/preprocess/tokenizer.json, to which a BOS token and post-processors are added. The cases are in
the answer: what is added to the tokenizer, its configuration, the arguments, the SHA-256 of the files.
"""
import hashlib, json, os, subprocess, sys, tempfile

here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "..", "data", "preprocess", "tokenizer.json"), encoding="utf-8") as file:
    tokenizer = json.load(file)

TEXTS = ["The first text.", "", "One with <|endoftext|> inside, and <s> too.", "<s>", "  <s>  blanks around </s>  ",
         "<|endoftext|><|endoftext|>", "caf\u00e9 \u4f60\u597d 123", "ends with <|endoftext|>"]
bos, eos = len(tokenizer["model"]["vocab"]), tokenizer["added_tokens"][0]["id"]


def template(before, after):
    ids = {"<s>": bos, "<|endoftext|>": eos}
    piece = lambda t: {"SpecialToken": {"id": t, "type_id": 0}}
    single = [piece(t) for t in before] + [{"Sequence": {"id": "A", "type_id": 0}}] + [piece(t) for t in after]
    return {"type": "TemplateProcessing", "single": single, "pair": single + [{"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {t: {"id": t, "ids": [ids[t]], "tokens": [t]} for t in before + after}}


special = {"id": bos, "content": "<s>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
ends = {"bos_token": "<s>", "eos_token": "<|endoftext|>"}
cases = [
    {"post_processor": template(["<s>"], []), "config": ends, "args": []},
    {"post_processor": template(["<s>"], ["<|endoftext|>"]), "config": ends, "args": ["--append-eod"]},
    {"post_processor": template(["<s>"], []), "config": ends, "args": ["--append-eod", "--tokenizer-hf-no-include-special-tokens"]},
    {"post_processor": None, "config": {**ends, "add_bos_token": True}, "args": ["--append-eod"]},
    {"post_processor": template(["<s>"], []), "config": {**ends, "add_bos_token": False, "add_eos_token": True}, "args": []},
    {"post_processor": None, "config": ends, "args": ["--append-eod"]},
]
for case in cases:
    with tempfile.TemporaryDirectory() as folder:
        model, source, prefix = (os.path.join(folder, n) for n in ["model", "documents.jsonl", "out"])
        os.makedirs(model)
        made = {**tokenizer, "added_tokens": [*tokenizer["added_tokens"], special], "post_processor": case["post_processor"]}
        json.dump(made, open(os.path.join(model, "tokenizer.json"), "w", encoding="utf-8"))
        config = {"tokenizer_class": "PreTrainedTokenizerFast", **case["config"]}
        json.dump(config, open(os.path.join(model, "tokenizer_config.json"), "w", encoding="utf-8"))
        with open(source, "w", encoding="utf-8") as out:
            for text in TEXTS:
                print(json.dumps({"text": text}), file=out)
        command = [sys.executable, os.path.join(here, "megatron_preprocess.py"), "--run", os.path.abspath(sys.argv[1]),
                   "--input", source, "--output-prefix", prefix, "--tokenizer-type", "HuggingFaceTokenizer",
                   "--tokenizer-model", model, "--workers", "1", *case["args"]]
        done = subprocess.run(command, capture_output=True, text=True)
        case["files"] = {}
        for suffix in ["bin", "idx"]:
            path = f"{prefix}_text_document.{suffix}"
            if not os.path.exists(path):
                sys.exit(f"{path} was not written:\n{done.stdout}\n{done.stderr}")
            case["files"][suffix] = hashlib.sha256(open(path, "rb").read()).hexdigest()
            if suffix == "bin":
                case["tokens"] = list(memoryview(open(path, "rb").read()).cast("H"))
json.dump({"program": "Megatron-LM d98e8a6 tools/preprocess_data.py", "texts": TEXTS, "bos": special, "cases": cases}, sys.stdout, indent=1)
print()
