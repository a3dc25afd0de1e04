//! The null tokenizer: text that is ids already, decimal numbers separated by blanks.
//!
//! Facts: Megatron-LM's `NullTokenizer` (core, 2026): `text.split(' ')` through `int`, end of document = the last id.
//! Before 2025 its end of document was the given number and the vocabulary one larger; for that, give `null:` with the
//! number plus one.
//! We differ: any run of ASCII white space separates; a number at or past the vocabulary is an error, not a wrong id.

use crate::error::{Error, Result};
use std::fmt::Write;
use std::path::Path;

/// A vocabulary of numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Null {
    vocab: u32,
    end: u32,
}

impl Null {
    /// `null:VOCAB` or `null:VOCAB:END`, or nothing if `path` is an ordinary one.
    pub(super) fn parse(path: &Path) -> Result<Option<Null>> {
        let Some(numbers) = path.to_str().and_then(|p| p.strip_prefix("null:")) else {
            return Ok(None);
        };
        let (vocab, end) = numbers.split_once(':').unzip();
        let vocab = vocab.unwrap_or(numbers).parse::<u32>();
        let vocab = vocab.ok().filter(|v| (1..=1 << 31).contains(v));
        let end = match (vocab, end) {
            (Some(vocab), None) => Some(vocab - 1),
            (Some(vocab), Some(end)) => end.parse().ok().filter(|e| *e < vocab),
            (None, _) => None,
        };
        match vocab.zip(end) {
            Some((vocab, end)) => Ok(Some(Null { vocab, end })),
            None => Err(Error::Tokenizer {
                path: path.to_path_buf(),
                why: format!(
                    "found {numbers:?}, wanted a vocabulary of 1 to 2147483648, and after a colon an id below it if any"
                ),
            }),
        }
    }

    /// The same numbers with another end of document.
    pub(super) fn ending(self, end: u32) -> Null {
        Null { end, ..self }
    }

    /// The name that [`Null::parse`] reads.
    pub(super) fn name(self) -> String {
        if self.end == self.vocab - 1 {
            format!("null:{}", self.vocab)
        } else {
            format!("null:{}:{}", self.vocab, self.end)
        }
    }

    /// Ids are below this.
    pub(super) fn vocab(self) -> u32 {
        self.vocab
    }

    /// The last id, unless another was named.
    pub(super) fn end_of_document(self) -> u32 {
        self.end
    }

    /// A number that is an id.
    pub(super) fn id_of(self, token: &str) -> Option<u32> {
        token.parse().ok().filter(|id| *id < self.vocab)
    }

    /// Appends the numbers of `text`; the error names the byte.
    pub(super) fn encode_into(self, text: &str, out: &mut Vec<u32>) -> Result<(), String> {
        for word in text.split_ascii_whitespace() {
            match word.parse::<u32>() {
                Ok(id) if id < self.vocab && !word.starts_with('+') => out.push(id),
                _ => {
                    let offset = word.as_ptr() as usize - text.as_ptr() as usize;
                    let shown: String = word.chars().take(40).collect();
                    return Err(format!(
                        "byte {offset} of the text: found {shown:?}, wanted an id below {}",
                        self.vocab
                    ));
                }
            }
        }
        Ok(())
    }

    /// The numbers, one blank between two.
    pub(super) fn decode(self, ids: &[u32]) -> String {
        let mut text = String::new();
        for id in ids {
            let blank = if text.is_empty() { "" } else { " " };
            // writing to a String cannot fail
            let _ = write!(text, "{blank}{id}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use crate::tokenizer::Tokenizer;
    use std::path::Path;

    #[test]
    fn numbers_are_their_own_ids_and_decode_back() {
        let t = Tokenizer::load(Path::new("null:100")).unwrap();
        assert_eq!(t.encode("5 0  99\n7").unwrap(), [5, 0, 99, 7]);
        assert_eq!(t.decode(&[5, 0, 99]).unwrap(), "5 0 99");
        assert_eq!((t.vocab(), t.end_of_document()), (100, Some(99)));
    }

    #[test]
    fn another_end_of_document_is_part_of_the_name_and_the_identity() {
        let t = Tokenizer::load(Path::new("null:100:7")).unwrap();
        assert_eq!(
            (t.vocab(), t.end_of_document(), t.json()),
            (100, Some(7), "null:100:7")
        );
        let options = crate::tokenizer::LoadOptions {
            eod: Some("7".into()),
            ..Default::default()
        };
        let asked = Tokenizer::load_with(Path::new("null:100"), &options).unwrap();
        assert_eq!(
            (asked.end_of_document(), asked.identity()),
            (Some(7), t.identity())
        );
        let last = Tokenizer::load(Path::new("null:100:99")).unwrap();
        assert_eq!(
            last.identity(),
            Tokenizer::load(Path::new("null:100")).unwrap().identity()
        );
    }

    #[test]
    fn what_is_no_id_is_named_with_its_byte() {
        let t = Tokenizer::load(Path::new("null:100")).unwrap();
        for (text, at) in [
            ("1 2 100", 4),
            ("-1", 0),
            ("1 x", 2),
            ("4294967296", 0),
            ("+1", 0),
        ] {
            let why = t.encode(text).unwrap_err().to_string();
            assert!(why.contains(&format!("byte {at} ")), "{why}");
        }
        for path in [
            "null:",
            "null:0",
            "null:x",
            "null:-5",
            "null:5:5",
            "null:5:",
            "null:4294967295",
        ] {
            assert!(Tokenizer::load(Path::new(path)).is_err(), "{path}");
        }
    }
}
