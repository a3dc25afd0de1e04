"""Texts of task templates as ids by the rules of NeMo 1's `GPTPromptLearningDataset`: the column `taskname` of a row chooses one of the
templates, fields and virtual tokens take their places in it, virtual tokens are special tokens of the tokenizer (`pseudo_tokens`), the token that ends texts follows, and the answer's ids are
as many as those of its own text, with a blank in front if the template has one there, and the end (`_find_answer_start`). In the loss count the answer, or of a task without
`answer_only_loss` all but virtual tokens (`pad_batch_and_build_loss_mask`). The tokenizers are
those of tests/data/chat_masks.json with byte-level BPE: NeMo's rule does not hold for vocabularies that mark the beginning of a text.
In the output, virtual token i of a task is -1 - i. Writes tests/data/task_templates.json. tokenizers 0.22 or later.

    python tests/oracles/task_templates.py
"""

import json
import pathlib

from tokenizers import AddedToken, Tokenizer

DATA = pathlib.Path(__file__).parents[1] / "data"
TASKS = [
    # NeMo's documentation: sentiment, intent and slot, and the answer right behind virtual tokens
    ("sentiment", "<|VIRTUAL_PROMPT_0|> {sentence} sentiment: <|VIRTUAL_PROMPT_1|> {label}", [10, 5], ["sentence"], "label", True),
    ("intent_and_slot", "<|VIRTUAL_PROMPT_0|> Predict intent and slot <|VIRTUAL_PROMPT_1|> :\n{utterance}{label}", [7, 3], ["utterance"], "label", True),
    ("squad", "Context: {context}<|VIRTUAL_PROMPT_0|>\n\nQuestion: {question}<|VIRTUAL_PROMPT_1|>{answer}", [1, 2], ["context", "question"], "answer", False),
    ("pair", "{a} <|VIRTUAL_PROMPT_0|><|VIRTUAL_PROMPT_1|><|VIRTUAL_PROMPT_2|> and {a} Answer: {b}", [1, 1, 1], ["a"], "b", True),
]
TEXTS = ["The lazy dog", "naïve café 日本語", "How are you today?\n", "1 + 2 = 3, 10 * 10 = 100.", "  jumps  over ", "<|im_start|> in a text"]
ANSWERS = ["positive", "fox", "Paris. 日本", "10"]


def pseudo(number):
    return f"<prompt_{number}>"


def main():
    sets = []
    for one in json.loads((DATA / "chat_masks.json").read_text())["sets"]:
        if one["tokenizer"]["pre_tokenizer"] is None:
            continue
        tokenizer = Tokenizer.from_str(json.dumps(one["tokenizer"]))
        vocab, eos = tokenizer.get_vocab_size(), tokenizer.token_to_id(one["eos"])
        tokenizer.add_special_tokens([AddedToken(pseudo(i), special=True) for i in range(15)])
        text_to_ids = lambda text: tokenizer.encode(text, add_special_tokens=False).ids
        cases = []
        for taskname, template, splits, fields, answer, answer_only in TASKS:
            for at, value in enumerate(ANSWERS):
                row = {name: TEXTS[(at * 2 + number) % len(TEXTS)] for number, name in enumerate(fields)} | {answer: value}
                row["taskname"] = taskname
                text, first = template, 0
                for name, field in row.items():
                    text = text.replace("{" + name + "}", field)
                for marker, count in enumerate(splits):
                    text = text.replace(f"<|VIRTUAL_PROMPT_{marker}|>", "".join(map(pseudo, range(first, first + count))))
                    first += count
                ids = text_to_ids(text) + [eos]
                blank = " " if template[template.find("{" + answer + "}") - 1] == " " else ""
                of_answer = len(text_to_ids(blank + value)) + 1
                mask = [at >= len(ids) - of_answer if answer_only else id < vocab for at, id in enumerate(ids)]
                ids = [id if id < vocab else vocab - 1 - id for id in ids]
                cases.append({"template": template, "splits": splits, "row": row, "ids": ids, "answer": len(ids) - of_answer,
                              "loss_mask": "".join("01"[counts] for counts in mask)})
        sets.append({"tokenizer": one["tokenizer"], "eos": one["eos"], "cases": cases})
    (DATA / "task_templates.json").write_text(json.dumps({"tasks": TASKS, "sets": sets}, ensure_ascii=False) + "\n")


main()
