#!/usr/bin/env python3
"""Writes tests/data/classifiers/: small random sequence classifiers and transformers' logits for awkward texts.

    python tests/oracles/classifiers.py            (needs torch 2.15, transformers 5.24, tokenizers 0.23.3, safetensors)

A folder a model, as `save_pretrained` writes it, with a tokenizer trained here:

| folder | class | head | stored as |
|---|---|---|---|
| bert | BertForSequenceClassification, pooler | one regression score, as FineWeb-Edu's | f32, two shards |
| roberta | RobertaForSequenceClassification, dense and tanh; byte-level BPE | 4 labels, several at once | f16 |
| xlm | XLMRobertaForSequenceClassification; unigram pieces | 3 labels, one of them | bf16 |
| distilbert | DistilBertForSequenceClassification | 2 labels, no problem_type | f16 |
| deberta_v3 | DebertaV2ForSequenceClassification: log buckets, shared keys, c2p and p2c, norm of the distances, no positions | 3 labels, one of them | f16 |
| deberta_v2 | the same class: own projections of distances, c2p alone, no buckets, positions and types, projected embeddings | 2 labels, one of them | f16 |

`golden.json` in each: for each text its ids (special tokens added, cut to the model's length) and its logits, by the model in
float64 and in float32, padded among the others. `buckets.json`: DeBERTa's buckets of distances for several sizes.
"""
import json
import shutil
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

OUT = Path(__file__).resolve().parents[1] / "data" / "classifiers"
LENGTH = 64
LINES = [
    "The people of the town walk to the river before it is dark.",
    "A page about prices, cookies and the terms of a shop; click here to accept.",
    "Photosynthesis turns light, water and carbon dioxide into sugar and oxygen.",
    "Let f be a continuous function on the closed interval from a to b.",
    "Der Fluss ist schmal, und das andere Ufer liegt hinter den Bäumen.",
    "Быстрая лиса прыгает через ленивую собаку.",
]
TEXTS = [
    "",
    " ",
    "the river",
    "The people of the town walk to the river before it is dark.",
    "A page about prices, cookies and the terms of a shop; click here to accept.\n\nClick here.",
    "Photosynthesis turns light, water and carbon dioxide into sugar and oxygen. " * 2,
    "Быстрая лиса прыгает через ленивую собаку; 河流与山丘, نهر صغير, \U0001f600\U0001f680.",
    "words named [SEP] and </s> and <pad> and [PAD] in a text [MASK]",
    "one\ttwo\u00a0three\u200bfour\r\nfive\x07six",
    "a " * 61,
    "a " * 62,
    "a " * 63,
    "The river and the hills have been there for longer than the town. " * 12,
    "x" * 300,
]


def trained(kind):
    """A small tokenizer with its special tokens."""
    if kind == "wordpiece":
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        trainer = trainers.WordPieceTrainer(vocab_size=180, special_tokens=special, show_progress=False)
        around = ("[CLS]", "[SEP]")
        tokenizer.decoder = decoders.WordPiece()
    elif kind == "bytes":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
        around = ("<s>", "</s>")
        tokenizer.decoder = decoders.ByteLevel()
    else:
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace("\n", " ")])
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"] if kind == "pieces" else [
            "[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
        unknown = "<unk>" if kind == "pieces" else "[UNK]"
        trainer = trainers.UnigramTrainer(vocab_size=160, special_tokens=special, unk_token=unknown, show_progress=False)
        around = ("<s>", "</s>") if kind == "pieces" else ("[CLS]", "[SEP]")
        tokenizer.decoder = decoders.Metaspace()
    tokenizer.train_from_iterator(LINES * 20, trainer)
    ids = [(name, tokenizer.token_to_id(name)) for name in around]
    if kind == "bytes":
        tokenizer.post_processor = processors.RobertaProcessing(ids[1], ids[0], add_prefix_space=False)
    else:
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{around[0]} $A {around[1]}", special_tokens=ids)
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special))
    if special[0] == "<s>":
        names = dict(bos_token="<s>", cls_token="<s>", pad_token="<pad>", eos_token="</s>", sep_token="</s>",
                     unk_token="<unk>", mask_token="<mask>")
    elif kind == "sentence":
        names = dict(pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", unk_token="[UNK]", mask_token="[MASK]")
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=LENGTH, **names)


def labels(*names):
    return dict(id2label=dict(enumerate(names)), label2id={n: i for i, n in enumerate(names)})


SIZES = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
# name: (tokenizer, class, settings, stored as, bytes of a shard)
MODELS = {
    "bert": ("wordpiece", "Bert", dict(SIZES, max_position_embeddings=LENGTH, problem_type="regression", **labels("LABEL_0")),
             torch.float32, "48KB"),
    "roberta": ("bytes", "Roberta", dict(SIZES, max_position_embeddings=LENGTH + 2, type_vocab_size=1, layer_norm_eps=1e-5,
                problem_type="multi_label_classification", **labels("toxic", "obscene", "threat", "insult")),
                torch.float16, "1GB"),
    "xlm": ("pieces", "XLMRoberta", dict(SIZES, max_position_embeddings=LENGTH + 2, type_vocab_size=1, layer_norm_eps=1e-5,
            problem_type="single_label_classification", **labels("low", "medium", "high")), torch.bfloat16, "1GB"),
    "distilbert": ("wordpiece", "DistilBert", dict(dim=32, n_layers=2, n_heads=4, hidden_dim=48,
                   max_position_embeddings=LENGTH), torch.float16, "1GB"),
    "deberta_v3": ("sentence", "DebertaV2", dict(SIZES, max_position_embeddings=LENGTH, relative_attention=True,
                   position_buckets=8, norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type="p2c|c2p",
                   position_biased_input=False, type_vocab_size=0, max_relative_positions=-1,
                   **labels("Adult", "News", "Science")), torch.float16, "1GB"),
    "deberta_v2": ("sentence", "DebertaV2", dict(SIZES, max_position_embeddings=LENGTH, relative_attention=True,
                   pos_att_type=["c2p"], position_biased_input=True, type_vocab_size=2, embedding_size=16,
                   max_relative_positions=24, **labels("no", "yes")), torch.float16, "1GB"),
}


def make(name):
    kind, family, settings, dtype, shard = MODELS[name]
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    tokenizer = trained(kind)
    config = getattr(transformers, family + "Config")(
        vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, **settings)
    torch.manual_seed(len(name))
    model = getattr(transformers, family + "ForSequenceClassification")(config)
    with torch.no_grad():
        for key, weight in model.named_parameters():
            is_norm = "norm" in key.lower() and key.endswith("weight")
            weight.normal_(1.0 if is_norm else 0.0, 0.1 if weight.dim() == 1 else 0.25)
    model.to(dtype).save_pretrained(folder, max_shard_size=shard)
    tokenizer.save_pretrained(folder)
    # as a user opens it
    auto = transformers.AutoModelForSequenceClassification
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    logits = {}
    for precision in (torch.float64, torch.float32):
        model = auto.from_pretrained(folder, dtype=precision, attn_implementation="eager").eval()
        batch = tokenizer(TEXTS, truncation=True, padding=True, return_tensors="pt")
        batch = {k: v for k, v in batch.items() if k in ("input_ids", "attention_mask")}
        with torch.no_grad():
            logits[precision] = model(**batch).logits.double()
    rows = []
    for at, text in enumerate(TEXTS):
        ids = tokenizer(text, truncation=True)["input_ids"]
        assert len(ids) <= LENGTH
        rows.append(dict(text=text, ids=ids, exact=logits[torch.float64][at].tolist(), f32=logits[torch.float32][at].tolist()))
    off = (logits[torch.float64] - logits[torch.float32]).abs().max().item()
    (folder / "golden.json").write_text(json.dumps(rows, ensure_ascii=False, indent=0) + "\n")
    print(f"{name}: float32 differs by {off:.1e} from float64; logits of {logits[torch.float64].abs().max():.2f} at most")


def buckets():
    tables = []
    for size, positions in ((256, 512), (8, 64), (32, 128), (256, 1024), (6, 33)):
        distances = torch.arange(-positions + 1, positions)
        found = make_log_bucket_position(distances, size, positions).long().tolist()
        tables.append(dict(buckets=size, positions=positions, first=-positions + 1, of=found))
    (OUT / "buckets.json").write_text(json.dumps(tables) + "\n")


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    OUT.mkdir(parents=True, exist_ok=True)
    for name in MODELS:
        make(name)
    buckets()
