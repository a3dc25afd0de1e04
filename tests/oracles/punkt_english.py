"""English parameters for sentence splitting, and NLTK's sentences for awkward texts with them.

Needs nltk 3.10.4, zstandard. Usage:

    python tests/oracles/punkt_english.py train NOVELS.jsonl.zst index/src/sentences/english
    python tests/oracles/punkt_english.py golden index/src/sentences/english index/tests/data/punkt.json
    python tests/oracles/punkt_english.py compare index/src/sentences/english FILE.jsonl.zst... > wanted.jsonl

NOVELS: one object with `text` a line; 150,000 characters from the middle of each of 70 novels were used (A. Ashley and
others' "100 English novels", all in the public domain). Words seen fewer than 5 times are left out of the cases.
`compare` writes a line `{"text", "plain", "newlines"}` a document, sentences as spans of characters: what
`cargo run --release -p millrace-index --example sentences` checks.
"""

import io
import json
import random
import sys
from pathlib import Path

import zstandard
from nltk import redos
from nltk.tokenize.punkt import PunktLanguageVars, PunktParameters, PunktSentenceTokenizer, PunktTrainer


# Novels have few titles of office, units and references: these are added to what was learnt.
USUAL = """
    mr mrs ms dr prof rev hon sr jr st mt ft gen col maj capt lt sgt cpl gov sen rep pres messrs mme mlle
    jan feb mar apr jun jul aug sep sept oct nov dec mon tue wed thu fri
    a.m p.m b.c a.d u.s u.s.a u.k u.n d.c i.e e.g etc vs cf al ca viz approx est dept univ assn
    inc ltd corp co bros vol vols ch pp ed eds fig figs eq sec no nos art op cit ibid
    ave blvd rd sq bldg apt tel ext max min avg ph.d m.d b.a m.a d.phil
""".split()


redos.DEFAULT_TIMEOUT = None  # 5 s a text by default, which a million characters exceed


class KeepNewlines(PunktLanguageVars):
    """Megatron-LM's CustomLanguageVars: white space after a sentence's end belongs to it."""

    _period_context_fmt = r"""\S*%(SentEndChars)s\s*(?=(?P<after_tok>%(NonWord)s|(?P<next_tok>\S+)))"""


def documents(path):
    data = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(Path(path).read_bytes())).read()
    for line in data.decode("utf-8", "replace").split("\n"):
        if line.strip():
            text = json.loads(line).get("text")
            if isinstance(text, str):
                yield text.encode("utf-8", "replace").decode()


def train(novels, out):
    trainer = PunktTrainer()
    for text in documents(novels):
        middle = max(0, len(text) // 2 - 75_000)
        trainer.train(text[middle : middle + 150_000], finalize=False)
    counts = trainer._type_fdist
    trainer.finalize_training()
    params = trainer.get_params()
    out = Path(out)
    seen = lambda word: counts[word] + counts[word + "."] >= 5
    lines = {
        "abbrev_types.txt": sorted(params.abbrev_types | set(USUAL)),
        "sent_starters.txt": sorted(params.sent_starters),
        "collocations.tab": sorted("\t".join(c) for c in params.collocations),
        "ortho_context.tab": sorted(f"{w}\t{n}" for w, n in params.ortho_context.items() if n and seen(w)),
    }
    for name, content in lines.items():
        (out / name).write_text("".join(line + "\n" for line in content), encoding="utf-8", newline="")
        print(name, len(content))


def load(folder):
    folder, params = Path(folder), PunktParameters()
    read = lambda name: (folder / name).read_text(encoding="utf-8").split("\n")[:-1]
    params.abbrev_types, params.sent_starters = set(read("abbrev_types.txt")), set(read("sent_starters.txt"))
    params.collocations = {tuple(line.split("\t")) for line in read("collocations.tab")}
    for line in read("ortho_context.tab"):
        word, flags = line.split("\t")
        params.ortho_context[word] = int(flags)
    return PunktSentenceTokenizer(params), PunktSentenceTokenizer(params, lang_vars=KeepNewlines())


def spans(splitter, text):
    """Megatron feeds 1,000,000 characters at a time."""
    out = []
    for start in range(0, len(text), 1_000_000):
        out += [[start + a, start + b] for a, b in splitter.span_tokenize(text[start : start + 1_000_000])]
    return out


def awkward():
    yield from ["", " ", "\n\n", ".", "...", "!!!", "a", "a.", " a. ", "One. Two.", "One.Two.", "One.\n\nTwo.  Three", "Why?! No!! Yes."]
    yield "Mr. Smith and Dr. Jones met Mrs. Brown at 5 p.m. on Jan. 3. They talked. J. S. Bach wrote it, e.g. the No. 5. It was 3.14. He left."
    yield 'He said "Stop." Then he left. (Really.) "Why?" she asked. [Note.] {x.} \u201cSo.\u201d \u2018Yes.\u2019 \u00abOui.\u00bb Fin.'
    yield "Wait... what? . . . No -- never. Yes.-- and then. End.--More. Dots.... Four. etc... And so on... and on. a. . . B. "
    yield "The U.S.A. is big. The U.S. Government. He went to Washington D.C. Then home. Vol. II. Ch. 3. pp. 4-5. i.e. this. vs. that."
    yield "1. First\n2. Second\n3. Third. 4.\n5. -1. $5. 1,000. .5. \u0663. \u2167. 2nd. End"
    yield "\u00c9t\u00e9. \u00d6sterreich! \u4f60\u597d\u3002\u4e16\u754c. \u041f\u0440\u0438\u0432\u0435\u0442. \u0130. \u00df. \u01c5. \U0001F600. \U0001F600? Done"
    yield "Tab.\tNext.\r\nCR.\rAlone.\x0bVT.\x0cFF.\x1cFS.\x85NEL.\u2028LS.\u2029PS.\u00a0NBSP.\u3000Wide. End\x1f\x1e "
    yield "? ? ? ! ! . . . , . ; . : . ' . \" . ) . ( . - . -- . --- . * . @ . # . & . [ . ] . { . } . ` ."
    yield "It ends here.)\n\nNew \"quote.\"\n'nested.'')] More.]} Last.\u201d--dash. \"'\" x. \"\n"
    yield "x" * 50 + "." + " y" * 50 + ". " + "Z. " * 40 + "no. " * 40
    rng = random.Random(3)
    words = ["Mr.", "the", "The", "He", "he", "cat.", "Cat!", "why?", "J.", "S.", "5.", "3", "etc.", "...", ". . .", "--", "\u2019", "\u201d", '"', "'", ")", "(", "]", ",", "a.m.",
             "U.S.", "\n", "\n\n", "  ", "\t", "St.", "said", "I", "i.e.", "-5.5.", "well-known.", "B.C.", "\u00e9.", "\u0301.", "_.", "\u00b2.", "\u4e2d.", "!?", "?!.", ".)", ".\u201d", ".'", '."', ".--", "x,y.", "a,", ",b", "*", "@", ";", ":", "\x1c", "\u00a0", "\u200d."]
    for _ in range(150):
        yield rng.choice([" ", "", "  "]).join(rng.choice(words) for _ in range(rng.randrange(1, 40)))
    alphabet = "aA.?!,;:'\")(]- \n\t1\u201d\u00e9"
    for _ in range(150):
        yield "".join(rng.choice(alphabet) for _ in range(rng.randrange(1, 60)))


def main():
    match sys.argv[1:]:
        case ["train", novels, out]:
            train(novels, out)
        case ["golden", folder, out]:
            plain, newlines = load(folder)
            rows = [{"text": t, "plain": spans(plain, t), "newlines": spans(newlines, t)} for t in awkward()]
            chunks = "Well, no. \"Yes!\" \u00e9t\u00e9 " * 52_000
            ends = {"chunked": [len(chunks), len(spans(plain, chunks)), [s for s in spans(plain, chunks) if s[0] > 999_900][:12]]}
            Path(out).write_text(json.dumps({"nltk": "3.10.4", "rows": rows, **ends}, separators=(",", ":")) + "\n")
        case ["compare", folder, *files]:
            plain, newlines = load(folder)
            for path in files:
                for text in documents(path):
                    print(json.dumps({"text": text, "plain": spans(plain, text), "newlines": spans(newlines, text)}))


main()
