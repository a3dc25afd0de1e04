"""The toy datasets of tests/data/megatron_samples.json, written without Millrace and compared with Megatron's bytes."""

import hashlib
import json
import os
import pathlib

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
GOLDEN = json.loads((ROOT / "tests/data/megatron_samples.json").read_text())
CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "float64": 6, "float32": 7, "uint16": 8}


def write_dataset(prefix, sequences, dtype="uint16", documents=None, modes=None):
    """Both files of a dataset by index/docs/format.md; without ``documents`` every sequence is one."""
    lengths = np.array([len(s) for s in sequences], "<i4")
    width = np.dtype(dtype).itemsize
    pointers = np.concatenate([[0], np.cumsum(lengths.astype("<i8"))[:-1] * width])[: len(lengths)].astype("<i8")
    documents = np.arange(len(lengths) + 1) if documents is None else np.array(documents)
    head = b"MMIDIDX\0\0" + np.array([1], "<u8").tobytes() + bytes([CODES[dtype]])
    head += np.array([len(lengths), len(documents)], "<u8").tobytes()
    arrays = [lengths, pointers, documents.astype("<i8")]
    arrays += [] if modes is None else [np.array(modes, "<i1")]
    with open(f"{prefix}.idx", "wb") as file:
        file.write(head + b"".join(a.tobytes() for a in arrays))
    with open(f"{prefix}.bin", "wb") as file:
        file.write(b"".join(np.asarray(s, np.dtype(dtype).newbyteorder("<")).tobytes() for s in sequences))
    return os.fspath(prefix)


def toy(seed, documents):
    """The documents of a toy dataset, by the formula of tests/oracles/megatron_samples.py."""
    lengths = np.random.RandomState(seed).randint(1, 40, size=documents)
    return [
        [(31 * i + 7 * j + seed) % 997 + 1 for j in range(n - 1)] + [0] for i, n in enumerate(map(int, lengths))
    ]


@pytest.fixture(scope="session")
def toys(tmp_path_factory):
    """Prefixes of all toy datasets by name."""
    folder = tmp_path_factory.mktemp("toys")
    prefixes = {}
    for name, of in GOLDEN["files"].items():
        prefixes[name] = write_dataset(folder / name, toy(of["seed"], of["documents"]))
        for suffix in ("idx", "bin"):
            found = hashlib.sha256(pathlib.Path(f"{prefixes[name]}.{suffix}").read_bytes()).hexdigest()[:32]
            assert found == of[suffix], f"{name}.{suffix} is not what Megatron wrote"
    return prefixes
