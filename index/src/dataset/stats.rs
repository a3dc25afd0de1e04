//! Statistics of a dataset: exact percentiles of lengths, and use of the vocabulary.
//!
//! Percentile p is the nearest rank: the smallest length that at least p % of the documents (or sequences) do not
//! pass. One pass over the index and one over the tokens, in parallel; memory is one counter per occurring id and
//! thread, and one per distinct length.

use crate::dataset::idx_format::TokenType;
use crate::dataset::paths::bin_path;
use crate::dataset::read::Dataset;
use crate::error::{Error, Result};
use rayon::prelude::*;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// Percentiles that are kept.
const PERCENTILES: [u8; 11] = [0, 1, 5, 10, 25, 50, 75, 90, 95, 99, 100];
/// Most frequent ids that are listed.
const TOP: usize = 50;
/// Unused ids that are listed.
const UNUSED: usize = 100;
/// Tokens that a thread counts at a time.
const CHUNK: u64 = 1 << 22;

/// Statistics of a dataset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// Tokens of documents.
    pub document_lengths: Lengths,
    /// Tokens of sequences.
    pub sequence_lengths: Lengths,
    /// Use of the vocabulary.
    pub vocabulary: Vocabulary,
}

/// Lengths in tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lengths {
    /// Number of them.
    pub count: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// (percent, length), nearest rank; 0 is the shortest, 100 the longest.
    pub percentiles: Vec<(u8, u64)>,
}

/// Use of the vocabulary: how often ids occur.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Vocabulary {
    /// Entries of the tokenizer.
    pub size: usize,
    /// Entries that occur.
    pub used: u64,
    /// Entries that never occur.
    pub unused: u64,
    /// The first of those.
    pub unused_ids: Vec<u32>,
    /// Entries that occur once.
    pub once: u64,
    /// Largest id that occurs.
    pub largest_id: Option<u32>,
    /// Entropy of the distribution of ids in bits: the loss (over ln 2) of a model that knows frequencies alone.
    pub entropy_bits: f64,
    /// The most frequent ids with their counts; ties go to the smaller id.
    pub top: Vec<(u32, u64)>,
}

/// Reads the whole dataset once.
///
/// # Errors
/// `Format` with the byte of the `.bin` if an id is negative or not below `vocab`, or if tokens are not integers.
pub fn statistics(data: &Dataset, vocab: usize) -> Result<Statistics> {
    data.expect_ids()?;
    let counts = count_ids(data, vocab)?;
    let sequences = (0..size(data.sequences())).map(|i| u64::from(data.length(i)));
    let documents = (0..size(data.documents())).map(|d| {
        data.document(d)
            .map(|s| u64::from(data.length(size(s))))
            .sum()
    });
    Ok(Statistics {
        document_lengths: Lengths::of(documents),
        sequence_lengths: Lengths::of(sequences),
        vocabulary: Vocabulary::of(vocab, counts),
    })
}

/// Numbers that index mapped files fit `usize`.
fn size(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

impl Lengths {
    fn of(lengths: impl Iterator<Item = u64>) -> Lengths {
        // nearly all lengths are small: an array for those, a map for the rest
        let mut small = vec![0u64; 1 << 16];
        let mut large: FxHashMap<u64, u64> = FxHashMap::default();
        let (mut count, mut sum) = (0u64, 0u64);
        for length in lengths {
            count += 1;
            sum += length;
            match small.get_mut(size(length)) {
                Some(n) => *n += 1,
                None => *large.entry(length).or_default() += 1,
            }
        }
        if count == 0 {
            return Lengths::default();
        }
        let mut large: Vec<(u64, u64)> = large.into_iter().collect();
        large.sort_unstable();
        let mut all = (0u64..).zip(small).chain(large);
        let (mut length, mut reached) = (0, 0);
        let percentiles = PERCENTILES.map(|p| {
            let rank = (u64::from(p) * count).div_ceil(100).max(1);
            while reached < rank {
                let Some((l, n)) = all.next() else { break };
                reached += n;
                if n > 0 {
                    length = l;
                }
            }
            (p, length)
        });
        Lengths {
            count,
            mean: sum as f64 / count as f64,
            percentiles: percentiles.to_vec(),
        }
    }

    /// The length at `percent`, if that percentile is kept.
    pub fn percentile(&self, percent: u8) -> Option<u64> {
        let found = self.percentiles.iter().find(|p| p.0 == percent);
        found.map(|p| p.1)
    }
}

impl Vocabulary {
    fn of(size: usize, counts: Counts) -> Vocabulary {
        let mut top = counts.sorted();
        let total: u64 = top.iter().map(|(_, n)| n).sum();
        let used = top.len() as u64;
        let entropy = |n: u64| {
            let p = n as f64 / total as f64;
            -p * p.log2()
        };
        // both lists ascend: an id that is not the next used one is unused
        let mut used_ids = top.iter().map(|(id, _)| *id).peekable();
        let unused_ids = (0..u32::try_from(size).unwrap_or(u32::MAX))
            .filter(|id| used_ids.next_if_eq(id).is_none())
            .take(UNUSED)
            .collect();
        let entropy_bits = top.iter().map(|(_, n)| entropy(*n)).sum();
        let once = top.iter().filter(|(_, n)| *n == 1).count() as u64;
        let largest_id = top.last().map(|t| t.0);
        top.sort_by_key(|(id, n)| (std::cmp::Reverse(*n), *id));
        top.truncate(TOP);
        Vocabulary {
            size,
            used,
            unused: size as u64 - used,
            unused_ids,
            once,
            largest_id,
            entropy_bits,
            top,
        }
    }
}

/// Occurrences per id: an array for small ids, a map for the others, so that memory depends on the ids that occur,
/// not on the largest one.
#[derive(Default)]
struct Counts {
    /// Counts of ids 0, 1, ..., up to the largest small one seen.
    small: Vec<u64>,
    large: FxHashMap<u32, u64>,
}

/// Ids below this are small: most vocabularies are.
const SMALL_IDS: usize = 1 << 18;

impl Counts {
    #[inline]
    fn add(&mut self, id: u32, n: u64) {
        let at = id as usize;
        if let Some(count) = self.small.get_mut(at) {
            *count += n;
        } else if at < SMALL_IDS {
            self.small.resize((at + 1).next_power_of_two(), 0);
            self.small[at] += n;
        } else {
            *self.large.entry(id).or_default() += n;
        }
    }

    /// Ids that occur with their counts, by id.
    fn sorted(self) -> Vec<(u32, u64)> {
        let small = (0u32..).zip(self.small).filter(|(_, n)| *n > 0);
        let mut large: Vec<(u32, u64)> = self.large.into_iter().collect();
        large.sort_unstable();
        small.chain(large).collect()
    }
}

/// How often each id below `vocab` occurs.
fn count_ids(data: &Dataset, vocab: usize) -> Result<Counts> {
    let width = data.token_type().bytes();
    let (chunk, size) = (CHUNK * width, data.bin().len());
    // threads, not chunks, have counters each: a vocabulary may be larger than a chunk
    let threads = rayon::current_num_threads() as u64;
    let share = size.div_ceil(chunk).div_ceil(threads).max(1) * chunk;
    let shares: Vec<u64> = (0..size.div_ceil(share)).collect();
    let counted: Vec<Counts> = shares
        .into_par_iter()
        .map(|i| {
            let mut counts = Counts::default();
            let mut at = i * share;
            data.bin().stream(at..(at + share).min(size), |bytes| {
                if let Some((token, found)) = count(data.token_type(), bytes, vocab, &mut counts) {
                    return Err(Error::Format {
                        path: bin_path(data.prefix()),
                        offset: at + token as u64 * width,
                        field: "token id",
                        found: found.to_string(),
                        wanted: format!("0 to {}, the vocabulary", vocab as i64 - 1),
                    });
                }
                at += bytes.len() as u64;
                Ok(())
            })?;
            Ok(counts)
        })
        .collect::<Result<_>>()?;
    let mut counted = counted.into_iter();
    let mut sum = counted.next().unwrap_or_default();
    for counts in counted {
        for (id, n) in counts.sorted() {
            sum.add(id, n);
        }
    }
    Ok(sum)
}

/// Counts; stops at the first id that is not below `vocab` and returns its number and value.
fn count(
    token_type: TokenType,
    bytes: &[u8],
    vocab: usize,
    counts: &mut Counts,
) -> Option<(usize, i64)> {
    fn each<const N: usize>(
        bytes: &[u8],
        vocab: usize,
        counts: &mut Counts,
        value: impl Fn([u8; N]) -> i64,
    ) -> Option<(usize, i64)> {
        let (tokens, _) = bytes.as_chunks::<N>();
        for (at, token) in tokens.iter().enumerate() {
            let id = value(*token);
            match u32::try_from(id) {
                Ok(id) if (id as usize) < vocab => counts.add(id, 1),
                _ => return Some((at, id)),
            }
        }
        None
    }
    match token_type {
        TokenType::U8 => each(bytes, vocab, counts, |b: [u8; 1]| i64::from(b[0])),
        TokenType::I8 => each(bytes, vocab, counts, |b| i64::from(i8::from_le_bytes(b))),
        TokenType::U16 => each(bytes, vocab, counts, |b| i64::from(u16::from_le_bytes(b))),
        TokenType::I16 => each(bytes, vocab, counts, |b| i64::from(i16::from_le_bytes(b))),
        TokenType::I32 => each(bytes, vocab, counts, |b| i64::from(i32::from_le_bytes(b))),
        TokenType::I64 => each(bytes, vocab, counts, i64::from_le_bytes),
        // refused by the caller
        TokenType::F32 | TokenType::F64 => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::write::{DatasetWriter, put_tokens};

    fn dataset(token_type: TokenType, documents: &[&[&[u32]]]) -> (tempfile::TempDir, Dataset) {
        let dir = tempfile::tempdir().unwrap();
        let prefix = dir.path().join("d");
        let mut w = DatasetWriter::create(&prefix, token_type).unwrap();
        for d in documents {
            let (mut bytes, mut lengths) = (Vec::new(), Vec::new());
            for s in *d {
                put_tokens(token_type, s, &mut bytes).unwrap();
                lengths.push(u32::try_from(s.len()).unwrap());
            }
            w.append(&bytes, &lengths, &[u32::try_from(d.len()).unwrap()])
                .unwrap();
        }
        w.finish().unwrap();
        let data = Dataset::open(&prefix).unwrap();
        (dir, data)
    }

    #[test]
    fn a_dataset_counted_by_hand() {
        for t in [
            TokenType::U16,
            TokenType::I32,
            TokenType::I64,
            TokenType::U8,
        ] {
            let (_dir, d) = dataset(t, &[&[&[1, 1, 2], &[1]], &[], &[&[3, 1]]]);
            let s = statistics(&d, 6).unwrap();
            assert_eq!(s.document_lengths.count, 3);
            assert_eq!(s.document_lengths.mean, 2.0);
            assert_eq!(s.document_lengths.percentile(0), Some(0));
            assert_eq!(s.document_lengths.percentile(50), Some(2));
            assert_eq!(s.document_lengths.percentile(100), Some(4));
            assert_eq!(s.sequence_lengths.percentile(50), Some(2));
            let v = &s.vocabulary;
            assert_eq!((v.used, v.unused, v.once, v.largest_id), (3, 3, 2, Some(3)));
            assert_eq!(v.top, [(1, 4), (2, 1), (3, 1)]);
            assert_eq!(v.unused_ids, [0, 4, 5]);
            // 2/3 log2(3/2) + 2 * 1/6 log2(6)
            let want = 2.0 / 3.0 * 1.5f64.log2() + 6f64.log2() / 3.0;
            assert!((v.entropy_bits - want).abs() < 1e-12);
        }
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_lengths() {
        let lengths: Vec<u64> = (0..997u64).map(|i| i * i * 31 % 200_003).collect();
        let mut sorted = lengths.clone();
        sorted.sort_unstable();
        let l = Lengths::of(lengths.into_iter());
        for p in PERCENTILES {
            // by definition: the smallest x with at least p % of the values <= x
            let enough = |x: &&u64| {
                let below = sorted.iter().filter(|v| v <= x).count();
                below * 100 >= usize::from(p) * sorted.len()
            };
            assert_eq!(
                l.percentile(p),
                sorted.iter().find(enough).copied(),
                "{p} %"
            );
        }
    }

    #[test]
    fn an_id_beyond_the_vocabulary_is_named_with_its_byte() {
        let (_dir, d) = dataset(TokenType::U16, &[&[&[1, 2, 9, 1]]]);
        let why = statistics(&d, 9).unwrap_err().to_string();
        assert!(
            why.contains("d.bin: token id at byte 4: found 9, wanted 0 to 8"),
            "{why}"
        );
        assert!(statistics(&d, 10).is_ok());
        let (dir, d) = dataset(TokenType::I32, &[&[&[5]]]);
        std::fs::write(dir.path().join("d.bin"), (-5i32).to_le_bytes()).unwrap();
        let why = statistics(&d, 10).unwrap_err().to_string();
        assert!(why.contains("token id at byte 0: found -5"), "{why}");
    }
}
