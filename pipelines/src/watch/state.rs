//! A run's row in the table: its state, progress, checkpoint, curation. It is read from the files of the run, as `status` does, and
//! only from those that have changed.

use super::clock;
use super::curation::{Curation, CurationState};
use super::curves::{Curves, NotFinite, Note};
use crate::folder_lock::{LOCK, holder};
use crate::job::Job;
use crate::journal::Line;
use crate::journal::{self, Follower, Lines};
use crate::manifest::{Manifest, shards_of};
use crate::run::{Failure, TrainingState, job_at, stages};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time for which a run that another machine writes counts as running after its last line.
const ELSEWHERE: Duration = Duration::from_secs(60);

/// State of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    /// It has not begun.
    Waiting,
    /// A process of this machine holds its lock, or its files grow though none does.
    Running,
    /// It has begun, is not done, and no process is known to work on it.
    Stopped,
    /// A stage failed.
    Failed,
    /// All its stages are done.
    Done,
}

/// A run in the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    /// Name: the path as it was given, or found below one that was given.
    pub run: String,
    /// `name` of the job.
    pub job: Option<String>,
    pub state: State,
    /// The first stage that is not done.
    pub stage: Option<&'static str>,
    pub stages_done: Vec<&'static str>,
    /// The error of a failed stage, or why files cannot be read.
    pub error: Option<String>,
    /// The last finished step; steps in all.
    pub step: Option<u64>,
    pub steps: Option<u64>,
    /// Of the last step, nats per token.
    pub loss: Option<f64>,
    /// Of the last validation, nats per token.
    pub valid_loss: Option<f64>,
    pub tokens: Option<f64>,
    /// Mean of recent steps of the running process.
    pub tokens_per_s: Option<f64>,
    /// Seconds left; none if no process of this machine trains.
    pub eta_s: Option<f64>,
    /// Process of this machine that holds the run's lock.
    pub pid: Option<u32>,
    /// Step of the newest checkpoint; its files are not verified.
    pub checkpoint: Option<u64>,
    /// Device and ranks of the job.
    pub device: Option<String>,
    pub ranks: Option<usize>,
    /// Peak bytes: of tensors, all ranks together, or, before a training, of the process of a stage.
    pub memory_bytes: Option<f64>,
    pub mfu: Option<f64>,
    /// Seconds since 1970 at which the metrics changed last.
    pub changed: Option<u64>,
    pub curation: Option<CurationState>,
    /// Fields that have curves.
    pub fields: Vec<String>,
    pub not_finite: Option<NotFinite>,
    pub notes: Vec<Note>,
}

/// Lines of a call of [`Follower::read`].
#[derive(Default)]
pub(super) struct Batch {
    is_restart: bool,
    lines: Vec<Line>,
}

impl Batch {
    /// Adds the lines to the curves.
    pub(super) fn apply(self, curves: &mut Curves) {
        if self.is_restart {
            curves.restart();
        }
        self.lines.into_iter().for_each(|line| curves.add(line));
    }
}

impl Lines for Batch {
    fn restart(&mut self) {
        self.is_restart = true;
        self.lines.clear();
    }

    fn line(&mut self, line: &[u8]) {
        self.lines.extend(Line::parse(line));
    }
}

/// Times of change of the files behind a row.
#[derive(Clone, Debug, Default, PartialEq)]
struct Stamp {
    files: Vec<Option<SystemTime>>,
    pid: Option<u32>,
}

/// Files whose change makes the facts be read again; the times of the second and the third have functions of [`Stamp`].
const FILES: [&str; 5] = [
    "job.toml",
    "manifest.json",
    "records/failed",
    "records/training.json",
    "checkpoints",
];

impl Stamp {
    fn of(out: &Path) -> Stamp {
        let modified = |name: &str| {
            let metadata = std::fs::metadata(out.join(name));
            metadata.and_then(|metadata| metadata.modified()).ok()
        };
        Stamp {
            files: FILES.iter().map(|name| modified(name)).collect(),
            pid: holder(&out.join(LOCK)),
        }
    }

    /// When the manifest changed last.
    fn manifest(&self) -> Option<SystemTime> {
        self.files.get(1).copied().flatten()
    }

    /// When a failure was written or overcome last.
    fn failed(&self) -> Option<SystemTime> {
        self.files.get(2).copied().flatten()
    }

    /// Whether any later change of the files shows in it.
    fn is_settled(&self) -> bool {
        !self.files.iter().flatten().copied().any(clock::is_recent)
    }
}

/// Facts about a run beside its curves.
#[derive(Default)]
struct Facts {
    job: Option<Job>,
    /// Why the job cannot be read.
    job_error: Option<String>,
    stages_done: Vec<&'static str>,
    failures: Vec<String>,
    dedup: Option<serde_json::Value>,
    /// Shards of the finished curation.
    curated: Option<usize>,
    peak_rss_bytes: Option<u64>,
    checkpoint: Option<u64>,
    training: Option<TrainingState>,
}

/// The files of a run.
pub(super) struct RunFiles {
    name: String,
    out: PathBuf,
    follower: Follower,
    curation: Curation,
    stamp: Stamp,
    /// Whether the facts are read again only when the stamp changes.
    is_settled: bool,
    facts: Facts,
    metrics_error: Option<String>,
    /// Until when the run counts as running elsewhere.
    elsewhere: Option<Instant>,
}

/// The outcome of a look at a run's files.
pub(super) struct Look {
    pub batch: Batch,
    /// Whether the curves change.
    pub has_news: bool,
    /// Whether more lines are there already.
    pub is_behind: bool,
}

impl RunFiles {
    pub(super) fn new(name: String, out: PathBuf) -> RunFiles {
        RunFiles {
            name,
            follower: Follower::new(out.join(journal::FILE)),
            out,
            curation: Curation::default(),
            stamp: Stamp::default(),
            is_settled: false,
            facts: Facts::default(),
            metrics_error: None,
            elsewhere: None,
        }
    }

    pub(super) fn out(&self) -> &Path {
        &self.out
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Reads what has changed.
    pub(super) fn look(&mut self) -> Look {
        let mut batch = Batch::default();
        let followed = self.follower.read(&mut batch);
        self.metrics_error = (followed.as_ref().err())
            .map(|e| format!("{}: {e}", self.out.join(journal::FILE).display()));
        let has_grown = followed.as_ref().is_ok_and(|f| f.has_changed);
        let is_behind = followed.is_ok_and(|f| f.is_behind);
        let stamp = Stamp::of(&self.out);
        // lines that came while no process of this machine held the lock, neither now nor at the look before
        let is_foreign = has_grown && stamp.pid.is_none() && self.stamp.pid.is_none();
        if is_foreign && self.stamp != Stamp::default() && self.is_fresh() {
            self.elsewhere = Some(Instant::now() + ELSEWHERE);
        }
        let is_other_job = stamp.files.first() != self.stamp.files.first();
        if stamp != self.stamp || !self.is_settled {
            self.is_settled = stamp.is_settled();
            self.facts = Facts::read(&self.out);
            self.stamp = stamp;
        } else if has_grown {
            self.facts.training = TrainingState::read(&self.out);
        }
        if let Some(job) = &self.facts.job {
            if is_other_job {
                self.curation = Curation::default();
            }
            self.curation.look(job, &self.out, self.facts.curated);
        }
        Look {
            batch,
            has_news: has_grown,
            is_behind,
        }
    }

    /// Whether the metrics changed within the time that a foreign run has for a line.
    fn is_fresh(&self) -> bool {
        let modified = self.follower.modified();
        modified.is_some_and(|at| at.elapsed().is_ok_and(|age| age < ELSEWHERE))
    }

    /// The row, with the last numbers of the curves.
    pub(super) fn row(&self, curves: &Curves) -> Row {
        let facts = &self.facts;
        let job = facts.job.as_ref();
        let training = facts.training.as_ref();
        let stages: Vec<&'static str> = (job.map(stages).into_iter().flatten())
            .filter_map(|(name, is_there)| is_there.then_some(name))
            .collect();
        let is_done = |name: &&'static str| facts.stages_done.contains(name);
        let stage = stages.iter().copied().find(|name| !is_done(name));
        let last_step = curves.get("loss").and_then(|curve| curve.last());
        let error = facts.failures.first().or(self.metrics_error.as_ref());
        let seconds = |at: SystemTime| at.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        Row {
            run: self.name.clone(),
            job: job.map(|job| job.name.clone()),
            state: self.state(!stages.is_empty() && stage.is_none()),
            stage,
            stages_done: stages.iter().copied().filter(is_done).collect(),
            error: error.or(facts.job_error.as_ref()).cloned(),
            step: (training.map(|t| t.step)).or(last_step.map(|point| point.step)),
            steps: training.map(|t| t.steps),
            // of a step whose loss is not finite there is none
            loss: training.map_or(curves.last("loss"), |t| t.loss),
            valid_loss: curves.last("valid_loss"),
            tokens: curves.last("tokens"),
            tokens_per_s: training.and_then(|t| t.tokens_per_s),
            eta_s: training.and_then(|t| t.eta_s),
            pid: self.stamp.pid,
            checkpoint: facts.checkpoint,
            device: job.and_then(device),
            ranks: job
                .filter(|job| job.train.is_some())
                .map(|job| job.parallel.world()),
            memory_bytes: curves
                .last("memory_bytes")
                .or(facts.peak_rss_bytes.map(|bytes| bytes as f64)),
            mfu: curves.last("mfu"),
            changed: self.follower.modified().map(seconds),
            curation: job.and_then(|job| {
                let is_done = facts.stages_done.contains(&"curate");
                let done = self.stamp.manifest().filter(|_| is_done);
                self.curation.state(job, done, facts.dedup.as_ref())
            }),
            fields: curves.names().map(str::to_owned).collect(),
            not_finite: curves.not_finite(),
            notes: curves.notes(),
        }
    }

    fn state(&self, is_done: bool) -> State {
        let has_begun =
            self.follower.modified().is_some() || self.stamp.files.iter().any(Option::is_some);
        let is_failed = !self.facts.failures.is_empty();
        // records of an earlier process end nothing: a stage that is run again keeps its record until it is done
        let ended = self.stamp.manifest().max(self.stamp.failed());
        let is_over = (is_failed || is_done) && ended >= self.follower.modified();
        if self.stamp.pid.is_some() {
            State::Running
        } else if !has_begun {
            State::Waiting
        } else if !is_over && self.elsewhere.is_some_and(|end| Instant::now() < end) {
            State::Running
        } else if is_failed {
            State::Failed
        } else if is_done {
            State::Done
        } else {
            State::Stopped
        }
    }
}

/// Name of the device that a job trains on.
fn device(job: &Job) -> Option<String> {
    let name = serde_json::to_value(job.device).ok()?;
    name.as_str().map(str::to_owned)
}

impl Facts {
    fn read(out: &Path) -> Facts {
        let mut facts = Facts::default();
        if out.join("job.toml").is_file() {
            match job_at(out, &[]) {
                Ok(job) => facts.job = Some(job),
                Err(e) => facts.job_error = Some(e.to_string()),
            }
        }
        facts.training = TrainingState::read(out);
        facts.checkpoint = newest_checkpoint(&out.join("checkpoints"));
        let Some(job) = &facts.job else {
            return facts;
        };
        // the records of this folder; a store is not asked, as it may be far
        let Ok(manifest) = Manifest::open(out, None) else {
            return facts;
        };
        for (stage, _) in stages(job) {
            if let Some(failure) = Failure::read(out, stage) {
                facts.failures.push(format!("{stage}: {}", failure.error));
                continue;
            }
            if let Ok(Some(record)) = manifest.get(stage) {
                facts.stages_done.push(stage);
                facts.peak_rss_bytes = facts.peak_rss_bytes.max(Some(record.peak_rss_bytes));
                match stage {
                    "curate" => facts.curated = shards_of(&record.counts),
                    "dedup" => facts.dedup = Some(record.counts),
                    _ => {}
                }
            }
        }
        facts
    }
}

/// Step of the newest checkpoint by the names in the folder; one that is being written has another name.
fn newest_checkpoint(folder: &Path) -> Option<u64> {
    let entries = std::fs::read_dir(folder).ok()?;
    let step = |path: PathBuf| {
        let digits = path.file_name()?.to_str()?.strip_prefix("step-")?;
        let step = digits.parse().ok()?;
        (train::checkpoint::path_of(folder, step) == path).then_some(step)
    };
    entries
        .flatten()
        .filter_map(|entry| step(entry.path()))
        .max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_elsewhere_runs_until_a_record_that_is_newer_than_its_lines_ends_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, seconds: u64| {
            let file = std::fs::File::create(dir.path().join(name)).unwrap();
            let at = UNIX_EPOCH + Duration::from_secs(seconds);
            file.set_modified(at).unwrap();
        };
        let mut run = RunFiles::new("run".to_owned(), dir.path().to_owned());
        run.elsewhere = Some(Instant::now() + ELSEWHERE);
        file("manifest.json", 2000);
        file("metrics.jsonl", 1000);
        run.look();
        assert_eq!(run.state(true), State::Done);
        assert_eq!(run.state(false), State::Running);
        file("metrics.jsonl", 3000);
        run.look();
        assert_eq!(run.state(true), State::Running);
    }
}
