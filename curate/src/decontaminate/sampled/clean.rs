//! Tokens of profile `decon`: lower case, punctuation and runs of white space as one space, one space in front,
//! then UAX 29's segments.

use unicode_segmentation::UnicodeSegmentation;
use xxhash_rust::xxh3::xxh3_64;

/// decon's punctuation outside ASCII.
const PUNCTUATION: &str = "\u{201c}\u{201d}\u{2018}\u{2019}\u{2014}";

/// A text's tokens.
pub(super) struct Tokens {
    /// With the space in front.
    text: String,
    /// Start of each token in it.
    starts: Vec<usize>,
    hashes: Vec<u64>,
}

impl Tokens {
    pub(super) fn of(text: &str) -> Tokens {
        let mut made = Tokens {
            text: String::with_capacity(text.len() + 1),
            starts: Vec::new(),
            hashes: Vec::new(),
        };
        made.text.push(' ');
        clean(text, &mut made.text);
        for (start, segment) in made.text.split_word_bound_indices() {
            made.starts.push(start);
            made.hashes.push(xxh3_64(segment.as_bytes()));
        }
        made
    }

    pub(super) fn len(&self) -> usize {
        self.hashes.len()
    }

    /// True for a text of only white space and punctuation.
    pub(super) fn is_blank(&self) -> bool {
        self.text.len() == 1
    }

    pub(super) fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    /// Tokens `first` to `last`.
    pub(super) fn text(&self, first: usize, last: usize) -> &str {
        let end = self.starts.get(last + 1).copied();
        &self.text[self.starts[first]..end.unwrap_or(self.text.len())]
    }
}

/// Appends a text without punctuation, capitals and white space at the ends.
pub(super) fn clean(text: &str, out: &mut String) {
    let first = out.len();
    let mut space = false;
    for c in text.to_lowercase().chars() {
        if c.is_whitespace() || c.is_ascii_punctuation() || PUNCTUATION.contains(c) {
            space = true;
            continue;
        }
        if space && out.len() > first {
            out.push(' ');
        }
        space = false;
        out.push(c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn punctuation_is_space_and_spaces_are_tokens() {
        let tokens = Tokens::of("  \u{201c}Don't\u{201d} -- STOP\u{2014}3.14\n ");
        assert_eq!(tokens.text, " don t stop 3 14");
        assert_eq!(tokens.len(), 10);
        assert_eq!(tokens.text(1, 3), "don t");
        assert!(Tokens::of("?!").is_blank() && !tokens.is_blank());
    }
}
