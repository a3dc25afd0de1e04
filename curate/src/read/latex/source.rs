//! Sources of a paper: the files of an archive, the main one among them, and what it includes.
//!
//! A source is one `.tex` file or a tar archive, compressed or not. Files are included from the archive alone. Comments
//! go as TeX drops them: with the end of their line. A percent sign inside the argument of `\url`, `\href`, `\path`,
//! `\verb` and their kin starts none.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::ops::Range;

use tar::Archive;

use crate::read::compression::{Piece, Source};

/// Blocks of a tar archive.
const BLOCK: usize = 512;
/// Files of an archive that are read.
const MAX_FILES: usize = 4096;
/// Bytes of a file's name.
const MAX_NAME: usize = 512;
/// Includes of a source.
const MAX_INCLUDES: usize = 10_000;
/// Includes inside each other.
const MAX_DEPTH: usize = 16;

/// Names that authors give to the main file, in order.
const MAIN_NAMES: [&str; 4] = ["ms.tex", "main.tex", "paper.tex", "article.tex"];

/// Environments whose text is no TeX.
const VERBATIM: [&str; 6] = [
    "verbatim",
    "verbatim*",
    "Verbatim",
    "lstlisting",
    "minted",
    "alltt",
];

/// Texts of an archive by path.
pub(super) type Files = BTreeMap<String, String>;

/// Whether the bytes are a tar archive.
pub(crate) fn is_tar(head: &[u8]) -> bool {
    head.get(257..262) == Some(b"ustar")
}

/// Bytes of an archive that are searched for sources.
const LOOKED_AT: u64 = 1 << 30;

/// Whether an archive has a file with LaTeX's ending; `head` is the start of it.
///
/// # Errors
/// A read that was refused.
pub(crate) fn has_sources(source: &mut Source, mut head: Vec<u8>) -> io::Result<bool> {
    let mut passed = 0u64;
    loop {
        while head.len() < BLOCK {
            match source.next(&mut head) {
                Piece::Data { .. } => {}
                Piece::Failed(e) => return Err(e),
                Piece::End | Piece::Damage { .. } => return Ok(false),
            }
        }
        let name = head[..100].split(|b| *b == 0).next().unwrap_or_default();
        if name.is_empty() || passed > LOOKED_AT {
            return Ok(false);
        }
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        if name.ends_with(".tex") || name.ends_with(".ltx") || name.ends_with(".latex") {
            return Ok(true);
        }
        let size = String::from_utf8_lossy(&head[124..136]);
        let size = size.trim_matches(['\0', ' ']);
        let Ok(size) = u64::from_str_radix(size, 8) else {
            return Ok(false);
        };
        let mut left = (BLOCK as u64).saturating_add(size.div_ceil(BLOCK as u64) * BLOCK as u64);
        passed = passed.saturating_add(left);
        // the content is passed over in pieces
        while left > 0 {
            let taken = left.min(head.len() as u64);
            head.drain(..usize::try_from(taken).unwrap_or(head.len()));
            left -= taken;
            if left == 0 {
                break;
            }
            match source.next(&mut head) {
                Piece::Data { .. } => {}
                Piece::Failed(e) => return Err(e),
                Piece::End | Piece::Damage { .. } => return Ok(false),
            }
        }
    }
}

/// Whether a text is LaTeX: one of its first commands says so.
pub(crate) fn is_latex(text: &[u8]) -> bool {
    let mut lines = text.split(|b| *b == b'\n');
    let is_start = |line: &[u8]| {
        let line = line.trim_ascii_start();
        let starts: [&[u8]; 3] = [b"\\documentclass", b"\\documentstyle", b"\\begin{document}"];
        starts.iter().any(|start| line.starts_with(start))
    };
    lines.any(is_start)
}

/// Whether a name is that of a file with text.
fn is_text(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    [".tex", ".ltx", ".latex", ".bbl", ".sty", ".cls", ".def"]
        .iter()
        .any(|end| name.ends_with(end))
}

/// The files of an archive, and the reasons of those that cannot be read. Their texts are no longer than `max` bytes
/// together.
pub(super) fn files(bytes: &[u8], max: usize) -> (Files, Vec<String>) {
    let mut files = Files::new();
    let mut bad = Vec::new();
    let mut left = max;
    let mut archive = Archive::new(bytes);
    let entries = match archive.entries() {
        Ok(entries) => entries,
        Err(e) => return (files, vec![format!("tar archive: {e}")]),
    };
    for entry in entries {
        let mut entry = match entry {
            Ok(entry) => entry,
            Err(e) => {
                bad.push(format!("tar archive: {e}"));
                break;
            }
        };
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if !entry.header().entry_type().is_file() || !is_text(&name) {
            continue;
        }
        if files.len() >= MAX_FILES {
            bad.push(format!("more than {MAX_FILES} files"));
            break;
        }
        let mut text = Vec::new();
        let read = (&mut entry).take(left as u64 + 1).read_to_end(&mut text);
        if text.len() > left {
            bad.push(format!(
                "file {name}: the sources are longer than {max} bytes"
            ));
            continue;
        }
        match read {
            // a file that the archive cuts short has the size that its header states
            Ok(n) if n as u64 == entry.size() => {
                left -= text.len();
                files.insert(tidy(&name), decode(&text));
            }
            Ok(_) => bad.push(format!("file {name}: the archive ends inside it")),
            Err(e) => bad.push(format!("file {name}: {e}")),
        }
    }
    (files, bad)
}

/// A path without steps that lead nowhere.
fn tidy(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Text of a file: UTF-8, else Latin 1, as older papers have it.
pub(super) fn decode(bytes: &[u8]) -> String {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_string(),
        Err(_) => encoding_rs::WINDOWS_1252.decode(bytes).0.into_owned(),
    }
}

/// Path of the main file: it states a class and has a document; of several the one with a usual name, else the longest.
pub(super) fn main_file(files: &Files) -> Option<&str> {
    let rank = |name: &str, text: &str| {
        let is_latex = is_latex(text.as_bytes());
        let has_document = text.contains("\\begin{document}");
        let own = name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase();
        let usual = MAIN_NAMES.iter().rev().position(|n| *n == own);
        (
            is_latex,
            has_document,
            usual.map_or(0, |i| i + 1),
            text.len(),
        )
    };
    let sources = files.iter().filter(|(name, _)| {
        let name = name.to_ascii_lowercase();
        name.ends_with(".tex") || name.ends_with(".ltx") || name.ends_with(".latex")
    });
    // of equal ones the first by name
    let best = sources.rev().max_by_key(|(name, text)| rank(name, text));
    best.filter(|(_, text)| is_latex(text.as_bytes()))
        .map(|(name, _)| name.as_str())
}

/// A text with its includes, and how they went.
pub(super) struct Whole {
    pub(super) text: String,
    /// Files that were included.
    pub(super) included: usize,
    /// Names that the archive does not have.
    pub(super) missing: usize,
    /// Bytes of the files that were included, each time.
    read: usize,
}

/// The main file with all that it includes, without comments.
///
/// # Errors
/// A file that includes itself, or a text longer than `max` bytes.
pub(super) fn whole(files: &Files, main: &str, max: usize) -> Result<Whole, String> {
    let mut whole = Whole {
        text: String::new(),
        included: 0,
        missing: 0,
        read: 0,
    };
    let mut open = vec![main.to_string()];
    include(files, &mut open, max, &mut whole)?;
    Ok(whole)
}

/// Commands that include a file.
const INCLUDES: [&str; 4] = ["\\input", "\\include", "\\subfile", "\\InputIfFileExists"];

fn include(
    files: &Files,
    open: &mut Vec<String>,
    max: usize,
    whole: &mut Whole,
) -> Result<(), String> {
    let path = open.last().cloned().unwrap_or_default();
    let length = files.get(&path).map_or(0, String::len);
    whole.read = whole.read.saturating_add(length);
    if whole.included > MAX_INCLUDES || whole.read > max.saturating_mul(4) {
        return Err("files that include others over and over".to_string());
    }
    let text = without_comments(files.get(&path).map_or("", String::as_str));
    let mut rest = text.as_str();
    while let Some((at, end, name)) = next_include(rest) {
        whole.text.push_str(&rest[..at]);
        rest = &rest[end..];
        let Some(found) = resolve(files, &path, &name) else {
            whole.missing += 1;
            continue;
        };
        if open.contains(&found) {
            return Err(format!("file {found} includes itself"));
        }
        if open.len() >= MAX_DEPTH {
            return Err(format!("more than {MAX_DEPTH} includes inside each other"));
        }
        whole.included += 1;
        open.push(found);
        include(files, open, max, whole)?;
        open.pop();
    }
    whole.text.push_str(rest);
    if whole.text.len() > max {
        return Err(format!("the included files are longer than {max} bytes"));
    }
    Ok(())
}

/// The next include: where it starts and ends, and the name.
fn next_include(text: &str) -> Option<(usize, usize, String)> {
    let mut from = 0;
    while let Some(at) = text[from..].find('\\').map(|i| from + i) {
        from = at + 1;
        let rest = &text[at..];
        let Some(command) = INCLUDES.iter().find(|c| rest.starts_with(**c)) else {
            // an escaped backslash is no command
            from += usize::from(rest[1..].starts_with('\\'));
            continue;
        };
        let after = &rest[command.len()..];
        let name = after.trim_start_matches([' ', '\t']);
        let skipped = command.len() + after.len() - name.len();
        if let Some(inner) = name.strip_prefix('{') {
            let near = &inner[..inner.floor_char_boundary(MAX_NAME)];
            if let Some(end) = near.find(['}', '\n'])
                && near[end..].starts_with('}')
            {
                let whole = at + skipped + 1 + end + 1;
                return Some((at, whole, inner[..end].trim().to_string()));
            }
            continue;
        }
        // \input name, as plain TeX has it
        let length = name.find(|c: char| c.is_whitespace() || "\\{}%".contains(c));
        let length = length.unwrap_or(name.len());
        if *command == "\\input" && length > 0 && skipped > command.len() {
            return Some((at, at + skipped + length, name[..length].to_string()));
        }
    }
    None
}

/// A name as a path of the archive: from the top, else beside the file that names it; with or without its ending.
fn resolve(files: &Files, from: &str, name: &str) -> Option<String> {
    let name = name.trim_matches('"');
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let candidates = [name.to_string(), format!("{folder}/{name}")];
    candidates.iter().find_map(|path| {
        let with = tidy(&format!("{path}.tex"));
        let plain = tidy(path);
        [plain, with]
            .into_iter()
            .find(|path| files.contains_key(path))
    })
}

/// A text without comments; environments whose text is no TeX stay.
pub(super) fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside: Option<String> = None;
    for line in text.split_inclusive('\n') {
        if let Some(end) = &inside {
            let is_end = line.contains(end.as_str());
            out.push_str(line);
            if is_end {
                inside = None;
            }
            continue;
        }
        let literals = literals(line);
        let length = comment(line, &literals);
        match length {
            Some(at) if line[..at].trim().is_empty() && !line[..at].contains('\\') => continue,
            Some(at) => out.push_str(&line[..at]),
            None => out.push_str(line),
        }
        let code = &line[..length.unwrap_or(line.len())];
        inside = VERBATIM.iter().find_map(|name| {
            let begin = format!("\\begin{{{name}}}");
            let mut starts = code.match_indices(&begin).map(|(at, _)| at);
            let start = starts.find(|at| !literals.iter().any(|span| span.contains(at)))?;
            let end = format!("\\end{{{name}}}");
            (!code[start..].contains(&end)).then_some(end)
        });
    }
    out
}

/// Where a line's comment starts.
fn comment(line: &str, literals: &[Range<usize>]) -> Option<usize> {
    let bytes = line.as_bytes();
    let mut from = 0;
    while let Some(at) = memchr::memchr(b'%', &bytes[from..]).map(|i| from + i) {
        if let Some(span) = literals.iter().find(|span| span.contains(&at)) {
            from = span.end;
            continue;
        }
        let slashes = bytes[..at]
            .iter()
            .rev()
            .take_while(|b| **b == b'\\')
            .count();
        if slashes % 2 == 0 {
            return Some(at);
        }
        from = at + 1;
    }
    None
}

/// Commands whose argument is read as it is written, in braces or between two equal characters; of `\href` the first one.
const LITERAL: [&str; 6] = ["url", "href", "nolinkurl", "path", "lstinline", "verb"];

/// The parts of a line that are arguments of such commands, in front of its comment. One that does not end on the line is
/// none, as a percent sign at the end of a line is a comment wherever authors write it.
fn literals(line: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let bytes = line.as_bytes();
    // most lines have neither a percent sign nor an environment
    let matters = memchr::memchr(b'%', bytes).is_some() || line.contains("\\begin{");
    let mut from = 0;
    while matters && let Some(at) = memchr::memchr2(b'\\', b'%', &bytes[from..]) {
        let at = from + at;
        if bytes[at] == b'%' {
            break;
        }
        let rest = &line[at + 1..];
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        // a command of one character, as the escaped percent sign
        from = at + 1 + letters.max(rest.chars().next().map_or(0, char::len_utf8));
        if LITERAL.contains(&&rest[..letters])
            && let Some(span) = literal(line, from, &rest[..letters])
        {
            from = span.end;
            found.push(span);
        }
    }
    found
}

/// The argument of a command whose name ends at `from`, with its delimiters.
fn literal(line: &str, from: usize, name: &str) -> Option<Range<usize>> {
    let is_code = matches!(name, "verb" | "lstinline");
    let mut rest = &line[from..];
    if is_code {
        rest = rest.strip_prefix('*').unwrap_or(rest);
    }
    if name == "lstinline" && rest.starts_with('[') {
        rest = &rest[rest.find(']')? + 1..];
    }
    if name != "verb" {
        rest = rest.trim_start_matches([' ', '\t']);
    }
    let start = line.len() - rest.len();
    let mark = rest.chars().next()?;
    let inner = &rest[mark.len_utf8()..];
    let length = match mark {
        '{' if name != "verb" => closing(inner)?,
        mark if name != "href" && is_delimiter(mark) => inner.find(mark)?,
        _ => return None,
    };
    // the closing mark is as long as the opening one
    Some(start..start + length + 2 * mark.len_utf8())
}

/// Whether a character may stand on both sides of an argument.
pub(super) fn is_delimiter(mark: char) -> bool {
    !mark.is_alphanumeric() && !mark.is_whitespace() && !"\\#{}%".contains(mark)
}

/// Where the group that is open at the start of a text ends.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0;
    let mut is_escaped = false;
    for (at, b) in text.bytes().enumerate() {
        match b {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'{' => depth += 1,
            b'}' if depth == 0 => return Some(at),
            b'}' => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(all: &[(&str, &str)]) -> Files {
        all.iter()
            .map(|(name, text)| (name.to_string(), text.to_string()))
            .collect()
    }

    #[test]
    fn comments_go_with_their_line_end_and_verbatim_stays() {
        for (text, want) in [
            ("a % b\nc\n", "a c\n"),
            ("a\n  % b\nc\n", "a\nc\n"),
            ("5\\% of\n", "5\\% of\n"),
            ("\\\\% b\nc", "\\\\c"),
            (
                "\\begin{verbatim}\na % b\n\\end{verbatim} % c\n",
                "\\begin{verbatim}\na % b\n\\end{verbatim} % c\n",
            ),
        ] {
            assert_eq!(without_comments(text), want);
        }
    }

    #[test]
    fn percent_signs_in_addresses_and_in_code_start_no_comment() {
        for text in [
            "a \\url{http://a.b/x%20y} b\n",
            "a \\href{http://a.b/x%20y}{c} b\n",
            "a \\href {a%20{b}\\}%c} {c} b\n",
            "a \\path{/a%b} and \\path|/a%b| c\n",
            "a \\verb|a%b| \\verb*+%+ b\n",
            "a \\lstinline{a%b} \\lstinline[language=C]!a%b! b\n",
            "\\verb|\\begin{verbatim}| a\n",
        ] {
            let whole = format!("{text}more % text\nend\n");
            assert_eq!(without_comments(&whole), format!("{text}more end\n"));
        }
        for (text, want) in [
            ("a % \\url{b%c}\nd", "a d"),
            ("\\url{a%20b} % c\nd", "\\url{a%20b} d"),
            ("\\href{%\n http://a.b}{c}", "\\href{ http://a.b}{c}"),
            ("\\url{http://a.b/% c\nd}", "\\url{http://a.b/d}"),
            ("\\\\verb|a%b|\nc", "\\\\verb|ac"),
            ("\\urlstyle{a % b}\nc", "\\urlstyle{a c"),
            ("\\verb|\u{e9}%\u{e9}| % \u{e9}\n", "\\verb|\u{e9}%\u{e9}| "),
        ] {
            assert_eq!(without_comments(text), want, "{text}");
        }
    }

    #[test]
    fn the_main_file_has_a_class_and_a_usual_name() {
        let class = "\\documentclass{article}\\begin{document}";
        let long = format!("{class}{}", "x".repeat(99));
        let all = files(&[
            ("a.tex", &long),
            ("b/main.tex", class),
            ("c.tex", "text"),
            ("d.sty", &long),
        ]);
        assert_eq!(main_file(&all), Some("b/main.tex"));
        let all = files(&[("a.tex", class), ("b.tex", &long), ("c.tex", &long)]);
        assert_eq!(main_file(&all), Some("b.tex"));
        assert_eq!(main_file(&files(&[("a.tex", "text")])), None);
    }

    #[test]
    fn includes_are_followed_inside_the_archive_only() {
        let all = files(&[
            (
                "main.tex",
                "a\\input{sec/one}b\\include{../../etc/passwd}c\\input two d\\\\input{x}",
            ),
            ("sec/one.tex", "1\\input{three}"),
            ("sec/three.tex", "3"),
            ("two.tex", "2"),
        ]);
        let whole = whole(&all, "main.tex", 1000).unwrap();
        assert_eq!(whole.text, "a13bc2 d\\\\input{x}");
        assert_eq!((whole.included, whole.missing), (3, 1));
    }

    #[test]
    fn files_that_include_themselves_or_too_much_are_refused() {
        let why = |all: &[(&str, &str)]| whole(&files(all), "a", 1000).err().unwrap();
        assert_eq!(
            why(&[("a", "\\input{b}"), ("b", "\\input{a}")]),
            "file a includes itself"
        );
        let many = "\\input{b}".repeat(200);
        let found = why(&[("a", &many), ("b", "0123456789")]);
        assert_eq!(found, "the included files are longer than 1000 bytes");
    }
}
