#!/bin/bash
# A training through the Jobs REST API of a real Ray, on two nodes of which one dies in the middle: it goes on on the other one in a
# smaller layout; the last checkpoint has to be that of one process.
#
#   tests/clusters/ray_train.sh PATH_OF_MILLRACE FOLDER_OF_RAY
#
# FOLDER_OF_RAY holds `ray`, `python3` of an environment with ray[default] 2.60.0 from PyPI. Everything else is in a temporary folder;
# Ray is stopped at the end.
set -euo pipefail
program=$(realpath "$1")
export PATH=$(realpath "$2"):$PATH
repository=$(cd "$(dirname "$0")/../.." && pwd)
. "$repository/tests/clusters/common.sh"
work=$(mktemp -d /tmp/millrace-ray-XXXXXX)
cd "$work"
export RAY_DISABLE_IMPORT_WARNING=1 RAY_USAGE_STATS_ENABLED=0 RAY_TMPDIR=$work
cleanup() {
  trap - EXIT
  ray stop --force >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap cleanup EXIT

echo "== a head without ranks, and two nodes"
ray start --head --num-cpus 0 --port 26379 --dashboard-port 28265 --temp-dir "$work/ray" --disable-usage-stats >/dev/null
up() { [ "$(ray status 2>/dev/null | grep -c ' node_')" -ge "$1" ]; }
for _ in $(seq 60); do curl -sf http://127.0.0.1:28265/api/jobs/ >/dev/null && break; sleep 0.5; done
for node in 1 2; do
  ray start --address 127.0.0.1:26379 --num-cpus 1 --disable-usage-stats --block > "node-$node.log" 2>&1 &
  echo $! > "node-$node.pid"
  for _ in $(seq 60); do up $((node + 1)) && break; sleep 0.5; done
  up $((node + 1)) || { cat "node-$node.log"; exit 1; }
done

cat > job.toml <<JOB
name = "ray"
out = "$work/there"
threads = 1
executor = "ray"
[ray]
address = "http://127.0.0.1:28265"
$(training)
JOB
echo "== one process"
"$program" run job.toml --set executor=local --set out="$work/here" 2>&1 | tail -1
echo "== Ray"
"$program" run job.toml &
driver=$!
for _ in $(seq 1200); do [ "$(steps_done there)" -ge 70 ] && break; sleep 0.1; done
echo "== a node dies"
kill -TERM "$(cat node-2.pid)"
wait $driver
"$program" status job.toml
compare_training here there
