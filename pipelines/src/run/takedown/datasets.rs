//! Numbers of clean documents in the token datasets of their job.
//!
//! A dataset holds the texts of the shards of its sources, shard after shard, or those that meet its condition, which is
//! evaluated again; so the number of a document is a count. It is told only where it is certain: the dataset has the fingerprint that it would have if it were made now, or it was certain
//! at the last takedown and nothing has changed since; and the counts agree with the dataset's index.

use super::record::{self, DatasetThen, Record};
use crate::context::Context;
use crate::job::TokenDataset;
use anyhow::Result;
use curate::takedown::{Found, Removed};
use index::dataset::Dataset;

/// A dataset and the numbers in it.
pub(super) struct Numbering {
    pub then: DatasetThen,
    /// By shard: texts of the shards before it; None for shards of other sources.
    starts: Vec<Option<u64>>,
    /// Number of the condition that its documents meet, if it has one.
    condition: Option<usize>,
    /// Documents in it that earlier takedowns have removed from the corpus, sorted.
    earlier: Vec<u64>,
}

impl Numbering {
    /// The datasets that the job has made. `conditions` are those by which texts were counted; `upstream` and `identity`: the
    /// documents, and the fingerprint of them.
    pub(super) fn of_job(
        cx: &Context,
        found: &[Found],
        conditions: &[String],
        records: &[(usize, Record)],
        (upstream, identity): (&serde_json::Value, &str),
    ) -> Result<Vec<Numbering>> {
        let mut all = Vec::new();
        for dataset in cx.job.datasets() {
            let stage = super::super::tokenize::stage_name(&dataset.name);
            let Some(made) = cx.manifest.get(&stage)? else {
                continue;
            };
            let prefix = super::super::tokenize::prefix(cx, &dataset.name);
            let data = Dataset::open(&prefix)?;
            let now = index::dataset::fingerprint(&data)?;
            let mut numbering = Numbering {
                then: DatasetThen {
                    name: dataset.name.clone(),
                    identity: now.clone(),
                    documents: data.documents(),
                    unknown: None,
                    removed: 0,
                },
                starts: Vec::new(),
                condition: conditions.iter().position(|c| *c == dataset.condition),
                earlier: Vec::new(),
            };
            let is_current = super::super::tokenize::dataset_print(cx, &dataset, upstream.clone())
                .is_ok_and(|print| print == made.fingerprint);
            let last = records.last().map(|(_, record)| record);
            let was_certain = last
                .filter(|last| last.after == identity)
                .is_some_and(|last| {
                    let mut datasets = last.datasets.iter();
                    datasets
                        .any(|d| d.name == dataset.name && d.identity == now && d.unknown.is_none())
                });
            if is_current {
                numbering.count(&dataset, found);
            } else if was_certain {
                numbering.earlier = record::removed_from(&cx.out, records, &dataset.name, &now)?;
                numbering.count(&dataset, found);
            } else {
                let why = "it was made from other documents or settings than those of now";
                numbering.then.unknown = Some(why.to_string());
            }
            all.push(numbering);
        }
        Ok(all)
    }

    /// Counts the texts of the shards before each.
    fn count(&mut self, dataset: &TokenDataset, found: &[Found]) {
        if dataset.key != "text" {
            let why = format!("it holds the field {:?}", dataset.key);
            self.then.unknown = Some(why);
            return;
        }
        let mut before = 0;
        for shard in found {
            let is_wanted = shard.source.as_ref().is_some_and(|source| {
                dataset.sources.is_empty() || dataset.sources.contains(source)
            });
            let texts = match self.condition {
                None => shard.texts,
                Some(condition) => shard.texts_meeting.get(condition).copied().unwrap_or(0),
            };
            self.starts.push(is_wanted.then_some(before));
            before += if is_wanted { texts } else { 0 };
        }
        let counted = before + self.earlier.len() as u64;
        if counted != self.then.documents {
            let documents = self.then.documents;
            let why = format!("it has {documents} documents, and the corpus gives it {counted}");
            self.then.unknown = Some(why);
        }
    }

    /// Numbers of a removed document's texts; none if they are not in the dataset, or not known.
    pub(super) fn numbers(&self, shard: usize, removed: &Removed) -> Vec<u64> {
        let start = self.starts.get(shard).copied().flatten();
        let Some(start) = start.filter(|_| self.then.unknown.is_none()) else {
            return Vec::new();
        };
        let first = match self.condition {
            None => Some(removed.first_text),
            Some(condition) => removed.first_text_meeting.get(condition).copied().flatten(),
        };
        let Some(first) = first.map(|first| start + first) else {
            return Vec::new();
        };
        let texts = first..first + u64::from(removed.texts);
        texts.map(|text| original(&self.earlier, text)).collect()
    }
}

/// The number in a dataset of the document that is number `left` of those that earlier takedowns have not removed;
/// `earlier` are the removed ones, sorted.
fn original(earlier: &[u64], left: u64) -> u64 {
    // earlier[i] - i documents that are left come before earlier[i]
    let (mut low, mut high) = (0, earlier.len());
    while low < high {
        let middle = usize::midpoint(low, high);
        if earlier[middle] - middle as u64 <= left {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    left + low as u64
}

#[cfg(test)]
mod tests {
    use super::original;

    #[test]
    fn numbers_skip_the_documents_that_were_removed_before() {
        for bits in 0u64..1 << 9 {
            let earlier: Vec<u64> = (0..9).filter(|i| bits >> i & 1 == 1).collect();
            let left: Vec<u64> = (0..12).filter(|i| !earlier.contains(i)).collect();
            for (i, number) in (0..).zip(&left) {
                assert_eq!(original(&earlier, i), *number, "{earlier:?}");
            }
        }
    }
}
