//! Names of persons and street addresses in English text, by a small tagger that is part of the program.
//!
//! Tokens (`tokens.rs`) with capital letters or digits and their neighbours are runs (`runs.rs`); the features of their words
//! (`features.rs`) give each label (`labels.rs`) a score, and the best labels of a run are found by Viterbi's algorithm
//! (`model.rs`). `train.rs` learns the weights from the sentences that `tests/oracles/names_sets.py` gathers; `MODEL.md` has their
//! sources and licences.

mod features;
mod labels;
#[expect(
    clippy::cast_possible_truncation,
    reason = "labels are less than eight, and slots, checks and classes are pieces of a hash"
)]
mod model;
mod runs;
mod tokens;
#[expect(
    clippy::cast_possible_truncation,
    reason = "labels are less than eight, weights are clamped first, and examples in memory are fewer than 2^32"
)]
mod train;

use std::ops::Range;
use std::sync::LazyLock;

use rustc_hash::FxHashSet;

use self::features::{COMMON, PLACE, list_hash};
use self::model::{Model, Scratch};
use self::runs::Run;
use self::tokens::{Class, Tokens};

pub use self::train::{NameExamples, NameTraining, NamedSpan};

static MODEL: LazyLock<Model> = LazyLock::new(|| {
    // the file is part of the program and a test reads it
    Model::parse(include_bytes!("model.bin")).expect("the built-in model is whole")
});

/// Spans of names and of addresses in a text, each in order. Those of one list do not overlap those of the other.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) persons: Vec<Range<usize>>,
    pub(super) addresses: Vec<Range<usize>>,
}

/// Whether the model reads texts of the language: English or unknown. The code may have a script behind it.
pub(super) fn reads(language: &str) -> bool {
    let code = language.split(['_', '-']).next().unwrap_or("");
    matches!(code, "" | "en" | "eng" | "und")
}

/// Adds those of the spans that are in the range as a whole.
pub(super) fn within(spans: &[Range<usize>], range: &Range<usize>, out: &mut Vec<Range<usize>>) {
    let first = spans.partition_point(|span| span.start < range.start);
    let inside = spans[first..]
        .iter()
        .take_while(|span| span.end <= range.end);
    out.extend(inside.cloned());
}

/// Names and addresses of a text.
pub(super) fn find(text: &str) -> Names {
    find_with(&MODEL, text)
}

fn find_with(model: &Model, text: &str) -> Names {
    let mut names = Names::default();
    let mut scratch = Scratch::default();
    runs::walk(
        text,
        |word| model.classes(word),
        |run| {
            model.label(run, &mut scratch);
            names.add(run, &scratch.labels);
        },
    );
    repeated(model, text, &mut names);
    names
}

/// Adds the words of longer names where they stand alone: whom a text names in full it names by one word later.
fn repeated(model: &Model, text: &str, names: &mut Names) {
    let mut known = FxHashSet::default();
    for name in &names.persons {
        let mut words = Tokens::new(&text[name.clone()])
            .filter(|t| t.class == Class::Capital && t.span.len() > 2);
        if let (Some(first), last @ Some(_)) = (words.next(), words.last()) {
            for token in [Some(first), last].into_iter().flatten() {
                let hash = list_hash(&text[name.start..][token.span]);
                if model.classes(hash) & (COMMON | PLACE) == 0 {
                    known.insert(hash);
                }
            }
        }
    }
    if known.is_empty() {
        return;
    }
    let mut alone = Vec::new();
    let mut taken: Vec<&Range<usize>> = names.persons.iter().chain(&names.addresses).collect();
    taken.sort_unstable_by_key(|span| span.start);
    let mut taken = taken.into_iter().peekable();
    runs::walk(
        text,
        |word| model.classes(word),
        |run| {
            let is_capital =
                |i: usize| run.tokens.get(i).is_some_and(|t| t.class == Class::Capital);
            for (i, token) in run
                .tokens
                .iter()
                .enumerate()
                .filter(|(i, _)| is_capital(*i))
            {
                while taken.next_if(|span| span.end <= token.span.start).is_some() {}
                let is_free = taken.peek().is_none_or(|span| token.span.end <= span.start);
                let is_joined = is_capital(i + 1) || i > 0 && is_capital(i - 1);
                if is_free && !is_joined && known.contains(&run.words[runs::AROUND + i].word) {
                    alone.push(token.span.clone());
                }
            }
        },
    );
    names.persons.append(&mut alone);
    names.persons.sort_unstable_by_key(|span| span.start);
}

impl Names {
    /// Adds what the labels of a run name. An address has a word with a capital letter and one with a digit.
    fn add(&mut self, run: &Run, found: &[u8]) {
        let mut first = 0;
        for (i, label) in found.iter().enumerate() {
            let tokens = &run.tokens[first..=i];
            let has = |class: Class| tokens.iter().any(|t| t.class == class);
            let span = || run.tokens[first].span.start..run.tokens[i].span.end;
            match usize::from(*label) {
                labels::NAME => self.persons.push(run.tokens[i].span.clone()),
                labels::NAME_BEGIN | labels::ADDRESS_BEGIN => first = i,
                labels::NAME_END => self.persons.push(span()),
                labels::ADDRESS_END if has(Class::Capital) && has(Class::Number) => {
                    self.addresses.push(span());
                }
                labels::OUTSIDE | labels::NAME_INSIDE | labels::ADDRESS_INSIDE.. => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
