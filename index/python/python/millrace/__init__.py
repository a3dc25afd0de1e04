"""Token datasets, samples and runs of Millrace as NumPy arrays.

``IndexedDataset`` opens a ``.bin`` and ``.idx`` pair, ``GPTDataset`` and ``BlendedDataset`` are training samples in
Megatron's order, ``open_run`` opens the output folder of a job. Sequences, and samples that lie in one document, are
read-only views of the mapped file.
"""

from millrace.indexed import IndexedDataset
from millrace.native import __version__
from millrace.run import Run, open_run
from millrace.samples import BlendedDataset, GPTDataset, Samples

__all__ = ["BlendedDataset", "GPTDataset", "IndexedDataset", "Run", "Samples", "__version__", "open_run"]
