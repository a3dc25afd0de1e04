#!/usr/bin/env bash
# Checks and times Millrace on one NVIDIA GPU: kernels/gpu.sh MILLRACE KERNEL_TESTS [OUT]
#
# MILLRACE is the stripped release binary, KERNEL_TESTS the test program of the crate `kernels` (its path is printed by
# `cargo test --release -p millrace-kernels --lib --no-run`). Builds nothing. Run it from the root of the repository. Each phase has its own
# time limit, and one that fails does not stop the next. OUT (default: a new folder) gets a log per phase and summary.json; a short table comes
# last. Exit code: 0 all phases passed, 1 one failed, 2 wrong arguments, 3 there is no GPU.
#
# Phases:
#   probe     driver, libraries, devices
#   ceilings  copies and products of torch, if Python has torch
#   parity    every op against the CPU to the last bit, twice, on the card
#   train     50 steps of a GPT of 124M on the card and on the CPU: losses are compared to the last bit
#   torch     tokens/s of the same shape in torch, eager and compiled, in the same run
set -uo pipefail
if [ $# -lt 2 ] || [ ! -x "$1" ] || [ ! -x "$2" ]; then
    echo "usage: kernels/gpu.sh MILLRACE KERNEL_TESTS [OUT]: two programs and a folder" >&2
    exit 2
fi
millrace=$(realpath "$1")
tests=$(realpath "$2")
out=${3:-$(mktemp -d)}
mkdir -p "$out"
out=$(realpath "$out")

# folders of Python's nvidia packages and of torch's own libraries
libraries=${CUDA_HOME:+$CUDA_HOME/lib64:}$(python3 - 2>/dev/null <<'PY' || true
import glob, site, sys
folders = site.getsitepackages() + [site.getusersitepackages()] + [path for path in sys.path if path.endswith("-packages")]
print(":".join(sorted({found for folder in folders for found in glob.glob(folder + "/nvidia/*/lib")})))
PY
)
export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export XDG_CACHE_HOME=$out/cache

if ! "$millrace" doctor --json >"$out/probe.json" 2>"$out/probe.log"; then
    echo "millrace doctor failed: $out/probe.log" >&2
    exit 1
fi
if ! python3 -c 'import json, sys; sys.exit(not json.load(open(sys.argv[1]))["gpus"])' "$out/probe.json"; then
    echo "no GPU: $(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["no_gpus"])' "$out/probe.json" 2>/dev/null)"
    exit 3
fi

summary=()
failed=0
phase() { # name, seconds, command...
    local name=$1 limit=$2 code start=$SECONDS
    shift 2
    timeout "$limit" "$@" >"$out/$name.log" 2>&1
    code=$?
    [ $code = 0 ] || failed=1
    summary+=("{\"phase\": \"$name\", \"code\": $code, \"seconds\": $((SECONDS - start))}")
    printf '%-10s exit code %3s  %4s s  %s\n' "$name" $code $((SECONDS - start)) "$(tail -n 1 "$out/$name.log" | cut -c 1-100)"
}

has_torch() { python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; }

cat >"$out/ceilings.py" <<'PY'
import torch, time
def timed(work, count=20):
    for _ in range(3): work()
    torch.cuda.synchronize(); start = time.perf_counter()
    for _ in range(count): work()
    torch.cuda.synchronize(); return (time.perf_counter() - start) / count
x = torch.empty(1 << 28, device="cuda"); y = torch.empty_like(x)
print(f"copy: {2 * 4 * x.numel() / timed(lambda: y.copy_(x)) / 1e9:.0f} GB/s")
for dtype in (torch.float32, torch.bfloat16):
    a = torch.randn(8192, 8192, device="cuda", dtype=dtype)
    print(f"product 8192 cubed, {dtype}: {2 * 8192**3 / timed(lambda: a @ a, 5) / 1e12:.1f} TFLOP/s")
PY

cat >"$out/torch.py" <<'PY'
import torch, time
from torch import nn
import torch.nn.functional as F
D, L, H, T, B, V = 768, 12, 12, 1024, 8, 50304
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.o, self.up, self.down = nn.Linear(D, 3 * D), nn.Linear(D, D), nn.Linear(D, 4 * D), nn.Linear(4 * D, D)
    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (z.view(b, t, H, D // H).transpose(1, 2) for z in self.qkv(self.n1(x)).split(D, 2))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, D))
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))
class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.p, self.blocks, self.n = nn.Embedding(V, D), nn.Embedding(T, D), nn.ModuleList(Block() for _ in range(L)), nn.LayerNorm(D)
    def forward(self, ids, targets):
        x = self.e(ids) + self.p.weight
        for block in self.blocks: x = block(x)
        return F.cross_entropy((self.n(x) @ self.e.weight.T).view(-1, V), targets.view(-1))
for name in ("eager", "compiled"):
    torch.manual_seed(0)
    model = Gpt().cuda(); step_of = torch.compile(model) if name == "compiled" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(V, (B, T + 1), device="cuda")
    def step():
        with torch.autocast("cuda", torch.bfloat16): loss = step_of(ids[:, :-1], ids[:, 1:])
        loss.backward(); nn.utils.clip_grad_norm_(model.parameters(), 1.0); optimizer.step(); optimizer.zero_grad(set_to_none=True)
    for _ in range(5): step()
    torch.cuda.synchronize(); start = time.perf_counter()
    for _ in range(10): step()
    torch.cuda.synchronize()
    print(f"torch {torch.__version__} {name}: {10 * B * T / (time.perf_counter() - start):.0f} tokens/s")
PY

cat >"$out/train.sh" <<SH
set -euo pipefail
job=pipelines/jobs/bench/gpt_10m.toml
sets=(--set model.layers=12 --set model.d_model=768 --set model.heads=12 --set train.steps=50 --set train.global_batch=4 --set train.micro_batch=4
    --set train.eval_every=0 --set train.log_every=10 --set train.warmup_steps=10)
for device in cuda cpu; do
    for verb in tokenize train; do
        "$millrace" \$verb \$job "\${sets[@]}" --set "device=\"\$device\"" --set "out=\"$out/\$device\""
    done
done
python3 - "$out" <<'PY'
import json, sys
rows = {device: [json.loads(line) for line in open(f"{sys.argv[1]}/{device}/metrics.jsonl")] for device in ("cuda", "cpu")}
of = {device: [(row["step"], row["loss"], row["grad_norm"]) for row in all if row.get("loss") is not None] for device, all in rows.items()}
speed = {device: sorted(row["tokens_per_s"] for row in all if row.get("tokens_per_s"))[len(all) // 2] for device, all in rows.items()}
same = of["cuda"] == of["cpu"]
first = next((a[0] for a, b in zip(of["cuda"], of["cpu"]) if a != b), None)
print(json.dumps({"steps": len(of["cuda"]), "same_bits": same, "first_difference": first, "tokens_per_s": speed}))
sys.exit(not (same and len(of["cuda"]) >= 50))
PY
SH

has_torch && phase ceilings 60 python3 "$out/ceilings.py"
for round in 1 2; do
    MILLRACE_TEST_CARD=$libraries phase "parity-$round" 180 "$tests" device bits --test-threads 4
done
phase train 240 bash "$out/train.sh"
has_torch && phase torch 120 python3 "$out/torch.py"
(IFS=,; echo "{\"device\": $(python3 -c 'import json, sys; print(json.dumps(json.load(open(sys.argv[1]))["gpus"]))' "$out/probe.json"), \"phases\": [${summary[*]}]}") >"$out/summary.json"
cat "$out/summary.json"
exit $failed
