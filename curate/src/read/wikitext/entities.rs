//! Character references of HTML that occur in wikitext.

/// Names met in articles; anything else stays as written.
const NAMED: [(&str, &str); 46] = [
    ("nbsp", " "),
    ("thinsp", " "),
    ("ensp", " "),
    ("emsp", " "),
    ("amp", "&"),
    ("lt", "<"),
    ("gt", ">"),
    ("quot", "\""),
    ("apos", "'"),
    ("ndash", "\u{2013}"),
    ("mdash", "\u{2014}"),
    ("minus", "\u{2212}"),
    ("shy", ""),
    ("zwnj", "\u{200c}"),
    ("zwj", "\u{200d}"),
    ("lrm", ""),
    ("rlm", ""),
    ("hellip", "\u{2026}"),
    ("lsquo", "\u{2018}"),
    ("rsquo", "\u{2019}"),
    ("ldquo", "\u{201c}"),
    ("rdquo", "\u{201d}"),
    ("laquo", "\u{ab}"),
    ("raquo", "\u{bb}"),
    ("bull", "\u{2022}"),
    ("middot", "\u{b7}"),
    ("sdot", "\u{22c5}"),
    ("deg", "\u{b0}"),
    ("plusmn", "\u{b1}"),
    ("times", "\u{d7}"),
    ("divide", "\u{f7}"),
    ("frac12", "\u{bd}"),
    ("frac14", "\u{bc}"),
    ("sup2", "\u{b2}"),
    ("sup3", "\u{b3}"),
    ("micro", "\u{b5}"),
    ("prime", "\u{2032}"),
    ("Prime", "\u{2033}"),
    ("euro", "\u{20ac}"),
    ("pound", "\u{a3}"),
    ("copy", "\u{a9}"),
    ("reg", "\u{ae}"),
    ("trade", "\u{2122}"),
    ("sect", "\u{a7}"),
    ("larr", "\u{2190}"),
    ("rarr", "\u{2192}"),
];

/// `&#8211;` or `&#x2013;` at the start of `text`: the character and the length; None if it is none.
pub(crate) fn numeric_entity(text: &str) -> Option<(char, usize)> {
    let digits = text.strip_prefix("&#")?;
    let end = digits.bytes().take(9).position(|b| b == b';')?;
    let number = match digits[..end].strip_prefix(['x', 'X']) {
        Some(hex) => u32::from_str_radix(hex, 16).ok()?,
        None => digits[..end].parse().ok()?,
    };
    Some((char::from_u32(number).filter(|c| *c != '\0')?, end + 3))
}

/// Reads the reference at the start of `text` into `out` and returns its length; an ampersand that
/// starts none is itself.
pub(super) fn read_entity(text: &str, out: &mut String) -> usize {
    let name = &text[1..];
    if let Some(end) = name.bytes().take(10).position(|b| b == b';') {
        if let Some((_, value)) = NAMED.iter().find(|(n, _)| *n == &name[..end]) {
            out.push_str(value);
            return end + 2;
        }
        if let Some((c, length)) = numeric_entity(text) {
            // spaces of any width read as a space
            let wide = matches!(c, '\u{a0}' | '\u{2000}'..='\u{200a}');
            out.push(if wide { ' ' } else { c });
            return length;
        }
    }
    out.push('&');
    1
}
