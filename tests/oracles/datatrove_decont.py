"""datatrove_decont.py SPEECHES.jsonl | zstd -19 > curate/tests/data/datatrove_decont.json.zst: datatrove's index and verdicts on some texts.

Needs datatrove 0.10.1 with spacy 3.8. SPEECHES: public-domain speeches, JSONL with `text`; pieces of them are the
evaluation sets, and texts to judge quote some.
"""

import json
import random
import sys
import tempfile

import numpy as np
from datatrove.data import Document
from datatrove.pipeline.decont import NGramsDecontConfig, NGramsDecontFilter, NGramsDecontIndexer
from speeches import pieces_of

# only its own tasks need lighteval
NGramsDecontIndexer._requires_dependencies = []
piece = pieces_of(sys.argv[1])
random.seed(2)

odd = ["Caf\u00e9 na\u00efve 3.14 don't can't U.S. e.g. http://a.b/c?d=1 \u4e2d\u6587 one two three four", "a b c", ""]
records = [{"task": t, "query": piece(random.randint(1, 30)), "text": piece(random.randint(1, 30))}
           for t in ("one", "two words", "one:sub") for _ in range(12)]
records += [{"task": "odd", "query": q, "text": l} for q in odd for l in odd]
settings = [{}, {"query_ngrams": True}, {"overlap_ngrams": False}, {"n_grams": 5}]
texts = [piece(60) for _ in range(40)]
for r in records[:30]:
    quote = (r["query"] + " " + r["text"]).upper() if random.random() < 0.3 else r["query"] + ", " + r["text"]
    texts.append(piece(20) + "\n" + quote + ". " + piece(20))
out = []
for s in settings:
    config = NGramsDecontConfig(n_grams=s.get("n_grams", 12), find_query_ngrams=s.get("query_ngrams", False),
                                find_overlap_ngrams=s.get("overlap_ngrams", True))
    indexer = NGramsDecontIndexer(tempfile.mkdtemp(), config=config)
    hashes, first = {}, {}
    for r in records:
        task = r["task"].replace(" ", "_")
        found = indexer.compute_hashes(r["text"], r["query"])
        # of an n-gram of two tasks datatrove's file order decides; ours is the first record's
        hashes.setdefault(task, set()).update(h for h in found if first.setdefault(h, task) == task)
    judge = NGramsDecontFilter(tempfile.mkdtemp(), config=config)
    judge._index_hashes = dict(first)
    verdicts = []
    for t in texts:
        d = Document(text=t, id="")
        kept = judge.filter(d)
        verdicts.append(None if kept is True else [d.metadata["contaminated_task"], d.metadata["contaminated_ngram"]])
    tasks = {task: [f"{h:016x}" for h in sorted(int(h) for h in found)] for task, found in hashes.items()}
    out.append({"settings": s, "hashes": tasks, "verdicts": verdicts})
json.dump({"records": records, "texts": texts, "runs": out}, sys.stdout)
