//! `train.profile`: traces of some steps, one file per rank: `profile/rank-NNN.json` under the job's folder,
//! written once the last of the steps is over or a step fails.
//!
//! Format: the JSON object form of Chrome's trace events ("Trace Event Format", complete events `X` and metadata
//! `M`; microseconds), which chrome://tracing and Perfetto open. Process: the rank; thread 0: its own, 1: the one
//! that reduces gradients. Spans nest: `step`, then its phases, layers, and within those ops (`compute`),
//! collectives, waits. Ranks of one process share a time origin, different processes do not.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use kernels::trace::{Kind, Label, Recorded, Recorder, Span, span};
use serde_json::{Value, json};

use crate::config::profile::Profile;
use crate::error::{At, Result};

/// Opens the span of a phase of a step.
pub(crate) fn phase(name: &'static str) -> Span {
    span(|| Label::new(Kind::Phase, name))
}

/// The same with a number.
pub(crate) fn numbered(name: &'static str, number: u64) -> Span {
    span(|| Label::new(Kind::Phase, name).number(number))
}

/// Opens the span of a layer's pass.
pub(crate) fn layer(name: &str, pass: &str) -> Span {
    span(|| Label::new(Kind::Phase, format!("{name} {pass}")))
}

/// Opens the span of a wait for another thread.
pub(crate) fn wait(name: &'static str) -> Span {
    span(|| Label::new(Kind::Wait, name))
}

/// Records the calling thread as its rank's first one, if the plan asks for traces. Must be called before the
/// rank's other threads are created.
pub(crate) fn prepare(profile: Profile, epoch: Instant) {
    if profile != Profile::Switch(false) {
        Recorder::new(epoch).install(0);
    }
}

/// Turns a rank's recorder on and off and writes its spans.
pub(crate) struct Tracer {
    recorder: Recorder,
    window: (u64, u64),
    rank: usize,
    path: PathBuf,
}

impl Tracer {
    /// For the calling thread, whose run begins with step `next`; None without a recorder.
    pub(crate) fn of(profile: Profile, next: u64, rank: usize, out: &Path) -> Option<Tracer> {
        let name = format!("rank-{rank:03}.json");
        Some(Tracer {
            recorder: Recorder::here()?,
            window: profile.window(next)?,
            rank,
            path: out.join("profile").join(name),
        })
    }

    /// Before step `step`.
    pub(crate) fn begin(&self, step: u64) {
        let (from, to) = self.window;
        self.recorder.set_on((from..=to).contains(&step));
    }

    /// To be called after step `step` and the work that follows it. Writes after the last step of the window or, if
    /// `is_end`, of the run.
    pub(crate) fn end(&self, step: u64, is_end: bool) -> Result<()> {
        if self.recorder.is_on() && (is_end || step == self.window.1) {
            return self.write();
        }
        Ok(())
    }

    fn write(&self) -> Result<()> {
        self.recorder.set_on(false);
        let (spans, lost) = self.recorder.take();
        let folder = self.path.parent().unwrap_or(&self.path);
        fs::create_dir_all(folder).at("create", folder)?;
        let partial = self.path.with_extension("partial");
        let file = File::create(&partial).at("create", &partial)?;
        let mut file = BufWriter::new(file);
        let written = self.write_events(&mut file, &spans, lost);
        written.and_then(|()| file.flush()).at("write", &partial)?;
        fs::rename(&partial, &self.path).at("rename", &partial)
    }

    fn write_events(
        &self,
        file: &mut impl Write,
        spans: &[Recorded],
        lost: u64,
    ) -> std::io::Result<()> {
        let (rank, about) = (self.rank, json!({ "lost_spans": lost }));
        writeln!(
            file,
            "{{\"displayTimeUnit\":\"ms\",\"otherData\":{about},\"traceEvents\":["
        )?;
        let name = |what: &str, thread: u32, name: String| json!({"ph": "M", "name": what, "pid": rank, "tid": thread, "args": { "name": name }});
        writeln!(file, "{},", name("process_name", 0, format!("rank {rank}")))?;
        writeln!(file, "{},", name("thread_name", 1, "gradient sums".into()))?;
        for span in spans {
            writeln!(file, "{},", event(rank, span))?;
        }
        writeln!(file, "{}\n]}}", name("thread_name", 0, "rank".into()))
    }
}

/// A run that fails or panics within the window still writes its spans: the step that failed is the last.
impl Drop for Tracer {
    fn drop(&mut self) {
        if self.recorder.is_on() {
            // the run's own error is the one to report
            let _ = self.write();
        }
    }
}

fn event(rank: usize, span: &Recorded) -> Value {
    let micros = |ns: u64| ns as f64 / 1e3;
    let label = &span.label;
    let category = match label.kind {
        Kind::Compute => "compute",
        Kind::Collective => "collective",
        Kind::Wait => "wait",
        Kind::Phase => "phase",
    };
    let mut args = serde_json::Map::new();
    if let Some(number) = label.number {
        args.insert("number".into(), json!(number));
    }
    if let Some(group) = label.group {
        args.insert("group".into(), json!(group));
    }
    if let Some(bytes) = label.bytes {
        args.insert("bytes".into(), json!(bytes));
    }
    json!({
        "ph": "X",
        "name": label.name,
        "cat": category,
        "pid": rank,
        "tid": span.thread,
        "ts": micros(span.start_ns),
        "dur": micros(span.end_ns - span.start_ns),
        "args": args,
    })
}
