//! Executors of a job: this process, or a cluster (Slurm, Ray, Kubernetes) that runs `millrace task` and `millrace launch`.
//!
//! Task I of N is the shards I, I + N, I + 2N, ... of the job. It needs only the job file, the list of shards and
//! the job's folder, writes its files atomically and leaves a record per shard. So an executor only has to run
//! command lines: an array of tasks and, once all of them have succeeded, one process that merges their records and
//! runs the remaining stages. Every command may be repeated at any time; recorded shards are skipped.
//!
//! Of a job that trains, the remaining stages are those of `millrace launch` on several nodes (`[nodes]`). Kubernetes starts the
//! ranks itself, as an indexed Job.

mod kubernetes;
mod ray;
mod slurm;
mod work;

use crate::context::{Context, SHARDS};
use crate::job::Executor;
use crate::log::print;
use crate::machine::write_atomically;
use anyhow::{Result, bail};
pub(crate) use work::quoted;
use work::{SUBMITTED, Training, Work};

/// Submits the job to its executor; with `dry_run` only prints what would be submitted.
pub(crate) fn submit(cx: &Context, dry_run: bool) -> Result<()> {
    let job = &cx.job;
    if job.curate.is_none() && job.train.is_none() {
        bail!(
            "the job has neither a [curate] table, whose shards are the tasks of a cluster, nor a [train] table; use executor = \"local\""
        );
    }
    let training = Training::of(cx)?;
    if !dry_run && job.executor == Executor::Slurm {
        // before the job file of a training under way is replaced
        slurm::refuse_twice(&cx.out)?;
    }
    if !dry_run && training.is_some() {
        // stages rewrite job.toml with their own settings
        write_atomically(&cx.out.join(SUBMITTED), job.to_toml().as_bytes())?;
    }
    if !dry_run && job.curate.is_some() {
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
    let work = Work::new(cx, wanted, training)?;
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
