//! Python's dialect of JSON, as its `json` module reads and writes it: also `NaN`, `Infinity`, `-Infinity`,
//! numbers that are greater than any double (Python reads `1e999` as infinity), and integers of any length.
//!
//! RFC 8259 and serde_json have none of the first, and round integers beyond 64 bits. In a [`Value`] such a number is
//! an object of one field, whose name is the noncharacter U+FDD0 and whose value is the number as it was written;
//! [`write()`] writes it bare again. To readers it is neither a string nor a number, so it becomes no text; an
//! integer may be an id ([`long_integer`]). A record that already contains such an object is written with the number
//! in its place.
//!
//! A `\u` escape of half a surrogate pair, which Python reads too, has no character of its own:
//! [`from_slice_with_halves`] reads it as U+FFFD.

use std::borrow::Cow;
use std::io;

use memchr::memmem;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The start of an object that represents such a number. No string of JSON text contains these bytes, as a quote in
/// it is escaped.
const OPEN: &[u8] = b"{\"\xef\xb7\x90\":\"";
const CLOSE: &[u8] = b"\"}";

/// The field's name.
const NAME: &str = "\u{fdd0}";

/// Parses JSON text.
///
/// # Errors
/// As serde_json has them, of the text without such numbers if it has some.
pub(crate) fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> serde_json::Result<T> {
    match wrapped(bytes) {
        // a field that must be a number takes a long integer rounded
        Some(wrapped) => serde_json::from_slice(&wrapped)
            .or_else(|error| serde_json::from_slice(bytes).map_err(|_| error)),
        None => serde_json::from_slice(bytes),
    }
}

/// Parses JSON text with U+FFFD for halves of surrogate pairs.
///
/// # Errors
/// As [`from_slice`].
pub(crate) fn from_slice_with_halves<T: DeserializeOwned>(bytes: &[u8]) -> serde_json::Result<T> {
    from_slice(bytes).or_else(|error| match without_halves(bytes) {
        Some(whole) => from_slice(&whole),
        None => Err(error),
    })
}

/// The text with `\ufffd` for each escape of half a surrogate pair; None if it has no such escape.
fn without_halves(bytes: &[u8]) -> Option<Vec<u8>> {
    let unit = |at: usize| {
        let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
        let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
        let digits = std::str::from_utf8(digits).ok().filter(|_| is_hex)?;
        u16::from_str_radix(digits, 16).ok()
    };
    let mut out: Option<Vec<u8>> = None;
    let mut at = 0;
    while let Some(i) = memchr::memchr(b'\\', &bytes[at.min(bytes.len())..]) {
        at += i;
        at += match (unit(at), unit(at + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                let out = out.get_or_insert_with(|| bytes.to_vec());
                out[at..at + 6].copy_from_slice(b"\\ufffd");
                6
            }
            // an escaped backslash starts nothing
            _ => 2,
        };
    }
    out
}

/// True for JSON text, with or without such numbers.
pub(crate) fn is_json(text: &str) -> bool {
    from_slice::<serde::de::IgnoredAny>(text.as_bytes()).is_ok()
}

/// Appends a value as JSON text.
pub(crate) fn write(out: &mut Vec<u8>, value: &impl Serialize) -> io::Result<()> {
    let start = out.len();
    serde_json::to_writer(&mut *out, value)?;
    if let Cow::Owned(bare) = unwrapped(&out[start..]) {
        out.truncate(start);
        out.extend_from_slice(&bare);
    }
    Ok(())
}

/// A value as JSON text.
pub(crate) fn to_string(value: &Value) -> String {
    let text = value.to_string();
    match unwrapped(text.as_bytes()) {
        // cut at ASCII characters only
        Cow::Owned(bare) => String::from_utf8(bare).unwrap_or(text),
        Cow::Borrowed(_) => text,
    }
}

/// The number that an object of one field represents, as a double: NaN, an infinity, or a long integer rounded.
pub(crate) fn special_number(value: &Value) -> Option<f64> {
    token(value)?.parse().ok()
}

/// The digits of an integer beyond 64 bits, as they were written.
pub(crate) fn long_integer(value: &Value) -> Option<&str> {
    token(value).filter(|token| is_long_integer(token))
}

/// The number that an object of one field represents, as it was written.
fn token(value: &Value) -> Option<&str> {
    let object = value.as_object().filter(|object| object.len() == 1)?;
    let token = object.get(NAME)?.as_str()?;
    is_special(token.as_bytes()).then_some(token)
}

/// JSON text whose numbers that serde_json does not hold are objects; None if it has none, or has one for a name.
fn wrapped(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out: Vec<u8> = Vec::new();
    let (mut at, mut copied) = (0, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at += string(&bytes[at..]),
            b'N' | b'I' | b'-' | b'0'..=b'9' => {
                let length = number(&bytes[at..]);
                if length > 0 && is_special(&bytes[at..at + length]) {
                    let behind = bytes[at + length..].trim_ascii_start();
                    if behind.first() == Some(&b':') {
                        return None;
                    }
                    out.extend_from_slice(&bytes[copied..at]);
                    out.extend_from_slice(OPEN);
                    out.extend_from_slice(&bytes[at..at + length]);
                    out.extend_from_slice(CLOSE);
                    copied = at + length;
                }
                at += length.max(1);
            }
            _ => at += 1,
        }
    }
    if copied == 0 {
        return None;
    }
    out.extend_from_slice(&bytes[copied..]);
    Some(out)
}

/// Length of the string at the start, its quotes included.
fn string(bytes: &[u8]) -> usize {
    let mut at = 1;
    while let Some(i) = memchr::memchr2(b'"', b'\\', &bytes[at.min(bytes.len())..]) {
        at += i;
        if bytes[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    bytes.len()
}

/// Length of the word or number at the start.
fn number(bytes: &[u8]) -> usize {
    let sign = usize::from(bytes[0] == b'-');
    let inner = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'+' | b'-');
    sign + bytes[sign..].iter().take_while(|b| inner(b)).count()
}

/// Fewest characters of an integer that does not fit 64 bits.
const LONG: usize = "9223372036854775809".len();

/// An integer as JSON has them that fits neither sort of 64 bits.
fn is_long_integer(token: &str) -> bool {
    let digits = token.strip_prefix('-').unwrap_or(token);
    digits.len() >= LONG
        && !digits.starts_with('0')
        && digits.bytes().all(|b| b.is_ascii_digit())
        && token.parse::<u64>().is_err()
        && token.parse::<i64>().is_err()
}

/// A number that serde_json does not hold.
fn is_special(token: &[u8]) -> bool {
    if matches!(token, b"NaN" | b"Infinity" | b"-Infinity") {
        return true;
    }
    if token.len() < LONG && memchr::memchr2(b'e', b'E', token).is_none() {
        return false;
    }
    if std::str::from_utf8(token).is_ok_and(is_long_integer) {
        return true;
    }
    let digits = token.strip_prefix(b"-").unwrap_or(token);
    let starts = digits.first().is_some_and(u8::is_ascii_digit);
    // Rust reads more than JSON does, such as `1.`: those stay wrong
    let ends = digits.last().is_some_and(u8::is_ascii_digit);
    let number = std::str::from_utf8(token).ok().and_then(|t| t.parse().ok());
    let parsed = number.is_some_and(f64::is_infinite);
    let dot = memchr::memchr(b'.', digits);
    let fraction = dot.is_none_or(|i| digits.get(i + 1).is_some_and(u8::is_ascii_digit));
    let zeros = digits.len() > 1 && digits[0] == b'0' && digits[1].is_ascii_digit();
    starts && ends && parsed && fraction && !zeros
}

/// The text with its numbers bare.
fn unwrapped(bytes: &[u8]) -> Cow<'_, [u8]> {
    let mut out = Vec::new();
    let mut copied = 0;
    for open in memmem::find_iter(bytes, OPEN) {
        let from = open + OPEN.len();
        let length = number(&bytes[from..]);
        let token = &bytes[from..from + length];
        let end = from + length + CLOSE.len();
        if bytes[from + length..].starts_with(CLOSE) && is_special(token) {
            out.extend_from_slice(&bytes[copied..open]);
            out.extend_from_slice(token);
            copied = end;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(bytes);
    }
    out.extend_from_slice(&bytes[copied..]);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_without_a_double_go_through_as_they_are() {
        for text in [
            r#"{"a":NaN}"#,
            r#"{"a":[NaN,Infinity,-Infinity,1,null],"b":{"c":-1e999,"d":"NaN"}}"#,
            r#"{"a":"NaN \" NaN","b":"\\","c":NaN}"#,
            r#"{"a":"{\"b\":NaN","c":1e400}"#,
            "[NaN]",
            "NaN",
            r#"{"a":1.5,"b":-2}"#,
        ] {
            let value: Value = from_slice(text.as_bytes()).unwrap();
            assert_eq!(to_string(&value), text);
            let mut out = b"before ".to_vec();
            write(&mut out, &value).unwrap();
            assert_eq!(out, [b"before ", text.as_bytes()].concat());
            assert!(is_json(text));
        }
        let value: Value = from_slice(br#"{"a": NaN , "b" : [ Infinity ]}"#).unwrap();
        assert_eq!(to_string(&value), r#"{"a":NaN,"b":[Infinity]}"#);
        assert!(value["a"].as_str().is_none() && value["a"].as_f64().is_none());
    }

    #[test]
    fn what_python_refuses_stays_refused() {
        for text in [
            "{NaN:1}",
            "{NaN :1}",
            r#"{"a":nan}"#,
            r#"{"a":+Infinity}"#,
            r#"{"a":--Infinity}"#,
            r#"{"a":NaNs}"#,
            r#"{"a":Infinit}"#,
            r#"{"a":1.e999}"#,
            r#"{"a":01e999}"#,
            r#"{"a":1e999.}"#,
            r#"{"a":NaN"#,
            r#"{"a" NaN}"#,
            r#""NaN"#,
            "",
        ] {
            assert!(from_slice::<Value>(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn long_integers_keep_their_digits_and_short_ones_stay_numbers() {
        let text = r#"{"a":123456789012345678901234567890,"b":-9223372036854775809}"#;
        let value: Value = from_slice(text.as_bytes()).unwrap();
        assert_eq!(
            long_integer(&value["a"]),
            Some("123456789012345678901234567890")
        );
        assert_eq!(long_integer(&value["b"]), Some("-9223372036854775809"));
        assert_eq!(
            special_number(&value["b"]),
            Some(-9_223_372_036_854_775_808.0)
        );
        let value: Value =
            from_slice(b"[18446744073709551615,-9223372036854775808,1e30,NaN]").unwrap();
        assert_eq!(value[0].as_u64(), Some(u64::MAX));
        assert_eq!(value[1].as_i64(), Some(i64::MIN));
        assert_eq!(value[2].as_f64(), Some(1e30));
        assert_eq!(long_integer(&value[3]), None);
        // where a type wants a number it is one
        let numbers: Vec<f64> = from_slice(b"[123456789012345678901234567890]").unwrap();
        assert_eq!(numbers, [123_456_789_012_345_678_901_234_567_890.0]);
    }

    #[test]
    fn halves_of_surrogate_pairs_are_read_as_u_fffd() {
        for (text, want) in [
            (r#""\ud83d""#, "\u{fffd}"),
            (r#""a\uDE00b""#, "a\u{fffd}b"),
            (r#""\ud83d\ud83d\ude00""#, "\u{fffd}\u{1f600}"),
            (r#""\ude00\ud83d""#, "\u{fffd}\u{fffd}"),
            (r#""\ud83d\u0041\n""#, "\u{fffd}A\n"),
            (r#""\\ud83d\ud83d""#, "\\ud83d\u{fffd}"),
        ] {
            let value: Value = from_slice_with_halves(text.as_bytes()).unwrap();
            assert_eq!(value, want, "{text}");
            assert!(from_slice::<Value>(text.as_bytes()).is_err(), "{text}");
        }
        for text in [r#""\ud83""#, r#""\ud83d\u12"#, r#""\ud8zz""#, r#"\ud83d"#] {
            assert!(
                from_slice_with_halves::<Value>(text.as_bytes()).is_err(),
                "{text}"
            );
        }
        let both: Value = from_slice_with_halves(br#"{"a":"\ud83d","b":NaN}"#).unwrap();
        assert_eq!(to_string(&both), "{\"a\":\"\u{fffd}\",\"b\":NaN}");
    }

    /// `tests/data/python_json.json`, made by `tests/oracles/python_json.py`.
    #[test]
    fn texts_are_read_and_written_as_pythons_json_does() {
        let golden = include_str!("../../tests/data/python_json.json");
        let golden: Value = serde_json::from_str(golden).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_string();
        let there_and_back = |text: &str| {
            let value: Value = from_slice(text.as_bytes()).unwrap();
            to_string(&value)
        };
        let cases = golden["cases"].as_array().unwrap();
        for case in cases {
            // Python reads the same from both, and Python's output is restored byte for byte
            let kept = text(&case["kept"]);
            assert_eq!(there_and_back(&text(&case["text"])), kept);
            let dumps = text(&case["dumps"]);
            assert_eq!(there_and_back(&dumps), dumps);
        }
        let refused = golden["refused"].as_array().unwrap();
        for case in refused {
            assert!(!is_json(&text(case)), "{case}");
        }
        assert_eq!((cases.len(), refused.len()), (17, 25));
    }

    #[test]
    fn strings_that_look_like_the_object_stay_strings() {
        for text in [
            "{\"\u{fdd0}\":\"NaN\"}",
            "\"\u{fdd0}\":\"NaN\"}",
            "x{\"\u{fdd0}\":\"NaN\"} y",
        ] {
            let value = serde_json::json!({ "text": text, "n": "\u{fdd0}" });
            assert_eq!(to_string(&value), value.to_string());
        }
    }
}
