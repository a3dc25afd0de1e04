//! Python's character classes, in one table.
//!
//! datatrove's rules are written in terms of `str.isspace`, `str.isalpha`, `str.splitlines` and
//! hand-made punctuation lists; a table of bit flags per code point makes each test one load.
//! We differ: categories come from the Unicode version of the `regex-syntax` crate, Python 3.11 has 14.0,
//! so code points assigned since then may be classed differently.

use std::sync::LazyLock;

use regex_syntax::hir::{Class, HirKind};

/// `str.isspace`.
pub(crate) const SPACE: u16 = 1;
/// `str.isalpha`: categories Lu Ll Lt Lm Lo.
pub(crate) const LETTER: u16 = 1 << 1;
/// Category Nd.
pub(crate) const DIGIT: u16 = 1 << 2;
/// Category Mn.
pub(crate) const MARK: u16 = 1 << 3;
/// Category P*.
pub(crate) const PUNCT: u16 = 1 << 4;
/// datatrove's `PUNCTUATION`: turned into a space by `simplify_text`.
pub(crate) const TRANSLATED: u16 = 1 << 5;
/// datatrove's `TERMINAL_PUNCTUATION`.
pub(crate) const TERMINAL: u16 = 1 << 6;
/// Ends a sentence for spaCy's sentencizer.
pub(crate) const SENTENCE: u16 = 1 << 7;
/// spaCy's `ALPHA`.
pub(crate) const ALPHA: u16 = 1 << 8;
/// spaCy's `ALPHA_LOWER`.
pub(crate) const LOWER: u16 = 1 << 9;
/// spaCy's `ALPHA_UPPER`.
pub(crate) const UPPER: u16 = 1 << 10;
/// spaCy's icons (symbols, dingbats, emoji).
pub(crate) const ICON: u16 = 1 << 11;
/// A single character that is a prefix.
pub(crate) const PREFIX: u16 = 1 << 12;
/// A single character that is a suffix.
pub(crate) const SUFFIX: u16 = 1 << 13;
/// spaCy's quotes.
pub(crate) const QUOTE: u16 = 1 << 14;
/// Allowed before a full stop that is split off.
pub(crate) const BEFORE_STOP: u16 = 1 << 15;

/// Cased letters of spaCy's `ALPHA`, as hexadecimal ranges.
const CASED: &str = "41-5a 61-7a c0-d6 d8-f6 f8-1bf 1c4-2af 386 388-38a 38c 38e-38f 391-3a9 \
    3ac-3af 3b1-3c9 3cc-3ce 400-401 403-40a 40c-40d 410-451 453-45a 45c-45d 490-491 496-497 \
    4a2-4a3 4ae-4af 4ba-4bb 4d8-4d9 4e8-4e9 1d00-1d25 1d6b-1d77 1d79-1d9a 1e00-1eff 2c60-2c7b \
    2c7e-2c7f a722-a76f a771-a787 a78b-a78e a790-a7b9 a7fa ab30-ab5a ab60-ab64 ff21-ff3a ff41-ff5a";

/// Scripts without case in spaCy's `ALPHA`; they count as upper and as lower.
const UNCASED: &str = "591-5f4 620-64a 66e-6d5 6e5-6ff 750-77f 8a0-8bd 900-9ff b80-cff d80-dff \
    1100-137f 2e80-2fdf 2ff0-30ff 31c0-31ef 3200-4dbf 4e00-9fff ac00-d7af f900-faff fb1d-fbb1 \
    fbd3-fd3d fd50-fdc7 fdf0-fdfb fe30-fe4f fe70-fefc 1ee00-1eebb 1f200-1f2ff 20000-2a6df \
    2a700-2ebef 2f800-2fa1f";

/// spaCy's `_other_symbols`.
const ICONS: &str = "a6 a9 ae b0 482 58d-58e 60e-60f 6de 6e9 6fd-6fe 7f6 9fa b70 bf3-bf8 bfa c7f \
    d4f d79 f01-f03 f13 f15-f17 f1a-f1f f34 f36 f38 fbe-fc5 fc7-fcc fce-fcf fd5-fd8 109e-109f \
    1390-1399 1940 19de-19ff 1b61-1b6a 1b74-1b7c 2100-2101 2103-2106 2108-2109 2114 2116-2117 \
    211e-2123 2125 2127 2129 212e 213a-213b 214a 214c-214d 214f 218a-218b 2195-2199 219c-219f \
    21a1-21a2 21a4-21a5 21a7-21ad 21af-21cd 21d0-21d1 21d3 21d5-21f3 2300-2307 230c-231f \
    2322-2328 232b-237b 237d-239a 23b4-23db 23e2-2426 2440-244a 249c-24e9 2500-25b6 25b8-25c0 \
    25c2-25f7 2600-266e 2670-2767 2794-27bf 2800-28ff 2b00-2b2f 2b45-2b46 2b4d-2b73 2b76-2b95 \
    2b98-2bc8 2bca-2bfe 2ce5-2cea 2e80-2e99 2e9b-2ef3 2f00-2fd5 2ff0-2ffb 3004 3012-3013 3020 \
    3036-3037 303e-303f 3190-3191 3196-319f 31c0-31e3 3200-321e 322a-3247 3250 3260-327f \
    328a-32b0 32c0-32fe 3300-33ff 4dc0-4dff a490-a4c6 a828-a82b a836-a837 a839 aa77-aa79 fdfd \
    ffe4 ffe8 ffed-ffee fffc-fffd 10137-1013f 10179-10189 1018c-1018e 10190-1019b 101a0 \
    101d0-101fc 10877-10878 10ac8 1173f 16b3c-16b3f 16b45 1bc9c 1d000-1d0f5 1d100-1d126 \
    1d129-1d164 1d16a-1d16c 1d183-1d184 1d18c-1d1a9 1d1ae-1d1e8 1d200-1d241 1d245 1d300-1d356 \
    1d800-1d9ff 1da37-1da3a 1da6d-1da74 1da76-1da83 1da85-1da86 1ecac 1f000-1f02b 1f030-1f093 \
    1f0a0-1f0ae 1f0b1-1f0bf 1f0c1-1f0cf 1f0d1-1f0f5 1f110-1f16b 1f170-1f1ac 1f1e6-1f202 \
    1f210-1f23b 1f240-1f248 1f250-1f251 1f260-1f265 1f300-1f3fa 1f400-1f6d4 1f6e0-1f6ec \
    1f6f0-1f6f9 1f700-1f773 1f780-1f7d8 1f800-1f80b 1f810-1f847 1f850-1f859 1f860-1f887 \
    1f890-1f8ad 1f900-1f90b 1f910-1f93e 1f940-1f970 1f973-1f976 1f97a 1f97c-1f9a2 1f9b0-1f9b9 \
    1f9c0-1f9c2 1f9d0-1f9ff 1fa60-1fa6d";

/// datatrove's `PUNCTUATION` with its control characters.
const TRANSLATED_CHARS: &str = "0-8 b-1f 21-2f 3a-40 5b-60 7b-9f ab b4 bb 2013-2014 2019 201c-201e 2026 2236 2501 25ba \
    3001-3002 3008-300d 3010-3011 ff01 ff05 ff08-ff09 ff0c ff0e ff11 ff1a-ff1b ff1f ff5e";

/// datatrove's `TERMINAL_PUNCTUATION`.
const TERMINAL_CHARS: &str = "21 2e 3f 589 61d-61f 6d4 700-702 7f9 837 839 83d-83e 964-965 104a-104b 1362 1367-1368 166e \
    1735-1736 17d4-17d6 17d9-17da 1803 1809 1944-1945 1aa8-1aab 1b5a-1b5b 1b5e-1b5f 1b7d-1b7e \
    1c3b-1c3c 1c7e-1c7f 203c-203d 2047-2049 2e2e 2e3c 2e53-2e54 3002 a4ff a60e-a60f a6f3 a6f7 \
    a876-a877 a8ce-a8cf a92f a9c8-a9c9 aa5d-aa5f aaf0-aaf1 abeb fe52 fe56-fe57 ff01 ff0e ff1f \
    ff61 10a56-10a57 10f55-10f59 10f86-10f89 11047-11048 110be-110c1 11141-11143 111c5-111c6 \
    111cd 111de-111df 11238-11239 1123b-1123c 112a9 1144b-1144c 115c2-115c3 115c9-115d7 \
    11641-11642 1173c-1173e 11944 11946 11a42-11a43 11a9b-11a9c 11c41-11c42 11ef7-11ef8 \
    11f43-11f44 16a6e-16a6f 16af5 16b37-16b38 16b44 16e98 1bc9f 1da88";

/// spaCy's sentencizer: characters that end a sentence.
const SENTENCE_CHARS: &str = "21 2e 3f 589 61f 6d4 700-702 7f9 964-965 104a-104b 1362 1367-1368 166e 1735-1736 1803 1809 \
    1944-1945 1aa8-1aab 1b5a-1b5b 1b5e-1b5f 1c3b-1c3c 1c7e-1c7f 203c-203d 2047-2049 2e2e 2e3c \
    3002 a4ff a60e-a60f a6f3 a6f7 a876-a877 a8ce-a8cf a92f a9c8-a9c9 aa5d-aa5f aaf0-aaf1 abeb \
    fe52 fe56-fe57 ff01 ff0e ff1f ff61 10a56-10a57 11047-11048 110be-110c1 11141-11143 \
    111c5-111c6 111cd 111de-111df 11238-11239 1123b-1123c 112a9 1144b-1144c 115c2-115c3 \
    115c9-115d7 11641-11642 1173c-1173e 11a42-11a43 11a9b-11a9c 11c41-11c42 16a6e-16a6f 16af5 \
    16b37-16b38 16b44 1bc9f 1da88";

/// spaCy's `LIST_PUNCT`, single characters.
const PUNCT_CHARS: &str = "21 23 26 28-2a 2c 3a-3c 3e-3f 5b 5d 5f 7b 7d a1 b7 bf 60c 61b 61f 66a 6d4 964 2026 3001-3002 \
    ff01 ff0c ff1a-ff1b ff1f ff5e";

/// spaCy's `LIST_QUOTES`.
const QUOTE_CHARS: &str =
    "22 27 2c 60 ab b4 bb 2018-201a 201c-201e 2329-232a 27e6-27e7 3008-3011 3014-3015 ff08-ff09";

/// spaCy's `LIST_CURRENCY`, single characters.
const CURRENCY_CHARS: &str = "24 a3 a5 e3f 20a0-20bf fdfc";

/// `str.isspace`.
const SPACE_CHARS: &str = "9-d 1c-20 85 a0 1680 2000-200a 2028-2029 202f 205f 3000";

static TABLE: LazyLock<Box<[u16]>> = LazyLock::new(build);

/// Flags of a character.
#[inline]
pub(crate) fn flags(c: char) -> u16 {
    TABLE[c as usize]
}

/// True if `c` has any of the flags.
#[inline]
pub(crate) fn is(c: char, wanted: u16) -> bool {
    flags(c) & wanted != 0
}

/// The table itself, for loops that look up every character.
pub(crate) fn table() -> &'static [u16] {
    &TABLE
}

/// Code points of a list of hexadecimal ranges.
pub(crate) fn ranges(list: &str) -> impl Iterator<Item = char> + '_ {
    list.split_ascii_whitespace().flat_map(|piece| {
        let (a, b) = piece.split_once('-').unwrap_or((piece, piece));
        let parse = |s: &str| u32::from_str_radix(s, 16).unwrap_or(0);
        (parse(a)..=parse(b)).filter_map(char::from_u32)
    })
}

/// Code points of a category. Asked of the parser: to match all of Unicode against it takes 50 ms.
fn members(category: &str) -> impl Iterator<Item = char> {
    let class = match regex_syntax::parse(category).map(|hir| hir.into_kind()) {
        Ok(HirKind::Class(Class::Unicode(class))) => class.ranges().to_vec(),
        _ => Vec::new(),
    };
    class
        .into_iter()
        .flat_map(|range| range.start()..=range.end())
}

fn build() -> Box<[u16]> {
    let mut table = vec![0u16; 0x11_0000].into_boxed_slice();
    let mut set = |c: char, flag: u16| table[c as usize] |= flag;
    for (category, flag) in [
        (r"\p{L}", LETTER),
        (r"\p{Nd}", DIGIT),
        (r"\p{Mn}", MARK),
        (r"\p{P}", PUNCT),
    ] {
        members(category).for_each(|c| set(c, flag));
    }
    for (list, flag) in [
        (SPACE_CHARS, SPACE),
        (TRANSLATED_CHARS, TRANSLATED),
        (TERMINAL_CHARS, TERMINAL),
        (SENTENCE_CHARS, SENTENCE),
        (CASED, ALPHA),
        (UNCASED, ALPHA | LOWER | UPPER | BEFORE_STOP),
        (ICONS, ICON | PREFIX | SUFFIX),
        (PUNCT_CHARS, PREFIX | SUFFIX | BEFORE_STOP),
        (QUOTE_CHARS, PREFIX | SUFFIX | QUOTE | BEFORE_STOP),
        (CURRENCY_CHARS, PREFIX),
    ] {
        ranges(list).for_each(|c| set(c, flag));
    }
    // U+0294 and U+03A2 are in spaCy's lists although they have no case in Unicode.
    for c in ranges(CASED) {
        if c.is_lowercase() || c == '\u{294}' {
            set(c, LOWER | BEFORE_STOP);
        }
        if c.is_uppercase() || c == '\u{3a2}' {
            set(c, UPPER);
        }
    }
    "\u{a7}%=\u{2014}\u{2013}"
        .chars()
        .for_each(|c| set(c, PREFIX));
    "\u{2014}\u{2013}".chars().for_each(|c| set(c, SUFFIX));
    "0123456789%\u{b2}-+|?:()"
        .chars()
        .for_each(|c| set(c, BEFORE_STOP));
    table
}

/// Python's `\w` of a character.
pub(crate) fn is_word(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_alphanumeric() || c == '_';
    }
    is(c, LETTER) || c.is_numeric()
}

/// `str.strip`.
pub(crate) fn strip(s: &str) -> &str {
    s.trim_matches(|c| is(c, SPACE))
}

/// `str.splitlines`: also splits at VT, FF, FS, GS, RS, NEL, LS and PS.
pub(crate) fn split_lines(text: &str) -> SplitLines<'_> {
    SplitLines { rest: text }
}

/// Iterator of [`split_lines`].
pub(crate) struct SplitLines<'a> {
    rest: &'a str,
}

impl<'a> Iterator for SplitLines<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        if self.rest.is_empty() {
            return None;
        }
        let bytes = self.rest.as_bytes();
        let mut i = 0;
        while i < bytes.len() {
            let end = match bytes[i] {
                b'\n' | 0x0b | 0x0c | 0x1c..=0x1e => i + 1,
                b'\r' => i + 1 + usize::from(bytes.get(i + 1) == Some(&b'\n')),
                0xc2 if bytes.get(i + 1) == Some(&0x85) => i + 2,
                0xe2 if bytes[i..].starts_with(&[0xe2, 0x80, 0xa8])
                    || bytes[i..].starts_with(&[0xe2, 0x80, 0xa9]) =>
                {
                    i + 3
                }
                _ => {
                    i += 1;
                    continue;
                }
            };
            let line = &self.rest[..i];
            self.rest = &self.rest[end..];
            return Some(line);
        }
        let line = self.rest;
        self.rest = "";
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_lines_breaks_where_python_does() {
        let lines: Vec<&str> = split_lines("a\r\nb\u{b}c\u{2028}d\u{85}\n\ne").collect();
        assert_eq!(lines, ["a", "b", "c", "d", "", "", "e"]);
        assert_eq!(split_lines("").count(), 0);
        assert_eq!(split_lines("a\n").count(), 1);
    }

    #[test]
    fn categories_are_those_that_the_regex_crate_matches() {
        let every: String = ('\0'..=char::MAX).collect();
        for (category, flag) in [
            (r"\p{L}", LETTER),
            (r"\p{Nd}", DIGIT),
            (r"\p{Mn}", MARK),
            (r"\p{P}", PUNCT),
        ] {
            let regex = regex::Regex::new(&format!("{category}+")).unwrap();
            let runs = regex.find_iter(&every);
            let matched: String = runs.map(|run| run.as_str()).collect();
            let ours: String = every.chars().filter(|&c| is(c, flag)).collect();
            assert!(ours == matched && !ours.is_empty(), "{category}");
        }
    }

    #[test]
    fn classes_follow_the_lists() {
        assert!(is('\u{1f}', SPACE) && is('\u{a0}', SPACE) && !is('\u{200b}', SPACE));
        assert!(is('A', ALPHA | UPPER) && !is('A', LOWER) && is('\u{4e00}', LOWER));
        assert!(is('"', TRANSLATED) && !is('\n', TRANSLATED) && is('.', TERMINAL));
    }
}
