//! What tasks of a parallel loop work in.

use crate::Result;
use std::sync::{Mutex, PoisonError};

/// Rooms that tasks take and give back: as many as threads, whichever of them work at once, so that memory
/// is the same every time.
pub(crate) struct Rooms<T>(Mutex<Vec<T>>);

impl<T> Rooms<T> {
    /// For `tasks` tasks.
    pub(crate) fn new(tasks: usize, one: impl Fn() -> Result<T>) -> Result<Rooms<T>> {
        let count = tasks.min(rayon::current_num_threads());
        let rooms: Result<Vec<T>> = (0..count).map(|_| one()).collect();
        Ok(Rooms(Mutex::new(rooms?)))
    }

    /// Works in one of them.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let list = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = list().pop();
        let mut room = taken.expect("no more tasks work at once than there are threads");
        let result = work(&mut room);
        list().push(room);
        result
    }
}
