//! Report of a shard: counts that add up, and that can be summed over shards.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::contract::{FieldCounts, NamedFields};
use crate::decontaminate::{Contaminated, DecontaminateConfig, Decontamination, TaskHits};
use crate::text::repair::Repairs;
use crate::text::{chars, excerpt};
use crate::verdict::MetricValue;
use crate::write::OutputFile;

/// Counts of one shard, or of several once merged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShardReport {
    /// Of one shard: the `source` of its input. None in sums, and in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Of sums: the counts of the shards of each source. Records of shards without a source are in none of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_source: BTreeMap<String, SourceCounts>,
    /// Records in the input; `records == kept + sum(dropped) + quarantined`.
    pub records: u64,
    /// Documents written to the clean shard.
    pub kept: u64,
    /// Dropped records by rule.
    pub dropped: BTreeMap<String, u64>,
    /// Records that could not be read.
    pub quarantined: u64,
    /// Records read in spite of a fault, by its name.
    #[serde(default)]
    pub repaired: BTreeMap<String, u64>,
    /// Input bytes read, as stored.
    pub bytes_in: u64,
    /// UTF-8 bytes of kept text.
    pub bytes_out: u64,
    /// Characters of kept text.
    pub chars: u64,
    /// Documents by language, kept or not, wherever a language step saw them.
    pub languages: BTreeMap<String, u64>,
    /// Documents, kept or not, in which a repair of the normalize step changed something.
    #[serde(default)]
    pub normalized: BTreeMap<String, u64>,
    /// Second copies of the text that extraction left out of pages, kept or not: `pages` that had some, and
    /// `paragraphs`.
    #[serde(default)]
    pub copies: BTreeMap<String, u64>,
    /// Headers, footers and page numbers that readers left out, kept or not: `documents` that had some, and `lines`.
    #[serde(default)]
    pub running: BTreeMap<String, u64>,
    /// Pieces of personal data found, by rule, in documents kept or not.
    pub personal: BTreeMap<String, u64>,
    /// Kept documents by host; the most frequent thousand per shard.
    pub hosts: BTreeMap<String, u64>,
    /// Kept documents whose host is not among those listed.
    pub other_hosts: u64,
    /// Kept documents by source, and by `source/subset` for Pile documents.
    pub sources: BTreeMap<String, u64>,
    /// Kept documents by length: key k counts texts of 2^k to 2^(k+1)-1 characters.
    pub lengths: BTreeMap<u32, u64>,
    /// Documents by the groups of `group` steps: the step's name, then the value; at most a thousand values per shard.
    #[serde(default)]
    pub groups: BTreeMap<String, BTreeMap<String, GroupCounts>>,
    /// Fields that the job names, by the key that names them: `inputs[0].keep_fields`, `step[1].expression.keep`. The first
    /// 64 of an input, and of the steps.
    #[serde(default)]
    pub fields: BTreeMap<String, BTreeMap<String, FieldCounts>>,
    /// Kept documents with the smallest [`Sample::hash`]: a random choice that no order of reading changes.
    pub kept_samples: Vec<Sample>,
    /// Dropped documents, chosen in the same way for each rule, so that every rule that dropped something has one.
    pub dropped_samples: Vec<Sample>,
    /// Files written, with checksums.
    pub outputs: Vec<OutputFile>,
}

/// Counts of the records of one source, which end as those of a [`ShardReport`] do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceCounts {
    /// Records in the input; `records == kept + sum(dropped) + quarantined`.
    pub records: u64,
    /// Documents written to the clean shards.
    pub kept: u64,
    /// Dropped records by rule.
    pub dropped: BTreeMap<String, u64>,
    /// Records that could not be read.
    pub quarantined: u64,
    /// Input bytes read, as stored.
    pub bytes_in: u64,
    /// UTF-8 bytes of kept text.
    pub bytes_out: u64,
    /// Characters of kept text.
    pub chars: u64,
}

impl SourceCounts {
    fn of(report: &ShardReport) -> SourceCounts {
        SourceCounts {
            records: report.records,
            kept: report.kept,
            dropped: report.dropped.clone(),
            quarantined: report.quarantined,
            bytes_in: report.bytes_in,
            bytes_out: report.bytes_out,
            chars: report.chars,
        }
    }

    fn add(&mut self, other: &SourceCounts) {
        self.records += other.records;
        self.kept += other.kept;
        self.quarantined += other.quarantined;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.chars += other.chars;
        for (rule, count) in &other.dropped {
            add(&mut self.dropped, rule, *count);
        }
    }
}

/// Counts of a group of documents.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupCounts {
    /// Kept documents.
    pub kept: u64,
    /// Words of kept texts, separated by white space.
    pub words: u64,
    /// Characters of kept texts.
    pub chars: u64,
    /// Documents that rules behind the step dropped, by rule.
    pub dropped: BTreeMap<String, u64>,
}

/// A document to show.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Hash of id and excerpt; the samples with the smallest hashes are shown.
    #[serde(default)]
    pub hash: u64,
    /// Document id.
    pub id: String,
    /// The broken rule; empty if kept.
    pub rule: String,
    /// Value that the rule measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<MetricValue>,
    /// The limit it broke.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<MetricValue>,
    /// Language code; empty if no language step saw it.
    pub language: String,
    /// Start of the text.
    pub excerpt: String,
    /// More of the text, until the shard is done and it is in a file of its own.
    #[serde(skip)]
    pub(crate) shown: Option<ShownText>,
}

/// The start of a text that is shown whole, unless it is very long.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct ShownText {
    pub(crate) start: String,
    /// Characters of the whole text.
    pub(crate) chars: u64,
}

/// Characters of a text that is shown.
const SHOWN_CHARS: usize = 20_000;

impl ShownText {
    pub(crate) fn of(text: &str) -> ShownText {
        ShownText {
            start: excerpt(text, SHOWN_CHARS).to_string(),
            chars: chars(text) as u64,
        }
    }
}

/// Samples kept per list and, for drops, per rule.
const SAMPLES: usize = 8;
const SAMPLES_PER_RULE: usize = 3;
/// Before the name of a task in the rule of a drop.
const DECONTAMINATE: &str = "decontaminate.";
/// Hosts listed per shard.
const HOSTS: usize = 1000;
/// Values of a group listed per shard; documents with further ones are counted together.
const GROUP_VALUES: usize = 1000;
/// Their value.
const OTHER_VALUES: &str = "(others)";

impl ShardReport {
    /// True if every record ended in exactly one counter.
    pub fn adds_up(&self) -> bool {
        self.records == self.kept + self.dropped.values().sum::<u64>() + self.quarantined
    }

    /// Adds another shard's counts, or another sum's.
    pub fn merge(&mut self, other: &ShardReport) {
        if let Some(source) = self.source.take() {
            let own = SourceCounts::of(self);
            self.by_source.insert(source, own);
        }
        if let Some(source) = &other.source {
            let into = self.by_source.entry(source.clone()).or_default();
            into.add(&SourceCounts::of(other));
        }
        for (source, counts) in &other.by_source {
            let into = self.by_source.entry(source.clone()).or_default();
            into.add(counts);
        }
        self.records += other.records;
        self.kept += other.kept;
        self.quarantined += other.quarantined;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.chars += other.chars;
        self.other_hosts += other.other_hosts;
        for (into, from) in [
            (&mut self.dropped, &other.dropped),
            (&mut self.repaired, &other.repaired),
            (&mut self.languages, &other.languages),
            (&mut self.normalized, &other.normalized),
            (&mut self.copies, &other.copies),
            (&mut self.running, &other.running),
            (&mut self.personal, &other.personal),
            (&mut self.hosts, &other.hosts),
            (&mut self.sources, &other.sources),
        ] {
            for (key, count) in from {
                add(into, key, *count);
            }
        }
        for (name, values) in &other.groups {
            for (value, counts) in values {
                let into = self.group(name, value);
                into.kept += counts.kept;
                into.words += counts.words;
                into.chars += counts.chars;
                for (rule, count) in &counts.dropped {
                    add(&mut into.dropped, rule, *count);
                }
            }
        }
        for (key, names) in &other.fields {
            let into = self.fields.entry(key.clone()).or_default();
            for (name, counts) in names {
                into.entry(name.clone()).or_default().add(counts);
            }
        }
        for (key, count) in &other.lengths {
            *self.lengths.entry(*key).or_default() += count;
        }
        for sample in &other.kept_samples {
            self.show_kept(sample);
        }
        for sample in &other.dropped_samples {
            self.show_dropped(sample);
        }
        self.outputs.extend(other.outputs.iter().cloned());
    }

    /// Fields that the job names and that no document has, a line each: they are often misspelt.
    pub fn absent_fields(&self) -> Vec<String> {
        let all = self.fields.iter().flat_map(|(key, names)| {
            names.iter().filter_map(move |(name, counts)| {
                let why = counts.absence(name)?;
                Some(format!("curate.{key}: {why}"))
            })
        });
        all.collect()
    }

    /// Matches with evaluation sets, for profiles that drop documents; `tasks` as
    /// [`crate::pipeline::Curator::evaluation_sets`] has them.
    pub fn decontamination(
        &self,
        config: &DecontaminateConfig,
        tasks: BTreeMap<String, TaskHits>,
    ) -> Decontamination {
        let mut found = Decontamination {
            profile: config.profile,
            documents: self.kept,
            tasks,
            ..Decontamination::default()
        };
        for (rule, count) in &self.dropped {
            if let Some(task) = rule.strip_prefix(DECONTAMINATE) {
                found.documents += count;
                found.met += count;
                found.dropped += count;
                found.tasks.entry(task.to_string()).or_default().documents = *count;
            }
        }
        for sample in &self.dropped_samples {
            if let Some(task) = sample.rule.strip_prefix(DECONTAMINATE) {
                let ngram = match &sample.value {
                    Some(MetricValue::Text(ngram)) => ngram.clone(),
                    Some(MetricValue::Number(value)) => value.to_string(),
                    None => String::new(),
                };
                found.examples.push(Contaminated {
                    id: sample.id.clone(),
                    task: task.to_string(),
                    ngram,
                    outcome: "dropped".to_string(),
                    excerpt: sample.excerpt.clone(),
                });
            }
        }
        found
    }

    /// The counts of a group's value; of `(others)` if there are many.
    fn group(&mut self, name: &str, value: &str) -> &mut GroupCounts {
        let values = self.groups.entry(name.to_string()).or_default();
        let is_listed = values.len() < GROUP_VALUES || values.contains_key(value);
        let value = if is_listed { value } else { OTHER_VALUES };
        values.entry(value.to_string()).or_default()
    }

    /// Counts a kept document in its groups.
    pub(crate) fn count_kept_groups(
        &mut self,
        groups: &[(String, String)],
        words: u64,
        chars: u64,
    ) {
        for (name, value) in groups {
            let counts = self.group(name, value);
            counts.kept += 1;
            counts.words += words;
            counts.chars += chars;
        }
    }

    /// Counts a document in its groups that a rule dropped.
    pub(crate) fn count_dropped_groups(&mut self, groups: &[(String, String)], rule: &str) {
        for (name, value) in groups {
            add(&mut self.group(name, value).dropped, rule, 1);
        }
    }

    /// Counts fields that were looked for.
    pub(crate) fn count_fields(&mut self, fields: &NamedFields) {
        for ((key, name), counts) in fields.each() {
            let into = self.fields.entry(key.clone()).or_default();
            into.entry(name.clone()).or_default().add(counts);
        }
    }

    /// Counts a document's personal data.
    pub(crate) fn count_personal(&mut self, found: &[String]) {
        for rule in found {
            add(&mut self.personal, rule, 1);
        }
    }

    /// Counts the paragraphs that extraction left out of a page as copies.
    pub(crate) fn count_copies(&mut self, paragraphs: u32) {
        if paragraphs > 0 {
            add(&mut self.copies, "pages", 1);
            add(&mut self.copies, "paragraphs", paragraphs.into());
        }
    }

    /// Counts the headers, footers and page numbers that were left out of a document.
    pub(crate) fn count_running_lines(&mut self, lines: u32) {
        if lines > 0 {
            add(&mut self.running, "documents", 1);
            add(&mut self.running, "lines", lines.into());
        }
    }

    /// Counts a document's repairs.
    pub(crate) fn count_repairs(&mut self, repairs: &Repairs) {
        for (name, _) in repairs.made() {
            add(&mut self.normalized, name, 1);
        }
    }

    /// True if a kept document with this hash would be shown. Once it is false, it stays so.
    pub(crate) fn wants_kept(&self, hash: u64) -> bool {
        is_wanted(self.kept_samples.iter(), SAMPLES, (false, hash))
    }

    pub(crate) fn show_kept(&mut self, sample: &Sample) {
        show(&mut self.kept_samples, SAMPLES, sample);
    }

    /// True if a document that this rule dropped would be shown. Once it is false, it stays so.
    pub(crate) fn wants_dropped(&self, rule: &str, hash: u64, has_text: bool) -> bool {
        let of_rule = self.dropped_samples.iter().filter(|s| s.rule == rule);
        is_wanted(of_rule, SAMPLES_PER_RULE, (!has_text, hash))
    }

    pub(crate) fn show_dropped(&mut self, sample: &Sample) {
        show(&mut self.dropped_samples, SAMPLES_PER_RULE, sample);
    }

    /// Keeps the most frequent hosts, ties by name.
    pub(crate) fn trim_hosts(&mut self) {
        if self.hosts.len() <= HOSTS {
            return;
        }
        let mut order: Vec<(String, u64)> = std::mem::take(&mut self.hosts).into_iter().collect();
        order.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        self.other_hosts += order[HOSTS..].iter().map(|h| h.1).sum::<u64>();
        order.truncate(HOSTS);
        self.hosts = order.into_iter().collect();
    }
}

impl Sample {
    /// Samples are shown in this order: those with text first, then by hash.
    fn rank(&self) -> (bool, u64) {
        (self.excerpt.is_empty(), self.hash)
    }

    /// Whether both have the same id, and texts that begin alike: only one of them is shown.
    fn is_like(&self, other: &Sample) -> bool {
        self.hash == other.hash && self.id == other.id && self.excerpt == other.excerpt
    }

    /// Of samples that are alike the least is shown, whichever is found first.
    fn order_of_alike(&self) -> (String, &str, Option<&ShownText>) {
        let figures = [&self.value, &self.limit].map(|v| serde_json::to_string(v).ok());
        let figures = figures.into_iter().flatten().collect();
        (figures, &self.language, self.shown.as_ref())
    }
}

/// Puts a sample in its place among those that are shown, ordered by rule and rank, if it is among the first `most` of its rule.
fn show(samples: &mut Vec<Sample>, most: usize, sample: &Sample) {
    let of_rule = |s: &&Sample| s.rule == sample.rule;
    if !is_wanted(samples.iter().filter(of_rule), most, sample.rank()) {
        return;
    }
    let mut shown = samples.iter_mut();
    if let Some(alike) = shown.find(|s| s.rule == sample.rule && s.is_like(sample)) {
        if sample.order_of_alike() < alike.order_of_alike() {
            alike.clone_from(sample);
        }
        return;
    }
    samples.push(sample.clone());
    samples.sort_by(|a, b| a.rule.cmp(&b.rule).then(a.rank().cmp(&b.rank())));
    if samples.iter().filter(of_rule).count() > most
        && let Some(last) = samples.iter().rposition(|s| of_rule(&s))
    {
        samples.remove(last);
    }
}

/// Whether a sample of this rank is among the first `most`, or like one of them.
fn is_wanted<'a>(shown: impl Iterator<Item = &'a Sample>, most: usize, rank: (bool, u64)) -> bool {
    let (mut count, mut last) = (0, (false, 0));
    for sample in shown {
        count += 1;
        last = last.max(sample.rank());
    }
    count < most || rank <= last
}

/// XXH3 of a document's id and the start of its text, which selects the documents shown in reports. The text is
/// included because inputs may give all their documents the same id.
pub(crate) fn sample_hash(id: &str, excerpt: &str) -> u64 {
    xxh3_64_with_seed(excerpt.as_bytes(), xxh3_64(id.as_bytes()))
}

/// Adds to a counter, allocating only for a new key.
pub(crate) fn add(counts: &mut BTreeMap<String, u64>, key: &str, count: u64) {
    match counts.get_mut(key) {
        Some(n) => *n += count,
        None => {
            counts.insert(key.to_string(), count);
        }
    }
}
