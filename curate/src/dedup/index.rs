//! Index of an earlier crawl's kept documents: their signatures, so that a new crawl is compared with them without
//! their texts.
//!
//! `keep/kept.index`: the columns of the `.sig` files of every kept document, and its location (layout in
//! `signature/mod.rs`). `dedup.index` names a folder of such files (`*.index`); their documents are numbered before
//! the crawl's own, so they take part in every comparison and are never removed. An index names its crawls by the
//! checksums of their signatures: the same crawl twice, or the running one, is refused. Merging copies
//! columns, so a merged index yields what its parts yield.

use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use super::numbering::Numbering;
use super::signature::{SignatureColumn, SignatureFile, SignatureShape, SignatureWriter};
use crate::corpus::{KeepList, KeepStatus};
use crate::error::{At, Error, Result, damaged};
use crate::progress::Progress;
use crate::text::narrow;
use crate::write::{OutputFile, shard_file, word};

/// File name of a crawl's index.
pub(crate) const NAME: &str = "keep/kept.index";

/// Names a crawl by its signatures.
pub(super) fn crawl_of(files: &[SignatureFile]) -> u128 {
    let mut hash = Xxh3::new();
    for file in files {
        hash.update(&file.count().to_le_bytes());
        file.sums()
            .iter()
            .for_each(|sum| hash.update(&sum.to_le_bytes()));
    }
    hash.digest128()
}

/// The indexes of a folder, in the order of their names.
///
/// # Errors
/// `Io` for a folder that cannot be read.
pub fn index_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).at(folder)? {
        let path = entry.at(folder)?.path();
        if path.extension().is_some_and(|e| e == "index") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Opens all indexes of a folder: each must be an index of this shape, and no crawl may occur twice or be `own`.
pub(super) fn open_folder(
    folder: &Path,
    shape: Option<SignatureShape>,
    own: u128,
) -> Result<Vec<SignatureFile>> {
    let files = open(&index_files(folder)?, shape)?;
    for file in &files {
        if file.crawls().contains(&own) {
            let wanted = "earlier crawls: the index of this very crawl would remove all of it";
            return Err(damaged(
                file.path(),
                36,
                format!("crawl {own:032x}"),
                wanted,
            ));
        }
    }
    Ok(files)
}

fn open(paths: &[PathBuf], shape: Option<SignatureShape>) -> Result<Vec<SignatureFile>> {
    let mut files: Vec<SignatureFile> = Vec::new();
    for path in paths {
        let file = SignatureFile::open(path)?;
        if !file.is_index() {
            let found = "the signatures of a shard";
            return Err(damaged(path, 0, found, "an index (magic MLRINDX1)"));
        }
        if let Some(shape) = shape {
            file.expect_shape(shape)?;
        }
        for (i, crawl) in file.crawls().iter().enumerate() {
            let twice = (files.iter()).find(|other| other.crawls().contains(crawl));
            let itself = file.crawls()[..i].contains(crawl).then_some(&file);
            if let Some(other) = twice.or(itself) {
                let found = format!("crawl {crawl:032x}, which is in {}", other.path().display());
                return Err(damaged(path, 36, found, "every crawl once"));
            }
        }
        files.push(file);
    }
    Ok(files)
}

/// Crawl, shard and document of a document of an index.
pub(super) fn place(file: &SignatureFile, document: u64) -> Result<(u128, u32, u32)> {
    let size = file.documents(0).1.max(1);
    let (group, row) = (document / size, document % size);
    let bytes = file.column(SignatureColumn::Place, group)?;
    let at = 12 * usize::try_from(row).unwrap_or(0);
    let number = |i: usize| u32::from_le_bytes(word(&bytes, at + 4 * i));
    let crawl = file.crawls().get(number(0) as usize).copied();
    Ok((crawl.unwrap_or_default(), number(1), number(2)))
}

/// Writes the index of the kept documents.
pub(super) fn write(
    out: &Path,
    files: &[SignatureFile],
    numbering: &Numbering,
) -> Result<OutputFile> {
    let keep = |shard| out.join(shard_file("keep", shard, "keep"));
    write_kept(out, &files[numbering.indexes..], &keep)
}

/// Writes below `out` the index of the documents that the lists named by `keep` keep; `own` are the signatures of all shards.
pub(crate) fn write_kept(
    out: &Path,
    own: &[SignatureFile],
    keep: &dyn Fn(usize) -> PathBuf,
) -> Result<OutputFile> {
    let shape = own.first().map(SignatureFile::shape).unwrap_or_default();
    let mut writer = SignatureWriter::create_index(out, NAME, shape, &[crawl_of(own)])?;
    for (shard, file) in own.iter().enumerate() {
        let keep = KeepList::read(&keep(shard))?;
        for group in 0..file.groups() {
            let columns = file.columns(group)?;
            let (first, documents) = file.documents(group);
            let first = usize::try_from(first).unwrap_or(usize::MAX);
            for row in 0..usize::try_from(documents).unwrap_or(0) {
                if keep.status(first + row) == KeepStatus::Kept {
                    writer.copy(&columns, row, [0, narrow(shard), narrow(first + row)])?;
                }
            }
        }
    }
    writer.finish()
}

/// Merges indexes into one, in the order given; returns the file and its number of documents.
///
/// # Errors
/// `Damaged` for a file that is not an index, has other parameters than the first, or contains a crawl that another
/// one has; `Config` if `out` is not a file name.
pub fn merge_indexes(
    out: &Path,
    parts: &[PathBuf],
    progress: &dyn Progress,
) -> Result<(OutputFile, u64)> {
    let name = out.file_name().map(|n| n.to_string_lossy().into_owned());
    let Some(name) = name.filter(|n| n.ends_with(".index")) else {
        return Err(Error::Config {
            key: "out".to_string(),
            found: out.display().to_string(),
            wanted: "a file *.index".to_string(),
        });
    };
    let shape = match parts.first() {
        Some(first) => SignatureFile::open(first)?.shape(),
        None => SignatureShape::default(),
    };
    let files = open(parts, Some(shape))?;
    let crawls: Vec<u128> = files.iter().flat_map(|f| f.crawls()).copied().collect();
    let folder = out.parent().unwrap_or(Path::new(""));
    let mut writer = SignatureWriter::create_index(folder, &name, shape, &crawls)?;
    let mut before = 0;
    for file in &files {
        for group in 0..file.groups() {
            let columns = file.columns(group)?;
            let places = columns.last().map(Vec::as_slice).unwrap_or_default();
            for (row, place) in places.as_chunks::<12>().0.iter().enumerate() {
                let number = |i: usize| u32::from_le_bytes(word(place, 4 * i));
                writer.copy(&columns, row, [before + number(0), number(1), number(2)])?;
            }
            progress.documents(file.documents(group).1, 0);
        }
        before += narrow(file.crawls().len());
    }
    let documents = files.iter().map(SignatureFile::count).sum();
    Ok((writer.finish()?, documents))
}
