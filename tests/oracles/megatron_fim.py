"""Goldens of fill in the middle: python tests/oracles/megatron_fim.py PATH/fim_dataset.py > index/tests/data/fim.json

PATH is Megatron-LM's megatron/training/datasets (main, d98e8a6); needs numpy. The class is executed with a toy tokenizer
(a token is one to three equal letters, a letter is one token) and a generator that records its draws.
"""
import json, sys
import numpy as np

text = open(sys.argv[1]).read()
text = text[text.index("class GPTFIMDataset(GPTDataset):"):]
space = {"np": np, "GPTDataset": object, "IndexedDataset": None, "Split": None, "GPTFIMDatasetConfig": None, **vars(__import__("typing"))}
exec(text, space)
FIM = space["GPTFIMDataset"]


class Letters:
    def ids_to_text(self, ids, remove_special_tokens):
        return "".join(chr(97 + t % 26) * (1 if 30 <= t < 56 else 1 + t % 3) for t in map(int, ids) if t >= 10)

    def text_to_ids(self, s):
        return [30 + (ord(c) - 97 + 26 - 4) % 26 for c in s]


class Recorder:
    def __init__(self, seed):
        self.rng, self.draws = np.random.RandomState(seed), []

    def binomial(self, n, p):
        self.draws.append(int(self.rng.binomial(n, p)))
        return self.draws[-1]

    def randint(self, low, high, size):
        out = self.rng.randint(low=low, high=high, size=size)
        self.draws += map(int, out)
        return out


cases = []
for i in range(48):
    rng = np.random.RandomState(1000 + i)
    sample = rng.randint(10, 90, size=rng.randint(1, 60))
    sample[rng.random_sample(len(sample)) < (0, 0.05, 0.2)[i % 3]] = 0
    split = 77 if i % 4 == 3 else None
    if split:
        sample[rng.random_sample(len(sample)) < 0.15] = split
    d = FIM.__new__(FIM)
    d.np_rng = Recorder(i)
    d.fim_rate, d.fim_spm_rate, d.fragment_fim_rate = (0.5, 1.0)[i % 2], (0.0, 0.5, 1.0)[i % 3], 0.7
    d.no_fim_prefix, d.fim_split_sample = ("a" if i % 5 == 4 else None), split
    d.prefix_tok_id, d.middle_tok_id, d.suffix_tok_id, d.pad_tok_id, d.eod_tok_id = 1, 2, 3, 4, 0
    tokenizer = type("T", (), {"_tokenizer": Letters()})()
    d.config = type("C", (), {"tokenizer": tokenizer})()
    d.shuffle_index, d.sample_index, d.document_index = [0], [(0, 0), (0, len(sample) - 1)], [0]
    d.dataset = type("D", (), {"get": lambda self, *a, **k: sample})()
    out = d._query_document_sample_shuffle_indices(0)[0]
    cases.append({"sample": sample.tolist(), "split": split, "no_prefix": d.no_fim_prefix, "draws": d.np_rng.draws, "out": out.tolist()})
print(json.dumps({"made_by": "tests/oracles/megatron_fim.py", "numpy": np.__version__, "cases": cases}).replace('{"sample"', '\n{"sample"'))
