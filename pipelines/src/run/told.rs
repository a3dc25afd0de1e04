//! Words between the processes of a training: what process 0 says, and failures that all of them get.

use ::train::dist::World;
use anyhow::Result;

/// What process 0 says when it comes to the training.
pub(super) const TRAIN: &str = "train";

/// What it says when there is nothing to train.
pub(super) const DONE: &str = "done";

/// The result; a failure is told to the other processes, and one that comes from them gets their words.
pub(super) fn told<T>(world: &World, result: Result<T>) -> Result<T> {
    result.map_err(|error| match error.downcast::<::train::Error>() {
        Ok(error) => world.end(error).into(),
        Err(error) => {
            world.fail(&format!("{error:#}"));
            error
        }
    })
}
