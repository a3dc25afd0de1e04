//! Report section on tokens: datasets, their lengths and vocabularies, and the parts that the blend reads.

use super::html::{escape, folded, table};
use super::material::Material;
use super::svg::{Bar, bars};
use super::values::{number, percent, text_value};
use crate::machine::{grouped, megabytes};
use index::dataset::{Lengths, Sidecar};
use index::tokenizer::Tokenizer;
use serde_json::Value;

/// Most frequent tokens shown per dataset.
const TOP: usize = 15;
/// Languages shown per dataset.
const GROUPS: usize = 12;

pub(super) fn dataset_counts(m: &Material) -> Vec<(String, Value)> {
    let records = m.manifest.as_object().into_iter().flatten();
    let named = records.filter_map(|(k, r)| Some((k.strip_prefix("tokenize/")?, r)));
    named
        .filter(|(k, _)| *k != "tokenizer" && !k.contains('/'))
        .map(|(k, r)| (k.to_string(), r["counts"].clone()))
        .collect()
}

/// Datasets and the blend.
pub(super) fn data(m: &Material) -> String {
    let datasets = dataset_counts(m);
    if datasets.is_empty() && !m.blend.is_object() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = datasets
        .iter()
        .map(|(name, c)| {
            let (bytes, tokens) = (number(&c["text_bytes"]), number(&c["tokens"]));
            vec![
                name.clone(),
                grouped(number(&c["documents"])),
                grouped(tokens),
                megabytes(bytes),
                format!("{:.2}", bytes as f64 / tokens.max(1) as f64),
            ]
        })
        .collect();
    let mut body = table(
        &["dataset", "documents", "tokens", "text", "bytes per token"],
        &rows,
    );
    for sidecar in &m.sidecars {
        body += &statistics(sidecar, m.tokenizer.as_ref());
    }
    for part in m.blend["parts"].as_array().into_iter().flatten() {
        body += &format!(
            "<h3>Blend: {}, {} samples</h3>",
            escape(&text_value(&part["part"])),
            grouped(number(&part["samples"]))
        );
        let mut rows = Vec::new();
        for d in part["datasets"].as_array().into_iter().flatten() {
            let share = |k: &str| d[k].as_f64().unwrap_or(0.0);
            for (key, colour) in [("asked", "--quiet"), ("realised", "--a")] {
                rows.push(Bar {
                    name: format!("{} {key}", text_value(&d["name"])),
                    value: share(key),
                    label: format!("{:.2}%", 100.0 * share(key)),
                    colour,
                });
            }
        }
        body += &bars(&rows);
        let rows: Vec<Vec<String>> = part["datasets"]
            .as_array()
            .into_iter()
            .flatten()
            .map(blend_row)
            .collect();
        body += &table(
            &["dataset", "tokens read", "tokens an epoch", "epochs"],
            &rows,
        );
    }
    folded(
        "data",
        "Data",
        "Token datasets, and what training reads of them: shares by weight and realised shares.",
        &body,
    )
}

/// Lengths, vocabulary and groups of one dataset.
fn statistics(s: &Sidecar, tokenizer: Option<&Tokenizer>) -> String {
    let Some(statistics) = &s.statistics else {
        return String::new();
    };
    let mut body = format!(
        "<h3>Tokens of {}</h3>",
        escape(&text_value(&s.dataset["name"]))
    );
    let mut head = vec!["lengths in tokens", "mean"];
    let names: Vec<String> = statistics
        .document_lengths
        .percentiles
        .iter()
        .map(|(p, _)| match p {
            0 => "least".into(),
            50 => "median".into(),
            100 => "most".into(),
            p => format!("{p}%"),
        })
        .collect();
    head.extend(names.iter().map(String::as_str));
    let mut rows = vec![lengths("documents", &statistics.document_lengths)];
    if s.sequences != s.documents - s.empty_documents {
        rows.push(lengths("sequences", &statistics.sequence_lengths));
    }
    body += &table(&head, &rows);
    let v = &statistics.vocabulary;
    body += &format!(
        "<p>{} of {} entries occur ({}), {} of them once; {} never do. Entropy of single tokens {:.3} bits \
         ({:.3} nats: the loss of a model that knows frequencies alone).</p>",
        grouped(v.used),
        grouped(v.size as u64),
        percent(v.used, v.size as u64),
        grouped(v.once),
        grouped(v.unused),
        v.entropy_bits,
        v.entropy_bits * std::f64::consts::LN_2,
    );
    let bar = |(id, n): &(u32, u64)| {
        let text = tokenizer.and_then(|t| t.decode(&[*id]).ok());
        Bar {
            name: text.map_or_else(|| format!("{id}"), |t| format!("{id} {t:?}")),
            value: *n as f64,
            label: format!("{} ({})", grouped(*n), percent(*n, s.tokens)),
            colour: "--a",
        }
    };
    body += &bars(&v.top.iter().take(TOP).map(bar).collect::<Vec<_>>());
    let mut groups = s.groups.clone();
    groups.sort_by_key(|g| std::cmp::Reverse(g.counts.tokens));
    let rows: Vec<Vec<String>> = groups
        .iter()
        .take(GROUPS)
        .map(|g| {
            let language = if g.language.is_empty() {
                "not identified"
            } else {
                &g.language
            };
            vec![
                g.source.clone(),
                language.to_string(),
                grouped(g.counts.documents),
                grouped(g.counts.tokens),
                percent(g.counts.tokens, s.tokens),
                format!(
                    "{:.2}",
                    g.counts.text_bytes as f64 / g.counts.tokens.max(1) as f64
                ),
            ]
        })
        .collect();
    body += &table(
        &[
            "source",
            "language",
            "documents",
            "tokens",
            "share",
            "bytes per token",
        ],
        &rows,
    );
    if groups.len() > GROUPS {
        let rest: u64 = groups[GROUPS..].iter().map(|g| g.counts.tokens).sum();
        body += &format!(
            "<p class=quiet>{} more groups, {} tokens.</p>",
            groups.len() - GROUPS,
            grouped(rest)
        );
    }
    body
}

fn lengths(name: &str, l: &Lengths) -> Vec<String> {
    let mut row = vec![name.to_string(), format!("{:.1}", l.mean)];
    row.extend(l.percentiles.iter().map(|p| grouped(p.1)));
    row
}

fn blend_row(d: &Value) -> Vec<String> {
    vec![
        text_value(&d["name"]),
        grouped(number(&d["tokens"])),
        grouped(number(&d["epoch_tokens"])),
        format!("{:.2}", d["epochs"].as_f64().unwrap_or(0.0)),
    ]
}
