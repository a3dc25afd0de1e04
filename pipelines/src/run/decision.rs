//! Decisions of stages: what each has to do with the files as they are, why, and what it replaces. The same functions decide for
//! `run`, which acts, and for `run --plan`, which shows.

use crate::manifest::Record;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Whether a stage works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Action {
    /// It is finished.
    Skip,
    /// It works, and keeps a part of what it did before.
    GoOn,
    /// It works.
    Run,
    /// It works unless an earlier stage, which works again, writes the same as before.
    Depends,
}

/// The difference that later stages find once a stage is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Effect {
    /// The same files.
    Same,
    /// Files that are written again, perhaps with the same bytes.
    Perhaps,
    /// Other results, as settings or inputs are others.
    Other,
}

/// Why a stage works.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reason {
    pub text: String,
    /// The difference that it makes to the results.
    pub effect: Effect,
    /// The first cause, if it is the work of an earlier stage.
    pub cause: Option<String>,
}

impl Reason {
    /// A reason with this effect.
    pub(super) fn new(text: impl Into<String>, effect: Effect) -> Reason {
        Reason {
            text: text.into(),
            effect,
            cause: None,
        }
    }

    /// A reason for other results.
    pub(super) fn other(text: impl Into<String>) -> Reason {
        Reason::new(text, Effect::Other)
    }

    /// A reason for which the same results may be made again.
    pub(super) fn perhaps(text: impl Into<String>) -> Reason {
        Reason::new(text, Effect::Perhaps)
    }
}

/// Files of a stage that are there and that it will write anew or remove.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Replaced {
    /// A file, or a folder of some; relative to the job's folder, or the URL in its store.
    pub path: PathBuf,
    pub files: usize,
    pub bytes: u64,
}

/// The work that is before a stage.
#[derive(Clone, Debug)]
pub(super) struct Decision {
    /// Its name: `curate`, `tokenize/web`.
    pub stage: String,
    pub action: Action,
    /// How far it is: `3 of 10 shards are done`.
    pub progress: Option<String>,
    pub reasons: Vec<Reason>,
    pub replaces: Vec<Replaced>,
    /// The results of others that were made of its own.
    pub needed_by: Option<String>,
    /// Why the job is refused because of it.
    pub refusal: Option<String>,
}

impl Decision {
    /// A stage that is finished.
    pub(super) fn skip(stage: impl Into<String>) -> Decision {
        Decision {
            stage: stage.into(),
            action: Action::Skip,
            progress: None,
            reasons: Vec::new(),
            replaces: Vec::new(),
            needed_by: None,
            refusal: None,
        }
    }

    /// A stage that works.
    pub(super) fn run(stage: impl Into<String>, reasons: Vec<Reason>) -> Decision {
        Decision {
            action: Action::Run,
            reasons,
            ..Decision::skip(stage)
        }
    }

    /// The first causes that change its results, in words.
    pub(super) fn why(&self) -> String {
        let other = self
            .reasons
            .iter()
            .filter(|reason| reason.effect == Effect::Other);
        let causes = other.map(|reason| reason.cause.as_ref().unwrap_or(&reason.text).as_str());
        let mut texts: Vec<&str> = causes.collect();
        texts.dedup();
        texts.join("; ")
    }

    /// The difference that later stages find.
    pub(super) fn effect(&self) -> Effect {
        let effects = self.reasons.iter().map(|reason| reason.effect);
        let most = effects.max().unwrap_or(Effect::Perhaps);
        match self.action {
            Action::Skip => Effect::Same,
            Action::GoOn | Action::Run => most,
            Action::Depends => most.min(Effect::Perhaps),
        }
    }
}

/// The stage before one, if what it leaves is not what was there.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub stage: String,
    pub effect: Effect,
    /// The first causes.
    why: String,
}

impl Change {
    /// Of the first of these decisions that changes most.
    pub(super) fn of<'a>(decisions: impl IntoIterator<Item = &'a Decision>) -> Option<Change> {
        let mut found: Option<Change> = None;
        for decision in decisions {
            let effect = decision.effect();
            if effect > found.as_ref().map_or(Effect::Same, |found| found.effect) {
                found = Some(Change {
                    stage: decision.stage.clone(),
                    effect,
                    why: decision.why(),
                });
            }
        }
        found
    }

    /// The larger of two, the first if they are alike.
    pub(super) fn of_both(first: Option<Change>, second: Option<Change>) -> Option<Change> {
        match (first, second) {
            (Some(first), Some(second)) if second.effect > first.effect => Some(second),
            (Some(first), _) => Some(first),
            (None, second) => second,
        }
    }

    /// As the reason of a later stage.
    pub(super) fn reason(&self) -> Reason {
        Reason {
            text: format!("{} runs again", self.stage),
            effect: self.effect,
            cause: Some(self.why.clone()),
        }
    }

    /// The action of a stage that only works again if its inputs differ.
    pub(super) fn action(&self) -> Action {
        match self.effect {
            Effect::Same => Action::Skip,
            Effect::Perhaps => Action::Depends,
            Effect::Other => Action::Run,
        }
    }
}

/// Files of a folder that are named one by one; more are named by their folder.
const NAMED: usize = 4;

/// Those files of records that are there.
pub(super) fn replaced<'a>(
    out: &Path,
    records: impl IntoIterator<Item = &'a Record>,
) -> Vec<Replaced> {
    let outputs = records.into_iter().flat_map(|record| &record.outputs);
    files_there(out, outputs.map(|output| output.path.clone()))
}

/// Those of these files, relative to the job's folder, that are there; with their folders for many.
pub(super) fn files_there(out: &Path, files: impl Iterator<Item = PathBuf>) -> Vec<Replaced> {
    in_folders(files.filter_map(|file| {
        let found = std::fs::metadata(out.join(&file)).ok()?;
        Some((file, found.len()))
    }))
}

/// These files and their sizes in bytes; with their folders for many.
pub(super) fn in_folders(files: impl Iterator<Item = (PathBuf, u64)>) -> Vec<Replaced> {
    let mut folders: BTreeMap<PathBuf, BTreeMap<PathBuf, u64>> = BTreeMap::new();
    for (file, bytes) in files {
        let folder = file.parent().unwrap_or(Path::new("")).to_path_buf();
        folders.entry(folder).or_default().insert(file, bytes);
    }
    let mut all = Vec::new();
    for (folder, files) in folders {
        if files.len() > NAMED && folder != Path::new("") {
            all.push(Replaced {
                files: files.len(),
                bytes: files.values().sum(),
                path: folder,
            });
            continue;
        }
        let each = files.into_iter().map(|(path, bytes)| Replaced {
            path,
            files: 1,
            bytes,
        });
        all.extend(each);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_change_before_a_stage_is_the_one_that_it_names() {
        let touched = Decision::run("curate", vec![Reason::perhaps("touched")]);
        let cut = Decision::run(
            "dedup",
            vec![Reason::perhaps("curate runs again"), Reason::other("keep")],
        );
        let done = Decision::skip("tokenize/web");
        let change = Change::of([&touched, &cut, &done]).unwrap();
        assert_eq!((&*change.stage, change.effect), ("dedup", Effect::Other));
        // a stage behind it names the first cause
        assert_eq!(
            Decision::run("tokenize/web", vec![change.reason()]).why(),
            "keep"
        );
        assert_eq!(change.action(), Action::Run);
        let change = Change::of([&done, &touched]).unwrap();
        assert_eq!(change.action(), Action::Depends);
        assert!(Change::of([&done]).is_none());
    }

    #[test]
    fn files_that_are_there_are_named_and_many_are_their_folder() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("clean")).unwrap();
        let names = |count: usize| (0..count).map(|i| PathBuf::from(format!("clean/{i}")));
        for name in names(5) {
            std::fs::write(dir.path().join(name), "abc").unwrap();
        }
        let one = |path: &str, files, bytes| Replaced {
            path: path.into(),
            files,
            bytes,
        };
        assert_eq!(files_there(dir.path(), names(9)), [one("clean", 5, 15)]);
        let few = files_there(dir.path(), names(2));
        assert_eq!(few, [one("clean/0", 1, 3), one("clean/1", 1, 3)]);
    }
}
