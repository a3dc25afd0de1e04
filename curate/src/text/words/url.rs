//! URL detection: words that are URLs are kept whole.
//!
//! The grammar is spaCy's `URL_PATTERN` (after D. Perini, MIT): optional scheme, optional user,
//! host by name or IPv4 outside private ranges, optional port and path. Its look-aheads only
//! exclude address ranges, so they are tested on the octets here instead.

use std::sync::LazyLock;

use regex::Regex;

use crate::text::unicode;

static NAME: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(&pattern(HOST)).expect("the pattern is one"));
static ADDRESS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(&pattern(IPV4)).expect("the pattern is one"));

const HOST: &str = r"(?:(?:[A-Za-z0-9\x{a1}-\x{ffff}][A-Za-z0-9\x{a1}-\x{ffff}_-]{0,62})?[A-Za-z0-9\x{a1}-\x{ffff}]\.)+(?P<tld>LOWER{2,63})";
// Alternatives of the first two octets leave out 10, 127, 169.254, 192.168 and 172.16 to 172.31.
const IPV4: &str = r"(?:(?:FIRST)\.(?:OCTET)|169\.(?:NOT254)|192\.(?:NOT168)|172\.(?:NOT16TO31))\.(?:OCTET)\.(?:[1-9][0-9]?|1[0-9][0-9]|2[0-4][0-9]|25[0-4])";

fn pattern(host: &str) -> String {
    let octet = "1?[0-9]{1,2}|2[0-4][0-9]|25[0-5]";
    // Space is excluded by the caller: words hold none.
    let lower = lower_class();
    let host = host
        .replace("LOWER", &lower)
        .replace("FIRST", "[1-9]|1[1-9]|[2-9][0-9]|1[01][0-9]|12[0-689]|1[3-5][0-9]|16[0-8]|17[013-9]|18[0-9]|19[013-9]|2[01][0-9]|22[0-3]")
        .replace("NOT254", "1?[0-9]{1,2}|2[0-4][0-9]|25[0-35]")
        .replace("NOT168", "[0-9]{1,2}|1[0-57-9][0-9]|16[0-79]|2[0-4][0-9]|25[0-5]")
        .replace("NOT16TO31", "0[0-9]|[0-9]|1[0-5]|3[2-9]|[4-9][0-9]|1[0-9][0-9]|2[0-4][0-9]|25[0-5]")
        .replace("OCTET", octet);
    format!(r"^(?:(?:[\w+\-.]{{2,}})://)?(?:.+@)?(?:{host})(?::\d{{2,5}})?(?:[/?#].*)?$")
}

/// spaCy's ALPHA_LOWER as a character class.
fn lower_class() -> String {
    use std::fmt::Write as _;
    let mut class = String::from("[");
    let mut run: Option<(u32, u32)> = None;
    let mut flush = |run: Option<(u32, u32)>| {
        if let Some((a, b)) = run {
            let _ = write!(class, r"\x{{{a:x}}}-\x{{{b:x}}}");
        }
    };
    for c in ('\0'..=char::MAX).filter(|&c| unicode::is(c, unicode::LOWER)) {
        let c = c as u32;
        run = match run {
            Some((a, b)) if b + 1 == c => Some((a, c)),
            other => {
                flush(other);
                Some((c, c))
            }
        };
    }
    flush(run);
    class.push(']');
    class
}

/// True if the whole word is a URL.
pub(super) fn is_url(word: &str) -> bool {
    if !word.as_bytes().contains(&b'.') {
        return false;
    }
    NAME.is_match(word) || ADDRESS.is_match(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_the_grammar() {
        for yes in [
            "example.com",
            "www.example.com:8080/a?b=c",
            "http://foo.com/blah_(wikipedia)#cite-1",
            "http://223.255.255.254",
            "http://user:pass@example.com",
            "mailto:a@b.org",
            "142.42.1.1:80",
            "172.32.1.1",
        ] {
            assert!(is_url(yes), "{yes}");
        }
        for no in [
            "http://",
            "lower.Upper",
            "10.1.1.1",
            "127.0.0.1",
            "192.168.1.1",
            "172.16.0.1",
            "a.b",
            "3.14",
            "http://-a.b.co",
        ] {
            assert!(!is_url(no), "{no}");
        }
    }
}
