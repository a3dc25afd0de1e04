//! Common Crawl as an input: `cc:CC-MAIN-2025-05/warc?segments=10` becomes the files of that crawl.
//!
//! A crawl publishes lists of its files (`crawl-data/SNAPSHOT/warc.paths.gz`), and an index of the records by their addresses.
//! An address names the files by segments, number and sample, or by the domains whose records are wanted of them; records are
//! read as byte ranges of the files (see storage/parts.rs). See <https://commoncrawl.org/get-started>.
//!
//! The choice is the same in every run: segments and files by the order of the published list, samples by the hash of a file's
//! path below the base, so mirrors give the same ones.

#[cfg(not(feature = "object-store"))]
mod absent;
mod address;
#[cfg(feature = "object-store")]
mod ask;
mod captures;
mod list;

#[cfg(not(feature = "object-store"))]
use absent as ask;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use super::Input;
use super::storage::{Found, Options, length_of_parts, parts_of, read_list};
use crate::error::{Error, Result};
use crate::secrets::without_passwords;
use address::{Crawl, Segments};
use list::List;

pub(crate) use address::{Kind, Wrong, is_crawl, kind_of_crawl};

/// The list of the files of a crawl, as a job keeps it.
#[derive(Clone, Debug, PartialEq)]
pub struct CrawlList {
    /// Address of the crawl, as an input names it, without passwords.
    pub address: String,
    /// File that has the list.
    pub file: PathBuf,
    /// Number of files of the crawl.
    pub files: usize,
    /// Captures of domains in them; 0 if whole files are read.
    pub captures: u64,
    /// Captures that are no pages and are left out, by the folder of the crawl that has them.
    pub left_out: BTreeMap<String, u64>,
    /// Whether it was asked for now, rather than kept from an earlier run.
    pub is_new: bool,
}

/// Keeps the lists of all crawls among the inputs in a folder: those that it lacks are asked for and written there. From then on
/// [`crate::pipeline::shards_kept`] gives the files of those lists.
///
/// # Errors
/// `Input` for an address that is wrong or cannot be answered, `Io` and `Damaged` for a file of the folder.
pub fn keep_crawl_lists(inputs: &[Input], folder: &Path) -> Result<Vec<CrawlList>> {
    let mut lists = Vec::new();
    for input in inputs.iter().filter(|input| is_crawl(&input.path)) {
        let address = without_passwords(&input.path);
        let kept = List::kept(folder, &address)?;
        let is_new = kept.is_none();
        let list = match kept {
            Some(list) => list,
            None => {
                let list = ask(input).map_err(|why| refused(input, why))?;
                list.keep(folder)?;
                list
            }
        };
        lists.push(CrawlList {
            address: list.address,
            file: List::file(folder, &address),
            files: list.files.len(),
            captures: list.captures,
            left_out: list.left_out,
            is_new,
        });
    }
    Ok(lists)
}

fn refused(input: &Input, why: String) -> Error {
    Error::Input {
        path: PathBuf::from(&input.path),
        why,
    }
}

/// The files of an input that is a crawl: of the list in `kept` if there is one, else those that the servers name.
///
/// # Errors
/// In words, with the URL and the next thing to do.
pub(crate) fn find(input: &Input, kept: Option<&Path>) -> Result<Vec<Found>, String> {
    let crawl = parse(input)?;
    let kept = match kept {
        Some(folder) => {
            let address = without_passwords(&input.path);
            List::kept(folder, &address).map_err(|e| e.to_string())?
        }
        None => None,
    };
    let list = match kept {
        Some(list) => list,
        None => ask(input)?,
    };
    let folder = format!("crawl-data/{}/", crawl.snapshot);
    let files = list.files.iter().map(|name| {
        let path = PathBuf::from(format!("{}/{name}", crawl.base));
        let (whole, bytes) = match parts_of(Path::new(name)) {
            Some((file, parts)) => (file.to_string_lossy().into_owned(), length_of_parts(&parts)),
            None => (
                name.clone(),
                std::fs::metadata(&path).map_or(0, |m| m.len()),
            ),
        };
        // the same for every base and choice of files, so that documents keep their ids
        let below = whole.strip_prefix(&folder).unwrap_or(&whole);
        Found {
            path,
            below: below.strip_prefix("segments/").unwrap_or(below).to_string(),
            bytes,
            version: None,
        }
    });
    Ok(files.collect())
}

fn parse(input: &Input) -> Result<Crawl, String> {
    Crawl::parse(&input.path)
        .map_err(|wrong| format!("found {}, wanted {}", wrong.found, wrong.wanted))
}

/// The list that the servers give now.
fn ask(input: &Input) -> Result<List, String> {
    let crawl = parse(input)?;
    let list = list_of(input, &crawl);
    list.map_err(|why| without_passwords(&why).into_owned())
}

fn list_of(input: &Input, crawl: &Crawl) -> Result<List, String> {
    let mut list = if crawl.domains.is_empty() {
        List {
            files: paths(crawl, &input.options)?,
            ..List::default()
        }
    } else {
        captures::of_domains(crawl)?
    };
    let all = list.files.len();
    for name in &list.files {
        if !is_below(name) {
            return Err(format!(
                "the list of {} names {name:?}, wanted paths below {}",
                crawl.snapshot, crawl.base
            ));
        }
    }
    if let Some(share) = crawl.sample {
        list.files.retain(|name| is_in_sample(name, share));
    }
    list.files.truncate(crawl.files.unwrap_or(usize::MAX));
    if list.files.is_empty() {
        return Err(format!(
            "the options leave none of {all} files; choose a larger sample"
        ));
    }
    if list.captures > 0 {
        let parts = list
            .files
            .iter()
            .filter_map(|name| parts_of(Path::new(name)));
        // of the files that are left
        list.captures = parts.map(|(_, parts)| parts.len() as u64).sum();
    }
    list.address = without_passwords(&input.path).into_owned();
    Ok(list)
}

/// Whether a name is a plain path, without a way out of the folder and without marks of URLs.
fn is_below(name: &str) -> bool {
    let path = parts_of(Path::new(name));
    let path = path.map_or_else(|| name.to_string(), |(file, _)| file.display().to_string());
    let is_plain = |part: &str| {
        !matches!(part, "" | "." | "..")
            && part
                .chars()
                .all(|c| c.is_ascii_graphic() && !"#?%\\*[".contains(c))
    };
    path.split('/').all(is_plain)
}

/// Whether a file is in the sample with this share: by the hash of its path, so a larger sample has the smaller ones in it.
fn is_in_sample(name: &str, share: f64) -> bool {
    let file = parts_of(Path::new(name));
    let file = file.map_or_else(|| name.to_string(), |(file, _)| file.display().to_string());
    let hash = xxh3_64(file.as_bytes());
    (hash as f64) < share * 2f64.powi(64)
}

/// The paths of a published list that are in the crawl's segments, in its order.
fn paths(crawl: &Crawl, options: &Options) -> Result<Vec<String>, String> {
    let url = format!(
        "{}/crawl-data/{}/{}.paths.gz",
        crawl.base,
        crawl.snapshot,
        crawl.kind.name()
    );
    let paths = read_list(Path::new(&url), options).map_err(|e| {
        match e.kind() {
            io::ErrorKind::NotFound => format!(
                "{url} is not there (404), so there is no snapshot {} with {} files; https://index.commoncrawl.org/collinfo.json \
                 lists the snapshots",
                crawl.snapshot,
                crawl.kind.name()
            ),
            io::ErrorKind::PermissionDenied => format!(
                "{url} is refused: {e}; a server that was asked too often refuses for a day, and s3://commoncrawl wants credentials"
            ),
            _ => format!("{url}: {e}"),
        }
    })?;
    if paths.is_empty() {
        return Err(format!("{url}: a list without paths"));
    }
    of_segments(crawl, paths)
}

/// `1736703361941.29` of `crawl-data/SNAPSHOT/segments/1736703361941.29/warc/X.warc.gz`.
fn segment_of(path: &str) -> Option<&str> {
    path.split_once("/segments/")?.1.split('/').next()
}

fn of_segments(crawl: &Crawl, paths: Vec<String>) -> Result<Vec<String>, String> {
    let mut all: Vec<&str> = Vec::new();
    for segment in paths.iter().filter_map(|path| segment_of(path)) {
        // files of a segment follow each other, but not by any promise
        if all.last() != Some(&segment) && !all.contains(&segment) {
            all.push(segment);
        }
    }
    let known = || {
        let first: Vec<&str> = all.iter().take(3).copied().collect();
        match first.as_slice() {
            [] => "none: this list is not divided into segments".to_string(),
            first => format!("{} segments, the first {}", all.len(), first.join(", ")),
        }
    };
    let chosen: Vec<&str> = match &crawl.segments {
        Segments::All => return Ok(paths),
        Segments::Numbers(numbers) if numbers.start < all.len() => {
            all[numbers.start..numbers.end.min(all.len())].to_vec()
        }
        Segments::Numbers(numbers) => {
            return Err(format!(
                "segments: found {}..{}, wanted numbers of {}",
                numbers.start,
                numbers.end,
                known()
            ));
        }
        Segments::Named(names) => {
            if let Some(name) = names.iter().find(|name| !all.contains(&name.as_str())) {
                return Err(format!(
                    "segments: found {name:?}, wanted some of {}",
                    known()
                ));
            }
            names.iter().map(String::as_str).collect()
        }
    };
    let is_chosen = |path: &&String| segment_of(path).is_some_and(|s| chosen.contains(&s));
    Ok(paths.iter().filter(is_chosen).cloned().collect())
}

#[cfg(test)]
mod tests;
