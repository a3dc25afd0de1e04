#!/bin/bash
# A curation through the Jobs REST API of a real Ray of two nodes, the process that watches it killed in the middle and
# started again; the result has to be that of one process.
#
#   tests/clusters/ray.sh PATH_OF_MILLRACE FOLDER_OF_RAY
#
# FOLDER_OF_RAY holds `ray` and `python` of an environment with ray[default] 2.60.0 from PyPI. Everything else lies in a
# temporary folder; Ray is stopped at the end.
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

echo "== two nodes"
ray start --head --num-cpus 1 --port 26379 --dashboard-port 28265 --temp-dir "$work/ray" --disable-usage-stats >/dev/null
ray start --address 127.0.0.1:26379 --num-cpus 1 --disable-usage-stats >/dev/null
for _ in $(seq 60); do curl -sf http://127.0.0.1:28265/api/jobs/ >/dev/null && break; sleep 0.5; done

cat > job.toml <<JOB
name = "ray"
out = "$work/there"
executor = "ray"
[ray]
address = "http://127.0.0.1:28265"
tasks = 5
at_once = 2
$(curation)
JOB
echo "== one process"
"$program" run job.toml --set executor=local --set out="$work/here" 2>&1 | tail -1
echo "== Ray"
"$program" run job.toml &
driver=$!
done_shards() { "$program" status job.toml --json 2>/dev/null | sed 's/.*"shards_done":\([0-9]*\).*/\1/'; }
until [ "$(done_shards || echo 0)" -ge 2 ] 2>/dev/null; do sleep 0.2; done
echo "== the watching process dies and is started again"
kill -9 $driver
wait $driver 2>/dev/null || true
"$program" run job.toml
"$program" status job.toml
compare here there
