//! fastText's dictionary: words, labels and the hashes that select the rows of the input matrix.
//!
//! A word's features are its own row (if the dictionary has it) and the rows of its character
//! n-grams, `<` and `>` being put around it. Hash: FNV-1a over bytes taken as signed, 32 bits; word
//! n-grams chain the hashes of words, sign-extended to 64 bits, with the factor 116049371. Both modulo
//! `bucket`. Pruned models keep only some buckets. As fastText 0.9.2.
//! We differ: words are identified by 64 bits of FNV-1a; kept buckets are found by a bit map, remainders by
//! multiplication (Lemire et al. 2019, arXiv:1902.01961); the rows are the same.

use std::io::Read;

use rustc_hash::FxHashMap;

use super::source::Source;
use crate::error::Result;

/// End of a text, itself a word.
pub(super) const END: &[u8] = b"</s>";
/// Prefix of labels.
pub(super) const LABEL: &str = "__label__";
pub(super) const CHAIN: u64 = 116_049_371;

/// Sizes from the model's header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) word_ngrams: usize,
    pub(super) bucket: u32,
    pub(super) minn: usize,
    pub(super) maxn: usize,
}

/// Kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Known(usize),
    Unknown,
    Label,
}

pub(super) struct Dictionary {
    pub(super) shape: Shape,
    /// Rows by hash.
    pub(super) words: FxHashMap<u64, usize>,
    pub(super) word_count: usize,
    pub(super) labels: Vec<String>,
    pub(super) label_counts: Vec<i64>,
    kept: Option<Kept>,
    remainder: Remainder,
}

/// The buckets that pruning left.
struct Kept {
    bits: Vec<u64>,
    /// Kept buckets before each 64.
    before: Vec<u32>,
    /// Row of each kept bucket, in the order of buckets.
    rows: Vec<u32>,
}

/// Remainders by a constant divisor.
struct Remainder {
    divisor: u32,
    inverse: u64,
}

impl Remainder {
    fn new(divisor: u32) -> Remainder {
        let divisor = divisor.max(1);
        Remainder {
            divisor,
            inverse: (u64::MAX / u64::from(divisor)).wrapping_add(1),
        }
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "below the divisor")]
    fn of(&self, n: u32) -> u32 {
        if self.divisor == 1 {
            return 0;
        }
        let fraction = self.inverse.wrapping_mul(u64::from(n));
        ((u128::from(fraction) * u128::from(self.divisor)) >> 64) as u32
    }
}

pub(super) const SEED: u32 = 2_166_136_261;

#[inline]
pub(super) fn mix(hash: u32, byte: u8) -> u32 {
    (hash ^ byte.cast_signed() as u32).wrapping_mul(16_777_619)
}

/// Seed of FNV-1a, 64 bits, which identifies words. Computed byte by byte beside the 32-bit hash.
pub(super) const KEY_SEED: u64 = 0xcbf2_9ce4_8422_2325;

#[inline]
pub(super) fn mix_key(key: u64, byte: u8) -> u64 {
    (key ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
}

pub(super) fn key(bytes: &[u8]) -> u64 {
    bytes.iter().fold(KEY_SEED, |k, &b| mix_key(k, b))
}

pub(super) fn hash(bytes: &[u8]) -> u32 {
    bytes.iter().fold(SEED, |h, &b| mix(h, b))
}

impl Kept {
    fn read<R: Read>(source: &mut Source<R>, count: usize, bucket: u32) -> Result<Kept> {
        source.room(count, 8, "kept buckets")?;
        let mut pairs = Vec::with_capacity(count);
        for _ in 0..count {
            let from = source.i32("a kept bucket")?;
            let from = u32::try_from(from)
                .ok()
                .filter(|&b| b < bucket)
                .ok_or_else(|| source.wrong(4, from.to_string(), format!("0 to {bucket}")))?;
            let row = source.i32("the row of a bucket")?;
            let row = u32::try_from(row)
                .ok()
                .filter(|&r| (r as usize) < count)
                .ok_or_else(|| source.wrong(4, row.to_string(), format!("a row below {count}")))?;
            pairs.push((from, row));
        }
        pairs.sort_unstable();
        if let Some(twice) = pairs.windows(2).find(|w| w[0].0 == w[1].0) {
            let found = format!("bucket {} twice", twice[0].0);
            return Err(source.wrong(8 * count as u64, found, "each kept bucket once"));
        }
        let mut bits = vec![0u64; bucket as usize / 64 + 1];
        for (from, _) in &pairs {
            bits[*from as usize / 64] |= 1 << (from % 64);
        }
        let mut sum = 0;
        let running = |word: &u64| {
            let before = sum;
            sum += word.count_ones();
            before
        };
        let before = bits.iter().map(running).collect();
        Ok(Kept {
            bits,
            before,
            rows: pairs.into_iter().map(|p| p.1).collect(),
        })
    }

    #[inline]
    fn row(&self, bucket: u32) -> Option<usize> {
        let (word, bit) = (bucket as usize / 64, bucket % 64);
        let bits = self.bits[word];
        if bits >> bit & 1 == 0 {
            return None;
        }
        let rank = self.before[word] + (bits & ((1 << bit) - 1)).count_ones();
        Some(self.rows[rank as usize] as usize)
    }
}

impl Dictionary {
    /// Creates a dictionary from words and labels in the order of their rows, with their counts.
    pub(super) fn of(
        shape: Shape,
        words: &[(Box<[u8]>, i64)],
        labels: &[(String, i64)],
    ) -> Dictionary {
        let rows = words.iter().enumerate();
        Dictionary {
            shape,
            words: rows.map(|(row, (word, _))| (key(word), row)).collect(),
            word_count: words.len(),
            labels: labels.iter().map(|l| l.0.clone()).collect(),
            label_counts: labels.iter().map(|l| l.1).collect(),
            kept: None,
            remainder: Remainder::new(shape.bucket),
        }
    }

    pub(super) fn read<R: Read>(source: &mut Source<R>, shape: Shape) -> Result<Dictionary> {
        let entries = source.count("dictionary entries", 1, i32::MAX)?;
        let words = source.count("words", 0, i32::MAX)?;
        let labels = source.count("labels", 0, i32::MAX)?;
        if words.saturating_add(labels) != entries || labels == 0 {
            let found = format!("{words} words and {labels} labels");
            let wanted = format!("{entries} entries together, at least one a label");
            return Err(source.wrong(12, found, wanted));
        }
        source.i64("tokens")?;
        let pruned = source.i64("kept buckets")?;
        // the shortest entry: one zero, a count, a type
        source.room(entries, 10, "dictionary")?;
        let mut made = Dictionary {
            shape,
            words: FxHashMap::with_capacity_and_hasher(words, rustc_hash::FxBuildHasher),
            word_count: words,
            labels: Vec::with_capacity(labels),
            label_counts: Vec::with_capacity(labels),
            kept: None,
            remainder: Remainder::new(shape.bucket),
        };
        let mut word = Vec::new();
        for id in 0..entries {
            source.word(&mut word)?;
            let count = source.i64("count of an entry")?;
            match (source.u8("type of an entry")?, id < words) {
                (0, true) => {
                    made.words.entry(key(&word)).or_insert(id);
                }
                (1, false) => {
                    let name = String::from_utf8_lossy(&word);
                    let name = name.strip_prefix(LABEL).unwrap_or(&name);
                    made.labels.push(name.to_string());
                    made.label_counts.push(count);
                }
                (kind, early) => {
                    let wanted = if early {
                        "0: words come first"
                    } else {
                        "1: labels after words"
                    };
                    return Err(source.wrong(1, format!("type {kind}"), wanted));
                }
            }
        }
        // fastText: -1 not pruned, 0 pruned to nothing
        if pruned >= 0 {
            let count = usize::try_from(pruned).unwrap_or(usize::MAX);
            made.kept = Some(Kept::read(source, count, shape.bucket)?);
        }
        Ok(made)
    }

    pub(super) fn is_pruned(&self) -> bool {
        self.kept.is_some()
    }

    /// Rows that the input matrix must have.
    pub(super) fn rows(&self) -> usize {
        let buckets = match &self.kept {
            Some(kept) => kept.rows.len(),
            None => self.shape.bucket as usize,
        };
        self.word_count.saturating_add(buckets)
    }

    /// True if features span several words.
    pub(super) fn has_word_ngrams(&self) -> bool {
        self.shape.word_ngrams > 1
    }

    pub(super) fn token(&self, word: &[u8]) -> Token {
        match self.words.get(&key(word)) {
            Some(&id) => Token::Known(id),
            None if word.starts_with(LABEL.as_bytes()) => Token::Label,
            None => Token::Unknown,
        }
    }

    #[inline]
    fn bucket(&self, bucket: u32, feature: &mut impl FnMut(usize)) {
        match &self.kept {
            None => feature(self.word_count + bucket as usize),
            Some(kept) => {
                if let Some(row) = kept.row(bucket) {
                    feature(self.word_count + row);
                }
            }
        }
    }

    /// Calls `feature` with the row of every character n-gram of a word; `padded` is a buffer.
    pub(super) fn subwords(
        &self,
        word: &[u8],
        padded: &mut Vec<u8>,
        mut feature: impl FnMut(usize),
    ) {
        let (minn, maxn) = (self.shape.minn, self.shape.maxn);
        if maxn == 0 || word == END || self.shape.bucket == 0 {
            return;
        }
        padded.clear();
        padded.push(b'<');
        padded.extend_from_slice(word);
        padded.push(b'>');
        let is_inside = |b: u8| b & 0xc0 == 0x80;
        for start in 0..padded.len() {
            if is_inside(padded[start]) {
                continue;
            }
            let (mut hash, mut at) = (SEED, start);
            for n in 1..=maxn {
                let Some(&first) = padded.get(at) else {
                    break;
                };
                hash = mix(hash, first);
                at += 1;
                while let Some(&next) = padded.get(at).filter(|&&b| is_inside(b)) {
                    hash = mix(hash, next);
                    at += 1;
                }
                let alone = n == 1 && (start == 0 || at == padded.len());
                if n >= minn && !alone {
                    self.bucket(self.remainder.of(hash), &mut feature);
                }
            }
        }
    }

    /// Calls `feature` with the row of every n-gram of two or more words.
    pub(super) fn word_ngrams(&self, hashes: &[u32], mut feature: impl FnMut(usize)) {
        let n = self.shape.word_ngrams;
        if n < 2 || self.shape.bucket == 0 {
            return;
        }
        let wide = |h: u32| i64::from(h.cast_signed()).cast_unsigned();
        for (i, &first) in hashes.iter().enumerate() {
            let mut h = wide(first);
            for &next in hashes[i + 1..].iter().take(n - 1) {
                h = h.wrapping_mul(CHAIN).wrapping_add(wide(next));
                let bucket = h % u64::from(self.shape.bucket);
                self.bucket(u32::try_from(bucket).unwrap_or(0), &mut feature);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remainders_are_those_of_division() {
        for divisor in [1, 2, 3, 7, 1000, 2_000_000, u32::MAX] {
            let remainder = Remainder::new(divisor);
            for n in [0, 1, 2, 6, 7, 999, 123_456_789, u32::MAX - 1, u32::MAX] {
                assert_eq!(remainder.of(n), n % divisor, "{n} mod {divisor}");
            }
        }
    }

    #[test]
    fn bytes_above_127_are_hashed_as_negative_numbers() {
        // by hand: (2166136261 ^ 0xffffffc3) * 16777619 mod 2^32
        let wanted = ((2_166_136_261u64 ^ 0xffff_ffc3) * 16_777_619) & 0xffff_ffff;
        assert_eq!(u64::from(hash(b"\xc3")), wanted);
    }
}
