//! Counts of a text in one pass over its characters.
//!
//! Words are runs of letters and digits; scripts without spaces count two characters per word.

use super::marks::{WORD_SEED, is_stop_word, word_hash};

/// Counts of a text.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Counts {
    pub(super) chars: u32,
    pub(super) words: u32,
    pub(super) letters: u32,
    pub(super) upper: u32,
    pub(super) digits: u32,
    pub(super) stop_words: u32,
    /// Ends of sentences.
    pub(super) ends: u32,
    pub(super) commas: u32,
    /// Kind of the first and the last character, see `kind_of`.
    pub(super) first: u8,
    pub(super) last: u8,
}

/// Kind of a character at the edge of a text: 0 other, 1 upper case, 2 lower case or caseless
/// letter, 3 digit, 4 full stop, 5 question or exclamation mark, 6 colon, 7 comma or semicolon,
/// 8 quote or bracket, 9 dash, bar or arrow, 10 ellipsis.
fn kind_of(c: char) -> u8 {
    match c {
        '.' | '\u{3002}' | '\u{ff0e}' | '\u{964}' | '\u{6d4}' => 4,
        '!' | '?' | '\u{ff01}' | '\u{ff1f}' | '\u{61f}' => 5,
        ':' | '\u{ff1a}' => 6,
        ',' | ';' | '\u{3001}' | '\u{ff0c}' => 7,
        '"'
        | '\''
        | '('
        | ')'
        | '['
        | ']'
        | '\u{ab}'
        | '\u{bb}'
        | '\u{2018}'..='\u{201f}'
        | '\u{300c}'..='\u{300f}' => 8,
        '-'
        | '|'
        | '/'
        | '*'
        | '>'
        | '\u{2010}'..='\u{2015}'
        | '\u{2022}'
        | '\u{b7}'
        | '\u{203a}'
        | '\u{2190}'..='\u{21ff}' => 9,
        '\u{2026}' => 10,
        c if c.is_ascii_digit() => 3,
        c if c.is_uppercase() => 1,
        c if c.is_alphanumeric() => 2,
        _ => 0,
    }
}

/// Scripts without spaces between words.
pub(super) fn is_unspaced(c: char) -> bool {
    matches!(u32::from(c), 0xe00..=0xeff | 0x1000..=0x109f | 0x1780..=0x17ff | 0x3040..=0x30ff
        | 0x3400..=0x9fff | 0xac00..=0xd7af | 0xf900..=0xfaff | 0x20000..=0x2fa1f)
}

/// Counts a text.
pub(super) fn count(text: &str) -> Counts {
    let mut c = Counts::default();
    let mut hash = WORD_SEED;
    let mut in_word = false;
    let mut unspaced = 0;
    for ch in text.chars() {
        c.chars += 1;
        if ch.is_ascii() {
            let b = ch as u8;
            if b.is_ascii_alphabetic() {
                c.letters += 1;
                c.upper += u32::from(b.is_ascii_uppercase());
            } else {
                match b {
                    b'0'..=b'9' => c.digits += 1,
                    b'.' | b'!' | b'?' => c.ends += u32::from(in_word),
                    b',' => c.commas += 1,
                    _ => {}
                }
            }
        } else {
            match kind_of(ch) {
                1 => {
                    c.letters += 1;
                    c.upper += 1;
                }
                2 => c.letters += 1,
                4 | 5 => c.ends += 1,
                7 => c.commas += 1,
                _ => {}
            }
            if is_unspaced(ch) {
                unspaced += 1;
            }
        }
        let is_part =
            ch.is_ascii_alphanumeric() || (!ch.is_ascii() && ch.is_alphanumeric()) || ch == '\'';
        if is_part {
            hash = word_hash(hash, ch);
            in_word = true;
        } else if in_word {
            c.words += 1;
            c.stop_words += u32::from(is_stop_word(hash));
            (hash, in_word) = (WORD_SEED, false);
        }
    }
    if in_word {
        c.words += 1;
        c.stop_words += u32::from(is_stop_word(hash));
    }
    // About two characters a word.
    c.words += unspaced / 2;
    c.first = text.chars().next().map_or(0, kind_of);
    c.last = text.chars().next_back().map_or(0, kind_of);
    c
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_sentences_and_cases_are_counted_in_any_script() {
        let c = count("The River rose, in 1997! Was it late?");
        assert_eq!((c.chars, c.words, c.ends, c.commas), (37, 8, 2, 1));
        assert_eq!((c.upper, c.digits, c.first, c.last), (3, 4, 1, 5));
        // the, in, was, it are stop words; "late" is none.
        assert_eq!(c.stop_words, 4);
        let c = count("\u{6cb3}\u{6c34}\u{6da8}\u{4e86}\u{3002}");
        assert_eq!((c.chars, c.words, c.ends, c.last), (5, 2 + 1, 1, 4));
    }
}
