//! Glob patterns on paths: `*` and `?` within a folder, `**` across folders, `[abc]`, `[a-z]`, `[!a]`.
//!
//! POSIX.1-2017 section 2.13, with `**` as in bash's globstar. We differ: only a pattern with a leading dot matches
//! a leading dot, for every part of the path.

/// True if the text holds anything that makes it a pattern.
pub(super) fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// The folders before the first pattern, with their slash.
pub(crate) fn fixed_part(pattern: &str) -> &str {
    let first = pattern.find(['*', '?', '[']).unwrap_or(pattern.len());
    pattern[..first].rfind('/').map_or("", |i| &pattern[..=i])
}

/// True if the whole path matches.
pub(crate) fn matches(pattern: &str, path: &str) -> bool {
    let pattern: Vec<&str> = pattern.split('/').collect();
    let path: Vec<&str> = path.split('/').collect();
    // reach[j]: the parts of the pattern up to here match the first j parts of the path
    let mut reach = vec![false; path.len() + 1];
    reach[0] = true;
    for part in pattern {
        let mut next = vec![false; path.len() + 1];
        if part == "**" {
            next[0] = reach[0];
            for j in 1..=path.len() {
                next[j] = reach[j] || (next[j - 1] && !path[j - 1].starts_with('.'));
            }
        } else {
            for j in 1..=path.len() {
                next[j] = reach[j - 1] && part_matches(part, path[j - 1]);
            }
        }
        reach = next;
    }
    reach[path.len()]
}

/// One folder or file name.
fn part_matches(pattern: &str, name: &str) -> bool {
    if name.starts_with('.') && !pattern.starts_with('.') {
        return false;
    }
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut p, mut n) = (0, 0);
    // Backtracking point when the last star has to take one character more.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        let step = match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
                continue;
            }
            Some('[') => class(&pattern[p..], name[n]),
            Some('?') => Some(1),
            Some(c) if *c == name[n] => Some(1),
            _ => None,
        };
        match (step, star) {
            (Some(step), _) => {
                p += step;
                n += 1;
            }
            (None, Some((at, taken))) => {
                star = Some((at, taken + 1));
                p = at + 1;
                n = taken + 1;
            }
            (None, None) => return false,
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// Length of the class at the start of `pattern` if it holds `c`; an unclosed bracket is itself.
fn class(pattern: &[char], c: char) -> Option<usize> {
    let not = matches!(pattern.get(1), Some('!' | '^'));
    let first = if not { 2 } else { 1 };
    let close = pattern.iter().skip(first + 1).position(|x| *x == ']');
    let Some(end) = close.map(|i| i + first + 1) else {
        return (c == '[').then_some(1);
    };
    let (mut at, mut inside) = (first, false);
    while at < end {
        if at + 2 < end && pattern[at + 1] == '-' {
            inside |= (pattern[at]..=pattern[at + 2]).contains(&c);
            at += 3;
        } else {
            inside |= pattern[at] == c;
            at += 1;
        }
    }
    (inside != not).then_some(end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, path, want) in [
            ("a/*.gz", "a/b.gz", true),
            ("a/*.gz", "a/b/c.gz", false),
            ("a/**/*.gz", "a/c.gz", true),
            ("a/**/*.gz", "a/b/b/c.gz", true),
            ("a/**", "a/b/c", true),
            ("*", ".hidden", false),
            (".*", ".hidden", true),
            ("**/x", ".git/x", false),
            ("f[0-9][!a]?", "f7bz", true),
            ("f[0-9][!a]?", "f7az", false),
            ("[]x]", "]", true),
            ("[x", "[x", true),
            ("*a*b*c", "xxaxxbxxbc", true),
            ("*a*b*c", "xxaxxbxxb", false),
            ("", "", true),
        ] {
            assert_eq!(matches(pattern, path), want, "{pattern} {path}");
        }
        assert_eq!(fixed_part("s3://b/x/y*/z"), "s3://b/x/");
        assert_eq!(fixed_part("*.gz"), "");
    }

    #[test]
    fn many_stars_do_not_take_for_ever() {
        assert!(!matches(&"*a".repeat(40), &"a".repeat(39)));
        assert!(!matches(&"*a".repeat(2000), &"b".repeat(4000)));
    }
}
