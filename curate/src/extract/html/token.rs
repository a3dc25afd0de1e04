//! HTML tokenizer without copies.
//!
//! The states of the HTML standard (WHATWG, section 13.2.5) folded into byte searches: text between markup is
//! skipped at the speed of `memchr`. Tokens are spans of the page; character references are resolved by the reader
//! of a span (entity.rs). A test compares the tokens with html5ever's on random markup.
//!
//! We differ: doctypes, comments and processing instructions give no token.

use memchr::{memchr, memchr2, memmem};

use super::names::Tag;
use crate::text::narrow;

/// Part of the page, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Span {
    pub(super) fn new(start: usize, end: usize) -> Span {
        Span {
            start: narrow(start),
            end: narrow(end),
        }
    }
}

/// One piece of the page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Token {
    /// Text between markup, or the content of a raw text element.
    Text(Span),
    /// A start tag with the span of its name.
    Start(Span),
    /// An end tag with the span of its name.
    End(Span),
}

/// Cuts a page into tokens.
pub(crate) struct Tokenizer<'a> {
    bytes: &'a [u8],
    at: usize,
    raw: Option<Tag>,
    /// Inside SVG or MathML, where CDATA sections are text.
    pub(super) foreign: bool,
    /// The last start tag ended in "/>".
    pub(crate) is_self_closing: bool,
}

fn is_space(b: u8) -> bool {
    matches!(b, b' ' | b'\n' | b'\t' | b'\r' | 0x0c)
}

impl<'a> Tokenizer<'a> {
    pub(crate) fn new(html: &'a str) -> Tokenizer<'a> {
        Tokenizer {
            bytes: html.as_bytes(),
            at: 0,
            raw: None,
            foreign: false,
            is_self_closing: false,
        }
    }

    /// Switches to raw text up to the end tag of `tag`.
    pub(crate) fn enter_raw(&mut self, tag: Tag) {
        self.raw = Some(tag);
    }

    /// Bytes of the page read so far.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// The next token; `attribute` is called with the name and value of each attribute of a start tag.
    pub(crate) fn next(&mut self, attribute: &mut impl FnMut(Span, Span)) -> Option<Token> {
        if let Some(tag) = self.raw.take() {
            let start = self.at;
            self.at = self.raw_end(tag);
            if self.at > start {
                return Some(Token::Text(Span::new(start, self.at)));
            }
        }
        loop {
            let start = self.at;
            let at = self.markup_from(start);
            if at > start {
                self.at = at;
                return Some(Token::Text(Span::new(start, at)));
            }
            match *self.bytes.get(at + 1)? {
                b'!' => {
                    if let Some(text) = self.declaration(at) {
                        return Some(Token::Text(text));
                    }
                }
                b'?' => self.at = self.after(b'>', at + 2),
                b'/' => match self.bytes.get(at + 2) {
                    Some(b'>') => self.at = at + 3,
                    Some(b) if b.is_ascii_alphabetic() => {
                        let name = self.name(at + 2);
                        // Attributes of end tags mean nothing.
                        if self.attributes(&mut |_, _| ()).is_some() {
                            return Some(Token::End(name));
                        }
                    }
                    _ => self.at = self.after(b'>', at + 2),
                },
                _ => {
                    let name = self.name(at + 1);
                    if self.attributes(attribute).is_some() {
                        return Some(Token::Start(name));
                    }
                }
            }
        }
    }

    /// Position of the next markup, at `from` or later.
    fn markup_from(&self, from: usize) -> usize {
        let end = self.bytes.len();
        let mut at = from;
        while let Some(i) = self.bytes.get(at..).and_then(|rest| memchr(b'<', rest)) {
            at += i;
            match self.bytes.get(at + 1) {
                Some(b'!' | b'?') => return at,
                // "</" at the very end is text.
                Some(b'/') if at + 2 < end => return at,
                Some(b) if b.is_ascii_alphabetic() => return at,
                _ => at += 1,
            }
        }
        end
    }

    /// Just behind the next `wanted`, or the end.
    fn after(&self, wanted: u8, from: usize) -> usize {
        let rest = self.bytes.get(from..).unwrap_or_default();
        memchr(wanted, rest).map_or(self.bytes.len(), |i| from + i + 1)
    }

    /// Skips the declaration that `<!` at `at` opens; returns the text of a CDATA section.
    fn declaration(&mut self, at: usize) -> Option<Span> {
        let rest = &self.bytes[at..];
        if rest.starts_with(b"<!--") {
            self.at = self.comment_end(at + 4);
            return None;
        }
        if self.foreign && rest.starts_with(b"<![CDATA[") {
            let start = at + 9;
            let end =
                memmem::find(&self.bytes[start..], b"]]>").map_or(self.bytes.len(), |i| start + i);
            self.at = (end + 3).min(self.bytes.len());
            return (end > start).then(|| Span::new(start, end));
        }
        self.at = self.after(b'>', at + 2);
        None
    }

    /// Behind a comment whose content begins at `from`.
    fn comment_end(&self, from: usize) -> usize {
        let rest = &self.bytes[from..];
        if rest.starts_with(b">") {
            return from + 1;
        }
        if rest.starts_with(b"->") {
            return from + 2;
        }
        let mut at = from;
        while let Some(i) = memmem::find(&self.bytes[at..], b"--") {
            at += i + 2;
            while self.bytes.get(at) == Some(&b'-') {
                at += 1;
            }
            match self.bytes.get(at) {
                Some(b'>') => return at + 1,
                Some(b'!') if self.bytes.get(at + 1) == Some(&b'>') => return at + 2,
                _ => {}
            }
        }
        self.bytes.len()
    }

    /// The name that begins at `start`; moves behind it.
    fn name(&mut self, start: usize) -> Span {
        let mut at = start;
        while let Some(&b) = self.bytes.get(at) {
            if is_space(b) || b == b'/' || b == b'>' {
                break;
            }
            at += 1;
        }
        self.at = at;
        Span::new(start, at)
    }

    /// Reads attributes and the end of the tag; None, at the end of the page, if it has none.
    fn attributes(&mut self, attribute: &mut impl FnMut(Span, Span)) -> Option<()> {
        let read = self.read_attributes(attribute);
        if read.is_none() {
            self.at = self.bytes.len();
        }
        read
    }

    fn read_attributes(&mut self, attribute: &mut impl FnMut(Span, Span)) -> Option<()> {
        let bytes = self.bytes;
        let mut at = self.at;
        self.is_self_closing = false;
        loop {
            let b = *bytes.get(at)?;
            if b == b'>' {
                self.at = at + 1;
                return Some(());
            }
            if is_space(b) || b == b'/' {
                at += 1;
                self.is_self_closing = b == b'/' && bytes.get(at) == Some(&b'>');
                continue;
            }
            let start = at;
            // The first character belongs to the name even if it is "=".
            at += 1;
            while !matches!(bytes.get(at)?, b'/' | b'>' | b'=') && !is_space(bytes[at]) {
                at += 1;
            }
            let name = Span::new(start, at);
            let mut sign = at;
            while is_space(*bytes.get(sign)?) {
                sign += 1;
            }
            if bytes[sign] != b'=' {
                attribute(name, Span::new(at, at));
                continue;
            }
            at = sign + 1;
            while is_space(*bytes.get(at)?) {
                at += 1;
            }
            let value = match bytes[at] {
                quote @ (b'"' | b'\'') => {
                    let end = at + 1 + memchr(quote, &bytes[at + 1..])?;
                    let value = Span::new(at + 1, end);
                    at = end + 1;
                    value
                }
                _ => {
                    let start = at;
                    while bytes.get(at).is_some_and(|&b| b != b'>' && !is_space(b)) {
                        at += 1;
                    }
                    Span::new(start, at)
                }
            };
            attribute(name, value);
        }
    }

    /// End of the raw text that begins here.
    fn raw_end(&self, tag: Tag) -> usize {
        match tag {
            Tag::Plaintext => self.bytes.len(),
            Tag::Script => self.script_end(),
            _ => {
                let mut at = self.at;
                loop {
                    match self.bytes.get(at..).and_then(|rest| memchr(b'<', rest)) {
                        None => return self.bytes.len(),
                        Some(i) => at += i,
                    }
                    if self.is_tag(at, b"</", tag) {
                        return at;
                    }
                    at += 1;
                }
            }
        }
    }

    /// Whether `opening` and the name of `tag` are at `at`, and the name ends there.
    fn is_tag(&self, at: usize, opening: &[u8], tag: Tag) -> bool {
        let name = tag.text().as_bytes();
        let rest = &self.bytes[at..];
        let end = opening.len() + name.len();
        rest.len() > end
            && rest.starts_with(opening)
            && rest[opening.len()..end].eq_ignore_ascii_case(name)
            && (is_space(rest[end]) || matches!(rest[end], b'/' | b'>'))
    }

    /// End of a script. In `<!--`, `<script` hides the next `</script`: old pages hide scripts from
    /// browsers that know none.
    fn script_end(&self) -> usize {
        let (mut hidden, mut nested) = (false, false);
        let mut at = self.at;
        loop {
            let rest = self.bytes.get(at..).unwrap_or_default();
            // "-->" matters only after "<!--".
            let found = if hidden {
                memchr2(b'<', b'-', rest)
            } else {
                memchr(b'<', rest)
            };
            match found {
                None => return self.bytes.len(),
                Some(i) => at += i,
            }
            let rest = &self.bytes[at..];
            if rest.starts_with(b"-->") {
                (hidden, nested) = (false, false);
                at += 3;
            } else if !hidden && rest.starts_with(b"<!--") {
                hidden = true;
                // Both dashes may be those of "-->".
                at += 2;
            } else if self.is_tag(at, b"</", Tag::Script) {
                if !nested {
                    return at;
                }
                nested = false;
                at += 8;
            } else if hidden && !nested && self.is_tag(at, b"<", Tag::Script) {
                nested = true;
                at += 7;
            } else {
                at += 1;
            }
        }
    }
}
