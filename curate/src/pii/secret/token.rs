//! JSON web tokens (RFC 7519): three parts in base64 between dots, of which the first two are JSON objects.
//!
//! A token ends where a run of its characters ends, and each `eyJ` behind a `-` or a dot of that run may begin it. A run is
//! read once: its end and its last dots decide about all of these beginnings, of which a hostile text has one in four bytes.

use std::ops::{Range, RangeInclusive};

use super::alphabet::Alphabet;

/// Beginning of a JSON object in base64: `{"`.
pub(super) const HEAD: &str = "eyJ";
/// Characters behind the beginning.
pub(super) const CHARACTERS: RangeInclusive<usize> = 40..=4000;
/// Characters of the shortest part.
const PART: usize = 10;

/// Finds the ends of tokens in a text, from front to back.
pub(super) struct Tokens<'t> {
    bytes: &'t [u8],
    /// The run that was read last, from the first beginning in it.
    run: Range<usize>,
    /// Its last three dots, the last one first.
    dots: [Option<usize>; 3],
}

impl<'t> Tokens<'t> {
    pub(super) fn new(bytes: &'t [u8]) -> Tokens<'t> {
        Tokens {
            bytes,
            run: 0..0,
            dots: [None; 3],
        }
    }

    /// End of the token that begins at `start`, if one does; no `start` is before one that was asked for.
    pub(super) fn end(&mut self, start: usize) -> Option<usize> {
        if !self.run.contains(&start) {
            self.read(start);
        }
        let end = self.run.end;
        // exactly two dots behind the beginning
        let [Some(last), Some(first), before] = self.dots else {
            return None;
        };
        if first < start || before.is_some_and(|dot| dot >= start) {
            return None;
        }
        let parts = [start..first, first + 1..last, last + 1..end];
        let is_object = self.bytes[first + 1..].starts_with(HEAD.as_bytes());
        let is_long = parts.iter().all(|part| part.len() >= PART);
        let length = end - (start + HEAD.len());
        (is_object && is_long && CHARACTERS.contains(&length)).then_some(end)
    }

    /// Reads the run from `start` on.
    fn read(&mut self, start: usize) {
        self.dots = [None; 3];
        let rest = self.bytes.iter().enumerate().skip(start);
        let run = rest.take_while(|(_, b)| Alphabet::Dotted.has(**b));
        self.run = start..start;
        for (i, b) in run {
            if *b == b'.' {
                self.dots = [Some(i), self.dots[0], self.dots[1]];
            }
            self.run.end = i + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rule, by one look at each beginning.
    fn naive(bytes: &[u8], start: usize) -> Option<usize> {
        let rest = &bytes[start..];
        let length = rest.iter().take_while(|b| Alphabet::Dotted.has(**b));
        let token = &rest[..length.count()];
        let parts: Vec<&[u8]> = token.split(|b| *b == b'.').collect();
        let is_token = parts.len() == 3
            && parts[1].starts_with(b"eyJ")
            && parts.iter().all(|part| part.len() >= 10)
            && (40..=4000).contains(&(token.len() - 3));
        is_token.then_some(start + token.len())
    }

    /// Every place of `eyJ`.
    fn beginnings(text: &str) -> Vec<usize> {
        text.match_indices("eyJ").map(|found| found.0).collect()
    }

    #[test]
    fn tokens_are_those_of_a_look_at_every_beginning() {
        let part = |n: usize| "eyJ0eXAiOiJKV1Qi".repeat(n);
        let token = |n: usize| format!("{}.{}.{}", part(n), part(1), "x".repeat(12));
        let mut found = 0;
        for text in [
            token(1),
            token(9),
            format!("-{}", token(3)),
            format!("{}.{}", part(2), token(2)),
            format!("{} {}", token(1), token(2)),
            format!("{}.{}", token(1), token(1)),
            format!("{}.short.{}", part(2), part(2)),
            format!("{}.{}.short", part(2), part(2)),
            format!("eyJ.{}.{}", part(2), part(2)),
            format!("{}.{}.{}", part(1), "y".repeat(12), part(1)),
            format!("{}{}", "eyJ-".repeat(900), token(26)),
            format!("{}{}", "eyJ-".repeat(990), token(2)),
            "-eyJ".repeat(20),
            "eyJ".to_string(),
        ] {
            let mut tokens = Tokens::new(text.as_bytes());
            for start in beginnings(&text) {
                let want = naive(text.as_bytes(), start);
                assert_eq!(tokens.end(start), want, "{start} of {text}");
                found += usize::from(want.is_some());
            }
        }
        assert!(found > 20, "{found}");
    }

    #[test]
    fn a_run_is_read_once_whatever_begins_in_it() {
        let text = "-eyJ".repeat(1000) + ".";
        let mut tokens = Tokens::new(text.as_bytes());
        let mut runs = 0;
        for start in beginnings(&text) {
            let before = tokens.run.clone();
            assert_eq!(tokens.end(start), None);
            runs += usize::from(tokens.run != before);
        }
        assert_eq!(runs, 1);
        assert_eq!(tokens.run, 1..text.len());
    }
}
