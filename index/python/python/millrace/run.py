"""The output folder of a job, finished or running. Files are read as plain JSON and TOML; nothing is locked or written."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict, List, Optional, Tuple, Union

import numpy as np

from millrace.indexed import IndexedDataset
from millrace.samples import Samples, _settings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def open_run(out: Union[str, os.PathLike[str]]) -> Run:
    """Opens the folder that a job writes (its ``out``); it may have been moved.

    Raises:
        OSError: the folder has no readable ``job.toml``.
        ValueError: it is no TOML.
    """
    return Run(out)


class Run:
    """An output folder. Every attribute is read when it is asked for, so a running job shows its present state."""

    def __init__(self, out: Union[str, os.PathLike[str]]) -> None:
        #: The folder.
        self.path: str = os.fspath(out)
        #: The job with every default, as ``job.toml`` has it.
        self.job: Dict[str, Any] = self._toml("job.toml")

    def _file(self, *names: str) -> str:
        return os.path.join(self.path, *names)

    def _toml(self, name: str) -> Dict[str, Any]:
        with open(self._file(name), "rb") as file:
            try:
                return tomllib.load(file)
            except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
                raise ValueError(f"{self._file(name)}: found {e}, wanted TOML") from e

    def _json(self, *names: str) -> Any:
        with open(self._file(*names), encoding="utf-8") as file:
            return _parse(file.read(), self._file(*names))

    @property
    def manifest(self) -> Dict[str, Any]:
        """The record of every finished stage: fingerprint, outputs with checksums, counts, seconds. Empty before the first."""
        return self._json("manifest.json") if os.path.exists(self._file("manifest.json")) else {}

    @property
    def records(self) -> List[Dict[str, Any]]:
        """The records of the curation's finished shards, in their order."""
        folder = self._file("records", "curate")
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        return [self._json("records", "curate", n) for n in names if n.endswith(".json") and not n.startswith(".")]

    @property
    def statistics(self) -> Dict[str, Any]:
        """``statistics.json``: distributions of every figure over the documents.

        Raises:
            OSError: the job has no ``curate.statistics``, or its curation is not done.
        """
        return self._json("statistics.json")

    def histogram(
        self, figure: str, state: str = "kept", source: Optional[str] = None, language: Optional[str] = None
    ) -> Tuple[np.ndarray, np.ndarray]:
        """Lower ends (float64) and numbers of documents (int64) of a figure's histogram in ``statistics``.

        Raises:
            KeyError: there is no such figure of that state, source and language.
        """
        wanted = (figure, state, source, language)
        for row in self.statistics["figures"]:
            if (row["figure"], row["state"], row["source"], row["language"]) == wanted:
                bins = row["histogram"]
                return np.array([b[0] for b in bins], np.float64), np.array([b[1] for b in bins], np.int64)
        raise KeyError(f"{self._file('statistics.json')}: no figure {figure!r} of {state}, {source}, {language}")

    @property
    def metrics(self) -> List[Dict[str, Any]]:
        """The lines of ``metrics.jsonl``; empty before the first step.

        A training that was resumed repeats steps: its later lines replace the earlier ones. A line that is being written
        is left out.
        """
        rows: List[Dict[str, Any]] = []
        if not os.path.exists(self._file("metrics.jsonl")):
            return rows
        with open(self._file("metrics.jsonl"), encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith("\n"):
                    break
                row = _parse(line, f"{self._file('metrics.jsonl')}: line {number}")
                if "loss" in row:
                    while rows and rows[-1].get("step", -1) >= row["step"]:
                        rows.pop()
                rows.append(row)
        return rows

    def curve(self, field: str = "loss", set_name: Optional[str] = None) -> Tuple[np.ndarray, np.ndarray]:
        """Steps (int64) and values (float64) of a field of ``metrics.jsonl``; values that are null are NaN.

        ``set_name`` is a set of ``[[blend.validation]]`` for ``valid_loss``.
        """
        rows = [r for r in self.metrics if field in r and r.get("set") == set_name]
        steps = np.array([r["step"] for r in rows], np.int64)
        return steps, np.array([np.nan if r[field] is None else r[field] for r in rows], np.float64)

    def step_samples(self, step: int) -> range:
        """Numbers of the training samples that a finished step took, in ``samples("train")``.

        Raises:
            KeyError: ``metrics.jsonl`` has no such step.
        """
        before = 0
        for row in self.metrics:
            if "consumed_samples" in row:
                if row["step"] == step:
                    return range(before, row["consumed_samples"])
                before = row["consumed_samples"]
        raise KeyError(f"{self._file('metrics.jsonl')}: no step {step}")

    @property
    def checkpoints(self) -> Dict[int, str]:
        """Folders of the finished checkpoints by step."""
        folder = self._file("checkpoints")
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        steps = [n for n in names if n.startswith("step-") and os.path.exists(os.path.join(folder, n, "state.json"))]
        return {int(n[len("step-") :]): os.path.join(folder, n) for n in steps}

    @property
    def eval(self) -> Dict[str, Any]:
        """``eval.json``. OSError if ``eval`` has not run."""
        return self._json("eval.json")

    @property
    def datasets(self) -> Dict[str, IndexedDataset]:
        """The finished datasets of ``tokens/`` by name."""
        folder = self._file("tokens")
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        prefixes = [n[: -len(".idx")] for n in names if n.endswith(".idx") and not n.startswith(".")]
        return {p: IndexedDataset(os.path.join(folder, p)) for p in prefixes}

    def sidecar(self, name: str) -> Dict[str, Any]:
        """The lineage and statistics of a dataset of ``tokens/``."""
        return self._json("tokens", name + ".json")

    def samples(self, part: str = "train") -> Samples:
        """The samples of a part of the job's blend, in the order in which the trainer takes them.

        ``samples()[k]`` is the k-th sample of the training; ``step_samples`` has those of a step. Prefixes that the job
        names are relative to the present folder.

        Raises:
            OSError: ``blend.json`` is not there yet, or a dataset is not.
            ValueError: the part is empty, or the trainer rearranges the samples by more than their order: those of BERT
                and T5, fill in the middle, and the cyclic samplers.
        """
        blend = self.job.get("blend")
        if blend is None:
            raise ValueError(f"{self._file('job.toml')}: found no [blend], wanted one")
        for key, plain in (("samples", "text"), ("sampler", "single"), ("fim", None)):
            if blend.get(key, plain) != plain:
                raise ValueError(f"{self._file('job.toml')}: blend.{key}: found {blend[key]!r}, wanted {plain!r}")
        if part not in ("train", "valid", "test"):
            raise ValueError(f"part: found {part!r}, wanted train, valid or test")
        own = any(blend.get(p) for p in ("train", "valid", "test"))
        chosen = blend.get(part if own else "dataset", [])
        counts = {p["part"]: p["samples"] for p in self._json("blend.json")["parts"]}
        if not chosen or part not in counts:
            raise ValueError(f"{self._file('blend.json')}: found no {part} samples")
        prefixes = [d.get("prefix") or self._file("tokens", d["name"]) for d in chosen]
        sizes = [_size(p, blend["weights"]) for p in prefixes]
        weights = [d.get("weight", 1.0) * size for d, size in zip(chosen, sizes)]
        every = part == "valid" and blend.get("full_validation", False)
        settings = _settings(
            prefixes, weights, blend["seq_length"], None if every else counts[part], self.job["seed"]
        )
        lists = [blend.get(p, []) for p in (("train", "valid", "test") if own else ("dataset",))]
        batch = self.job["train"]["global_batch"] if "train" in self.job else 1
        settings.update(
            part=part,
            weighed=any("weight" in d for datasets in lists for d in datasets),
            split=None if own else blend["split"],
            even_batches=batch if blend["even_batches"] else None,
            extra_token=blend.get("add_extra_token_to_sequence", True),
            drop_last=blend.get("drop_last_partial_validation_sequence", True),
        )
        settings.update({key: blend[key] for key in ("mixture", "surplus", "max_epochs", "above_cap")})
        return Samples(settings)

    def __repr__(self) -> str:
        return f"Run({self.path!r}: job {self.job['name']!r})"


def _size(prefix: str, weights: str) -> float:
    """The factor of a weight by ``blend.weights``."""
    if weights == "given":
        return 1.0
    dataset = IndexedDataset(prefix)
    return float(len(dataset.tokens) if weights == "tokens" else dataset.documents)


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as e:
        raise ValueError(f"{where}: found {e}, wanted JSON") from e
