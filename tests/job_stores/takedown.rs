//! `millrace takedown` in a store: its objects are the files that a takedown from a plain folder leaves, also after kills.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::s3::{self, Answer, Objects};

/// Folder of the job in the bucket.
const FOLDER: &str = "runs/one/";
/// The list of new objects of a takedown that has not been finished.
const PENDING: &str = "takedown/commit.json";

type Files = BTreeMap<String, Vec<u8>>;

/// `millrace ARGS...` with the access to a server.
fn millrace(server: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace_under_test"));
    command.args(args).stdin(Stdio::null());
    for (name, value) in [
        ("AWS_ENDPOINT", format!("http://{server}").as_str()),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
    ] {
        command.env(name, value);
    }
    command
}

fn output(server: &str, args: &[&str]) -> Output {
    millrace(server, args).output().unwrap()
}

fn succeed(server: &str, args: &[&str]) -> Output {
    let out = output(server, args);
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "millrace {args:?} failed:\n{stderr}");
    out
}

/// A server that answers everything as it should.
fn calm(objects: &Objects) -> String {
    s3::serve(objects.clone(), |_| Answer::Usual)
}

/// Documents of letters, and some of digits, in two files; long ones are dropped.
fn inputs(folder: &Path) -> PathBuf {
    let mut state = 7u32;
    let mut next = move |most: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % most
    };
    let mut files = [String::new(), String::new()];
    for i in 0..120 {
        let letters = if is_named(i) {
            "0123456789"
        } else {
            "abcdefghij"
        };
        let words = 20 + next(60);
        let word = |next: &mut dyn FnMut(usize) -> usize| -> String {
            let length = 1 + next(8);
            (0..length)
                .map(|_| letters.as_bytes()[next(10)] as char)
                .collect()
        };
        let text: Vec<String> = (0..words).map(|_| word(&mut next)).collect();
        files[i % 2] += &format!(
            "{}\n",
            json!({"id": format!("d{i}"), "text": text.join(" "), "url": format!("https://h{i}.example.org/")})
        );
    }
    let folder = folder.join("in");
    fs::create_dir_all(&folder).unwrap();
    for (i, text) in files.iter().enumerate() {
        fs::write(folder.join(format!("{i}.jsonl")), text).unwrap();
    }
    folder
}

fn is_named(document: usize) -> bool {
    [3, 40, 77, 78, 105].contains(&document)
}

/// A job with all stages, whose folder is `folder/out`; with a store or without.
fn job(folder: &Path, store: &str) -> PathBuf {
    let text = format!(
        r#"
name = "stored"
out = {out:?}
{store}
[curate]
inputs = [{{ path = {input:?}, source = "texts" }}]
[[curate.step]]
length = {{ max_chars = 350 }}
[dedup]
exact = {{}}
[tokenize]
append_eod = false
tokenizer = {{ train = {{ kind = "bpe", vocab = 300 }} }}
[blend]
seq_length = 16
split = "100,0,0"
[[blend.dataset]]
name = "texts"
[model]
family = "llama"
layers = 1
d_model = 16
heads = 2
[train]
steps = 4
warmup_steps = 2
global_batch = 4
micro_batch = 2
checkpoint = {{ every = 2, keep = 2 }}
"#,
        out = folder.join("out"),
        input = folder.join("in"),
    );
    let name = if store.is_empty() {
        "plain.toml"
    } else {
        "stored.toml"
    };
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path
}

const STORE: &str = "[store]\nurl = \"s3://bucket/runs/one\"\n";

/// Every file below a folder by name, but for the lock.
fn files(folder: &Path) -> Files {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).into_iter().flatten().flatten() {
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

fn put(folder: &Path, files: &Files) {
    for (name, bytes) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

/// The job's objects by their names below its folder.
fn stored(objects: &Objects) -> Files {
    let objects = objects.lock().unwrap();
    let own = objects.iter();
    own.map(|(name, bytes)| {
        (
            name.strip_prefix(FOLDER).unwrap().to_string(),
            bytes.clone(),
        )
    })
    .collect()
}

/// A bucket with these objects of the job.
fn bucket(files: &Files) -> Objects {
    let objects = files.iter();
    let objects = objects.map(|(name, bytes)| (format!("{FOLDER}{name}"), bytes.clone()));
    Objects::new(std::sync::Mutex::new(objects.collect()))
}

/// Names whose bytes differ.
fn different(a: &Files, b: &Files) -> BTreeSet<String> {
    let names = a.keys().chain(b.keys());
    names
        .filter(|name| a.get(*name) != b.get(*name))
        .cloned()
        .collect()
}

/// A finished job in a store, and what a takedown makes of it.
struct Case {
    folder: tempfile::TempDir,
    list: PathBuf,
    stored: PathBuf,
    before: Files,
    /// Files of a plain folder with the same job after the takedown, without its settings.
    after: Files,
    /// Its answer in JSON.
    told: Value,
}

impl Case {
    fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    /// As another machine, whose folder is empty.
    fn forget(&self) {
        let _ = fs::remove_dir_all(self.out());
    }

    fn args<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let mut args = vec!["takedown", self.list.to_str().unwrap(), "--json"];
        args.extend(["--corpus", self.stored.to_str().unwrap()]);
        args.extend(more);
        args
    }

    fn expect_done(&self, objects: &Objects, what: &str) {
        let mut found = stored(objects);
        assert_eq!(
            found.remove("job.toml"),
            self.before.get("job.toml").cloned()
        );
        let differ = different(&found, &self.after);
        assert!(differ.is_empty(), "{what}: these differ: {differ:?}");
    }
}

fn case() -> Case {
    let folder = tempfile::tempdir().unwrap();
    inputs(folder.path());
    let stored_job = job(folder.path(), STORE);
    let named = (0..120).filter(|i| is_named(*i));
    let list: String = named.map(|i| format!("id:d{i}\n")).collect();
    let list_path = folder.path().join("list.txt");
    fs::write(&list_path, list + "https://h8.example.org\n").unwrap();
    let objects = Objects::default();
    succeed(&calm(&objects), &["run", stored_job.to_str().unwrap()]);
    let mut case = Case {
        list: list_path,
        stored: stored_job,
        before: stored(&objects),
        after: Files::new(),
        told: Value::Null,
        folder,
    };
    case.forget();
    // the same files as those of a folder
    put(&case.out(), &case.before);
    fs::remove_file(case.out().join("job.toml")).unwrap();
    let plain = job(case.folder.path(), "");
    let args = [
        "takedown",
        case.list.to_str().unwrap(),
        "--json",
        "--corpus",
        plain.to_str().unwrap(),
    ];
    let told = succeed("nowhere", &args).stdout;
    case.told = serde_json::from_slice(&told).unwrap();
    case.after = files(&case.out());
    case.forget();
    case
}

#[test]
fn objects_are_the_files_that_a_takedown_from_a_folder_leaves() {
    let case = case();
    let told = &case.told[0];
    assert!(told["takedowns"][0]["documents"].as_u64().unwrap() > 2);
    assert!(told["takedowns"][0]["dropped_lines"].as_u64().unwrap() > 0);
    assert_eq!(told["datasets"][0]["contains"], "yes");
    assert!(!told["checkpoints"].as_array().unwrap().is_empty());
    let differ = different(&case.before, &case.after);
    assert!(differ.len() > 10, "{differ:?}");
    let objects = bucket(&case.before);
    let server = calm(&objects);
    // a dry run changes nothing, and leaves no copy
    let shown = succeed(&server, &case.args(&["--dry-run"])).stdout;
    let shown: Value = serde_json::from_slice(&shown).unwrap();
    assert_eq!(
        shown[0]["takedowns"][0]["documents"],
        told["takedowns"][0]["documents"]
    );
    assert_eq!(
        (&shown[0]["dry_run"], &shown[0]["corpus"]),
        (&json!(true), &told["corpus"])
    );
    assert_eq!(stored(&objects), case.before);
    assert_eq!(files(&case.out()), Files::new());
    // a machine that has worked on the job has copies of old files
    put(&case.out(), &case.before);
    let found = succeed(&server, &case.args(&[])).stdout;
    assert_eq!(serde_json::from_slice::<Value>(&found).unwrap(), case.told);
    case.expect_done(&objects, "calm");
    let here = files(&case.out());
    for (name, bytes) in &here {
        let now = case.after.get(name).or_else(|| case.before.get(name));
        assert_eq!(Some(bytes), now, "{name}");
    }
    // once more there is nothing to do, and the answer is the same
    let found = succeed(&server, &case.args(&[])).stdout;
    assert_eq!(serde_json::from_slice::<Value>(&found).unwrap(), case.told);
    case.expect_done(&objects, "again");
    // and the job goes on with the smaller corpus
    case.forget();
    let job = case.stored.to_str().unwrap();
    let again = succeed(&server, &["curate", job]).stderr;
    let again = String::from_utf8(again).unwrap();
    assert!(again.contains("curate: done before"), "{again}");
    case.expect_done(&objects, "curated");
}

#[test]
fn kills_at_requests_leave_the_objects_of_a_calm_takedown_and_a_store_that_other_verbs_refuse() {
    let case = case();
    let (mut kills, mut lists) = (0, 0);
    for at in (0..).step_by(5) {
        let objects = bucket(&case.before);
        let (count, is_met) = (AtomicUsize::new(0), Arc::new(AtomicBool::new(false)));
        let met = is_met.clone();
        let server = s3::serve(objects.clone(), move |method| {
            let changes = method == "PUT" || method == "DELETE";
            if changes && count.fetch_add(1, Ordering::SeqCst) >= at {
                met.store(true, Ordering::SeqCst);
                // the process is killed in the meantime
                std::thread::sleep(Duration::from_secs(600));
            }
            Answer::Usual
        });
        case.forget();
        let mut child = millrace(&server, &case.args(&[]))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        while !is_met.load(Ordering::SeqCst) && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = child.kill();
        if child.wait().unwrap().success() {
            break;
        }
        kills += 1;
        let mut seen = stored(&objects);
        let list = seen.remove(PENDING);
        seen.retain(|name, _| !name.starts_with("takedown/staged/"));
        let server = calm(&objects);
        match list {
            // other verbs see a whole corpus
            None => {
                seen.remove("job.toml");
                let mut before = case.before.clone();
                before.remove("job.toml");
                assert!(seen == before || seen == case.after, "after {at} changes");
            }
            Some(list) => {
                lists += 1;
                let list = String::from_utf8(list).unwrap();
                if lists == 1 || seen != case.before && kills % 5 == 0 {
                    expect_refused(&case, &server, &list);
                    assert!(stored(&objects).contains_key(PENDING));
                }
            }
        }
        // another machine
        case.forget();
        let found = succeed(&server, &case.args(&[])).stdout;
        assert_eq!(serde_json::from_slice::<Value>(&found).unwrap(), case.told);
        case.expect_done(&objects, &format!("killed after {at} changes"));
    }
    assert!(kills > 10 && lists > 3, "{kills} kills, {lists} lists");
}

/// Verbs that use the job's files refuse its store, and so does a dry run.
fn expect_refused(case: &Case, server: &str, list: &str) {
    let job = case.stored.to_str().unwrap();
    let task = [
        "task", job, "--stage", "curate", "--index", "0", "--of", "2",
    ];
    let verbs = [
        vec!["run", job],
        vec!["curate", job],
        vec!["dedup", job],
        vec!["tokenize", job],
        vec!["train", job],
        task.to_vec(),
    ];
    for args in verbs {
        let refused = output(server, &args);
        let stderr = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success(), "{args:?}: {list}");
        let wanted = "a takedown in s3://bucket/runs/one/ was interrupted; run `millrace takedown` again to finish it";
        assert!(stderr.contains(wanted), "{args:?}: {stderr}");
    }
    let refused = output(server, &case.args(&["--dry-run"]));
    let stderr = String::from_utf8(refused.stderr).unwrap();
    assert!(stderr.contains("has not been finished"), "{stderr}");
}

#[test]
fn a_server_that_refuses_breaks_off_and_does_not_answer_gets_the_same_objects() {
    let case = case();
    for fault in [Answer::Refusal(503), Answer::Half, Answer::Silence] {
        let objects = bucket(&case.before);
        let count = AtomicUsize::new(0);
        let server = s3::serve(objects.clone(), move |_| {
            match count.fetch_add(1, Ordering::SeqCst) % 5 {
                3 => fault,
                _ => Answer::Usual,
            }
        });
        case.forget();
        succeed(&server, &case.args(&[]));
        case.expect_done(&objects, &format!("{fault:?}"));
    }
}

#[test]
fn a_store_whose_job_is_not_finished_or_has_a_task_that_runs_is_left_alone() {
    let case = case();
    let refused = |objects: &Objects, code: i32, args: &[&str], wanted: &str| {
        let before = stored(objects);
        let printed = output(&calm(objects), args);
        let stderr = String::from_utf8(printed.stderr).unwrap();
        assert_eq!(printed.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(wanted), "{wanted}: {stderr}");
        assert_eq!(stored(objects), before);
    };
    let objects = bucket(&case.before);
    let mark = "records/tasks/curate-00001-of-00002.json";
    let task = |text: &str| {
        let key = format!("{FOLDER}{mark}");
        objects
            .lock()
            .unwrap()
            .insert(key, text.as_bytes().to_vec());
    };
    task("{\"host\":\"elsewhere\",\"pid\":7,\"is_done\":false}\n");
    refused(&objects, 1, &case.args(&[]), mark);
    refused(
        &objects,
        1,
        &case.args(&["--dry-run"]),
        "process 7 on elsewhere",
    );
    let path = case.stored.to_str().unwrap();
    refused(&objects, 2, &case.args(&[path]), "is named twice");
    let empty = Objects::default();
    refused(&empty, 2, &case.args(&[]), "found no clean shard");
    // a failed task has ended
    task("{\"host\":\"elsewhere\",\"pid\":7,\"is_done\":false,\"error\":\"x\"}\n");
    succeed(&calm(&objects), &case.args(&[]));
    let mut damaged = case.before.clone();
    let clean = damaged.get_mut("clean/00001.jsonl.zst").unwrap();
    let middle = clean.len() / 2;
    clean[middle] ^= 1;
    let wanted = "the files of curate/00001 are not those of its record";
    refused(&bucket(&damaged), 1, &case.args(&[]), wanted);
    damaged.remove("manifest.json");
    let wanted = "curate has not run to its end";
    refused(&bucket(&damaged), 1, &case.args(&[]), wanted);
}
