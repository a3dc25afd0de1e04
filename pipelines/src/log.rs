//! Lines for people, on stderr.
//!
//! `eprintln!` panics when stderr cannot be written, as on a full disk under a log file or after `2>&1 | head -1`. A job must
//! not end because nobody reads its log, so a line that cannot be written is lost. Lints refuse `eprintln!` everywhere else.

use std::io::Write;

/// Writes a line to stderr; control characters of foreign text, which could steer a terminal, are escaped.
pub(crate) fn line(text: &str) {
    let mut line = printable(text);
    line.push('\n');
    // in one piece, so that lines of several threads do not mix; there is nowhere to report a failure
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
