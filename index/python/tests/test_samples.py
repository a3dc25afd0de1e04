"""Samples and blends in Megatron's order, by the golden hashes of tests/data/megatron_samples.json."""

import hashlib
import pickle

import numpy as np
import pytest
from conftest import GOLDEN, toy, write_dataset

import millrace

PARTS = ["train", "valid", "test"]


def sha(*arrays):
    h = hashlib.sha256()
    for a in arrays:
        h.update(np.ascontiguousarray(a).tobytes())
    return h.hexdigest()[:32]


def opened(toys, case, part):
    """The part of a case, or None if the case has none."""
    at = PARTS.index(part)
    names, weights = case["datasets"], case["weights"]
    if case["per_split"] is not None:
        if case["per_split"][at] is None:
            return None
        names, weights = case["per_split"][at]
    if case["samples"][at] == 0:
        return None
    more = {"seed": case["seed"], "split": case["split"], "part": part, "extra_token": case["extra_token"]}
    # Megatron leaves tokens out of validation samples alone
    more["drop_last"] = case["drop_last"]
    if len(names) == 1 and weights is None:
        return millrace.GPTDataset(toys[names[0]], case["seq_length"], case["samples"][at], **more)
    prefixes = [toys[n] for n in names]
    return millrace.BlendedDataset(
        prefixes, weights, case["seq_length"], case["samples"][at], surplus=case["surplus"], **more
    )


@pytest.mark.parametrize("number", range(len(GOLDEN["cases"])))
def test_order_and_tokens_are_megatrons(toys, number):
    case = GOLDEN["cases"][number]
    if case.get("refused"):
        with pytest.raises(ValueError, match="samples of a dataset.*found.*wanted"):
            for part in PARTS:
                opened(toys, case, part)
        return
    for part, golden in case["parts"].items():
        ds = opened(toys, case, part)
        assert len(ds) == golden["len"]
        arrays = [ds.dataset_index, ds.dataset_sample_index] if golden["mixed"] else []
        for d in range(len(ds.datasets)):
            arrays += ds.index_arrays(d).values()
        assert sha(*arrays) == golden["index"], part
        plain = not any(case[k] for k in ("eod_mask", "positions", "attention", "mask"))
        if not (plain and case["extra_token"] and case["drop_last"] and case["pad"] == -1):
            continue
        items, n = [], case["seq_length"]
        for k in sorted({0, 1, 2, len(ds) // 2, len(ds) - 1}):
            if k < len(ds):
                text = ds[k].astype(np.int64)
                items += [text[:-1], text[1:], np.ones(n, np.int64), np.arange(n)]
        assert sha(*items) == golden["items"], part


def test_a_sample_in_one_document_is_a_view_and_one_across_documents_a_copy(toys):
    ds = millrace.GPTDataset(toys["a"], 4)
    tokens = ds.datasets[0].tokens
    first, end = (tokens.__array_interface__["data"][0] + n for n in (0, tokens.nbytes))
    views = 0
    for k in range(len(ds)):
        sample, pieces = ds[k], ds.pieces(k)
        is_view = first <= sample.__array_interface__["data"][0] < end
        assert is_view == (len(pieces) == 1) and sample.flags.writeable == (not is_view)
        spelled = [t for p in pieces for t in ds.datasets[0].get(p["sequence"], p["offset"], p["length"])]
        assert len(sample) == ds.sample_tokens == 5 and sample.tolist() == spelled
        views += is_view
    assert 0 < views < len(ds)


def test_every_token_of_an_epoch_is_in_one_sample(tmp_path):
    documents = [[10 * i + j for j in range(6)] for i in range(7)]
    ds = millrace.GPTDataset(write_dataset(tmp_path / "x", documents), 7, extra_token=False)
    assert len(ds) == 6
    assert sorted(t for sample in ds for t in sample.tolist()) == sorted(sum(documents, []))


def test_the_last_validation_sample_is_padded_if_it_is_kept(tmp_path):
    prefix = write_dataset(tmp_path / "x", [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]])
    ds = millrace.GPTDataset(prefix, 4, part="valid", split="0,1", drop_last=False, extra_token=False, pad=99)
    assert len(ds) == 3
    padded = [s.tolist() for s in ds if 99 in s]
    assert len(padded) == 1 and padded[0][2:] == [99, 99]


def test_samples_are_the_same_after_pickling(toys):
    for ds in (
        millrace.GPTDataset(toys["a"], 16, 50),
        millrace.BlendedDataset([toys["a"], toys["b"]], [1, 2], 16, 50),
    ):
        again = pickle.loads(pickle.dumps(ds))
        assert type(again) is type(ds) and [s.tolist() for s in again] == [s.tolist() for s in ds]


def test_indices_and_slices_count_as_those_of_lists(toys):
    ds = millrace.GPTDataset(toys["b"], 16, 50)
    assert ds[-1].tolist() == ds[len(ds) - 1].tolist() and ds.place(-1) == (0, len(ds) - 1)
    assert [s.tolist() for s in ds[3:9:2]] == [ds[k].tolist() for k in (3, 5, 7)]
    for k in (len(ds), -len(ds) - 1):
        with pytest.raises(IndexError):
            ds[k]
    with pytest.raises(IndexError):
        ds.index_arrays(1)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"seq_length": 0}, "seq_length: found 0, wanted 1 to"),
        ({"num_samples": -1}, "num_samples: found -1"),
        ({"seed": 2**32}, "seed: found"),
        ({"split": "a"}, "split"),
        ({"split": "1,0,0", "part": "test"}, "found no test samples"),
        ({"part": "dev"}, "part: found .dev., wanted train, valid or test"),
        ({"weights": [1.0]}, "weights: found 1 for 2 datasets"),
        ({"weights": [1.0, -1.0]}, "weight"),
        ({"weights": [1.0, float("nan")]}, "weight"),
        ({"surplus": -1.0}, "surplus"),
    ],
)
def test_wrong_settings_raise(toys, change, message):
    settings = {"prefixes": [toys["a"], toys["b"]], "weights": [1.0, 1.0], "seq_length": 16, "num_samples": 10}
    with pytest.raises(ValueError, match=message):
        millrace.BlendedDataset(**{**settings, **change})


def test_every_file_that_is_missing_or_damaged_is_named(toys, tmp_path):
    bad = write_dataset(tmp_path / "bad", toy(0, 3))
    with open(bad + ".bin", "ab") as file:
        file.write(b"x")
    with pytest.raises(ValueError) as e:
        millrace.BlendedDataset([tmp_path / "none", toys["a"], bad], None, 16, 10)
    assert "none.idx" in str(e.value) and "bad.bin" in str(e.value)
    with pytest.raises(FileNotFoundError, match="none.idx"):
        millrace.GPTDataset(tmp_path / "none", 16)
    floats = write_dataset(tmp_path / "floats", [[1.0, 2.0]], "float32")
    with pytest.raises(ValueError, match="found float32, wanted an integer type"):
        millrace.GPTDataset(floats, 1)
    empty = write_dataset(tmp_path / "empty", [[]])
    with pytest.raises(ValueError, match="0 tokens"):
        millrace.GPTDataset(empty, 4, 10)
