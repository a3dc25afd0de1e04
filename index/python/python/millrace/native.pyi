"""Types of the compiled module; the classes of the package around it are the interface."""

from os import PathLike
from typing import Any, Dict, List, Tuple, TypedDict, Union

__version__: str

class Header:
    """Counts of a verified ``.idx``."""

    dtype: str
    sequences: int
    documents: int
    tokens: int
    has_modes: bool

class Piece(TypedDict):
    """Tokens ``offset`` to ``offset + length`` of a sequence."""

    sequence: int
    offset: int
    length: int

class Arrays:
    """Index arrays of one dataset's samples, as little-endian bytes."""

    document_index: bytes
    sample_index: bytes
    shuffle_index: bytes
    has_wide_starts: bool
    has_wide_places: bool

class Blend:
    """The order of the samples of one part."""

    @property
    def sample_tokens(self) -> int: ...
    @property
    def weights(self) -> List[float]: ...
    def __len__(self) -> int: ...
    def place(self, k: int) -> Tuple[int, int]: ...
    def pieces(self, k: int) -> Tuple[int, List[Piece]]: ...
    def dataset_index(self) -> bytes: ...
    def dataset_sample_index(self) -> bytes: ...
    def arrays(self, dataset: int) -> Arrays: ...

def verify(prefix: Union[str, PathLike[str]]) -> Header: ...
def build(settings: Dict[str, Any]) -> Blend: ...
