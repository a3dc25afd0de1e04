//! Writing systems: the script of a character, and the shares of scripts in a text.
//!
//! Ranges follow Unicode 16's blocks of letters (Scripts.txt), without historic scripts. Letters are
//! folded to lower case one character at a time, so that n-grams see one form.
//! We differ: only letters and the marks inside words count; digits, punctuation and symbols belong
//! to no script. Characters beyond the basic plane are not letters, except ideographs.

use std::sync::LazyLock;

macro_rules! scripts {
    ($($name:ident $code:literal $($from:literal - $to:literal)+;)+) => {
        /// A writing system.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        #[expect(missing_docs, reason = "names of scripts explain themselves")]
        pub enum Script { $($name,)+ }

        impl Script {
            /// All of them, in order.
            pub const ALL: &[Script] = &[$(Script::$name,)+];

            /// ISO 15924 code.
            pub fn code(self) -> &'static str {
                match self { $(Script::$name => $code,)+ }
            }
        }

        const RANGES: &[(Script, u32, u32)] = &[$($((Script::$name, $from, $to),)+)+];
    };
}

scripts! {
    Latin "Latn" 0x41-0x5a 0x61-0x7a 0xaa-0xaa 0xba-0xba 0xc0-0xd6 0xd8-0xf6 0xf8-0x24f 0x250-0x2af
        0x300-0x36f 0x1d00-0x1dbf 0x1e00-0x1eff 0x2c60-0x2c7f 0xa722-0xa7ff 0xab30-0xab64 0xfb00-0xfb06
        0xff21-0xff3a 0xff41-0xff5a;
    Greek "Grek" 0x370-0x373 0x376-0x37d 0x37f-0x37f 0x386-0x386 0x388-0x3ff 0x1f00-0x1fff;
    Cyrillic "Cyrl" 0x400-0x52f 0x1c80-0x1c8a 0x2de0-0x2dff 0xa640-0xa69f;
    Armenian "Armn" 0x531-0x556 0x561-0x587 0xfb13-0xfb17;
    Hebrew "Hebr" 0x591-0x5bd 0x5bf-0x5bf 0x5c1-0x5c2 0x5c4-0x5c5 0x5c7-0x5c7 0x5d0-0x5f2 0xfb1d-0xfb4f;
    Arabic "Arab" 0x610-0x61a 0x620-0x63f 0x641-0x65f 0x66e-0x6d3 0x6d5-0x6dc 0x6df-0x6e8 0x6ea-0x6ef
        0x6fa-0x6ff 0x750-0x77f 0x8a0-0x8ff 0xfb50-0xfdff 0xfe70-0xfefc;
    Syriac "Syrc" 0x710-0x74f;
    Thaana "Thaa" 0x780-0x7bf;
    Nko "Nkoo" 0x7ca-0x7f5;
    Devanagari "Deva" 0x900-0x963 0x971-0x97f 0xa8e0-0xa8ff;
    Bengali "Beng" 0x980-0x9e3 0x9f0-0x9f1;
    Gurmukhi "Guru" 0xa01-0xa65 0xa70-0xa75;
    Gujarati "Gujr" 0xa81-0xae3 0xaf9-0xaff;
    Odia "Orya" 0xb01-0xb63 0xb71-0xb71;
    Tamil "Taml" 0xb82-0xbd7;
    Telugu "Telu" 0xc00-0xc63;
    Kannada "Knda" 0xc80-0xce3 0xcf1-0xcf3;
    Malayalam "Mlym" 0xd00-0xd63 0xd7a-0xd7f;
    Sinhala "Sinh" 0xd81-0xddf 0xdf2-0xdf3;
    Thai "Thai" 0xe01-0xe3a 0xe40-0xe4e;
    Lao "Laoo" 0xe81-0xecd 0xedc-0xedf;
    Tibetan "Tibt" 0xf00-0xf00 0xf18-0xf19 0xf40-0xfbc;
    Burmese "Mymr" 0x1000-0x103f 0x1050-0x108f 0x109a-0x109d 0xa9e0-0xa9ef 0xa9fa-0xa9fe 0xaa60-0xaa7f;
    Georgian "Geor" 0x10a0-0x10fa 0x10fc-0x10ff 0x1c90-0x1cbf 0x2d00-0x2d2d;
    Hangul "Hang" 0x1100-0x11ff 0x3131-0x318e 0xa960-0xa97c 0xac00-0xd7fb;
    Ethiopic "Ethi" 0x1200-0x135f 0x1380-0x138f 0x2d80-0x2dde 0xab01-0xab2e;
    Cherokee "Cher" 0x13a0-0x13fd 0xab70-0xabbf;
    Canadian "Cans" 0x1401-0x166c 0x166f-0x167f 0x18b0-0x18f5;
    Khmer "Khmr" 0x1780-0x17d3 0x17dc-0x17dd;
    Mongolian "Mong" 0x1820-0x18aa;
    OlChiki "Olck" 0x1c5a-0x1c7d;
    Tifinagh "Tfng" 0x2d30-0x2d67 0x2d6f-0x2d7f;
    Kana "Kana" 0x3041-0x3096 0x309d-0x309f 0x30a1-0x30fa 0x30fc-0x30ff 0x31f0-0x31ff 0xff66-0xff9d;
    Han "Hani" 0x3005-0x3007 0x3400-0x4dbf 0x4e00-0x9fff 0xf900-0xfad9;
    Bopomofo "Bopo" 0x3105-0x312f 0x31a0-0x31bf;
    Yi "Yiii" 0xa000-0xa48c;
    Vai "Vaii" 0xa500-0xa60b 0xa610-0xa62b;
}

/// Scripts there are.
pub(super) const COUNT: usize = Script::ALL.len();

/// A letter for the model: its script's number plus one above 16 bits of folded character; 0 for other characters.
pub(super) type Letter = u32;

static LETTERS: LazyLock<Box<[Letter]>> = LazyLock::new(|| {
    let mut table = vec![0; 1 << 16].into_boxed_slice();
    for &(script, from, to) in RANGES {
        for point in from..=to {
            let Some(c) = char::from_u32(point) else {
                continue;
            };
            let mut lower = c.to_lowercase();
            let folded = match (lower.next(), lower.next()) {
                (Some(one), None) if (one as u32) < 1 << 16 => one as u32,
                _ => point,
            };
            table[point as usize] = (script as u32 + 1) << 16 | folded;
        }
    }
    table
});

/// The table of the basic plane.
pub(super) fn letters() -> &'static [Letter] {
    &LETTERS
}

/// A character beyond the table: an ideograph or nothing.
pub(super) fn beyond(c: char) -> Letter {
    let point = c as u32;
    if (0x2_0000..0x3_2000).contains(&point) {
        (Script::Han as u32 + 1) << 16 | (point & 0xffff)
    } else {
        0
    }
}

/// Letters of any script.
pub(super) fn count_letters(text: &str) -> u64 {
    let table = letters();
    let is_letter = |c: &char| {
        table
            .get(*c as usize)
            .copied()
            .unwrap_or_else(|| beyond(*c))
            != 0
    };
    text.chars().filter(is_letter).count() as u64
}

/// Shares of scripts among the letters of a text, largest first; empty without letters.
pub fn script_shares(text: &str) -> Vec<(Script, f64)> {
    let table = letters();
    let mut counts = [0u64; COUNT];
    let mut all = 0u64;
    for c in text.chars() {
        let letter = table.get(c as usize).copied().unwrap_or_else(|| beyond(c));
        if letter != 0 {
            counts[(letter >> 16) as usize - 1] += 1;
            all += 1;
        }
    }
    let share = |&s: &Script| (s, counts[s as usize] as f64 / all as f64);
    let mut shares: Vec<_> = Script::ALL
        .iter()
        .map(share)
        .filter(|s| s.1 > 0.0)
        .collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_and_symbols_have_no_script() {
        let shares = script_shares("abc \u{434}\u{430}! 123 \u{1f600}");
        assert_eq!(shares, [(Script::Latin, 0.6), (Script::Cyrillic, 0.4)]);
        assert!(script_shares("1 + 2 = 3").is_empty());
        assert_eq!(script_shares("\u{4f60}\u{2000b}"), [(Script::Han, 1.0)]);
    }

    #[test]
    fn no_character_belongs_to_two_scripts() {
        for (i, a) in RANGES.iter().enumerate() {
            assert!(a.1 <= a.2);
            for b in &RANGES[i + 1..] {
                assert!(a.2 < b.1 || b.2 < a.1, "{a:?} {b:?}");
            }
        }
    }
}
