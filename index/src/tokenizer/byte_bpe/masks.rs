//! Class bit streams: 64 bytes of text to one bit per byte and class (letters, numbers, white space, others).
//!
//! ASCII is classed by comparisons of 64 (AVX-512), 32 (AVX2) or one byte at a time, chosen at run time and bit-equal.
//! Characters beyond ASCII are decoded and looked up; every byte of a character carries its class, so that "the class
//! of the character before" is a shift by one. Idea of class bit streams: Cameron et al. 2014 (icGrep, PACT).

#![cfg_attr(
    target_arch = "x86_64",
    expect(
        unsafe_code,
        reason = "loads of 32 and 64 bytes, and calls of functions for checked features"
    )
)]

use super::unicode::{self, Classes};

/// One word of each stream; bit i is byte i of the block. Bits past the text are 0 in all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Masks {
    pub(super) letter: u64,
    pub(super) number: u64,
    pub(super) space: u64,
    pub(super) other: u64,
    /// Second to last bytes of characters.
    pub(super) inside: u64,
    /// U+0020.
    pub(super) blank: u64,
    /// CR and LF.
    pub(super) newline: u64,
    pub(super) apostrophe: u64,
}

/// Classes that comparisons of single bytes can determine.
struct Ascii {
    letter: u64,
    number: u64,
    space: u64,
    blank: u64,
    newline: u64,
    apostrophe: u64,
    /// Bytes from 0x80 on.
    high: u64,
    /// Bytes 0x80 to 0xbf.
    inside: u64,
}

/// The instructions that this machine offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Portable,
}

impl Level {
    /// The fastest level that this CPU supports.
    pub(super) fn best() -> Level {
        Level::available()[0]
    }

    /// All levels that this CPU supports, the fastest first.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(clippy::vec_init_then_push, reason = "others may stand in front")
    )]
    pub(super) fn available() -> Vec<Level> {
        let mut levels = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            let scalar = is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("popcnt")
                && is_x86_feature_detected!("lzcnt");
            let wide = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
            if scalar && wide {
                levels.push(Level::Avx512);
            }
            if scalar && is_x86_feature_detected!("avx2") {
                levels.push(Level::Avx2);
            }
        }
        levels.push(Level::Portable);
        levels
    }
}

/// Writes one `Masks` for every 64 bytes of `text`, the last padded, and an empty one after them.
pub(super) fn fill(level: Level, text: &[u8], out: &mut Vec<Masks>) {
    out.clear();
    out.reserve(text.len() / 64 + 2);
    match level {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `Level::available` is the only source of the variant and has detected its AVX-512 features.
        Level::Avx512 => unsafe { x86::fill_avx512(text, out) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `Level::available` is the only source of the variant and has detected AVX2 and the bit instructions.
        Level::Avx2 => unsafe { x86::fill_avx2(text, out) },
        Level::Portable => fill_with(text, out, ascii_portable),
    }
    out.push(Masks::default());
}

/// The loop of all levels; `ascii` is inlined into each.
#[inline(always)]
fn fill_with(text: &[u8], out: &mut Vec<Masks>, ascii: impl Fn(&[u8; 64]) -> Ascii) {
    let classes = unicode::classes();
    let mut spilled = Masks::default();
    let (blocks, rest) = text.as_chunks::<64>();
    for (i, block) in blocks.iter().enumerate() {
        out.push(complete(
            ascii(block),
            !0,
            classes,
            text,
            i * 64,
            &mut spilled,
        ));
    }
    if !rest.is_empty() {
        let mut block = [0; 64];
        block[..rest.len()].copy_from_slice(rest);
        let valid = !0 >> (64 - rest.len());
        let base = blocks.len() * 64;
        out.push(complete(
            ascii(&block),
            valid,
            classes,
            text,
            base,
            &mut spilled,
        ));
    }
}

/// Adds the characters beyond ASCII. `spilled` holds the bits that the last character of a block has in the next one.
#[inline(always)]
fn complete(
    a: Ascii,
    valid: u64,
    classes: &Classes,
    text: &[u8],
    base: usize,
    spilled: &mut Masks,
) -> Masks {
    let (mut letter, mut number, mut space) = (a.letter, a.number, a.space);
    if a.high != 0 {
        letter |= spilled.letter;
        number |= spilled.number;
        space |= spilled.space;
        *spilled = Masks::default();
        let mut leads = a.high & !a.inside;
        while leads != 0 {
            let at = leads.trailing_zeros();
            leads &= leads - 1;
            let (class, width) = classes.at(text, base + at as usize);
            let bytes = (1u64 << width) - 1;
            let bits = bytes << at;
            let if_class = |is: bool| u64::from(is).wrapping_neg();
            let (is_letter, is_number, is_space) = (
                if_class(class == unicode::LETTER),
                if_class(class == unicode::NUMBER),
                if_class(class == unicode::SPACE),
            );
            letter |= bits & is_letter;
            number |= bits & is_number;
            space |= bits & is_space;
            if at as usize + width > 64 {
                let over = bytes >> (64 - at);
                spilled.letter = over & is_letter;
                spilled.number = over & is_number;
                spilled.space = over & is_space;
            }
        }
    }
    Masks {
        letter,
        number,
        space,
        other: valid & !(letter | number | space),
        inside: a.inside,
        blank: a.blank,
        newline: a.newline,
        apostrophe: a.apostrophe,
    }
}

fn ascii_portable(block: &[u8; 64]) -> Ascii {
    let bits = |is: fn(u8) -> bool| {
        block
            .iter()
            .rev()
            .fold(0u64, |bits, b| bits << 1 | u64::from(is(*b)))
    };
    Ascii {
        letter: bits(|b| (b | 0x20).wrapping_sub(b'a') < 26),
        number: bits(|b| b.wrapping_sub(b'0') < 10),
        space: bits(|b| b == b' ' || b.wrapping_sub(9) < 5),
        blank: bits(|b| b == b' '),
        newline: bits(|b| b == b'\n' || b == b'\r'),
        apostrophe: bits(|b| b == b'\''),
        high: bits(|b| b >= 0x80),
        inside: bits(|b| b & 0xc0 == 0x80),
    }
}

/// Prefetches an entry; does nothing on machines without a prefetch instruction.
#[inline(always)]
pub(super) fn prefetch<T>(table: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(entry) = table.get(at) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the pointer is to a live entry, and a prefetch reads nothing that the program could see.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(entry).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (table, at);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    //! The two SIMD levels.
    use crate::tokenizer::byte_bpe::masks::{Ascii, Masks, fill_with};
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx512f,avx512bw,bmi1,bmi2,popcnt,lzcnt")]
    pub(super) fn fill_avx512(text: &[u8], out: &mut Vec<Masks>) {
        fill_with(text, out, |block| {
            // SAFETY: the pointer is to 64 bytes and the load needs no alignment.
            let b = unsafe { _mm512_loadu_si512(block.as_ptr().cast()) };
            let byte = |c: u8| _mm512_set1_epi8(c.cast_signed());
            let below = |v, c: u8| _mm512_cmplt_epu8_mask(v, byte(c));
            let equal = |c: u8| _mm512_cmpeq_epi8_mask(b, byte(c));
            let blank = equal(b' ');
            let newline = equal(b'\n') | equal(b'\r');
            let high = _mm512_movepi8_mask(b);
            Ascii {
                letter: below(
                    _mm512_sub_epi8(_mm512_or_si512(b, byte(0x20)), byte(b'a')),
                    26,
                ),
                number: below(_mm512_sub_epi8(b, byte(b'0')), 10),
                space: blank | below(_mm512_sub_epi8(b, byte(9)), 5),
                blank,
                newline,
                apostrophe: equal(b'\''),
                high,
                inside: high & below(b, 0xc0),
            }
        });
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
    pub(super) fn fill_avx2(text: &[u8], out: &mut Vec<Masks>) {
        fill_with(text, out, |block| {
            let pointer = block.as_ptr();
            // SAFETY: the two loads cover the 64 bytes behind the pointer and need no alignment.
            let (x, y) = unsafe {
                let low = _mm256_loadu_si256(pointer.cast());
                (low, _mm256_loadu_si256(pointer.add(32).cast()))
            };
            let byte = |c: u8| _mm256_set1_epi8(c.cast_signed());
            let bits = |v| u64::from(_mm256_movemask_epi8(v).cast_unsigned());
            // unsigned v < c: the minimum of v and c - 1 is v
            let below = |v, c: u8| bits(_mm256_cmpeq_epi8(_mm256_min_epu8(v, byte(c - 1)), v));
            let both = |low: u64, high: u64| low | high << 32;
            let equal = |c: u8| {
                both(
                    bits(_mm256_cmpeq_epi8(x, byte(c))),
                    bits(_mm256_cmpeq_epi8(y, byte(c))),
                )
            };
            let from = |v, c: u8| _mm256_sub_epi8(v, byte(c));
            let lower = |v| from(_mm256_or_si256(v, byte(0x20)), b'a');
            let blank = equal(b' ');
            let high = both(bits(x), bits(y));
            Ascii {
                letter: both(below(lower(x), 26), below(lower(y), 26)),
                number: both(below(from(x, b'0'), 10), below(from(y, b'0'), 10)),
                space: blank | both(below(from(x, 9), 5), below(from(y, 9), 5)),
                blank,
                newline: equal(b'\n') | equal(b'\r'),
                apostrophe: equal(b'\''),
                high,
                inside: high & both(below(x, 0xc0), below(y, 0xc0)),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_level_gives_the_class_of_every_byte(text in "(\\PC|[ \t\r\n'\u{85}\u{a0}\u{3000}a-z0-9]|\\p{Any}){0,300}") {
            let mut want = Vec::new();
            for c in text.chars() {
                let class = unicode::classes().of(c as u32);
                want.extend(std::iter::repeat_n((c, class), c.len_utf8()));
            }
            for level in Level::available() {
                let mut masks = Vec::new();
                fill(level, text.as_bytes(), &mut masks);
                prop_assert_eq!(masks.len(), text.len().div_ceil(64) + 1);
                for i in 0..masks.len() * 64 {
                    let m = masks[i / 64];
                    let bit = |v: u64| v >> (i % 64) & 1 == 1;
                    let got = [m.letter, m.number, m.space, m.other, m.inside, m.blank, m.newline, m.apostrophe].map(bit);
                    let want = want.get(i).map_or([false; 8], |&(c, class)| [
                        class == unicode::LETTER,
                        class == unicode::NUMBER,
                        class == unicode::SPACE,
                        class == unicode::OTHER,
                        !text.is_char_boundary(i),
                        c == ' ',
                        c == '\n' || c == '\r',
                        c == '\'',
                    ]);
                    prop_assert_eq!(got, want, "{:?} byte {}", level, i);
                }
            }
        }
    }
}
