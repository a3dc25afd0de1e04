//! Times of change of files: a change soon after another may leave the time as it was.

use std::time::{Duration, SystemTime};

/// Longest time between two changes that may get the same time: two seconds in FAT, less in all others.
const TICK: Duration = Duration::from_secs(3);

/// Whether a further change of a file or folder with this time of change might not show in the time.
pub(super) fn is_recent(at: SystemTime) -> bool {
    match at.elapsed() {
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
        assert!(is_recent(now));
        assert!(!is_recent(now - 2 * TICK));
        assert!(!is_recent(now + 20 * TICK));
    }
}
