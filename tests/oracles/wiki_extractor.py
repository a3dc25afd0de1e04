"""Texts of a MediaWiki dump as Millrace and WikiExtractor give them, side by side.

    python wiki_extractor.py MILLRACE WIKIEXTRACTOR_PYTHON DUMP.xml [--show N]

WIKIEXTRACTOR_PYTHON is an interpreter with wikiextractor 3.0.6 (Python 3.10 is the last that runs it). Both
run on one core; times are CPU seconds, starting and writing included (ours compresses), the least of three runs. Overlap is by
multisets of 5 successive words a page, over the pages that both have: of ours the share that theirs has,
and the reverse. --show prints the pages of least overlap. Needs zstandard.
"""
import collections, glob, json, os, re, resource, subprocess, sys, tempfile

import zstandard

millrace, python, dump = sys.argv[1:4]
show = int(sys.argv[5]) if len(sys.argv) > 5 else 0
folder = tempfile.mkdtemp(prefix="wiki-extractor-")


def cpu():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def least(command, before):
    best = None
    for _ in range(3):
        before()
        start = cpu()
        subprocess.run(["taskset", "-c", "0", *command], check=True, capture_output=True)
        best = min(best or 1e9, cpu() - start)
    return best


def clear():
    subprocess.run(["rm", "-rf", f"{folder}/ours", f"{folder}/theirs"], check=True)


with open(f"{folder}/job.toml", "w") as job:
    job.write(
        f"name = 'wiki'\nout = '{folder}/ours'\nthreads = 1\n[curate]\n"
        f"inputs = [{{ path = '{os.path.abspath(dump)}', format = 'wikipedia', source = 'w' }}]\n"
    )
theirs_s = least(
    [python, "-m", "wikiextractor.WikiExtractor", "--json", "--no-templates", "--processes", "1", "-q", "-o",
     f"{folder}/theirs", dump], clear,
)
theirs = {}
for path in glob.glob(f"{folder}/theirs/*/wiki_*"):
    for line in open(path, encoding="utf-8"):
        page = json.loads(line)
        theirs[page["id"]] = (page["title"], page["text"])
ours_s = least([millrace, "curate", f"{folder}/job.toml"], clear)
ours = {}
for path in glob.glob(f"{folder}/ours/clean/*.zst"):
    with zstandard.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            page = json.loads(line)
            ours[page["meta"]["page"]] = (page["meta"]["title"], page["text"])


def shingles(text):
    words = re.findall(r"\w+", text.lower())
    return collections.Counter(zip(*(words[i:] for i in range(5))))


rows, sums = [], collections.Counter()
for key in ours.keys() & theirs.keys():
    a, b = shingles(ours[key][1]), shingles(theirs[key][1])
    both = (a & b).total()
    sums.update(ours=a.total(), theirs=b.total(), both=both)
    rows.append((both / max(a.total(), b.total(), 1), key))
print(f"pages: ours {len(ours)}, theirs {len(theirs)}, both {len(rows)}")
print("ours alone:", [ours[k][0] for k in sorted(ours.keys() - theirs.keys())][:8])
print("theirs alone:", [theirs[k][0] for k in sorted(theirs.keys() - ours.keys())][:8])
print(f"shingles: ours {sums['ours']}, theirs {sums['theirs']}; theirs has {sums['both'] / max(sums['ours'], 1):.4f} of ours, "
      f"ours {sums['both'] / max(sums['theirs'], 1):.4f} of theirs")
print(f"CPU seconds: ours {ours_s:.3f}, theirs {theirs_s:.3f}: {theirs_s / ours_s:.1f} times")
for what in ("[[", "]]", "{{", "}}", "{|", "|}", "'''", "&lt;", "&nbsp;", "<ref", "</", "style=", "thumb|"):
    count = [sum(t.count(what) for _, t in pages.values()) for pages in (ours, theirs)]
    if any(count):
        print(f"left over {what!r}: ours {count[0]}, theirs {count[1]}")
for share, key in sorted(rows)[:show]:
    a, b = shingles(ours[key][1]), shingles(theirs[key][1])
    print(f"\n== {share:.3f} {ours[key][0]}: {a.total()} and {b.total()}")
    print("   ours alone  :", [" ".join(s) for s in (a - b)][:12])
    print("   theirs alone:", [" ".join(s) for s in (b - a)][:12])
