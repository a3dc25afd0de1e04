//! A checkpoint without what only training needs: its weights, or their running averages in their
//! place. It can be measured, exported and generated with; a run does not go on from it.

use std::fs::{self, File};
use std::path::Path;

use crate::checkpoint::MODEL;
use crate::checkpoint::read::{Opened, parts_of};
use crate::checkpoint::state::{self, Digests};
use crate::checkpoint::write::sync;
use crate::error::{At, Error, Result};

/// Writes the weights of `checkpoint` (a folder, or `ema.safetensors` in one: its averages) as a
/// checkpoint of their own at `out`, which must not be there.
///
/// # Errors
/// A damaged checkpoint; one without averages; a folder that is there or cannot be written.
pub fn slim(checkpoint: &Path, out: &Path) -> Result<()> {
    let (folder, file) = parts_of(checkpoint);
    let opened = Opened::open(folder)?;
    opened.verify(file)?;
    if out.exists() {
        return Err(Error::Request {
            what: "folder to write",
            found: format!("{}, which is there", out.display()),
            wanted: "one that is not there".into(),
        });
    }
    let partial = out.with_extension("partial");
    fs::create_dir_all(&partial).at("create", &partial)?;
    let to = partial.join(MODEL);
    fs::copy(folder.join(file), &to).at("write", &to)?;
    File::open(&to)
        .and_then(|file| file.sync_all())
        .at("sync", &to)?;
    let mut state = opened.state;
    // one set of weights is left
    state.plan.train.ema_decay = 0.0;
    let digest = opened.digests.of(file).cloned();
    let digest = digest.expect("verified above, with its digest");
    state::write(&partial, &state, &Digests(vec![(MODEL.into(), digest)]))?;
    sync(&partial)?;
    fs::rename(&partial, out).at("rename", &partial)
}
