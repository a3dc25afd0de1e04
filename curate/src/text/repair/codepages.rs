//! Single-byte encodings that cause mojibake, in the order in which ftfy 6 tries them.
//!
//! Tables are those of the Encoding Standard (`encoding_rs`), bytes without a character map to the control
//! character of the same number ("sloppy"), as in ftfy; code page 437 is IBM's. In the Windows encodings byte 1A
//! means U+FFFD: a lost byte.

use std::sync::LazyLock;

use encoding_rs::{
    Encoding, ISO_8859_2, MACINTOSH, WINDOWS_1250, WINDOWS_1251, WINDOWS_1252, WINDOWS_1253,
    WINDOWS_1254, WINDOWS_1257,
};
use rustc_hash::FxHashMap;

/// Upper half of code page 437.
const CP437: &str = "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u{a0}";

/// One encoding.
pub(super) struct CodePage {
    /// Byte of each character beyond ASCII.
    bytes: FxHashMap<char, u8>,
    /// True for the Windows encodings, in which U+FFFD is byte 1A.
    pub(super) is_sloppy: bool,
    /// True for macroman, where a space is never a lost A0.
    pub(super) is_mac: bool,
}

/// The encodings, in order; the first is Latin-1.
pub(super) static PAGES: LazyLock<Vec<CodePage>> = LazyLock::new(|| {
    let standard = |encoding: &'static Encoding| -> Vec<char> {
        let decode = |byte: u8| {
            let (text, _) = encoding.decode_without_bom_handling(std::slice::from_ref(&byte));
            let c = text.chars().next().unwrap_or(char::REPLACEMENT_CHARACTER);
            if c == char::REPLACEMENT_CHARACTER {
                char::from(byte)
            } else {
                c
            }
        };
        (0x80..=0xff).map(decode).collect()
    };
    let page = |upper: Vec<char>, is_sloppy: bool, is_mac: bool| {
        let pairs = upper.into_iter().zip(0x80..=0xff);
        let mut bytes: FxHashMap<char, u8> = pairs.collect();
        if is_sloppy {
            bytes.insert(char::REPLACEMENT_CHARACTER, 0x1a);
        }
        CodePage {
            bytes,
            is_sloppy,
            is_mac,
        }
    };
    let mut pages = vec![page(
        (0x80..=0xffu8).map(char::from).collect(),
        false,
        false,
    )];
    for encoding in [
        WINDOWS_1252,
        WINDOWS_1251,
        WINDOWS_1250,
        WINDOWS_1253,
        WINDOWS_1254,
        WINDOWS_1257,
    ] {
        pages.push(page(standard(encoding), true, false));
    }
    pages.push(page(standard(ISO_8859_2), false, false));
    pages.push(page(standard(MACINTOSH), false, true));
    pages.push(page(CP437.chars().collect(), false, false));
    pages
});

/// Meaning of bytes 80 to 9F in Windows-1252.
pub(super) fn windows_1252(byte: u8) -> char {
    let (text, _) = WINDOWS_1252.decode_without_bom_handling(std::slice::from_ref(&byte));
    text.chars().next().unwrap_or(char::from(byte))
}

impl CodePage {
    /// Fills `bytes` with the text's encoding; false if a character has none.
    pub(super) fn encode(&self, text: &str, bytes: &mut Vec<u8>) -> bool {
        bytes.clear();
        for c in text.chars() {
            let byte = match u8::try_from(c) {
                // 1A is taken by the lost byte
                Ok(0x1a) if self.is_sloppy => return false,
                Ok(byte) if byte < 0x80 => byte,
                _ => match self.bytes.get(&c) {
                    Some(&byte) => byte,
                    None => return false,
                },
            };
            bytes.push(byte);
        }
        true
    }
}
