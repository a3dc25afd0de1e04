//! numpy's legacy generator, bit for bit: MT19937 with masked rejection. Sample order depends on it.
//!
//! Source: Matsumoto & Nishimura 1998 (MT19937); numpy `RandomState` (legacy seeding `init_genrand`, `shuffle`).
//! bounded(max): no draw if max == 0; mask = 2^bits(max) - 1; draw 32 bits (64, high half first, if max > 2^32 - 1),
//! mask, reject while > max. shuffle: for i = n-1 down to 1, swap(i, bounded(i)).

/// `numpy.random.RandomState(seed)` for a 32-bit seed.
pub struct RandomState {
    key: [u32; 624],
    at: usize,
}

impl RandomState {
    /// Seeds as `init_genrand` does.
    pub fn new(seed: u32) -> RandomState {
        let mut key = [0u32; 624];
        let mut last = seed;
        key[0] = seed;
        for (i, k) in (1u32..).zip(key.iter_mut().skip(1)) {
            last = 1_812_433_253u32
                .wrapping_mul(last ^ (last >> 30))
                .wrapping_add(i);
            *k = last;
        }
        RandomState { key, at: 624 }
    }

    fn refill(&mut self) {
        let twist = |a: u32, b: u32, m: u32| {
            let y = (a & 0x8000_0000) | (b & 0x7fff_ffff);
            m ^ (y >> 1) ^ ((y & 1).wrapping_neg() & 0x9908_b0df)
        };
        let k = &mut self.key;
        for i in 0..227 {
            k[i] = twist(k[i], k[i + 1], k[i + 397]);
        }
        for i in 227..623 {
            k[i] = twist(k[i], k[i + 1], k[i - 227]);
        }
        k[623] = twist(k[623], k[0], k[396]);
        self.at = 0;
    }

    /// The next 32 bits.
    #[inline]
    pub fn next_u32(&mut self) -> u32 {
        if self.at == 624 {
            self.refill();
        }
        let mut y = self.key[self.at];
        self.at += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }

    /// Uniform in 0..=max.
    #[inline]
    pub fn bounded(&mut self, max: u64) -> u64 {
        if max == 0 {
            return 0;
        }
        let mask = u64::MAX >> max.leading_zeros();
        loop {
            let draw = if max <= u64::from(u32::MAX) {
                u64::from(self.next_u32())
            } else {
                let high = u64::from(self.next_u32());
                high << 32 | u64::from(self.next_u32())
            } & mask;
            if draw <= max {
                return draw;
            }
        }
    }

    /// `RandomState.shuffle` of a one-dimensional array.
    pub fn shuffle<T>(&mut self, x: &mut [T]) {
        for i in (1..x.len()).rev() {
            // bounded(i) <= i < len, so the cast cannot cut
            let j = usize::try_from(self.bounded(i as u64)).unwrap_or(i);
            x.swap(i, j);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Vectors: numpy 2.2.6 (`RandomState(1234)`).
    #[test]
    fn first_words_and_shuffle_of_seed_1234_are_numpys() {
        let mut r = RandomState::new(1234);
        let first: Vec<u32> = (0..5).map(|_| r.next_u32()).collect();
        assert_eq!(
            first,
            [822569775, 2137449171, 2671936806, 3512589365, 1880026316]
        );
        let mut x: Vec<u32> = (0..10).collect();
        RandomState::new(1234).shuffle(&mut x);
        assert_eq!(x, [7, 2, 9, 1, 0, 8, 4, 5, 6, 3]);
    }

    #[test]
    fn bounded_by_more_than_32_bits_draws_the_high_half_first() {
        let max = 1u64 << 40;
        let mut a = RandomState::new(7);
        let mut b = RandomState::new(7);
        let mask = (1u64 << 41) - 1;
        let want = loop {
            let high = u64::from(b.next_u32());
            let v = (high << 32 | u64::from(b.next_u32())) & mask;
            if v <= max {
                break v;
            }
        };
        assert_eq!(a.bounded(max), want);
    }
}
