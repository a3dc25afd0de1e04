//! Names near a wrong one, for messages: "did you mean".

/// Names that are offered at most.
const NEAREST: usize = 3;

/// The names that `wrong` may have been meant as, the nearest first.
///
/// A name is near if at most a third of its letters differ, or if one contains the other. Dashes count as underscores.
pub fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let plain = |name: &str| name.to_lowercase().replace('-', "_");
    let wanted = plain(wrong);
    let mut found: Vec<(usize, &str)> = known
        .into_iter()
        .filter_map(|name| {
            let other = plain(name);
            let far = edits(&wanted, &other);
            let longest = wanted.chars().count().max(other.chars().count());
            let is_inside = wanted.len() >= 4
                && other.len() >= 4
                && (other.contains(&wanted) || wanted.contains(&other));
            (far <= longest.div_ceil(3) && far < longest || is_inside).then_some((far, name))
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    let mut names: Vec<&str> = found.into_iter().map(|(_, name)| name).collect();
    names.truncate(NEAREST);
    names
}

/// `; did you mean "a" or "b"?`, or nothing.
pub fn or_nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = nearest(wrong, known)
        .into_iter()
        .map(|name| format!("{name:?}"))
        .collect();
    match quoted.as_slice() {
        [] => String::new(),
        [one] => format!("; did you mean {one}?"),
        [first @ .., last] => format!("; did you mean {} or {last}?", first.join(", ")),
    }
}

/// Least number of letters to insert, remove, change, or swap with a neighbour.
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        rows[i][0] = i;
        for j in 1..=b.len() {
            let change = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = change.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            let is_swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if is_swap {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = least;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        for (a, b, far) in [
            ("kitten", "sitting", 3),
            ("steps", "stesp", 1),
            ("", "ab", 2),
            ("ü", "u", 1),
            ("same", "same", 0),
        ] {
            assert_eq!(edits(a, b), far, "{a} {b}");
            assert_eq!(edits(b, a), far, "{b} {a}");
        }
    }

    #[test]
    fn slips_are_near_and_other_words_are_not() {
        let known = [
            "steps",
            "step",
            "lr",
            "global_batch",
            "micro_batch",
            "split_mb",
        ];
        assert_eq!(nearest("stepz", known), ["step", "steps"]);
        assert_eq!(nearest("global-batch", known), ["global_batch"]);
        assert_eq!(nearest("split", known), ["split_mb"]);
        assert!(nearest("zebra", known).is_empty());
        assert_eq!(or_nearest("zebra", known), "");
        assert_eq!(
            or_nearest("stepz", known),
            "; did you mean \"step\" or \"steps\"?"
        );
    }
}
