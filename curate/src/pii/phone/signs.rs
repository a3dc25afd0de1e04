//! Characters of telephone numbers, as libphonenumber knows them.

/// The digit of a decimal digit: ASCII, full width, Arabic, Persian, Devanagari, Bengali. libphonenumber knows those of all scripts.
pub(super) fn digit(c: char) -> Option<char> {
    let zero = match c {
        '0'..='9' => return Some(c),
        '\u{ff10}'..='\u{ff19}' => 0xff10,
        '\u{660}'..='\u{669}' => 0x660,
        '\u{6f0}'..='\u{6f9}' => 0x6f0,
        '\u{966}'..='\u{96f}' => 0x966,
        '\u{9e6}'..='\u{9ef}' => 0x9e6,
        _ => return None,
    };
    char::from_digit(u32::from(c) - zero, 10)
}

pub(super) fn is_plus(c: char) -> bool {
    matches!(c, '+' | '\u{ff0b}')
}

/// Signs that open a number.
pub(super) fn is_lead(c: char) -> bool {
    is_plus(c) || matches!(c, '(' | '[' | '\u{ff08}' | '\u{ff3b}')
}

pub(super) fn is_bracket(c: char) -> bool {
    matches!(
        c,
        '(' | ')' | '[' | ']' | '\u{ff08}' | '\u{ff09}' | '\u{ff3b}' | '\u{ff3d}'
    )
}

/// Whether an extension may begin with this character, after blanks: a digit, or a letter or sign of its words.
pub(super) fn begins_extension(c: char) -> bool {
    digit(c).is_some()
        || matches!(
            c,
            ';' | 'e' | 'E' | 'x' | 'X' | 'a' | 'A' | 'i' | 'I' | '#' | '~' | '\u{434}' | '\u{414}'
        )
        || matches!(
            c,
            '\u{ff03}'
                | '\u{ff25}'
                | '\u{ff29}'
                | '\u{ff38}'
                | '\u{ff45}'
                | '\u{ff49}'
                | '\u{ff58}'
                | '\u{ff5e}'
        )
}

/// Signs between digits. `x` stands for an extension or a carrier.
pub(super) fn is_punctuation(c: char) -> bool {
    matches!(
        c,
        '-' | 'x' | 'X' | ' ' | '(' | ')' | '.' | '[' | ']' | '/' | '~' | '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{30fc}'
            | '\u{ff0d}'..='\u{ff0f}' | '\u{a0}' | '\u{ad}' | '\u{200b}' | '\u{2060}' | '\u{3000}' | '\u{ff08}' | '\u{ff09}' | '\u{ff3b}'
            | '\u{ff3d}' | '\u{2053}' | '\u{223c}' | '\u{ff5e}'
    )
}

/// Whether a number cannot be beside this character: a Latin letter, an accent, `%` or a sign of a currency.
pub(super) fn excludes(c: char) -> bool {
    let is_latin = matches!(c, '\0'..='\u{24f}' | '\u{1e00}'..='\u{1eff}') && c.is_alphabetic();
    let is_currency = matches!(
        c,
        '$' | '\u{a2}'..='\u{a5}' | '\u{58f}' | '\u{60b}' | '\u{7fe}' | '\u{7ff}' | '\u{9f2}' | '\u{9f3}' | '\u{9fb}' | '\u{af1}' | '\u{bf9}'
            | '\u{e3f}' | '\u{17db}' | '\u{20a0}'..='\u{20cf}' | '\u{a838}' | '\u{fdfc}' | '\u{fe69}' | '\u{ff04}' | '\u{ffe0}' | '\u{ffe1}'
            | '\u{ffe5}' | '\u{ffe6}'
    );
    is_latin || is_currency || c == '%' || matches!(c, '\u{300}'..='\u{36f}')
}
