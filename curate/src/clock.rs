//! Time profile of a curation: seconds of all threads by step.
//!
//! Each thread laps its own clock between steps (about 25 ns per lap); the sums over all threads are reported at
//! the end. They are part of no output that has to be reproducible.

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

    /// Charges the time since the last lap, or the start, to `step`.
    pub(crate) fn lap(&mut self, step: &'static str) {
        let now = Instant::now();
        if let Some(since) = self.since.replace(now) {
            *self.spent.entry(step).or_default() += now - since;
        }
    }

    /// Takes the times counted so far and resets them.
    pub(crate) fn take(&mut self) -> BTreeMap<&'static str, Duration> {
        std::mem::take(&mut self.spent)
    }
}

/// Seconds by step, of several clocks.
#[derive(Debug, Default)]
pub(crate) struct Spent(BTreeMap<&'static str, Duration>);

impl Spent {
    /// Adds the times that a clock counted.
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
