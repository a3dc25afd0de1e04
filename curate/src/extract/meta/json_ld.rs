//! Reader for JSON-LD objects about the page's text.
//!
//! schema.org vocabulary: `headline`, `author`, `datePublished`, `dateModified`, `license`, `articleBody`. Objects
//! are looked for in lists and under any key, to a depth. Broken JSON is ignored; control characters inside
//! strings, the usual defect, are read as spaces.

use serde_json::Value;

use crate::text::entity::push_decoded;

/// One object that may describe the page.
#[derive(Default)]
pub(super) struct Thing {
    pub(super) is_article: bool,
    pub(super) headline: Option<String>,
    pub(super) author: Option<String>,
    pub(super) published: Option<String>,
    pub(super) modified: Option<String>,
    pub(super) licence: Option<String>,
    pub(super) body: Option<String>,
}

/// A script longer than this (bytes) is data for programs.
const MAX_SCRIPT_BYTES: usize = 1 << 20;
/// Things read of one script.
const MAX_THINGS: usize = 64;
/// Nesting looked into.
const MAX_DEPTH: usize = 6;

/// Things in the text of a script.
pub(super) fn things(script: &str) -> Vec<Thing> {
    let mut found = Vec::new();
    let speaks = ["Body", "author", "date", "headline", "license"];
    let about = |s: &str| speaks.iter().any(|w| s.contains(w));
    if script.len() > MAX_SCRIPT_BYTES || !about(script) {
        return found;
    }
    let text = script.trim().trim_end_matches(';');
    let value = serde_json::from_str::<Value>(text).or_else(|_| {
        let plain: String = text
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        serde_json::from_str(&plain)
    });
    if let Ok(value) = value {
        collect(&value, 0, &mut found);
    }
    found
}

fn collect(value: &Value, depth: usize, found: &mut Vec<Thing>) {
    if depth > MAX_DEPTH || found.len() >= MAX_THINGS {
        return;
    }
    match value {
        Value::Array(list) => list.iter().for_each(|v| collect(v, depth + 1, found)),
        Value::Object(map) => {
            let kinds = strings(map.get("@type"));
            let describes = |name: &str| {
                name.ends_with("Article")
                    || name.ends_with("Posting")
                    || matches!(
                        name,
                        "Report" | "Recipe" | "WebPage" | "Review" | "ReportageNewsArticle"
                    )
            };
            if kinds.iter().any(|k| describes(k)) {
                let is_article = kinds.iter().any(|k| describes(k) && k != "WebPage");
                found.push(Thing {
                    is_article,
                    headline: text(map.get("headline")),
                    author: names(map.get("author")),
                    published: text(map.get("datePublished")).or(text(map.get("dateCreated"))),
                    modified: text(map.get("dateModified")),
                    licence: text(map.get("license")),
                    body: map
                        .get("articleBody")
                        .and_then(Value::as_str)
                        .filter(|b| b.len() >= 200)
                        .map(str::to_string),
                });
            }
            map.values()
                .filter(|v| v.is_object() || v.is_array())
                .for_each(|v| collect(v, depth + 1, found));
        }
        _ => {}
    }
}

fn strings(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::String(s)) => vec![s.clone()],
        Some(Value::Array(list)) => list
            .iter()
            .filter_map(|v| v.as_str().map(str::to_string))
            .collect(),
        _ => Vec::new(),
    }
}

/// A string; many systems escape it once too often.
fn text(value: Option<&Value>) -> Option<String> {
    let mut out = String::new();
    push_decoded(&mut out, value?.as_str()?, false);
    Some(out)
}

/// Names of persons, joined.
fn names(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::String(_) => text(value),
        Value::Object(map) => match map.get("name") {
            Some(Value::Array(_)) => names(map.get("name")),
            name => text(name),
        },
        Value::Array(list) => {
            let all: Vec<String> = list
                .iter()
                .take(20)
                .filter_map(|v| names(Some(v)))
                .collect();
            (!all.is_empty()).then(|| all.join("; "))
        }
        _ => None,
    }
}
