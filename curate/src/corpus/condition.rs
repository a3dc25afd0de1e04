//! Conditions on clean documents: which of them a dataset has.

use serde_json::Value;

use crate::contract::{Draft, Sought};
use crate::document::CleanDocument;
use crate::expression::{DocumentMetrics, Expression, Kind, MetaPath, Wrong, check, own_names};
use crate::text::json;
use crate::text::near::or_nearest;

/// A condition on clean documents: on their fields, `meta`, and the text as it is in `clean/`.
#[derive(Clone, Debug)]
pub struct CleanCondition {
    condition: Expression,
    /// Values of the metadata that it names.
    values: Vec<MetaPath>,
}

/// A condition's answer for a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Whether the document meets it.
    pub(crate) holds: bool,
    /// The values of [`CleanCondition::names`] that the document has.
    pub(crate) sought: Sought,
}

impl CleanCondition {
    /// Parses a condition.
    ///
    /// # Errors
    /// The byte of the error, found and wanted; a name that no clean document has.
    pub fn parse(source: &str) -> Result<CleanCondition, Wrong> {
        let condition = check(source, Kind::Truth)?;
        let unknown = condition
            .names()
            .find(|name| !own_names().any(|own| own == *name));
        match unknown {
            None => Ok(CleanCondition {
                values: MetaPath::all(source),
                condition,
            }),
            Some(name) => {
                let own: Vec<&str> = own_names().collect();
                Err(Wrong {
                    found: format!("{name:?}{}", or_nearest(name, own_names())),
                    wanted: format!(
                        "meta.NAME (the step `tag` writes metrics there) or one of {}",
                        own.join(" ")
                    ),
                })
            }
        }
    }

    /// Names of the values of the metadata in it.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.values.iter().map(MetaPath::name)
    }

    /// Whether a clean document, a line of its shard, meets it.
    ///
    /// # Errors
    /// The reason why the line is no document.
    pub(crate) fn holds(&self, line: &[u8]) -> Result<bool, String> {
        self.answer(line).map(|answer| answer.holds)
    }

    /// The answer for a clean document, a line of its shard.
    ///
    /// # Errors
    /// The reason why the line is no document.
    pub(crate) fn answer(&self, line: &[u8]) -> Result<Answer, String> {
        let mut document: CleanDocument = json::from_slice(line).map_err(|e| e.to_string())?;
        // in Parquet it is a text
        if let Some(Value::String(text)) = &document.meta {
            document.meta = json::from_slice(text.as_bytes()).ok();
        }
        let draft = Draft {
            id: document.id,
            url: document.url,
            source: document.source,
            subset: document.subset,
            language: document.language,
            text: document.text,
            meta: document.meta,
            ..Draft::default()
        };
        let mut sought = Sought::default();
        for (number, value) in self.values.iter().enumerate() {
            sought.note(number, value.is_in(&draft));
        }
        Ok(Answer {
            holds: self.condition.holds(&DocumentMetrics::of(&draft, &[])),
            sought,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_clean_shards_meet_conditions_on_their_fields() {
        let line = br#"{"id":"a","text":"one two","source":"s","language":"en","meta":{"host":"x.org","n":NaN,"tags":[1]}}"#;
        let rows = br#"{"id":"a","text":"one two","source":"s","language":"en","metadata":"{\"host\":\"x.org\",\"tags\":[1]}"}"#;
        for (source, wanted) in [
            (
                "meta.host == 'x.org' and language == 'en' and chars == 7",
                true,
            ),
            ("1 in meta.tags and source in ['s', 't']", true),
            ("meta.n > 0 or meta.none == 1", false),
        ] {
            let condition = CleanCondition::parse(source).unwrap();
            assert_eq!(condition.holds(line), Ok(wanted), "{source}");
            assert_eq!(condition.holds(rows), Ok(wanted), "{source}");
        }
        assert!(CleanCondition::parse("true").unwrap().holds(b"{").is_err());
        let wrong = CleanCondition::parse("hots == 'a'").unwrap_err();
        assert_eq!(wrong.found, "\"hots\"; did you mean \"host\"?");
        let why = CleanCondition::parse("quality.score > 1").unwrap_err();
        let why = why.to_string();
        assert!(
            why.contains("\"quality.score\"") && why.contains("meta.NAME"),
            "{why}"
        );
        assert!(
            CleanCondition::parse("chars >")
                .unwrap_err()
                .found
                .starts_with("byte 7")
        );
    }
}
