"""Precision, recall and F1 of names and addresses, by Millrace and by pyap.

    python3 names_scores.py PROGRAM SETS DATA

PROGRAM is the release build of millrace-curate's example `personal_data`, SETS the folder of names_sets.py, DATA a folder with
`webarchive/minicc/*.warc.gz`, `webarchive/real/aut/example.warc.gz` and `webarchive/real/dolma/sample-0000.warc.gz`. Needs
pyap 0.3.1, lxml 6.1.3, fastwarc 2.0.1.

Sets of names: WNUT 2017's test part (posts of Reddit, YouTube, Stack Exchange and Twitter), the test part of Universal NER's English
Web Treebank and Worldwide English NER (whole documents). Addresses: the 162 passages of English web pages of
`address_spans.tsv`, marked by hand: pages, places of passages in the page's text by `page_text`, and places of the addresses in
them, in characters. Passages are where one of nine patterns (a number before a street's type, post codes, boxes, "address:") matches.

  exact       spans with the same first and last character, full stops and commas at the ends aside.
  characters  characters but blanks that are in spans of both.
"""
import argparse, json, os, subprocess, time

from lxml import html

BLOCKS = set("""p div li br h1 h2 h3 h4 h5 h6 td th tr pre blockquote address section article footer header dd dt option ul ol table nav
form figcaption""".split())
HIDDEN = ("script", "style", "noscript", "template", "svg", "head")


def page_text(body):
    """Text of a page: a line for each block."""
    root = html.fromstring(body)
    for element in list(root.iter()):
        if not isinstance(element.tag, str) or element.tag in HIDDEN:
            element.text = None
            if element is not root:
                for child in list(element):
                    element.remove(child)
        if isinstance(element.tag, str) and element.tag in BLOCKS:
            if element.tag != "br":
                element.text = "\n" + (element.text or "")
            element.tail = "\n" + (element.tail or "")
    lines = [" ".join(line.split()) for line in root.text_content().split("\n")]
    return "\n".join(line for line in lines if line)


def web(data):
    """The marked passages."""
    from fastwarc.warc import ArchiveIterator, WarcRecordType

    here = os.path.dirname(os.path.abspath(__file__))
    wanted, files = {}, set()
    for line in open(os.path.join(here, "address_spans.tsv")):
        if not line.startswith("#"):
            file, record, at, size, spans = line.rstrip("\n").split("\t")
            spans = [[*map(int, span.split("-")), "address"] for span in spans.split()]
            wanted.setdefault(record, []).append((int(at), int(size), spans))
            files.add(file)
    for file in sorted(files):
        path = os.path.join(data, file)
        for record in ArchiveIterator(path, record_types=WarcRecordType.response, parse_http=True, fsspec_args=False):
            passages = wanted.pop(record.headers.get("WARC-Record-ID"), None)
            if passages:
                text = page_text(record.reader.read())
                for at, size, spans in passages:
                    yield {"text": text[at : at + size], "spans": spans}
    if wanted:
        raise SystemExit(f"records that are not there: {sorted(wanted)}")


def ours(program, rows, kind):
    lines = "".join(json.dumps({"text": row["text"]}) + "\n" for row in rows)
    out = subprocess.run([program, kind], input=lines.encode(), stdout=subprocess.PIPE, check=True).stdout
    found, seconds = [], 0.0
    for row, line in zip(rows, out.splitlines(), strict=True):
        answer, text = json.loads(line), row["text"].encode()
        seconds += answer["seconds"]
        found.append([(len(text[:s].decode()), len(text[:e].decode())) for s, e, _ in answer["found"]])
    return found, seconds


def pyap_spans(rows):
    """Spans of pyap for its three countries, none overlapping an earlier one. It gives addresses with blanks and commas of its
    own: they are found again by their letters and digits."""
    import pyap

    found, seconds = [], 0.0
    for row in rows:
        text, spans = row["text"], []
        places = [i for i, c in enumerate(text) if c.isalnum()]
        letters = "".join(text[i] for i in places)
        for country in ("US", "CA", "GB"):
            start = time.perf_counter()
            addresses = pyap.parse(text, country=country)
            seconds += time.perf_counter() - start
            for address in addresses:
                wanted = "".join(c for c in address.full_address if c.isalnum())
                at = letters.find(wanted)
                while at >= 0:
                    span = (places[at], places[at + len(wanted) - 1] + 1)
                    if all(span[1] <= s or e <= span[0] for s, e in spans):
                        spans.append(span)
                        break
                    at = letters.find(wanted, at + 1)
        found.append(spans)
    return found, seconds


def stripped(text, span):
    start, end = span
    while start < end and text[start] in " .,;:\n":
        start += 1
    while start < end and text[end - 1] in " .,;:\n":
        end -= 1
    return start, end


def score(rows, found, kind):
    counts = [0] * 6
    for row, spans in zip(rows, found, strict=True):
        text = row["text"]
        got = {stripped(text, s) for s in spans}
        want = {stripped(text, (s, e)) for s, e, k in row["spans"] if k == kind}
        inside = lambda all: {i for s, e in all for i in range(s, e) if not text[i].isspace()}
        for base, (a, b) in ((0, (got, want)), (3, (inside(got), inside(want)))):
            counts[base] += len(a & b)
            counts[base + 1] += len(a)
            counts[base + 2] += len(b)
    out = []
    for right, got, want in (counts[:3], counts[3:]):
        p, r = right / max(got, 1), right / max(want, 1)
        out += [100 * p, 100 * r, 200 * p * r / max(p + r, 1e-9)]
    return out, counts[2]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("program")
    ap.add_argument("sets")
    ap.add_argument("data")
    a = ap.parse_args()
    print("| set | program | spans | exact P | R | F1 | characters P | R | F1 | MB/s |\n|---|---|---:|---:|---:|---:|---:|---:|---:|---:|")

    def row(name, program, rows, answer, kind):
        found, seconds = answer
        values, n = score(rows, found, kind)
        size = sum(len(r["text"].encode()) for r in rows) / 1e6
        print(f"| {name} | {program} | {n} | " + " | ".join(f"{v:.1f}" for v in values) + f" | {size / seconds:.2f} |", flush=True)

    for name in ("wnut17", "ewt-test", "worldwide"):
        rows = [json.loads(line) for line in open(os.path.join(a.sets, f"test-{name}.jsonl"))]
        row(name, "Millrace", rows, ours(a.program, rows, "person_name"), "person")
    rows = list(web(a.data))
    row("web pages", "Millrace", rows, ours(a.program, rows, "street_address"), "address")
    row("web pages", "pyap", rows, pyap_spans(rows), "address")


if __name__ == "__main__":
    main()
