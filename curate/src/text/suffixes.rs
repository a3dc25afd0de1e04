//! Public suffixes of hosts: `co.uk` of `a.example.co.uk`.
//!
//! `suffixes.txt.zst` (tests/oracles/public_suffixes.py) has the rules of Mozilla's Public Suffix List, those of companies
//! included, in Unicode and in Punycode. <https://github.com/publicsuffix/list/wiki/Format> defines how they apply: the rule
//! with the most labels counts, an exception (`!www.ck`) before all others; `*` is any label; of a host without a rule the
//! last label is the suffix.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

static TEXT: LazyLock<String> = LazyLock::new(|| {
    let packed = include_bytes!("suffixes.txt.zst");
    let text = zstd::decode_all(&packed[..]).expect("the list is part of the program");
    String::from_utf8(text).expect("the list is text")
});

/// The rules of the list for a name.
#[derive(Clone, Copy, Default)]
struct Rules {
    /// It is a suffix.
    itself: bool,
    /// All names one label longer are suffixes.
    below: bool,
    /// It is no suffix although those beside it are.
    except: bool,
}

static RULES: LazyLock<FxHashMap<&'static str, Rules>> = LazyLock::new(|| {
    let mut rules: FxHashMap<&str, Rules> = FxHashMap::default();
    for line in TEXT.lines() {
        if let Some(name) = line.strip_prefix("*.") {
            rules.entry(name).or_default().below = true;
        } else if let Some(name) = line.strip_prefix('!') {
            rules.entry(name).or_default().except = true;
        } else {
            rules.entry(line).or_default().itself = true;
        }
    }
    rules
});

/// The public suffix of a host in lower case, without a dot at its end; nothing of nothing.
pub(super) fn suffix(host: &str) -> &str {
    let host = host.strip_suffix('.').unwrap_or(host);
    let (mut suffix, mut shorter) = (None, Rules::default());
    // from the last label to the whole host
    for at in host.rmatch_indices('.').map(|(dot, _)| dot + 1).chain([0]) {
        let name = &host[at..];
        let rules = RULES.get(name).copied().unwrap_or_default();
        if rules.except {
            return name.split_once('.').map_or(name, |(_, rest)| rest);
        }
        if rules.itself || shorter.below || suffix.is_none() {
            suffix = Some(name);
        }
        shorter = rules;
    }
    suffix.unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    // of the list's own tests, https://github.com/publicsuffix/list/blob/main/tests/tests.txt (CC0), and of its wiki
    #[test]
    fn suffixes_are_those_of_the_lists_own_tests() {
        for (host, wanted) in [
            ("", ""),
            ("com", "com"),
            ("b.example.com", "com"),
            ("a.b.example.example", "example"),
            ("biz", "biz"),
            ("a.b.domain.biz", "biz"),
            ("b.example.uk.com", "uk.com"),
            ("test.ac", "ac"),
            ("c.mm", "c.mm"),
            ("a.b.c.mm", "c.mm"),
            ("test.ac.jp", "ac.jp"),
            ("a.b.test.kyoto.jp", "kyoto.jp"),
            ("a.b.ide.kyoto.jp", "ide.kyoto.jp"),
            ("a.b.c.kobe.jp", "c.kobe.jp"),
            ("kobe.jp", "jp"),
            ("www.city.kobe.jp", "kobe.jp"),
            ("ck", "ck"),
            ("b.test.ck", "test.ck"),
            ("www.www.ck", "ck"),
            ("a.test.k12.ak.us", "k12.ak.us"),
            ("www.食狮.公司.cn", "公司.cn"),
            ("www.xn--85x722f.xn--55qx5d.cn", "xn--55qx5d.cn"),
            ("shishi.中国", "中国"),
            ("shishi.xn--fiqs8s", "xn--fiqs8s"),
            ("example.com.", "com"),
        ] {
            assert_eq!(suffix(host), wanted, "{host}");
        }
    }
}
