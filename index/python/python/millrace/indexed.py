"""Token datasets in Megatron's format (MMIDIDX), mapped into memory."""

from __future__ import annotations

import mmap
import operator
import os
from typing import Iterator, List, Optional, Union, overload

import numpy as np

from millrace import native

# Layout of the ``.idx``: index/docs/format.md.
_HEADER_BYTES = 34


class IndexedDataset:
    """The sequences of ``PREFIX.bin`` and ``PREFIX.idx``.

    Opening verifies both files: every length, offset and boundary of the index, and both sizes. All arrays are read-only
    views of the two maps and keep them alive. A file must not be cut while it is mapped: the system ends a process that
    reads behind the new end.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file is damaged, or the two do not belong together; the message has file, found and wanted.
    """

    def __init__(self, prefix: Union[str, os.PathLike[str]]) -> None:
        self.prefix: str = os.fspath(prefix)
        header = native.verify(self.prefix)
        #: NumPy type of a token.
        self.dtype: np.dtype = np.dtype(header.dtype).newbyteorder("<")
        n, documents = header.sequences, header.documents
        index_bytes = _HEADER_BYTES + 12 * n + 8 * (documents + 1) + n * header.has_modes
        index = _map(self.prefix + ".idx", index_bytes)
        self._tokens = np.frombuffer(_map(self.prefix + ".bin", header.tokens * self.dtype.itemsize), self.dtype)
        at = _HEADER_BYTES
        #: int32[sequences], tokens of every sequence.
        self.sequence_lengths: np.ndarray = np.frombuffer(index, "<i4", n, at)
        #: int64[sequences], byte of the ``.bin`` at which every sequence starts.
        self.sequence_pointers: np.ndarray = np.frombuffer(index, "<i8", n, at + 4 * n)
        #: int64[documents + 1], first sequence of every document, and the number of sequences.
        self.document_indices: np.ndarray = np.frombuffer(index, "<i8", documents + 1, at + 12 * n)
        #: int8[sequences], the mode of every sequence, or None if the dataset has no modes.
        self.modes: Optional[np.ndarray] = None
        if header.has_modes:
            self.modes = np.frombuffer(index, "<i1", n, at + 12 * n + 8 * (documents + 1))

    def __len__(self) -> int:
        """Number of sequences."""
        return len(self.sequence_lengths)

    @property
    def documents(self) -> int:
        """Number of documents."""
        return len(self.document_indices) - 1

    @property
    def tokens(self) -> np.ndarray:
        """All tokens of the dataset, one view."""
        return self._tokens

    @property
    def document_lengths(self) -> np.ndarray:
        """int64[documents], tokens of every document."""
        ends = np.zeros(len(self) + 1, np.int64)
        np.cumsum(self.sequence_lengths, out=ends[1:])
        return np.diff(ends[self.document_indices])

    @overload
    def __getitem__(self, i: int) -> np.ndarray: ...
    @overload
    def __getitem__(self, i: slice) -> List[np.ndarray]: ...

    def __getitem__(self, i: Union[int, slice]) -> Union[np.ndarray, List[np.ndarray]]:
        """Tokens of sequence ``i`` as a view; of a slice a list of views."""
        if isinstance(i, slice):
            return [self.get(k) for k in range(*i.indices(len(self)))]
        return self.get(i)

    def __iter__(self) -> Iterator[np.ndarray]:
        """Every sequence in order."""
        return (self.get(i) for i in range(len(self)))

    def get(self, i: int, offset: int = 0, length: Optional[int] = None) -> np.ndarray:
        """Tokens ``offset`` to ``offset + length`` of sequence ``i`` as a view; without a length all from ``offset`` on.

        Raises:
            IndexError: there is no such sequence, or it has fewer tokens.
        """
        i = _place("sequence", i, len(self))
        tokens = int(self.sequence_lengths[i])
        offset = operator.index(offset)
        length = tokens - offset if length is None else operator.index(length)
        if offset < 0 or length < 0 or offset + length > tokens:
            raise IndexError(
                f"{self.prefix}: tokens {offset} to {offset + length} of sequence {i}: found {tokens} tokens"
            )
        first = int(self.sequence_pointers[i]) // self.dtype.itemsize + offset
        return self._tokens[first : first + length]

    def document(self, i: int) -> np.ndarray:
        """Tokens of all sequences of document ``i`` as one view.

        Raises:
            IndexError: there is no such document.
        """
        i = _place("document", i, self.documents)
        first, last = int(self.document_indices[i]), int(self.document_indices[i + 1])
        if first == last:
            return self._tokens[:0]
        start = int(self.sequence_pointers[first]) // self.dtype.itemsize
        return self._tokens[start : start + int(self.sequence_lengths[first:last].sum(dtype=np.int64))]

    def __reduce__(self) -> tuple:
        # a worker process maps the files again
        return (type(self), (self.prefix,))

    def __repr__(self) -> str:
        return (
            f"IndexedDataset({self.prefix!r}: {self.documents} documents, {len(self)} sequences, "
            f"{len(self._tokens)} tokens, {self.dtype.name})"
        )


def _place(what: str, i: int, n: int) -> int:
    """``i`` counted from the front; IndexError if it is outside of ``n``."""
    k = operator.index(i)
    if not -n <= k < n:
        raise IndexError(f"{what} {k}: found {n} of them")
    return k % n


def _map(path: str, size: int) -> Union[mmap.mmap, bytes]:
    """A read-only map of a file that must have ``size`` bytes."""
    with open(path, "rb") as file:
        found = os.fstat(file.fileno()).st_size
        if found != size:
            raise ValueError(f"{path}: found {found} bytes, wanted {size}: the file changed while it was opened")
        # an empty file cannot be mapped
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
