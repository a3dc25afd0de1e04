//! Limit on bad records of a stage: counted for all shards together, while they are read.
//!
//! The decision does not depend on the order in which threads find them: the count only grows, and it passes the
//! limit if and only if the stage's total does. The set of abandoned shards does depend on it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};
use crate::secrets::shown;

/// A record that cannot be read.
struct Bad {
    shard: usize,
    number: u64,
    path: PathBuf,
    offset: u64,
    why: String,
}

/// Location of a bad record.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) shard: usize,
    pub(crate) path: &'a Path,
    pub(crate) offset: u64,
    pub(crate) number: u64,
}

/// Bad records counted so far.
#[derive(Default)]
struct Met {
    /// By shard, of those of this process.
    of_shards: BTreeMap<usize, u64>,
    /// The one that comes first in the order of the input.
    first: Option<Bad>,
}

/// The count of a stage.
pub(crate) struct Quarantine {
    most: u64,
    count: AtomicU64,
    met: Mutex<Met>,
}

impl Quarantine {
    pub(crate) fn new(most: u64) -> Quarantine {
        Quarantine {
            most,
            count: AtomicU64::new(0),
            met: Mutex::default(),
        }
    }

    fn met(&self) -> MutexGuard<'_, Met> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a shard: bad records of an earlier attempt do not count twice.
    pub(crate) fn begin(&self, shard: usize) {
        if let Some(before) = self.met().of_shards.remove(&shard) {
            self.count.fetch_sub(before, Ordering::Relaxed);
        }
    }

    /// Counts records that other runs or processes have met.
    pub(crate) fn add(&self, records: u64) {
        self.count.fetch_add(records, Ordering::Relaxed);
    }

    /// Counts a record.
    ///
    /// # Errors
    /// `TooManyBad`.
    pub(crate) fn count(&self, place: Place<'_>, why: &str) -> Result<()> {
        let mut met = self.met();
        let key = (place.shard, place.number);
        if met.first.as_ref().is_none_or(|f| key < (f.shard, f.number)) {
            met.first = Some(Bad {
                shard: place.shard,
                number: place.number,
                path: place.path.to_path_buf(),
                offset: place.offset,
                why: why.to_string(),
            });
        }
        *met.of_shards.entry(place.shard).or_default() += 1;
        drop(met);
        self.add(1);
        self.check()
    }

    /// True if there are too many.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.count.load(Ordering::Relaxed) > self.most
    }

    /// # Errors
    /// `TooManyBad`.
    pub(crate) fn check(&self) -> Result<()> {
        if !self.is_exceeded() {
            return Ok(());
        }
        let met = self.met();
        let first = met.first.as_ref().map(|f| {
            let (path, offset, why) = (shown(&f.path), f.offset, &f.why);
            format!("{path}: at byte {offset}: {why}")
        });
        Err(Error::TooManyBad {
            most: self.most,
            first: first.unwrap_or_else(|| "they were met before".to_string()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(quarantine: &Quarantine, shard: usize, number: u64) -> Result<()> {
        let place = Place {
            shard,
            path: Path::new("in"),
            offset: number * 10,
            number,
        };
        quarantine.count(place, "no text field")
    }

    #[test]
    fn one_more_than_allowed_is_too_many_wherever_it_is_met() {
        let quarantine = Quarantine::new(3);
        quarantine.add(1);
        met(&quarantine, 2, 5).unwrap();
        met(&quarantine, 1, 9).unwrap();
        assert!(!quarantine.is_exceeded());
        quarantine.check().unwrap();
        let why = met(&quarantine, 1, 10).unwrap_err().to_string();
        let message = "more records are bad than max_bad_records = 3 allows; the first: in: at byte 90: no text field";
        assert_eq!(why, message);
        assert!(quarantine.check().is_err());
        quarantine.begin(1);
        quarantine.check().unwrap();
        met(&quarantine, 1, 9).unwrap();
        assert!(met(&quarantine, 1, 10).is_err());
        let none = Quarantine::new(0);
        none.check().unwrap();
        none.add(1);
        assert!(none.check().is_err());
    }
}
