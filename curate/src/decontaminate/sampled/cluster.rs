//! Finds questions in a document: extends a sampled n-gram to both sides.

use super::index::Index;

/// The part of a question matched from one start.
#[derive(Clone, Debug)]
pub(super) struct Met {
    pub(super) record: u32,
    /// First and last n-gram, by token.
    pub(super) start: usize,
    pub(super) end: usize,
    /// Numbers of its n-grams that were met, sorted.
    pub(super) ngrams: Vec<u32>,
    misses: usize,
    is_followed: bool,
}

/// Calls `take` with the questions that share a start, for one start after the other.
pub(super) fn each(index: &Index, tokens: &[u64], take: &mut dyn FnMut(&[Met])) {
    let last = (tokens.len() + 1).saturating_sub(index.ngram());
    let mut at = 0;
    while at < last {
        let Some((number, records)) = index.question(tokens, at) else {
            at += index.rules.sample_every;
            continue;
        };
        if index.is_hot(records) {
            at += 1;
            continue;
        }
        let met = |record: &u32| Met {
            record: *record,
            start: at,
            end: at,
            ngrams: vec![number],
            misses: 0,
            is_followed: true,
        };
        let mut found: Vec<Met> = records.iter().map(met).collect();
        let mut left = at;
        while left > 0 && found.iter().any(|m| m.is_followed) {
            left -= 1;
            step(index, tokens, left, &mut found);
        }
        for met in &mut found {
            met.misses = 0;
            met.is_followed = true;
        }
        let mut right = at;
        while right + 1 < last && found.iter().any(|m| m.is_followed) {
            right += 1;
            step(index, tokens, right, &mut found);
        }
        take(&found);
        at = right + 1;
    }
}

/// Looks at one more n-gram: those of the followed that have it have gone on, if it is another one of theirs.
fn step(index: &Index, tokens: &[u64], at: usize, found: &mut [Met]) {
    let (number, records) = index.question(tokens, at).unwrap_or((0, &[]));
    let mut records = records.iter().peekable();
    for met in found.iter_mut().filter(|m| m.is_followed) {
        while records.next_if(|r| **r < met.record).is_some() {}
        if records.peek() == Some(&&met.record) {
            if let Err(place) = met.ngrams.binary_search(&number) {
                met.ngrams.insert(place, number);
                met.misses = 0;
            }
            met.start = met.start.min(at);
            met.end = met.end.max(at);
        } else {
            met.misses += 1;
            met.is_followed = met.misses < index.rules.max_misses;
        }
    }
}
