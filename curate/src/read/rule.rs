//! Rules by which readers drop a record that is sound and holds no document.

use crate::verdict::{MetricValue, Reason, broken};

/// A rule of the readers; its name stands in `dropped/` and in the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadRule {
    /// The kind of a record of a web archive.
    RecordType,
    /// The block of a response.
    Http,
    /// The status of a response.
    Status,
    /// The content coding of a response.
    Encoding,
    /// The content type of a page.
    ContentType,
    /// The namespace of a wiki's page.
    Namespace,
    /// A wiki's page that leads to another.
    Redirect,
    /// The content model of a wiki's page.
    Model,
    /// A document behind a password.
    Encrypted,
    /// A document of pictures.
    NoText,
    /// A text without a character.
    Empty,
}

impl ReadRule {
    /// Every rule.
    pub const ALL: [ReadRule; 11] = [
        ReadRule::RecordType,
        ReadRule::Http,
        ReadRule::Status,
        ReadRule::Encoding,
        ReadRule::ContentType,
        ReadRule::Namespace,
        ReadRule::Redirect,
        ReadRule::Model,
        ReadRule::Encrypted,
        ReadRule::NoText,
        ReadRule::Empty,
    ];

    /// Its stable name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ReadRule::RecordType => "read.record_type",
            ReadRule::Http => "read.http",
            ReadRule::Status => "read.status",
            ReadRule::Encoding => "read.encoding",
            ReadRule::ContentType => "read.content_type",
            ReadRule::Namespace => "read.namespace",
            ReadRule::Redirect => "read.redirect",
            ReadRule::Model => "read.model",
            ReadRule::Encrypted => "read.encrypted",
            ReadRule::NoText => "read.no_text",
            ReadRule::Empty => "read.empty",
        }
    }

    /// Which records it drops, as a sentence.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            ReadRule::RecordType => {
                "The record of the archive is of another type than `response`, `resource` or `conversion`: `warcinfo`, `request`, \
                 `metadata`, `revisit`. WET files have `conversion` records, WAT files `metadata` records."
            }
            ReadRule::Http => "The block of the record is not an HTTP response.",
            ReadRule::Status => "The status of the HTTP response is not 200.",
            ReadRule::Encoding => {
                "The body is in a content coding other than gzip, deflate, br and zstd, or it does not decode."
            }
            ReadRule::ContentType => "The page is neither HTML nor plain text.",
            ReadRule::Namespace => {
                "The page of the wiki is in a namespace that the input does not name: discussions, templates, categories."
            }
            ReadRule::Redirect => "The page of the wiki only leads to another page.",
            ReadRule::Model => "The page of the wiki is not wikitext.",
            ReadRule::Encrypted => "The document opens with a password only.",
            ReadRule::NoText => "No page of the document has text: it is scanned or drawn.",
            ReadRule::Empty => "The text has no character.",
        }
    }

    /// The drop of a record in which `value` was found where `limit` was wanted.
    pub(crate) fn broken(
        self,
        value: impl Into<MetricValue>,
        limit: impl Into<MetricValue>,
    ) -> Reason {
        broken(self.name(), value, limit)
    }

    /// The drop of a text without a character.
    pub(crate) fn empty() -> Reason {
        ReadRule::Empty.broken(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_meanings_are_told_apart() {
        let of = |f: fn(ReadRule) -> &'static str| {
            ReadRule::ALL
                .map(f)
                .into_iter()
                .collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(of(ReadRule::name).len(), ReadRule::ALL.len());
        assert_eq!(of(ReadRule::meaning).len(), ReadRule::ALL.len());
        assert!(
            of(ReadRule::name)
                .iter()
                .all(|name| name.starts_with("read."))
        );
    }
}
