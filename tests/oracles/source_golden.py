"""Writes curate/tests/data/source.json.zst: answers of other programs about source files, notebooks, issues, licences and pages with mathematics.

Needs beautifulsoup4, pygments, jupytext 1.19, nbformat, regex, zstandard, and checkouts of bigcode-project/bigcode-dataset (bebec92), keirp/OpenWebMath,
github-linguist/linguist (b45dbe9) and the texts of SPDX's licences (src/text/licenses of the crate spdx 0.13.6). Texts are this repository's own files and
texts made here; of licences the beginnings. Functions of BigCode and OpenWebMath are run from their files without the imports that they do not need.

    python tests/oracles/source_golden.py BIGCODE OPENWEBMATH LINGUIST SPDX_TEXTS
"""

import glob
import io
import json
import os
import random
import re
import sys
from functools import partial

import jupytext
import nbformat
import regex
import zstandard
from bs4 import BeautifulSoup

ROOT = os.path.join(os.path.dirname(__file__), "../..")
bigcode, math, linguist, spdx = sys.argv[1:5]
random.seed(7)


def functions(path, drop):
    """Everything that a program defines, without the imports of packages that are not needed."""
    lines = open(path).read().split("\n")
    kept = [line for line in lines if not (re.match(r"(import|from) ", line) and any(name in line for name in drop))]
    space = {"__name__": "oracle"}
    exec(compile("\n".join(kept), path, "exec"), space)
    return space


# --- files -----------------------------------------------------------------------------------------------------------------
files = []
for pattern in ("curate/src/filter/*.rs", "tests/oracles/d*.py", "*.toml", "*.md", "kernels/src/ops/*/*.cu", ".ci/run"):
    for path in sorted(glob.glob(f"{ROOT}/{pattern}"))[:12]:
        files.append((os.path.relpath(path, ROOT), open(path).read()[:4000]))
words = "int def return x y 12 0x3f ( ) { } ; \n \t = == 'é' 日本 _a \r\n \x0b // # \"s\" 7".split(" ")
for extension in "py java js c md html json yaml tex sql cs rs xslt cdf xyz txt".split():
    for number in range(12):
        text = "".join(random.choice(words) + random.choice(" \n ") for _ in range(random.choice([3, 40, 400])))
        kind = number % 6
        if kind == 1:
            text += "a" * random.choice([900, 1001, 1100]) + "\n"
        if kind == 2:
            text = "." * random.choice([10, 300]) + text
        if kind == 3:
            text = "<?xml version='1.0'?>\n" + text
        if kind == 4 and extension == "html":
            text = "<html><head><title>T &amp; t</title><style>p{}</style></head><body><p>" + text + "</p><script>var a = 1;</script><!-- c --></body>"
        files.append((f"dir/file{number}.{extension}", text))
for text in ["/* Auto-generated */\nint a;\n", "x\n" * 4 + "# this file is generated\nabc", "x\n" * 5 + "# this file is generated\nabc"]:
    files.append(("a.c", text))

csv_filter = functions(f"{bigcode}/preprocessing/filtering.py", ["datasets", "transformers", "arguments", "utils", "numpy"])
limits = csv_filter["load_filter_csv"](f"{bigcode}/preprocessing/visual_inspection.csv")
by_extension = {}
for (language, extension), parameters in limits.items():
    by_extension.setdefault(extension, []).append((language, parameters))
text_extraction = functions(f"{bigcode}/preprocessing/utils/text_extraction.py", [])


def visible(html):
    soup = BeautifulSoup(html, features="html.parser")
    for script in soup(["script", "style"]):
        script.extract()
    return len(soup.get_text())


def starcoder(path, text):
    extension = path.split(".")[-1]
    if extension not in by_extension:
        return "extension"
    language, (include, line_max, line_mean, alphanum, alpha) = by_extension[extension][0]
    lengths = [len(line) for line in text.splitlines()]
    if not include:
        return "extension"
    if line_max and max(lengths) > line_max:
        return "max_line_length"
    if line_mean and sum(lengths) / len(lengths) > line_mean:
        return "max_mean_line_length"
    if alphanum and sum(c.isalnum() for c in text) / len(text) < alphanum:
        return "min_alphanumeric_ratio"
    if alpha and sum(map(str.isalpha, text)) < alpha * len(text):
        return "min_alphabetic_ratio"
    if language != "xslt" and "<?xml version=" in text[:100]:
        return "max_xml_declarations"
    if language == "html":
        shown = visible(text)
        if not shown / len(text) > 0.2:
            return "min_visible_ratio"
        if not shown > 100:
            return "min_visible_chars"
    if language in ("json", "yaml"):
        if len(text) < 50:
            return "min_data_chars"
        if len(text) > 5000:
            return "max_data_chars"
    return None


ENCODED = [r"[a-zA-Z0-9+/\n=]{64,}", r"(?:\b(?:0x|\\x)?[0-9a-fA-F]{2}(?:,|\b\s*)){8,}", r"(?:\\u[0-9a-fA-F]{4}){8,}"]


def encoded(text):
    found = [len(m.group()) for pattern in ENCODED for m in re.finditer(pattern, text)]
    return [max(found, default=0), sum(found)]


def starcoder2(path, text, language):
    lengths = [len(line) for line in text.splitlines()]
    if len(lengths) > 100_000:
        return "max_lines"
    if language in {"HTML", "JSON", "Markdown", "Roff", "Roff Manpage", "SMT", "TeX", "Text", "XML"}:
        if max(lengths) > 100_000:
            return "max_line_length"
    else:
        if sum(lengths) / len(lengths) > 100:
            return "max_mean_line_length"
        if max(lengths) > 1000:
            return "max_line_length"
    head = "\n".join(text.split("\n")[:5]).lower()
    if any(p in head for p in ["auto-generated", "autogenerated", "automatically generated", "generated automatically", "this file is generated"]):
        return "generated"
    if sum(map(str.isalpha, text)) / len(text) < 0.25:
        return "min_alphabetic_ratio"
    longest, whole = encoded(text)
    if longest > 1024:
        return "max_encoded_run"
    if whole / len(text) > 0.5:
        return "max_encoded_ratio"
    if language in {"Text", "JSON", "YAML", "Web Ontology Language", "Graphviz (DOT)"} and len(lengths) > 512:
        return "max_data_lines"
    if language == "HTML":
        shown = visible(text)
        if shown < 100:
            return "min_visible_chars"
        if shown / len(text) < 0.2:
            return "min_visible_ratio"
    if language == "Text":
        name = os.path.basename(path).lower()
        if "requirement" not in name and os.path.splitext(name)[0] not in {"readme", "notes", "todo", "description", "cmakelists"}:
            return "text_name"
    return None


TOKENS = regex.compile(r"\w+|[^\w\s]+")


def redpajama(text):
    lengths = list(map(len, text.splitlines()))
    return {
        "max_line_length": max(lengths, default=0),
        "max_mean_line_length": sum(lengths) / max(len(lengths), 1),
        "min_alphanumeric_ratio": sum(map(str.isalnum, text)) / len(text),
        "min_letters_per_token": sum(map(str.isalpha, text)) / len(TOKENS.split(text)),
    }


names = {
    "py": "Python", "java": "Java", "js": "JavaScript", "c": "C", "md": "Markdown", "html": "HTML", "json": "JSON", "yaml": "YAML", "tex": "TeX",
    "sql": "SQL", "cs": "C#", "rs": "Rust", "xslt": "XSLT", "toml": "TOML", "cu": "Cuda", "txt": "Text",
}
rows = []
for path, text in files:
    language = names.get(path.rsplit(".")[-1], "")
    row = {"path": path, "language": language, "text": text, "starcoder": starcoder(path, text), "redpajama": redpajama(text)}
    if language:
        row["starcoder2"] = starcoder2(path, text, language)
    if language in ("Python", "Java", "JavaScript"):
        row["comments"] = text_extraction["get_nl_ratio"](text, language.lower())
    rows.append(row)

# --- encoded data and visible text -----------------------------------------------------------------------------------------
pieces = ["0x1f, ", "\\x41", "41 42 ", "a" * 70, "\\u00e9" * 9, "é", " ", "\n", ",", "deadbeef", "0x", "99,", "ff\u3000", "=", "g", "/+", "7f"]
texts = ["".join(random.choice(pieces) * random.choice([1, 1, 9]) for _ in range(random.choice([4, 20, 60]))) for _ in range(200)]
encodings = [[text, *encoded(text)] for text in texts]
tags = ["<p>", "</p>", "<script>a<b</script>", "<style>x{}</style>", "text &lt; more", "&eacute;", "<!-- c -->", "<br/>", "\n ", "<title>T</title>", "<div class='a>b'>", "</div>", "日本", "<!doctype html>"]
pages = ["".join(random.choice(tags) for _ in range(random.choice([5, 40]))) for _ in range(120)]
seen = [[page, visible(page)] for page in pages]

# --- notebooks -------------------------------------------------------------------------------------------------------------
def notebook(language, cells):
    made = nbformat.v4.new_notebook()
    made.metadata["kernelspec"] = {"name": "k", "display_name": "k", "language": language}
    for kind, source in cells:
        make = {"code": nbformat.v4.new_code_cell, "text": nbformat.v4.new_markdown_cell, "raw": nbformat.v4.new_raw_cell}[kind]
        made.cells.append(make(source))
    for number, cell in enumerate(made.cells):
        cell["id"] = f"c{number}"
    return made


notebooks = []
for language, extension in [("python", "py"), ("julia", "jl"), ("R", "R"), ("javascript", "js"), ("scala", "scala")]:
    for number in range(4):
        cells = [("text", "# Title\n\nSome *text*.\n\n- a\n- b")]
        for k in range(number + 1):
            cells.append(("code", random.choice(["x = 1", "x = 1\n\n\ny = 2", "f(x)\nprint(x)", "a = '''\n# b\n'''"])))
            cells.append(("text", random.choice(["More text.", "a\n\nb", "`code`"])))
        made = notebook(language, cells)
        options = {"notebook_metadata_filter": "-all", "cell_metadata_filter": "-all", "comment_magics": False}
        made.metadata["jupytext"] = options
        script = jupytext.writes(made, fmt=f"{extension}:percent")
        markdown = jupytext.writes(made, fmt="md")
        del made.metadata["jupytext"]
        notebooks.append([nbformat.writes(made), script, markdown])

# --- issues ----------------------------------------------------------------------------------------------------------------
issue = functions(f"{bigcode}/preprocessing/utils/utils_issues.py", ["datasets", "torch", "transformers", "regex"])
authors = ["ann", "bob-x", "ci[bot]", "coveralls", "Some-CI", "jenkins-9", "carl", "k8s-merge", "dependabot", "dora-build"]
bodies = [
    "It fails with ann's change.", "On Mon, Jan 3, 2020 carl <notifications@github.com> wrote:\n> quoted\n> more\n\nThanks!", "line\n" * 90, "Looks good to bob-x",
    "Fixed.\n\nFrom: GitHub <x@y>\nSubject: z\nReply to this email directly or view it on GitHub: http://g\nbye", "Signed-off-by: A B <a@b.c>\nend", "", "a word " * 40,
    "> old text\nnew text", "_" * 25 + "\nbelow", "1/2/2020 10:11 AM ann wrote\nstuff\nReply to this email directly:\nlast",
]
issues = []
for number in range(120):
    events = [{"type": "issue", "action": "opened", "author": random.choice(authors), "title": "A title", "comment": None, "description": random.choice(bodies)}]
    for _ in range(random.choice([0, 1, 3, 12])):
        events.append({"type": "comment", "action": "created", "author": random.choice(authors), "title": None, "comment": random.choice(bodies), "description": None})
    if number % 3 == 0:
        events.append({"type": "issue", "action": "closed", "author": random.choice(authors), "title": None, "comment": None, "description": None})
    given = json.loads(json.dumps(events))
    example = issue["merge_text_columns"]({"events": events})
    example = issue["strip_automated_email_text"](example)
    example = issue["truncate_long_comments"](example, max_lines=80)
    # the branch that removes calls of bots refers to names that do not exist: without it
    kept = []
    for event in example["events"]:
        author = event["author"]
        is_bot = any(k.lower() in author.lower() for k in issue["BOT_KEYWORDS"]) or any(author.lower().endswith(s) for s in issue["BOT_SUFFIXES"])
        if not is_bot and author not in issue["BOT_AUTHORS"]:
            kept.append(event)
    example = {"events": kept, "text_size": sum(len(e["text"]) for e in kept), "user_count": len({e["author"] for e in kept}), "event_count": len(kept)}
    if not kept or not issue["filter_on_users_size"](example, 200, 7000, 10):
        issues.append([given, None])
        continue
    titles = [e["title"] for e in kept]
    example = issue["replace_usernames"](example)
    text = ""
    for number_of_event, event in enumerate(example["events"]):
        if event["action"] == "closed":
            text += "<issue_closed>"
            continue
        if number_of_event == 0 and event["type"] != "comment":
            text += f"<issue_start>Title: {titles[0]}\n"
        else:
            text += "<issue_comment>"
        text += f"{event['masked_author']}: {event['text']}"
    issues.append([given, text])

# --- licences --------------------------------------------------------------------------------------------------------------
known = set(re.findall(r'\(\s*"([A-Za-z0-9.-]+)",\s*&\[', open(f"{ROOT}/curate/src/filter/source/licenses.rs").read()))
licenses = []
for name in sorted(known):
    base = re.sub("-(only|or-later)$", "", name)
    path = next((p for p in (f"{spdx}/{n}" for n in (name, f"{base}-only", base)) if os.path.exists(p)), None)
    if path and not name.endswith("-or-later"):
        text = open(path).read()
        text = re.sub(r'^r#+"|"#+\s*$', "", text)
        licenses.append([name, text[:3500]])

# --- mathematics -----------------------------------------------------------------------------------------------------------
owm = functions(f"{math}/filtering/filter_dataset.py", ["datasets", "tqdm", "matplotlib"])
urls = ["https://a.org/x", "https://bio.libretexts.org/x", "https://math.libretexts.org/y", "https://h/search?q", "https://search.h/search", "https://nih.gov/", "https://h.org/authors/x", "https://x.stackexchange.com/users/1", "https://h/proceedings"]
bodies = ["word " * 30, "é word " * 30, "a $x$ b " * 15, "$\\PageIndex{1}$ text " * 10, "short", "\\newcommand \\newcommand\nword " * 20, "É" + "e" * 66, "É" + "e" * 65 + " " * 60]
mathematics = []
for url in urls:
    for body in bodies:
        for score, perplexity in [(0.5, 100.0), (0.16, 100.0), (0.5, 15001.0)]:
            data = {"url": url, "text": body, "metadata": json.dumps({"extraction_info": {"perplexity": perplexity, "math_score": score}})}
            other = {"url": "https://kept.org/", "text": "word " * 30, "metadata": json.dumps({"extraction_info": {"perplexity": 1, "math_score": 1}})}
            told = owm["process_data"]({k: [data[k], other[k]] for k in data})
            mathematics.append([url, body, score, perplexity, told["text"][0] if len(told["text"]) == 2 else None])

# --- generated files -------------------------------------------------------------------------------------------------------
generated = re.findall(r'generated_(?:sample|fixture)_without_loading_data\("([^"]+)"(, true)?\)', open(f"{linguist}/test/test_generated.rb").read())
generated = [[path, not negated] for path, negated in generated]

out = {
    "files": rows, "encodings": encodings, "visible": seen, "notebooks": notebooks, "issues": issues, "licenses": licenses, "mathematics": mathematics,
    "generated": generated,
}
text = json.dumps(out, ensure_ascii=False, separators=(",", ":"))
with open(f"{ROOT}/curate/tests/data/source.json.zst", "wb") as packed:
    packed.write(zstandard.ZstdCompressor(level=19).compress(text.encode()))
print({key: len(value) for key, value in out.items()}, len(text))
