//! Long arrays of plain numbers in memory.
//!
//! An array above 4 MiB is an anonymous map with huge pages requested (madvise): a shuffle touches a 4 GB array in
//! random order, and with 4 KiB pages most accesses would also miss the TLB. Files of such arrays are
//! little-endian, as are all machines that we build for.

use crate::error::{Error, Result};
use bytemuck::Pod;
use std::ops::Deref;

/// Below this many bytes a plain vector is used.
const LONG_BYTES: usize = 4 << 20;

/// A long array that is immutable once filled.
pub struct Array<T>(Place<T>);

enum Place<T> {
    Short(Vec<T>),
    Long(memmap2::MmapMut, usize),
}

impl<T: Pod + Send + Sync> Array<T> {
    /// `len` zeros.
    ///
    /// # Errors
    /// `Memory` if the allocation fails.
    pub(crate) fn zeros(what: &'static str, len: u64) -> Result<Array<T>> {
        let refuse = |why: String| Error::Memory {
            what,
            bytes: len.saturating_mul(size_of::<T>() as u64),
            why,
        };
        let n = usize::try_from(len).map_err(|e| refuse(e.to_string()))?;
        let bytes = n
            .checked_mul(size_of::<T>())
            .ok_or_else(|| refuse("more than the address space".into()))?;
        if bytes < LONG_BYTES {
            return Ok(Array(Place::Short(vec![T::zeroed(); n])));
        }
        let map = memmap2::MmapMut::map_anon(bytes).map_err(|e| refuse(e.to_string()))?;
        // fails where the kernel has no huge pages: slower, not wrong
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Array(Place::Long(map, n)))
    }

    /// The numbers, to be filled.
    pub(crate) fn as_mut(&mut self) -> &mut [T] {
        match &mut self.0 {
            Place::Short(v) => v,
            Place::Long(map, len) => &mut bytemuck::cast_slice_mut(map)[..*len],
        }
    }

    /// As bytes, little-endian.
    pub fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self)
    }
}

impl<T: Pod> Deref for Array<T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        match &self.0 {
            Place::Short(v) => v,
            Place::Long(map, len) => &bytemuck::cast_slice(map)[..*len],
        }
    }
}

impl<T: Pod> From<Vec<T>> for Array<T> {
    fn from(v: Vec<T>) -> Array<T> {
        Array(Place::Short(v))
    }
}

impl<T: Pod + PartialEq> PartialEq for Array<T> {
    fn eq(&self, other: &Array<T>) -> bool {
        self[..] == other[..]
    }
}

impl<T: Pod + std::fmt::Debug> std::fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter().take(16)).finish()
    }
}
