//! Progress of a stage on stderr: a bar with rate and time left on a terminal, plain lines when piped.

use crate::log;
use crate::machine::{duration, grouped};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Time between plain lines.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Progress of one stage.
pub(crate) struct Progress {
    stage: String,
    unit: &'static str,
    total: u64,
    done: AtomicU64,
    /// Units done by an earlier process: they do not count in this one's rate.
    before: AtomicU64,
    started: Instant,
    bar: Option<ProgressBar>,
    last: Mutex<Instant>,
    note: Mutex<String>,
}

impl Progress {
    /// Starts a stage of `total` `unit`s (0: unknown).
    pub(crate) fn start(stage: &str, unit: &'static str, total: u64) -> Progress {
        let is_shown = std::io::stderr().is_terminal() && !log::is_quiet();
        let bar = is_shown.then(|| bar(stage, unit, total));
        let of = if total > 0 {
            format!(": {} {unit}", amount(total, unit))
        } else {
            String::new()
        };
        match &bar {
            Some(_) => log::file_line(&format!("{stage}{of}")),
            None => info!("{stage}{of}"),
        }
        let now = Instant::now();
        Progress {
            stage: stage.to_string(),
            unit,
            total,
            done: AtomicU64::new(0),
            before: AtomicU64::new(0),
            started: now,
            bar,
            last: Mutex::new(now),
            note: Mutex::default(),
        }
    }

    /// Seconds since the start.
    pub(crate) fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// `done` units were done before this stage started: rate and time left exclude them.
    pub(crate) fn begin_at(&self, done: u64) {
        self.done.store(done, Ordering::Relaxed);
        self.before.store(done, Ordering::Relaxed);
        if let Some(bar) = &self.bar {
            bar.set_position(done);
            bar.reset_eta();
        }
    }

    /// `n` more units are done.
    pub(crate) fn add(&self, n: u64) {
        self.set(self.done.fetch_add(n, Ordering::Relaxed) + n, "");
    }

    /// Sets counts that are shown beside rate and time left.
    pub(crate) fn note(&self, text: String) {
        if let Some(bar) = &self.bar {
            bar.set_message(text);
        } else if let Ok(mut note) = self.note.lock() {
            *note = text;
        }
    }

    /// Sets the number of units done; `note` is shown beside rate and time left.
    pub(crate) fn set(&self, done: u64, note: &str) {
        self.done.store(done, Ordering::Relaxed);
        if let Some(bar) = &self.bar {
            bar.set_position(done);
            if !note.is_empty() {
                bar.set_message(note.to_string());
            }
        }
        // Only one thread prints; the others would repeat it.
        let Ok(mut last) = self.last.try_lock() else {
            return;
        };
        if last.elapsed() >= LINE_EVERY {
            *last = Instant::now();
            let kept = self.note.lock().map(|n| n.clone()).unwrap_or_default();
            self.line(done, if note.is_empty() { &kept } else { note });
        }
    }

    fn line(&self, done: u64, note: &str) {
        let seconds = self.seconds().max(1e-9);
        let rate = rate(done, self.before.load(Ordering::Relaxed), seconds);
        let mut text = format!("{}: {} {}", self.stage, amount(done, self.unit), self.unit);
        if self.total > 0 {
            let left = (self.total.saturating_sub(done)) as f64 / rate.max(1e-9);
            text.push_str(&format!(
                " of {}, {} left",
                amount(self.total, self.unit),
                duration(left)
            ));
        }
        let rate = if self.unit == "MB" { rate / 1e6 } else { rate };
        let line = format!("{text}, {rate:.1} {}/s {note}", self.unit);
        match &self.bar {
            Some(_) => log::file_line(&line),
            None => info!("{line}"),
        }
    }

    /// Prints a line that stays, above the bar if there is one; `--quiet` leaves it out.
    pub(crate) fn say(&self, text: &str) {
        match &self.bar {
            Some(_) => self.warn(text),
            None => info!("{text}"),
        }
    }

    /// Prints a line that stays and that `--quiet` leaves as well.
    pub(crate) fn warn(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| log!("{text}")),
            None => log!("{text}"),
        }
    }

    /// Prints a line for `--verbose`.
    pub(crate) fn detail(&self, text: &str) {
        if log::is_verbose() {
            self.warn(text);
        }
    }

    /// Ends the stage with a line that stays; returns its seconds.
    pub(crate) fn finish(self, text: &str) -> f64 {
        let seconds = self.seconds();
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        log!("{}: {text} ({seconds:.1} s)", self.stage);
        seconds
    }
}

/// Units per second, of those done by this process.
fn rate(done: u64, before: u64, seconds: f64) -> f64 {
    done.saturating_sub(before) as f64 / seconds
}

fn amount(n: u64, unit: &str) -> String {
    if unit == "MB" {
        format!("{:.1}", n as f64 / 1e6)
    } else {
        grouped(n)
    }
}

fn bar(stage: &str, unit: &'static str, total: u64) -> ProgressBar {
    let bar = if total > 0 {
        ProgressBar::new(total)
    } else {
        ProgressBar::no_length()
    };
    bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(8));
    let shape = match total {
        0 => "{prefix:<14} {spinner} {figures} {msg}",
        _ => "{prefix:<14} {bar:24} {figures} {msg}",
    };
    let style =
        ProgressStyle::with_template(shape).unwrap_or_else(|_| ProgressStyle::default_bar());
    let figures = move |s: &ProgressState, w: &mut dyn std::fmt::Write| {
        let (done, rate) = (amount(s.pos(), unit), s.per_sec());
        let of = s
            .len()
            .map_or_else(String::new, |l| format!("/{}", amount(l, unit)));
        let rate = if unit == "MB" { rate / 1e6 } else { rate };
        let left = s.len().map_or_else(String::new, |_| {
            format!(", {} left", duration(s.eta().as_secs_f64()))
        });
        // writing to a string cannot fail
        let _ = write!(w, "{done}{of} {unit}, {rate:.1}/s{left}");
    };
    bar.set_style(style.with_key("figures", figures));
    bar.set_prefix(stage.to_string());
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_earlier_process_did_takes_none_of_this_ones_time() {
        // 10 of 110 steps in 5 s, 100 of them done before
        assert_eq!(rate(110, 100, 5.0), 2.0);
        assert_eq!(rate(10, 0, 5.0), 2.0);
        assert_eq!(rate(100, 100, 5.0), 0.0);
    }
}
