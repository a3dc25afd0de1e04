//! Glyphs to lines, lines to paragraphs.
//!
//! A line is a sequence of glyphs on one baseline, each to the right of the one before. Words are separated where the
//! gap is wider than a letter's tracking. Lines join to paragraphs by distance, size, indent and a short last line;
//! words that a hyphen divides at the end of a line become one. All measures are multiples of the size of the text.

/// Characters and lines of a page.
const MAX_CHARS: usize = 4 << 20;
const MAX_LINES: usize = 100_000;

/// A gap of this size separates words.
const WORD_GAP: f32 = 0.17;
/// Glyphs of a line are this close to its baseline: scripts are off it.
const BASELINE: f32 = 0.6;
/// A jump back by more than this starts a line.
const BACK: f32 = 0.8;
/// First lines of paragraphs are indented by more than this, and by less than the next.
const INDENT: (f32, f32) = (0.7, 8.0);
/// A last line ends this share of the block's width before its edge.
const SHORT: f32 = 0.15;
/// Paragraphs are farther apart than lines by this factor.
const APART: f32 = 1.25;
/// Lines are no farther apart than this where the page does not show how far.
const FAR: f32 = 1.8;

/// A place on the page.
#[derive(Clone, Copy)]
pub(super) struct Point {
    pub(super) x: f32,
    pub(super) y: f32,
}

/// A placed glyph, in the page's space.
pub(super) struct Glyph {
    pub(super) start: Point,
    pub(super) end: Point,
    /// Where it would be without a rise.
    pub(super) baseline: Point,
    pub(super) size: f32,
}

/// A line of text. Its axis x points along the text, y up from it.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    pub(super) text: String,
    pub(super) left: f32,
    pub(super) right: f32,
    pub(super) y: f32,
    /// Of its largest glyph.
    pub(super) size: f32,
    /// Quarter turns of the text against the page.
    pub(super) turn: u8,
}

/// Lines of a page in the order in which it shows them.
#[derive(Default)]
pub(super) struct Lines {
    lines: Vec<Line>,
    chars: usize,
    /// The glyph before: its start and text.
    last: Option<(f32, String)>,
}

impl Lines {
    /// Adds a glyph.
    pub(super) fn add(&mut self, glyph: &Glyph, text: &str) {
        let is_placed = [
            glyph.start.x,
            glyph.start.y,
            glyph.end.x,
            glyph.end.y,
            glyph.size,
        ];
        if self.chars > MAX_CHARS
            || self.lines.len() > MAX_LINES
            || is_placed.iter().any(|n| !n.is_finite())
        {
            return;
        }
        let turn = turn_of(glyph);
        let Point { x: from, y } = turned(glyph.start, turn);
        let to = turned(glyph.end, turn).x;
        let baseline = turned(glyph.baseline, turn).y;
        let (from, to) = (from.min(to), from.max(to));
        let is_blank = text.chars().all(char::is_whitespace);
        if let Some(line) = self.lines.last_mut() {
            let size = line.size.max(glyph.size);
            let is_near = (baseline - line.y).abs() <= BASELINE * size
                || (y - line.y).abs() <= BASELINE * size;
            if turn == line.turn && is_near && from >= line.right - BACK * size {
                let is_again = self.last.as_ref().is_some_and(|(at, before)| {
                    (from - at).abs() < 0.1 * size && before == text && !is_blank
                });
                // bold text may be painted twice
                if is_again {
                    return;
                }
                let is_apart = from - line.right > WORD_GAP * glyph.size.min(line.size);
                if (is_apart || is_blank) && !line.text.ends_with(' ') {
                    line.text.push(' ');
                }
                if !is_blank {
                    push(&mut line.text, text);
                    // a line of small letters has the size of a larger one that follows
                    line.size = size;
                }
                line.right = line.right.max(to);
                self.chars += text.len();
                self.last = Some((from, text.to_string()));
                return;
            }
        }
        if is_blank {
            return;
        }
        let mut line = Line {
            text: String::new(),
            left: from,
            right: to,
            y: baseline,
            size: glyph.size,
            turn,
        };
        push(&mut line.text, text);
        self.chars += text.len();
        self.last = Some((from, text.to_string()));
        self.lines.push(line);
    }

    pub(super) fn count(&self) -> usize {
        self.lines.len()
    }

    /// Bytes of their text.
    pub(super) fn chars(&self) -> usize {
        self.chars
    }

    /// The lines, without blanks around them.
    pub(super) fn end(self) -> Vec<Line> {
        let mut lines = self.lines;
        for line in &mut lines {
            line.text.truncate(line.text.trim_end().len());
        }
        lines.retain(|line| !line.text.is_empty());
        lines
    }
}

/// Quarter turns of a glyph's direction, 0 along the page's width.
fn turn_of(glyph: &Glyph) -> u8 {
    let (x, y) = (glyph.end.x - glyph.start.x, glyph.end.y - glyph.start.y);
    if x.abs() >= y.abs() {
        if x < 0.0 { 2 } else { 0 }
    } else if y > 0.0 {
        1
    } else {
        3
    }
}

/// A point with x along the text.
fn turned(point: Point, turn: u8) -> Point {
    let Point { x, y } = point;
    let (x, y) = match turn {
        0 => (x, y),
        1 => (y, -x),
        2 => (-x, -y),
        _ => (-y, x),
    };
    Point { x, y }
}

/// Appends characters, ligatures as letters.
fn push(into: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '\u{fb00}' => into.push_str("ff"),
            '\u{fb01}' => into.push_str("fi"),
            '\u{fb02}' => into.push_str("fl"),
            '\u{fb03}' => into.push_str("ffi"),
            '\u{fb04}' => into.push_str("ffl"),
            '\u{fb05}' | '\u{fb06}' => into.push_str("st"),
            '\u{f0b7}' | '\u{f0a7}' => into.push('\u{2022}'),
            '\u{a0}' => into.push(' '),
            c => into.push(c),
        }
    }
}

/// Joins the lines of a page to paragraphs.
pub(super) fn paragraphs(lines: &[Line]) -> Vec<String> {
    let leading = leading(lines);
    let mut found: Vec<String> = Vec::new();
    let mut right = 0.0f32;
    for (i, line) in lines.iter().enumerate() {
        let before = i.checked_sub(1).map(|i| &lines[i]);
        let is_continued =
            before.is_some_and(|before| continues(before, line, lines.get(i + 1), leading, right));
        right = if is_continued {
            right.max(line.right)
        } else {
            line.right
        };
        match found.last_mut().filter(|_| is_continued) {
            Some(text) => join(text, &line.text),
            None => found.push(line.text.clone()),
        }
    }
    found
}

/// Usual distance of two lines, in sizes of the text: the one that is met most, in steps of a twentieth.
fn leading(lines: &[Line]) -> Option<f32> {
    let mut counts: std::collections::BTreeMap<u32, usize> = std::collections::BTreeMap::new();
    for pair in lines.windows(2) {
        let [a, b] = pair else { continue };
        let gap = (a.y - b.y) / a.size.max(0.01);
        if a.turn == b.turn && alike(a.size, b.size) && (0.5..4.0).contains(&gap) {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "between 10 and 80"
            )]
            let step = (gap * 20.0).round() as u32;
            *counts.entry(step).or_default() += 1;
        }
    }
    let most = counts.values().max().filter(|most| **most >= 3)?;
    let step = counts.iter().find(|(_, count)| *count == most)?.0;
    Some(*step as f32 / 20.0)
}

fn alike(a: f32, b: f32) -> bool {
    a.max(b) <= 1.15 * a.min(b)
}

/// Ends of sentences.
fn ends_sentence(text: &str) -> bool {
    let closed = text.trim_end_matches(['"', '\'', ')', ']', '\u{201d}', '\u{2019}', '\u{bb}']);
    closed.ends_with(['.', '?', '!', ':', ';', '\u{3002}', '\u{ff1f}', '\u{ff01}'])
}

fn starts_item(text: &str) -> bool {
    text.starts_with([
        '\u{2022}', '\u{25aa}', '\u{25cf}', '\u{25e6}', '\u{2013}', '\u{2023}', '\u{25a0}',
    ])
}

/// Whether a line continues the paragraph of the one before; `right` is the right edge of that paragraph so far.
fn continues(
    before: &Line,
    line: &Line,
    next: Option<&Line>,
    leading: Option<f32>,
    right: f32,
) -> bool {
    if before.turn != line.turn || !alike(before.size, line.size) || starts_item(&line.text) {
        return false;
    }
    let size = before.size.max(line.size).max(0.01);
    let gap = (before.y - line.y) / size;
    if gap <= 0.1 {
        // the next column
        return carries_on(&before.text, &line.text);
    }
    let most = leading.map_or(FAR, |leading| (leading * APART).max(0.9));
    if gap > most {
        return false;
    }
    let indent = (line.left - before.left) / size;
    let is_first = next.is_none_or(|next| line.left - next.left > INDENT.0 * size);
    if indent > INDENT.0 && indent < INDENT.1 && is_first && !starts_item(&before.text) {
        return false;
    }
    let width = (right - before.left).max(size);
    let is_short = before.right < right.max(line.right) - SHORT * width.max(line.right - line.left);
    !(is_short && ends_sentence(&before.text))
}

/// Whether a text goes on in another column or on the next page.
pub(super) fn carries_on(before: &str, after: &str) -> bool {
    let is_open = !ends_sentence(before);
    let goes_on = after
        .chars()
        .next()
        .is_some_and(|c| c.is_lowercase() || is_ideograph(c));
    is_open && goes_on
}

fn is_ideograph(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{ff00}'..='\u{ff60}' | '\u{20000}'..='\u{3ffff}')
}

/// Appends a line to a paragraph: a word that was divided becomes one.
pub(super) fn join(text: &mut String, line: &str) {
    let first = line.chars().next();
    let mut last = text.chars().rev();
    match (last.next(), last.next()) {
        (Some('\u{ad}'), _) => drop(text.pop()),
        (Some('-' | '\u{2010}'), Some(letter))
            if letter.is_alphabetic() && first.is_some_and(char::is_lowercase) =>
        {
            text.pop();
        }
        (Some('-' | '\u{2010}'), Some(letter)) if letter.is_alphanumeric() => {}
        (Some(last), _) if is_ideograph(last) && first.is_some_and(is_ideograph) => {}
        _ => text.push(' '),
    }
    text.push_str(line);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(x: f32, y: f32) -> Point {
        Point { x, y }
    }

    /// Lines of text of size 10 at these places, letters 5 wide.
    fn page(lines: &[(f32, f32, &str)]) -> Vec<Line> {
        let mut all = Lines::default();
        for (x, y, text) in lines {
            let mut from = *x;
            for c in text.chars() {
                let glyph = Glyph {
                    start: at(from, *y),
                    end: at(from + 5.0, *y),
                    baseline: at(from, *y),
                    size: 10.0,
                };
                all.add(&glyph, &c.to_string());
                from += 5.0;
            }
        }
        all.end()
    }

    #[test]
    fn glyphs_with_gaps_are_words_and_jumps_are_lines() {
        let mut lines = Lines::default();
        let mut add = |x: f32, y: f32, size: f32, text: &str| {
            let glyph = Glyph {
                start: at(x, y),
                end: at(x + 5.0, y),
                baseline: at(x, y),
                size,
            };
            lines.add(&glyph, text);
        };
        add(0.0, 100.0, 10.0, "\u{fb01}");
        add(5.2, 100.0, 10.0, "t");
        add(5.3, 100.0, 10.0, "t");
        add(12.5, 100.0, 10.0, "b");
        add(17.5, 104.0, 7.0, "2");
        add(0.0, 88.0, 10.0, "c");
        let lines = lines.end();
        let texts: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(texts, ["fit b2", "c"]);
    }

    #[test]
    fn text_in_other_directions_is_read_along_itself() {
        for (dx, dy, turn) in [(0.0, 5.0, 1), (-5.0, 0.0, 2), (0.0, -5.0, 3)] {
            let mut lines = Lines::default();
            for (i, c) in ["a", "b"].iter().enumerate() {
                let on = |n: f32| at(100.0 + dx * n, 100.0 + dy * n);
                let glyph = Glyph {
                    start: on(i as f32),
                    end: on(i as f32 + 1.0),
                    baseline: on(i as f32),
                    size: 10.0,
                };
                lines.add(&glyph, c);
            }
            let lines = lines.end();
            assert_eq!((lines[0].text.as_str(), lines[0].turn), ("ab", turn));
        }
    }

    #[test]
    fn paragraphs_end_at_indents_gaps_and_short_last_lines() {
        let text = [
            (20.0, 200.0, "An indented first line of some text which"),
            (0.0, 188.0, "goes on to the edge of the block of the para-"),
            (0.0, 176.0, "graph and is short here."),
            (0.0, 164.0, "A second one without an indent at its begin"),
            (0.0, 152.0, "and well-known end that is as wide as others"),
            (
                20.0,
                140.0,
                "A third one that is indented at its first line",
            ),
            (0.0, 128.0, "and ends."),
            (0.0, 100.0, "After a gap"),
        ];
        let found = paragraphs(&page(&text));
        let want = [
            "An indented first line of some text which goes on to the edge of the block of the paragraph and is short here.",
            "A second one without an indent at its begin and well-known end that is as wide as others",
            "A third one that is indented at its first line and ends.",
            "After a gap",
        ];
        assert_eq!(found, want);
    }

    #[test]
    fn divided_words_become_one() {
        for (before, line, want) in [
            ("divi-", "ded", "divided"),
            ("Jean-", "Paul", "Jean-Paul"),
            ("a \u{2013}", "b", "a \u{2013} b"),
            ("divi\u{ad}", "ded", "divided"),
            ("1914-", "1918", "1914-1918"),
            ("\u{65e5}", "\u{672c}", "\u{65e5}\u{672c}"),
            ("a", "b", "a b"),
        ] {
            let mut text = before.to_string();
            join(&mut text, line);
            assert_eq!(text, want);
        }
    }
}
