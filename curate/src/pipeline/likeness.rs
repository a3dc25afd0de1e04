//! Whether a value of a record reads like text: words, not an address, a number, a date, an identifier or a hash.

/// Words that a value without digits needs; one with digits needs one more, as dates may have two (`Tuesday, 5 March 2024`).
const WORDS: usize = 2;
/// Letters of a script without spaces that are about two words.
const LETTERS: usize = 4;

/// Whether a value has words: tokens that are mostly letters, no addresses, and more letters than other characters in all.
pub(super) fn is_like_text(value: &str) -> bool {
    let (mut words, mut letters, mut others) = (0, 0, 0);
    let (mut unspaced, mut has_digits) = (0, false);
    for token in value.split_whitespace() {
        let (mut own, mut all) = (0, 0);
        for c in token.chars() {
            all += 1;
            own += usize::from(c.is_alphabetic());
            unspaced += usize::from(has_no_spaces(c));
            has_digits |= c.is_ascii_digit();
        }
        if is_address(token) {
            others += all;
            continue;
        }
        letters += own;
        others += all - own;
        words += usize::from(2 * own > all);
    }
    let needed = WORDS + usize::from(has_digits);
    letters > others && (words >= needed || unspaced >= LETTERS)
}

/// Whether a token is a URL, a path or an address of mail.
fn is_address(token: &str) -> bool {
    let slashes = token.matches('/').count();
    token.contains("://")
        || token.starts_with("www.")
        || token.contains('@') && token.contains('.')
        || slashes > 1
        || slashes == 1 && token.starts_with(['/', '.', '~'])
}

/// Whether a letter is of a script that puts no spaces between words: Han, kana, Thai, Lao, Burmese, Khmer, Tibetan.
fn has_no_spaces(c: char) -> bool {
    matches!(
        c,
        '\u{e00}'..='\u{eff}'
            | '\u{f00}'..='\u{fff}'
            | '\u{1000}'..='\u{109f}'
            | '\u{1780}'..='\u{17ff}'
            | '\u{3040}'..='\u{30ff}'
            | '\u{3400}'..='\u{9fff}'
            | '\u{20000}'..='\u{3ffff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_told_from_addresses_numbers_dates_and_identifiers() {
        for text in [
            "Great product",
            "Was ist das?",
            "In 1984 the committee met.",
            "See https://example.org/a for the whole list of changes.",
            "\u{6c34}\u{306f}\u{9ad8}\u{3044}\u{6240}\u{304b}\u{3089}\u{4f4e}\u{3044}\u{6240}\u{3078}",
            "\u{e20}\u{e32}\u{e29}\u{e32}\u{e44}\u{e17}\u{e22}",
            "Fish and/or chips",
        ] {
            assert!(is_like_text(text), "{text}");
        }
        for other in [
            "",
            "https://example.org/a-long-way/to/here.html?with=words",
            "www.example.org",
            "someone@example.org",
            "17",
            "-1.5e300",
            "2024-03-05",
            "2024-03-05T10:00:00Z",
            "Tue, 05 Mar 2024 10:00:00 GMT",
            "Tuesday, 5 March 2024",
            "en",
            "text/html",
            "crawl-data/CC-MAIN-2025-05/segments/1/warc/a.warc.gz",
            "da39a3ee5e6b4b0d3255bfef95601890afd80709",
            "sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ",
            "550e8400-e29b-41d4-a716-446655440000",
            "<urn:uuid:0d5e8400-e29b-41d4-a716-446655440000>",
            "Donaudampfschiff",
            "1,2,3 4 5 6",
        ] {
            assert!(!is_like_text(other), "{other}");
        }
    }
}
