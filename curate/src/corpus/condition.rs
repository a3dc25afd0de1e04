//! Conditions on clean documents: which of them a dataset has.

use serde_json::Value;

use crate::contract::Draft;
use crate::document::CleanDocument;
use crate::expression::{DocumentMetrics, Expression, Kind, check, own_names};
use crate::text::json;

/// A condition on clean documents: on their fields, `meta`, and the text as it is in `clean/`.
#[derive(Clone, Debug)]
pub struct CleanCondition(Expression);

impl CleanCondition {
    /// Parses a condition.
    ///
    /// # Errors
    /// The byte of the error, found and wanted; a name that no clean document has.
    pub fn parse(source: &str) -> Result<CleanCondition, String> {
        let condition = check(source, Kind::Truth)?;
        let unknown = condition
            .names()
            .find(|name| !own_names().any(|own| own == *name));
        match unknown {
            None => Ok(CleanCondition(condition)),
            Some(name) => {
                let own: Vec<&str> = own_names().collect();
                Err(format!(
                    "found {name:?}, wanted meta.NAME (the step `tag` writes metrics there) or one of {}",
                    own.join(" ")
                ))
            }
        }
    }

    /// Whether a clean document, a line of its shard, meets it.
    ///
    /// # Errors
    /// The reason why the line is no document.
    pub(crate) fn holds(&self, line: &[u8]) -> Result<bool, String> {
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
        Ok(self.0.holds(&DocumentMetrics::of(&draft, &[])))
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
        let why = CleanCondition::parse("quality.score > 1").unwrap_err();
        assert!(
            why.contains("\"quality.score\"") && why.contains("meta.NAME"),
            "{why}"
        );
        assert!(
            CleanCondition::parse("chars >")
                .unwrap_err()
                .starts_with("byte 7")
        );
    }
}
