//! Checks of the documents against the files: every path they name exists, the data has its licences and its size.

use crate::jobs::root;
use std::path::Path;

/// Backquoted words that look like paths of this repository.
fn paths(text: &str) -> Vec<String> {
    let folders = [
        "curate/",
        "index/",
        "kernels/",
        "train/",
        "pipelines/",
        "tests/",
        ".ci/",
    ];
    text.split('`')
        .skip(1)
        .step_by(2)
        .flat_map(str::split_whitespace)
        .filter(|w| folders.iter().any(|f| w.starts_with(f)))
        .map(ToString::to_string)
        .collect()
}

#[test]
fn every_path_that_a_document_names_exists() {
    for name in [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "BENCHMARKS.md",
        "tests/oracles/README.md",
    ] {
        let text = std::fs::read_to_string(root().join(name)).unwrap();
        let named = paths(&text);
        assert!(
            !named.is_empty() || name == "BENCHMARKS.md",
            "{name} names no path"
        );
        for path in named {
            assert!(
                root().join(&path).exists(),
                "{name} names {path}, which is gone"
            );
        }
    }
}

#[test]
fn the_data_is_small_and_every_file_has_its_licence() {
    let folder = root().join("pipelines/jobs/tiny/data");
    let told = std::fs::read_to_string(folder.join("README.md")).unwrap();
    let mut bytes = 0;
    for entry in std::fs::read_dir(&folder).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().to_string();
        bytes += entry.metadata().unwrap().len();
        let family = name
            .replace(|c: char| c.is_ascii_digit(), "")
            .replace("-.", "-0000N.");
        assert!(
            told.contains(&family) || name == "README.md",
            "{name} is not in the list of licences"
        );
    }
    assert!(bytes < 12 << 20, "{bytes} bytes of data");
    let pages = std::fs::read_to_string(folder.join("crawl.tsv")).unwrap();
    assert!(pages.lines().skip(1).all(|l| {
        l.split('\t')
            .nth(3)
            .is_some_and(|licence| !licence.is_empty())
    }));
    assert!(Path::new(&root()).join("LICENSE").exists());
}
