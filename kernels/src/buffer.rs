//! Raw memory of tensors: 64-byte aligned (one cache line, one AVX-512 register). Elements are plain bytes, so any byte
//! pattern is a valid value of each type. Host memory is always initialised; the memory of another device has only an
//! address here, which is never followed.
#![expect(unsafe_code, reason = "aligned allocation and typed views of it")]

use crate::cuda::{Address, Cuda};
use crate::{Bf16, Result};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;

/// Alignment and size granule of every buffer, bytes.
pub(crate) const ALIGN: usize = 64;

/// Alignment requested from the allocator: for a larger one it would write the zeros itself, and so touch every
/// page of a block of which only a part may be used.
const ASKED: usize = 16;

/// Bytes from which on a buffer is worth pages of 2 MiB.
const LARGE: usize = 4 << 20;

/// Requests huge pages for a block: matrices are also read by columns, where each line is on a different small
/// page. Blocks stay untouched, and nothing depends on the answer.
#[cfg(target_os = "linux")]
fn ask_for_large_pages(start: NonNull<u8>, bytes: usize) {
    const PAGE: usize = 4096;
    let skipped = start.as_ptr().align_offset(PAGE);
    let whole = bytes.saturating_sub(skipped) / PAGE * PAGE;
    if whole > 0 {
        // SAFETY: the range is whole pages inside this block; madvise changes only their size, not their contents.
        unsafe {
            libc::madvise(
                start.as_ptr().add(skipped).cast(),
                whole,
                libc::MADV_HUGEPAGE,
            )
        };
    }
}

#[cfg(not(target_os = "linux"))]
fn ask_for_large_pages(_: NonNull<u8>, _: usize) {}

/// Owned block of `bytes` initialised bytes, aligned to `ALIGN`; `bytes` is a positive multiple of it.
pub(crate) struct Buffer {
    /// Of host memory, or an address of the device's memory.
    start: NonNull<u8>,
    bytes: usize,
    /// False: the host must not follow `start`.
    is_on_host: bool,
    source: Source,
}

/// Origin of a buffer's memory.
enum Source {
    /// A separate allocation, which starts some bytes before the buffer.
    Allocation(usize),
    /// A part of that buffer.
    Part(Arc<Buffer>),
    /// A part of another buffer, which the caller keeps alive longer.
    Lent,
    /// An allocation of a device.
    Cuda(Arc<Cuda>),
}

// SAFETY: the buffer owns its memory alone, and plain bytes may move between threads.
unsafe impl Send for Buffer {}
// SAFETY: `&Buffer` only gives reads of plain bytes, so shared references never race.
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
        let layout = Buffer::layout(bytes)?;
        // SAFETY: the layout has a size above zero, asserted above.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let before = base.as_ptr().align_offset(ALIGN);
        if bytes >= LARGE {
            ask_for_large_pages(base, layout.size());
        }
        Some(Buffer {
            // SAFETY: the layout has ALIGN - ASKED bytes more, and the base is a multiple of ASKED.
            start: unsafe { base.add(before) },
            bytes,
            is_on_host: true,
            source: Source::Allocation(before),
        })
    }

    /// Returns a buffer of a device with unspecified values, or `None` when the device has no memory. `bytes` comes
    /// from `round_up`.
    /// # Errors
    /// As `Cuda::allocate`.
    pub(crate) fn on_cuda(cuda: &Arc<Cuda>, bytes: usize) -> Result<Option<Buffer>> {
        let Some(Address(address)) = cuda.allocate(bytes)? else {
            return Ok(None);
        };
        let start = usize::try_from(address).unwrap_or(0);
        let start = NonNull::new(std::ptr::without_provenance_mut(start));
        Ok(start.map(|start| Buffer {
            start,
            bytes,
            is_on_host: false,
            source: Source::Cuda(Arc::clone(cuda)),
        }))
    }

    /// The address, for kernels.
    pub(crate) fn address(&self) -> Address {
        Address(self.start.addr().get() as u64)
    }

    /// Layout of an allocation for `bytes` plus the padding to the next multiple of `ALIGN`.
    fn layout(bytes: usize) -> Option<Layout> {
        let size = bytes.checked_add(ALIGN - ASKED)?;
        Layout::from_size_align(size, ASKED).ok()
    }

    /// Returns bytes `offset .. offset + bytes` of a larger buffer.
    ///
    /// # Safety
    /// No other part that overlaps may live at the same time, and `whole` itself is not read or written; unless all of
    /// them are only read.
    pub(crate) unsafe fn part(whole: &Arc<Buffer>, offset: usize, bytes: usize) -> Buffer {
        // SAFETY: no overlapping part lives at the same time, by this function's contract; the whole lives as long.
        let lent = unsafe { whole.lend(offset, bytes) };
        Buffer {
            source: Source::Part(Arc::clone(whole)),
            ..lent
        }
    }

    /// Like `part`, but the caller guarantees that this buffer lives longer.
    ///
    /// # Safety
    /// As `part`, and this buffer outlives the returned one.
    pub(crate) unsafe fn lend(&self, offset: usize, bytes: usize) -> Buffer {
        let is_inside = |end: usize| end <= self.bytes;
        assert!(
            bytes > 0
                && bytes.is_multiple_of(ALIGN)
                && offset.is_multiple_of(ALIGN)
                && offset.checked_add(bytes).is_some_and(is_inside),
            "a part is inside the whole"
        );
        let start = self.start.as_ptr().wrapping_add(offset);
        Buffer {
            start: NonNull::new(start).expect("an address inside the memory is not null"),
            bytes,
            is_on_host: self.is_on_host,
            source: Source::Lent,
        }
    }

    /// Offset in the buffer that this is a part of.
    pub(crate) fn offset(&self) -> Option<usize> {
        match &self.source {
            Source::Part(whole) => {
                Some(self.start.as_ptr() as usize - whole.start.as_ptr() as usize)
            }
            Source::Allocation(_) | Source::Lent | Source::Cuda(_) => None,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn f32(&self, len: usize) -> &[f32] {
        self.check::<f32>(len);
        // SAFETY: in bounds by the check, aligned to 64, initialised, borrowed from self.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), len) }
    }

    pub(crate) fn f32_mut(&mut self, len: usize) -> &mut [f32] {
        self.check::<f32>(len);
        // SAFETY: in bounds by the check, aligned to 64, initialised, borrowed exclusively from self.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), len) }
    }

    pub(crate) fn bf16(&self, len: usize) -> &[Bf16] {
        self.check::<Bf16>(len);
        // SAFETY: in bounds by the check, aligned to 64, initialised, borrowed from self; every bit pattern is a bf16.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), len) }
    }

    pub(crate) fn bf16_mut(&mut self, len: usize) -> &mut [Bf16] {
        self.check::<Bf16>(len);
        // SAFETY: in bounds by the check, aligned to 64, initialised, borrowed exclusively from self.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), len) }
    }

    pub(crate) fn u32(&self, len: usize) -> &[u32] {
        self.check::<u32>(len);
        // SAFETY: in bounds by the check, aligned to 64, initialised, borrowed from self; every bit pattern is a u32.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), len) }
    }

    pub(crate) fn u32_mut(&mut self, len: usize) -> &mut [u32] {
        self.check::<u32>(len);
        // SAFETY: in bounds by the check, aligned to 64, initialised, borrowed exclusively from self.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), len) }
    }

    pub(crate) fn u8(&self, len: usize) -> &[u8] {
        self.check::<u8>(len);
        // SAFETY: in bounds by the check, aligned to 64, initialised, borrowed from self.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), len) }
    }

    pub(crate) fn u8_mut(&mut self, len: usize) -> &mut [u8] {
        self.check::<u8>(len);
        // SAFETY: in bounds by the check, aligned to 64, initialised, borrowed exclusively from self.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), len) }
    }

    fn check<T>(&self, len: usize) {
        assert!(
            self.is_on_host,
            "the host reads and writes host memory only"
        );
        assert!(
            len <= self.bytes / size_of::<T>(),
            "the tensor's elements fit its buffer"
        );
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let before = match &self.source {
            Source::Allocation(before) => *before,
            Source::Cuda(cuda) => return cuda.free(self.address()),
            Source::Part(_) | Source::Lent => return,
        };
        let layout = Buffer::layout(self.bytes).expect("checked when allocated");
        // SAFETY: allocated in `zeroed` with this very layout, freed once; its parts keep it alive.
        unsafe { dealloc(self.start.sub(before).as_ptr(), layout) }
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

    /// Bytes of a buffer's pages that are in memory or swapped out: those of this buffer alone, as other tests allocate
    /// and free at the same time.
    #[cfg(target_os = "linux")]
    fn present(buffer: &Buffer) -> usize {
        use std::io::{Read, Seek, SeekFrom};
        let words = std::fs::read("/proc/self/auxv").unwrap();
        let words = words.chunks_exact(size_of::<usize>());
        let words: Vec<usize> = words
            .map(|word| usize::from_ne_bytes(word.try_into().unwrap()))
            .collect();
        // entry 6 of the auxiliary vector is the size of a page
        let page = words.chunks_exact(2).find(|pair| pair[0] == 6).unwrap()[1];
        // 64 bits per page: bit 63 says that it is present, bit 62 that it is swapped out
        let first = buffer.f32(1).as_ptr() as usize / page;
        let mut entries = vec![0; 8 * (buffer.bytes() / page)];
        let mut map = std::fs::File::open("/proc/self/pagemap").unwrap();
        map.seek(SeekFrom::Start(8 * first as u64)).unwrap();
        map.read_exact(&mut entries).unwrap();
        let is_present =
            |entry: &&[u8]| u64::from_ne_bytes((*entry).try_into().unwrap()) >> 62 != 0;
        entries.chunks_exact(8).filter(is_present).count() * page
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn pages_that_nobody_touches_are_free() {
        const BYTES: usize = 1 << 28;
        let mut buffer = Buffer::zeroed(BYTES).unwrap();
        // the allocator writes its own note before the first byte
        assert!(present(&buffer) < BYTES / 64);
        buffer.f32_mut(BYTES / 4).fill(1.0);
        assert!(present(&buffer) > BYTES - BYTES / 64);
    }

    #[test]
    fn sizes_past_the_address_space_are_refused() {
        assert_eq!(Buffer::round_up(usize::MAX - 3), None);
        assert_eq!(Buffer::round_up(isize::MAX as usize + 1), None);
    }
}
