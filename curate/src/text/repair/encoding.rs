//! Mojibake repair: text that was decoded with the wrong encoding.
//!
//! ftfy 6.3's procedure (Speer 2019), step by step until nothing looks bad: encode the text with the
//! single-byte encoding it may have been read with and decode that as UTF-8, A0 bytes that became
//! spaces and lost bytes allowed for; else repair stretches that look like UTF-8 on their own; else
//! read Latin-1's control characters as Windows-1252.
//! We differ: at most [`ROUNDS`] rounds; text in memory is UTF-8, so lone surrogates cannot occur.

use std::sync::LazyLock;

use super::badness::{is_bad, points};
use super::codepages::{PAGES, windows_1252};

/// Rounds after which a text is left as it is. Mojibake of mojibake of mojibake takes three.
const ROUNDS: usize = 16;

/// Repairs a text; `None` if nothing is to be done.
pub(super) fn fix_encoding(text: &str) -> Option<String> {
    let mut fixed: Option<String> = None;
    for _ in 0..ROUNDS {
        let current = fixed.as_deref().unwrap_or(text);
        match round(current) {
            Some(next) if next != current => fixed = Some(next),
            _ => break,
        }
    }
    fixed
}

fn round(text: &str) -> Option<String> {
    if !is_bad(text) {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut is_latin = false;
    for (i, page) in PAGES.iter().enumerate() {
        if !page.encode(text, &mut bytes) {
            continue;
        }
        is_latin |= i == 0;
        if !page.is_mac {
            bytes = restore_a0(&bytes);
        }
        if page.is_sloppy {
            bytes = replace_lost(&bytes);
        }
        if let Some(decoded) = decode(&bytes) {
            return Some(decoded);
        }
    }
    let parts = fix_parts(text);
    if parts.is_some() {
        return parts;
    }
    let has_c1 = text.chars().any(is_c1);
    if is_latin {
        // bytes that Windows-1252 does not assign stop this
        let unassigned = |c: char| "\u{81}\u{8d}\u{8f}\u{90}\u{9d}".contains(c);
        if has_c1 && !text.chars().any(unassigned) {
            return fix_c1(text);
        }
    }
    if has_c1 { fix_c1(text) } else { None }
}

fn is_c1(c: char) -> bool {
    ('\u{80}'..='\u{9f}').contains(&c)
}

/// Control characters 80 to 9F as Windows-1252 has them; `None` if there are none.
pub(super) fn fix_c1(text: &str) -> Option<String> {
    text.chars().any(is_c1).then(|| {
        let fix = |c| match u8::try_from(c) {
            Ok(byte) if is_c1(c) => windows_1252(byte),
            _ => c,
        };
        text.chars().map(fix).collect()
    })
}

/// Is `b` a byte that continues UTF-8, A0 and 85 left out?
fn is_plain_tail(b: u8) -> bool {
    matches!(b, 0x80..=0x84 | 0x86..=0x9f | 0xa1..=0xbf)
}

fn is_tail(b: u8) -> bool {
    (0x80..=0xbf).contains(&b)
}

/// Length of a UTF-8 sequence at the start of `b` if one of its bytes is a space that was A0.
fn with_space(b: &[u8]) -> Option<usize> {
    match *b {
        [0xc2 | 0xc3 | 0xc5 | 0xce | 0xd0 | 0xd9, b' ', ..] => Some(2),
        [0xe2 | 0xe3, b' ', c, ..] if is_plain_tail(c) => Some(3),
        [0xe0..=0xe3, c, b' ', ..] if is_plain_tail(c) => Some(3),
        [0xf0, b' ', c, d, ..] if is_tail(c) && is_tail(d) => Some(4),
        [0xf0, c, b' ', d, ..] if is_tail(c) && is_tail(d) => Some(4),
        [0xf0, c, d, b' ', ..] if is_tail(c) && is_tail(d) => Some(4),
        _ => None,
    }
}

/// Spaces back to A0 where that makes UTF-8.
fn restore_a0(bytes: &[u8]) -> Vec<u8> {
    if !(0..bytes.len()).any(|i| with_space(&bytes[i..]).is_some()) {
        return bytes.to_vec();
    }
    // a lone "a grave" is a word and keeps its space, but for Portuguese contractions
    let joins: [&[u8]; 5] = [b" ", b"quele", b"quela", b"quilo", b"s "];
    let mut words = Vec::with_capacity(bytes.len() + 8);
    let mut rest = bytes;
    while let Some((&first, tail)) = rest.split_first() {
        words.push(first);
        rest = tail;
        if let Some(after) = tail.strip_prefix(b" ").filter(|_| first == 0xc3)
            && !joins.iter().any(|j| after.starts_with(j))
        {
            words.extend([0xa0, b' ']);
            rest = after;
        }
    }
    let mut at = 0;
    while at < words.len() {
        let length = with_space(&words[at..]);
        for byte in &mut words[at..at + length.unwrap_or(0)] {
            if *byte == b' ' {
                *byte = 0xa0;
            }
        }
        at += length.unwrap_or(1);
    }
    words
}

/// Length of a UTF-8 sequence at the start of `b` that has lost bytes (1A, or one `?`).
fn with_loss(b: &[u8]) -> Option<usize> {
    let lost = |c: u8| c == 0x1a || c == b'?';
    let any = |c: u8| c == 0x1a || is_tail(c);
    match *b {
        [0xc2..=0xdf, 0x1a, ..] | [0xc2 | 0xc3, b'?', ..] => Some(2),
        [0xed, 0xa0..=0xaf, c, 0xed, 0xb0..=0xbf, d, ..]
            if lost(c) && (lost(d) || is_tail(d)) || (lost(c) || is_tail(c)) && lost(d) =>
        {
            Some(6)
        }
        [0xe0..=0xef, c, d, ..] if lost(c) && any(d) || any(c) && lost(d) => Some(3),
        [0xf0..=0xf4, c, d, e, ..]
            if lost(c) && any(d) && any(e)
                || any(c) && lost(d) && any(e)
                || any(c) && any(d) && lost(e) =>
        {
            Some(4)
        }
        [0x1a, ..] => Some(1),
        _ => None,
    }
}

/// Sequences with lost bytes become U+FFFD.
fn replace_lost(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match with_loss(&bytes[at..]) {
            Some(length) => {
                out.extend("\u{fffd}".bytes());
                at += length;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    out
}

/// UTF-8, with Java's zero (C0 80) and surrogate pairs in three bytes each (CESU-8) allowed.
fn decode(bytes: &[u8]) -> Option<String> {
    let mut out = String::with_capacity(bytes.len());
    let mut plain = 0;
    let mut at = 0;
    while at < bytes.len() {
        let (special, length) = match bytes[at..] {
            [0xc0, 0x80, ..] => ('\0', 2),
            [0xed, a @ 0xa0..=0xaf, b, 0xed, c @ 0xb0..=0xbf, d, ..]
                if is_tail(b) && is_tail(d) =>
            {
                let bits = |byte: u8, mask: u8| u32::from(byte & mask);
                let high = bits(a, 0x0f) << 16 | bits(b, 0x3f) << 10;
                let point = high | bits(c, 0x0f) << 6 | bits(d, 0x3f);
                (char::from_u32(point + 0x1_0000)?, 6)
            }
            _ => {
                at += 1;
                continue;
            }
        };
        out.push_str(std::str::from_utf8(&bytes[plain..at]).ok()?);
        out.push(special);
        at += length;
        plain = at;
    }
    out.push_str(std::str::from_utf8(&bytes[plain..]).ok()?);
    Some(out)
}

/// Leading and continuation bytes of UTF-8 as decoded by the tried encodings, as code points.
const FIRST_OF_2: &str = "c2-df 100 102 106 10c 10e 110 112 116 118 11a 11e 122 12a 130 136 139 13b 141 143 145 147 \
    14c 150 158 15a 15e 160 162 16a 16e 170 172 179 17b 17d 392-3a1 3a3-3af 412-42f";
const FIRST_OF_3: &str =
    "e0-ef 101 103 105 107 10d 10f 113 117 119 11b 123 12b 12f 137 13a 13c 155 17a 3b0-3bf 430-43f";
const FIRST_OF_4: &str = "f0 f3 111 11f 161 3c0 3c3 440 443";
const TAIL: &str = "80-bf c6 d8 e6 f8 104-105 13d-13e 141-142 152-153 156-157 15a-15b 15e-161 164-165 178-17e 192 \
    2c6-2c7 2d8 2db-2dd 384-386 388-38a 38c 38e-38f 401-40c 40e-40f 451-45c 45e-45f 490-491 2020-2021 2030 \
    2039-203a 20ac 2116 2122";
/// These continue too, but are common enough on their own.
const LOOSE_TAIL: &str = "20 2013-2015 2018-201a 201c-201e 2022 2026";

const LEAD: [u8; 3] = [1, 2, 4];
const CONTINUES: u8 = 8;
const STRICTLY: u8 = 16;

static CLUES: LazyLock<Box<[u8]>> = LazyLock::new(|| {
    let mut table = vec![0; 0x2200].into_boxed_slice();
    for (list, bits) in [
        (FIRST_OF_2, LEAD[0]),
        (FIRST_OF_3, LEAD[1]),
        (FIRST_OF_4, LEAD[2]),
        (TAIL, CONTINUES | STRICTLY),
        (LOOSE_TAIL, CONTINUES),
    ] {
        for (from, to) in points(list) {
            for flags in &mut table[from as usize..=to as usize] {
                *flags |= bits;
            }
        }
    }
    table
});

fn clue(c: char) -> u8 {
    CLUES.get(c as usize).copied().unwrap_or(0)
}

/// Characters at the start of `text` that look like one UTF-8 sequence, as bytes.
fn sequence(text: &str) -> Option<usize> {
    let mut chars = text.char_indices();
    let (_, first) = chars.next()?;
    let tails = LEAD.iter().position(|&lead| clue(first) & lead != 0)? + 1;
    let mut end = first.len_utf8();
    for _ in 0..tails {
        let (at, c) = chars.next()?;
        if clue(c) & CONTINUES == 0 {
            return None;
        }
        end = at + c.len_utf8();
    }
    Some(end)
}

/// Repairs each stretch that looks like UTF-8; `None` if that changes nothing.
fn fix_parts(text: &str) -> Option<String> {
    let mut out = String::new();
    let (mut copied, mut at) = (0, 0);
    let mut before = '\0';
    while let Some(c) = text[at..].chars().next() {
        let mut end = at;
        if clue(before) & STRICTLY == 0 {
            while let Some(length) = sequence(&text[end..]) {
                end += length;
            }
        }
        if end == at {
            at += c.len_utf8();
            before = c;
            continue;
        }
        let part = &text[at..end];
        // a part that is the whole text has failed already
        if part.len() < text.len()
            && let Some(fixed) = fix_encoding(part)
        {
            out.push_str(&text[copied..at]);
            out.push_str(&fixed);
            copied = end;
        }
        before = part.chars().next_back().unwrap_or('\0');
        at = end;
    }
    (copied > 0).then(|| out + &text[copied..])
}
