//! Where `launch` runs: in a job of Slurm, or in one of Ray.

use super::ray::RayCluster;
use super::slurm::Allocation;
use crate::job::{Executor, Job, LoadError, Nodes, Problem};
use anyhow::Result;
use std::path::Path;
use std::process::Command;

/// The nodes of a training, and how processes are started on them.
pub(super) enum Scheduler {
    Slurm(Allocation),
    Ray(RayCluster),
}

impl Scheduler {
    /// That of this process, by the job's executor.
    ///
    /// # Errors
    /// An executor that starts the processes itself, or a process outside of the executor's jobs.
    pub(super) fn of_this_process(path: &Path, job: &Job, nodes: &Nodes) -> Result<Scheduler> {
        match job.executor {
            Executor::Slurm => {
                let slurm = job.slurm.clone().unwrap_or_default();
                let allocation = Allocation::of_this_process(nodes.cpus, slurm.train.srun)?;
                Ok(Scheduler::Slurm(allocation))
            }
            Executor::Ray => Ok(Scheduler::Ray(RayCluster::of_this_process(
                &job.out, nodes,
            )?)),
            Executor::Local | Executor::Kubernetes => {
                let problem = Problem {
                    key: "executor".into(),
                    found: format!("{:?}", job.executor).to_lowercase(),
                    wanted: "slurm or ray, in whose jobs `launch` starts the training".into(),
                };
                Err(LoadError::problems(path.into(), vec![problem]).into())
            }
        }
    }

    /// As the record has it.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Scheduler::Slurm(_) => "slurm",
            Scheduler::Ray(_) => "ray",
        }
    }

    /// The scheduler's job.
    pub(super) fn job(&self) -> String {
        match self {
            Scheduler::Slurm(allocation) => allocation.job.clone(),
            Scheduler::Ray(_) => "ray".into(),
        }
    }

    /// All nodes that may be used.
    pub(super) fn nodes(&self) -> Result<Vec<String>> {
        match self {
            Scheduler::Slurm(allocation) => allocation.nodes(),
            Scheduler::Ray(cluster) => cluster.nodes(),
        }
    }

    /// A process on one node.
    pub(super) fn on(&self, node: &str, line: &[String]) -> Command {
        match self {
            Scheduler::Slurm(allocation) => allocation.on(node, line),
            Scheduler::Ray(cluster) => cluster.on(node, line),
        }
    }

    /// `processes` processes on each node, with the variables of a launcher.
    pub(super) fn ranks(
        &self,
        nodes: &[String],
        processes: usize,
        attempt: usize,
        line: &[String],
    ) -> Command {
        match self {
            Scheduler::Slurm(allocation) => allocation.ranks(nodes, processes, attempt, line),
            Scheduler::Ray(cluster) => cluster.ranks(nodes, processes, line),
        }
    }

    /// Asks the ranks to stop after a checkpoint, where the scheduler does not do so itself.
    pub(super) fn stop(&self) -> Result<()> {
        match self {
            Scheduler::Slurm(allocation) => allocation.stop(),
            Scheduler::Ray(_) => Ok(()),
        }
    }

    /// Whether the scheduler can queue the job again.
    pub(super) fn can_requeue(&self) -> bool {
        match self {
            Scheduler::Slurm(_) => true,
            Scheduler::Ray(_) => false,
        }
    }

    /// Queues the job again, if the scheduler can.
    pub(super) fn requeue(&self) -> Result<bool> {
        match self {
            Scheduler::Slurm(allocation) => allocation.requeue().map(|()| true),
            Scheduler::Ray(_) => Ok(false),
        }
    }
}
