//! Metadata of packages by the names that pages use: Dublin Core, as EPUB, Word and OpenDocument write it.

use serde_json::{Map, Value};

use super::xml::Element;

/// Characters of a value that are kept.
const MAX_CHARS: usize = 2000;
/// Values of an element that are kept.
const MAX_VALUES: usize = 100;

/// Metadata found so far.
#[derive(Default)]
pub(super) struct Described {
    /// Name of the element whose text is read.
    inside: Option<&'static str>,
    text: String,
    found: Vec<(&'static str, String)>,
}

/// Elements that are read, with the names of their values in `meta`.
const NAMES: [(&str, &str); 16] = [
    ("title", "title"),
    ("creator", "author"),
    ("initial-creator", "author"),
    ("language", "declared_language"),
    ("identifier", "identifier"),
    ("publisher", "publisher"),
    ("date", "published"),
    ("created", "published"),
    ("creation-date", "published"),
    ("modified", "modified"),
    ("description", "description"),
    ("subject", "subjects"),
    ("keyword", "subjects"),
    ("keywords", "subjects"),
    ("rights", "licence"),
    ("source", "origin"),
];

/// Values that are lists.
const LISTS: [&str; 2] = ["subjects", "licence"];

impl Described {
    pub(super) fn open(&mut self, name: &str, _: &Element<'_>) {
        let known = NAMES.iter().find(|(element, _)| *element == name);
        self.inside = known.map(|(_, key)| *key);
        self.text.clear();
    }

    pub(super) fn text(&mut self, text: &str) {
        if self.inside.is_some() && self.text.len() < 4 * MAX_CHARS {
            self.text.push_str(text);
        }
    }

    pub(super) fn close(&mut self, _: &str) {
        let Some(key) = self.inside.take() else {
            return;
        };
        let words: Vec<&str> = self.text.split_whitespace().collect();
        let value: String = words.join(" ").chars().take(MAX_CHARS).collect();
        let same = self.found.iter().filter(|(other, _)| *other == key);
        if !value.is_empty()
            && same.clone().count() < MAX_VALUES
            && !same.clone().any(|(_, other)| *other == value)
        {
            self.found.push((key, value));
        }
    }

    /// The values by name: authors joined by "; ", of other names the first one, days without the time.
    pub(super) fn into_meta(self) -> Map<String, Value> {
        let mut meta = Map::new();
        for (key, value) in self.found {
            let value = match key {
                "published" | "modified" => day(&value).to_string(),
                _ => value,
            };
            match meta.get_mut(key) {
                Some(Value::Array(all)) => all.push(value.into()),
                Some(Value::String(all)) if key == "author" => {
                    all.push_str("; ");
                    all.push_str(&value);
                }
                Some(_) => {}
                None if LISTS.contains(&key) => {
                    meta.insert(key.to_string(), vec![value].into());
                }
                None => {
                    meta.insert(key.to_string(), value.into());
                }
            }
        }
        meta
    }
}

/// The day of a time (ISO 8601).
fn day(time: &str) -> &str {
    let is_time = time.as_bytes().get(10) == Some(&b'T');
    if is_time && time.is_char_boundary(10) {
        &time[..10]
    } else {
        time
    }
}

#[cfg(test)]
mod tests {
    use super::super::xml::{Event, walk};
    use super::*;

    #[test]
    fn values_are_named_like_those_of_pages() {
        let xml = "<m><dc:title>A\n title</dc:title><dc:title>Second</dc:title><dc:creator>B</dc:creator>\
            <dc:creator>C</dc:creator><dc:creator>B</dc:creator><dc:date>2020-01-02T03:04:05Z</dc:date>\
            <dc:rights>CC0</dc:rights><x>no</x><dc:language> </dc:language></m>";
        let mut described = Described::default();
        walk(xml, |event| match event {
            Event::Open(name, element) => described.open(name, element),
            Event::Close(name) => described.close(name),
            Event::Text(text) => described.text(text),
        })
        .unwrap();
        let want = serde_json::json!({"title": "A title", "author": "B; C",
            "published": "2020-01-02", "licence": ["CC0"]});
        assert_eq!(Value::from(described.into_meta()), want);
    }
}
