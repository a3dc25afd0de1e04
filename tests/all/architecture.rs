//! The rules of ARCHITECTURE.md as tests: crate edges, `unsafe` files, lints, sizes, names.

use crate::imports::Imports;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_path_buf()
}

/// Every `.rs` file of the workspace, relative to its root.
pub(crate) fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = ["curate", "index", "kernels", "train", "pipelines", "tests"]
        .map(|f| root().join(f))
        .to_vec();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let name = path.strip_prefix(root()).unwrap().display().to_string();
                found.push((name, std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn crates_depend_on_each_other_only_as_the_picture_shows() {
    let out = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
            "--locked",
        ])
        .current_dir(root())
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&out.stdout).unwrap();
    let mut edges = BTreeSet::new();
    for package in metadata["packages"].as_array().unwrap() {
        let from = package["name"].as_str().unwrap();
        for d in package["dependencies"].as_array().unwrap() {
            let to = d["name"].as_str().unwrap();
            if to.starts_with("millrace-") && !from.ends_with("-tests") {
                edges.insert(format!("{} -> {}", &from[9..], &to[9..]));
            }
        }
    }
    let allowed = [
        "curate -> suffixes",
        "pipelines -> curate",
        "pipelines -> http",
        "pipelines -> index",
        "pipelines -> train",
        "train -> index",
        "train -> kernels",
    ];
    let extra: Vec<_> = edges
        .iter()
        .filter(|e| !allowed.contains(&e.as_str()))
        .collect();
    assert!(
        extra.is_empty(),
        "edges that the picture does not have: {extra:?}"
    );
    assert!(
        edges.contains("pipelines -> train"),
        "no edge found: {edges:?}"
    );
}

#[test]
fn every_crate_opts_in_to_the_workspace_lints() {
    let names = [
        "curate",
        "curate/tests",
        "index",
        "kernels",
        "train",
        "pipelines",
        "pipelines/http",
        "tests",
    ];
    for name in names {
        let text = std::fs::read_to_string(root().join(name).join("Cargo.toml")).unwrap();
        assert!(
            text.contains("[lints]\nworkspace = true"),
            "{name}/Cargo.toml"
        );
    }
}

#[test]
fn unsafe_code_is_only_where_the_invariant_says() {
    let allowed = |name: &str| {
        [
            "index/src/blend/order.rs",
            "index/src/tokenizer/byte_bpe/masks.rs",
        ]
        .contains(&name)
            || name.starts_with("kernels/")
            || name == "curate/src/dedup/minhash/kernel.rs"
            || name == "curate/src/read/compression/inflate.rs"
    };
    for (name, text) in sources() {
        let code = text
            .lines()
            .map(|l| l.split("//").next().unwrap_or_default());
        let has = code
            .clone()
            .any(|l| l.contains("unsafe {") || l.contains("unsafe fn"));
        assert!(
            !has || allowed(&name) || name.starts_with("tests/"),
            "unsafe code in {name}"
        );
    }
}

#[test]
fn files_are_short_or_say_why_not() {
    for (name, text) in sources() {
        let lines = text.lines().count();
        let excused = text.lines().take(30).any(|l| l.contains("Long because:"));
        assert!(lines <= 800 || excused, "{name} has {lines} lines");
    }
}

#[test]
fn file_names_say_what_is_inside() {
    let empty = [
        "util", "utils", "helper", "helpers", "common", "misc", "manager", "handler", "legacy",
    ];
    for (name, _) in sources() {
        let stem = Path::new(&name)
            .file_stem()
            .unwrap()
            .to_string_lossy()
            .to_string();
        assert!(!empty.contains(&stem.as_str()), "{name}");
    }
}

#[test]
fn every_file_opens_with_its_purpose() {
    for (name, text) in sources() {
        let first = text
            .lines()
            .find(|l| !l.trim().is_empty())
            .unwrap_or_default();
        let documented = first.starts_with("//!") || first.starts_with("#![doc = include_str!");
        assert!(documented, "{name} opens with {first:?}");
    }
}

/// The imports between the files of a crate.
fn imports(name: &str) -> Imports {
    let prefix = format!("{name}/src/");
    let files: BTreeMap<String, String> = sources()
        .into_iter()
        .filter_map(|(path, text)| Some((path.strip_prefix(&prefix)?.to_owned(), text)))
        .collect();
    let imports = Imports::read(&files);
    assert!(imports.edges.len() > 20, "{name}: {:?}", imports.edges);
    imports
}

#[test]
fn files_import_each_other_in_no_circle() {
    for name in ["curate", "index", "kernels", "pipelines", "train"] {
        let circles = imports(name).circles();
        assert!(circles.is_empty(), "{name}: {circles:#?}");
    }
}

/// Groups of folders and files, the lowest first.
type Layers = &'static [&'static [&'static str]];

/// The layers of each crate: a file may use its own layer and those below.
const LAYERS: [(&str, Layers); 5] = [
    (
        "curate",
        &[
            &[
                "check.rs",
                "clock.rs",
                "error.rs",
                "panics.rs",
                "progress.rs",
                "secrets.rs",
            ],
            &["document.rs", "takedown_list.rs", "text/", "verdict.rs"],
            &["classifier.rs"],
            &["contract.rs"],
            &["expression/", "extract/", "read/", "store/", "write/"],
            &["mixer/"],
            &["corpus/"],
            &["decontaminate/", "filter/", "language/", "pii/", "quality/"],
            &["steps/"],
            &["dedup/", "statistics/"],
            &["pipeline/", "takedown/"],
        ],
    ),
    (
        "index",
        &[
            &["error.rs", "array.rs", "split.rs", "panics.rs"],
            &["numpy_random/"],
            &["dataset/", "sentences/", "tokenizer/"],
            &["cache/", "samples/"],
            &["blend/", "sampler/"],
        ],
    ),
    (
        "kernels",
        &[
            &[
                "dtype.rs",
                "isa.rs",
                "quant/",
                "rng.rs",
                "sum_order.rs",
                "trace.rs",
                "tolerance.rs",
            ],
            &["error.rs"],
            &["cuda/"],
            &["arena.rs", "buffer.rs", "device.rs", "tensor.rs", "view.rs"],
            &["descriptor/"],
            &["cpu/", "testing/"],
            &["comm/"],
            &["ops/"],
        ],
    ),
    (
        "pipelines",
        &[
            &[
                "flag_numbers.rs",
                "folder_lock.rs",
                "repository.rs",
                "log.rs",
                "machine.rs",
                "signals.rs",
                "panics.rs",
                "progress.rs",
                "journal/",
            ],
            &["job/"],
            &["manifest.rs", "submission.rs", "context.rs", "devices.rs"],
            &["generation/", "plan/"],
            &["report/", "serve/", "tasks/", "conversations/"],
            &["executor/", "run/", "watch/", "exit_code.rs"],
            &["cli.rs", "main.rs"],
        ],
    ),
    (
        "train",
        &[
            &["config/"],
            &["error.rs", "panics.rs"],
            &["dist/", "profile.rs"],
            &["data/"],
            &["model/"],
            &["parallel/"],
            &["optim/"],
            &["metrics.rs"],
            &["checkpoint/"],
            &["trainer/", "infer/", "calibrate/"],
            &["eval/"],
        ],
    ),
];
#[test]
fn no_file_uses_a_higher_layer() {
    for (name, layers) in LAYERS {
        let upward = imports(name).upward(layers);
        assert!(upward.is_empty(), "{name}: {upward:#?}");
    }
}
