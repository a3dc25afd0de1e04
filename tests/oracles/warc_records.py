"""Compares our WARC records with FastWARC's, and our ARC records with warcio's.

warc_records.py PROGRAM FOLDER [GOLDEN]

PROGRAM is target/release/examples/records. Every .warc, .warc.*, .wet, .wat and .arc file under FOLDER must give
the same records: offset, type, length and XXH3-128 of the block. GOLDEN receives their answers; for
curate/tests/data/archives it is records.txt there. Needs fastwarc 2.0.1, warcio 1.8.1, xxhash.

Left out, because the programs say something else there: the block of an ARC file's first record (warcio has read it),
offsets inside one long zstd frame (FastWARC gives how far it has read). A file of which FastWARC finds nothing but an
unknown record of no bytes must be bad all over for us.
"""

import io
import pathlib
import subprocess
import sys

import xxhash
from fastwarc.warc import ArchiveIterator, WarcRecordType
from warcio.archiveiterator import ArchiveIterator as Warcio

SUFFIXES = (".warc", ".warc.gz", ".warc.zst", ".warc.lz4", ".wet", ".wet.gz", ".wat", ".wat.gz", ".warc.txt")


def fastwarc(path):
    records = ArchiveIterator(str(path), parse_http=False, record_types=WarcRecordType.any_type, fsspec_args=False)
    for r in records:
        block = r.reader.read()
        kind = str(r.record_type).split(".")[-1]
        yield f"{r.stream_pos} {kind} {len(block)} {xxhash.xxh3_128_hexdigest(block)}"


def warcio(path):
    with open(path, "rb") as file:
        records = Warcio(file, no_record_parse=True)
        for r in records:
            block = r.raw_stream.read()
            yield f"{records.get_record_offset()} {len(block)} {xxhash.xxh3_128_hexdigest(block)}"


def ours(program, path):
    out = subprocess.run([program, "warc", path], capture_output=True, text=True, check=True).stdout
    return out.splitlines()


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    golden, wrong, files, records = [], 0, 0, 0
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.parent.name != "malformed"):
        arc = path.name.endswith((".arc", ".arc.gz"))
        if not arc and not path.name.endswith(SUFFIXES):
            print(f"skipped {path.relative_to(folder)}")
            continue
        found = ours(program, path)
        theirs = list(warcio(path) if arc else fastwarc(path))
        if arc:
            found = [" ".join(w for i, w in enumerate(m.split(" ")) if i != 1) for m in found][1:]
            theirs = theirs[1:]
        elif path.suffix == ".zst" and all(line.startswith("0 ") for line in found):
            found = [line.split(" ", 1)[1] for line in found]
            theirs = [line.split(" ", 1)[1] for line in theirs]
        elif len(theirs) == 1 and theirs[0].startswith("0 unknown 0 ") and all(" bad " in line for line in found):
            print(f"no record {path.relative_to(folder)}: {len(found)} bad ones for us")
            continue
        files, records = files + 1, records + len(theirs)
        name = path.relative_to(folder)
        if found != theirs:
            wrong += 1
            print(f"DIFFERS {name}: {len(found)} records, wanted {len(theirs)}")
            for a, b in [(a, b) for a, b in zip(found + [""] * len(theirs), theirs + [""] * len(found)) if a != b][:3]:
                print(f"  ours   {a}\n  theirs {b}")
        else:
            print(f"same    {name}: {len(theirs)} records")
        golden += [f"# {name}", *theirs]
    print(f"{files} files, {records} records, {wrong} files differ")
    if len(sys.argv) > 3:
        pathlib.Path(sys.argv[3]).write_text("\n".join(golden) + "\n")
    sys.exit(wrong > 0)


main()
