//! Tests of `millrace takedown`: the corpus is that of inputs without the documents, and a kill leaves the bytes of a calm run.

use crate::cut_jobs::cut_job;
use crate::jobs::{data, millrace, output, succeed};
use curate::corpus::{KeepList, KeepStatus, documents, kept_documents};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// Documents of real texts with ids and addresses of their own, in three files; every tenth repeats an earlier one.
fn records() -> Vec<Vec<Value>> {
    let packed = fs::read(data("pile-00000.jsonl.zst")).unwrap();
    let lines = String::from_utf8(zstd::decode_all(packed.as_slice()).unwrap()).unwrap();
    let texts: Vec<String> = lines
        .lines()
        .filter(|l| !l.contains("Gutenberg"))
        .take(90)
        .map(|l| {
            serde_json::from_str::<Value>(l).unwrap()["text"]
                .as_str()
                .unwrap()
                .into()
        })
        .collect();
    let mut files = vec![Vec::new(); 3];
    for i in 0..90 {
        let text = if i % 10 == 9 {
            &texts[i - 7]
        } else {
            &texts[i]
        };
        let url = format!("https://host{}.example.org/page/{i}", i % 7);
        files[i % 3].push(json!({"id": format!("doc-{i}"), "text": text, "url": url,
            "meta": {"number": i, "share": 0.1}}));
    }
    files
}

/// A job over these documents without those of `without`.
fn job(folder: &Path, without: &[&str], settings: &str) -> PathBuf {
    let input = folder.join("in");
    fs::create_dir_all(&input).unwrap();
    for (i, file) in records().into_iter().enumerate() {
        let lines = file
            .iter()
            .filter(|r| !without.contains(&r["id"].as_str().unwrap()))
            .map(|r| format!("{r}\n"));
        fs::write(input.join(format!("{i}.jsonl")), lines.collect::<String>()).unwrap();
    }
    let text = format!(
        "name = \"corpus\"\nout = {:?}\n[curate]\ninputs = [{{ path = {input:?}, source = \"pile\" }}]\n{settings}\n",
        folder.join("out")
    );
    let path = folder.join("job.toml");
    fs::write(&path, text).unwrap();
    path
}

pub(crate) fn run(verb: &str, job: &Path) {
    succeed(&[verb, job.to_str().unwrap()]);
}

pub(crate) fn list(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("list.txt");
    fs::write(&path, text).unwrap();
    path
}

/// Takes down; returns what is told.
pub(crate) fn take_down(list: &Path, out: &Path) -> Value {
    let args = [
        "takedown",
        list.to_str().unwrap(),
        "--json",
        "--corpus",
        out.to_str().unwrap(),
    ];
    serde_json::from_slice(&succeed(&args).stdout).unwrap()
}

fn assert_same_files(a: &Path, b: &Path, names: &[&str]) {
    for name in names {
        assert_eq!(
            fs::read(a.join(name)).unwrap(),
            fs::read(b.join(name)).unwrap(),
            "{name}"
        );
    }
}

#[test]
fn a_corpus_after_a_takedown_is_that_of_inputs_without_the_documents() {
    let gone = ["doc-0", "doc-2", "doc-9", "doc-30", "doc-31", "doc-89"];
    let entries = "id:doc-0\nid:doc-2\nid:doc-9\nid:doc-89\n# the others by address\n\
        http://www.host2.example.org/page/30/#top\nhttps://host3.example.org/page/31\n";
    for (format, ending) in [
        ("jsonl_zst", "jsonl.zst"),
        ("jsonl_gz", "jsonl.gz"),
        ("parquet", "parquet"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let settings = format!(
            "output = \"{format}\"\n[dedup]\nexact = {{}}\nminhash = {{ preset = \"fineweb\" }}"
        );
        let [whole, without] = [&[][..], &gone[..]].map(|gone| {
            let folder = dir.path().join(gone.len().to_string());
            fs::create_dir(&folder).unwrap();
            let job = job(&folder, gone, &settings);
            run("curate", &job);
            run("dedup", &job);
            job
        });
        let [out, wanted] = [&whole, &without].map(|job| job.with_file_name("out"));
        let told = take_down(&list(dir.path(), entries), &out);
        assert_eq!(told[0]["takedowns"][0]["documents"], 6, "{told:#}");
        let clean: Vec<String> = (0..3)
            .flat_map(|i| {
                [
                    format!("clean/0000{i}.{ending}"),
                    format!("clean/0000{i}.sig"),
                ]
            })
            .collect();
        let clean: Vec<&str> = clean.iter().map(String::as_str).collect();
        assert_same_files(&out, &wanted, &clean);
        // the curation is done, and deduplication makes the lists of the smaller corpus
        let curated = succeed(&["curate", whole.to_str().unwrap()]);
        let stderr = String::from_utf8(curated.stderr).unwrap();
        assert!(stderr.contains("done before"), "{stderr}");
        assert_same_files(&out, &wanted, &clean);
        run("dedup", &whole);
        assert_same_files(
            &out,
            &wanted,
            &[
                "keep/00000.keep",
                "keep/00001.keep",
                "keep/00002.keep",
                "keep/clusters.jsonl",
            ],
        );
    }
}

/// Ids and texts of the kept documents of all shards.
pub(crate) fn kept(out: &Path, shards: usize) -> Vec<(String, String)> {
    let all = (0..shards).flat_map(|shard| kept_documents(out, shard).unwrap());
    all.map(|d| d.unwrap()).map(|d| (d.id, d.text)).collect()
}

/// By id, the status of every document: `kept SIZE`, or its kind and the id that it repeats.
fn statuses(out: &Path, shards: usize) -> BTreeMap<String, String> {
    let ids: Vec<Vec<String>> = (0..shards)
        .map(|shard| {
            documents(out, shard)
                .unwrap()
                .map(|d| d.unwrap().id)
                .collect()
        })
        .collect();
    let mut found = BTreeMap::new();
    for (shard, of) in ids.iter().enumerate() {
        let list = KeepList::read(&out.join(format!("keep/{shard:05}.keep"))).unwrap();
        assert_eq!(list.len(), of.len());
        for (i, id) in of.iter().enumerate() {
            let name = |shard: u32, document: u32| match shard {
                u32::MAX => "none",
                _ => ids[shard as usize][document as usize].as_str(),
            };
            let status = match list.status(i) {
                KeepStatus::Kept => format!("kept {}", list.cluster_size(i)),
                KeepStatus::Exact(shard, document) => format!("exact {}", name(shard, document)),
                KeepStatus::Fuzzy(shard, document) => format!("fuzzy {}", name(shard, document)),
                KeepStatus::Url(shard, document) => format!("url {}", name(shard, document)),
                other => format!("{other:?}"),
            };
            found.insert(id.clone(), status);
        }
    }
    found
}

/// Appends to every file the first text of the next one as it is, and the second with a few more words.
fn repeat_some(input: &Path) {
    let mut names: Vec<PathBuf> = fs::read_dir(input)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    names.sort();
    let files: Vec<String> = names
        .iter()
        .map(|name| fs::read_to_string(name).unwrap())
        .collect();
    for (i, name) in names.iter().enumerate() {
        let mut next = files[(i + 1) % files.len()].lines();
        let same = next.next().unwrap();
        let mut near: Value = serde_json::from_str(next.next().unwrap()).unwrap();
        near["text"] = json!(format!("{} and so on", near["text"].as_str().unwrap()));
        fs::write(name, format!("{}{same}\n{near}\n", files[i])).unwrap();
    }
}

#[test]
fn keep_lists_and_cuts_follow_the_documents_that_stay() {
    let dir = tempfile::tempdir().unwrap();
    let job = cut_job(dir.path());
    repeat_some(&dir.path().join("in"));
    run("curate", &job);
    run("dedup", &job);
    let out = dir.path().join("out");
    let (before, texts) = (statuses(&out, 12), kept(&out, 12));
    // kept documents that others repeat, which stay, and some of every status
    let duplicates = before.values().filter_map(|status| status.split_once(' '));
    let duplicates = duplicates.filter(|(kind, _)| ["exact", "fuzzy", "url"].contains(kind));
    let repeated: BTreeSet<&str> = duplicates.map(|(_, id)| id).take(2).collect();
    let repeats = |status: &str| {
        let of = status.split_once(' ').map(|(_, of)| of);
        of.is_some_and(|of| repeated.contains(of))
    };
    let mut gone: BTreeSet<String> = repeated.iter().map(|&id| id.to_owned()).collect();
    for kind in ["kept", "exact", "fuzzy", "url", "Hollow", "Contaminated"] {
        let of = before
            .iter()
            .filter(|(_, status)| status.starts_with(kind) && !repeats(status));
        gone.extend(of.map(|(id, _)| id.clone()).take(4));
    }
    let entries: String = gone.iter().map(|id| format!("id:{id}\n")).collect();
    let told = take_down(&list(dir.path(), &entries), &out);
    assert_eq!(told[0]["takedowns"][0]["documents"], gone.len() as u64);
    let is_gone = |id: &str| gone.contains(id.split('#').next().unwrap());
    let wanted: Vec<_> = texts.into_iter().filter(|(id, _)| !is_gone(id)).collect();
    assert!(wanted.len() > 100 && wanted.iter().any(|(id, _)| id.contains('#')));
    assert_eq!(kept(&out, 12), wanted);
    let (mut orphans, mut smaller) = (0, 0);
    let after = statuses(&out, 12);
    for (id, status) in &before {
        let Some(now) = after.get(id) else {
            assert!(gone.contains(id), "{id} is gone");
            continue;
        };
        assert!(!gone.contains(id), "{id} is there");
        let (kind, of) = status.split_once(' ').unwrap_or((status, ""));
        let wanted = match kind {
            "kept" => {
                let lost = gone.iter().filter(|other| {
                    let (exact, fuzzy) = (format!("exact {id}"), format!("fuzzy {id}"));
                    before[*other] == exact || before[*other] == fuzzy
                });
                let lost = lost.count();
                smaller += lost;
                format!("kept {}", of.parse::<usize>().unwrap() - lost)
            }
            _ if gone.contains(of) => {
                orphans += 1;
                format!("{kind} none")
            }
            _ => status.clone(),
        };
        assert_eq!(now, &wanted, "{id}");
    }

    assert!(orphans > 0 && smaller > 0, "{orphans} {smaller}");
    assert_eq!(told[0]["takedowns"][0]["duplicates_of_removed"], orphans);
    let text = fs::read_to_string(out.join("keep/clusters.jsonl")).unwrap();
    assert!(!text.is_empty() && !gone.iter().any(|id| text.contains(&format!("\"{id}\""))));
}

/// Every file of a folder by name, but the lock.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).unwrap().flatten() {
            let path = entry.path();
            let name = path.strip_prefix(folder).unwrap().display().to_string();
            if path.is_dir() {
                folders.push(path);
            } else if name != ".lock" {
                found.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    found
}

fn copy(from: &Path, to: &Path) {
    for (name, bytes) in files(from) {
        let path = to.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

#[test]
fn kills_leave_the_bytes_of_a_calm_takedown() {
    let dir = tempfile::tempdir().unwrap();
    let job = cut_job(dir.path());
    run("curate", &job);
    run("dedup", &job);
    let out = dir.path().join("out");
    let ids = kept(&out, 12);
    let entries: String = ids
        .iter()
        .step_by(5)
        .map(|(id, _)| format!("id:{}\n", id.split('#').next().unwrap()))
        .collect();
    let list = list(dir.path(), &entries);
    let [calm, killed] = ["calm", "killed"].map(|name| dir.path().join(name).join("out"));
    copy(&out, &calm);
    copy(&out, &killed);
    // the same folder for both: records name it
    let place = dir.path().join("place");
    fs::rename(&calm, &place).unwrap();
    take_down(&list, &place);
    fs::create_dir_all(calm.parent().unwrap()).unwrap();
    fs::rename(&place, &calm).unwrap();
    let names = |folder: &Path| files(folder).keys().cloned().collect::<Vec<_>>();
    let (before, after) = (names(&killed), names(&calm));
    let args = [
        "takedown",
        list.to_str().unwrap(),
        "--corpus",
        place.to_str().unwrap(),
    ];
    // kills at later and later moments, until a process is faster; whether one met the work
    let is_met = |first: u64| {
        let _ = fs::remove_dir_all(&place);
        copy(&killed, &place);
        let (mut delay, mut is_met) = (Duration::from_micros(first), false);
        loop {
            let mut child = millrace(&args)
                .stderr(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            std::thread::sleep(delay);
            let _ = child.kill();
            if child.wait().unwrap().success() {
                return is_met;
            }
            let found = names(&place);
            is_met |= found != before && found != after;
            delay = delay.mul_f64(1.25);
            assert!(delay < Duration::from_secs(60), "it does not end");
        }
    };
    assert!(
        (20..40).any(|tenths| is_met(100 * tenths)),
        "no kill met the work"
    );
    take_down(&list, &place);
    let (calm, killed) = (files(&calm), files(&place));
    let names: BTreeSet<&String> = calm.keys().chain(killed.keys()).collect();
    let differ: Vec<_> = names
        .iter()
        .filter(|n| calm.get(**n) != killed.get(**n))
        .collect();
    assert!(differ.is_empty(), "these differ: {differ:?}");
    assert!(calm.contains_key("takedown/00001.json") && !calm.contains_key("takedown/00002.json"));
}

/// Header fields and offset of every record of a gzipped WARC file, read without the reader under test.
fn headers(path: &Path) -> BTreeMap<String, (u64, BTreeMap<String, String>)> {
    let bytes = fs::read(path).unwrap();
    let mut rest = &bytes[..];
    let mut found = BTreeMap::new();
    while !rest.is_empty() {
        let offset = (bytes.len() - rest.len()) as u64;
        let mut decoder = flate2::bufread::GzDecoder::new(rest);
        let mut record = Vec::new();
        decoder.read_to_end(&mut record).unwrap();
        rest = decoder.into_inner();
        let head = String::from_utf8_lossy(&record).into_owned();
        let head = head.split("\r\n\r\n").next().unwrap().to_string();
        let fields: BTreeMap<String, String> = head
            .lines()
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_string(), value.trim_matches(['<', '>']).to_string()))
            .collect();
        if fields
            .get("WARC-Type")
            .is_some_and(|kind| kind == "response")
        {
            found.insert(fields["WARC-Record-ID"].clone(), (offset, fields));
        }
    }
    found
}

#[test]
fn documents_of_a_crawl_name_their_records_and_are_found_by_host_and_digest() {
    let dir = tempfile::tempdir().unwrap();
    let warc = data("crawl-00000.warc.gz");
    let out = dir.path().join("out");
    let job = dir.path().join("job.toml");
    let text = format!(
        "name = \"crawl\"\nout = {out:?}\n[curate]\n\
         inputs = [{{ path = {warc:?}, format = \"warc\", source = \"crawl\" }}]\n\
         [[curate.step]]\nextract = {{}}\n[[curate.step]]\ngopher_quality = {{}}\n"
    );
    fs::write(&job, text).unwrap();
    run("curate", &job);
    let known = headers(&warc);
    let before: Vec<_> = documents(&out, 0).unwrap().map(|d| d.unwrap()).collect();
    assert!(before.len() > 20);
    for document in &before {
        let meta = document.meta.as_ref().unwrap();
        let (offset, fields) = &known[meta["warc"]["record_id"].as_str().unwrap()];
        assert_eq!(meta["warc"]["offset"], *offset);
        assert_eq!(meta["warc"]["file"], "crawl-00000.warc.gz");
        assert_eq!(
            document.url.as_deref(),
            Some(fields["WARC-Target-URI"].as_str())
        );
        for (key, name) in [
            ("payload_digest", "WARC-Payload-Digest"),
            ("truncated", "WARC-Truncated"),
            ("identified_payload_type", "WARC-Identified-Payload-Type"),
        ] {
            let found = meta["warc"].get(key).and_then(Value::as_str);
            assert_eq!(found, fields.get(name).map(String::as_str), "{key}");
        }
    }
    let digest = |i: usize| {
        let meta = before[i].meta.as_ref().unwrap();
        meta["warc"]["payload_digest"].as_str().unwrap().to_string()
    };
    let host = |i: usize| {
        let url = before[i].url.as_deref().unwrap();
        url.split('/').nth(2).unwrap().to_string()
    };
    let lines = |out: &Path| -> Vec<Value> {
        let packed = fs::read(out.join("dropped/00000.jsonl.zst")).unwrap();
        let text = String::from_utf8(zstd::decode_all(&packed[..]).unwrap()).unwrap();
        text.lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect()
    };
    let dropped = lines(&out);
    let with_url = dropped
        .iter()
        .find(|l| l["url"].is_string() && l["excerpt"] != "");
    let url = with_url.unwrap()["url"].as_str().unwrap();
    let entries = format!("host:{}\n{}\n{url}\n", host(3), digest(7));
    let told = take_down(&list(dir.path(), &entries), &out);
    let same = |i: &usize| host(*i) == host(3) || digest(*i) == digest(7);
    let wanted = (0..before.len())
        .filter(|i| !same(i))
        .map(|i| before[i].clone());
    let wanted: Vec<_> = wanted.collect();
    assert!(wanted.len() < before.len());
    let after: Vec<_> = documents(&out, 0).unwrap().map(|d| d.unwrap()).collect();
    assert_eq!(after, wanted);
    let left = lines(&out);
    let named = |line: &Value| {
        let of = line["url"].as_str().unwrap_or_default();
        of == url || of.split('/').nth(2) == Some(host(3).as_str())
    };
    let wanted: Vec<Value> = dropped.iter().filter(|l| !named(l)).cloned().collect();
    assert_eq!(left, wanted);
    assert_eq!(
        told[0]["takedowns"][0]["dropped_lines"],
        (dropped.len() - left.len()) as u64
    );
    // the counts add up, and no sample shows a removed text
    let record = fs::read_to_string(out.join("records/curate/00000.json")).unwrap();
    let record: Value = serde_json::from_str(&record).unwrap();
    let counts = &record["counts"];
    assert_eq!(counts["kept"], after.len() as u64);
    assert_eq!(
        counts["dropped"]["takedown"],
        (before.len() - after.len()) as u64
    );
    let samples = counts["kept_samples"].as_array().unwrap();
    assert!(
        samples
            .iter()
            .all(|s| after.iter().any(|d| s["id"] == *d.id))
    );
    // a second time there is nothing to do, and the same is told
    let bytes = files(&out);
    assert_eq!(take_down(&dir.path().join("list.txt"), &out), told);
    assert_eq!(files(&out), bytes);
}

#[test]
fn nothing_is_touched_that_is_damaged_unfinished_or_only_to_be_shown() {
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path(), &[], "[dedup]\nexact = {}");
    run("curate", &job);
    let out = dir.path().join("out");
    let place = out.to_str().unwrap();
    let entries = list(dir.path(), "id:doc-1\nhost:\nsha1:nothing\nid:doc-3\n");
    let refused = |list: &Path, code: i32, wanted: &[&str]| {
        let bytes = files(&out);
        let printed = output(&["takedown", list.to_str().unwrap(), "--corpus", place]);
        let stderr = String::from_utf8(printed.stderr).unwrap();
        assert_eq!(printed.status.code(), Some(code), "{stderr}");
        for wanted in wanted {
            assert!(stderr.contains(wanted), "{wanted}: {stderr}");
        }
        assert_eq!(files(&out), bytes);
    };
    refused(
        &entries,
        2,
        &[
            "line 2: found \"host:\"",
            "line 3: found \"sha1:nothing\"",
            "wanted a URL",
        ],
    );
    refused(&dir.path().join("absent.txt"), 2, &["absent.txt"]);
    let entries = list(dir.path(), "id:doc-1\nid:doc-3\n");
    refused(&entries, 1, &["dedup has not been finished"]);
    run("dedup", &job);
    let sound = fs::read(out.join("clean/00001.jsonl.zst")).unwrap();
    let mut wrong = sound.clone();
    wrong[sound.len() / 2] ^= 1;
    fs::write(out.join("clean/00001.jsonl.zst"), &wrong).unwrap();
    refused(
        &entries,
        1,
        &["the files of curate/00001 are not those of its record"],
    );
    fs::write(out.join("clean/00001.jsonl.zst"), &sound).unwrap();
    // a dry run shows and changes nothing
    let bytes = files(&out);
    let dry = [
        "takedown",
        entries.to_str().unwrap(),
        "--dry-run",
        "--corpus",
        place,
    ];
    let shown = String::from_utf8(succeed(&dry).stdout).unwrap();
    assert!(
        shown.contains("2 documents and 0 dropped ones by list.txt"),
        "{shown}"
    );
    let shown = succeed(&[&dry[..], &["--json"]].concat()).stdout;
    let shown: Value = serde_json::from_slice(&shown).unwrap();
    assert_eq!(files(&out), bytes);
    // a decided takedown is finished before anything else is done with the folder
    fs::create_dir_all(out.join("takedown")).unwrap();
    fs::write(
        out.join("takedown/commit.json"),
        "{\"files\":[],\"remove\":[]}",
    )
    .unwrap();
    let printed = output(&["curate", job.to_str().unwrap()]);
    let stderr = String::from_utf8(printed.stderr).unwrap();
    assert!(
        !printed.status.success() && stderr.contains("was interrupted"),
        "{stderr}"
    );
    // what was shown is what is told afterwards, but for what is known then
    let told = take_down(&entries, &out);
    let keys = |of: &Value| -> Vec<String> { of[0].as_object().unwrap().keys().cloned().collect() };
    assert_eq!(keys(&shown), keys(&told));
    assert_eq!([&shown[0]["dry_run"], &told[0]["dry_run"]], [true, false]);
    assert_eq!(shown[0]["corpus"], told[0]["corpus"]);
    for key in [
        "list",
        "documents",
        "shards",
        "entries_without_documents",
        "before",
    ] {
        assert_eq!(
            shown[0]["takedowns"][0][key], told[0]["takedowns"][0][key],
            "{key}"
        );
    }
    for key in ["datasets", "checkpoints"] {
        assert!(shown[0][key].is_null() && told[0][key].is_array(), "{key}");
    }
    run("curate", &job);
    let missing = list(dir.path(), "id:doc-1\n");
    let printed = output(&[
        "takedown",
        missing.to_str().unwrap(),
        "--corpus",
        dir.path().to_str().unwrap(),
    ]);
    assert!(!printed.status.success());
}

/// A build without stores says what it lacks. With them: `tests/job_stores/takedown.rs`.
#[test]
fn a_corpus_in_a_store_needs_a_build_with_stores_and_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path(), &[], "");
    run("curate", &job);
    let stored = dir.path().join("stored.toml");
    let settings = fs::read_to_string(&job).unwrap();
    let store = "[store]\nurl = \"s3://bucket/runs/one\"\n[curate]";
    fs::write(&stored, settings.replace("[curate]", store)).unwrap();
    let out = dir.path().join("out");
    let bytes = files(&out);
    let entries = list(dir.path(), "id:doc-1\n");
    let [entries, stored] = [&entries, &stored].map(|path| path.to_str().unwrap());
    let printed = output(&["takedown", entries, "--corpus", stored]);
    let stderr = String::from_utf8(printed.stderr).unwrap();
    assert!(!printed.status.success(), "{stderr}");
    assert!(stderr.contains("--features object-store"), "{stderr}");
    assert_eq!(files(&out), bytes);
}

/// Ids of the lines of a file of texts that reports show, packed or not.
fn ids_shown(path: &Path) -> BTreeSet<String> {
    let bytes = fs::read(path).unwrap();
    let text = match path.extension().is_some_and(|e| e == "zst") {
        true => zstd::decode_all(&bytes[..]).unwrap(),
        false => bytes,
    };
    let text = String::from_utf8(text).unwrap();
    let lines = text
        .lines()
        .map(|l| serde_json::from_str::<Value>(l).unwrap());
    lines
        .map(|l| l["id"].as_str().unwrap().to_string())
        .collect()
}

#[test]
fn texts_that_reports_show_leave_with_their_documents() {
    let dir = tempfile::tempdir().unwrap();
    // long texts are dropped
    let settings = "[[curate.step]]\nlength = { max_chars = 3000 }\n[dedup]\nexact = {}";
    let job = job(dir.path(), &[], settings);
    run("run", &job);
    let out = dir.path().join("out");
    let of_shards: Vec<PathBuf> = (0..3)
        .map(|i| out.join(format!("samples/0000{i}.jsonl.zst")))
        .collect();
    let before = ids_shown(&out.join("samples.jsonl"));
    let record = fs::read_to_string(out.join("manifest.json")).unwrap();
    let record: Value = serde_json::from_str(&record).unwrap();
    let sample = |key: &str| {
        let samples = record["curate"]["counts"][key].as_array().unwrap();
        let ids = samples
            .iter()
            .map(|s| s["id"].as_str().unwrap().to_string());
        ids.rev().find(|id| before.contains(id)).unwrap()
    };
    let gone = [sample("kept_samples"), sample("dropped_samples")];
    let of_before: Vec<BTreeSet<String>> = of_shards.iter().map(|path| ids_shown(path)).collect();
    assert!(
        gone.iter()
            .all(|id| of_before.iter().any(|of| of.contains(id)))
    );
    let entries = format!("id:{}\nid:{}\n", gone[0], gone[1]);
    take_down(&list(dir.path(), &entries), &out);
    let without = |ids: &BTreeSet<String>| -> BTreeSet<String> {
        ids.iter()
            .filter(|id| !gone.contains(id))
            .cloned()
            .collect()
    };
    assert_eq!(ids_shown(&out.join("samples.jsonl")), without(&before));
    for (path, ids) in of_shards.iter().zip(&of_before) {
        assert_eq!(ids_shown(path), without(ids));
    }
    // and the files are those of the records
    let again = succeed(&["run", job.to_str().unwrap()]).stderr;
    let again = String::from_utf8(again).unwrap();
    assert!(again.contains("curate: done before"), "{again}");
}
