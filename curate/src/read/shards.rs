//! Input files as shards: listed, numbered and named.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::beside::{self, InFolder, LeftOut, Listing};
use super::names::{Unnamed, names};
use super::storage;
use super::{Format, Input, crawl, detect};
use crate::error::{Error, Result};
use crate::secrets::shown;

/// One input file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shard {
    /// Number of the shard and of its files.
    pub number: usize,
    /// The input file.
    pub path: PathBuf,
    /// Format and source of the input it belongs to.
    pub input: Input,
    /// Size in bytes when listed, of the part if it is one; 0 if unknown.
    pub bytes: u64,
    /// The bytes of the file whose records this shard has; None: all of them, by number.
    pub part: Option<Range<u64>>,
    /// Name of the file in ids: its own without extensions, with as much of its path as distinguishes it from other
    /// files of its source.
    pub name: String,
    /// The file's path below the input's own path, with its extensions. Documents of archives name it.
    #[serde(default)]
    pub file: String,
    /// The split of its dataset, as far as the folder tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataset_split: Option<String>,
    /// The configuration of its dataset, if there are several and the folder tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataset_config: Option<String>,
    /// Only this many records of it are read.
    #[serde(default)]
    pub limit: Option<u64>,
    /// Version of an object in its store (ETag, or time of the last change); None for files.
    pub version: Option<String>,
}

/// The files of an input; `lists` as in [`input_files_kept`].
fn files(input: &Input, lists: Option<&Path>) -> Result<Vec<InFolder>, String> {
    if crawl::is_crawl(&input.path) {
        return crawl::find(input, lists).map(|files| Listing::from(files).files);
    }
    beside::list(input).map(|listing| listing.files)
}

/// The files of some inputs, in order.
///
/// # Errors
/// `Input` for a path that is not there and for a folder without files.
pub fn input_files(inputs: &[Input]) -> Result<Vec<Shard>> {
    input_files_kept(inputs, None)
}

/// Like [`input_files`], with the lists of crawls that a folder keeps (see [`super::keep_crawl_lists`]). Lists that it lacks are
/// asked for, not written.
///
/// # Errors
/// As [`input_files`].
pub fn input_files_kept(inputs: &[Input], lists: Option<&Path>) -> Result<Vec<Shard>> {
    let mut shards = Vec::new();
    let mut below = Vec::new();
    for input in inputs {
        let files = files(input, lists).map_err(|why| Error::Input {
            path: PathBuf::from(&input.path),
            why,
        })?;
        for InFolder { file, place } in files {
            let mut input = input.clone();
            if input.format == Format::Auto
                && let Some(Ok(format)) = input.crawl_format()
            {
                // no request for each of a hundred thousand files
                input.format = format;
            } else if input.format == Format::Auto
                // a file that cannot be opened, or is of no format, is reported when it is read
                && let Ok(Ok(format)) = detect(&file.path, &input)
            {
                input.format = format;
            }
            shards.push(Shard {
                number: shards.len(),
                path: file.path,
                input,
                bytes: file.bytes,
                part: None,
                dataset_split: place.split,
                dataset_config: place.config,
                limit: None,
                name: String::new(),
                file: shown(Path::new(&file.below)),
                version: file.version,
            });
            below.push(file.below);
        }
    }
    // names go into documents
    let paths: Vec<PathBuf> = shards.iter().map(|s| shown(&s.path).into()).collect();
    let unnamed = shards.iter().zip(&paths).zip(&below);
    let unnamed = unnamed.map(|((shard, path), below)| Unnamed {
        source: &shard.input.source,
        path,
        below,
    });
    let names = names(&unnamed.collect::<Vec<_>>());
    for (shard, name) in shards.iter_mut().zip(names) {
        shard.name = name;
    }
    Ok(shards)
}

/// Facts about a folder's files, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    /// Files that are not read, in order.
    pub left_out: Vec<LeftOut>,
    /// Splits of a dataset that are read, in name order, as far as the folder tells them.
    pub splits: Vec<String>,
    /// Configurations of a dataset that are read, in name order, if a card has several.
    pub configs: Vec<String>,
}

/// Facts about the files of an input; none of an input that cannot be listed, and of one that is not here.
pub fn overview(input: &Input) -> Overview {
    if crawl::is_crawl(&input.path) || storage::is_remote(Path::new(&input.path)) {
        return Overview::default();
    }
    let Ok(listing) = beside::list(input) else {
        return Overview::default();
    };
    let names = |of: fn(&InFolder) -> Option<&String>| -> Vec<String> {
        let names: BTreeSet<&String> = listing.files.iter().filter_map(of).collect();
        names.into_iter().cloned().collect()
    };
    Overview {
        splits: names(|file| file.place.split.as_ref()),
        configs: names(|file| file.place.config.as_ref()),
        left_out: listing.left_out,
    }
}

/// Every missing input: its number and the reason.
pub fn missing_inputs(inputs: &[Input]) -> Vec<(usize, String)> {
    let all = inputs.iter().enumerate();
    // `check` reports an empty path
    all.filter(|(_, input)| !input.path.is_empty())
        .filter_map(|(i, input)| files(input, None).err().map(|why| (i, why)))
        .collect()
}
