//! Bounds on what a PDF's streams expand to, before the library opens it.
//!
//! `hayro-syntax` decodes object streams, content and fonts without a limit. So every place where an object may start
//! is parsed by its own parser, and the streams found are expanded once without being kept. Streams past the limits,
//! streams compressed more than once, and pictures, which no text is read from, are overwritten by bytes that decode
//! to nothing. The library then reports them as damaged, and the pages that need them are quarantined.

use std::borrow::Cow;

use flate2::{Decompress, FlushDecompress, Status};
use hayro_syntax::Filter;
use hayro_syntax::object::{FromBytes, Name, Stream};
use memchr::memmem;

/// Bytes that one stream may expand to.
pub(super) const MAX_STREAM: u64 = 32 << 20;
/// Bytes that all streams of a file may expand to.
pub(super) const MAX_TOTAL: u64 = 64 << 20;
/// Objects are parsed from every place that looks like a start; no file needs more bytes than this many times its own.
pub(super) const MAX_PASSES: usize = 16;

/// Overwrites the streams that must not be decoded.
///
/// # Errors
/// The file's objects overlap so much that it is no document.
pub(super) fn disarm(data: &mut [u8]) -> Result<(), String> {
    let mut blanks: Vec<(usize, usize, u8)> = Vec::new();
    let mut total = 0u64;
    let mut parsed = 0usize;
    for at in memmem::find_iter(data, b"obj") {
        let Some(start) = dictionary(data, at + 3) else {
            continue;
        };
        if data[..at].ends_with(b"end") {
            continue;
        }
        let tail = &data[start..];
        let Some(stream) = Stream::from_bytes(tail) else {
            // the search for a missing end reads to the end of the file
            if has_stream(tail) {
                parsed += tail.len();
            }
            if parsed > data.len().saturating_mul(MAX_PASSES) {
                return Err("objects without an end, over and over".to_string());
            }
            continue;
        };
        let Cow::Borrowed(content) = stream.raw_data() else {
            return Err("streams that are encrypted without a key".to_string());
        };
        parsed += content.len();
        if parsed > data.len().saturating_mul(MAX_PASSES) {
            return Err("objects inside each other, over and over".to_string());
        }
        let from = content.as_ptr() as usize - data.as_ptr() as usize;
        let filters = stream.filters();
        let is_named = ["Filter", "F"]
            .iter()
            .any(|key| stream.dict().contains_key(key));
        if filters.is_empty() && !is_named {
            continue;
        }
        let kind = stream.dict().get::<Name<'_>>("Subtype");
        let is_picture = kind.is_some_and(|kind| &*kind == b"Image");
        let expands = match filters.is_empty() {
            // the filter is another object
            true => None,
            false if is_picture || total > MAX_TOTAL => None,
            // the length may be another object: what follows is expanded too if the data does not end by itself
            false => expanded(&filters, &data[from..]),
        };
        total = total.saturating_add(expands.unwrap_or(0));
        if expands.is_none() || total > MAX_TOTAL {
            let fill = match filters.first() {
                Some(Filter::RunLengthDecode) => 128,
                Some(Filter::Ascii85Decode) => b'~',
                Some(Filter::AsciiHexDecode) => b'>',
                _ => 0xff,
            };
            blanks.push((from, from + content.len(), fill));
        }
    }
    for (from, to, fill) in blanks {
        data[from..to].fill(fill);
    }
    Ok(())
}

/// Bytes of a stream that show that it was overwritten.
const SHOWN: usize = 16;

/// Content of a stream: deflated data, also inside of letters or in front of a predictor, is checked against its checksum,
/// which the library does not do.
///
/// # Errors
/// Why it cannot be decoded.
pub(super) fn content<'a>(stream: &Stream<'a>) -> Result<Cow<'a, [u8]>, String> {
    let raw = stream.raw_data();
    let head = &raw[..raw.len().min(SHOWN)];
    let fill = head
        .first()
        .filter(|b| [0xff, 128, b'~', b'>'].contains(*b));
    if fill.is_some_and(|fill| head.len() > 2 && head.iter().all(|b| b == fill)) {
        return Err("its content expands too far".to_string());
    }
    let filters = stream.filters();
    let damaged = || "its content is damaged".to_string();
    let is_deflated = filters.last() == Some(&Filter::FlateDecode);
    let texts = filters.len().saturating_sub(1);
    let is_checked = is_deflated && filters[..texts].iter().copied().all(is_written_in_text);
    let mut inflated = None;
    if is_checked {
        let deflated = filters[..texts]
            .iter()
            .fold(Cow::Borrowed(&*raw), |data, filter| match filter {
                Filter::AsciiHexDecode => ascii_hex(&data).into(),
                _ => ascii_85(&data).into(),
            });
        inflated = Some(inflate_sound(&deflated).ok_or_else(damaged)?);
    }
    let has_parameters = ["DecodeParms", "DP"]
        .iter()
        .any(|key| stream.dict().contains_key(key));
    // the library undoes the predictors that parameters name
    match inflated.filter(|_| !has_parameters) {
        Some(inflated) => Ok(Cow::Owned(inflated)),
        None => {
            let decoded = stream.decoded_data();
            decoded.map_err(|_| "its content cannot be decoded".to_string())
        }
    }
}

/// Whether a filter writes bytes as letters or digits.
fn is_written_in_text(filter: Filter) -> bool {
    matches!(filter, Filter::Ascii85Decode | Filter::AsciiHexDecode)
}

/// Data of a zlib stream whose checksum is right, or missing.
fn inflate_sound(raw: &[u8]) -> Option<Vec<u8>> {
    let deflated = raw.get(2..)?;
    let mut state = Decompress::new(false);
    let mut out: Vec<u8> = Vec::new();
    let limit = usize::try_from(MAX_STREAM).unwrap_or(usize::MAX);
    loop {
        let at = usize::try_from(state.total_in()).unwrap_or(usize::MAX);
        let (before, length) = (at, out.len());
        out.reserve(64 << 10);
        let done = state.decompress_vec(deflated.get(at..)?, &mut out, FlushDecompress::None);
        let at = usize::try_from(state.total_in()).unwrap_or(usize::MAX);
        match done {
            Ok(Status::StreamEnd) => {
                let sum = deflated.get(at..at + 4);
                let is_right = sum.is_none_or(|sum| sum == adler(&out).to_be_bytes());
                return is_right.then_some(out);
            }
            Ok(_) if (at, out.len()) != (before, length) && out.len() <= limit => {}
            _ => return None,
        }
    }
}

/// Adler-32 (RFC 1950).
fn adler(bytes: &[u8]) -> u32 {
    let (mut a, mut b) = (1u32, 0u32);
    // sums of so many bytes fit
    for part in bytes.chunks(5552) {
        for byte in part {
            a += u32::from(*byte);
            b += a;
        }
        (a, b) = (a % 65521, b % 65521);
    }
    b << 16 | a
}

/// Start of the dictionary behind the word `obj`.
pub(super) fn dictionary(data: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match data.get(at)? {
            b' ' | b'\t' | b'\r' | b'\n' | 0 | 12 => at += 1,
            b'%' => at += memchr::memchr2(b'\r', b'\n', &data[at..])?,
            b'<' if data.get(at + 1) == Some(&b'<') => return Some(at),
            _ => return None,
        }
    }
}

/// Whether the object may have a stream: the word comes before the end of the object.
fn has_stream(tail: &[u8]) -> bool {
    let end = memmem::find(tail, b"endobj").unwrap_or(tail.len());
    memmem::find(&tail[..end], b"stream").is_some()
}

/// Bytes that data expands to; None: more than allowed, or it is compressed twice.
fn expanded(filters: &[Filter], data: &[u8]) -> Option<u64> {
    let mut data = Cow::Borrowed(data);
    for (i, filter) in filters.iter().enumerate() {
        let is_last = !filters[i + 1..].iter().any(|filter| expands(*filter));
        match filter {
            Filter::Ascii85Decode => data = ascii_85(&data).into(),
            Filter::AsciiHexDecode => data = ascii_hex(&data).into(),
            Filter::FlateDecode if is_last => return inflated(&data),
            Filter::LzwDecode if is_last => return lzw(&data),
            Filter::RunLengthDecode if is_last => return run_length(&data),
            Filter::FlateDecode | Filter::LzwDecode | Filter::RunLengthDecode => return None,
            // not decoded without the library's support for pictures
            Filter::CcittFaxDecode
            | Filter::Jbig2Decode
            | Filter::DctDecode
            | Filter::JpxDecode
            | Filter::Crypt => return Some(0),
        }
    }
    Some(0)
}

fn expands(filter: Filter) -> bool {
    matches!(
        filter,
        Filter::FlateDecode | Filter::LzwDecode | Filter::RunLengthDecode
    )
}

/// Longest of the readings of deflated data that the library tries: with and without its header.
fn inflated(data: &[u8]) -> Option<u64> {
    let mut longest = 0;
    for (has_header, from) in [(true, 0), (false, 0), (false, 2)] {
        longest = longest.max(inflate(data.get(from..).unwrap_or_default(), has_header)?);
    }
    Some(longest)
}

fn inflate(data: &[u8], has_header: bool) -> Option<u64> {
    let mut state = Decompress::new(has_header);
    let mut out = vec![0; 64 << 10];
    let mut at = 0;
    loop {
        let before = state.total_out();
        let done = state.decompress(&data[at..], &mut out, FlushDecompress::None);
        at = usize::try_from(state.total_in()).unwrap_or(data.len());
        if state.total_out() > MAX_STREAM {
            return None;
        }
        let is_stuck = state.total_out() == before && at >= data.len();
        match done {
            Ok(Status::Ok) if !is_stuck => {}
            Ok(Status::BufError) if state.total_out() > before => {}
            _ => return Some(state.total_out()),
        }
    }
}

/// Length of LZW data: codes of 9 to 12 bits, 256 clears the table, 257 ends the data.
fn lzw(data: &[u8]) -> Option<u64> {
    let mut lengths: Vec<u32> = Vec::with_capacity(4096);
    let (mut bits, mut held) = (0u32, 0u32);
    let (mut width, mut previous, mut total) = (9, 0u32, 0u64);
    for &byte in data {
        held = held << 8 | u32::from(byte);
        bits += 8;
        if bits < width {
            continue;
        }
        bits -= width;
        let code = (held >> bits) & ((1 << width) - 1);
        held &= (1 << bits) - 1;
        if code == 257 {
            break;
        }
        if code == 256 {
            lengths.clear();
            (width, previous) = (9, 0);
            continue;
        }
        let known = (code as usize).checked_sub(258).map(|i| lengths.get(i));
        let length = match known {
            None => 1,
            Some(Some(length)) => *length,
            Some(None) => previous + 1,
        };
        total += u64::from(length);
        if total > MAX_STREAM {
            return None;
        }
        if previous > 0 && lengths.len() < 4096 - 258 {
            lengths.push(previous + 1);
        }
        previous = length;
        // the wider code comes one code early by default
        width = match lengths.len() + 258 {
            0..511 => 9,
            511..1023 => 10,
            1023..2047 => 11,
            _ => 12,
        };
    }
    Some(total)
}

fn run_length(data: &[u8]) -> Option<u64> {
    let (mut at, mut total) = (0, 0u64);
    while let Some(&length) = data.get(at).filter(|length| **length != 128) {
        let length = usize::from(length);
        let (taken, made) = if length < 128 {
            (length + 2, length + 1)
        } else {
            (2, 257 - length)
        };
        at += taken;
        total += made as u64;
        if total > MAX_STREAM {
            return None;
        }
    }
    Some(total)
}

fn ascii_85(data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    // some writers begin it as PostScript does
    let data = data.trim_ascii_start();
    let data = data.strip_prefix(b"<~").unwrap_or(data);
    let (mut group, mut count) = (0u32, 0);
    for &byte in data {
        match byte {
            b'z' if count == 0 => out.extend([0; 4]),
            b'!'..=b'u' => {
                group = group.wrapping_mul(85).wrapping_add(u32::from(byte - b'!'));
                count += 1;
                if count == 5 {
                    out.extend(group.to_be_bytes());
                    (group, count) = (0, 0);
                }
            }
            b'~' => break,
            _ => {}
        }
    }
    if count > 1 {
        for _ in count..5 {
            group = group.wrapping_mul(85).wrapping_add(84);
        }
        out.extend(&group.to_be_bytes()[..count - 1]);
    }
    out
}

fn ascii_hex(data: &[u8]) -> Vec<u8> {
    let end = memchr::memchr(b'>', data).unwrap_or(data.len());
    let digits = data[..end]
        .iter()
        .filter_map(|b| char::from(*b).to_digit(16));
    let digits: Vec<u32> = digits.collect();
    let pairs = digits.chunks(2);
    pairs
        .map(|pair| {
            let value = pair[0] << 4 | pair.get(1).copied().unwrap_or(0);
            u8::try_from(value).unwrap_or(0)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn zlib(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn object(dictionary: &str, content: &[u8]) -> Vec<u8> {
        let head = format!(
            "1 0 obj\n<<{dictionary}/Length {}>>\nstream\n",
            content.len()
        );
        [head.as_bytes(), content, b"\nendstream\nendobj\n"].concat()
    }

    /// Bytes in base 85 (PDF specification, 7.4.3), without the shortening of zeros.
    fn written_in_85(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for group in bytes.chunks(4) {
            let mut four = [0; 4];
            four[..group.len()].copy_from_slice(group);
            let number = u32::from_be_bytes(four);
            let digit = |power: u32| b'!' + u8::try_from(number / 85u32.pow(power) % 85).unwrap();
            let digits = [4, 3, 2, 1, 0].map(digit);
            out.extend(&digits[..group.len() + 1]);
        }
        out.extend(b"~>");
        out
    }

    fn is_blank(mut file: Vec<u8>) -> bool {
        let before = file.clone();
        disarm(&mut file).unwrap();
        file != before
    }

    #[test]
    fn bombs_pictures_and_twice_compressed_streams_are_overwritten() {
        let small = zlib(b"BT (a) Tj ET");
        let bomb = zlib(&vec![0; 65 << 20]);
        for (dictionary, content, want) in [
            ("/Filter/FlateDecode", &small[..], false),
            ("/Filter[/FlateDecode]", &small, false),
            ("/Filter/FlateDecode", &bomb, true),
            ("/Fi#6cter/Flate#44ecode", &bomb, true),
            ("/F/Fl", &bomb, true),
            ("/X(endstream endobj)/Filter/FlateDecode", &bomb, true),
            ("/Filter[/FlateDecode/FlateDecode]", &small, true),
            ("/Filter 5 0 R", &small, true),
            ("/Subtype/Image/Filter/FlateDecode", &small, true),
            ("", &bomb, false),
        ] {
            assert_eq!(is_blank(object(dictionary, content)), want, "{dictionary}");
        }
        // without its header, and in text
        assert!(is_blank(object("/Filter/FlateDecode", &bomb[2..])));
        let hex: String = bomb.iter().map(|b| format!("{b:02x}")).collect();
        let hex = format!("{hex}>");
        assert!(is_blank(object("/Filter[/AHx/Fl]", hex.as_bytes())));
    }

    #[test]
    fn damaged_and_overwritten_content_is_told_from_sound_content() {
        let read = |file: &[u8]| {
            let stream = Stream::from_bytes(&file[8..]).unwrap();
            content(&stream).map(Cow::into_owned)
        };
        let data = zlib(b"BT (some text) Tj ET");
        let sound = object("/Filter/FlateDecode", &data);
        assert_eq!(read(&sound).as_deref(), Ok(&b"BT (some text) Tj ET"[..]));
        let short = object("/Filter/FlateDecode", &data[..data.len() - 4]);
        assert_eq!(read(&short).as_deref(), Ok(&b"BT (some text) Tj ET"[..]));
        let cut = object("/Filter/FlateDecode", &data[..data.len() / 2]);
        assert_eq!(read(&cut).unwrap_err(), "its content is damaged");
        let mut flipped = data.clone();
        let last = flipped.len() - 1;
        flipped[last] ^= 1;
        let flipped = object("/Filter/FlateDecode", &flipped);
        assert_eq!(read(&flipped).unwrap_err(), "its content is damaged");
        // as reportlab writes content, with a predictor, and with both
        let rows = b"\0BT (a) Tj ET\0BT (b) Tj ET";
        for (dictionary, encode, parts, want) in [
            (
                "/Filter[/ASCII85Decode/FlateDecode]",
                true,
                1,
                &b"BT (some text) Tj ET"[..],
            ),
            (
                "/Filter[/A85/Fl]/DecodeParms[null<</Predictor 1>>]",
                true,
                1,
                b"BT (some text) Tj ET",
            ),
            (
                "/Filter/FlateDecode/DecodeParms<</Predictor 12/Columns 12>>",
                false,
                2,
                b"BT (a) Tj ETBT (b) Tj ET",
            ),
        ] {
            let content = if parts == 1 {
                zlib(b"BT (some text) Tj ET")
            } else {
                zlib(rows)
            };
            let written = |content: &[u8]| match encode {
                true => written_in_85(content),
                false => content.to_vec(),
            };
            assert_eq!(
                read(&object(dictionary, &written(&content))).as_deref(),
                Ok(want)
            );
            let mut flipped = content.clone();
            flipped[content.len() / 2] ^= 4;
            let cut = &content[..content.len() / 2];
            for damaged in [&flipped[..], cut] {
                let found = read(&object(dictionary, &written(damaged)));
                assert_eq!(found.unwrap_err(), "its content is damaged", "{dictionary}");
            }
        }
        let mut bomb = object("/Filter/FlateDecode", &zlib(&vec![0; 65 << 20]));
        disarm(&mut bomb).unwrap();
        assert_eq!(read(&bomb).unwrap_err(), "its content expands too far");
    }

    #[test]
    fn all_streams_together_are_bounded() {
        let half = object("/Filter/FlateDecode", &zlib(&vec![0; 24 << 20]));
        assert!(!is_blank(half.repeat(2)));
        assert!(is_blank(half.repeat(3)));
    }

    #[test]
    fn lengths_are_those_of_the_decoded_data() {
        // the example of the PDF specification, 7.4.4.2: 45 45 45 45 45 65 45 45 45 66
        assert_eq!(
            lzw(&[0x80, 0x0b, 0x60, 0x50, 0x22, 0x0c, 0x0c, 0x85, 0x01]),
            Some(10)
        );
        assert_eq!(run_length(&[2, 1, 2, 3, 254, 7, 128, 9]), Some(6));
        assert_eq!(ascii_85(b"9jqo^~>"), b"Man ");
        assert_eq!(ascii_85(b"9jqo~>"), b"Man");
        assert_eq!(ascii_hex(b"4d 6>x"), b"M`");
    }

    #[test]
    fn objects_without_an_end_are_refused_in_linear_time() {
        let mut file = b"1 0 obj <</Length 9 0 R>>\nstream\n".repeat(100_000);
        let start = std::time::Instant::now();
        assert!(disarm(&mut file).is_err());
        assert!(start.elapsed().as_secs() < 20);
    }
}
