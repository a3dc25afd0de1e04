//! Raw memory of tensors: 64-byte aligned (one cache line, one AVX-512 register), always initialised.
//! Both element types are four plain bytes, so any byte pattern is a valid value of either.
#![expect(unsafe_code, reason = "aligned allocation and typed views of it")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;

/// Alignment and size granule of every buffer, bytes.
pub(crate) const ALIGN: usize = 64;

/// Owned block of `bytes` initialised bytes, aligned to `ALIGN`; `bytes` is a positive multiple of it.
pub(crate) struct Buffer {
    start: NonNull<u8>,
    bytes: usize,
    /// What it is a part of, if it is not an allocation of its own.
    whole: Option<Arc<Buffer>>,
}

// SAFETY: the buffer owns its memory alone, and plain bytes may move between threads.
unsafe impl Send for Buffer {}
// SAFETY: shared access only reads.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Bytes a buffer for `bytes` really takes; `None` when the address space cannot hold it.
    pub(crate) fn round_up(bytes: usize) -> Option<usize> {
        let rounded = bytes.max(1).checked_next_multiple_of(ALIGN)?;
        (rounded <= isize::MAX as usize).then_some(rounded)
    }

    /// Returns a zeroed buffer, or `None` when the system has no memory. `bytes` comes from `round_up`.
    pub(crate) fn zeroed(bytes: usize) -> Option<Buffer> {
        assert!(
            bytes > 0 && bytes.is_multiple_of(ALIGN),
            "buffer sizes come from round_up"
        );
        let layout = Layout::from_size_align(bytes, ALIGN).ok()?;
        // SAFETY: the layout has a size above zero, asserted above.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Buffer {
            start,
            bytes,
            whole: None,
        })
    }

    /// Returns bytes `offset .. offset + bytes` of a larger buffer.
    ///
    /// # Safety
    /// No other part that overlaps may live at the same time, and `whole` itself is not read or written.
    pub(crate) unsafe fn part(whole: &Arc<Buffer>, offset: usize, bytes: usize) -> Buffer {
        assert!(
            bytes > 0
                && bytes.is_multiple_of(ALIGN)
                && offset.is_multiple_of(ALIGN)
                && offset
                    .checked_add(bytes)
                    .is_some_and(|end| end <= whole.bytes),
            "a part lies inside the whole"
        );
        Buffer {
            // SAFETY: inside the allocation by the assert.
            start: unsafe { whole.start.add(offset) },
            bytes,
            whole: Some(Arc::clone(whole)),
        }
    }

    /// Offset in the buffer that this is a part of.
    pub(crate) fn offset(&self) -> Option<usize> {
        let whole = self.whole.as_ref()?;
        Some(self.start.as_ptr() as usize - whole.start.as_ptr() as usize)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn f32(&self, len: usize) -> &[f32] {
        assert!(
            len <= self.bytes / 4,
            "the tensor's elements fit its buffer"
        );
        // SAFETY: in bounds by the assert, aligned to 64, initialised, borrowed from self.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), len) }
    }

    pub(crate) fn f32_mut(&mut self, len: usize) -> &mut [f32] {
        assert!(
            len <= self.bytes / 4,
            "the tensor's elements fit its buffer"
        );
        // SAFETY: as in `f32`; the exclusive borrow of self makes the slice exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), len) }
    }

    pub(crate) fn u32(&self, len: usize) -> &[u32] {
        assert!(
            len <= self.bytes / 4,
            "the tensor's elements fit its buffer"
        );
        // SAFETY: as in `f32`; every bit pattern is a u32.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), len) }
    }

    pub(crate) fn u32_mut(&mut self, len: usize) -> &mut [u32] {
        assert!(
            len <= self.bytes / 4,
            "the tensor's elements fit its buffer"
        );
        // SAFETY: as in `f32_mut`.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.whole.is_some() {
            return;
        }
        let layout = Layout::from_size_align(self.bytes, ALIGN).expect("checked when allocated");
        // SAFETY: allocated in `zeroed` with this very layout, freed once; its parts keep it alive.
        unsafe { dealloc(self.start.as_ptr(), layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_zero_and_aligned() {
        let mut buffer = Buffer::zeroed(Buffer::round_up(65).unwrap()).unwrap();
        assert_eq!(buffer.bytes(), 128);
        assert_eq!(buffer.f32(32).as_ptr() as usize % ALIGN, 0);
        assert!(buffer.u32(32).iter().all(|&x| x == 0));
        buffer.f32_mut(3)[2] = 1.0;
        assert_eq!(buffer.u32(3)[2], 0x3f80_0000);
    }

    #[test]
    fn sizes_past_the_address_space_are_refused() {
        assert_eq!(Buffer::round_up(usize::MAX - 3), None);
        assert_eq!(Buffer::round_up(isize::MAX as usize + 1), None);
    }
}
