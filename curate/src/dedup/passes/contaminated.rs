//! Decontamination pass: cuts evaluation texts out of the texts that all other passes left (rules:
//! `decontaminate::megatron`).
//!
//! Reads the kept texts twice: once to count the documents of each n-gram, once to cut. The cuts go to
//! `keep/NNNNN.edits`, where a range that has a piece on both sides splits its document; a document with no pieces
//! or too many pieces left is removed from the keep list. Every changed document has a line in
//! `decontaminate/hits.jsonl`, the sums are in `decontaminate/report.json`. Memory: the n-grams and 8 bytes for
//! each beside one shard's lists.

use std::io::Write;
use std::path::Path;

use serde_json::json;

use crate::corpus::{CONTAMINATED, NONE, Span};
use crate::decontaminate::{
    Contaminated, CutNgrams, Cutting, DecontaminateConfig, Decontamination, Outcome, TaskHits,
};
use crate::dedup::passes::kept::{Changed, DocumentRef, Passes};
use crate::dedup::report::DedupReport;
use crate::document::CleanDocument;
use crate::error::{At, Error, Result, damaged};
use crate::progress::Progress;
use crate::text::{excerpt, narrow};
use crate::write::{AtomicFile, shard_file};

/// Examples per task.
const EXAMPLES: usize = 3;
/// Bytes shown before a match, and characters shown in all.
const BEFORE: usize = 100;
const EXCERPT_CHARS: usize = 400;

/// Cuts evaluation texts out of the documents that [`crate::dedup`] kept.
///
/// `report` is that call's result; the returned report replaces it. `memory_mb` is its budget.
///
/// # Errors
/// `Config` for a profile that drops documents, see [`crate::decontaminate::Decontaminator`]; `Input` for an evaluation file that
/// cannot be read; `Io`; `Damaged` if the texts have been cut before.
pub fn decontaminate(
    config: &DecontaminateConfig,
    memory_mb: u64,
    out: &Path,
    report: DedupReport,
    progress: &dyn Progress,
) -> Result<DedupReport> {
    if !config.cuts() {
        return Err(Error::Config {
            key: "profile".to_string(),
            found: "one that drops documents".to_string(),
            wanted: "one that cuts them".to_string(),
        });
    }
    let memory = usize::try_from(memory_mb << 20).unwrap_or(usize::MAX);
    let mut ngrams = CutNgrams::read(config)?;
    let mut passes = Passes::over(out, memory, report, progress, "decontaminate/hits.jsonl")?;
    let mut found = Decontamination {
        profile: config.profile,
        ..Decontamination::default()
    };
    let mut forgotten = vec![0; ngrams.tasks.len()];
    if ngrams.wants_counts() {
        let mut documents = vec![0u64; ngrams.len()];
        passes.each(
            |document| ngrams.of(&document.text),
            |_, numbers| {
                numbers
                    .iter()
                    .for_each(|n: &u32| documents[*n as usize] += 1);
                Ok(())
            },
        )?;
        forgotten = ngrams.forget_frequent(&documents);
    }
    for (task, frequent) in ngrams.tasks.iter().zip(forgotten) {
        let hits = TaskHits {
            texts: task.texts,
            ngrams: task.ngrams,
            frequent,
            ..TaskHits::default()
        };
        found.tasks.insert(task.name.clone(), hits);
    }
    for shard in 0..passes.shards() {
        cut_shard(&ngrams, &mut passes, shard, &mut found)?;
    }
    let mut report = AtomicFile::create(out, "decontaminate/report.json")?;
    let path = report.path();
    serde_json::to_writer_pretty(&mut report, &found)
        .map_err(std::io::Error::from)
        .and_then(|()| report.write_all(b"\n"))
        .at(&path)?;
    passes.put(report.finish()?);
    passes.report.decontamination = Some(found);
    passes.finish()
}

/// A document that holds an n-gram.
struct Met {
    id: String,
    cutting: Cutting,
    outcome: Outcome,
    bytes: u32,
    excerpt: String,
}

fn look(ngrams: &CutNgrams, document: &CleanDocument) -> Option<Met> {
    let text = &document.text;
    let cutting = ngrams.cut(text)?;
    let at = cutting.met.first().map_or(0, |hit| hit.1 as usize);
    let from = at.saturating_sub(BEFORE);
    let from = (from..=at)
        .find(|i| text.is_char_boundary(*i))
        .unwrap_or(at);
    Some(Met {
        id: document.id.clone(),
        outcome: ngrams.outcome(&cutting),
        cutting,
        bytes: narrow(text.len()),
        excerpt: excerpt(&text[from..], EXCERPT_CHARS).to_string(),
    })
}

fn cut_shard(
    ngrams: &CutNgrams,
    passes: &mut Passes<'_>,
    shard: usize,
    found: &mut Decontamination,
) -> Result<()> {
    let number = narrow(shard);
    let mut keep = passes.read_keep(number)?;
    let old = passes.read_edits(number, &keep)?;
    if old.splits() > 0 {
        let path = passes.out().join(shard_file("keep", shard, "edits"));
        let had = format!("{} cuts that split documents", old.splits());
        return Err(damaged(&path, 0, had, "the cuts of deduplication alone"));
    }
    let (mut changed, mut met) = (Vec::new(), Vec::new());
    passes.each_of(
        shard,
        |document| look(ngrams, document),
        |DocumentRef { document, .. }, looked| {
            found.documents += 1;
            met.extend(looked.map(|looked| (document, looked)));
            Ok(())
        },
    )?;
    for (document, looked) in met {
        passes.tell(&line(ngrams, shard, document, &looked))?;
        count(ngrams, &looked, found);
        let pieces = &looked.cutting.pieces;
        match looked.outcome {
            Outcome::Trimmed | Outcome::Split => {
                let (spans, splits) = between(pieces, looked.bytes);
                found.bytes += spans.iter().map(|s| u64::from(s.1 - s.0)).sum::<u64>();
                changed.push(Changed::of(document, &old, &spans, &splits));
            }
            Outcome::Removed | Outcome::TooManyPieces => {
                keep.flags[document as usize] = CONTAMINATED;
                keep.of[document as usize] = NONE;
                passes.report.contaminated += 1;
                passes.report.kept -= 1;
            }
        }
    }
    passes.write_changes(number, &keep, &old, &changed)
}

/// The ranges of a text outside its pieces, and for each whether it is between two pieces.
fn between(pieces: &[Span], bytes: u32) -> (Vec<Span>, Vec<bool>) {
    let mut from = 0;
    let mut ranges = Vec::with_capacity(pieces.len() + 1);
    for (i, piece) in pieces.iter().enumerate() {
        ranges.push(((from, piece.0), i > 0));
        from = piece.1;
    }
    ranges.push(((from, bytes), false));
    let cut = |((start, end), _): &(Span, bool)| start < end;
    ranges.into_iter().filter(cut).unzip()
}

fn line(ngrams: &CutNgrams, shard: usize, document: u32, looked: &Met) -> serde_json::Value {
    let hits = looked.cutting.met.iter().map(|(gram, at)| {
        let (words, task) = ngrams.gram(*gram);
        json!({"task": ngrams.tasks[task].name, "ngram": words, "byte": at})
    });
    json!({"shard": shard, "document": document, "id": looked.id, "outcome": looked.outcome,
        "pieces": looked.cutting.pieces, "hits": hits.collect::<Vec<_>>()})
}

fn count(ngrams: &CutNgrams, looked: &Met, found: &mut Decontamination) {
    found.met += 1;
    match looked.outcome {
        Outcome::Trimmed => found.trimmed += 1,
        Outcome::Split => {
            found.split += 1;
            found.pieces += looked.cutting.pieces.len() as u64;
        }
        Outcome::Removed => found.removed += 1,
        Outcome::TooManyPieces => found.too_many_pieces += 1,
    }
    let mut tasks: Vec<usize> = Vec::new();
    for (gram, _) in &looked.cutting.met {
        let (_, task) = ngrams.gram(*gram);
        let name = &ngrams.tasks[task].name;
        let hits = found.tasks.entry(name.clone()).or_default();
        hits.hits += 1;
        if !tasks.contains(&task) {
            tasks.push(task);
            hits.documents += 1;
        }
    }
    let Some((gram, _)) = looked.cutting.met.first() else {
        return;
    };
    let (words, task) = ngrams.gram(*gram);
    let task = &ngrams.tasks[task].name;
    let shown = found.examples.iter().filter(|e| e.task == *task).count();
    if shown < EXAMPLES {
        let outcome = serde_json::to_value(looked.outcome).unwrap_or_default();
        found.examples.push(Contaminated {
            id: looked.id.clone(),
            task: task.clone(),
            ngram: words.to_string(),
            outcome: outcome.as_str().unwrap_or_default().to_string(),
            excerpt: looked.excerpt.clone(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_between_two_pieces_splits() {
        let (spans, splits) = between(&[(2, 4), (6, 10)], 10);
        assert_eq!((spans, splits), (vec![(0, 2), (4, 6)], vec![false, true]));
        let (spans, splits) = between(&[(0, 4)], 9);
        assert_eq!((spans, splits), (vec![(4, 9)], vec![false]));
    }
}
