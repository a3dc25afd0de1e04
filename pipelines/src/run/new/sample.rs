//! A look at data before a job is written: its formats, sizes, the field with the text, and the languages of some records.

use super::names::{self, MOST_FIELDS, quoted};
use crate::job::WrongUse;
use crate::run::left_out;
use anyhow::Result;
use curate::pipeline::{CurateConfig, Curator, FileLook, ShardReport, look, shards};
use curate::read::{Format, Input, Keys, Shard, input_files};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Files that are looked at, evenly spread over all.
const FILES: usize = 50;
/// Records whose language is identified.
const RECORDS: u64 = 300;
/// Bytes of a message that are shown.
const MOST_WHY: usize = 200;
/// The same of the reason for which a file is left out: it may have what to write.
const MOST_LEFT_OUT: usize = 1000;

/// Files that are read in the same way.
#[derive(Debug)]
pub(super) struct Group {
    /// The format's name in a job.
    pub format: String,
    /// Field with the text, if it is not `text`.
    pub text_key: Option<String>,
    /// The character between the fields of CSV, if it is not a comma.
    pub delimiter: Option<char>,
    /// Whether the records are conversations, as `[finetune]` reads them.
    pub is_chat: bool,
    /// Those that were looked at.
    pub files: Vec<PathBuf>,
    pub bytes: u64,
    /// All fields seen in them.
    pub fields: BTreeSet<String>,
}

impl Group {
    /// Whether its records have fields.
    pub(super) fn has_fields(&self) -> bool {
        self.format == "jsonl" || self.format == "dolma" || self.is_table()
    }

    /// Whether its records are conversations without a field whose text could be a document.
    fn is_chat_alone(&self) -> bool {
        let is_text = |field: &String| field == "text";
        self.is_chat && self.text_key.is_none() && !self.fields.iter().any(is_text)
    }

    /// Whether its files are those that describe data, such as `README.md`.
    pub(super) fn is_about_data(&self) -> bool {
        const NAMES: [&str; 7] = [
            "README",
            "LICENSE",
            "LICENCE",
            "COPYING",
            "NOTICE",
            "CHANGELOG",
            "CITATION",
        ];
        self.format == "text"
            && self.files.iter().all(|file| {
                let name = file.file_stem().unwrap_or_default().to_string_lossy();
                NAMES.contains(&name.to_uppercase().as_str())
            })
    }

    /// Whether its records are rows of a table.
    pub(super) fn is_table(&self) -> bool {
        ["parquet", "arrow", "csv", "tsv"].contains(&self.format.as_str())
    }

    /// Whether its records are pages, of which the main text is extracted.
    pub(super) fn is_web(&self) -> bool {
        ["warc", "html", "wacz", "zim"].contains(&self.format.as_str())
    }
}

/// Data at first sight.
#[derive(Debug, Default)]
pub(super) struct Sample {
    /// Absolute path.
    pub path: PathBuf,
    /// Files in folders below.
    pub is_deep: bool,
    /// By format and text.
    pub groups: Vec<Group>,
    /// Kinds of files that no format reads.
    pub unknown: BTreeMap<String, usize>,
    /// Files that cannot be read as what they seem to be, with the reason; a job leaves them out.
    pub unreadable: Vec<(PathBuf, String)>,
    /// Files without a byte.
    pub empty: usize,
    /// Notes on the files, a line each.
    pub notes: Vec<String>,
    /// Whether the name of a table is that of the other kind of table.
    pub has_misnamed: bool,
    /// All files of the data, also those that every job leaves out of a folder.
    pub all: Vec<PathBuf>,
    /// Those that were not looked at.
    pub rest: Vec<Shard>,
    /// Records by language.
    pub languages: BTreeMap<String, u64>,
    /// Records that were read, and of them documents.
    pub records: u64,
    pub documents: u64,
    /// Why a record did not become a document.
    pub why: Option<String>,
}

/// The name of a format in a job file.
fn name_of(format: Format) -> String {
    let value = serde_json::to_value(format).unwrap_or_default();
    value.as_str().unwrap_or_default().to_string()
}

/// The field that holds the text: one with a usual name, else the one with the most bytes of those that read like text.
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
    let longest = || texts().filter(|f| f.is_readable()).max_by_key(|f| f.bytes);
    usual.or_else(longest).map(|f| f.name.as_str())
}

/// Whether fields are those of conversations, as `[finetune]` reads them.
fn is_chat(fields: &BTreeSet<String>) -> bool {
    let has = |name: &str| fields.contains(name);
    let lists = ["messages", "conversations", "conversation"];
    lists.into_iter().any(has)
        || has("prompt") && has("completion")
        || has("instruction") && (has("output") || has("response"))
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
/// `WrongUse` if it is not there, has no files, or none that can be read.
pub(super) fn sample(path: &Path) -> Result<Sample> {
    let is_crawl = is_crawl(path);
    let path = match path.canonicalize() {
        _ if is_crawl => path.to_path_buf(),
        Ok(path) => path,
        Err(_) => {
            let message = format!("{}: no such file or folder", path.display());
            return Err(WrongUse::new(message).into());
        }
    };
    let mut found = Sample {
        path,
        ..Sample::default()
    };
    let files = found.list(is_crawl)?;
    let listed = files.iter().map(|file| file.path.clone());
    found.all.extend(listed);
    // all files of a crawl are alike
    let most = if is_crawl { 1 } else { FILES.min(files.len()) };
    let chosen: Vec<usize> = (0..most).map(|i| i * files.len() / most).collect();
    for i in &chosen {
        found.look_at(&files[*i])?;
    }
    found.read_some()?;
    if found.groups.is_empty() {
        return Err(found.nothing().into());
    }
    if !is_crawl {
        let rest = files.into_iter().enumerate();
        let rest = rest.filter(|(i, _)| chosen.binary_search(i).is_err());
        found.rest = rest.map(|(_, file)| file).collect();
    }
    Ok(found)
}

/// Refuses pipes, sockets and devices among the data: reading one may wait forever.
///
/// # Errors
/// `WrongUse` with the path.
fn expect_regular(path: &Path) -> Result<(), WrongUse> {
    let Ok(found) = path.metadata() else {
        // a link without an end, or no rights: it is reported where it is read
        return Ok(());
    };
    if found.is_dir() {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        let is_read = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default();
            !name.to_string_lossy().starts_with('.')
        };
        let inner = entries.map(|entry| entry.path()).filter(is_read);
        let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) = inner.partition(|path| path.is_dir());
        // a linked folder may lead back
        let folders = folders.iter().filter(|folder| !folder.is_symlink());
        let mut all = files.iter().chain(folders);
        return all.try_for_each(|path| expect_regular(path));
    }
    match found.is_file() {
        true => Ok(()),
        false => Err(WrongUse::new(format!(
            "{}: found a pipe, socket or device, want files alone",
            path.display()
        ))),
    }
}

/// Whether a name, without the ending of a compression, ends so.
fn has_ending(path: &Path, ending: &str) -> bool {
    names::ending(path).to_ascii_lowercase().starts_with(ending)
}

/// Why a file is left out of which no field reads like text, and what to write to take it all the same.
fn without_text(path: &Path, group: &Group, longest: Option<&str>) -> String {
    let shown: Vec<&str> = group
        .fields
        .iter()
        .map(String::as_str)
        .take(MOST_FIELDS)
        .collect();
    let Some(longest) = longest else {
        return "records without fields".to_string();
    };
    let more = if group.fields.len() > MOST_FIELDS {
        ", ..."
    } else {
        ""
    };
    let delimiter = group.delimiter.map_or(String::new(), |delimiter| {
        format!(", delimiter = {}", quoted(&delimiter.to_string()))
    });
    format!(
        "no field reads like text (fields: {}{more}); to take one all the same, write {{ path = {}, format = \"{}\", text_key = {}{delimiter} }}",
        shown.join(", "),
        quoted(&path.to_string_lossy()),
        group.format,
        quoted(longest),
    )
}

impl Sample {
    /// Looks at the files that were not looked at.
    pub(super) fn look_at_rest(&mut self) -> Result<()> {
        for file in std::mem::take(&mut self.rest) {
            self.look_at(&file)?;
        }
        Ok(())
    }

    /// Leaves out the files of conversations, which give no document; returns their fields.
    pub(super) fn leave_out_chats(&mut self) -> BTreeSet<String> {
        let groups = std::mem::take(&mut self.groups).into_iter();
        let (chats, others): (Vec<Group>, Vec<Group>) = groups.partition(Group::is_chat_alone);
        self.groups = others;
        for file in chats.iter().flat_map(|group| &group.files) {
            let why = "conversations, which `millrace new finetune` takes";
            self.leave_out(file, why);
        }
        chats.into_iter().flat_map(|group| group.fields).collect()
    }

    /// The files of the data, also those in folders below it.
    fn list(&mut self, is_crawl: bool) -> Result<Vec<Shard>, WrongUse> {
        if !is_crawl {
            expect_regular(&self.path)?;
        }
        let mut input = Input {
            path: self.path.to_string_lossy().into_owned(),
            format: Format::Auto,
            recursive: !is_crawl && self.path.is_dir(),
            ..Input::default()
        };
        let mut listed = input_files(std::slice::from_ref(&input));
        if let (true, Err(why)) = (input.recursive, &listed) {
            // a folder below that cannot be read leaves the files above it
            let why = why.to_string();
            input.recursive = false;
            let above = input_files(std::slice::from_ref(&input));
            if above.as_ref().is_ok_and(|files| !files.is_empty()) {
                self.notes.push(format!("left out: folders below: {why}"));
                listed = above;
            }
        }
        let files = listed.map_err(|e| WrongUse::new(e.to_string()))?;
        if files.is_empty() {
            let message = format!("{}: no files", self.path.display());
            return Err(WrongUse::new(message));
        }
        let is_below = |file: &Shard| file.path.parent() != Some(&*self.path);
        self.is_deep = input.recursive && files.iter().any(is_below);
        if self.path.is_dir() {
            let left = curate::read::overview(&input).left_out;
            let lines = left_out::lines(&left, &input.path);
            self.notes
                .extend(lines.iter().map(|line| format!("left out: {line}")));
            self.all.extend(left.into_iter().map(|left| left.path));
        }
        Ok(files)
    }

    /// The refusal of data without a file that can be read.
    fn nothing(&self) -> WrongUse {
        let kinds = self.unknown.keys().cloned();
        let broken = self.unreadable.iter().map(|(_, why)| why.clone());
        let empty = (self.empty > 0).then(|| format!("files without a byte ({})", self.empty));
        let kinds: Vec<String> = kinds.chain(broken.take(1)).chain(empty).collect();
        WrongUse::new(format!(
            "{}: no file of a format that is read; found {}. `millrace formats` lists the formats",
            self.path.display(),
            kinds.join(", ")
        ))
    }

    /// Looks at a file and puts it to those that are read in the same way.
    fn look_at(&mut self, file: &Shard) -> Result<()> {
        let is_empty = || file.path.metadata().is_ok_and(|found| found.len() == 0);
        if file.bytes == 0 && is_empty() {
            self.empty += 1;
            return Ok(());
        }
        let seen = match look(&file.path) {
            Ok(seen) => seen,
            Err(e) => {
                self.leave_out(&file.path, &e.to_string());
                return Ok(());
            }
        };
        let format = match &seen.format {
            Ok(format) => *format,
            Err(kind) => {
                *self.unknown.entry(kind.clone()).or_default() += 1;
                return Ok(());
            }
        };
        if let Some(why) = &seen.why {
            if seen.bad == seen.records {
                self.leave_out(&file.path, why);
                return Ok(());
            }
            let why: String = why.chars().take(MOST_WHY).collect();
            self.notes.push(format!(
                "{}: {} of the first {} records cannot be read, the first: {why}",
                file.path.display(),
                seen.bad,
                seen.records
            ));
        }
        let fields: BTreeSet<String> = seen.fields.iter().map(|f| f.name.clone()).collect();
        let is_chat = is_chat(&fields);
        let field = text_field(&seen);
        let mut group = Group {
            format: name_of(format),
            text_key: field.filter(|key| *key != "text").map(str::to_string),
            delimiter: seen.delimiter.filter(|delimiter| *delimiter != ','),
            is_chat,
            files: vec![file.path.clone()],
            bytes: file.bytes,
            fields,
        };
        if group.has_fields() && field.is_none() && !is_chat {
            let longest = seen.fields.iter().max_by_key(|f| f.bytes);
            let longest = longest.map(|f| f.name.as_str());
            self.leave_out(&file.path, &without_text(&file.path, &group, longest));
            return Ok(());
        }
        self.has_misnamed |= match format {
            Format::Csv => has_ending(&file.path, ".tsv"),
            Format::Tsv => has_ending(&file.path, ".csv"),
            _ => false,
        };
        let same = |other: &Group| {
            let keys = |group: &Group| (group.text_key.clone(), group.delimiter);
            (&other.format, other.is_chat) == (&group.format, is_chat)
                && keys(other) == keys(&group)
        };
        match self.groups.iter().position(same) {
            Some(at) => {
                let other = &mut self.groups[at];
                other.files.append(&mut group.files);
                other.bytes += group.bytes;
                other.fields.append(&mut group.fields);
            }
            None => self.groups.push(group),
        }
        Ok(())
    }

    /// Notes a file that cannot be read.
    fn leave_out(&mut self, path: &Path, why: &str) {
        let shown = path.display().to_string();
        let why = why.strip_prefix(&format!("{shown}: ")).unwrap_or(why);
        let why: String = why.chars().take(MOST_LEFT_OUT).collect();
        self.unreadable
            .push((path.to_path_buf(), format!("{shown}: {why}")));
    }

    /// Curates the first records of every file, for their languages.
    fn read_some(&mut self) -> Result<()> {
        let input = |group: &Group, file: &Path| -> Result<Input> {
            Ok(Input {
                path: file.to_string_lossy().into_owned(),
                format: serde_json::from_value(Value::from(group.format.as_str()))?,
                delimiter: group.delimiter.unwrap_or(',').to_string(),
                text_key: match &group.text_key {
                    Some(key) if group.has_fields() => Keys::One(key.clone()),
                    Some(_) | None => Keys::default(),
                },
                ..Input::default()
            })
        };
        let files = |group: &Group| -> Result<Vec<Input>> {
            group.files.iter().map(|file| input(group, file)).collect()
        };
        let inputs: Vec<Vec<Input>> = self.groups.iter().map(files).collect::<Result<_>>()?;
        let steps = match self.groups.iter().any(Group::is_web) {
            true => r#"[{"extract": {}}, {"language": {}}]"#,
            false => r#"[{"language": {}}]"#,
        };
        let config = CurateConfig {
            inputs: inputs.concat(),
            max_bad_records: RECORDS,
            step: serde_json::from_str(steps)?,
            ..CurateConfig::default()
        };
        if config.inputs.is_empty() {
            return Ok(());
        }
        let folder = tempfile::tempdir()?;
        let curator = Curator::new(&config, None, None, 0)?;
        let mut shards = shards(&config)?;
        let files = shards.len() as u64;
        for (done, shard) in (0..).zip(&mut shards) {
            // records that short files lack are read from those behind them
            let left = RECORDS.saturating_sub(self.records);
            shard.limit = Some(left.div_ceil(files - done));
            match curator.run_shard(shard, folder.path(), &curate::Silent) {
                Ok(report) => self.count(report, folder.path(), shard.number),
                Err(e) => {
                    for group in &mut self.groups {
                        group.files.retain(|file| *file != shard.path);
                    }
                    self.leave_out(&shard.path, &e.to_string());
                }
            }
        }
        self.groups.retain(|group| !group.files.is_empty());
        Ok(())
    }

    /// Adds the outcomes of a file's records, which are in `folder`.
    fn count(&mut self, report: ShardReport, folder: &Path, number: usize) {
        self.records += report.records;
        self.documents += report.kept;
        for (language, count) in report.languages {
            *self.languages.entry(language).or_default() += count;
        }
        if self.why.is_some() {
            return;
        }
        let errors = std::fs::read_to_string(folder.join(format!("errors/{number:05}.jsonl")));
        let first = errors.ok().and_then(|text| {
            let line: Value = serde_json::from_str(text.lines().next()?).ok()?;
            Some(line.get("why")?.as_str()?.to_string())
        });
        let dropped = report.dropped.into_keys().next();
        self.why = first.or_else(|| dropped.map(|rule| format!("dropped by {rule}")));
    }
}
