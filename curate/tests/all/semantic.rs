//! Semantic deduplication against a naive implementation in f64, for any division into files, budget and interruption.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use curate::Silent;
use curate::classifier::{
    ClassifierModel, Embedding, EmbeddingModel, Models, TextClassifier, TextEmbedder,
};
use curate::corpus::{KeepList, KeepStatus, documents};
use curate::dedup::{
    DedupConfig, DedupReport, ExactConfig, SemanticConfig, SemanticKeep, dedup_with_models,
};
use serde_json::{Value, json};

use crate::dedup::signed;

const WIDTH: usize = 24;

/// A model whose embeddings are the numbers of the text; a text of words has none. Counts texts.
#[derive(Clone, Default)]
struct Numbers(Arc<AtomicUsize>);

impl TextEmbedder for Numbers {
    fn width(&self) -> usize {
        WIDTH
    }

    fn embeddings(&self, texts: &[&str]) -> Result<Vec<Embedding>, String> {
        self.0.fetch_add(texts.len(), Ordering::Relaxed);
        let of = |text: &&str| -> Embedding {
            let found = unit(text).ok_or("words")?;
            #[expect(
                clippy::cast_possible_truncation,
                reason = "rounded to the format of embeddings"
            )]
            Ok(found.into_iter().map(|x| x as f32).collect())
        };
        Ok(texts.iter().map(of).collect())
    }
}

impl Models for Numbers {
    fn classifier(&self, _: &ClassifierModel) -> Result<Box<dyn TextClassifier>, String> {
        Err("no classifier".to_string())
    }

    fn embedder(&self, _: &EmbeddingModel) -> Result<Box<dyn TextEmbedder>, String> {
        Ok(Box::new(self.clone()))
    }
}

/// The vector of length 1 of a text of numbers.
fn unit(text: &str) -> Option<Vec<f64>> {
    let numbers: Result<Vec<f64>, _> = text.split(' ').map(str::parse).collect();
    let numbers = numbers.ok()?;
    let length = numbers.iter().map(|x| x * x).sum::<f64>().sqrt();
    Some(numbers.iter().map(|x| x / length).collect())
}

fn cosine(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Numbers from -1 to 1 that look random, the same everywhere.
fn noise(seed: usize) -> f64 {
    let mut x = (seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

/// Documents around `centres` directions at various distances, and two without an embedding.
fn records(count: usize, centres: usize) -> Vec<Value> {
    let of = |i: usize| {
        let far = 0.1 + 0.25 * (noise(i + 77_000) + 1.0);
        let numbers = (0..WIDTH).map(|k| {
            let centre = noise(1_000_000 + i % centres * WIDTH + k);
            format!("{:.5}", centre + far * noise(i * WIDTH + k))
        });
        let text = numbers.collect::<Vec<_>>().join(" ");
        let source = if i.is_multiple_of(5) { "good" } else { "plain" };
        json!({"id": i.to_string(), "text": text, "source": source})
    };
    let mut all: Vec<Value> = (0..count).map(of).collect();
    all.insert(
        7,
        json!({"id": "words", "text": "no numbers at all", "source": "plain"}),
    );
    all.push(json!({"id": "more", "text": "nor any here", "source": "plain"}));
    all
}

fn semantic(folder: &Path) -> SemanticConfig {
    let model = folder.join("model");
    std::fs::create_dir_all(&model).unwrap();
    SemanticConfig {
        model: model.to_str().unwrap().to_string(),
        min_similarity: 0.9,
        ..SemanticConfig::default()
    }
}

fn settings(semantic: SemanticConfig) -> DedupConfig {
    DedupConfig {
        exact: Some(ExactConfig::default()),
        semantic: Some(semantic),
        memory_mb: 16,
        ..DedupConfig::default()
    }
}

/// The document that stays for each one that is removed; and the report.
fn run(
    out: &Path,
    shards: usize,
    settings: &DedupConfig,
    models: &Numbers,
) -> (DedupReport, BTreeMap<String, String>) {
    let report = dedup_with_models(settings, out, shards, models, &Silent).unwrap();
    let sum = report.kept + report.exact + report.semantic;
    assert_eq!(report.documents, sum);
    let ids: Vec<Vec<String>> = (0..shards)
        .map(|shard| {
            let all = documents(out, shard).unwrap();
            all.map(|document| document.unwrap().id).collect()
        })
        .collect();
    let mut removed = BTreeMap::new();
    for (shard, own) in ids.iter().enumerate() {
        let list = KeepList::read(&out.join(format!("keep/{shard:05}.keep"))).unwrap();
        for (number, id) in own.iter().enumerate() {
            match list.status(number) {
                KeepStatus::Kept => {}
                KeepStatus::Semantic(of, document) => {
                    let stays = ids[of as usize][document as usize].clone();
                    removed.insert(id.clone(), stays);
                }
                other => panic!("{id}: {other:?}"),
            }
        }
    }
    assert_eq!(removed.len() as u64, report.semantic);
    (report, removed)
}

/// A document of the naive implementation.
struct Member<'a> {
    id: &'a str,
    is_good: bool,
    at: Vec<f64>,
}

/// SemDeDup over one cluster: whatever is like an earlier document is removed, and the first of a chain stays.
fn naive(records: &[Value], keep: SemanticKeep, least: f64) -> BTreeMap<String, String> {
    let members = records.iter().filter_map(|record| {
        Some(Member {
            id: record["id"].as_str().unwrap(),
            is_good: record["source"] == "good",
            at: unit(record["text"].as_str().unwrap())?,
        })
    });
    let mut members: Vec<Member<'_>> = members.collect();
    let mut centre = vec![0.0; WIDTH];
    for member in &members {
        centre
            .iter_mut()
            .zip(&member.at)
            .for_each(|(sum, x)| *sum += x);
    }
    let length = centre.iter().map(|x| x * x).sum::<f64>().sqrt();
    let likeness = |member: &Member<'_>| match keep {
        SemanticKeep::Hard => cosine(&member.at, &centre) / length,
        SemanticKeep::Easy => -cosine(&member.at, &centre) / length,
        SemanticKeep::First => 0.0,
    };
    members.sort_by(|a, b| {
        let place = |member: &Member<'_>| u8::from(!member.is_good);
        place(a)
            .cmp(&place(b))
            .then(likeness(a).total_cmp(&likeness(b)))
    });
    let mut stays: Vec<usize> = Vec::new();
    let mut removed = BTreeMap::new();
    for (place, member) in members.iter().enumerate() {
        let mut best: Option<(f64, usize)> = None;
        for (other, earlier) in members[..place].iter().enumerate() {
            let similarity = cosine(&member.at, &earlier.at);
            assert!(
                (similarity - least).abs() > 1e-6,
                "too near the limit to compare"
            );
            if similarity > least && best.is_none_or(|(most, _)| similarity > most) {
                best = Some((similarity, other));
            }
        }
        match best {
            None => stays.push(place),
            Some((_, other)) => {
                let first = stays[other];
                stays.push(first);
                removed.insert(member.id.to_string(), members[first].id.to_string());
            }
        }
    }
    removed
}

#[test]
fn in_one_cluster_the_documents_of_a_naive_search_are_removed() {
    let records = records(400, 30);
    let folder = tempfile::tempdir().unwrap();
    let mut found = Vec::new();
    for keep in [SemanticKeep::Hard, SemanticKeep::Easy, SemanticKeep::First] {
        let out = folder.path().join(format!("{keep:?}"));
        let config = SemanticConfig {
            clusters: 1,
            keep,
            ..semantic(folder.path())
        };
        let config = DedupConfig {
            priority: vec!["good".to_string()],
            ..settings(config)
        };
        let shards = signed(&out, &records, 3, &config);
        let (report, removed) = run(&out, shards, &config, &Numbers::default());
        assert_eq!(removed, naive(&records, keep, 0.9), "{keep:?}");
        assert!(
            removed.len() > 50 && removed.len() < 390,
            "{}",
            removed.len()
        );
        let clusters = report.semantic_clusters.unwrap();
        assert_eq!((clusters.embedded, clusters.unembedded), (400, 2));
        assert_eq!((clusters.clusters, clusters.largest_cluster), (1, 400));
        assert!(clusters.is_settled);
        let lines = std::fs::read_to_string(out.join("keep/dropped.jsonl")).unwrap();
        assert_eq!(lines.lines().count(), removed.len());
        assert!(
            lines.contains("\"rule\":\"semantic.min_similarity\""),
            "{lines}"
        );
        found.push(removed);
    }
    assert!(
        found[0] != found[1] && found[1] != found[2],
        "the order counts"
    );
}

#[test]
fn files_threads_and_interruptions_do_not_change_what_is_removed() {
    let records = records(500, 12);
    let folder = tempfile::tempdir().unwrap();
    let of = |clusters, iterations| {
        settings(SemanticConfig {
            clusters,
            iterations,
            ..semantic(folder.path())
        })
    };
    let config = of(0, 4);
    let one = folder.path().join("one");
    let models = Numbers::default();
    let shards = signed(&one, &records, 1, &config);
    let (report, wanted) = run(&one, shards, &config, &models);
    // the square root of 500 / (2 * 4)
    assert_eq!(report.semantic_clusters.unwrap().clusters, 7);
    assert!(wanted.len() > 50, "{}", wanted.len());
    assert_eq!(models.0.swap(0, Ordering::Relaxed), 502);

    let many = folder.path().join("many");
    let shards = signed(&many, &records, 4, &config);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3);
    let found = pool
        .build()
        .unwrap()
        .install(|| run(&many, shards, &config, &models));
    assert_eq!(found.1, wanted);
    assert_eq!(models.0.swap(0, Ordering::Relaxed), 502);

    // the embeddings of a run that was stopped, or had other settings, are used; damaged and absent ones are made again
    let other = of(3, 20);
    let (_, others) = run(&many, shards, &other, &models);
    assert_eq!(models.0.load(Ordering::Relaxed), 0);
    assert_ne!(others, wanted);
    std::fs::remove_file(many.join("embeddings/00001.emb")).unwrap();
    let damaged = many.join("embeddings/00002.emb");
    let mut bytes = std::fs::read(&damaged).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&damaged, bytes).unwrap();
    assert_eq!(run(&many, shards, &config, &models).1, wanted);
    let again = models.0.swap(0, Ordering::Relaxed);
    assert!((248..=252).contains(&again), "two of four shards: {again}");

    // another model: its file differs
    std::fs::write(folder.path().join("model/config.json"), "{}").unwrap();
    assert_eq!(run(&many, shards, &config, &models).1, wanted);
    assert_eq!(models.0.load(Ordering::Relaxed), 502);
}

#[test]
fn a_model_that_cannot_be_used_and_settings_that_cannot_be_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let config = settings(semantic(folder.path()));
    let out = folder.path().join("out");
    let shards = signed(&out, &records(10, 2), 1, &config);
    let error = curate::dedup::dedup(&config, &out, shards, &Silent).unwrap_err();
    let error = error.to_string();
    assert_eq!(
        error,
        "dedup.semantic: this program runs no transformer models"
    );
    let wrong = SemanticConfig {
        model: String::new(),
        min_similarity: f64::NAN,
        iterations: 0,
        batch_tokens: 0,
        clusters: 1 << 30,
        ..SemanticConfig::default()
    };
    let mut found = Vec::new();
    settings(wrong).check(&mut |key, _, _| found.push(key.to_string()));
    let keys = [
        "model",
        "batch_tokens",
        "min_similarity",
        "clusters",
        "iterations",
    ];
    assert_eq!(found, keys.map(|key| format!("semantic.{key}")));
}
