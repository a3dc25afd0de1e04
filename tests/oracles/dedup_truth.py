"""Near-duplicate removal of Millrace, datatrove, text-dedup and rensa against true Jaccard similarities.

    python tests/oracles/dedup_truth.py MILLRACE DATA WORK DATATROVE_PYTHON TEXTDEDUP_PYTHON

Needs datatrove[io,processing] 0.10.1 with spacy 3.8 under the first Python, text-dedup 0.4.0 and rensa 0.5 under the second,
zstandard and fastwarc under this one. DATA holds `text/`, `dedup/` and `webarchive/minicc`. Makes nothing; prints Markdown tables.

Sets: `edited`, 4,000 passages of reviews, news, speeches and Wikipedia, 60 to 400 words, a half of them made from earlier ones
(so there are copies of copies) by deleting, inserting and replacing words at rates of 0.2 to 10 %, a tenth with one
of ten long disclaimers; `pages`, the main texts of crawled pages, as Millrace extracts them; students' answers with reuse of
graded degree (Clough and Stevenson 2011) behind their sources; and, Millrace alone, the raw HTML of the same pages, of which
others have computed all similarities: pairs of `keep/pairs.jsonl` are compared with these.

Truth: Jaccard similarity of the sets of 5-word shingles (words `\\w+` in lower case; a shorter text is one shingle), of all
pairs, exactly. A removed document is right if a document that stays is as similar as the threshold, else wrong; a document
that stays is missed if an earlier one stays that is as similar. Precision: right / (right + wrong). Recall:
right / (right + missed). Every program removes by its own defaults.
"""
import collections, glob, json, os, random, re, shutil, subprocess, sys

WORD = re.compile(r"\w+")


def shingles(text):
    words = WORD.findall(text.lower())
    return {" ".join(words[i : i + 5]) for i in range(max(1, len(words) - 4))}


def lines(path):
    import zstandard
    with open(path, "rb") as file:
        data = zstandard.ZstdDecompressor().stream_reader(file).read()
    return [json.loads(line) for line in data.decode().split("\n") if line.strip()]


def edited(data):
    rng = random.Random(11)
    texts = []
    for name in ("movie_reviews-shared", "abc", "state_union"):
        texts += [d["text"] for d in lines(f"{data}/text/{name}.jsonl.zst")]
    words = [text.split() for text in texts]
    pool = sorted({w for text in words for w in text[:200]})
    passages = []
    for text in words:
        at = 0
        while at + 60 <= len(text):
            size = rng.randint(60, 400)
            passages.append(text[at : at + size])
            at += size
    passages = [p for p in passages if len(p) >= 60]
    rng.shuffle(passages)
    disclaimers = [[rng.choice(pool) for _ in range(120)] for _ in range(10)]
    made = []
    for i in range(4000):
        if i > 20 and i % 2:
            # half of them of a recent document, so that chains arise
            of = rng.randrange(i) if rng.random() < 0.5 else max(0, i - 1 - rng.randrange(20))
            rate = rng.choice([0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1])
            out = []
            for word in made[of]:
                if rng.random() >= rate:
                    out.append(word)
                    continue
                kind = rng.randrange(3)
                if kind:
                    out.append(rng.choice(pool))
                if kind == 2:
                    out.append(word)
        else:
            out = list(passages.pop())
            if rng.random() < 0.2:
                out += rng.choice(disclaimers)
        made.append(out)
    return [" ".join(words) for words in made]


def millrace(binary, folder, job):
    os.makedirs(folder, exist_ok=True)
    path = f"{folder}/job.toml"
    with open(path, "w") as file:
        file.write(f'name = "truth"\nout = "{folder}/out"\n' + job)
    return path


def pages(binary, data, work):
    folder = f"{work}/pages"
    job = millrace(binary, folder, f"""[curate]
inputs = [{{ path = "{data}/webarchive/minicc/*.warc.gz", format = "warc", source = "crawl" }}]
[[curate.step]]
extract = {{}}
""")
    subprocess.run([binary, "curate", job], check=True, stderr=subprocess.DEVNULL)
    documents = []
    for shard in sorted(glob.glob(f"{folder}/out/clean/*.jsonl.zst")):
        documents += lines(shard)
    return [d["text"] for d in documents if len(d["text"]) > 100]


def similar(sets, least):
    """Pairs of documents with at least this similarity, by the first."""
    where = collections.defaultdict(list)
    found = collections.defaultdict(dict)
    for i, own in enumerate(sets):
        both = collections.Counter()
        for shingle in own:
            both.update(where[shingle])
            where[shingle].append(i)
        for j, n in both.items():
            similarity = n / (len(own) + len(sets[j]) - n)
            if similarity >= least:
                found[i][j] = found[j][i] = similarity
    return found


def score(removed, pairs, count, threshold):
    like = lambda i: (j for j, s in pairs[i].items() if s >= threshold)
    right = sum(any(j not in removed for j in like(i)) for i in removed)
    missed, left = 0, set()
    for i in range(count):
        if i in removed:
            continue
        if any(j in left for j in like(i)):
            missed += 1
        else:
            left.add(i)
    precision = right / max(1, len(removed))
    recall = right / max(1, right + missed)
    f1 = 2 * precision * recall / max(1e-9, precision + recall)
    return precision, recall, f1


def ours(binary, path, work, minhash):
    folder = f"{work}/ours"
    shutil.rmtree(folder, ignore_errors=True)
    job = millrace(binary, folder, f"""[curate]
inputs = [{{ path = "{path}", format = "jsonl", source = "truth" }}]
[dedup]
minhash = {{ {minhash} }}
""")
    for verb in ("curate", "dedup"):
        subprocess.run([binary, verb, job], check=True, stderr=subprocess.DEVNULL)
    ids = [int(d["id"]) for d in lines(f"{folder}/out/clean/00000.jsonl.zst")]
    with open(f"{folder}/out/keep/00000.keep", "rb") as file:
        keep = file.read()
    assert keep[:8] == b"MLRKEEP2" and int.from_bytes(keep[8:16], "little") == len(ids)
    removed = {i for i, flag in zip(ids, keep[16:]) if flag}
    return removed


def other(python, name, path, work):
    out = f"{work}/{name}"
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    env = dict(os.environ, HF_HOME=f"{out}/hf", HF_DATASETS_OFFLINE="1", HF_HUB_OFFLINE="1", TQDM_DISABLE="1")
    if name == "textdedup":
        subprocess.run([python, "-m", "text_dedup.minhash", "--path", "json", "--data_files", path, "--split", "train",
                        "--column", "text", "--output", f"{out}/kept", "--num_proc", "1"], check=True, env=env, cwd=out,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    subprocess.run([python, os.path.abspath(__file__), "--run", name, path, out], check=True, env=env,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(f"{out}/removed.json") as file:
        return set(json.load(file))


def run(name, path, out):
    with open(path) as file:
        documents = [json.loads(line) for line in file]
    kept = None
    if name == "datatrove":
        from datatrove_minhash import kept_ids
        folder, file = os.path.split(path)
        kept = {int(i) for i in kept_ids(folder, file, 1, out)}
    elif name == "textdedup":
        import datasets
        kept = {int(i) for i in datasets.load_from_disk(f"{out}/kept")["id"]}
    elif name == "rensa":
        from rensa import RMinHash, RMinHashDeduplicator
        # as its README has it: words, 128 permutations, 16 bands, similarity 0.8
        dedup = RMinHashDeduplicator(threshold=0.8, num_perm=128, use_lsh=True, num_bands=16)
        kept = set()
        for d in documents:
            minhash = RMinHash(num_perm=128, seed=42)
            minhash.update(d["text"].split())
            if not dedup.is_duplicate(str(d["id"]), minhash):
                dedup.add(str(d["id"]), minhash)
                kept.add(int(d["id"]))
    removed = sorted({int(d["id"]) for d in documents} - kept)
    with open(f"{out}/removed.json", "w") as file:
        json.dump(removed, file)


def main(binary, data, work, datatrove, textdedup):
    binary, work = os.path.abspath(binary), os.path.abspath(work)
    os.makedirs(work, exist_ok=True)
    for name, texts in (("edited", edited(data)), ("pages", pages(binary, data, work))):
        path = f"{work}/{name}.jsonl"
        with open(path, "w") as file:
            for i, text in enumerate(texts):
                file.write(json.dumps({"id": str(i), "text": text}) + "\n")
        pairs = similar([shingles(text) for text in texts], 0.5)
        steps = collections.Counter(int(s * 20) / 20 for i in pairs for j, s in pairs[i].items() if i < j)
        print(f"\n{name}: {len(texts)} documents; pairs by similarity: " + ", ".join(f"{s}: {n}" for s, n in sorted(steps.items())))
        found = {
            "datatrove, its default (14x8)": other(datatrove, "datatrove", path, work),
            "text-dedup, its default (0.7)": other(textdedup, "textdedup", path, work),
            "rensa, as its README (words, 0.8)": other(textdedup, "rensa", path, work),
        }
        for threshold in (0.7, 0.8):
            own = {}
            for preset, bands, verify in (("fineweb", "", 0), ("fineweb", "", threshold), ("native", "", 0), ("native", "", threshold),
                                          ("native", "bands = 22, rows = 5, ", 0), ("native", "bands = 22, rows = 5, ", threshold)):
                removed = ours(binary, path, work, f'preset = "{preset}", {bands}verify = {verify}')
                label = "Millrace " + preset + (" 22x5" if bands else " 14x8") + (f", verify = {verify}" if verify else "")
                own[label] = removed
            print(f"\n| {name}, duplicates from {threshold} | removed | precision | recall | F1 |\n|---|---|---|---|---|")
            for label, removed in {**own, **found}.items():
                figures = score(removed, pairs, len(texts), threshold)
                print(f"| {label} | {len(removed)} | " + " | ".join(f"{f:.3f}" for f in figures) + " |", flush=True)
    reuse(binary, data, work, datatrove, textdedup)
    raw(binary, data, work)


def raw(binary, data, work):
    """Raw HTML of the crawled pages, whose exact similarities others have computed: 5-grams of [a-z0-9]+."""
    from fastwarc.warc import ArchiveIterator, WarcRecordType
    path, ids = f"{work}/raw.jsonl", []
    with open(path, "w") as file:
        for archive in sorted(glob.glob(f"{data}/webarchive/minicc/*.warc.gz")):
            for record in ArchiveIterator(open(archive, "rb"), record_types=WarcRecordType.response):
                words = re.findall(rb"[a-z0-9]+", record.reader.read().lower())
                file.write(json.dumps({"id": str(len(ids)), "text": b" ".join(words).decode()}) + "\n")
                ids.append(record.record_id)
    number = {id.strip("<>"): i for i, id in enumerate(ids)}
    pairs = collections.defaultdict(dict)
    with open(f"{data}/dedup/minicc-shared-rawhtml-jaccard.tsv") as file:
        for line in list(file)[1:]:
            a, b, similarity = line.split("\t")[:3]
            a, b = number[a.strip("<>")], number[b.strip("<>")]
            pairs[a][b] = pairs[b][a] = float(similarity)
    for threshold in (0.5, 0.7, 0.8, 0.9):
        for bands in ("bands = 22, rows = 5", "bands = 40, rows = 3"):
            for verify in (0, threshold):
                removed = ours(binary, path, work, f'preset = "native", {bands}, verify = {verify}')
                figures = " | ".join(f"{f:.3f}" for f in score(removed, pairs, len(ids), threshold))
                print(f"| raw HTML, from {threshold} | {bands}, verify = {verify} | {len(removed)} | {figures} |", flush=True)
            worst, seen = 0.0, 0
            with open(f"{work}/ours/out/keep/pairs.jsonl") as file:
                for pair in map(json.loads, file):
                    a, b = (int(d["id"]) for d in pair["documents"])
                    if b in pairs[a]:
                        worst, seen = max(worst, abs(pairs[a][b] - pair["jaccard"])), seen + 1
                    else:
                        assert pair["jaccard"] < 0.3001, pair
            print(f"{seen} pairs of pairs.jsonl are in the list; largest difference {worst:.6f}", flush=True)


def reuse(binary, data, work, datatrove, textdedup):
    """Clough and Stevenson's answers behind their sources: how many of each degree of reuse go."""
    with open(f"{data}/dedup/clough-stevenson-plagiarism.jsonl") as file:
        records = [json.loads(line) for line in file]
    kind = lambda r: r["category"]
    records.sort(key=lambda r: r["category"] != "orig")
    path = f"{work}/reuse.jsonl"
    with open(path, "w") as file:
        for i, r in enumerate(records):
            file.write(json.dumps({"id": str(i), "text": r["text"]}) + "\n")
    sets = [shingles(r["text"]) for r in records]
    rows = {
        "datatrove": other(datatrove, "datatrove", path, work),
        "text-dedup": other(textdedup, "textdedup", path, work),
        "rensa": other(textdedup, "rensa", path, work),
        "Millrace native 14x8": ours(binary, path, work, 'preset = "native"'),
        "Millrace native 22x5, verify = 0.7": ours(binary, path, work, 'preset = "native", bands = 22, rows = 5, verify = 0.7'),
    }
    total = collections.Counter(kind(r) for r in records)
    best = max((s, i, j) for i in range(len(sets)) for j in range(i) for s in [len(sets[i] & sets[j]) / len(sets[i] | sets[j])])
    print(f"\nClough-Stevenson, sources first: {dict(total)}; most alike {best[0]:.2f}; removed:")
    for label, removed in rows.items():
        print(label, dict(collections.Counter(kind(records[i]) for i in removed)))


if __name__ == "__main__":
    if sys.argv[1] == "--run":
        run(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
