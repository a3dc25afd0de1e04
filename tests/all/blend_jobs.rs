//! Jobs with `[blend]`: separate datasets per part, caps, the cache, and more steps of a finished training.

use crate::jobs::{metrics, output, succeed};
use crate::megatron::write;
use index::dataset::Dataset;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A job on existing datasets, with a very small model.
fn job(folder: &Path, blend: &str) -> PathBuf {
    for (name, seed, documents) in [("a", 1, 400), ("b", 2, 300)] {
        let prefix = folder.join(name);
        write(&prefix, seed, documents);
        let data = Dataset::open(&prefix).unwrap();
        let sidecar = json!({
            "dataset": {"name": name},
            "tokenizer": {"vocab": 1000, "xxh3": "none", "encoder": "none", "end_of_document": 0},
            "dtype": "uint16",
            "documents": documents,
            "sequences": documents,
            "tokens": data.tokens(),
            "text_bytes": 0,
        });
        std::fs::write(prefix.with_extension("json"), sidecar.to_string()).unwrap();
    }
    let at = |name: &str| format!("{{ name = {name:?}, prefix = {:?} }}", folder.join(name));
    let text = format!(
        "name = 'b'\nout = {:?}\n[blend]\nseq_length = 16\n{}\n[model]\nlayers = 1\nd_model = 16\nheads = 2\n\
         [train]\nsteps = 3\nglobal_batch = 2\nmicro_batch = 1\nwarmup_steps = 1\nschedule = 'constant'\n\
         eval_every = 0\neval_samples = 4\n",
        folder.join("out"),
        blend.replace("@a", &at("a")).replace("@b", &at("b")),
    );
    let path = folder.join("job.toml");
    std::fs::write(&path, text).unwrap();
    path
}

fn blend_json(path: &Path, more: &[&str]) -> Value {
    let mut args = vec!["blend", path.to_str().unwrap(), "--json"];
    args.extend(more);
    serde_json::from_slice(&succeed(&args).stdout).unwrap()
}

#[test]
fn parts_with_datasets_of_their_own_and_a_cache_give_the_same_order_twice() {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("cache");
    let blend = format!("train = [@a, @b]\nvalid = [@b]\ncache = {cache:?}");
    let path = job(dir.path(), &blend);
    let first = blend_json(&path, &["--dump", "3"]);
    assert_eq!(blend_json(&path, &["--dump", "3"]), first, "from the cache");
    let without = blend_json(
        &path,
        &["--dump", "3", "--set", "blend.cache_tokenizer='{}'"],
    );
    assert_eq!(without, first, "under another name in the cache");
    let parts = first["parts"].as_array().unwrap();
    assert_eq!(parts[0]["datasets"].as_array().unwrap().len(), 2);
    assert_eq!(parts[1]["datasets"][0]["documents"], 300, "the whole of b");
    assert_eq!(parts[0]["datasets"][0]["asked"], 0.5);
}

#[test]
fn too_many_epochs_and_contradicting_lists_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = job(
        dir.path(),
        "split = '1'\ndataset = [@a, @b]\nmax_epochs = 1.5",
    );
    let refused = |more: &[&str]| {
        let mut args = vec!["blend", path.to_str().unwrap()];
        args.extend(more);
        let out = output(&args);
        assert!(!out.status.success(), "{more:?} accepted");
        String::from_utf8(out.stderr).unwrap()
    };
    let text = refused(&["--set", "train.steps=2000"]);
    for name in ["a", "b"] {
        let prefix = dir.path().join(name);
        assert!(
            text.contains(&format!("samples of {}", prefix.display())),
            "{text}"
        );
    }
    assert!(refused(&["--set", "blend.max_epochs=-1"]).contains("blend.max_epochs"));
    assert!(refused(&["--set", "blend.dataset.1.name=a"]).contains("blend.dataset[1].name"));
    let own = "blend.train=[{ name = 'a', prefix = 'x' }]";
    assert!(refused(&["--set", own]).contains("one of the two"));
    let shuffled = blend_json(
        &path,
        &[
            "--set",
            "blend.mixture=exhaustive",
            "--set",
            "blend.sampler=cyclic",
        ],
    );
    assert_eq!(shuffled["parts"][0]["samples"], 6, "three steps of two");
}

#[test]
fn a_finished_training_goes_on_while_the_order_stays_and_is_refused_when_it_would_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = job(dir.path(), "split = '90,10,0'\ndataset = [@a, @b]");
    let path = path.to_str().unwrap();
    succeed(&["train", path]);
    succeed(&["train", path, "--set", "train.steps=6"]);
    let whole = dir.path().join("whole");
    let out = format!("out={}", whole.display());
    succeed(&["train", path, "--set", "train.steps=6", "--set", &out]);
    assert_eq!(
        metrics(&dir.path().join("out")),
        metrics(&whole),
        "extended and whole"
    );
    let refused = output(&["train", path, "--set", "train.steps=900"]);
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success(), "another order accepted");
    assert!(text.contains("data.datasets.a.epochs: 1 there"), "{text}");
    let refused = output(&["train", path, "--set", "seed=5"]);
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(text.contains("data.seed: 1234 there, 5 here"), "{text}");
}

#[test]
fn one_dataset_without_a_weight_is_read_as_it_is_and_with_one_as_a_blend() {
    let dir = tempfile::tempdir().unwrap();
    let path = job(dir.path(), "split = '90,10,0'\ndataset = [@a]");
    let dump = |more: &[&str]| {
        let mut args = vec!["--dump", "2", "--set", "train.steps=200"];
        args.extend(more);
        blend_json(&path, &args)["splits"]["train"].clone()
    };
    let (plain, weighed) = (dump(&[]), dump(&["--set", "blend.dataset.0.weight=1.0"]));
    // as Megatron: a lone path has no order of blends, and every sample of its epochs
    let nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    assert_eq!(plain["dataset_index"], nothing);
    assert_ne!(weighed["dataset_index"], nothing);
    assert_eq!(weighed["len"], 400, "200 steps of two");
    assert_eq!(plain["len"], plain["datasets"][0]["len"]);
    assert!(plain["len"].as_u64().unwrap() >= 400);
    // 360 documents hold more than 400 samples' tokens: both are the same epoch
    assert_eq!(
        plain["datasets"][0]["document_index"],
        weighed["datasets"][0]["document_index"]
    );
    let capped = output(&[
        "blend",
        path.to_str().unwrap(),
        "--set",
        "train.steps=90000",
        "--set",
        "blend.max_epochs=2",
    ]);
    let text = String::from_utf8(capped.stderr).unwrap();
    assert!(
        !capped.status.success() && text.contains("max_epochs"),
        "{text}"
    );
}

#[test]
fn megatrons_keys_of_samples_change_what_is_read_and_training_takes_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = job(dir.path(), "split = '80,10,10'\ndataset = [@a]");
    let plain = blend_json(&path, &["--dump", "400"]);
    let tokens = |dump: &Value, part: &str, i: usize| {
        dump["splits"][part]["samples"][i]["tokens"]
            .as_array()
            .unwrap()
            .clone()
    };
    assert_eq!(tokens(&plain, "train", 0).len(), 17);
    let short = ["--set", "blend.add_extra_token_to_sequence=false"];
    let dump = blend_json(&path, &[&["--dump", "400"], &short[..]].concat());
    assert_eq!(tokens(&dump, "train", 0).len(), 16);
    assert!(plain["splits"]["test"].is_null(), "nothing asks for it");

    let whole = [
        "--set",
        "blend.full_validation=true",
        "--set",
        "blend.drop_last_partial_validation_sequence=false",
    ];
    let dump = blend_json(&path, &[&["--dump", "4000"], &whole[..]].concat());
    let valid = &dump["splits"]["valid"];
    let count = valid["len"].as_u64().unwrap();
    assert!(count > 4, "an epoch is more than eval_samples");
    assert_eq!(valid["samples"].as_array().unwrap().len() as u64, count);
    let padded = valid["samples"].as_array().unwrap().iter();
    let padded = padded.filter(|s| s["tokens"].as_array().unwrap().contains(&json!(u32::MAX)));
    assert_eq!(padded.count(), 1, "the partial sample alone is padded");

    let path = path.to_str().unwrap();
    let all = [&short[..], &whole[..], &["--set", "blend.pad_id=7"]].concat();
    succeed(&[&["train", path], &all[..]].concat());
    let refused = output(&["train", path]);
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(
        !refused.status.success() && text.contains("data.pad_id: 7 there"),
        "{text}"
    );
    // the test part is built where it is measured
    let test = ["--set", "eval.part=test", "--set", "eval.samples=3"];
    succeed(&[&["eval", path], &all[..], &test[..]].concat());
    let result = std::fs::read_to_string(dir.path().join("out/eval.json")).unwrap();
    let result: Value = serde_json::from_str(&result).unwrap();
    assert!(
        result["test_loss"].as_f64().is_some_and(f64::is_finite),
        "{result}"
    );
    assert_eq!(result["samples"], 3);
    succeed(&[&["eval", path], &all[..], &["--set", "eval.samples=3"]].concat());
    let result = std::fs::read_to_string(dir.path().join("out/eval.json")).unwrap();
    let result: Value = serde_json::from_str(&result).unwrap();
    assert_eq!(
        result["samples"].as_u64(),
        Some(count),
        "every validation sample"
    );
}

/// A job with fill in the middle on the committed documents, tokenized.
fn job_of_texts(folder: &Path) -> PathBuf {
    let file = crate::jobs::root().join("tests/data/preprocess/tokenizer.json");
    let mut tokenizer: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    for (i, name) in ["<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<fim_pad>"]
        .iter()
        .enumerate()
    {
        tokenizer["added_tokens"].as_array_mut().unwrap().push(json!({"id": 600 + i, "content": name,
            "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}));
    }
    let own = folder.join("tokenizer.json");
    std::fs::write(&own, tokenizer.to_string()).unwrap();
    let texts = crate::jobs::root().join("tests/data/preprocess/documents.jsonl");
    let text = format!(
        "name = 'f'\nout = {:?}\n[tokenize]\ntokenizer = {{ file = {own:?} }}\ninputs = [{{ path = {texts:?}, source = 'x' }}]\n\
         [blend]\nseq_length = 64\nsplit = '90,10,0'\nfim = {{ rate = 0.9, spm_rate = 0.5 }}\ndataset = [{{ name = 'x' }}]\n\
         [model]\nlayers = 1\nd_model = 16\nheads = 2\n\
         [train]\nsteps = 2\nglobal_batch = 2\nmicro_batch = 1\nwarmup_steps = 1\neval_every = 0\n",
        folder.join("out"),
    );
    let path = folder.join("job.toml");
    std::fs::write(&path, text).unwrap();
    succeed(&["tokenize", path.to_str().unwrap()]);
    path
}

/// `data/megatron_jobs.json`, made by `oracles/megatron_jobs.py`.
#[test]
fn samples_of_jobs_are_megatrons_with_each_of_its_keys() {
    let golden: Value = serde_json::from_str(include_str!("../data/megatron_jobs.json")).unwrap();
    let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let [lone, both, texts] = &dirs;
    let weights = ["blend.dataset.0.weight=0.3", "blend.dataset.1.weight=0.7"];
    let jobs = [
        (
            "lone",
            job(lone.path(), "split = '80,10,10'\ndataset = [@a]"),
        ),
        (
            "both",
            job(both.path(), "split = '80,20,0'\ndataset = [@a, @b]"),
        ),
        ("texts", job_of_texts(texts.path())),
    ];
    let mut compared = 0;
    for case in golden["cases"].as_array().unwrap() {
        let name = case["datasets"].as_str().unwrap();
        let (_, path) = jobs.iter().find(|(known, _)| *known == name).unwrap();
        let wanted = case["samples"].as_array().unwrap();
        let count = wanted.len().to_string();
        let mut more = vec!["--dump", &count];
        let sets = case["sets"].as_array().unwrap().iter();
        let weights = weights.iter().filter(|_| name == "both").copied();
        let sets = sets.map(|set| set.as_str().unwrap()).chain(weights);
        sets.for_each(|set| more.extend(["--set", set]));
        let dump = blend_json(path, &more);
        let found = &dump["splits"][case["part"].as_str().unwrap()];
        assert_eq!(found["len"], case["len"], "{}", case["name"]);
        let samples = found["samples"].as_array().unwrap();
        assert_eq!(samples.len(), wanted.len(), "{}", case["name"]);
        for (k, (found, wanted)) in samples.iter().zip(wanted).enumerate() {
            assert_eq!(found, wanted, "{}: sample {k}", case["name"]);
            compared += 1;
        }
    }
    assert_eq!(compared, 344, "samples compared");
}

#[test]
fn fill_in_the_middle_rearranges_samples_the_same_way_every_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = job_of_texts(dir.path());
    let dump = blend_json(&path, &["--dump", "50"]);
    assert_eq!(dump, blend_json(&path, &["--dump", "50"]));
    let plain = blend_json(&path, &["--dump", "50", "--set", "blend.fim.rate=0.0"]);
    let has = |dump: &Value, id: u32| {
        let samples = dump["splits"]["train"]["samples"]
            .as_array()
            .unwrap()
            .clone();
        samples
            .iter()
            .filter(|s| s["tokens"].as_array().unwrap().contains(&json!(id)))
            .count()
    };
    let count = dump["splits"]["train"]["samples"].as_array().unwrap().len();
    for id in [600, 601, 602] {
        assert!(
            has(&dump, id) * 2 > count,
            "{id} in {} of {count}",
            has(&dump, id)
        );
        assert_eq!(has(&plain, id), 0);
    }
    succeed(&["train", path.to_str().unwrap()]);
    let refused = output(&[
        "blend",
        path.to_str().unwrap(),
        "--set",
        "blend.fim.pad_token=<none>",
    ]);
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(
        text.contains("blend.fim.pad_token: the tokenizer has no token \"<none>\""),
        "{text}"
    );
    let refused = output(&[
        "blend",
        path.to_str().unwrap(),
        "--set",
        "blend.fim.rate=1.5",
    ]);
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn a_zeroed_array_in_the_cache_is_built_again_with_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("cache");
    let blend = format!("split = '90,10,0'\ndataset = [@a, @b]\ncache = {cache:?}");
    let path = job(dir.path(), &blend);
    let good = blend_json(&path, &["--dump", "3"]);
    let mut zeroed = 0;
    for entry in std::fs::read_dir(&cache).unwrap() {
        let file = entry.unwrap().path();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        if name.ends_with("millrace.json") {
            std::fs::remove_file(&file).unwrap();
        } else if name.ends_with("shuffle_index.npy") {
            let mut bytes = std::fs::read(&file).unwrap();
            bytes[128..].fill(0);
            std::fs::write(&file, bytes).unwrap();
            zeroed += 1;
        }
    }
    let printed = succeed(&["blend", path.to_str().unwrap(), "--json", "--dump", "3"]);
    let stderr = String::from_utf8(printed.stderr).unwrap();
    assert_eq!(stderr.matches("built again").count(), zeroed, "{stderr}");
    let found: Value = serde_json::from_slice(&printed.stdout).unwrap();
    assert!(zeroed >= 2 && found == good);
}

#[test]
fn a_blend_of_a_terabyte_starts_without_reading_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = job(
        dir.path(),
        "split = '1'\ndataset = [@a]\nseq_length = 1048576",
    );
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replacen("seq_length = 16\n", "", 1)).unwrap();
    // a sparse file of tokens: it has a size but no blocks
    let prefix = dir.path().join("a");
    let (length, count) = (i32::MAX.unsigned_abs(), 128);
    let mut writer =
        index::dataset::DatasetWriter::create(&prefix, index::dataset::TokenType::I32).unwrap();
    writer
        .append(&[], &vec![length; count], &vec![1; count])
        .unwrap();
    writer.finish().unwrap();
    let tokens = u64::from(length) * count as u64;
    let bin = std::fs::OpenOptions::new()
        .write(true)
        .open(prefix.with_extension("bin"));
    bin.unwrap().set_len(4 * tokens).unwrap();
    let sidecar = json!({"dataset": {}, "tokenizer": {"vocab": 1000, "xxh3": "none", "encoder": "none", "end_of_document": 0},
        "dtype": "int32", "documents": count, "sequences": count, "tokens": tokens, "text_bytes": 0});
    std::fs::write(prefix.with_extension("json"), sidecar.to_string()).unwrap();
    let start = std::time::Instant::now();
    let dump = blend_json(&path, &["--dump", "1"]);
    let took = start.elapsed().as_secs_f64();
    assert!(dump["splits"]["train"]["len"].as_u64().unwrap() > 200_000);
    assert!(took < 20.0, "{took} s for {} bytes", 4 * tokens);
}
