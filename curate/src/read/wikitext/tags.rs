//! Tags of wikitext: removes comments, and elements that are not text with their content.

use super::entities::read_entity;

/// Elements that go with their content.
const DROPPED: [&str; 24] = [
    "ref",
    "references",
    "gallery",
    "timeline",
    "score",
    "chem",
    "ce",
    "hiero",
    "graph",
    "mapframe",
    "maplink",
    "imagemap",
    "inputbox",
    "templatestyles",
    "templatedata",
    "indicator",
    "categorytree",
    "section",
    "table",
    "script",
    "style",
    "includeonly",
    "noinclude",
    "abschnitt",
];
/// Elements whose content is literal text.
const LITERAL: [&str; 5] = ["nowiki", "pre", "source", "syntaxhighlight", "code"];
/// Elements that start a new line.
const LINES: [&str; 9] = [
    "br",
    "p",
    "div",
    "li",
    "tr",
    "hr",
    "blockquote",
    "poem",
    "center",
];

/// Reads tags; records those that are never closed, so that no end is searched for twice.
#[derive(Default)]
pub(super) struct Tags {
    unclosed: Vec<String>,
}

impl Tags {
    /// Replacement for the tag (or element) at the start of `text`, and its length. `text` starts with `<`.
    pub(super) fn read(&mut self, text: &str) -> (String, usize) {
        if text.starts_with("<!--") {
            // an open comment hides the rest of the page
            let end = text.find("-->").map_or(text.len(), |i| i + 3);
            return (String::new(), end);
        }
        let closing = text[1..].starts_with('/');
        let name_at = if closing { 2 } else { 1 };
        let name_end = text[name_at..]
            .bytes()
            .take(32)
            .position(|b| !b.is_ascii_alphanumeric())
            .map_or(text.len().min(name_at + 32), |i| i + name_at);
        let name = text
            .get(name_at..name_end)
            .unwrap_or_default()
            .to_ascii_lowercase();
        let Some(open_end) = tag_end(text).filter(|_| !name.is_empty()) else {
            return ("<".to_string(), 1);
        };
        let line = if LINES.contains(&name.as_str()) {
            "\n"
        } else {
            ""
        };
        if closing || text[..open_end].ends_with("/>") {
            return (line.to_string(), open_end);
        }
        let dropped = DROPPED.contains(&name.as_str());
        let literal = LITERAL.contains(&name.as_str());
        if !dropped && !literal && name != "math" {
            return (line.to_string(), open_end);
        }
        let Some((end, after)) = self.close(&text[open_end..], &name) else {
            return (String::new(), open_end);
        };
        let content = &text[open_end..open_end + end];
        let shown = match name.as_str() {
            "math" => format!("${}$", content.trim()),
            _ if literal => decoded(content),
            _ => String::new(),
        };
        (shown, open_end + after)
    }

    /// Start and end of the closing tag of `name`.
    fn close(&mut self, text: &str, name: &str) -> Option<(usize, usize)> {
        if self.unclosed.iter().any(|n| n == name) {
            return None;
        }
        let mut from = 0;
        while let Some(i) = text[from..].find("</") {
            let at = from + i;
            let rest = &text.as_bytes()[at + 2..];
            let same = rest.len() > name.len()
                && rest[..name.len()].eq_ignore_ascii_case(name.as_bytes())
                && !rest[name.len()].is_ascii_alphanumeric();
            if same {
                match memchr::memchr(b'>', rest) {
                    Some(end) => return Some((at, at + 2 + end + 1)),
                    // nor is there one behind any later tag
                    None => break,
                }
            }
            from = at + 2;
        }
        self.unclosed.push(name.to_string());
        None
    }
}

/// Literal text with its character references read: those count everywhere.
fn decoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(i) = rest.find('&') {
        out.push_str(&rest[..i]);
        let length = read_entity(&rest[i..], &mut out);
        rest = &rest[i + length..];
    }
    out + rest
}

/// Length of a tag; None if it has no end nearby or does not look like one.
fn tag_end(text: &str) -> Option<usize> {
    let first = text.as_bytes().get(1)?;
    if !(first.is_ascii_alphabetic() || *first == b'/') {
        return None;
    }
    let near = text.as_bytes();
    let near = &near[..near.len().min(1000)];
    let mut quoted = None;
    for (i, b) in near.iter().enumerate() {
        match (quoted, b) {
            (None, b'>') => return Some(i + 1),
            (None, b'"' | b'\'') => quoted = Some(*b),
            (Some(q), b) if *b == q => quoted = None,
            (None, b'<') if i > 0 => return None,
            _ => {}
        }
    }
    // a quote that is never closed: the first end will do
    memchr::memchr(b'>', near).map(|i| i + 1)
}
