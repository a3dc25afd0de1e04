//! `merge`: concatenates token datasets into one, with a sidecar if all parts have sidecars that agree; or merges
//! indexes of earlier crawls (`*.index`).

use super::new_outputs::{expect_new_dataset, expect_new_file};
use crate::log::print;
use crate::machine::grouped;
use anyhow::{Context as _, Result, bail};
use index::dataset::{Dataset, Group, Sidecar, TokenizerNote};
use serde_json::json;
use std::path::{Path, PathBuf};

/// The verb.
///
/// # Errors
/// `WrongUse` for a result that is there; parts that are missing, damaged or of different tokenizers.
pub(crate) fn merge(out: &Path, parts: &[PathBuf]) -> Result<()> {
    if out.extension().is_some_and(|e| e == "index") {
        return merge_indexes(out, parts);
    }
    let mut prefixes = Vec::new();
    for part in parts {
        if part.is_dir() {
            prefixes.extend(datasets_in(part)?);
        } else {
            prefixes.push(without_suffix(part));
        }
    }
    // writing the result would replace this part before it is read
    if let Some(same) = prefixes.iter().find(|p| p.as_path() == out) {
        bail!("{} is both a part and the result", same.display());
    }
    expect_new_dataset("", out)?;
    let sidecar = joined(&prefixes, out)?;
    let written = index::dataset::merge(&prefixes, out)?;
    if let Some(mut sidecar) = sidecar {
        let statistics = index::dataset::statistics(&Dataset::open(out)?, sidecar.tokenizer.vocab)?;
        sidecar.statistics = Some(statistics);
        sidecar.write(out)?;
    }
    print(&format!(
        "{}: {} datasets, {} documents, {} sequences, {} tokens\n",
        out.display(),
        grouped(prefixes.len() as u64),
        grouped(written.documents),
        grouped(written.sequences),
        grouped(written.tokens)
    ))
}

/// Merges indexes of earlier crawls; a folder is read as all indexes in it, sorted by name.
fn merge_indexes(out: &Path, parts: &[PathBuf]) -> Result<()> {
    let mut files = Vec::new();
    for part in parts {
        if part.is_dir() {
            files.extend(curate::dedup::index_files(part)?);
        } else {
            files.push(part.clone());
        }
    }
    if let Some(same) = files.iter().find(|f| f.as_path() == out) {
        bail!("{} is both a part and the result", same.display());
    }
    expect_new_file("", out)?;
    let (_, documents) = curate::dedup::merge_indexes(out, &files, &curate::Silent)?;
    print(&format!(
        "{}: {} indexes, {} documents\n",
        out.display(),
        grouped(files.len() as u64),
        grouped(documents)
    ))
}

/// Every dataset of a folder, sorted by name, as in Megatron's merge tool.
fn datasets_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut prefixes = Vec::new();
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let path = entry.with_context(|| folder.display().to_string())?.path();
        if path.extension().is_some_and(|e| e == "idx") {
            prefixes.push(without_suffix(&path));
        }
    }
    if prefixes.is_empty() {
        bail!("{}: no file ends in .idx", folder.display());
    }
    prefixes.sort();
    Ok(prefixes)
}

fn without_suffix(path: &Path) -> PathBuf {
    let name = path.to_string_lossy();
    let prefix = [".idx", ".bin"].iter().find_map(|s| name.strip_suffix(s));
    prefix.map_or_else(|| path.to_path_buf(), PathBuf::from)
}

/// The first field in which tokenizers differ, with both values; `None` for equal ones.
fn difference(found: &TokenizerNote, wanted: &TokenizerNote) -> Option<String> {
    let values = |note: &TokenizerNote| {
        let TokenizerNote {
            xxh3,
            vocab,
            encoder,
            end_of_document,
            special_tokens,
        } = note;
        [
            ("tokenizer.xxh3", json!(xxh3)),
            ("tokenizer.vocab", json!(vocab)),
            ("tokenizer.encoder", json!(encoder)),
            ("tokenizer.end_of_document", json!(end_of_document)),
            ("tokenizer.special_tokens", json!(special_tokens)),
        ]
    };
    let fields = values(found).into_iter().zip(values(wanted));
    let mut differing = fields.filter(|(found, wanted)| found != wanted);
    let ((key, found), (_, wanted)) = differing.next()?;
    Some(format!("{key}: found {found}, wanted {wanted}"))
}

/// The merged sidecar, without statistics; `None` if a part has none. Parts of different tokenizers are refused:
/// the same id means different tokens.
fn joined(parts: &[PathBuf], out: &Path) -> Result<Option<Sidecar>> {
    let mut sum: Option<Sidecar> = None;
    for part in parts {
        let Some(one) = Sidecar::read(part)? else {
            return Ok(None);
        };
        let Some(all) = &mut sum else {
            sum = Some(one);
            continue;
        };
        if let Some(difference) = difference(&one.tokenizer, &all.tokenizer) {
            let sidecar = Sidecar::path(part);
            bail!("{}: {difference}, as the parts before", sidecar.display());
        }
        all.documents += one.documents;
        all.empty_documents += one.empty_documents;
        all.sequences += one.sequences;
        all.tokens += one.tokens;
        all.text_bytes += one.text_bytes;
        for group in one.groups {
            let same = |g: &&mut Group| g.source == group.source && g.language == group.language;
            match all.groups.iter_mut().find(same) {
                Some(g) => g.counts.add(&group.counts),
                None => all.groups.push(group),
            }
        }
    }
    let Some(mut all) = sum else { return Ok(None) };
    all.groups
        .sort_by(|a, b| (&a.source, &a.language).cmp(&(&b.source, &b.language)));
    all.dataset = json!({"name": out.file_name().map(|n| n.to_string_lossy()), "parts": parts});
    Ok(Some(all))
}
