#!/usr/bin/env python3
"""Writes the folder gguf_tokenizers and gguf_tokenizers.json beside this file.

    python train/tests/oracles/gguf_tokenizers.py          (needs gguf 0.19.0, tokenizers 0.23.3, sentencepiece 0.2.3)
    python train/tests/oracles/gguf_tokenizers.py PRINTER TEXTS KIND ORIGINAL [CONFIG]
    python train/tests/oracles/gguf_tokenizers.py PRINTER FOLDER

Small tokenizers are trained on the sentences below and written by the package `gguf` as files without tensors:

    gpt2, llama3, qwen2, falcon, command_r, deepseek_coder, deepseek_v3
                           byte-level BPE of `tokenizers` with the split expressions of these models; qwen2 and command_r
                           compose characters; llama3 begins texts with a token
    spm                    BPE of the program `sentencepiece`, with bytes for unknown characters

The ids are those of `tokenizers` and of `sentencepiece`, not of a reader of GGUF files.

With arguments nothing is written but a GGUF file in a temporary folder: of a tokenizer.json ORIGINAL (KIND is the value of
`tokenizer.ggml.pre`) or of a SentencePiece model (KIND is `llama`). PRINTER, `cargo run --example gguf_tokenizer`, prints the
tokenizer.json that Millrace reads from it, and `tokenizers` gives the ids of both for each line of TEXTS (plain text). Prints
how many lines differ.

FOLDER has the files `ggml-vocab-*.gguf` of real models with their texts (.inp) and the ids of the models' own tokenizers (.out), as in
the folder `models` of llama.cpp (in the source distribution of llama-cpp-python 0.3.36: vendor/llama.cpp/models). Prints
how many texts are equal, by file.
"""
import io
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import sentencepiece
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = Path(__file__).parent
SENTENCES = """The quick brown fox jumps over the lazy dog, and it's 12345 times faster than we've thought!
Der schnelle braune Fuchs springt über den faulen Hund; das kostet 1.299,99 € im Jahr 2024.
Le cœur déçu mais l'âme plutôt naïve, Louÿs rêva de crapaüter en canoë au-delà des îles.
El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia y frío, ¿verdad?
Съешь же ещё этих мягких французских булок, да выпей чаю.
Ξεσκεπάζω την ψυχοφθόρα βδελυγμία.
いろはにほへと ちりぬるを。色は匂へど散りぬるを我が世誰ぞ常ならむ。
我能吞下玻璃而不伤身体。視野無限廣，窗外有藍天。
키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다.
نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر.
ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश करने वाले.
def f(x):\n    return {'a': [x ** 2 for _ in range(10)], "b": None}\n\n\n\tif  x:   pass
""".splitlines()
TEXTS = SENTENCES + [
    "", " ", "   leading and trailing   ", "\n\n \t\n", "a\u00a0b\u3000c", "e\u0301 \u00e9 A\u030a \u1100\u1161", "👩‍👩‍👧 🏳️‍🌈 ☂",
    "x<|end|>y <|end|>  z", "<s>in text</s>", "I'M WE'LL they'Re", "0123456789 000 1 22 4444", "zzzz qqqq ąęłńóśźż Ω≈ç√∫˜µ≤",
    "\u2581already\u2581there", "ﬁ ﬂ ½ ²", "\r\nline\r\n\r\nline", "tab\tseparated\t\tvalues", "a" * 40,
]
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
CHARACTERS = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
DEEPSEEK_V3 = [
    r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
]
TYPES = dict(normal=1, unknown=2, control=3, user=4, unused=5, byte=6)


def byte_level(kind):
    tokenizer = Tokenizer(models.BPE(ignore_merges=kind == "llama3"))
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=kind in ("gpt2", "falcon", "command_r"))
    split = lambda regex: pre_tokenizers.Split(Regex(regex), "isolated")
    digits = pre_tokenizers.Digits(individual_digits=True)
    steps = {
        "llama3": [split(LLAMA3), bytes_],
        "qwen2": [split(QWEN2), bytes_],
        "falcon": [pre_tokenizers.Punctuation("contiguous"), bytes_, pre_tokenizers.Digits(), split("[0-9][0-9][0-9]")],
        "command_r": [digits, bytes_],
        "deepseek_coder": [split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(CHARACTERS), digits, bytes_],
        "deepseek_v3": [split(regex) for regex in DEEPSEEK_V3] + [bytes_],
    }.get(kind)
    if steps:
        bytes_ = pre_tokenizers.Sequence(steps)
    tokenizer.pre_tokenizer, tokenizer.decoder = bytes_, decoders.ByteLevel()
    if kind in ("qwen2", "command_r"):
        tokenizer.normalizer = normalizers.NFC()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(SENTENCES * 2, trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, show_progress=False))
    tokenizer.add_special_tokens(["<|begin|>", "<|end|>"])
    tokenizer.add_tokens([AddedToken("<think>", normalized=False)])
    if kind == "llama3":
        begin = tokenizer.token_to_id("<|begin|>")
        tokenizer.post_processor = processors.TemplateProcessing(single="<|begin|> $A", special_tokens=[("<|begin|>", begin)])
    return tokenizer


def write(path, model, pre, tokens, types, *, merges=None, scores=None, ids=(), flags=(), template=None):
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_tokenizer_model(model)
    if pre:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if merges is not None:
        writer.add_token_merges(merges)
    if scores is not None:
        writer.add_token_scores(scores)
    for key, value in ids:
        writer.add_uint32(f"tokenizer.ggml.{key}", value)
    for key, value in flags:
        writer.add_bool(f"tokenizer.ggml.{key}", value)
    if template:
        writer.add_chat_template(template)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_json(path, whole, pre, **more):
    """A GGUF file of the contents of a tokenizer.json with byte-level BPE."""
    added = {token["id"]: token for token in whole["added_tokens"]}
    texts = {id: text for text, id in whole["model"]["vocab"].items()} | {id: token["content"] for id, token in added.items()}
    count = max(texts) + 1
    kind = lambda id: TYPES["unused"] if id not in texts else TYPES["normal"] if id not in added else TYPES["control" if added[id]["special"] else "user"]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in whole["model"]["merges"]]
    write(path, "gpt2", pre, [texts.get(id, f"[PAD{id}]") for id in range(count)], [kind(id) for id in range(count)], merges=merges, **more)


def write_model(path, model, **more):
    """A GGUF file of a SentencePiece model."""
    every = range(model.get_piece_size())
    kind = lambda id: TYPES["unknown" if model.is_unknown(id) else "control" if model.is_control(id) else "byte" if model.is_byte(id) else "unused" if model.is_unused(id) else "normal"]
    ids = [("bos_token_id", model.bos_id()), ("eos_token_id", model.eos_id()), ("unknown_token_id", model.unk_id())]
    write(path, "llama", "default", [model.id_to_piece(id) for id in every], [kind(id) for id in every],
          scores=[model.get_score(id) for id in every], ids=ids, **more)


def small():
    folder = HERE / "gguf_tokenizers"
    folder.mkdir(exist_ok=True)
    record = {"texts": TEXTS, "ids": {}, "versions": {"gguf": "0.19.0", "tokenizers": tokenizers.__version__, "sentencepiece": sentencepiece.__version__}}
    kinds = [("gpt2", "gpt-2"), ("llama3", "llama-bpe"), ("qwen2", "qwen2")]
    kinds += [(kind, kind.replace("_", "-")) for kind in ("falcon", "command_r", "deepseek_coder", "deepseek_v3")]
    for kind, pre in kinds:
        tokenizer = byte_level(kind)
        ids = [("bos_token_id", tokenizer.token_to_id("<|begin|>")), ("eos_token_id", tokenizer.token_to_id("<|end|>"))]
        template = "{% for m in messages %}{{ m.role }}: {{ m.content }}<|end|>{% endfor %}" if kind == "qwen2" else None
        write_json(folder / f"{kind}.gguf", json.loads(tokenizer.to_str()), pre, ids=ids, template=template)
        record["ids"][kind] = [tokenizer.encode(text).ids for text in TEXTS]
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 20), model_writer=out, model_type="bpe", vocab_size=700, byte_fallback=True, minloglevel=2,
        character_coverage=0.99, normalization_rule_name="identity", remove_extra_whitespaces=False, num_threads=1)
    model = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    write_model(folder / "spm.gguf", model)
    # sentencepiece itself knows no control tokens in texts
    plain = lambda text: "" if "<s>" in text else text
    record["ids"]["spm"] = [[model.bos_id()] + model.encode(plain(text)) for text in TEXTS]
    (HERE / "gguf_tokenizers.json").write_text(json.dumps(record) + "\n")


def large(printer, texts, kind, original, config=None):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.gguf"
        if kind == "llama":
            model = sentencepiece.SentencePieceProcessor(model_file=original)
            write_model(path, model, flags=[("add_bos_token", False)])
            want = lambda text: model.encode(text)
        else:
            write_json(path, json.loads(Path(original).read_text()), kind, flags=[("add_bos_token", False)])
            reference = Tokenizer.from_file(original)
            want = lambda text: reference.encode(text, add_special_tokens=False).ids
        found = Tokenizer.from_str(subprocess.run([printer, str(path)], check=True, capture_output=True, text=True).stdout)
    count, differ, ids = 0, 0, 0
    for line in Path(texts).read_text().splitlines():
        wanted, own = want(line), found.encode(line, add_special_tokens=False).ids
        count, ids = count + 1, ids + len(wanted)
        if wanted != own:
            differ += 1
            if differ < 4:
                print("WRONG", repr(line[:200]), wanted[:40], own[:40])
    print(f"{kind}: {count} lines, {ids} ids, {differ} lines differ")
    sys.exit(differ > 0)


def real(printer, folder):
    wrong = 0
    for path in sorted(Path(folder).glob("*.gguf")):
        printed = subprocess.run([printer, str(path)], capture_output=True, text=True)
        inputs, outputs = Path(f"{path}.inp"), Path(f"{path}.out")
        if printed.returncode or not inputs.exists():
            print(f"{path.name}: {printed.stderr.strip()[-300:] or 'read; there are no ids'}")
            continue
        found = Tokenizer.from_str(printed.stdout)
        texts = inputs.read_bytes().decode().split("\n__ggml_vocab_test__\n")
        ids = [[int(id) for id in line.split()] for line in outputs.read_text().splitlines()]
        same = sum(found.encode(text, add_special_tokens=False).ids == want for text, want in zip(texts, ids))
        wrong += len(ids) - same
        print(f"{path.name}: {same} of {len(ids)} texts equal")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    {0: small, 2: real}.get(len(sys.argv) - 1, large)(*sys.argv[1:])
