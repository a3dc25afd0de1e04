"""Writes kernels/docs/kernels.md: registers, spills, stack and shared memory of every CUDA kernel, as ptxas reports them.

    pip install --no-deps --target CU nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 \\
        nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85
    chmod +x CU/nvidia/cu13/bin/* CU/nvidia/cu13/nvvm/bin/*
    python kernels/docs/kernel_table.py CU/nvidia/cu13/bin/nvcc

Fails if a file does not compile without warnings, or a kernel spills registers.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

ARCHITECTURES = ["sm_80", "sm_90"]
HEAD = """# CUDA kernels as compiled

Made by `kernels/docs/kernel_table.py` with nvcc 13.0.88 (`-fmad=false`); registers per thread, bytes of stack and of static shared
memory, by architecture. No kernel spills registers. A stack holds the unfinished blocks of a reduction tree (`struct Tree`), which is touched once
per leaf.

| file | kernel | registers | stack | shared memory |
|---|---|---|---|---|
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


def main():
    nvcc = sys.argv[1]
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
    (root / "kernels/docs/kernels.md").write_text(head + "\n".join(rows) + "\n")
    print(f"{len(rows)} kernels, no spills")


main()
