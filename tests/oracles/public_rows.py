"""Rows of public evaluation sets in the columns that lm-evaluation-harness reads, for `serve_lm_eval.py --rows`.

Needs zstandard. From a folder with the sets as MosaicML's LLM Foundry, dolma's decontamination suite, AllenNLP's fixtures, NYU's BBQ and
CrowS-Pairs publish them:

    python tests/oracles/public_rows.py FOLDER OUT [--limit N]

writes `TASK.SPLIT.jsonl` for twelve tasks, N rows of each set spread over it, and prints how many.
"""

import argparse
import csv
import gzip
import io
import json
import re
from pathlib import Path

import zstandard


def lines(path):
    if path.suffix == ".zst":
        text = zstandard.ZstdDecompressor().stream_reader(path.open("rb")).read().decode()
    elif path.suffix == ".gz":
        text = gzip.open(path, "rt", encoding="utf-8").read()
    else:
        text = path.read_text(encoding="utf-8")
    return text.split("\n")


def rows(path):
    return [json.loads(line) for line in lines(path) if line]


def boolq(root):
    for row in rows(root / "boolq.part1.jsonl.zst"):
        passage, question = re.fullmatch(r"Passage: (.*)\nQuestion: (.*?)\??\n?(?:Answer:)?", row["query"].strip(), re.DOTALL).groups()
        yes = [choice.strip().lower() for choice in row["choices"]].index("yes")
        yield {"passage": passage, "question": question, "label": int(row["gold"] == yes)}


def lambada(root):
    for row in rows(root / "lambada_openai.part1.jsonl.zst"):
        yield {"text": f"{row['context']} {row['continuation'].strip()}"}


def chosen(row, question):
    labels = "ABCDEFGH"[:len(row["choices"])]
    return {question: row["query"].removeprefix("Question: ").removesuffix("\nAnswer:"),
            "choices": {"text": row["choices"], "label": list(labels)}, "answerKey": labels[row["gold"]]}


def copa(root):
    for row in rows(root / "icl/copa.jsonl"):
        premise, kind = re.fullmatch(r"(.*), (because|therefore)", row["query"]).groups()
        choices = [choice[0].upper() + choice[1:] for choice in row["choices"]]
        question = "cause" if kind == "because" else "effect"
        yield {"premise": premise + ".", "choice1": choices[0], "choice2": choices[1], "question": question, "label": row["gold"]}


def triviaqa(root):
    for row in rows(root / "icl/triviaqa_sm_sub.jsonl.zst"):
        question = row["context"].removeprefix("Question: ").removesuffix("\nAnswer:")
        yield {"question": question, "answer": {"value": row["answer"], "aliases": row["aliases"]}}


def crows_pairs(root):
    text = "\n".join(lines(root / "bias/crows_pairs_anonymized.csv.zst"))
    for row in csv.DictReader(io.StringIO(text)):
        yield {"id": int(row[""]), "sent_more": row["sent_more"], "sent_less": row["sent_less"], "bias_type": row["bias_type"]}


def winogender(root):
    for gender in ["female", "male"]:
        for row in rows(root / f"icl/winogender_mc_{gender}.jsonl"):
            sentence, pronoun = re.search(r'Sentence: "(.*?)"\nQ: Who does the pronoun "(.*?)"', row["query"]).groups()
            occupation, participant = (choice.removeprefix("the ") for choice in row["choices"])
            yield {"sentence": sentence, "pronoun": pronoun, "occupation": occupation, "participant": participant, "gender": gender,
                   "target": row["choices"][row["gold"]], "label": row["gold"]}


def piqa(root):
    labels = [int(line) for line in lines(root / "allennlp-fixtures/mc_piqa-labels.lst") if line]
    for row, label in zip(rows(root / "allennlp-fixtures/mc_piqa.jsonl"), labels, strict=True):
        yield {**row, "label": label}


def rte(root):
    for row in rows(root / "allennlp-fixtures/rc_superglue_rte.jsonl"):
        yield {"sentence1": row["premise"], "sentence2": row["hypothesis"], "label": int(row["label"] == "not_entailment")}


def gsm8k(root):
    for row in rows(root / "decon-bundled/gsm8k_test-1.jsonl.gz"):
        answer = row["answer"]
        yield {"question": row["question"], "answer": answer if "####" in answer else f"#### {answer}"}


SETS = {
    "boolq.validation": boolq, "lambada_openai.test": lambada, "copa.validation": copa, "triviaqa.validation": triviaqa,
    "crows_pairs_english.test": crows_pairs, "winogender_all.test": winogender, "piqa.validation": piqa, "rte.validation": rte,
    "arc_easy.test": lambda root: (chosen(row, "question") for row in rows(root / "icl/arc_easy.jsonl.zst")),
    "openbookqa.test": lambda root: (chosen(row, "question_stem") for row in rows(root / "icl/openbook_qa.jsonl")),
    "bbq.test": lambda root: (row for name in ["Age", "Religion"] for row in rows(root / f"bias/bbq/{name}.jsonl.zst")),
    "gsm8k.test": gsm8k,
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--limit", type=int, default=40)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name, read in SETS.items():
        found = list(read(args.folder))
        # a spread of the set, not its beginning; examples in front of questions are other rows of it
        step = max(2, len(found) // args.limit)
        task, split = name.split(".")
        for split, some in [(split, found[::step]), ("train", found[1::step])]:
            text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in some[:args.limit])
            (args.out / f"{task}.{split}.jsonl").write_text(text, encoding="utf-8")
        print(name, len(found[::step][:args.limit]))


main()
