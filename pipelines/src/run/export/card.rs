//! The data card of an export: where the documents come from, what was done to them, and what they hold.

use super::tally::{NONE, Share, Tally};
use crate::job::Job;
use crate::machine::{grouped, megabytes};
use curate::pipeline::ShardReport;
use curate::write::OutputFile;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

/// Rows of a table that are shown, the largest first.
const MOST_ROWS: usize = 50;

/// Facts that a card states.
pub(super) struct Card<'a> {
    pub job: &'a Job,
    /// With front matter.
    pub is_hugging_face: bool,
    pub files: &'a [OutputFile],
    pub tally: &'a Tally,
    pub curated: &'a ShardReport,
    /// Counts of deduplication.
    pub dedup: Option<serde_json::Value>,
}

/// A text in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ")
}

impl Card<'_> {
    /// The card, in Markdown.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        if self.is_hugging_face {
            self.front_matter(&mut text);
        }
        let name = self.name();
        let tally = self.tally;
        let bytes: u64 = self.files.iter().map(|f| f.bytes).sum();
        text += &format!(
            "# {name}\n\n{} documents in {} rows, {} of text, in {} files ({}). Written by millrace {}.\n\n",
            grouped(tally.documents),
            grouped(tally.rows),
            megabytes(tally.text_bytes),
            self.files.len(),
            megabytes(bytes),
            env!("CARGO_PKG_VERSION")
        );
        text += SCHEMA;
        self.counts(&mut text);
        self.inputs(&mut text);
        let mut section = |title: &str, intro: &str, column: &str, shares: &BTreeMap<_, _>| {
            text += &format!("## {title}\n\n{intro}\n\n");
            if !shares.is_empty() {
                text += &table(column, shares);
            }
        };
        section("Sources", "Rows by source.", "source", &tally.sources);
        section(
            "Languages",
            "As the language step labelled the documents; none if no such step ran.",
            "language",
            &tally.languages,
        );
        section(
            "Licences",
            "As the documents' metadata names them (`licenses`, `license` or `licence`). A row may have several. \
             Rows without one may be protected all the same.",
            "licence",
            &tally.licences,
        );
        section(
            "Robots",
            "Directives to robots that the pages have, by rows. Rows without any are not counted here.",
            "directive",
            &tally.robots,
        );
        self.opt_outs(&mut text);
        self.personal(&mut text);
        self.filters(&mut text);
        text
    }

    fn name(&self) -> &str {
        match self.job.name.as_str() {
            "" => "Documents",
            name => name,
        }
    }

    /// The front matter that Hugging Face reads.
    fn front_matter(&self, text: &mut String) {
        let languages: BTreeSet<&str> = (self.tally.languages.keys())
            .map(|code| code.split(['_', '-']).next().unwrap_or(code))
            .filter(|code| (2..=3).contains(&code.len()))
            .filter(|code| code.bytes().all(|b| b.is_ascii_lowercase()))
            .collect();
        *text += "---\n";
        // a JSON string is a YAML string
        *text += &format!("pretty_name: {}\n", serde_json::json!(self.name()));
        if !languages.is_empty() {
            *text += "language:\n";
            // `no` is a boolean where it is not quoted
            languages
                .iter()
                .for_each(|code| *text += &format!("- \"{code}\"\n"));
        }
        *text += &format!(
            "size_categories:\n- {}\ntask_categories:\n- text-generation\n",
            size_category(self.tally.rows)
        );
        *text += "configs:\n- config_name: default\n  data_files:\n  - split: train\n    path: data/train-*.parquet\n---\n\n";
    }

    fn counts(&self, text: &mut String) {
        let (sum, tally) = (self.curated, self.tally);
        let mut rows = vec![("records read".to_string(), sum.records)];
        rows.push(("not readable".into(), sum.quarantined));
        for (rule, count) in &sum.dropped {
            rows.push((format!("dropped by `{}`", cell(rule)), *count));
        }
        rows.push(("kept by the filters".into(), sum.kept));
        let removed = [
            ("earlier", "found in an earlier crawl"),
            ("exact", "exact duplicates"),
            ("fuzzy", "near duplicates"),
            ("url", "of the same address"),
            ("semantic", "of nearly the same embedding"),
            ("hollow", "mostly cut"),
            ("contaminated", "with too much evaluation text"),
        ];
        for (key, words) in removed {
            let count = self.dedup.as_ref().and_then(|d| d[key].as_u64());
            if let Some(count) = count.filter(|count| *count > 0) {
                rows.push((words.into(), count));
            }
        }
        rows.push(("documents kept".into(), tally.documents));
        if tally.emptied > 0 {
            rows.push(("of which the cuts left nothing".into(), tally.emptied));
        }
        rows.push(("rows".into(), tally.rows));
        *text += "## Counts\n\n| | documents |\n|---|---:|\n";
        for (words, count) in rows {
            *text += &format!("| {words} | {} |\n", grouped(count));
        }
        *text += "\n";
    }

    fn inputs(&self, text: &mut String) {
        let inputs = self.job.curate.iter().flat_map(|c| &c.inputs);
        *text += "## Inputs\n\n| source | input | format |\n|---|---|---|\n";
        for input in inputs {
            let shown = curate::secrets::shown(Path::new(&input.path));
            // folders of the machine that made it say nothing to others
            let is_url = curate::store::is_url(Path::new(&input.path)) || shown.contains("://");
            let name = match is_url || input.is_crawl() {
                true => shown,
                false => {
                    let name = Path::new(&input.path).file_name();
                    name.map_or(shown, |n| n.to_string_lossy().into_owned())
                }
            };
            let format = serde_json::to_value(input.format).unwrap_or_default();
            *text += &format!(
                "| {} | `{}` | {} |\n",
                cell(&input.source),
                cell(&name),
                format.as_str().unwrap_or_default()
            );
        }
        *text += "\n";
    }

    fn opt_outs(&self, text: &mut String) {
        let rules = ["opt_out", "takedown"];
        let of_lists = |rule: &str| rules.iter().any(|r| rule.split('.').next() == Some(r));
        let left: u64 = (self.curated.dropped.iter())
            .filter(|(rule, _)| of_lists(rule))
            .map(|(_, count)| count)
            .sum();
        *text += &format!(
            "Documents left out because a list of opt-outs or of takedowns names them: {}.\n\n",
            grouped(left)
        );
    }

    fn personal(&self, text: &mut String) {
        *text += "## Personal data\n\n";
        let has_step = (self.job.curate.iter())
            .flat_map(|c| &c.step)
            .any(|step| step.name() == "pii");
        if !has_step {
            *text += "The job has no step `pii`: personal data was neither searched for nor removed.\n\n";
            return;
        }
        *text += "Pieces that the step `pii` found in documents, kept or dropped, before deduplication:\n\n| rule | pieces |\n|---|---:|\n";
        for (rule, count) in &self.curated.personal {
            *text += &format!("| `{}` | {} |\n", cell(rule), grouped(*count));
        }
        *text += "\n";
    }

    /// The resolved tables that decide which documents stay.
    fn filters(&self, text: &mut String) {
        *text += "## Filters\n\nThe job's tables with every default, in the order in which they apply; the first broken rule drops a document.\n\n```toml\n";
        let job: toml::Table = self.job.to_toml().parse().unwrap_or_default();
        let mut shown = toml::Table::new();
        if let Some(step) = job.get("curate").and_then(|c| c.get("step")) {
            let mut curate = toml::Table::new();
            curate.insert("step".into(), step.clone());
            shown.insert("curate".into(), curate.into());
        }
        for name in ["decontaminate", "dedup"] {
            if let Some(table) = job.get(name) {
                shown.insert(name.into(), table.clone());
            }
        }
        let tables = toml::to_string(&shown).unwrap_or_default();
        writeln!(text, "{}\n```", tables.trim_end()).unwrap_or_default();
    }
}

/// Hugging Face's words for a number of rows.
fn size_category(rows: u64) -> &'static str {
    match rows {
        0..1_000 => "n<1K",
        1_000..10_000 => "1K<n<10K",
        10_000..100_000 => "10K<n<100K",
        100_000..1_000_000 => "100K<n<1M",
        1_000_000..10_000_000 => "1M<n<10M",
        10_000_000..100_000_000 => "10M<n<100M",
        100_000_000..1_000_000_000 => "100M<n<1B",
        1_000_000_000..10_000_000_000 => "1B<n<10B",
        10_000_000_000..100_000_000_000 => "10B<n<100B",
        100_000_000_000..1_000_000_000_000 => "100B<n<1T",
        1_000_000_000_000.. => "n>1T",
    }
}

/// Shares as a table, the largest first.
fn table(column: &str, shares: &BTreeMap<String, Share>) -> String {
    let mut sorted: Vec<(&String, &Share)> = shares.iter().collect();
    sorted.sort_by_key(|(name, share)| (std::cmp::Reverse(share.rows), *name));
    let mut text = format!("| {column} | rows | text |\n|---|---:|---:|\n");
    for (name, share) in sorted.iter().take(MOST_ROWS) {
        let name = match name.as_str() {
            NONE => "none".to_string(),
            name => format!("`{}`", cell(name)),
        };
        text += &format!(
            "| {name} | {} | {} |\n",
            grouped(share.rows),
            megabytes(share.text_bytes)
        );
    }
    if sorted.len() > MOST_ROWS {
        let rest = sorted[MOST_ROWS..].iter().map(|(_, share)| share);
        let (mut rows, mut bytes) = (0, 0);
        rest.for_each(|share| {
            rows += share.rows;
            bytes += share.text_bytes;
        });
        text += &format!(
            "| {} more | {} | {} |\n",
            sorted.len() - MOST_ROWS,
            grouped(rows),
            megabytes(bytes)
        );
    }
    text + "\n"
}

const SCHEMA: &str = "## Schema\n\n\
| column | type | content |\n|---|---|---|\n\
| `id` | string | id of the document; `#1`, `#2` and so on mark the pieces of a document that was cut into several |\n\
| `text` | string | the text |\n\
| `url` | string or null | address of the page |\n\
| `source` | string | input that the document comes from |\n\
| `subset` | string or null | part of that input |\n\
| `language` | string or null | language that was found |\n\
| `metadata` | string or null | everything else, as JSON text |\n\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_list_the_largest_first_and_add_up() {
        let shares: BTreeMap<String, Share> = (0..60)
            .map(|i| {
                let rows = u64::from(i == 7) * 100 + 1;
                let text_bytes = rows;
                (format!("s{i:02}"), Share { rows, text_bytes })
            })
            .collect();
        let text = table("source", &shares);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[2].starts_with("| `s07` | 101 |"), "{text}");
        assert!(text.contains("| 10 more | 10 |"), "{text}");
        assert_eq!(
            lines.iter().filter(|l| l.starts_with("| `s")).count(),
            MOST_ROWS
        );
    }

    #[test]
    fn sizes_have_hugging_faces_names() {
        // https://huggingface.co/docs/hub/datasets-cards, `size_categories`
        assert_eq!(size_category(999), "n<1K");
        assert_eq!(size_category(1000), "1K<n<10K");
        assert_eq!(size_category(5_000_000), "1M<n<10M");
    }
}
