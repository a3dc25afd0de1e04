"""Writes curate/tests/data/dolma_mixer.json.zst: documents, attributes, configurations of dolma's mixer, and what it leaves of the
documents: their ids and SHA-256 of their texts.

The documents are those of dolma's own tests of the mixer and the deduper, with their configurations, and texts of the tiny job with
attributes made here: spans that overlap, numbers with and without a fraction, values that are missing or of several kinds.

Needs dolma 1.2.1, zstandard, pyyaml, and a checkout of allenai/dolma (Apache-2.0).

    python tests/oracles/dolma_mixer.py CHECKOUT pipelines/jobs/tiny/data/pile-00000.jsonl.zst > curate/tests/data/dolma_mixer.json.zst
"""

import contextlib
import gzip
import hashlib
import io
import json
import os
import pathlib
import random
import sys
import tempfile

import yaml
import zstandard

checkout, texts = pathlib.Path(sys.argv[1]), sys.argv[2]
with contextlib.redirect_stdout(sys.stderr):
    import nltk

    nltk.data.find = lambda *a, **k: None  # dolma would download sentences that no mixer needs
    from dolma.cli.__main__ import main

DOCUMENTS, CHARS = 120, 700


def fixtures(files, cases):
    """dolma's own tests: tests/python/test_mixer.py."""
    provided = checkout / "tests/data/provided"
    for path in [provided / "documents/000.json.gz", *sorted(provided.glob("attributes/*/000.json.gz"))]:
        files[f"fixtures/{path.relative_to(provided)}"] = gzip.open(path, "rt").read()
    for name in ["email-spans.json", "email-spans-jq.yaml", "filter-by-spans.json", "mixer.json", "paragraph-spans.json"]:
        text = (checkout / "tests/config" / name).read_text()
        config = json.loads(text) if name.endswith(".json") else yaml.safe_load(text)
        (stream,) = config["streams"]
        stream["documents"] = [path.replace("tests/data/provided", "ROOT/fixtures") for path in stream["documents"]]
        cases.append((name, config))


def deduplicated(files, cases):
    """What dolma's deduper is to find (tests/python/test_deduper.py), as attributes for the mixer."""
    data = checkout / "tests/data"
    files["dedupe/documents/000.json.gz"] = gzip.open(data / "provided/deduper/documents/000.json.gz", "rt").read()
    names = ["dedupe-by-url", "dedupe-paragraphs", "dedupe-paragraph-ngrams"]
    for name in names:
        files[f"dedupe/attributes/{name}/000.json.gz"] = gzip.open(data / f"expected/{name}.json.gz", "rt").read()
    spans = [{"span": "$.attributes.bff_duplicate_paragraph_spans", "min_score": 0.5, "replacement": ""}]
    url = "@.bff_duplicate_url && @.bff_duplicate_url[0] && @.bff_duplicate_url[0][2]"
    for name, attributes, rest in [
        ("url", names[0], {"filter": {"include": [], "exclude": [f"$@.attributes[?({url} > 0.5)]"]}}),
        # the deduper writes 1, which is not 1.0 to the mixer
        ("url-whole", names[0], {"filter": {"include": [], "exclude": [f"$@.attributes[?({url} >= 1.0)]"]}}),
        ("paragraphs", names[1], {"span_replacement": spans}),
        ("paragraph-ngrams", names[2], {"span_replacement": spans}),
    ]:
        stream = {"name": name, "documents": ["ROOT/dedupe/documents/*.gz"], "attributes": [attributes],
                  "output": {"max_size_in_bytes": 10**9}, **rest}
        cases.append((f"dedupe-{name}", {"streams": [stream], "processes": 1}))


def made(files, cases):
    rng = random.Random(1)
    documents, lines = [], zstandard.open(texts, "rt", encoding="utf-8")
    lists = {"one": [], "two": []}
    records = filter(str.strip, (json.loads(line)["text"][:CHARS] for line in lines))
    for i, text in zip(range(DOCUMENTS), records):
        metadata = {"n": rng.choice([i, float(i), i + 0.5])}
        if rng.random() < 0.7:
            metadata["lang"] = rng.choice(["en", "de", "fr"])
        if rng.random() < 0.7:
            metadata["deep"] = {"k-1": rng.choice([1, 1.0, 0, 2.5]), "url": f"http://h{i % 7}.org/{i}"}
        documents.append({"id": f"d{i}", "text": text, "source": rng.choice(["web", "books"]), "added": "2024", "metadata": metadata})

        def spans(most):
            found = []
            for _ in range(rng.randrange(most)):
                start = rng.randrange(len(text))
                end = start + rng.randrange(1, 60)
                # the last one may end behind the text
                found.append([start, end, rng.choice([0, 0.25, 0.5, 0.75, 1, 1.0])])
            return found

        one = {"spans": spans(6), "words": [[0, len(text), rng.choice([1, 1.0, 0.5, 40, 40.0, 60.5])]]}
        if rng.random() < 0.7:
            one["score"] = rng.choice([0, 0.5, 1, 1.0, 2])
        if rng.random() < 0.5:
            one["flag"] = rng.random() < 0.5
        two = {"pii": {"email": spans(4)} if rng.random() < 0.8 else {}}
        if rng.random() < 0.8:
            two["rows"] = [{"n": rng.randrange(10), "k": rng.choice("xy")} for _ in range(rng.randrange(4))]
            if rng.random() < 0.3:
                two["rows"] = {"n": rng.randrange(10), "k": "x"}
        if rng.random() < 0.6:
            two["dup"] = spans(5)
        for name, attributes in (("one", one), ("two", two)):
            lists[name].append({"id": f"d{i}", "attributes": attributes})
    dump = lambda rows: "".join(json.dumps(row) + "\n" for row in rows)
    files["made/documents/a.jsonl.gz"] = dump(documents)
    for name, rows in lists.items():
        files[f"made/attributes/{name}/a.jsonl.gz"] = dump(rows)

    def case(name, include=(), exclude=(), syntax="jsonpath", spans=(), **output):
        stream = {"name": name, "documents": ["ROOT/made/documents/*.jsonl.gz"], "attributes": ["one", "two"],
                  "output": {"max_size_in_bytes": 10**9, **output}}
        if include or exclude:
            stream["filter"] = {"include": list(include), "exclude": list(exclude), "syntax": syntax}
        if spans:
            stream["span_replacement"] = list(spans)
        cases.append((name, {"streams": [stream], "processes": 1}))

    for i, pattern in enumerate([
        "$.metadata[?(@.n < 50)]",
        "$.attributes[?(@.words && @.words[0] && @.words[0][2] >= 1.0)]",
        "$@.attributes[?(@.words && @.words[0] && @.words[0][2] <= 40)]",
        "$.attributes[?(@.words[0][2] > 1)]",
        "$.attributes[?(@.score == 1)]",
        "$.attributes[?(@.score == 1.0)]",
        "$.attributes[?(@.score != 1)]",
        "$.attributes[?(@.score >= 0.5)]",
        "$.attributes[?(@.flag == true)]",
        "$.attributes[?(@.flag != true)]",
        "$.attributes.flag",
        "$.metadata.lang",
        "$.metadata[?(@.lang == 'en' || @.lang == 'de')]",
        "$.metadata[?(@.lang in ['en', 'fr'])]",
        "$.metadata[?(@.lang nin ['en', 'fr'])]",
        "$.metadata[?(!@.lang)]",
        "$.metadata[?(!(@.lang == 'en') && @.n > 20)]",
        "$.metadata[?(@.lang && (@.n > 60 || @.n < 20))]",
        "$.metadata.deep[?(@.k-1 == 1)]",
        "$.metadata[?(@.deep.k-1 >= 1)]",
        "$.metadata[?(@.deep.url ~= '^http://h[135]')]",
        "$.attributes.spans[?(@[2] > 0.5)]",
        "$.attributes.spans[?(@[2] == 1)]",
        "$.attributes.rows[?(@.n > 5)]",
        "$.attributes.rows[?(@.n > 5 && @.k == 'x')]",
        "$.attributes.pii.email[0]",
        "$[?(@.source == 'web')]",
        "$.attributes[?(@.score < $.metadata.n)]",
    ]):
        case(f"include-{i}", include=[pattern])
        case(f"exclude-{i}", exclude=[pattern])
    case("several", include=["$.metadata[?(@.n < 30)]", "$.attributes[?(@.score > 0.5)]"],
         exclude=["$.attributes[?(@.flag == false)]", "$.metadata[?(@.lang == 'fr')]"])
    for i, pattern in enumerate([
        ".attributes.spans | length >= 3",
        ".attributes.score",
        ".attributes.flag",
        ".attributes.flag | not",
        ".attributes.pii.email",
        ".attributes.score >= 1",
        ".attributes.score <= 0.5",
        ".attributes.score == 1",
        ".attributes.score != 1",
        ".metadata.lang == null",
        ".metadata.lang != null and .metadata.n > 40",
        ".metadata.lang > \"en\"",
        ".metadata.lang < \"en\"",
        "(.attributes.dup | length == 0) or ((.attributes.dup | map(.[2] * (.[1] - .[0])) | add) / (.text | length) <= 0.05)",
        ".attributes.dup | if type == \"array\" and length > 0 and .[0] != null and .[0][2] != null then .[0][2] < 0.8 else false end",
        ".attributes.words[0][-1] <= 40",
        ".attributes.words[-1][2] * 2 - 1 > 1",
        "(.attributes.score // 1) == 1",
        "(.attributes.score // 0) + (.metadata.n / 100) > 1",
        ".attributes.spans | any(.[2] >= 0.75)",
        ".attributes.spans | all(.[2] >= 0.25)",
        ".attributes.spans | map(.[2]) | add > 1",
        ".attributes.spans | map(.[2] > 0.5) | any",
        ".metadata.deep?.\"k-1\"? == 1",
        ".attributes | has(\"dup\")",
        ".text | length > 600",
        ".text | test(\"the\")",
        ".source | startswith(\"b\")",
        ".source | endswith(\"b\") | not",
        "if .metadata.n > 60 then .attributes.flag == true elif .metadata.n > 30 then true else .metadata.lang == \"en\" end",
        ".attributes.spans | first | .[2]? > 0.5",
    ]):
        case(f"jq-include-{i}", include=[pattern], syntax="jq")
        case(f"jq-exclude-{i}", exclude=[pattern], syntax="jq")
    cut = {"span": "$.attributes.spans", "min_score": 0.5, "replacement": ""}
    mark = {"span": "$.attributes.pii.email", "min_score": 0.25, "max_score": 1.0, "replacement": "<{}|{}>"}
    named = {"span": ".attributes?.dup?", "syntax": "jq", "max_score": 0.6, "replacement": "$.id"}
    case("cut", spans=[cut])
    case("marked", spans=[mark])
    case("named", spans=[named])
    case("all", exclude=["$.attributes[?(@.score > 1)]"], spans=[cut, mark, named])
    case("order", spans=[named, mark, cut])
    case("long", spans=[dict(cut, min_score=0)], min_text_length=500)
    case("discarded", include=["$.metadata[?(@.n < 50)]"], discard_fields=["attributes", "metadata", "added"])


def mixed(config, root):
    out = root / "out" / config["streams"][0]["name"]
    config = json.loads(json.dumps(config).replace("ROOT", str(root)))
    config["streams"][0]["output"]["path"] = str(out)
    config.pop("work_dir", None)
    path = root / "config.json"
    path.write_text(json.dumps(config))
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        main(argv=["-c", str(path), "mix"])
    (found,) = out.iterdir()
    assert not found.name.endswith(".tmp"), config
    rows = [json.loads(line) for line in gzip.open(found, "rt", encoding="utf-8")]
    return [[row["id"], hashlib.sha256(row["text"].encode()).hexdigest(), sorted(set(row) - {"metadata"}), len(row["text"])] for row in rows]


files, cases = {}, []
fixtures(files, cases)
deduplicated(files, cases)
made(files, cases)
result = []
with tempfile.TemporaryDirectory() as folder:
    root = pathlib.Path(folder)
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "wt", encoding="utf-8") as file:
            file.write(text)
    for name, config in cases:
        kept = mixed(config, root)
        print(f"{name}: {len(kept)} kept", file=sys.stderr)
        config = json.loads(json.dumps(config))
        config["streams"][0]["output"]["path"] = "OUT"
        result.append({"name": name, "config": config, "kept": kept})
golden = {"dolma": "1.2.1", "files": files, "cases": result}
data = json.dumps(golden, ensure_ascii=False).encode()
sys.stdout.buffer.write(zstandard.ZstdCompressor(level=19).compress(data))
