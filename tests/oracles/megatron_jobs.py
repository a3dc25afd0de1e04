"""Samples of jobs: python tests/oracles/megatron_jobs.py MEGATRON_LM > tests/data/megatron_jobs.json

Needs torch, numpy, tokenizers 0.23.3, megatron-core 0.16.1 and a checkout of Megatron-LM (d98e8a6), whose
`megatron/training/datasets/fim_dataset.py` is the class for fill in the middle: megatron-core has none. Plain samples come from
BlendedMegatronDatasetBuilder with GPTDataset, on the toy datasets of `megatron_samples.py`. Samples with fill in the middle come
from GPTFIMDataset on `tests/data/preprocess/documents.jsonl`; its generator is replaced by the counter that
`index/src/samples/fim.rs` describes, SplitMix64 keyed by (seed, sample), as Megatron's own stream depends on what was read
before. A token that pads is 2^32 - 1.
"""
import importlib.util, json, logging, os, sys, tempfile, warnings

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
import megatron.core
import numpy as np
import tokenizers
import torch
from megatron.core.datasets.blended_dataset import BlendedDataset
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder, get_bin_path, get_idx_path
from megatron.core.datasets.utils import Split

torch.distributed.get_rank = lambda *a, **k: 0
spec = importlib.util.spec_from_file_location("fim", sys.argv[1] + "/megatron/training/datasets/fim_dataset.py")
fim = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fim)
here = os.path.dirname(os.path.abspath(__file__))
inputs = here + "/../data/preprocess/"
os.chdir(tempfile.mkdtemp())
MASK = (1 << 64) - 1
STEP = 0x9E3779B97F4A7C15
FIM = ["<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<fim_pad>"]


def mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


class Counter:
    def __init__(self, seed, sample):
        self.key, self.n = mix(mix((seed + STEP) & MASK) ^ mix((sample * STEP) & MASK)), 0

    def draw(self):
        self.n += 1
        return mix((self.key + self.n * STEP) & MASK)

    def binomial(self, n, p):
        return int((self.draw() >> 11) < p * 2.0**53)

    def randint(self, low, high, size):
        return [low + ((self.draw() * (high - low)) >> 64) for _ in range(size)]


class Toy:
    special_tokens_dict = {}
    unique_identifiers = {"class": "Toy"}
    eod, eos, vocab_size, pad = 0, 0, 1000, -1


class Texts:
    """A file of the tokenizers library, as Megatron's classes ask for it."""

    unique_identifiers = {"class": "Texts"}
    eod, eos, vocab_size, pad = 0, 0, 604, -1

    def __init__(self):
        file = json.load(open(inputs + "tokenizer.json"))
        flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
        file["added_tokens"] += [dict(id=600 + i, content=name, **flags) for i, name in enumerate(FIM)]
        self.library, self._tokenizer = tokenizers.Tokenizer.from_str(json.dumps(file)), self

    def tokens_to_ids(self, names):
        return self.library.token_to_id(names) if isinstance(names, str) else [self.library.token_to_id(n) for n in names]

    def ids_to_text(self, ids, remove_special_tokens):
        return self.library.decode([int(i) for i in ids], skip_special_tokens=remove_special_tokens)

    def text_to_ids(self, text):
        return self.library.encode(text, add_special_tokens=False).ids


def write(name, documents):
    builder = IndexedDatasetBuilder(get_bin_path(name), dtype=np.uint16)
    for tokens in documents:
        builder.add_document(torch.tensor(tokens), [len(tokens)])
    builder.finalize(get_idx_path(name))


def toy(seed, n):
    lengths = map(int, np.random.RandomState(seed).randint(1, 40, size=n))
    return [[(31 * i + 7 * j + seed) % 997 + 1 for j in range(length - 1)] + [0] for i, length in enumerate(lengths)]


write("a", toy(1, 400))
write("b", toy(2, 300))
texts = Texts()
# the dataset is as the job writes it: names of special tokens in a text are text
texts.library.encode_special_tokens = True
encoded = [texts.text_to_ids(json.loads(line)["text"]) for line in open(inputs + "documents.jsonl")]
# as preprocess_data.py has it, an empty text is no sequence
write("x", [ids + [0] for ids in encoded if ids])
texts.library.encode_special_tokens = False


def samples(d, count, seed):
    out = []
    for k in range(min(count, len(d))):
        below, i, n = (d, k, 0)
        if isinstance(d, BlendedDataset):
            n, i = int(d.dataset_index[k]), int(d.dataset_sample_index[k])
            below = d.datasets[n]
        below.np_rng = Counter(seed, i)
        tokens = below._query_document_sample_shuffle_indices(i)[0]
        out.append({"dataset": n, "tokens": [int(t) % 2**32 for t in tokens]})
    return out


cases = []


def case(name, sets, blend, sizes, part, count, datasets, kind=GPTDataset, of=GPTDatasetConfig, **more):
    # a cache of its own: Megatron does not tell its arrays of one key from those of another
    seed = 1234
    config = of(random_seed=seed, reset_position_ids=False, reset_attention_mask=False, eod_mask_loss=False,
                create_attention_mask=False, path_to_cache=tempfile.mkdtemp(), **{"tokenizer": Toy(), "sequence_length": 16, **blend, **more})
    built = BlendedMegatronDatasetBuilder(kind, sizes, lambda: True, config).build()
    d = built[Split[part].value]
    cases.append({"name": name, "sets": sets, "datasets": datasets, "part": part, "len": len(d), "samples": samples(d, count, seed)})


lone = dict(blend=(["a"], None), split="80,10,10")
both = dict(blend=(["a", "b"], [0.3, 0.7]), split="80,20,0")
keep, short = dict(drop_last_partial_validation_sequence=False), dict(add_extra_token_to_sequence=False)
steps, full = ["train.steps=500"], ["blend.full_validation=true"]
NO_X, PARTIAL = "blend.add_extra_token_to_sequence=false", "blend.drop_last_partial_validation_sequence=false"
case("as they are", steps, lone, [1000, 4, 0], "train", 30, "lone")
case("without the extra token", steps + [NO_X], lone, [1000, 4, 0], "train", 30, "lone", **short)
case("a blend without the extra token", steps + [NO_X], both, [1000, 4, 0], "train", 30, "both", **short)
case("full validation", steps + full, lone, [1000, None, 0], "valid", 100, "lone")
case("full validation with its last sample", steps + full + [PARTIAL], lone, [1000, None, 0], "valid", 100, "lone", **keep)
case("full validation without the extra token", steps + full + [PARTIAL, NO_X], lone, [1000, None, 0], "valid", 100, "lone", **keep, **short)


def middle(name, sets, sizes, rate, spm, **more):
    extra = dict(prefix=FIM[0], middle=FIM[1], suffix=FIM[2], pad=FIM[3], eod="<|endoftext|>")
    blend = dict(blend=(["x"], None), split="90,10,0")
    case(name, sets, blend, sizes, "train", 25, "texts", fim.GPTFIMDataset, fim.GPTFIMDatasetConfig, tokenizer=texts, sequence_length=64,
         fim_rate=rate, fim_spm_rate=spm, fim_extra_tokens=extra, **more)


middle("fill in the middle", ["blend.fim={ rate = 0.9, spm_rate = 0.5 }"], [4, 0, 0], 0.9, 0.5)
middle("always, suffix first", ["blend.fim={ rate = 1.0, spm_rate = 1.0 }"], [4, 0, 0], 1.0, 1.0)
middle("fragments of lines, none that starts with a letter", [
    "blend.fim={ rate = 0.8, spm_rate = 0.3, split_sample = '\u010a', fragment_rate = 0.7, no_prefix = 'T' }"
], [4, 0, 0], 0.8, 0.3, fim_split_sample="\u010a", fim_fragment_rate=0.7, fim_no_prefix="T")
print(json.dumps({
    "made_by": "tests/oracles/megatron_jobs.py", "megatron_core": megatron.core.__version__, "numpy": np.__version__,
    "torch": torch.__version__, "tokenizers": tokenizers.__version__, "cases": cases}).replace('{"name"', '\n{"name"'))
