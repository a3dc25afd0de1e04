//! Counts of the verification, and `keep/pairs.jsonl`: sample pairs for inspection.
//!
//! One line per pair: `{"jaccard","removed","documents":[keeper, other]}` with
//! `{"shard","document","id","url","excerpt"}` of each: first the least similar removed pairs, then the most
//! similar pairs that are both kept, 20 of each. These are the ones that another threshold would decide
//! differently.

use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::spill::Candidate;
use crate::dedup::numbering::Numbering;
use crate::error::{At, Result};
use crate::write::{AtomicFile, OutputFile};

/// Pairs shown of each kind.
const SHOWN: usize = 20;

/// Counts of the verification.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VerifyReport {
    /// Least Jaccard similarity of duplicates.
    pub threshold: f64,
    /// Near duplicates without verification: documents of the sets that bands connect, but for one of each set.
    pub candidates: u64,
    /// Candidates similar enough to a keeper; they are removed. `removed / candidates` is the precision of bands
    /// alone.
    pub removed: u64,
    /// The others; they stay.
    pub rejected: u64,
    /// Pairs that were compared.
    pub compared: u64,
    /// Compared pairs by similarity: 0 to 0.05, 0.05 to 0.1, ... 0.95 to 1.
    pub similarities: Vec<u64>,
    /// Documents kept because they were like none of the 64 keepers compared, where there may be more keepers.
    pub capped: u64,
    /// Documents of more than 2^20 distinct shingles, compared by a sample.
    pub sampled: u64,
    /// Documents removed by an earlier crawl's index: their similarity is not known.
    pub unverified: u64,
}

/// A compared pair.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pair {
    jaccard: f64,
    /// The keeper, then the other: number and label.
    documents: [(u64, String); 2],
}

impl Pair {
    pub(super) fn of(jaccard: f64, keeper: &Candidate, other: &Candidate) -> Pair {
        let named = |c: &Candidate| (c.number, c.label.clone());
        Pair {
            jaccard,
            documents: [named(keeper), named(other)],
        }
    }

    fn numbers(&self) -> [u64; 2] {
        [self.documents[0].0, self.documents[1].0]
    }

    fn to_json(&self, removed: bool, numbering: &Numbering) -> Value {
        let document = |(number, label): &(u64, String)| {
            let packed = numbering.packed(*number);
            let mut document: Value = serde_json::from_str(label).unwrap_or_else(|_| json!({}));
            document["shard"] = json!(packed >> 32);
            document["document"] = json!(packed & 0xffff_ffff);
            document
        };
        json!({"jaccard": self.jaccard, "removed": removed,
            "documents": self.documents.each_ref().map(document)})
    }
}

/// Counts and examples, of one component or of many: the order in which they are added up does not matter.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tally {
    pub(super) report: VerifyReport,
    /// Least alike first.
    accepted: Vec<Pair>,
    /// Most alike first.
    rejected: Vec<Pair>,
}

impl Tally {
    pub(super) fn compared(&mut self, jaccard: f64) {
        let report = &mut self.report;
        report.compared += 1;
        report.similarities.resize(20, 0);
        // Similarities are from 0 to 1; of k / 20 the product may fall just below k.
        let bin = (0..20u32).rev().find(|k| jaccard >= f64::from(*k) / 20.0);
        report.similarities[bin.unwrap_or(0) as usize] += 1;
    }

    pub(super) fn accepted(&mut self, pair: &Pair) {
        self.report.removed += 1;
        show(&mut self.accepted, pair.clone(), |p| p.jaccard);
    }

    /// True if a rejected pair of that similarity would be shown.
    pub(super) fn rejects(&self, jaccard: f64) -> bool {
        let last = self
            .rejected
            .last()
            .filter(|_| self.rejected.len() == SHOWN);
        last.is_none_or(|last| jaccard >= last.jaccard)
    }

    /// A document that stays although bands connect it with an earlier one.
    pub(super) fn rejected(&mut self, is_capped: bool, pair: Option<Pair>) {
        self.report.rejected += 1;
        self.report.capped += u64::from(is_capped);
        if let Some(pair) = pair {
            show(&mut self.rejected, pair, |p| -p.jaccard);
        }
    }

    pub(super) fn add(&mut self, other: Tally) {
        let (to, from) = (&mut self.report, other.report);
        to.compared += from.compared;
        to.removed += from.removed;
        to.rejected += from.rejected;
        to.capped += from.capped;
        to.similarities.resize(20, 0);
        for (to, from) in to.similarities.iter_mut().zip(from.similarities) {
            *to += from;
        }
        let pairs = other.accepted.into_iter();
        pairs.for_each(|pair| show(&mut self.accepted, pair, |p| p.jaccard));
        let pairs = other.rejected.into_iter();
        pairs.for_each(|pair| show(&mut self.rejected, pair, |p| -p.jaccard));
    }

    pub(super) fn write(&self, out: &Path, numbering: &Numbering) -> Result<OutputFile> {
        let mut file = AtomicFile::create(out, "keep/pairs.jsonl")?;
        let path = file.path();
        for (pairs, removed) in [(&self.accepted, true), (&self.rejected, false)] {
            for pair in pairs {
                writeln!(file, "{}", pair.to_json(removed, numbering)).at(&path)?;
            }
        }
        file.finish()
    }
}

/// Puts a pair into its place among the first ones by `key`, then by documents.
fn show(list: &mut Vec<Pair>, pair: Pair, key: impl Fn(&Pair) -> f64) {
    let is_before = |other: &Pair| {
        let order = key(other).total_cmp(&key(&pair));
        order.then(other.numbers().cmp(&pair.numbers())).is_lt()
    };
    let at = list.partition_point(is_before);
    if at < SHOWN {
        list.insert(at, pair);
        list.truncate(SHOWN);
    }
}
