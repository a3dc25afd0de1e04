"""Trains curate/src/extract/model.bin from pages with known main text.

    python3 extraction_train.py DATA EXTRACT_PAGES OUT [--trees 200] [--depth 6] [--folds 6] [--made 1] [--scores FILE]

DATA as in extraction_scores.py; EXTRACT_PAGES is the release build of millrace-curate's example
`extract_pages`, which gives each page's blocks and features. Needs catboost 1.2.10, rapidfuzz 3.14,
numpy and what extraction_scores.py needs.

Labels: a block is text as far as its words are matched by the gold's (longest common subsequence of
words of the page and of the gold, and 4-grams of words in the gold); `with` and `without` snippets
label the blocks they lie in and leave the rest to the model's own first guess; recipes label what
they list and leave out the rest. Blocks between 25 and 75 percent are left out. Weights give every
page the same say. The second ensemble is trained on what the first says of pages it has not seen
(folds by host), so that hosts never speak for themselves. `--scores` also writes each page's text as
judged by ensembles that have not seen its host, in the form of extraction_scores.py's cache: the program itself
chooses and writes the blocks, by those ensembles' logits.
"""
import argparse, collections, hashlib, json, multiprocessing, os, struct, subprocess, sys, tempfile
import numpy as np
import scipy.optimize, scipy.sparse, scipy.special
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
        words = []
        for _ in range(3 * blocks):
            (size,) = struct.unpack_from("<I", out, at)
            words.append(np.frombuffer(out, "<u2", size, at + 4))
            at += 4 + 2 * size
        found.append((texts, table, words))
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


class Linear:
    """Logistic regression on words, weights in 1/32 of a logit, one byte each (linear.rs)."""

    def __init__(self, x, y, w, hosts, spans, strength):
        many = seen_at_hosts(x, hosts) >= 4
        sign = np.where(y == 1, 1.0, -1.0)
        w = w / w.mean()
        kept = x @ scipy.sparse.diags(many.astype(float))

        def loss(v):
            margin = sign * (kept @ v[:-1] + v[-1])
            slope = -sign * w * scipy.special.expit(-margin)
            value = (w * np.logaddexp(0, -margin)).sum() + strength * (v[:-1] ** 2).sum()
            return value, np.append(kept.T @ slope + 2 * strength * v[:-1], slope.sum())

        v = scipy.optimize.minimize(loss, np.zeros(x.shape[1] + 1), jac=True, method="L-BFGS-B", options={"maxiter": 60}).x
        self.weights = np.clip(np.round(v[:-1] * 32), -127, 127).astype(np.int8)
        self.parts = [self.weights[a:b] for a, b in spans]


def seen_at_hosts(x, hosts):
    """At how many hosts each column is not empty."""
    order = scipy.sparse.csr_matrix((np.ones(len(hosts)), (hosts, np.arange(len(hosts)))), shape=(hosts.max() + 1, len(hosts)))
    return np.asarray(((order @ (x != 0)) != 0).sum(axis=0)).ravel()


def level(score):
    """As `level` of linear.rs: division towards zero."""
    return np.clip(np.trunc(score / 4) + 60, 0, 120).astype(np.uint8)


TEXT, CLASS = 1 << 14, 1 << 13


def word_tables(pages):
    """Counts of words: of texts [blocks, TEXT] and of classes [blocks, 2 CLASS]; words of each text."""
    text, classes, sizes = [], [], []
    for texts, _, words in pages:
        for i in range(len(texts)):
            text.append(words[3 * i])
            classes.append(np.concatenate([words[3 * i + 1], words[3 * i + 2].astype(np.int64) + CLASS]))
            sizes.append(len(words[3 * i]))

    def table(rows, width):
        ends = np.concatenate([[0], np.cumsum([len(r) for r in rows])])
        columns = np.concatenate(rows).astype(np.int64)
        m = scipy.sparse.csr_matrix((np.ones(len(columns)), columns, ends), shape=(len(rows), width))
        m.sum_duplicates()
        return m

    return table(text, TEXT), table(classes, 2 * CLASS), np.array(sizes)


def text_roots(sizes):
    return np.maximum(np.floor(np.sqrt(sizes * 256.0)), 16)


class Words:
    """Both linear models."""

    def __init__(self, tables, y, w, hosts, rows):
        text, classes, sizes = tables
        scaled = scipy.sparse.diags(16 / text_roots(sizes)[rows]) @ text[rows]
        self.text = Linear(scaled, y[rows], w[rows], hosts[rows], [(0, TEXT)], 1.0)
        self.classes = Linear(classes[rows], y[rows], w[rows], hosts[rows], [(0, CLASS), (CLASS, 2 * CLASS)], 3.0)

    def columns(self, tables, rows):
        text, classes, sizes = tables
        total = text[rows] @ self.text.weights.astype(float) * 16
        one = level(np.trunc(total / text_roots(sizes)[rows]))
        two = level(classes[rows] @ self.classes.weights.astype(float))
        return np.stack([one, two], axis=1)

    def bytes(self):
        return b"".join(p.tobytes() for p in self.text.parts + self.classes.parts)


def fold_of(url, folds):
    host = (urlsplit(url).hostname or "").split(".")
    return hashlib.sha1(("fold" + ".".join(host[-2:])).encode()).digest()[0] % folds


class Ensemble:
    def __init__(self, x, y, w, a):
        # One thread: the folds are fitted beside each other.
        model = CatBoostClassifier(
            iterations=a.trees, depth=a.depth, learning_rate=a.rate, l2_leaf_reg=6, random_seed=1, thread_count=1,
            border_count=48, verbose=0, rsm=0.2, bootstrap_type="Bernoulli", subsample=0.7, allow_writing_files=False,
        )
        model.fit(Pool(x.astype(np.float32), y, weight=w))
        self.columns = x.shape[1]
        self.made = self.trees(model)

    @staticmethod
    def trees(model):
        path = os.path.join(tempfile.gettempdir(), f"extraction-model-{os.getpid()}.json")
        model.save_model(path, format="json")
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
        trees, bias = self.made
        total = np.full(len(x), bias, np.int64)
        for asks, leaves in trees:
            index = np.zeros(len(x), np.int64)
            for level, (column, least) in enumerate(asks):
                index |= (x[:, column] >= least).astype(np.int64) << level
            total += leaves[index]
        return total

    def bytes(self, depth):
        trees, bias = self.made
        out = struct.pack("<HHB", self.columns, len(trees), depth)
        for asks, leaves in trees:
            asks = list(asks) + [(0, 255)] * (depth - len(asks))
            leaves = np.concatenate([leaves, np.zeros((1 << depth) - len(leaves), int)])
            for column, least in asks:
                out += struct.pack("<HB", column, min(least, 255))
            out += np.clip(leaves, -32768, 32767).astype("<i2").tobytes()
        return out + struct.pack("<i", bias)


def beside(jobs, a):
    """Results of functions without arguments, each in a process of its own, `a.threads` at a time."""
    global JOBS
    JOBS = jobs
    with multiprocessing.get_context("fork").Pool(a.threads) as pool:
        return pool.map(run_job, range(len(jobs)), chunksize=1)


def run_job(i):
    return JOBS[i]()


def fitted(x, y, w, fold, a, whole=None):
    """Logits of every block from ensembles that have not seen its host, and the ensemble of the rows `whole`."""
    known = y >= 0

    def of_fold(f):
        seen = known & (fold != f)
        return Ensemble(x[seen], y[seen], w[seen], a).logits(x[fold == f])

    jobs = [lambda f=f: of_fold(f) for f in range(a.folds)]
    if whole is not None:
        jobs.append(lambda: Ensemble(x[whole], y[whole], w[whole], a))
    found = beside(jobs, a)
    out = np.zeros(len(y), np.int64)
    for f in range(a.folds):
        out[fold == f] = found[f]
    return out, found[-1]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("data")
    ap.add_argument("program")
    ap.add_argument("out")
    ap.add_argument("--trees", type=int, default=200)
    ap.add_argument("--depth", type=int, default=6)
    ap.add_argument("--rate", type=float, default=0.08)
    ap.add_argument("--folds", type=int, default=6)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--scores")
    ap.add_argument("--made", type=float, default=1.0, help="weight of the pages of extraction_pages.py; 0: not learnt from, only scored")
    ap.add_argument("--half", type=int, help="learn from this half of the hosts only, see extraction_scores.py")
    a = ap.parse_args()
    rows, bodies = load(a.data)
    frames = b"".join(struct.pack("<I", len(body)) + body for body in bodies)
    pages = views(a.program, frames)
    labels = [label(row, texts) for row, (texts, _, _) in zip(rows, pages)]
    train(a, rows, bodies, pages, labels)


def load(data):
    rows, bodies = [], []
    for row, body in scores.pages(data, list(scores.gold_rows(data))):
        rows.append(row)
        bodies.append(body)
    return rows, bodies


def train(a, rows, bodies, pages, labels):
    frames = b"".join(struct.pack("<I", len(body)) + body for body in bodies)
    per_block = lambda values: np.concatenate([np.full(len(p[0]), v) for v, p in zip(values, pages)])
    y = np.concatenate([l[0] for l in labels])
    w = np.concatenate([l[1] for l in labels])
    is_made = per_block([r["gold_kind"] == "made" for r in rows]).astype(bool)
    w = np.where(is_made, w * a.made, w)
    y[is_made & (a.made == 0)] = -1
    fold = per_block([fold_of(r["url"], a.folds) for r in rows])
    names = [".".join((urlsplit(r["url"]).hostname or "").split(".")[-2:]) for r in rows]
    order = {name: i for i, name in enumerate(sorted(set(names)))}
    hosts = per_block([order[n] for n in names])
    page_of = per_block(range(len(pages)))
    x = np.concatenate([p[1].T for p in pages if p[1].shape[1]])
    print(f"{len(rows)} pages, {len(y)} blocks, {(y == 1).sum()} text, {(y == 0).sum()} furniture, {x.shape[1]} features", flush=True)
    tables = word_tables(pages)
    known = y >= 0
    trained = np.zeros(len(y), bool)
    if a.half is not None:
        # Everything is learnt from one half of the hosts.
        trained = per_block([scores.half(r["url"]) for r in rows]) != a.half
        y_all, y = y, np.where(trained, -1, y)
        known = y >= 0
    def words_of_fold(f):
        return Words(tables, y, w, hosts, known & (fold != f)).columns(tables, fold == f)

    jobs = [lambda f=f: words_of_fold(f) for f in range(a.folds)]
    *columns, words = beside(jobs + [lambda: Words(tables, y, w, hosts, known)], a)
    for f in range(a.folds):
        x[fold == f, -2:] = columns[f]
    if a.half is not None:
        x[trained, -2:] = words.columns(tables, trained)
    y = guess_rest(rows, x, y, w, fold, page_of, a)
    known = (y >= 0) & ~trained
    y[trained] = -1
    one, first = fitted(x, y, w, fold, a, known)
    one[trained] = first.logits(x[trained])
    print("first, unseen hosts:", report(y, w, one), flush=True)
    more = np.concatenate([p[1].T[:, x.shape[1] :] for p in views(a.program, frames, one) if p[1].shape[1]])
    x2 = np.concatenate([x, more], axis=1)
    two, second = fitted(x2, y, w, fold, a, known)
    two[trained] = second.logits(x2[trained])
    if a.half is not None:
        print("the other half:", report(y_all[trained], w[trained], two[trained]), flush=True)
    else:
        print("second, unseen hosts:", report(y, w, two), flush=True)
    np.savez(a.out + ".npz", y=y, w=w, fold=fold, one=one, two=two, page_of=page_of)
    with open(a.out, "wb") as f:
        f.write(b"MXM2" + words.bytes() + first.bytes(a.depth) + second.bytes(a.depth))
    if a.scores:
        logits = np.trunc((one + two) / 2).astype(np.int64)
        write_scores(a.scores, a.program, rows, bodies, pages, logits, trained if a.half is not None else None)


def guess_rest(rows, x, y, w, fold, page_of, a):
    """Blocks of snippet pages that no snippet labels: what ensembles of other hosts are sure of."""
    quick = argparse.Namespace(**{**vars(a), "trees": a.trees // 3, "folds": a.folds})
    logit, _ = fitted(x, y, w, fold, quick)
    snippet = np.array([r["gold_kind"] == "with/without" for r in rows])[page_of]
    open_ = snippet & (y < 0)
    y = y.copy()
    y[open_ & (logit > 2 * TREES_SCALE)] = 1
    y[open_ & (logit < -2 * TREES_SCALE)] = 0
    w[open_] = 0.05
    # A fifth of them says as much as all.
    y[open_ & (np.arange(len(y)) % 5 != 0)] = -1
    return y


def report(y, w, logit):
    known = y >= 0
    t, p, v = y[known] == 1, logit[known] > 0, w[known]
    tp, fp, fn = v[t & p].sum(), v[~t & p].sum(), v[t & ~p].sum()
    return f"weighted block F1 {2 * tp / (2 * tp + fp + fn):.4f} precision {tp / (tp + fp):.4f} recall {tp / (tp + fn):.4f}"


def write_scores(path, program, rows, bodies, pages, logits, only):
    """The text of each page as the program writes it by these logits, in the form of extraction_scores.py's cache."""
    sizes = [len(texts) for texts, _, _ in pages]
    parts = np.split(logits, np.cumsum(sizes)[:-1])
    wanted = [i for i, size in enumerate(sizes) if only is None or (size and only[sum(sizes[:i])])]
    file = os.path.join(tempfile.gettempdir(), f"judged-{os.getpid()}")
    np.concatenate([np.append(sizes[i], parts[i]) for i in wanted]).astype("<i4").tofile(file)
    frames = b"".join(struct.pack("<I", len(bodies[i])) + bodies[i] for i in wanted)
    out = subprocess.run([program, "--judged", file], input=frames, stdout=subprocess.PIPE, check=True).stdout.splitlines()
    os.remove(file)
    with open(path, "w") as f:
        for i, line in zip(wanted, out, strict=True):
            found = json.loads(line)
            f.write(json.dumps({"record_id": rows[i]["record_id"], "text": found["text"], "seconds": found["seconds"], "bytes": len(bodies[i])}) + "\n")


if __name__ == "__main__":
    main()
