//! Pool of scratch memory for the tasks of a parallel loop.

use crate::Result;
use std::sync::{Mutex, PoisonError};

/// Scratch buffers that tasks borrow: one per thread, whichever tasks run at the same time, so that memory use is
/// deterministic.
pub(crate) struct ScratchPool<T>(Mutex<Vec<T>>);

impl<T> ScratchPool<T> {
    /// For `tasks` tasks.
    pub(crate) fn new(tasks: usize, one: impl Fn() -> Result<T>) -> Result<ScratchPool<T>> {
        let count = tasks.min(rayon::current_num_threads());
        let scratch_pool: Result<Vec<T>> = (0..count).map(|_| one()).collect();
        Ok(ScratchPool(Mutex::new(scratch_pool?)))
    }

    /// Calls `work` with one of them.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let list = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = list().pop();
        let mut piece = taken.expect("no more tasks work at once than there are threads");
        let result = work(&mut piece);
        list().push(piece);
        result
    }
}
