//! LaTeX to paragraphs: text as it is printed, formulas as TeX.
//!
//! Sections become headings, lists and tables keep their form, floats keep their captions. Macros of the paper are
//! expanded, in formulas too. Citations become numbers in brackets, in the order of the bibliography or else of the
//! citations; cross references become `[ref]`; footnotes come in parentheses. Unknown commands go, their arguments
//! stay.

mod definitions;
mod lists;
mod marks;

use std::collections::HashMap;

use unicode_normalization::UnicodeNormalization;

use super::input::Input;
use super::macros::{Macro, Macros};
use super::names::{
    ACCENTS, BOXES, CHARACTERS, CODES, DROPPED, FORMULAS, HEADINGS, LISTS, PICTURES, REFERENCES,
    STYLED, TABLES, find,
};
use super::source::is_delimiter;
use crate::read::flow::{Flow, escape};
use lists::Lists;

/// Texts inside each other that are converted on their own: titles, notes, captions.
const MAX_INLINE: usize = 24;

/// Bytes of an entry of the bibliography that have its key.
const MAX_ENTRY: usize = 500;

/// A paper being converted.
pub(super) struct Converter {
    input: Input,
    macros: Macros,
    flow: Flow,
    /// HTML of the current paragraph.
    now: String,
    lists: Lists,
    /// Open tables, with whether a row is open.
    tables: Vec<bool>,
    inline: usize,
    /// Texts inside each other that are names or headings.
    unmarked: usize,
    theorems: HashMap<String, String>,
    /// Numbers of citations.
    cited: HashMap<String, usize>,
    /// Text of the bibliography, if it is wanted.
    bibliography: Option<String>,
    pub(super) title: Option<String>,
    pub(super) authors: Vec<String>,
    is_titled: bool,
}

/// A converted paper.
pub(super) struct Converted {
    pub(super) parts: Vec<String>,
    /// HTML.
    pub(super) title: Option<String>,
    pub(super) authors: Vec<String>,
}

/// Converts a whole text; `bibliography` is that of another file, if it is to be kept.
///
/// # Errors
/// Its macros expand to more than `most` bytes.
pub(super) fn convert(
    text: &str,
    bibliography: Option<String>,
    most: usize,
) -> Result<Converted, String> {
    let (preamble, body) = match text.split_once("\\begin{document}") {
        Some((preamble, body)) => (preamble, body),
        None => ("", text),
    };
    let mut converter = Converter {
        input: Input::default(),
        macros: Macros::default(),
        flow: Flow::default(),
        now: String::new(),
        lists: Lists::default(),
        tables: Vec::new(),
        inline: 0,
        unmarked: 0,
        theorems: HashMap::new(),
        cited: HashMap::new(),
        title: None,
        authors: Vec::new(),
        is_titled: false,
        bibliography,
    };
    let listed = converter.bibliography.clone();
    for text in [Some(text), listed.as_deref()].into_iter().flatten() {
        converter.number(text);
    }
    converter.input = Input::of(preamble.to_string(), most);
    converter.run();
    // of the preamble only definitions and the title count
    converter.now.clear();
    converter.flow = Flow::default();
    let left = converter.input.left;
    let is_over = converter.input.is_over;
    converter.input = Input::of(body.to_string(), left);
    converter.run();
    if is_over || converter.input.is_over {
        return Err(format!(
            "macros expand past {most} bytes, or inside each other"
        ));
    }
    converter.flush();
    Ok(Converted {
        parts: converter.flow.end(&[]),
        title: converter.title,
        authors: converter.authors,
    })
}

impl Converter {
    /// Numbers the entries of a bibliography.
    fn number(&mut self, text: &str) {
        for (at, _) in text.match_indices("\\bibitem") {
            let end = text.floor_char_boundary(at + MAX_ENTRY);
            let mut input = Input::of(text[at + "\\bibitem".len()..end].to_string(), 0);
            input.skip_space();
            input.optional();
            let key = input.argument();
            self.cite(&key);
        }
    }

    /// Number of a citation.
    fn cite(&mut self, key: &str) -> usize {
        let next = self.cited.len() + 1;
        *self.cited.entry(key.trim().to_string()).or_insert(next)
    }

    fn run(&mut self) {
        while let Some(c) = self.input.next() {
            match c {
                '\\' => self.command(),
                '$' => self.dollar(),
                '{' | '}' | '#' => {}
                '~' => self.now.push(' '),
                '&' if !self.tables.is_empty() => self.cell(),
                '`' if self.input.take('`') => self.now.push('\u{201c}'),
                '`' => self.now.push('\u{2018}'),
                '\'' if self.input.take('\'') => self.now.push('\u{201d}'),
                '-' if self.input.take('-') => {
                    let is_long = self.input.take('-');
                    self.now.push(if is_long { '\u{2014}' } else { '\u{2013}' });
                }
                c if c.is_whitespace() => {
                    let lines = usize::from(c == '\n') + self.input.skip_space();
                    if lines > 1 {
                        self.flush();
                    } else {
                        self.now.push(' ');
                    }
                }
                c => escape(&mut self.now, c.encode_utf8(&mut [0; 4])),
            }
        }
    }

    /// Ends the paragraph.
    fn flush(&mut self) {
        if self.inline > 0 || !self.tables.is_empty() {
            self.now.push(' ');
            return;
        }
        let html = std::mem::take(&mut self.now);
        if html.trim().is_empty() {
            return;
        }
        let html = html.trim();
        let Some(item) = self.lists.take_item() else {
            return self.flow.paragraph(html);
        };
        match item.number {
            Some(number) => self.flow.numbered_item(item.level, number, html),
            None => self.flow.item(item.level, item.is_ordered, html),
        }
    }

    /// A text of its own, as HTML.
    fn inline(&mut self, text: String) -> String {
        if self.inline >= MAX_INLINE {
            return String::new();
        }
        let input = Input::of(text, self.input.left);
        let outer = std::mem::replace(&mut self.input, input);
        let now = std::mem::take(&mut self.now);
        let tables = std::mem::take(&mut self.tables);
        self.inline += 1;
        self.run();
        self.inline -= 1;
        self.tables = tables;
        let inner = std::mem::replace(&mut self.input, outer);
        self.input.left = inner.left;
        if inner.is_over {
            self.input.is_over = true;
            self.input.stop();
        }
        std::mem::replace(&mut self.now, now)
    }

    /// The next argument as HTML.
    fn inline_argument(&mut self) -> String {
        let text = self.input.argument();
        self.inline(text).trim().to_string()
    }

    /// A formula between dollars.
    fn dollar(&mut self) {
        if self.input.take('$') {
            let formula = self.formula(&End::Dollars);
            self.display(&format!("$${}$$", formula.trim()));
        } else {
            let formula = self.formula(&End::Dollar);
            escape(&mut self.now, &format!("${formula}$"));
        }
    }

    fn display(&mut self, formula: &str) {
        let mut html = String::new();
        escape(&mut html, formula);
        if self.inline > 0 || !self.tables.is_empty() {
            self.now.push_str(&html);
            return;
        }
        self.flush();
        self.flow.paragraph(&html);
    }

    /// TeX of a formula up to its end, with the paper's macros expanded and without labels.
    fn formula(&mut self, end: &End<'_>) -> String {
        let mut out = String::new();
        let mut depth = 0usize;
        while let Some(c) = self.input.next() {
            match c {
                '$' if depth == 0 && matches!(end, End::Dollar) => return out,
                '$' if depth == 0 && matches!(end, End::Dollars) => {
                    self.input.take('$');
                    return out;
                }
                '\\' => {
                    let name = self.input.name();
                    match (end, name.as_str()) {
                        (End::Command(wanted), found) if *wanted == found => return out,
                        (End::Environment(wanted), "end") => {
                            let found = self.input.argument();
                            if found == *wanted {
                                return out;
                            }
                            out.push_str(&format!("\\end{{{found}}}"));
                        }
                        (_, "label") => drop(self.input.argument()),
                        (_, "nonumber" | "notag") => {}
                        _ if self.expand(&name) => {}
                        _ => {
                            out.push('\\');
                            out.push_str(&name);
                        }
                    }
                    // a name ends before a letter that a macro put behind it
                    let is_word = name.chars().all(|c| c.is_ascii_alphabetic());
                    let next = self.input.peek();
                    if is_word && out.ends_with(&name) && next.is_some_and(char::is_alphabetic) {
                        out.push(' ');
                    }
                }
                c if c.is_whitespace() => {
                    let lines = usize::from(c == '\n') + self.input.skip_space();
                    // an empty line ends a formula that has no end, as in TeX
                    if lines > 1 && !matches!(end, End::Environment(_)) {
                        self.input.push("\n\n".to_string());
                        return out;
                    }
                    out.push(' ');
                }
                c => {
                    match c {
                        '{' => depth += 1,
                        '}' => depth = depth.saturating_sub(1),
                        _ => {}
                    }
                    out.push(c);
                }
            }
        }
        out
    }

    /// Expands one of the paper's macros; false if it has none of this name.
    fn expand(&mut self, name: &str) -> bool {
        let Some(known) = self.macros.get(name) else {
            return false;
        };
        // one that expands to nothing is read all the same
        if !self.input.spend(known.cost()) {
            return true;
        }
        let is_word = name.chars().all(|c| c.is_ascii_alphabetic());
        if is_word && known.arguments == 0 {
            self.skip_blanks();
        }
        let mut arguments = Vec::new();
        if let Some(default) = known.default.clone() {
            self.skip_blanks();
            arguments.push(self.input.optional().unwrap_or(default));
        }
        while arguments.len() < known.arguments {
            arguments.push(self.input.argument());
        }
        match known.expand(&arguments, self.input.left) {
            Some(text) => self.input.push(text),
            None => {
                self.input.is_over = true;
                self.input.stop();
            }
        }
        true
    }

    /// Spaces behind a command's name are not printed.
    fn skip_blanks(&mut self) {
        while self.input.peek().is_some_and(|c| c == ' ' || c == '\t') {
            self.input.next();
        }
    }

    fn command(&mut self) {
        let name = self.input.name();
        if self.expand(&name) {
            return;
        }
        if name.chars().all(|c| c.is_ascii_alphabetic()) {
            self.skip_blanks();
        }
        match name.as_str() {
            "begin" => self.begin(),
            "end" => self.end(),
            "(" | "[" => self.bracketed(&name),
            "\\" | "tabularnewline" | "cr" => self.line_end(),
            "item" => self.item(),
            "par" => self.flush(),
            "newcommand" | "renewcommand" | "DeclareRobustCommand" => self.define(false),
            "providecommand" => self.define(true),
            "def" | "gdef" | "edef" | "xdef" => self.define_plain(),
            "DeclareMathOperator" => {
                self.input.take('*');
                let name = self.input.argument();
                let body = format!("\\operatorname{{{}}}", self.input.argument());
                let new = Macro::new(0, None, &body);
                self.macros
                    .define(name.trim_start_matches('\\'), new, false);
            }
            "let" => self.alias(),
            "newtheorem" => self.theorem(),
            "newenvironment" | "renewenvironment" => {
                self.input.take('*');
                self.input.argument();
                while self.input.optional().is_some() {}
                self.input.argument();
                self.input.argument();
            }
            "title" => {
                self.input.optional();
                let title = self.unmarked_argument();
                self.title = Some(title).filter(|title| !title.is_empty());
            }
            "author" => {
                self.input.optional();
                let author = self.unmarked_argument();
                self.authors.push(author);
            }
            "texorpdfstring" => {
                let text = self.input.argument();
                self.input.argument();
                self.input.push(text);
            }
            "and" | "And" | "AND" => self.now.push_str("; "),
            "maketitle" => self.show_title(),
            "abstract" => {
                self.flush();
                let text = self.inline_argument();
                self.flow_heading(2, "Abstract");
                self.now = text;
                self.flush();
            }
            "caption" | "captionof" => {
                self.input.take('*');
                if name == "captionof" {
                    self.input.argument();
                }
                self.input.optional();
                let text = self.inline_argument();
                self.flush();
                self.now.push_str(&text);
                self.flush();
            }
            "footnote" | "footnotetext" | "endnote" => {
                self.input.optional();
                let text = self.inline_argument();
                if !text.is_empty() {
                    self.now.push_str(&format!(" ({text})"));
                }
            }
            "verb" | "lstinline" => self.verb(&name),
            "url" | "path" | "nolinkurl" => {
                let mark = self.input.peek().filter(|mark| is_delimiter(*mark));
                let text = mark.and_then(|mark| self.input.between(mark));
                let text = text.unwrap_or_else(|| self.input.argument());
                escape(&mut self.now, &text);
            }
            "textbf" | "textit" | "emph" => {
                let tag = if name == "textbf" { "b" } else { "i" };
                self.marked(&format!("<{tag}>"), &format!("</{tag}>"));
            }
            "href" => self.link(),
            "multicolumn" => {
                let columns = self.input.argument();
                self.input.argument();
                if self.inline == 0 && !self.tables.is_empty() && self.now.trim().is_empty() {
                    self.row();
                    self.flow.span(columns.trim().parse().unwrap_or(1), 1);
                }
            }
            "ensuremath" => {
                let text = self.input.argument();
                self.input.push(format!("${text}$"));
            }
            "bibitem" => {
                self.input.optional();
                let key = self.input.argument();
                self.input.skip_space();
                let number = self.cite(&key);
                self.flush();
                self.now.push_str(&format!("[{number}] "));
            }
            "bibliography" | "printbibliography" => {
                if name == "bibliography" {
                    self.input.argument();
                }
                if let Some(text) = self.bibliography.take() {
                    self.input.push(text);
                    self.bibliography = Some(String::new());
                }
            }
            "iffalse" | "else" => self.skip_condition(),
            _ => self.other(&name),
        }
    }

    fn other(&mut self, name: &str) {
        if let Some(level) = find(&HEADINGS, name) {
            self.input.take('*');
            self.skip_blanks();
            self.input.optional();
            let title = self.unmarked_argument();
            return self.flow_heading(level, &title);
        }
        if let Some(accent) = find(&ACCENTS, name) {
            return self.accent(accent);
        }
        if let Some(text) = find(&CHARACTERS, name) {
            return escape(&mut self.now, text);
        }
        if name.contains("cite") && !name.starts_with("no") {
            return self.citation();
        }
        if REFERENCES.contains(&name) {
            self.input.take('*');
            self.input.argument();
            return self.now.push_str("[ref]");
        }
        if let Some(count) = find(&DROPPED, name).or_else(|| find(&STYLED, name)) {
            self.input.take('*');
            self.input.optional();
            for _ in 0..count {
                self.input.argument();
                self.input.optional();
            }
            return;
        }
        match name {
            "%" | "$" | "_" | "{" | "}" | "#" => self.now.push_str(name),
            "&" => self.now.push_str("&amp;"),
            " " | "," | ";" | ":" | "\n" | ">" => self.now.push(' '),
            "!" | "/" | "-" | "@" | "<" | "+" | "*" => {}
            _ => drop(self.input.optional()),
        }
    }

    fn bracketed(&mut self, name: &str) {
        if name == "(" {
            let formula = self.formula(&End::Command(")"));
            escape(&mut self.now, &format!("${}$", formula.trim()));
        } else {
            let formula = self.formula(&End::Command("]"));
            self.display(&format!("\\[{}\\]", formula.trim_end()));
        }
    }

    fn line_end(&mut self) {
        self.input.take('*');
        self.input.optional();
        if self.tables.is_empty() {
            self.now.push(' ');
        } else {
            self.row_end();
        }
    }

    fn flow_heading(&mut self, level: usize, title: &str) {
        if self.inline > 0 {
            self.now.push_str(title);
            self.now.push(' ');
            return;
        }
        self.flush();
        self.flow.heading(level, title);
    }

    fn show_title(&mut self) {
        if self.inline == 0 && !self.is_titled {
            self.is_titled = true;
            self.flush();
            if let Some(title) = self.title.clone() {
                self.flow.heading(1, &title);
            }
        }
    }

    fn accent(&mut self, accent: char) {
        let text = self.unmarked_argument();
        let mut chars = text.chars();
        let Some(letter) = chars.next() else { return };
        let both: String = [letter, accent].iter().collect();
        self.now.extend(both.nfc());
        self.now.push_str(chars.as_str());
    }

    fn citation(&mut self) {
        self.input.take('*');
        while self.input.optional().is_some() {}
        let keys = self.input.argument();
        let numbers: Vec<String> = keys
            .split(',')
            .filter(|key| !key.trim().is_empty())
            .map(|key| self.cite(key).to_string())
            .collect();
        if !numbers.is_empty() {
            self.now.push_str(&format!("[{}]", numbers.join(", ")));
        }
    }

    fn verb(&mut self, name: &str) {
        if name == "lstinline" {
            self.input.optional();
            self.skip_blanks();
        }
        self.input.take('*');
        if self.input.peek() == Some('{') {
            let code = self.input.argument();
            return escape(&mut self.now, &code);
        }
        let Some(mark) = self.input.next() else {
            return;
        };
        // code ends with its line at the latest, as in TeX
        while let Some(c) = self.input.peek().filter(|c| *c != '\n') {
            self.input.next();
            if c == mark {
                break;
            }
            escape(&mut self.now, c.encode_utf8(&mut [0; 4]));
        }
    }

    /// Skips a branch of a condition, to its end or its other branch.
    fn skip_condition(&mut self) {
        let mut depth = 0;
        while let Some(c) = self.input.next() {
            if c != '\\' {
                continue;
            }
            let name = self.input.name();
            match name.as_str() {
                "fi" | "else" if depth == 0 => return self.skip_blanks(),
                "fi" => depth -= 1,
                // \iff is an arrow
                name if name.starts_with("if") && name != "iff" => depth += 1,
                _ => {}
            }
        }
    }

    fn begin(&mut self) {
        let name = self.input.argument();
        let bare = name.trim_end_matches('*');
        let end = format!("\\end{{{name}}}");
        if FORMULAS.contains(&bare) {
            let formula = self.formula(&End::Environment(&name));
            return self.display(&format!("\\begin{{{name}}}{}{end}", formula.trim_end()));
        }
        if PICTURES.contains(&name.as_str()) {
            drop(self.input.through(&end));
            return;
        }
        if CODES.contains(&name.as_str()) {
            let mut language = None;
            if name == "minted" {
                self.input.optional();
                language = Some(self.input.argument());
            } else if name == "lstlisting" || name == "Verbatim" {
                language = self.input.optional().as_deref().and_then(language_of);
            }
            let code = self.input.through(&end);
            let mut html = String::new();
            escape(&mut html, code.trim_matches('\n'));
            self.flush();
            if self.inline > 0 || !self.tables.is_empty() {
                self.now.push_str(&html);
            } else {
                let language = language.map(|name| name.trim().to_ascii_lowercase());
                self.flow.code(language.as_deref(), &html);
            }
            return;
        }
        if let Some(count) = find(&TABLES, &name) {
            self.input.optional();
            for _ in 0..count {
                self.input.argument();
            }
            return self.open_table();
        }
        match name.as_str() {
            list if LISTS.contains(&list) => {
                let option = self.input.optional().unwrap_or_default();
                self.flush();
                self.lists.begin(list, &option);
            }
            "thebibliography" => {
                self.input.argument();
                if self.bibliography.is_none() {
                    drop(self.input.through(&end));
                } else {
                    self.flow_heading(2, "References");
                }
            }
            "abstract" => self.flow_heading(2, "Abstract"),
            "proof" => {
                self.flush();
                let title = self.input.optional();
                let title = title.map_or("Proof".to_string(), |title| self.inline(title));
                self.now.push_str(&format!("{title}. "));
            }
            _ => self.other_environment(&name),
        }
    }

    fn other_environment(&mut self, name: &str) {
        if let Some(title) = self.theorems.get(name).cloned() {
            self.flush();
            let note = self.input.optional();
            let note = note.map(|note| self.inline(note));
            let note = note.map_or(String::new(), |note| format!(" ({note})"));
            return self.now.push_str(&format!("{title}{note}. "));
        }
        self.flush();
        self.input.optional();
        for _ in 0..find(&BOXES, name).unwrap_or(0) {
            self.input.argument();
        }
    }

    fn end(&mut self) {
        let name = self.input.argument();
        if find(&TABLES, &name).is_some() {
            return self.close_table();
        }
        self.flush();
        match name.as_str() {
            list if LISTS.contains(&list) => self.lists.end(),
            "document" => self.input.stop(),
            _ => {}
        }
    }

    fn item(&mut self) {
        self.flush();
        let label = self.input.optional();
        self.lists.item(label.is_some());
        if let Some(label) = label {
            let label = self.inline(label);
            self.now.push_str(&format!("{} ", label.trim()));
        }
    }

    fn open_table(&mut self) {
        if self.inline > 0 {
            // rows of a table in a title are words
            return;
        }
        if self.tables.is_empty() {
            self.flush();
        }
        self.flow.open_table();
        self.tables.push(false);
    }

    /// Opens a row if none is.
    fn row(&mut self) {
        if let Some(is_open) = self.tables.last_mut().filter(|is_open| !**is_open) {
            *is_open = true;
            self.flow.open_row();
            self.flow.open_cell();
        }
    }

    /// Ends a cell and starts the next one.
    fn cell(&mut self) {
        self.row();
        let html = std::mem::take(&mut self.now);
        self.flow.paragraph(html.trim());
        self.flow.close_cell();
        self.flow.open_cell();
    }

    fn row_end(&mut self) {
        let is_open = self.tables.last().copied().unwrap_or(false);
        if !is_open && self.now.trim().is_empty() {
            self.now.clear();
            return;
        }
        self.row();
        let html = std::mem::take(&mut self.now);
        self.flow.paragraph(html.trim());
        self.flow.close_cell();
        self.flow.close_row(false);
        if let Some(is_open) = self.tables.last_mut() {
            *is_open = false;
        }
    }

    fn close_table(&mut self) {
        if self.tables.is_empty() {
            return;
        }
        self.row_end();
        self.tables.pop();
        self.flow.close_table();
    }
}

/// The language among the options of a listing: `language=Python`, `language={[ANSI]C}` without its dialect.
fn language_of(options: &str) -> Option<String> {
    let mut options = options
        .split(',')
        .filter_map(|option| option.split_once('='));
    let (_, value) = options.find(|(key, _)| key.trim() == "language")?;
    let value = value.trim().trim_start_matches('{').trim_end_matches('}');
    let name = value.rsplit(']').next().unwrap_or(value);
    Some(name.trim().to_string())
}

/// Where a formula ends.
enum End<'a> {
    Dollar,
    Dollars,
    Command(&'a str),
    Environment(&'a str),
}
