//! Heavy hitters: the most frequent names, exact while they are few, with a reported error bound beyond.
//!
//! Misra and Gries 1982 in the mergeable form of Agarwal et al. 2012: when there are too many names, the count of
//! the first surplus one is subtracted from all, and names without a count are dropped. A count is then too small
//! by at most the sum of the subtractions, which is reported; it is at most the documents seen divided by the names
//! held.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Names that are kept when there are too many.
const HELD: usize = 32_768;

/// Documents and characters by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Frequent {
    /// (documents, characters of those counted).
    names: BTreeMap<String, (u64, u64)>,
    /// Maximum undercount of a number of documents; 0: all are exact.
    error: u64,
    documents: u64,
}

impl Frequent {
    /// Adds a document.
    pub fn add(&mut self, name: &str, chars: u64) {
        self.documents += 1;
        self.put(name, 1, chars);
        self.reduce();
    }

    /// Merges another counter.
    pub fn merge(&mut self, other: &Frequent) {
        self.documents += other.documents;
        self.error += other.error;
        let names = other.names.iter();
        names.for_each(|(name, (documents, chars))| self.put(name, *documents, *chars));
        self.reduce();
    }

    /// Documents added.
    pub fn documents(&self) -> u64 {
        self.documents
    }

    /// Maximum undercount of a number of documents.
    pub fn error(&self) -> u64 {
        self.error
    }

    /// The `most` first (name, documents, characters), largest first, ties by name.
    pub fn top(&self, most: usize) -> Vec<(&str, u64, u64)> {
        let mut all: Vec<_> = self
            .names
            .iter()
            .map(|(name, (n, chars))| (name.as_str(), *n, *chars))
            .collect();
        all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
        all.truncate(most);
        all
    }

    fn put(&mut self, name: &str, documents: u64, chars: u64) {
        match self.names.get_mut(name) {
            Some(held) => {
                held.0 += documents;
                held.1 += chars;
            }
            None => {
                self.names.insert(name.to_string(), (documents, chars));
            }
        }
    }

    /// Reduces at twice the capacity, so that it happens rarely.
    fn reduce(&mut self) {
        if self.names.len() < 2 * HELD {
            return;
        }
        let mut counts: Vec<u64> = self.names.values().map(|c| c.0).collect();
        let (_, taken, _) = counts.select_nth_unstable_by(HELD, |a, b| b.cmp(a));
        let taken = *taken;
        self.error += taken;
        self.names.retain(|_, (n, chars)| {
            // the characters are scaled in proportion
            let left = n.saturating_sub(taken);
            let part = u128::from(*chars) * u128::from(left) / u128::from((*n).max(1));
            *chars = u64::try_from(part).unwrap_or(u64::MAX);
            *n = left;
            left > 0
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_names_are_exact_in_any_order() {
        let mut whole = Frequent::default();
        let mut parts = [Frequent::default(), Frequent::default()];
        for i in 0..10_000u64 {
            let name = format!("n{}", (i * i) % 301);
            whole.add(&name, i);
            parts[usize::try_from(i % 2).unwrap()].add(&name, i);
        }
        let [a, mut b] = parts;
        b.merge(&a);
        assert_eq!((&b, b.error(), b.documents()), (&whole, 0, 10_000));
        let count = (0..10_000u64).filter(|i| (i * i) % 301 == 0).count() as u64;
        let of_zero = whole
            .top(usize::MAX)
            .into_iter()
            .find(|t| t.0 == "n0")
            .unwrap();
        assert_eq!(of_zero.1, count);
        assert!(whole.top(301).is_sorted_by(|a, b| a.1 >= b.1));
    }

    #[test]
    fn frequent_names_survive_many_rare_ones_within_the_stated_error() {
        let mut f = Frequent::default();
        let n = 400_000u64;
        for i in 0..n {
            match i % 4 {
                0 => f.add(&format!("often{}", i % 12), 2),
                _ => f.add(&format!("rare{i}"), 1),
            }
        }
        assert!(
            f.error() > 0 && f.error() <= n / HELD as u64,
            "{}",
            f.error()
        );
        for (name, found, chars) in f.top(3) {
            let of: u64 = name.strip_prefix("often").unwrap().parse().unwrap();
            let wanted = (0..n).filter(|i| i % 4 == 0 && i % 12 == of).count() as u64;
            assert!(found <= wanted && found + f.error() >= wanted);
            assert_eq!(chars, 2 * found);
        }
        assert!(f.names.len() < 2 * HELD);
    }
}
