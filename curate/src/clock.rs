//! Where the time of a curation goes: seconds of all threads by step.
//!
//! Each thread laps a clock of its own between steps (about 25 ns a lap); the sums of all threads are told at the end. They
//! are no part of any output that has to be the same twice.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// One thread's clock.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    since: Option<Instant>,
    spent: BTreeMap<&'static str, Duration>,
}

impl Clock {
    /// Begins to count.
    pub(crate) fn start(&mut self) {
        self.since = Some(Instant::now());
    }

    /// What has passed since the last lap, or the start, was spent on `step`.
    pub(crate) fn lap(&mut self, step: &'static str) {
        let now = Instant::now();
        if let Some(since) = self.since.replace(now) {
            *self.spent.entry(step).or_default() += now - since;
        }
    }

    /// Takes what was counted.
    pub(crate) fn take(&mut self) -> BTreeMap<&'static str, Duration> {
        std::mem::take(&mut self.spent)
    }
}

/// Seconds by step, of several clocks.
#[derive(Debug, Default)]
pub(crate) struct Spent(BTreeMap<&'static str, Duration>);

impl Spent {
    /// Adds what clocks counted.
    pub(crate) fn add(&mut self, clock: &mut Clock) {
        for (step, time) in clock.take() {
            *self.0.entry(step).or_default() += time;
        }
    }

    /// In seconds.
    pub(crate) fn seconds(&self) -> BTreeMap<&'static str, f64> {
        let of = |(step, time): (&&'static str, &Duration)| (*step, time.as_secs_f64());
        self.0.iter().map(of).collect()
    }
}
