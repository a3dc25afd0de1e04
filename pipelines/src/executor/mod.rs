//! Who runs the tasks of a curation: this process, or a cluster that is told to run `millrace task`.
//!
//! A task is "shards I, I + N, I + 2N, ... of the job"; it needs nothing but the job file, the list of shards and the job's
//! folder, writes its files atomically and leaves a record of each shard. So an executor only has to run argument lists: an
//! array of tasks, and when all of them have succeeded one process that adds their records up and goes on with the job.
//! Anything may be run again at any time; what is recorded is skipped.

mod kubernetes;
mod ray;
mod slurm;
mod work;

use crate::context::{Context, SHARDS};
use crate::job::Executor;
use crate::log::print;
use crate::machine::write_atomically;
use anyhow::{Result, bail};
use work::Work;

/// Hands the job to its executor; with `dry_run` only prints what would be handed over.
pub(crate) fn submit(cx: &Context, dry_run: bool) -> Result<()> {
    let job = &cx.job;
    if job.curate.is_none() {
        bail!(
            "the job has no [curate] table, whose shards are the tasks of a cluster; use executor = \"local\""
        );
    }
    if !dry_run {
        let mut list = serde_json::to_string(cx.shards()?)?;
        list.push('\n');
        write_atomically(&cx.out.join(SHARDS), list.as_bytes())?;
        cx.manifest.share(SHARDS)?;
    }
    let wanted = match job.executor {
        Executor::Local => 0,
        Executor::Slurm => job.slurm.clone().unwrap_or_default().tasks,
        Executor::Ray => job.ray.clone().unwrap_or_default().tasks,
        Executor::Kubernetes => job.kubernetes.clone().unwrap_or_default().tasks,
    };
    let work = Work::new(cx, wanted)?;
    match job.executor {
        Executor::Local => bail!("the job is run here"),
        Executor::Slurm => job.slurm.clone().unwrap_or_default().submit(&work, dry_run),
        Executor::Ray => job.ray.clone().unwrap_or_default().submit(&work, dry_run),
        Executor::Kubernetes => {
            let kubernetes = job.kubernetes.clone().unwrap_or_default();
            print(&kubernetes.render(&work, dry_run)?)
        }
    }
}
