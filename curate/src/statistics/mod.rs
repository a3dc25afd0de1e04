//! Corpus statistics: metrics of every document, kept and dropped, by source and language and by the groups of `group` steps; hosts
//! and suffixes.
//!
//! All parts are mergeable: a shard writes `statistics/NNNNN.jsonl.zst` in the pass that reads it, and a summary
//! merges the shards without reading texts again. Memory is bounded: a distribution has at most some thousand
//! buckets, names and groups are limited, and the overflow is counted under a name of its own.

pub(crate) mod boxed;
mod distinct;
mod distribution;
mod frequent;
mod grouped;
mod measure;
mod state;
mod summary;
mod what_if;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{At, Result, damaged};
use crate::text::address;
use crate::verdict::Metric;
use crate::write::{JsonLines, OutputFile};

pub use distinct::Distinct;
pub use distribution::Distribution;
pub use frequent::Frequent;
pub use grouped::{GroupMetrics, GroupValues};
pub use measure::{TEXT_METRICS, TextMetrics, measure};
pub use state::State;
pub use summary::{QUANTILES, Row};
pub use what_if::{Candidates, Choice, Refilter, WhatIf};

/// Pairs of source and language beyond these are counted under one name.
const GROUPS: usize = 2048;
/// Their source.
const OTHERS: &str = "(others)";

/// Group of documents that is counted separately.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Group {
    state: State,
    source: String,
    language: String,
}

/// Statistics of a shard, or of several once merged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Statistics {
    groups: BTreeMap<Group, BTreeMap<String, Distribution>>,
    by: grouped::Groups,
    names: Names,
}

/// Names of kept documents.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Names {
    hosts: Frequent,
    suffixes: Frequent,
    different_hosts: Distinct,
    different_addresses: Distinct,
    different_texts: Distinct,
}

/// A line of a shard's file.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Group {
        group: Group,
        figures: BTreeMap<String, Distribution>,
    },
    Values {
        by: String,
        state: State,
        values: Box<GroupValues>,
    },
    Names(Box<Names>),
}

/// A document as statistics see it.
pub(crate) struct Seen<'a> {
    pub(crate) state: State,
    pub(crate) source: &'a str,
    pub(crate) language: &'a str,
    pub(crate) text_metrics: &'a TextMetrics,
    pub(crate) metrics: &'a [Metric],
    /// Names of groups, and the document's values.
    pub(crate) groups: &'a [(String, String)],
}

impl Statistics {
    /// Adds a document's metrics.
    pub(crate) fn add(&mut self, seen: &Seen) {
        let group = Group {
            state: seen.state,
            source: seen.source.to_string(),
            language: seen.language.to_string(),
        };
        let text = TEXT_METRICS
            .iter()
            .copied()
            .zip(seen.text_metrics.iter().copied());
        let rules = seen.metrics.iter().map(|m| (m.rule.as_str(), m.value));
        let metrics = text.chain(rules);
        for (by, value) in seen.groups {
            self.by.of(by, seen.state).value(value).add(metrics.clone());
        }
        let figures = self.group(group);
        for (name, value) in metrics {
            match figures.get_mut(name) {
                Some(figure) => figure.add(value),
                None => figures.entry(name.to_string()).or_default().add(value),
            }
        }
    }

    /// Adds the names of a kept document: its address, its host, the hash of its text.
    pub(crate) fn name(&mut self, url: Option<&str>, host: Option<&str>, text: u128, chars: u64) {
        let names = &mut self.names;
        names.different_texts.add(&text.to_le_bytes());
        if let Some(url) = url {
            names.different_addresses.add(url.as_bytes());
        }
        if let Some(host) = host {
            names.hosts.add(host, chars);
            names.different_hosts.add(host.as_bytes());
            names.suffixes.add(address::suffix(host), chars);
        }
    }

    /// Adds another shard's.
    pub fn merge(&mut self, other: &Statistics) {
        for (group, figures) in &other.groups {
            self.merge_group(group, figures);
        }
        self.by.merge(&other.by);
        self.merge_names(&other.names);
    }

    /// Adds a shard's file.
    ///
    /// # Errors
    /// `Io`; `Damaged` for a line that is not statistics.
    pub fn read(&mut self, path: &Path) -> Result<()> {
        let file = std::fs::File::open(path).at(path)?;
        let decoder = zstd::stream::read::Decoder::new(file).at(path)?;
        let mut offset = 0;
        for line in BufReader::new(decoder).lines() {
            let line = line.at(path)?;
            let wrong = |e: serde_json::Error| {
                damaged(
                    path,
                    offset,
                    e.to_string(),
                    "statistics of a group or names",
                )
            };
            match serde_json::from_str(&line).map_err(wrong)? {
                Line::Group { group, figures } => self.merge_group(&group, &figures),
                Line::Values { by, state, values } => self.by.of(&by, state).merge(&values),
                Line::Names(names) => self.merge_names(&names),
            }
            offset += line.len() as u64 + 1;
        }
        Ok(())
    }

    /// Writes `out/name` for [`Statistics::read`].
    pub(crate) fn write(&self, out: &Path, name: &str) -> Result<OutputFile> {
        let mut lines = JsonLines::create(out, name)?;
        for (group, figures) in &self.groups {
            lines.write(&Line::Group {
                group: group.clone(),
                figures: figures.clone(),
            })?;
        }
        for (by, state, values) in self.by.all() {
            lines.write(&Line::Values {
                by: by.to_string(),
                state,
                values: Box::new(values.clone()),
            })?;
        }
        lines.write(&Line::Names(Box::new(self.names.clone())))?;
        lines.finish()
    }

    fn group(&mut self, mut group: Group) -> &mut BTreeMap<String, Distribution> {
        if self.groups.len() >= GROUPS && !self.groups.contains_key(&group) {
            group.source = OTHERS.to_string();
            group.language = String::new();
        }
        self.groups.entry(group).or_default()
    }

    fn merge_group(&mut self, group: &Group, figures: &BTreeMap<String, Distribution>) {
        let into = self.group(group.clone());
        for (name, figure) in figures {
            into.entry(name.clone()).or_default().merge(figure);
        }
    }

    fn merge_names(&mut self, names: &Names) {
        let mine = &mut self.names;
        mine.hosts.merge(&names.hosts);
        mine.suffixes.merge(&names.suffixes);
        mine.different_hosts.merge(&names.different_hosts);
        mine.different_addresses.merge(&names.different_addresses);
        mine.different_texts.merge(&names.different_texts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Scratch;

    fn of(documents: std::ops::Range<usize>) -> Statistics {
        let mut statistics = Statistics::default();
        let mut scratch = Scratch::new();
        for i in documents {
            let text = "A line of words. ".repeat(i % 40 + 1) + &"x".repeat(i);
            let state = if i % 3 == 0 {
                State::Dropped
            } else {
                State::Kept
            };
            statistics.add(&Seen {
                state,
                source: ["crawl", "pile/books"][i % 2],
                language: ["en", "de", ""][i % 5 % 3],
                text_metrics: &measure(&text, &mut scratch),
                metrics: &[],
                groups: &[("g".to_string(), format!("v{}", i % 9))],
            });
            let host = format!("h{}.co.uk", i % 7);
            statistics.name(Some(&text), Some(&host), i as u128, text.len() as u64);
        }
        statistics
    }

    #[test]
    fn shards_read_back_in_any_order_are_the_whole() {
        let folder = tempfile::tempdir().unwrap();
        let whole = of(0..3000);
        let names = ["a", "b", "c"].map(|n| format!("{n}.jsonl.zst"));
        for (i, name) in names.iter().enumerate() {
            of(i * 1000..(i + 1) * 1000)
                .write(folder.path(), name)
                .unwrap();
        }
        for order in [[0, 1, 2], [2, 0, 1]] {
            let mut sum = Statistics::default();
            for i in order {
                sum.read(&folder.path().join(&names[i])).unwrap();
            }
            assert!(sum == whole, "{order:?}");
        }
        assert_eq!(whole.names.suffixes.top(9)[0].0, "co.uk");
        assert_eq!(whole.names.different_texts.count(), 3000);
    }

    #[test]
    fn a_file_of_something_else_is_refused_with_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let mut lines = JsonLines::create(folder.path(), "x.jsonl.zst").unwrap();
        lines.write(&Line::Names(Box::default())).unwrap();
        lines.write(&serde_json::json!({"id": "no"})).unwrap();
        lines.finish().unwrap();
        let path = folder.path().join("x.jsonl.zst");
        let why = Statistics::default().read(&path).unwrap_err().to_string();
        assert!(
            why.contains("x.jsonl.zst") && why.contains("at byte"),
            "{why}"
        );
    }

    #[test]
    fn groups_without_end_are_counted_together() {
        let mut statistics = Statistics::default();
        for i in 0..GROUPS + 500 {
            statistics.add(&Seen {
                state: State::Kept,
                source: &format!("s{i}"),
                language: "en",
                text_metrics: &[1.0; TEXT_METRICS.len()],
                metrics: &[],
                groups: &[],
            });
        }
        assert!(statistics.groups.len() <= GROUPS + 1);
        let documents: u64 = statistics.groups.values().map(|f| f["bytes"].count()).sum();
        assert_eq!(documents, GROUPS as u64 + 500);
    }
}
