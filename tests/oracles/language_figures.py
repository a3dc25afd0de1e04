"""Prints the second table of curate/docs/words.md: documents that FineWeb-2's filters keep in ten large languages, here and in datatrove.

Needs datatrove 0.10.1 with the programs of its tokenizers (spacy 3.8, jieba, sudachipy with sudachidict_core, kiwipiepy, indic-nlp-library), pyyaml, a checkout of
huggingface/fineweb-2 (d0defb2), sentences as `code TAB kind TAB text` lines (lingua's test data, from the Leipzig Corpora) and the Universal Declaration of Human
Rights as `code TAB paragraph` lines (NLTK's udhr2).

    cargo build --release -p millrace-curate --example verdicts
    python tests/oracles/language_figures.py FINEWEB2 SENTENCES UDHR target/release/examples/verdicts > table.md

A document is a run of sentences of one language, chosen by a fixed seed: flowing paragraphs, a sentence on each line, or paragraphs with lines of a menu and repeated
lines between them, as pages have them; and pieces of the declaration. Both programs get the same documents.
"""

import json
import random
import subprocess
import sys
import tempfile
from collections import Counter

import yaml
from datatrove.data import Document
from datatrove.pipeline.filters import FineWebQualityFilter, GopherQualityFilter, GopherRepetitionFilter

LANGUAGES = "zh:cmn_Hani es:spa_Latn hi:hin_Deva ar:arb_Arab pt:por_Latn ru:rus_Cyrl ja:jpn_Jpan de:deu_Latn fr:fra_Latn ko:kor_Hang".split()
DOCUMENTS = 400


def read(path, of_text):
    lines = {}
    for line in open(path, encoding="utf-8"):
        fields = line.rstrip("\n").split("\t")
        if of_text(fields):
            lines.setdefault(fields[0], []).append(fields[-1])
    return lines


def documents(code, sentences, declaration):
    rng = random.Random(code)
    between = "" if code in ("cmn_Hani", "jpn_Jpan") else " "
    for number in range(DOCUMENTS):
        if number % 8 == 7:
            start = rng.randrange(max(1, len(declaration) - 6))
            yield "\n".join(declaration[start : start + rng.choice([3, 6, 12])])
            continue
        start = rng.randrange(len(sentences) - 40)
        run = sentences[start : start + rng.choice([2, 5, 10, 20, 40])]
        if number % 4 == 0:
            yield "\n".join(run)
            continue
        size = rng.choice([2, 4, 6])
        paragraphs = [between.join(run[at : at + size]) for at in range(0, len(run), size)]
        if number % 4 == 1:
            menu = [sentence[: rng.randint(4, 20)].strip() for sentence in rng.sample(sentences, rng.randint(2, 12))]
            paragraphs = menu + paragraphs + menu[: rng.randint(0, 4)]
        if number % 4 == 2 and len(paragraphs) > 2:
            paragraphs.insert(rng.randrange(len(paragraphs)), paragraphs[0])
        yield "\n".join(paragraphs)


def published(folder, code):
    c = yaml.safe_load(open(f"{folder}/configs/{code}.yml"))
    return [
        GopherRepetitionFilter(language=code, dup_para_frac=0, dup_line_char_frac=0, dup_para_char_frac=0, dup_line_frac=c["dup_line_frac"], top_n_grams=c["top_n_grams"], dup_n_grams=c["dup_n_grams"]),
        FineWebQualityFilter(language=code, short_line_thr=999, char_duplicates_ratio=0.1, line_punct_thr=c["line_punct_thr"], new_line_ratio=c["new_line_ratio"]),
        GopherQualityFilter(language=code, max_avg_word_length=c["max_avg_word_length"], min_avg_word_length=c["min_avg_word_length"], stop_words=c["stopwords"], max_non_alpha_words_ratio=c["max_non_alpha_words_ratio"], min_stop_words=2),
    ]


def theirs(filters, text):
    for one in filters:
        verdict = one.filter(Document(text=text, id="1"))
        if verdict is not True:
            return verdict[1] if isinstance(verdict, tuple) else "dropped"
    return None


def ours(program, code, texts):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        for text in texts:
            file.write(json.dumps({"text": text, "step": {"fineweb2": {"language": code}}}) + "\n")
        file.flush()
        out = subprocess.run([program, file.name, "step"], check=True, capture_output=True, text=True).stdout
    verdicts = [json.loads(line)["verdict"] for line in out.split("\n") if line]
    return [None if verdict is True else verdict[0] for verdict in verdicts]


def main():
    fineweb2, sentences, udhr, program = sys.argv[1:5]
    sentences = read(sentences, lambda fields: len(fields) > 2 and fields[1] == "sentences")
    declarations = {}
    for code, lines in read(udhr, lambda fields: len(fields) > 1).items():
        declarations.setdefault(code[:3], lines)
    print("| language | documents | kept, here | kept, datatrove | different verdicts | of these kept here, dropped there | dropped here, kept there |\n|---|---|---|---|---|---|---|")
    for pair in LANGUAGES:
        name, code = pair.split(":")
        texts = list(documents(code, sentences[name], declarations[code[:3]]))
        filters = published(fineweb2, code)
        here, there = ours(program, code, texts), [theirs(filters, text) for text in texts]
        assert len(here) == len(there) == DOCUMENTS
        apart = Counter((a, b) for a, b in zip(here, there) if (a is None) != (b is None))

        def named(wanted):
            rules = Counter()
            for (a, b), count in apart.items():
                if (a is None) == wanted:
                    rules[b if wanted else a] += count
            return ", ".join(f"{count} `{rule}`" for rule, count in rules.most_common()) or "-"

        kept = [sum(verdict is None for verdict in verdicts) for verdicts in (here, there)]
        print(f"| {code} | {DOCUMENTS} | {kept[0]} | {kept[1]} | {sum(apart.values())} | {named(True)} | {named(False)} |", flush=True)


main()
