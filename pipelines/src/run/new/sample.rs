//! A look at data before a job is written: its formats, sizes, the field with the text, and the languages of some records.

use crate::job::WrongUse;
use anyhow::{Result, bail};
use curate::pipeline::{CurateConfig, Curator, FileLook, look, shards};
use curate::read::{Format, Input, Keys, input_files};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Files that are looked at, from the first.
const FILES: usize = 50;
/// Records whose language is identified.
const RECORDS: u64 = 300;

/// The files of one format.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub files: usize,
    pub bytes: u64,
    /// Field with the text, if it is not called as the format expects.
    pub text_key: Option<String>,
    /// All fields seen.
    pub fields: Vec<String>,
}

/// Data at first sight.
#[derive(Debug, Default)]
pub(super) struct Sample {
    /// Absolute path.
    pub path: PathBuf,
    /// Files in folders below.
    pub is_deep: bool,
    /// By the format's name in a job.
    pub groups: BTreeMap<String, Group>,
    /// Kinds of files that no format reads.
    pub unknown: BTreeMap<String, usize>,
    /// Records by language.
    pub languages: BTreeMap<String, u64>,
    /// Records that were read, and of them documents.
    pub records: u64,
    pub documents: u64,
}

/// The name of a format in a job file.
fn name_of(format: Format) -> String {
    let value = serde_json::to_value(format).unwrap_or_default();
    value.as_str().unwrap_or_default().to_string()
}

/// The field that holds the text: one with a usual name, else the one with the most bytes.
fn text_field(look: &FileLook) -> Option<&str> {
    const USUAL: [&str; 8] = [
        "text",
        "content",
        "raw_content",
        "body",
        "markdown",
        "body.text",
        "article",
        "document",
    ];
    let texts = || look.fields.iter().filter(|f| f.texts > 0);
    let usual = USUAL
        .iter()
        .find_map(|name| texts().find(|f| f.name == *name));
    let longest = || texts().max_by_key(|f| f.bytes);
    usual.or_else(longest).map(|f| f.name.as_str())
}

/// Whether data is a part of Common Crawl.
pub(super) fn is_crawl(path: &Path) -> bool {
    let input = Input {
        path: path.to_string_lossy().into_owned(),
        ..Input::default()
    };
    input.is_crawl()
}

/// Looks at a file or folder, or at the first file of a crawl.
///
/// # Errors
/// If it is not there, has no files, or none that can be read.
pub(super) fn sample(path: &Path) -> Result<Sample> {
    let is_crawl = is_crawl(path);
    let path = match path.canonicalize() {
        _ if is_crawl => path.to_path_buf(),
        Ok(path) => path,
        Err(_) => bail!("{}: no such file or folder", path.display()),
    };
    let mut found = Sample {
        path,
        ..Sample::default()
    };
    let mut input = Input {
        path: found.path.to_string_lossy().into_owned(),
        format: Format::Auto,
        ..Input::default()
    };
    let files = match input_files(std::slice::from_ref(&input)) {
        Err(e) if is_crawl => {
            return Err(WrongUse::new(e.to_string()).into());
        }
        Ok(files) if !files.is_empty() => files,
        _ => {
            // a folder may hold folders alone
            input.recursive = true;
            found.is_deep = true;
            input_files(std::slice::from_ref(&input))?
        }
    };
    if files.is_empty() {
        bail!("{}: no files", found.path.display());
    }
    let mut first = None;
    // all files of a crawl are alike
    let most = if is_crawl { 1 } else { FILES };
    for file in files.iter().take(most) {
        let seen = look(&file.path)?;
        let format = match &seen.format {
            Ok(format) => *format,
            Err(kind) => {
                *found.unknown.entry(kind.clone()).or_default() += 1;
                continue;
            }
        };
        let group = found.groups.entry(name_of(format)).or_default();
        group.files += 1;
        group.bytes += file.bytes;
        if group.fields.is_empty() {
            group.fields = seen.fields.iter().map(|f| f.name.clone()).collect();
            let is_table = format != Format::Jsonl && format != Format::Dolma;
            group.text_key = text_field(&seen)
                .filter(|key| *key != "text" && !(is_table && *key == "content"))
                .map(str::to_string);
        }
        first.get_or_insert((format, file.path.clone()));
    }
    let Some((format, file)) = first else {
        let kinds: Vec<&str> = found.unknown.keys().map(String::as_str).collect();
        bail!(
            "{}: no file of a format that is read; found {}. `millrace formats` lists the formats",
            found.path.display(),
            kinds.join(", ")
        );
    };
    let key = found.groups[&name_of(format)].text_key.clone();
    languages(&mut found, format, &file, key)?;
    Ok(found)
}

/// Curates the first records of a file, for their languages.
fn languages(found: &mut Sample, format: Format, file: &Path, key: Option<String>) -> Result<()> {
    let pages = [Format::Warc, Format::Html, Format::Wacz, Format::Zim];
    let steps = match pages.contains(&format) {
        true => r#"[{"extract": {}}, {"language": {}}]"#,
        false => r#"[{"language": {}}]"#,
    };
    let config = CurateConfig {
        inputs: vec![Input {
            path: file.to_string_lossy().into_owned(),
            format,
            text_key: key.map_or_else(Keys::default, Keys::One),
            ..Input::default()
        }],
        limit: RECORDS,
        max_bad_records: RECORDS,
        step: serde_json::from_str(steps)?,
        ..CurateConfig::default()
    };
    let folder = tempfile::tempdir()?;
    let curator = Curator::new(&config, None, None, 0)?;
    for shard in shards(&config)? {
        let report = curator.run_shard(&shard, folder.path(), &curate::Silent)?;
        found.records += report.records;
        found.documents += report.kept;
        for (language, count) in report.languages {
            *found.languages.entry(language).or_default() += count;
        }
    }
    Ok(())
}
