//! Features of the source code classifier: hashed tokens.
//!
//! Tokens are runs of letters, digits and `_`, single marks of punctuation, and line starts with their indentation.
//! Features are each token, each pair of neighbours, and the first token of a line; all numbers share one token, as
//! do words of other alphabets and long words, which depend more on a program's subject than on its language. Each
//! feature counts once per text.

/// Logarithm of the number of features.
pub(super) const BITS: u32 = 14;
/// Bytes of a text that are used; of longer ones the start, the middle and the end.
const WHOLE: usize = 12 << 10;
/// Words longer than this are all alike.
const LONG: usize = 14;

const NUMBER: u64 = 1;
const FOREIGN: u64 = 2;
const LONG_WORD: u64 = 3;
const LINE: u64 = 4;

/// The features of one text, each once.
pub(super) struct Features {
    seen: Vec<u64>,
    pub(super) rows: Vec<u16>,
    before: u64,
    starts_line: bool,
}

fn row(key: u64) -> u16 {
    ((key ^ key >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BITS)) as u16
}

fn word_hash(word: &[u8]) -> u64 {
    let step = |h: u64, b: &u8| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3);
    word.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

impl Features {
    /// Features of a text.
    pub(super) fn of(text: &str) -> Features {
        let mut features = Features {
            seen: vec![0; 1 << BITS >> 6],
            rows: Vec::with_capacity(1024),
            before: LINE,
            starts_line: true,
        };
        let third = WHOLE / 3;
        if text.len() <= WHOLE {
            features.walk(text.as_bytes());
        } else {
            for start in [0, text.len() / 2 - third / 2, text.len() - third] {
                let from = text.floor_char_boundary(start);
                let to = text.floor_char_boundary(start + third);
                features.walk(&text.as_bytes()[from..to]);
            }
        }
        features
    }

    fn walk(&mut self, text: &[u8]) {
        let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        let mut at = 0;
        while let Some(&b) = text.get(at) {
            let rest = &text[at..];
            let mut length = 1;
            match b {
                b'\n' => {
                    let indent = rest[1..].iter().take_while(|b| **b == b' ').count();
                    let tabs = rest[1..].iter().take_while(|b| **b == b'\t').count();
                    let depth = if tabs > 0 { 9 } else { indent.min(8) };
                    self.token(LINE + 8 + depth as u64);
                    self.starts_line = true;
                }
                b' ' | b'\t' | b'\r' => {}
                b if is_word(b) => {
                    length = rest.iter().take_while(|b| is_word(**b)).count();
                    let word = &rest[..length];
                    self.token(if b.is_ascii_digit() {
                        NUMBER
                    } else if length > LONG {
                        LONG_WORD
                    } else {
                        word_hash(word)
                    });
                }
                0x80.. => {
                    length = rest.iter().take_while(|b| **b >= 0x80).count();
                    self.token(FOREIGN);
                }
                mark => self.token(256 + u64::from(mark)),
            }
            at += length;
        }
    }

    fn token(&mut self, token: u64) {
        self.feature(token);
        self.feature(self.before.rotate_left(23) ^ token.wrapping_mul(0xff51_afd7_ed55_8ccd));
        if self.starts_line {
            self.feature(token ^ 0x5bd1_e995_0000_0000);
            self.starts_line = false;
        }
        self.before = token;
    }

    fn feature(&mut self, key: u64) {
        let row = row(key);
        let (word, bit) = (usize::from(row) / 64, row % 64);
        if self.seen[word] >> bit & 1 == 0 {
            self.seen[word] |= 1 << bit;
            self.rows.push(row);
        }
    }
}
