//! The context of a verb: an opened job with its folder, lock, thread pool and manifest.

use crate::folder_lock::{self, LOCK, Lock, is_held, lock_in};
use crate::job::Job;
use crate::machine::{grouped, is_temporary, write_atomically};
use crate::manifest::{Manifest, Record};
use ::curate::pipeline::CurateConfig;
use ::curate::read::{Input, Shard, keep_crawl_lists};
use anyhow::{Context as _, Result, bail};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// An opened job: its folder, its manifest, and the lock that keeps a second process out.
pub(crate) struct Context {
    pub job: Job,
    pub out: PathBuf,
    pub manifest: Manifest,
    shards: OnceLock<Vec<Shard>>,
    /// The distributed world of training; taken out when training starts.
    world: Mutex<Option<::train::dist::World>>,
    /// Whether `job.toml` is still to be written.
    is_pending: AtomicBool,
    /// Whether nothing at all is written, in the folder or elsewhere.
    only_looks: bool,
    /// None in a process that does not own the folder: process 1 and up of a training, and verbs that only read.
    _lock: Option<Lock>,
}

/// The resolved job in its folder.
pub(crate) const JOB: &str = "job.toml";

impl Context {
    /// Makes the folder, takes the lock, starts the threads. The resolved job is written where there is none, and otherwise once a
    /// stage is about to change the folder ([`Context::accept`]).
    pub(crate) fn open(job: Job) -> Result<Context> {
        let lock = lock_in(&job.out, LOCK)?.ok_or_else(|| is_held(&job.out))?;
        Context::begin(job, lock)
    }

    /// Like [`Context::open`], for a verb whose results are worth having beside a process that holds the folder: it only reads
    /// then, and records nothing.
    pub(crate) fn open_or_read(job: Job) -> Result<Context> {
        match lock_in(&job.out, LOCK)? {
            Some(lock) => Context::begin(job, lock),
            None => Context::open_to_read(job),
        }
    }

    /// For a job in a folder of this one: takes its lock.
    pub(crate) fn open_part(job: Job) -> Result<Context> {
        let lock = lock_in(&job.out, LOCK)?.ok_or_else(|| is_held(&job.out))?;
        sweep(&job.out);
        let manifest = Manifest::open(&job.out, job.store()?)?;
        Context::with_manifest(job, lock, manifest)
    }

    /// For submitting a job to its executor: takes `.submit.lock`, not `.lock`, because the submitted processes
    /// need the folder unlocked and some of them may be running already.
    pub(crate) fn open_to_submit(job: Job) -> Result<Context> {
        let lock = lock_in(&job.out, ".submit.lock")?.with_context(|| {
            format!(
                "another process is handing over the job in {}",
                job.out.display()
            )
        })?;
        // no process is working in the folder
        if lock_in(&job.out, LOCK)?.is_some() {
            sweep(&job.out);
        }
        let manifest = Manifest::open(&job.out, job.store()?)?;
        expect_whole(&job.out, &manifest)?;
        start_threads(&job)?;
        let cx = Context::with_manifest(job, lock, manifest)?;
        cx.accept()?;
        Ok(cx)
    }

    /// For changing a finished corpus: takes the lock, writes nothing.
    pub(crate) fn open_to_edit(job: Job) -> Result<Context> {
        let out = job.out.clone();
        let lock = lock_in(&out, LOCK)?.ok_or_else(|| is_held(&out))?;
        sweep(&out);
        Ok(Context {
            manifest: Manifest::open(&out, job.store()?)?,
            job,
            out,
            shards: OnceLock::new(),
            world: Mutex::new(None),
            is_pending: AtomicBool::new(false),
            only_looks: false,
            _lock: Some(lock),
        })
    }

    fn begin(job: Job, lock: Lock) -> Result<Context> {
        sweep(&job.out);
        let manifest = Manifest::open(&job.out, job.store()?)?;
        expect_whole(&job.out, &manifest)?;
        start_threads(&job)?;
        folder_lock::note(&job.out)?;
        Context::with_manifest(job, lock, manifest)
    }

    fn with_manifest(job: Job, lock: Lock, manifest: Manifest) -> Result<Context> {
        let out = job.out.clone();
        let is_first = !out.join(JOB).exists();
        let cx = Context {
            job,
            out,
            manifest,
            shards: OnceLock::new(),
            world: Mutex::new(None),
            is_pending: AtomicBool::new(true),
            only_looks: false,
            _lock: Some(lock),
        };
        if is_first {
            cx.accept()?;
        }
        Ok(cx)
    }

    /// Writes the resolved job, unless this process has done so or only reads. Stages call it once nothing can refuse the job any
    /// more and before they change a file, so that `job.toml` is always that of the results beside it.
    pub(crate) fn accept(&self) -> Result<()> {
        if !self.is_pending.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        write_atomically(&self.out.join(JOB), self.job.to_toml().as_bytes())?;
        self.manifest.share(JOB)
    }

    /// The record of a stage that need not run again. A process that owns the folder has its files brought from the store; others
    /// only look.
    ///
    /// # Errors
    /// If the store cannot be reached, or a file not be written.
    pub(crate) fn done(&self, stage: &str, print: &str) -> Result<Option<Record>> {
        match self.is_owner() {
            true => self.manifest.done(stage, print),
            false => self.manifest.found(stage, print),
        }
    }

    /// Whether this process may write records in the folder.
    pub(crate) fn is_owner(&self) -> bool {
        self._lock.is_some()
    }

    /// For a task of an executor: other tasks may be working in the folder, but no whole job.
    pub(crate) fn open_for_task(job: Job) -> Result<Context> {
        let out = job.out.clone();
        let lock_path = out.join(LOCK);
        let manifest = Manifest::open(&out, job.store()?)?;
        expect_whole(&out, &manifest)?;
        if job.store.is_some() {
            // the folder is this machine's own
            lock_in(&out, LOCK)?;
            manifest.bring(SHARDS)?;
        }
        let lock = File::open(&lock_path).map(Lock::of).with_context(|| {
            format!(
                "{} is missing; the job has not been submitted",
                lock_path.display()
            )
        })?;
        if lock.try_lock_shared().is_err() {
            bail!(
                "another process is running the whole job in {}",
                out.display()
            );
        }
        let shards = match submitted_shards(&out)? {
            Some(shards) => OnceLock::from(shards),
            None => bail!(
                "{} has no shards.json; the job has not been submitted",
                out.display()
            ),
        };
        start_threads(&job)?;
        Ok(Context {
            job,
            out,
            manifest,
            shards,
            world: Mutex::new(None),
            is_pending: AtomicBool::new(false),
            only_looks: false,
            _lock: Some(lock),
        })
    }

    /// For a process that does not own the job's folder and writes nothing there: process 1 and up of a training,
    /// or a dry run that only prints what would be submitted.
    pub(crate) fn open_to_read(job: Job) -> Result<Context> {
        start_threads(&job)?;
        Context::part_to_read(job)
    }

    fn part_to_read(job: Job) -> Result<Context> {
        let out = job.out.clone();
        Ok(Context {
            manifest: Manifest::open(&out, job.store()?)?,
            job,
            out,
            shards: OnceLock::new(),
            world: Mutex::new(None),
            is_pending: AtomicBool::new(false),
            only_looks: false,
            _lock: None,
        })
    }

    /// Like [`Context::open_to_read`], for a verb that writes nothing, also not in caches outside of the folder.
    pub(crate) fn open_to_look(job: Job) -> Result<Context> {
        start_threads(&job)?;
        Context::part_to_look(job)
    }

    /// Like [`Context::open_to_look`], for a job in a folder of this one, or before it is opened to work.
    pub(crate) fn part_to_look(job: Job) -> Result<Context> {
        Ok(Context {
            only_looks: true,
            ..Context::part_to_read(job)?
        })
    }

    /// Whether this process writes nothing at all.
    pub(crate) fn only_looks(&self) -> bool {
        self.only_looks
    }

    /// Trains with these processes.
    pub(crate) fn set_world(&self, world: ::train::dist::World) {
        *self.world.lock().unwrap_or_else(PoisonError::into_inner) = Some(world);
    }

    /// The world to train with; a world of this one process if none was set.
    pub(crate) fn take_world(&self) -> Option<::train::dist::World> {
        self.world
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// The shards of the curation, listed once per process.
    pub(crate) fn shards(&self) -> Result<&[Shard]> {
        if let Some(shards) = self.shards.get() {
            return Ok(shards);
        }
        let config = self
            .job
            .curate
            .as_ref()
            .context("the job has no [curate] table")?;
        if self._lock.is_some() {
            self.keep_crawl_lists(config)?;
        }
        let shards = ::curate::pipeline::shards_kept(config, &self.out.join(CRAWLS))?;
        Ok(self.shards.get_or_init(|| shards))
    }

    /// Fixes the files of the crawls among the inputs, once for the job: those that an earlier run or another machine asked for,
    /// else those that the servers name now.
    fn keep_crawl_lists(&self, config: &CurateConfig) -> Result<()> {
        if !config.inputs.iter().any(Input::is_crawl) {
            return Ok(());
        }
        self.manifest.bring_folder(CRAWLS)?;
        let lists = self.out.join(CRAWLS);
        let crawls = config.inputs.iter().filter(|input| input.is_crawl());
        for input in crawls {
            // one by one, so that an input that fails takes none of the lists before it along
            self.keep_crawl_list(input, &lists)?;
        }
        Ok(())
    }

    fn keep_crawl_list(&self, input: &Input, lists: &Path) -> Result<()> {
        for list in keep_crawl_lists(std::slice::from_ref(input), lists)? {
            let name = list.file.file_name().unwrap_or_default();
            // also one that was kept by a run that could not share it
            self.manifest
                .share(&format!("{CRAWLS}/{}", name.to_string_lossy()))?;
            if !list.is_new {
                continue;
            }
            let plural = if list.files == 1 { "" } else { "s" };
            let files = grouped(list.files as u64);
            let mut line = format!("{}: {files} file{plural}", list.address);
            if list.captures > 0 {
                line += &format!(", {} captures", grouped(list.captures));
            }
            for (folder, count) in &list.left_out {
                line += &format!(", {} of {folder} left out", grouped(*count));
            }
            log!("{}", ::curate::secrets::without_passwords(&line));
        }
        Ok(())
    }

    /// Seconds of all recorded stages.
    pub(crate) fn recorded_seconds(&self, stages: &[&str]) -> f64 {
        stages
            .iter()
            .filter_map(|s| self.manifest.get(s).ok()?)
            .map(|r| r.seconds)
            .sum()
    }
}

/// List of files that a takedown has not put into their places yet.
pub(crate) const PENDING: &str = "takedown/commit.json";

/// Copy of the store's folder while a takedown works on it.
pub(crate) const TAKEDOWN_COPY: &str = "takedown/copy";

/// Refuses a folder in which a takedown was killed, or one whose store a takedown changes or has left so: some of its files are
/// old, others new.
///
/// # Errors
/// Then, and if the store cannot be reached.
pub(crate) fn expect_whole(out: &Path, manifest: &Manifest) -> Result<()> {
    let place = match out.join(PENDING).exists() {
        true => Some(out.display().to_string()),
        false if manifest.is_in_store(PENDING)? => manifest.url(""),
        false => None,
    };
    match place {
        Some(place) => bail!(
            "a takedown in {place} was interrupted; run `millrace takedown` again to finish it"
        ),
        None => Ok(()),
    }
}

/// The lists of the files of crawls, as they were when the job first asked.
pub(crate) const CRAWLS: &str = "records/crawls";

/// The list of shards that tasks share.
pub(crate) const SHARDS: &str = "shards.json";

/// The shards that an executor's tasks share, if the job has been submitted.
pub(crate) fn submitted_shards(out: &Path) -> Result<Option<Vec<Shard>>> {
    let path = out.join(SHARDS);
    match std::fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text)
            .map(Some)
            .with_context(|| format!("{} is no list of shards", path.display())),
        Err(_) => Ok(None),
    }
}

/// Starts the threads that all stages share.
fn start_threads(job: &Job) -> Result<()> {
    rayon::ThreadPoolBuilder::new()
        .num_threads(job.threads)
        .build_global()
        .with_context(|| format!("cannot start {} threads", job.threads))
}

/// Folders that stages write in, below the job's own.
const FOLDERS: [&str; 19] = [
    "bad_steps",
    "checkpoints",
    "clean",
    "decontaminate",
    "dropped",
    "embeddings",
    "errors",
    "figures",
    "journal",
    "keep",
    "kubernetes",
    "profile",
    "records",
    "samples",
    "slurm",
    "statistics",
    "takedown",
    "tmp",
    "tokens",
];

/// Removes the temporary files of a killed run: files with our naming scheme, in our folders, and the copy of a killed
/// takedown, which has the removed texts. Holding the lock means that no process is writing them. Files of other programs and of
/// jobs in subfolders are left alone.
fn sweep(out: &Path) {
    // one that cannot be removed does no harm
    let _ = std::fs::remove_dir_all(out.join(TAKEDOWN_COPY));
    sweep_files(out);
    FOLDERS.iter().for_each(|name| sweep_below(&out.join(name)));
}

fn sweep_below(folder: &Path) {
    // a separate job, which may be running
    if folder.join(".lock").exists() {
        return;
    }
    sweep_files(folder);
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            sweep_below(&entry.path());
        }
    }
}

/// Removes temporary files of a killed process from a folder that this one has locked.
pub(crate) fn sweep_files(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_ours = is_temporary(&entry.file_name());
        if is_ours && entry.file_type().is_ok_and(|t| t.is_file()) {
            // a file that cannot be removed does no harm
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// `path` relative to `out`, as the manifest stores it.
pub(crate) fn relative(out: &Path, path: &Path) -> PathBuf {
    path.strip_prefix(out).unwrap_or(path).to_path_buf()
}
