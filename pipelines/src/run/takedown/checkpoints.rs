//! Checkpoints that were trained on removed documents.
//!
//! The order of samples is fixed by the job, and a checkpoint names the order that it was trained in and how many samples it
//! has used. If the job's order is still that one, every sample up to there is looked at: the answer is exact. Else, and for
//! masked samples, whose order names no documents, the answer is "may".

use super::super::blend::{Blended, PartSamples};
use crate::context::Context;
use crate::job::BlendDataset;
use anyhow::{Context as _, Result};
use index::blend::Blend;
use index::split::Part;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::{Path, PathBuf};
use train::checkpoint::{ListedCheckpoint, list_checkpoints};

/// Whether something contains removed documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Contains {
    No,
    May,
    Yes,
}

/// A dataset with removed documents.
#[derive(Clone, Debug)]
pub(super) struct Affected {
    /// Its index file, without links.
    pub index: PathBuf,
    /// Whether its removed documents are known, and all of them.
    pub is_certain: bool,
    /// Sequences of the removed documents, in order.
    pub sequences: Vec<Range<u64>>,
}

impl Affected {
    fn has(&self, sequence: u64) -> bool {
        let after = self
            .sequences
            .partition_point(|range| range.end <= sequence);
        let range = self.sequences.get(after);
        range.is_some_and(|range| range.start <= sequence)
    }
}

/// A checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Trained {
    pub path: PathBuf,
    pub step: u64,
    /// Whether it was trained on removed documents.
    pub contains: Contains,
    /// The first step on a sample with tokens of a removed document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_step: Option<u64>,
    /// Samples with such tokens that it has used, repeated ones each time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// Why it is not certain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Weights that training started from, which may have been trained on others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init_from: Option<String>,
}

impl Trained {
    fn of(checkpoint: &ListedCheckpoint, contains: Contains, why: Option<String>) -> Trained {
        Trained {
            path: checkpoint.path.clone(),
            step: checkpoint.step,
            contains,
            first_step: None,
            samples: None,
            why,
            init_from: checkpoint.init_from.clone(),
        }
    }
}

/// Index file of a dataset of a blend, without links.
pub(super) fn index_file(prefix: &Path) -> PathBuf {
    let mut name = prefix.as_os_str().to_owned();
    name.push(".idx");
    let path = PathBuf::from(name);
    path.canonicalize().unwrap_or(path)
}

/// The job's checkpoints.
pub(super) fn trained(cx: &Context, affected: &[Affected]) -> Result<Vec<Trained>> {
    let listed = list_checkpoints(&cx.out.join("checkpoints"))?;
    let Some(table) = cx.job.blend.as_ref().filter(|_| !listed.is_empty()) else {
        let why = "the job has no [blend] table".to_string();
        let may = |one| Trained::of(one, Contains::May, Some(why.clone()));
        return Ok(listed.iter().map(may).collect());
    };
    let datasets = if table.has_own_parts() {
        &table.train
    } else {
        &table.dataset
    };
    let of_blend: Vec<Option<&Affected>> = datasets
        .iter()
        .map(|dataset| {
            let index = index_file(&prefix_of(cx, dataset));
            affected.iter().find(|one| one.index == index)
        })
        .collect();
    let blended = Blended::open(cx);
    let all = |why: String, contains| {
        let each = |one| Trained::of(one, contains, Some(why.clone()));
        listed.iter().map(each).collect()
    };
    let blended = match blended {
        Ok(blended) => blended,
        Err(e) => {
            let why = format!("the order of samples cannot be made again: {e:#}");
            return Ok(all(why, Contains::May));
        }
    };
    let order = blended.fingerprint(Part::Train);
    let is_touched = of_blend.iter().any(Option::is_some);
    let PartSamples::Text(samples) = blended.part(Part::Train)? else {
        let why = "masked samples do not name their documents".to_string();
        let of = |one: &ListedCheckpoint| match is_touched || is_of_another(one, &order) {
            true => Trained::of(one, Contains::May, Some(why.clone())),
            false => Trained::of(one, Contains::No, None),
        };
        return Ok(listed.iter().map(of).collect());
    };
    let cyclic = blended.cyclic(cx)?;
    let number = |sample: u64| cyclic.as_ref().map_or(sample, |order| order.at(sample));
    let last = listed.iter().filter(|one| one.data == order);
    let last = last.map(|one| one.consumed_samples).max().unwrap_or(0);
    let mut seen = Seen::default();
    let mut counts: Vec<(u64, Seen)> = Vec::new();
    let mut marks: Vec<u64> = listed.iter().map(|one| one.consumed_samples).collect();
    marks.sort_unstable();
    marks.dedup();
    let mut next = marks.iter().copied().peekable();
    for sample in 0..=last {
        if next.next_if_eq(&sample).is_some() {
            counts.push((sample, seen));
        }
        if sample < last && is_touched {
            let found = look(&samples.blend, number(sample), &of_blend)?;
            seen.add(sample, found);
        }
    }
    let trained = listed.iter().map(|one| {
        if is_of_another(one, &order) {
            let why = "it was trained in another order of samples than the job's now";
            return Trained::of(one, Contains::May, Some(why.to_string()));
        }
        let at = counts
            .iter()
            .find(|(sample, _)| *sample == one.consumed_samples);
        let seen = at.map(|(_, seen)| *seen).unwrap_or_default();
        let contains = match (seen.samples, seen.uncertain) {
            (1.., _) => Contains::Yes,
            (0, 1..) => Contains::May,
            (0, 0) => Contains::No,
        };
        let why = (contains == Contains::May)
            .then(|| "removed documents of a dataset of its blend are not known".to_string());
        let first = seen.first.map(|sample| step_of(cx, sample));
        Trained {
            first_step: first,
            samples: (seen.samples > 0).then_some(seen.samples),
            ..Trained::of(one, contains, why)
        }
    });
    Ok(trained.collect())
}

/// Whether a checkpoint was trained in another order of samples, or began in one.
fn is_of_another(checkpoint: &ListedCheckpoint, order: &str) -> bool {
    checkpoint.data != order || checkpoint.had_other_data
}

fn prefix_of(cx: &Context, dataset: &BlendDataset) -> PathBuf {
    match &dataset.prefix {
        Some(prefix) => prefix.clone(),
        None => super::super::tokenize::prefix(cx, &dataset.name),
    }
}

/// Samples that have been looked at.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Those with removed documents.
    samples: u64,
    /// The first of them.
    first: Option<u64>,
    /// Those of datasets whose removed documents are not known.
    uncertain: u64,
}

impl Seen {
    fn add(&mut self, sample: u64, found: Contains) {
        match found {
            Contains::Yes => {
                self.samples += 1;
                self.first.get_or_insert(sample);
            }
            Contains::May => self.uncertain += 1,
            Contains::No => {}
        }
    }
}

/// Whether a sample of the blend has tokens of removed documents.
fn look(blend: &Blend, sample: u64, affected: &[Option<&Affected>]) -> Result<Contains> {
    let (dataset, number) = blend.place(sample)?;
    let Some(affected) = affected.get(dataset).copied().flatten() else {
        return Ok(Contains::No);
    };
    let mut found = false;
    let samples = blend.datasets().get(dataset);
    let samples = samples.context("a sample of a dataset that the blend does not have")?;
    samples.each_sequence(number, |sequence| {
        found = affected.has(sequence);
        !found
    })?;
    Ok(match (found, affected.is_certain) {
        (true, _) => Contains::Yes,
        (false, true) => Contains::No,
        (false, false) => Contains::May,
    })
}

/// The step that takes a sample, from 1.
fn step_of(cx: &Context, sample: u64) -> u64 {
    let (mut step, mut consumed) = (0, 0u64);
    if let Some(train) = &cx.job.train {
        while consumed <= sample {
            step += 1;
            consumed += (train.batch_at(consumed) as u64).max(1);
        }
    }
    step
}
