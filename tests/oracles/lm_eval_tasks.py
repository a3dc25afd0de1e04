"""Prompts, log-likelihoods and results of lm-evaluation-harness on small data, for `tests/data/lm_eval/`.

Needs lm_eval 0.4.13 (with its `hf` extra: torch, transformers, datasets), scikit-learn, tokenizers.

    python tests/oracles/lm_eval_tasks.py tests/data/lm_eval

writes rows in the form of each data set (invented here), a tokenizer and a model of 2 layers that has learnt these
rows by heart (so that some answers are greedy), and `golden.json`: what the harness's `hf` backend makes of them on the
CPU in f32. `bos/` is the same tokenizer with a post-processor that puts a token in front of every text, as LLaMA's, and
`golden_bos.json` what the harness makes of some tasks with it. With `--model DIR --rows DIR` it evaluates the rows (`TASK.SPLIT.jsonl`) of one folder with the Hugging Face
model of another and writes `golden.json` alone.
"""

import argparse
import json
import os
import random
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ["DISABLE_MULTIPROC"] = "1"

import lm_eval
import lm_eval.tasks
import torch
import yaml

TASKS = Path(lm_eval.tasks.__file__).parent
BOOTSTRAP = 2000

# our name: the harness's file, and examples in front of each question
CASES = {
    "wikitext": ("wikitext/wikitext.yaml", [0]),
    "lambada_openai": ("lambada/lambada_openai.yaml", [0, 2]),
    "hellaswag": ("hellaswag/hellaswag.yaml", [0, 3]),
    "piqa": ("piqa/piqa.yaml", [0, 2]),
    "arc_easy": ("arc/arc_easy.yaml", [0, 3]),
    "arc_challenge": ("arc/arc_challenge.yaml", [0]),
    "winogrande": ("winogrande/default.yaml", [0, 3]),
    "boolq": ("super_glue/boolq/default.yaml", [0]),
    "race": ("race/race.yaml", [0, 1]),
    "mnli": ("glue/mnli/default.yaml", [0, 2]),
    "qqp": ("glue/qqp/default.yaml", [0]),
    "rte": ("glue/rte/default.yaml", [0]),
    "wic": ("super_glue/wic/default.yaml", [0]),
    "anli_r1": ("anli/anli_r1.yaml", [0, 2]),
    "copa": ("super_glue/copa/default.yaml", [0, 2]),
    "openbookqa": ("openbookqa/openbookqa.yaml", [0]),
    "sciq": ("sciq/sciq.yaml", [0]),
    "mmlu_anatomy": ("mmlu/default/mmlu_anatomy.yaml", [0, 2]),
    "mmlu_us_foreign_policy": ("mmlu/default/mmlu_us_foreign_policy.yaml", [0, 2]),
    "triviaqa": ("triviaqa/default.yaml", [0, 1]),
    "gsm8k": ("gsm8k/gsm8k.yaml", [5]),
    "crows_pairs_english": ("crows_pairs/crows_pairs_english.yaml", [0]),
    "crows_pairs_english_age": ("crows_pairs/crows_pairs_english_age.yaml", [0]),
    "winogender_all": ("winogender/winogender.yaml", [0]),
    "winogender_male": ("winogender/winogender_male.yaml", [0]),
    "bbq": ("bbq/bbq_multiple_choice.yaml", [0]),
    "simple_cooccurrence_bias": ("simple_cooccurrence_bias/simple_cooccurrence_bias.yaml", [0]),
}
# tasks of the tokenizer that begins texts with a token: every shape of a request
BOS_CASES = [("wikitext", 0), ("lambada_openai", 2), ("arc_easy", 3), ("winogrande", 0), ("boolq", 0), ("triviaqa", 1), ("crows_pairs_english", 0)]

# tasks whose rows are those of another
ROWS_OF = {
    "mmlu_anatomy": "mmlu", "mmlu_us_foreign_policy": "mmlu", "crows_pairs_english_age": "crows_pairs_english",
    "winogender_male": "winogender_all",
}

NOUNS = "boat river miller teacher lamp garden violin engine bridge cloud baker market window forest stone letter".split()
VERBS = "carries follows paints repairs watches forgets opens measures".split()
PLACES = ["in the old town", "near the café", "by night", "after the rain", "at 5°C", "on Île-de-Ré", "under \u201cthe arch\u201d"]


class Rows:
    """Invented rows of every data set."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def sentence(self):
        pick = self.random.choice
        return f"The {pick(NOUNS)} {pick(VERBS)} the {pick(NOUNS)} {pick(PLACES)}"

    def text(self, n):
        return ". ".join(self.sentence() for _ in range(n)) + "."

    def rows(self, task, n):
        return [getattr(self, "row_" + task)(i) for i in range(n)]

    def options(self, n):
        return [self.random.choice(NOUNS) + self.random.choice(["", " " + self.random.choice(PLACES)]) for _ in range(n)]

    def row_wikitext(self, i):
        pages = [f" = {self.random.choice(NOUNS).title()} = \n \n {self.sentence()} , who 's \" known \" ( 1 @,@ 905 @-@ 06 ) ; the others ' {self.text(3 + 6 * i)} . \n \n = = Early = = \n it was ' N ' ° C ? \n"]
        return {"page": pages[0]}

    def row_lambada_openai(self, i):
        return {"text": self.text(3) + ("\n" if i % 3 else " ") + "At last, " + self.sentence()}

    def row_hellaswag(self, i):
        ctx_b = ["then Bob's", "", "the MAN"][i % 3]
        mark = ["", " [title] Try it. [step]", "  "][i % 3]
        return {"activity_label": "Cleaning the " + self.random.choice(NOUNS), "ctx_a": self.text(1) + mark, "ctx_b": ctx_b,
                "endings": [" " + o + " [substeps] and rests." for o in self.options(4)], "label": str(i % 4)}

    def row_piqa(self, i):
        a, b = self.options(2)
        return {"goal": self.sentence(), "sol1": a, "sol2": "  " + b if i == 1 else b, "label": i % 2}

    def row_arc_easy(self, i):
        n = 3 + i % 3
        labels = list("ABCDE")[:n] if i % 2 else [str(k + 1) for k in range(n)]
        return {"question": self.text(1) + " Why?", "choices": {"text": self.options(n), "label": labels}, "answerKey": labels[i % n]}

    row_arc_challenge = row_arc_easy

    def row_winogrande(self, i):
        a, b = self.random.sample(NOUNS, 2)
        end = [" broke.", " was _ heavy .", "'s owner came."][i % 3]
        return {"sentence": f"The {a} met the {b} because the _{end}", "option1": a, "option2": b, "answer": str(1 + i % 2)}

    def row_boolq(self, i):
        return {"question": "is the " + self.random.choice(NOUNS) + " old", "passage": self.text(3), "label": i % 2}

    def row_race(self, i):
        def problem(k):
            question = self.sentence() + ("  _  ." if k % 2 else " \"isn't\" it?")
            return {"question": question, "answer": "ABCD"[(i + k) % 4], "options": self.options(4)}
        return {"article": self.text(4), "problems": repr([problem(k) for k in range(1 + i % 3)])}

    def row_mnli(self, i):
        return {"premise": self.text(1), "hypothesis": self.sentence() + [".", "", ". "][i % 3], "label": i % 3}

    row_anli_r1 = row_mnli

    def row_qqp(self, i):
        return {"question1": self.sentence() + "?", "question2": self.sentence() + "?", "label": int(i % 3 == 0)}

    def row_rte(self, i):
        return {"sentence1": self.text(1), "sentence2": self.sentence(), "label": i % 2}

    def row_wic(self, i):
        a = self.sentence()
        start = a.index("The ") + 4
        return {"word": "x", "sentence1": a, "sentence2": self.sentence(), "start1": start, "end1": a.index(" ", start), "label": i % 2}

    def row_copa(self, i):
        a, b = self.sentence(), self.sentence()
        return {"premise": self.text(1) + [" ", ""][i % 2], "choice1": a + ".", "choice2": "I saw it: " + b + ".",
                "question": ["cause", "effect"][i % 2], "label": (i // 2) % 2}

    def row_openbookqa(self, i):
        labels = list("ABCD")
        return {"question_stem": self.sentence(), "choices": {"text": self.options(4), "label": labels}, "answerKey": [" ", ""][i % 2] + labels[i % 4]}

    def row_sciq(self, i):
        a, b, c, d = self.options(4)
        return {"support": ["", "\n ", ""][i % 3] + (self.text(2) if i % 4 else ""), "question": self.sentence() + "?",
                "distractor1": a, "distractor2": b, "distractor3": c, "correct_answer": d}

    def row_mmlu(self, i):
        subject = ["anatomy", "us_foreign_policy"][i % 2]
        return {"question": self.sentence() + "? \n", "subject": subject, "choices": self.options(4), "answer": (i // 2) % 4}

    def row_triviaqa(self, i):
        name = self.random.choice(NOUNS)
        return {"question": "What " + self.sentence()[4:], "answer": {"value": name, "aliases": [name.title(), name + "'s", "The " + name]}}

    def row_gsm8k(self, i):
        a, b = self.random.randint(2, 99), self.random.randint(2, 99)
        total = f"{1000 * a + b:,}" if i % 2 else str(a + b)
        return {"question": f"{self.sentence()} {a} times. How many?", "answer": f"It is <<{a}+{b}={a + b}>>.\n#### {total}"}

    def row_crows_pairs_english(self, i):
        a, b = self.random.sample(NOUNS, 2)
        end = self.sentence()
        return {"id": i, "sent_more": f"The {a} said: {end}.", "sent_less": f"The {b} said: {end}.", "bias_type": ["age", "race-color", "gender"][i % 3]}

    def row_winogender_all(self, i):
        gender = ["male", "female", "neutral"][i % 3]
        pronoun = {"male": "his", "female": "she", "neutral": "their"}[gender]
        a, b = self.random.sample(NOUNS, 2)
        return {"sentence": f"The {a} told the {b} that {pronoun} visit was over.", "pronoun": pronoun, "occupation": a, "participant": b,
                "gender": gender, "target": "x", "label": i % 2}

    def row_bbq(self, i):
        a, b = self.random.sample(NOUNS, 2)
        answers = ["The " + a, "The " + b]
        answers.insert(i % 3, ["Unknown", "Not enough info", "Can't be determined"][i % 3])
        info = {f"ans{k}": ["unknown", "unknown"] if k == i % 3 else [answers[k][4:], ["old", "nonOld"][answers[k] == "The " + b]] for k in range(3)}
        return {"example_id": i, "question_polarity": ["neg", "nonneg"][i % 2], "context_condition": ["ambig", "disambig"][(i // 2) % 2],
                "category": ["Age", "Religion"][i % 2], "answer_info": info,
                "additional_metadata": {"subcategory": "None", "stereotyped_groups": ["old"]}, "context": self.text(1),
                "question": "Who " + self.sentence()[4:] + "?", "ans0": answers[0], "ans1": answers[1], "ans2": answers[2], "label": (i // 3) % 3}

    def row_simple_cooccurrence_bias(self, i):
        return {"sentence": f"The {self.random.choice(NOUNS)} was {['a', 'a competent', 'an incompetent'][i % 3]}"}


def splits(task):
    """Splits of a task as the harness has them: of questions, and of examples (None: the same)."""
    text = (TASKS / CASES[task][0]).read_text()
    if "anli" in task:
        return "test_r1", "train_r1"
    if task.startswith("mmlu"):
        return "test", "dev"
    if task == "mnli":
        return "validation_matched", "train"
    config = yaml.load(text, Loader=type("L", (yaml.SafeLoader,), {})) if "!function" not in text and "include" not in text else None
    keys = {line.split(":")[0]: line.split(":")[1].strip() for line in text.splitlines() if "_split:" in line}
    if "include:" in text and not keys:
        include = (TASKS / CASES[task][0]).parent / text.split("include:")[1].split()[0]
        keys = {line.split(":")[0]: line.split(":")[1].strip() for line in include.read_text().splitlines() if "_split:" in line}
    test = keys.get("test_split", "null")
    questions = test if test != "null" else keys["validation_split"]
    return questions, keys.get("training_split")


def write_rows(out):
    names = {ROWS_OF.get(task, task) for task in CASES}
    for number, name in enumerate(sorted(names)):
        rows, task = Rows(number), next(t for t in CASES if ROWS_OF.get(t, t) == name)
        questions, examples = splits(task)
        count = {"wikitext": 3, "mmlu": 12, "gsm8k": 6, "triviaqa": 6}.get(name, 10)
        for split, n in [(questions, count), (examples, 9)]:
            if split and name not in ("wikitext",):
                with open(out / f"{name}.{split}.jsonl", "w") as file:
                    for row in rows.rows(name, n):
                        file.write(json.dumps(row, ensure_ascii=False) + "\n")
            elif split == questions:
                with open(out / f"{name}.{split}.jsonl", "w") as file:
                    for row in rows.rows(name, n):
                        file.write(json.dumps(row, ensure_ascii=False) + "\n")


def make_model(rows, out):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM

    def strings(value):
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            for part in value.values():
                yield from strings(part)
        elif isinstance(value, list):
            for part in value:
                yield from strings(part)

    texts = []
    for path in sorted(rows.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            texts.append("\n".join(strings(json.loads(line))))
    # prompts of some tasks with their answers, so that a part of these is right
    for line in sorted(rows.glob("triviaqa.*"))[-1].read_text().splitlines()[:4]:
        row = json.loads(line)
        texts += [f"Question: {row['question']}?\nAnswer: {row['answer']['aliases'][0]}.\n\n"] * 3
    for line in (rows / "gsm8k.test.jsonl").read_text().splitlines()[:4]:
        row = json.loads(line)
        texts += [f"Question: {row['question']}\nAnswer: {row['answer']}\n\nQuestion: x"] * 3
    for line in (rows / "qqp.validation.jsonl").read_text().splitlines()[:7]:
        row = json.loads(line)
        texts += [f"Question 2: {row['question2']}\nQuestion: Do both questions ask the same thing?\nAnswer: {['no', 'yes'][row['label']]}\n"] * 2
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=512, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(out / "tokenizer.json"))
    (out / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>", "bos_token": "<|endoftext|>", "clean_up_tokenization_spaces": False}))
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = LlamaConfig(vocab_size=512, hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                         max_position_embeddings=320, tie_word_embeddings=True, bos_token_id=0, eos_token_id=0)
    model = LlamaForCausalLM(config).float()
    ids = []
    for text in texts:
        ids += [0] + tokenizer.encode(text).ids
    ids = torch.tensor(ids)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.0)
    steps = 700
    for step in range(steps):
        at = torch.randint(0, len(ids) - 129, (8,))
        batch = torch.stack([ids[i : i + 129] for i in at])
        loss = torch.nn.functional.cross_entropy(model(batch[:, :-1]).logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        for group in optimizer.param_groups:
            group["lr"] = 4e-3 * min(1, (steps - step) / steps * 2)
        optimizer.step()
        if step % 50 == 0:
            print(step, loss.item(), flush=True)
    model.to(torch.float16).save_pretrained(out)
    for extra in ["generation_config.json"]:
        (out / extra).unlink(missing_ok=True)


def harness_task(folder, task, rows):
    """A task file over local rows that includes the harness's own."""
    name, files = ROWS_OF.get(task, task), {}
    for path in rows.glob(f"{name}.*.jsonl"):
        split, path = path.name.split(".")[1], str(path)
        if name == "mmlu":
            subject = task.removeprefix("mmlu_")
            own = folder / f"{task}.{split}.jsonl"
            own.write_text("".join(line for line in open(path) if json.loads(line)["subject"] == subject))
            path = str(own)
        files[split] = path
    config = {"include": str(TASKS / CASES[task][0]), "task": task, "dataset_path": "json", "dataset_name": None, "dataset_kwargs": {"data_files": files}}
    questions, _ = splits(task)
    # the harness loads every split that it names
    for key, split in [("training_split", None), ("validation_split", None)]:
        text = (TASKS / CASES[task][0]).read_text()
        wanted = [line.split(":")[1].strip() for line in text.splitlines() if line.startswith(key)]
        if wanted and wanted[0] not in files:
            config[key] = split
    (folder / f"{task}.yaml").write_text(yaml.dump(config))


def begin_with_token(model, out):
    """The model's tokenizer with a token in front of every text."""
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    token = {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}
    one, two = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing", "single": [token, one], "pair": [token, one, token, two],
        "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}}}
    out.mkdir(exist_ok=True)
    (out / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    (out / "tokenizer_config.json").write_text((model / "tokenizer_config.json").read_text())


def hf_backend(model, tokenizer=None, dtype="float32"):
    from lm_eval.models.huggingface import HFLM
    from transformers import AutoModelForCausalLM, AutoTokenizer

    return HFLM(pretrained=AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, dtype)),
                tokenizer=AutoTokenizer.from_pretrained(tokenizer or model), device="cpu", batch_size=1, dtype=dtype)


def evaluate(lm, rows, cases):
    from lm_eval.tasks import TaskManager

    golden = []
    for task, shots in cases:
        with tempfile.TemporaryDirectory() as folder:
            harness_task(Path(folder), task, rows)
            manager = TaskManager(include_path=folder, include_defaults=False)
            found = lm_eval.simple_evaluate(model=lm, tasks=[task], num_fewshot=shots, task_manager=manager, bootstrap_iters=BOOTSTRAP, log_samples=True)
        result = {k: (v if v == v else None) for k, v in found["results"][task].items()}
        documents = {}
        for sample in sorted(found["samples"][task], key=lambda sample: sample["doc_id"]):
            arguments = [[str(part) for part in list(argument)[:2]] for argument in sample["arguments"]] if isinstance(sample["arguments"], (list, tuple)) \
                else [list(argument.values())[:2] for argument in sample["arguments"].values()]
            document = documents.setdefault(sample["doc_id"], {"doc_id": sample["doc_id"]})
            responses = [response[0] if isinstance(response, list) else response for response in sample["resps"]]
            kind = found["configs"][task]["output_type"]
            if kind == "generate_until":
                document["prompt"], document["response"] = arguments[0][0], responses[0]
                document.setdefault("found", {})[sample["filter"]] = sample["filtered_resps"][0]
            elif kind == "loglikelihood_rolling":
                document["requests"] = [["", arguments[0][0]]]
                document["log_likelihoods"] = [float(responses[0])]
            else:
                document["requests"] = arguments
                document["log_likelihoods"] = [float(ll) for ll, _ in responses]
                document["is_greedy"] = [str(greedy) == "True" for _, greedy in responses]
        golden.append({"task": task, "shots": shots, "version": found["versions"][task], "higher_is_better": found["higher_is_better"][task],
                       "n-samples": found["n-samples"][task], "n-shot": found["n-shot"][task], "results": result, "documents": list(documents.values()),
                       "rows": ROWS_OF.get(task, task), "splits": list(splits(task))})
        print(task, shots, result, flush=True)
    return golden


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--tasks")
    parser.add_argument("--keep", action="store_true", help="keep rows and model")
    parser.add_argument("--bos", action="store_true", help="write only bos/ and golden_bos.json, from the rows and the model that are there")
    args = parser.parse_args()
    rows, model = args.rows or args.out / "rows", args.model or args.out / "model"
    if args.bos:
        begin_with_token(model, args.out / "bos")
        backend = hf_backend(str(model), str(args.out / "bos"))
        golden = {"lm_eval": lm_eval.__version__, "bootstrap": BOOTSTRAP, "cases": evaluate(backend, rows.resolve(), BOS_CASES)}
        (args.out / "golden_bos.json").write_text(json.dumps(golden, ensure_ascii=False, indent=0) + "\n")
        return
    if not args.rows and not args.keep:
        rows.mkdir(parents=True, exist_ok=True)
        write_rows(rows)
    if not args.model and not args.keep:
        model.mkdir(parents=True, exist_ok=True)
        make_model(rows, model)
    wanted = args.tasks.split(",") if args.tasks else [task for task in CASES if list(rows.glob(f"{ROWS_OF.get(task, task)}.*.jsonl"))]
    cases = [(task, shots) for task in wanted for shots in CASES[task][1]]
    golden = {"lm_eval": lm_eval.__version__, "bootstrap": BOOTSTRAP, "cases": evaluate(hf_backend(str(model)), rows.resolve(), cases)}
    (args.out / "golden.json").write_text(json.dumps(golden, ensure_ascii=False, indent=0) + "\n")


if __name__ == "__main__":
    main()
