//! The greedy order of a blend, bit-equal to megatron-core's C++ and several times as fast.
//!
//! Sample s comes from the first dataset with the largest error w_d max(s, 1) - taken_d in f64, product and difference
//! rounded one after the other. Exhaustive: the same, w_d = size_d / sum of sizes, among datasets with samples left.
//! Source: megatron-core 0.16.1 `helpers.cpp` (`build_blending_indices`, `build_exhaustive_blending_indices`).
//! Performance: counts are kept as f64 (exact below 2^53) in blocks of eight SIMD lanes, and a step finds the
//! largest error and its first position without a branch; an absent or exhausted dataset counts +infinity samples
//! taken, so that its error never wins. Since each step depends on the previous one, a long order is computed
//! speculatively in pieces, four interleaved on each thread: a piece starts a little early from counts guessed by
//! rounding w_d s, and the greedy choice soon converges, since a dataset that is ahead is chosen later. The guess
//! was harmless if the counts at the seam equal those with which the previous piece ended; this is checked, and a
//! piece that fails is computed again from the true counts. So the order never depends on threads or guesses.
//! Compiled three times, for the vectors that the CPU has.
#![cfg_attr(
    target_arch = "x86_64",
    expect(
        unsafe_code,
        reason = "calls of functions compiled for vectors that the CPU was detected to have"
    )
)]

use crate::array::Array;
use crate::error::Result;
use rayon::prelude::*;

/// Lanes of a block: one AVX-512 register, two of AVX2, four of SSE2 or NEON.
const LANES: usize = 8;
/// Pieces interleaved on a thread.
const PIECES: usize = 4;
/// Shorter orders are made in one piece.
const LONG: usize = 1 << 16;

/// Dataset and number in that dataset, for every sample.
pub type Columns = (Array<i16>, Array<i64>);

/// Weights and counts of eight datasets, each array in its own cache line: a vector that straddles two lines needs
/// two accesses and defeats store forwarding from the previous step.
#[derive(Clone, Debug, PartialEq)]
#[repr(C, align(64))]
struct Block {
    weights: [f64; LANES],
    taken: [f64; LANES],
}

/// State of the choice: weights and counts in blocks, absent lanes marked as exhausted.
#[derive(Clone)]
struct Scales {
    blocks: Vec<Block>,
    /// Samples that a dataset has left; empty if that does not matter.
    left: Vec<u64>,
}

impl Scales {
    fn of(weights: &[f64], left: Vec<u64>) -> Scales {
        let unused = Block {
            weights: [0.0; LANES],
            taken: [f64::INFINITY; LANES],
        };
        let mut blocks = vec![unused; weights.len().div_ceil(LANES)];
        for (d, w) in weights.iter().enumerate() {
            blocks[d / LANES].weights[d % LANES] = *w;
            blocks[d / LANES].taken[d % LANES] = 0.0;
        }
        Scales { blocks, left }
    }

    /// Likely counts after `s` samples: w_d s rounded so that they add up.
    fn guess(weights: &[f64], s: u64) -> Scales {
        let mut scales = Scales::of(weights, Vec::new());
        let share = |d: &usize| weights[*d] * s as f64;
        let given: f64 = (0..weights.len()).map(|d| share(&d).floor()).sum();
        let mut most: Vec<usize> = (0..weights.len()).collect();
        most.sort_by(|a, b| share(b).fract().total_cmp(&share(a).fract()).then(a.cmp(b)));
        let extra = s as f64 - given;
        for (place, d) in most.into_iter().enumerate() {
            let one = f64::from(u8::from((place as f64) < extra));
            scales.blocks[d / LANES].taken[d % LANES] = share(&d).floor() + one;
        }
        scales
    }

    /// The first dataset with the largest error.
    // Plain loops, see `advance`.
    #[inline(always)]
    fn heaviest(&self, m: f64) -> usize {
        let (mut most, mut at) = ([f64::NEG_INFINITY; LANES], [0.0; LANES]);
        // block numbers as f64, so that they stay in the same kind of register as the errors
        let mut b = 0.0;
        for Block { weights, taken } in &self.blocks {
            for i in 0..LANES {
                let e = weights[i] * m - taken[i];
                at[i] = if e > most[i] { b } else { at[i] };
                most[i] = if e > most[i] { e } else { most[i] };
            }
            b += LANES as f64;
        }
        let mut top = most;
        for half in [4, 2, 1] {
            for i in 0..half {
                let (a, b) = (top[i], top[i + half]);
                top[i] = if b > a { b } else { a };
            }
        }
        let mut first = [0.0; LANES];
        for i in 0..LANES {
            first[i] = if most[i] == top[0] {
                at[i] + i as f64
            } else {
                f64::INFINITY
            };
        }
        for half in [4, 2, 1] {
            for i in 0..half {
                let (a, b) = (first[i], first[i + half]);
                first[i] = if b < a { b } else { a };
            }
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a place among the lanes"
        )]
        let place = first[0] as u32;
        place as usize
    }

    /// The choice at `s`: dataset and its sample.
    #[inline(always)]
    fn step<const USED_UP: bool>(&mut self, s: u64) -> (i16, i64) {
        let d = self.heaviest(s.max(1) as f64);
        let lane = d % LANES;
        let Some(Block { taken, .. }) = self.blocks.get_mut(d / LANES) else {
            return (0, 0);
        };
        // counts are whole and far below 2^53; at most 32 766 datasets
        #[expect(clippy::cast_possible_truncation, reason = "see above")]
        let chosen = (d as i16, taken[lane] as i64);
        // the whole block, so that the next step's vector load is forwarded from one store
        for (i, t) in taken.iter_mut().enumerate() {
            *t += if i == lane { 1.0 } else { 0.0 };
        }
        if let (true, Some(left)) = (USED_UP, self.left.get_mut(d)) {
            *left -= 1;
            if *left == 0 {
                taken[lane] = f64::INFINITY;
            }
        }
        chosen
    }
}

/// Consecutive samples of the order.
struct Piece<'a> {
    /// Counts `early` samples before the first; afterwards, those after the last.
    scales: Scales,
    early: u64,
    /// Counts before the first sample, once they are known.
    start: Vec<Block>,
    from: u64,
    dataset: &'a mut [i16],
    sample: &'a mut [i64],
}

impl<'a> Piece<'a> {
    fn of(
        scales: Scales,
        early: u64,
        from: u64,
        (dataset, sample): (&'a mut [i16], &'a mut [i64]),
    ) -> Piece<'a> {
        Piece {
            scales,
            early,
            start: Vec::new(),
            from,
            dataset,
            sample,
        }
    }

    #[inline(always)]
    fn warm_up(&mut self, back: u64) {
        if back <= self.early {
            self.scales.step::<false>(self.from - back);
        }
    }

    fn begin(&mut self) {
        self.start.clone_from(&self.scales.blocks);
    }

    #[inline(always)]
    fn step<const USED_UP: bool>(&mut self, i: usize) {
        let chosen = self.scales.step::<USED_UP>(self.from + i as u64);
        (self.dataset[i], self.sample[i]) = chosen;
    }
}

/// Runs some pieces, four of them interleaved; the counts with which each begins its own samples are stored in `start`.
// Plain loops: a closure would be compiled for the vectors that every CPU has.
#[inline(always)]
fn advance(pieces: &mut [Piece]) {
    if let [a, b, c, d] = pieces {
        let early = a.early.max(b.early).max(c.early).max(d.early);
        for back in (1..=early).rev() {
            a.warm_up(back);
            b.warm_up(back);
            c.warm_up(back);
            d.warm_up(back);
        }
        a.begin();
        b.begin();
        c.begin();
        d.begin();
        let common =
            (a.dataset.len().min(b.dataset.len())).min(c.dataset.len().min(d.dataset.len()));
        for i in 0..common {
            a.step::<false>(i);
            b.step::<false>(i);
            c.step::<false>(i);
            d.step::<false>(i);
        }
        for p in [a, b, c, d] {
            for i in common..p.dataset.len() {
                p.step::<false>(i);
            }
        }
        return;
    }
    for p in pieces {
        for back in (1..=p.early).rev() {
            p.warm_up(back);
        }
        p.begin();
        if p.scales.left.is_empty() {
            for i in 0..p.dataset.len() {
                p.step::<false>(i);
            }
        } else {
            for i in 0..p.dataset.len() {
                p.step::<true>(i);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw")]
fn advance_avx512(pieces: &mut [Piece]) {
    advance(pieces);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn advance_avx2(pieces: &mut [Piece]) {
    advance(pieces);
}

/// [`advance`], dispatched to the best vector instructions of this CPU.
fn advance_here(pieces: &mut [Piece]) {
    #[cfg(target_arch = "x86_64")]
    {
        let wide = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512bw");
        if wide {
            // SAFETY: the four AVX-512 features the function is compiled for were detected just above.
            return unsafe { advance_avx512(pieces) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: AVX2, which the function is compiled for, was detected just above.
            return unsafe { advance_avx2(pieces) };
        }
    }
    advance(pieces);
}

/// The order of `size` samples by normalised weights.
///
/// # Errors
/// `Memory`.
pub fn weighted(weights: &[f64], size: u64) -> Result<Columns> {
    let least = weights.iter().copied().fold(1.0, f64::min);
    // a guess has converged once every dataset was chosen a few times
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturating"
    )]
    let early = (16.0 / least) as u64;
    in_pieces(weights, size, LONG, early)
}

/// Like [`weighted`], in one piece below `long` samples, guessing `early` samples before a piece.
fn in_pieces(weights: &[f64], size: u64, long: usize, early: u64) -> Result<Columns> {
    let mut dataset = Array::zeros("dataset_index", size)?;
    let mut sample = Array::zeros("dataset_sample_index", size)?;
    let (d, k) = (dataset.as_mut(), sample.as_mut());
    let count = (rayon::current_num_threads() * PIECES).max(d.len() / (64 * LONG));
    let length = d.len().div_ceil(count.next_multiple_of(PIECES)).max(1);
    if d.len() < long || early > length as u64 / 4 {
        let scales = Scales::of(weights, Vec::new());
        advance_here(&mut [Piece::of(scales, 0, 0, (d, k))]);
        return Ok((dataset, sample));
    }
    let columns = d.chunks_mut(length).zip(k.chunks_mut(length));
    let from = (0u64..).step_by(length);
    let mut pieces: Vec<Piece> = from
        .zip(columns)
        .map(|(from, columns)| match from {
            0 => Piece::of(Scales::of(weights, Vec::new()), 0, 0, columns),
            _ => Piece::of(Scales::guess(weights, from - early), early, from, columns),
        })
        .collect();
    pieces.par_chunks_mut(PIECES).for_each(advance_here);
    for i in 1..pieces.len() {
        let last = pieces[i - 1].scales.clone();
        let piece = &mut pieces[i];
        if piece.start != last.blocks {
            (piece.scales, piece.early) = (last, 0);
            advance_here(std::slice::from_mut(piece));
        }
    }
    Ok((dataset, sample))
}

/// Every sample of every dataset once; no size is 0.
pub(super) fn exhaustive(sizes: &[u64]) -> Result<Columns> {
    let total: u64 = sizes.iter().sum();
    let weights: Vec<f64> = sizes.iter().map(|s| *s as f64 / total as f64).collect();
    let mut dataset = Array::zeros("dataset_index", total)?;
    let mut sample = Array::zeros("dataset_sample_index", total)?;
    let scales = Scales::of(&weights, sizes.to_vec());
    let columns = (dataset.as_mut(), sample.as_mut());
    advance_here(&mut [Piece::of(scales, 0, 0, columns)]);
    Ok((dataset, sample))
}

#[cfg(test)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small numbers"
)]
mod tests {
    use super::*;

    /// Megatron's loop, word for word in f64.
    fn naive(weights: &[f64], size: u64, sizes: Option<&[u64]>) -> Vec<(i16, i64)> {
        let mut taken = vec![0u64; weights.len()];
        let mut out = Vec::new();
        for s in 0..size {
            let m = s.max(1) as f64;
            let (mut best, mut most) = (0, f64::MIN);
            for (d, w) in weights.iter().enumerate() {
                let error = w * m - taken[d] as f64;
                let left = sizes.is_none_or(|z| taken[d] < z[d]);
                if left && error > most {
                    (best, most) = (d, error);
                }
            }
            out.push((best as i16, taken[best] as i64));
            taken[best] += 1;
        }
        out
    }

    fn rows(c: &Columns) -> Vec<(i16, i64)> {
        c.0.iter().copied().zip(c.1.iter().copied()).collect()
    }

    #[test]
    fn the_order_of_four_weights_is_megatrons() {
        let (d, _) = weighted(&[0.3, 0.55, 0.1, 0.05], 20).unwrap();
        let want = [1, 0, 2, 1, 1, 0, 1, 3, 1, 0, 1, 0, 1, 2, 1, 0, 1, 1, 0, 1];
        assert_eq!(d[..], want);
    }

    proptest::proptest! {
        #[test]
        fn vectors_choose_as_the_plain_loop_does(
            raw in proptest::collection::vec(1u32..1000, 1..40),
            size in 0u64..30_000,
            equal in proptest::bool::ANY,
        ) {
            let raw: Vec<f64> = raw.iter().map(|w| if equal { 1.0 } else { f64::from(*w) }).collect();
            let sum: f64 = raw.iter().sum();
            let weights: Vec<f64> = raw.iter().map(|w| w / sum).collect();
            proptest::prop_assert_eq!(rows(&weighted(&weights, size).unwrap()), naive(&weights, size, None));
            let mut plain = Scales::of(&weights, Vec::new());
            let got: Vec<_> = (0..500).map(|s| plain.step::<false>(s)).collect();
            proptest::prop_assert_eq!(got, naive(&weights, 500, None));
            // pieces of every length; a guess without warm-up is usually wrong
            for early in [0, 7, 500] {
                let in_pieces = in_pieces(&weights, size, 0, early).unwrap();
                proptest::prop_assert_eq!(rows(&in_pieces), naive(&weights, size, None));
            }
        }

        #[test]
        fn exhaustive_chooses_as_the_plain_loop_does(sizes in proptest::collection::vec(1u64..200, 1..30)) {
            let total: u64 = sizes.iter().sum();
            let weights: Vec<f64> = sizes.iter().map(|s| *s as f64 / total as f64).collect();
            proptest::prop_assert_eq!(rows(&exhaustive(&sizes).unwrap()), naive(&weights, total, Some(&sizes)));
        }
    }

    #[test]
    fn counts_stay_within_one_of_the_weights_at_every_prefix() {
        let w = [0.5, 0.3, 0.2];
        let (d, s) = weighted(&w, 1000).unwrap();
        let mut taken = [0i64; 3];
        for (k, (d, s)) in d.iter().zip(&s[..]).enumerate() {
            let d = *d as usize;
            assert_eq!(*s, taken[d]);
            taken[d] += 1;
            for (t, w) in taken.iter().zip(&w) {
                assert!(
                    (*t as f64 - w * (k + 1) as f64).abs() <= 1.0 + 1e-9,
                    "at {k}"
                );
            }
        }
    }
}
