//! Report sections. Each returns an empty string if its stage has not run.

use super::html::{escape, excerpt, folded, section, table, tile};
use super::material::Material;
use super::svg::{Bar, Curve, bars, columns, lines};
use super::tokens::dataset_counts;
use super::values::{is_stage, number, percent, text_value};
use crate::machine::{grouped, megabytes};
use curate::contract::FieldCounts;
use serde_json::Value;

/// Rows shown of a ranking; the others are added up in one row.
const RANKS: usize = 12;

/// A map of counts, largest first, ties by name.
pub(super) fn ranked(v: &Value) -> Vec<(String, u64)> {
    let mut rows: Vec<(String, u64)> = v
        .as_object()
        .into_iter()
        .flatten()
        .map(|(k, v)| (k.clone(), number(v)))
        .collect();
    rows.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    rows
}

/// Bars of a ranking; the rows beyond `RANKS` are added up in one, so that the total stays visible.
fn ranking(v: &Value, colour: &'static str) -> String {
    let rows = ranked(v);
    let whole: u64 = rows.iter().map(|r| r.1).sum();
    let bar = |name: String, n: u64, colour| Bar {
        name,
        value: n as f64,
        label: format!("{} ({})", grouped(n), percent(n, whole)),
        colour,
    };
    let mut out: Vec<Bar> = rows
        .iter()
        .take(RANKS)
        .map(|(k, n)| bar(k.clone(), *n, colour))
        .collect();
    if rows.len() > RANKS {
        let rest = rows[RANKS..].iter().map(|r| r.1).sum();
        out.push(bar(
            format!("{} others", rows.len() - RANKS),
            rest,
            "--quiet",
        ));
    }
    bars(&out)
}

/// Names of the sources, for the page's subtitle.
fn sources(m: &Material) -> String {
    let mut names: Vec<String> = m
        .job
        .curate
        .iter()
        .flat_map(|c| &c.inputs)
        .map(|i| i.source.clone())
        .collect();
    names.dedup();
    if names.is_empty() {
        "existing datasets".into()
    } else {
        names.join(" and ")
    }
}

/// Digits of a commit that are shown.
const COMMIT_DIGITS: usize = 12;

/// The sentence under the job's name: sources, seed, when its last stage ended, where, and the commit in the working directory.
pub(super) fn subtitle(m: &Material) -> String {
    let mut text = format!("From {}, with seed {}", sources(m), m.job.seed);
    if let Some(finished) = m.finished {
        let finished = chrono::DateTime::<chrono::Utc>::from(finished);
        text += &finished
            .format("; last stage ended %Y-%m-%d %H:%M UTC")
            .to_string();
    }
    if let Some(host) = m.process["host"].as_str().filter(|host| !host.is_empty()) {
        text += &format!(" on {host}");
    }
    let commit = m.process["commit"].as_str();
    if let Some(commit) = commit.and_then(|commit| commit.get(..COMMIT_DIGITS)) {
        text += &format!("; started at commit {commit} of the working directory");
    }
    text + "."
}

/// The part that `eval` measured, in words, and its loss.
fn measured(m: &Material) -> Option<(&'static str, f64)> {
    [("validation", "valid_loss"), ("test", "test_loss")]
        .into_iter()
        .find_map(|(part, key)| Some((part, m.eval[key].as_f64()?)))
}

/// Headline figures.
pub(super) fn tiles(m: &Material) -> String {
    let mut out = String::from("<div class=tiles>");
    let curated = m.counts("curate");
    if curated.is_object() {
        out += &tile(&grouped(number(&curated["records"])), "records read");
        out += &tile(&grouped(kept(m)), "documents kept");
    }
    let tokens: u64 = dataset_counts(m)
        .iter()
        .map(|d| number(&d.1["tokens"]))
        .sum();
    if tokens > 0 {
        out += &tile(&grouped(tokens), "tokens");
    }
    let parameters = number(&m.counts("train")["parameters"]);
    if parameters > 0 {
        out += &tile(&grouped(parameters), "parameters");
    }
    if let Some((part, loss)) = measured(m) {
        let name = format!("{part} loss, nats per token");
        out += &tile(&format!("{loss:.3}"), &name);
        let entropy = m.eval["unigram_entropy"].as_f64().unwrap_or(f64::NAN);
        out += &tile(
            &format!("{entropy:.3}"),
            "unigram entropy of the same tokens",
        );
    }
    let stages = || {
        m.manifest
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(k, _)| is_stage(k))
    };
    let seconds: f64 = stages().filter_map(|(_, r)| r["seconds"].as_f64()).sum();
    let memory = stages()
        .map(|(_, r)| number(&r["peak_rss_bytes"]))
        .max()
        .unwrap_or(0);
    out += &tile(&format!("{seconds:.0} s"), "work, all stages");
    out += &tile(&megabytes(memory), "peak memory");
    out + "</div>"
}

pub(super) fn kept(m: &Material) -> u64 {
    let dedup = m.counts("dedup");
    number(if dedup.is_object() {
        &dedup["kept"]
    } else {
        &m.counts("curate")["kept"]
    })
}

/// Languages, hosts, subsets, lengths.
pub(super) fn text(m: &Material) -> String {
    let c = m.counts("curate");
    if !c.is_object() {
        return String::new();
    }
    let lengths: Vec<(String, f64)> = lengths(&c["lengths"]);
    let half = |title: &str, v: &Value, colour| {
        format!(
            "<div><h3>{}</h3>{}</div>",
            escape(title),
            ranking(v, colour)
        )
    };
    let found: String = [
        ("Texts repaired, by repair", "normalized"),
        ("Copies of the text left out of pages", "copies"),
        ("Personal data found", "personal"),
        ("Faulty records that were read", "repaired"),
    ]
    .iter()
    .filter(|(_, key)| c[*key].as_object().is_some_and(|counts| !counts.is_empty()))
    .map(|(title, key)| half(title, &c[*key], "--b"))
    .collect();
    let body = format!(
        "<div class=two>{}{}{}{found}</div>{}<h3>Length of kept documents, characters</h3>{}",
        half("Languages", &c["languages"], "--c"),
        half("Hosts of kept pages", &c["hosts"], "--d"),
        half("Sources", &c["sources"], "--e"),
        absent(&c["fields"]),
        columns("Length of kept documents", &lengths)
    );
    folded(
        "text",
        "Languages and hosts",
        "Languages count every document that the language step saw, kept or not; hosts, sources and lengths the documents that the filters kept.",
        &body,
    )
}

/// Fields that the job names and no document has.
fn absent(fields: &Value) -> String {
    let keys = fields.as_object().into_iter().flatten();
    let rows: Vec<Vec<String>> = keys
        .flat_map(|(key, names)| {
            let names = names.as_object().into_iter().flatten();
            names.filter_map(move |(name, counts)| {
                let counts: FieldCounts = serde_json::from_value(counts.clone()).ok()?;
                counts.absence(name)?;
                Some(vec![
                    format!("curate.{key}"),
                    name.clone(),
                    grouped(counts.documents),
                ])
            })
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let head = ["key", "field", "documents, all without it"];
    format!(
        "<h3>Fields that no document has</h3>{}",
        table(&head, &rows)
    )
}

/// Powers of two as `1k`, in order.
fn lengths(v: &Value) -> Vec<(String, f64)> {
    let entries = v.as_object().into_iter().flatten();
    let mut rows: Vec<(u64, f64)> = entries
        .filter_map(|(k, n)| Some((1u64.checked_shl(k.parse().ok()?)?, number(n) as f64)))
        .collect();
    rows.sort_by_key(|r| r.0);
    let name = |n: u64| {
        if n >= 1024 {
            format!("{}k+", n / 1024)
        } else {
            format!("{n}+")
        }
    };
    rows.into_iter()
        .map(|(n, count)| (name(n), count))
        .collect()
}

/// The value of a key by step, from the lines of the training itself.
pub(super) fn curve(m: &Material, key: &str) -> Vec<(f64, f64)> {
    let point = |l: &Value| Some((l["step"].as_f64()?, l[key].as_f64()?));
    // additional validation sets have separate curves
    let own = m.metrics.iter().filter(|l| l.get("set").is_none());
    own.filter_map(point).collect()
}

/// Loss, throughput, learning rate.
pub(super) fn training(m: &Material) -> String {
    let loss = curve(m, "loss");
    if loss.is_empty() {
        return String::new();
    }
    let one = |name: &str, colour, key: &str| {
        [Curve {
            name: name.into(),
            colour,
            points: curve(m, key),
            dots: false,
        }]
    };
    let curves = [
        Curve {
            name: "training loss".into(),
            colour: "--a",
            points: loss,
            dots: false,
        },
        Curve {
            name: "validation loss".into(),
            colour: "--b",
            points: curve(m, "valid_loss"),
            dots: true,
        },
    ];
    let entropy = m.eval["unigram_entropy"]
        .as_f64()
        .map(|e| (e, "unigram entropy of the tokens of the evaluation"));
    let mut body = lines("Loss by step, nats per token", "step", &curves, entropy);
    if let (Some((part, loss)), Some(unigram)) = (measured(m), m.eval["unigram_entropy"].as_f64()) {
        body += &format!(
            "<p>The {part} loss is <b>{loss:.4}</b> nats per token (perplexity {:.1}) on {} tokens; a model without context cannot go below <b>{unigram:.4}</b>.</p>",
            loss.exp(),
            grouped(number(&m.eval["tokens"]))
        );
    }
    body += "<div class=two><div><h3>Tokens per second</h3>";
    body += &lines(
        "Tokens per second by step",
        "step",
        &one("tokens/s", "--c", "tokens_per_s"),
        None,
    );
    body += "</div><div><h3>Learning rate</h3>";
    body += &lines(
        "Learning rate by step",
        "step",
        &one("learning rate", "--d", "lr"),
        None,
    );
    body += "</div><div><h3>Gradient norm</h3>";
    body += &lines(
        "Gradient norm by step",
        "step",
        &one("gradient norm, before clipping", "--e", "grad_norm"),
        None,
    );
    body += "</div></div>";
    section(
        "training",
        "Training",
        "One point per step; validation on the same samples each time.",
        &body,
    )
}

/// Texts generated by the model.
pub(super) fn generated(m: &Material) -> String {
    let samples = m.generated["samples"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    if samples.is_empty() {
        return String::new();
    }
    let body: String = samples
        .iter()
        .map(|s| {
            let caption = match s["answer_of_data"].as_str() {
                Some(answer) => format!("the data's answer: {answer}"),
                None => format!("prompt: {}", text_value(&s["prompt"])),
            };
            let whole = text_value(&s["prompt"]) + &text_value(&s["text"]);
            excerpt("made", &caption, &whole)
        })
        .collect();
    folded(
        "generated",
        "Generated text",
        "Continuations of the job's prompts, or of its held-out conversations, by the last checkpoint.",
        &body,
    )
}
