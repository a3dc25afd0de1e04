//! `keep/clusters.jsonl`: the largest duplicate sets with some members, for inspection.
//!
//! One line per set, largest first: `{"size","members":[{"shard","document","kept","exact","id","url",
//! "excerpt"}]}`; at most 100 sets of 8 members. The last three only for the first 4 members of the first 10 sets:
//! clean shards are opened for these, and read only up to the members. A document of an earlier crawl has
//! `"crawl"`, its name in the index, and none of them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io::Write;
use std::path::Path;

use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use super::index;
use super::numbering::{Flags, Numbering};
use super::signature::SignatureFile;
use super::union_find::UnionFind;
use crate::corpus::documents;
use crate::error::{At, Result};
use crate::text::excerpt;
use crate::write::{AtomicFile, OutputFile};

const SETS: usize = 100;
const MEMBERS: usize = 8;
/// Numbers of sets and members whose texts are shown.
const TOLD_SETS: usize = 10;
const TOLD_MEMBERS: usize = 4;
const EXCERPT_CHARS: usize = 200;

/// Sizes of the sets, one byte per document: sizes of 255 and more are stored separately.
pub(super) struct Sizes {
    /// Further members of the set, at the root's number.
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

    /// Documents of the set with this root.
    pub(super) fn of(&self, root: u64) -> u64 {
        let small = self.small[usize::try_from(root).unwrap_or(usize::MAX)];
        let more = if small == u8::MAX {
            self.large.get(&root)
        } else {
            None
        };
        1 + u64::from(small) + more.copied().unwrap_or(0)
    }

    /// Roots and sizes of the sets of two and more documents, by root.
    fn sets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let roots = (0u64..).zip(&self.small).filter(|(_, s)| **s > 0);
        roots.map(|(root, _)| (root, self.of(root)))
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

/// Text shown for a document: id, address, start of its text.
type Label = (String, Option<String>, String);

/// Reads documents of this crawl.
fn labels(out: &Path, numbers: &[u64], numbering: &Numbering) -> Result<FxHashMap<u64, Label>> {
    let mut wanted: BTreeMap<usize, Vec<(u64, u64)>> = BTreeMap::new();
    for &number in numbers.iter().filter(|n| **n >= numbering.earlier) {
        let (file, document) = numbering.place(number);
        let shard = file - numbering.indexes;
        wanted
            .entry(shard)
            .or_default()
            .push((document as u64, number));
    }
    let mut labels = FxHashMap::default();
    for (shard, mut list) in wanted {
        list.sort_unstable();
        let mut texts = documents(out, shard)?;
        let mut next = 0;
        for (place, number) in list {
            // Signatures without texts, as benchmarks have them, are no fault here: these are examples.
            let Some(document) = texts.skip_to(place - next)? else {
                break;
            };
            next = place + 1;
            let text = excerpt(&document.text, EXCERPT_CHARS).to_string();
            labels.insert(number, (document.id, document.url, text));
        }
    }
    Ok(labels)
}

/// Writes the sets with ids and excerpts from the clean shards.
pub(super) fn write(
    out: &Path,
    shown: Vec<Shown>,
    exact: &Flags,
    numbering: &Numbering,
    files: &[SignatureFile],
) -> Result<OutputFile> {
    let first = shown.iter().take(TOLD_SETS);
    let numbers: Vec<u64> = first
        .flat_map(|set| set.members.iter().take(TOLD_MEMBERS))
        .copied()
        .collect();
    let labels = labels(out, &numbers, numbering)?;
    let member = |number: u64, root: u64| -> Result<Value> {
        if number < numbering.earlier {
            let (file, document) = numbering.place(number);
            let (crawl, shard, document) = index::place(&files[file], document as u64)?;
            let crawl = format!("{crawl:032x}");
            return Ok(json!({"crawl": crawl, "shard": shard, "document": document,
                "kept": number == root, "exact": exact.get(number)}));
        }
        let packed = numbering.packed(number);
        let mut member = json!({"shard": packed >> 32, "document": packed & 0xffff_ffff,
            "kept": number == root, "exact": exact.get(number)});
        if let Some((id, url, text)) = labels.get(&number) {
            member["id"] = json!(id);
            member["url"] = json!(url);
            member["excerpt"] = json!(text);
        }
        Ok(member)
    };
    let mut file = AtomicFile::create(out, "keep/clusters.jsonl")?;
    let path = file.path();
    for set in shown {
        let members = set.members.iter().map(|number| member(*number, set.root));
        let members: Vec<Value> = members.collect::<Result<_>>()?;
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
