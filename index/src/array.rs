//! Long arrays of plain numbers: in memory, or mapped from a cache file that many ranks share.
//!
//! In memory an array above 4 MiB is an anonymous map with huge pages asked for: a shuffle touches a 4 GB array in random
//! order, and with 4 KiB pages most touches would also miss the page table cache. Mapped files are little-endian, as are
//! all machines that we build for.

use crate::error::{At, Error, Result};
use crate::mmap::Map;
use bytemuck::Pod;
use std::ops::Deref;
use std::path::Path;

/// Below this many bytes a plain vector serves.
const LONG_BYTES: usize = 4 << 20;

/// A long array that is not changed once made.
pub struct Array<T>(Place<T>);

enum Place<T> {
    Short(Vec<T>),
    Long(memmap2::MmapMut, usize),
    File { map: Map, from: usize, len: usize },
}

impl<T: Pod + Send + Sync> Array<T> {
    /// `len` zeros.
    ///
    /// # Errors
    /// `Memory` if the system has no room for them.
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
        // refused where the kernel has no huge pages: slower, not wrong
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Array(Place::Long(map, n)))
    }

    /// The last `len` numbers of a file, whose size the caller has checked.
    pub(crate) fn of_file(path: &Path, map: Map, len: usize) -> Result<Array<T>> {
        let from = len
            .checked_mul(size_of::<T>())
            .and_then(|bytes| map.len().checked_sub(bytes));
        let aligned = from.is_some_and(|f| bytemuck::try_cast_slice::<u8, T>(&map[f..]).is_ok());
        match from {
            Some(from) if aligned => Ok(Array(Place::File { map, from, len })),
            _ => Err(std::io::Error::other(format!(
                "{len} numbers do not lie at its end"
            )))
            .at(path),
        }
    }

    /// The numbers, to be filled; a mapped file has none to fill.
    pub(crate) fn as_mut(&mut self) -> &mut [T] {
        match &mut self.0 {
            Place::Short(v) => v,
            Place::Long(map, len) => &mut bytemuck::cast_slice_mut(map)[..*len],
            Place::File { .. } => &mut [],
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
            Place::File { map, from, len } => &bytemuck::cast_slice(&map[*from..])[..*len],
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
