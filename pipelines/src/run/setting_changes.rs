//! Settings of a job that differ from those of the results in its folder, whose `job.toml` has them.

use crate::context::JOB;
use crate::job::Job;
use std::path::Path;
use toml::{Table, Value};

/// Characters of a value that are shown.
const MOST: usize = 60;

/// A key whose value differs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Changed {
    /// `curate.step[2].gopher_quality.min_words`.
    pub key: String,
    /// `50 -> 40`.
    values: String,
}

impl std::fmt::Display for Changed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} changed: {}", self.key, self.values)
    }
}

/// The keys that differ between the job of the results in `out` and this one; none if nothing has run there, or if its `job.toml` is
/// not one.
pub(super) fn of(job: &Job, out: &Path) -> Vec<Changed> {
    let text = std::fs::read_to_string(out.join(JOB));
    let before = text.ok().and_then(|text| text.parse::<Table>().ok());
    // `to_toml` hides secrets on both sides
    match (before, job.to_toml().parse::<Table>()) {
        (Some(before), Ok(now)) => {
            let mut found = Vec::new();
            differences(&Value::Table(before), &Value::Table(now), "", &mut found);
            found
        }
        (None, _) | (_, Err(_)) => Vec::new(),
    }
}

/// Those in one of the tables, lists or keys.
pub(super) fn within(changed: &[Changed], keys: &[&str]) -> Vec<String> {
    let is_in = |key: &str, table: &str| {
        key.strip_prefix(table)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    let own = changed
        .iter()
        .filter(|changed| keys.iter().any(|table| is_in(&changed.key, table)));
    own.map(ToString::to_string).collect()
}

fn differences(before: &Value, now: &Value, key: &str, found: &mut Vec<Changed>) {
    if before == now {
        return;
    }
    match (before, now) {
        (Value::Table(a), Value::Table(b)) if !are_other_choices(a, b) => {
            let added = b.keys().filter(|name| !a.contains_key(*name));
            for name in a.keys().chain(added) {
                let path = match key {
                    "" => name.clone(),
                    _ => format!("{key}.{name}"),
                };
                one(a.get(name), b.get(name), &path, found);
            }
        }
        (Value::Array(a), Value::Array(b)) if has_tables(a) || has_tables(b) => {
            for at in 0..a.len().max(b.len()) {
                one(a.get(at), b.get(at), &format!("{key}[{at}]"), found);
            }
        }
        _ => one_line(key, &shown(before), &shown(now), found),
    }
}

/// Whether two elements are different choices, such as two filters, and not one with other settings.
fn are_other_choices(a: &Table, b: &Table) -> bool {
    a.len() == 1 && b.len() == 1 && a.keys().next() != b.keys().next()
}

fn has_tables(list: &[Value]) -> bool {
    list.iter().any(Value::is_table)
}

/// A key that one side may lack.
fn one(before: Option<&Value>, now: Option<&Value>, key: &str, found: &mut Vec<Changed>) {
    match (before, now) {
        (Some(before), Some(now)) => differences(before, now, key, found),
        (before, now) => {
            let text = |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), shown);
            one_line(key, &text(before), &text(now), found);
        }
    }
}

fn one_line(key: &str, before: &str, now: &str, found: &mut Vec<Changed>) {
    found.push(Changed {
        key: key.to_owned(),
        values: format!("{before} -> {now}"),
    });
}

/// A value on one line.
fn shown(value: &Value) -> String {
    let text = value.to_string().replace('\n', " ");
    match text.char_indices().nth(MOST) {
        Some((cut, _)) => format!("{}...", &text[..cut]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(before: &str, now: &str) -> Vec<String> {
        let table = |text: &str| Value::Table(text.parse::<Table>().unwrap());
        let mut found = Vec::new();
        differences(&table(before), &table(now), "", &mut found);
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_change_names_the_key_with_both_values() {
        let before = "a = 1\n[[step]]\nlanguage = {}\n[[step]]\nquality = { min = 50, max = 9 }\n[t]\nx = [1]\n";
        let now = "a = 1\n[[step]]\nlanguage = {}\n[[step]]\nquality = { min = 40, max = 9 }\n[t]\nx = [1, 2]\n";
        assert_eq!(
            found(before, now),
            [
                "step[1].quality.min changed: 50 -> 40",
                "t.x changed: [1] -> [1, 2]"
            ]
        );
        assert_eq!(found(before, before), [""; 0]);
    }

    #[test]
    fn what_is_new_or_gone_or_another_choice_is_shown_whole() {
        let before = "[[step]]\nlanguage = { keep = [\"en\"] }\n";
        let now = "[[step]]\nquality = { min = 40 }\n[[step]]\nlength = {}\n";
        assert_eq!(
            found(before, now),
            [
                "step[0] changed: { language = { keep = [\"en\"] } } -> { quality = { min = 40 } }",
                "step[1] changed: nothing -> { length = {} }",
            ]
        );
    }

    #[test]
    fn a_table_has_its_own_keys_and_no_others() {
        let changed = ["curate.step[0].x", "curate.steps", "curate.step"].map(|key| Changed {
            key: key.to_owned(),
            values: "1 -> 2".to_owned(),
        });
        let own = within(&changed, &["curate.step"]);
        let wanted =
            ["curate.step[0].x", "curate.step"].map(|key| format!("{key} changed: 1 -> 2"));
        assert_eq!(own, wanted);
    }
}
