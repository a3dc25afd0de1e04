//! NumPy's `RandomState.shuffle`: for i = n-1 down to 1, swap(i, bounded(i)).
//!
//! A shuffle of 10^9 numbers is 10^9 swaps at random positions and as many draws whose rejection no branch
//! predictor can guess. So a few thousand draws are made first, branch-free: within a power of two the mask is
//! constant, and a rejected draw is overwritten by the next. Then the positions are touched as a prefetch, with
//! many cache misses in flight, and only then swapped.

use super::{N, RandomState};

/// Swaps worked on at once: their targets' cache lines (64 bytes each) fit the second-level cache.
const BATCH: usize = 1024;

impl RandomState {
    /// `RandomState.shuffle` of a one-dimensional array.
    pub fn shuffle<T: Copy>(&mut self, x: &mut [T]) {
        let mut targets = [0u32; BATCH];
        let mut i = x.len().saturating_sub(1);
        while i > 0 {
            let Ok(top) = u32::try_from(i) else {
                // above 2^32 a draw takes two words; nothing that large is shuffled often
                let j = usize::try_from(self.bounded(i as u64)).unwrap_or(i);
                x.swap(i, j);
                i -= 1;
                continue;
            };
            let n = self.targets(top, &mut targets);
            for j in &targets[..n] {
                std::hint::black_box(x[*j as usize]);
            }
            for (k, j) in targets[..n].iter().enumerate() {
                x.swap(i - k, *j as usize);
            }
            i -= n;
        }
    }

    /// `bounded(top)`, `bounded(top - 1)`, ... into `out`, as far as the mask stays; returns how many.
    fn targets(&mut self, top: u32, out: &mut [u32; BATCH]) -> usize {
        let mask = u32::MAX >> top.leading_zeros();
        let lowest = (mask >> 1) + 1;
        let count = ((top - lowest) as usize + 1).min(BATCH);
        let mut n = 0;
        while n < count {
            if self.at == N {
                self.refill();
            }
            let mut used = 0;
            // at most BATCH - 1 below 2^32
            #[expect(clippy::cast_possible_truncation, reason = "n < BATCH")]
            for word in &self.out[self.at..] {
                used += 1;
                let v = word & mask;
                out[n % BATCH] = v;
                n += usize::from(v <= top - n as u32);
                if n == count {
                    break;
                }
            }
            self.at += used;
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffling_in_batches_equals_one_bounded_draw_a_swap() {
        for n in [
            0usize, 1, 2, 3, 255, 256, 257, 1023, 1024, 1025, 5000, 70_001,
        ] {
            let mut want: Vec<usize> = (0..n).collect();
            let mut one = RandomState::new(5);
            for i in (1..n).rev() {
                let j = usize::try_from(one.bounded(i as u64)).unwrap();
                want.swap(i, j);
            }
            let mut got: Vec<usize> = (0..n).collect();
            let mut batched = RandomState::new(5);
            batched.shuffle(&mut got);
            assert_eq!(got, want, "{n}");
            assert_eq!(batched.next_u32(), one.next_u32(), "stream after {n}");
        }
    }
}
