//! Pinned host memory through which uploads go, so that the host need not wait for them: a driver copies from pinned
//! memory when the stream comes to it. Space is given in order, and is free again whenever the host waits for the device
//! for another reason, once per step.

use std::ffi::c_void;
use std::ptr::NonNull;

use cudarc::driver::result;

/// Bytes of a device's block: a step's ids, tables and scalars many times over.
const BYTES: usize = 8 << 20;

/// A device's block.
#[derive(Default)]
pub(super) struct Staging {
    /// `None` until the first upload, and if the system has no pinned memory.
    block: Option<NonNull<u8>>,
    is_asked_for: bool,
    used: usize,
    /// Copies so far, never fewer.
    copies: u64,
}

// SAFETY: the block belongs to this value alone.
unsafe impl Send for Staging {}

impl Staging {
    /// Copies `bytes` into the block, and returns where; `None` if there is no room before the next `clear`.
    pub(super) fn put(&mut self, bytes: &[u8]) -> Option<&[u8]> {
        if !self.is_asked_for {
            self.is_asked_for = true;
            // SAFETY: a context is current; the block is given back in `release`.
            let block = unsafe { result::malloc_host(BYTES, 0) }.ok()?;
            self.block = NonNull::new(block.cast());
        }
        let start = self.used;
        let end = start.checked_add(bytes.len()).filter(|end| *end <= BYTES)?;
        let block = self.block?;
        self.used = end.next_multiple_of(64).min(BYTES);
        self.copies += 1;
        // SAFETY: the range is inside the block, and no copy reads it: ranges are given once until the device has done
        // all its work.
        let to = unsafe { std::slice::from_raw_parts_mut(block.as_ptr().add(start), bytes.len()) };
        to.copy_from_slice(bytes);
        Some(to)
    }

    /// Copies so far.
    pub(super) fn copies(&self) -> u64 {
        self.copies
    }

    /// Makes the block free again, if there were no copies after the first `copies`, which are done: another thread may
    /// have begun one.
    pub(super) fn clear(&mut self, copies: u64) {
        if self.copies == copies {
            self.used = 0;
        }
    }

    /// Gives the block back, when the device has done all its work.
    pub(super) fn release(&mut self) {
        if let Some(block) = self.block.take() {
            // SAFETY: it comes from `malloc_host`, and is given back once.
            let _ = unsafe { result::free_host(block.as_ptr().cast::<c_void>()) };
        }
    }
}
