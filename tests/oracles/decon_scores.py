"""decon_scores.py DECON SPEECHES.jsonl | zstd -19 > curate/tests/data/decon.json.zst: records that decon finds in documents, and their scores.

DECON: `cargo build --release` of allenai/decon e1bcb80 (0.3.0), run with its `uniseg` tokenizer. SPEECHES: public-domain speeches,
JSONL with `text`; records are pieces of them, and documents quote these, whole, in part or with edits.
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile

from speeches import pieces_of

piece = pieces_of(sys.argv[2])
random.seed(11)


def edited(text):
    out = []
    for word in text.split():
        kind = random.random()
        out += [] if kind < 0.04 else [word, word] if kind < 0.05 else [piece(1)] if kind < 0.09 else [word]
    return " ".join(out)


records = []
for i in range(150):
    record = {"doc_id": i + 1, "eval_key": random.choice(["one", "two", "three sets"]), "question": piece(random.choice([4, 9, 14, 20, 40, 80]))}
    if random.random() < 0.6:
        record["answer"] = piece(random.choice([1, 1, 2, 3, 8, 30]))
    if random.random() < 0.4:
        record["passage"] = piece(random.choice([3, 20, 60, 150]))
    records.append(record)
common = "Which of the following statements about the union is true and which of them is not"
for i in range(20):  # shared beginnings, repeated n-grams, few words
    records.append({"doc_id": 200 + i, "eval_key": "common", "question": common + " " + piece(6), "answer": piece(2)})
records.append({"doc_id": 300, "eval_key": "odd", "question": "yes no yes no " * 8, "answer": "yes no"})
records.append({"doc_id": 301, "eval_key": "odd", "question": "Caf\u00e9 \u2014 \u039f\u0394\u039f\u03a3 \u4e2d\u6587\u5b57 na\u00efve 3.14 don't can't e.g. U.S. \u201cquoted\u201d words to make it long enough", "answer": "\u4e2d"})
records.append({"doc_id": 302, "eval_key": "odd", "question": "", "answer": "nothing was asked here but the record has a good number of words in it all the same"})
records.append({"doc_id": 303, "eval_key": "odd", "question": "the answer is empty here though the question is of a good length, is it not so", "answer": ""})
documents = [piece(random.randint(5, 300)) for _ in range(20)]
for record in records:
    for change in (str, edited, lambda t: t.upper().replace(" ", " \n"), lambda t: " ".join(t.split()[: len(t.split()) * 4 // 5])):
        parts = [piece(random.randint(0, 80))]
        if record.get("passage") and random.random() < 0.8:
            parts.append(change(record["passage"]) + random.choice(["", " " + piece(5)]))
        parts.append(change(record["question"]))
        if record.get("answer") and random.random() < 0.7:
            parts.append(random.choice(["Answer: ", ""]) + record["answer"] if random.random() < 0.6 else change(record["answer"]))
        parts.append(piece(random.randint(0, 80)))
        documents.append(" ".join(parts))
documents += ["", "a b", "yes no " * 60, " ".join(r["question"] for r in records[:12])]

runs = []
for given in [{}, {"sample-every-m-tokens": 1, "contamination-score-threshold": 0.5}, {"ngram-size": 7, "question-max-consecutive-misses": 4},
              {"contamination-score-threshold": 0.95, "perfect-match-decay-start": 30, "perfect-match-decay-end": 200, "eval-min-token-length": 30}]:
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, lines in (("evals", records), ("train", [{"text": d} for d in documents])):
            (folder / name).mkdir()
            (folder / name / "all.jsonl").write_text("".join(json.dumps(l) + "\n" for l in lines))
        settings = {"sample-every-m-tokens": 10} | given
        options = [f"--{k}={v}" for k, v in settings.items()]
        subprocess.run([sys.argv[1], "detect", "--tokenizer=uniseg", f"--training-dir={folder}/train", f"--evals-dir={folder}/evals",
                        f"--report-output-dir={folder}/out", *options], check=True, stdout=sys.stderr)
        found = [json.loads(l) for f in (folder / "out").rglob("*.jsonl") for l in open(f)]
    hits = sorted([h["training_line"], h["eval_line"], h["question_start_idx"], h["contamination_score"]] for h in found)
    runs.append({"settings": settings, "hits": hits})
json.dump({"records": records, "documents": documents, "runs": runs}, sys.stdout)
