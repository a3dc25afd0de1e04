//! DCLM's repetition rules: the share of a page that is repeated, by lines, paragraphs and n-grams of words.

use unicode_segmentation::UnicodeSegmentation;
use xxhash_rust::xxh3::xxh3_64;

use super::words::{is_alphanumeric, pieces};
use crate::text::{HashCounts, Scratch, chars};
use crate::verdict::{Judge, KEEP, Verdict, broken};

/// n and the greatest share of characters: of the most frequent n-gram, then of all that occur again.
const TOP: [(usize, f64); 3] = [(2, 0.2), (3, 0.18), (4, 0.16)];
const ALL: [(usize, f64); 6] = [
    (5, 0.15),
    (6, 0.14),
    (7, 0.13),
    (8, 0.12),
    (9, 0.11),
    (10, 0.10),
];

pub(super) fn measure(text: &str, scratch: &mut Scratch, judge: &mut Judge) -> Verdict {
    let set = &mut scratch.set;
    let lines = Repeated::of(pieces(text, "\n"), set);
    let paragraphs = Repeated::of(pieces(text, "\n\n"), set);
    lines.measure("dclm.dup_line_frac", false, 0.3, judge)?;
    paragraphs.measure("dclm.dup_para_frac", false, 0.3, judge)?;
    lines.measure("dclm.dup_line_char_frac", true, 0.2, judge)?;
    paragraphs.measure("dclm.dup_para_char_frac", true, 0.2, judge)?;
    let mut words = Words::of(text);
    for (n, limit) in TOP {
        judge.at_most(&format!("dclm.top_{n}_gram"), words.top(n, set), limit)?;
    }
    for (n, limit) in ALL {
        judge.at_most(
            &format!("dclm.duplicated_{n}_grams"),
            words.again(n, set),
            limit,
        )?;
    }
    KEEP
}

/// Pieces of a page that occur more than once, every copy counted.
struct Repeated {
    pieces: usize,
    chars: usize,
    repeated: usize,
    repeated_chars: usize,
}

impl Repeated {
    fn of<'a>(pieces: impl Iterator<Item = &'a str>, set: &mut HashCounts) -> Repeated {
        let pieces: Vec<(u64, usize)> = pieces.map(|p| (xxh3_64(p.as_bytes()), chars(p))).collect();
        set.clear(pieces.len());
        for (hash, _) in &pieces {
            set.add(*hash);
        }
        let again: Vec<usize> = pieces
            .iter()
            .filter(|(hash, _)| set.get(*hash) > 1)
            .map(|(_, chars)| *chars)
            .collect();
        Repeated {
            pieces: pieces.len(),
            chars: pieces.iter().map(|(_, chars)| chars).sum(),
            repeated: again.len(),
            repeated_chars: again.iter().sum(),
        }
    }

    fn measure(&self, rule: &str, by_chars: bool, limit: f64, judge: &mut Judge) -> Verdict {
        match self.pieces {
            0 => Verdict::Break(broken(rule, 1.0, limit)),
            1 => KEEP,
            _ if by_chars => {
                judge.at_most(rule, self.repeated_chars as f64 / self.chars as f64, limit)
            }
            _ => judge.at_most(rule, self.repeated as f64 / self.pieces as f64, limit),
        }
    }
}

/// Unicode's words (UAX 29) that start with a letter or a digit.
struct Words {
    hashes: Vec<u64>,
    chars: Vec<u32>,
    /// Hash of the n-gram that starts at each word, for the n reached.
    grams: Vec<u64>,
    grown: usize,
    total: f64,
}

impl Words {
    fn of(text: &str) -> Words {
        let words = text
            .split_word_bounds()
            .filter(|w| w.chars().next().is_some_and(is_alphanumeric));
        let (hashes, lengths): (Vec<u64>, Vec<u32>) = words
            .map(|w| (xxh3_64(w.as_bytes()), crate::text::narrow(chars(w))))
            .unzip();
        Words {
            grams: vec![0; hashes.len()],
            grown: 0,
            total: lengths.iter().map(|c| f64::from(*c)).sum(),
            chars: lengths,
            hashes,
        }
    }

    /// Grows the n-grams' hashes to `n` words and counts them; the number of n-grams.
    fn count(&mut self, n: usize, set: &mut HashCounts) -> usize {
        let count = (self.hashes.len() + 1).saturating_sub(n);
        for k in self.grown..n {
            for i in 0..(self.hashes.len() - k.min(self.hashes.len())) {
                let mixed = self.grams[i].rotate_left(5) ^ self.hashes[i + k];
                self.grams[i] = mixed.wrapping_mul(0x517c_c1b7_2722_0a95);
            }
        }
        self.grown = n;
        set.clear(count);
        for gram in &self.grams[..count] {
            set.add(*gram);
        }
        count
    }

    /// Share of the characters in the most frequent n-gram, the longest of them, if it occurs again.
    fn top(&mut self, n: usize, set: &mut HashCounts) -> f64 {
        let count = self.count(n, set);
        let grams = &self.grams[..count];
        let most = grams.iter().map(|g| set.get(*g)).max().unwrap_or(0);
        if most < 2 {
            return 0.0;
        }
        let length = |i: usize| self.chars[i..i + n].iter().sum::<u32>();
        let top = (0..count).filter(|i| set.get(grams[*i]) == most);
        let longest = top.map(length).max().unwrap_or(0);
        f64::from(longest) * f64::from(most) / self.total
    }

    /// Share of the characters in words of n-grams that occur again, each word once.
    fn again(&mut self, n: usize, set: &mut HashCounts) -> f64 {
        let count = self.count(n, set);
        let (mut sum, mut from) = (0u64, 0);
        for i in 0..count {
            if set.get(self.grams[i]) > 1 {
                let words = &self.chars[from.max(i)..i + n];
                sum += words.iter().map(|c| u64::from(*c)).sum::<u64>();
                from = i + n;
            }
        }
        if sum == 0 {
            0.0
        } else {
            sum as f64 / self.total
        }
    }
}
