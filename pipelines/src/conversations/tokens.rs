//! Tokens of many conversations in one list, each with the mark of an answer's.

use std::ops::Range;

/// Mark of tokens whose predictions count in the loss; ids are below it.
const ANSWER: u32 = 1 << 31;

/// Ids and marks of conversations.
#[derive(Default)]
pub(crate) struct Tokens {
    all: Vec<u32>,
    /// End of each conversation in `all`.
    ends: Vec<usize>,
}

/// A token's id, and whether it is of an answer.
pub(crate) fn is_answer(token: u32) -> (u32, bool) {
    (token & !ANSWER, token & ANSWER != 0)
}

impl Tokens {
    /// Adds a conversation; `answers` are ranges of its ids.
    pub(super) fn push(&mut self, ids: &[u32], answers: &[Range<usize>]) {
        let from = self.all.len();
        self.all.extend(ids.iter().map(|id| id & !ANSWER));
        for answer in answers {
            let range = from + answer.start.min(ids.len())..from + answer.end.min(ids.len());
            self.all[range]
                .iter_mut()
                .for_each(|token| *token |= ANSWER);
        }
        self.ends.push(self.all.len());
    }

    /// Number of conversations.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Marked tokens of a conversation.
    pub(crate) fn of(&self, number: usize) -> &[u32] {
        let from = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.all[from..self.ends[number]]
    }

    /// Tokens of each conversation.
    pub(crate) fn lengths(&self) -> Vec<usize> {
        (0..self.len())
            .map(|number| self.of(number).len())
            .collect()
    }

    /// Tokens of all conversations, and those among them that count.
    pub(crate) fn counts(&self) -> [usize; 2] {
        let answers = self.all.iter().filter(|token| is_answer(**token).1);
        [self.all.len(), answers.count()]
    }

    /// A digest of all tokens, marks and ends in order.
    pub(crate) fn digest(&self) -> String {
        let mut hash = xxhash_rust::xxh3::Xxh3Default::new();
        let words = self.all.iter().copied();
        words.for_each(|token| hash.update(&token.to_le_bytes()));
        let ends = self.ends.iter();
        ends.for_each(|end| hash.update(&(*end as u64).to_le_bytes()));
        format!("{:016x}", hash.digest())
    }
}
