//! The tokenizer and the tokens that a job's checkpoints were trained with, by the job's records. Checkpoints do not name one: their readers
//! take the file in the job's folder, which must stay the same.

use crate::context::Context;
use crate::job::Refused;
use crate::manifest::Manifest;
use anyhow::{Result, bail};
use index::tokenizer::Tokenizer;
use std::path::Path;

/// Record of the settings that fixed the order of the data when the training began.
pub(crate) const SETTINGS: &str = "train/settings";

/// Record of the job's tokenizer.
pub(crate) const TOKENIZER: &str = "tokenize/tokenizer";

/// Whether the job's folder `out` has checkpoints.
pub(crate) fn has_checkpoints(out: &Path) -> bool {
    let folder = out.join("checkpoints");
    std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
}

/// Refuses to put another tokenizer in the place of the one that the job's checkpoints were trained with.
///
/// # Errors
/// Another tokenizer; records that cannot be read.
pub(crate) fn check_new(cx: &Context, new: &Tokenizer) -> Result<()> {
    let out = &cx.out;
    match of_training(&cx.manifest)? {
        Some(before) if has_checkpoints(out) && before != new.identity() => {
            Err(Refused::new(format!(
                "{}: found checkpoints of a training with the tokenizer {before}, wanted those of {} ({}): they would be read with \
                 it. To keep them, copy {} and name the copy in tokenize.tokenizer.file; to train anew, set another `out` or remove \
                 the checkpoints",
                out.join("checkpoints").display(),
                new.identity(),
                new.path().display(),
                out.join("tokens/tokenizer.json").display(),
            ))
            .into())
        }
        Some(_) | None => Ok(()),
    }
}

/// Identity of the tokens of a dataset that the job's checkpoints were trained on; none without checkpoints, or if they were trained
/// without it.
///
/// # Errors
/// Records that cannot be read.
pub(crate) fn trained_data(cx: &Context, dataset: &str) -> Result<Option<String>> {
    let settings = cx
        .manifest
        .get(SETTINGS)?
        .filter(|_| has_checkpoints(&cx.out));
    let data =
        settings.map(|settings| settings.counts["data"]["datasets"][dataset]["data"].clone());
    Ok(data.and_then(|data| data.as_str().map(str::to_owned)))
}

/// The refusal of other tokens in the place of those that checkpoints were trained on. `what`: the other tokens.
pub(crate) fn other_tokens(cx: &Context, dataset: &str, what: &str) -> Refused {
    Refused::new(format!(
        "{}: found checkpoints that were trained on {}, wanted ones that were trained on what {what}, which differs: nothing there \
         was replaced. To go on with the new tokens from the next step on, set train.resume.allow = [\"data\"] (or --allow data); to \
         train anew, set another `out` or remove the checkpoints",
        cx.out.join("checkpoints").display(),
        cx.out.join("tokens").join(dataset).display(),
    ))
}

/// The refusal of a tokenizer that would be trained again, with another result, beside checkpoints; None if there are none that had
/// the job's tokenizer.
///
/// # Errors
/// Records that cannot be read.
pub(crate) fn trained_again(cx: &Context, why: &str) -> Result<Option<Refused>> {
    let out = &cx.out;
    let before = of_training(&cx.manifest)?.filter(|_| has_checkpoints(out));
    Ok(before.map(|before| {
        Refused::new(format!(
            "{}: found checkpoints of a training with the tokenizer {before}, which would be trained again ({why}): they would be \
             read with the new one. To keep them, copy {} and name the copy in tokenize.tokenizer.file; to train anew, set another \
             `out` or remove the checkpoints",
            out.join("checkpoints").display(),
            out.join("tokens/tokenizer.json").display(),
        ))
    }))
}

/// Refuses the tokenizer in the job's folder `out` if it was made after the training of the checkpoints, with another one.
///
/// # Errors
/// Another tokenizer; records that cannot be read.
pub(crate) fn check_kept(manifest: &Manifest, out: &Path) -> Result<()> {
    let kept = manifest.get(TOKENIZER)?;
    let kept = kept.as_ref().and_then(|kept| kept.counts["xxh3"].as_str());
    match (of_training(manifest)?, kept) {
        (Some(before), Some(now)) if has_checkpoints(out) && before != now => bail!(
            "{}: found the tokenizer {now}, wanted {before}, with which the checkpoints were trained; --tokenizer FILE names another",
            out.join("tokens/tokenizer.json").display(),
        ),
        (Some(_) | None, Some(_) | None) => Ok(()),
    }
}

/// The same for the job's folder that has the checkpoint or folder of checkpoints at `path`, if it is in one.
///
/// # Errors
/// As `check_kept`.
pub(super) fn check_beside(path: &Path) -> Result<()> {
    let mut folders = path.ancestors().take(2);
    let checkpoints = folders.find(|folder| folder.ends_with("checkpoints"));
    match checkpoints.and_then(Path::parent) {
        Some(out) => check_kept(&Manifest::open(out, None)?, out),
        None => Ok(()),
    }
}

/// Identity of the tokenizer of the data that the training began with.
fn of_training(manifest: &Manifest) -> Result<Option<String>> {
    let settings = manifest.get(SETTINGS)?;
    let tokenizer = settings.map(|settings| settings.counts["data"]["tokenizer"].clone());
    Ok(tokenizer.and_then(|tokenizer| tokenizer.as_str().map(str::to_owned)))
}
