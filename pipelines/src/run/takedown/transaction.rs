//! Many files replaced at once: new files are written below `takedown/staged`, then `takedown/commit.json` lists them, then
//! they are moved to their places. A kill before the list is complete changes nothing; after it the next start finishes.

use super::record::FOLDER;
use crate::context::PENDING;
use crate::machine::{checksum, write_atomically};
use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Folder of files that are not in their places yet, below the job's.
pub(super) const STAGED: &str = "takedown/staged";

/// New files of a job's folder.
pub(super) struct Transaction {
    out: PathBuf,
    staged: PathBuf,
    commit: Changes,
}

/// The list of new files.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Changes {
    pub files: Vec<New>,
    /// Files to remove.
    pub remove: Vec<String>,
}

/// A new file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct New {
    /// Relative to the job's folder.
    pub path: String,
    pub bytes: u64,
    pub xxh3: String,
}

impl From<curate::write::OutputFile> for New {
    fn from(file: curate::write::OutputFile) -> New {
        New {
            path: file.path,
            bytes: file.bytes,
            xxh3: file.xxh3,
        }
    }
}

impl Transaction {
    /// Begins with an empty folder; `finish` must have been called before.
    pub(super) fn begin(out: &Path) -> Result<Transaction> {
        let staged = out.join(STAGED);
        remove_folder(&staged)?;
        std::fs::create_dir_all(&staged)
            .with_context(|| format!("cannot make {}", staged.display()))?;
        Ok(Transaction {
            out: out.to_path_buf(),
            staged,
            commit: Changes::default(),
        })
    }

    /// Folder to write new files in, under their names.
    pub(super) fn folder(&self) -> &Path {
        &self.staged
    }

    /// Adds a file that has been written, and flushed, in the folder.
    pub(super) fn add(&mut self, file: New) {
        self.commit.files.push(file);
    }

    /// The files that have been added.
    pub(super) fn files(&self) -> &[New] {
        &self.commit.files
    }

    /// Writes a file and adds it.
    pub(super) fn write(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.staged.join(name);
        write_atomically(&path, bytes)?;
        self.add(New {
            path: name.to_string(),
            bytes: bytes.len() as u64,
            xxh3: checksum(&path)?,
        });
        Ok(())
    }

    /// Removes a file of the job's folder, if it is there.
    pub(super) fn remove(&mut self, name: &str) {
        self.commit.remove.push(name.to_string());
    }

    /// Takes effect; returns the new and removed files.
    pub(super) fn commit(self) -> Result<Changes> {
        let mut text = serde_json::to_string_pretty(&self.commit)?;
        text.push('\n');
        write_atomically(&self.out.join(PENDING), text.as_bytes())?;
        finish(&self.out)?;
        Ok(self.commit)
    }
}

/// Finishes what an earlier process has decided and not finished, if there is something.
pub(super) fn finish(out: &Path) -> Result<()> {
    let pending = out.join(PENDING);
    if !pending.exists() {
        // no decision: nothing of it is used
        return remove_folder(&out.join(STAGED));
    }
    let text = std::fs::read(&pending).with_context(|| pending.display().to_string())?;
    let commit: Changes = serde_json::from_slice(&text)
        .with_context(|| format!("{} is no list of new files", pending.display()))?;
    for file in &commit.files {
        if !curate::store::is_inside(&file.path) {
            bail!(
                "{}: {:?} is not in the folder",
                pending.display(),
                file.path
            );
        }
        put(out, file)?;
    }
    for name in &commit.remove {
        if !curate::store::is_inside(name) {
            bail!("{}: {name:?} is not in the folder", pending.display());
        }
        let path = out.join(name);
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(e).with_context(|| format!("cannot remove {}", path.display()));
            }
            _ => {}
        }
    }
    flush(out)?;
    remove_folder(&out.join(STAGED))?;
    std::fs::remove_file(&pending)
        .with_context(|| format!("cannot remove {}", pending.display()))?;
    flush(&out.join(FOLDER))
}

/// Moves a file to its place, or verifies that it is there.
fn put(out: &Path, file: &New) -> Result<()> {
    let (from, to) = (out.join(STAGED).join(&file.path), out.join(&file.path));
    if !from.exists() {
        let is_there = std::fs::metadata(&to).is_ok_and(|m| m.len() == file.bytes)
            && checksum(&to)? == file.xxh3;
        if !is_there {
            bail!(
                "{} is neither the new file nor is that one in {}",
                to.display(),
                out.join(STAGED).display()
            );
        }
        return Ok(());
    }
    let folder = to.parent().unwrap_or(out);
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    std::fs::rename(&from, &to).with_context(|| format!("cannot write {}", to.display()))?;
    flush(folder)
}

/// Makes renames in a folder durable.
fn flush(folder: &Path) -> Result<()> {
    let flushed = File::open(folder).and_then(|f| f.sync_all());
    flushed.with_context(|| format!("cannot flush {}", folder.display()))
}

pub(super) fn remove_folder(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with an old file, and a decided transaction of which `moved` files are in their places.
    fn interrupted(out: &Path, moved: usize) -> Vec<&'static str> {
        let names = ["clean/a", "clean/b", "keep/c"];
        std::fs::create_dir_all(out.join("clean")).unwrap();
        std::fs::write(out.join("clean/a"), "old").unwrap();
        std::fs::write(out.join("report.html"), "old").unwrap();
        let mut work = Transaction::begin(out).unwrap();
        for name in names {
            work.write(name, format!("new {name}").as_bytes()).unwrap();
        }
        work.remove("report.html");
        let text = serde_json::to_string(&work.commit).unwrap();
        std::fs::write(out.join(PENDING), text).unwrap();
        for file in work.files().iter().take(moved) {
            put(out, file).unwrap();
        }
        names.to_vec()
    }

    #[test]
    fn a_decided_transaction_is_finished_wherever_it_stopped() {
        for moved in 0..=3 {
            let dir = tempfile::tempdir().unwrap();
            let names = interrupted(dir.path(), moved);
            finish(dir.path()).unwrap();
            for name in names {
                let text = std::fs::read_to_string(dir.path().join(name)).unwrap();
                assert_eq!(text, format!("new {name}"), "after {moved}");
            }
            for name in ["report.html", PENDING, STAGED] {
                assert!(!dir.path().join(name).exists(), "{name}");
            }
            // once more there is nothing to do
            finish(dir.path()).unwrap();
        }
    }

    #[test]
    fn a_transaction_that_was_not_decided_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        interrupted(dir.path(), 0);
        std::fs::remove_file(dir.path().join(PENDING)).unwrap();
        finish(dir.path()).unwrap();
        assert_eq!(
            std::fs::read_to_string(dir.path().join("clean/a")).unwrap(),
            "old"
        );
        assert!(dir.path().join("report.html").exists());
        assert!(!dir.path().join(STAGED).exists());
    }

    #[test]
    fn a_file_that_is_neither_new_nor_there_and_one_outside_of_the_folder_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        interrupted(dir.path(), 0);
        std::fs::remove_file(dir.path().join(STAGED).join("clean/a")).unwrap();
        let why = finish(dir.path()).unwrap_err().to_string();
        assert!(why.contains("neither the new file"), "{why}");
        let outside = r#"{"files":[{"path":"../x","bytes":1,"xxh3":""}],"remove":[]}"#;
        std::fs::write(dir.path().join(PENDING), outside).unwrap();
        let why = finish(dir.path()).unwrap_err().to_string();
        assert!(why.contains("is not in the folder"), "{why}");
    }
}
