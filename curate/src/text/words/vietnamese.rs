//! Vietnamese words: syllables that belong together are one word, with the space between them.
//!
//! datatrove 0.10.1 takes spaCy's tokenizer over pyvi. Syllables are the default rules' words; a perceptron that has seen
//! pyvi's output (`boundaries.rs`) joins them.

use super::Word;
use super::boundaries::{self, Weights};

/// Joins neighbours among the default rules' `words`.
pub(super) fn join(text: &str, words: &mut Vec<Word>) {
    let weights = Weights::vietnamese();
    let syllables: Vec<&str> = words.iter().map(|w| w.of(text)).collect();
    let lower: Vec<String> = syllables.iter().map(|s| s.to_lowercase()).collect();
    let mut kept = 0;
    for i in 0..words.len() {
        let word = words[i];
        let joins = i > 0
            && may_join(text, words[kept - 1], word)
            && boundaries::vietnamese(&weights, &syllables, &lower, i);
        if joins {
            words[kept - 1].end = word.end;
        } else {
            words[kept] = word;
            kept += 1;
        }
    }
    words.truncate(kept);
}

/// Letters on both sides of one space.
fn may_join(text: &str, a: Word, b: Word) -> bool {
    let (from, to) = (a.end as usize, b.start as usize);
    text.get(from..to) == Some(" ")
        && a.of(text).ends_with(char::is_alphabetic)
        && b.of(text).starts_with(char::is_alphabetic)
}
