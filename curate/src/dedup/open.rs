//! Opens the signatures of all shards and the indexes of earlier crawls.

use std::path::Path;

use super::numbering::Numbering;
use super::signature::{SignatureFile, SignatureShape};
use crate::dedup::index;
use crate::error::{Result, damaged};
use crate::write::shard_file;

/// Opens the indexes of a folder and the signatures of all shards: each must be its shard's, all of one run and, if it
/// matters, of this shape.
pub(super) fn open_all(
    out: &Path,
    shards: usize,
    earlier: Option<&Path>,
    shape: Option<SignatureShape>,
) -> Result<(Vec<SignatureFile>, Numbering)> {
    let mut own = Vec::<SignatureFile>::new();
    for shard in 0..shards {
        let path = out.join(shard_file("clean", shard, "sig"));
        let file = SignatureFile::open(&path)?;
        if let Some(shape) = shape {
            file.expect_shape(shape)?;
        }
        let origin = file.origin();
        if origin.shard as usize != shard {
            let found = format!("the signatures of shard {}", origin.shard);
            return Err(damaged(&path, 40, found, format!("those of shard {shard}")));
        }
        let run = own.first().map_or(origin.run, |first| first.origin().run);
        if origin.run != run {
            let found = format!("signatures of another run, {:032x}", origin.run);
            let wanted = format!("those of the run that made shard 0, {run:032x}");
            return Err(damaged(&path, 44, found, wanted));
        }
        own.push(file);
    }
    let mut files = match earlier {
        Some(folder) => index::open_folder(folder, shape, index::crawl_of(&own))?,
        None => Vec::new(),
    };
    let indexes = files.len();
    let earlier = files.iter().map(SignatureFile::count).sum();
    files.append(&mut own);
    let (mut starts, mut total) = (Vec::new(), 0);
    for file in &files {
        starts.push(total);
        total += file.count();
    }
    let numbering = Numbering {
        starts,
        total,
        indexes,
        earlier,
    };
    Ok((files, numbering))
}
