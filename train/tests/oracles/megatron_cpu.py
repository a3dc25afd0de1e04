"""megatron-core 0.16.1 without a GPU: what it asks CUDA for."""
import contextlib

import torch


class NoTracker:
    """Stands for the states of random numbers by rank; no dropout asks for them."""

    def fork(self, *a, **k):
        return contextlib.nullcontext()

    def is_initialized(self):
        return True

    def get_states(self):
        return {}

    def add(self, *a, **k):
        pass


def without_cuda():
    """Answers of `torch.cuda` that megatron-core needs to go on."""
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.synchronize = lambda *a, **k: None


def without_tracker():
    """Puts `NoTracker` where megatron-core looks for its tracker."""
    import megatron.core.tensor_parallel.random as random

    random._CUDA_RNG_STATE_TRACKER, random._CUDA_RNG_STATE_TRACKER_INITIALIZED = NoTracker(), True
