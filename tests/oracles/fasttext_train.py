#!/usr/bin/env python3
"""fasttext_train.py UDHR.tsv.zst OUT: labelled lines, how well fastText 0.9.3 learns them, and its models of two labels.

UDHR: paragraphs of the declaration of human rights (public domain), code TAB text. Writes OUT (.json.zst): training and
test lines (pieces of four words of related languages), accuracy of fastText's models by settings (mean of three seeds),
models of two labels and their scores of some texts. Run with MALLOC_MMAP_THRESHOLD_=1 and MALLOC_MMAP_MAX_=100000:
fastText 0.9.3 trusts new memory to be zero, and small models get memory that is not.
"""
import json, os, random, sys, tempfile
import fasttext, zstandard

data = zstandard.ZstdDecompressor().stream_reader(open(sys.argv[1], "rb")).read().decode("utf-8")
rows = [line.split("\t", 1) for line in data.split("\n") if "\t" in line]
few = "spa por_PT glg cat ita fra nob nno dan swe nld deu_1901 eng ron_2006 slv ces slk pol hrv bos_latn lit lav".split()
rng = random.Random(11)
lines = []
for code, text in rows:
    if code in few:
        words = text.split()
        lines += [f"__label__{code} " + " ".join(words[i:i + 4]) for i in range(0, len(words), 4)]
rng.shuffle(lines)
train, test = lines[1000:], lines[:1000]
folder = tempfile.mkdtemp()

def file(name, lines):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as out:
        out.writelines(line + "\n" for line in lines)
    return path

def right(model):
    hits = sum(model.f.predict(line.split(" ", 1)[1] + "\n", 1, 0.0, "strict")[0][1] == line.split(" ", 1)[0] for line in test)
    return hits / len(test)

path = file("train", train)
out = {"train": train, "test": test, "accuracy": []}
for loss, settings in [
    ("softmax", dict(dim=16, epoch=30, lr=0.5, wordNgrams=2, minn=0, maxn=0, bucket=20000, minCount=1)),
    ("softmax", dict(dim=16, epoch=30, lr=0.5, wordNgrams=1, minn=2, maxn=4, bucket=20000, minCount=2)),
    ("hs", dict(dim=10, epoch=30, lr=0.5, wordNgrams=1, minn=1, maxn=3, bucket=20000, minCount=1)),
    ("ova", dict(dim=10, epoch=30, lr=0.5, wordNgrams=1, minn=2, maxn=3, bucket=20000, minCount=1)),
]:
    found = [right(fasttext.train_supervised(path, loss=loss, thread=1, verbose=0, seed=seed, **settings)) for seed in (1, 2, 3)]
    out["accuracy"].append({"loss": loss, **settings, "mean": sum(found) / 3, "all": found})

two = file("two", [line for line in train if line[9:12] in ("spa", "por")])
texts = [line.split(" ", 1)[1] for line in test[:60]] + [" ".join(line.split(" ", 1)[1] for line in test[i:i + 40]) for i in range(0, 400, 40)]
texts += ["", " ", "a", "la", "la la la la", "\t\x0b\x0c  \r la", "__label__spa la persona", "__label__none la persona", "la __label__x de", "</s>",
          "la </s> de", "la</s> de", "\u5168\u4e16\u754c", "x" * 300, "la\x00de"]
out["texts"], out["two"] = texts, []
for settings in [dict(dim=100, bucket=150, wordNgrams=2, minCount=9), dict(dim=10, bucket=400, wordNgrams=3, minCount=4), dict(dim=7, wordNgrams=1, minCount=2),
                 dict(dim=8, bucket=600, wordNgrams=2, minCount=3, quantize=True), dict(dim=9, bucket=300, wordNgrams=2, minCount=6, loss="ova"),
                 dict(dim=6, bucket=300, wordNgrams=1, minCount=6, minn=2, maxn=3)]:
    quantize = settings.pop("quantize", False)
    model = fasttext.train_supervised(two, thread=1, verbose=0, seed=3, epoch=25, lr=0.5, **{"minn": 0, "maxn": 0, **settings})
    if quantize:
        model.quantize(dsub=2)
    path = os.path.join(folder, "model")
    model.save_model(path)
    model = fasttext.load_model(path)
    answers = [[[label.removeprefix("__label__"), p] for p, label in model.f.predict(text + "\n", 2, 0.0, "strict")] for text in texts]
    out["two"].append({"model": open(path, "rb").read().hex(), "answers": answers})
open(sys.argv[2], "wb").write(zstandard.ZstdCompressor(level=19).compress(json.dumps(out).encode()))
for row in out["accuracy"]:
    print(row)
print(len(train), len(test))
