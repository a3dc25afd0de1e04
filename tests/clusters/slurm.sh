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

echo "== packages"
mkdir deb root
(cd deb && apt-get download slurmctld slurmd slurm-client slurm-wlm-basic-plugins libmunge2 libhwloc15 liblua5.1-0 \
  libjson-c5 libyaml-0-2 libdbus-1-3 libnuma1 liblz4-1 >/dev/null 2>&1)
for package in deb/*.deb; do dpkg -x "$package" root; done
lib=$work/root/usr/lib/x86_64-linux-gnu
export LD_LIBRARY_PATH=$lib:$lib/slurm-wlm
export PATH=$work/root/usr/bin:$work/root/usr/sbin:$PATH
export SLURM_CONF=$work/slurm.conf

host=$(hostname -s)
cat > slurm.conf <<CONF
ClusterName=two
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=27817
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SwitchType=switch/none
MpiDefault=none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
PluginDir=$lib/slurm-wlm
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool-%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd-%n.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd-%n.log
SlurmdTimeout=10
InactiveLimit=0
KillWait=2
ReturnToService=2
JobRequeue=1
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=27818 CPUs=1 State=UNKNOWN
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=27819 CPUs=1 State=UNKNOWN
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
CONF
mkdir state spool-n1 spool-n2
slurmctld-wlm -c
for node in n1 n2; do slurmd-wlm -N $node -d "$work/root/usr/sbin/slurmstepd-wlm"; done
for _ in $(seq 60); do sinfo -h -o %T | grep -q idle && [ "$(sinfo -h -t idle -o %D)" = 2 ] && break; sleep 0.5; done
sinfo

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
