//! Translated configurations of dolma's mixer, against dolma's own results (`tests/oracles/dolma_mixer.py`).

use std::path::Path;

use curate::Silent;
use curate::corpus::{CleanDocument, documents, kept_documents};
use curate::dedup::{DedupConfig, UrlDedupConfig, UrlKeep, dedup};
use curate::mixer::translate;
use curate::pipeline::{CurateConfig, Curator, ShardReport, shards};
use curate::read::{Format, Input};
use serde_json::Value;
use sha2::{Digest, Sha256};

fn golden() -> Value {
    let packed = include_bytes!("../data/dolma_mixer.json.zst");
    serde_json::from_slice(&zstd::decode_all(&packed[..]).unwrap()).unwrap()
}

/// Writes the golden's documents and attributes.
fn write_files(golden: &Value, root: &Path) {
    for (name, text) in golden["files"].as_object().unwrap() {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = std::fs::File::create(path).unwrap();
        let mut encoder = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, text.as_str().unwrap().as_bytes()).unwrap();
        encoder.finish().unwrap();
    }
}

/// Ids and texts' digests of the documents that a translated configuration leaves, and their top-level fields.
fn mixed(config: &Value, root: &Path, out: &Path) -> Vec<(String, String, Vec<String>)> {
    let config = config.to_string().replace("ROOT", root.to_str().unwrap());
    let path = root.join("config.yaml");
    std::fs::write(&path, config).unwrap();
    let translation = translate(&path).unwrap_or_else(|e| panic!("{e}"));
    let curate = translation.job["curate"].clone();
    let config: CurateConfig = serde_json::from_value(curate).unwrap();
    config.check(&mut |k, f, w| panic!("{k}: {f}: {w}"));
    let curator = Curator::new(&config, None, None, 0).unwrap();
    let mut sum = ShardReport::default();
    let mut found = Vec::new();
    for shard in shards(&config).unwrap() {
        sum.merge(&curator.run_shard(&shard, out, &Silent).unwrap());
        found.extend(documents(out, shard.number).unwrap().map(Result::unwrap));
    }
    assert!(sum.adds_up() && sum.quarantined == 0, "{sum:?}");
    let rows = found.into_iter().map(|document| {
        let digest = Sha256::digest(document.text.as_bytes());
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let meta = document.meta.unwrap_or_default();
        let names = ["source", "added", "created", "version", "attributes"];
        let names = names.into_iter().filter(|n| meta.get(n).is_some());
        (document.id, digest, names.map(String::from).collect())
    });
    rows.collect()
}

#[test]
fn translated_configurations_keep_the_same_documents_with_the_same_texts_as_dolmas_mixer() {
    let golden = golden();
    let folder = tempfile::tempdir().unwrap();
    write_files(&golden, folder.path());
    let cases = golden["cases"].as_array().unwrap();
    assert!(cases.len() > 120);
    let mut wrong = Vec::new();
    let (mut kept, mut empty) = (0, 0);
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let out = folder.path().join(format!("out/{name}"));
        let found = mixed(&case["config"], folder.path(), &out);
        let rows = case["kept"].as_array().unwrap().iter();
        // a document without a text is dropped here: dolma keeps it
        let with_text: Vec<&Value> = rows.filter(|row| row[3] != 0).collect();
        empty += case["kept"].as_array().unwrap().len() - with_text.len();
        let ids = |rows: &[&Value]| -> Vec<String> {
            rows.iter()
                .map(|row| row[0].as_str().unwrap().to_string())
                .collect()
        };
        let found_ids: Vec<String> = found.iter().map(|row| row.0.clone()).collect();
        if ids(&with_text) != found_ids {
            let missing: Vec<String> = ids(&with_text)
                .into_iter()
                .filter(|id| !found_ids.contains(id))
                .collect();
            let wanted = ids(&with_text);
            let more: Vec<&String> = found_ids.iter().filter(|id| !wanted.contains(id)).collect();
            wrong.push(format!("{name}: missing {missing:?}, more {more:?}"));
            continue;
        }
        for (row, (id, digest, names)) in with_text.iter().zip(&found) {
            if row[1] != digest.as_str() {
                wrong.push(format!("{name}: {id}: another text"));
            }
            let theirs = row[2]
                .as_array()
                .unwrap()
                .iter()
                .map(|n| n.as_str().unwrap());
            let mut theirs: Vec<&str> = theirs.filter(|n| !["id", "text"].contains(n)).collect();
            let mut ours: Vec<&str> = names.iter().map(String::as_str).collect();
            theirs.sort_unstable();
            ours.sort_unstable();
            // an object without a name in it is left out here
            theirs.retain(|name| *name != "attributes" || ours.contains(name));
            if theirs != ours {
                wrong.push(format!("{name}: {id}: fields {ours:?}, wanted {theirs:?}"));
            }
        }
        kept += found.len();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(kept > 7000 && empty < kept / 10, "{kept} {empty}");
}

/// `dedupe-by-url` of dolma's own tests: the deduper marks the second document of an address.
#[test]
fn documents_of_one_address_are_those_that_dolmas_deduper_marks() {
    let golden = golden();
    let folder = tempfile::tempdir().unwrap();
    write_files(&golden, folder.path());
    let input = Input {
        path: folder
            .path()
            .join("dedupe/documents")
            .to_string_lossy()
            .into_owned(),
        format: Format::Dolma,
        attributes: vec!["dedupe-by-url".to_string()],
        ..Input::default()
    };
    let config = CurateConfig {
        inputs: vec![input],
        ..CurateConfig::default()
    };
    let url = DedupConfig {
        url: Some(UrlDedupConfig {
            keep: UrlKeep::First,
            ..UrlDedupConfig::default()
        }),
        ..DedupConfig::default()
    };
    let out = folder.path().join("out");
    let curator = Curator::new(&config, None, Some(&url), 0).unwrap();
    let list = shards(&config).unwrap();
    curator.run_shard(&list[0], &out, &Silent).unwrap();
    let report = dedup(&url, &out, list.len(), &Silent).unwrap();
    let marked = |document: &CleanDocument| {
        let meta = document.meta.as_ref().unwrap();
        meta["attributes"].get("bff_duplicate_url").is_some()
    };
    let all = documents(&out, 0).unwrap().map(Result::unwrap);
    let unmarked = all.filter(|document| !marked(document)).map(|d| d.id);
    let kept = kept_documents(&out, 0).unwrap().map(|d| d.unwrap().id);
    assert_eq!(kept.collect::<Vec<_>>(), unmarked.collect::<Vec<_>>());
    assert_eq!((report.kept, report.url), (9, 1));
}
