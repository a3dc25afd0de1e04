//! Ends of the ranks of a process: finds the error to report, which is not that of a rank that only lost its peer,
//! and forwards it to the other processes as soon as it is known. After the watchdog's message, here or elsewhere,
//! a rank may never end, and only ending the program helps.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use crate::checkpoint::train_state::TrainState;
use crate::dist::world::{World, is_consequence};
use crate::error::{Error, Result};
use crate::metrics::Events;

/// Time that a rank that lost a peer waits for the error of the one that failed first.
const AFTERMATH: Duration = Duration::from_millis(500);
/// Time for the other ranks to end once the cause is reported.
const STUCK: Duration = Duration::from_secs(10);

/// A rank and its result.
pub(crate) type Ending = (usize, Result<Vec<TrainState>>);

/// Waits for all ranks of this process. The first error that is not about a lost peer counts, and is reported to
/// the other processes as soon as it is known.
pub(crate) fn first_cause(
    (endings, mut left): (&Receiver<Ending>, usize),
    world: &World,
    events: &dyn Events,
) -> Result<Vec<TrainState>> {
    let (mut train_state, mut failure, mut is_told) = (None, None, false);
    let mut patience: Option<Duration> = None;
    while left > 0 {
        let ending = match patience {
            Some(patience) => endings.recv_timeout(patience),
            None => endings.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match ending {
            Ok((_, end)) => {
                left -= 1;
                match end {
                    Ok(end) => train_state = train_state.or(Some(end)),
                    // ranks that lost a peer only show that another one failed first
                    Err(error) if failure.as_ref().is_none_or(is_consequence) => {
                        failure = Some(error);
                        if !is_told {
                            patience = Some(AFTERMATH);
                        }
                    }
                    Err(_) => {}
                }
                let is_open = failure.as_ref().is_none_or(is_consequence);
                // a cause from another process is not one of the ranks here
                if is_told || is_open && (failure.is_none() || !world.knows_cause()) {
                    continue;
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) if is_told => {
                failure.iter().for_each(|error| events.stuck(error));
                patience = None;
                continue;
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        is_told = true;
        failure = failure.map(|error| world.end(error));
        let may_hang = world.is_shared() || failure.as_ref().is_some_and(is_late);
        patience = may_hang.then_some(STUCK);
    }
    match failure {
        Some(error) => Err(error),
        None => Ok(train_state.expect("there is a rank")),
    }
}

fn is_late(error: &Error) -> bool {
    matches!(
        error,
        Error::Kernel {
            source: kernels::Error::Late { .. },
            ..
        }
    )
}
