//! Numbers with a check digit: bank accounts and payment cards.
//!
//! IBAN: ISO 13616, lengths by country of the SWIFT registry (release 99), remainder 1 modulo 97 (ISO 7064). Cards:
//! ISO/IEC 7812 issuer ranges and Luhn's sum.

use std::ops::Range;

use super::boundary::ends_word;
use super::luhn::is_luhn;

/// Country codes, each with the length of its IBANs.
const IBANS: &str = "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 EE20 EG29 \
    ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 \
    LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 \
    PT25 QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 \
    YE30";

/// Length of the IBANs of a country.
fn iban_length(country: &[u8; 2]) -> Option<usize> {
    let mut entries = IBANS.as_bytes().chunks(5);
    let entry = entries.find(|e| e.starts_with(country))?;
    Some(usize::from(entry[2] - b'0') * 10 + usize::from(entry[3] - b'0'))
}

pub(super) fn ibans(text: &str, range: Range<usize>, out: &mut Vec<Range<usize>>) {
    let bytes = &text.as_bytes()[..range.end];
    let mut at = range.start;
    while at + 15 <= bytes.len() {
        // most bytes are no digit: the check digits are tested first
        if !bytes[at + 2].is_ascii_digit() {
            at += 1;
            continue;
        }
        match iban(bytes, at) {
            Some(end) => {
                out.push(at..end);
                at = end;
            }
            None => at += 1,
        }
    }
}

/// End of the account number that starts at `at`.
fn iban(bytes: &[u8], at: usize) -> Option<usize> {
    let country: &[u8; 2] = bytes[at..].first_chunk()?;
    let length = iban_length(country)?;
    if !ends_word(at.checked_sub(1).and_then(|i| bytes.get(i))) {
        return None;
    }
    // modulo 97 of the number that letters make as 10 to 35, the first four characters last
    let (mut rest, mut head, mut taken, mut i) = (0u32, 0u32, 0, at);
    let push = |sum: u32, b: u8| {
        let value = char::from(b).to_digit(36).unwrap_or(0);
        (sum * if value < 10 { 10 } else { 100 } + value) % 97
    };
    while taken < length {
        let b = *bytes.get(i)?;
        match b {
            b'A'..=b'Z' | b'0'..=b'9' if taken < 4 => head = push(head, b),
            b'A'..=b'Z' | b'0'..=b'9' => rest = push(rest, b),
            // single blanks between groups of four
            b' ' if taken > 0 && taken % 4 == 0 && bytes.get(i - 1) != Some(&b' ') => {
                i += 1;
                continue;
            }
            _ => return None,
        }
        if (2..4).contains(&taken) && !b.is_ascii_digit() {
            return None;
        }
        taken += 1;
        i += 1;
    }
    // two letters and two digits are six digits: the rest moves up by as many
    let sum = (rest * (1_000_000 % 97) + head) % 97;
    (sum == 1 && ends_word(bytes.get(i))).then_some(i)
}

/// Digits, with single blanks or hyphens between them, from `at` on; their number and where they end.
fn digits(bytes: &[u8], at: usize, out: &mut [u8; 20]) -> (usize, usize) {
    let (mut count, mut end, mut i) = (0, at, at);
    while let Some(b) = bytes.get(i) {
        if b.is_ascii_digit() {
            if let Some(place) = out.get_mut(count) {
                *place = b - b'0';
            }
            count += 1;
            end = i + 1;
        } else if !matches!(b, b' ' | b'-') || end != i || count == 0 {
            break;
        }
        i += 1;
    }
    (count, end)
}

pub(super) fn cards(text: &str, range: Range<usize>, out: &mut Vec<Range<usize>>) {
    let bytes = &text.as_bytes()[..range.end];
    let mut at = range.start;
    while let Some(next) = bytes[at..].iter().position(u8::is_ascii_digit) {
        let start = at + next;
        let mut digit = [0; 20];
        let (count, end) = digits(bytes, start, &mut digit);
        at = end;
        let before = start.checked_sub(1).and_then(|i| bytes.get(i));
        let inside = |b: Option<&u8>| !ends_word(b) || matches!(b, Some(b'.' | b',' | b'-' | b'+'));
        let goes_on =
            bytes.get(end) == Some(&b'.') && bytes.get(end + 1).is_some_and(u8::is_ascii_digit);
        let is_alone = !inside(before) && ends_word(bytes.get(end)) && !goes_on;
        if is_alone && digit.get(..count).is_some_and(is_card) {
            out.push(start..end);
        }
    }
}

fn is_card(digits: &[u8]) -> bool {
    let head = |n: usize| digits[..n].iter().fold(0u32, |h, d| h * 10 + u32::from(*d));
    if digits.len() < 13 || digits.iter().all(|d| *d == digits[0]) {
        return false;
    }
    let issued = match digits.len() {
        13 | 19 if digits[0] == 4 => true,
        16 if digits[0] == 4 => true,
        16 if (51..=55).contains(&head(2)) || (2221..=2720).contains(&head(4)) => true,
        15 => matches!(head(2), 34 | 37),
        14 => matches!(head(2), 36 | 38 | 39) || (300..=305).contains(&head(3)),
        16..=19 => {
            head(4) == 6011
                || (644..=649).contains(&head(3))
                || matches!(head(2), 65 | 62)
                || (3528..=3589).contains(&head(4))
        }
        _ => false,
    };
    issued && is_luhn(digits.iter().map(|d| u32::from(*d)))
}
