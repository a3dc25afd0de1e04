"""datatrove's statistics of the golden texts.

python tests/oracles/datatrove_statistics.py    writes curate/tests/data/statistics.json

Reads the texts of curate/tests/oracles/golden.jsonl and adds awkward ones. Figures are the texts that Python writes, which are
exact; a reader of JSON may round numbers.
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path

from datatrove.data import Document
from datatrove.pipeline.stats import DocStats, LineStats, ParagraphStats, WordStats

ROOT = Path(__file__).resolve().parents[2]

AWKWARD = [
    "",
    " ",
    "\n",
    "\n\n\n",
    "a",
    "A",
    "Ab",
    "\u01c5enan \u01c5 \u01c4 \u01c6",
    "H\u00b2O \u2460 \u0663 \u2167 \u24b6",
    "...",
    "....\u2026..",
    "- one\n* two\n\u2022 three\n  - four\n\n\n\nfive.\x85six\x0bseven\u2028eight",
    "MACHINE machine Machine mAchine McDonald's O'Neill U.S.A. x86",
    "\u4e2d\u6587\u6ca1\u6709\u7a7a\u683c\u3002\n\u4e2d\u6587\u6ca1\u6709\u7a7a\u683c\u3002",
    "same line\nsame line\n\nsame paragraph\n\nsame paragraph\n\n\nsame paragraph",
    "x" * 2000 + "\n" + "y" * 10000 + "\n" + "z" * 9999,
    "the be to of and that have with The Be TO",
    "\u00aa\u00ba \u2170 \u1d2c \u0345",
]


def main() -> int:
    lines = (ROOT / "curate/tests/oracles/golden.jsonl").read_text("utf-8").split("\n")
    texts = [json.loads(line)["text"] for line in lines[1:] if line] + AWKWARD
    folder = "/nonexistent"
    stats = [kind(folder) for kind in (DocStats, LineStats, ParagraphStats, WordStats)]
    names, rows = None, []
    for text in texts:
        found = {}
        for stat in stats:
            found |= stat.extract_stats(Document(text=text, id="x"))
        names = names or list(found)
        assert list(found) == names
        rows.append(" ".join(repr(float(v)) for v in found.values()))
    out = {
        "versions": f"datatrove {version('datatrove')}, spacy {version('spacy')}, Python {sys.version.split()[0]}",
        "names": names,
        "awkward": AWKWARD,
        "rows": rows,
    }
    (ROOT / "curate/tests/data/statistics.json").write_text(json.dumps(out) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
