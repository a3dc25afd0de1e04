"""dsir.py SPEECHES.jsonl > curate/tests/data/dsir.json: weights of the DSIR authors' package on some texts.

Needs data-selection 1.0.3 (with nltk 3.10, numpy, tqdm, joblib). SPEECHES: public-domain speeches, JSONL with `text`.
"""

import json
import sys
import tempfile

import numpy as np
from data_selection import HashedNgramDSIR

texts = []
for line in open(sys.argv[1], encoding="utf-8"):
    words = json.loads(line)["text"].split()
    texts += [" ".join(words[i : i + 30]) for i in range(0, min(len(words), 300), 30)]
odd = ["\u0391\u03a3 \u039f\u03a3\u03a3. caf\u00e9 na\u00efve x_y 3\u00bd \u2460\u2160 don't -- ...", "\u4f60\u597d\uff0c\u4e16\u754c a\u0301b \u0915\u094d\u0937", "I\u0307\u0130 \u00c0\u00c9 \u00dfTRASSE", "one"]
target, raw = texts[:60], texts[60:160] + odd


def file(lines):
    out = tempfile.NamedTemporaryFile("w", suffix=".jsonl", delete=False, encoding="utf-8")
    out.writelines(json.dumps({"text": text}) + "\n" for text in lines)
    out.close()
    return out.name


dsir = HashedNgramDSIR([file(raw)], [file(target)], cache_dir=tempfile.mkdtemp(), num_proc=1)
dsir.fit_importance_estimator(num_tokens_to_fit="all")
features = [dsir.featurizer(text) for text in raw]
weights = [float(dsir.importance_estimator(f)) for f in features]
words = [int(dsir.get_perexample_metadata({}, f)) for f in features]
json.dump({"target": target, "raw": raw, "weights": weights, "words": words}, sys.stdout)
