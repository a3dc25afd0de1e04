//! Small siblings of the recipes: every recipe names one, every one is a valid job, and those of their own family train here.

use crate::jobs::{metrics, root, succeed};
use std::collections::BTreeSet;
use std::path::Path;

/// Jobs that the recipes name as their small siblings.
fn siblings() -> BTreeSet<String> {
    let recipes = std::fs::read_dir(root().join("pipelines/jobs/recipes")).unwrap();
    let of = |path: &Path| {
        let text = std::fs::read_to_string(path).unwrap();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("# Small sibling: "));
        line.unwrap_or_else(|| panic!("{} names no small sibling", path.display()))
            .to_owned()
    };
    recipes
        .map(|entry| of(&entry.unwrap().path()))
        .collect::<BTreeSet<_>>()
}

#[test]
fn every_recipe_has_a_small_sibling_that_is_a_valid_job() {
    let found = siblings();
    assert!(found.len() >= 7, "{found:?}");
    for path in found {
        succeed(&["run", &path, "--check"]);
    }
}

/// Steps of `sibling` from its own data; the losses of all of them.
fn losses(sibling: &str, out: &Path, steps: usize) -> Vec<f64> {
    let out_set = format!("out={}", out.display());
    let steps_set = format!("train.steps={steps}");
    let mut args = vec!["run", sibling, "--set", &out_set, "--set", &steps_set];
    for set in [
        "train.warmup_steps=1",
        "train.global_batch=8",
        "train.micro_batch=8",
        "train.eval_every=0",
        "train.log_every=1",
        "eval.samples=8",
    ] {
        args.extend(["--set", set]);
    }
    succeed(&args);
    let lines = metrics(out);
    let of = |line: &serde_json::Value| line["loss"].as_f64();
    lines.iter().filter_map(of).collect()
}

/// An untrained model guesses evenly: its loss is near the logarithm of the vocabulary, and falls within a few steps.
#[test]
fn small_siblings_of_every_kind_of_model_train() {
    let dir = tempfile::tempdir().unwrap();
    let runs: Vec<String> = siblings()
        .into_iter()
        .filter(|path| path.ends_with("small.toml"))
        .collect();
    assert_eq!(runs.len(), 4, "{runs:?}");
    for path in runs {
        let out = dir.path().join(path.replace('/', "-"));
        let found = losses(&path, &out, 8);
        assert_eq!(found.len(), 8, "{path}: {found:?}");
        let even = 1024_f64.ln();
        assert!((found[0] - even).abs() < 0.6, "{path}: {found:?}");
        assert!(found[7] < found[0] - 0.05, "{path}: {found:?}");
    }
}
