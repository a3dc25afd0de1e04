//! Output: log lines on stderr, results on stdout.
//!
//! `eprintln!` panics when stderr cannot be written, as with a log file on a full disk or after `2>&1 | head -1`. A
//! job must not end because its log cannot be written, so such a line is dropped. Lints forbid `eprintln!`
//! everywhere else.

use anyhow::{Context as _, Result};
use std::borrow::Cow;
use std::io::{IsTerminal, Write};

/// Writes a line to stderr; control characters of foreign text, which could steer a terminal, are escaped.
pub(crate) fn line(text: &str) {
    let mut line = printable(text);
    line.push('\n');
    // one write, so that lines of several threads do not mix; a failure cannot be reported anywhere
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
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

/// A line on stderr, with the arguments of `format!`.
macro_rules! log {
    ($($arg:tt)*) => { $crate::log::line(&format!($($arg)*)) };
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
    fn control_characters_are_escaped_and_line_feeds_are_not() {
        assert_eq!(
            printable("a\u{1b}[2Jb\r\n\tc\u{9b}1m"),
            "a\\u{1b}[2Jb\\u{d}\n\tc\\u{9b}1m"
        );
    }
}
