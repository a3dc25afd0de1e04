"""Buckets of relative positions as transformers' T5Attention numbers them.

Usage: kernel_t5_buckets.py > kernels/tests/data/t5_buckets.txt. Needs torch, transformers 5.23.
A line: buckets, largest distance, 1 for both directions | buckets of key - query from -300 to 300.
"""

import torch
from transformers.models.t5.modeling_t5 import T5Attention

for buckets, distance in [(32, 128), (8, 12), (64, 256), (20, 100), (16, 300), (128, 1024)]:
    for both in (1, 0):
        relative = torch.arange(-300, 301)
        found = T5Attention._relative_position_bucket(relative, bool(both), buckets, distance)
        print(buckets, distance, both, "|", *found.tolist())
