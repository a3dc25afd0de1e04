//! `millrace watch` beside trainings that run, are killed and resume, and beside files that change under it; exports of metrics.
//! The client is a socket.

use crate::jobs::{millrace, output, root, succeed, write_small_job};
use crate::serve::{Answer, answer, request};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// A page that is served until the test ends.
pub(crate) struct Page {
    child: Child,
    port: u16,
    folder: tempfile::TempDir,
}

impl Page {
    pub(crate) fn of(paths: &[&Path]) -> Page {
        Page::with(&[], paths)
    }

    pub(crate) fn with(args: &[&str], paths: &[&Path]) -> Page {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("port");
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let child = millrace(&["watch", "--port", "0", "--port-file"])
            .arg(&file)
            .args(args)
            .args(paths)
            .stderr(Stdio::from(log))
            .spawn()
            .unwrap();
        let mut page = Page {
            child,
            port: 0,
            folder,
        };
        within(60, "a port", || {
            assert!(page.child.try_wait().unwrap().is_none(), "{}", page.log());
            let port = std::fs::read_to_string(&file).ok()?;
            page.port = port.trim().parse().ok()?;
            Some(())
        });
        page
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let limit = Some(Duration::from_secs(60));
        stream.set_read_timeout(limit).unwrap();
        stream
    }

    /// Sends bytes as they are and reads to the end.
    pub(crate) fn raw(&self, bytes: &[u8]) -> Answer {
        let mut stream = self.connect();
        stream.write_all(bytes).unwrap();
        answer(&mut stream)
    }

    fn send(&self, method: &str, path: &str) -> Answer {
        self.raw(&request(method, path, "", b""))
    }

    fn get(&self, path: &str) -> Answer {
        self.send("GET", path)
    }

    fn runs(&self) -> Vec<Value> {
        let found = self.get("/api/runs");
        assert_eq!(found.status, 200, "{}", found.body);
        found.json()["runs"].as_array().unwrap().clone()
    }

    /// The only run.
    fn run(&self) -> Value {
        let runs = self.runs();
        assert_eq!(runs.len(), 1, "{runs:?}");
        runs[0].clone()
    }

    /// Points of a curve of the only run; none if it has no such field yet.
    fn curve(&self, query: &str) -> Option<Vec<[f64; 2]>> {
        let found = self.get(&format!("/api/curves?{query}"));
        assert_eq!(found.status, 200, "{}", found.body);
        let points = found.json()["curves"].get(0)?["points"].clone();
        Some(serde_json::from_value(points).unwrap())
    }

    fn end(&mut self, signal: &str) -> Option<i32> {
        let pid = self.child.id().to_string();
        let sent = std::process::Command::new("kill")
            .args([signal, &pid])
            .status();
        assert!(sent.unwrap().success());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // it may have ended
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks until there is an answer.
fn within<T>(seconds: u64, wanted: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(seconds);
    loop {
        if let Some(found) = ask() {
            return found;
        }
        assert!(Instant::now() < until, "no {wanted} in {seconds} s");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn step_line(step: u64, loss: f64) -> String {
    let line = json!({"step": step, "loss": loss, "grad_norm": 1.0, "lr": 0.5, "tokens": 8 * step, "consumed_samples": step,
        "tokens_per_s": 4.0, "tflops": 1.0, "mfu": null, "step_s": 2.0, "memory_bytes": 1000});
    format!("{line}\n")
}

fn append(run: &Path, text: &str) {
    std::fs::create_dir_all(run).unwrap();
    let mut options = std::fs::File::options();
    let opened = options
        .append(true)
        .create(true)
        .open(run.join("metrics.jsonl"));
    opened.unwrap().write_all(text.as_bytes()).unwrap();
}

/// Name, size and time of change of every file of a run.
fn listing(run: &Path) -> BTreeMap<PathBuf, (u64, SystemTime)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![run.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.metadata().unwrap();
            if metadata.is_dir() {
                folders.push(path.clone());
            }
            found.insert(path, (metadata.len(), metadata.modified().unwrap()));
        }
    }
    found
}

/// Steps of the training: enough for the page to look before they are done.
const STEPS: u64 = 640;

fn train(job: &str) -> Child {
    let steps = format!("train.steps={STEPS}");
    let sets = [&*steps, "train.eval_every=128", "threads=1"];
    let sets = sets.iter().flat_map(|set| ["--set", set]);
    let args: Vec<&str> = ["run", job].into_iter().chain(sets).collect();
    millrace(&args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn a_training_is_watched_from_before_it_begins_through_a_kill_to_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let job = write_small_job(dir.path());
    let job = job.to_str().unwrap();
    let out = dir.path().join("out");
    let page = Page::of(&[&out]);
    let waiting = page.run();
    assert_eq!(
        (&waiting["state"], &waiting["step"], &waiting["fields"]),
        (&"waiting".into(), &Value::Null, &json!([]))
    );
    let lines = || {
        let text = std::fs::read_to_string(out.join("metrics.jsonl")).unwrap_or_default();
        text.lines().count()
    };
    // The page looks once a second: the training is suspended in its middle until it has. It may be over before.
    let suspended = (0..10).find_map(|_| {
        let mut child = train(job);
        let mut is_over = false;
        within(300, "step", || {
            is_over = child.try_wait().unwrap().is_some();
            (is_over || lines() >= 4).then_some(())
        });
        let id = child.id().to_string();
        let stop = std::process::Command::new("kill")
            .args(["-STOP", &id])
            .status();
        if is_over || !stop.unwrap().success() || lines() as u64 >= STEPS {
            let _ = child.kill();
            child.wait().unwrap();
            std::fs::remove_dir_all(&out).unwrap();
            return None;
        }
        let first = within(120, "step on the page", || {
            let run = page.run();
            let is_of_child = run["pid"] == child.id();
            (is_of_child && run["step"].as_u64() >= Some(4)).then_some(run)
        });
        Some((child, first))
    });
    let (mut child, first) = suspended.expect("a training that is suspended");
    assert_eq!(
        (&first["state"], &first["stage"], &first["pid"]),
        (&"running".into(), &"train".into(), &child.id().into()),
        "{first}"
    );
    assert_eq!(
        (&first["steps"], &first["job"]),
        (&STEPS.into(), &"small".into())
    );
    child.kill().unwrap();
    child.wait().unwrap();
    let stopped = within(120, "end of the killed run", || {
        let run = page.run();
        (run["state"] == "stopped").then_some(run)
    });
    assert!(
        stopped["eta_s"].is_null() && stopped["pid"].is_null(),
        "{stopped}"
    );
    // what it had done stays, and it goes on from its checkpoint
    let done = train(job).wait().unwrap();
    assert!(done.success());
    let last = within(120, "end", || {
        let run = page.run();
        (run["state"] == "done").then_some(run)
    });
    assert_eq!(
        (&last["step"], &last["checkpoint"]),
        (&STEPS.into(), &STEPS.into())
    );
    let stages = [
        "curate", "dedup", "tokenize", "blend", "train", "eval", "generate",
    ];
    assert_eq!(last["stages_done"], json!(stages));
    // the curves are the lines of the file, each step once
    let text = std::fs::read_to_string(out.join("metrics.jsonl")).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    for field in ["loss", "lr", "grad_norm", "memory_bytes", "valid_loss"] {
        let of = |line: &Value| Some([line["step"].as_f64()?, line[field].as_f64()?]);
        let want: Vec<[f64; 2]> = lines.iter().filter_map(of).collect();
        let steps = if field == "valid_loss" { 5 } else { STEPS };
        assert_eq!(want.len() as u64, steps, "{field}");
        assert_eq!(
            page.curve(&format!("field={field}")).unwrap(),
            want,
            "{field}"
        );
    }
    // every record of the curation is kept, dropped or quarantined
    let curation = &last["curation"];
    let number = |value: &Value| value.as_u64().unwrap();
    let dropped = curation["dropped"].as_array().unwrap();
    let steps: Vec<&str> = (dropped.iter())
        .map(|step| step["step"].as_str().unwrap())
        .collect();
    let order = [
        "read",
        "language",
        "gopher_repetition",
        "gopher_quality",
        "decontaminate",
    ];
    let want: Vec<&str> = (order.into_iter())
        .filter(|step| steps.contains(step))
        .collect();
    assert_eq!(steps, want);
    assert_eq!(dropped.last().unwrap()["left"], curation["kept"]);
    let dropped: u64 = dropped.iter().map(|step| number(&step["documents"])).sum();
    let sum = number(&curation["kept"]) + number(&curation["quarantined"]) + dropped;
    assert_eq!(sum, number(&curation["records"]));
    let manifest = std::fs::read(out.join("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    for (key, want) in [
        ("kept", &manifest["curate"]["counts"]["kept"]),
        ("records", &manifest["curate"]["counts"]["records"]),
        ("kept_after_dedup", &manifest["dedup"]["counts"]["kept"]),
    ] {
        assert_eq!(&curation[key], want, "{key}");
    }
    assert_eq!(curation["shards"], curation["shards_done"]);
    // it was only read
    let before = listing(&out);
    let again = Page::of(&[&out]);
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(again.run()["state"], "done");
    assert_eq!(listing(&out), before);
}

#[test]
fn files_that_grow_are_cut_or_vanish_are_followed() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let page = Page::of(&[&run]);
    let becomes = |want: &[[f64; 2]]| {
        within(120, &format!("{want:?}"), || {
            let found = page.curve("field=loss").unwrap_or_default();
            (found == want).then_some(())
        });
    };
    let half = step_line(3, 2.5);
    append(
        &run,
        &(step_line(1, 4.0) + &step_line(2, 3.0) + &half[..20]),
    );
    becomes(&[[1.0, 4.0], [2.0, 3.0]]);
    append(&run, &half[20..]);
    becomes(&[[1.0, 4.0], [2.0, 3.0], [3.0, 2.5]]);
    // nobody here has the lock: it runs on another machine
    assert_eq!(page.run()["state"], "running");
    // as a training that resumes after step 1 does
    let cut = step_line(1, 4.0).len() as u64;
    let file = std::fs::File::options()
        .write(true)
        .open(run.join("metrics.jsonl"));
    file.unwrap().set_len(cut).unwrap();
    append(
        &run,
        &(step_line(2, 2.0) + &step_line(3, 1.5) + &step_line(4, 1.0)),
    );
    becomes(&[[1.0, 4.0], [2.0, 2.0], [3.0, 1.5], [4.0, 1.0]]);
    // lines of an earlier step behind later ones, and lines that are none
    append(&run, &("no line\n".to_owned() + &step_line(3, 9.0)));
    becomes(&[[1.0, 4.0], [2.0, 2.0], [3.0, 9.0]]);
    assert_eq!(
        page.curve("field=loss&axis=tokens&from=8&to=8").unwrap(),
        [[8.0, 4.0], [16.0, 2.0]]
    );
    assert_eq!(page.curve("field=loss&axis=time").unwrap()[2], [6.0, 9.0]);
    std::fs::remove_dir_all(&run).unwrap();
    within(120, "waiting run", || {
        (page.run()["state"] == "waiting").then_some(())
    });
    assert_eq!(page.curve("field=loss"), None);
}

#[test]
fn runs_of_a_folder_are_compared_and_any_name_is_only_a_name() {
    let dir = tempfile::tempdir().unwrap();
    let names = ["<img src=x onerror=alert(1)>", "a&b=c d%2F", "plain"];
    for (loss, name) in names.iter().enumerate() {
        append(&dir.path().join(name), &step_line(1, loss as f64));
    }
    std::fs::write(dir.path().join("secret"), "secret").unwrap();
    let page = Page::of(&[dir.path()]);
    let runs = page.runs();
    let found: Vec<&str> = runs
        .iter()
        .map(|run| run["run"].as_str().unwrap())
        .collect();
    let want = names.map(|name| dir.path().join(name).display().to_string());
    assert_eq!(found, want);
    // all of them at once, and one by its name, which may come again
    let all = page.get("/api/curves?field=loss").json();
    let losses: Vec<&Value> = all["curves"].as_array().unwrap().iter().collect();
    assert_eq!(losses.len(), 3);
    for (loss, name) in want.iter().enumerate() {
        assert_eq!(losses[loss]["points"], json!([[1.0, loss as f64]]));
        let coded: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let path = format!("/api/curves?field=loss&run={coded}&run={coded}&field=loss");
        let found = page.get(&path).json();
        assert_eq!(found["curves"].as_array().unwrap().len(), 1);
        assert_eq!(found["curves"][0]["points"], json!([[1.0, loss as f64]]));
    }
    // no route opens a file
    let coded = dir.path().join("secret").display().to_string();
    for path in [
        "/api/curves?run=../secret",
        "/api/curves?run=%2e%2e%2fsecret",
        "/../secret",
        "/%2e%2e/secret",
        "/secret",
    ]
    .into_iter()
    .map(str::to_owned)
    .chain([format!("/api/curves?run={coded}"), coded])
    {
        let refused = page.get(&path);
        assert_eq!(refused.status, 404, "{path}");
        assert!(refused.json()["error"]["message"].is_string(), "{path}");
    }
    assert_eq!(page.get("/api/curves?points=1").status, 400);
    assert_eq!(page.send("POST", "/api/runs").status, 405);
    // a run that comes later is taken in
    append(&dir.path().join("new"), &step_line(1, 7.0));
    within(120, "fourth run", || (page.runs().len() == 4).then_some(()));
}

#[test]
fn the_page_asks_nobody_else_and_events_tell_of_changes_until_sigterm() {
    let dir = tempfile::tempdir().unwrap();
    append(dir.path(), &step_line(1, 2.0));
    let mut page = Page::of(&[dir.path()]);
    let html = page.get("/");
    assert!(html.body.starts_with("<!doctype html>"), "{}", html.body);
    let policy = "content-security-policy: default-src 'none';";
    assert!(html.head.to_lowercase().contains(policy), "{}", html.head);
    let mut stream = page.connect();
    stream
        .write_all(&request("GET", "/events", "", b""))
        .unwrap();
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let mut event = || {
        let data = lines.find_map(|line| Some(line.strip_prefix("data: ")?.to_owned()));
        let event: Value = serde_json::from_str(&data?).unwrap();
        event["version"].as_u64()
    };
    let first = event().unwrap();
    append(dir.path(), &step_line(2, 1.0));
    assert!(event().unwrap() > first);
    // the open stream does not keep the server
    let started = Instant::now();
    assert_eq!(page.end("-TERM"), Some(0));
    assert!(
        started.elapsed() < Duration::from_secs(60),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(event(), None);
    let log = page.log();
    assert!(
        log.starts_with("watch: 1 run on http://127.0.0.1:"),
        "{log}"
    );
}

#[test]
fn a_port_in_use_and_paths_that_are_no_runs_say_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let path = dir.path().to_str().unwrap();
    let model = root().join("tests/data/lm_eval/model");
    for (args, code, want) in [
        (
            vec![path, "--port", &port],
            1,
            "--port 0 takes any that is free",
        ),
        (vec![path, "--port", "70000"], 2, "--port: found \"70000\""),
        (
            vec![model.to_str().unwrap()],
            2,
            "lm_eval/model: found a Hugging Face folder",
        ),
        (vec![], 2, "OUT"),
    ] {
        let ended = output(&[vec!["watch"], args].concat());
        let message = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(code), "{message}");
        assert!(message.contains(want), "{message}");
    }
}

#[test]
fn the_table_is_printed_once() {
    let dir = tempfile::tempdir().unwrap();
    append(dir.path(), &(step_line(1, 2.0) + &step_line(2, 1.25)));
    let path = dir.path().to_str().unwrap();
    let printed = succeed(&["watch", "--once", path]).stdout;
    let found: Value = serde_json::from_slice(&printed).unwrap();
    let run = &found["runs"][0];
    assert_eq!((&run["run"], &run["loss"]), (&path.into(), &1.25.into()));
    assert_eq!(
        (&run["state"], &run["step"]),
        (&"stopped".into(), &2.into())
    );
}

/// A run with the metrics of `oracles/tensorboard_events.py`.
fn golden_run(dir: &Path) -> PathBuf {
    let run = dir.join("run");
    std::fs::create_dir(&run).unwrap();
    let (from, to) = (
        root().join("tests/data/watch/metrics.jsonl"),
        run.join("metrics.jsonl"),
    );
    std::fs::copy(from, &to).unwrap();
    let end = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let file = std::fs::File::options().write(true).open(to).unwrap();
    file.set_modified(end).unwrap();
    run
}

#[test]
fn an_event_file_has_the_bytes_of_tensorboards_own_writer() {
    let dir = tempfile::tempdir().unwrap();
    let run = golden_run(dir.path());
    let (run, out) = (run.to_str().unwrap(), dir.path().join("logs"));
    let args = ["export", run, "--to", "tensorboard", out.to_str().unwrap()];
    succeed(&args);
    let name = "events.out.tfevents.millrace";
    let want = std::fs::read(root().join("tests/data/watch/events.tfevents")).unwrap();
    assert_eq!(std::fs::read(out.join(name)).unwrap(), want);
    // it may be written again, also beside what a killed export left, but not beside another program's
    std::fs::write(out.join(".millrace-1.tmp"), "").unwrap();
    succeed(&args);
    std::fs::write(out.join("events.out.tfevents.1.host"), "").unwrap();
    let refused = output(&args);
    assert_eq!(refused.status.code(), Some(2));
    let message = String::from_utf8(refused.stderr).unwrap();
    assert!(
        message.contains("found events.out.tfevents.1.host in it"),
        "{message}"
    );
}

#[test]
fn exported_json_lines_leave_out_what_a_later_line_stands_for() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let lines = [(1, 4.0), (2, 3.0), (3, 2.5), (2, 2.0)].map(|(step, loss)| step_line(step, loss));
    append(&run, &lines.concat());
    append(
        &run,
        "{\"step\":2,\"valid_loss\":1.5,\"valid_samples\":8}\n{\"step\":3,\"lo",
    );
    let export = |form: &str, name: &str| {
        let out = dir.path().join(name);
        let args = [
            "export",
            run.to_str().unwrap(),
            "--to",
            form,
            out.to_str().unwrap(),
        ];
        (
            output(&args),
            std::fs::read_to_string(out).unwrap_or_default(),
        )
    };
    let parse = |text: &str| -> Vec<Value> {
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    let (ended, text) = export("wandb-jsonl", "w.jsonl");
    assert!(ended.status.success());
    let rows = parse(&text);
    let found: Vec<[&Value; 3]> = rows
        .iter()
        .map(|row| [&row["_step"], &row["loss"], &row["valid_loss"]])
        .collect();
    assert_eq!(json!(found), json!([[1, 4.0, null], [2, 2.0, 1.5]]));
    let seconds = |row: &Value| row["_timestamp"].as_f64().unwrap();
    assert!(
        (seconds(&rows[1]) - seconds(&rows[0]) - 2.0).abs() < 1e-5,
        "{text}"
    );
    let (ended, text) = export("otlp-jsonl", "o.jsonl");
    assert!(ended.status.success());
    let lines = parse(&text);
    assert_eq!(lines.len(), 3);
    let metric = &lines[2]["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0];
    let point = &metric["gauge"]["dataPoints"][0];
    assert_eq!(
        (&metric["name"], &point["asDouble"]),
        (&"millrace.valid_loss".into(), &1.5.into())
    );
    assert_eq!(point["attributes"][0]["value"]["intValue"], "2");
    // exports are written again; another file is not overwritten
    for (form, name) in [("wandb-jsonl", "w.jsonl"), ("otlp-jsonl", "o.jsonl")] {
        assert!(export(form, name).0.status.success(), "{form}");
    }
    let other = "{\"resourceMetrics\":[{\"resource\":{}}]}\n";
    for mine in ["text", "{\"_step\":1,\"loss\":2.0}\n", other] {
        std::fs::write(dir.path().join("mine"), mine).unwrap();
        let (refused, text) = export("wandb-jsonl", "mine");
        assert_eq!((refused.status.code(), text.as_str()), (Some(2), mine));
    }
    for (form, name) in [("otlp-jsonl", "w.jsonl"), ("wandb-jsonl", "o.jsonl")] {
        let before = std::fs::read_to_string(dir.path().join(name)).unwrap();
        let (refused, text) = export(form, name);
        assert_eq!((refused.status.code(), text), (Some(2), before), "{form}");
    }
}
