//! `keep/clusters.jsonl`: the largest duplicate sets with some members, for people.
//!
//! One line a set, largest first: `{"size","members":[{"shard","document","kept","exact","id","url",
//! "excerpt"}]}`; at most 100 sets of 8 members.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io::Write;
use std::path::Path;

use rustc_hash::FxHashMap;
use serde_json::json;

use super::union_find::UnionFind;
use super::{Flags, Numbering};
use crate::document::documents;
use crate::error::{At, Result};
use crate::text::excerpt;
use crate::write::{AtomicFile, OutputFile};

const SETS: usize = 100;
const MEMBERS: usize = 8;
const EXCERPT_CHARS: usize = 200;

/// How many documents each set has, one byte a document: sizes of 255 and more lie apart.
pub(super) struct Sizes {
    /// Members beside the root, at the root's number.
    small: Vec<u8>,
    large: FxHashMap<u64, u64>,
}

impl Sizes {
    pub(super) fn new(total: u64) -> Sizes {
        Sizes {
            small: vec![0; usize::try_from(total).unwrap_or(usize::MAX)],
            large: FxHashMap::default(),
        }
    }

    /// Counts a document that is not the root of its set.
    pub(super) fn add(&mut self, root: u64) {
        let small = &mut self.small[usize::try_from(root).unwrap_or(usize::MAX)];
        if *small == u8::MAX {
            *self.large.entry(root).or_default() += 1;
        } else {
            *small += 1;
        }
    }

    /// Roots and sizes of the sets of two and more documents, by root.
    fn sets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        (0u64..)
            .zip(&self.small)
            .filter(|(_, s)| **s > 0)
            .map(|(root, small)| {
                let more = if *small == u8::MAX {
                    self.large.get(&root)
                } else {
                    None
                };
                (root, 1 + u64::from(*small) + more.copied().unwrap_or(0))
            })
    }

    /// Number of sets of 2, 3 to 4, 5 to 8, ... documents, by the upper end.
    pub(super) fn histogram(&self) -> BTreeMap<u64, u64> {
        let mut histogram = BTreeMap::new();
        for (_, size) in self.sets() {
            *histogram.entry(size.next_power_of_two()).or_default() += 1;
        }
        histogram
    }

    /// The largest sets, by size then by root.
    fn largest(&self) -> Vec<(u64, u64)> {
        let mut heap = BinaryHeap::with_capacity(SETS + 1);
        for (root, size) in self.sets() {
            heap.push(Reverse((size, Reverse(root))));
            if heap.len() > SETS {
                heap.pop();
            }
        }
        let sorted = heap.into_sorted_vec().into_iter();
        sorted
            .map(|Reverse((size, Reverse(root)))| (root, size))
            .collect()
    }
}

/// A set to show: its root, its size, its first members with the root in front.
pub(super) struct Shown {
    pub(super) root: u64,
    pub(super) size: u64,
    members: Vec<u64>,
}

/// The largest sets with their first members.
pub(super) fn largest(sizes: &Sizes, sets: &mut UnionFind, total: u64) -> Vec<Shown> {
    let mut shown: Vec<Shown> = sizes
        .largest()
        .into_iter()
        .map(|(root, size)| Shown {
            root,
            size,
            members: vec![root],
        })
        .collect();
    let places = shown.iter().enumerate();
    let mut place: FxHashMap<u64, usize> = places.map(|(i, set)| (set.root, i)).collect();
    for number in 0..total {
        if place.is_empty() {
            break;
        }
        let root = sets.root(number);
        if root == number {
            continue;
        }
        if let Some(&i) = place.get(&root) {
            shown[i].members.push(number);
            if shown[i].members.len() == MEMBERS || shown[i].members.len() as u64 == shown[i].size {
                place.remove(&root);
            }
        }
    }
    shown
}

/// Writes the sets with ids and excerpts from the clean shards.
pub(super) fn write(
    out: &Path,
    shown: Vec<Shown>,
    exact: &Flags,
    numbering: &Numbering,
) -> Result<OutputFile> {
    let mut wanted: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for number in shown.iter().flat_map(|s| &s.members) {
        let (shard, document) = numbering.place(*number);
        wanted.entry(shard).or_default().push(document);
    }
    let mut texts: FxHashMap<(usize, usize), (String, Option<String>, String)> =
        FxHashMap::default();
    for (shard, mut list) in wanted {
        list.sort_unstable();
        let mut next = list.iter().copied().peekable();
        for (i, document) in documents(out, shard)?.enumerate() {
            let Some(&want) = next.peek() else { break };
            let document = document?;
            if i == want {
                next.next();
                let text = excerpt(&document.text, EXCERPT_CHARS).to_string();
                texts.insert((shard, i), (document.id, document.url, text));
            }
        }
    }
    let mut file = AtomicFile::create(out, "keep/clusters.jsonl")?;
    let path = file.path();
    for set in shown {
        let members: Vec<serde_json::Value> = set
            .members
            .iter()
            .map(|&number| {
                let (shard, document) = numbering.place(number);
                let (id, url, text) = texts.get(&(shard, document)).cloned().unwrap_or_default();
                json!({"shard": shard, "document": document, "kept": number == set.root,
                    "exact": exact.get(number), "id": id, "url": url, "excerpt": text})
            })
            .collect();
        writeln!(file, "{}", json!({"size": set.size, "members": members})).at(&path)?;
    }
    file.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_beyond_a_byte_are_counted_and_the_largest_come_first() {
        let mut sizes = Sizes::new(2000);
        for (root, members) in [(3, 1), (5, 254), (7, 255), (11, 1000), (13, 255)] {
            (0..members).for_each(|_| sizes.add(root));
        }
        let wanted = [(11, 1001), (7, 256), (13, 256), (5, 255), (3, 2)];
        assert_eq!(sizes.largest(), wanted);
        let histogram = BTreeMap::from([(2, 1), (256, 3), (1024, 1)]);
        assert_eq!(sizes.histogram(), histogram);
        (100..300).for_each(|root| sizes.add(root));
        assert_eq!(sizes.largest().len(), SETS);
        assert_eq!(sizes.largest()[..4], wanted[..4]);
    }
}
