//! Tokens of a text: words, numbers, signs and ends of lines.
//!
//! A token is a run of letters, marks and digits, with apostrophes inside (`O'Brien`, but not the `'s` of `Anna's`); any
//! other character but blanks is a token of its own. Letters are Latin ones: characters of other scripts are signs, so
//! that their texts have nothing that could be a name.

use std::ops::Range;

/// Longest token in bytes that may be part of a name or address; longer ones are read without a look at their content.
const LONGEST: usize = 48;

/// Class of a token, as far as the search for names needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Begins with a capital letter.
    Capital,
    /// Has a digit.
    Number,
    /// Another word.
    Word,
    /// A sign.
    Sign,
    /// The end of a line.
    Line,
    /// The end of a paragraph, or a token longer than `LONGEST`: nothing reaches across it.
    Wall,
}

impl Class {
    /// Whether a name or address can begin with it.
    pub(super) fn is_strong(self) -> bool {
        matches!(self, Class::Capital | Class::Number)
    }
}

/// A token of a text.
#[derive(Clone, Debug)]
pub(super) struct Token {
    /// Bytes of the text.
    pub(super) span: Range<usize>,
    pub(super) class: Class,
}

/// Kind of a character.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Upper,
    Lower,
    Digit,
    Blank,
    Line,
    Apostrophe,
    Sign,
}

const ASCII: [Kind; 128] = {
    let mut kinds = [Kind::Sign; 128];
    let mut b = 0u8;
    while b < 128 {
        kinds[b as usize] = match b {
            b'A'..=b'Z' => Kind::Upper,
            b'a'..=b'z' => Kind::Lower,
            b'0'..=b'9' => Kind::Digit,
            b'\n' => Kind::Line,
            b'\'' => Kind::Apostrophe,
            0..=b' ' | 0x7f => Kind::Blank,
            _ => Kind::Sign,
        };
        b += 1;
    }
    kinds
};

/// Kind and length in bytes of the character at `at`.
fn kind(text: &str, at: usize) -> Option<(Kind, usize)> {
    let byte = *text.as_bytes().get(at)?;
    if let Some(kind) = ASCII.get(usize::from(byte)) {
        return Some((*kind, 1));
    }
    let c = text[at..].chars().next()?;
    let kind = match c {
        '\u{2019}' => Kind::Apostrophe,
        '\u{85}' | '\u{2028}' | '\u{2029}' => Kind::Line,
        // combining marks, and the letters of the Latin blocks
        '\u{300}'..='\u{36f}' => Kind::Lower,
        'ª' | 'º' | '\u{c0}'..='\u{24f}' | '\u{1e00}'..='\u{1eff}' if c.is_uppercase() => {
            Kind::Upper
        }
        'ª' | 'º' | '\u{c0}'..='\u{24f}' | '\u{1e00}'..='\u{1eff}' if c.is_alphabetic() => {
            Kind::Lower
        }
        c if c.is_whitespace() => Kind::Blank,
        _ => Kind::Sign,
    };
    Some((kind, c.len_utf8()))
}

/// Tokens of a text in order.
pub(super) struct Tokens<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Tokens { text, at: 0 }
    }

    /// The end of one or more lines that begins at `start`.
    fn line(&mut self, start: usize) -> Token {
        let mut lines = 0;
        let mut end = start;
        while let Some((kind @ (Kind::Blank | Kind::Line), len)) = kind(self.text, self.at) {
            self.at += len;
            if kind == Kind::Line {
                lines += 1;
                end = self.at;
            }
        }
        let class = if lines > 1 { Class::Wall } else { Class::Line };
        Token {
            span: start..end,
            class,
        }
    }

    /// The word that begins at `start` with a character of the kind.
    fn word(&mut self, start: usize, first: Kind) -> Token {
        let mut has_digit = false;
        while let Some((found, len)) = kind(self.text, self.at) {
            match found {
                Kind::Digit => has_digit = true,
                Kind::Upper | Kind::Lower => {}
                Kind::Apostrophe if self.joins(len) => {}
                Kind::Apostrophe | Kind::Blank | Kind::Line | Kind::Sign => break,
            }
            self.at += len;
        }
        let class = if self.at - start > LONGEST {
            Class::Wall
        } else if has_digit {
            Class::Number
        } else if first == Kind::Upper {
            Class::Capital
        } else {
            Class::Word
        };
        Token {
            span: start..self.at,
            class,
        }
    }

    /// Whether the apostrophe of so many bytes is inside a word: two letters or more follow it, or a capital one.
    fn joins(&self, len: usize) -> bool {
        let next = self.at + len;
        match kind(self.text, next) {
            Some((Kind::Upper, _)) => true,
            Some((Kind::Lower, more)) => {
                let second = kind(self.text, next + more).is_some_and(|k| k.0 == Kind::Lower);
                let ending = &self.text.as_bytes()[next..(next + 2).min(self.text.len())];
                second && !matches!(ending, b"re" | b"ve" | b"ll")
            }
            Some((Kind::Digit | Kind::Blank | Kind::Line | Kind::Apostrophe | Kind::Sign, _))
            | None => false,
        }
    }
}

impl Iterator for Tokens<'_> {
    type Item = Token;

    #[inline]
    fn next(&mut self) -> Option<Token> {
        loop {
            let start = self.at;
            let (found, len) = kind(self.text, start)?;
            return Some(match found {
                Kind::Blank => {
                    self.at += len;
                    continue;
                }
                Kind::Line => self.line(start),
                Kind::Upper | Kind::Lower | Kind::Digit => self.word(start, found),
                Kind::Apostrophe | Kind::Sign => {
                    self.at += len;
                    Token {
                        span: start..self.at,
                        class: Class::Sign,
                    }
                }
            });
        }
    }
}
