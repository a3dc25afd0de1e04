//! The corpus of a job with `[store]`: a copy of the store's folder, from which documents are removed as from a job's folder, and
//! whose changed files are then put into the store in one transaction (`store_transaction.rs`).
//!
//! The copy is made anew by every command, so that a kill loses no more than time.

use super::super::task::read_state;
use super::record::REPORT;
use super::store_transaction::{Objects, Places, Read, finish, is_pending, publish};
use super::transaction::{Changes, New, STAGED, remove_folder};
use crate::context::{Context, PENDING, TAKEDOWN_COPY};
use crate::folder_lock::{LOCK, Lock, is_held, lock_in};
use crate::job::Job;
use crate::machine::{checksum, grouped, megabytes, write_atomically};
use crate::manifest::{self, Manifest};
use anyhow::{Context as _, Result, bail};
use curate::dedup::EMBEDDINGS;
use curate::store::ObjectFolder;
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use std::path::{Path, PathBuf};

/// A corpus, with its store if it has one.
pub(super) struct Corpus {
    /// The job in its folder, or in the copy of its store's.
    pub cx: Context,
    pub stored: Option<Stored>,
}

/// The store of a corpus.
pub(super) struct Stored {
    objects: ObjectFolder,
    /// The job's folder on this machine.
    home: PathBuf,
    copy: PathBuf,
    /// `manifest.json` as the corpus was copied.
    manifest: Read,
    /// `takedown/report.json` as the corpus was copied.
    report: Option<Vec<u8>>,
    /// Names of the embeddings, which are not copied.
    embeddings: Vec<String>,
    changes: Changes,
    _lock: Lock,
}

impl Drop for Stored {
    fn drop(&mut self) {
        // the next command removes what could not be
        let _ = remove_folder(&self.copy);
    }
}

impl Corpus {
    /// Opens and locks the job's folder. That of a job with a store need not be there, and nothing is copied yet.
    pub(super) fn open(mut job: Job) -> Result<Corpus> {
        let Some(objects) = job.store()? else {
            let cx = Context::open_to_edit(job)?;
            return Ok(Corpus { cx, stored: None });
        };
        let home = std::mem::take(&mut job.out);
        let lock = lock_in(&home, LOCK)?.ok_or_else(|| is_held(&home))?;
        let copy = home.join(TAKEDOWN_COPY);
        remove_folder(&copy)?;
        job.out.clone_from(&copy);
        job.store = None;
        let stored = Stored {
            objects,
            home,
            copy,
            manifest: Read::default(),
            report: None,
            embeddings: Vec::new(),
            changes: Changes::default(),
            _lock: lock,
        };
        Ok(Corpus {
            cx: Context::open_to_edit(job)?,
            stored: Some(stored),
        })
    }

    /// The job's folder on this machine.
    pub(super) fn home(&self) -> &Path {
        match &self.stored {
            Some(stored) => &stored.home,
            None => &self.cx.out,
        }
    }

    /// A path of the copy as one of the job's folder.
    pub(super) fn shown(&self, path: &Path) -> PathBuf {
        match path.strip_prefix(&self.cx.out) {
            Ok(inside) => self.home().join(inside),
            Err(_) => path.to_path_buf(),
        }
    }

    /// Whether there is a clean shard.
    pub(super) fn has_shards(&self) -> Result<bool> {
        match &self.stored {
            Some(stored) => Ok(stored.objects.size(super::remove::FIRST)?.is_some()),
            None => Ok(self.cx.out.join(super::remove::FIRST).exists()),
        }
    }

    /// Finishes an earlier takedown, and copies the store's folder.
    ///
    /// # Errors
    /// Of a dry run if an earlier takedown has not been finished; if a task of the job has not ended; if the store cannot be
    /// reached, or a file not be written.
    pub(super) fn prepare(&mut self, dry_run: bool) -> Result<()> {
        let is_unfinished = match &self.stored {
            Some(stored) => is_pending(&stored.objects)?,
            None => self.cx.out.join(PENDING).exists(),
        };
        if dry_run && is_unfinished {
            bail!(
                "{}: an earlier takedown has not been finished; run it without --dry-run first",
                self.home().display()
            );
        }
        match &mut self.stored {
            None if dry_run => return Ok(()),
            None => super::transaction::finish(&self.cx.out)?,
            Some(stored) => {
                if !dry_run {
                    finish(&stored.objects, &stored.places())?;
                }
                stored.fetch()?;
            }
        }
        self.cx.manifest = Manifest::open(&self.cx.out, None)?;
        Ok(())
    }

    /// Takes the changes of the copy.
    pub(super) fn changed(&mut self, changes: Changes) {
        if let Some(stored) = &mut self.stored {
            stored.changes = changes;
        }
    }

    /// Puts the changes of the copy into the store.
    ///
    /// # Errors
    /// If another process uses the store, or it cannot be reached.
    pub(super) fn publish(&mut self) -> Result<()> {
        match &mut self.stored {
            Some(stored) => stored.publish(),
            None => Ok(()),
        }
    }
}

impl Stored {
    fn places(&self) -> Places<'_> {
        Places {
            home: &self.home,
            copy: &self.copy,
        }
    }

    fn fetch(&mut self) -> Result<()> {
        self.manifest = Objects::read(&self.objects, manifest::NAME)?.unwrap_or_default();
        let mut listed = self.objects.list("")?;
        let is_below = |name: &str, folder: &str| {
            let inside = name.strip_prefix(folder);
            inside.is_some_and(|inside| inside.starts_with('/'))
        };
        listed.retain(|(name, _)| !is_below(name, STAGED) && name != manifest::NAME);
        let (embeddings, listed): (Vec<_>, Vec<_>) = listed
            .into_iter()
            .partition(|(name, _)| is_below(name, EMBEDDINGS));
        self.embeddings = embeddings.into_iter().map(|(name, _)| name).collect();
        log!(
            "takedown: copies {} files ({}) of {} to {}",
            grouped(listed.len() as u64),
            megabytes(listed.iter().map(|(_, bytes)| bytes).sum()),
            self.objects.url(""),
            self.copy.display()
        );
        listed.par_iter().try_for_each(|(name, _)| {
            if !Objects::fetch(&self.objects, name, &self.copy.join(name))? {
                bail!(
                    "{} was removed while it was copied; run takedown while no job uses the store",
                    self.objects.url(name)
                );
            }
            Ok(())
        })?;
        let path = self.copy.join(manifest::NAME);
        write_atomically(&path, &self.manifest.bytes)?;
        self.report = std::fs::read(self.copy.join(REPORT)).ok();
        self.expect_tasks_ended()
    }

    /// Refuses a store with the mark of a task that has not ended.
    fn expect_tasks_ended(&self) -> Result<()> {
        let folder = self.copy.join("records/tasks");
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        files.sort();
        for file in files {
            let state = read_state(&file.with_extension(""));
            if let Some(state) = state.filter(|state| !state.is_done && state.error.is_none()) {
                let name = file.file_name().unwrap_or_default().to_string_lossy();
                let mark = self.objects.url(&format!("records/tasks/{name}"));
                bail!(
                    "{mark}: a task of the job has not ended (process {} on {}), and nothing is removed while one uses the store; wait for \
                     its end. If it was killed, start it again, or remove that object",
                    state.pid,
                    state.host
                );
            }
        }
        Ok(())
    }

    fn publish(&mut self) -> Result<()> {
        let path = self.copy.join(REPORT);
        let report = std::fs::read(&path).with_context(|| path.display().to_string())?;
        let is_new = self.report.as_ref() != Some(&report);
        let mut changes = std::mem::take(&mut self.changes);
        if changes.files.is_empty() {
            return match is_new {
                true => Ok(self.objects.put(REPORT, &path)?),
                false => Ok(()),
            };
        }
        if is_new {
            changes.files.push(New {
                path: REPORT.to_string(),
                bytes: report.len() as u64,
                xxh3: checksum(&path)?,
            });
        }
        changes.remove.append(&mut self.embeddings);
        // removed texts may be among them, and a deduplication makes them again
        remove_folder(&self.home.join(EMBEDDINGS))?;
        publish(&self.objects, &self.places(), changes, &self.manifest)
    }
}
