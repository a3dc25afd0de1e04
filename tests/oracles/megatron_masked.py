"""Golden hashes of Megatron's BERT and T5 datasets: python tests/oracles/megatron_masked.py > tests/data/megatron_masked.json

Needs torch, numpy and megatron-core (pip install torch numpy packaging; pip install --no-deps megatron-core==0.16.1).
One toy dataset of sentences from a formula that the Rust test repeats: R = RandomState(42); document i has R.randint(0, 9)
sentences of R.randint(1, 60) tokens (document 7: one of them 600), token j of sentence s = 10 + (7 s + 13 j) mod 490. Ids
divisible by 3 continue a word. A hash is the first 32 hex digits of SHA-256 over little-endian arrays.
The permutation pass draws from numpy's global stream in Megatron; here that stream is the sample's own, as in Millrace.
"""
import hashlib, json, logging, os, shutil, tempfile, warnings

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
import megatron.core
import numpy as np
import torch
from array_hash import sha
from megatron.core.datasets import bert_dataset, masked_dataset, t5_dataset
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder, get_bin_path, get_idx_path
from megatron.core.datasets.utils import Split

folder = tempfile.mkdtemp()
os.chdir(folder)
torch.distributed.get_rank = lambda *a, **k: 0
latest = None
Original = np.random.RandomState


class RandomState(Original):
    def __init__(self, *a, **k):
        global latest
        super().__init__(*a, **k)
        latest = self


np.random.RandomState = RandomState
np.random.choice = lambda *a, **k: latest.choice(*a, **k)


class Tokenizer:
    special_tokens_dict = {}
    unique_identifiers = {"class": "Toy"}
    cls, sep, mask, bos, eos, eod, vocab_size = 1, 2, 3, 4, 5, 6, 500
    additional_special_tokens_ids = list(range(500, 560))
    inv_vocab = {i: ("##" if i % 3 == 0 else "") + str(i) for i in range(500)}

    def __init__(self, pad):
        self.pad = pad


builder = IndexedDatasetBuilder(get_bin_path("s"), dtype=np.uint16)
R, s = Original(42), 0
for i in range(400):
    count = R.randint(0, 9)
    tokens, lengths = [], []
    for n in range(count):
        length = R.randint(1, 60) if (i, n) != (7, 0) else 600
        tokens += [10 + (7 * s + 13 * j) % 490 for j in range(length)]
        lengths.append(length)
        s += 1
    builder.add_document(torch.tensor(tokens, dtype=torch.int64), lengths)
builder.finalize(get_idx_path("s"))

cases = []


def case(kind, seq, samples, seed, split="80,15,5", pad=0, prob=0.15, short=0.1, ngram=3, word=True, swap=False, longer=False,
         geometric=False, head=True, decoder=64):
    shutil.rmtree("cache", ignore_errors=True)
    common = dict(
        random_seed=seed, sequence_length=seq, blend=(["s"], None), split=split, path_to_cache="cache", tokenizer=Tokenizer(pad),
        masking_probability=prob, short_sequence_probability=short, masking_max_ngram=ngram, masking_do_full_word=word,
        masking_do_permutation=swap, masking_use_longer_ngrams=longer, masking_use_geometric_distribution=geometric)
    if kind == "bert":
        config = bert_dataset.BERTMaskedWordPieceDatasetConfig(classification_head=head, **common)
        cls = bert_dataset.BERTMaskedWordPieceDataset
    else:
        config = t5_dataset.T5MaskedWordPieceDatasetConfig(sequence_length_decoder=decoder, **common)
        cls = t5_dataset.T5MaskedWordPieceDataset
    built = BlendedMegatronDatasetBuilder(cls, samples, lambda: True, config).build()
    out = {"kind": kind, "seq_length": seq, "samples": samples, "seed": seed, "split": split, "pad": pad, "probability": prob,
           "short_probability": short, "max_ngram": ngram, "full_word": word, "permutation": swap, "longer_ngrams": longer,
           "geometric": geometric, "head": head, "decoder": decoder, "parts": {}}
    fields = {"bert": ("text", "types", "labels", "is_random", "padding_mask", "loss_mask", "truncated"),
              "t5": ("text_enc", "text_dec", "labels", "loss_mask", "truncated", "enc_mask", "dec_mask")}[kind]
    for part, d in zip(Split, built):
        if d is None:
            continue
        values = []
        for k in range(min(len(d), 60)):
            item = d[k]
            values += [np.atleast_1d(np.asarray(item[f], dtype=np.int64)) for f in fields]
        out["parts"][part.name] = {
            "len": len(d), "sample_index": sha(np.asarray(d.sample_index)), "dtype": str(d.sample_index.dtype), "items": sha(*values),
            "md5": d.unique_description_hash,
            "npy": hashlib.sha256(open(f"cache/{d.unique_description_hash}-{cls.__name__}-sample_index.npy", "rb").read()).hexdigest()[:32]}
    cases.append(out)


sizes = [500, 40, 10]
for seed in (1234, 1, 2**31 - 2):
    case("bert", 128, sizes, seed)
    case("t5", 128, sizes, seed)
case("bert", 64, sizes, 5, pad=-1)
case("bert", 64, sizes, 5, head=False)
case("bert", 64, [5000, 1, 1], 5, short=0.0)
case("bert", 256, sizes, 9, word=False, ngram=1)
case("bert", 128, sizes, 9, longer=True, ngram=5)
case("bert", 128, sizes, 9, geometric=True, ngram=10)
case("bert", 128, sizes, 9, swap=True)
case("bert", 32, sizes, 3, prob=0.4, short=0.5, pad=7)
case("bert", 512, sizes, 3, split="1,1,1")
case("t5", 64, sizes, 5, pad=-1, decoder=48)
case("t5", 64, [5000, 1, 1], 5, short=0.0)
case("t5", 256, sizes, 9, geometric=True, ngram=10, decoder=128)
case("t5", 128, sizes, 9, longer=True, ngram=2, word=False, decoder=100)
case("t5", 512, sizes, 3, split="1,1,1", prob=0.1, decoder=200)
print(json.dumps({
    "made_by": "tests/oracles/megatron_masked.py", "megatron_core": megatron.core.__version__, "numpy": np.__version__,
    "sentences": s, "idx": hashlib.sha256(open("s.idx", "rb").read()).hexdigest()[:32], "cases": cases}).replace('{"kind"', '\n{"kind"'))
os.chdir("/")
shutil.rmtree(folder)
