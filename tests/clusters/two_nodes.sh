# A Slurm of two nodes, both on this machine, without authentication: its packages are unpacked into $work, which is the working
# directory. Sourced; leaves srun, sbatch and the like in PATH, and pid files in $work. Needs Debian 12 (apt-get download) and root.

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
