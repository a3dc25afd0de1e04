//! Converts wikitext to plain text, as WikiExtractor (3.0.8) does, in one pass.
//!
//! A stack of open brackets: each `{{`, `[[` and `{|` opens a frame that collects its arguments; its closing
//! bracket pops the frame and appends its text to the one below. Templates are dropped except for a table of simple
//! ones (templates.rs); links become their text; files, categories, links to other languages and tables are
//! removed; references and the like are removed with their content (tags.rs); headings, lists and paragraphs are
//! kept (layout.rs).
//!
//! We differ from WikiExtractor: no template is expanded from the dump itself, list items and
//! preformatted text are kept, formulas stay as TeX between dollar signs, sections left empty lose
//! their heading. An open bracket that is never closed is text, as MediaWiki shows it. Time is linear:
//! frames nest at most [`DEPTH`] deep, deeper brackets are dropped.

mod entities;
mod layout;
mod links;
mod tags;
mod templates;
mod wiki;

pub(crate) use wiki::Wiki;

pub(crate) use entities::numeric_entity;

/// Brackets nest no deeper than this on any sound page.
const DEPTH: usize = 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Page,
    Template,
    /// `{{{parameter|default}}}`
    Parameter,
    Link,
    Table,
}

/// An open bracket with the arguments collected so far.
struct Frame {
    kind: Kind,
    args: Vec<String>,
}

impl Frame {
    fn new(kind: Kind) -> Frame {
        Frame {
            kind,
            args: vec![String::new()],
        }
    }

    fn text(&mut self) -> &mut String {
        // a frame has an argument from the start
        let last = self.args.len() - 1;
        &mut self.args[last]
    }

    /// Literal text of the bracket if it is never closed.
    fn literal(self) -> String {
        let open = match self.kind {
            Kind::Link => "[[",
            Kind::Page | Kind::Template | Kind::Parameter | Kind::Table => "",
        };
        format!("{open}{}", self.args.join("|"))
    }
}

/// True for `#REDIRECT [[...]]`, also in the larger wikis' own words.
pub(crate) fn is_redirect(source: &str) -> bool {
    let text = source.trim_start();
    let Some(rest) = text.strip_prefix('#') else {
        return false;
    };
    let word: String = rest
        .trim_start()
        .chars()
        .take_while(|c| !c.is_whitespace() && !"[:".contains(*c))
        .take(40)
        .collect();
    REDIRECTS.contains(&word.to_lowercase().as_str())
}

/// Local words for a redirect (MediaWiki languages/messages, the wikis with most articles).
const REDIRECTS: [&str; 24] = [
    "redirect",
    "weiterleitung",
    "redirection",
    "redirecci\u{f3}n",
    "redireccion",
    "rinvia",
    "rinvio",
    "doorverwijzing",
    "omdirigering",
    "omdirigering",
    "przekieruj",
    "patrz",
    "redirecionamento",
    "\u{43f}\u{435}\u{440}\u{435}\u{43d}\u{430}\u{43f}\u{440}\u{430}\u{432}\u{43b}\u{435}\u{43d}\u{438}\u{435}",
    "\u{43f}\u{435}\u{440}\u{435}\u{43d}\u{430}\u{43f}\u{440}",
    "\u{43f}\u{435}\u{440}\u{435}\u{43d}\u{430}\u{43f}\u{440}\u{430}\u{432}\u{43b}\u{435}\u{43d}\u{43d}\u{44f}",
    "\u{8ee2}\u{9001}",
    "\u{91cd}\u{5b9a}\u{5411}",
    "\u{91cd}\u{65b0}\u{5c0e}\u{5411}",
    "\u{62a}\u{62d}\u{648}\u{64a}\u{644}",
    "\u{62a}\u{63a}\u{6cc}\u{6cc}\u{631}_\u{645}\u{633}\u{6cc}\u{631}",
    "\u{111}\u{1ed5}i",
    "ohjaus",
    "y\u{f6}nlendirme",
];

/// The readable text of a page.
pub(crate) fn plain_text(source: &str, wiki: &Wiki<'_>) -> String {
    let mut parser = Parser {
        source,
        at: 0,
        stack: vec![Frame::new(Kind::Page)],
        tags: tags::Tags::default(),
        wiki,
        external: Vec::new(),
    };
    parser.run();
    layout::lay_out(&parser.finish())
}

struct Parser<'a> {
    source: &'a str,
    at: usize,
    stack: Vec<Frame>,
    tags: tags::Tags,
    wiki: &'a Wiki<'a>,
    /// External links whose bracket is still to come: how many frames were open before each.
    external: Vec<usize>,
}

impl Parser<'_> {
    fn run(&mut self) {
        let bytes = self.source.as_bytes();
        while self.at < bytes.len() {
            let rest = &bytes[self.at..];
            let plain = rest
                .iter()
                .position(|b| b"{}[]|<&\n'_".contains(b))
                .unwrap_or(rest.len());
            if plain > 0 {
                self.keep(plain);
                continue;
            }
            self.step(rest);
        }
    }

    /// Copies `n` bytes as they are.
    fn keep(&mut self, n: usize) {
        let piece = &self.source[self.at..self.at + n];
        self.put(piece);
        self.at += n;
    }

    fn put(&mut self, text: &str) {
        if let Some(frame) = self.stack.last_mut() {
            frame.text().push_str(text);
        }
    }

    fn top(&self) -> Kind {
        self.stack.last().map_or(Kind::Page, |f| f.kind)
    }

    /// Deals with a character that may mean something.
    fn step(&mut self, rest: &[u8]) {
        let line_start = self.at == 0 || self.source.as_bytes()[self.at - 1] == b'\n';
        match rest {
            [b'{', b'{', b'{', b'{', ..] => self.open(Kind::Template, 2),
            [b'{', b'{', b'{', ..] => self.open(Kind::Parameter, 3),
            [b'{', b'{', ..] => self.open(Kind::Template, 2),
            [b'{', b'|', ..] if self.is_line_start() => self.open(Kind::Table, 2),
            [b'|', b'}', b'}', ..] if self.top() == Kind::Template => self.argument(),
            [b'|', b'}', ..] if self.is_line_start() => self.close(Kind::Table, 2),
            [b'}', b'}', b'}', ..] if self.top() == Kind::Parameter => {
                self.close(Kind::Parameter, 3);
            }
            [b'}', b'}', ..] => self.close(Kind::Template, 2),
            [b'[', b'[', ..] => self.open(Kind::Link, 2),
            [b']', ..] if self.external.last() == Some(&self.stack.len()) => {
                self.external.pop();
                self.at += 1;
            }
            [b']', b']', ..] => self.close(Kind::Link, 2),
            [b'[', ..] => self.external_link(),
            [b'|', ..] if matches!(self.top(), Kind::Template | Kind::Link | Kind::Parameter) => {
                self.argument();
            }
            [b'<', ..] => self.tag(),
            [b'&', ..] => {
                let mut text = String::new();
                self.at += entities::read_entity(&self.source[self.at..], &mut text);
                self.put(&text);
            }
            [b'\'', b'\'', ..] => {
                // bold and italic: two, three or five; a single one is an apostrophe
                let run = rest.iter().take_while(|b| **b == b'\'').count();
                if run == 4 {
                    self.put("'");
                } else if run > 5 {
                    self.put(&"'".repeat((run - 5).min(80)));
                }
                self.at += run;
            }
            [b'_', b'_', ..] => self.magic_word(),
            [b'\n', b'\n', ..] => {
                self.drop_open_links();
                self.keep(1);
            }
            [b'\n', ..] if line_start => {
                self.drop_open_links();
                self.keep(1);
            }
            _ => self.keep(1),
        }
    }

    /// Only white space and colons (indents) before this on its line.
    fn is_line_start(&self) -> bool {
        let before = self.source[..self.at].bytes().rev();
        let mut indent = before.skip_while(|b| matches!(b, b' ' | b'\t' | b':'));
        indent.next().is_none_or(|b| b == b'\n')
    }

    fn open(&mut self, kind: Kind, length: usize) {
        self.at += length;
        if self.stack.len() <= DEPTH {
            self.stack.push(Frame::new(kind));
        }
    }

    fn argument(&mut self) {
        self.at += 1;
        if let Some(frame) = self.stack.last_mut() {
            frame.args.push(String::new());
        }
    }

    /// Closes the innermost bracket of a kind; brackets opened inside it and never closed are text.
    fn close(&mut self, kind: Kind, length: usize) {
        let open = self.stack.iter().rposition(|f| f.kind == kind);
        let table = self.stack.iter().rposition(|f| f.kind == Kind::Table);
        // a table is not left through a bracket that was opened before it
        let open = open.filter(|i| kind == Kind::Table || table.is_none_or(|t| t < *i));
        let Some(open) = open else {
            self.at += length;
            return;
        };
        while self.stack.len() > open + 1 {
            self.flatten();
        }
        self.at += length;
        if let Some(frame) = self.stack.pop() {
            let text = match kind {
                Kind::Template => templates::render(&frame.args, self.wiki),
                Kind::Link => links::internal(&frame.args),
                Kind::Parameter => frame.args.get(1).cloned().unwrap_or_default(),
                Kind::Page | Kind::Table => String::new(),
            };
            self.put(&text);
        }
    }

    /// The innermost bracket was never closed.
    fn flatten(&mut self) {
        if let Some(frame) = self.stack.pop() {
            let text = frame.literal();
            self.put(&text);
        }
    }

    /// A link ends at an empty line at the latest.
    fn drop_open_links(&mut self) {
        self.external.clear();
        while self.top() == Kind::Link {
            self.flatten();
        }
    }

    /// `[http://host/ label]` to its label.
    fn external_link(&mut self) {
        let rest = &self.source[self.at..];
        match links::external(rest) {
            Some(label) => {
                // the label is text like any other, up to its bracket
                self.at += label;
                self.external.push(self.stack.len());
            }
            None => self.keep(1),
        }
    }

    fn tag(&mut self) {
        let rest = &self.source[self.at..];
        let (text, length) = self.tags.read(rest);
        self.put(&text);
        self.at += length;
    }

    /// `__NOTOC__` and its like.
    fn magic_word(&mut self) {
        let rest = &self.source[self.at + 2..];
        let word = rest
            .bytes()
            .take(40)
            .take_while(|b| b.is_ascii_uppercase() || *b >= 0x80)
            .count();
        if word > 2 && rest.as_bytes()[word..].starts_with(b"__") {
            self.at += word + 4;
        } else {
            self.keep(2);
        }
    }

    fn finish(mut self) -> String {
        while self.stack.len() > 1 {
            self.flatten();
        }
        self.stack
            .pop()
            .map(|f| f.args.join("|"))
            .unwrap_or_default()
    }
}
