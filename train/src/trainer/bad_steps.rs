//! Dumps the batch of a step whose update was skipped, for inspection: `bad_steps/step-NNNNNNNN.json` with the
//! step, loss, gradient norm, the reason, and the samples as the trainer read them. Losses are text, as JSON has no
//! NaN. The same bytes from every layout.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::json;

use crate::checkpoint::write::sync;
use crate::config::plan::Plan;
use crate::data::{Sample, Samples};
use crate::error::{At, Error, Result};
use crate::optim::next_step::Next;
use crate::trainer::step::Outcome;

#[derive(Serialize)]
struct Line<'a> {
    index: u64,
    #[serde(flatten)]
    sample: &'a Sample,
}

/// Path of a step's dump under the job's folder.
pub(crate) fn path_of(out: &Path, step: u64) -> PathBuf {
    let name = format!("step-{step:08}.json");
    out.join("bad_steps").join(name)
}

/// Writes the batch of step `next` under `out`.
pub(crate) fn write(
    out: &Path,
    samples: &dyn Samples,
    plan: &Plan,
    next: &Next,
    (outcome, reason): (&Outcome, &str),
) -> Result<()> {
    let path = path_of(out, next.step);
    let folder = path.parent().unwrap_or(out);
    fs::create_dir_all(folder).at("create", folder)?;
    let partial = path.with_extension("partial");
    let mut file = BufWriter::new(File::create(&partial).at("create", &partial)?);
    let head = json!({
        "step": next.step,
        "reason": reason,
        "loss": outcome.loss.to_string(),
        "grad_norm": outcome.grad_norm.to_string(),
        "lr": next.rate,
    });
    let mut head = head.to_string();
    head.truncate(head.len() - 1);
    write!(file, "{head},\"samples\":[").at("write", &partial)?;
    let mut sample = Sample::of(plan);
    for offset in 0..next.batch as u64 {
        let index = next.first + offset;
        let read = samples.read(index, &mut sample);
        read.map_err(|source| Error::Sample {
            sample: index,
            source,
        })?;
        let sample = &sample;
        let line = serde_json::to_string(&Line { index, sample }).expect("samples are numbers");
        let comma = if offset == 0 { "" } else { "," };
        write!(file, "{comma}\n{line}").at("write", &partial)?;
    }
    writeln!(file, "\n]}}").at("write", &partial)?;
    let file = file
        .into_inner()
        .map_err(std::io::IntoInnerError::into_error);
    let synced = file.and_then(|file| file.sync_all());
    synced.at("sync", &partial)?;
    fs::rename(&partial, &path).at("rename", &partial)?;
    sync(folder)
}
