//! Bad records of a curation: the first of each input are quoted when they are found, all are counted by reason at the end, and too
//! many of them are an error.

use crate::context::Context;
use crate::machine::grouped;
use crate::progress::Progress;
use anyhow::{Context as _, Result, bail};
use curate::pipeline::{CurateConfig, ShardReport, look};
use curate::read::{Input, Shard};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Bad records that are quoted of each input.
const QUOTED: usize = 3;
/// Reasons that are named in the count.
const REASONS: usize = 5;
/// Different reasons that are counted; those beyond are counted as one.
const MOST_REASONS: usize = 1000;
/// Fields of a record that are named.
const FIELDS: usize = 20;

/// A line of `errors.jsonl`.
#[derive(Deserialize)]
struct Line {
    path: String,
    offset: u64,
    record: u64,
    /// The repair of a record that was read in spite of a fault: it is not a bad one.
    repaired: Option<String>,
    why: String,
}

impl Line {
    fn in_words(&self) -> String {
        let (path, number, offset) = (&self.path, self.record + 1, self.offset);
        format!("{path}, record {number} (byte {offset}): {}", self.why)
    }

    /// Whether the record lacks the field of the text.
    fn lacks_text(&self) -> bool {
        self.why.starts_with("no text") || self.why.starts_with("no field")
    }
}

/// The bad records of an errors file, one after another; none if there is no file.
fn bad_lines(path: &Path) -> Result<impl Iterator<Item = Result<Line>>> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    let at = path.display().to_string();
    let lines = BufReader::new(file).lines().map(move |line| {
        let line = line.with_context(|| at.clone())?;
        serde_json::from_str(&line).with_context(|| at.clone())
    });
    Ok(
        lines
            .filter(|line: &Result<Line>| !line.as_ref().is_ok_and(|line| line.repaired.is_some())),
    )
}

/// Number of an input in the job.
fn number_of(config: &CurateConfig, input: &Input) -> usize {
    let mut inputs = config.inputs.iter();
    inputs.position(|one| one == input).unwrap_or(0)
}

/// The fields that the records of a shard's file have, for a message on records without the text's.
fn fields_of(config: &CurateConfig, shard: &Shard) -> Option<String> {
    let seen = look(&shard.path).ok()?;
    if seen.fields.is_empty() {
        return None;
    }
    let names: Vec<&str> = seen
        .fields
        .iter()
        .map(|field| field.name.as_str())
        .collect();
    let more = match names.len().saturating_sub(FIELDS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!(
        "the fields are {}{more}; curate.inputs[{}].text_key names that of the text",
        names[..names.len().min(FIELDS)].join(", "),
        number_of(config, &shard.input)
    ))
}

/// How many bad records of each input have been quoted.
#[derive(Default)]
pub(super) struct Quotes(Mutex<BTreeMap<usize, usize>>);

impl Quotes {
    /// Quotes the first bad records of a shard that is done, if those of its input have not been.
    ///
    /// # Errors
    /// If the shard's errors cannot be read.
    pub(super) fn shard(
        &self,
        cx: &Context,
        shard: &Shard,
        report: &ShardReport,
        progress: &Progress,
    ) -> Result<()> {
        let Some(config) = cx.job.curate.as_ref().filter(|_| report.quarantined > 0) else {
            return Ok(());
        };
        let mut quoted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = quoted.entry(number_of(config, &shard.input)).or_default();
        let errors = cx.out.join(format!("errors/{:05}.jsonl", shard.number));
        for line in bad_lines(&errors)?.take(QUOTED - *before) {
            let line = line?;
            progress.warn(&format!("curate: bad record: {}", line.in_words()));
            let fields = (*before == 0 && line.lacks_text()).then(|| fields_of(config, shard));
            if let Some(fields) = fields.flatten() {
                progress.warn(&format!("curate: {fields}"));
            }
            *before += 1;
        }
        Ok(())
    }
}

/// A stage with more bad records than allowed, or with an input whose records are all bad, fails and is not recorded, so that the
/// same command fails again. Empty files alone are no input whose records are bad.
///
/// # Errors
/// Such a stage; an errors file that cannot be read.
pub(super) fn check(
    cx: &Context,
    config: &CurateConfig,
    shards: &[Shard],
    reports: &[ShardReport],
) -> Result<()> {
    let errors = cx.out.join("errors.jsonl");
    let bad: u64 = reports.iter().map(|report| report.quarantined).sum();
    let most = config.max_bad_records;
    if bad > most {
        bail!(
            "{} records are bad, above curate.max_bad_records = {most}; see {}",
            grouped(bad),
            errors.display()
        );
    }
    let records: u64 = reports.iter().map(|report| report.records).sum();
    if bad > 0 && bad == records {
        let first = shards.iter().zip(reports).find(|of| of.1.quarantined > 0);
        let first = first.map_or(Ok(String::new()), |(shard, _)| first_of(cx, config, shard))?;
        bail!(
            "all {} records are bad; see {}: {first}",
            grouped(bad),
            errors.display()
        );
    }
    for (number, input) in config.inputs.iter().enumerate() {
        let own = || {
            let all = shards.iter().zip(reports);
            all.filter(|(shard, _)| shard.input == *input)
        };
        let bytes: u64 = own().map(|(shard, _)| shard.bytes).sum();
        let bad: u64 = own().map(|(_, report)| report.quarantined).sum();
        let records: u64 = own().map(|(_, report)| report.records).sum();
        let first = own().find(|(_, report)| report.quarantined > 0);
        if let Some((shard, _)) = first.filter(|_| bad == records && bytes > 0) {
            bail!(
                "all {} records of curate.inputs[{number}] ({}) are bad; see {}: {}",
                grouped(bad),
                curate::secrets::without_passwords(&input.path),
                errors.display(),
                first_of(cx, config, shard)?
            );
        }
    }
    Ok(())
}

/// The first bad records of a shard, and the fields of its file if they lack the text's, for a message.
fn first_of(cx: &Context, config: &CurateConfig, shard: &Shard) -> Result<String> {
    let errors = cx.out.join(format!("errors/{:05}.jsonl", shard.number));
    let lines: Vec<Line> = bad_lines(&errors)?.take(QUOTED).collect::<Result<_>>()?;
    let mut parts: Vec<String> = lines.iter().map(Line::in_words).collect();
    if lines.first().is_some_and(Line::lacks_text) {
        parts.extend(fields_of(config, shard));
    }
    Ok(parts.join("; "))
}

/// The line that counts the bad records by reason; none without any.
///
/// # Errors
/// If `errors.jsonl` cannot be read.
pub(super) fn counted(cx: &Context) -> Result<Option<String>> {
    let errors = cx.out.join("errors.jsonl");
    let mut reasons: BTreeMap<String, u64> = BTreeMap::new();
    let mut total = 0;
    for line in bad_lines(&errors)? {
        let reason = without_numbers(&line?.why);
        let is_known = reasons.contains_key(&reason) || reasons.len() < MOST_REASONS;
        let reason = if is_known { reason } else { OTHERS.to_string() };
        *reasons.entry(reason).or_default() += 1;
        total += 1;
    }
    if total == 0 {
        return Ok(None);
    }
    let mut sorted: Vec<(String, u64)> = reasons.into_iter().collect();
    sorted.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let rest: u64 = sorted.iter().skip(REASONS).map(|(_, count)| count).sum();
    sorted.truncate(REASONS);
    let rest = (rest > 0).then(|| (OTHERS.to_string(), rest));
    let named = sorted.into_iter().chain(rest);
    let named: Vec<String> = named
        .map(|(reason, count)| format!("{} {reason}", grouped(count)))
        .collect();
    Ok(Some(format!(
        "{} bad records in {}: {}",
        grouped(total),
        errors.display(),
        named.join("; ")
    )))
}

const OTHERS: &str = "of other reasons";

/// A reason without the places in it, so that it counts with its like.
fn without_numbers(why: &str) -> String {
    let mut text = String::with_capacity(why.len());
    let mut was_digit = false;
    for char in why.chars() {
        let is_digit = char.is_ascii_digit();
        match (is_digit, was_digit) {
            (false, _) => text.push(char),
            (true, false) => text.push('N'),
            (true, true) => {}
        }
        was_digit = is_digit;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_at_different_places_are_one() {
        assert_eq!(
            without_numbers("broken JSON: expected a map at line 1 column 250"),
            "broken JSON: expected a map at line N column N"
        );
        assert_eq!(without_numbers("no text field"), "no text field");
    }

    #[test]
    fn repaired_records_are_no_bad_ones() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("errors.jsonl");
        let lines = [
            r#"{"path":"a.warc","offset":0,"record":0,"repaired":"arc.space_in_url","why":"x"}"#,
            r#"{"path":"a.warc","offset":9,"record":1,"why":"no text field"}"#,
        ];
        std::fs::write(&path, lines.join("\n")).unwrap();
        let found: Vec<Line> = bad_lines(&path).unwrap().map(Result::unwrap).collect();
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].in_words(),
            "a.warc, record 2 (byte 9): no text field"
        );
        assert!(found[0].lacks_text());
    }
}
