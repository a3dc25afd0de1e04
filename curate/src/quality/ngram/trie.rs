//! KenLM's trie: the n-grams that end in a word, sorted by the word to the left, bit-packed.
//!
//! An entry has the word's number, probability and backoff (31 and 32 bits, or codes of the quantizer's tables),
//! and the start of the entries one word longer, which end where those of the next entry begin. With array
//! compression (Raj and Whittaker 2003) the high bits of those pointers are an array of the entries at which they
//! change.

use super::bits::{bits_at, f32_at, needed, size, u64_at};
use super::weights::{Entries, Node, Weights, Words};

/// The array of high bits of pointers.
#[derive(Debug)]
struct HighBits {
    /// First byte.
    start: usize,
    entries: usize,
}

/// One order between the first and the last, or the last.
#[derive(Debug)]
struct Level {
    /// First byte of the packed entries.
    base: usize,
    entries: u64,
    word_bits: u32,
    /// Bits of the weights.
    value_bits: u32,
    /// Bits of the pointer in the entry.
    next_bits: u32,
    /// Entries of the last order have neither backoff nor pointer.
    is_last: bool,
    high: Option<HighBits>,
    /// Bytes where the tables of codes begin: probabilities, backoffs.
    tables: Option<(usize, usize)>,
}

/// The quantizer's bits.
#[derive(Clone, Copy, Debug)]
struct Codes {
    prob: u32,
    backoff: u32,
}

/// A trie in a file.
#[derive(Debug)]
pub(crate) struct Trie {
    bytes: Vec<u8>,
    unigrams: usize,
    words: u64,
    levels: Vec<Level>,
    codes: Option<Codes>,
}

impl Trie {
    pub(super) fn parse(
        bytes: Vec<u8>,
        counts: &[u64],
        start: usize,
        quantized: bool,
        compressed: bool,
    ) -> Result<(Words, Trie), String> {
        let (order, words) = (counts.len(), counts[0]);
        let hashes = u64_at(&bytes, start);
        if hashes > words {
            return Err(format!(
                "byte {start}: found {hashes} words, wanted at most {words}"
            ));
        }
        let sorted: Vec<u64> = (1..=size(hashes)?)
            .map(|i| u64_at(&bytes, start + 8 * i))
            .collect();
        if !sorted.is_sorted() {
            return Err(format!(
                "byte {start}: found hashes of words out of order, wanted them sorted"
            ));
        }
        let mut at = start + 8 + size(8 * words)?;
        let mut codes = None;
        let mut tables = vec![None; order - 1];
        if quantized {
            let head = bytes.get(at..at + 3).unwrap_or(&[0; 3]);
            let (version, prob, backoff) = (head[0], u32::from(head[1]), u32::from(head[2]));
            if version != 2 || !(1..=25).contains(&prob) || !(1..=25).contains(&backoff) {
                return Err(format!(
                    "byte {at}: found quantizer version {version} with {prob} and {backoff} bits, wanted version 2 with 1 to 25"
                ));
            }
            codes = Some(Codes { prob, backoff });
            at += 8;
            for (n, table) in (2..).zip(&mut tables) {
                let backoffs = at + (4 << prob);
                *table = Some((at, backoffs));
                at = if n == order {
                    backoffs
                } else {
                    backoffs + (4 << backoff)
                };
            }
        }
        let unigrams = at;
        at += size((words + 2) * 16)?;
        let mut levels = Vec::new();
        for (n, tables) in (2..).zip(tables) {
            let entries = counts[n - 1];
            let value_bits = match (codes, n == order) {
                (Some(c), true) => c.prob,
                (Some(c), false) => c.prob + c.backoff,
                (None, true) => 31,
                (None, false) => 63,
            };
            let (mut next_bits, mut high) = (0, None);
            if n < order {
                next_bits = needed(counts[n]);
                if compressed {
                    let (version, most) = (bytes.get(at).copied(), bytes.get(at + 1).copied());
                    let (Some(0), Some(most)) = (version, most) else {
                        return Err(format!(
                            "byte {at}: found pointer array {version:?}, wanted version 0"
                        ));
                    };
                    let chopped = chop(entries + 1, counts[n], u32::from(most));
                    next_bits -= chopped;
                    let length = size((counts[n] >> next_bits) + 1)?;
                    high = Some(HighBits {
                        start: at.next_multiple_of(8) + 8,
                        entries: length,
                    });
                    at += 8 * (1 + length) + 7;
                }
            }
            let word_bits = needed(words);
            let total = u64::from(word_bits + value_bits + next_bits);
            levels.push(Level {
                base: at,
                entries,
                word_bits,
                value_bits,
                next_bits,
                is_last: n == order,
                high,
                tables,
            });
            at = at.saturating_add(size(((1 + entries) * total).div_ceil(8) + 8)?);
            if at > bytes.len() {
                return Err(format!(
                    "byte {}: found the end, wanted {at} bytes of {n}-grams",
                    bytes.len()
                ));
            }
        }
        let trie = Trie {
            bytes,
            unigrams,
            words,
            levels,
            codes,
        };
        Ok((Words::Sorted(sorted), trie))
    }

    pub(super) fn unigram(&self, word: u32) -> Option<(Weights, Node)> {
        if u64::from(word) > self.words {
            return None;
        }
        let at = self.unigrams + 16 * word as usize;
        let weights = Weights {
            prob: f32_at(&self.bytes, at),
            backoff: f32_at(&self.bytes, at + 4),
        };
        let (begin, end) = (u64_at(&self.bytes, at + 8), u64_at(&self.bytes, at + 24));
        Some((weights, Node::Range(Entries { begin, end })))
    }

    /// The entry of `word` among those of the range, which have `matched` + 1 words.
    pub(super) fn extend(
        &self,
        matched: usize,
        range: Entries,
        word: u32,
    ) -> Option<(Weights, Node)> {
        let level = self.levels.get(matched - 1)?;
        let total = u64::from(level.word_bits + level.value_bits + level.next_bits);
        let bits = |at: u64, length: u32| bits_at(&self.bytes, level.base, at, length);
        let (mut low, mut high) = (range.begin, range.end.min(level.entries));
        let wanted = u64::from(word);
        while low < high {
            let middle = low + (high - low) / 2;
            match bits(middle * total, level.word_bits).cmp(&wanted) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => {
                    let value = middle * total + u64::from(level.word_bits);
                    let pointer = value + u64::from(level.value_bits);
                    let mut begin = bits(pointer, level.next_bits);
                    let mut end = bits(pointer + total, level.next_bits);
                    if let Some(array) = &level.high {
                        begin |= self.high(array, middle) << level.next_bits;
                        end |= self.high(array, middle + 1) << level.next_bits;
                    }
                    return Some((
                        self.weights(level, value),
                        Node::Range(Entries { begin, end }),
                    ));
                }
            }
        }
        None
    }

    /// High bits of entry `index`'s pointer: the last place of the array whose number is not above it.
    fn high(&self, array: &HighBits, index: u64) -> u64 {
        let (mut low, mut high) = (0, array.entries);
        while low < high {
            let middle = low + (high - low) / 2;
            if u64_at(&self.bytes, array.start + 8 * middle) <= index {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (low as u64).saturating_sub(1)
    }

    fn weights(&self, level: &Level, at: u64) -> Weights {
        let bits = |at: u64, length: u32| bits_at(&self.bytes, level.base, at, length);
        let code = |table: usize, at: u64, length: u32| {
            let code = usize::try_from(bits(at, length)).unwrap_or(0);
            f32_at(&self.bytes, table + 4 * code)
        };
        let float = |bits: u64| f32::from_bits(u32::try_from(bits).unwrap_or(0));
        match (self.codes, level.tables) {
            (Some(codes), Some((probs, backoffs))) => {
                let shift = if level.is_last { 0 } else { codes.backoff };
                Weights {
                    prob: code(probs, at + u64::from(shift), codes.prob),
                    backoff: if level.is_last {
                        0.0
                    } else {
                        code(backoffs, at, codes.backoff)
                    },
                }
            }
            _ => Weights {
                prob: -float(bits(at, 31)),
                backoff: if level.is_last {
                    0.0
                } else {
                    float(bits(at + 31, 32))
                },
            },
        }
    }
}

/// Number of high bits of pointers to move to the array: minimizes array size minus saved bits.
fn chop(entries: u64, most_next: u64, most_bits: u32) -> u32 {
    let required = needed(most_next);
    let change = |chop: u32| {
        let array = i128::from(most_next >> (required - chop)) * 64;
        array - i128::from(entries) * i128::from(chop)
    };
    // the first of the best: as KenLM compares
    (0..=required.min(most_bits))
        .min_by_key(|c| change(*c))
        .unwrap_or(0)
}
