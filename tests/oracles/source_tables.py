"""Writes the tables of the steps for source code: curate/src/filter/source/{languages.tsv.zst,starcoder.tsv,blue_oak.txt}.

Needs pyyaml, zstandard, checkouts of github-linguist/linguist (b45dbe9, MIT) and bigcode-project/bigcode-dataset (bebec92, Apache-2.0), and index.json of the
npm package @blueoak/list 15.0.0 (CC0).

languages.tsv: a line per language: name, kind, extensions, whole file names, interpreters, and 1 if GitHub lists it as popular; lists are parted by "|".
starcoder.tsv: a line per extension of StarCoder's inspection: extension, language, then whether it is included, the least share of letters and digits, the
greatest line length, the least share of letters, and whether an XML declaration drops the file; "-" where there is no limit.
blue_oak.txt: identifiers of the licences that the Blue Oak Council calls permissive, of any rating.

    python tests/oracles/source_tables.py LINGUIST BIGCODE BLUE_OAK_JSON
"""

import csv
import json
import os
import sys

import yaml
import zstandard

OUT = os.path.join(os.path.dirname(__file__), "../../curate/src/filter/source")
linguist, bigcode, oak = sys.argv[1:4]

popular = set(yaml.safe_load(open(f"{linguist}/lib/linguist/popular.yml")))
lines = []
for name, about in yaml.safe_load(open(f"{linguist}/lib/linguist/languages.yml")).items():
    lists = ["|".join(about.get(key, [])) for key in ("extensions", "filenames", "interpreters")]
    lines.append("\t".join([name, about["type"], *lists, str(int(name in popular))]))
with open(f"{OUT}/languages.tsv.zst", "wb") as out:
    out.write(zstandard.ZstdCompressor(level=22).compress("\n".join(lines).encode()))


def number(text):
    try:
        return str(float(text)).removesuffix(".0")
    except ValueError:
        return "-"


rows = {}
for row in csv.DictReader(open(f"{bigcode}/preprocessing/visual_inspection.csv")):
    if row["language"]:
        limits = [row["Alphanum_threshold"], row["Long_line_threshold"], row["Alpha filter"]]
        rows[row["extension"], row["language"]] = [str(int(row["Include"] == "1")), *map(number, limits), str(int(row["XML filter"] != "0"))]
with open(f"{OUT}/starcoder.tsv", "w") as out:
    for (extension, language), limits in sorted(rows.items()):
        out.write("\t".join([extension, language, *limits]) + "\n")

with open(f"{OUT}/blue_oak.txt", "w") as out:
    names = sorted({licence["id"] for rating in json.load(open(oak)) for licence in rating["licenses"]})
    out.write("\n".join(names) + "\n")
