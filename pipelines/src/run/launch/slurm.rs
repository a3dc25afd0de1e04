//! The allocation of a Slurm job, in whose batch script `launch` runs: its nodes and steps.

use anyhow::{Context as _, Result, bail};
use std::process::{Command, Stdio};

/// The allocation that this process is in.
pub(super) struct Allocation {
    /// Number of the job.
    pub job: String,
    nodes: String,
    /// Processors of a node; 0: not asked for.
    cpus: usize,
    /// More options of srun.
    options: Vec<String>,
}

/// First port of process 0, and how many follow: two jobs may share a host.
const PORTS: (u64, u64) = (20_000, 10_000);
/// Distance of the ports of two attempts, so that a process of an earlier one is not met.
const NEXT_PORT: u64 = 131;

impl Allocation {
    /// # Errors
    /// This process is not in a job of Slurm.
    pub(super) fn of_this_process(cpus: usize, options: Vec<String>) -> Result<Allocation> {
        let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let (job, nodes) = (variable("SLURM_JOB_ID"), variable("SLURM_JOB_NODELIST"));
        let (Some(job), Some(nodes)) = (job, nodes) else {
            bail!(
                "SLURM_JOB_ID or SLURM_JOB_NODELIST is not set: this is no job of Slurm; `millrace run JOB` submits one, whose script starts `millrace launch`"
            );
        };
        Ok(Allocation {
            job,
            nodes,
            cpus,
            options,
        })
    }

    /// Names of the nodes, in Slurm's order.
    pub(super) fn nodes(&self) -> Result<Vec<String>> {
        let text = ask(&["show", "hostnames", &self.nodes])?;
        Ok(text.split_whitespace().map(str::to_owned).collect())
    }

    /// A step of one process on a node.
    pub(super) fn on(&self, node: &str, line: &[String]) -> Command {
        let mut command = self.step(&[node.to_owned()], 1);
        command.args(&self.options).args(line);
        command
    }

    /// A step of `processes` processes on each of some nodes, which find each other at the first one.
    pub(super) fn ranks(
        &self,
        nodes: &[String],
        processes: usize,
        attempt: usize,
        line: &[String],
    ) -> Command {
        let mut command = self.step(nodes, processes);
        // processes that lose one of them report it and end by themselves, and one that is stopped may end before process 0 has
        // written the checkpoint
        command.args(["--kill-on-bad-exit=0", "--wait=0"]);
        command.args(&self.options).args(line);
        if let Some(first) = nodes.first() {
            let id: u64 = self.job.parse().unwrap_or(0);
            let port = PORTS.0 + (id + NEXT_PORT * attempt as u64) % PORTS.1;
            command
                .env("MASTER_ADDR", address(first))
                .env("MASTER_PORT", port.to_string());
        }
        command
    }

    fn step(&self, nodes: &[String], processes: usize) -> Command {
        let mut command = Command::new("srun");
        command
            .arg(format!("--nodes={}", nodes.len()))
            .arg(format!("--ntasks={}", nodes.len() * processes))
            .arg(format!("--ntasks-per-node={processes}"))
            .arg(format!("--nodelist={}", nodes.join(",")))
            // a step that lost a node holds its resources until Slurm has heard of all of them
            .arg("--overlap")
            .arg("--export=ALL")
            .stdin(Stdio::null());
        if self.cpus > 0 {
            // srun does not take it from the job
            let cpus = (self.cpus / processes).max(1);
            command.arg(format!("--cpus-per-task={cpus}"));
        }
        command
    }

    /// Asks all ranks to stop after a checkpoint. A signal to srun itself would end them at once.
    pub(super) fn stop(&self) -> Result<()> {
        let asked = Command::new("scancel")
            .args(["--signal=TERM", &self.job])
            .status()
            .context("cannot run scancel")?;
        match asked.success() {
            true => Ok(()),
            false => bail!("scancel --signal=TERM {} ended with {asked}", self.job),
        }
    }

    /// Gives the allocation back and queues the job again; Slurm then ends this process.
    pub(super) fn requeue(&self) -> Result<()> {
        ask(&["requeue", &self.job]).map(drop)
    }
}

/// Address of a node as Slurm itself reaches it; its name where Slurm reports none.
fn address(node: &str) -> String {
    let shown = ask(&["show", "node", node]).unwrap_or_default();
    let found = shown
        .split_whitespace()
        .find_map(|word| word.strip_prefix("NodeAddr="));
    found.unwrap_or(node).to_owned()
}

/// The answer of scontrol.
fn ask(args: &[&str]) -> Result<String> {
    let answer = Command::new("scontrol")
        .args(args)
        .output()
        .context("cannot run scontrol; `millrace launch` runs in a job of Slurm")?;
    if !answer.status.success() {
        bail!(
            "scontrol {} failed: {}",
            args.join(" "),
            String::from_utf8_lossy(&answer.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&answer.stdout).into_owned())
}
