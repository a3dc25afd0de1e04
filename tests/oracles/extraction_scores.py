"""Main-text extraction of several programs on pages with known main text, side by side.

    python3 extraction_scores.py DATA CACHE [--ours PROGRAM] [--programs a,b,..] [--json OUT]

DATA (several folders with `:` between) holds `html-gold/*.jsonl.zst` (gold, keyed by record id with WARC file and offset) and
`webarchive/minicc/*.warc.gz`. Texts and times of each program are kept under CACHE and made only
if absent. PROGRAM is the release build of the example `extract_pages` of millrace-curate.
Needs trafilatura 2.3.1, resiliparse 2.0.1, fastwarc, justext 3.0.2, lxml, zstandard.

Scores:
  shingles  per page, multisets of 4 successive words (words are `\\w+` in lower case, CJK characters
            stand alone) of output and gold: precision, recall, F1; the mean over pages.
  snippets  the gold's own: a `with` snippet in the output is a true positive, a `without` snippet in
            it a false positive (white space squeezed); over all snippets of a source.
  made      pages of extraction_pages.py, by kind and by sort; not among "all".
  halves    the same on the two halves of the hosts (parity of SHA-1 of the registrable host).
Gold of kind instructions_list (recipes) has recall only. Pages of main_content whose gold is less
than 0.3 contained in the page's text are left out, as the set's notes advise.
Times are CPU seconds of extraction alone, decoding included (Millrace's are elapsed seconds, which are never
fewer); run pinned to one core.
"""
import argparse, collections, glob, hashlib, io, json, os, re, struct, subprocess, sys, time
import zstandard
from urllib.parse import urlsplit

WORD = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|\w+")
PROGRAMS = ["ours", "trafilatura", "trafilatura_fast", "resiliparse", "justext"]


def files(data, pattern):
    """Files of one data directory, or of several with `:` between."""
    return [path for folder in data.split(":") for path in sorted(glob.glob(os.path.join(folder, pattern)))]


def gold_rows(data):
    for path in files(data, "html-gold/gold-*.jsonl.zst"):
        with zstandard.ZstdDecompressor().stream_reader(open(path, "rb")) as stream:
            for line in io.TextIOWrapper(stream, "utf-8"):
                row = json.loads(line)
                if row["gold_kind"] == "main_content" and row.get("gold_containment", 1) < 0.3:
                    continue
                yield row


def pages(data, rows):
    """Bytes of each gold page, by (file, offset)."""
    from fastwarc.warc import ArchiveIterator, WarcRecordType

    wanted = {r["record_id"]: r for r in rows}
    for path in files(data, "webarchive/minicc/*.warc.gz"):
        for record in ArchiveIterator(path, record_types=WarcRecordType.response, parse_http=True, fsspec_args=False):
            row = wanted.get(record.headers.get("WARC-Record-ID"))
            if row is not None:
                yield row, record.reader.read()


def squeeze(text):
    return " ".join(text.split())


def words(text):
    return WORD.findall(text.lower())


def shingles(tokens):
    if len(tokens) < 4:
        return collections.Counter([tuple(tokens)] if tokens else [])
    return collections.Counter(zip(tokens, tokens[1:], tokens[2:], tokens[3:]))


def gold_text(row):
    if row["gold_kind"] == "expected.html":
        import lxml.html

        root = lxml.html.fromstring(row["gold_html"])
        for element in root.iter():
            if isinstance(element.tag, str) and element.tag in ("p", "div", "li", "br", "h1", "h2", "h3", "h4", "td", "tr", "pre", "blockquote"):
                element.tail = "\n" + (element.tail or "")
        return root.text_content()
    if row["gold_kind"] == "with/without" or row["gold_kind"] == "instructions_list":
        return None
    return row.get("gold_text")


def extractor(name):
    if name.startswith("trafilatura"):
        from trafilatura import extract

        fast = name.endswith("fast")
        return lambda b, row: extract(b, include_comments=False, fast=fast) or ""
    if name == "resiliparse":
        from resiliparse.extract.html2text import extract_plain_text
        from resiliparse.parse.encoding import bytes_to_str, detect_encoding

        return lambda b, row: extract_plain_text(
            bytes_to_str(b, detect_encoding(b)), main_content=True, alt_texts=False, comments=False
        )
    if name == "justext":
        import justext

        names = {"de": "German", "fr": "French", "es": "Spanish", "it": "Italian", "pt": "Portuguese", "nl": "Dutch",
                 "pl": "Polish", "cs": "Czech", "sv": "Swedish", "no": "Norwegian_Bokmal", "nb": "Norwegian_Bokmal",
                 "da": "Danish", "fi": "Finnish", "ru": "Russian", "hu": "Hungarian", "tr": "Turkish", "ro": "Romanian", "el": "Greek"}
        lang = re.compile(rb"<html[^>]*\slang=[\"']?([a-z]{2})", re.I)

        def run(b, row):
            found = lang.search(b[:4096])
            stop = justext.get_stoplist(names.get(found.group(1).decode().lower() if found else "", "English"))
            return "\n".join(p.text for p in justext.justext(b, stop) if not p.is_boilerplate)

        return run
    raise SystemExit(f"no such program: {name}")


def run_ours(program, data, rows):
    """Frames of length and bytes in, one JSON line each and CPU seconds out."""
    found, frames = [], bytearray()
    for row, body in pages(data, rows):
        found.append((row["record_id"], len(body)))
        frames += struct.pack("<I", len(body)) + body
    got = subprocess.run([program], input=bytes(frames), stdout=subprocess.PIPE, check=True).stdout.splitlines()
    for (record, size), line in zip(found, got, strict=True):
        out = json.loads(line)
        yield {"record_id": record, "text": out["text"], "seconds": out["seconds"], "bytes": size, "meta": out}


def run_peer(name, data, rows):
    run = extractor(name)
    for row, body in pages(data, rows):
        start = time.process_time()
        try:
            text = run(body, row)
        except Exception as error:  # counted as an empty page
            print(f"{name}: {row['url']}: {error!r}", file=sys.stderr)
            text = ""
        yield {"record_id": row["record_id"], "text": text, "seconds": time.process_time() - start, "bytes": len(body)}


def outputs(name, a, rows):
    path = os.path.join(a.cache, f"{name}.jsonl")
    if name == "ours" or not os.path.exists(path):
        made = run_ours(a.ours, a.data, rows) if name == "ours" else run_peer(name, a.data, rows)
        with open(path + ".part", "w") as f:
            for row in made:
                f.write(json.dumps(row) + "\n")
        os.rename(path + ".part", path)
    return {r["record_id"]: r for r in map(json.loads, open(path))}


def half(url):
    host = (urlsplit(url).hostname or "").split(".")
    return hashlib.sha1(".".join(host[-2:]).encode()).digest()[0] & 1


def keys(row):
    """The lines of the table to which a page belongs."""
    name = row["source"].split("/")[1]
    if row["gold_kind"] == "made":
        yield from ("made", f"made {name}", f"made {'in chrome' if row['template'] == 'chrome' else 'in templates'}")
        return
    yield from ("all", f"half {half(row['url'])}", name)
    if row.get("page_type"):
        yield f"{name[:4]} {row['page_type']}"


class Tally:
    def __init__(self):
        self.pages, self.p, self.r, self.f = 0, 0.0, 0.0, 0.0
        self.recalls, self.recall = 0, 0.0
        self.tp = self.fn = self.fp = self.tn = 0

    def add(self, row, text):
        tokens = shingles(words(text))
        gold = gold_text(row)
        if gold:
            want = shingles(words(gold))
            both = sum((tokens & want).values())
            p, r = both / max(sum(tokens.values()), 1), both / max(sum(want.values()), 1)
            self.pages += 1
            self.p += p
            self.r += r
            self.f += 2 * p * r / (p + r) if p + r else 0.0
        if row["gold_kind"] == "instructions_list":
            want = collections.Counter()
            for step in row.get("instructions_list") or []:
                want.update(shingles(words(step)))
            if want:
                self.recalls += 1
                self.recall += sum((tokens & want).values()) / sum(want.values())
        plain = squeeze(text)
        for snippet in row.get("with") or []:
            hit = squeeze(snippet) in plain
            self.tp += hit
            self.fn += not hit
        for snippet in row.get("without") or []:
            hit = squeeze(snippet) in plain
            self.fp += hit
            self.tn += not hit

    def line(self):
        n = max(self.pages, 1)
        p, r = self.tp / max(self.tp + self.fp, 1), self.tp / max(self.tp + self.fn, 1)
        return {
            "pages": self.pages, "precision": self.p / n, "recall": self.r / n, "f1": self.f / n,
            "recall_only": self.recall / max(self.recalls, 1), "recall_pages": self.recalls,
            "snippets": self.tp + self.fn + self.fp + self.tn, "snippet_precision": p, "snippet_recall": r,
            "snippet_f1": 2 * p * r / (p + r) if p + r else 0.0,
        }


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("data")
    ap.add_argument("cache")
    ap.add_argument("--ours")
    ap.add_argument("--programs", default=",".join(PROGRAMS))
    ap.add_argument("--json")
    a = ap.parse_args()
    os.makedirs(a.cache, exist_ok=True)
    rows = list(gold_rows(a.data))
    table = {}
    for name in a.programs.split(","):
        got = outputs(name, a, rows)
        tallies = collections.defaultdict(Tally)
        for row in rows:
            text = got[row["record_id"]]["text"]
            for key in keys(row):
                tallies[key].add(row, text)
        lines = {k: t.line() for k, t in sorted(tallies.items())}
        size = sum(r["bytes"] for r in got.values())
        lines["speed"] = {"bytes": size, "seconds": sum(r["seconds"] for r in got.values())}
        table[name] = lines
    print(f"{'program':18}{'set':34}{'pages':>6}{'prec':>7}{'rec':>7}{'F1':>7} |{'snip':>6}{'prec':>7}{'rec':>7}{'F1':>7} | recall only")
    for key in sorted({k for t in table.values() for k in t} - {"speed"}):
        for name, t in table.items():
            v = t[key]
            print(f"{name:18}{key:34}{v['pages']:6}{v['precision']:7.3f}{v['recall']:7.3f}{v['f1']:7.3f} |{v['snippets']:6}"
                  f"{v['snippet_precision']:7.3f}{v['snippet_recall']:7.3f}{v['snippet_f1']:7.3f} | {v['recall_only']:.3f} ({v['recall_pages']})")
    for name, t in table.items():
        s = t["speed"]
        print(f"{name:18}{s['bytes'] / 1e6:9.1f} MB {s['seconds']:8.2f} s {s['bytes'] / 1e6 / max(s['seconds'], 1e-9):8.2f} MB/s of HTML")
    if a.json:
        json.dump(table, open(a.json, "w"), indent=1)


if __name__ == "__main__":
    main()
