//! One query row over the pages of its sequence, in f32: the query heads of one kv head. Scores have keys in their lanes,
//! sums of values have the width in theirs, so that no lane is empty however few heads share a kv head. Every number
//! is the chain of `forward.rs`: over the width for a score, over ascending keys for a sum.

use super::softmax::capped;
use crate::cpu::Numbers;
use crate::cpu::math::exp_of_score;
use crate::cpu::simd::{LANES, Lanes, vector_fn};
use crate::descriptor::alibi::Alibi;
use crate::descriptor::heads::Heads;
use crate::ops::attention::pages::PagedRows;
use crate::{DType, Device, Result, Tensor};
use std::ops::Range;

/// Keys that are transposed together, at most.
const TOGETHER: usize = 2 * LANES;

/// Whether rows of these heads are computed here.
pub(super) fn takes(heads: &Heads, numbers: Numbers) -> bool {
    numbers == Numbers::F32 && heads.width.is_multiple_of(LANES)
}

/// The row, and what it attends to.
pub(super) struct OneRow<'a> {
    /// `[heads of the group, width]`
    pub(super) q: &'a [f32],
    pub(super) pages: Pages<'a>,
    /// Positions of the keys; the last is the row's own.
    pub(super) seen: Range<usize>,
    /// Keys of a block of the softmax.
    pub(super) block: usize,
    /// Factor of the scores.
    pub(super) scale: f32,
    /// Bound of the scores; 0: none.
    pub(super) cap: f32,
    /// Linear biases, beside which there is no cap.
    pub(super) alibi: Option<Alibi>,
    /// A score for each head of the group beside those of the keys.
    pub(super) sinks: Option<&'a [f32]>,
    /// Number of the group's first query head.
    pub(super) head: usize,
}

/// Keys and values of one kv head in the pages of its sequence.
pub(super) struct Pages<'a> {
    pub(super) cache: &'a [f32],
    /// Floats of a row of the cache.
    pub(super) row: usize,
    /// Where the head's key starts in a row; its value follows.
    pub(super) column: usize,
    pub(super) width: usize,
    pub(super) sequence: &'a PagedRows<'a>,
    /// Tokens of a page.
    pub(super) page: usize,
}

impl Pages<'_> {
    /// Splits keys into runs of rows that follow each other in the cache: their number, and where the first key starts.
    fn runs(&self, keys: Range<usize>) -> impl Iterator<Item = Run> {
        let mut next = keys.start;
        std::iter::from_fn(move || {
            let first = next;
            next = keys.end.min((first / self.page + 1) * self.page);
            (first < next).then(|| Run {
                first,
                count: next - first,
                start: self.sequence.slot(first, self.page) * self.row + self.column,
            })
        })
    }

    /// Where each of up to 32 keys starts in the cache.
    fn starts(&self, keys: Range<usize>) -> [usize; TOGETHER] {
        let mut starts = [0; TOGETHER];
        let first = keys.start;
        for run in self.runs(keys) {
            let of = &mut starts[run.first - first..][..run.count];
            for (i, start) in of.iter_mut().enumerate() {
                *start = run.start + i * self.row;
            }
        }
        starts
    }

    /// Prefetches keys and values: a row of the cache has all kv heads, so that a head's lines are too far apart for the
    /// processor to see a stream in them.
    #[inline(always)]
    fn prefetch<L: Lanes>(&self, starts: &[usize]) {
        for start in starts {
            for line in self.cache[*start..][..2 * self.width].chunks_exact(LANES) {
                L::prefetch_to_l2(line.as_ptr());
            }
        }
    }
}

/// Keys side by side in a page.
struct Run {
    /// Position of the first.
    first: usize,
    count: usize,
    /// Where it starts in the cache.
    start: usize,
}

/// Buffers of one thread.
pub(super) struct Buffers {
    /// `[heads of a group, keys of a block]`, in whole vectors.
    scores: Tensor,
    /// `[width, 32]`
    turned: Tensor,
    /// Largest score and sum of each head.
    state: Tensor,
}

impl Buffers {
    /// For blocks of up to `block` keys.
    pub(super) fn new(heads: &Heads, block: usize, device: &Device) -> Result<Buffers> {
        let per = heads.per_group();
        let empty = |floats: usize| Tensor::empty(&[floats], DType::F32, device);
        Ok(Buffers {
            scores: empty(per * block.next_multiple_of(TOGETHER))?,
            turned: empty(heads.width * TOGETHER)?,
            state: empty(2 * per)?,
        })
    }
}

impl OneRow<'_> {
    /// Blocks of the softmax, which start at multiples of their length, cut to the keys.
    fn blocks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (seen, block) = (self.seen.clone(), self.block);
        let first = seen.start / block * block;
        (first..seen.end)
            .step_by(block)
            .map(move |start| start.max(seen.start)..seen.end.min(start + block))
    }
}

vector_fn! {
    /// Writes the row's attention, `[heads of the group, width]`.
    pub(super) fn attend<L>(row: &OneRow<'_>, buffers: &mut Buffers, out: &mut [f32]) {
        let width = row.pages.width;
        let per = out.len() / width;
        let (max, sum) = buffers.state.f32_mut().split_at_mut(per);
        match row.sinks {
            // a sink has been visited, whose exponential is relative to itself
            Some(sinks) => {
                max.copy_from_slice(sinks);
                sum.fill(1.0);
            }
            None => {
                max.fill(f32::NEG_INFINITY);
                sum.fill(0.0);
            }
        }
        out.fill(0.0);
        for keys in row.blocks() {
            let padded = keys.len().next_multiple_of(TOGETHER);
            let scores = &mut buffers.scores.f32_mut()[..per * padded];
            products::<L>(row, &keys, buffers.turned.f32_mut(), scores);
            let of_heads = scores
                .chunks_exact_mut(padded)
                .zip(out.chunks_exact_mut(width));
            let of_heads = of_heads.zip(max.iter_mut().zip(sum.iter_mut())).enumerate();
            for (head, ((scores, values), (max, sum))) in of_heads {
                let now = finish::<L>(row, &keys, head, scores).max(*max);
                let factor = exponentials::<L>(scores, *max, now);
                *max = now;
                *sum *= factor;
                for x in values.chunks_exact_mut(LANES) {
                    L::load(x).mul(L::splat(factor)).store(x);
                }
            }
            add_values::<L>(row, &keys, scores, sum, out);
        }
        for (values, sum) in out.chunks_exact_mut(width).zip(sum) {
            for x in values.chunks_exact_mut(LANES) {
                // no result is -0.0
                L::load(x).div(L::splat(*sum)).add(L::splat(0.0)).store(x);
            }
        }
    }
}

/// Products of all heads with these keys, `[heads, keys in whole vectors]`.
#[inline(always)]
fn products<L: Lanes>(
    row: &OneRow<'_>,
    keys: &Range<usize>,
    turned: &mut [f32],
    scores: &mut [f32],
) {
    let (pages, width) = (&row.pages, row.pages.width);
    let padded = keys.len().next_multiple_of(TOGETHER);
    let chunk = |at: usize| keys.start + at..keys.end.min(keys.start + at + TOGETHER);
    let mut next = pages.starts(chunk(0));
    pages.prefetch::<L>(&next[..chunk(0).len()]);
    // the keys that a square of this chunk prefetches for the next
    let share = LANES.div_ceil(width / LANES);
    for at in (0..keys.len()).step_by(TOGETHER) {
        let here = next;
        let count = chunk(at).len();
        let after = keys.len().saturating_sub(at + TOGETHER).min(TOGETHER);
        if after > 0 {
            next = pages.starts(chunk(at + TOGETHER));
        }
        for (half, starts) in here[..count].chunks(LANES).enumerate() {
            for column in (0..width).step_by(LANES) {
                let from = half * LANES + column / LANES * share;
                pages.prefetch::<L>(&next[from.min(after)..(from + share).min(after)]);
                let mut square = [L::splat(0.0); LANES];
                for (x, start) in square.iter_mut().zip(starts) {
                    *x = L::load(&pages.cache[start + column..]);
                }
                let lines = turned[column * TOGETHER..].chunks_exact_mut(TOGETHER);
                for (x, line) in L::transpose(square).into_iter().zip(lines) {
                    x.store(&mut line[half * LANES..]);
                }
            }
        }
        let mut head = 0;
        while head * padded < scores.len() {
            let q = &row.q[head * width..];
            let out = &mut scores[head * padded..];
            let at = Lines { at, padded, count };
            head += match q.len() / width {
                1 => of_heads::<L, 1>(q, turned, out, at),
                2 => of_heads::<L, 2>(q, turned, out, at),
                3 => of_heads::<L, 3>(q, turned, out, at),
                _ => of_heads::<L, 4>(q, turned, out, at),
            };
        }
    }
}

/// Where the products of a chunk of keys belong in each head's line of scores.
#[derive(Clone, Copy)]
struct Lines {
    at: usize,
    padded: usize,
    count: usize,
}

/// Products of H heads with the chunk of keys in `turned`; returns H.
#[inline(always)]
fn of_heads<L: Lanes, const H: usize>(
    q: &[f32],
    turned: &[f32],
    out: &mut [f32],
    lines: Lines,
) -> usize {
    if L::TILE_VECTORS == 2 && lines.count > LANES {
        of_vectors::<L, H, 2>(q, turned, out, (lines, 0));
    } else {
        for lane in (0..lines.count).step_by(LANES) {
            of_vectors::<L, H, 1>(q, turned, out, (lines, lane));
        }
    }
    H
}

/// Products of H heads with V vectors of keys, held in registers.
#[inline(always)]
fn of_vectors<L: Lanes, const H: usize, const V: usize>(
    q: &[f32],
    turned: &[f32],
    out: &mut [f32],
    (lines, lane): (Lines, usize),
) {
    let width = turned.len() / TOGETHER;
    let q: [&[f32]; H] = std::array::from_fn(|h| &q[h * width..][..width]);
    let mut sums = [[L::splat(0.0); V]; H];
    for (i, line) in turned.chunks_exact(TOGETHER).enumerate() {
        let keys: [L; V] = L::load_all(&line[lane..]);
        for (q, sums) in q.iter().zip(&mut sums) {
            let x = L::splat(q[i]);
            for (key, sum) in keys.iter().zip(sums) {
                *sum = key.fma(x, *sum);
            }
        }
    }
    for (h, sums) in sums.into_iter().enumerate() {
        for (v, sum) in sums.into_iter().enumerate() {
            sum.store(&mut out[h * lines.padded + lines.at + lane + v * LANES..]);
        }
    }
}

/// Converts a head's products to scores, those behind the last key to -infinity; returns the largest.
#[inline(always)]
fn finish<L: Lanes>(row: &OneRow<'_>, keys: &Range<usize>, head: usize, x: &mut [f32]) -> f32 {
    let (scale, none) = (L::splat(row.scale), L::splat(f32::NEG_INFINITY));
    let (numbers, end) = (L::load(&NUMBERS), L::splat(keys.len() as f32));
    let own = L::splat((row.seen.end - 1) as f32);
    let slope = row
        .alibi
        .map(|alibi| L::splat(alibi.slope(row.head + head)));
    let mut most = none;
    for (i, x) in x[..keys.len().next_multiple_of(LANES)]
        .chunks_exact_mut(LANES)
        .enumerate()
    {
        let mut score = L::load(x);
        score = match slope {
            Some(slope) => {
                let position = numbers.add(L::splat((keys.start + i * LANES) as f32));
                score.fma(scale, slope.mul(position.sub(own)))
            }
            None if row.cap > 0.0 => capped(score.mul(scale), row.cap).0,
            None => score.mul(scale),
        };
        let number = numbers.add(L::splat((i * LANES) as f32));
        score = number.select_less(end, score, none);
        most = most.max(score);
        score.store(x);
    }
    most.largest()
}

/// Numbers of the lanes.
const NUMBERS: [f32; LANES] = [
    0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0,
];

/// Scores to e^(score - max) of a head; max before and now. Returns the factor of all earlier sums.
#[inline(always)]
fn exponentials<L: Lanes>(x: &mut [f32], before: f32, now: f32) -> f32 {
    // for a row without any key so far: -infinity minus -infinity would be NaN
    let max = L::splat(f32::MIN).max(L::splat(now));
    for x in x.chunks_exact_mut(LANES) {
        exp_of_score(L::load(x).sub(max)).store(x);
    }
    exp_of_score(L::splat(before).sub(max)).to_array()[0]
}

/// Adds the weights of these keys to the heads' sums, and the weighted values to theirs.
#[inline(always)]
fn add_values<L: Lanes>(
    row: &OneRow<'_>,
    keys: &Range<usize>,
    weights: &[f32],
    sums: &mut [f32],
    out: &mut [f32],
) {
    let padded = keys.len().next_multiple_of(TOGETHER);
    let width = row.pages.width;
    for key in 0..keys.len() {
        for (sum, weights) in sums.iter_mut().zip(weights.chunks_exact(padded)) {
            *sum += weights[key];
        }
    }
    let most = if L::TILE_VECTORS == 2 { 4 } else { 2 };
    let mut head = 0;
    while head < sums.len() {
        let of = Weighted {
            pages: &row.pages,
            keys,
            weights: &weights[head * padded..],
        };
        let out = &mut out[head * width..];
        head += match (out.len() / width).min(most) {
            1 => of.columns::<L, 1>(out),
            2 => of.columns::<L, 2>(out),
            3 => of.columns::<L, 3>(out),
            _ => of.columns::<L, 4>(out),
        };
    }
}

/// Values of some keys and the weights that heads give them, a line each.
struct Weighted<'a> {
    pages: &'a Pages<'a>,
    keys: &'a Range<usize>,
    weights: &'a [f32],
}

impl Weighted<'_> {
    /// Adds the weighted values to those of H heads; returns H.
    #[inline(always)]
    fn columns<L: Lanes, const H: usize>(&self, out: &mut [f32]) -> usize {
        let width = self.pages.width;
        let mut column = 0;
        while column < width {
            column += match (width - column) / LANES {
                1 => self.block::<L, H, 1>(column, out),
                2 | 3 => self.block::<L, H, 2>(column, out),
                _ if L::TILE_VECTORS == 1 => self.block::<L, H, 2>(column, out),
                _ => self.block::<L, H, 4>(column, out),
            };
        }
        H
    }

    /// `columns` of V vectors of the width from `column` on, held in registers; returns their floats.
    #[inline(always)]
    fn block<L: Lanes, const H: usize, const V: usize>(
        &self,
        column: usize,
        out: &mut [f32],
    ) -> usize {
        let (pages, first) = (self.pages, self.keys.start);
        let padded = self.keys.len().next_multiple_of(TOGETHER);
        let place = |h: usize, v: usize| h * pages.width + column + v * LANES;
        let mut sums = [[L::splat(0.0); V]; H];
        for (h, sums) in sums.iter_mut().enumerate() {
            *sums = L::load_all(&out[place(h, 0)..]);
        }
        for run in pages.runs(self.keys.clone()) {
            let weights: [&[f32]; H] = std::array::from_fn(|h| {
                &self.weights[h * padded + run.first - first..][..run.count]
            });
            for i in 0..run.count {
                let start = run.start + i * pages.row + pages.width + column;
                let values = &pages.cache[start..][..V * LANES];
                let values: [L; V] = L::load_all(values);
                for (weights, sums) in weights.iter().zip(&mut sums) {
                    let weight = L::splat(weights[i]);
                    for (value, sum) in values.iter().zip(sums) {
                        *sum = value.fma(weight, *sum);
                    }
                }
            }
        }
        for (h, sums) in sums.into_iter().enumerate() {
            for (v, sum) in sums.into_iter().enumerate() {
                sum.store(&mut out[place(h, v)..]);
            }
        }
        V * LANES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::attention::{Call, Mask, Scores};
    use crate::ops::attention::pages::Paged;
    use crate::ops::attention::{forward, forward_paged};
    use crate::testing::{bits, devices, random};

    /// Positions of a sequence: two chunks of keys and a part of a third.
    const T: usize = 75;

    /// The other half of a model's choices: none, linear biases, a cap, sinks.
    fn of_scores(number: usize, heads: &Heads) -> Scores {
        let all = Alibi {
            heads: heads.heads,
            first: 0,
        };
        Scores {
            cap: if number == 2 { 0.7 } else { 0.0 },
            alibi: (number == 1).then_some(all),
            ..Scores::scaled(true)
        }
    }

    #[test]
    fn a_row_has_the_bits_of_its_whole_sequence() {
        let shapes = [(3, 1, 64), (10, 2, 48), (4, 4, 128), (7, 1, 16)];
        let keys: Vec<u32> = (0..).take(T).map(|row| row / 37 * 37).collect();
        let bounds: Vec<[u32; 2]> = keys.iter().map(|&key| [key, u32::MAX]).collect();
        for (number, (heads, kv_heads, width)) in shapes.into_iter().enumerate() {
            let heads = Heads {
                heads,
                kv_heads,
                width,
            };
            assert!(takes(&heads, Numbers::F32), "{heads:?}");
            let scores = of_scores(number, &heads);
            for device in devices() {
                let qkv = random(&[T, heads.packed()], 1, &device).unwrap();
                let sinks = random(&[heads.heads], 2, &device).unwrap();
                let sinks = (number == 3).then_some(&sinks);
                for (block, window, has_keys) in [(0, 0, false), (40, 0, true), (34, 39, false)] {
                    let call = Call {
                        block,
                        scores,
                        sinks,
                        mask: Mask {
                            window,
                            bounds: has_keys.then_some(&bounds),
                            ..Mask::CAUSAL
                        },
                        ..Call::causal(&heads, 1, T)
                    };
                    let (whole, _) = forward(&qkv, &call).unwrap();
                    let dims = [5 * 16, heads.kv_width()];
                    let mut cache = Tensor::zeros(&dims, DType::F32, &device).unwrap();
                    let mut found = Vec::new();
                    for (position, row) in qkv.f32().chunks_exact(heads.packed()).enumerate() {
                        let row = Tensor::from_f32(&[1, row.len()], row, &device).unwrap();
                        let paged = Paged {
                            heads: &heads,
                            page: 16,
                            sequences: &[PagedRows {
                                rows: 1,
                                position,
                                pages: &[3, 0, 4, 1, 2],
                            }],
                            first_keys: has_keys.then_some(&keys[position..=position]),
                            window,
                            block,
                            numbers: Numbers::F32,
                            scores,
                            sinks,
                        };
                        let mixed = forward_paged(&row, &mut cache, &paged).unwrap();
                        found.extend_from_slice(mixed.f32());
                    }
                    let wanted = bits(whole.f32());
                    assert_eq!(
                        bits(&found),
                        wanted,
                        "{heads:?} {block} {window} {device:?}"
                    );
                }
            }
        }
    }
}
