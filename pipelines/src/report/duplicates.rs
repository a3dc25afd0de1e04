//! Report section on duplicates: counts, verification, cluster sizes, example clusters and pairs.

use super::html::{excerpt, folded, table};
use super::material::Material;
use super::svg::{Bar, bars};
use super::values::{number, percent, text_value};
use crate::machine::grouped;
use serde_json::Value;

/// Clusters with their members.
pub(super) fn duplicates(m: &Material) -> String {
    let d = m.counts("dedup");
    if !d.is_object() {
        return String::new();
    }
    let mut body = table(
        &[
            "documents",
            "kept",
            "of earlier crawls",
            "exact duplicates",
            "near duplicates",
            "clusters",
            "largest",
        ],
        &[[
            "documents",
            "kept",
            "earlier",
            "exact",
            "fuzzy",
            "clusters",
            "largest_cluster",
        ]
        .map(|k| grouped(number(&d[k])))
        .to_vec()],
    );
    let cuts: Vec<Vec<String>> = (d["cuts"].as_array().into_iter().flatten())
        .map(|cut| {
            let counts = ["pieces", "documents", "hollow", "bytes"];
            let counts = counts.map(|key| grouped(number(&cut[key])));
            [vec![text_value(&cut["rule"])], counts.to_vec()].concat()
        })
        .collect();
    if !cuts.is_empty() {
        let names = [
            "repeats of",
            "pieces compared",
            "documents cut",
            "documents dropped",
            "bytes cut",
        ];
        body += &table(&names, &cuts);
    }
    body += &verified(m, &d["verify"]);
    body += &semantic(d);
    body += &clusters(d);
    let examples = m.job.report.as_ref().map_or(8, |r| r.examples);
    for cluster in m.clusters.iter().take(examples) {
        let members = cluster["members"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        body += &format!(
            "<h3>Cluster of {}</h3>",
            number(&cluster["size"]).max(members.len() as u64)
        );
        let shown = members.iter().filter(|member| member["id"].is_string());
        for member in shown.take(4) {
            let is_kept = member["kept"].as_bool().unwrap_or(false);
            let caption = format!(
                "{}: {} {}",
                if is_kept { "kept" } else { "removed" },
                text_value(&member["id"]),
                text_value(&member["url"])
            );
            let class = if is_kept { "kept" } else { "duplicate" };
            body += &excerpt(class, &caption, &text_value(&member["excerpt"]));
        }
    }
    folded(
        "duplicates",
        "Duplicates",
        "Exact duplicates share a hash of the text; near duplicates share a MinHash band and, if they were verified, reach the similarity limit; documents alike in meaning have nearly the same embedding. One document of each cluster stays.",
        &body,
    )
}

/// Embeddings, clusters of k-means and removals of the semantic deduplication.
fn semantic(d: &Value) -> String {
    let clusters = &d["semantic_clusters"];
    if !clusters.is_object() {
        return String::new();
    }
    let count = |key: &str| grouped(number(&clusters[key]));
    let iterations = match clusters["is_settled"].as_bool() {
        Some(true) => count("iterations"),
        Some(false) | None => format!("{}, not settled", count("iterations")),
    };
    let mut body = "<h3>Alike in meaning</h3>".to_string();
    body += &table(
        &[
            "removed",
            "embeddings",
            "documents without one, kept",
            "clusters of k-means",
            "documents of the largest",
            "iterations",
        ],
        &[vec![
            grouped(number(&d["semantic"])),
            count("embedded"),
            count("unembedded"),
            count("clusters"),
            count("largest_cluster"),
            iterations,
        ]],
    );
    body
}

/// Verification of candidate pairs: counts, histogram of similarities, pairs near the limit.
fn verified(m: &Material, verify: &Value) -> String {
    if !verify.is_object() {
        return String::new();
    }
    let count = |key: &str| grouped(number(&verify[key]));
    let (candidates, removed) = (number(&verify["candidates"]), number(&verify["removed"]));
    let threshold = verify["threshold"].as_f64().unwrap_or(0.0);
    let mut body = format!("<h3>Verified from a similarity of {threshold} on</h3>");
    body += &table(
        &[
            "candidates",
            "alike, removed",
            "not alike, kept",
            "precision of bands alone",
            "pairs compared",
            "comparisons ended by the limit",
            "compared by samples",
            "of earlier crawls, not verified",
        ],
        &[vec![
            count("candidates"),
            count("removed"),
            count("rejected"),
            percent(removed, candidates),
            count("compared"),
            count("capped"),
            count("sampled"),
            count("unverified"),
        ]],
    );
    let similarities = verify["similarities"].as_array().into_iter().flatten();
    let rows = (0u32..).zip(similarities).filter(|(_, n)| number(n) > 0);
    let rows: Vec<Bar> = rows
        .map(|(bin, n)| {
            let from = f64::from(bin) / 20.0;
            Bar {
                name: format!("{from:.2} to {:.2}", from + 0.05),
                value: number(n) as f64,
                label: grouped(number(n)),
                colour: if from >= threshold { "--b" } else { "--a" },
            }
        })
        .collect();
    body += "<p>Compared pairs by similarity (Jaccard, of the shingles).</p>";
    body += &bars(&rows);
    let examples = m.job.report.as_ref().map_or(8, |r| r.examples);
    for is_removed in [true, false] {
        let pairs = m.pairs.iter().filter(|p| p["removed"] == is_removed);
        for pair in pairs.take(examples.div_ceil(2)) {
            let jaccard = pair["jaccard"].as_f64().unwrap_or(0.0);
            let what = if is_removed { "Removed" } else { "Kept both" };
            body += &format!("<h3>{what} at {jaccard:.3}</h3>");
            for (i, document) in pair["documents"]
                .as_array()
                .into_iter()
                .flatten()
                .enumerate()
            {
                let class = if is_removed && i == 1 {
                    "duplicate"
                } else {
                    "kept"
                };
                let id = text_value(&document["id"]);
                let caption = format!("{id} {}", text_value(&document["url"]));
                body += &excerpt(class, &caption, &text_value(&document["excerpt"]));
            }
        }
    }
    body
}

/// Number of clusters by size, and the documents that repeating them would add.
fn clusters(d: &Value) -> String {
    let sizes = d["cluster_sizes"].as_object().into_iter().flatten();
    let mut sizes: Vec<(u64, u64)> = sizes
        .filter_map(|(upper, n)| Some((upper.parse().ok()?, number(n))))
        .collect();
    sizes.sort_unstable();
    if sizes.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = sizes
        .iter()
        .map(|(upper, n)| {
            let name = match upper / 2 + 1 {
                lower if lower < *upper => format!("{lower} to {upper}"),
                _ => upper.to_string(),
            };
            vec![name, grouped(*n)]
        })
        .collect();
    let mut body = table(&["documents of a cluster", "clusters"], &rows);
    let rows = d["rehydration"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let cells = rows.iter().map(|row| {
        let (documents, times) = (number(&row["documents"]), number(&row["times"]));
        vec![
            format!("{} and more", number(&row["from"])),
            grouped(documents),
            times.to_string(),
            grouped(documents * times),
        ]
    });
    let names = [
        "represents",
        "kept documents",
        "repeated (FineWeb-2)",
        "documents then",
    ];
    body += &table(&names, &cells.collect::<Vec<_>>());
    body
}
