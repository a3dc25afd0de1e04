//! Fonts of a PDF: codes of a shown string to characters and widths.
//!
//! Facts: PDF 32000-1, 9.6 (simple fonts), 9.7 (composite fonts), 9.10 (extraction of text). Characters come from the
//! font's ToUnicode map, else from its encoding: glyph names, a standard encoding, the list of names in the font file of
//! a Type 1 font, or for composite fonts a predefined map whose codes are characters of a known charset.

use encoding_rs::Encoding;
use hayro_cmap::{BfString, CMap};
use hayro_syntax::object::{Array, Dict, Name, Number, Object, Stream};

use super::glyphs::{Base, of_code, of_name};

/// Longest ToUnicode map and font file that is read, in bytes.
const MAX_MAP: usize = 1 << 20;
/// Widths of a composite font that are read.
const MAX_WIDTHS: usize = 1 << 17;

/// A font.
pub(super) enum Font {
    Simple(Box<Simple>),
    Composite(Box<Composite>),
}

/// A font of one byte per code.
pub(super) struct Simple {
    texts: Vec<Option<Box<str>>>,
    /// In thousandths of the size.
    widths: Vec<f32>,
}

/// A font of codes of several bytes.
pub(super) struct Composite {
    to_unicode: Option<CMap>,
    charset: Charset,
    /// Length of the map as a text.
    map_bytes: usize,
    /// Ranges of codes with their widths, by code.
    widths: Vec<(u32, u32, f32)>,
    default: f32,
}

/// Meaning of the codes of a composite font.
enum Charset {
    /// Two bytes each, numbers of glyphs.
    Glyphs,
    /// UTF-16.
    Utf16,
    /// Of a legacy charset.
    Legacy(&'static Encoding),
}

/// A code of a shown string.
pub(super) struct Code<'a> {
    /// None if nothing tells its characters.
    pub(super) text: Option<&'a str>,
    /// In thousandths of the size.
    pub(super) width: f32,
    /// The one-byte code 32, which word spacing applies to.
    pub(super) is_space: bool,
}

impl Font {
    /// Reads a font's dictionary.
    pub(super) fn read(dict: &Dict<'_>) -> Font {
        let kind = dict.get::<Name<'_>>("Subtype");
        let kind = kind.as_deref().unwrap_or_default();
        let to_unicode = to_unicode(dict);
        if kind == b"Type0" {
            return Font::Composite(Box::new(composite(dict, to_unicode)));
        }
        let map = to_unicode.as_ref().map(|(map, _)| map);
        Font::Simple(Box::new(simple(dict, kind, map)))
    }

    /// About the bytes that it takes in memory.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Font::Simple(_) => 16 << 10,
            Font::Composite(font) => font.widths.len() * 12 + font.map_bytes * 8 + 1024,
        }
    }

    /// Calls `each` with the codes of a string.
    pub(super) fn each(&self, bytes: &[u8], each: &mut dyn FnMut(Code<'_>)) {
        match self {
            Font::Simple(font) => {
                for &byte in bytes {
                    each(Code {
                        text: font.texts[usize::from(byte)].as_deref(),
                        width: font.widths[usize::from(byte)],
                        is_space: byte == b' ',
                    });
                }
            }
            Font::Composite(font) => font.each(bytes, each),
        }
    }
}

/// The map, and its length as a text.
fn to_unicode(dict: &Dict<'_>) -> Option<(CMap, usize)> {
    let stream = dict.get::<Stream<'_>>("ToUnicode")?;
    let data = stream.decoded_data().ok()?;
    if data.len() > MAX_MAP {
        return None;
    }
    Some((CMap::parse(&data, |_| None)?, data.len()))
}

fn simple(dict: &Dict<'_>, kind: &[u8], to_unicode: Option<&CMap>) -> Simple {
    let descriptor = dict.get::<Dict<'_>>("FontDescriptor");
    let name = dict.get::<Name<'_>>("BaseFont");
    let name = name.as_deref().unwrap_or_default();
    let base = base_of(dict, kind, name, descriptor.as_ref());
    let mut texts: Vec<Option<Box<str>>> = (0..=255u8)
        .map(|code| of_code(base, code).map(|c| c.to_string().into()))
        .collect();
    if let Some(file) = descriptor
        .as_ref()
        .and_then(|d| d.get::<Stream<'_>>("FontFile"))
        && dict.get::<Object<'_>>("Encoding").is_none()
        && let Ok(file) = file.decoded_data()
    {
        own_encoding(&file[..file.len().min(MAX_MAP)], &mut texts);
    }
    if let Some(differences) = dict
        .get::<Dict<'_>>("Encoding")
        .and_then(|encoding| encoding.get::<Array<'_>>("Differences"))
    {
        let mut code = 0usize;
        for object in differences.iter::<Object<'_>>().take(4096) {
            match object {
                Object::Number(number) => code = usize::try_from(number.as_i64()).unwrap_or(256),
                Object::Name(name) => {
                    if let Some(text) = texts.get_mut(code) {
                        *text = of_name(name.as_str()).map(String::into);
                    }
                    code = code.saturating_add(1);
                }
                _ => {}
            }
        }
    }
    if let Some(map) = to_unicode {
        for (code, text) in (0u32..).zip(&mut texts) {
            if let Some(found) = looked_up(map, code) {
                *text = Some(found.into());
            }
        }
    }
    let missing = descriptor.and_then(|d| d.get::<Number>("MissingWidth"));
    let missing = missing.map_or(0.0, |n| n.as_f32());
    let first = dict.get::<Number>("FirstChar").map_or(0, |n| n.as_i64());
    let mut widths = vec![missing; 256];
    match dict.get::<Array<'_>>("Widths") {
        Some(array) => {
            for (i, width) in (0..256i64).zip(array.iter::<Number>()) {
                let code = usize::try_from(first.saturating_add(i)).unwrap_or(256);
                if let Some(place) = widths.get_mut(code) {
                    *place = width.as_f32();
                }
            }
            if kind == b"Type3" {
                let scale = dict.get::<Array<'_>>("FontMatrix");
                let scale = scale.and_then(|matrix| matrix.iter::<Number>().next());
                let scale = scale.map_or(1.0, |n| n.as_f32() * 1000.0);
                widths.iter_mut().for_each(|width| *width *= scale);
            }
        }
        // one of the fonts that every viewer has
        None => {
            let is_fixed = name.windows(7).any(|w| w == b"Courier");
            for (code, width) in (0u8..=255).zip(&mut widths) {
                *width = if is_fixed { 600.0 } else { usual_width(code) };
            }
        }
    }
    Simple { texts, widths }
}

/// About the width of a character in a serif or sans-serif font.
fn usual_width(code: u8) -> f32 {
    match code {
        b'i' | b'j' | b'l' | b'.' | b',' | b':' | b';' | b'\'' | b'|' | b' ' | b'!' => 270.0,
        b'f' | b't' | b'I' | b'r' | b'(' | b')' | b'[' | b']' | b'-' => 330.0,
        b'm' | b'M' | b'W' | b'w' | b'@' | b'%' => 830.0,
        b'A'..=b'Z' => 680.0,
        _ => 520.0,
    }
}

fn base_of(dict: &Dict<'_>, kind: &[u8], name: &[u8], descriptor: Option<&Dict<'_>>) -> Base {
    let named = match dict.get::<Object<'_>>("Encoding") {
        Some(Object::Name(name)) => Some(name),
        Some(Object::Dict(encoding)) => encoding.get::<Name<'_>>("BaseEncoding"),
        _ => None,
    };
    match named.as_deref() {
        Some(b"WinAnsiEncoding") => return Base::WinAnsi,
        Some(b"MacRomanEncoding") => return Base::MacRoman,
        Some(b"StandardEncoding") => return Base::Standard,
        _ => {}
    }
    if name.ends_with(b"Symbol") {
        return Base::Symbol;
    }
    // TeX's fonts have encodings of their own, which their files state and the document often does not
    let fonts = [
        ("CMSY", Base::TexSymbols),
        ("CMBSY", Base::TexSymbols),
        ("CMMI", Base::TexMath),
        ("CMEX", Base::TexPieces),
    ];
    for (part, base) in fonts {
        if memchr::memmem::find(name, part.as_bytes()).is_some() {
            return base;
        }
    }
    let flags = descriptor.and_then(|d| d.get::<Number>("Flags"));
    let is_symbolic = flags.is_some_and(|flags| flags.as_i64() & 4 != 0);
    if kind == b"TrueType" && is_symbolic {
        Base::WinAnsi
    } else {
        Base::Standard
    }
}

/// The encoding that a Type 1 font file states: lines `dup 65 /A put`.
fn own_encoding(file: &[u8], texts: &mut [Option<Box<str>>]) {
    let Some(start) = memchr::memmem::find(file, b"/Encoding") else {
        return;
    };
    let rest = &file[start..];
    // the encrypted part follows
    let end = memchr::memmem::find(rest, b"eexec").unwrap_or(rest.len());
    let words = rest[..end].split(|b| b.is_ascii_whitespace());
    let mut words = words.filter(|word| !word.is_empty()).peekable();
    while let Some(word) = words.next() {
        match word {
            b"def" | b"readonly" => return,
            b"dup" => {
                let code = words.next().and_then(|w| std::str::from_utf8(w).ok());
                let code = code.and_then(|w| w.parse::<usize>().ok());
                let name = words.peek().and_then(|w| w.strip_prefix(b"/"));
                let name = name.and_then(|name| std::str::from_utf8(name).ok());
                if let (Some(code), Some(name)) = (code, name)
                    && let Some(text) = texts.get_mut(code)
                {
                    *text = of_name(name).map(String::into);
                }
            }
            _ => {}
        }
    }
}

/// Characters of a code; None for none and for those that stand for "unknown".
fn looked_up(map: &CMap, code: u32) -> Option<String> {
    let text = match map.lookup_bf_string(code)? {
        BfString::Char(c) => c.to_string(),
        BfString::String(text) => text,
    };
    let is_known = |c: char| c != '\u{fffd}' && !c.is_control();
    text.chars().all(is_known).then_some(text)
}

fn composite(dict: &Dict<'_>, to_unicode: Option<(CMap, usize)>) -> Composite {
    let charset = match dict.get::<Name<'_>>("Encoding") {
        Some(name) => charset_of(&name),
        None => Charset::Glyphs,
    };
    let descendants = dict.get::<Array<'_>>("DescendantFonts");
    let inner = descendants.and_then(|all| all.iter::<Dict<'_>>().next());
    let default = inner.as_ref().and_then(|inner| inner.get::<Number>("DW"));
    let widths = inner.and_then(|inner| inner.get::<Array<'_>>("W"));
    Composite {
        map_bytes: to_unicode.as_ref().map_or(0, |(_, bytes)| *bytes),
        to_unicode: to_unicode.map(|(map, _)| map),
        charset,
        widths: widths.map_or(Vec::new(), |widths| ranges(&widths)),
        default: default.map_or(1000.0, |n| n.as_f32()),
    }
}

/// Charset of a predefined map by its name; of Identity and embedded maps none.
fn charset_of(name: &[u8]) -> Charset {
    let has = |part: &str| memchr::memmem::find(name, part.as_bytes()).is_some();
    if has("UCS2") || has("UTF16") {
        Charset::Utf16
    } else if has("RKSJ") {
        Charset::Legacy(encoding_rs::SHIFT_JIS)
    } else if has("GBK") || has("GB-EUC") || has("GBpc-EUC") {
        Charset::Legacy(encoding_rs::GBK)
    } else if has("B5") {
        Charset::Legacy(encoding_rs::BIG5)
    } else if has("KSC") {
        Charset::Legacy(encoding_rs::EUC_KR)
    } else if name == b"EUC-H" || name == b"EUC-V" {
        Charset::Legacy(encoding_rs::EUC_JP)
    } else {
        Charset::Glyphs
    }
}

/// The array of widths: `first [w w ..]` and `first last w`.
fn ranges(array: &Array<'_>) -> Vec<(u32, u32, f32)> {
    let mut found = Vec::new();
    let mut objects = array.iter::<Object<'_>>();
    let number = |object: Option<Object<'_>>| match object {
        Some(Object::Number(number)) => Some(number),
        _ => None,
    };
    let code = |number: Number| u32::try_from(number.as_i64()).ok();
    while found.len() < MAX_WIDTHS {
        let Some(first) = number(objects.next()).and_then(code) else {
            break;
        };
        match objects.next() {
            Some(Object::Array(widths)) => {
                for (at, width) in (first..).zip(widths.iter::<Number>()).take(MAX_WIDTHS) {
                    found.push((at, at, width.as_f32()));
                }
            }
            Some(Object::Number(last)) => {
                let (Some(last), Some(width)) = (code(last), number(objects.next())) else {
                    break;
                };
                found.push((first, last, width.as_f32()));
            }
            _ => break,
        }
    }
    found.sort_by_key(|range| range.0);
    found
}

impl Composite {
    fn width(&self, code: u32) -> f32 {
        let behind = self.widths.partition_point(|range| range.0 <= code);
        let range = behind.checked_sub(1).map(|i| self.widths[i]);
        range
            .filter(|range| code <= range.1)
            .map_or(self.default, |range| range.2)
    }

    fn each(&self, bytes: &[u8], each: &mut dyn FnMut(Code<'_>)) {
        let mut at = 0;
        while at < bytes.len() {
            let length = match self.charset {
                Charset::Legacy(_) if bytes[at] < 0x80 => 1,
                // half-width katakana
                Charset::Legacy(charset)
                    if charset == encoding_rs::SHIFT_JIS && (0xa1..0xe0).contains(&bytes[at]) =>
                {
                    1
                }
                _ => 2,
            };
            let code = &bytes[at..bytes.len().min(at + length)];
            at += length;
            let number = code.iter().fold(0u32, |n, b| n << 8 | u32::from(*b));
            let mapped = self
                .to_unicode
                .as_ref()
                .and_then(|map| looked_up(map, number));
            let text = mapped.or_else(|| match self.charset {
                Charset::Glyphs => None,
                Charset::Utf16 => char::from_u32(number).map(String::from),
                Charset::Legacy(charset) => {
                    let text = charset.decode_without_bom_handling_and_without_replacement(code);
                    text.map(std::borrow::Cow::into_owned)
                }
            });
            let (width, is_space) = match self.charset {
                Charset::Glyphs => (self.width(number), false),
                // the widths are those of glyphs, whose numbers are not known
                _ => (if length == 1 { 500.0 } else { 1000.0 }, code == b" "),
            };
            each(Code {
                text: text.as_deref(),
                width,
                is_space,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hayro_syntax::object::FromBytes;

    fn shown(dict: &str, bytes: &[u8]) -> Vec<(Option<String>, f32)> {
        let dict = Dict::from_bytes(dict.as_bytes()).unwrap();
        let mut found = Vec::new();
        Font::read(&dict).each(bytes, &mut |code| {
            found.push((code.text.map(str::to_string), code.width));
        });
        found
    }

    #[test]
    fn codes_of_simple_fonts_follow_encoding_and_differences() {
        let dict = "<</Subtype/Type1/BaseFont/X/FirstChar 65/Widths[700 600]/Encoding<</BaseEncoding/WinAnsiEncoding\
            /Differences[66/eacute/g7 200/ffi]>>>>";
        let want = [
            (Some("A"), 700.0),
            (Some("\u{e9}"), 600.0),
            (None, 0.0),
            (Some("ffi"), 0.0),
            (Some("\u{20ac}"), 0.0),
        ];
        let want = want.map(|(text, width)| (text.map(str::to_string), width));
        assert_eq!(shown(dict, b"ABC\xc8\x80"), want);
    }

    #[test]
    fn composite_fonts_take_widths_and_charsets() {
        let dict = "<</Subtype/Type0/Encoding/UniJIS-UCS2-H/DescendantFonts[<</DW 900>>]>>";
        assert_eq!(
            shown(
                dict,
                "\u{65e5}"
                    .encode_utf16()
                    .next()
                    .unwrap()
                    .to_be_bytes()
                    .as_slice()
            )[0]
            .0
            .as_deref(),
            Some("\u{65e5}")
        );
        let dict = "<</Subtype/Type0/Encoding/90ms-RKSJ-H>>";
        let texts: Vec<Option<String>> =
            shown(dict, b"a\x93\xfa").into_iter().map(|c| c.0).collect();
        assert_eq!(texts, [Some("a".to_string()), Some("\u{65e5}".to_string())]);
        let dict =
            "<</Subtype/Type0/Encoding/Identity-H/DescendantFonts[<</DW 900/W[1[10 20]5 9 30]>>]>>";
        let widths: Vec<f32> = shown(dict, &[0, 1, 0, 2, 0, 3, 0, 7])
            .into_iter()
            .map(|c| c.1)
            .collect();
        assert_eq!(widths, [10.0, 20.0, 900.0, 30.0]);
    }

    #[test]
    fn the_encoding_of_a_type_1_file_is_read() {
        let mut texts = vec![None; 256];
        let file = b"/Encoding 256 array\n0 1 255 {1 index exch /.notdef put} for\ndup 12 /fi put\ndup 65 /A put\nreadonly def\ndup 66 /B put eexec";
        own_encoding(file, &mut texts);
        assert_eq!(
            (texts[12].as_deref(), texts[65].as_deref()),
            (Some("fi"), Some("A"))
        );
        assert_eq!(texts[66], None);
    }
}
