//! Mojibake detection.
//!
//! The heuristic of ftfy 6.3 (Speer 2019, `ftfy.badness`): characters that occur in wrongly decoded UTF-8 are put
//! into classes, and certain neighbours hardly ever occur in intended text. The classes and the neighbourhoods
//! below are ftfy's, written as code points and pairs of classes.
//!
//! Faster than the expression alone: nearly all text lacks the characters that any neighbourhood
//! needs, so a table is checked first.

use std::sync::LazyLock;

use regex::Regex;

/// Classes by letter, as hexadecimal ranges.
const CLASSES: &[(char, &str)] = &[
    // common in any text
    ('m', "a0 ad b4 b7 2013-2015 2019 2026"),
    // control characters
    ('1', "80-9f"),
    // these do not occur in intended text
    (
        'x',
        "a4 a6 a8 aa ac af b8 ba 192 2c6-2c7 2d8 2db-2dc 2020-2021 2030 2310 25ca fffd",
    ),
    // law
    ('w', "a7 b6"),
    // currency
    ('c', "a2-a3 a5 20a7 20ac"),
    // opening punctuation
    (
        's',
        "a1 a9 ab bf 384-385 2018 201a 201c 201e 2022 2039 f8ff",
    ),
    // closing punctuation
    ('e', "ae bb 2dd 201d 203a 2122"),
    // numeric
    (
        'n',
        "b1-b3 b5 b9 bc-be d7 f7 2044 2116 2202 2206 220f 2211 221a 221e 2229 222b 2248 \
        2260-2261 2264-2265",
    ),
    // letters that also make faces
    ('k', "b0 d2-d6 d9-dc f2-f6 f8-fc 14c 150 16a 172"),
    // upper-case accented
    (
        'U',
        "c0-d1 d8 dc-dd 100 102 104 106 10c 10e 110 112 116 118 11a 11e 122 12a 130 136 139 13b \
        13d 141 143 145 147 152 158 15a 15e 160 162 164 16e 170 178-179 17b 17d 490",
    ),
    // lower-case accented
    (
        'l',
        "df-f1 fc 101 103 105 107 10d 10f 111 113 117 119 11b 11f 123 12b 12f 137 13a 13c 13e \
        142 153 155 15b 15f 161 165 17a 17c 17e 491 fb01-fb02",
    ),
    // upper-case Greek and Cyrillic
    ('G', "de 386 388-38a 38c 38e-38f 391-3ab 401-42f"),
    // lower-case Greek and Cyrillic
    ('g', "3ac-3c9 430-45f"),
    // box drawing
    (
        'b',
        "2502 250c 2510 2518 251c 2524 252c 253c 2550-256c 2580 2584 2588 258c 2590-2593",
    ),
];

/// Neighbourhoods: a `<..>` is any character of the classes named, the rest is a regular expression.
const NEIGHBOURS: &[&str] = &[
    "<1>",
    "<xlUbsecnw><x>",
    "[a-zA-Z]<gG><x>",
    "<x><lUbsecnw>",
    "<lgbecn><U>",
    "<becn><l>",
    "<lbe><c>",
    r"\s<U><c>",
    "<Ub><nw>",
    "<lUbce><s><n>",
    "<lUcnbw><e><s>",
    "<cnb><s>",
    "[a-z]<U><sc>",
    "<b><k>",
    "<lUcnsew><b>",
    "<b><e>",
    r"<lU><se>\w",
    "[\u{152}\u{153}][^A-Za-z]",
    "<U>\u{b0}",
    // C2, C3, CE, D0 before a continuation
    "[\u{c2}\u{c3}\u{ce}\u{d0}](?:<se>|[\u{20ac}\u{153}\u{160}\u{161}\u{a2}\u{a3}\u{178}\u{17e}\u{a0}\u{ad}\
        \u{ae}\u{a9}\u{b0}\u{b7}\u{bb}\u{2013}\u{2014}\u{b4}])",
    "\u{d7}[\u{b2}\u{b3}]",
    // Arabic: two letters of D8 and D9 in a row
    "[\u{d8}\u{d9}](?:<mcxns>|[\u{178}\u{160}\u{ae}\u{b0}\u{b5}\u{bb}])\
        [\u{d8}\u{d9}](?:<mcxns>|[\u{178}\u{160}\u{ae}\u{b0}\u{b5}\u{bb}])",
    // E0: South Asian
    "\u{e0}[\u{b2}\u{b5}\u{b9}\u{bc}-\u{be}]",
    // read as Mac Roman
    "\u{221a}[\u{b1}\u{2202}\u{2020}\u{2260}\u{ae}\u{2122}\u{b4}\u{2264}\u{2265}\u{a5}\u{b5}\u{f8}]",
    "\u{2248}[\u{b0}\u{a2}]",
    "\u{201a}\u{c4}[\u{ec}\u{ee}\u{ef}\u{f2}\u{f4}\u{f5}\u{fa}\u{f9}\u{fb}\u{2020}\u{b0}\u{a2}\u{3c0}]",
    "\u{201a}[\u{e2}\u{f3}][\u{e0}\u{e4}\u{b0}\u{ea}]",
    // read as Windows-1251
    "\u{432}\u{402}",
    "[\u{412}\u{413}\u{420}\u{421}](?:<1xsec>|[\u{b0}\u{b5}])[\u{412}\u{413}\u{420}\u{421}]",
    "\u{413}\u{45e}\u{412}\u{402}\u{412}.[A-Za-z ]",
    // spaces that were A0
    "\u{c3}[\u{a0}\u{a1}]",
    r"[a-z]\s?[\u{c3}\u{c2}] ",
    r"^[\u{c3}\u{c2}] ",
    "(?:[a-z.,?!]|<e>)\u{c2}(?: |<se>)",
    // read as Windows-1253
    "\u{3b2}\u{20ac}[\u{2122}\u{a0}\u{386}\u{ad}\u{ae}\u{b0}]",
    "[\u{392}\u{393}\u{39e}\u{39f}](?:<1xsec>|\u{b0})[\u{392}\u{393}\u{39e}\u{39f}]",
    // read as Windows-1257
    "\u{101}\u{20ac}",
];

/// Code points of a list of hexadecimal ranges.
pub(super) fn points(list: &str) -> impl Iterator<Item = (u32, u32)> {
    list.split_ascii_whitespace().map(|piece| {
        let (from, to) = piece.split_once('-').unwrap_or((piece, piece));
        let parse = |s: &str| u32::from_str_radix(s, 16).unwrap_or(0);
        (parse(from), parse(to))
    })
}

/// A regular expression's class for class letters.
fn class(letters: &str) -> String {
    let mut class = String::from("[");
    for letter in letters.chars() {
        let list = CLASSES.iter().find(|c| c.0 == letter).map_or("", |c| c.1);
        for (from, to) in points(list) {
            class.push_str(&format!("\\u{{{from:x}}}-\\u{{{to:x}}}"));
        }
    }
    class + "]"
}

static BAD: LazyLock<Regex> = LazyLock::new(|| {
    let expand = |pattern: &&str| {
        let mut expression = String::new();
        let mut rest = *pattern;
        while let Some((before, after)) = rest.split_once('<') {
            expression.push_str(before);
            let (letters, after) = after.split_once('>').unwrap_or((after, ""));
            expression.push_str(&class(letters));
            rest = after;
        }
        expression + rest
    };
    let all: Vec<String> = NEIGHBOURS.iter().map(expand).collect();
    Regex::new(&all.join("|")).expect("the neighbourhoods are an expression; a test uses them all")
});

/// Characters at least one of which every neighbourhood has.
static SUSPECTS: LazyLock<Box<[bool]>> = LazyLock::new(|| {
    let mut table = vec![false; 1 << 16].into_boxed_slice();
    let all = CLASSES.iter().filter(|c| !"mGg".contains(c.0));
    let more = ["152-153 c2-c3 402 b0 20ac a0 ad ae"];
    for list in all.map(|c| c.1).chain(more) {
        for (from, to) in points(list) {
            table[from as usize..=to as usize].fill(true);
        }
    }
    table
});

/// True for characters at least one of which every neighbourhood has.
pub(super) fn is_suspect(c: char) -> bool {
    !c.is_ascii() && SUSPECTS.get(c as usize).copied().unwrap_or(false)
}

/// True if the text looks like mojibake.
pub(super) fn is_bad(text: &str) -> bool {
    text.chars().any(is_suspect) && BAD.is_match(text)
}
