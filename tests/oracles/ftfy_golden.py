#!/usr/bin/env python3
"""ftfy_golden.py UDHR.tsv.zst OUT.jsonl: ftfy 6.3.1's answers for texts broken in every way it repairs.

UDHR: paragraphs of the declaration of human rights (public domain), code TAB text. Lines of OUT have `text`,
`fixed` (ftfy.fix_text), `encoding` (ftfy.fix_encoding line by line) and `bad` (ftfy.badness.is_bad).
"""
import json, random, sys
import ftfy, ftfy.badness, ftfy.chardata, zstandard

rng = random.Random(7)
data = zstandard.ZstdDecompressor().stream_reader(open(sys.argv[1], "rb")).read().decode("utf-8")
by = {}
for line in data.split("\n"):
    code, _, text = line.partition("\t")
    by.setdefault(code, []).append(text)
texts = []
codes = "deu_1901 fra spa por_PT ces pol hun tur rus ukr ell_monotonic vie swe dan isl hin arb heb jpn cmn_hans tha lit ron_2006 ron".split()
for code in codes:
    for text in by.get(code, [])[1:3]:
        text = text[:40]
        texts.append(text)
        for page in ftfy.chardata.CHARMAP_ENCODINGS + ["windows-1252", "utf-8-twice"]:
            try:
                if page == "utf-8-twice":
                    broken = text.encode().decode("latin-1").encode().decode("sloppy-windows-1252")
                else:
                    broken = text.encode().decode(page, "replace")
            except UnicodeError:
                continue
            texts.append(broken)
            how = rng.randrange(6)
            if how == 0:
                texts.append(broken.replace("\xa0", " "))
            elif how == 1:
                texts.append("\u201cfine\u201d \u2014 " + broken + " \u2026 und so weiter")
            elif how == 2:
                texts.append(broken[rng.randrange(max(1, len(broken))):])
texts += [
    "", "\n", "plain", "\ufeffbom", "a\x00b\x07c", "\x1b[36;44mblue\x1b[0m", "&lt;a&gt; &Jscr; &EACUTE; &SZLIG; &AMPX; &#x80; &#0; &#xD800;",
    "<p>&amp;</p>", "&notanentity; &amp", "\uff2c\uff2f\uff35\uff24\u3000\uff4e\uff4f\uff49\uff53\uff45\uff53 \uff76\uff80\uff76\uff85",
    "\ufb02u\ufb03e\ufb06 \u0132 \u01c6", "one\r\ntwo\rthree\u2028four\u2029five\x85six", "\u2018a\u2019 \u201cb\u201d \u02bc",
    "voil\xc3 le travail", "\xc3\xa0 la carte \xc3 quela", "\xe2\x80\x9cquotes\xe2\x80\x9d", "\xe2\u20ac\u0153like this\xe2\u20ac\ufffd",
    "\xc3\u0192\xc2\xa0 \xc2\xa9", "100\xc2\xb0", "R\xc3\xa9sum\xc3\xa9 & caf\xc3\xa9", "\xed\xa0\xbd\xed\xb2\xa9", "\xc0\x80", "\xf0\x9f\x98\x80", "\xf0\u0178\u02dc\u20ac",
    "\x85 \x96 \x91quoted\x92", "\u0432\u0402\u201d", "e\u0301", "\u212b", "\u1e9b\u0323", "\xb2\xb3", "AT&amp;T", "&AMP;", "&quot;x&quot;", "\u0101\u20ac\u201d",
]
pool = "".join(chr(c) for c in list(range(0x20, 0x7f)) + list(range(0x80, 0x180)) + [0x192, 0x2c6, 0x2dc, 0x1a, 0xfffd]
    + list(range(0x384, 0x3d0)) + list(range(0x400, 0x492)) + list(range(0x2010, 0x2040)) + [0x20ac, 0x2122, 0x2116, 0x221a, 0x2248, 0x2202, 0x2260, 0x2264]
    + list(range(0x2500, 0x2594)))
likely = "\xc2\xc3\xc4\xc5\xce\xcf\xd0\xd1\xd8\xd9\xe0\xe1\xe2\xe3\xf0\u0413\u0420\u0421\u0432\u201a\u221a\xa0\x80\x93\x94\x99\xa9\xb0\u20ac\u2122\u0153\u017e\u0178 aeiouNT"
for _ in range(600):
    texts.append("".join(rng.choice(pool) for _ in range(rng.randrange(2, 14))))
for _ in range(900):
    texts.append("".join(rng.choice(likely if rng.random() < 0.8 else pool) for _ in range(rng.randrange(2, 12))))
seen = set()
with open(sys.argv[2], "w", encoding="utf-8") as out:
    for text in texts:
        text = text.replace("\n", " ") if text != "\n" else text
        if text in seen:
            continue
        seen.add(text)
        out.write(json.dumps({"text": text, "fixed": ftfy.fix_text(text), "encoding": ftfy.fix_encoding(text), "bad": ftfy.badness.is_bad(text)}, ensure_ascii=False) + "\n")
