"""Token datasets: what is read, that it is a view, and that damaged files raise."""

import gc
import pathlib
import pickle
import struct

import numpy as np
import pytest
from conftest import GOLDEN, toy, write_dataset

import millrace


def address(array):
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "uint16", "int32", "int64", "float32", "float64"])
def test_sequences_are_what_was_written(tmp_path, dtype):
    sequences = [[1, 2, 3], [], [4], [5, 6]]
    ds = millrace.IndexedDataset(write_dataset(tmp_path / "x", sequences, dtype))
    assert len(ds) == 4 and ds.documents == 4 and ds.dtype == np.dtype(dtype)
    assert [s.tolist() for s in ds] == sequences
    assert [s.tolist() for s in ds[1:3]] == sequences[1:3] and [s.tolist() for s in ds[::-2]] == sequences[::-2]
    assert ds[-1].tolist() == [5, 6] and ds[np.int64(2)].tolist() == [4]
    assert ds.sequence_lengths.tolist() == [3, 0, 1, 2]
    assert ds.sequence_pointers.tolist() == [n * ds.dtype.itemsize for n in (0, 3, 3, 4)]
    assert ds.get(0, 1).tolist() == [2, 3] and ds.get(0, 1, 1).tolist() == [2] and ds.get(0, 3).tolist() == []
    assert ds.modes is None


def test_documents_of_several_sequences_and_modes_are_read(tmp_path):
    sequences = [[1, 2], [3], [4, 5, 6], [7]]
    prefix = write_dataset(tmp_path / "x", sequences, "int32", documents=[0, 2, 2, 4], modes=[0, 1, 0, 1])
    ds = millrace.IndexedDataset(prefix)
    assert ds.documents == 3 and ds.document_indices.tolist() == [0, 2, 2, 4]
    assert [ds.document(i).tolist() for i in range(3)] == [[1, 2, 3], [], [4, 5, 6, 7]]
    assert ds.document_lengths.tolist() == [3, 0, 4] and ds.modes.tolist() == [0, 1, 0, 1]


def test_arrays_are_read_only_views_that_keep_the_map_alive(tmp_path):
    ds = millrace.IndexedDataset(write_dataset(tmp_path / "x", toy(0, 100)))
    first, again = ds[7], ds[7]
    assert address(first) == address(again) and address(ds[8]) == address(first) + first.nbytes
    assert address(ds.document(7)) == address(first) == address(ds.tokens) + int(ds.sequence_pointers[7])
    for array in (first, ds.document(7), ds.tokens, ds.sequence_lengths, ds.sequence_pointers, ds.document_indices):
        assert not array.flags.owndata and not array.flags.writeable and array.base is not None
        with pytest.raises(ValueError):
            array[0] = 1
        with pytest.raises(ValueError):
            array.flags.writeable = True
    wanted = toy(0, 100)[7]
    del ds, again
    gc.collect()
    assert first.tolist() == wanted


@pytest.mark.skipif(not pathlib.Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
def test_opening_and_reading_little_of_a_large_file_takes_little_memory(tmp_path):
    def private_bytes():
        # pages of files that are mapped are shared
        resident, shared = map(int, pathlib.Path("/proc/self/statm").read_text().split()[1:3])
        return (resident - shared) * 4096, resident * 4096

    tokens = 64 << 20
    prefix = write_dataset(tmp_path / "x", [np.zeros(tokens, np.uint16)])
    gc.collect()
    before, resident = private_bytes()
    ds = millrace.IndexedDataset(prefix)
    assert len(ds[0]) == tokens and ds.get(0, tokens - 5).tolist() == [0] * 5
    after, resident_after = private_bytes()
    assert resident_after - resident < 16 << 20, "opening reads the file"
    assert int(ds[0].sum()) == 0
    assert private_bytes()[0] - before < 16 << 20, "reading copies the file"


def test_a_dataset_without_tokens_and_one_without_sequences_open(tmp_path):
    assert [s.tolist() for s in millrace.IndexedDataset(write_dataset(tmp_path / "a", [[], []]))] == [[], []]
    none = millrace.IndexedDataset(write_dataset(tmp_path / "b", []))
    assert len(none) == 0 and none.documents == 0 and none[:] == []


def test_a_pickled_dataset_is_opened_again(tmp_path):
    ds = millrace.IndexedDataset(write_dataset(tmp_path / "x", [[1, 2]]))
    assert pickle.loads(pickle.dumps(ds))[0].tolist() == [1, 2]


def test_places_outside_raise_index_errors(tmp_path):
    ds = millrace.IndexedDataset(write_dataset(tmp_path / "x", [[1, 2], [3]]))
    calls = [(2,), (-3,), (0, 3), (0, -1), (0, 1, 2), (0, 0, -1), (0, 2**62, 2**62)]
    for call in calls:
        with pytest.raises(IndexError):
            ds.get(*call)
    with pytest.raises(IndexError, match="document 2: found 2"):
        ds.document(2)
    with pytest.raises(TypeError):
        ds["0"]


def test_missing_files_raise_file_not_found(tmp_path):
    prefix = write_dataset(tmp_path / "x", [[1]])
    with pytest.raises(FileNotFoundError, match="none.idx"):
        millrace.IndexedDataset(tmp_path / "none")
    pathlib.Path(prefix + ".bin").unlink()
    with pytest.raises(FileNotFoundError, match="x.bin"):
        millrace.IndexedDataset(prefix)


def test_an_index_that_is_cut_anywhere_raises(tmp_path):
    prefix = write_dataset(tmp_path / "x", [[1, 2], [3]])
    whole = pathlib.Path(prefix + ".idx").read_bytes()
    for n in range(len(whole)):
        pathlib.Path(prefix + ".idx").write_bytes(whole[:n])
        with pytest.raises(ValueError, match=r"x\.idx.*found.*wanted"):
            millrace.IndexedDataset(prefix)


@pytest.mark.parametrize(
    "at, kind, value",
    [
        (0, "<B", 0),  # magic
        (9, "<Q", 2),  # version
        (17, "<B", 9),  # token type
        (17, "<B", 4),  # another width
        (18, "<Q", 3),  # sequences
        (18, "<Q", 2**61),
        (26, "<Q", 2),  # documents
        (26, "<Q", 2**64 - 1),
        (34, "<i", -1),  # lengths
        (34, "<i", 2**31 - 1),
        (42, "<q", 2),  # pointers
        (50, "<q", -4),
        (58, "<q", 1),  # documents' boundaries
        (66, "<q", 5),
        (74, "<q", 1),
    ],
)
def test_an_index_with_a_wrong_number_raises(tmp_path, at, kind, value):
    prefix = write_dataset(tmp_path / "x", [[1, 2], [3]])
    index = bytearray(pathlib.Path(prefix + ".idx").read_bytes())
    struct.pack_into(kind, index, at, value)
    pathlib.Path(prefix + ".idx").write_bytes(index)
    with pytest.raises(ValueError, match=r"x\.(idx|bin).*found.*wanted"):
        millrace.IndexedDataset(prefix)


@pytest.mark.parametrize("size", [0, 5, 7, 600])
def test_tokens_of_another_size_than_the_index_says_raise(tmp_path, size):
    prefix = write_dataset(tmp_path / "x", [[1, 2], [3]])
    pathlib.Path(prefix + ".bin").write_bytes(bytes(size))
    with pytest.raises(ValueError, match=rf"x\.bin.*found {size} bytes, wanted 6 bytes"):
        millrace.IndexedDataset(prefix)


def test_megatron_reads_the_same_sequences_and_documents(toys, tmp_path):
    indexed = pytest.importorskip("megatron.core.datasets.indexed_dataset")
    several = write_dataset(tmp_path / "x", [[1, 2], [3], [], [4]], "int32", documents=[0, 2, 4])
    for prefix in [*toys.values(), several]:
        ours, theirs = millrace.IndexedDataset(prefix), indexed.IndexedDataset(prefix)
        assert len(ours) == len(theirs) and ours.dtype == theirs.index.dtype
        np.testing.assert_array_equal(ours.document_indices, theirs.document_indices)
        np.testing.assert_array_equal(ours.sequence_lengths, theirs.sequence_lengths)
        np.testing.assert_array_equal(ours.sequence_pointers, theirs.index.sequence_pointers)
        for i in range(len(ours)):
            np.testing.assert_array_equal(ours[i], theirs[i])
        longest = int(ours.sequence_lengths.argmax())
        np.testing.assert_array_equal(ours.get(longest, 1, 1), theirs.get(longest, 1, 1))


def test_the_toys_are_those_of_the_golden_file(toys):
    assert {name: len(millrace.IndexedDataset(p)) for name, p in toys.items()} == {
        name: of["documents"] for name, of in GOLDEN["files"].items()
    }
