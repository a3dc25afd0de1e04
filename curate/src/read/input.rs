//! Settings of a job's inputs: location and format.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::check::Problem;

/// One input: a file, a folder, a pattern, a list of paths, or a URL of any of these.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Input {
    /// File or folder, relative to the working directory; a pattern (`*`, `?`, `[a-z]`, `**`); a URL
    /// (`http`, `https`, `s3`, `gs`, `az`); or a list of any of these, a file named `*.paths[.gz]`.
    pub path: String,
    /// Format. Compression is detected from the first bytes, not from the name.
    pub format: Format,
    /// Name that documents carry as their `source`, for example `crawl`.
    pub source: String,
    /// Put before every line of a list, for example `https://data.commoncrawl.org/`.
    pub prefix: String,
    /// Attributes (dolma's layout) to read from the files beside the documents.
    pub attributes: Vec<String>,
    /// Namespaces of a Wikipedia dump to read; 0 holds the articles.
    pub namespaces: Vec<i64>,
    /// Settings of the object store as the `object_store` crate names them (`aws_region`,
    /// `aws_endpoint`, `aws_skip_signature`); keep credentials in the environment.
    pub options: BTreeMap<String, String>,
}

impl Default for Input {
    fn default() -> Self {
        Input {
            path: String::new(),
            format: Format::Jsonl,
            source: "input".to_string(),
            prefix: String::new(),
            attributes: Vec::new(),
            namespaces: vec![0],
            options: BTreeMap::new(),
        }
    }
}

/// File formats this crate reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// WARC 1.0 or 1.1 with responses and resources; also ARC.
    Warc,
    /// WARC with extracted text (`conversion` records), as Common Crawl publishes.
    Wet,
    /// WARC with computed metadata, as Common Crawl publishes: titles, descriptions and links.
    Wat,
    /// One JSON object a line with at least a `text` string; The Pile's layout is this one.
    Jsonl,
    /// The same in dolma's layout: metadata is kept, attributes are in files beside the documents.
    Dolma,
    /// Columns `text` or `content`, `id`, `url`; all others become metadata.
    Parquet,
    /// MediaWiki XML dump; wikitext becomes plain text.
    Wikipedia,
    /// One UTF-8 document per file.
    Text,
}

impl Input {
    /// An input of this format, nothing else set.
    pub(crate) fn of(format: Format) -> Input {
        Input {
            format,
            ..Input::default()
        }
    }

    /// Reports every contradiction.
    pub fn check(&self, problem: Problem<'_>) {
        if self.path.is_empty() {
            problem("path", "\"\"".to_string(), "a file or folder");
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if self.source.is_empty() || !self.source.chars().all(plain) {
            problem(
                "source",
                format!("{:?}", self.source),
                "letters, digits, '-', '_' or '.' (it is part of document ids)",
            );
        }
        let dolma = self.format == Format::Dolma;
        if !dolma && !self.attributes.is_empty() {
            let found = format!("{:?}", self.attributes);
            problem("attributes", found, "none, or format = \"dolma\"");
        }
        for (i, name) in self.attributes.iter().enumerate() {
            if name.is_empty() || name.contains('/') {
                let wanted = "the name of a folder below attributes";
                problem(&format!("attributes[{i}]"), format!("{name:?}"), wanted);
            }
        }
        if self.namespaces.is_empty() {
            let wanted = "at least one number; 0 holds the articles";
            problem("namespaces", "[]".to_string(), wanted);
        }
    }
}
