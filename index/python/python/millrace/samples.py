"""Training samples in Megatron's order, by the code that Millrace's trainer uses."""

from __future__ import annotations

import os
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, Type, Union, overload

import numpy as np

from millrace import native
from millrace.indexed import IndexedDataset, _place

Path = Union[str, "os.PathLike[str]"]


class Samples:
    """One part of a blend of datasets. ``GPTDataset``, ``BlendedDataset`` and ``Run.samples`` make it.

    A sample has ``seq_length`` tokens and, unless ``extra_token`` is off, one more. ``ds[k]`` is a read-only view of the
    mapped ``.bin`` if the sample lies in one document, and a copy if it spans several.
    """

    def __init__(self, settings: Dict[str, Any], pad: int = 0) -> None:
        self._settings, self._pad = settings, pad
        self._blend = native.build(settings)
        #: The datasets, in the order of their numbers.
        self.datasets: List[IndexedDataset] = [IndexedDataset(p) for p in settings["prefixes"]]
        #: Tokens of a sample without the extra one.
        self.seq_length: int = settings["seq_length"]
        #: Tokens of ``ds[k]``.
        self.sample_tokens: int = self._blend.sample_tokens

    def __len__(self) -> int:
        """Number of samples, at least as many as were asked for."""
        return len(self._blend)

    @property
    def weights(self) -> List[float]:
        """Shares of the datasets, as Megatron normalises them."""
        return self._blend.weights

    @overload
    def __getitem__(self, k: int) -> np.ndarray: ...
    @overload
    def __getitem__(self, k: slice) -> List[np.ndarray]: ...

    def __getitem__(self, k: Union[int, slice]) -> Union[np.ndarray, List[np.ndarray]]:
        """Tokens of sample ``k``; of a slice a list.

        A sample with which the data ends (``drop_last`` off) is filled up with ``pad``.

        Raises:
            IndexError: there is no such sample.
        """
        if isinstance(k, slice):
            return [self._read(i) for i in range(*k.indices(len(self)))]
        return self._read(_place("sample", k, len(self)))

    def _read(self, k: int) -> np.ndarray:
        number, pieces = self._blend.pieces(k)
        dataset = self.datasets[number]
        views = [dataset.get(p["sequence"], p["offset"], p["length"]) for p in pieces]
        missing = self.sample_tokens - sum(map(len, views))
        if len(views) == 1 and not missing:
            return views[0]
        if missing:
            views.append(np.full(missing, self._pad, dataset.dtype))
        return np.concatenate(views)

    def __iter__(self) -> Iterator[np.ndarray]:
        """Every sample in order."""
        return (self._read(k) for k in range(len(self)))

    def place(self, k: int) -> Tuple[int, int]:
        """Number of the dataset of sample ``k``, and of the sample in that dataset."""
        return self._blend.place(_place("sample", k, len(self)))

    def pieces(self, k: int) -> List[native.Piece]:
        """Sequences, offsets and lengths that make up sample ``k``; padding has none."""
        return self._blend.pieces(_place("sample", k, len(self)))[1]

    @property
    def dataset_index(self) -> np.ndarray:
        """int16, the dataset of every sample, a copy; empty if a lone dataset is used without mixing."""
        return np.frombuffer(self._blend.dataset_index(), "<i2")

    @property
    def dataset_sample_index(self) -> np.ndarray:
        """int64, the number of every sample in its dataset, a copy; empty as ``dataset_index`` is."""
        return np.frombuffer(self._blend.dataset_sample_index(), "<i8")

    def index_arrays(self, dataset: int = 0) -> Dict[str, np.ndarray]:
        """Megatron's ``document_index``, ``sample_index`` and ``shuffle_index`` of a dataset, copies."""
        arrays = self._blend.arrays(dataset)
        starts = np.frombuffer(arrays.sample_index, "<i8" if arrays.has_wide_starts else "<i4")
        return {
            "document_index": np.frombuffer(arrays.document_index, "<i4"),
            "sample_index": starts.reshape(-1, 2),
            "shuffle_index": np.frombuffer(arrays.shuffle_index, "<i8" if arrays.has_wide_places else "<u4"),
        }

    def __reduce__(self) -> tuple:
        # a worker process maps the files and builds the order again
        return (_again, (type(self), self._settings, self._pad))


def _again(cls: Type[Samples], settings: Dict[str, Any], pad: int) -> Samples:
    samples = cls.__new__(cls)
    Samples.__init__(samples, settings, pad)
    return samples


class GPTDataset(Samples):
    """Samples of one dataset, as megatron-core's ``GPTDataset`` of a lone path without a weight.

    Args:
        prefix: path without ``.bin`` and ``.idx``.
        seq_length: tokens of a sample, without the extra one.
        num_samples: samples to make, from as many epochs as they need; None for one epoch.
        seed: seed of the shuffles.
        split: ratios of train, valid and test, such as ``949,50,1``; None for the whole dataset.
        part: ``train``, ``valid`` or ``test``.
        extra_token: a sample has one token more, the last target.
        drop_last: tokens that do not fill a last validation sample are left out; else it is filled up with ``pad``.
        pad: the id of the filling.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file is damaged, or a setting cannot be met.
    """

    def __init__(
        self,
        prefix: Path,
        seq_length: int,
        num_samples: Optional[int] = None,
        *,
        seed: int = 1234,
        split: Optional[str] = None,
        part: str = "train",
        extra_token: bool = True,
        drop_last: bool = True,
        pad: int = 0,
    ) -> None:
        settings = _settings([prefix], [1.0], seq_length, num_samples, seed)
        settings.update(weighed=False, split=split, part=part, extra_token=extra_token, drop_last=drop_last)
        super().__init__(settings, pad)


class BlendedDataset(Samples):
    """Samples of several datasets by weight, as megatron-core's ``BlendedDataset``.

    Args:
        prefixes: paths without ``.bin`` and ``.idx``.
        weights: positive numbers of any scale, one for every dataset. None takes one epoch of each at most, in proportion
            to its samples.
        seq_length: tokens of a sample, without the extra one.
        num_samples: samples to make; None for every sample of one epoch of each dataset.
        seed: seed of the shuffles.
        split: ratios of train, valid and test; None for whole datasets.
        part: ``train``, ``valid`` or ``test``.
        surplus: samples built of each dataset beyond those planned, as a share. Megatron's default.
        extra_token, drop_last, pad: as in ``GPTDataset``.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file is damaged, or a setting cannot be met; all problems in one message.
    """

    def __init__(
        self,
        prefixes: Sequence[Path],
        weights: Optional[Sequence[float]],
        seq_length: int,
        num_samples: Optional[int] = None,
        *,
        seed: int = 1234,
        split: Optional[str] = None,
        part: str = "train",
        surplus: float = 0.005,
        extra_token: bool = True,
        drop_last: bool = True,
        pad: int = 0,
    ) -> None:
        given = [1.0] * len(prefixes) if weights is None else [float(w) for w in weights]
        settings = _settings(prefixes, given, seq_length, num_samples, seed)
        settings.update(weighed=weights is not None, split=split, part=part, surplus=surplus)
        settings.update(extra_token=extra_token, drop_last=drop_last)
        if weights is None:
            settings["mixture"] = "proportional"
        super().__init__(settings, pad)


def _settings(
    prefixes: Sequence[Path], weights: Sequence[float], seq_length: int, samples: Optional[int], seed: int
) -> Dict[str, Any]:
    """A request with the defaults of a job's ``[blend]``; ValueError for numbers that cannot be meant."""
    if not prefixes or len(prefixes) != len(weights):
        raise ValueError(f"weights: found {len(weights)} for {len(prefixes)} datasets, wanted one for each of one or more")
    for key, found, most in (("seq_length", seq_length, 2**31 - 1), ("num_samples", samples, 2**63 - 1)):
        if found is not None and not 1 <= found <= most:
            raise ValueError(f"{key}: found {found}, wanted 1 to {most}")
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed: found {seed}, wanted 0 to {2**32 - 1}")
    return {
        "part": "train",
        "prefixes": [os.fspath(p) for p in prefixes],
        "weights": list(weights),
        "weighed": True,
        "split": None,
        "mixture": "weighted",
        "samples": samples,
        "seq_length": seq_length,
        "seed": seed,
        "surplus": 0.005,
        "max_epochs": 0.0,
        "above_cap": "refuse",
        "even_batches": None,
        "extra_token": True,
        "drop_last": True,
    }
