//! Datasets, sample order and blends equal megatron-core's, bit for bit (`data/megatron_samples.json`).

use index::{BlendRequest, Dataset, DatasetWriter, Part, RandomState, TokenType};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::Path;
use std::sync::Arc;

const GOLDEN: &str = include_str!("../data/megatron_samples.json");

fn sha(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect()
}

/// The formula of `oracles/megatron_samples.py`.
fn write(prefix: &Path, seed: u32, documents: u64) {
    let mut random = RandomState::new(seed);
    let lengths: Vec<u64> = (0..documents).map(|_| random.bounded(38) + 1).collect();
    let mut writer = DatasetWriter::create(prefix, TokenType::U16).unwrap();
    for (i, length) in (0u64..).zip(lengths) {
        let token = |j| {
            if j + 1 == length {
                0
            } else {
                (31 * i + 7 * j + u64::from(seed)) % 997 + 1
            }
        };
        let tokens = (0..length).map(|j| u16::try_from(token(j)).unwrap());
        let bytes: Vec<u8> = tokens.flat_map(u16::to_le_bytes).collect();
        writer
            .documents(&bytes, &[u32::try_from(length).unwrap()])
            .unwrap();
    }
    writer.finish().unwrap();
}

fn number(v: &Value) -> u64 {
    v.as_u64().unwrap()
}

#[test]
fn dataset_files_have_megatrons_bytes() {
    let golden: Value = serde_json::from_str(GOLDEN).unwrap();
    let dir = tempfile::tempdir().unwrap();
    for (name, file) in golden["files"].as_object().unwrap() {
        let prefix = dir.path().join(name);
        write(
            &prefix,
            u32::try_from(number(&file["seed"])).unwrap(),
            number(&file["documents"]),
        );
        let read =
            |suffix: &str| std::fs::read(dir.path().join(format!("{name}{suffix}"))).unwrap();
        assert_eq!(sha(&read(".bin")), file["bin"], "{name}.bin");
        assert_eq!(sha(&read(".idx")), file["idx"], "{name}.idx");
    }
}

#[test]
fn every_index_array_and_sample_of_every_blend_is_megatrons() {
    let golden: Value = serde_json::from_str(GOLDEN).unwrap();
    let dir = tempfile::tempdir().unwrap();
    for (name, file) in golden["files"].as_object().unwrap() {
        let prefix = dir.path().join(name);
        write(
            &prefix,
            u32::try_from(number(&file["seed"])).unwrap(),
            number(&file["documents"]),
        );
    }
    let mut compared = 0;
    for case in golden["cases"].as_array().unwrap() {
        let names = case["datasets"].as_array().unwrap();
        let weights = case["weights"].as_array().unwrap();
        let datasets: Vec<_> = names
            .iter()
            .zip(weights)
            .map(|(n, w)| {
                let dataset = Dataset::open(&dir.path().join(n.as_str().unwrap())).unwrap();
                (Arc::new(dataset), w.as_f64().unwrap())
            })
            .collect();
        let samples = [0, 1, 2].map(|i| Some(number(&case["samples"][i])));
        let seed = u32::try_from(number(&case["seed"])).unwrap();
        let seq_length = number(&case["seq_length"]);
        let split = case["split"].as_str().unwrap();
        let request = BlendRequest::of(&datasets, split, samples, seq_length, seed);
        let parts = index::build_blend(&request).unwrap();
        for (part, blend) in Part::ALL.into_iter().zip(&parts) {
            let want = &case["splits"][part.name()];
            let Some(blend) = blend else {
                assert!(want.is_null(), "{} is missing", part.name());
                continue;
            };
            let label = format!("{} of {names:?}", part.name());
            compare(blend, want, seq_length, &label);
            compared += 1;
        }
    }
    assert_eq!(compared, 12, "splits compared");
}

fn compare(blend: &index::Blend, want: &Value, seq_length: u64, label: &str) {
    assert_eq!(blend.len(), number(&want["len"]), "{label}: length");
    let which: Vec<u8> = blend
        .dataset_index()
        .iter()
        .flat_map(|d| d.to_le_bytes())
        .collect();
    let sample: Vec<u8> = blend
        .dataset_sample_index()
        .iter()
        .flat_map(|s| s.to_le_bytes())
        .collect();
    assert_eq!(sha(&which), want["dataset_index"], "{label}: dataset_index");
    assert_eq!(
        sha(&sample),
        want["dataset_sample_index"],
        "{label}: dataset_sample_index"
    );
    for (d, want) in blend
        .datasets()
        .iter()
        .zip(want["datasets"].as_array().unwrap())
    {
        assert_eq!(d.len(), number(&want["len"]), "{label}: dataset length");
        let i = d.indices();
        let arrays = [
            i.document_index.bytes(),
            i.sample_index.bytes(),
            i.shuffle_index.bytes(),
        ];
        for (bytes, name) in arrays
            .iter()
            .zip(["document_index", "sample_index", "shuffle_index"])
        {
            assert_eq!(sha(bytes), want[name], "{label}: {name}");
        }
    }
    let mut tokens = vec![0; usize::try_from(seq_length).unwrap() + 1];
    for (k, want) in (0u64..).zip(want["samples"].as_array().unwrap()) {
        let dataset = blend.read(k, &mut tokens).unwrap();
        assert_eq!(
            dataset as u64,
            number(&want["dataset"]),
            "{label}: dataset of sample {k}"
        );
        let want: Vec<u64> = want["tokens"]
            .as_array()
            .unwrap()
            .iter()
            .map(number)
            .collect();
        assert!(
            tokens.iter().map(|t| u64::from(*t)).eq(want),
            "{label}: tokens of sample {k}"
        );
    }
}
