//! `[nodes]`: what a launch could not do is found by `--check` and by `run`, before anything is submitted.

use crate::jobs::output;
use crate::launch::job;
use std::path::Path;

/// Exit code and messages of a verb with these settings.
fn said(job: &Path, verb: &[&str], sets: &[&str]) -> (Option<i32>, String) {
    let mut args = vec![verb[0], job.to_str().unwrap()];
    args.extend(&verb[1..]);
    sets.iter().for_each(|set| args.extend(["--set", set]));
    let found = output(&args);
    (
        found.status.code(),
        String::from_utf8(found.stderr).unwrap(),
    )
}

#[test]
fn nodes_that_a_launch_could_not_use_are_problems_of_their_keys() {
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path());
    let file = dir.path().join("cluster.toml");
    std::fs::write(&file, "name = 'x'\nnodes = 'two'\n").unwrap();
    let of_file = format!("nodes.cluster={file:?}");
    let of_rates = format!("{file:?}, in which matrix_tflops is ");
    let large = "model={ family = \"llama\", layers = 8, d_model = 1024, heads = 8 }";
    for (sets, key, found) in [
        (
            &["nodes.cluster=\"dgx-h10\""][..],
            "nodes.cluster",
            "\"dgx-h10\": no such file or folder; did you mean \"dgx-h100\"",
        ),
        (&[&*of_file], "nodes.cluster", &*of_rates),
        (
            &["nodes.mem_mb=1"],
            "nodes.mem_mb",
            "1\n  wanted 128 to 1073741824 MiB",
        ),
        (
            &["nodes.mem_mb=9999999999999"],
            "nodes.mem_mb",
            "9999999999999\n",
        ),
        (
            &["nodes.mem_mb=300", large],
            "nodes.mem_mb",
            "300\n  wanted at least ",
        ),
        (
            &["nodes.cpus=99999"],
            "nodes.cpus",
            "99999\n  wanted 0 to 4096",
        ),
        (
            &["nodes.gpus=5000"],
            "nodes.gpus",
            "5000\n  wanted 0 to 1024",
        ),
    ] {
        for verb in [&["run", "--check"][..], &["run"], &["run", "--dry-run"]] {
            let (code, text) = said(&job, verb, sets);
            assert_eq!(code, Some(2), "{sets:?}: {text}");
            let line = format!("key    {key}\n  found  {found}");
            assert!(text.contains(&line), "{verb:?} {sets:?}: {text}");
        }
    }
    // with the other problems of the job, all at once
    let (_, text) = said(
        &job,
        &["run", "--check"],
        &[
            "nodes.cluster=\"nope\"",
            "tokenize.inputs.0.path=\"nowhere\"",
        ],
    );
    for key in ["nodes.cluster", "tokenize.inputs[0].path"] {
        assert!(text.contains(&format!("key    {key}\n")), "{text}");
    }
    // here it would be run on one node, whatever the cluster has
    let (code, text) = said(&job, &["run", "--check"], &["nodes.mem_mb=500"]);
    assert_eq!(code, Some(0), "{text}");
}

/// Three ranks divide neither four sequences, two heads, one layer nor halves of 16 tokens; two and one do.
#[test]
fn a_fewest_number_of_nodes_without_a_layout_is_noted() {
    let dir = tempfile::tempdir().unwrap();
    let job = job(dir.path());
    let check = |nodes: &str| {
        let sets = [nodes, "parallel={ dp = 4 }", "train.global_batch=4"];
        let (code, text) = said(&job, &["run", "--check"], &sets);
        assert_eq!(code, Some(0), "{text}");
        text
    };
    let text = check("nodes={ count = 4, fewest = 3 }");
    let note = "nodes: note: no layout of this model with the bits of the job's own fits on 3 nodes (nodes.fewest); with fewer than 4 (nodes.count) healthy ones the launch ends";
    assert!(text.contains(note), "{text}");
    for nodes in ["nodes={ count = 4, fewest = 2 }", "nodes={ count = 4 }"] {
        let text = check(nodes);
        assert!(!text.contains("note: no layout"), "{text}");
    }
}
