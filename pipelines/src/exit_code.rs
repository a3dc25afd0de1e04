//! Exit codes: 0 done, 1 failed, 2 bad usage or job, a job that would replace what checkpoints depend on, or a device that this machine
//! lacks, 128 + N stopped by signal N (130 for SIGINT, 143 for SIGTERM).

use crate::job::{LoadError, Refused, WrongUse};
use crate::serve::WrongFlags;
use crate::signals::Interrupted;
use crate::tasks::TaskError;
use std::process::ExitCode;

/// The command line or the job file is wrong.
pub(crate) const USAGE: u8 = 2;

/// Prints the error, if there is one, and returns its code. A training that a signal stopped has said so.
pub(crate) fn of(result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else {
        return ExitCode::SUCCESS;
    };
    if let Some(stopped) = error.downcast_ref::<Interrupted>() {
        return ExitCode::from(128 + stopped.signal);
    }
    log!("error: {}", crate::log::message(&error));
    let is_unavailable = error.downcast_ref::<train::Error>();
    let is_bad_task = error
        .downcast_ref::<TaskError>()
        .is_some_and(TaskError::is_usage);
    let is_bad_job = is_bad_task
        || error.downcast_ref::<WrongFlags>().is_some()
        || error.downcast_ref::<LoadError>().is_some()
        || error.downcast_ref::<WrongUse>().is_some()
        || error.downcast_ref::<Refused>().is_some()
        || is_unavailable.is_some_and(train::Error::is_unavailable);
    ExitCode::from(if is_bad_job { USAGE } else { 1 })
}
