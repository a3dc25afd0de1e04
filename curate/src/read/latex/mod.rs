//! Reader for LaTeX sources, as arXiv has them: a `.tex` file or a tar archive, compressed or not; one paper per file.
//!
//! The main file is found and its includes are followed inside the archive (source.rs), macros are expanded
//! (macros.rs), and the text becomes paragraphs (convert.rs).
//!
//! RedPajama's cleaner of arXiv sources joins all files of a paper, cuts the text before its first section and behind
//! its bibliography, drops comments, and expands macros without arguments; the marks of LaTeX stay. We differ: only
//! what the main file includes is read, in its place; the abstract and the title stay; macros with arguments are
//! expanded too; and marks other than those of formulas become the form of the text.

mod convert;
mod input;
mod macros;
mod names;
mod source;

use std::collections::BTreeMap;
use std::io;

use serde_json::{Map, Value};

use super::Batch;
use super::composed::{BadPart, Composed, Reading, WholeFile};
use super::format::{Mismatch, starts_with};
use super::storage::Blob;
use convert::convert;

pub(super) use source::{has_sources, is_latex, is_tar};

/// Macros may expand to this many times the text, and to a megabyte more.
const EXPANSION: usize = 8;
const SLACK: usize = 1 << 20;
/// Characters of a value of the metadata.
const MAX_VALUE: usize = 2000;

/// Reads a paper.
pub(crate) struct LatexReader {
    file: WholeFile,
    max: usize,
    keeps_bibliography: bool,
}

impl LatexReader {
    pub(super) fn open(
        blob: Box<dyn Blob>,
        keeps_bibliography: bool,
        max: usize,
    ) -> io::Result<Result<LatexReader, Mismatch>> {
        let file = WholeFile::open(blob, max)?;
        if let Some(bytes) = file.bytes()
            && !is_tar(bytes)
            && !is_latex(bytes)
        {
            return Ok(Err(Mismatch {
                wanted: "a LaTeX source",
                found: starts_with(bytes),
                start: "\"\\documentclass\" at the start of a line, or a tar archive",
            }));
        }
        Ok(Ok(LatexReader {
            file,
            max,
            keeps_bibliography,
        }))
    }

    /// Adds the document, the first time.
    pub(super) fn fill(&mut self, batch: &mut Batch) {
        let (keeps, max) = (self.keeps_bibliography, self.max);
        self.file.fill(batch, |bytes| read(&bytes, keeps, max));
    }
}

/// Reads a paper's files.
pub(super) fn read(bytes: &[u8], keeps_bibliography: bool, max: usize) -> Reading<'static> {
    let (files, bad) = if is_tar(bytes) {
        source::files(bytes, max)
    } else {
        let text = source::decode(bytes);
        (BTreeMap::from([("main.tex".to_string(), text)]), Vec::new())
    };
    let mut reading = Reading {
        bad: bad
            .into_iter()
            .map(|why| BadPart { offset: 0, why })
            .collect(),
        ..Reading::default()
    };
    let mut refuse = |why: String| {
        reading.bad.push(BadPart { offset: 0, why });
        std::mem::take(&mut reading)
    };
    let Some(main) = source::main_file(&files) else {
        return refuse("no file states a class of documents".to_string());
    };
    let whole = match source::whole(&files, main, max) {
        Ok(whole) => whole,
        Err(why) => return refuse(why),
    };
    let bibliography = keeps_bibliography.then(|| bibliography(&files, main));
    let most = whole
        .text
        .len()
        .saturating_mul(EXPANSION)
        .saturating_add(SLACK);
    let converted = match convert(&whole.text, bibliography, most.min(max.saturating_mul(2))) {
        Ok(converted) => converted,
        Err(why) => return refuse(why),
    };
    let mut meta = Map::new();
    if let Some(title) = converted.title.as_deref().and_then(value) {
        meta.insert("title".to_string(), title.into());
    }
    let authors: Vec<String> = converted.authors.iter().filter_map(|a| value(a)).collect();
    if !authors.is_empty() {
        meta.insert("author".to_string(), authors.join("; ").into());
    }
    let mut own = Map::new();
    own.insert("main".to_string(), main.into());
    own.insert("files".to_string(), Value::from(whole.included + 1));
    if whole.missing > 0 {
        own.insert("missing".to_string(), Value::from(whole.missing));
    }
    meta.insert("latex".to_string(), own.into());
    reading.document = Some(Composed {
        parts: converted.parts,
        meta,
        ..Composed::default()
    });
    reading
}

/// The bibliography that BibTeX made of the main file, else the only one.
fn bibliography(files: &source::Files, main: &str) -> String {
    let own = main.rsplit_once('.').map_or(main, |(name, _)| name);
    let mut all = files.iter().filter(|(name, _)| name.ends_with(".bbl"));
    let named = files.get(&format!("{own}.bbl"));
    let text = named.or_else(|| all.next().map(|(_, text)| text));
    source::without_comments(text.map_or("", String::as_str))
}

/// A value of the metadata: HTML without its escapes.
fn value(html: &str) -> Option<String> {
    let text = html
        .replace("<br>", " ")
        .replace("&lt;", "<")
        .replace("&gt;", ">");
    let text = text.replace("&amp;", "&").replace(" ;", ";");
    let words: Vec<&str> = text.split_whitespace().collect();
    let text: String = words.join(" ").chars().take(MAX_VALUE).collect();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests;
