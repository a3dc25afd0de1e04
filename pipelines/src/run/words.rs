//! Messages between the processes of a training: the words of process 0, and the spreading of failures to all.

use ::train::dist::World;
use anyhow::Result;

/// Word of process 0 when it reaches the training.
pub(super) const TRAIN: &str = "train";

/// Word of process 0 when the job ends without training.
pub(super) const DONE: &str = "done";

/// Returns `result`; an error is sent to the other processes, and one that came from them gets their description.
pub(super) fn shared_failure<T>(world: &World, result: Result<T>) -> Result<T> {
    result.map_err(|error| match error.downcast::<::train::Error>() {
        Ok(error) => world.end(error).into(),
        Err(error) => {
            world.fail(&format!("{error:#}"));
            error
        }
    })
}
