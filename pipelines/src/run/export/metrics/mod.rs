//! Metrics of a run in the forms of other programs: event files of TensorBoard, JSON lines for W&B and for OpenTelemetry.
//!
//! `metrics.jsonl` has no times of day, since its bytes do not depend on the clock where they need not. They are reckoned back from
//! the time of the file's last change by the seconds of the steps; pauses between two processes of a training are not in them.

mod form;
mod open_telemetry;
mod tensorboard;
mod wandb;

use crate::job::WrongUse;
use crate::journal::{self, Follower, Kind, Line, Lines};
use crate::machine::{grouped, is_temporary, publish};
use anyhow::{Context as _, Result, bail};
use form::{Form, Moment};
use open_telemetry::OpenTelemetry;
use std::fs::File;
use std::io::{self, BufWriter, Read as _, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use tensorboard::TensorBoard;
use wandb::Wandb;

/// Form of exported metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetricsForm {
    Tensorboard,
    WandbJsonl,
    OtlpJsonl,
}

/// Exports the metrics of the run in a folder.
///
/// # Errors
/// `WrongUse` for a folder without steps, or an output that is something else; files that cannot be read or written.
pub(super) fn export(run: &Path, form: MetricsForm, out: &Path) -> Result<()> {
    let path = run.join(journal::FILE);
    let survey = survey(&path)?;
    let steps = survey
        .lines
        .iter()
        .filter(|line| line.is_kept && line.is_step);
    let steps = steps.count() as u64;
    if steps == 0 {
        let message = format!(
            "{}: found no step, want the folder of a run that has trained",
            path.display()
        );
        return Err(WrongUse::new(message).into());
    }
    let file = target(form, out)?;
    let name = run.canonicalize().unwrap_or_else(|_| run.to_owned());
    let name = name.file_name().unwrap_or_default().to_string_lossy();
    publish(&file, |file| {
        let mut buffered = BufWriter::new(file);
        let mut form: Box<dyn Form + '_> = match form {
            MetricsForm::Tensorboard => {
                Box::new(TensorBoard::begin(&mut buffered, survey.start())?)
            }
            MetricsForm::WandbJsonl => Box::new(Wandb::new(&mut buffered)),
            MetricsForm::OtlpJsonl => Box::new(OpenTelemetry::new(&mut buffered, &name)),
        };
        pass(&path, &survey, form.as_mut())?;
        form.finish()?;
        drop(form);
        buffered.flush()
    })?;
    log!("export: {} steps to {}", grouped(steps), file.display());
    Ok(())
}

/// The file to write. Something else in its place, or beside it in TensorBoard's folder, is refused.
fn target(form: MetricsForm, out: &Path) -> Result<PathBuf> {
    let refuse = |found: &str, wanted: &str| {
        let message = format!("{}: found {found}, want {wanted}", out.display());
        Err(WrongUse::new(message).into())
    };
    match form {
        MetricsForm::Tensorboard => {
            if out.is_file() {
                return refuse("a file", "a folder for the event file");
            }
            let entries = std::fs::read_dir(out).into_iter().flatten().flatten();
            let other = entries.map(|entry| entry.file_name());
            // what a killed export left is no event file
            let other = other.filter(|name| name != tensorboard::FILE && !is_temporary(name));
            match other.min() {
                Some(name) => refuse(
                    &format!("{} in it", name.display()),
                    "a folder that is new, empty, or of this export: TensorBoard shows all event files of a folder as one run",
                ),
                None => Ok(out.join(tensorboard::FILE)),
            }
        }
        MetricsForm::WandbJsonl | MetricsForm::OtlpJsonl => {
            if out.is_dir() {
                return refuse("a folder", "a file, such as run.jsonl");
            }
            match out.exists() && !is_export(form, out) {
                true => refuse("another file", "a new one, or one of this export"),
                false => Ok(out.to_owned()),
            }
        }
    }
}

/// Bytes of a file that show whether it is an export.
const START: u64 = 256;

/// Whether a file is an earlier export of metrics in this form, which is replaced.
fn is_export(form: MetricsForm, path: &Path) -> bool {
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(START).read_to_end(&mut start));
    let is_start = match form {
        // a folder's event file is known by its name
        MetricsForm::Tensorboard => return false,
        MetricsForm::WandbJsonl => wandb::is_start,
        MetricsForm::OtlpJsonl => open_telemetry::is_start,
    };
    read.is_ok() && is_start(&start)
}

/// A line of the file, without its numbers.
#[derive(Clone, Copy)]
struct Surveyed {
    step: u64,
    is_step: bool,
    /// Whether no later line stands for it.
    is_kept: bool,
    seconds: f64,
}

/// The lines of the file, read once before they are written, so that those which later ones stand for are left out.
#[derive(Default)]
struct Survey {
    lines: Vec<Surveyed>,
    /// Seconds since 1970 of the last line.
    end: f64,
    restarts: usize,
}

impl Survey {
    /// Seconds since 1970 at which the first step began.
    fn start(&self) -> f64 {
        let kept = self.lines.iter().filter(|line| line.is_kept);
        self.end - kept.map(|line| line.seconds).sum::<f64>()
    }
}

impl Lines for Survey {
    fn restart(&mut self) {
        self.lines.clear();
        self.restarts += 1;
    }

    fn line(&mut self, line: &[u8]) {
        // a line that is none has a place too, so that both passes count alike
        let Some(line) = Line::parse(line) else {
            self.lines.push(Surveyed {
                step: 0,
                is_step: false,
                is_kept: false,
                seconds: 0.0,
            });
            return;
        };
        let is_step = line.kind == Kind::Step;
        if is_step {
            let before = self.lines.iter_mut().rev();
            before
                .filter(|earlier| earlier.is_kept)
                .take_while(|earlier| earlier.step >= line.step)
                .for_each(|earlier| earlier.is_kept = false);
        }
        self.lines.push(Surveyed {
            step: line.step,
            is_step,
            is_kept: line.kind != Kind::Note,
            seconds: if is_step { line.seconds() } else { 0.0 },
        });
    }
}

fn survey(path: &Path) -> Result<Survey> {
    let mut survey = Survey::default();
    let mut follower = Follower::new(path.to_owned());
    let read = || format!("cannot read {}", path.display());
    while follower.read(&mut survey).with_context(read)?.is_behind {}
    if survey.restarts > 0 {
        bail!("{}: {MOVED}", path.display());
    }
    let end = follower.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    let since = end.duration_since(UNIX_EPOCH).unwrap_or_default();
    survey.end = since.as_secs_f64();
    Ok(survey)
}

/// Why an export of a training that resumes at this moment fails.
const MOVED: &str = "the run went back to an earlier step while it was read; export it again";

/// The second pass.
struct Passing<'a> {
    survey: &'a Survey,
    at: usize,
    moment: Moment,
    form: &'a mut dyn Form,
    failed: Option<io::Error>,
}

impl Lines for Passing<'_> {
    fn restart(&mut self) {
        self.failed = Some(io::Error::other(MOVED));
    }

    fn line(&mut self, line: &[u8]) {
        let surveyed = self.survey.lines.get(self.at);
        self.at += 1;
        // lines that came after the survey are left to the next export
        let Some(surveyed) = surveyed.filter(|surveyed| surveyed.is_kept) else {
            return;
        };
        self.moment.unix += surveyed.seconds;
        self.moment.seconds += surveyed.seconds;
        if self.failed.is_some() {
            return;
        }
        let written = match Line::parse(line) {
            Some(line) if line.step == surveyed.step => self.form.line(&line, self.moment),
            Some(_) | None => Err(io::Error::other(MOVED)),
        };
        self.failed = written.err();
    }
}

fn pass(path: &Path, survey: &Survey, form: &mut dyn Form) -> io::Result<()> {
    let mut passing = Passing {
        survey,
        at: 0,
        moment: Moment {
            unix: survey.start(),
            seconds: 0.0,
        },
        form,
        failed: None,
    };
    let mut follower = Follower::new(path.to_owned());
    while follower.read(&mut passing)?.is_behind && passing.failed.is_none() {}
    if passing.at < survey.lines.len() && passing.failed.is_none() {
        return Err(io::Error::other(MOVED));
    }
    passing.failed.map_or(Ok(()), Err)
}
