//! Counts the calls that a training step should make few of: each stops the host until the device has caught up.

use std::sync::atomic::{AtomicU64, Ordering};

/// Calls of a device since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Times that the host waited until the device had done all its work.
    pub waits: u64,
    /// Copies from the device to the host.
    pub downloads: u64,
    /// Blocks of memory asked of the driver.
    pub allocations: u64,
}

/// The counters of an open device.
#[derive(Default)]
pub(super) struct Counting {
    waits: AtomicU64,
    downloads: AtomicU64,
    allocations: AtomicU64,
}

impl Counting {
    pub(super) fn wait(&self) {
        self.waits.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn download(&self) {
        self.downloads.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn allocation(&self) {
        self.allocations.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Counters {
        Counters {
            waits: self.waits.load(Ordering::Relaxed),
            downloads: self.downloads.load(Ordering::Relaxed),
            allocations: self.allocations.load(Ordering::Relaxed),
        }
    }
}
