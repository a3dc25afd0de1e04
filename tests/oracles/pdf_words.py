"""Words of Millrace, pypdf and pdfminer.six in PDFs, compared with those of PyMuPDF, as bags of words.

    pdf_words.py PROGRAM FILE...

PROGRAM is `document_text` (`cargo build --release -p millrace-curate --example document_text`). Words are those of
letters and digits after the hyphens at line ends are undone; running lines are kept by the peers and left out by
Millrace, so its recall is a little lower. Prints recall and precision of each program on each file, and the seconds.
"""

import collections
import json
import pathlib
import re
import subprocess
import sys
import time

import pdfminer.high_level
import pymupdf
import pypdf


def bag(text):
    text = re.sub(r"(\w)[-\u00ad\u2010]\s*\n\s*(?=[a-z])", r"\1", text)
    for ligature, letters in [("\ufb00", "ff"), ("\ufb01", "fi"), ("\ufb02", "fl"), ("\ufb03", "ffi"), ("\ufb04", "ffl")]:
        text = text.replace(ligature, letters)
    return collections.Counter(re.findall(r"[^\W_]+", text))


def ours(path):
    out = subprocess.run([program, str(path)], capture_output=True, text=True, check=True).stdout
    lines = [json.loads(line) for line in out.splitlines()]
    for line in lines:
        if "text" not in line:
            print("   ", {key: line[key] for key in line if key != "path"})
    return "\n\n".join(line["text"] for line in lines if "text" in line)


def pypdf_text(path):
    return "\n".join(page.extract_text() for page in pypdf.PdfReader(path).pages)


def mupdf(path):
    return "\n".join(page.get_text() for page in pymupdf.open(path))


def timed(read, path):
    start = time.time()
    try:
        text = read(path)
    except Exception as error:  # a peer may refuse a file
        return collections.Counter(), f"{type(error).__name__}"
    return bag(text), f"{time.time() - start:.2f} s"


program = sys.argv[1]
sums = collections.defaultdict(lambda: [0, 0, 0])
for path in map(pathlib.Path, sys.argv[2:]):
    want, seconds = timed(mupdf, path)
    print(f"{path.name}: {want.total()} words ({seconds})")
    for name, read in [("millrace", ours), ("pypdf", pypdf_text), ("pdfminer", pdfminer.high_level.extract_text)]:
        have, seconds = timed(read, path)
        common = (have & want).total()
        for i, n in enumerate([common, have.total(), want.total()]):
            sums[name][i] += n
        recall, precision = common / max(want.total(), 1), common / max(have.total(), 1)
        print(f"  {name:9} recall {recall:.3f} precision {precision:.3f} ({seconds})")
for name, (common, have, want) in sums.items():
    print(f"{name}: recall {common / want:.4f}, precision {common / have:.4f}")
