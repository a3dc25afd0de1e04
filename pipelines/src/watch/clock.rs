//! Times of change of files: a change soon after another may leave the time as it was.

use std::time::{Duration, SystemTime};

/// Longest time between two changes that may get the same time: two seconds in FAT, less in all others.
const TICK: Duration = Duration::from_secs(3);

/// Whether a further change of a file or folder with this time of change might not show in the time.
pub(super) fn is_recent(at: SystemTime) -> bool {
    is_recent_at(at, SystemTime::now())
}

fn is_recent_at(at: SystemTime, now: SystemTime) -> bool {
    match now.duration_since(at) {
        Ok(age) => age < TICK,
        // the clock of a server of files may be ahead
        Err(ahead) => ahead.duration() < TICK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_recent_for_three_seconds_on_either_side_of_now() {
        let now = SystemTime::now();
        let tick = Duration::from_nanos(1);
        for (at, is_recent) in [
            (now, true),
            (now - TICK + tick, true),
            (now - TICK, false),
            (now + TICK - tick, true),
            (now + TICK, false),
        ] {
            assert_eq!(is_recent_at(at, now), is_recent, "{at:?}");
        }
        assert!(!is_recent(now - 2 * TICK));
    }
}
