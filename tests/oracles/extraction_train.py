"""Trains curate/src/extract/model.bin from pages with known main text.

    python3 extraction_train.py DATA EXTRACT_PAGES OUT [--trees 300] [--depth 6] [--folds 6] [--scores CACHE]

DATA as in extraction_scores.py; EXTRACT_PAGES is the release build of millrace-curate's example
`extract_pages`, which gives each page's blocks and features. Needs catboost 1.2.10, rapidfuzz 3.14,
numpy and what extraction_scores.py needs.

Labels: a block is text as far as its words are matched by the gold's (longest common subsequence of
words of the page and of the gold, and 4-grams of words in the gold); `with` and `without` snippets
label the blocks they lie in and leave the rest to the model's own first guess; recipes label what
they list and leave out the rest. Blocks between 25 and 75 percent are left out. Weights give every
page the same say. The second ensemble is trained on what the first says of pages it has not seen
(folds by host), so that hosts never speak for themselves. `--scores` also writes each page's text as
judged by ensembles that have not seen its host, in the form of extraction_scores.py's cache.
"""
import argparse, collections, hashlib, json, os, struct, subprocess, sys
import numpy as np
from catboost import CatBoostClassifier, Pool
from rapidfuzz.distance import LCSseq
from urllib.parse import urlsplit

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import extraction_scores as scores

TREES_SCALE = 1024


def views(program, frames, logits=None):
    """Texts and columns [features, blocks] of each page."""
    args = [program, "--features"]
    if logits is not None:
        path = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"logits-{os.getpid()}")
        np.asarray(logits, "<i4").tofile(path)
        args.append(path)
    out = subprocess.run(args, input=frames, stdout=subprocess.PIPE, check=True).stdout
    at, found = 0, []
    while at < len(out):
        blocks, columns = struct.unpack_from("<II", out, at)
        at += 8
        table = np.frombuffer(out, np.uint8, blocks * columns, at).reshape(columns, blocks)
        at += blocks * columns
        texts = []
        for _ in range(blocks):
            (size,) = struct.unpack_from("<I", out, at)
            texts.append(out[at + 4 : at + 4 + size].decode())
            at += 4 + size
        found.append((texts, table))
    return found


def matched(texts, gold):
    """Share of each block's words that the gold has, and number of its words."""
    block_words = [scores.words(t) for t in texts]
    page = [w for b in block_words for w in b]
    want = scores.words(gold)
    hit = np.zeros(len(page) + 1, np.int32)
    ids = {}
    code = lambda ws: [ids.setdefault(w, len(ids)) for w in ws]
    for op in LCSseq.opcodes(code(page), code(want)):
        if op.tag == "equal" and op.src_end - op.src_start >= 1:
            hit[op.src_start : op.src_end] = 1
    total = np.concatenate([[0], np.cumsum(hit)])
    grams = set(zip(want, want[1:], want[2:], want[3:]))
    share, at = [], 0
    for ws in block_words:
        n = len(ws)
        if n == 0:
            share.append(np.nan)
            continue
        lcs = (total[at + n] - total[at]) / n
        if n >= 5:
            four = list(zip(ws, ws[1:], ws[2:], ws[3:]))
            found = sum(g in grams for g in four) / len(four)
            # A stray word here and there is no match; a whole run is, wherever the gold has it.
            lcs = found
        share.append(lcs)
        at += n
    return np.array(share), np.array([len(w) for w in block_words]), len(want)


def label(row, texts):
    """Per block: 1 text, 0 furniture, -1 not known; and weight."""
    n = len(texts)
    y, w = np.full(n, -1, np.int8), np.zeros(n)
    gold = scores.gold_text(row)
    lengths = np.array([len(scores.words(t)) for t in texts])
    if gold:
        share, lengths, total = matched(texts, gold)
        if total == 0:
            return y, w
        y[share >= 0.75] = 1
        y[share <= 0.25] = 0
        weight = lengths / max(total, 30) + 1 / max(n, 20)
        return y, np.minimum(weight, 1.0)
    plain = [scores.squeeze(t) for t in texts]
    if row["gold_kind"] == "instructions_list":
        wanted = (row.get("instructions_list") or []) + (row.get("ingredients") or [])
        grams = set()
        for text in wanted:
            grams.update(scores.shingles(scores.words(text)))
        for i, t in enumerate(plain):
            have = scores.shingles(scores.words(t))
            if have and sum(g in grams for g in have) >= 0.8 * len(have):
                y[i] = 1
        return y, np.where(y == 1, lengths / max(lengths[y == 1].sum(), 30), 0.0) * 0.5
    joined, starts = "", []
    for t in plain:
        starts.append(len(joined))
        joined += t + " "
    starts = np.array(starts + [len(joined)])
    for name, value in (("with", 1), ("without", 0)):
        for snippet in row.get(name) or []:
            snippet = scores.squeeze(snippet)
            at = joined.find(snippet)
            while at >= 0 and snippet:
                first = np.searchsorted(starts, at, "right") - 1
                last = np.searchsorted(starts, at + len(snippet) - 1, "right") - 1
                for i in range(first, last + 1):
                    y[i] = value if y[i] in (-1, value) else -1
                    w[i] = 0.15
                at = joined.find(snippet, at + 1)
    return y, np.where(y >= 0, w + np.minimum(lengths, 100) / 1000, 0)


def fold_of(url, folds):
    host = (urlsplit(url).hostname or "").split(".")
    return hashlib.sha1(("fold" + ".".join(host[-2:])).encode()).digest()[0] % folds


class Ensemble:
    def __init__(self, x, y, w, a):
        self.model = CatBoostClassifier(
            iterations=a.trees, depth=a.depth, learning_rate=a.rate, l2_leaf_reg=6, random_seed=1, thread_count=a.threads,
            border_count=64, verbose=0, rsm=0.3, bootstrap_type="Bernoulli", subsample=0.7, allow_writing_files=False,
        )
        self.model.fit(Pool(x.astype(np.float32), y, weight=w))
        self.columns = x.shape[1]

    def trees(self):
        path = f"/tmp/extraction-model-{os.getpid()}.json"
        self.model.save_model(path, format="json")
        model = json.load(open(path))
        os.remove(path)
        scale, bias = model["scale_and_bias"]
        trees = []
        for tree in model["oblivious_trees"]:
            asks = [(s["float_feature_index"], int(np.floor(s["border"])) + 1) for s in tree["splits"]]
            leaves = np.array(tree["leaf_values"]) * scale
            trees.append((asks, np.round(leaves * TREES_SCALE).astype(int)))
        return trees, int(round(bias[0] * TREES_SCALE))

    def logits(self, x):
        """Exactly what the program computes."""
        if not hasattr(self, "made"):
            self.made = self.trees()
        trees, bias = self.made
        total = np.full(len(x), bias, np.int64)
        for asks, leaves in trees:
            index = np.zeros(len(x), np.int64)
            for level, (column, least) in enumerate(asks):
                index |= (x[:, column] >= least).astype(np.int64) << level
            total += leaves[index]
        return total

    def bytes(self, depth):
        trees, bias = self.trees()
        out = struct.pack("<HHB", self.columns, len(trees), depth)
        for asks, leaves in trees:
            asks = list(asks) + [(0, 255)] * (depth - len(asks))
            leaves = np.concatenate([leaves, np.zeros((1 << depth) - len(leaves), int)])
            for column, least in asks:
                out += struct.pack("<HB", column, min(least, 255))
            out += np.clip(leaves, -32768, 32767).astype("<i2").tobytes()
        return out + struct.pack("<i", bias)


def folded(x, y, w, fold, a):
    """Logits of every block from ensembles that have not seen its host."""
    out = np.zeros(len(y), np.int64)
    known = y >= 0
    for f in range(a.folds):
        seen = known & (fold != f)
        model = Ensemble(x[seen], y[seen], w[seen], a)
        out[fold == f] = model.logits(x[fold == f])
    return out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("data")
    ap.add_argument("program")
    ap.add_argument("out")
    ap.add_argument("--trees", type=int, default=300)
    ap.add_argument("--depth", type=int, default=6)
    ap.add_argument("--rate", type=float, default=0.08)
    ap.add_argument("--folds", type=int, default=6)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--scores")
    a = ap.parse_args()
    rows, frames = [], bytearray()
    for row, body in scores.pages(a.data, list(scores.gold_rows(a.data))):
        rows.append(row)
        frames += struct.pack("<I", len(body)) + body
    pages = views(a.program, bytes(frames))
    labels = [label(row, texts) for row, (texts, _) in zip(rows, pages)]
    y = np.concatenate([l[0] for l in labels])
    w = np.concatenate([l[1] for l in labels])
    fold = np.concatenate([np.full(len(t), fold_of(r["url"], a.folds)) for r, (t, _) in zip(rows, pages)])
    page_of = np.concatenate([np.full(len(t), i) for i, (t, _) in enumerate(pages)])
    x = np.concatenate([t.T for _, t in pages if t.shape[1]])
    print(f"{len(rows)} pages, {len(y)} blocks, {(y == 1).sum()} text, {(y == 0).sum()} furniture, {x.shape[1]} features", flush=True)
    y = guess_rest(rows, x, y, w, fold, page_of, a)
    one = folded(x, y, w, fold, a)
    print("first, unseen hosts:", report(y, w, one), flush=True)
    x2 = np.concatenate([t.T for _, t in views(a.program, bytes(frames), one) if t.shape[1]])
    two = folded(x2, y, w, fold, a)
    print("second, unseen hosts:", report(y, w, two), flush=True)
    np.savez_compressed(a.out + ".npz", y=y, w=w, fold=fold, one=one, two=two, page_of=page_of)
    if a.scores:
        write_scores(a.scores, rows, pages, two, page_of)
    known = y >= 0
    first, second = Ensemble(x[known], y[known], w[known], a), Ensemble(x2[known], y[known], w[known], a)
    with open(a.out, "wb") as f:
        f.write(b"MXM1" + first.bytes(a.depth) + second.bytes(a.depth))


def guess_rest(rows, x, y, w, fold, page_of, a):
    """Blocks of snippet pages that no snippet labels: what ensembles of other hosts are sure of."""
    logit = folded(x, y, w, fold, a)
    snippet = np.array([r["gold_kind"] == "with/without" for r in rows])[page_of]
    open_ = snippet & (y < 0)
    y = y.copy()
    y[open_ & (logit > 2 * TREES_SCALE)] = 1
    y[open_ & (logit < -2 * TREES_SCALE)] = 0
    w[open_] = 0.01
    return y


def report(y, w, logit):
    known = y >= 0
    t, p, v = y[known] == 1, logit[known] > 0, w[known]
    tp, fp, fn = v[t & p].sum(), v[~t & p].sum(), v[t & ~p].sum()
    return f"weighted block F1 {2 * tp / (2 * tp + fp + fn):.4f} precision {tp / (tp + fp):.4f} recall {tp / (tp + fn):.4f}"


def write_scores(path, rows, pages, logit, page_of):
    at = 0
    with open(path, "w") as f:
        for row, (texts, _) in zip(rows, pages):
            kept = [t for i, t in enumerate(texts) if logit[at + i] > 0]
            at += len(texts)
            f.write(json.dumps({"record_id": row["record_id"], "text": "\n\n".join(kept), "seconds": 0, "bytes": 0}) + "\n")


if __name__ == "__main__":
    main()
