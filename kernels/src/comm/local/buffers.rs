//! Buffer pool for exchanges between threads: buffers are reused, as fresh pages for each exchange would cost more
//! than the copies.

use std::ops::{Deref, Range};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of floats that an op with several turns exchanges at once, so that they stay in the caches and
/// take little memory.
pub(super) const AT_ONCE: usize = 1 << 20;
/// Lengths of buffers that are kept: for shorter ones the allocator itself keeps memory.
const KEPT: Range<usize> = 1 << 14..AT_ONCE + AT_ONCE / 2;

/// Free buffers of a group.
pub(super) struct Buffers {
    free: Mutex<Vec<Vec<f32>>>,
    /// Maximum number of vectors that are kept.
    most: usize,
}

impl Buffers {
    /// For `size` ranks, each of which may have brought two before others have read the first, of two lengths.
    pub(super) fn new(size: usize) -> Arc<Buffers> {
        Arc::new(Buffers {
            free: Mutex::default(),
            most: 4 * size,
        })
    }

    /// Slices, one behind the other.
    pub(super) fn copy<'x>(
        self: &Arc<Self>,
        parts: impl Iterator<Item = &'x [f32]> + Clone,
    ) -> Buffer {
        let mut numbers = self.take(parts.clone().map(<[f32]>::len).sum());
        for part in parts {
            numbers.extend_from_slice(part);
        }
        Buffer {
            numbers,
            home: Arc::clone(self),
        }
    }

    /// An empty vector with this capacity.
    fn take(&self, len: usize) -> Vec<f32> {
        if KEPT.contains(&len) {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            let fits = |numbers: &Vec<f32>| (len..=2 * len).contains(&numbers.capacity());
            let best = (0..free.len())
                .filter(|&i| fits(&free[i]))
                .min_by_key(|&i| free[i].capacity());
            if let Some(best) = best {
                let mut numbers = free.swap_remove(best);
                numbers.clear();
                return numbers;
            }
        }
        Vec::with_capacity(len)
    }

    fn give_back(&self, numbers: Vec<f32>) {
        if !KEPT.contains(&numbers.capacity()) {
            return;
        }
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() == self.most {
            // of a length that is not in use now
            free.swap_remove(0);
        }
        free.push(numbers);
    }
}

/// Floats, and the pool that their memory returns to.
pub(super) struct Buffer {
    numbers: Vec<f32>,
    home: Arc<Buffers>,
}

impl Deref for Buffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.numbers
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.home.give_back(std::mem::take(&mut self.numbers));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free(buffers: &Buffers) -> Vec<usize> {
        let free = buffers.free.lock().unwrap();
        free.iter().map(Vec::capacity).collect()
    }

    #[test]
    fn memory_is_used_again_for_what_fits_and_its_amount_is_bounded() {
        let buffers = Buffers::new(1);
        let long = vec![1.0; KEPT.start];
        let longer = vec![2.0; 3 * KEPT.start];
        let first = buffers.copy([&long[..], &[3.0]].into_iter());
        assert!(first[..long.len()] == long && first[long.len()..] == [3.0]);
        let place = first.as_ptr();
        drop(first);
        assert_eq!(free(&buffers), [KEPT.start + 1]);
        // too long for it, then as long as it
        let other = buffers.copy([&longer[..]].into_iter());
        let again = buffers.copy([&long[..]].into_iter());
        assert!(free(&buffers).is_empty() && again[..] == long && other[..] == longer);
        assert_eq!(again.as_ptr(), place);
        drop((other, again));
        // a short buffer does not take a long one's place
        let short = buffers.copy([&[0.5][..]].into_iter());
        assert_eq!(free(&buffers).len(), 2);
        drop(short);
        assert_eq!(free(&buffers).len(), 2);
        let many: Vec<_> = (0..9)
            .map(|_| buffers.copy([&long[..]].into_iter()))
            .collect();
        drop(many);
        assert_eq!(free(&buffers).len(), 4);
        drop(buffers.copy([&vec![0.0; KEPT.end][..]].into_iter()));
        assert!(free(&buffers).iter().all(|len| *len < KEPT.end));
    }
}
