//! Output: log lines on stderr, results on stdout.
//!
//! `eprintln!` panics when stderr cannot be written, as with a log file on a full disk or after `2>&1 | head -1`. A
//! job must not end because its log cannot be written, so such a line is dropped. Lints forbid `eprintln!`
//! everywhere else.

use anyhow::{Context as _, Result};
use std::borrow::Cow;
use std::io::{IsTerminal, Write};

/// Writes a line to stderr; control characters of foreign text, which could steer a terminal, are escaped, and errors of the system
/// are in plain words.
pub(crate) fn line(text: &str) {
    let mut line = printable(&plain(text));
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
    fn control_characters_are_escaped_and_line_feeds_are_not() {
        assert_eq!(
            printable("a\u{1b}[2Jb\r\n\tc\u{9b}1m"),
            "a\\u{1b}[2Jb\\u{d}\n\tc\\u{9b}1m"
        );
    }
}
