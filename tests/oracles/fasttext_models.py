#!/usr/bin/env python3
"""fasttext_models.py UDHR.tsv.zst OUT: small models of every kind, trained with fastText 0.9.3, and its answers.

UDHR: paragraphs of the declaration of human rights (public domain), code TAB text. Writes OUT/NAME.zst (a model each) and
OUT/golden.jsonl: model, text, and fastText's five best labels with probabilities. Run with MALLOC_MMAP_THRESHOLD_=1 and
MALLOC_MMAP_MAX_=100000: fastText 0.9.3 trusts new memory to be zero, and small models get memory that is not.
"""
import json, os, random, sys, tempfile
import fasttext, zstandard

data = zstandard.ZstdDecompressor().stream_reader(open(sys.argv[1], "rb")).read().decode("utf-8")
rows = [line.split("\t", 1) for line in data.split("\n") if "\t" in line]
few = "deu_1901 eng fra rus ell_monotonic jpn zul pol".split()
rng = random.Random(5)
rng.shuffle(rows)
folder = tempfile.mkdtemp()

def file(name, rows):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as out:
        out.writelines(f"__label__{code} {text}\n" for code, text in rows)
    return path

some = file("few", [r for r in rows if r[0] in few])
many = file("many", rows[:6000])
common = dict(lr=0.7, epoch=25, thread=1, verbose=0, seed=1)
models = {
    "hs.bin": fasttext.train_supervised(some, dim=8, minn=2, maxn=4, bucket=500, loss="hs", minCount=3, **common),
    "softmax-words.bin": fasttext.train_supervised(some, dim=8, minn=0, maxn=0, wordNgrams=3, bucket=500, loss="softmax", minCount=3, **common),
    "softmax-wide.bin": fasttext.train_supervised(some, dim=68, minn=0, maxn=0, loss="softmax", minCount=9, **common),
    "ova.bin": fasttext.train_supervised(some, dim=7, minn=1, maxn=3, bucket=500, loss="ova", minCount=5, **common),
    "ns.bin": fasttext.train_supervised(some, dim=6, minn=3, maxn=3, bucket=300, loss="ns", minCount=5, **common),
}
pruned = fasttext.train_supervised(some, dim=8, minn=2, maxn=4, bucket=5000, loss="hs", minCount=1, **common)
pruned.quantize(input=some, qnorm=True, cutoff=600, retrain=False)
models["hs-pruned.ftz"] = pruned
odd = fasttext.train_supervised(some, dim=7, minn=2, maxn=3, wordNgrams=2, bucket=700, loss="softmax", minCount=3, **common)
odd.quantize(dsub=2)
models["softmax-odd.ftz"] = odd
wide = fasttext.train_supervised(many, dim=8, minn=2, maxn=3, bucket=1500, loss="softmax", minCount=30, **common)
wide.quantize(qout=True, dsub=3)
models["softmax-qout.ftz"] = wide
texts = [text for _, text in rows[6000:6060]] + [text for code, text in rows if code in few][:40]
texts += ["", " ", "a", "the", "\t\x0b\x0c  \r x", "__label__eng the people", "__label__no such label", "</s>", "</s> the </s>",
          "\u5168\u4e16\u754c", "x" * 300, "caf\u00e9 na\u00efve", "\U0001f600 \U0001f601", "everyone has the right " * 30, "a\x00b"]
with open(os.path.join(sys.argv[2], "golden.jsonl"), "w", encoding="utf-8") as out:
    for name, model in models.items():
        path = os.path.join(folder, name)
        model.save_model(path)
        model = fasttext.load_model(path)
        packed = zstandard.ZstdCompressor(level=19).compress(open(path, "rb").read())
        open(os.path.join(sys.argv[2], name + ".zst"), "wb").write(packed)
        for text in texts:
            best = [[label.removeprefix("__label__"), p] for p, label in model.f.predict(text + "\n", 5, 0.0, "strict")]
            out.write(json.dumps({"model": name, "text": text, "best": best}) + "\n")
