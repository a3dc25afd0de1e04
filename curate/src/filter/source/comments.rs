//! Share of comments in a source file, as SantaCoder's filter measures it.
//!
//! Characters of comments over all characters; in Python the text of comments and docstrings, their marks left out.
//! Published for Python, Java and JavaScript (bigcode-dataset bebec92, which asks Python's tokenizer and pygments).
//! The scanner here knows strings and comments of a few families of languages and no grammar: a regular expression of
//! JavaScript with a quote or `//` inside misleads it up to the end of the line.

use crate::text::chars;

/// How comments and strings are written.
#[derive(Clone, Copy, PartialEq)]
enum Style {
    /// `//` and `/* */`.
    Slashes,
    /// `#`; strings of three quotes that stand alone are docstrings.
    Python,
}

fn style(language: &str) -> Option<Style> {
    match language {
        "Java" | "JavaScript" => Some(Style::Slashes),
        "Python" => Some(Style::Python),
        _ => None,
    }
}

/// Share of comments; none for languages that the filter does not know.
pub(super) fn share(language: &str, text: &str) -> Option<f64> {
    let style = style(language)?;
    let count = match style {
        Style::Slashes => slashes(text),
        Style::Python => python(text),
    };
    Some(count as f64 / chars(text).max(1) as f64)
}

/// End of the string that starts with `quote` at `at`: behind its quote, or the end of the line.
fn string_end(bytes: &[u8], at: usize, quote: u8) -> usize {
    let mut i = at + 1;
    while let Some(&b) = bytes.get(i) {
        match b {
            b'\\' => i += 1,
            b'\n' if quote != b'`' => return i,
            b if b == quote => return i + 1,
            _ => {}
        }
        i += 1;
    }
    bytes.len()
}

fn slashes(text: &str) -> usize {
    let bytes = text.as_bytes();
    let (mut at, mut count) = (0, 0);
    while let Some(next) = bytes[at..]
        .iter()
        .position(|b| matches!(b, b'/' | b'"' | b'\'' | b'`'))
    {
        let start = at + next;
        at = match (bytes[start], bytes.get(start + 1)) {
            (b'/', Some(b'/')) => {
                memchr::memchr(b'\n', &bytes[start..]).map_or(bytes.len(), |i| start + i)
            }
            (b'/', Some(b'*')) => memchr::memmem::find(&bytes[start + 2..], b"*/")
                .map_or(bytes.len(), |i| start + i + 4),
            (b'/', _) => {
                at = start + 1;
                continue;
            }
            (quote, _) => {
                at = string_end(bytes, start, quote);
                continue;
            }
        };
        count += chars(&text[start..at]);
    }
    count
}

fn python(text: &str) -> usize {
    let bytes = text.as_bytes();
    let (mut at, mut count) = (0, 0);
    // whether only blanks precede on the line
    let mut begins = true;
    while let Some(&b) = bytes.get(at) {
        match b {
            b'\n' => begins = true,
            b' ' | b'\t' | b'\r' => {}
            b'#' => {
                let end = memchr::memchr(b'\n', &bytes[at..]).map_or(bytes.len(), |i| at + i);
                let comment = &text[at..end];
                count += chars(comment) - comment.matches('#').count();
                at = end;
                continue;
            }
            b'"' | b'\'' => {
                let triple = [b; 3];
                if bytes[at..].starts_with(&triple) {
                    let inside = at + 3;
                    let length = memchr::memmem::find(&bytes[inside..], &triple);
                    let end = length.map_or(bytes.len(), |i| inside + i);
                    if begins {
                        count += docstring_chars(&text[inside..end]);
                    }
                    at = (end + 3).min(bytes.len());
                } else {
                    at = string_end(bytes, at, b);
                }
                begins = false;
                continue;
            }
            _ => begins = false,
        }
        at += 1;
    }
    count
}

/// Characters of a docstring without its indentation and the empty lines around it.
fn docstring_chars(text: &str) -> usize {
    let text = text.trim();
    let lines = text.lines().count();
    let indented = text.lines().skip(1).filter(|l| !l.trim().is_empty());
    let margin = indented
        .map(|l| l.len() - l.trim_start().len())
        .min()
        .unwrap_or(0);
    let rest = text
        .lines()
        .skip(1)
        .map(|l| chars(l).saturating_sub(margin));
    let first = text.lines().next().map_or(0, chars);
    first + rest.sum::<usize>() + lines.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_told_from_strings() {
        assert_eq!(share("Java", "a = \"// no\"; // yes\n"), Some(6.0 / 20.0));
        assert_eq!(share("JavaScript", "/* a\nb */ `//`"), Some(9.0 / 14.0));
        assert_eq!(share("Python", "x = '#'  # ab\n"), Some(3.0 / 14.0));
        assert_eq!(
            share("Python", "def f():\n    \"\"\"ab\n\n    c\"\"\"\n"),
            Some(5.0 / 29.0)
        );
        assert_eq!(share("Rust", "// a"), None);
        assert_eq!(share("Python", ""), Some(0.0));
    }
}
