"""Authors and dates that Millrace and trafilatura find on pages with known ones, side by side.

    python3 metadata_scores.py DATA PROGRAM [--wrong author|date]

DATA as for extraction_scores.py; PROGRAM is the release build of the example `extract_pages` of millrace-curate.
Both get the page and its address. Needs trafilatura 2.3.1, fastwarc, zstandard.

A date is right if the day is. An author is right if the words of all names are (in any order, without "and"
and case), half right if they share half of their words. Pages without a known author (date) are left out;
`spurious` counts answers there. --wrong lists ours that are not right beside the known ones.
"""
import argparse, collections, json, re, struct, subprocess

import extraction_scores

WORD = re.compile(r"\w+")
FILL = {"and", "und", "et", "y", "e", "by", "von", "the"}


def names(text):
    text = " ".join(text) if isinstance(text, list) else text
    return {w for w in WORD.findall((text or "").lower()) if w not in FILL}


def day(text):
    found = re.search(r"\d{4}-\d\d-\d\d", text or "")
    return found.group() if found else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("program")
    parser.add_argument("--wrong")
    options = parser.parse_args()
    rows = list(extraction_scores.gold_rows(options.data))
    found, frames = [], bytearray()
    for row, body in extraction_scores.pages(options.data, rows):
        url = row["url"].encode()
        frames += struct.pack("<I", len(url)) + url + struct.pack("<I", len(body)) + body
        found.append((row, body))
    got = subprocess.run([options.program, "--urls"], input=bytes(frames), stdout=subprocess.PIPE, check=True)
    ours = [json.loads(line)["meta"] for line in got.stdout.splitlines()]
    from trafilatura import bare_extraction

    scores = collections.defaultdict(collections.Counter)
    for (row, body), meta in zip(found, ours, strict=True):
        try:
            peer = bare_extraction(body, url=row["url"], with_metadata=True, fast=True)
            peer = {"author": peer.author, "published": peer.date} if peer else {}
        except Exception:
            peer = {}
        gold_author = row.get("author") or row.get("byline")
        gold_day = day(row.get("date") or row.get("publish_date"))
        for who, answer in (("ours", meta), ("trafilatura", peer)):
            author, published = answer.get("author"), day(answer.get("published"))
            score = scores[who, "author"]
            if names(gold_author):
                have, want = names(author), names(gold_author)
                share = len(have & want) / len(have | want)
                score["pages"] += 1
                score["right"] += share == 1
                score["half"] += share >= 0.5
                score["none"] += not have
                if who == "ours" and options.wrong == "author" and share < 1:
                    print(row["source"], row["url"][:90], "| gold:", gold_author, "| ours:", author, "| trafilatura:", peer.get("author"))
            else:
                score["spurious"] += bool(author)
            score = scores[who, "date"]
            if gold_day:
                score["pages"] += 1
                score["right"] += published == gold_day
                score["none"] += not published
                if who == "ours" and options.wrong == "date" and published != gold_day:
                    print(row["source"], row["url"][:90], "| gold:", gold_day, "| ours:", published, "| trafilatura:", peer.get("published"))
            else:
                score["spurious"] += bool(published)
    for (who, what), score in scores.items():
        shares = {k: f"{score[k] / max(score['pages'], 1):.3f}" for k in ("right", "half", "none") if k in score}
        print(f"{what:7} {who:12} {score['pages']} pages {shares} spurious {score['spurious']}")


if __name__ == "__main__":
    main()
