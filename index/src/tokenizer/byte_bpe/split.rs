//! Pre-tokenization: the split patterns of GPT-2 and of the cl100k family, as arithmetic on class bit streams.
//!
//! GPT-2 (Radford et al. 2019): `'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
//! cl100k, LLaMA 3 (3 digits), Qwen 2 (1): `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
//!  ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
//!
//! Both patterns match at every position, so the words tile the text and only their starts are needed. A match does
//! not depend on the text before it, so a text can be processed in pieces that end at any word start, which keeps
//! the streams in cache. Here "other" is `[^\s\p{L}\p{N}]`, a run is a longest stretch of one class. We differ from
//! tokenizers 1.0.0-rc.3 in one place, where the regular expression engines of 0.23.3 and tiktoken agree with us:
//! U+017F is an `s` to `(?i:'s)`.

use super::masks::{self, Level, Masks};

/// Split pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Split {
    /// GPT-2, GPT-3, GPT-NeoX, RoBERTa, and the tokenizers trained here.
    Gpt2,
    /// cl100k and its relatives.
    Cl100k {
        /// Characters of `\p{N}` in a word at most, 3 or 1.
        digits: u8,
        /// White space at the end of the text is one word (tiktoken's `\s++$`), not cut after its last newline.
        whole_end: bool,
    },
}

/// Bytes split at a time.
const WINDOW: usize = 8192;
/// A start may depend on this many bytes after it: an apostrophe, two letters of at most two bytes, and the next one.
const LOOKAHEAD: usize = 16;

/// Cuts texts; owns its buffers.
pub(crate) struct Splitter {
    split: Split,
    level: Level,
    masks: Vec<Masks>,
    starts: Vec<u64>,
    /// Apostrophes that open a contraction, and its length.
    contractions: Vec<(usize, usize)>,
}

impl Splitter {
    /// With the best instructions of this CPU.
    pub(crate) fn new(split: Split) -> Splitter {
        Splitter::with(split, Level::best())
    }

    pub(super) fn with(split: Split, level: Level) -> Splitter {
        Splitter {
            split,
            level,
            masks: Vec::new(),
            starts: Vec::new(),
            contractions: Vec::new(),
        }
    }

    /// Writes the ends of some words from `text[from]` on, at least one unless nothing is left, relative to `from`.
    ///
    /// `text` is UTF-8 and `from` is 0 or the end of the word before. Continue from the last end.
    pub(crate) fn cut(&mut self, text: &[u8], from: usize, ends: &mut Vec<u32>) {
        ends.clear();
        let mut size = WINDOW;
        while from < text.len() && ends.is_empty() {
            let rest = &text[from..];
            let mut to = size.min(rest.len());
            while to < rest.len() && rest[to] & 0xc0 == 0x80 {
                to -= 1;
            }
            self.window(&rest[..to], to == rest.len(), ends);
            size *= 2;
        }
    }

    fn window(&mut self, text: &[u8], is_last: bool, ends: &mut Vec<u32>) {
        masks::fill(self.level, text, &mut self.masks);
        self.starts.clear();
        self.starts.resize(self.masks.len() - 1, 0);
        self.contractions.clear();
        match self.split {
            Split::Gpt2 => self.gpt2(text),
            Split::Cl100k { digits, whole_end } => {
                self.cl100k(text, usize::from(digits));
                if whole_end && is_last {
                    self.join_end(text.len());
                }
            }
        }
        for &(at, length) in &self.contractions {
            let (inner, next) = (at + 1, at + length);
            self.starts[inner / 64] &= !(1 << (inner % 64));
            if next < text.len() {
                self.starts[next / 64] |= 1 << (next % 64);
            }
        }
        let limit = if is_last {
            text.len()
        } else {
            // White space that reaches the end may continue behind it: only its start is certain.
            let solid = run_back(&self.masks, text.len(), |m| m.space);
            solid.min(text.len().saturating_sub(LOOKAHEAD))
        };
        list(&self.starts, limit, ends);
        if is_last {
            ends.push(number(text.len()));
        }
    }

    /// Starts of GPT-2's words.
    fn gpt2(&mut self, text: &[u8]) {
        let mut before = Masks::default();
        for i in 0..self.masks.len() - 1 {
            let (now, after) = (self.masks[i], self.masks[i + 1]);
            let runs = now.letter & !shifted(now.letter, before.letter)
                | now.number & !shifted(now.number, before.number)
                | now.other & !shifted(now.other, before.other);
            // a blank before a run belongs to it
            let runs = runs & !shifted(now.blank, before.blank);
            let spaces = now.space & !shifted(now.space, before.space);
            self.starts[i] |= runs | spaces;
            let last = now.space & !followed_by(now.space, after.space);
            self.last_spaces(i, last, text.len());
            let quotes = now.apostrophe & runs & followed_by(now.letter, after.letter);
            self.contractions(i, quotes, text, false);
            before = now;
        }
    }

    /// Starts of cl100k's words.
    fn cl100k(&mut self, text: &[u8], digits: usize) {
        let mut before = Masks::default();
        // of the word before: newlines taken by others, and first characters of others that open a word
        let (mut taken_before, mut first_before) = (0, 0);
        // white space that was searched last: its end and its last newline
        let mut searched = (0, 0);
        for i in 0..self.masks.len() - 1 {
            let (now, after) = (self.masks[i], self.masks[i + 1]);
            // `[\r\n]*` behind others
            let others_before = shifted(now.other, before.other);
            let taken = flood(
                now.newline & (others_before | taken_before >> 63),
                now.newline,
            );
            let (free, free_before) = (now.space & !taken, before.space & !taken_before);
            let spaces = free & !shifted(free, free_before);
            let others = now.other & !others_before & !shifted(now.blank, before.blank);
            // one character, neither newline nor blank, may precede letters: the first of others or the last of spaces
            let first = others | flood(now.inside & (others << 1 | first_before >> 63), now.inside);
            let letters = now.letter
                & !shifted(now.letter, before.letter)
                & !shifted(first, first_before)
                & !shifted(now.space & !now.newline, before.space & !before.newline);
            let numbers = now.number & !shifted(now.number, before.number);
            self.starts[i] |= spaces | others | letters | numbers;

            let last = free & !now.newline & !followed_by(now.space, after.space);
            self.last_spaces(i, last, text.len());
            let newlines = (free & now.newline, free_before & before.newline);
            let mut rests = free & !now.newline & shifted(newlines.0, newlines.1);
            while rests != 0 {
                let at = i * 64 + rests.trailing_zeros() as usize;
                rests &= rests - 1;
                if at >= searched.0 {
                    let end = run_end(&self.masks, at, |m| m.space);
                    let tail = run_back(&self.masks, end, |m| m.space & !m.newline);
                    searched = (end, tail);
                }
                // `\s*[\r\n]+` reaches to the last newline
                if at >= searched.1 {
                    self.starts[at / 64] |= 1 << (at % 64);
                }
            }
            let quotes = now.apostrophe & others & followed_by(now.letter, after.letter);
            self.contractions(i, quotes, text, true);
            if digits == 1 {
                self.starts[i] |= now.number & !now.inside;
            } else {
                self.groups(i, numbers, digits);
            }
            (before, taken_before, first_before) = (now, taken, first);
        }
    }

    /// Makes one word of the white space at the end of the text, but for newlines that others before it take.
    fn join_end(&mut self, length: usize) {
        let mut first = run_back(&self.masks, length, |m| m.space);
        if first > 0 && self.masks[(first - 1) / 64].other >> ((first - 1) % 64) & 1 == 1 {
            first = run_end(&self.masks, first, |m| m.newline);
        }
        for at in first + 1..length {
            self.starts[at / 64] &= !(1 << (at % 64));
        }
    }

    /// The last character of white space before something else is a word or the start of one. `last` marks the last
    /// bytes of runs in word `i` of the streams.
    fn last_spaces(&mut self, i: usize, last: u64, length: usize) {
        // nothing follows the last byte of the text
        let end = if (length - 1) / 64 == i {
            1u64 << ((length - 1) % 64)
        } else {
            0
        };
        let last = last & !end;
        let inside = self.masks[i].inside;
        self.starts[i] |= last & !inside;
        let mut wide = last & inside;
        while wide != 0 {
            let mut at = i * 64 + wide.trailing_zeros() as usize;
            wide &= wide - 1;
            while self.masks[at / 64].inside >> (at % 64) & 1 == 1 {
                at -= 1;
            }
            self.starts[at / 64] |= 1 << (at % 64);
        }
    }

    /// Marks the contractions among the apostrophes of mask word `i` that open a match and precede a letter.
    fn contractions(&mut self, i: usize, mut quotes: u64, text: &[u8], any_case: bool) {
        while quotes != 0 {
            let at = i * 64 + quotes.trailing_zeros() as usize;
            quotes &= quotes - 1;
            if let Some(length) = contraction(&text[at + 1..], any_case) {
                self.contractions.push((at, 1 + length));
            }
        }
    }

    /// Starts within numbers that begin at `runs` of word `i`: every `digits` characters.
    fn groups(&mut self, i: usize, mut runs: u64, digits: usize) {
        while runs != 0 {
            let mut at = i * 64 + runs.trailing_zeros() as usize;
            runs &= runs - 1;
            let mut characters = 0;
            // the empty word of masks behind the text ends every run
            while self.masks[at / 64].number >> (at % 64) & 1 == 1 {
                if self.masks[at / 64].inside >> (at % 64) & 1 == 0 {
                    if characters == digits {
                        self.starts[at / 64] |= 1 << (at % 64);
                        characters = 0;
                    }
                    characters += 1;
                }
                at += 1;
            }
        }
    }
}

/// Bytes of the contraction's letters at the start of `text`, which follows an apostrophe.
fn contraction(text: &[u8], any_case: bool) -> Option<usize> {
    let letter = |i: usize| {
        let byte = text.get(i).copied().unwrap_or_default();
        if any_case {
            byte.to_ascii_lowercase()
        } else {
            byte
        }
    };
    match (letter(0), letter(1)) {
        (b's' | b't' | b'm' | b'd', _) => Some(1),
        (b'r' | b'v', b'e') | (b'l', b'l') => Some(2),
        // U+017F, LONG S, folds to s
        (0xc5, 0xbf) if any_case => Some(2),
        _ => None,
    }
}

/// Every bit where the byte before has `now`'s property; `before` is the word before.
#[inline]
fn shifted(now: u64, before: u64) -> u64 {
    now << 1 | before >> 63
}

/// Every bit where the byte after has `now`'s property.
#[inline]
fn followed_by(now: u64, after: u64) -> u64 {
    now >> 1 | after << 63
}

/// From each of `entries` (bits of `class`) up to the end of its run in `class`: an addition carries through the run.
#[inline]
fn flood(entries: u64, class: u64) -> u64 {
    (class ^ class.wrapping_add(entries)) & class | entries
}

/// The first byte from `at` on that is not in `class`.
fn run_end(masks: &[Masks], at: usize, class: impl Fn(&Masks) -> u64) -> usize {
    let (mut word, mut bit) = (at / 64, at % 64);
    while let Some(m) = masks.get(word) {
        let ones = (class(m) >> bit).trailing_ones() as usize;
        if bit + ones < 64 {
            return word * 64 + bit + ones;
        }
        (word, bit) = (word + 1, 0);
    }
    word * 64
}

/// The first byte of the run of `class` that ends before `end`; `end` if there is none.
fn run_back(masks: &[Masks], end: usize, class: impl Fn(&Masks) -> u64) -> usize {
    let mut at = end;
    while at > 0 {
        let bits = (at - 1) % 64 + 1;
        let word = class(&masks[(at - 1) / 64]) << (64 - bits);
        let ones = word.leading_ones() as usize;
        at -= ones.min(bits);
        if ones < bits {
            break;
        }
    }
    at
}

/// Starts above 0 and up to `limit`, which are the ends of the words before them.
fn list(starts: &[u64], limit: usize, ends: &mut Vec<u32>) {
    for (i, word) in starts.iter().enumerate() {
        let base = i * 64;
        let mut word = *word;
        if base + 63 > limit {
            if base > limit {
                break;
            }
            word &= !0 >> (63 - (limit - base));
        }
        if i == 0 {
            word &= !1;
        }
        while word != 0 {
            ends.push(number(base + word.trailing_zeros() as usize));
            word &= word - 1;
        }
    }
}

/// A position within a window. Windows that a single word has grown beyond 4 GiB cannot be: `cut` is for texts below.
#[inline]
fn number(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
