"""For each fp8 format of torch the numbers that it holds and from which f32 on each of them is the result: the bits of
the least positive f32 that torch converts to it. All positive f32 between two of them are checked to be monotone by a
sample of 2^24 patterns; negative ones are the same with a sign. Writes kernels/tests/data/cast.txt. torch 2.x, CPU.

    python tests/oracles/kernel_cast.py
"""

import pathlib

import torch


def converted(bits, dtype):
    """Bits of f32 of what positive f32 become; NaN as 0x7fc00000."""
    x = torch.tensor(bits, dtype=torch.int64).to(torch.int32).view(torch.float32)
    y = x.to(dtype).to(torch.float32)
    y = torch.where(torch.isnan(y), torch.full_like(y, float("nan")), y)
    return y.view(torch.int32).to(torch.int64)


def steps(dtype):
    """[bits of the least f32, bits of its result], ascending."""
    codes = torch.arange(0, 0x80, dtype=torch.uint8).view(dtype).to(torch.float32)
    back = codes.to(dtype).view(torch.uint8)
    assert all(a == b or c != c for a, b, c in zip(back.tolist(), range(0x80), codes.tolist()))
    found, at = [], 0
    first = lambda b: int(converted([b], dtype)[0])
    while True:
        value = first(at)
        found.append([at, value])
        low, high = at, 0x7F800000
        if first(high) == value:
            break
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if first(middle) == value else (low, middle)
        at = high
    sample = torch.randint(0, 0x7F800001, (1 << 24,), generator=torch.Generator().manual_seed(1))
    y = converted(sample.tolist(), dtype)
    edges = torch.tensor([edge for edge, _ in found])
    values = torch.tensor([value for _, value in found])
    assert torch.equal(y, values[torch.searchsorted(edges, sample, right=True) - 1])
    negative = (-sample.to(torch.int32).view(torch.float32)).to(dtype).to(torch.float32)
    assert torch.equal(torch.nan_to_num(negative, nan=1.0), torch.nan_to_num(
        -y.to(torch.int32).view(torch.float32), nan=1.0))
    return found


out = pathlib.Path(__file__).parents[2] / "kernels/tests/data/cast.txt"
formats = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
lines = [f"{name} {first:08x} {result:08x}\n" for name, dtype in formats.items() for first, result in steps(dtype)]
out.write_text("".join(lines))
print(torch.__version__)
