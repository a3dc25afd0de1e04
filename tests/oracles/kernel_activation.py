"""Activations and their slopes as torch computes them in f64.

Usage: kernel_activation.py > kernels/tests/data/activation.txt. Needs torch.
A line: kind | x (f32 values) | y | dy/dx.
"""

import torch
from torch.nn import functional as F

generator = torch.Generator().manual_seed(1)
grid = torch.linspace(-12, 12, 97)
near = 2 * torch.randn(60, generator=generator)
x32 = torch.cat([grid, near, torch.tensor([1e-8, -1e-8, 0.0])]).float()

kinds = {
    "GeluTanh": lambda x: F.gelu(x, approximate="tanh"),
    "GeluErf": F.gelu,
    "QuickGelu": lambda x: x * torch.sigmoid(1.702 * x),
    "Relu": F.relu,
    "SquaredRelu": lambda x: F.relu(x) ** 2,
    "Tanh": torch.tanh,
}
for name, f in kinds.items():
    x = x32.double().requires_grad_()
    y = f(x)
    y.sum().backward()
    print(name, *[" ".join(repr(v) for v in t.tolist()) for t in (x, y, x.grad)], sep=" | ")
