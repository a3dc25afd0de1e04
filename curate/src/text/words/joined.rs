//! Words of several parts: Vietnamese syllables that belong together, with the space between them, and Thai words of which the
//! dictionary has only the parts.
//!
//! datatrove 0.10.1 takes spaCy's tokenizer over pyvi, and PyThaiNLP's newmm-safe. The parts are the default rules' words
//! and ICU's (`dictionary.rs`); a perceptron that has seen these programs' output (`boundaries.rs`) joins them.

use super::Word;
use super::boundaries::{self, Weights};

/// Language whose words are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joined {
    Vietnamese,
    Thai,
}

impl Joined {
    /// True if `b` may continue `a` at all.
    fn may_join(self, text: &str, a: Word, b: Word) -> bool {
        let between = text.get(a.end as usize..b.start as usize);
        let last = a.of(text).chars().next_back();
        match self {
            Joined::Vietnamese => {
                between == Some(" ")
                    && last.is_some_and(char::is_alphabetic)
                    && b.of(text).starts_with(char::is_alphabetic)
            }
            Joined::Thai => {
                between == Some("") && last.is_some_and(|c| c > '\u{e00}' || c.is_alphanumeric())
            }
        }
    }
}

/// Joins neighbours among `words`.
pub(super) fn join(language: Joined, text: &str, words: &mut Vec<Word>) {
    let weights = match language {
        Joined::Vietnamese => Weights::vietnamese(),
        Joined::Thai => Weights::thai(),
    };
    let parts: Vec<&str> = words.iter().map(|w| w.of(text)).collect();
    let lower: Vec<String> = parts.iter().map(|s| s.to_lowercase()).collect();
    let mut kept = 0;
    for i in 0..words.len() {
        let word = words[i];
        let joins = i > 0
            && language.may_join(text, words[kept - 1], word)
            && boundaries::joins(&weights, &parts, &lower, i);
        if joins {
            words[kept - 1].end = word.end;
        } else {
            words[kept] = word;
            kept += 1;
        }
    }
    words.truncate(kept);
}
