//! Helpers that run small jobs on the repository's real data, as separate processes.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

/// Root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_path_buf()
}

/// `pipelines/jobs/tiny/data/NAME`.
pub(crate) fn data(name: &str) -> PathBuf {
    root().join("pipelines/jobs/tiny/data").join(name)
}

/// Writes a job with all stages of the tiny job, on two small shards with a very small model.
pub(crate) fn write_small_job(folder: &Path) -> PathBuf {
    let pile = small_pile(folder);
    let text = format!(
        r#"
name = "small"
out = {out:?}
[curate]
tasks = 2
inputs = [
  {{ path = {crawl:?}, format = "warc", source = "crawl" }},
  {{ path = {pile:?}, format = "jsonl", source = "pile" }},
]
[[curate.step]]
extract = {{}}
[[curate.step]]
language = {{ keep = ["en"] }}
[[curate.step]]
gopher_repetition = {{}}
[[curate.step]]
gopher_quality = {{}}
[decontaminate]
files = [{eval:?}]
fields = ["text"]
[dedup]
exact = {{}}
minhash = {{ preset = "fineweb" }}
[tokenize]
tokenizer = {{ train = {{ kind = "bpe", vocab = 512 }} }}
[blend]
seq_length = 32
split = "80,20,0"
[[blend.dataset]]
name = "crawl"
weight = 0.4
[[blend.dataset]]
name = "pile"
weight = 0.6
[model]
family = "llama"
layers = 2
d_model = 32
heads = 4
kv_heads = 2
[train]
steps = 12
global_batch = 4
micro_batch = 1
lr = 1e-2
min_lr = 1e-3
warmup_steps = 2
eval_every = 4
eval_samples = 8
checkpoint = {{ every = 3, keep = 2 }}
[eval]
samples = 8
[generate]
prompts = ["The"]
max_tokens = 8
[report]
"#,
        out = folder.join("out"),
        crawl = data("crawl-00000.warc.gz"),
        eval = data("eval.jsonl.zst"),
    );
    let path = folder.join("job.toml");
    std::fs::write(&path, text).unwrap();
    path
}

/// The first documents of the first Pile shard.
fn small_pile(folder: &Path) -> PathBuf {
    let bytes = std::fs::read(data("pile-00000.jsonl.zst")).unwrap();
    let text = zstd::decode_all(bytes.as_slice()).unwrap();
    let text = String::from_utf8(text).unwrap();
    // novels are most of the bytes and add no variety
    let lines: String = text
        .split_inclusive('\n')
        .filter(|l| !l.contains("Gutenberg"))
        .take(240)
        .collect();
    let path = folder.join("pile.jsonl");
    std::fs::write(&path, lines).unwrap();
    path
}

/// `millrace ARGS...` as a command.
pub(crate) fn millrace(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace_under_test"));
    command.args(args).stdin(Stdio::null()).current_dir(root());
    command
}

/// Starts a training and kills it once its metrics have this many lines, or after its end.
pub(crate) fn killed_at(args: &[&str], out: &Path, lines: usize) {
    let mut child = millrace(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines_of = || {
        let text = std::fs::read_to_string(out.join("metrics.jsonl"));
        text.map_or(0, |text| text.lines().count())
    };
    while lines_of() < lines && child.try_wait().unwrap().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Starts a process and kills it once `is_time`; false if it ended before.
pub(crate) fn killed_once(args: &[&str], is_time: impl Fn() -> bool) -> bool {
    let mut child = millrace(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !is_time() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    child.kill().unwrap();
    !child.wait().unwrap().success()
}

/// Writes a program. A shell does: of a file that this process has open, a child that another test starts at that moment has a
/// copy until it runs its own program, and until then this one cannot be run.
pub(crate) fn write_program(path: &Path, text: &str) {
    let mut shell = Command::new("sh")
        .args(["-c", "cat > \"$0\"; chmod 755 \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = shell.stdin.take().unwrap();
    input.write_all(text.as_bytes()).unwrap();
    drop(input);
    assert!(shell.wait().unwrap().success());
}

/// A free port that no other call in this process returns. It is below 32768, where the system takes the ports of
/// connections from, so that it stays free until it is used.
pub(crate) fn free_port() -> u16 {
    static CALLS: AtomicU16 = AtomicU16::new(0);
    loop {
        let call = u32::from(CALLS.fetch_add(1, Ordering::SeqCst));
        let port = 10_000 + (std::process::id() % 20_000 * 97 + call) % 20_000;
        let port = u16::try_from(port).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Runs to the end.
pub(crate) fn output(args: &[&str]) -> Output {
    millrace(args).output().unwrap()
}

/// Runs to the end and expects success.
pub(crate) fn succeed(args: &[&str]) -> Output {
    let out = output(args);
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "millrace {args:?} failed:\n{stderr}");
    out
}

/// Fields of a metrics line that depend on the clock or the machine.
const MEASURED: [&str; 6] = [
    "tokens_per_s",
    "tflops",
    "mfu",
    "step_s",
    "memory_bytes",
    "stall_s",
];

/// Lines of `metrics.jsonl` without times.
pub(crate) fn metrics(out: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(out.join("metrics.jsonl")).unwrap();
    let mut lines: Vec<Value> = text
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    for line in &mut lines {
        let fields = line.as_object_mut().unwrap();
        MEASURED.iter().for_each(|k| {
            fields.remove(*k);
        });
    }
    lines
}

/// Every file of a job by name, except those that contain times or the host; metrics without times.
pub(crate) fn results(out: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![out.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().flatten() {
            let path = entry.path();
            let name = path.strip_prefix(out).unwrap().display().to_string();
            let timed = [
                "manifest.json",
                "report.html",
                "job.toml",
                ".lock",
                "metrics.jsonl",
                ".submit.lock",
                "shards.json",
                "executor.json",
            ];
            let printed = ["records/", "slurm/", "kubernetes/"];
            if path.is_dir() {
                folders.push(path);
            } else if !timed.contains(&name.as_str())
                && !printed.iter().any(|t| name.starts_with(t))
            {
                found.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    if out.join("metrics.jsonl").exists() {
        let lines: Vec<String> = metrics(out).iter().map(Value::to_string).collect();
        found.insert("metrics.jsonl".into(), lines.join("\n").into_bytes());
    }
    found
}

/// Fails naming the files that differ; at least `least` files must be there.
pub(crate) fn assert_same(a: &Path, b: &Path, least: usize, what: &str) {
    let (a, b) = (results(a), results(b));
    let names: Vec<&String> = a.keys().chain(b.keys()).collect();
    let differ: Vec<_> = names
        .into_iter()
        .filter(|n| a.get(*n) != b.get(*n))
        .collect();
    assert!(differ.is_empty(), "{what}: these differ: {differ:?}");
    assert!(a.len() >= least, "{what}: only {} files compared", a.len());
}

/// Writes a tokenizer of whole words that puts nothing around a text; ids are those of `special`, then of `words`.
pub(crate) fn word_tokenizer(folder: &Path, special: &[&str], words: &[&str]) -> PathBuf {
    let entries = special.iter().chain(words).enumerate();
    let vocab: serde_json::Map<String, Value> = entries
        .map(|(id, word)| ((*word).to_owned(), json!(id)))
        .collect();
    let added = special.iter().enumerate().map(|(id, word)| {
        json!({"id": id, "content": word, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true})
    });
    let json = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added.collect::<Vec<_>>(),
        "normalizer": null, "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "[UNK]"},
    });
    let path = folder.join("tokenizer.json");
    std::fs::write(&path, json.to_string()).unwrap();
    path
}
