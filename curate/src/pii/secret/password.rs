//! Passwords, which may be short and unquoted: `password: hunter2`, `DB_PWD=abc123`, `"passwd": 'p@ssword'`.
//!
//! A name that ends in a word for password is followed by `:`, `=`, `:=` or `=>` and the value on the same line. A value has 6
//! to 64 characters, letters, and digits or one of `@#$%^&*!` inside, or is a number of 4 to 64 digits; so prose
//! ("password: required") is none. Four characters or more differ, which they do not in placeholders (`xxxx11`, `0000`). An unquoted value ends at white space or one of
//! `;,&<>|` and quotes; it is none if it has brackets, dots, slashes or other signs of code (`hash2(x)`, `user1.password`,
//! `$PASSWORD1`), or is a name of a type or algorithm (`utf8`, `SHA256`). Passwords of letters alone are not found.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

/// Characters of a value.
const FEWEST: usize = 6;
const FEWEST_DIGITS: usize = 4;
const MOST: usize = 64;
/// Different characters of a value, at least.
const DIFFERENT: usize = 4;

/// Words for password, as they begin: in English, German, Dutch, Spanish, French, Portuguese, Polish, Russian, Chinese, Japanese, Korean.
pub(super) const NAMES: [&str; 17] = [
    "password",
    "passwd",
    "passwort",
    "pwd",
    "passphrase",
    "kennwort",
    "wachtwoord",
    "contrase\u{f1}a",
    "contrasena",
    "mot de passe",
    "senha",
    "has\u{142}o",
    "\u{43f}\u{430}\u{440}\u{43e}\u{43b}\u{44c}",
    "\u{41f}\u{430}\u{440}\u{43e}\u{43b}\u{44c}",
    "\u{5bc6}\u{7801}",
    "\u{5bc6}\u{78bc}",
    "\u{30d1}\u{30b9}\u{30ef}\u{30fc}\u{30c9}",
];

/// A name, and what assigns to it.
static ASSIGNED: LazyLock<Regex> = LazyLock::new(|| {
    let names = NAMES.join("|");
    Regex::new(&format!(
        r#"^(?i-u:{names})["'`]?\]?[ \t]{{0,4}}(?::=|=>|[:=]|\u{{ff1a}})[ \t]{{0,4}}"#
    ))
    .expect("the pattern is one")
});

/// Words before digits that make no password: `utf8`, `sha256`, `step2`.
const WORDS: &str = " u i int uint float f utf sha md aes rsa des ripemd base crypt bcrypt pbkdf ascii iso win windows type level step page version v \
    option field arg param char varchar str string text word h col row input textbox edit label ";

/// The password that is assigned to the name at the beginning of `text`.
pub(super) fn value_of(text: &str) -> Option<Range<usize>> {
    let start = ASSIGNED.find(text)?.end();
    value(&text[start..]).map(|value| start + value.start..start + value.end)
}

/// The value at the beginning of `text`, if it looks like a password.
fn value(text: &str) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let quote = bytes.first().filter(|b| matches!(b, b'"' | b'\'' | b'`'));
    let start = usize::from(quote.is_some());
    let body = &bytes[start..];
    let is_inside = |b: &u8| match quote {
        Some(quote) => b.is_ascii_graphic() && b != quote,
        None => {
            b.is_ascii_graphic()
                && !matches!(
                    b,
                    b'"' | b'\'' | b'`' | b';' | b',' | b'&' | b'<' | b'>' | b'|'
                )
        }
    };
    // one character more than fits shows that it is too long
    let length = body
        .iter()
        .take(MOST + 1)
        .take_while(|b| is_inside(b))
        .count();
    let after = body.get(length);
    let value = match quote {
        Some(quote) if after == Some(quote) => &body[..length],
        Some(_) => return None,
        None if after.is_some_and(|b| *b >= 0x80) => return None,
        None => unquoted(&body[..length])?,
    };
    let is_number = value.iter().all(u8::is_ascii_digit);
    let fewest = if is_number { FEWEST_DIGITS } else { FEWEST };
    let fits = (fewest..=MOST).contains(&value.len())
        && (is_number || is_mixed(value))
        && differs(value)
        && !is_no_value(value);
    fits.then(|| start..start + value.len())
}

/// Without punctuation behind it; `None` if it looks like code, a path or an address.
fn unquoted(value: &[u8]) -> Option<&[u8]> {
    let length = value
        .iter()
        .rposition(|b| !matches!(b, b'.' | b':' | b'!' | b'?' | b')' | b']' | b'}' | b'\\'))?
        + 1;
    let value = &value[..length];
    let is_code = |b: &u8| {
        matches!(
            b,
            b'(' | b')'
                | b'['
                | b']'
                | b'{'
                | b'}'
                | b'\\'
                | b'/'
                | b'.'
                | b':'
                | b'?'
                | b'='
                | b'+'
                | b'~'
        )
    };
    (!value.iter().any(is_code)).then_some(value)
}

/// Letters, and digits or signs that passwords have.
fn is_mixed(value: &[u8]) -> bool {
    let is_sign = |b: &u8| matches!(b, b'@' | b'#' | b'$' | b'%' | b'^' | b'&' | b'*' | b'!');
    let inner = value.get(1..value.len() - 1).unwrap_or(&[]);
    value.iter().any(u8::is_ascii_alphabetic)
        && (value.iter().any(u8::is_ascii_digit) || inner.iter().any(is_sign))
}

/// Whether enough characters are different.
fn differs(value: &[u8]) -> bool {
    let mut different = value.to_vec();
    different.sort_unstable();
    different.dedup();
    different.len() >= DIFFERENT
}

/// A variable, a placeholder, a type.
fn is_no_value(value: &[u8]) -> bool {
    let opens = matches!(
        value[0],
        b'$' | b'%' | b'{' | b'<' | b'*' | b'@' | b'&' | b'#' | b'!' | b'-' | b'(' | b'[' | b'\\'
    );
    let letters = value.iter().take_while(|b| b.is_ascii_alphabetic()).count();
    let is_numbered = value[letters..]
        .iter()
        .all(|b| b.is_ascii_digit() || matches!(b, b'-' | b'_'));
    let word = String::from_utf8_lossy(&value[..letters]).to_ascii_lowercase();
    let is_word = letters > 0 && is_numbered && WORDS.split(' ').any(|w| w == word);
    let is_address = memchr::memchr(b'@', value).is_some_and(|at| value[at..].contains(&b'.'));
    opens || is_word || is_address || value.starts_with(b"http")
}
