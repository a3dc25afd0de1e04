//! Checks of the documents against the files: every path they name exists, the data has its licences and its size.

use crate::jobs::root;
use std::path::Path;

/// Backquoted words that look like paths of this repository; `NAME` in one stands for a name to choose.
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
        .filter(|w| !w.contains("NAME"))
        .map(ToString::to_string)
        .collect()
}

/// Targets of Markdown links to files of this repository.
fn links(text: &str) -> Vec<&str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .filter(|target| !target.contains("://") && !target.starts_with('#'))
        .map(|target| target.split('#').next().unwrap())
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
        assert!(!named.is_empty(), "{name} names no path");
        for path in named {
            assert!(
                root().join(&path).exists(),
                "{name} names {path}, which is gone"
            );
        }
    }
}

#[test]
fn every_record_of_a_benchmark_exists_and_is_linked() {
    let folder = "pipelines/jobs/bench/records";
    let text = std::fs::read_to_string(root().join("BENCHMARKS.md")).unwrap();
    let linked = links(&text);
    let mut records = 0;
    for entry in std::fs::read_dir(root().join(folder)).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().to_string();
        let path = format!("{folder}/{name}");
        assert!(
            linked.contains(&&*path),
            "BENCHMARKS.md has no row of {name}"
        );
        let record = std::fs::read_to_string(entry.path()).unwrap();
        for part in ["- Commit: ", "- Machine: "] {
            assert!(record.contains(part), "{name} has no line {part:?}");
        }
        for target in links(&record) {
            let found = root().join(folder).join(target);
            assert!(found.exists(), "{name} links to {target}, which is gone");
        }
        records += 1;
    }
    assert!(records > 0, "{folder} is empty");
    for target in linked {
        let found = root().join(target);
        assert!(
            found.exists(),
            "BENCHMARKS.md links to {target}, which is gone"
        );
    }
}

#[test]
fn the_data_is_small_and_every_file_has_its_licence() {
    let folder = root().join("pipelines/jobs/tiny/data");
    let printed = std::fs::read_to_string(folder.join("README.md")).unwrap();
    let mut bytes = 0;
    for entry in std::fs::read_dir(&folder).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().to_string();
        bytes += entry.metadata().unwrap().len();
        let family = name
            .replace(|c: char| c.is_ascii_digit(), "")
            .replace("-.", "-0000N.");
        assert!(
            printed.contains(&family) || name == "README.md",
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

#[test]
fn every_path_that_the_documents_of_a_crate_name_exists() {
    for name in ["curate", "index", "kernels", "pipelines", "train"] {
        let folder = root().join(name);
        let details = std::fs::read_dir(folder.join("docs")).unwrap();
        let mut documents: Vec<_> = details.map(|entry| entry.unwrap().path()).collect();
        documents.push(folder.join("README.md"));
        assert!(documents.len() > 1, "{name} has no documents");
        for document in documents {
            let text = std::fs::read_to_string(&document).unwrap();
            for path in paths(&text) {
                let shown = document.display();
                // a part of a document is named behind #
                let file = path.split('#').next().unwrap_or_default();
                assert!(
                    root().join(file).exists(),
                    "{shown} names {path}, which is gone"
                );
            }
        }
    }
}
