//! Repeated n-grams of a document: a cheap prefilter finds those that can occur twice, with a few bytes per word.
//!
//! Most n-grams of a text occur once, and a table of counts spends its time on them. Every n-gram is therefore first counted in
//! a byte chosen by its hash, in an array that stays in the nearest cache; an n-gram alone in its byte occurs once. Only the
//! others go to the exact table, so the results are the table's.
//!
//! Concatenated n-grams ("a b" and "ab" are one) have no words in common that a hash could be built from. Two equal
//! ones still agree in their first 16 bytes, which work for all n at once; shorter ones are always looked up.

use xxhash_rust::xxh3::xxh3_64;

use super::HashCounts;
use crate::text::narrow;

/// Bytes in which equal concatenations agree.
const PREFIX: usize = 16;

/// Buffers for one document's n-grams.
#[derive(Default)]
pub(crate) struct NGrams {
    /// The document's words without separators, [`PREFIX`] zeros behind them.
    joined: Vec<u8>,
    /// Start of each word in `joined`, and the end of the last one.
    starts: Vec<u32>,
    /// Count of each slot.
    seen: Vec<u8>,
    /// The slot of the n-gram at each word.
    slots: Vec<u32>,
    /// Words at which a concatenation may start that occurs twice, in order.
    repeated: Vec<u32>,
}

/// Spreads a key over the high bits, from which slots are taken.
fn spread(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The slot of a key.
#[expect(
    clippy::cast_possible_truncation,
    reason = "there are at most 2^31 slots: the shift is at least 33"
)]
fn slot_of(key: u64, shift: u32) -> u32 {
    (spread(key) >> shift) as u32
}

/// Hash of an n-gram from its words'.
fn key(words: &[u64]) -> u64 {
    words.iter().fold(0u64, |h, w| {
        (h.rotate_left(5) ^ w).wrapping_mul(0x517c_c1b7_2722_0a95)
    })
}

impl NGrams {
    /// Makes all slots zero; returns by how much a spread key is shifted to be one.
    fn empty_slots(&mut self, items: usize) -> u32 {
        // 8 to 16 slots an item: about every tenth shares one by chance
        let slots = (items * 8).next_power_of_two().clamp(1 << 10, 1 << 31);
        self.seen.clear();
        self.seen.resize(slots, 0);
        self.slots.clear();
        self.slots.reserve(items);
        64 - slots.trailing_zeros()
    }

    /// Position of the first occurrence of the most frequent n-gram of these words (the earliest among equals), and
    /// its count.
    pub(crate) fn top(
        &mut self,
        n: usize,
        words: &[u64],
        set: &mut HashCounts,
    ) -> Option<(usize, u32)> {
        let all = (words.len() + 1)
            .checked_sub(n)
            .filter(|&a| a > 0 && n > 0)?;
        let shift = self.empty_slots(all);
        let (mut most_seen, mut fullest) = (0, 0);
        for gram in words.windows(n) {
            let slot = slot_of(key(gram), shift);
            let seen = &mut self.seen[slot as usize];
            *seen = seen.saturating_add(1);
            if *seen > most_seen {
                (most_seen, fullest) = (*seen, slot);
            }
            self.slots.push(slot);
        }
        if most_seen == 1 {
            return Some((0, 1));
        }
        // An n-gram of the fullest slot bounds the greatest count from below: whose slot has fewer cannot be it.
        set.clear(all);
        let mut most = 0;
        for (gram, &slot) in words.windows(n).zip(&self.slots) {
            if slot == fullest {
                most = most.max(set.add(key(gram)) + 1);
            }
        }
        let least = u8::try_from(most).unwrap_or(u8::MAX).max(2);
        for (gram, &slot) in words.windows(n).zip(&self.slots) {
            if self.seen[slot as usize] >= least && slot != fullest {
                most = most.max(set.add(key(gram)) + 1);
            }
        }
        if most == 1 {
            return Some((0, 1));
        }
        let mut grams = words.windows(n).zip(&self.slots);
        let first = grams.position(|(gram, &slot)| {
            self.seen[slot as usize] >= least && set.get(key(gram)) == most
        })?;
        Some((first, most))
    }

    /// Loads a document's words and finds the possible starts of repeated concatenations of `least` or more of
    /// them.
    pub(crate) fn join<'a>(&mut self, words: impl Iterator<Item = &'a str>, least: usize) {
        self.joined.clear();
        self.starts.clear();
        for word in words {
            self.starts.push(narrow(self.joined.len()));
            self.joined.extend_from_slice(word.as_bytes());
        }
        let words = self.starts.len();
        self.starts.push(narrow(self.joined.len()));
        self.joined.extend_from_slice(&[0; PREFIX]);
        let shift = self.empty_slots(words);
        for &start in &self.starts[..words] {
            let prefix = self.joined[start as usize..].first_chunk::<PREFIX>();
            let prefix = prefix.expect("zeros follow the last word");
            let [low, high] = [0, 8].map(|half| {
                let bytes = prefix[half..].first_chunk().expect("16 bytes are 8 and 8");
                u64::from_le_bytes(*bytes)
            });
            let mixed = spread(low).rotate_left(32) ^ high;
            let slot = slot_of(mixed, shift);
            // 0, 1, 3, 7, ..: the second bit says twice
            let seen = &mut self.seen[slot as usize];
            *seen = (*seen << 1) | 1;
            self.slots.push(slot);
        }
        self.repeated.clear();
        for at in 0..(words + 1).saturating_sub(least) {
            let twice = self.seen[self.slots[at] as usize] & 2 != 0;
            let bytes = self.starts[at + least] - self.starts[at];
            if twice || (bytes as usize) < PREFIX {
                self.repeated.push(narrow(at));
            }
        }
    }

    /// Characters in repeated concatenations of n words, skipping n words at each hit; `n` is at least the `least`
    /// of [`NGrams::join`].
    pub(crate) fn repeated_chars(&self, n: usize, chars: &[u32], set: &mut HashCounts) -> usize {
        let words = chars.len();
        set.clear(self.repeated.len());
        let (mut found, mut from) = (0, 0);
        for &at in &self.repeated {
            let at = at as usize;
            if at < from {
                continue;
            }
            if at + n > words {
                break;
            }
            let bytes = &self.joined[self.starts[at] as usize..self.starts[at + n] as usize];
            if set.add(xxh3_64(bytes)) > 0 {
                found += chars[at..at + n].iter().map(|&c| c as usize).sum::<usize>();
                from = at + n;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use proptest::prelude::*;

    use super::*;
    use crate::text::chars;

    fn hashes(words: &[String]) -> Vec<u64> {
        words.iter().map(|w| xxh3_64(w.as_bytes())).collect()
    }

    proptest! {
        #[test]
        fn the_top_n_gram_is_the_one_a_table_of_all_finds(words in prop::collection::vec("[ab]{1,3}", 0..400), n in 1usize..5) {
            let mut counts: HashMap<&[String], u32> = HashMap::new();
            for gram in words.windows(n) {
                *counts.entry(gram).or_default() += 1;
            }
            let most = counts.values().copied().max();
            let wanted = most.map(|m| (words.windows(n).position(|g| counts[g] == m).unwrap(), m));
            let found = NGrams::default().top(n, &hashes(&words), &mut HashCounts::default());
            prop_assert_eq!(found, wanted);
        }

        #[test]
        fn repeated_characters_are_those_a_set_of_strings_finds(words in prop::collection::vec("[ab]{1,6}|[a-z]{2,9}|\u{e9}t\u{e9}", 0..300), copied in 0usize..40, n in 2usize..9) {
            let mut words = words;
            words.extend_from_within(..copied.min(words.len()));
            let lengths: Vec<u32> = words.iter().map(|w| narrow(chars(w))).collect();
            let mut seen = HashSet::new();
            let (mut wanted, mut at) = (0, 0);
            while at + n <= words.len() {
                let gram = words[at..at + n].concat();
                let length = chars(&gram);
                if seen.insert(gram) {
                    at += 1;
                } else {
                    wanted += length;
                    at += n;
                }
            }
            let mut grams = NGrams::default();
            grams.join(words.iter().map(String::as_str), 2);
            prop_assert_eq!(grams.repeated_chars(n, &lengths, &mut HashCounts::default()), wanted);
        }
    }
}
