//! Renders the chosen blocks as readable text.
//!
//! Plain text: a blank line between paragraphs, headings as lines, list items behind "- ", cells of a row between "
//! | ", code as it is. Markdown (CommonMark with GitHub's tables) adds the marks of headings, ordered items,
//! quotes, code fences and table heads; text is not escaped, because its reader is a model and not a browser.

use super::blocks::{Block, Page, Shape};
use super::config::{ExtractConfig, TextForm};
use super::marks::mark;

/// Joins the blocks with these numbers.
pub(super) fn render(page: &Page, chosen: &[usize], config: &ExtractConfig) -> String {
    let bytes: usize = chosen
        .iter()
        .map(|&i| page.blocks[i].bytes() as usize + 4)
        .sum();
    let mut out = Renderer {
        page,
        text: String::with_capacity(bytes),
        is_markdown: config.format == TextForm::Markdown,
        previous: None,
        fence: String::new(),
    };
    for &i in chosen {
        out.push(&page.blocks[i]);
    }
    out.end_code();
    out.text
}

/// A fence around some code.
fn fence(code: &str) -> String {
    let runs = code.split(|c| c != '`').map(str::len);
    "`".repeat(runs.max().map_or(3, |most| most.max(2) + 1))
}

struct Renderer<'p> {
    page: &'p Page,
    text: String,
    is_markdown: bool,
    previous: Option<&'p Block>,
    /// The open fence of a block of code, longer than any run of backticks inside.
    fence: String,
}

impl<'p> Renderer<'p> {
    fn push(&mut self, block: &'p Block) {
        let same = |p: &&Block| p.shape == block.shape && p.group == block.group;
        let continues = self.previous.is_some_and(|p| same(&p));
        let in_list = |p: &&Block| p.shape == Shape::Item && block.shape == Shape::Item;
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
        if self.is_markdown {
            self.markdown(block, continues);
        } else {
            self.plain(block, continues);
        }
        self.previous = Some(block);
    }

    fn plain(&mut self, block: &Block, continues: bool) {
        if block.shape == Shape::Item && !continues {
            self.text.push_str("- ");
        }
        self.write(block, "", "\n");
    }

    fn markdown(&mut self, block: &Block, continues: bool) {
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
                    n => format!("{n}. "),
                };
                self.text.push_str(&bullet);
                self.write(block, "", &format!("\n{indent}  "));
            }
            Shape::Row => {
                self.text.push_str("| ");
                self.write(block, "", " ");
                self.text.push_str(" |");
                if !continues {
                    let cells = self.page.text_of(block).matches('\t').count() + 1;
                    self.text.push('\n');
                    self.text.push_str(&"| --- ".repeat(cells));
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
        let text = self.page.text_of(block);
        if block.shape == Shape::Code {
            self.text.push_str(text);
            return;
        }
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

    fn end_code(&mut self) {
        if self.is_markdown && self.previous.is_some_and(|p| p.shape == Shape::Code) {
            self.text.push('\n');
            self.text.push_str(&self.fence);
        }
    }
}
