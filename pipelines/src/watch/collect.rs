//! The thread that reads the runs, and the table that it fills for the routes.

use super::curves::Curves;
use super::find::Given;
use super::state::{Row, RunFiles};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Time between two looks at the files.
const EVERY: Duration = Duration::from_secs(1);
/// Time between two searches for runs below the given folders, at least.
const SEARCH_EVERY: Duration = Duration::from_secs(3);

/// A run with its curves.
pub(super) struct Watched {
    pub row: Row,
    pub curves: Curves,
}

/// All runs, in the order of the command line.
#[derive(Default)]
pub(super) struct Table {
    pub runs: Vec<Watched>,
}

impl Table {
    /// The run of this name.
    pub(super) fn run(&self, name: &str) -> Option<&Watched> {
        self.runs.iter().find(|run| run.row.run == name)
    }
}

/// The table as threads share it.
pub(super) struct Shared {
    table: Mutex<Table>,
    /// Grows with each change of the table.
    version: watch::Sender<u64>,
}

impl Shared {
    fn new() -> Arc<Shared> {
        Arc::new(Shared {
            table: Mutex::default(),
            version: watch::Sender::new(0),
        })
    }

    // a panic of a reader of the table leaves it as it was
    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of changes so far.
    pub(super) fn version(&self) -> u64 {
        *self.version.borrow()
    }

    /// Wakes at each change.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }
}

/// Reads the runs of the given paths.
struct Collector {
    given: Vec<Given>,
    files: Vec<RunFiles>,
    /// When runs are searched for again.
    next_search: Option<Instant>,
    shared: Arc<Shared>,
}

impl Collector {
    /// Looks at all runs once; true if more is there already.
    fn look(&mut self) -> bool {
        let is_due = self.next_search.is_none_or(|at| Instant::now() >= at);
        let mut has_changed = is_due && self.search();
        let mut is_behind = false;
        for (at, files) in self.files.iter_mut().enumerate() {
            // files are read without the table's lock
            let look = files.look();
            is_behind |= look.is_behind;
            has_changed |= look.has_news;
            let mut table = self.shared.table();
            let run = &mut table.runs[at];
            look.batch.apply(&mut run.curves);
            let row = files.row(&run.curves);
            if row != run.row {
                run.row = row;
                has_changed = true;
            }
        }
        if has_changed {
            self.shared.version.send_modify(|version| *version += 1);
        }
        is_behind
    }

    /// Takes in runs that have come and lets go of those that are gone; true if there were any.
    fn search(&mut self) -> bool {
        let started = Instant::now();
        let mut found: Vec<PathBuf> = Vec::new();
        for path in self.given.iter().flat_map(Given::runs) {
            if !found.contains(&path) {
                found.push(path);
            }
        }
        // a tenth of the time at most goes into searches
        let pause = 10 * started.elapsed().min(Duration::from_secs(60));
        self.next_search = Some(Instant::now() + pause.max(SEARCH_EVERY));
        let is_same = found.iter().eq(self.files.iter().map(RunFiles::out));
        if is_same {
            return false;
        }
        let mut table = self.shared.table();
        let files = std::mem::take(&mut self.files);
        let mut old: Vec<(RunFiles, Watched)> =
            files.into_iter().zip(table.runs.drain(..)).collect();
        for path in found {
            let known = old.iter().position(|(files, _)| *files.out() == path);
            let (files, run) = match known {
                Some(at) => old.swap_remove(at),
                None => {
                    let name = self.name_of(&path);
                    let files = RunFiles::new(name, path);
                    let curves = Curves::default();
                    let row = files.row(&curves);
                    (files, Watched { row, curves })
                }
            };
            self.files.push(files);
            table.runs.push(run);
        }
        true
    }

    /// The path as text, with a number behind it if another run has the same, as paths that are no Unicode may.
    fn name_of(&self, path: &std::path::Path) -> String {
        let text = path.display().to_string();
        let is_taken = |name: &str| self.files.iter().any(|files| files.name() == name);
        let numbered = (2..).map(|n| format!("{text} ({n})"));
        let mut names = std::iter::once(text.clone()).chain(numbered);
        names.find(|name| !is_taken(name)).unwrap_or(text)
    }
}

/// The thread that reads; it ends after this is dropped.
pub(super) struct Reading {
    pub shared: Arc<Shared>,
    /// There as long as the thread runs.
    pub is_alive: Weak<()>,
    _end: Sender<()>,
}

impl Reading {
    /// Looks at the runs once, then again every second on a thread of its own.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(super) fn start(given: Vec<Given>) -> std::io::Result<Reading> {
        let mut collector = Collector::new(given);
        let shared = Arc::clone(&collector.shared);
        let is_behind = collector.look();
        let alive = Arc::new(());
        let is_alive = Arc::downgrade(&alive);
        let (end, ended) = channel();
        std::thread::Builder::new()
            .name("watch".to_owned())
            .spawn(move || {
                let _alive = alive;
                collector.run(&ended, is_behind);
            })?;
        Ok(Reading {
            shared,
            is_alive,
            _end: end,
        })
    }
}

impl Collector {
    fn new(given: Vec<Given>) -> Collector {
        Collector {
            given,
            files: Vec::new(),
            next_search: None,
            shared: Shared::new(),
        }
    }

    fn run(&mut self, ended: &Receiver<()>, mut is_behind: bool) {
        loop {
            let pause = if is_behind { Duration::ZERO } else { EVERY };
            match ended.recv_timeout(pause) {
                Err(RecvTimeoutError::Timeout) => is_behind = self.look(),
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

/// The rows of the runs as they are at this moment.
pub(super) fn rows(given: Vec<Given>) -> Vec<Row> {
    let mut collector = Collector::new(given);
    while collector.look() {}
    let table = collector.shared.table();
    table.runs.iter().map(|run| run.row.clone()).collect()
}
