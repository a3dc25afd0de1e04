//! Verification of one component: documents that bands connect, directly or through others.
//!
//! Greedy clustering: documents are visited in the order of the keep policy. The first is a keeper; each further
//! one is compared with the keepers before it, in their order, until the similarity is high enough: then it is that
//! keeper's duplicate, otherwise it becomes a keeper. So every removed document was found similar to a kept one,
//! and there are no chains. In a component of at most 64 documents all keepers are compared, in a larger one those
//! that share a band. A document is compared with at most 64 keepers (boilerplate makes components of millions of
//! which few are alike); one that is like none of them is kept, and is counted. Only the first 64 keepers of a
//! band's number can ever be compared, so no more are stored. If the keepers do not fit the memory, undecided
//! documents are visited again, for the next keepers; the result is the same.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::report::{Pair, Tally};
use super::spill::Candidate;
use crate::dedup::signature::NO_SIGNATURE;
use crate::error::Result;

/// Maximum number of keepers that a document is compared with.
pub(super) const MOST_COMPARED: usize = 64;

/// Keepers so far.
struct Keepers {
    list: Vec<(usize, Arc<Candidate>)>,
    /// By band and its number; None if all are compared.
    by_key: Option<FxHashMap<(usize, u64), Vec<usize>>>,
}

impl Keepers {
    /// The keepers that a document is compared with, in order.
    fn of(&self, candidate: &Candidate) -> Vec<usize> {
        let Some(by_key) = &self.by_key else {
            return (0..self.list.len()).collect();
        };
        let lists = candidate.keys.iter().enumerate();
        let lists = lists.filter_map(|(band, key)| by_key.get(&(band, *key)));
        let mut found: Vec<usize> = lists.flatten().copied().collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Adds a keeper unless no comparison can reach it; returns its bytes.
    fn add(&mut self, member: usize, candidate: Arc<Candidate>) -> usize {
        let place = self.list.len();
        let mut is_wanted = self.by_key.is_none();
        for (band, key) in candidate.keys.iter().enumerate() {
            if let Some(by_key) = &mut self.by_key
                && *key != NO_SIGNATURE
            {
                let list = by_key.entry((band, *key)).or_default();
                if list.len() < MOST_COMPARED {
                    list.push(place);
                    is_wanted = true;
                }
            }
        }
        if !is_wanted {
            return 0;
        }
        let bytes = candidate.bytes() + 64 * candidate.keys.len();
        self.list.push((member, candidate));
        bytes
    }
}

/// A document that is not decided.
#[derive(Clone, Copy)]
struct Open {
    member: usize,
    compared: usize,
    /// The keeper that it is most like, and how much.
    best: Option<(f64, usize)>,
}

/// Decides a component of `members` documents, which `get` reads in order: calls `remove(document, keeper)` for
/// each that is removed.
pub(super) fn decide(
    members: usize,
    get: &mut dyn FnMut(usize) -> Result<Arc<Candidate>>,
    threshold: f64,
    memory: usize,
    tally: &mut Tally,
    remove: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let start = |member| Open {
        member,
        compared: 0,
        best: None,
    };
    let mut open: Vec<Open> = (0..members).map(start).collect();
    while !open.is_empty() {
        let mut keepers = Keepers {
            list: Vec::new(),
            by_key: (members > MOST_COMPARED).then(FxHashMap::default),
        };
        let (mut used, mut is_full, mut later) = (0, false, Vec::new());
        for mut document in open {
            let candidate = get(document.member)?;
            if let Some((jaccard, keeper)) =
                compare(&mut document, &candidate, &keepers, threshold, tally)
            {
                remove(candidate.number, keeper.number);
                tally.accepted(&Pair::of(jaccard, &keeper, &candidate));
            } else if is_full {
                later.push(document);
            } else {
                let best = document.best.filter(|(jaccard, _)| tally.rejects(*jaccard));
                let pair = match best {
                    Some((jaccard, keeper)) => Some(Pair::of(jaccard, &*get(keeper)?, &candidate)),
                    None => None,
                };
                if document.member > 0 {
                    tally.rejected(document.compared == MOST_COMPARED, pair);
                }
                used += keepers.add(document.member, candidate);
                is_full = used > memory;
            }
        }
        open = later;
    }
    Ok(())
}

/// The first keeper that a document is like enough.
fn compare(
    document: &mut Open,
    candidate: &Candidate,
    keepers: &Keepers,
    threshold: f64,
    tally: &mut Tally,
) -> Option<(f64, Arc<Candidate>)> {
    for place in keepers.of(candidate) {
        if document.compared == MOST_COMPARED {
            break;
        }
        let (member, keeper) = &keepers.list[place];
        let jaccard = candidate.set.jaccard(&keeper.set);
        document.compared += 1;
        tally.compared(jaccard);
        if jaccard >= threshold {
            return Some((jaccard, keeper.clone()));
        }
        if document.best.is_none_or(|(best, _)| jaccard > best) {
            document.best = Some((jaccard, *member));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::sets::Set;
    use super::*;

    /// Members share key 1 of band 0; in band 1 each has a distinct number. Sets of 20, shifted.
    fn member(number: u64, shift: u64) -> Arc<Candidate> {
        Arc::new(Candidate {
            number,
            keys: vec![1, 100 + number],
            set: Set::of((shift..shift + 20).collect()),
            label: "{}".to_string(),
        })
    }

    fn decided(list: &[Arc<Candidate>], memory: usize) -> (Vec<(u64, u64)>, Tally) {
        let (mut removed, mut tally) = (Vec::new(), Tally::default());
        decide(
            list.len(),
            &mut |i| Ok(list[i].clone()),
            0.8,
            memory,
            &mut tally,
            &mut |document, keeper| removed.push((document, keeper)),
        )
        .unwrap();
        removed.sort_unstable();
        (removed, tally)
    }

    #[test]
    fn there_are_no_chains() {
        // 0 and 1 share 18 of 22, 1 and 2 as well, 0 and 2 16 of 24
        let list = [member(0, 0), member(1, 2), member(2, 4), member(3, 5)];
        let (removed, tally) = decided(&list, usize::MAX);
        assert_eq!(removed, [(1, 0), (3, 2)]);
        assert_eq!(tally.report.compared, 1 + 1 + 2);
        assert_eq!((tally.report.removed, tally.report.rejected), (2, 1));
    }

    #[test]
    fn blocks_of_keepers_decide_like_all_at_once_in_small_and_in_large_components() {
        for members in [40, 64, 65, 300] {
            let list: Vec<Arc<Candidate>> = (0..members)
                .map(|i: u64| member(i, (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 120))
                .collect();
            let roomy = decided(&list, usize::MAX);
            assert!(roomy.0.len() > 10);
            for memory in [0, 2_000, 10_000] {
                assert_eq!(decided(&list, memory), roomy, "{members} in {memory} bytes");
            }
        }
    }

    #[test]
    fn a_document_is_compared_with_64_keepers_and_stays_if_it_is_like_none() {
        let list: Vec<Arc<Candidate>> = (0..200).map(|i| member(i, 1000 * i)).collect();
        let late = member(200, 1000 * 150);
        let all: Vec<Arc<Candidate>> = list.iter().cloned().chain([late]).collect();
        for memory in [0, 20_000, usize::MAX] {
            let (removed, tally) = decided(&all, memory);
            assert!(removed.is_empty());
            assert_eq!(
                tally.report.compared,
                (0..201).map(|i: u64| i.min(64)).sum::<u64>()
            );
            assert_eq!((tally.report.rejected, tally.report.capped), (200, 137));
        }
    }
}
