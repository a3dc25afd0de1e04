//! The runs behind the paths of the command line: folders of runs, folders that hold several, jobs, and what is not there yet.

use crate::job::WrongUse;
use crate::run::job_at;
use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

/// Files and folders that only a run writes.
const OF_A_RUN: [&str; 4] = ["metrics.jsonl", "manifest.json", "records", ".lock"];
/// How far below a path runs are looked for.
const DEPTH: usize = 3;
/// Entries below a path that are looked at, all folders together.
const MOST_ENTRIES: usize = 50_000;

/// A path of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Given(PathBuf);

/// Checks the paths.
///
/// # Errors
/// `WrongUse` that names a path that can never be a run, and what it is; a job file that cannot be read.
pub(super) fn given(paths: &[PathBuf]) -> anyhow::Result<Vec<Given>> {
    paths.iter().map(|path| Given::new(path)).collect()
}

impl Given {
    fn new(path: &Path) -> anyhow::Result<Given> {
        if path.is_file() {
            if path.extension().is_some_and(|e| e == "toml") {
                return Ok(Given(job_at(path, &[])?.out));
            }
            return Err(refused(path, "a file"));
        }
        if !path.exists() {
            let above = path.ancestors().skip(1).find(|above| above.exists());
            return match above {
                Some(above) if above.is_file() => Err(refused(
                    path,
                    &format!("below the file {}", above.display()),
                )),
                Some(_) | None => Ok(Given(path.to_owned())),
            };
        }
        if is_run(path) {
            return Ok(Given(path.to_owned()));
        }
        let job = path.join("job.toml");
        if job.is_file() {
            return Ok(Given(crate::job::load(&job, &[])?.out));
        }
        if let Some(kind) = other_kind(path) {
            return Err(refused(path, kind));
        }
        let is_empty = std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
        match is_empty || !runs_below(path).is_empty() {
            true => Ok(Given(path.to_owned())),
            false => Err(refused(path, "a folder without a run")),
        }
    }

    /// Folders of its runs, as they are at this moment: itself, or those below it. A folder without any waits for its run.
    pub(super) fn runs(&self) -> Vec<PathBuf> {
        if is_run(&self.0) {
            return vec![self.0.clone()];
        }
        let below = runs_below(&self.0);
        match below.is_empty() {
            true => vec![self.0.clone()],
            false => below,
        }
    }
}

fn refused(path: &Path, found: &str) -> anyhow::Error {
    let wanted =
        "want a folder that a job writes (its `out`), a folder that holds such, or a job file";
    WrongUse::new(format!("{}: found {found}, {wanted}", path.display())).into()
}

fn is_run(path: &Path) -> bool {
    OF_A_RUN.iter().any(|name| path.join(name).exists())
}

/// The kind of a folder that Millrace or others write and that is no run.
fn other_kind(path: &Path) -> Option<&'static str> {
    if path.join("state.json").is_file() {
        return Some("a checkpoint");
    }
    let name = path.file_name()?;
    if name == "checkpoints" {
        return Some("a run's folder of checkpoints");
    }
    path.join("config.json")
        .is_file()
        .then_some("a Hugging Face folder")
}

/// Runs in the folders below, in the order of names.
fn runs_below(path: &Path) -> Vec<PathBuf> {
    let mut found = BTreeSet::new();
    let mut left = MOST_ENTRIES;
    // upper folders first: where not all are looked at, deep ones are left out
    let mut folders = VecDeque::from([(path.to_owned(), 0)]);
    while left > 0
        && let Some((folder, depth)) = folders.pop_front()
    {
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        for entry in entries.take(left) {
            left -= 1;
            let is_hidden = entry.file_name().to_string_lossy().starts_with('.');
            // links are followed: a folder of links to runs is a good way to compare them
            let path = entry.path();
            if is_hidden || !path.is_dir() {
                continue;
            }
            if is_run(&path) {
                found.insert(path);
            } else if depth + 1 < DEPTH {
                folders.push_back((path, depth + 1));
            }
        }
    }
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_folder_of_runs_stands_for_those_that_are_in_it_at_the_moment() {
        let dir = tempfile::tempdir().unwrap();
        let run = |name: &str| {
            let run = dir.path().join(name);
            fs::create_dir_all(&run).unwrap();
            fs::write(run.join("metrics.jsonl"), "").unwrap();
            run
        };
        let [b, a] = [run("b"), run("deep/a")];
        fs::create_dir_all(dir.path().join("notes")).unwrap();
        let given = Given::new(dir.path()).unwrap();
        assert_eq!(given.runs(), [b.clone(), a.clone()]);
        let c = run("c");
        assert_eq!(given.runs(), [b, c, a]);
    }

    #[test]
    fn a_folder_that_is_not_there_or_empty_waits_and_is_found_when_its_run_begins() {
        let dir = tempfile::tempdir().unwrap();
        let later = dir.path().join("later");
        for given in [Given::new(&later), Given::new(dir.path())] {
            let given = given.unwrap();
            assert_eq!(given.runs(), [given.0]);
        }
        let above = Given::new(dir.path()).unwrap();
        fs::create_dir(&later).unwrap();
        fs::write(later.join(".lock"), "").unwrap();
        assert_eq!(above.runs(), [later]);
    }

    #[test]
    fn what_can_never_be_a_run_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("notes.txt"), "").unwrap();
        for folder in ["checkpoints", "model", "step", "music/best"] {
            fs::create_dir_all(path(folder)).unwrap();
        }
        fs::write(path("model/config.json"), "").unwrap();
        fs::write(path("step/state.json"), "").unwrap();
        for (name, found) in [
            ("notes.txt", "found a file"),
            ("notes.txt/run", "found below the file "),
            ("checkpoints", "found a run's folder of checkpoints"),
            ("model", "found a Hugging Face folder"),
            ("step", "found a checkpoint"),
            ("music", "found a folder without a run"),
        ] {
            let message = Given::new(&path(name)).unwrap_err().to_string();
            assert!(message.contains(found), "{name}: {message}");
            assert!(
                message.contains(name) && message.contains("want"),
                "{message}"
            );
        }
    }
}
