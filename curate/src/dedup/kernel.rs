//! The MinHash inner loop: minima of (x a + b mod 2^64) mod (2^61 - 1) over all shingles x.
//!
//! The wrap modulo 2^64 before the prime is part of datatrove's definition. One generic loop over
//! blocks of permutations is compiled three times, for AVX-512, AVX2 and the baseline; the CPU
//! decides at run time. All give the same numbers.
#![expect(
    unsafe_code,
    reason = "calls of functions compiled for a CPU feature just detected"
)]

use super::permutation::PRIME;

/// Permutations per block: 56 accumulators of 64 bits are 7 AVX-512 registers.
const BLOCK: usize = 56;

/// Lowers `minima` (starting anywhere) to the minimum over `shingles` for each permutation.
pub(crate) fn minima(a: &[u64], b: &[u64], shingles: &[u64], minima: &mut [u64]) {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
        {
            // SAFETY: the three features the function is compiled for were detected just above.
            unsafe { minima_avx512(a, b, shingles, minima) };
            return;
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the feature the function is compiled for was detected just above.
            unsafe { minima_avx2(a, b, shingles, minima) };
            return;
        }
    }
    blocks::<4>(a, b, shingles, minima);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
fn minima_avx512(a: &[u64], b: &[u64], shingles: &[u64], minima: &mut [u64]) {
    blocks::<BLOCK>(a, b, shingles, minima);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn minima_avx2(a: &[u64], b: &[u64], shingles: &[u64], minima: &mut [u64]) {
    blocks::<28>(a, b, shingles, minima);
}

/// Whole blocks of `B` permutations, then the rest one by one.
#[inline(always)]
fn blocks<const B: usize>(a: &[u64], b: &[u64], shingles: &[u64], minima: &mut [u64]) {
    let (a_blocks, a_rest) = a.as_chunks::<B>();
    let (b_blocks, b_rest) = b.as_chunks::<B>();
    let (m_blocks, m_rest) = minima.as_chunks_mut::<B>();
    for ((a, b), m) in a_blocks.iter().zip(b_blocks).zip(m_blocks) {
        block(a, b, shingles, m);
    }
    for ((a, b), m) in a_rest.iter().zip(b_rest).zip(m_rest) {
        block(&[*a], &[*b], shingles, std::array::from_mut(m));
    }
}

#[inline(always)]
fn block<const B: usize>(a: &[u64; B], b: &[u64; B], shingles: &[u64], out: &mut [u64; B]) {
    let mut low = *out;
    for &x in shingles {
        for j in 0..B {
            let v = a[j].wrapping_mul(x).wrapping_add(b[j]);
            // v < 2^64, so v >> 61 is at most 7 and one subtraction reduces fully.
            let folded = (v & PRIME) + (v >> 61);
            let y = if folded >= PRIME {
                folded - PRIME
            } else {
                folded
            };
            low[j] = if y < low[j] { y } else { low[j] };
        }
    }
    *out = low;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dedup::permutation::permutations;

    #[test]
    fn every_kernel_equals_the_remainder_operator() {
        for count in [1, 7, 112, 117] {
            let (a, b) = permutations(7, count);
            let shingles: Vec<u64> = (0..37u64)
                .map(|i| (i + 1).wrapping_mul(0xdead_beef_cafe_f00d))
                .collect();
            let naive: Vec<u64> = (0..count)
                .map(|k| {
                    let hash = |x: &u64| x.wrapping_mul(a[k]).wrapping_add(b[k]) % PRIME;
                    shingles.iter().map(hash).min().unwrap()
                })
                .collect();
            let mut fast = vec![u64::MAX; count];
            minima(&a, &b, &shingles, &mut fast);
            assert_eq!(fast, naive);
            let mut plain = vec![u64::MAX; count];
            blocks::<4>(&a, &b, &shingles, &mut plain);
            assert_eq!(plain, naive);
        }
    }
}
