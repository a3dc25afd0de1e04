//! Settings of a job's inputs: location and format.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::crawl::{Kind, Wrong, is_crawl, kind_of_crawl};
use super::keys::Keys;
use crate::check::Problem;

/// The character between the fields of CSV, unless another is named.
const COMMA: &str = ",";

/// One input: a file, a folder, a pattern, a list of paths, or a URL of any of these.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Input {
    /// File or folder, relative to the working directory; a pattern (`*`, `?`, `[a-z]`, `**`); a URL
    /// (`http`, `https`, `s3`, `gs`, `az`); a list of any of these, a file named `*.paths[.gz]`; or a part of Common Crawl,
    /// `cc:SNAPSHOT/warc?segments=10` (also `wet`, `wat`; options `segments`, `files`, `sample`, `domain`, `base`, `index`, `pause`).
    pub path: String,
    /// Format. Compression is detected from the first bytes, not from the name.
    pub format: Format,
    /// Whether a folder's files in folders below it are read too; hidden ones are not. Those of a dataset folder, with a card as on
    /// the Hugging Face Hub, always are.
    pub recursive: bool,
    /// The split of a dataset's folder to read, such as `train`: by the `configs` of its card (README.md), else by the names of files
    /// and folders, as Hugging Face's `datasets` has it. `meta.dataset_split` names it. Default: all files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dataset_split: Option<String>,
    /// The configuration of a dataset's card to read, also called subset. Default: all files; with `dataset_split` the card's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dataset_config: Option<String>,
    /// Field or column with the text, of JSON lines, Parquet, Arrow, CSV and TSV; a dot leads into an object (`body.text`).
    /// Of several the texts are joined by an empty line; a list or an object is its JSON text, for steps such as `issue`.
    /// Default: `text`, of columns also `content`.
    pub text_key: Keys,
    /// Field or column with the document's id; several are joined by `/`. Default: `id`.
    pub id_key: Keys,
    /// Fields to keep in `meta`, with dots as above; all others are left out. Default: every field is kept.
    pub keep_fields: Option<Vec<String>>,
    /// The ASCII character between the fields of CSV, for example `;`.
    pub delimiter: String,
    /// Name that documents carry as their `source`, for example `crawl`.
    pub source: String,
    /// Put before every line of a list, for example `https://data.commoncrawl.org/`.
    pub prefix: String,
    /// Attributes (dolma's layout) to read from the files beside the documents: `attributes/NAME/X.jsonl.gz` for
    /// `documents/X.jsonl.gz`, a line for each document, with its id. They become `meta.attributes`.
    pub attributes: Vec<String>,
    /// Namespaces of a Wikipedia dump to read; 0 holds the articles.
    pub namespaces: Vec<i64>,
    /// The part of a book or PDF that becomes a document.
    pub split: Split,
    /// Whether headers, footers and page numbers of a PDF are kept: lines at the edge of pages that repeat on others.
    pub running_lines: bool,
    /// Whether the bibliography of LaTeX sources is kept.
    pub bibliography: bool,
    /// Settings of the object store as the `object_store` crate names them (`aws_region`,
    /// `aws_endpoint`, `aws_skip_signature`); keep credentials in the environment.
    pub options: BTreeMap<String, String>,
}

impl Default for Input {
    fn default() -> Self {
        Input {
            path: String::new(),
            format: Format::Jsonl,
            recursive: false,
            dataset_split: None,
            dataset_config: None,
            text_key: Keys::default(),
            id_key: Keys::default(),
            keep_fields: None,
            delimiter: COMMA.to_string(),
            source: "input".to_string(),
            prefix: String::new(),
            attributes: Vec::new(),
            namespaces: vec![0],
            split: Split::File,
            running_lines: false,
            bibliography: false,
            options: BTreeMap::new(),
        }
    }
}

/// The part of a book or PDF that becomes a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// The file.
    #[default]
    File,
    /// Each page of a PDF: `source/NAME/page-3`. A paragraph that goes on over a page's end is cut there.
    Page,
    /// Each chapter of an EPUB book: `source/NAME/chapter-3`.
    Chapter,
}

/// File formats this crate reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Told by each file's first bytes, of tables and pages also by `.csv`, `.tsv` or `.html` in its name, so that a folder
    /// may hold files of several formats. A file of a kind that no format reads is one bad record.
    Auto,
    /// WARC 1.0 or 1.1 with responses and resources; also ARC. Common Crawl's are the path `cc:SNAPSHOT/warc`.
    Warc,
    /// WARC with extracted text (`conversion` records), as Common Crawl publishes (`cc:SNAPSHOT/wet`).
    Wet,
    /// WARC with computed metadata, as Common Crawl publishes (`cc:SNAPSHOT/wat`): titles, descriptions and links.
    Wat,
    /// One JSON object a line with at least a `text` string; The Pile's layout is this one. An array of such objects, and objects
    /// that go over several lines, are read too.
    Jsonl,
    /// The same in dolma's layout: metadata is kept, attributes are in files beside the documents.
    Dolma,
    /// Columns `text` or `content`, `id`, `url`; all others become metadata.
    Parquet,
    /// The same in Arrow files and streams (`.arrow`, Feather 2), as caches of Hugging Face's `datasets` have them.
    Arrow,
    /// The same as text, separated by commas; the first row has the names.
    Csv,
    /// The same, separated by tabs.
    Tsv,
    /// One web page per file, whose main text is extracted.
    Html,
    /// MediaWiki XML dump; wikitext becomes plain text.
    Wikipedia,
    /// An EPUB book per file; its chapters in the order of the spine are one document.
    Epub,
    /// A Word document per file (Office Open XML), tracked changes accepted.
    Docx,
    /// An OpenDocument text per file, tracked changes accepted.
    Odt,
    /// A PDF per file; its pages are one document.
    Pdf,
    /// LaTeX sources of a paper per file: a `.tex` file or a tar archive, as arXiv has them.
    Latex,
    /// WARC files in a ZIP archive (WACZ).
    Wacz,
    /// HTML pages of an offline copy of a wiki (ZIM, as Kiwix has them).
    Zim,
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

    /// Whether no record has an id of its own: it is known before the record is parsed.
    pub(crate) fn has_no_ids(&self) -> bool {
        let is_plain = matches!(
            self.format,
            Format::Warc
                | Format::Wet
                | Format::Wat
                | Format::Html
                | Format::Epub
                | Format::Docx
                | Format::Odt
                | Format::Pdf
                | Format::Latex
                | Format::Wacz
                | Format::Zim
                | Format::Text
        );
        // a part names itself
        is_plain && self.split == Split::File
    }

    /// The byte between the fields of a table.
    pub(crate) fn table_delimiter(&self) -> u8 {
        match (self.format, self.delimiter.as_bytes()) {
            (Format::Tsv, _) => b'\t',
            (_, [delimiter]) => *delimiter,
            _ => b',',
        }
    }

    /// Whether a table's column of this name has the text.
    pub(crate) fn is_text_column(&self, name: &str) -> bool {
        match self.text_key.names() {
            [] => name == "text" || name == "content",
            names => names.iter().any(|wanted| wanted == name),
        }
    }

    /// Those of a table's columns that have the text.
    pub(crate) fn text_columns<'n>(&self, columns: &[&'n str]) -> Vec<&'n str> {
        let mut found: Vec<&str> = columns.to_vec();
        found.retain(|name| self.is_text_column(name));
        // the parser takes `content` where there is no `text`
        if self.text_key.names().is_empty() && found.contains(&"text") {
            found.retain(|name| *name == "text");
        }
        found
    }

    /// Whether its records have fields.
    fn has_fields(&self) -> bool {
        match self.format {
            Format::Auto
            | Format::Jsonl
            | Format::Dolma
            | Format::Parquet
            | Format::Arrow
            | Format::Csv
            | Format::Tsv => true,
            Format::Warc
            | Format::Wet
            | Format::Wat
            | Format::Html
            | Format::Wikipedia
            | Format::Epub
            | Format::Docx
            | Format::Odt
            | Format::Pdf
            | Format::Latex
            | Format::Wacz
            | Format::Zim
            | Format::Text => false,
        }
    }

    /// Fields that the settings name, each with its key: those of `text_key`, `id_key` and `keep_fields`.
    pub(crate) fn named_fields(&self) -> Vec<(&'static str, &str)> {
        let keys = [
            ("text_key", self.text_key.names()),
            ("id_key", self.id_key.names()),
        ];
        let kept = self.keep_fields.as_deref().unwrap_or_default();
        let keys = keys.into_iter().chain([("keep_fields", kept)]);
        let named =
            keys.flat_map(|(key, names)| names.iter().map(move |name| (key, name.as_str())));
        named.collect()
    }

    /// Whether it is a part of Common Crawl (`cc:...`), whose servers are asked for little at once.
    pub fn is_crawl(&self) -> bool {
        is_crawl(&self.path)
    }

    /// The format of a crawl's files, or what is wrong with its address; None for another input.
    pub(crate) fn crawl_format(&self) -> Option<Result<Format, Wrong>> {
        let of_kind = |kind| match kind {
            Kind::Warc => Format::Warc,
            Kind::Wet => Format::Wet,
            Kind::Wat => Format::Wat,
        };
        let is_crawl = self.is_crawl();
        is_crawl.then(|| kind_of_crawl(&self.path).map(of_kind))
    }

    /// Reports a split or a configuration that is none, or of a crawl.
    fn check_dataset(&self, problem: Problem<'_>) {
        for (key, value) in [
            ("dataset_split", &self.dataset_split),
            ("dataset_config", &self.dataset_config),
        ] {
            let Some(value) = value else { continue };
            if value.is_empty() {
                problem(key, "\"\"".to_string(), "a name, or no such key for all");
            }
            if self.is_crawl() {
                let wanted = "none beside path = \"cc:...\", or a folder as path";
                problem(key, format!("{value:?}"), wanted);
            }
        }
    }

    /// Reports what is wrong with the address of a crawl.
    fn check_crawl(&self, problem: Problem<'_>) {
        let Some(format) = self.crawl_format() else {
            return;
        };
        match format {
            Err(wrong) => problem("path", wrong.found, wrong.wanted),
            Ok(format) if format == self.format || self.format == Format::Auto => {}
            Ok(format) => {
                let found = format!("\"{:?}\"", self.format).to_lowercase();
                let wanted = format!("\"{format:?}\", as path says, or \"auto\"").to_lowercase();
                problem("format", found, &wanted);
            }
        }
        if !self.prefix.is_empty() {
            let wanted = "none beside path = \"cc:...\", which has base=URL among its options";
            problem("prefix", format!("{:?}", self.prefix), wanted);
        }
    }

    /// Reports every contradiction.
    pub fn check(&self, problem: Problem<'_>) {
        if self.path.is_empty() {
            problem("path", "\"\"".to_string(), "a file or folder");
        }
        self.check_crawl(problem);
        self.check_dataset(problem);
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if self.source.is_empty() || !self.source.chars().all(plain) {
            problem(
                "source",
                format!("{:?}", self.source),
                "letters, digits, '-', '_' or '.' (it is part of document ids)",
            );
        }
        for (key, names) in [
            ("text_key", self.text_key.names()),
            ("id_key", self.id_key.names()),
        ] {
            if !names.is_empty() && !self.has_fields() {
                let wanted = "none, or format = \"jsonl\", \"dolma\", \"parquet\", \"arrow\", \"csv\", \"tsv\" or \"auto\"";
                problem(key, format!("{names:?}"), wanted);
            }
            if names.iter().any(String::is_empty) {
                problem(key, format!("{names:?}"), "names of fields");
            }
        }
        if self.running_lines && !matches!(self.format, Format::Pdf | Format::Auto) {
            let wanted = "false, or format = \"pdf\" or \"auto\"";
            problem("running_lines", "true".to_string(), wanted);
        }
        let splits = match self.split {
            Split::File => true,
            Split::Page => matches!(self.format, Format::Pdf | Format::Auto),
            Split::Chapter => matches!(self.format, Format::Epub | Format::Auto),
        };
        if !splits {
            let found = format!("{:?}", self.split).to_lowercase();
            let wanted = "\"file\"; or \"page\" of format = \"pdf\", \"chapter\" of \"epub\"; or format = \"auto\"";
            problem("split", found, wanted);
        }
        if self.bibliography && !matches!(self.format, Format::Latex | Format::Auto) {
            let wanted = "false, or format = \"latex\" or \"auto\"";
            problem("bibliography", "true".to_string(), wanted);
        }
        let is_one =
            matches!(self.delimiter.as_bytes(), [b] if b.is_ascii() && !b"\"\r\n\0".contains(b));
        if !is_one {
            let wanted = "one ASCII character, no quote and no line feed";
            problem("delimiter", format!("{:?}", self.delimiter), wanted);
        } else if self.delimiter != COMMA && !matches!(self.format, Format::Csv | Format::Auto) {
            let wanted = "\",\", or format = \"csv\" or \"auto\"";
            problem("delimiter", format!("{:?}", self.delimiter), wanted);
        }
        let dolma = self.format == Format::Dolma;
        if !dolma && !self.attributes.is_empty() {
            let found = format!("{:?}", self.attributes);
            problem("attributes", found, "none, or format = \"dolma\"");
        }
        for (i, name) in self.attributes.iter().enumerate() {
            let outside = |part: &str| matches!(part, "" | "." | "..");
            if name.split('/').any(outside) {
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
