//! Executors of a curation: this process, or a cluster (Slurm, Ray, Kubernetes) that runs `millrace task`.
//!
//! Task I of N is the shards I, I + N, I + 2N, ... of the job. It needs only the job file, the list of shards and
//! the job's folder, writes its files atomically and leaves a record per shard. So an executor only has to run
//! command lines: an array of tasks and, once all of them have succeeded, one process that merges their records and
//! runs the remaining stages. Every command may be repeated at any time; recorded shards are skipped.

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

/// Submits the job to its executor; with `dry_run` only prints what would be submitted.
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
