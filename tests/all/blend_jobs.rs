//! `[blend]` of a job: parts of their own, caps, the cache, and more steps of a finished training.

use crate::jobs::{metrics, output, succeed};
use crate::megatron::write;
use index::Dataset;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A job on datasets that exist, with a very small model.
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
