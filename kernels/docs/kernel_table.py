"""Writes kernels/docs/kernels.md: registers, spills, stack and shared memory of every CUDA kernel, as ptxas
reports them, and the bytes that kernels move, as the simulator counts them.

    pip install --no-deps --target CU nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 \\
        nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85
    chmod +x CU/nvidia/cu13/bin/* CU/nvidia/cu13/nvvm/bin/*
    MILLRACE_SIM_COUNT=1 MILLRACE_SIM_COUNTS_FILE=/tmp/counts.json cargo test --release -p millrace-kernels --lib -- \\
        --ignored --exact ops::traffic::every_op_runs_once_at_its_shape
    python kernels/docs/kernel_table.py CU/nvidia/cu13/bin/nvcc /tmp/counts.json

Fails if a file does not compile without warnings, or a kernel spills registers.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

ARCHITECTURES = ["sm_80", "sm_90a"]
HEAD = """# CUDA kernels as compiled

Made by `kernels/docs/kernel_table.py` with nvcc 13.0.88 (`-fmad=false`); registers per thread, bytes of stack and of static shared
memory, by architecture. No kernel spills registers. A stack holds the unfinished blocks of a reduction tree (`struct Tree`), which is touched once
per leaf.

| file | kernel | registers | stack | shared memory |
|---|---|---|---|---|
"""
TRAFFIC = """
## Bytes of global memory

Counted by the simulator (`kernels/sim/README.md`) while each op runs once at one shape, in `kernels/src/ops/traffic.rs`: ops on rows `[256, 512]`,
products 256 x 256 x 256, those of experts with four matrices of 256 x 256 for 256 rows, a router of 8 experts for 256 tokens,
attention of 4 heads of 64 over 128 positions, all in f32 where no other type is named. "Moved": bytes of the 32-byte sectors
that the warps' loads, stores and atomic operations touch, before any cache. "Floor": distinct bytes that are read, plus distinct bytes that are
written. "Conflicts": passes through the banks of shared memory over those that would do. A kernel that ran several times has the sum.

| kernel | launches | moved | floor | ratio | conflicts |
|---|---|---|---|---|---|
"""
WHY = """
Ratios far above 1, and why:

- **Products and attention** read a factor once for each tile across or down: at 256 a side 2 times with tiles of 128 and 4 times with tiles of 64.
  The L2 cache serves the repeats.
- **`product_f32`, `product_bf16_pairs`, `grouped_f32`, `grouped_bf16_pairs`, `grouped_weights_*`**: a thread stores its four neighbouring columns one by one, so a warp touches the sectors
  of its part of the result four times.
- **`product_f32_chain`, `grouped_f32_chain`, `mma_pack_*`** load 16 bytes a thread. The simulator's compiler splits such a load into its numbers, and each part touches
  the sectors again: these two ratios are upper bounds. A card touches a sector of `mma_pack_*` twice at most, and writes it once.
- **`attention_finish`, `attention_write_queries`**: neighbouring threads write a head's features and read a transposed tile, a sector a number.
- **`embedding_links`** compares each token with others until one is equal: 4 bytes a comparison, and of each row only its id.
- **`route_*` and `rows_dot`**: a thread has a row, so a warp's accesses are a row apart; the router reads its logits several times.
- **`route_drop`, `permute_*`** read by lists, or have less than a warp's work at these sizes.
- **`attention_flash_f16_*`** read numbers of f32, rounded on the way to shared memory, by loads that the simulator's compiler splits.
- **Norms and `cross_entropy_statistics`** read a row once for each pass (mean, variance, result); a cache serves the repeats.
- **`add_bias`, `cast_scaled_blocks`**: the bias is read for every row, and a block for its largest size before it is rounded.
"""


def report(nvcc, source, include, architecture):
    with tempfile.TemporaryDirectory() as folder:
        command = [
            nvcc, "-std=c++17", "-fmad=false", f"-gencode=arch=compute_{architecture[3:]},code={architecture}", "-I", include,
            "-Xptxas", "-v", "-cubin", "-o", f"{folder}/kernel.cubin", source,
        ]
        done = subprocess.run(command, capture_output=True, text=True)
    text = done.stdout + done.stderr
    if done.returncode or "warning" in text.lower():
        sys.exit(f"{source} for {architecture}:\n{text}")
    found = {}
    name = None
    for line in text.splitlines():
        if match := re.search(r"Compiling entry function '(\w+)'", line):
            name = match[1]
            found[name] = {"stack": 0, "spills": 0, "shared": 0}
        elif match := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            if name in found:
                found[name]["stack"] = int(match[1])
                found[name]["spills"] = int(match[2]) + int(match[3])
        elif match := re.search(r"Used (\d+) registers", line):
            found[name]["registers"] = int(match[1])
            if shared := re.search(r"(\d+) bytes smem", line):
                found[name]["shared"] = int(shared[1])
    return found


def traffic(counts):
    rows = []
    for name, of in sorted(counts.items()):
        kinds = [of[kind] for kind in ("load", "store", "atomic")]
        moved = 32 * sum(kind["sectors"] for kind in kinds)
        floor = sum(kind["unique_bytes"] for kind in kinds)
        shared = of["shared"]
        conflicts = f"{shared['passes'] / shared['least_passes']:.2f}" if shared["least_passes"] else ""
        ratio = f"{moved / floor:.2f}" if floor else ""
        rows.append(f"| `{name}` | {of['launches']} | {moved:,} | {floor:,} | {ratio} | {conflicts} |")
    return rows


def main():
    nvcc, counts = sys.argv[1], json.loads(pathlib.Path(sys.argv[2]).read_text())
    root = pathlib.Path(__file__).parents[2]
    include = root / "kernels/src/cuda"
    rows, spilled = [], []
    for source in sorted((root / "kernels/src").rglob("*.cu")):
        reports = [report(nvcc, source, include, architecture) for architecture in ARCHITECTURES]
        for name in sorted(reports[0]):
            of = [each[name] for each in reports]
            spilled += [f"{name} for {architecture}" for architecture, one in zip(ARCHITECTURES, of) if one["spills"]]
            cells = [", ".join(str(one[what]) for one in of) for what in ("registers", "stack", "shared")]
            rows.append(f"| {source.name} | `{name}` | {' | '.join(cells)} |")
    if spilled:
        sys.exit("kernels that spill registers: " + ", ".join(spilled))
    head = HEAD.replace("by architecture", "for " + " and ".join(ARCHITECTURES))
    (root / "kernels/docs/kernels.md").write_text(
        head + "\n".join(rows) + "\n" + TRAFFIC + "\n".join(traffic(counts)) + "\n" + WHY
    )
    print(f"{len(rows)} kernels, no spills")


main()
