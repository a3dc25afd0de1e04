//! The permutations of datatrove's MinHash, bit for bit, and ours.
//!
//! Ours (`shifts`) are SplitMix64's numbers by (seed, number), whatever their count. datatrove's: numpy's
//! `RandomState(seed)`: MT19937 seeded by `init_genrand`; `randint(low, high, uint64)` draws 64 bits as (first <<
//! 32 | second), masks them to the smallest 2^k - 1 that covers the range and rejects larger ones. All multipliers
//! are drawn first, then all addends. Source: Matsumoto & Nishimura 1998 (the generator), numpy legacy `randint`
//! (the rejection).

/// 2^61 - 1, the prime of the hash family.
pub(crate) const PRIME: u64 = (1 << 61) - 1;

const N: usize = 624;
const M: usize = 397;

/// MT19937 with numpy's legacy integer seeding.
struct Mt19937 {
    state: [u32; N],
    next: usize,
}

impl Mt19937 {
    fn new(seed: u32) -> Mt19937 {
        let mut state = [0; N];
        state[0] = seed;
        let mut last = seed;
        for (i, word) in (0u32..).zip(state.iter_mut()).skip(1) {
            last = 1_812_433_253u32
                .wrapping_mul(last ^ (last >> 30))
                .wrapping_add(i);
            *word = last;
        }
        Mt19937 { state, next: N }
    }

    fn twist(&mut self) {
        for i in 0..N {
            let y = (self.state[i] & 0x8000_0000) | (self.state[(i + 1) % N] & 0x7fff_ffff);
            let odd = if y & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[i] = self.state[(i + M) % N] ^ (y >> 1) ^ odd;
        }
        self.next = 0;
    }

    fn next_u32(&mut self) -> u32 {
        if self.next == N {
            self.twist();
        }
        let mut y = self.state[self.next];
        self.next += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }

    /// Uniform in `low..high` for high - low in (2^60, 2^61].
    fn below(&mut self, low: u64, high: u64) -> u64 {
        let span = high - 1 - low;
        loop {
            let draw = (u64::from(self.next_u32()) << 32 | u64::from(self.next_u32())) & PRIME;
            if draw <= span {
                return draw + low;
            }
        }
    }
}

/// Multipliers in 1..2^61-1 and addends in 0..2^61-1.
pub(crate) fn permutations(seed: u32, count: usize) -> (Vec<u64>, Vec<u64>) {
    let mut mt = Mt19937::new(seed);
    let a = (0..count).map(|_| mt.below(1, PRIME)).collect();
    let b = (0..count).map(|_| mt.below(0, PRIME)).collect();
    (a, b)
}

/// Odd multipliers and addends of 32 bits for our own family.
pub(crate) fn shifts(seed: u32, count: usize) -> (Vec<u32>, Vec<u32>) {
    (0..count as u64)
        .map(|k| {
            let bits = split_mix(u64::from(seed) << 32 | k);
            #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
            let (a, b) = ((bits >> 32) as u32 | 1, bits as u32);
            (a, b)
        })
        .unzip()
}

/// The number after state `x` of SplitMix64 (Steele, Lea and Flood 2014).
fn split_mix(x: u64) -> u64 {
    let x = x
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_1_gives_numpys_numbers() {
        let (a, b) = permutations(1, 112);
        assert_eq!(
            a[..3],
            [775169054918279404, 1758426461858698313, 2109959069025162]
        );
        assert_eq!(
            b[..3],
            [
                1062448801025099917,
                1324811268927594100,
                1217488311597731462
            ]
        );
    }
    #[test]
    fn split_mix_gives_the_published_numbers() {
        // the generator seeded with 0: its states are multiples of the increment
        let numbers = [
            0xe220_a839_7b1d_cdaf,
            0x6e78_9e6a_a1b9_65f4,
            0x06c4_5d18_8009_454f,
        ];
        for (i, number) in (0u64..).zip(numbers) {
            assert_eq!(split_mix(i), number);
        }
        assert!(shifts(3, 40).0.iter().all(|a| a % 2 == 1));
        assert_ne!(shifts(3, 40), shifts(4, 40));
    }
}
