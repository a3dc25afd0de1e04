//! Counts of exported documents, for the data card.

use curate::corpus::CleanDocument;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Different values that are listed; documents with further ones are counted together, so that memory is bounded.
const MOST: usize = 1000;
/// Their name.
const OTHERS: &str = "(others)";
/// Name of documents without a value.
pub(super) const NONE: &str = "(none)";

/// Counts of rows, and of the documents that they are pieces of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Tally {
    /// Kept documents of the job.
    pub documents: u64,
    /// Kept documents of which the cuts left nothing: they have no row.
    pub emptied: u64,
    /// Rows written; a split document has several.
    pub rows: u64,
    /// UTF-8 bytes of their texts.
    pub text_bytes: u64,
    pub sources: BTreeMap<String, Share>,
    pub languages: BTreeMap<String, Share>,
    pub licences: BTreeMap<String, Share>,
    /// Directives to robots that pages have.
    pub robots: BTreeMap<String, Share>,
}

/// Rows with a value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Share {
    pub rows: u64,
    pub text_bytes: u64,
}

/// The values of a field of the metadata: a string, or the strings of a list.
fn values<'a>(document: &'a CleanDocument, key: &str) -> Vec<&'a str> {
    let meta = document.meta.as_ref().and_then(|meta| meta.get(key));
    match meta {
        Some(Value::String(text)) => vec![text],
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => {
            Vec::new()
        }
    }
}

impl Tally {
    /// Counts a row.
    pub(super) fn add(&mut self, document: &CleanDocument) {
        let bytes = document.text.len() as u64;
        self.rows += 1;
        self.text_bytes += bytes;
        let source = match &document.subset {
            Some(subset) => format!("{}/{subset}", document.source),
            None => document.source.clone(),
        };
        count(&mut self.sources, &source, bytes);
        let language = match document.language.as_str() {
            "" => NONE,
            known => known,
        };
        count(&mut self.languages, language, bytes);
        // of the step `license`, of a record's own metadata, of a page
        let licences = ["licenses", "license", "licence"]
            .map(|key| values(document, key))
            .into_iter()
            .find(|found| !found.is_empty());
        match licences {
            Some(found) => found
                .iter()
                .for_each(|licence| count(&mut self.licences, licence, bytes)),
            None => count(&mut self.licences, NONE, bytes),
        }
        for directive in values(document, "robots") {
            count(&mut self.robots, directive, bytes);
        }
    }

    /// Adds the counts of the documents that follow.
    pub(super) fn merge(&mut self, next: Tally) {
        self.documents += next.documents;
        self.emptied += next.emptied;
        self.rows += next.rows;
        self.text_bytes += next.text_bytes;
        for (into, from) in [
            (&mut self.sources, next.sources),
            (&mut self.languages, next.languages),
            (&mut self.licences, next.licences),
            (&mut self.robots, next.robots),
        ] {
            from.iter().for_each(|(name, share)| add(into, name, share));
        }
    }
}

fn count(shares: &mut BTreeMap<String, Share>, name: &str, text_bytes: u64) {
    let rows = 1;
    add(shares, name, &Share { rows, text_bytes });
}

fn add(shares: &mut BTreeMap<String, Share>, name: &str, more: &Share) {
    let is_listed = shares.contains_key(name) || shares.len() < MOST;
    let name = if is_listed { name } else { OTHERS };
    let share = shares.entry(name.to_string()).or_default();
    share.rows += more.rows;
    share.text_bytes += more.text_bytes;
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_row_is_counted_by_source_language_licence_and_robots() {
        let mut tally = Tally::default();
        let document = |meta| CleanDocument {
            text: "é".into(),
            source: "crawl".into(),
            meta,
            ..CleanDocument::default()
        };
        tally.add(&document(None));
        tally.add(&document(Some(
            json!({"licenses": ["MIT", "Zlib"], "robots": ["noai"]}),
        )));
        tally.add(&document(Some(json!({"license": "MIT"}))));
        let rows = |shares: &BTreeMap<String, Share>, name: &str| shares[name].rows;
        assert_eq!((tally.rows, tally.text_bytes), (3, 6));
        assert_eq!(rows(&tally.sources, "crawl"), 3);
        assert_eq!(rows(&tally.languages, NONE), 3);
        assert_eq!(rows(&tally.licences, "MIT"), 2);
        assert_eq!(rows(&tally.licences, "Zlib"), 1);
        assert_eq!(rows(&tally.licences, NONE), 1);
        assert_eq!(rows(&tally.robots, "noai"), 1);
        let mut both = tally.clone();
        both.merge(tally);
        assert_eq!((both.rows, both.text_bytes), (6, 12));
        assert_eq!(rows(&both.licences, "MIT"), 4);
        assert_eq!(rows(&both.robots, "noai"), 2);
    }

    #[test]
    fn many_values_take_bounded_memory_and_lose_no_row() {
        let mut shares = BTreeMap::new();
        (0..5000).for_each(|i| count(&mut shares, &format!("{i}"), 1));
        let tally = |from: u64| {
            let mut tally = Tally::default();
            (from..from + 900).for_each(|i| count(&mut tally.robots, &format!("{i}"), 1));
            tally
        };
        let mut both = tally(0);
        both.merge(tally(450));
        assert_eq!(both.robots.len(), MOST + 1);
        assert_eq!(both.robots.values().map(|s| s.rows).sum::<u64>(), 1800);
        assert_eq!(shares.len(), MOST + 1);
        assert_eq!(shares.values().map(|s| s.rows).sum::<u64>(), 5000);
    }
}
