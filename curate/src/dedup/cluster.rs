//! `keep/clusters.jsonl`: the largest duplicate sets with some members, for people.
//!
//! One line a set, largest first: `{"size","members":[{"shard","document","kept","exact","id","url",
//! "excerpt"}]}`; at most 100 sets of 8 members.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use rustc_hash::FxHashMap;
use serde_json::json;

use super::Numbering;
use super::union_find::UnionFind;
use crate::document::documents;
use crate::error::{At, Result};
use crate::text::excerpt;
use crate::write::{AtomicFile, OutputFile};

const SETS: usize = 100;
const MEMBERS: usize = 8;
const EXCERPT_CHARS: usize = 200;

/// A set to show: its root, its size, its first members with the root in front.
pub(super) struct Shown {
    root: u64,
    size: u64,
    members: Vec<u64>,
}

/// The largest sets, by size then by root.
pub(super) fn largest(
    sizes: FxHashMap<u64, u64>,
    sets: &mut UnionFind,
    _numbering: &Numbering,
    total: u64,
) -> Vec<Shown> {
    let mut order: Vec<(u64, u64)> = sizes.into_iter().collect();
    order.sort_unstable_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    order.truncate(SETS);
    let place: FxHashMap<u64, usize> = order
        .iter()
        .enumerate()
        .map(|(i, &(root, _))| (root, i))
        .collect();
    let mut shown: Vec<Shown> = order
        .into_iter()
        .map(|(root, size)| Shown {
            root,
            size,
            members: vec![root],
        })
        .collect();
    if shown.is_empty() {
        return shown;
    }
    for number in 0..total {
        let root = sets.root(number);
        if root == number {
            continue;
        }
        if let Some(&i) = place.get(&root)
            && shown[i].members.len() < MEMBERS
        {
            shown[i].members.push(number);
        }
    }
    shown
}

/// Writes the sets with ids and excerpts from the clean shards.
pub(super) fn write(
    out: &Path,
    shown: Vec<Shown>,
    exact: &[bool],
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
                let is_exact = exact.get(usize::try_from(number).unwrap_or(usize::MAX));
                json!({"shard": shard, "document": document, "kept": number == set.root,
                    "exact": is_exact.copied().unwrap_or(false), "id": id, "url": url,
                    "excerpt": text})
            })
            .collect();
        writeln!(file, "{}", json!({"size": set.size, "members": members})).at(&path)?;
    }
    file.finish()
}
