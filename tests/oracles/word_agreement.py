"""Prints the table of curate/docs/words.md: how far the words of `curate/examples/words.rs` agree with datatrove's tokenizers.

Needs datatrove 0.10.1 with the programs its tokenizers call (spacy 3.8 with jieba, sudachipy with sudachidict_core, and pyvi; kiwipiepy 0.20.4; pythainlp 5.4; khmer-nltk
1.6; LaoNLP 1.3; pyidaungsu-numpy2; indic-nlp-library 0.92), zstandard, sentences as `code TAB kind TAB text` lines (lingua's test data) and the Universal Declaration of Human
Rights as `code TAB paragraph` lines (NLTK's udhr2). A language without sentences has paragraphs of the declaration. Lines beyond the limit are left out. Columns: characters;
F1 of words (same first and last character) and of the boundaries between characters that are not white space; our words for each of theirs; both mean lengths.

    cargo build --release -p millrace-curate --example words
    python tests/oracles/word_agreement.py SENTENCES UDHR target/release/examples/words [LIMIT] > table.md
"""

import json
import subprocess
import sys

from datatrove.utils.word_tokenizers import load_word_tokenizer

SENTENCES = (
    "zh:cmn_Hani ja:jpn_Jpan ko:kor_Hang vi:vie_Latn th:tha_Thai hi:hin_Deva ur:urd_Arab bn:ben_Beng ar:arb_Arab bg:bul_Cyrl ca:cat_Latn da:dan_Latn de:deu_Latn el:ell_Grek "
    "es:spa_Latn fa:fas_Arab fi:fin_Latn fr:fra_Latn ga:gle_Latn hu:hun_Latn id:ind_Latn it:ita_Latn la:lat_Latn lt:lit_Latn mk:mkd_Cyrl ms:zsm_Latn nb:nob_Latn nl:nld_Latn "
    "pl:pol_Latn pt:por_Latn ro:ron_Latn ru:rus_Cyrl sl:slv_Latn sr:srp_Cyrl sv:swe_Latn tl:fil_Latn tr:tur_Latn uk:ukr_Cyrl"
).split()
DECLARATIONS = "khm:khm_Khmr lao:lao_Laoo mya:mya_Mymr".split()


def spans(words, text):
    """Ranges of the words among the characters that are not white space; words that share a character are one."""
    solid = "".join(text.split())
    out, at = [], 0
    for word in words:
        word = "".join(word.split())
        start = solid.find(word, at)
        if start < 0:  # shares a character with the word before it
            start = solid.find(word, max(0, at - len(word)))
            if start < 0:
                continue
        if start + len(word) > at:
            out.append((max(start, at), start + len(word)))
            at = start + len(word)
    return out


def f1(ours, theirs):
    ours, theirs = set(ours), set(theirs)
    return 2 * len(ours & theirs) / max(1, len(ours) + len(theirs))


def main():
    limit = int(sys.argv[4]) if len(sys.argv) > 4 else 300
    lines = {}
    for line in open(sys.argv[1], encoding="utf-8"):
        fields = line.rstrip("\n").split("\t")
        if len(fields) > 2 and fields[1] == "sentences":
            lines.setdefault(fields[0], []).append(fields[2])
    for line in open(sys.argv[2], encoding="utf-8"):
        fields = line.rstrip("\n").split("\t")
        if len(fields) > 1:
            lines.setdefault(fields[0], []).append(fields[1])
    print("| language | texts | characters | words F1 | boundaries F1 | words per word | mean length, ours and theirs |\n|---|---|---|---|---|---|---|")
    for pair in SENTENCES + DECLARATIONS:
        short, code = pair.split(":")
        texts = lines.get(short, [])
        if code in ("kor_Hang", "vie_Latn", "tha_Thai"):  # those that word_boundaries.py left out of training
            texts = texts[::5]
        texts = [t for t in texts if t.strip()][:limit]
        if not texts:
            print("no text:", code, file=sys.stderr)
            continue
        given = "".join(f"{code}\t{text}\n" for text in texts)
        done = subprocess.run([sys.argv[3]], input=given.encode(), stdout=subprocess.PIPE, check=True)
        found = [json.loads(line) for line in done.stdout.decode().split("\n") if line]
        tokenizer = load_word_tokenizer(code)
        our_words, their_words, our_ends, their_ends, counts, lengths = [], [], [], [], [0, 0], [0, 0]
        for i, (text, ours) in enumerate(zip(texts, found)):
            theirs = tokenizer.word_tokenize(text)
            counts[0] += len(ours)
            counts[1] += len(theirs)
            lengths[0] += sum(map(len, ours))
            lengths[1] += sum(map(len, theirs))
            a, b = spans(ours, text), spans(theirs, text)
            our_words += [(i, *s) for s in a]
            their_words += [(i, *s) for s in b]
            our_ends += [(i, s[1]) for s in a[:-1]]
            their_ends += [(i, s[1]) for s in b[:-1]]
        chars = sum(map(len, texts))
        print(
            f"| {code} | {len(texts)} | {chars} | {f1(our_words, their_words):.3f} | {f1(our_ends, their_ends):.3f} | {counts[0] / max(1, counts[1]):.2f} "
            f"| {lengths[0] / max(1, counts[0]):.2f} / {lengths[1] / max(1, counts[1]):.2f} |",
            flush=True,
        )


main()
