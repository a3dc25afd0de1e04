#!/bin/bash
# A curation on a real Slurm of two nodes, one of which dies in the middle; the result has to be that of one process.
#
#   tests/clusters/slurm.sh PATH_OF_MILLRACE
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

. "$repository/tests/clusters/two_nodes.sh"

cat > job.toml <<JOB
name = "two nodes"
out = "$work/there"
executor = "slurm"
[slurm]
setup = "sleep 3"
$(curation)
JOB

echo "== one process"
"$program" run job.toml --set executor=local --set out="$work/here" 2>&1 | tail -1
echo "== two nodes"
"$program" run job.toml
done_shards() { "$program" status job.toml --json | sed 's/.*"shards_done":\([0-9]*\).*/\1/'; }
on_n2() { squeue -h -w n2 -t R -o '%i %T %N'; }
victim=
until [ "$(done_shards)" -ge 2 ] && victim=$(on_n2) && [ -n "$victim" ]; do sleep 0.1; done
echo "== node n2 dies with $victim"
kill -9 "$(cat slurmd-n2.pid)"
# and with it all that ran there: first what would tell Slurm that the script failed
scripts=$(pgrep -f "$work/spool-n2/job" || true)
for pid in $scripts; do kill -9 "$(ps -o ppid= -p "$pid" | tr -d ' ')" 2>/dev/null || true; done
for pid in $scripts; do pkill -9 -P "$pid" || true; kill -9 "$pid" 2>/dev/null || true; done
for _ in $(seq 600); do
  [ -z "$(squeue -h)" ] && break
  sleep 0.5
done
sinfo
"$program" status job.toml
[ -z "$(squeue -h)" ] || { echo "jobs are left"; squeue; exit 1; }
compare here there
