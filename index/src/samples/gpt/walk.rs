//! Sample starts, parallel: the walk over shuffled documents, cut into chunks for all threads.
//!
//! With c(p) = tokens before position p, sample k ends at token k L + x of the stream, and row k is the first
//! position p with c(p + 1) >= k L + x, offset k L - c(p): Megatron's walk in closed form. So a chunk of documents
//! needs only the number of tokens before it (a parallel prefix sum): all threads count a wave of chunks, the
//! counts are summed up, and all threads write the rows. Rows past the last token (a padded last sample) are the
//! last document's end. Source: megatron-core 0.16.1 `helpers.cpp` (`build_sample_idx`).

use super::request::{Request, Sizes, Starts, index};
use crate::array::Array;
use crate::error::Result;
use bytemuck::Pod;
use rayon::prelude::*;
use std::ops::Range;

/// Documents that a thread processes at a time.
const CHUNK: usize = 1 << 16;

/// Sum of the lengths of consecutive documents.
pub(crate) fn tokens<F: Fn(usize) -> u32 + Sync>(documents: &Range<u64>, length: &F) -> u64 {
    let range = index(documents.start)..index(documents.end);
    let chunks = range.len().div_ceil(CHUNK);
    (0..chunks)
        .into_par_iter()
        .map(|c| {
            let from = range.start + c * CHUNK;
            let to = (from + CHUNK).min(range.end);
            (from..to).map(|i| u64::from(length(i))).sum::<u64>()
        })
        .sum()
}

/// The rows for a shuffled `document_index`.
pub(crate) fn starts<F: Fn(usize) -> u32 + Sync>(
    document_index: &[i32],
    length: &F,
    sizes: &Sizes,
    request: &Request,
    narrow: bool,
) -> Result<Starts> {
    // i32 offsets and positions: the caller knows that they fit
    #[expect(
        clippy::cast_possible_truncation,
        reason = "narrow is called only if all fit"
    )]
    if narrow {
        let mut rows = Array::<[i32; 2]>::zeros("sample_index", sizes.samples + 1)?;
        fill(rows.as_mut(), document_index, length, request, &|p, o| {
            [p as i32, o as i32]
        });
        return Ok(Starts::Narrow(rows));
    }
    let mut rows = Array::<[i64; 2]>::zeros("sample_index", sizes.samples + 1)?;
    fill(rows.as_mut(), document_index, length, request, &|p, o| {
        [p.cast_signed(), o.cast_signed()]
    });
    Ok(Starts::Wide(rows))
}

fn fill<R: Pod + Send + Sync, F: Fn(usize) -> u32 + Sync>(
    rows: &mut [R],
    document_index: &[i32],
    length: &F,
    request: &Request,
    row: &(impl Fn(u64, u64) -> R + Sync),
) {
    let (l, x) = (request.seq_length, request.extra());
    let length_of = |d: &i32| length(d.unsigned_abs() as usize);
    // the last row that ends within the first `end` tokens
    let last_row = |end: u64| if end < x { 0 } else { index((end - x) / l) };
    let wave = 4 * rayon::current_num_threads();
    let mut lengths = vec![Vec::with_capacity(CHUNK); wave];
    let (_, mut rest) = rows.split_at_mut(1); // row 0 is (0, 0), as made
    let (mut before, mut done, mut first) = (0, 0, 0u64);
    for documents in document_index.chunks(CHUNK * wave) {
        // a length is one random access to memory, so it is made once
        let gathered = lengths.par_iter_mut().zip(documents.par_chunks(CHUNK));
        let sums: Vec<u64> = gathered
            .map(|(lengths, documents)| {
                lengths.clear();
                lengths.extend(documents.iter().map(length_of));
                lengths.iter().map(|n| u64::from(*n)).sum()
            })
            .collect();
        let mut work = Vec::with_capacity(wave);
        for (sum, lengths) in sums.iter().zip(&lengths) {
            let to = last_row(before + sum).min(done + rest.len());
            let (mine, others) = std::mem::take(&mut rest).split_at_mut(to - done);
            work.push((first, before, done as u64 + 1, mine, lengths));
            first += lengths.len() as u64;
            before += sum;
            (rest, done) = (others, to);
        }
        work.into_par_iter()
            .for_each(|(first, mut start, k, mine, lengths)| {
                let mut mine = mine.iter_mut();
                let mut ends_at = k * l + x;
                for (position, n) in (first..).zip(lengths) {
                    let end = start + u64::from(*n);
                    while ends_at <= end {
                        match mine.next() {
                            Some(r) => *r = row(position, ends_at - x - start),
                            None => return,
                        }
                        ends_at += l;
                    }
                    start = end;
                }
            });
    }
    if let Some(last) = document_index.last() {
        let end = row(
            document_index.len() as u64 - 1,
            u64::from(length_of(last)).saturating_sub(x),
        );
        rest.fill(end);
    }
}
