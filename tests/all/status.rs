//! `status` beside a running training, and `explain` of the keys in the reference.

use crate::jobs::{millrace, output, root, succeed, write_small_job};
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

fn status(out: &Path) -> Option<Value> {
    let printed = output(&["status", out.to_str().unwrap(), "--json"]);
    serde_json::from_slice(&printed.stdout).ok()
}

#[test]
fn status_shows_a_running_training_without_disturbing_it() {
    let dir = tempfile::tempdir().unwrap();
    let job = write_small_job(dir.path());
    let job = job.to_str().unwrap();
    let out = dir.path().join("out");
    let mut child = millrace(&["run", job, "--set", "train.steps=100000"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = u64::from(child.id());
    let started = Instant::now();
    let found = loop {
        assert!(child.try_wait().unwrap().is_none(), "the training ended");
        assert!(
            started.elapsed() < Duration::from_secs(300),
            "no step was seen"
        );
        match status(&out) {
            Some(found) if found["step"].as_u64().is_some_and(|step| step >= 2) => break found,
            _ => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    assert_eq!(
        (&found["running"], &found["pid"]),
        (&true.into(), &pid.into()),
        "{found}"
    );
    assert_eq!(found["steps"], 100_000);
    assert!(found["eta_s"].as_f64().unwrap() > 0.0, "{found}");
    // the entropy of 512 equally likely tokens is ln 512 = 6.24: a new model is near it
    assert!(
        (1.0..12.0).contains(&found["loss"].as_f64().unwrap()),
        "{found}"
    );
    let text = succeed(&["status", out.to_str().unwrap()]).stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(
        text.contains(" of 100,000, loss ") && text.contains(" left, process "),
        "{text}"
    );
    // it goes on
    let later = loop {
        match status(&out) {
            Some(later) if later["step"].as_u64() > found["step"].as_u64() => break later,
            _ => assert!(
                started.elapsed() < Duration::from_secs(300),
                "no further step"
            ),
        }
    };
    assert_eq!(later["pid"], pid);
    child.kill().unwrap();
    child.wait().unwrap();
    let stopped = status(&out).unwrap();
    assert_eq!(stopped["running"], false);
    assert!(stopped["eta_s"].is_null() && stopped["step"].as_u64() >= later["step"].as_u64());
}

#[test]
fn keys_of_every_table_of_the_reference_are_explained_and_a_slip_names_the_nearest() {
    let text = std::fs::read_to_string(root().join("pipelines/docs/keys.md")).unwrap();
    let mut table = String::new();
    let mut is_first = false;
    let mut asked = 0;
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("## ").or(line.strip_prefix("### ")) {
            table = match title {
                "Top level" => String::new(),
                title => format!("{}.", title.trim_matches(['`', '[', ']'])),
            };
            is_first = true;
        } else if let Some(row) = line.strip_prefix("| `").filter(|_| is_first) {
            is_first = false;
            asked += 1;
            let mut cells = row.split(" | ");
            let name = format!("{table}{}", cells.next().unwrap().trim_matches('`'));
            let printed = succeed(&["explain", &name, "--json"]).stdout;
            let found: Value = serde_json::from_slice(&printed).unwrap();
            assert_eq!(
                (&found["name"], &found["kind"]),
                (&Value::from(name), &"key".into())
            );
            assert_eq!(found["type"], cells.next().unwrap());
            for key in ["default", "range", "meaning", "source", "example"] {
                assert!(
                    found[key].as_str().is_some_and(|s| !s.is_empty()),
                    "{key}: {found}"
                );
            }
        }
    }
    assert!(asked > 80, "{asked}");
    let slip = output(&["explain", "gopher_qualty"]);
    assert_eq!(slip.status.code(), Some(2));
    let message = String::from_utf8(slip.stderr).unwrap();
    assert!(
        message.contains("did you mean \"gopher_quality\""),
        "{message}"
    );
    let listed = |verb: &str| {
        let printed = succeed(&[verb, "--json"]).stdout;
        serde_json::from_slice::<Vec<Value>>(&printed)
            .unwrap()
            .len()
    };
    assert!(listed("filters") > 30 && listed("formats") > 15);
}
