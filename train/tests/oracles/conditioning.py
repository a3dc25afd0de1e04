"""How closely any float32 program can follow a float64 run: what the scripts beside this record as tolerance.

A run gives (tensors by name, series of numbers by name). The error of each quantity is the larger of torch's own
float32 error and the largest change in float64 when every weight is moved by up to a unit in the last place of
float32 (half for its own rounding, half for that of what it is multiplied with): no float32 program is closer to the
float64 values but by luck, and single sums of torch are lucky.
"""
import numpy as np


def moved(weights, seed):
    """The weights in float64, each a random part of a unit in the last place away."""
    random = np.random.default_rng(seed)
    return {k: np.asarray(v, np.float64) * (1 + 2.0**-23 * random.uniform(-1, 1, np.shape(v))) for k, v in weights.items()}


def worst(exact, others):
    """Largest errors of tensors, and in each series the largest error of any run up to each step."""
    tensors, series = exact
    error = {k: max(float(np.abs(tensors[k] - other[k]).max()) for other, _ in others) for k in tensors}
    out = {}
    for name, values in series.items():
        each = [np.abs(np.array(values) - np.array(other[name])) for _, other in others]
        out[name] = np.maximum.accumulate(np.max(each, axis=0)).tolist()
    return {"errors": out, "max_abs_error": error}
