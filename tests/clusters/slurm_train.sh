#!/bin/bash
# A training on a real Slurm of two nodes, one of which dies in the middle: it goes on on the other one in a smaller layout, then its
# time is over and it is queued again; the last checkpoint has to be that of one process.
#
#   tests/clusters/slurm_train.sh PATH_OF_MILLRACE
#
# Needs Debian 12 (apt-get download reaches its packages) and root. Nothing is installed: the packages are unpacked into a
# temporary folder, both nodes' daemons run on this machine, without authentication, and end with the script.
set -euo pipefail
program=$(realpath "$1")
repository=$(cd "$(dirname "$0")/../.." && pwd)
. "$repository/tests/clusters/common.sh"
work=$(mktemp -d /tmp/millrace-slurm-XXXXXX)
cd "$work"
cleanup() {
  trap - EXIT
  for pid in $(cat "$work"/*.pid 2>/dev/null) $(pgrep -f "$work" || true); do [ "$pid" = $$ ] || kill -9 "$pid" 2>/dev/null || true; done
  [ -n "${KEEP:-}" ] || rm -rf "$work"
}
trap cleanup EXIT
fail() { echo "FAILED: $*"; cat there/slurm/*.log; exit 1; }

. "$repository/tests/clusters/two_nodes.sh"

cat > job.toml <<JOB
name = "two nodes"
out = "$work/there"
threads = 1
executor = "slurm"
$(training)
JOB

echo "== one process"
"$program" run job.toml --set executor=local --set out="$work/here" 2>&1 | tail -1
echo "== two nodes"
"$program" run job.toml
for _ in $(seq 1200); do [ "$(steps_done there)" -ge 70 ] && break; sleep 0.1; done
[ "$(steps_done there)" -ge 70 ] || fail "no steps"
echo "== node n2 dies"
ranks=
for pid in $(pgrep -f "millrace.* train $work" || true); do
  tr '\0' '\n' < "/proc/$pid/environ" | grep -qx SLURMD_NODENAME=n2 && ranks="$ranks $pid"
done
[ -n "$ranks" ] || fail "no rank on n2"
kill -9 "$(cat slurmd-n2.pid)"
for pid in $ranks; do kill -9 "$(ps -o ppid= -p "$pid" | tr -d ' ')" "$pid" 2>/dev/null || true; done
for _ in $(seq 1200); do [ "$(steps_done there)" -ge 130 ] && break; sleep 0.1; done
[ "$(steps_done there)" -ge 130 ] || fail "it does not go on"
"$program" status job.toml
job=$(squeue -h -o %i)
echo "== the time of job $job is over"
scancel --batch --signal=USR1 "$job"
for _ in $(seq 1200); do [ -z "$(squeue -h)" ] && break; sleep 0.5; done
sinfo
"$program" status job.toml
[ -z "$(squeue -h)" ] || fail "jobs are left"
grep -c "the job is queued again" there/slurm/*.log
compare_training here there
