//! Training in several processes, on one host or many: the roles of the processes. All are started with the same
//! command; process 0 runs the stages of the job, and the others join with their ranks when it reaches the
//! training. Before that, program, job and data are compared. A process that fails reports its error to the others.

use super::failure::watched;
use super::words::{DONE, TRAIN, shared_failure};
use crate::context::Context;
use crate::job::Job;
use crate::machine::checksum;
use ::train::dist::World;
use anyhow::{Context as _, Result};
use serde_json::json;

/// Connects to the other processes of the job, if a launcher started several, and checks that program and job are
/// equal.
pub(crate) fn join(job: &Job) -> Result<World> {
    let world = World::open(&job.launch, &job.parallel, &job.out)?;
    let world = world.on(crate::devices::of(job));
    // a device that is not there is reported before any data is read
    let is_there = world.check_devices(job.parallel.world());
    shared_failure(&world, is_there.map_err(Into::into))?;
    // a wrong MILLRACE_* variable is reported before any work
    shared_failure(&world, ::train::dist::cpu_path().map_err(Into::into))?;
    if world.processes() > 1 {
        shared_failure(&world, same(&world, job))?;
        info!("process {} of {}", world.process(), world.processes());
        for remark in world.remarks() {
            log!("process {}: {remark}", world.process());
        }
        // logged at once: mpirun may kill this process before its ranks notice the loss, as soon as it has read
        // some output
        let process = world.process();
        world.on_loss(move |who, reason| {
            log!("process {process}: {who} {reason}");
        });
    }
    Ok(world)
}

fn same(world: &World, job: &Job) -> Result<()> {
    let program = std::env::current_exe().context("the path of this program")?;
    let sum = checksum(&program).with_context(|| program.display().to_string())?;
    world.compare(
        "program",
        &json!({"version": env!("CARGO_PKG_VERSION"), "xxh3": sum}),
    )?;
    world.compare("job", &serde_json::to_value(job).context("the job")?)?;
    Ok(())
}

/// Body of process 1 and up: waits until process 0 reaches the training, then runs its ranks.
pub(crate) fn follow(job: Job, world: World) -> Result<()> {
    let word = shared_failure(&world, world.exchange("").map_err(Into::into))?;
    if word[0] != TRAIN {
        return Ok(());
    }
    let cx = shared_failure(&world, Context::open_to_read(job))?;
    cx.set_world(world);
    watched(&cx, "train", super::train::run)
}

/// Body of process 0: runs the stages.
pub(crate) fn lead(
    job: Job,
    world: World,
    stages: impl FnOnce(&Context) -> Result<()>,
) -> Result<()> {
    let cx = shared_failure(&world, Context::open(job))?;
    cx.set_world(world);
    let done = stages(&cx);
    match (done, cx.take_world()) {
        // failed before the training: the other processes are still waiting
        (done @ Err(_), Some(world)) => shared_failure(&world, done),
        (done, Some(world)) => {
            shared_failure(&world, world.exchange(DONE).map_err(Into::into))?;
            done
        }
        (done, None) => done,
    }
}
