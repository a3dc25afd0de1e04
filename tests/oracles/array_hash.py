"""The hash of index arrays that the goldens of Megatron's datasets hold."""
import hashlib

import numpy as np


def sha(*arrays):
    """First 32 hex digits of SHA-256 over the arrays, little-endian, one after the other."""
    h = hashlib.sha256()
    for a in arrays:
        a = np.ascontiguousarray(a)
        h.update(a.astype(a.dtype.newbyteorder("<"), copy=False).tobytes())
    return h.hexdigest()[:32]
