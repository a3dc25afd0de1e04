//! NumPy's legacy generator, bit-equal: MT19937 with masked rejection. Sample order and masking depend on it. CPython's
//! generator is the same with other seeds and draws (`python.rs`).
//!
//! Source: Matsumoto & Nishimura 1998 (MT19937); numpy `RandomState` (legacy seeding `init_genrand`).
//! bounded(max): no draw if max == 0; mask = 2^bits(max) - 1; draw 32 bits (64, high half first, if max > 2^32 - 1),
//! mask, reject while > max. Shuffles, which need it a billion times, are in `shuffle.rs`.
//! We differ: all 624 words are tempered at once, in a loop that the compiler vectorises.

mod mt64;
mod python;
mod shuffle;

pub(crate) use mt64::Mt64;
pub use python::PythonRandom;

/// Words of the state.
const N: usize = 624;
/// The recurrence's offset.
const M: usize = 397;

/// `numpy.random.RandomState(seed)` for a 32-bit seed.
#[derive(Clone)]
pub struct RandomState {
    key: [u32; N],
    /// Tempered words of the present block.
    out: [u32; N],
    at: usize,
}

impl RandomState {
    /// Seeds as `init_genrand` does.
    pub fn new(seed: u32) -> RandomState {
        let mut key = [0u32; N];
        let mut last = seed;
        key[0] = seed;
        for (i, k) in (1u32..).zip(key.iter_mut().skip(1)) {
            last = 1_812_433_253u32
                .wrapping_mul(last ^ (last >> 30))
                .wrapping_add(i);
            *k = last;
        }
        RandomState {
            key,
            out: [0; N],
            at: N,
        }
    }

    fn refill(&mut self) {
        let twist = |a: u32, b: u32, m: u32| {
            let y = (a & 0x8000_0000) | (b & 0x7fff_ffff);
            m ^ (y >> 1) ^ ((y & 1).wrapping_neg() & 0x9908_b0df)
        };
        let k = &mut self.key;
        for i in 0..N - M {
            k[i] = twist(k[i], k[i + 1], k[i + M]);
        }
        for i in N - M..N - 1 {
            k[i] = twist(k[i], k[i + 1], k[i + M - N]);
        }
        k[N - 1] = twist(k[N - 1], k[0], k[M - 1]);
        for (o, k) in self.out.iter_mut().zip(&self.key) {
            let mut y = *k;
            y ^= y >> 11;
            y ^= (y << 7) & 0x9d2c_5680;
            y ^= (y << 15) & 0xefc6_0000;
            *o = y ^ (y >> 18);
        }
        self.at = 0;
    }

    /// The next 32 bits.
    #[inline]
    pub fn next_u32(&mut self) -> u32 {
        if self.at == N {
            self.refill();
        }
        self.at += 1;
        self.out[self.at - 1]
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

    /// `random()`: uniform in [0, 1) with 53 bits.
    pub(crate) fn random(&mut self) -> f64 {
        let a = f64::from(self.next_u32() >> 5);
        let b = f64::from(self.next_u32() >> 6);
        (a * 67_108_864.0 + b) / 9_007_199_254_740_992.0
    }

    /// `randint(low, high)` for the width of a list index; `low` if that is the only choice.
    pub(crate) fn randint(&mut self, low: usize, high: usize) -> usize {
        let span = (high - low - 1) as u64;
        low + usize::try_from(self.bounded(span)).unwrap_or(0)
    }

    /// The index that `choice(values, p = weights / sum)` returns: the first whose cumulative share is above a draw.
    pub(crate) fn choice(&mut self, shares: &[f64]) -> usize {
        let cumulative: Vec<f64> = shares
            .iter()
            .scan(0.0, |sum, p| {
                *sum += p;
                Some(*sum)
            })
            .collect();
        let last = cumulative.last().copied().unwrap_or(1.0);
        let draw = self.random();
        cumulative.partition_point(|c| c / last <= draw)
    }

    /// `geometric(p)` for p < 1/3, by inversion.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most ln(2^-53) / ln(1 - p), a few hundred for the p in use"
    )]
    pub(crate) fn geometric(&mut self, p: f64) -> usize {
        let draw = self.random();
        ((-draw).ln_1p() / (1.0 - p).ln()).ceil() as usize
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
