//! C++'s `std::mt19937_64`, with which Megatron shuffles the sample maps of BERT and T5.
//!
//! Source: Nishimura & Matsumoto 2004, the 64-bit variant (n = 312, m = 156), with the C++ standard's seeding.

const N: usize = 312;
const M: usize = 156;

/// The generator.
pub(crate) struct Mt64 {
    key: [u64; N],
    at: usize,
}

impl Mt64 {
    pub(crate) fn new(seed: u64) -> Mt64 {
        let mut key = [seed; N];
        for i in 1..N {
            let last = key[i - 1];
            key[i] = 6_364_136_223_846_793_005u64
                .wrapping_mul(last ^ (last >> 62))
                .wrapping_add(i as u64);
        }
        Mt64 { key, at: N }
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        if self.at == N {
            for i in 0..N {
                let y =
                    (self.key[i] & 0xffff_ffff_8000_0000) | (self.key[(i + 1) % N] & 0x7fff_ffff);
                self.key[i] = self.key[(i + M) % N]
                    ^ (y >> 1)
                    ^ ((y & 1).wrapping_neg() & 0xb502_6f5a_a966_19e9);
            }
            self.at = 0;
        }
        let mut y = self.key[self.at];
        self.at += 1;
        y ^= (y >> 29) & 0x5555_5555_5555_5555;
        y ^= (y << 17) & 0x71d6_7fff_eda6_0000;
        y ^= (y << 37) & 0xfff7_eee0_0000_0000;
        y ^ (y >> 43)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ten_thousandth_number_is_the_one_that_the_cpp_standard_names() {
        let mut g = Mt64::new(5489);
        let last = (0..10_000).map(|_| g.next_u64()).last();
        assert_eq!(last, Some(9_981_545_732_273_789_042));
    }
}
