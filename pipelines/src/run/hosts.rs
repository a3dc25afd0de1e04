//! Training in several processes, on one host or many: who does what around it. All of them are started with the same
//! command; process 0 runs the stages of the job, and when it comes to the training the others take their share of the ranks.
//! Before that they compare program, job and data. Whoever fails tells the others.

use super::failure::watched;
use super::told::{DONE, TRAIN, told};
use crate::context::Context;
use crate::job::Job;
use crate::machine::checksum;
use ::train::dist::World;
use anyhow::{Context as _, Result};
use serde_json::json;

/// Connects to the other processes of the job, if a launcher started several, and makes sure that they run the same.
pub(crate) fn join(job: &Job) -> Result<World> {
    let world = World::open(&job.launch, &job.parallel, &job.out)?;
    // a wrong variable is told before anything is done
    told(&world, ::train::dist::cpu_path().map_err(Into::into))?;
    if world.processes() > 1 {
        told(&world, same(&world, job))?;
        log!("process {} of {}", world.process(), world.processes());
        for remark in world.remarks() {
            log!("process {}: {remark}", world.process());
        }
        // mpirun may end this process before its ranks notice, and once it has read the first bytes
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

/// What a process other than 0 does: waits for the training and takes its part.
pub(crate) fn follow(job: Job, world: World) -> Result<()> {
    let word = told(&world, world.exchange("").map_err(Into::into))?;
    if word[0] != TRAIN {
        return Ok(());
    }
    let cx = told(&world, Context::open_to_read(job))?;
    cx.set_world(world);
    watched(&cx, "train", super::train::run)
}

/// Runs stages as process 0.
pub(crate) fn lead(
    job: Job,
    world: World,
    stages: impl FnOnce(&Context) -> Result<()>,
) -> Result<()> {
    let cx = told(&world, Context::open(job))?;
    cx.set_world(world);
    let done = stages(&cx);
    match (done, cx.take_world()) {
        // it failed before it came to the training
        (done @ Err(_), Some(world)) => told(&world, done),
        (done, Some(world)) => {
            told(&world, world.exchange(DONE).map_err(Into::into))?;
            done
        }
        (done, None) => done,
    }
}
