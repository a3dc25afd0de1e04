//! The model: a linear-chain tagger (Collins 2002, "Discriminative Training Methods for Hidden Markov Models").
//!
//! The score of labels is the sum over tokens of the weights of their features and of the step from the label before; the
//! best labels of a run are found by Viterbi's algorithm. All are integers, so that every machine finds the same.
//!
//! A feature is one slot of a table: its hash's first bits are the slot, the next eight tell it from others that fall on
//! it, so that a feature which the model does not have weighs nothing. Weights are relative to that of `OUTSIDE`, hence seven.
//!
//! File, one zstd frame, little-endian: `MLRNAME1`; bits of the table (u32); 8 x 8 weights of steps (i16, from x to);
//! number of words in lists (u32), then their hashes (u32) sorted, each less the one before, byte by byte (all first bytes, all
//! second ones and so on), then their classes (u8); number of features (u32), then their slots (u32) in the same way, then
//! their check bytes, then 7 rows of weights (i8).

use super::features::{FEATURES, Word, features};
use super::labels::{FIRST, LABELS, LAST, OUTSIDE, next, of_class};
use super::runs::Run;

pub(super) const MAGIC: &[u8; 8] = b"MLRNAME1";
/// Score of labels that cannot be; sums of it do not overflow.
const NEVER: i32 = i32::MIN / 4;

/// Place of a feature: its slot and its check byte, of a table of 2 to the power of `bits` slots.
pub(super) fn place(hash: u64, bits: u32) -> (usize, u8) {
    ((hash >> (64 - bits)) as usize, (hash >> (56 - bits)) as u8)
}

pub(super) struct Model {
    bits: u32,
    steps: [[i32; LABELS]; LABELS],
    /// Check byte, then the weights of the labels after `OUTSIDE`.
    slots: Vec<[i8; LABELS]>,
    lists: Lists,
}

/// Buffers of `Model::label`.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) scores: Vec<[i32; LABELS]>,
    from: Vec<[u8; LABELS]>,
    pub(super) labels: Vec<u8>,
}

impl Model {
    /// Reads a file; `None` if it is damaged.
    pub(super) fn parse(packed: &[u8]) -> Option<Model> {
        let file = zstd::decode_all(packed).ok()?;
        let mut front = Front(&file);
        if front.take(8)? != MAGIC {
            return None;
        }
        let bits = front.number()?;
        if !(8..=24).contains(&bits) {
            return None;
        }
        let mut steps = [[0; LABELS]; LABELS];
        for weight in steps.as_flattened_mut() {
            *weight = i32::from(i16::from_le_bytes(front.take(2)?.try_into().ok()?));
        }
        let words = front.ascending()?;
        let lists = Lists::new(words.len(), words.iter().zip(front.take(words.len())?));
        let places = front.ascending()?;
        let n = places.len();
        let checks = front.take(n)?;
        let weights = front.take(n.checked_mul(LABELS - 1)?)?;
        let mut slots = vec![[0; LABELS]; 1 << bits];
        for (i, place) in places.into_iter().enumerate() {
            let slot = slots.get_mut(place as usize)?;
            slot[0] = checks[i] as i8;
            for (label, weight) in slot[1..].iter_mut().enumerate() {
                *weight = weights[label * n + i] as i8;
            }
        }
        front.0.is_empty().then_some(Model {
            bits,
            steps,
            slots,
            lists,
        })
    }

    /// Lists that a word is in.
    pub(super) fn classes(&self, word: u64) -> u8 {
        self.lists.classes(word)
    }

    /// Scores of the labels of the middle one of five words.
    fn score(&self, words: &[Word; 5]) -> [i32; LABELS] {
        let mut hashes = [0; FEATURES];
        features(words, &mut hashes);
        let mut sums = [0i32; LABELS];
        for hash in hashes {
            let (slot, check) = place(hash, self.bits);
            let weights = &self.slots[slot];
            let counts = i32::from(weights[0] as u8 == check);
            for (sum, weight) in sums.iter_mut().zip(weights) {
                *sum += counts * i32::from(*weight);
            }
        }
        sums[OUTSIDE] = 0;
        sums
    }

    /// Labels of the tokens of a run.
    pub(super) fn label(&self, run: &Run, scratch: &mut Scratch) {
        scratch.scores.clear();
        for words in run.words.windows(5) {
            let words = words.try_into().expect("windows of five");
            scratch.scores.push(self.score(words));
        }
        let classes = run.tokens.iter().map(|t| of_class(t.class));
        best(&self.steps, classes, scratch);
    }
}

/// Viterbi's algorithm: the labels with the highest sum of `scratch.scores` and steps, of those that are allowed. Of
/// equal ones the first label.
pub(super) fn best(
    steps: &[[i32; LABELS]; LABELS],
    allowed: impl Iterator<Item = u8>,
    scratch: &mut Scratch,
) {
    scratch.from.clear();
    let mut sums = [NEVER; LABELS];
    for (i, (scores, allowed)) in scratch.scores.iter().zip(allowed).enumerate() {
        let mut new = [NEVER; LABELS];
        let mut from = [0; LABELS];
        if i == 0 {
            for label in of(allowed & FIRST) {
                new[label] = scores[label];
            }
        } else {
            for before in of(u8::MAX).filter(|b| sums[*b] > NEVER) {
                for label in of(next(before) & allowed) {
                    let sum = sums[before] + steps[before][label] + scores[label];
                    if sum > new[label] {
                        new[label] = sum;
                        from[label] = before as u8;
                    }
                }
            }
        }
        sums = new;
        scratch.from.push(from);
    }
    let mut last = OUTSIDE;
    for label in of(LAST) {
        if sums[label] > sums[last] {
            last = label;
        }
    }
    scratch.labels.clear();
    for from in scratch.from.iter().rev() {
        scratch.labels.push(last as u8);
        last = usize::from(from[last]);
    }
    scratch.labels.reverse();
}

/// Labels of bits.
fn of(bits: u8) -> impl Iterator<Item = usize> {
    (0..LABELS).filter(move |label| bits >> label & 1 == 1)
}

/// Numbers in ascending order as the file has them, after their count.
pub(super) fn write_ascending(numbers: &[u32], file: &mut Vec<u8>) {
    file.extend((numbers.len() as u32).to_le_bytes());
    let before = std::iter::once(&0).chain(numbers);
    let steps: Vec<[u8; 4]> = numbers
        .iter()
        .zip(before)
        .map(|(n, b)| (n - b).to_le_bytes())
        .collect();
    for byte in 0..4 {
        file.extend(steps.iter().map(|step| step[byte]));
    }
}

/// Classes of words, by the upper half of their hash: open addressing, 24 of its bits above the class.
struct Lists(Vec<u32>);

/// The half of a word's hash that tells it from others.
pub(super) fn half(hash: u64) -> u32 {
    (hash >> 32) as u32
}

impl Lists {
    fn new<'a>(n: usize, words: impl Iterator<Item = (&'a u32, &'a u8)>) -> Self {
        let mut table = vec![0; (2 * n).next_power_of_two().max(2)];
        for (half, class) in words {
            let mut at = *half as usize % table.len();
            while table[at] != 0 {
                at = (at + 1) % table.len();
            }
            table[at] = half & !0xff | u32::from(*class);
        }
        Lists(table)
    }

    fn classes(&self, hash: u64) -> u8 {
        let mask = self.0.len() - 1;
        let mut at = half(hash) as usize & mask;
        while self.0[at] != 0 {
            if (self.0[at] ^ half(hash)) & !0xff == 0 {
                return self.0[at] as u8;
            }
            at = (at + 1) & mask;
        }
        0
    }
}

/// Takes pieces off the front.
struct Front<'a>(&'a [u8]);

impl<'a> Front<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (piece, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(piece)
    }

    fn number(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    /// The numbers that `write_ascending` has written.
    fn ascending(&mut self) -> Option<Vec<u32>> {
        let n = self.number()? as usize;
        let bytes = self.take(n.checked_mul(4)?)?;
        let mut last = 0u32;
        (0..n)
            .map(|i| {
                let step = u32::from_le_bytes(std::array::from_fn(|byte| bytes[byte * n + i]));
                last = last.checked_add(step)?;
                Some(last)
            })
            .collect()
    }
}
