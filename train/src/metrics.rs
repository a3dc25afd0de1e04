//! Metrics of a run: records of steps, the callbacks that receive them, and `metrics.jsonl`.
//!
//! The file has one line per step with `StepRecord`'s fields. It may be followed by a validation's line
//! `{"step","valid_loss","valid_samples"}`, with `"set"` for sets other than the blend's;
//! `{"step","checkpoint_step","checkpoint_failed"}` reports a checkpoint that could not be written;
//! `{"step","changed"}` precedes the first step of a run that resumed with other settings (`train.resume.allow`).
//! Lines are in order and each step appears once: a resumed run first truncates the file after the checkpoint's
//! step.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kernels::CpuPath;
use serde::{Deserialize, Deserializer, Serialize};

use crate::config::resume::SettingChange;
use crate::error::{At, Error, Result};
pub use crate::parallel::losses::PreferenceRecord;
pub use crate::parallel::routing::RoutingRecord;

/// One step's line in `metrics.jsonl`. The figures from `tokens_per_s` on depend on the clock and
/// the machine; the others are reproducible.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Counted from 1.
    pub step: u64,
    /// Mean over the step's tokens, nats, before the update; null if it is not finite.
    #[serde(deserialize_with = "number_or_nan")]
    pub loss: f64,
    /// L2 norm of the gradient before clipping; null if it is not finite.
    #[serde(deserialize_with = "number_or_nan")]
    pub grad_norm: f64,
    /// Learning rate of the update.
    pub lr: f64,
    /// Tokens trained on since the first step, this step included.
    pub tokens: u64,
    /// Samples used since the first step, this step included.
    pub consumed_samples: u64,
    /// Tokens of the step per second.
    pub tokens_per_s: f64,
    /// 10^12 floating-point operations per second by `Plan::flops_per_token`.
    pub tflops: f64,
    /// Model FLOPs utilisation: `tflops` over the peak of all cores of the run, as `train.peak_tflops` says
    /// or `World::measure_peak` found; null if neither is known.
    pub mfu: Option<f64>,
    /// Seconds of the step.
    pub step_s: f64,
    /// Peak bytes of tensors held at once so far, all ranks together.
    pub memory_bytes: u64,
    /// Statistics of the mixtures' routers; absent without mixtures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing: Option<RoutingRecord>,
    /// Means over preference pairs; absent unless the run learns from such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preference: Option<PreferenceRecord>,
    /// Seconds that training stood still for a checkpoint between the step before and this one;
    /// absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall_s: Option<f64>,
    /// z-loss, which `loss` does not hold; absent without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub z_loss: Option<f64>,
    /// Mean loss of each depth of multi-token prediction over the tokens that count for it, nats, which `loss` does not hold; absent
    /// without; null if it is not finite.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "numbers_or_nan"
    )]
    pub mtp_losses: Vec<f64>,
    /// Loss scale of the backward pass; absent except with fp16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<f64>,
    /// Why the step changed no weights; absent if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
}

fn number_or_nan<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

fn numbers_or_nan<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Vec<f64>, D::Error> {
    let all: Vec<Option<f64>> = Deserialize::deserialize(deserializer)?;
    Ok(all.into_iter().map(|one| one.unwrap_or(f64::NAN)).collect())
}

/// A validation's line in `metrics.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ValidationRecord {
    pub step: u64,
    /// Name of the set; absent for the blend's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
    pub valid_loss: f64,
    /// Share of questions answered right, or of preference pairs whose chosen answer has the larger reward; absent unless the
    /// model classifies or learns from pairs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_accuracy: Option<f64>,
    pub valid_samples: u64,
    /// Means over preference pairs; absent unless the run learns from such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preference: Option<PreferenceRecord>,
}

/// Settings that a resumed run changed: a line of `metrics.jsonl` before the first step they apply to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ChangeRecord<'a> {
    /// The first step that they apply to.
    pub step: u64,
    pub changed: &'a [SettingChange],
}

/// A checkpoint that could not be written: a line of `metrics.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct FailureRecord {
    /// Step during which it was noticed.
    pub step: u64,
    /// Step of the checkpoint.
    pub checkpoint_step: u64,
    pub checkpoint_failed: String,
}

/// Receives the events of a run, in order, from one thread at a time.
pub trait Events: Sync {
    /// A step ended (every `log_every`-th, and the last).
    fn step(&self, record: &StepRecord);
    /// The loss of a validation set after a step, nats per token.
    fn validation(&self, set: &str, step: u64, loss: f64);
    /// The accuracy of a validation set after a step, of a model that classifies; follows the set's loss.
    fn accuracy(&self, _set: &str, _step: u64, _accuracy: f64) {}
    /// A checkpoint is on disk.
    fn checkpoint(&self, step: u64, path: &Path);
    /// The instruction set of this process's ops, before the first step.
    fn kernels(&self, _path: &CpuPath) {}
    /// The run resumes after this step of an earlier run.
    fn resumed(&self, step: u64);
    /// A warning for the log.
    fn note(&self, note: &str);
    /// A line for the log that warns of nothing: devices, collectives, what is known already.
    fn info(&self, info: &str) {
        self.note(info);
    }
    /// Polled after every step: true ends the run with a checkpoint, from which the next run resumes.
    fn is_stop_asked(&self) -> bool {
        false
    }
    /// The watchdog has given up, and a rank of this process does not end: the run will never return, so the caller
    /// must end the program.
    fn stuck(&self, _error: &Error) {}
}

/// The open `metrics.jsonl`. Lines that a full disk refuses wait in memory and go first once there
/// is room.
pub(crate) struct Journal {
    path: PathBuf,
    inner: Mutex<Inner>,
}

struct Inner {
    file: Arc<File>,
    waiting: Vec<u8>,
}

/// Bytes of lines that may wait.
const MOST_WAITING: usize = 16 << 20;

#[derive(Deserialize)]
struct Line {
    step: u64,
}

impl Journal {
    /// Opens the file and drops everything after the lines of `step`; creates it if missing.
    pub(crate) fn resume(path: &Path, step: u64) -> Result<Journal> {
        let mut options = OpenOptions::new();
        let mut file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .at("open", path)?;
        let end = end_of_step(&file, step).at("read", path)?;
        file.set_len(end).at("truncate", path)?;
        file.seek(SeekFrom::Start(end)).at("seek in", path)?;
        if let Some(folder) = path.parent() {
            File::open(folder)
                .and_then(|folder| folder.sync_all())
                .at("sync", folder)?;
        }
        Ok(Journal {
            path: path.to_owned(),
            inner: Mutex::new(Inner {
                file: Arc::new(file),
                waiting: Vec::new(),
            }),
        })
    }

    /// Appends one line. If the line has to wait in memory, returns the reason.
    ///
    /// # Errors
    /// If more lines wait than `MOST_WAITING` allows.
    pub(crate) fn write(&self, record: &impl Serialize) -> Result<Option<Error>> {
        let mut line = serde_json::to_string(record).expect("records are plain numbers");
        line.push('\n');
        let mut inner = self.inner();
        inner.waiting.extend_from_slice(line.as_bytes());
        match inner.flush().at("write", &self.path) {
            Ok(()) => Ok(None),
            Err(error) if inner.waiting.len() > MOST_WAITING => Err(error),
            Err(error) => Ok(Some(error)),
        }
    }

    /// Syncs the lines to disk; must precede the checkpoint that relies on them.
    pub(crate) fn sync(&self) -> Result<()> {
        let file = {
            let mut inner = self.inner();
            inner.flush().at("write", &self.path)?;
            Arc::clone(&inner.file)
        };
        // the next line need not wait for the disk
        file.sync_data().at("sync", &self.path)
    }

    // a panic elsewhere leaves the file and the waiting bytes consistent
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Writes as much as the disk takes.
    fn flush(&mut self) -> std::io::Result<()> {
        while !self.waiting.is_empty() {
            match (&*self.file).write(&self.waiting) {
                Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
                Ok(bytes) => drop(self.waiting.drain(..bytes)),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Byte after the last whole line of a step up to `step`.
fn end_of_step(file: &File, step: u64) -> std::io::Result<u64> {
    let mut reader = BufReader::new(file);
    let (mut end, mut line) = (0, Vec::new());
    loop {
        line.clear();
        let bytes = reader.read_until(b'\n', &mut line)?;
        let is_kept = line.ends_with(b"\n")
            && serde_json::from_slice::<Line>(&line).is_ok_and(|line| line.step <= step);
        if !is_kept {
            return Ok(end);
        }
        end += bytes as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(step: u64) -> ValidationRecord {
        ValidationRecord {
            step,
            set: None,
            valid_loss: 1.5,
            valid_accuracy: None,
            valid_samples: 2,
            preference: None,
        }
    }

    fn journal_after(text: &str, step: u64) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        std::fs::write(&path, text).unwrap();
        let journal = Journal::resume(&path, step).unwrap();
        journal.write(&line(step + 1)).unwrap();
        std::fs::read_to_string(&path).unwrap()
    }

    #[test]
    fn resume_cuts_behind_the_checkpoint_and_appends() {
        let found = journal_after("{\"step\":1}\n{\"step\":2,\"a\":0}\n{\"step\":3}\n", 2);
        let want = "{\"step\":1}\n{\"step\":2,\"a\":0}\n\
                    {\"step\":3,\"valid_loss\":1.5,\"valid_samples\":2}\n";
        assert_eq!(found, want);
    }

    #[test]
    fn resume_drops_a_half_written_line() {
        let found = journal_after("{\"step\":1}\n{\"step\":2", 2);
        assert!(found.starts_with("{\"step\":1}\n{\"step\":3,"));
    }

    #[test]
    fn step_records_have_exactly_the_promised_names() {
        let mut record = StepRecord {
            step: 1,
            loss: 0.1,
            grad_norm: 0.0,
            lr: 0.0,
            tokens: 0,
            consumed_samples: 0,
            tokens_per_s: 0.0,
            tflops: 0.0,
            mfu: None,
            step_s: 0.0,
            memory_bytes: 0,
            routing: None,
            preference: None,
            stall_s: None,
            z_loss: None,
            mtp_losses: Vec::new(),
            loss_scale: None,
            skipped: None,
        };
        let names = "step loss grad_norm lr tokens consumed_samples tokens_per_s tflops mfu step_s \
                     memory_bytes";
        let value = serde_json::to_value(&record).unwrap();
        let found: Vec<&str> = value
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(found, names.split_whitespace().collect::<Vec<_>>());
        assert!(value["mfu"].is_null());

        (record.loss, record.mtp_losses) = (f64::NAN, vec![2.5, f64::INFINITY]);
        let line = serde_json::to_string(&record).unwrap();
        let read: StepRecord = serde_json::from_str(&line).unwrap();
        assert!(read.loss.is_nan() && read.mtp_losses[1].is_nan());
        assert_eq!(read.mtp_losses[0], 2.5);
    }
}
