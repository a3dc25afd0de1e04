//! Output: log lines on stderr, results on stdout.
//!
//! `eprintln!` panics when stderr cannot be written, as with a log file on a full disk or after `2>&1 | head -1`. A
//! job must not end because its log cannot be written, so such a line is dropped. Lints forbid `eprintln!`
//! everywhere else.
//!
//! There is one stderr per process, and so one choice of what goes there (`--quiet`, `--verbose`, `--log`), which the command line makes
//! before anything is logged. `log!` writes what is always shown: errors, notes, results. `info!` is left out by `--quiet`, and
//! `detail!` is written with `--verbose` alone.

use anyhow::{Context as _, Result};
use std::borrow::Cow;
use std::cell::Cell;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::{Mutex, OnceLock};

/// How much is written to stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Errors, notes and results.
    Quiet,
    /// Progress as well.
    Usual,
    /// Details as well.
    Verbose,
}

struct Output {
    level: Level,
    file: Option<Mutex<File>>,
    has_colours: bool,
}

static OUTPUT: OnceLock<Output> = OnceLock::new();

thread_local! {
    /// Whether this thread's lines are dropped.
    static IS_MUTED: Cell<bool> = const { Cell::new(false) };
}

/// Fixes what is written, and where, for the rest of the process. Lines are appended to `file` as well.
///
/// # Errors
/// The file cannot be opened.
pub(crate) fn set_up(level: Level, file: Option<&Path>) -> std::io::Result<()> {
    let open = |path| File::options().append(true).create(true).open(path);
    let file = file.map(open).transpose()?.map(Mutex::new);
    let is_wanted = |name: &str| std::env::var_os(name).is_none_or(|value| value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    let has_colours = std::io::stderr().is_terminal() && is_wanted("NO_COLOR") && !is_dumb;
    // a second call in one process would be the one of a test
    let _ = OUTPUT.set(Output {
        level,
        file,
        has_colours,
    });
    Ok(())
}

fn level() -> Level {
    OUTPUT.get().map_or(Level::Usual, |output| output.level)
}

/// Whether progress is left out.
pub(crate) fn is_quiet() -> bool {
    level() == Level::Quiet
}

/// Whether details are written.
pub(crate) fn is_verbose() -> bool {
    level() == Level::Verbose
}

/// Calls `work`, and drops the lines that this thread logs meanwhile.
pub(crate) fn muted<T>(work: impl FnOnce() -> T) -> T {
    let was = IS_MUTED.replace(true);
    let done = work();
    IS_MUTED.set(was);
    done
}

/// Writes a line to stderr, and to the file of `--log`; control characters of foreign text, which could steer a terminal, are
/// escaped, and errors of the system are in plain words.
pub(crate) fn line(text: &str) {
    if IS_MUTED.get() {
        return;
    }
    let text = printable(&plain(text));
    let has_colours = OUTPUT.get().is_some_and(|output| output.has_colours);
    let mut line = match has_colours {
        true => coloured(&text),
        false => text.clone(),
    };
    line.push('\n');
    // one write, so that lines of several threads do not mix; a failure cannot be reported anywhere
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
    to_file(&text);
}

/// Writes a line of progress.
pub(crate) fn info_line(text: &str) {
    match is_quiet() {
        true => file_line(text),
        false => line(text),
    }
}

/// Writes a line to the file of `--log` alone, if there is one.
pub(crate) fn file_line(text: &str) {
    if !IS_MUTED.get() {
        to_file(&printable(&plain(text)));
    }
}

/// Appends lines with the time to the file of `--log`.
fn to_file(text: &str) {
    let file = OUTPUT.get().and_then(|output| output.file.as_ref());
    let Some(mut file) = file.and_then(|file| file.lock().ok()) else {
        return;
    };
    // a full disk takes lines of the log, never the job
    let _ = file.write_all(stamped(text, &now()).as_bytes());
}

/// This moment in UTC: `2026-01-31T23:59:59Z`.
fn now() -> String {
    let now = chrono::Utc::now();
    now.format("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Every line of `text` behind the time.
fn stamped(text: &str, time: &str) -> String {
    let lines = text.split('\n');
    lines.map(|line| format!("{time} {line}\n")).collect()
}

/// Words that begin an error or a note, and the codes of their colours: red, yellow.
const COLOURS: [(&str, &str); 2] = [("error:", "31"), ("note:", "33")];

/// `text` with the first word for an error or a note, at its beginning or behind the names of a stage, in its colour.
fn coloured(text: &str) -> String {
    for (word, code) in COLOURS {
        let at = text.find(word);
        let at = at.filter(|at| *at == 0 || text[..*at].ends_with(": "));
        if let Some(at) = at {
            let (before, behind) = (&text[..at], &text[at + word.len()..]);
            return format!("{before}\u{1b}[1;{code}m{word}\u{1b}[0m{behind}");
        }
    }
    text.to_owned()
}

/// `text` with control characters, other than line feeds and tabs, as `\u{1b}`.
pub(crate) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => out.push(c),
            c if c.is_control() => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

/// Before the number of an error of the system, as the standard library prints it.
const NUMBER: &str = " (os error ";
/// Errors of the system in words that everybody reads.
const WORDS: [(&str, &str); 6] = [
    ("No such file or directory", "no such file or folder"),
    ("Is a directory", "is a folder, wanted a file"),
    (
        "Not a directory",
        "a part of the path is a file, not a folder",
    ),
    ("Permission denied", "permission denied"),
    ("File exists", "there is a file of this name"),
    ("Read-only file system", "the file system cannot be written"),
];

/// `text` with the system's errors in plain words: `x: No such file or directory (os error 2)` becomes `x: no such file or folder`.
/// The words of rarer errors stay, without the number.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(NUMBER) {
        return Cow::from(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(NUMBER) {
        let (before, behind) = (&rest[..at], &rest[at + NUMBER.len()..]);
        let end = behind.find(|c: char| !c.is_ascii_digit());
        let end = end.filter(|end| *end > 0 && behind[*end..].starts_with(')'));
        let Some(end) = end else {
            out.push_str(&rest[..at + NUMBER.len()]);
            rest = behind;
            continue;
        };
        let found = WORDS.iter().find_map(|(theirs, ours)| {
            let start = before.strip_suffix(theirs)?;
            Some((start, *ours))
        });
        let (start, words) = found.unwrap_or((before, ""));
        out.push_str(start);
        out.push_str(words);
        rest = &behind[end + 1..];
    }
    out.push_str(rest);
    Cow::from(out)
}

/// A line on stderr, with the arguments of `format!`.
macro_rules! log {
    ($($arg:tt)*) => { $crate::log::line(&format!($($arg)*)) };
}

/// A line of progress on stderr, which `--quiet` leaves out, with the arguments of `format!`.
macro_rules! info {
    ($($arg:tt)*) => { $crate::log::info_line(&format!($($arg)*)) };
}

/// A line of details on stderr, for `--verbose` alone, with the arguments of `format!`.
macro_rules! detail {
    ($($arg:tt)*) => {
        if $crate::log::is_verbose() {
            $crate::log::line(&format!($($arg)*))
        }
    };
}

/// Text to stdout, where results go. A terminal gets control characters of foreign text escaped.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let text = match out.is_terminal() {
        true => Cow::from(printable(text)),
        false => Cow::from(text),
    };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // the reader of a pipe may close it early, as `head` does
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write to stdout"),
    }
}

/// The error with its causes; a cause whose text the message already contains is not repeated.
pub(crate) fn message(e: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in e.chain().map(ToString::to_string) {
        if !text.contains(&cause) {
            let separator = if text.is_empty() { "" } else { ": " };
            text.push_str(&format!("{separator}{cause}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_system_are_plain_words_without_numbers() {
        let gone = std::fs::read("/nowhere/x").unwrap_err().to_string();
        let folder = std::fs::write("/", "").unwrap_err().to_string();
        for (text, want) in [
            (format!("x: {gone}"), "x: no such file or folder"),
            (format!("x: {folder}"), "x: is a folder, wanted a file"),
            (
                format!("a: {gone}; b: {gone}, c"),
                "a: no such file or folder; b: no such file or folder, c",
            ),
            (
                "x: No space left on device (os error 28)".to_string(),
                "x: No space left on device",
            ),
            ("x (os error two)".to_string(), "x (os error two)"),
            ("x (os error 2".to_string(), "x (os error 2"),
            ("x (os error )".to_string(), "x (os error )"),
        ] {
            assert_eq!(plain(&text), want);
        }
    }

    #[test]
    fn errors_and_notes_alone_have_a_colour() {
        let red = "\u{1b}[1;31merror:\u{1b}[0m x: note: y";
        assert_eq!(coloured("error: x: note: y"), red);
        let yellow = "curate: \u{1b}[1;33mnote:\u{1b}[0m 3 bad";
        assert_eq!(coloured("curate: note: 3 bad"), yellow);
        for text in ["curate: 3 records", "a terror: x", "keynote: y"] {
            assert_eq!(coloured(text), text);
        }
    }

    #[test]
    fn every_line_of_the_file_has_its_time() {
        assert_eq!(stamped("a\nb", "T"), "T a\nT b\n");
        let time = now();
        assert_eq!((time.len(), &time[10..11], &time[19..]), (20, "T", "Z"));
    }

    #[test]
    fn control_characters_are_escaped_and_line_feeds_are_not() {
        assert_eq!(
            printable("a\u{1b}[2Jb\r\n\tc\u{9b}1m"),
            "a\\u{1b}[2Jb\\u{d}\n\tc\\u{9b}1m"
        );
    }
}
