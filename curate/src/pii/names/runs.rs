//! Runs: the stretches of a text that may hold a name or address.
//!
//! A run begins and ends with a strong token (a capital letter or a digit) and has at most `GAP` other tokens between two
//! of them. Labels are chosen within a run; all else is outside without a look at it. Prose has a sixth of its tokens in runs.

use super::features::{COMMON, Word};
use super::tokens::{Class, Token, Tokens};

/// Most tokens without a capital letter or digit between two that have one.
const GAP: usize = 3;
/// Longest run in tokens; it is cut there, so that memory does not grow with the text.
const LONGEST: usize = 256;
/// Tokens before and behind a run that its features see.
pub(super) const AROUND: usize = 2;

/// A run with its neighbours: `AROUND` words before the first token and behind the last, absent ones walls.
#[derive(Default)]
pub(super) struct Run {
    pub(super) tokens: Vec<Token>,
    /// As many as tokens and twice `AROUND` more.
    pub(super) words: Vec<Word>,
}

/// Calls `each` with every run of the text in which a name or address can be.
pub(super) fn walk(text: &str, classes: impl Fn(u64) -> u8, mut each: impl FnMut(&Run)) {
    let mut tokens = Tokens::new(text).fuse();
    // tokens read: `AROUND` of context, the run, and what follows
    let mut window: Vec<Token> = Vec::new();
    let mut first = 0;
    let mut run = Run::default();
    loop {
        // the first strong token that is not yet in a run
        while window.get(first).is_none_or(|t| !t.class.is_strong()) {
            if first == window.len() {
                let Some(token) = tokens.next() else { return };
                window.push(token);
            } else {
                first += 1;
                if first > AROUND {
                    window.drain(..first - AROUND);
                    first = AROUND;
                }
            }
        }
        let (mut end, mut at) = (first + 1, first + 1);
        while at - end <= GAP && end - first < LONGEST {
            if at == window.len() {
                let Some(token) = tokens.next() else { break };
                window.push(token);
            }
            match window[at].class {
                Class::Wall => break,
                Class::Capital | Class::Number => end = at + 1,
                Class::Word | Class::Sign | Class::Line => {}
            }
            at += 1;
        }
        while window.len() < end + AROUND {
            let Some(token) = tokens.next() else { break };
            window.push(token);
        }
        run.read(text, &window, first..end, &classes, &mut each);
        first = end;
        if first > AROUND {
            window.drain(..first - AROUND);
            first = AROUND;
        }
    }
}

impl Run {
    fn read(
        &mut self,
        text: &str,
        window: &[Token],
        range: std::ops::Range<usize>,
        classes: &impl Fn(u64) -> u8,
        each: &mut impl FnMut(&Run),
    ) {
        let tokens = &window[range.clone()];
        // a number alone is neither
        if !tokens.iter().any(|t| t.class == Class::Capital) {
            return;
        }
        self.words.clear();
        let (before, behind) = (
            range.start.min(AROUND),
            (window.len() - range.end).min(AROUND),
        );
        let word = |token: &Token| Word::new(text, token, classes);
        self.words.resize(AROUND - before, Word::wall());
        self.words.extend(
            window[range.start - before..range.end + behind]
                .iter()
                .map(word),
        );
        self.words.resize(tokens.len() + 2 * AROUND, Word::wall());
        // most sentences begin with a capital letter and a word like any other
        let is_plain = |(token, word): (&Token, &Word)| match token.class {
            Class::Capital => word.classes() == u64::from(COMMON),
            Class::Number => false,
            Class::Word | Class::Sign | Class::Line | Class::Wall => true,
        };
        if tokens.iter().zip(&self.words[AROUND..]).all(is_plain) {
            return;
        }
        self.tokens.clear();
        self.tokens.extend_from_slice(tokens);
        each(self);
    }
}
