//! Our own files: determinism, damage, spilling.

use std::path::Path;

use curate::corpus::KeepList;
use curate::dedup::{DedupConfig, MinhashConfig, MinhashPreset, SignatureFile, dedup};
use curate::pipeline::{CurateConfig, Curator, inspect, shards};
use curate::read::{Format, Input};
use curate::write::checksum;
use curate::{Error, Silent};

/// Near duplicates in `files` JSONL files, from a counter.
fn inputs(folder: &Path, files: usize, documents: usize) {
    std::fs::create_dir_all(folder).unwrap();
    for file in 0..files {
        let mut lines = String::new();
        for i in 0..documents {
            let n = (file * documents + i) as u64;
            let topic = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59;
            // Letters only: numbers all simplify to "0".
            let letters = |mut x: u64| -> String {
                let mut word = String::from("q");
                while x > 0 {
                    word.push(char::from(b'a' + u8::try_from(x % 26).unwrap()));
                    x /= 26;
                }
                word
            };
            let words: Vec<String> = (0..80)
                .map(|k| letters(topic * 9973 + k * 71 + u64::from(k == n % 97) * n * 13))
                .collect();
            lines += &format!("{}\n", serde_json::json!({"text": words.join(" ")}));
        }
        std::fs::write(folder.join(format!("{file}.jsonl")), lines).unwrap();
    }
}

fn config(input: &Path) -> CurateConfig {
    CurateConfig {
        inputs: vec![Input {
            path: input.to_string_lossy().into_owned(),
            format: Format::Jsonl,
            source: "s".to_string(),
            ..Input::default()
        }],
        ..CurateConfig::default()
    }
}

/// Every file under `out` with its checksum.
pub(crate) fn tree(out: &Path) -> Vec<(String, String)> {
    let mut files = Vec::new();
    let mut folders = vec![out.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path
                    .strip_prefix(out)
                    .unwrap()
                    .to_string_lossy()
                    .into_owned();
                files.push((name, checksum(&path).unwrap().1));
            }
        }
    }
    files.sort();
    files
}

#[test]
fn outputs_do_not_depend_on_threads_or_shard_order_or_memory() {
    let folder = tempfile::tempdir().unwrap();
    inputs(&folder.path().join("in"), 3, 120);
    let config = config(&folder.path().join("in"));
    let mut results = Vec::new();
    for (threads, reverse, memory_mb) in [(1, false, 512), (3, true, 512), (2, false, 0)] {
        let out = folder.path().join(format!("out{threads}"));
        let settings = DedupConfig {
            memory_mb,
            ..crate::both()
        };
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        let report = pool.install(|| {
            let curator = Curator::new(&config, None, Some(&settings), 1).unwrap();
            let mut list = shards(&config).unwrap();
            if reverse {
                list.reverse();
            }
            for shard in &list {
                curator.run_shard(shard, &out, &Silent).unwrap();
            }
            dedup(&settings, &out, list.len(), &Silent).unwrap()
        });
        assert!(report.fuzzy > 100 && report.kept > 3, "{report:?}");
        results.push((tree(&out), report));
    }
    assert_eq!(results[0], results[1]);
    assert_eq!(results[0], results[2]);
}

#[test]
fn a_flipped_or_missing_byte_in_our_files_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    inputs(&folder.path().join("in"), 1, 10);
    let config = config(&folder.path().join("in"));
    let out = folder.path().join("out");
    let settings = crate::both();
    let curator = Curator::new(&config, None, Some(&settings), 1).unwrap();
    curator
        .run_shard(&shards(&config).unwrap()[0], &out, &Silent)
        .unwrap();
    dedup(&settings, &out, 1, &Silent).unwrap();
    let refused = |path: &Path| {
        let found = [
            SignatureFile::open(path).and_then(|f| f.verify()).err(),
            KeepList::read(path).map(|_| ()).err(),
        ];
        found
            .iter()
            .all(|e| matches!(e, Some(Error::Damaged { .. })))
    };
    for name in ["clean/00000.sig", "keep/00000.keep"] {
        let path = out.join(name);
        let sound = std::fs::read(&path).unwrap();
        assert_eq!(inspect(&path).unwrap()["documents"], 10);
        for at in (0..sound.len()).step_by(sound.len() / 40) {
            let mut bytes = sound.clone();
            bytes[at] ^= 0x10;
            std::fs::write(&path, &bytes).unwrap();
            assert!(refused(&path), "{name}: flip at {at} went unnoticed");
            std::fs::write(&path, &sound[..at]).unwrap();
            assert!(refused(&path), "{name}: cut at {at} went unnoticed");
        }
        std::fs::write(&path, &sound).unwrap();
    }
}

#[test]
fn signatures_of_another_shape_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    inputs(&folder.path().join("in"), 1, 5);
    let config = config(&folder.path().join("in"));
    let out = folder.path().join("out");
    let curator = Curator::new(&config, None, Some(&crate::both()), 1).unwrap();
    curator
        .run_shard(&shards(&config).unwrap()[0], &out, &Silent)
        .unwrap();
    let refused = |settings: &DedupConfig| match dedup(settings, &out, 1, &Silent) {
        Err(Error::Damaged { offset, .. }) => offset,
        other => panic!("{other:?}"),
    };
    let mut other = crate::both();
    other.minhash.as_mut().unwrap().seed = 2;
    assert_eq!(refused(&other), 8);
    let mut other = crate::both();
    other.keep = curate::dedup::KeepPolicy::Datatrove;
    assert_eq!(refused(&other), 8);
    let mut other = crate::both();
    other.minhash = Some(MinhashConfig::of(MinhashPreset::Native));
    assert_eq!(refused(&other), 8);
}

#[test]
fn signatures_of_another_shard_or_run_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    inputs(&folder.path().join("in"), 2, 5);
    let config = config(&folder.path().join("in"));
    let out = folder.path().join("out");
    let run = |config: &CurateConfig, which: &[usize]| {
        let curator = Curator::new(config, None, Some(&crate::both()), 1).unwrap();
        let list = shards(config).unwrap();
        for i in which {
            curator.run_shard(&list[*i], &out, &Silent).unwrap();
        }
    };
    run(&config, &[0, 1]);
    let refused = |word: &str| match dedup(&crate::both(), &out, 2, &Silent) {
        Err(Error::Damaged { path, found, .. }) => {
            assert!(path.ends_with("clean/00001.sig"), "{path:?}");
            assert!(found.contains(word), "{found}");
        }
        other => panic!("{other:?}"),
    };
    let (first, second) = (out.join("clean/00000.sig"), out.join("clean/00001.sig"));
    let sound = std::fs::read(&second).unwrap();
    std::fs::copy(&first, &second).unwrap();
    refused("shard 0");
    // settings that affect documents make it another run, the budget does not
    let roomy = CurateConfig {
        memory_mb: config.memory_mb * 2,
        ..config.clone()
    };
    run(&roomy, &[1]);
    assert_eq!(std::fs::read(&second).unwrap(), sound);
    let mut longer = config.clone();
    longer.max_record_bytes /= 2;
    run(&longer, &[1]);
    refused("another run");
}

#[test]
fn a_config_reports_all_its_contradictions_at_once() {
    let text = r#"{"inputs":[{"path":"","source":"a b"}],"memory_mb":1,
        "step":[{"language":{"keep":["xx"]}},{"extract":{}},{"gopher_quality":{"min_doc_words":9,"max_doc_words":3}}]}"#;
    let config: CurateConfig = serde_json::from_str(text).unwrap();
    let mut found = Vec::new();
    config.check(&mut |key, _, _| found.push(key.to_string()));
    for key in [
        "inputs[0].path",
        "inputs[0].source",
        "memory_mb",
        "step[0].language.keep[0]",
        "step[1].extract",
        "step[2].gopher_quality.min_doc_words",
    ] {
        assert!(found.iter().any(|f| f == key), "{key} missing in {found:?}");
    }
    for wrong in [
        r#"{"input":[]}"#,
        r#"{"step":[{"c5":{}}]}"#,
        r#"{"step":[{"c4":{"x":1}}]}"#,
    ] {
        assert!(
            serde_json::from_str::<CurateConfig>(wrong).is_err(),
            "{wrong}"
        );
    }
}
