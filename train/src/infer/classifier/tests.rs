//! Classifiers against transformers' logits (`tests/oracles/classifiers.py`), for any batch and number of threads; folders
//! that are refused.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::*;

const MODELS: [&str; 6] = [
    "bert",
    "roberta",
    "xlm",
    "distilbert",
    "deberta_v3",
    "deberta_v2",
];

fn folder(name: &str) -> PathBuf {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/classifiers");
    Path::new(data).join(name)
}

struct Golden {
    ids: Vec<u32>,
    /// By the model in f64.
    exact: Vec<f64>,
    /// By the model in f32.
    found: Vec<f64>,
}

fn goldens(name: &str) -> Vec<Golden> {
    let text = fs::read(folder(name).join("golden.json")).unwrap();
    let rows: Vec<Value> = serde_json::from_slice(&text).unwrap();
    let numbers = |value: &Value| -> Vec<f64> {
        let items = value.as_array().unwrap().iter();
        items.map(|item| item.as_f64().unwrap()).collect()
    };
    let of = |row: &Value| Golden {
        ids: serde_json::from_value(row["ids"].clone()).unwrap(),
        exact: numbers(&row["exact"]),
        found: numbers(&row["f32"]),
    };
    rows.iter().map(of).collect()
}

fn logits(name: &str, arithmetic: Arithmetic, rows: usize) -> Vec<Vec<f32>> {
    let model = SequenceClassifier::open(&folder(name), arithmetic).unwrap();
    let goldens = goldens(name);
    let ids: Vec<&[u32]> = goldens.iter().map(|golden| golden.ids.as_slice()).collect();
    model.logits(&ids, rows).unwrap()
}

/// The largest distance of logits.
fn distance(found: &[Vec<f32>], wanted: impl Iterator<Item = Vec<f64>>) -> f64 {
    let mut most = 0.0f64;
    for (found, wanted) in found.iter().zip(wanted) {
        assert_eq!(found.len(), wanted.len());
        for (found, wanted) in found.iter().zip(&wanted) {
            most = most.max((f64::from(*found) - wanted).abs());
        }
    }
    most
}

#[test]
fn logits_are_those_of_transformers() {
    for name in MODELS {
        let found = logits(name, Arithmetic::F32, 200);
        let goldens = goldens(name);
        let exact = distance(&found, goldens.iter().map(|g| g.exact.clone()));
        let theirs = distance(&found, goldens.iter().map(|g| g.found.clone()));
        println!("{name}: {exact:.1e} from f64, {theirs:.1e} from f32");
        assert!(exact < 1e-5 && theirs < 1e-5, "{name}: {exact} {theirs}");
        // must fail: texts differ
        let mut others: Vec<Vec<f64>> = goldens.iter().map(|g| g.exact.clone()).collect();
        others.rotate_left(1);
        assert!(distance(&found, others.into_iter()) > 0.1);
    }
}

#[test]
fn bf16_and_8_bits_are_off_by_their_rounding() {
    for name in MODELS {
        let goldens = goldens(name);
        let all = [Arithmetic::Bf16, Arithmetic::Bf16Tiles, Arithmetic::Int8].map(|arithmetic| {
            let found = logits(name, arithmetic, 200);
            distance(&found, goldens.iter().map(|g| g.exact.clone()))
        });
        println!("{name}: {all:?}");
        for off in all {
            assert!(off > 1e-4 && off < 0.1, "{name}: {off}");
        }
    }
}

#[test]
fn a_sequence_has_the_same_bits_in_every_batch_and_on_any_number_of_threads() {
    let on = |threads: usize, run: &(dyn Fn() + Sync)| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        pool.build().unwrap().install(run);
    };
    for (name, arithmetic) in [
        ("bert", Arithmetic::F32),
        ("bert", Arithmetic::Bf16),
        ("xlm", Arithmetic::Bf16Tiles),
        ("deberta_v3", Arithmetic::F32),
        ("deberta_v2", Arithmetic::Bf16),
        ("roberta", Arithmetic::Int8),
        ("deberta_v3", Arithmetic::Int8),
    ] {
        let model = SequenceClassifier::open(&folder(name), arithmetic).unwrap();
        let goldens = goldens(name);
        let ids: Vec<&[u32]> = goldens.iter().map(|golden| golden.ids.as_slice()).collect();
        let alone: Vec<Vec<f32>> = ids
            .iter()
            .map(|ids| model.logits(&[*ids], 1).unwrap().remove(0))
            .collect();
        let bits = |rows: &[Vec<f32>]| -> Vec<Vec<u32>> {
            let row = |row: &Vec<f32>| row.iter().map(|x| x.to_bits()).collect();
            rows.iter().map(row).collect()
        };
        for (threads, rows) in [(1, 1), (1, 10_000), (2, 130), (3, 65), (4, 10_000)] {
            on(threads, &|| {
                let found = model.logits(&ids, rows).unwrap();
                assert_eq!(bits(&found), bits(&alone), "{name} {threads} {rows}");
                // the other way round, twice each
                let turned: Vec<&[u32]> = ids.iter().rev().chain(&ids).copied().collect();
                let mut found = model.logits(&turned, rows).unwrap();
                let second = found.split_off(ids.len());
                found.reverse();
                assert_eq!(bits(&found), bits(&alone), "{name} {threads} {rows}");
                assert_eq!(bits(&second), bits(&alone), "{name} {threads} {rows}");
            });
        }
    }
}

#[test]
fn labels_and_problems_are_those_of_the_configuration() {
    let open = |name: &str| SequenceClassifier::open(&folder(name), Arithmetic::F32).unwrap();
    let bert = open("bert");
    assert_eq!(
        (bert.labels(), bert.problem()),
        (&["LABEL_0".to_string()][..], Problem::Regression)
    );
    let roberta = open("roberta");
    assert_eq!(roberta.labels(), ["toxic", "obscene", "threat", "insult"]);
    assert_eq!(roberta.problem(), Problem::MultiLabel);
    assert_eq!(roberta.max_tokens(), 64);
    // transformers' own default
    let distilbert = open("distilbert");
    assert_eq!(distilbert.labels(), ["LABEL_0", "LABEL_1"]);
    assert_eq!(distilbert.problem(), Problem::SingleLabel);
}

#[test]
fn sequences_that_do_not_fit_are_refused() {
    let model = SequenceClassifier::open(&folder("bert"), Arithmetic::F32).unwrap();
    assert!(model.logits(&[], 8).unwrap().is_empty());
    for (ids, wanted) in [
        (vec![], "found 0 tokens, want 1 to 64"),
        (vec![1; 65], "found 65 tokens, want 1 to 64"),
        (
            vec![1, 4_000_000_000],
            "found 4000000000, want below the vocabulary",
        ),
    ] {
        let error = model.logits(&[&[2, 3], &ids], 8).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
}

/// A copy of a model's folder with another configuration.
fn changed(name: &str, change: impl FnOnce(&mut Value)) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(folder(name)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    let path = copy.path().join("config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut config);
    fs::write(&path, config.to_string()).unwrap();
    copy
}

fn refusal(folder: &Path) -> String {
    let opened = SequenceClassifier::open(folder, Arithmetic::F32);
    opened
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default()
}

#[test]
fn configurations_that_are_not_run_are_refused_with_field_found_and_wanted() {
    type Change = fn(&mut Value);
    let cases: [(&str, Change, &str); 16] = [
        (
            "bert",
            |c| c["model_type"] = json!("gpt2"),
            "model_type: found gpt2, want bert, roberta",
        ),
        (
            "bert",
            |c| c["architectures"] = json!(["BertForMaskedLM"]),
            "architectures: found BertForMaskedLM, want a class that ends",
        ),
        (
            "bert",
            |c| c["hidden_act"] = json!("mish"),
            "hidden_act: found mish, want gelu",
        ),
        (
            "bert",
            |c| c["position_embedding_type"] = json!("relative_key"),
            "position_embedding_type: found another kind, want absolute",
        ),
        (
            "bert",
            |c| c["is_decoder"] = json!(true),
            "is_decoder: found true, want false",
        ),
        (
            "bert",
            |c| c["num_attention_heads"] = json!(5),
            "num_attention_heads: found 5, want a divisor of 32",
        ),
        (
            "bert",
            |c| c["num_hidden_layers"] = json!(1u64 << 60),
            "num_hidden_layers: found 1152921504606846976, want 1 to",
        ),
        (
            "bert",
            |c| c["num_hidden_layers"] = json!(1),
            "bert.encoder.layer.1.output.dense.weight: found, want no such tensor",
        ),
        (
            "bert",
            |c| c["intermediate_size"] = json!(40),
            "bert.encoder.layer.0.intermediate.dense.weight: found [48, 32], want [40, 32]",
        ),
        (
            "bert",
            |c| c["sparse_blocks"] = json!(3),
            "sparse_blocks: found 3, want no such field",
        ),
        (
            "bert",
            |c| c["id2label"] = json!({"0": "a", "2": "b"}),
            "id2label: found [0, 2], want the numbers from 0 on",
        ),
        (
            "bert",
            |c| c["problem_type"] = json!("ranking"),
            "problem_type: found ranking, want regression",
        ),
        (
            "deberta_v3",
            |c| c["conv_kernel_size"] = json!(3),
            "conv_kernel_size: found 3, want 0",
        ),
        (
            "deberta_v3",
            |c| c["position_buckets"] = json!(400),
            "position_buckets: found 400, want 2 or more",
        ),
        (
            "deberta_v3",
            |c| c["pos_att_type"] = json!("p2p"),
            "pos_att_type: found p2p, want c2p, p2c or both",
        ),
        (
            "deberta_v2",
            |c| c["share_att_key"] = json!(true),
            "deberta.encoder.layer.0.attention.self.pos_key_proj.weight: found, want no such tensor",
        ),
    ];
    for (name, change, wanted) in cases {
        let copy = changed(name, change);
        let found = refusal(copy.path());
        assert!(found.contains(wanted), "{found}");
    }
    // several at once
    let copy = changed("xlm", |config| {
        config["hidden_act"] = json!("mish");
        config["vocab_size"] = json!(-3);
    });
    let found = refusal(copy.path());
    assert!(
        found.contains("hidden_act") && found.contains("vocab_size: found -3"),
        "{found}"
    );
}

#[test]
fn damaged_and_missing_files_are_refused() {
    let copy = changed("bert", |_| {});
    let shard = copy.path().join("model-00002-of-00003.safetensors");
    let whole = fs::read(&shard).unwrap();
    for length in [0, 7, 100, whole.len() - 1] {
        fs::write(&shard, &whole[..length]).unwrap();
        assert!(refusal(copy.path()).contains(" at byte "), "{length}");
    }
    fs::remove_file(&shard).unwrap();
    assert!(refusal(copy.path()).contains("model-00002-of-00003"));
    fs::write(copy.path().join("config.json"), "[1]").unwrap();
    assert!(refusal(copy.path()).contains("found no table of fields"));
    fs::write(copy.path().join("config.json"), "{").unwrap();
    assert!(refusal(copy.path()).contains("not JSON"));
    let empty = tempfile::tempdir().unwrap();
    assert!(refusal(empty.path()).contains("config.json"));
}

#[test]
fn padding_in_a_text_keeps_robertas_positions() {
    // transformers: (cumulative sum of what is no padding) times itself, plus the padding's id
    let mut positions = Vec::new();
    add_positions(&[0, 7, 1, 8, 1, 1, 2], Some(1), &mut positions);
    assert_eq!(positions, [2, 3, 1, 4, 1, 1, 5]);
    positions.clear();
    add_positions(&[5, 5], None, &mut positions);
    assert_eq!(positions, [0, 1]);
}

#[test]
fn batches_hold_what_fits_and_at_least_one() {
    assert_eq!(fitting([3, 4, 5].into_iter(), 7), 2);
    assert_eq!(fitting([3, 4, 5].into_iter(), 100), 3);
    assert_eq!(fitting([30].into_iter(), 7), 1);
}

fn embedders(name: &str) -> PathBuf {
    Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/data/embedders"
    ))
    .join(name)
}

fn embeddings_of(name: &str) -> Vec<Value> {
    let text = fs::read(embedders("golden.json")).unwrap();
    let mut all: Value = serde_json::from_slice(&text).unwrap();
    serde_json::from_value(all[name].take()).unwrap()
}

fn embedder_folder(name: &str) -> PathBuf {
    match name {
        "bare" => embedders(name),
        _ => folder(name),
    }
}

#[test]
fn embeddings_are_pooled_rows_of_transformers() {
    for name in MODELS.into_iter().chain(["bare"]) {
        let rows = embeddings_of(name);
        let ids: Vec<Vec<u32>> = rows
            .iter()
            .map(|row| serde_json::from_value(row["ids"].clone()).unwrap())
            .collect();
        let ids: Vec<&[u32]> = ids.iter().map(Vec::as_slice).collect();
        for (pooling, key) in [(Pooling::Mean, "mean"), (Pooling::Cls, "cls")] {
            let folder = embedder_folder(name);
            let model = SequenceEmbedder::open(&folder, Arithmetic::F32, Some(pooling)).unwrap();
            let found = model.embeddings(&ids, 200).unwrap();
            let wanted = rows.iter().map(|row| -> Vec<f64> {
                let row = row[key].as_array().unwrap().iter();
                row.map(|x| x.as_f64().unwrap()).collect()
            });
            let off = distance(&found, wanted.clone());
            assert!(off < 1e-6, "{name} {key}: {off}");
            assert!(found.iter().all(|row| row.len() == model.width()));
            // must fail: texts differ
            let mut others: Vec<Vec<f64>> = wanted.collect();
            others.rotate_left(1);
            assert!(distance(&found, others.into_iter()) > 0.01, "{name} {key}");
            let alone: Vec<Vec<f32>> = ids
                .iter()
                .map(|ids| model.embeddings(&[*ids], 1).unwrap().remove(0))
                .collect();
            assert!(alone == found, "{name} {key}: neighbours change bits");
        }
    }
}

#[test]
fn a_folder_of_sentence_transformers_brings_its_pooling_and_its_length() {
    let open = |folder: &Path| SequenceEmbedder::open(folder, Arithmetic::F32, None);
    let bare = open(&embedders("bare")).unwrap();
    assert_eq!((bare.pooling(), bare.max_tokens()), (Pooling::Cls, 32));
    let plain = open(&folder("bert")).unwrap();
    assert_eq!((plain.pooling(), plain.max_tokens()), (Pooling::Mean, 64));
    let error = bare.embeddings(&[&[1; 33]], 8).unwrap_err().to_string();
    assert!(error.contains("found 33 tokens, want 1 to 32"), "{error}");

    let copy = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors"] {
        fs::copy(embedders("bare").join(name), copy.path().join(name)).unwrap();
    }
    let refused = |file: &str, text: &str| {
        let path = copy.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        let error = open(copy.path()).err().unwrap().to_string();
        fs::remove_file(path).unwrap();
        error
    };
    let modules = |kind: &str| format!("[{{\"path\": \"x\", \"type\": \"a.models.{kind}\"}}]");
    let dense = refused("modules.json", &modules("Dense"));
    assert!(
        dense.contains("0.type: found \"Dense\", want Transformer, Pooling or Normalize"),
        "{dense}"
    );
    assert!(refused("modules.json", "{}").contains("found no list of modules"));
    fs::write(copy.path().join("modules.json"), modules("Pooling")).unwrap();
    let most = refused("x/config.json", "{\"pooling_mode_max_tokens\": true}");
    assert!(
        most.contains("found [\"pooling_mode_max_tokens\"], want one of"),
        "{most}"
    );
    let absent = open(copy.path()).err().unwrap().to_string();
    assert!(absent.contains("found no file, want the modes"), "{absent}");
    let asked = SequenceEmbedder::open(copy.path(), Arithmetic::F32, Some(Pooling::Mean));
    let preparation = asked.unwrap().preparation();
    assert!(preparation.strips && !preparation.lowers);
    let elsewhere = refused("modules.json", &modules("Transformer"));
    assert!(
        elsewhere.contains("0.path: found \"x\", want \"\""),
        "{elsewhere}"
    );
    let root = "[{\"path\": \"\", \"type\": \"a.models.Transformer\"}]";
    fs::write(copy.path().join("modules.json"), root).unwrap();
    let prompt = refused(
        "config_sentence_transformers.json",
        "{\"default_prompt_name\": \"query\"}",
    );
    assert!(
        prompt.contains("default_prompt_name: found \"query\", want null"),
        "{prompt}"
    );
    let lengths = "{\"do_lower_case\": true, \"max_seq_length\": 16}";
    fs::write(copy.path().join("sentence_roberta_config.json"), lengths).unwrap();
    let lower = open(copy.path()).unwrap();
    assert!(lower.preparation().lowers && lower.max_tokens() == 16);
}
