//! Documents with equal numbers in a column of all shards, found within a memory budget and without temporary files.
//!
//! A pass reads the column of every shard in order, keeps the entries (key, document) whose key is in a range,
//! sorts them and reports neighbours with equal keys. If all entries fit there is one pass; otherwise the range of
//! keys is divided so that each part should fit and the column is read once per part. If the buffer still fills up,
//! only one of each group of equal keys is kept (their documents have been reported), and if that does not help the
//! range is cut at the median and the upper part is read again later. So memory is bounded for any keys, and the
//! reported pairs join the same documents for any budget.

use rayon::prelude::*;

use super::numbering::Numbering;
use super::signature::{NO_SIGNATURE, SignatureColumn, SignatureFile};
use crate::error::Result;
use crate::progress::Progress;

/// Input: a column of all shards.
pub(super) struct Column<'a> {
    pub(super) files: &'a [SignatureFile],
    pub(super) numbering: &'a Numbering,
    pub(super) column: SignatureColumn,
}

/// Counts of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Documents of this crawl without a key.
    pub(super) without: u64,
    /// Documents that share their key with an earlier one.
    pub(super) repeated: u64,
    /// Times that the column was read.
    pub(super) passes: u64,
}

/// Groups that are read at once: enough for every thread, a few MiB.
const AT_ONCE: usize = 8;

/// Entries of `N` numbers, the first `K` of them the key (upper bits first), the others the document's number.
struct Entries<const K: usize, const N: usize> {
    list: Vec<[u32; N]>,
    limit: usize,
    /// Keys are taken if their upper 64 bits are in this range.
    low: u64,
    high: u64,
}

/// The upper 64 bits of a key.
#[inline]
fn prefix<const N: usize>(entry: &[u32; N]) -> u64 {
    u64::from(entry[0]) << 32 | u64::from(entry[1])
}

/// The document of an entry.
#[inline]
fn document<const K: usize, const N: usize>(entry: &[u32; N]) -> u64 {
    entry[K..]
        .iter()
        .fold(0, |n, word| n << 32 | u64::from(*word))
}

/// Calls `each(first, other)` for documents with equal keys, the first one the smallest of them, until the joined pairs
/// connect all documents with equal keys; documents for which `skip` holds take no part. `K` is 2 for bands (64 bits) and 4
/// for exact hashes; `N` is one more below 2^32 documents, two more above.
pub(super) fn equal<const K: usize, const N: usize>(
    of: &Column<'_>,
    memory: usize,
    skip: &dyn Fn(u64) -> bool,
    each: &mut dyn FnMut(u64, u64),
    progress: &dyn Progress,
) -> Result<Found> {
    let total = of.numbering.total;
    // A thousand at least, so that a tiny budget does not make a pass per document.
    let limit = (memory / (4 * N)).max(1000);
    let parts = total.div_ceil(limit as u64 - limit as u64 / 8).max(1);
    let step = u64::MAX / parts;
    let groups: Vec<(usize, u64)> = (0..of.files.len())
        .flat_map(|shard| (0..of.files[shard].groups()).map(move |group| (shard, group)))
        .collect();
    let capacity = usize::try_from(total).unwrap_or(limit).min(limit);
    let mut entries = Entries::<K, N> {
        list: Vec::with_capacity(capacity),
        limit,
        low: 0,
        high: 0,
    };
    let mut found = Found::default();
    let (mut present, mut distinct) = (0u64, 0u64);
    loop {
        let last = parts == 1 || u64::MAX - entries.low <= step;
        entries.high = if last { u64::MAX } else { entries.low + step };
        let is_first = found.passes == 0;
        found.passes += 1;
        for batch in groups.chunks(AT_ONCE) {
            let read = |&(shard, group): &(usize, u64)| of.files[shard].column(of.column, group);
            let columns: Vec<Vec<u8>> = batch.par_iter().map(read).collect::<Result<_>>()?;
            for (&(shard, group), bytes) in batch.iter().zip(&columns) {
                progress.bytes(bytes.len() as u64);
                let start = of.numbering.starts[shard] + of.files[shard].documents(group).0;
                for (number, key) in (start..).zip(bytes.chunks_exact(4 * K)) {
                    let key = words::<K>(key);
                    let is_absent = K == 2 && prefix(&key) == NO_SIGNATURE;
                    let is_wanted = !is_absent && !skip(number);
                    if is_first {
                        found.without += u64::from(is_absent && number >= of.numbering.earlier);
                        present += u64::from(is_wanted);
                    }
                    if is_wanted {
                        entries.push(key, number, each);
                    }
                }
            }
        }
        entries.join(each);
        distinct += entries.list.len() as u64;
        entries.list.clear();
        if entries.high == u64::MAX {
            found.repeated = present - distinct;
            return Ok(found);
        }
        entries.low = entries.high + 1;
    }
}

/// A little-endian key as words, upper bits first.
#[inline]
fn words<const K: usize>(bytes: &[u8]) -> [u32; K] {
    let mut key = [0; K];
    for (to, from) in key.iter_mut().rev().zip(bytes.as_chunks::<4>().0) {
        *to = u32::from_le_bytes(*from);
    }
    key
}

impl<const K: usize, const N: usize> Entries<K, N> {
    #[inline]
    fn push(&mut self, key: [u32; K], number: u64, each: &mut dyn FnMut(u64, u64)) {
        let at = prefix(&key);
        if at < self.low || at > self.high {
            return;
        }
        let mut entry = [0; N];
        entry[..K].copy_from_slice(&key);
        #[expect(clippy::cast_possible_truncation, reason = "the lower 32 bits")]
        let low = number as u32;
        entry[N - 1] = low;
        if N > K + 1 {
            entry[N - 2] = (number >> 32) as u32;
        }
        if self.list.len() == self.limit {
            self.make_room(each);
        }
        // The range may be smaller now.
        if at <= self.high {
            self.list.push(entry);
        }
    }

    /// Sorts, reports equal keys and leaves the smallest document of each.
    fn join(&mut self, each: &mut dyn FnMut(u64, u64)) {
        self.list.par_sort_unstable();
        let mut kept = 0;
        for i in 1..self.list.len() {
            if self.list[i][..K] == self.list[kept][..K] {
                let (first, other) = (&self.list[kept], &self.list[i]);
                each(document::<K, N>(first), document::<K, N>(other));
            } else {
                kept += 1;
                self.list[kept] = self.list[i];
            }
        }
        self.list.truncate(kept + 1);
    }

    /// Reports and removes equal keys, and gives up the upper half of the range if the buffer is still more than
    /// half full.
    fn make_room(&mut self, each: &mut dyn FnMut(u64, u64)) {
        self.join(each);
        if self.list.len() <= self.limit / 2 {
            return;
        }
        let middle = prefix(&self.list[self.list.len() / 2]);
        // Equal upper halves of different 128-bit keys cannot be separated: the buffer grows then.
        if middle > self.low {
            self.high = middle - 1;
            let end = self.list.partition_point(|e| prefix(e) < middle);
            self.list.truncate(end);
        } else {
            self.limit *= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::signature::{Origin, Signature, SignatureShape, SignatureWriter};
    use super::*;
    use crate::dedup::union_find::{Order, UnionFind};
    use crate::progress::Silent;

    const DOCUMENTS: u64 = 20_000;

    /// Some keys are alone, some shared by few, one by a tenth of all; every 50th document has none.
    fn key(i: u64) -> u64 {
        let mix = |x: u64| x.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        match i % 50 {
            0 => NO_SIGNATURE,
            1..=5 => 77,
            6..=20 => mix(i % 1000),
            _ => mix(i + 5_000),
        }
    }

    fn files(folder: &std::path::Path, shards: u64) -> (Vec<SignatureFile>, Numbering) {
        let shape = SignatureShape {
            family: 2,
            bands: 1,
            rows: 1,
            width: 1,
            ..SignatureShape::default()
        };
        let (mut files, mut starts) = (Vec::new(), Vec::new());
        for shard in 0..shards {
            let range = DOCUMENTS * shard / shards..DOCUMENTS * (shard + 1) / shards;
            starts.push(range.start);
            let origin = Origin { shard: 0, run: 0 };
            let name = format!("{shards}-{shard}.sig");
            let mut writer = SignatureWriter::create(folder, &name, shape, origin).unwrap();
            for i in range {
                let keys = vec![key(i)];
                let exact = u128::from(key(i)) << 64;
                let (chars, source, quality) = (1, 0, f32::NAN);
                let signature = Signature {
                    exact,
                    chars,
                    source,
                    quality,
                    keys,
                };
                writer.write(&signature).unwrap();
            }
            writer.finish().unwrap();
            files.push(SignatureFile::open(&folder.join(name)).unwrap());
        }
        let numbering = Numbering {
            starts,
            total: DOCUMENTS,
            indexes: 0,
            earlier: 0,
        };
        (files, numbering)
    }

    /// Roots of all documents, and the counts.
    fn sets<const K: usize, const N: usize>(
        (files, numbering): &(Vec<SignatureFile>, Numbering),
        column: SignatureColumn,
        memory: usize,
    ) -> (Vec<u64>, Found) {
        let column = Column {
            files,
            numbering,
            column,
        };
        let mut sets = UnionFind::new(DOCUMENTS, Order::Number);
        let mut join = |a, b| sets.join(a, b);
        let skip = |number: u64| number % 1000 == 999;
        let found = equal::<K, N>(&column, memory, &skip, &mut join, &Silent).unwrap();
        ((0..DOCUMENTS).map(|i| sets.root(i)).collect(), found)
    }

    #[test]
    fn sets_are_those_of_a_map_whatever_the_memory_the_shards_and_the_width_of_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let mut first: BTreeMap<u64, u64> = BTreeMap::new();
        let mut naive: Vec<u64> = (0..DOCUMENTS).collect();
        for i in (0..DOCUMENTS).filter(|i| i % 1000 != 999 && i % 50 != 0) {
            let at = usize::try_from(i).unwrap();
            naive[at] = *first.entry(key(i)).or_insert(i);
        }
        let repeated = (0u64..).zip(&naive).filter(|(i, root)| i != *root).count() as u64;
        for shards in [1, 2, 7, 64] {
            let files = files(folder.path(), shards);
            let mut passes = Vec::new();
            for memory in [0, 60_000, 1 << 30] {
                let (roots, found) = sets::<2, 3>(&files, SignatureColumn::Band(0), memory);
                assert_eq!(roots, naive, "{shards} shards, {memory} bytes");
                assert_eq!((found.without, found.repeated), (DOCUMENTS / 50, repeated));
                passes.push(found.passes);
                let wide = sets::<2, 4>(&files, SignatureColumn::Band(0), memory).0;
                assert_eq!(wide, naive, "numbers of 40 bits");
            }
            assert!(passes[0] > passes[1] && passes[1] > passes[2], "{passes:?}");
            assert_eq!(passes[2], 1);
        }
    }

    #[test]
    fn exact_hashes_that_all_lie_close_together_are_still_found_in_little_memory() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(folder.path(), 3);
        let roomy = sets::<4, 5>(&files, SignatureColumn::Exact, 1 << 30);
        let tight = sets::<4, 5>(&files, SignatureColumn::Exact, 0);
        assert_eq!(roomy.0, tight.0);
        assert_eq!(roomy.1.repeated, tight.1.repeated);
        assert!(tight.1.passes > 10 && roomy.1.repeated > 1000);
    }
}
