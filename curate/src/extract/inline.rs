//! Markdown inside of a block: code, links, bold and italic type, references to footnotes.
//!
//! Marks are CommonMark's and are written only where its rules see them: white space goes outside of them, and
//! punctuation inside of them must not meet a letter outside (section 6.2, flanking runs of delimiters). Type of a whole heading says
//! nothing, and no mark reaches over a cell's end.

use std::borrow::Cow;

use super::blocks::{Block, Page, Shape};
use super::pieces::{Piece, PieceKind};

/// Writes the text of blocks in Markdown.
pub(super) struct Inline<'p, 'n> {
    pub(super) page: &'p Page,
    /// The notes that are written, in their order; their numbers are places in it, from the first one's.
    pub(super) notes: &'n [u32],
    /// Number of the first note.
    pub(super) first_note: usize,
}

/// A part of the text in which pieces are marked.
#[derive(Clone, Copy)]
struct Part<'b> {
    block: &'b Block,
    start: usize,
    end: usize,
    /// Inside the text of a link, where brackets are escaped.
    in_link: bool,
}

impl<'p> Inline<'p, '_> {
    /// Text of a block with its pieces marked.
    pub(super) fn text(&self, block: &Block) -> Cow<'p, str> {
        let text = self.page.text_of(block);
        let mut pieces = self.page.pieces_of(block);
        if pieces.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut out = String::with_capacity(text.len() + 32);
        let part = Part {
            block,
            start: block.start as usize,
            end: block.end as usize,
            in_link: false,
        };
        self.write(&mut out, part, &mut pieces);
        Cow::Owned(out)
    }

    fn write(&self, out: &mut String, part: Part<'_>, pieces: &mut &[Piece]) {
        let mut at = part.start;
        while let Some((piece, rest)) = pieces.split_first() {
            let (start, end) = (piece.start as usize, piece.end as usize);
            let is_last = end == part.end && start == end;
            if start >= part.end && !is_last {
                break;
            }
            *pieces = rest;
            self.push_plain(out, at..start, part);
            at = end;
            let inner = Part { start, end, ..part };
            match piece.kind {
                PieceKind::Code => push_code(out, &self.page.text[start..end]),
                PieceKind::Back if self.notes.contains(&part.block.note) => {}
                PieceKind::Back => self.push_plain(out, start..end, part),
                PieceKind::Note(number) => match self.notes.iter().position(|n| *n == number) {
                    Some(place) => out.push_str(&format!("[^{}]", place + self.first_note)),
                    None => self.push_plain(out, start..end, part),
                },
                PieceKind::Bold => self.push_type(out, inner, "**", pieces),
                PieceKind::Italic => self.push_type(out, inner, "*", pieces),
                PieceKind::Link(number) => self.push_link(out, inner, number, pieces),
            }
        }
        self.push_plain(out, at..part.end, part);
    }

    fn push_plain(&self, out: &mut String, range: std::ops::Range<usize>, part: Part<'_>) {
        let text = &self.page.text[range];
        if !part.in_link || !text.contains(['[', ']']) {
            return out.push_str(text);
        }
        for c in text.chars() {
            if matches!(c, '[' | ']') {
                out.push('\\');
            }
            out.push(c);
        }
    }

    /// Bold or italic text between marks, where they are seen.
    fn push_type(&self, out: &mut String, part: Part<'_>, mark: &str, pieces: &mut &[Piece]) {
        let mut inner = String::new();
        self.write(&mut inner, part, pieces);
        let text = &self.page.text;
        let block = part.block;
        let outside = [
            &text[block.start as usize..part.start],
            &text[part.end..block.end as usize],
        ];
        let is_whole = outside.iter().all(|text| text.trim().is_empty());
        let raw = text[part.start..part.end].trim();
        let core = inner.trim();
        let (first, last) = (core.chars().next(), core.chars().next_back());
        let lead = inner.len() - inner.trim_start().len();
        let before = inner[..lead]
            .chars()
            .next_back()
            .or(out.chars().next_back());
        let after = inner[lead + core.len()..].chars().next();
        let after = after.or(outside[1].chars().next());
        let is_seen = flanks(before, first) && flanks(after, last);
        // asterisks of the text would join the marks
        let meets_asterisks = outside[0].ends_with('*') || outside[1].starts_with('*');
        let has_own = raw.starts_with('*') || raw.ends_with('*') || raw.contains('\t');
        let is_heading = block.shape == Shape::Heading && is_whole;
        if !is_seen || has_own || meets_asterisks || is_heading {
            return out.push_str(&inner);
        }
        for part in [
            &inner[..lead],
            mark,
            core,
            mark,
            &inner[lead + core.len()..],
        ] {
            out.push_str(part);
        }
    }

    /// A link, where it has text.
    fn push_link(&self, out: &mut String, part: Part<'_>, number: u32, pieces: &mut &[Piece]) {
        let raw = &self.page.text[part.start..part.end];
        let target = self.page.targets.get(number as usize);
        // a sign in front would make it a picture
        let target =
            target.filter(|_| !raw.trim().is_empty() && !raw.contains('\t') && !out.ends_with('!'));
        let Some(target) = target else {
            return self.write(out, part, pieces);
        };
        let mut inner = String::new();
        let linked = Part {
            in_link: true,
            ..part
        };
        self.write(&mut inner, linked, pieces);
        let core = inner.trim();
        let lead = inner.len() - inner.trim_start().len();
        for part in [&inner[..lead], "[", core, "]("] {
            out.push_str(part);
        }
        push_target(out, target);
        out.push(')');
        out.push_str(&inner[lead + core.len()..]);
    }
}

/// Whether a mark between these two characters is one: punctuation inside must have no letter outside.
fn flanks(outside: Option<char>, inside: Option<char>) -> bool {
    let is_word = |c: char| c.is_alphanumeric();
    let Some(inside) = inside else { return false };
    is_word(inside) || outside.is_none_or(|c| !is_word(c))
}

/// Appends a link's target so that it ends where it should.
fn push_target(out: &mut String, target: &str) {
    for c in target.chars() {
        match c {
            '(' | ')' | '\\' => out.extend(['\\', c]),
            '<' => out.push_str("%3C"),
            '>' => out.push_str("%3E"),
            '\n' | '\r' | '\t' => {}
            c if c.is_whitespace() || c.is_control() => out.push_str("%20"),
            c => out.push(c),
        }
    }
}

/// Appends code between backticks, as many as it takes.
fn push_code(out: &mut String, code: &str) {
    // a break of the line ends the code
    for line in code.split_inclusive(['\n', '\t']) {
        let core = line.trim();
        if core.is_empty() {
            out.push_str(line);
            continue;
        }
        let start = line.len() - line.trim_start().len();
        out.push_str(&line[..start]);
        let longest = core.split(|c| c != '`').map(str::len).max();
        let ticks = "`".repeat(longest.unwrap_or(0) + 1);
        let pad = match core.starts_with('`') || core.ends_with('`') {
            true => " ",
            false => "",
        };
        for part in [&ticks, pad, core, pad, &ticks] {
            out.push_str(part);
        }
        out.push_str(&line[start + core.len()..]);
    }
}
