//! Report section on kept and dropped documents: excerpts with the rule, the value and the limit, and their whole texts.

use super::html::{Whole, escape, excerpt_of, folded};
use super::material::Material;
use super::sections::ranked;
use super::values::{number, text_value};
use crate::machine::grouped;
use serde_json::Value;
use std::collections::BTreeMap;

/// Texts by rule, id and hash of the sample that they are of.
struct Texts<'a> {
    of: BTreeMap<(&'a str, &'a str, u64), &'a Value>,
    /// Bytes that the page has left for whole texts.
    room: usize,
}

impl<'a> Texts<'a> {
    fn of(lines: &'a [Value], room: usize) -> Texts<'a> {
        let named = lines.iter().map(|line| (key_of(line), line));
        Texts {
            of: named.collect(),
            room,
        }
    }

    /// The whole text of a sample, if there is more of it than the excerpt.
    fn whole(&mut self, sample: &Value) -> Option<Whole<'a>> {
        let line = self.of.get(&key_of(sample))?;
        let text = line["text"].as_str()?;
        let chars = number(&line["chars"]);
        let left_out = chars.saturating_sub(text.chars().count() as u64);
        let bytes = escape(text).len();
        if bytes > self.room {
            return Some(Whole {
                name: format!("{} characters", grouped(chars)),
                text: "",
                note: "This text is left out, as the page would be too large; samples.jsonl in the job's folder has it.".to_string(),
            });
        }
        self.room -= bytes;
        Some(Whole {
            name: format!("Whole text, {} characters", grouped(chars)),
            text,
            note: match left_out {
                0 => String::new(),
                n => format!("{} more characters are left out.", grouped(n)),
            },
        })
    }
}

fn key_of(sample: &Value) -> (&str, &str, u64) {
    let field = |name: &str| sample[name].as_str().unwrap_or_default();
    (field("rule"), field("id"), number(&sample["hash"]))
}

/// Texts kept and dropped, with the rule, the value and the limit. The whole texts take at most `room` bytes.
pub(super) fn samples(m: &Material, room: usize) -> String {
    let c = m.counts("curate");
    let list = |key: &str| c[key].as_array().map(Vec::as_slice).unwrap_or_default();
    let (kept, dropped) = (list("kept_samples"), list("dropped_samples"));
    if kept.is_empty() && dropped.is_empty() {
        return String::new();
    }
    let most = m.job.report.as_ref().map_or(8, |r| r.examples);
    let mut texts = Texts::of(&m.samples, room);
    let mut body = String::from("<h3>Dropped</h3>");
    for s in one_of_each_rule_first(dropped, most) {
        let caption = format!(
            "{}: {} (limit {}) in {}",
            text_value(&s["rule"]),
            text_value(&s["value"]),
            text_value(&s["limit"]),
            text_value(&s["id"])
        );
        let text = text_value(&s["excerpt"]);
        body += &excerpt_of("dropped", &caption, &text, texts.whole(s));
    }
    body += &without_sample(&c["dropped"], dropped);
    body += "<h3>Kept</h3>";
    for s in kept.iter().take(most) {
        let caption = format!("{} {}", text_value(&s["id"]), text_value(&s["language"]));
        let text = text_value(&s["excerpt"]);
        body += &excerpt_of("kept", &caption, &text, texts.whole(s));
    }
    folded(
        "samples",
        "Kept and dropped",
        "Chosen among all documents of all sources by a hash of their ids and beginnings, so at random; every rule that dropped a document that was read has at least one. A dropped text shows the first rule it broke.",
        &body,
    )
}

/// A line with the rules that dropped records and have no example; empty without any.
fn without_sample(dropped: &Value, samples: &[Value]) -> String {
    let has_sample = |rule: &str| samples.iter().any(|s| s["rule"] == rule);
    let rules = ranked(dropped).into_iter();
    let named: Vec<String> = rules
        .filter(|(rule, count)| *count > 0 && !has_sample(rule))
        .map(|(rule, count)| format!("{} ({})", escape(&rule), grouped(count)))
        .collect();
    match named.is_empty() {
        true => String::new(),
        false => format!(
            "<p class=quiet>Without an example, as the records were not read or have been taken down: {}.</p>",
            named.join(", ")
        ),
    }
}

/// The first sample of each rule, then others until there are `most`.
fn one_of_each_rule_first(samples: &[Value], most: usize) -> Vec<&Value> {
    let mut rules: Vec<&Value> = Vec::new();
    let (first, more): (Vec<&Value>, Vec<&Value>) = samples.iter().partition(|s| {
        let is_first = !rules.contains(&&s["rule"]);
        if is_first {
            rules.push(&s["rule"]);
        }
        is_first
    });
    let room = most.saturating_sub(first.len());
    first
        .into_iter()
        .chain(more.into_iter().take(room))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const EVIL: &str = "</pre><script>alert(1)</script>";

    fn material(samples: Vec<Value>) -> Material {
        let sample = |rule: &str, id: &str, hash: u64| {
            json!({"hash": hash, "id": id, "rule": rule, "value": 3.0,
            "limit": 5.0, "language": "eng", "excerpt": format!("start of {id}")})
        };
        let counts = json!({"records": 100, "kept": 40, "dropped": {"a.one": 30, "a.two": 20, "sample": 10},
            "kept_samples": [sample("", "k", 1)],
            "dropped_samples": [sample("a.one", "x", 2), sample("a.one", "y", 3), sample("a.two", "z", 4)]});
        let mut m = Material::of_manifest(
            crate::job::Job::default(),
            json!({"curate": {"counts": counts}}),
        );
        m.samples = samples;
        m
    }

    fn line(rule: &str, id: &str, hash: u64, text: &str, chars: usize) -> Value {
        json!({"hash": hash, "id": id, "rule": rule, "text": text, "chars": chars})
    }

    #[test]
    fn whole_texts_are_beside_their_own_excerpts_and_cannot_leave_their_boxes() {
        let long = format!("start of y {EVIL} {}", "word ".repeat(3_998));
        let lines = vec![
            line("a.one", "y", 3, &long, long.len() + 1_234),
            // of another document with the same id
            line("a.two", "z", 5, "of another", 10),
            line("", "k", 1, "start of k and its end", 22),
        ];
        let page = samples(&material(lines), 1_000_000);
        assert!(!page.contains("<script") && page.contains("&lt;script&gt;alert(1)"));
        let at = |text: &str| page.find(text).unwrap();
        let whole = "<summary>Whole text, 21,267 characters</summary>";
        let order = [
            "start of x",
            "start of z",
            "start of y",
            whole,
            "start of k",
        ]
        .map(at);
        assert!(order.is_sorted(), "{page}");
        assert!(page.contains("1,234 more characters are left out."));
        assert!(page.contains(
            "<summary>Whole text, 22 characters</summary><pre dir=auto>start of k and its end</pre>"
        ));
        assert!(!page.contains("of another"));
        assert_eq!(page.matches("<summary>Whole text").count(), 2);
        assert!(page.contains("taken down: sample (10).</p>"));
    }

    #[test]
    fn texts_beyond_the_room_of_the_page_are_said_to_be_left_out() {
        let text = "<".repeat(1_000);
        let lines = vec![
            line("a.one", "x", 2, &text, 1_000),
            line("a.one", "y", 3, &text, 1_000),
            line("", "k", 1, "short", 5),
        ];
        let m = material(lines);
        let empty = samples(&material(Vec::new()), 0).len();
        // each takes four bytes a character
        let page = samples(&m, 5_000);
        assert!(page.len() < empty + 5_000 + 3 * 300);
        assert_eq!(page.matches("&lt;").count(), 1_000);
        assert_eq!(page.matches("This text is left out").count(), 1);
        assert!(page.contains("<pre dir=auto>short</pre>"));
    }
}
