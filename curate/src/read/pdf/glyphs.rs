//! Characters of glyph names and of the encodings of simple fonts.
//!
//! Facts: PDF 32000-1 annex D (encodings); the Adobe Glyph List for names. Accented letters are composed from the
//! letter and the name of the accent, so the table holds the other names only.

use unicode_normalization::UnicodeNormalization;

/// Names that are no letter with an accent.
const NAMES: &str = "space \u{20} exclam ! quotedbl \" numbersign # dollar $ percent % ampersand & quotesingle ' parenleft ( \
parenright ) asterisk * plus + comma , hyphen - minus \u{2212} period . slash / zero 0 one 1 two 2 three 3 four 4 five 5 \
six 6 seven 7 eight 8 nine 9 colon : semicolon ; less < equal = greater > question ? at @ bracketleft [ backslash \\ \
bracketright ] asciicircum ^ underscore _ grave ` braceleft { bar | braceright } asciitilde ~ exclamdown \u{a1} cent \u{a2} \
sterling \u{a3} currency \u{a4} yen \u{a5} brokenbar \u{a6} section \u{a7} dieresis \u{a8} copyright \u{a9} \
ordfeminine \u{aa} guillemotleft \u{ab} logicalnot \u{ac} softhyphen \u{ad} sfthyphen \u{ad} registered \u{ae} macron \u{af} \
degree \u{b0} plusminus \u{b1} twosuperior \u{b2} threesuperior \u{b3} acute \u{b4} mu \u{b5} paragraph \u{b6} \
periodcentered \u{b7} middot \u{b7} cedilla \u{b8} onesuperior \u{b9} ordmasculine \u{ba} guillemotright \u{bb} \
onequarter \u{bc} onehalf \u{bd} threequarters \u{be} questiondown \u{bf} AE \u{c6} Eth \u{d0} multiply \u{d7} \
Oslash \u{d8} Thorn \u{de} germandbls \u{df} ae \u{e6} eth \u{f0} divide \u{f7} oslash \u{f8} thorn \u{fe} \
Dcroat \u{110} dcroat \u{111} Hbar \u{126} hbar \u{127} dotlessi \u{131} IJ \u{132} ij \u{133} kgreenlandic \u{138} \
Lslash \u{141} lslash \u{142} Eng \u{14a} eng \u{14b} OE \u{152} oe \u{153} Tbar \u{166} tbar \u{167} longs \u{17f} \
florin \u{192} dotlessj \u{237} circumflex \u{2c6} caron \u{2c7} breve \u{2d8} dotaccent \u{2d9} ring \u{2da} ogonek \u{2db} \
tilde \u{2dc} hungarumlaut \u{2dd} Alpha \u{391} Beta \u{392} Gamma \u{393} Delta \u{394} Epsilon \u{395} Zeta \u{396} \
Eta \u{397} Theta \u{398} Iota \u{399} Kappa \u{39a} Lambda \u{39b} Mu \u{39c} Nu \u{39d} Xi \u{39e} Omicron \u{39f} \
Pi \u{3a0} Rho \u{3a1} Sigma \u{3a3} Tau \u{3a4} Upsilon \u{3a5} Phi \u{3a6} Chi \u{3a7} Psi \u{3a8} Omega \u{3a9} \
alpha \u{3b1} beta \u{3b2} gamma \u{3b3} delta \u{3b4} epsilon \u{3b5} epsilon1 \u{3f5} zeta \u{3b6} eta \u{3b7} theta \u{3b8} \
iota \u{3b9} kappa \u{3ba} lambda \u{3bb} nu \u{3bd} xi \u{3be} omicron \u{3bf} pi \u{3c0} rho \u{3c1} sigma1 \u{3c2} \
sigma \u{3c3} tau \u{3c4} upsilon \u{3c5} phi \u{3c6} chi \u{3c7} psi \u{3c8} omega \u{3c9} theta1 \u{3d1} phi1 \u{3d5} \
omega1 \u{3d6} endash \u{2013} emdash \u{2014} quoteleft \u{2018} quoteright \u{2019} quotesinglbase \u{201a} \
quotedblleft \u{201c} quotedblright \u{201d} quotedblbase \u{201e} dagger \u{2020} daggerdbl \u{2021} bullet \u{2022} \
ellipsis \u{2026} perthousand \u{2030} minute \u{2032} second \u{2033} guilsinglleft \u{2039} guilsinglright \u{203a} \
fraction \u{2044} Euro \u{20ac} trademark \u{2122} aleph \u{2135} arrowleft \u{2190} arrowup \u{2191} arrowright \u{2192} \
arrowdown \u{2193} arrowboth \u{2194} arrowdblleft \u{21d0} arrowdblright \u{21d2} arrowdblboth \u{21d4} universal \u{2200} \
partialdiff \u{2202} existential \u{2203} emptyset \u{2205} gradient \u{2207} element \u{2208} notelement \u{2209} \
suchthat \u{220b} product \u{220f} summation \u{2211} asteriskmath \u{2217} radical \u{221a} proportional \u{221d} \
infinity \u{221e} angle \u{2220} logicaland \u{2227} logicalor \u{2228} intersection \u{2229} union \u{222a} integral \u{222b} \
therefore \u{2234} similar \u{223c} congruent \u{2245} approxequal \u{2248} notequal \u{2260} equivalence \u{2261} \
lessequal \u{2264} greaterequal \u{2265} propersubset \u{2282} propersuperset \u{2283} reflexsubset \u{2286} \
reflexsuperset \u{2287} circleplus \u{2295} circlemultiply \u{2297} perpendicular \u{22a5} dotmath \u{22c5} lozenge \u{25ca} \
angbracketleft \u{27e8} angbracketright \u{27e9} ff ff fi fi fl fl ffi ffi ffl ffl nbspace \u{a0} negationslash \u{338} \
arrownortheast \u{2197} minusplus \u{2213} mapsto \u{21a6} visiblespace \u{2423} lscript \u{2113} weierstrass \u{2118} \
square \u{25a1} check \u{2713} prime \u{2032}";

/// Accents by their names, as combining characters.
const ACCENTS: [(&str, char); 14] = [
    ("grave", '\u{300}'),
    ("acute", '\u{301}'),
    ("circumflex", '\u{302}'),
    ("tilde", '\u{303}'),
    ("macron", '\u{304}'),
    ("breve", '\u{306}'),
    ("dotaccent", '\u{307}'),
    ("dieresis", '\u{308}'),
    ("ring", '\u{30a}'),
    ("hungarumlaut", '\u{30b}'),
    ("caron", '\u{30c}'),
    ("commaaccent", '\u{327}'),
    ("cedilla", '\u{327}'),
    ("ogonek", '\u{328}'),
];

/// Characters of the codes from 0xA1 in StandardEncoding; a space where there is none.
const STANDARD: &str = "\u{a1}\u{a2}\u{a3}\u{2044}\u{a5}\u{192}\u{a7}\u{a4}'\u{201c}\u{ab}\u{2039}\u{203a}\u{fb01}\u{fb02} \u{2013}\u{2020}\u{2021}\u{b7} \u{b6}\u{2022}\u{201a}\u{201e}\u{201d}\u{bb}\u{2026}\u{2030} \u{bf} `\u{b4}\u{2c6}\u{2dc}\u{af}\u{2d8}\u{2d9}\u{a8} \u{2da}\u{b8} \u{2dd}\u{2db}\u{2c7}\u{2014}                \u{c6} \u{aa}    \u{141}\u{d8}\u{152}\u{ba}     \u{e6}   \u{131}  \u{142}\u{f8}\u{153}\u{df}";

/// Letters of the Symbol font, from A and from a.
const SYMBOL: [&str; 2] = [
    "\u{391}\u{392}\u{3a7}\u{394}\u{395}\u{3a6}\u{393}\u{397}\u{399}\u{3d1}\u{39a}\u{39b}\u{39c}\u{39d}\u{39f}\u{3a0}\u{398}\u{3a1}\u{3a3}\u{3a4}\u{3a5}\u{3c2}\u{3a9}\u{39e}\u{3a8}\u{396}",
    "\u{3b1}\u{3b2}\u{3c7}\u{3b4}\u{3b5}\u{3c6}\u{3b3}\u{3b7}\u{3b9}\u{3d5}\u{3ba}\u{3bb}\u{3bc}\u{3bd}\u{3bf}\u{3c0}\u{3b8}\u{3c1}\u{3c3}\u{3c4}\u{3c5}\u{3d6}\u{3c9}\u{3be}\u{3c8}\u{3b6}",
];

/// Characters of TeX's symbol fonts (OMS), from code 0.
const TEX_SYMBOLS: &str = "\u{2212}\u{b7}\u{d7}\u{2217}\u{f7}\u{22c4}\u{b1}\u{2213}\u{2295}\u{2296}\u{2297}\u{2298}\u{2299}\
\u{25cb}\u{2218}\u{2022}\u{224d}\u{2261}\u{2286}\u{2287}\u{2264}\u{2265}\u{2aaf}\u{2ab0}\u{223c}\
\u{2248}\u{2282}\u{2283}\u{226a}\u{226b}\u{227a}\u{227b}\u{2190}\u{2192}\u{2191}\u{2193}\u{2194}\
\u{2197}\u{2198}\u{2243}\u{21d0}\u{21d2}\u{21d1}\u{21d3}\u{21d4}\u{2196}\u{2199}\u{221d}\u{2032}\
\u{221e}\u{2208}\u{220b}\u{25b3}\u{25bd}\u{338}\u{21a6}\u{2200}\u{2203}\u{ac}\u{2205}\u{211c}\
\u{2111}\u{22a4}\u{22a5}\u{2135}ABCDEFGHIJKLMNOPQRSTUVWXYZ\u{222a}\u{2229}\u{228e}\u{2227}\
\u{2228}\u{22a2}\u{22a3}\u{230a}\u{230b}\u{2308}\u{2309}{}\u{27e8}\u{27e9}|\u{2225}\u{2195}\
\u{21d5}\\\u{2240}\u{221a}\u{2a3f}\u{2207}\u{222b}\u{2294}\u{2293}\u{2291}\u{2292}\u{a7}\u{2020}\
\u{2021}\u{b6}\u{2663}\u{2662}\u{2661}\u{2660}";

/// Characters of TeX's italic fonts for formulas (OML), from code 0; a space where there is none.
const TEX_MATH: &str = "\u{393}\u{394}\u{398}\u{39b}\u{39e}\u{3a0}\u{3a3}\u{3a5}\u{3a6}\u{3a8}\u{3a9}\u{3b1}\u{3b2}\
\u{3b3}\u{3b4}\u{3f5}\u{3b6}\u{3b7}\u{3b8}\u{3b9}\u{3ba}\u{3bb}\u{3bc}\u{3bd}\u{3be}\u{3c0}\
\u{3c1}\u{3c3}\u{3c4}\u{3c5}\u{3d5}\u{3c7}\u{3c8}\u{3c9}\u{3b5}\u{3d1}\u{3d6}\u{3f1}\u{3c2}\
\u{3c6}\u{21bc}\u{21bd}\u{21c0}\u{21c1}  \u{25b7}\u{25c1}0123456789.,</>\u{22c6}\u{2202}ABCDEFGH\
IJKLMNOPQRSTUVWXYZ\u{266d}\u{266e}\u{266f}\u{2323}\u{2322}\u{2113}abcdefghijklmnopqrstuvwxyz\
\u{131}\u{237}\u{2118}  ";

/// Glyph names are this long at most.
const MAX_NAME: usize = 64;

/// Encoding of a simple font.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    Standard,
    WinAnsi,
    MacRoman,
    Symbol,
    /// TeX's symbols, and its letters for formulas.
    TexSymbols,
    TexMath,
    /// Pieces of large signs, which are no characters.
    TexPieces,
}

/// Character of a code; None if the encoding has none.
pub(super) fn of_code(base: Base, code: u8) -> Option<char> {
    let found = match base {
        Base::TexSymbols => TEX_SYMBOLS.chars().nth(code.into()),
        Base::TexMath => TEX_MATH.chars().nth(code.into()).filter(|c| *c != ' '),
        Base::TexPieces => None,
        Base::WinAnsi => one(encoding_rs::WINDOWS_1252, code),
        Base::MacRoman => one(encoding_rs::MACINTOSH, code),
        Base::Standard => match code {
            b'\'' => Some('\u{2019}'),
            b'`' => Some('\u{2018}'),
            0x20..0x7f => Some(char::from(code)),
            0xa1.. => {
                let c = STANDARD.chars().nth(usize::from(code) - 0xa1);
                c.filter(|c| *c != ' ')
            }
            _ => None,
        },
        Base::Symbol => match code {
            b'A'..=b'Z' => SYMBOL[0].chars().nth((code - b'A').into()),
            b'a'..=b'z' => SYMBOL[1].chars().nth((code - b'a').into()),
            0xb7 => Some('\u{2022}'),
            0xb1 => Some('\u{b1}'),
            0xb4 => Some('\u{d7}'),
            0xa3 => Some('\u{2264}'),
            0xb3 => Some('\u{2265}'),
            0xae => Some('\u{2192}'),
            0x20..=0x3f => Some(char::from(code)),
            _ => None,
        },
    };
    found.filter(|c| !c.is_control() && *c != '\u{fffd}')
}

fn one(encoding: &'static encoding_rs::Encoding, code: u8) -> Option<char> {
    let bytes = [code];
    let (text, _) = encoding.decode_without_bom_handling(&bytes);
    text.chars().next()
}

/// Characters of a glyph name; None if it does not tell.
pub(super) fn of_name(name: &str) -> Option<String> {
    if name.len() > MAX_NAME {
        return None;
    }
    // a variant of a glyph: a.sc
    let plain = match name.split_once('.') {
        Some((plain, _)) => plain,
        None => name,
    };
    if plain.is_empty() || plain == "notdef" {
        return None;
    }
    if plain.contains('_') {
        // a ligature: f_f_i
        return plain.split('_').map(of_name).collect();
    }
    let mut chars = plain.chars();
    if let (Some(only), None) = (chars.next(), chars.next()) {
        return Some(only.to_string());
    }
    let hex = |digits: &str| {
        let is_hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
        let value = is_hex.then(|| u32::from_str_radix(digits, 16).ok());
        value.flatten().and_then(char::from_u32)
    };
    if let Some(digits) = plain.strip_prefix("uni")
        && digits.len() >= 4
        && digits.len().is_multiple_of(4)
        && digits.is_ascii()
    {
        let parts = (0..digits.len()).step_by(4).map(|i| hex(&digits[i..i + 4]));
        return parts.collect();
    }
    if let Some(digits) = plain
        .strip_prefix('u')
        .filter(|d| (4..=6).contains(&d.len()))
        && let Some(c) = hex(digits)
    {
        return Some(c.to_string());
    }
    let mut names = NAMES.split(' ');
    // "space" is followed by two blanks
    if plain == "space" {
        return Some(" ".to_string());
    }
    while let Some(known) = names.next() {
        if known == plain && !known.is_empty() {
            return names.next().map(str::to_string);
        }
    }
    accented(plain)
}

fn accented(name: &str) -> Option<String> {
    let mut chars = name.chars();
    let letter = chars.next().filter(char::is_ascii_alphabetic)?;
    let rest = chars.as_str();
    let accent = ACCENTS.iter().find(|(accent, _)| *accent == rest)?.1;
    Some([letter, accent].iter().collect::<String>().nfc().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_glyph_list() {
        for (name, want) in [
            ("space", " "),
            ("exclam", "!"),
            ("A", "A"),
            ("eacute", "\u{e9}"),
            ("Scaron", "\u{160}"),
            ("gbreve", "\u{11f}"),
            ("germandbls", "\u{df}"),
            ("ffi", "ffi"),
            ("f_f_l", "ffl"),
            ("a.sc", "a"),
            ("uni00E4", "\u{e4}"),
            ("uni00410042", "AB"),
            ("u1F600", "\u{1f600}"),
            ("quotedblright", "\u{201d}"),
            ("grave", "`"),
            ("prime", "\u{2032}"),
        ] {
            assert_eq!(of_name(name).as_deref(), Some(want), "{name}");
        }
        for name in ["g12", "cid_1", ".notdef", "uniXYZW", "union5", ""] {
            let found = of_name(name);
            assert!(found.is_none() || name == "cid_1", "{name}: {found:?}");
        }
    }

    #[test]
    fn encodings_are_those_of_annex_d() {
        for (base, code, want) in [
            (Base::Standard, 0x27, Some('\u{2019}')),
            (Base::Standard, 0xae, Some('\u{fb01}')),
            (Base::Standard, 0xd0, Some('\u{2014}')),
            (Base::Standard, 0xe1, Some('\u{c6}')),
            (Base::Standard, 0xe8, Some('\u{141}')),
            (Base::Standard, 0xf1, Some('\u{e6}')),
            (Base::Standard, 0xfb, Some('\u{df}')),
            (Base::Standard, 0xff, None),
            (Base::Standard, 0xb0, None),
            (Base::WinAnsi, 0x93, Some('\u{201c}')),
            (Base::WinAnsi, 0xe4, Some('\u{e4}')),
            (Base::MacRoman, 0x8a, Some('\u{e4}')),
            (Base::Symbol, b'a', Some('\u{3b1}')),
            (Base::WinAnsi, 7, None),
            (Base::TexSymbols, 0x32, Some('\u{2208}')),
            (Base::TexSymbols, 0x7f, Some('\u{2660}')),
            (Base::TexMath, 0x22, Some('\u{3b5}')),
            (Base::TexMath, b'z', Some('z')),
            (Base::TexMath, 0x40, Some('\u{2202}')),
        ] {
            assert_eq!(of_code(base, code), want, "{base:?} {code:x}");
        }
    }
}
