//! The MinHash inner loops: minima of each permutation over all shingles.
//!
//! `Prime` is datatrove's (x a + b mod 2^64) mod (2^61 - 1); the wrap modulo 2^64 before the prime is part of its
//! definition. `Shift` is ours, x a + b mod 2^32 with odd a (Dietzfelbinger et al. 1997), four times as many lanes. One
//! generic loop over blocks of permutations is compiled three times, for AVX-512, AVX2 and the baseline; the CPU decides at
//! run time. All give the same numbers.
#![cfg_attr(
    target_arch = "x86_64",
    expect(
        unsafe_code,
        reason = "calls of functions compiled for a CPU feature just detected"
    )
)]

use super::permutation::PRIME;

/// One family of permutations.
pub(crate) trait Family {
    /// Hashes, multipliers and addends.
    type Number: Copy + Ord;

    fn hash(x: Self::Number, a: Self::Number, b: Self::Number) -> Self::Number;
}

/// datatrove's permutations of 64 bits.
pub(crate) struct Prime;

impl Family for Prime {
    type Number = u64;

    #[inline(always)]
    fn hash(x: u64, a: u64, b: u64) -> u64 {
        let v = a.wrapping_mul(x).wrapping_add(b);
        // v < 2^64, so v >> 61 is at most 7 and one subtraction reduces fully.
        let folded = (v & PRIME) + (v >> 61);
        if folded >= PRIME {
            folded - PRIME
        } else {
            folded
        }
    }
}

/// Our permutations of 32 bits.
pub(crate) struct Shift;

impl Family for Shift {
    type Number = u32;

    #[inline(always)]
    fn hash(x: u32, a: u32, b: u32) -> u32 {
        a.wrapping_mul(x).wrapping_add(b)
    }
}

/// Lowers `minima` (starting anywhere) to the minimum over `shingles` for each permutation. `WIDE` accumulators are
/// seven AVX-512 registers, `HALF` seven of AVX2.
pub(crate) fn minima<F: Family, const WIDE: usize, const HALF: usize>(
    a: &[F::Number],
    b: &[F::Number],
    shingles: &[F::Number],
    minima: &mut [F::Number],
) {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
        {
            // SAFETY: the three features the function is compiled for were detected just above.
            unsafe { minima_avx512::<F, WIDE>(a, b, shingles, minima) };
            return;
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the feature the function is compiled for was detected just above.
            unsafe { minima_avx2::<F, HALF>(a, b, shingles, minima) };
            return;
        }
    }
    blocks::<F, 4>(a, b, shingles, minima);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
fn minima_avx512<F: Family, const B: usize>(
    a: &[F::Number],
    b: &[F::Number],
    shingles: &[F::Number],
    minima: &mut [F::Number],
) {
    blocks::<F, B>(a, b, shingles, minima);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn minima_avx2<F: Family, const B: usize>(
    a: &[F::Number],
    b: &[F::Number],
    shingles: &[F::Number],
    minima: &mut [F::Number],
) {
    blocks::<F, B>(a, b, shingles, minima);
}

/// Whole blocks of `B` permutations, then blocks of 16, then the rest one by one.
#[inline(always)]
fn blocks<F: Family, const B: usize>(
    a: &[F::Number],
    b: &[F::Number],
    shingles: &[F::Number],
    minima: &mut [F::Number],
) {
    let done = run::<F, B>(a, b, shingles, minima);
    let (a, b, minima) = (&a[done..], &b[done..], &mut minima[done..]);
    let done = run::<F, 16>(a, b, shingles, minima);
    run::<F, 1>(&a[done..], &b[done..], shingles, &mut minima[done..]);
}

/// Whole blocks of `B` permutations; how many permutations those were.
#[inline(always)]
fn run<F: Family, const B: usize>(
    a: &[F::Number],
    b: &[F::Number],
    shingles: &[F::Number],
    minima: &mut [F::Number],
) -> usize {
    let (a, b) = (a.as_chunks::<B>().0, b.as_chunks::<B>().0);
    let m = minima.as_chunks_mut::<B>().0;
    for ((a, b), m) in a.iter().zip(b).zip(m) {
        block::<F, B>(a, b, shingles, m);
    }
    a.len() * B
}

#[inline(always)]
fn block<F: Family, const B: usize>(
    a: &[F::Number; B],
    b: &[F::Number; B],
    shingles: &[F::Number],
    out: &mut [F::Number; B],
) {
    let mut low = *out;
    for &x in shingles {
        for j in 0..B {
            let y = F::hash(x, a[j], b[j]);
            low[j] = if y < low[j] { y } else { low[j] };
        }
    }
    *out = low;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dedup::minhash::permutation::{permutations, shifts};

    /// The dispatched loop and the baseline's against one minimum after the other.
    fn agree<F: Family<Number: std::fmt::Debug + Default>>(
        fast: impl Fn(&[F::Number], &[F::Number], &[F::Number], &mut [F::Number]),
        (a, b): (Vec<F::Number>, Vec<F::Number>),
        shingles: &[F::Number],
        top: F::Number,
        plainly: impl Fn(F::Number, F::Number, F::Number) -> F::Number,
    ) {
        let naive: Vec<F::Number> = (0..a.len())
            .map(|k| {
                shingles
                    .iter()
                    .map(|&x| plainly(x, a[k], b[k]))
                    .min()
                    .unwrap()
            })
            .collect();
        let mut got = vec![top; a.len()];
        fast(&a, &b, shingles, &mut got);
        assert_eq!(got, naive);
        let mut plain = vec![top; a.len()];
        blocks::<F, 4>(&a, &b, shingles, &mut plain);
        assert_eq!(plain, naive);
    }

    #[test]
    fn every_kernel_equals_the_plain_formula() {
        let wide: Vec<u64> = (0..37u64)
            .map(|i| (i + 1).wrapping_mul(0xdead_beef_cafe_f00d))
            .collect();
        let narrow: Vec<u32> = wide.iter().map(|x| (x >> 32) as u32).collect();
        for count in [1, 7, 112, 117, 128, 260] {
            agree::<Prime>(
                minima::<Prime, 56, 28>,
                permutations(7, count),
                &wide,
                u64::MAX,
                |x, a, b| x.wrapping_mul(a).wrapping_add(b) % PRIME,
            );
            agree::<Shift>(
                minima::<Shift, 112, 56>,
                shifts(7, count),
                &narrow,
                u32::MAX,
                |x, a, b| {
                    let wide = (u64::from(x) * u64::from(a) + u64::from(b)) % (1 << 32);
                    u32::try_from(wide).unwrap()
                },
            );
        }
    }
}
