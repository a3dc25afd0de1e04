//! The simple repairs: entities, ligatures, widths, quotes, line breaks, control characters, spaces.
//!
//! Each returns `None` when there is nothing to do. Sets of characters are those of ftfy 6.3, the white
//! space rules are ours.

use std::sync::LazyLock;

use icu_normalizer::ComposingNormalizerBorrowed;
use rustc_hash::FxHashMap;

use super::codepages::windows_1252;
use crate::text::entity::named_reference;

/// Longest name of an entity that is looked up.
const NAME: usize = 24;
/// Upper-case names that HTML knows without a semicolon; longer names that start with one are ambiguous.
const BARE: [&str; 8] = ["AMP", "COPY", "ETH", "GT", "LT", "QUOT", "REG", "THORN"];

/// Replaces characters for which `with` has something else.
fn replace(text: &str, with: impl Fn(char) -> Option<&'static str>) -> Option<String> {
    let first = text.char_indices().find(|&(_, c)| with(c).is_some())?.0;
    let mut out = String::with_capacity(text.len());
    out.push_str(&text[..first]);
    for c in text[first..].chars() {
        match with(c) {
            Some(other) => out.push_str(other),
            None => out.push(c),
        }
    }
    Some(out)
}

/// HTML entities that end with a semicolon; names in capitals mean capitals.
pub(super) fn unescape(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(found) = memchr::memchr(b'&', &text.as_bytes()[at..]) {
        let start = at + found;
        at = start + 1;
        let rest = &text[at..];
        let body = rest.bytes().take(NAME + 2);
        let Some(end) = body.clone().position(|b| b == b';') else {
            continue;
        };
        if let Some(meant) = entity(&rest[..end]) {
            out.push_str(&text[copied..start]);
            out.push_str(&meant);
            at += end + 1;
            copied = at;
        }
    }
    (copied > 0).then(|| out + &text[copied..])
}

/// Decodes an entity, the text between `&` and `;`.
fn entity(name: &str) -> Option<String> {
    if let Some(number) = name.strip_prefix('#') {
        return (1..=NAME)
            .contains(&number.len())
            .then(|| numeric(number))
            .flatten();
    }
    if name.len() > NAME || !name.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return None;
    }
    let look = |name: &str| named_reference(&format!("{name};")).map(str::to_string);
    if let Some(meant) = look(name) {
        return Some(meant);
    }
    let shouted = name == name.to_ascii_uppercase() && !BARE.iter().any(|b| name.starts_with(b));
    let lower = name.to_ascii_lowercase();
    let meant = look(&lower).filter(|_| shouted)?;
    Some(meant.to_uppercase())
}

/// A numeric reference as browsers read it: numbers 80 to 9F are Windows-1252.
fn numeric(number: &str) -> Option<String> {
    let (digits, radix) = match number.strip_prefix(['x', 'X']) {
        Some(hex) => (hex, 16),
        None => (number, 10),
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    // more digits than fit are as far beyond Unicode as the largest number
    let point = u32::from_str_radix(digits, radix).unwrap_or(u32::MAX);
    let meant = match point {
        0 => char::REPLACEMENT_CHARACTER,
        0x80..=0x9f => windows_1252(u8::try_from(point).unwrap_or(0)),
        0x1..=0x8 | 0xb | 0xe..=0x1f | 0x7f | 0xfdd0..=0xfdef => return Some(String::new()),
        _ => match char::from_u32(point) {
            Some(_) if point & 0xfffe == 0xfffe => return Some(String::new()),
            Some(c) => c,
            None => char::REPLACEMENT_CHARACTER,
        },
    };
    Some(meant.to_string())
}

/// Ligatures and digraphs of Latin letters taken apart.
pub(super) fn ligatures(text: &str) -> Option<String> {
    replace(text, |c| {
        Some(match c {
            '\u{132}' => "IJ",
            '\u{133}' => "ij",
            '\u{149}' => "\u{2bc}n",
            '\u{1f1}' => "DZ",
            '\u{1f2}' => "Dz",
            '\u{1f3}' => "dz",
            '\u{1c4}' => "D\u{17d}",
            '\u{1c5}' => "D\u{17e}",
            '\u{1c6}' => "d\u{17e}",
            '\u{1c7}' => "LJ",
            '\u{1c8}' => "Lj",
            '\u{1c9}' => "lj",
            '\u{1ca}' => "NJ",
            '\u{1cb}' => "Nj",
            '\u{1cc}' => "nj",
            '\u{fb00}' => "ff",
            '\u{fb01}' => "fi",
            '\u{fb02}' => "fl",
            '\u{fb03}' => "ffi",
            '\u{fb04}' => "ffl",
            '\u{fb05}' => "\u{17f}t",
            '\u{fb06}' => "st",
            _ => return None,
        })
    })
}

/// Usual forms of half-width and full-width characters.
static WIDTHS: LazyLock<FxHashMap<char, String>> = LazyLock::new(|| {
    let nfkc = ComposingNormalizerBorrowed::new_nfkc();
    let forms = ('\u{ff01}'..'\u{fff0}').filter_map(|c| {
        let form = nfkc.normalize(c.encode_utf8(&mut [0; 4])).into_owned();
        (form.chars().ne([c])).then_some((c, form))
    });
    std::iter::once(('\u{3000}', " ".to_string()))
        .chain(forms)
        .collect()
});

/// Half-width and full-width characters in their usual form; the ideographic space as a space.
pub(super) fn widths(text: &str) -> Option<String> {
    let wide = |c: char| c == '\u{3000}' || ('\u{ff01}'..'\u{fff0}').contains(&c);
    if !text.chars().any(wide) {
        return None;
    }
    replace(text, |c| {
        if wide(c) {
            WIDTHS.get(&c).map(String::as_str)
        } else {
            None
        }
    })
}

/// Curly quotes straight.
pub(super) fn quotes(text: &str) -> Option<String> {
    replace(text, |c| match c {
        '\u{2bc}' | '\u{2018}'..='\u{201b}' => Some("'"),
        '\u{201c}'..='\u{201f}' => Some("\""),
        _ => None,
    })
}

/// Line breaks of all kinds as a line feed.
pub(super) fn line_breaks(text: &str) -> Option<String> {
    let is_break = |c| matches!(c, '\r' | '\u{85}' | '\u{2028}' | '\u{2029}');
    text.contains(is_break)
        .then(|| text.replace("\r\n", "\n").replace(is_break, "\n"))
}

/// Escape sequences of terminals (`ESC [ digits letter`) out.
pub(super) fn terminal_escapes(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut copied = 0;
    for (start, _) in text.match_indices("\u{1b}[") {
        let body = &text[start + 2..];
        let parameters = body
            .bytes()
            .take_while(|b| b.is_ascii_digit() || *b == b';');
        let end = start + 2 + parameters.count();
        if text
            .as_bytes()
            .get(end)
            .is_some_and(u8::is_ascii_alphabetic)
        {
            out.push_str(&text[copied..start]);
            copied = end + 1;
        }
    }
    (copied > 0).then(|| out + &text[copied..])
}

/// Control characters that make no white space, marks of byte order, annotations: out.
pub(super) fn controls(text: &str) -> Option<String> {
    replace(text, |c| match c {
        '\0'..='\u{8}'
        | '\u{b}'
        | '\u{e}'..='\u{1f}'
        | '\u{7f}'
        | '\u{206a}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffc}' => Some(""),
        _ => None,
    })
}

/// Spaces of every width as one plain space, none at the ends of lines, at most one empty line.
/// Plain spaces and tabs at the start of a line stay: lists and programs live by them.
pub(super) fn white_space(text: &str) -> Option<String> {
    let is_blank = |c: char| c != '\n' && (c.is_whitespace() || c == '\u{200b}');
    let mut out = String::with_capacity(text.len());
    let mut empty = 0;
    for line in text.split('\n') {
        let line = line.trim_end_matches(is_blank);
        if line.is_empty() {
            empty += 1;
            continue;
        }
        if !out.is_empty() {
            out.push('\n');
            if empty > 0 {
                out.push('\n');
            }
        }
        empty = 0;
        let body = line.trim_start_matches(is_blank);
        let indent = line[..line.len() - body.len()].chars();
        out.extend(indent.filter(|c| matches!(c, ' ' | '\t')));
        let mut words = body.split(is_blank).filter(|w| !w.is_empty());
        out.extend(words.next());
        for word in words {
            out.push(' ');
            out.push_str(word);
        }
    }
    if text.ends_with('\n') && !out.is_empty() {
        out.push('\n');
    }
    (out != text).then_some(out)
}
