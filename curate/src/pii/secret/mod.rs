//! Secrets: keys of services in the forms that their vendors publish, private keys, and values assigned to names
//! such as `password`.
//!
//! A key has a fixed prefix, an alphabet and a length: all prefixes are searched at once, the rest is checked. An
//! assigned value counts if it is quoted, has 16 characters or more, letters and digits, and an entropy of at least
//! 3 bits per character, which words and placeholders do not reach. Passwords may be shorter and unquoted (`password.rs`).
//!
//! Twilio: account SIDs and API keys; an auth token behind a SID, or behind a name with `twilio` or `auth_token`. Telegram: a bot's
//! number, `:`, 35 characters. Azure: values of `AccountKey` (64 bytes in base64) and `SharedAccessKey` (32), of which connection
//! strings are made, signatures of SAS addresses (`sig=`, 32 bytes), client secrets (`...8Q~...`, 40 characters).

mod alphabet;
mod password;
mod token;

use std::ops::{Range, RangeInclusive};
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, MatchKind};
use regex::Regex;

use super::boundary::ends_word;
use alphabet::Alphabet;
use token::Tokens;

/// A key with a fixed beginning.
struct Key {
    head: &'static str,
    alphabet: Alphabet,
    /// Fewest and most characters behind the beginning.
    characters: RangeInclusive<usize>,
}

const fn key(head: &'static str, alphabet: Alphabet, characters: RangeInclusive<usize>) -> Key {
    Key {
        head,
        alphabet,
        characters,
    }
}

const KEYS: [Key; 28] = [
    key("AKIA", Alphabet::Capitals, 16..=16),
    key("ASIA", Alphabet::Capitals, 16..=16),
    key("ghp_", Alphabet::Plain, 36..=36),
    key("gho_", Alphabet::Plain, 36..=36),
    key("ghu_", Alphabet::Plain, 36..=36),
    key("ghs_", Alphabet::Plain, 36..=36),
    key("ghr_", Alphabet::Plain, 36..=76),
    key("github_pat_", Alphabet::Underscore, 82..=82),
    key("glpat-", Alphabet::Both, 20..=64),
    key("xoxb-", Alphabet::Hyphen, 20..=120),
    key("xoxp-", Alphabet::Hyphen, 20..=120),
    key("xoxa-", Alphabet::Hyphen, 20..=120),
    key("xoxr-", Alphabet::Hyphen, 20..=120),
    key("xoxs-", Alphabet::Hyphen, 20..=120),
    key("AIza", Alphabet::Both, 35..=35),
    key("ya29.", Alphabet::Both, 20..=400),
    key("sk_live_", Alphabet::Plain, 24..=120),
    key("rk_live_", Alphabet::Plain, 24..=120),
    key("sk-ant-", Alphabet::Both, 20..=160),
    key("sk-proj-", Alphabet::Both, 20..=200),
    key("sk-", Alphabet::Plain, 48..=48),
    key("npm_", Alphabet::Plain, 36..=36),
    key("pypi-AgE", Alphabet::Both, 50..=300),
    key("hf_", Alphabet::Plain, 30..=40),
    key("SG.", Alphabet::Dotted, 60..=72),
    key(token::HEAD, Alphabet::Dotted, token::CHARACTERS),
    key("AC", Alphabet::Hexadecimal, 32..=32),
    key("SK", Alphabet::Hexadecimal, 32..=32),
];

/// A name of Azure's, and its value in base64.
struct Azure {
    name: &'static str,
    /// Characters without padding.
    characters: usize,
    padding: usize,
}

const AZURE: [Azure; 2] = [
    Azure {
        name: "AccountKey=",
        characters: 86,
        padding: 2,
    },
    Azure {
        name: "SharedAccessKey=",
        characters: 43,
        padding: 1,
    },
];
/// The signature of a shared access address: 32 bytes in base64, in an address or as it is.
const SIGNATURE: &str = "sig=";
const SIGNATURE_CHARACTERS: usize = 43;
/// The middle of an Azure client secret: three characters and a digit before it, 31 to 34 characters behind.
const CLIENT_SECRET: &str = "Q~";
/// Characters of Twilio's auth tokens.
const AUTH_TOKEN: usize = 32;
/// Quotes, colons and blanks between a SID and the token.
const SID_GAP: usize = 4;
/// Digits of a bot's number, and characters behind its colon.
const BOT_DIGITS: RangeInclusive<usize> = 6..=12;
const BOT_CHARACTERS: usize = 35;

/// Opens a private key in PEM.
const PEM: &str = "-----BEGIN ";
/// Bytes that a PEM private key may have.
const PEM_BYTES: usize = 16 << 10;
/// Bytes of its first line: labels are of a few words.
const PEM_LINE: usize = 128;

static BEGINNINGS: LazyLock<AhoCorasick> = LazyLock::new(|| {
    AhoCorasick::builder()
        .match_kind(MatchKind::LeftmostLongest)
        .build(
            KEYS.iter()
                .map(|k| k.head)
                .chain(AZURE.iter().map(|a| a.name))
                .chain([SIGNATURE, CLIENT_SECRET, PEM]),
        )
        .expect("a few short words fit")
});

/// Beginnings of the names that values are assigned to, in any case of their ASCII letters.
static NAMES: LazyLock<AhoCorasick> = LazyLock::new(|| {
    let names = [
        "api", "secret", "auth", "access", "private", "client", "twilio",
    ];
    AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .match_kind(MatchKind::LeftmostLongest)
        .build(names.into_iter().chain(password::NAMES))
        .expect("a few short words fit")
});

/// A name, `=` or `:`, a token of Twilio.
static TWILIO: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = format!(
        r#"^(?i-u:twilio[a-z0-9_.-]{{0,24}}|auth_?-?token)["']?\]?[ \t]{{0,4}}(?::=|=>|[:=])[ \t]{{0,4}}["']?([0-9a-f]{{{AUTH_TOKEN}}})(?-u:\b)"#
    );
    Regex::new(&pattern).expect("the pattern is one")
});

/// A name, `=` or `:`, a quoted value.
static ASSIGNED: LazyLock<Regex> = LazyLock::new(|| {
    let names = "api_?-?key|secret|passw(?:or)?d|auth_?-?token|access_?-?token|private_?-?key|client_?-?secret";
    Regex::new(&format!(
        r#"^(?i-u)(?:{names})[A-Za-z0-9_-]{{0,24}}["']?[ \t]{{0,4}}(?::=|=>|[:=])[ \t]{{0,4}}["']([!-&(-~]{{16,200}})["']"#
    ))
    .expect("the pattern is one")
});

pub(super) fn find(text: &str, range: Range<usize>, out: &mut Vec<Range<usize>>) {
    let first = out.len();
    keys(text, range.clone(), out);
    in_gaps(text, &range, first, out, bots);
    in_gaps(text, &range, first, out, assigned);
}

/// Looks between the matches that are there, and puts all in order.
fn in_gaps(
    text: &str,
    range: &Range<usize>,
    first: usize,
    out: &mut Vec<Range<usize>>,
    look: impl Fn(&str, Range<usize>, &mut Vec<Range<usize>>),
) {
    let there = out[first..].to_vec();
    let mut from = range.start;
    for key in &there {
        look(text, from..key.start, out);
        from = key.end;
    }
    look(text, from..range.end, out);
    if out.len() > first + there.len() {
        out[first..].sort_by_key(|span| span.start);
    }
}

fn keys(text: &str, range: Range<usize>, out: &mut Vec<Range<usize>>) {
    let bytes = text.as_bytes();
    let mut at = range.start;
    let mut tokens = Tokens::new(&bytes[..range.end]);
    while let Some(hit) = BEGINNINGS.find(aho_corasick::Input::new(bytes).range(at..range.end)) {
        let number = hit.pattern().as_usize();
        let alone = ends_word(hit.start().checked_sub(1).and_then(|i| bytes.get(i)));
        let inside = hit.end()..range.end;
        let span = if let Some(key) = KEYS.get(number) {
            // a key may be long: nothing is counted inside a word
            let end = alone.then(|| match key.head {
                token::HEAD => tokens.end(hit.start()),
                _ => key_end(bytes, key, inside),
            });
            end.flatten().map(|end| hit.start()..end)
        } else if let Some(azure) = AZURE.get(number - KEYS.len()) {
            let end = base64_end(bytes, inside, azure);
            end.map(|end| hit.end()..end)
        } else {
            match number - KEYS.len() - AZURE.len() {
                0 => signature_end(bytes, inside)
                    .filter(|_| alone)
                    .map(|end| hit.end()..end),
                1 => client_secret(bytes, hit.start(), at..range.end),
                _ => private_key(text, hit.start(), range.end).map(|end| hit.start()..end),
            }
        };
        at = span.as_ref().map_or(hit.start() + 1, |span| span.end);
        out.extend(span.clone());
        if let Some(token) = span
            .filter(|_| hit.len() == 2)
            .and_then(|sid| token_behind(bytes, sid.end..range.end))
        {
            at = token.end;
            out.push(token);
        }
    }
}

/// End of the key whose beginning is before the range.
fn key_end(bytes: &[u8], key: &Key, range: Range<usize>) -> Option<usize> {
    // one character more than fits shows that it is too long
    let rest = bytes[range.clone()].iter().take(key.characters.end() + 1);
    let length = rest.take_while(|b| key.alphabet.has(**b)).count();
    let end = range.start + length;
    let fits = match key.head {
        "AC" | "SK" => ends_word(bytes.get(end)),
        _ => true,
    };
    (fits && key.characters.contains(&length)).then_some(end)
}

/// Twilio's auth token behind a SID, as in calls and in addresses.
fn token_behind(bytes: &[u8], range: Range<usize>) -> Option<Range<usize>> {
    let rest = &bytes[range.clone()];
    let gap = rest
        .iter()
        .take_while(|b| matches!(b, b'"' | b'\'' | b',' | b':' | b' '))
        .count();
    let token = rest
        .get(gap..)?
        .iter()
        .take_while(|b| Alphabet::Hexadecimal.has(**b))
        .take(AUTH_TOKEN + 1)
        .count();
    let start = range.start + gap;
    let fits =
        (1..=SID_GAP).contains(&gap) && token == AUTH_TOKEN && ends_word(bytes.get(start + token));
    fits.then(|| start..start + token)
}

/// End of a value of exactly so many characters of base64 and `=`.
fn base64_end(bytes: &[u8], range: Range<usize>, azure: &Azure) -> Option<usize> {
    let (characters, padding) = (azure.characters, azure.padding);
    let value = &bytes[range.clone()];
    let is_base64 = |b: &&u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/');
    let length = value
        .iter()
        .take(characters + 1)
        .take_while(is_base64)
        .count();
    let pads = value[length..]
        .iter()
        .take(padding + 1)
        .take_while(|b| **b == b'=')
        .count();
    (length == characters && pads == padding).then_some(range.start + length + pads)
}

/// End of a signature in base64, of which `+`, `/` and `=` may be written in hexadecimal.
fn signature_end(bytes: &[u8], range: Range<usize>) -> Option<usize> {
    let value = &bytes[range.clone()];
    let (mut at, mut length) = (0, 0);
    loop {
        let rest = value.get(at..)?;
        let (sign, bytes) = match rest.first()? {
            b'%' => (hexadecimal(rest.get(1..3)?)?, 3),
            b => (*b, 1),
        };
        match sign {
            b'=' if length == SIGNATURE_CHARACTERS => return Some(range.start + at + bytes),
            b'+' | b'/' => {}
            letter if letter.is_ascii_alphanumeric() => {}
            _ => return None,
        }
        (at, length) = (at + bytes, length + 1);
        if length > SIGNATURE_CHARACTERS {
            return None;
        }
    }
}

fn hexadecimal(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// The client secret around `Q~`.
fn client_secret(bytes: &[u8], middle: usize, range: Range<usize>) -> Option<Range<usize>> {
    let is_part = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'~' | b'.' | b'-');
    let start = middle
        .checked_sub(4)
        .filter(|start| *start >= range.start)?;
    let rest = &bytes[middle + CLIENT_SECRET.len()..range.end];
    let length = rest.iter().take(36).take_while(|b| is_part(b)).count();
    // a full stop behind it is punctuation
    let length = length - usize::from(rest[..length].last() == Some(&b'.'));
    let alone = !start
        .checked_sub(1)
        .and_then(|i| bytes.get(i))
        .is_some_and(|b| is_part(b) || *b >= 0x80);
    let head = bytes[start..middle - 1].iter().all(is_part) && bytes[middle - 1].is_ascii_digit();
    (alone && head && (31..=34).contains(&length))
        .then(|| start..middle + CLIENT_SECRET.len() + length)
}

/// Tokens of Telegram's bots: digits, a colon, letters of both cases and more.
fn bots(text: &str, range: Range<usize>, out: &mut Vec<Range<usize>>) {
    let bytes = &text.as_bytes()[..range.end];
    let mut at = range.start;
    while let Some(next) = memchr::memchr(b':', &bytes[at..]) {
        let colon = at + next;
        let before = bytes[at..colon].iter().rev().take(*BOT_DIGITS.end() + 1);
        let digits = before.take_while(|b| b.is_ascii_digit()).count();
        at = colon + 1;
        let start = colon - digits;
        let token = &bytes[at..];
        let length = token
            .iter()
            .take(BOT_CHARACTERS + 1)
            .take_while(|b| Alphabet::Both.has(**b))
            .count();
        let token = &token[..length];
        // `bot` is before it in addresses
        let head = start.checked_sub(1).and_then(|i| bytes.get(i));
        let alone = ends_word(head) || bytes[..start].ends_with(b"bot");
        if BOT_DIGITS.contains(&digits)
            && length == BOT_CHARACTERS
            && alone
            && token.iter().any(u8::is_ascii_uppercase)
            && token.iter().any(u8::is_ascii_lowercase)
        {
            out.push(start..at + length);
            at += length;
        }
    }
}

/// The end of the PEM block that starts at `start`, if it is a private key.
fn private_key(text: &str, start: usize, end: usize) -> Option<usize> {
    let bytes = &text.as_bytes()[start..end.min(start + PEM_BYTES)];
    let line = &bytes[..bytes.len().min(PEM_LINE)];
    let line = memchr::memchr(b'\n', line).unwrap_or(line.len());
    memchr::memmem::find(&bytes[..line], b"PRIVATE KEY")?;
    let foot = memchr::memmem::find(bytes, b"-----END ")?;
    let close = memchr::memmem::find(&bytes[foot + 9..], b"-----")?;
    Some(start + foot + 9 + close + 5)
}

/// Values assigned to names: random ones, and passwords.
fn assigned(text: &str, range: Range<usize>, out: &mut Vec<Range<usize>>) {
    let mut at = range.start;
    while let Some(name) = NAMES.find(aho_corasick::Input::new(text).range(at..range.end)) {
        let rest = &text[name.start()..range.end];
        let value = random_value(&TWILIO, rest)
            .or_else(|| random_value(&ASSIGNED, rest))
            .or_else(|| password::value_of(rest))
            .map(|value| name.start() + value.start..name.start() + value.end);
        // past the first letter of the name, as names may be in one another
        let next = name.start() + rest.chars().next().map_or(1, char::len_utf8);
        at = value.as_ref().map_or(next, |value| value.end);
        out.extend(value);
    }
}

/// The value at the pattern's group, if it looks random.
fn random_value(pattern: &Regex, text: &str) -> Option<Range<usize>> {
    let value = pattern.captures(text)?.get(1)?;
    is_random(value.as_str().as_bytes()).then(|| value.range())
}

/// Letters and digits, and at least 3 bits a character.
fn is_random(value: &[u8]) -> bool {
    let mut counts = [0u32; 256];
    value.iter().for_each(|b| counts[usize::from(*b)] += 1);
    let n = value.len() as f64;
    let entropy: f64 = counts
        .iter()
        .filter(|c| **c > 0)
        .map(|c| {
            let p = f64::from(*c) / n;
            -p * p.log2()
        })
        .sum();
    value.iter().any(u8::is_ascii_digit)
        && value.iter().any(u8::is_ascii_alphabetic)
        && entropy >= 3.0
}

#[cfg(test)]
mod tests;
