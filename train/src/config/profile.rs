//! The job's `train.profile`: which steps are traced.

use serde::{Deserialize, Serialize};

use crate::config::Problem;

/// Steps of a run that `profile = true` traces.
const STEPS: u64 = 10;

/// Range of steps to trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "want true, false, or a table such as { steps = [20, 25] }"
)]
pub enum Profile {
    /// No steps, or the first ten of each run of the job.
    Switch(bool),
    /// A window of steps.
    Window(ProfileWindow),
}

/// From one step to another, by their numbers in the whole job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileWindow {
    /// The first and the last one, counted from 1.
    pub steps: [u64; 2],
}

impl Profile {
    /// Calls `problem` if the window is outside the job's steps.
    pub(crate) fn check(self, steps_of_job: u64, problem: Problem<'_>) {
        if let Profile::Window(ProfileWindow { steps: [from, to] }) = self
            && (from == 0 || from > to || from > steps_of_job)
        {
            let wanted = format!("[from, to] within 1 to {} (train.steps)", steps_of_job);
            problem("profile.steps", format!("[{from}, {to}]"), &wanted);
        }
    }

    /// First and last step for a run whose first one is `next`.
    pub(crate) fn window(self, next: u64) -> Option<(u64, u64)> {
        match self {
            Profile::Switch(false) => None,
            Profile::Switch(true) => Some((next, next + STEPS - 1)),
            Profile::Window(ProfileWindow { steps: [from, to] }) => Some((from, to)),
        }
    }
}
