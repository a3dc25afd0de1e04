//! Progress of a training, for `status` beside it: read from files, without the lock of the run.
//!
//! The process that trains writes `records/training.json` when it starts and when it has resumed; steps are lines of
//! `metrics.jsonl`. Speed and time left are those of the steps of this process: an earlier one may have had another machine.

use crate::folder_lock::{LOCK, holder};
use crate::journal::{self, Kind, Line};
use crate::machine::{duration, grouped, write_atomically};
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use train::metrics::StepRecord;

const FILE: &str = "records/training.json";
/// Bytes of the end of `metrics.jsonl` that are read: thousands of steps.
const TAIL: u64 = 1 << 20;
/// Steps of which the mean is the speed.
const RECENT: usize = 200;

/// The process that trains, or trained last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Training {
    /// Steps in all.
    steps: u64,
    /// The last step that an earlier process did.
    after: u64,
}

impl Training {
    /// Notes that this process trains up to `steps`, after the step `after` of an earlier one (0: from the start).
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn note(out: &Path, steps: u64, after: u64) -> Result<()> {
        let text = serde_json::to_vec(&Training { steps, after })?;
        write_atomically(&out.join(FILE), &text)
    }
}

/// Seconds of the steps up to `step`, by the lines of `metrics.jsonl`; 0 without any.
pub(super) fn seconds_up_to(out: &Path, step: u64) -> f64 {
    let Ok(file) = File::open(out.join(journal::FILE)) else {
        return 0.0;
    };
    let lines = BufReader::new(file).split(b'\n').map_while(Result::ok);
    let steps = lines.filter_map(|line| Line::parse(&line));
    let own = steps.filter(|line| line.kind == Kind::Step && line.step <= step);
    own.map(|line| line.seconds()).sum()
}

/// State of a training.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct TrainingState {
    /// The last finished step.
    pub step: u64,
    /// Steps in all.
    pub steps: u64,
    /// Loss of the last step, nats per token; none if it is not finite.
    pub loss: Option<f64>,
    /// Tokens per second of recent steps of this process.
    pub tokens_per_s: Option<f64>,
    /// Seconds left at the speed of recent steps of this process, without validations; none if no process trains or it has not
    /// finished a step.
    pub eta_s: Option<f64>,
    /// Whether a process of this machine holds the folder's lock.
    pub running: bool,
    /// That process.
    pub pid: Option<u32>,
}

impl TrainingState {
    /// Reads it; none if no training has begun.
    pub(crate) fn read(out: &Path) -> Option<TrainingState> {
        let text = std::fs::read(out.join(FILE)).ok()?;
        let training: Training = serde_json::from_slice(&text).ok()?;
        let holder = holder(&out.join(LOCK));
        Some(state(&training, &tail(&out.join("metrics.jsonl")), holder))
    }

    /// A line for people.
    pub(super) fn line(&self) -> String {
        let mut text = format!("step {} of {}", grouped(self.step), grouped(self.steps));
        if let Some(loss) = self.loss {
            text += &format!(", loss {loss:.4}");
        }
        if let Some(speed) = self.tokens_per_s {
            text += &format!(", {speed:.0} tokens/s");
        }
        if let Some(eta) = self.eta_s {
            text += &format!(", {} left", duration(eta));
        }
        if let Some(pid) = self.pid {
            text += &format!(", process {pid}");
        }
        format!("training  {text}\n")
    }
}

fn state(training: &Training, lines: &[StepRecord], pid: Option<u32>) -> TrainingState {
    let last = lines.last();
    let step = last.map_or(training.after, |last| last.step);
    let own: Vec<&StepRecord> = lines
        .iter()
        .filter(|line| line.step > training.after)
        .collect();
    let recent = &own[own.len().saturating_sub(RECENT)..];
    let seconds: f64 = recent
        .iter()
        .map(|line| line.step_s + line.stall_s.unwrap_or(0.0))
        .sum();
    let per_step = (!recent.is_empty()).then(|| seconds / recent.len() as f64);
    let left = training.steps.saturating_sub(step);
    let speeds = recent.iter().map(|line| line.tokens_per_s);
    TrainingState {
        step,
        steps: training.steps,
        loss: last.map(|last| last.loss).filter(|loss| loss.is_finite()),
        tokens_per_s: per_step.map(|_| speeds.sum::<f64>() / recent.len() as f64),
        eta_s: per_step.filter(|_| pid.is_some()).map(|s| s * left as f64),
        running: pid.is_some(),
        pid,
    }
}

/// The steps at the end of `metrics.jsonl`; lines of other kinds and one that is being written are passed over.
fn tail(path: &Path) -> Vec<StepRecord> {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let start = file.metadata()?.len().saturating_sub(TAIL);
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.take(TAIL).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_default();
    let lines = bytes.split(|b| *b == b'\n');
    lines
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(step: u64, step_s: f64) -> StepRecord {
        serde_json::from_value(serde_json::json!({
            "step": step, "loss": 2.5, "grad_norm": 1.0, "lr": 0.1, "tokens": 1, "consumed_samples": 1,
            "tokens_per_s": 10.0 / step_s, "tflops": 1.0, "mfu": null, "step_s": step_s, "memory_bytes": 1
        }))
        .unwrap()
    }

    #[test]
    fn time_left_is_that_of_the_steps_of_this_process() {
        // an earlier process took 100 s a step, this one takes 2 s
        let lines: Vec<StepRecord> = (1..=10)
            .map(|step| line(step, if step <= 6 { 100.0 } else { 2.0 }))
            .collect();
        let training = Training {
            steps: 30,
            after: 6,
        };
        let found = state(&training, &lines, Some(7));
        assert_eq!((found.step, found.loss), (10, Some(2.5)));
        assert_eq!((found.eta_s, found.tokens_per_s), (Some(40.0), Some(5.0)));
        let before_its_first_step = state(&training, &lines[..6], Some(7));
        assert_eq!(
            (before_its_first_step.step, before_its_first_step.eta_s),
            (6, None)
        );
        assert_eq!(state(&training, &lines, None).eta_s, None);
    }

    #[test]
    fn seconds_of_earlier_processes_are_those_of_the_steps_that_stay() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(seconds_up_to(dir.path(), 5), 0.0);
        let step = |step| serde_json::to_string(&line(step, 2.0)).unwrap();
        let valid = r#"{"step":2,"valid_loss":2.0,"valid_samples":4}"#;
        let text = format!("{}\n{}\n{valid}\n{}\n", step(1), step(2), step(3));
        std::fs::write(dir.path().join(journal::FILE), text).unwrap();
        // step 3 is behind the checkpoint and is done again
        assert_eq!(seconds_up_to(dir.path(), 2), 4.0);
    }

    #[test]
    fn a_line_that_is_being_written_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        let whole = serde_json::to_string(&line(1, 1.0)).unwrap();
        let valid = r#"{"step":1,"valid_loss":2.0,"valid_samples":4}"#;
        std::fs::write(&path, format!("{whole}\n{valid}\n{}", &whole[..30])).unwrap();
        let steps: Vec<u64> = tail(&path).iter().map(|l| l.step).collect();
        assert_eq!(steps, [1]);
        assert!(tail(&dir.path().join("none")).is_empty());
    }
}
