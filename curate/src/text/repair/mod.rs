//! Text repair: Unicode forms, mojibake, entities, quotes, control characters, white space.
//!
//! The procedure and the rules are those of ftfy 6.3 (Speer 2019, zenodo.2591652), each of which can be switched
//! off; NFKC and white space are our additions. A text is repaired line by line (lines of more than a million
//! characters in pieces); a line is repaired until nothing changes.
//!
//! We differ: a line that is ASCII without `&`, carriage returns and control characters takes one scan of its
//! bytes; at most `ROUNDS` rounds; entities are kept in a text with a `<` before or in the line, as with ftfy's
//! `auto`.

mod badness;
mod codepages;
mod encoding;
mod steps;

use std::sync::LazyLock;

use icu_normalizer::ComposingNormalizerBorrowed;
use serde::{Deserialize, Serialize};

/// Unicode normalization forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// As it is.
    None,
    /// Composed: one code point for a letter with its accent.
    Nfc,
    /// Composed, and compatibility characters replaced (ligatures, superscripts, widths).
    Nfkc,
}

/// Switches of the repairs. Defaults: ftfy's, without `white_space`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct NormalizeConfig {
    /// Text that was decoded with the wrong encoding.
    pub mojibake: bool,
    /// HTML entities, unless the text has a `<`.
    pub entities: bool,
    /// Control characters 80 to 9F, read as Windows-1252.
    pub c1: bool,
    /// Ligatures of Latin letters.
    pub ligatures: bool,
    /// Half-width and full-width characters.
    pub widths: bool,
    /// Curly quotes to straight ones.
    pub quotes: bool,
    /// Carriage returns and Unicode's line breaks to line feeds.
    pub line_breaks: bool,
    /// Escape sequences of terminals.
    pub terminal_escapes: bool,
    /// Control characters and marks of byte order.
    pub controls: bool,
    /// Unicode form.
    pub form: Form,
    /// Runs of spaces, spaces at line ends, empty lines.
    pub white_space: bool,
}

impl Default for NormalizeConfig {
    fn default() -> Self {
        NormalizeConfig {
            mojibake: true,
            entities: true,
            c1: true,
            ligatures: true,
            widths: true,
            quotes: true,
            line_breaks: true,
            terminal_escapes: true,
            controls: true,
            form: Form::Nfc,
            white_space: false,
        }
    }
}

/// Names of the repairs, in order of execution; keys of the counts.
pub const REPAIRS: [&str; 11] = [
    "entities",
    "mojibake",
    "c1",
    "ligatures",
    "widths",
    "quotes",
    "line_breaks",
    "terminal_escapes",
    "controls",
    "form",
    "white_space",
];

/// Lines changed by each of [`REPAIRS`]; white space counts once a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repairs {
    counts: [u64; REPAIRS.len()],
}

impl Repairs {
    /// Name and count of the repairs that changed something.
    pub fn made(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let pairs = REPAIRS.iter().copied().zip(self.counts);
        pairs.filter(|&(_, count)| count > 0)
    }

    /// True if nothing was changed.
    pub fn is_empty(&self) -> bool {
        self.made().next().is_none()
    }
}

/// One repair of a line; `None` if there is nothing to repair.
type Repair = fn(&str) -> Option<String>;

/// Characters of a line that are repaired together. ftfy: a million.
const LONGEST: usize = 1_000_000;
/// Rounds after which a line is left as it is.
const ROUNDS: usize = 16;

impl NormalizeConfig {
    /// Every repair off.
    pub const NOTHING: NormalizeConfig = NormalizeConfig {
        mojibake: false,
        entities: false,
        c1: false,
        ligatures: false,
        widths: false,
        quotes: false,
        line_breaks: false,
        terminal_escapes: false,
        controls: false,
        form: Form::None,
        white_space: false,
    };

    /// Repairs a text into `out`, which is unchanged if there is nothing to repair.
    pub fn repair(&self, text: &str, out: &mut String) -> Repairs {
        let mut repairs = Repairs::default();
        let mut fixed: Option<String> = None;
        let mut entities = self.entities;
        let mut copied = 0;
        for (start, line) in lines(text) {
            entities &= !line.contains('<');
            if is_plain(line.as_bytes()) {
                continue;
            }
            if let Some(line_fixed) = self.repair_line(line, entities, &mut repairs) {
                let fixed = fixed.get_or_insert_default();
                fixed.push_str(&text[copied..start]);
                fixed.push_str(&line_fixed);
                copied = start + line.len();
            }
        }
        if let Some(fixed) = &mut fixed {
            fixed.push_str(&text[copied..]);
        }
        if self.white_space
            && let Some(clean) = steps::white_space(fixed.as_deref().unwrap_or(text))
        {
            repairs.counts[REPAIRS.len() - 1] += 1;
            fixed = Some(clean);
        }
        if let Some(fixed) = fixed {
            *out = fixed;
        }
        repairs
    }

    fn repair_line(&self, line: &str, entities: bool, repairs: &mut Repairs) -> Option<String> {
        let wanted = wanted(line);
        let steps: [(bool, Repair); 10] = [
            (entities, steps::unescape),
            (self.mojibake, encoding::fix_encoding),
            (self.c1, encoding::fix_c1),
            (self.ligatures, steps::ligatures),
            (self.widths, steps::widths),
            (self.quotes, steps::quotes),
            (self.line_breaks, steps::line_breaks),
            (self.terminal_escapes, steps::terminal_escapes),
            (self.controls, steps::controls),
            (self.form != Form::None, self.composer()),
        ];
        let mut fixed: Option<String> = None;
        for _ in 0..ROUNDS {
            let mut changed = false;
            for (i, (is_on, step)) in steps.iter().enumerate() {
                let current = fixed.as_deref().unwrap_or(line);
                // the line's characters decided which repairs it needs; those of a repaired line may differ
                let may_change = fixed.is_some() || wanted >> i & 1 == 1;
                if *is_on
                    && may_change
                    && let Some(next) = step(current)
                {
                    repairs.counts[i] += 1;
                    changed = true;
                    fixed = Some(next);
                }
            }
            if !changed {
                break;
            }
        }
        fixed
    }

    fn composer(&self) -> Repair {
        fn compose(normalizer: ComposingNormalizerBorrowed<'_>, text: &str) -> Option<String> {
            match normalizer.normalize(text) {
                std::borrow::Cow::Borrowed(_) => None,
                std::borrow::Cow::Owned(composed) => Some(composed),
            }
        }
        match self.form {
            Form::Nfkc => |text| compose(ComposingNormalizerBorrowed::new_nfkc(), text),
            _ => |text| compose(ComposingNormalizerBorrowed::new_nfc(), text),
        }
    }
}

/// Lines with their line feeds and offsets; longer ones than [`LONGEST`] in pieces.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = &text[at..];
        if rest.is_empty() {
            return None;
        }
        let mut end = memchr::memchr(b'\n', rest.as_bytes()).map_or(rest.len(), |i| i + 1);
        if end > LONGEST {
            end = rest[..end]
                .char_indices()
                .nth(LONGEST)
                .map_or(end, |(i, _)| i);
        }
        let start = at;
        at += end;
        Some((start, &rest[..end]))
    })
}

/// For each character of the basic plane, a bit for every step that may change a line with it.
static STEPS: LazyLock<Box<[u16]>> = LazyLock::new(|| {
    let alone: [(usize, Repair); 6] = [
        (2, encoding::fix_c1),
        (3, steps::ligatures),
        (4, steps::widths),
        (5, steps::quotes),
        (6, steps::line_breaks),
        (8, steps::controls),
    ];
    let of = |point: u32| {
        let Some(c) = char::from_u32(point) else {
            return 0;
        };
        let mut buffer = [0; 4];
        let text = &*c.encode_utf8(&mut buffer);
        let changes = alone.iter().filter(|(_, step)| step(text).is_some());
        let mut bits: u16 = changes.map(|(i, _)| 1 << i).sum();
        bits |= u16::from(c == '&');
        bits |= u16::from(badness::is_suspect(c)) << 1;
        bits |= u16::from(c == '\u{1b}') << 7;
        // Latin-1 is composed; characters beyond it have compatibility forms and marks
        bits | u16::from(point >= 0xa0) << 9
    };
    (0..1 << 16).map(of).collect()
});

/// Steps that may change a line, by its characters.
fn wanted(line: &str) -> u16 {
    let table = &*STEPS;
    let of = |c: char| table.get(c as usize).copied().unwrap_or(1 << 9);
    line.chars().fold(0, |bits, c| bits | of(c))
}

/// True for ASCII that no repair changes.
fn is_plain(line: &[u8]) -> bool {
    // no early exit inside a block: the loop compiles to vector compares
    line.chunks(64).all(|block| {
        let odd = |&b: &u8| b >= 0x7f || b == b'&' || b < b' ' && b != b'\n' && b != b'\t';
        !block.iter().fold(false, |any, b| any | odd(b))
    })
}

#[cfg(test)]
mod tests;
