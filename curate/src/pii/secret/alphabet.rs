//! Characters of keys and tokens.

/// Alphabet of a key: letters and digits, and more.
#[derive(Clone, Copy)]
pub(super) enum Alphabet {
    Plain,
    Underscore,
    Hyphen,
    Both,
    Dotted,
    Capitals,
    Hexadecimal,
}

impl Alphabet {
    /// Whether it has the byte.
    pub(super) fn has(self, b: u8) -> bool {
        let more = match self {
            Alphabet::Capitals => return b.is_ascii_uppercase() || b.is_ascii_digit(),
            Alphabet::Hexadecimal => return b.is_ascii_digit() || matches!(b, b'a'..=b'f'),
            Alphabet::Plain => false,
            Alphabet::Underscore => b == b'_',
            Alphabet::Hyphen => b == b'-',
            Alphabet::Both => b == b'_' || b == b'-',
            Alphabet::Dotted => matches!(b, b'_' | b'-' | b'.'),
        };
        more || b.is_ascii_alphanumeric()
    }
}
