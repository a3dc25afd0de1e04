//! Unicode classes of code points for the split patterns.
//!
//! Source: Unicode 17.0 (general categories and White_Space), written to `unicode17.bin` as runs by
//! `tests/oracles/unicode_classes.py`. The version matters: a code point that is a letter in one version is "other" in
//! the one before it, and words split differently. tokenizers 1.0.0-rc.3 has 17.0 as well, 0.23.3 has 16.0.

use std::sync::LazyLock;

/// Everything that no other class holds: punctuation, symbols, controls, unassigned.
pub(super) const OTHER: u8 = 0;
/// White_Space, the `\s` of the patterns.
pub(super) const SPACE: u8 = 1;
/// `\p{N}`.
pub(super) const NUMBER: u8 = 2;
/// `\p{L}`.
pub(super) const LETTER: u8 = 3;

/// Classes as a flat table of the first plane and pages of 256 for the others.
pub(super) struct Classes {
    plane: Box<[u8; 0x10000]>,
    /// Page number of every 256 code points from U+10000 on.
    page_of: Vec<u16>,
    pages: Vec<[u8; 256]>,
}

static CLASSES: LazyLock<Classes> =
    LazyLock::new(|| Classes::read(include_bytes!("unicode17.bin")));

/// The table, built on first use (about a millisecond).
pub(super) fn classes() -> &'static Classes {
    &CLASSES
}

impl Classes {
    fn read(runs: &[u8]) -> Classes {
        let mut all = Vec::with_capacity(0x11_0000);
        let (mut value, mut shift) = (0usize, 0);
        for byte in runs {
            value |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                let class = u8::try_from(value & 3).unwrap_or(OTHER);
                all.resize(all.len() + (value >> 2), class);
                (value, shift) = (0, 0);
            }
        }
        all.resize(0x11_0000, OTHER);
        let mut plane = Box::new([OTHER; 0x10000]);
        plane.copy_from_slice(&all[..0x10000]);
        let (mut page_of, mut pages) = (Vec::new(), Vec::<[u8; 256]>::new());
        for page in all[0x10000..].as_chunks::<256>().0 {
            let known = pages.iter().position(|p| p == page);
            let number = known.unwrap_or_else(|| {
                pages.push(*page);
                pages.len() - 1
            });
            page_of.push(u16::try_from(number).unwrap_or_default());
        }
        Classes {
            plane,
            page_of,
            pages,
        }
    }

    /// Class of a code point.
    #[inline]
    pub(super) fn of(&self, code: u32) -> u8 {
        match u16::try_from(code) {
            Ok(code) => self.plane[usize::from(code)],
            Err(_) => {
                let code = code as usize - 0x10000;
                let page = self.page_of.get(code >> 8).copied().unwrap_or_default();
                self.pages[usize::from(page)][code & 255]
            }
        }
    }

    /// Class and bytes of the character whose first byte is `text[at]`. `text` is UTF-8 from `at` on.
    #[inline]
    pub(super) fn at(&self, text: &[u8], at: usize) -> (u8, usize) {
        let byte = |i: usize| u32::from(text.get(at + i).copied().unwrap_or_default());
        let low = |i: usize| byte(i) & 0x3f;
        match byte(0) {
            b @ 0..0x80 => (self.of(b), 1),
            b @ 0x80..0xe0 => (self.plane[((b & 0x1f) << 6 | low(1)) as usize], 2),
            b @ 0xe0..0xf0 => {
                let code = (b & 0xf) << 12 | low(1) << 6 | low(2);
                (self.plane[code as usize & 0xffff], 3)
            }
            b => (
                self.of((b & 7) << 18 | low(1) << 12 | low(2) << 6 | low(3)),
                4,
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_unicode_17s() {
        let of = |c: char| classes().of(c as u32);
        assert_eq!(of('a'), LETTER);
        assert_eq!(of('\u{1c5}'), LETTER);
        assert_eq!(of('\u{2b0}'), LETTER);
        assert_eq!(of('\u{301}'), OTHER);
        assert_eq!(of('\u{b2}'), NUMBER);
        assert_eq!(of('\u{3000}'), SPACE);
        assert_eq!(of('\u{200b}'), OTHER);
        assert_eq!(of('\u{1c}'), OTHER);
        // assigned in 17.0
        assert_eq!(of('\u{33234}'), LETTER);
        // assigned in 18.0
        assert_eq!(of('\u{3d000}'), OTHER);
        assert_eq!(of('\u{10ffff}'), OTHER);
    }

    #[test]
    fn white_space_and_ascii_agree_with_the_standard_library() {
        for c in (0..=0x10_ffff).filter_map(char::from_u32) {
            assert_eq!(classes().of(c as u32) == SPACE, c.is_whitespace(), "{c:?}");
            let mut bytes = [0; 4];
            let text = c.encode_utf8(&mut bytes).as_bytes();
            assert_eq!(classes().at(text, 0), (classes().of(c as u32), text.len()));
        }
        for c in '\0'..='\u{7f}' {
            let class = classes().of(c as u32);
            assert_eq!(class == LETTER, c.is_ascii_alphabetic());
            assert_eq!(class == NUMBER, c.is_ascii_digit());
        }
    }
}
