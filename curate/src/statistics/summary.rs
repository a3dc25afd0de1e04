//! Summary of the statistics as rows: for people (`statistics.json`) and for queries (`statistics.parquet`).
//!
//! A row is one metric of one part of the corpus: a source, a language, both, all of it, or a value of a `group` step. Parts
//! of sources and languages are merged from their pairs, which is exact.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use serde::Serialize;
use serde_json::json;

use super::{Distribution, Frequent, GroupMetrics, GroupValues, OTHERS, State, Statistics};
use crate::error::{At, Result};
use crate::write::{AtomicFile, OutputFile};

/// Quantiles reported for distributions, with their names.
pub const QUANTILES: [(f64, &str); 9] = [
    (0.01, "p01"),
    (0.05, "p05"),
    (0.10, "p10"),
    (0.25, "p25"),
    (0.50, "p50"),
    (0.75, "p75"),
    (0.90, "p90"),
    (0.95, "p95"),
    (0.99, "p99"),
];
/// Bins of the histograms of the whole.
const BINS: usize = 8;
/// Names listed in the summary.
const LISTED: usize = 1000;
/// Values of a group listed in `statistics.json`; `statistics.parquet` has all that are held.
const LISTED_VALUES: usize = 100;

/// One metric of a part of the corpus.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Kept or dropped.
    pub state: State,
    /// None: all sources.
    pub source: Option<String>,
    /// None: all languages; empty: documents that no language step saw.
    pub language: Option<String>,
    /// Name of a `group` step, if the part is one of its values.
    pub by: Option<String>,
    /// The value; `(others)`: of all that are not listed.
    pub group: Option<String>,
    /// Name of the metric: of `TEXT_METRICS`, or of a rule.
    pub figure: String,
    /// The values.
    #[serde(skip)]
    pub values: Distribution,
}

impl Row {
    fn json(&self) -> serde_json::Value {
        let v = &self.values;
        let (least, most) = v.range().unwrap_or_default();
        let quantiles: BTreeMap<&str, f64> = QUANTILES
            .iter()
            .filter_map(|(share, name)| Some((*name, v.quantile(*share)?)))
            .collect();
        let mut row = json!({
            "state": self.state, "source": self.source, "language": self.language, "figure": self.figure,
            "documents": v.count(), "sum": v.sum(), "mean": v.mean(), "min": least, "max": most,
            "exact": v.is_exact(), "quantiles": quantiles,
        });
        if let (Some(by), Some(group)) = (&self.by, &self.group) {
            row["by"] = json!(by);
            row["group"] = json!(group);
        } else if self.source.is_none() && self.language.is_none() {
            row["histogram"] = json!(v.histogram(BINS));
        }
        row
    }
}

impl Statistics {
    /// Rows of the whole, of each source, of each language, of each pair; by state, source, language and metric.
    pub fn rows(&self) -> Vec<Row> {
        type Part = (State, Option<String>, Option<String>);
        let mut parts: BTreeMap<Part, BTreeMap<&str, Distribution>> = BTreeMap::new();
        for (group, figures) in &self.groups {
            let (source, language) = (Some(&group.source), Some(&group.language));
            for (source, language) in [
                (None, None),
                (source, None),
                (None, language),
                (source, language),
            ] {
                let part = (group.state, source.cloned(), language.cloned());
                let into = parts.entry(part).or_default();
                for (name, figure) in figures {
                    into.entry(name).or_default().merge(figure);
                }
            }
        }
        let mut rows = Vec::new();
        for ((state, source, language), figures) in parts {
            for (figure, values) in figures {
                rows.push(Row {
                    state,
                    source: source.clone(),
                    language: language.clone(),
                    by: None,
                    group: None,
                    figure: figure.to_string(),
                    values,
                });
            }
        }
        rows
    }

    /// Each `group` step whose values have metrics: its name, the state, its values.
    pub fn groups(&self) -> impl Iterator<Item = (&str, State, &GroupValues)> {
        self.by.all()
    }

    /// Rows of every held value of every `group` step, `(others)` last, by name, state, documents and metric.
    pub fn group_rows(&self) -> Vec<Row> {
        self.groups()
            .flat_map(|(by, state, values)| rows_of(by, state, values, usize::MAX))
            .collect()
    }

    /// Hosts of kept documents.
    pub fn hosts(&self) -> &Frequent {
        &self.names.hosts
    }

    /// Public suffixes of kept documents' hosts.
    pub fn suffixes(&self) -> &Frequent {
        &self.names.suffixes
    }

    /// Distinct counts (hosts, addresses, texts) of the kept documents, each with whether it is exact.
    pub fn different(&self) -> [(&'static str, u64, bool); 3] {
        let n = &self.names;
        [
            ("hosts", &n.different_hosts),
            ("addresses", &n.different_addresses),
            ("texts", &n.different_texts),
        ]
        .map(|(name, d)| (name, d.count(), d.is_exact()))
    }

    /// Writes `statistics.json` and `statistics.parquet` under `out`.
    ///
    /// # Errors
    /// `Io`.
    pub fn summarize(&self, out: &Path) -> Result<[OutputFile; 2]> {
        let rows = self.rows();
        let names = |f: &Frequent| {
            let top = f.top(LISTED).into_iter();
            let rows: Vec<_> = top
                .map(|(name, n, chars)| json!({"name": name, "documents": n, "chars": chars}))
                .collect();
            json!({"documents": f.documents(), "most_too_small_by": f.error(), "first": rows})
        };
        let different: BTreeMap<&str, _> = self
            .different()
            .into_iter()
            .map(|(name, n, exact)| (name, json!({"count": n, "exact": exact})))
            .collect();
        let groups: Vec<_> = self
            .groups()
            .map(|(by, state, values)| group_json(by, state, values))
            .collect();
        let page = json!({
            "different": different,
            "groups": groups,
            "hosts": names(self.hosts()),
            "suffixes": names(self.suffixes()),
            "figures": rows.iter().map(Row::json).collect::<Vec<_>>(),
        });
        let mut file = AtomicFile::create(out, "statistics.json")?;
        let path = file.path();
        serde_json::to_writer(&mut file, &page)
            .map_err(std::io::Error::from)
            .at(&path)?;
        file.write_all(b"\n").at(&path)?;
        let rows: Vec<Row> = rows.into_iter().chain(self.group_rows()).collect();
        Ok([file.finish()?, write_parquet(&rows, out)?])
    }
}

/// Rows of the first `most` values of a group, and of all others together if there are any.
fn rows_of(by: &str, state: State, values: &GroupValues, most: usize) -> Vec<Row> {
    let top = values.top();
    let listed = &top[..top.len().min(most)];
    let mut others = values.others();
    for (_, metrics) in &top[listed.len()..] {
        others.merge(metrics);
    }
    let mut rows = Vec::new();
    let mut add = |value: &str, metrics: &GroupMetrics| {
        for (figure, values) in &metrics.figures {
            rows.push(Row {
                state,
                source: None,
                language: None,
                by: Some(by.to_string()),
                group: Some(value.to_string()),
                figure: figure.clone(),
                values: values.clone(),
            });
        }
    };
    for (value, metrics) in listed {
        add(value, metrics);
    }
    add(OTHERS, &others);
    rows
}

/// A group in `statistics.json`.
fn group_json(by: &str, state: State, values: &GroupValues) -> serde_json::Value {
    let rows = rows_of(by, state, values, LISTED_VALUES);
    json!({
        "by": by, "state": state, "most_too_small_by": values.error(),
        "figures": rows.iter().map(Row::json).collect::<Vec<_>>(),
    })
}

fn schema() -> String {
    let mut fields = String::new();
    for (_, name) in QUANTILES {
        fields += &format!("required double {name}; ");
    }
    format!(
        "message figure {{ required binary state (UTF8); optional binary source (UTF8); optional binary language (UTF8); \
         required binary figure (UTF8); required int64 documents; required double sum; required double mean; \
         required double min; required double max; required boolean exact; {fields}\
         optional binary by (UTF8); optional binary group (UTF8); }}"
    )
}

fn write_parquet(rows: &[Row], out: &Path) -> Result<OutputFile> {
    let file = AtomicFile::create(out, "statistics.parquet")?;
    let path = file.path();
    let write = || -> std::result::Result<AtomicFile, ParquetError> {
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
            .set_created_by("millrace".to_string())
            .build();
        let schema = Arc::new(parse_message_type(&schema())?);
        let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties))?;
        let mut group = writer.next_row_group()?;
        let states = rows.iter().map(|r| match r.state {
            State::Kept => Some("kept"),
            State::Dropped => Some("dropped"),
        });
        texts(&mut group, states)?;
        texts(&mut group, rows.iter().map(|r| r.source.as_deref()))?;
        texts(&mut group, rows.iter().map(|r| r.language.as_deref()))?;
        texts(&mut group, rows.iter().map(|r| Some(r.figure.as_str())))?;
        let counts: Vec<i64> = rows
            .iter()
            .map(|r| i64::try_from(r.values.count()).unwrap_or(i64::MAX))
            .collect();
        if let Some(mut column) = group.next_column()? {
            column
                .typed::<Int64Type>()
                .write_batch(&counts, None, None)?;
            column.close()?;
        }
        let range = |r: &Row| r.values.range().unwrap_or_default();
        numbers(&mut group, rows.iter().map(|r| r.values.sum()))?;
        numbers(&mut group, rows.iter().map(|r| r.values.mean()))?;
        numbers(&mut group, rows.iter().map(|r| range(r).0))?;
        numbers(&mut group, rows.iter().map(|r| range(r).1))?;
        let exact: Vec<bool> = rows.iter().map(|r| r.values.is_exact()).collect();
        if let Some(mut column) = group.next_column()? {
            column.typed::<BoolType>().write_batch(&exact, None, None)?;
            column.close()?;
        }
        for (share, _) in QUANTILES {
            let of = |r: &Row| r.values.quantile(share).unwrap_or_default();
            numbers(&mut group, rows.iter().map(of))?;
        }
        texts(&mut group, rows.iter().map(|r| r.by.as_deref()))?;
        texts(&mut group, rows.iter().map(|r| r.group.as_deref()))?;
        group.close()?;
        writer.into_inner()
    };
    write()
        .map_err(|e| match e {
            ParquetError::External(e) => std::io::Error::other(e),
            e => std::io::Error::other(e.to_string()),
        })
        .at(&path)?
        .finish()
}

type Group<'a> = SerializedRowGroupWriter<'a, AtomicFile>;

fn texts<'a>(
    group: &mut Group,
    values: impl Iterator<Item = Option<&'a str>>,
) -> std::result::Result<(), ParquetError> {
    let values: Vec<Option<&str>> = values.collect();
    let levels: Vec<i16> = values.iter().map(|v| i16::from(v.is_some())).collect();
    let present: Vec<ByteArray> = values.into_iter().flatten().map(ByteArray::from).collect();
    if let Some(mut column) = group.next_column()? {
        // a required column has no levels; the library ignores those it gets
        column
            .typed::<ByteArrayType>()
            .write_batch(&present, Some(&levels), None)?;
        column.close()?;
    }
    Ok(())
}

fn numbers(
    group: &mut Group,
    values: impl Iterator<Item = f64>,
) -> std::result::Result<(), ParquetError> {
    let values: Vec<f64> = values.collect();
    if let Some(mut column) = group.next_column()? {
        column
            .typed::<DoubleType>()
            .write_batch(&values, None, None)?;
        column.close()?;
    }
    Ok(())
}
