//! Tests that BERT and T5 samples equal megatron-core's, bit for bit (`data/megatron_masked.json`).

use crate::megatron::{Hash, number};
use index::cache::Cache;
use index::dataset::Dataset;
use index::numpy_random::RandomState;
use index::samples::{BertSamples, MaskTokens, MaskedRequest, Masking, Request, T5Samples};
use index::split::{self, Part};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;

const GOLDEN: &str = include_str!("../data/megatron_masked.json");

fn golden() -> Value {
    serde_json::from_str(GOLDEN).unwrap()
}

/// The formula of `oracles/megatron_masked.py`; the index file by its byte table, since our writer has one sequence
/// per document.
fn write(prefix: &Path) -> u64 {
    let mut random = RandomState::new(42);
    let (mut lengths, mut boundaries, mut bin) = (Vec::new(), vec![0u64], Vec::new());
    for i in 0..400u64 {
        let count = random.bounded(8);
        for n in 0..count {
            let drawn = if (i, n) == (7, 0) {
                599
            } else {
                random.bounded(58)
            };
            let s = lengths.len() as u64;
            for j in 0..=drawn {
                bin.extend_from_slice(
                    &u16::try_from(10 + (7 * s + 13 * j) % 490)
                        .unwrap()
                        .to_le_bytes(),
                );
            }
            lengths.push(u32::try_from(drawn + 1).unwrap());
        }
        boundaries.push(lengths.len() as u64);
    }
    let mut idx = b"MMIDIDX\0\0".to_vec();
    idx.extend_from_slice(&1u64.to_le_bytes());
    idx.push(8);
    idx.extend_from_slice(&(lengths.len() as u64).to_le_bytes());
    idx.extend_from_slice(&(boundaries.len() as u64).to_le_bytes());
    lengths
        .iter()
        .for_each(|l| idx.extend_from_slice(&l.to_le_bytes()));
    let mut at = 0u64;
    for l in &lengths {
        idx.extend_from_slice(&at.to_le_bytes());
        at += 2 * u64::from(*l);
    }
    boundaries
        .iter()
        .for_each(|b| idx.extend_from_slice(&b.to_le_bytes()));
    std::fs::write(prefix.with_extension("bin"), bin).unwrap();
    std::fs::write(prefix.with_extension("idx"), idx).unwrap();
    lengths.len() as u64
}

fn tokens(pad: &Value) -> Arc<MaskTokens> {
    Arc::new(MaskTokens {
        cls: 1,
        sep: 2,
        mask: 3,
        pad: pad.as_u64().map(|p| u32::try_from(p).unwrap()),
        bos: 4,
        eos: 5,
        sentinels: (500..560).collect(),
        vocabulary: (0..500).collect(),
        continues: (0..500).map(|i| i % 3 == 0).collect(),
    })
}

fn masking(case: &Value) -> Masking {
    let is = |key: &str| case[key].as_bool().unwrap();
    Masking {
        probability: case["probability"].as_f64().unwrap(),
        short_probability: case["short_probability"].as_f64().unwrap(),
        max_ngram: usize::try_from(number(&case["max_ngram"])).unwrap(),
        full_word: is("full_word"),
        permutation: is("permutation"),
        longer_ngrams: is("longer_ngrams"),
        geometric: is("geometric"),
    }
}

fn wide(v: &[i32]) -> Vec<i64> {
    v.iter().map(|x| i64::from(*x)).collect()
}

/// Rows of the sample index and a hash of the first 60 items.
fn build(case: &Value, r: &MaskedRequest) -> (Vec<[u32; 3]>, String) {
    let mut hash = Hash::new();
    if case["kind"] == "bert" {
        let bert = BertSamples::new(r, case["head"].as_bool().unwrap()).unwrap();
        for k in 0..bert.len().min(60) {
            let i = bert.item(k).unwrap();
            hash.numbers(wide(&i.text))
                .numbers(wide(&i.types))
                .numbers(wide(&i.labels));
            hash.numbers([i64::from(i.is_random)]);
            hash.numbers(wide(&i.padding_mask))
                .numbers(wide(&i.loss_mask));
            hash.numbers([i64::from(i.truncated)]);
        }
        return (bert.sample_index().to_vec(), hash.hex());
    }
    let t5 = T5Samples::new(r, u32::try_from(number(&case["decoder"])).unwrap()).unwrap();
    for k in 0..t5.len().min(60) {
        let i = t5.item(k).unwrap();
        hash.numbers(wide(&i.text_enc))
            .numbers(wide(&i.text_dec))
            .numbers(wide(&i.labels));
        hash.numbers(wide(&i.loss_mask))
            .numbers([i64::from(i.truncated)]);
        hash.numbers(wide(&i.enc_mask)).numbers(wide(&i.dec_mask));
    }
    (t5.sample_index().to_vec(), hash.hex())
}

#[test]
fn every_sample_map_and_item_of_bert_and_t5_is_megatrons() {
    let golden = golden();
    let dir = tempfile::tempdir().unwrap();
    let prefix = dir.path().join("s");
    assert_eq!(write(&prefix), number(&golden["sentences"]));
    let idx = std::fs::read(dir.path().join("s.idx")).unwrap();
    assert_eq!(Hash::new().add(&idx).hex(), golden["idx"], "s.idx");
    let dataset = Arc::new(Dataset::open(&prefix).unwrap());
    let mut compared = 0;
    for (c, case) in golden["cases"].as_array().unwrap().iter().enumerate() {
        let split = case["split"].as_str().unwrap();
        let bounds = split::parse(split).unwrap();
        let tokenizer = serde_json::json!({"class": "Toy"});
        let cache = Cache::new(&dir.path().join("cache"), Some(split), tokenizer).unwrap();
        for part in Part::ALL {
            let want = &case["parts"][part.name()];
            if want.is_null() {
                continue;
            }
            let label = format!("{} of case {c}: {case}", part.name());
            let mut r = MaskedRequest {
                dataset: dataset.clone(),
                part,
                bounds: bounds[part as usize].unwrap(),
                seq_length: u32::try_from(number(&case["seq_length"])).unwrap(),
                samples: number(&case["samples"][part as usize]),
                seed: u32::try_from(number(&case["seed"])).unwrap(),
                masking: masking(case),
                tokens: tokens(&case["pad"]),
                cache: None,
            };
            let (rows, items) = build(case, &r);
            assert_eq!(rows.len() as u64, number(&want["len"]), "{label}: length");
            let bytes: Vec<u8> = rows
                .iter()
                .flatten()
                .flat_map(|v| v.to_le_bytes())
                .collect();
            assert_eq!(
                Hash::new().add(&bytes).hex(),
                want["sample_index"],
                "{label}: sample_index"
            );
            assert_eq!(items, want["items"], "{label}: items");
            r.cache = Some(&cache);
            assert_eq!(build(case, &r).0, rows, "{label}: built into the cache");
            assert_eq!(build(case, &r).0, rows, "{label}: from the cache");
            assert_eq!(cache.notes(), [""; 0], "{label}");
            compared += 1;
        }
    }
    assert_eq!(compared, 60, "parts compared");
}

#[test]
fn descriptions_of_bert_and_t5_have_megatrons_hashes() {
    let golden = golden();
    for case in golden["cases"].as_array().unwrap() {
        let cache = Cache::new(
            Path::new("x"),
            case["split"].as_str(),
            serde_json::json!({"class": "Toy"}),
        )
        .unwrap();
        let mut more = serde_json::json!({
            "masking_probability": case["probability"], "short_sequence_probability": case["short_probability"],
            "masking_max_ngram": case["max_ngram"], "masking_do_full_word": case["full_word"],
            "masking_do_permutation": case["permutation"], "masking_use_longer_ngrams": case["longer_ngrams"],
            "masking_use_geometric_distribution": case["geometric"],
        });
        let class = match case["kind"] == "bert" {
            true => {
                more["classification_head"] = case["head"].clone();
                "BERTMaskedWordPieceDataset"
            }
            false => {
                more["sequence_length_decoder"] = case["decoder"].clone();
                "T5MaskedWordPieceDataset"
            }
        };
        for part in Part::ALL {
            let want = &case["parts"][part.name()];
            let samples = Some(number(&case["samples"][part as usize]));
            let seed = u32::try_from(number(&case["seed"])).unwrap();
            let r = Request::of(number(&case["seq_length"]), samples, seed);
            let got = cache.describe_masked(class, Path::new("s"), part, &r, more.clone());
            assert_eq!(
                got.md5,
                want["md5"],
                "{} of {case}\n{}",
                part.name(),
                got.text
            );
        }
    }
}
