//! Renders the chosen blocks as readable text.
//!
//! Plain text: a blank line between paragraphs, headings as lines, list items behind "- ", cells of a row between "
//! | " up to the last one with text, empty ones too, code as it is. Markdown (CommonMark with GitHub's tables) adds the marks of headings, ordered items,
//! quotes, code fences, table heads, what is marked inside of text (inline.rs) and footnotes (`[^1]`, GitHub's and Pandoc's); text is
//! not escaped, because its reader is a model and not a browser, but for bars in cells, which would shift the columns. Footnotes that
//! the text refers to come last, whether or not their blocks were chosen. Numbers of the lines of some code are left out.

use std::borrow::Cow;

use rustc_hash::{FxHashMap, FxHashSet};

use super::blocks::{Block, Page, Shape};
use super::config::{ExtractConfig, TextForm};
use super::html::Id;
use super::inline::Inline;
use super::marks::mark;
use super::pieces::PieceKind;
use super::rows::Cells;

/// A text, and how many notes it has in Markdown.
pub(super) struct Text {
    pub(super) text: String,
    pub(super) notes: usize,
}

/// Joins the blocks with these numbers; Markdown numbers the notes from `first_note` on.
pub(super) fn render(
    page: &Page,
    chosen: &[usize],
    config: &ExtractConfig,
    first_note: usize,
) -> Text {
    let bytes: usize = chosen
        .iter()
        .map(|&i| page.blocks[i].bytes() as usize + 4)
        .sum();
    let mut out = Renderer {
        page,
        text: String::with_capacity(bytes),
        is_markdown: config.format == TextForm::Markdown,
        previous: None,
        lists: Vec::new(),
        is_behind_caption: false,
        fence: String::new(),
        notes: Vec::new(),
        first_note,
    };
    if out.is_markdown {
        out.notes = notes_of(page, chosen);
    }
    for &i in chosen {
        let block = &page.blocks[i];
        let is_note = block.note != 0 && out.notes.contains(&block.note);
        let is_numbers = block.shape == Shape::Code && page.numbers.contains(&block.group);
        if !is_note && !is_numbers {
            out.push(i);
        }
    }
    out.end_code();
    out.footnotes();
    Text {
        notes: out.notes.len(),
        text: out.text,
    }
}

/// A note has at most so many bytes of text, in so many blocks: a link may lead to a whole chapter.
const MOST_NOTE_BYTES: u32 = 4000;
const MOST_NOTE_BLOCKS: u32 = 8;
/// A page has at most so many notes.
const MOST_NOTES: usize = 1000;

/// Numbers of the notes that the chosen blocks refer to, in the order of their references.
fn notes_of(page: &Page, chosen: &[usize]) -> Vec<u32> {
    let mut sizes: FxHashMap<u32, (u32, u32, bool)> = FxHashMap::default();
    for block in page.blocks.iter().filter(|block| block.note > 0) {
        let size = sizes.entry(block.note).or_default();
        size.0 += block.bytes();
        size.1 += 1;
        let has_text = page.text_of(block).contains(char::is_alphanumeric);
        size.2 |= has_text;
    }
    let is_note = |number: &u32| {
        let size = sizes.get(number);
        size.is_some_and(|s| s.0 <= MOST_NOTE_BYTES && s.1 <= MOST_NOTE_BLOCKS && s.2)
    };
    let mut seen = FxHashSet::default();
    let mut notes = Vec::new();
    for &i in chosen.iter().filter(|&&i| page.blocks[i].note == 0) {
        for piece in page.pieces_of(&page.blocks[i]) {
            if let PieceKind::Note(number) = piece.kind
                && notes.len() < MOST_NOTES
                && is_note(&number)
                && seen.insert(number)
            {
                notes.push(number);
            }
        }
    }
    notes
}

/// A fence around some code.
fn fence(code: &str) -> String {
    let runs = code.split(|c| c != '`').map(str::len);
    "`".repeat(runs.max().map_or(3, |most| most.max(2) + 1))
}

/// An ordered list; all 0 for another one.
#[derive(Clone, Copy, Default)]
struct List {
    id: Id,
    /// The last item's number.
    number: u32,
    /// Numbers have a bracket behind them: the list follows one with dots, of which Markdown would else take it for a part
    /// (CommonMark 0.31.2, 5.3).
    has_bracket: bool,
}

struct Renderer<'p> {
    page: &'p Page,
    text: String,
    is_markdown: bool,
    previous: Option<&'p Block>,
    /// The open list of each level, while items follow each other.
    lists: Vec<List>,
    /// The previous block is the caption of a table.
    is_behind_caption: bool,
    /// The open fence of a block of code, longer than any run of backticks inside.
    fence: String,
    /// The notes that are written, in their order; their numbers are places in it, from the first one's.
    notes: Vec<u32>,
    /// Number of the first note.
    first_note: usize,
}

impl<'p> Renderer<'p> {
    fn push(&mut self, number: usize) {
        let block = &self.page.blocks[number];
        let same = |p: &&Block| p.shape == block.shape && p.group == block.group;
        // GitHub's tables have no captions: one is a paragraph in front of the table
        let is_caption = self.is_markdown && self.page.captions.contains(&number);
        let is_beside_caption = is_caption || self.is_behind_caption;
        let continues = !is_beside_caption && self.previous.is_some_and(|p| same(&p));
        let is_new_list = !continues && self.counts_anew(block);
        let in_list =
            |p: &&Block| p.shape == Shape::Item && block.shape == Shape::Item && !is_new_list;
        if !continues {
            self.end_code();
        }
        match &self.previous {
            None => {}
            Some(p) if in_list(p) => self.text.push('\n'),
            Some(_)
                if continues
                    && block.shape != Shape::Paragraph
                    && block.shape != Shape::Heading =>
            {
                self.text.push('\n');
            }
            Some(_) => self.text.push_str("\n\n"),
        }
        if is_caption {
            self.write(block, "", " ");
        } else if self.is_markdown {
            self.markdown(number, block, continues);
        } else {
            self.plain(number, block, continues);
        }
        self.previous = Some(block);
        self.is_behind_caption = is_caption;
    }

    /// Counts an item; whether it starts an ordered list right behind another one. A list that goes on with the other's next number
    /// is a part of it.
    fn counts_anew(&mut self, block: &Block) -> bool {
        if block.shape != Shape::Item {
            self.lists.clear();
            return false;
        }
        let level = usize::from(block.level.max(1));
        self.lists.resize(level, List::default());
        let Some(open) = self.lists.last_mut() else {
            return false;
        };
        let before = *open;
        let is_new = before.id != 0
            && block.list != 0
            && before.id != block.list
            && before.number.checked_add(1) != Some(block.number);
        *open = List {
            id: block.list,
            number: block.number,
            has_bracket: block.list != 0 && (before.has_bracket != is_new),
        };
        is_new
    }

    fn plain(&mut self, number: usize, block: &Block, continues: bool) {
        if block.shape == Shape::Item && !continues {
            self.text.push_str("- ");
        }
        match self.page.cells.get(&number) {
            Some(cells) if block.shape == Shape::Row => self.plain_row(block, cells),
            Some(_) | None => self.write(block, "", "\n"),
        }
    }

    /// Writes a row with every cell in its column, up to the last one with text. White space at the start of a line
    /// would say nothing: it starts with the bar behind an empty cell.
    fn plain_row(&mut self, block: &Block, cells: &Cells) {
        let mut column = 0;
        let start = self.text.len();
        for (cell, own) in self.page.text_of(block).split('\t').zip(&cells.columns) {
            while column < *own {
                self.text.push_str(" | ");
                column += 1;
            }
            self.text.push_str(cell.trim());
        }
        if self.text[start..].starts_with(' ') {
            self.text.remove(start);
        }
    }

    fn markdown(&mut self, number: usize, block: &Block, continues: bool) {
        let is_quote = block.near[mark::QUOTE] != 0;
        let quote = if is_quote { "> " } else { "" };
        match block.shape {
            Shape::Heading => {
                self.text
                    .push_str(&"#".repeat(block.level.clamp(1, 6).into()));
                self.text.push(' ');
                self.write(block, "", " ");
            }
            Shape::Item => {
                let indent = "  ".repeat(block.level.clamp(1, 12) as usize - 1);
                self.text.push_str(&indent);
                let bullet = match block.number {
                    _ if continues => "  ".to_string(),
                    0 => "- ".to_string(),
                    n if self.lists.last().is_some_and(|list| list.has_bracket) => {
                        format!("{n}) ")
                    }
                    n => format!("{n}. "),
                };
                self.text.push_str(&bullet);
                self.write(block, "", &format!("\n{indent}  "));
            }
            Shape::Row => {
                let width = self.row(number, block);
                if !continues {
                    self.text.push('\n');
                    self.text.push_str(&"| --- ".repeat(width));
                    self.text.push('|');
                }
            }
            Shape::Code => {
                if !continues {
                    self.fence = fence(self.page.text_of(block));
                    self.text.push_str(&self.fence);
                    let language = self.page.languages.get(&block.group);
                    self.text.push_str(language.map_or("", String::as_str));
                    self.text.push('\n');
                }
                self.write(block, "", "\n");
            }
            Shape::Paragraph => self.write(block, quote, &format!("\n{quote}")),
        }
    }

    /// Text of a block with `first` before it and `line` for its line breaks.
    fn write(&mut self, block: &Block, first: &str, line: &str) {
        self.text.push_str(first);
        if block.shape == Shape::Code {
            self.text.push_str(self.page.text_of(block));
            return;
        }
        let text = self.marked(block);
        for (i, part) in text.split('\n').enumerate() {
            if i > 0 {
                self.text.push_str(line);
            }
            for (j, cell) in part.split('\t').enumerate() {
                if j > 0 {
                    self.text.push_str(" | ");
                }
                self.text.push_str(cell.trim());
            }
        }
    }

    /// Writes a row with every cell in its column; returns the number of columns.
    fn row(&mut self, number: usize, block: &Block) -> usize {
        let text = self.marked(block);
        let page = self.page;
        let known = page.cells.get(&number);
        let mut column = 0;
        self.text.push('|');
        for (i, cell) in text.split('\t').enumerate() {
            let own = known.and_then(|cells| cells.columns.get(i).copied());
            while own.is_some_and(|own| column < own) {
                self.text.push_str("  |");
                column += 1;
            }
            let cell = cell.trim().replace('\n', " ").replace('|', "\\|");
            for part in [" ", &cell, " |"] {
                self.text.push_str(part);
            }
            column += 1;
        }
        while known.is_some_and(|cells| column < cells.width) {
            self.text.push_str("  |");
            column += 1;
        }
        column
    }

    /// Text of a block, in Markdown with its marked pieces.
    fn marked(&self, block: &Block) -> Cow<'p, str> {
        if !self.is_markdown {
            return Cow::Borrowed(self.page.text_of(block));
        }
        let inline = Inline {
            page: self.page,
            notes: &self.notes,
            first_note: self.first_note,
        };
        inline.text(block)
    }

    /// The notes, behind everything else.
    fn footnotes(&mut self) {
        if self.notes.is_empty() {
            return;
        }
        let mut texts: FxHashMap<u32, Vec<&Block>> = FxHashMap::default();
        for block in self.page.blocks.iter().filter(|block| block.note > 0) {
            texts.entry(block.note).or_default().push(block);
        }
        for (i, number) in self.notes.clone().into_iter().enumerate() {
            let mut lines = String::new();
            for block in texts.remove(&number).unwrap_or_default() {
                let text = self.marked(block).replace(['\n', '\t'], " ");
                // arrows and letters that lead back
                let text = text.trim_matches(|c: char| {
                    c.is_whitespace() || "^\u{2191}\u{21a9}\u{fe0e}".contains(c)
                });
                if !text.is_empty() {
                    lines.push_str(if lines.is_empty() { "" } else { "\n\n    " });
                    lines.push_str(text);
                }
            }
            self.text.push_str(if i == 0 { "\n\n" } else { "\n" });
            self.text
                .push_str(&format!("[^{}]: {lines}", i + self.first_note));
        }
    }

    fn end_code(&mut self) {
        if self.is_markdown && self.previous.is_some_and(|p| p.shape == Shape::Code) {
            self.text.push('\n');
            self.text.push_str(&self.fence);
        }
    }
}
