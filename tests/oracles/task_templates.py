"""Texts of task templates as ids by the rules of NeMo 1's `GPTPromptLearningDataset`: fields and virtual tokens take their places in the
template, virtual tokens are special tokens of the tokenizer (`pseudo_tokens`), the token that ends texts follows, and the answer's ids are
as many as those of its own text, with a blank in front if the template has one there, and the end (`_find_answer_start`). The tokenizers are
those of tests/data/chat_masks.json with byte-level BPE: NeMo's rule does not hold for vocabularies that mark the beginning of a text.
In the output, virtual token i is -1 - i. Writes tests/data/task_templates.json. tokenizers 0.22 or later.

    python tests/oracles/task_templates.py
"""

import json
import pathlib

from tokenizers import AddedToken, Tokenizer

DATA = pathlib.Path(__file__).parents[1] / "data"
TASKS = [
    # NeMo's documentation: sentiment, intent and slot, and the answer right behind virtual tokens
    ("<|VIRTUAL_PROMPT_0|> {sentence} sentiment: <|VIRTUAL_PROMPT_1|> {label}", [10, 5], ["sentence"], "label"),
    ("<|VIRTUAL_PROMPT_0|> Predict intent and slot <|VIRTUAL_PROMPT_1|> :\n{utterance}{label}", [7, 3], ["utterance"], "label"),
    ("Context: {context}<|VIRTUAL_PROMPT_0|>\n\nQuestion: {question}<|VIRTUAL_PROMPT_1|>{answer}", [1, 2], ["context", "question"], "answer"),
    ("{a} <|VIRTUAL_PROMPT_0|><|VIRTUAL_PROMPT_1|><|VIRTUAL_PROMPT_2|> and {a} Answer: {b}", [1, 1, 1], ["a"], "b"),
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
        for template, splits, fields, answer in TASKS:
            for at, value in enumerate(ANSWERS):
                row = {name: TEXTS[(at * 2 + number) % len(TEXTS)] for number, name in enumerate(fields)} | {answer: value}
                text, first = template, 0
                for name, field in row.items():
                    text = text.replace("{" + name + "}", field)
                for marker, count in enumerate(splits):
                    text = text.replace(f"<|VIRTUAL_PROMPT_{marker}|>", "".join(map(pseudo, range(first, first + count))))
                    first += count
                ids = text_to_ids(text) + [eos]
                blank = " " if template[template.find("{" + answer + "}") - 1] == " " else ""
                of_answer = len(text_to_ids(blank + value)) + 1
                ids = [id if id < vocab else vocab - 1 - id for id in ids]
                cases.append({"template": template, "splits": splits, "row": row, "ids": ids, "answer": len(ids) - of_answer})
        sets.append({"tokenizer": one["tokenizer"], "eos": one["eos"], "cases": cases})
    (DATA / "task_templates.json").write_text(json.dumps({"sets": sets}, ensure_ascii=False) + "\n")


main()
