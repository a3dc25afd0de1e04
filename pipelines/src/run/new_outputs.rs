//! Outputs that must be new: what has their place already is refused before any work, so that nothing is overwritten, and what a
//! failed run has made of them is removed, so that the same command can be given again.

use crate::job::WrongUse;
use crate::machine::{is_temporary, temporary_in};
use anyhow::{Context as _, Result};
use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// `FLAG: `, or nothing for a path that is an argument of its own.
fn place(flag: &str) -> String {
    match flag {
        "" => String::new(),
        flag => format!("{flag}: "),
    }
}

/// Checks that nothing has a file's name. `flag`: the flag that names it; empty for an argument.
///
/// # Errors
/// `WrongUse` for a file, folder or link of this name.
pub(super) fn expect_new_file(flag: &str, file: &Path) -> Result<(), WrongUse> {
    let (place, shown) = (place(flag), file.display());
    if file.is_dir() {
        let message = format!("{place}{shown}: found a folder, want the name of a file");
        return Err(WrongUse::new(message));
    }
    match file.symlink_metadata().is_ok() {
        true => Err(WrongUse::new(format!(
            "{place}{shown} exists; name another file, or remove it first"
        ))),
        false => Ok(()),
    }
}

/// Checks that no file of a token dataset is there. `flag`: as of `expect_new_file`.
///
/// # Errors
/// `WrongUse` naming the files that are.
pub(super) fn expect_new_dataset(flag: &str, prefix: &Path) -> Result<(), WrongUse> {
    let files = [".bin", ".idx", ".json"].map(|suffix| {
        let mut file = prefix.as_os_str().to_owned();
        file.push(suffix);
        PathBuf::from(file)
    });
    let there = files.iter().filter(|file| file.symlink_metadata().is_ok());
    let there: Vec<String> = there.map(|file| file.display().to_string()).collect();
    let is_or_are = match there.len() {
        0 => return Ok(()),
        1 => "exists; name another prefix, or remove it first",
        _ => "exist; name another prefix, or remove them first",
    };
    let (place, there) = (place(flag), there.join(", "));
    Err(WrongUse::new(format!("{place}{there} {is_or_are}")))
}

/// The folder that a path is in.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    }
}

/// A file that is written after long work. Its name is free and its folder can be written: both are known before the work.
pub(super) struct NewFile {
    flag: &'static str,
    file: PathBuf,
    /// It until it has its name.
    reserved: NamedTempFile,
}

impl NewFile {
    /// Checks the file and makes a temporary one beside it, which goes if it is not written.
    ///
    /// # Errors
    /// `WrongUse` for a file that exists, and for a folder that does not, or in which no file can be made.
    pub(super) fn reserve(flag: &'static str, file: &Path) -> Result<NewFile, WrongUse> {
        expect_new_file(flag, file)?;
        let reserved = temporary_in(folder_of(file)).map_err(|error| {
            let (place, shown) = (place(flag), file.display());
            WrongUse::new(format!("{place}cannot write {shown}: {error:#}"))
        })?;
        let file = file.to_path_buf();
        Ok(NewFile {
            flag,
            file,
            reserved,
        })
    }

    /// Writes the file, whole or not at all; one that came into its place meanwhile stays.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn write(self, bytes: &[u8]) -> Result<()> {
        let NewFile {
            flag,
            file,
            mut reserved,
        } = self;
        let write = || -> std::io::Result<()> {
            reserved.write_all(bytes)?;
            reserved.as_file().sync_all()?;
            reserved.persist_noclobber(&file)?;
            Ok(())
        };
        write().with_context(|| format!("{}cannot write {}", place(flag), file.display()))
    }
}

/// Names of files and folders that a killed run leaves, which the next one replaces.
fn is_leftover(name: &OsStr) -> bool {
    let text = name.to_string_lossy();
    let is_hidden = text.starts_with('.');
    is_temporary(name) || is_hidden && (text.ends_with(".partial") || text.ends_with(".dropped"))
}

/// A folder that is filled with new files.
pub(super) struct NewFolder<'a> {
    folder: &'a Path,
    /// It and folders above it that were not there, the deepest first.
    absent: Vec<&'a Path>,
}

impl<'a> NewFolder<'a> {
    /// Checks that a folder is new, or empty but for what a killed run leaves. `is_unfinished`: further names of that kind.
    ///
    /// # Errors
    /// `WrongUse` for a file of this name, and for a folder with anything in it.
    pub(super) fn expect(
        folder: &'a Path,
        is_unfinished: impl Fn(&OsStr) -> bool,
    ) -> Result<NewFolder<'a>, WrongUse> {
        let shown = folder.display();
        if folder.symlink_metadata().is_ok() && !folder.is_dir() {
            let message = format!("{shown}: found a file, want a folder");
            return Err(WrongUse::new(message));
        }
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut names = entries.map(|entry| entry.file_name());
        if names.any(|name| !is_leftover(&name) && !is_unfinished(&name)) {
            let message = format!("{shown} is not empty; name another folder, or remove it first");
            return Err(WrongUse::new(message));
        }
        Ok(NewFolder {
            folder,
            absent: absent(folder),
        })
    }

    /// Fills the folder; if that fails, all that is in it goes, and the folders that were not there.
    ///
    /// # Errors
    /// Those of `write`.
    pub(super) fn fill<T>(&self, write: impl FnOnce() -> Result<T>) -> Result<T> {
        let written = write();
        if written.is_err() {
            let entries = fs::read_dir(self.folder).into_iter().flatten().flatten();
            for entry in entries {
                // the failure of the work is the one to report
                let _ = match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    true => fs::remove_dir_all(entry.path()),
                    false => fs::remove_file(entry.path()),
                };
            }
            remove_empty(&self.absent);
        }
        written
    }
}

/// Runs what writes a new file; if that fails, the folders that it made for the file go.
///
/// # Errors
/// Those of `write`.
pub(super) fn in_new_folders<T>(file: &Path, write: impl FnOnce() -> Result<T>) -> Result<T> {
    let absent = absent(folder_of(file));
    let written = write();
    if written.is_err() {
        remove_empty(&absent);
    }
    written
}

/// Those of a folder and the ones above it that are not there, the deepest first.
fn absent(folder: &Path) -> Vec<&Path> {
    let above = folder.ancestors();
    above
        .take_while(|one| !one.as_os_str().is_empty() && !one.exists())
        .collect()
}

fn remove_empty(folders: &[&Path]) {
    for folder in folders {
        // one that is absent still, or has files of others by now, stays as it is
        let _ = fs::remove_dir(folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    #[test]
    fn a_folder_with_files_is_refused_and_one_with_leftovers_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let expect = || NewFolder::expect(&out, |name| name == "release").map(|_| ());
        assert!(expect().is_ok());
        fs::create_dir(&out).unwrap();
        assert!(expect().is_ok());
        for name in [".release.partial", ".step-0.dropped", "release"] {
            fs::create_dir(out.join(name)).unwrap();
        }
        fs::write(out.join(".millrace-x.tmp"), "").unwrap();
        assert!(expect().is_ok());
        fs::write(out.join(".hidden"), "").unwrap();
        let message = expect().unwrap_err().to_string();
        let wanted = "is not empty; name another folder, or remove it first";
        assert!(message.ends_with(wanted), "{message}");
    }

    #[test]
    fn a_failed_run_leaves_neither_files_nor_folders_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let (above, out) = (dir.path().join("a"), dir.path().join("a/b"));
        let fail = |folder: &NewFolder<'_>| -> Result<()> {
            folder.fill(|| {
                fs::create_dir_all(out.join("inner"))?;
                fs::write(out.join(".x.partial"), "")?;
                bail!("no")
            })
        };
        let folder = NewFolder::expect(&out, |_| false).unwrap();
        assert!(fail(&folder).is_err());
        assert!(!above.exists());
        fs::create_dir_all(&out).unwrap();
        let folder = NewFolder::expect(&out, |_| false).unwrap();
        assert!(fail(&folder).is_err());
        assert_eq!(fs::read_dir(&out).unwrap().count(), 0);
    }

    #[test]
    fn a_reserved_file_leaves_nothing_unless_it_is_written_and_replaces_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("records.jsonl");
        let count = || fs::read_dir(dir.path()).unwrap().count();
        drop(NewFile::reserve("--records", &file).unwrap());
        assert_eq!(count(), 0);
        let late = NewFile::reserve("--records", &file).unwrap();
        NewFile::reserve("--records", &file)
            .unwrap()
            .write(b"a")
            .unwrap();
        assert!(late.write(b"b").is_err());
        assert_eq!(fs::read(&file).unwrap(), b"a");
        assert_eq!(count(), 1);
        let absent = dir.path().join("absent/records.jsonl");
        let message = NewFile::reserve("--records", &absent).err().unwrap();
        assert!(message.to_string().starts_with("--records: cannot write "));
    }
}
