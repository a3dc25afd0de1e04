//! Character n-grams of words as rows of a hashed table.
//!
//! A word is a run of letters of one script between `^` and `$`; its features are all n-grams of 2, 3
//! and 4 characters and the whole word; single ideographs are features too. An n-gram packs its
//! 16-bit characters into one integer; the row is the top of its product with an odd constant
//! (Fibonacci hashing: Knuth, TAOCP 3, sec. 6.4). Collisions are left to training.

use super::script::{Letter, Script, beyond, letters};

/// Receives the features that [`walk`] finds.
pub(super) trait Sink {
    /// A row of the table.
    fn feature(&mut self, row: u32);
    /// End of a word of this many letters; its features came just before.
    fn word(&mut self, script: Script, letters: u32);
}

/// Longest word in letters; longer ones are cut. Keeps sums of a word within 16 bits.
const LONGEST: u32 = 48;
/// Maximum number of features of a word: three per letter and end, itself, ideographs.
pub(super) const MOST_FEATURES: u32 = 4 * (LONGEST + 1) + 1;
const START: u64 = 1;
const STOP: u64 = 2;
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Splits a text into words and passes their features to `sink`. The table has 2^`bits` rows.
#[inline]
pub(super) fn walk(text: &str, bits: u32, sink: &mut impl Sink) {
    let table = letters();
    let mut word = Word::default();
    for c in text.chars() {
        let letter = match table.get(c as usize) {
            Some(&letter) => letter,
            None => beyond(c),
        };
        if letter >> 16 == word.script {
            if letter != 0 {
                word.push(letter, bits, sink);
            }
        } else {
            word.finish(bits, sink);
            if letter != 0 {
                word.begin(letter);
                word.push(letter, bits, sink);
            }
        }
    }
    word.finish(bits, sink);
}

#[derive(Default)]
struct Word {
    /// Script's number plus one; 0 between words.
    script: u32,
    letters: u32,
    /// The last four characters, 16 bits each.
    key: u64,
    whole: u64,
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "at most 32 bits are left")]
fn row(key: u64, bits: u32) -> u32 {
    ((key ^ key >> 29).wrapping_mul(GOLDEN) >> (64 - bits)) as u32
}

impl Word {
    #[inline]
    fn begin(&mut self, letter: Letter) {
        *self = Word {
            script: letter >> 16,
            letters: 0,
            key: START,
            whole: 0,
        };
    }

    #[inline]
    fn push(&mut self, letter: Letter, bits: u32, sink: &mut impl Sink) {
        if self.letters == LONGEST {
            self.finish(bits, sink);
            self.begin(letter);
        }
        let code = u64::from(letter & 0xffff);
        self.letters += 1;
        self.whole = (self.whole ^ code)
            .wrapping_mul(0xff51_afd7_ed55_8ccd)
            .rotate_left(29);
        if self.script == Script::Han as u32 + 1 {
            sink.feature(row(code, bits));
        }
        self.grams(code, bits, sink);
    }

    #[inline]
    fn grams(&mut self, code: u64, bits: u32, sink: &mut impl Sink) {
        self.key = self.key << 16 | code;
        sink.feature(row(self.key & 0xffff_ffff, bits));
        if self.letters >= 2 {
            sink.feature(row(self.key & 0xffff_ffff_ffff, bits));
        }
        if self.letters >= 3 {
            sink.feature(row(self.key, bits));
        }
    }

    #[inline]
    fn finish(&mut self, bits: u32, sink: &mut impl Sink) {
        if self.script == 0 {
            return;
        }
        let letters = self.letters;
        // the end counts as a character, so a word of one letter has its trigram
        self.letters += 1;
        self.grams(STOP, bits, sink);
        sink.feature(row(self.whole, bits));
        sink.word(Script::ALL[self.script as usize - 1], letters);
        self.script = 0;
    }
}
