//! Sharded checkpoints: any layout resumes from any other's with the same bits, whole files and shards convert into
//! each other byte for byte, and damage to a shard is named.

use std::fs;
use std::path::Path;

use crate::checkpoint::{Ended, Reshard, reshard};
use crate::config::OptimizerKind;
use crate::config::Plan;
use crate::eval::{evaluate, logits};
use crate::fixtures::{Chain, Log, tiny_gpt, tiny_llama, tiny_moe};
use crate::tests::layouts::with;
use crate::tests::resume::{assert_same, finished, plan, remains, stopped_at, undisturbed};
use crate::trainer::run;

/// Files of a checkpoint, by name.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap();
    let mut files: Vec<(String, Vec<u8>)> = entries
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().display().to_string();
            (name, fs::read(&path).unwrap())
        })
        .collect();
    files.sort();
    files
}

fn tensors(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files = files(folder);
    files.retain(|(name, _)| name != "state.json");
    files
}

fn sharded(plan: &Plan, layout: &str) -> Plan {
    let mut plan = with(plan.clone(), layout);
    plan.train.checkpoint.sharded = true;
    plan
}

#[test]
fn a_run_goes_on_from_shards_of_another_layout_with_the_same_bits() {
    let layouts = [
        "tp=2 sp pp=2 dp=2 zero=3 mb=3",
        "dp=3 zero=1 mb=2",
        "tp=4 cp=2 mb=2",
        "dp=4 zero=2 mb=1",
    ];
    for (mut plan, layouts) in [
        (tiny_gpt(), &layouts[..]),
        (tiny_llama(), &layouts[..2]),
        (
            tiny_moe(),
            &[
                "dp=2 ep=2 zero=3 mb=3",
                "tp=2 dp=2 mb=3",
                "dp=4 ep=4 tp=2 mb=1",
            ],
        ),
    ] {
        (plan.train.ema_decay, plan.train.optimizer) = (0.9, OptimizerKind::Muon);
        if plan.model.kv_heads > 0 {
            (plan.model.heads, plan.model.kv_heads) = (8, 4);
        }
        plan.train.steps = layouts.len() as u64 + 1;
        plan.train.checkpoint.every = 1;
        let want = undisturbed(&with(plan.clone(), "mb=12"));
        let folder = tempfile::tempdir().unwrap();
        for (step, layout) in (1..).zip(layouts) {
            stopped_at(&sharded(&plan, layout), folder.path(), step * 12 + 5);
        }
        finished(&with(plan.clone(), "mb=12"), folder.path());
        let last = |files: Vec<(String, Vec<u8>)>| -> Vec<(String, Vec<u8>)> {
            let start = format!("step-{:08}", plan.train.steps);
            let is_last = |name: &str| name.starts_with(&start) || name == "metrics.jsonl";
            files
                .into_iter()
                .filter(|(name, _)| is_last(name))
                .collect()
        };
        assert!(
            last(remains(folder.path())) == last(want),
            "{:?}",
            plan.model.family
        );
    }
}

#[test]
fn shards_and_whole_files_become_each_other_byte_for_byte() {
    for (mut plan, split) in [
        (tiny_gpt(), (2, 2)),
        (tiny_llama(), (2, 1)),
        (tiny_moe(), (1, 2)),
    ] {
        plan.train.ema_decay = 0.9;
        let dir = tempfile::tempdir().unwrap();
        let samples = Chain::of(&plan);
        let path = |name: &str| dir.path().join(name);
        let whole = run(&plan, &samples, None, &path("whole"), &Log::default()).unwrap();
        let of_layout = sharded(&plan, "dp=2 tp=2 zero=3 mb=2");
        let mut of_layout = of_layout;
        of_layout.train.global_batch = plan.train.global_batch;
        let shards = run(&of_layout, &samples, None, &path("shards"), &Log::default()).unwrap();
        let to = |from: &Path, name: &str, split, keeps_state| {
            let to = Reshard { split, keeps_state };
            reshard(from, &path(name), &to).unwrap();
            path(name)
        };
        // the shards that a layout's ranks wrote, joined
        let joined = to(&shards.checkpoint, "joined", None, true);
        assert!(tensors(&joined) == tensors(&whole.checkpoint));
        // split and joined again
        let parts = to(&whole.checkpoint, "parts", Some(split), true);
        let names: Vec<String> = tensors(&parts).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), 3 * split.0 * split.1, "{names:?}");
        assert!(files(&to(&parts, "again", None, true)) == files(&whole.checkpoint));
        // cut otherwise, the same shards
        let other = to(&shards.checkpoint, "other", Some(split), true);
        assert!(tensors(&other) == tensors(&parts));
        // weights alone, averages alone
        let averages = to(
            &shards.checkpoint.join("ema.safetensors"),
            "averages",
            Some(split),
            false,
        );
        let joined = fs::read(to(&averages, "one", None, false).join("model.safetensors"));
        let kept = fs::read(whole.checkpoint.join("ema.safetensors"));
        assert!(joined.unwrap() == kept.unwrap());
        let tokens = [3, 7, 1];
        let said = logits(&whole.checkpoint, &tokens).unwrap();
        assert_eq!(said, logits(&shards.checkpoint, &tokens).unwrap());
        let loss = |path: &Path| evaluate(path, &samples, 3).unwrap();
        assert_eq!(
            loss(&averages),
            loss(&whole.checkpoint.join("ema.safetensors"))
        );
    }
}

#[test]
fn a_layout_that_does_not_divide_the_model_is_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let (plan, out) = (tiny_gpt(), dir.path().join("out"));
    let samples = Chain::of(&plan);
    let done = run(&plan, &samples, None, dir.path(), &Log::default()).unwrap();
    let to = |split, keeps_state| Reshard { split, keeps_state };
    let error = reshard(&done.checkpoint, &out, &to(Some((3, 5)), true)).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("parallel.tp: ") && text.contains("parallel.pp: "),
        "{text}"
    );
    let averages = done.checkpoint.join("ema.safetensors");
    let error = reshard(&averages, &out, &to(None, true)).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("averages with the optimizer's state")
    );
    assert!(!out.exists());
}

#[test]
fn a_damaged_missing_or_foreign_shard_is_named_and_the_predecessor_is_used() {
    let plan = plan();
    let mut plan = sharded(&plan, "tp=2 dp=2 zero=1 mb=2");
    plan.train.global_batch = 8;
    let want = undisturbed(&plan);
    let other = tempfile::tempdir().unwrap();
    stopped_at(
        &Plan {
            seed: 2,
            ..plan.clone()
        },
        other.path(),
        5 * 8,
    );
    type Harm = fn(&Path, &Path);
    let flip: Harm = |path, _| {
        let mut bytes = fs::read(path).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 4;
        fs::write(path, bytes).unwrap();
    };
    let cut: Harm = |path, _| {
        let bytes = fs::read(path).unwrap();
        fs::write(path, &bytes[..bytes.len() - 4]).unwrap();
    };
    let lose: Harm = |path, _| fs::remove_file(path).unwrap();
    let swap: Harm = |path, other| assert!(fs::copy(other, path).unwrap() > 0);
    for (harm, told) in [
        (flip, "found xxh3 "),
        (cut, " bytes by the header"),
        (lose, "No such file"),
        (swap, "found xxh3 "),
    ] {
        for file in [
            "model.rank-00001.safetensors",
            "optimizer.rank-00002.safetensors",
        ] {
            let folder = tempfile::tempdir().unwrap();
            stopped_at(&plan, folder.path(), 5 * 8);
            let at = |out: &Path| out.join("checkpoints/step-00000004").join(file);
            harm(&at(folder.path()), &at(other.path()));
            let log = finished(&plan, folder.path());
            assert!(
                log[0].starts_with("note checkpoint of step 4 is not used: ")
                    && log[0].contains(file)
                    && log[0].contains(told),
                "{log:?}"
            );
            assert_eq!(log[1], "resumed 2");
            assert_same(folder.path(), &want, file);
        }
    }
}

#[test]
fn shards_that_cannot_be_written_are_told_and_the_next_are_tried() {
    let mut plan = sharded(&plan(), "dp=2 mb=2");
    plan.train.global_batch = 8;
    plan.train.checkpoint.keep = 4;
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = folder.path().join("checkpoints");
    fs::create_dir(&checkpoints).unwrap();
    let in_the_way = checkpoints.join(".step-00000004.partial");
    std::os::unix::fs::symlink("nowhere", &in_the_way).unwrap();
    let (samples, log) = (Chain::of(&plan), Log::default());
    let done = run(&plan, &samples, Some(&samples), folder.path(), &log).unwrap();
    assert_eq!(done.ended, Ended::Steps);
    let lines = log.lines();
    let told = "note the checkpoint of step 4 could not be written: create ";
    assert!(lines.iter().any(|line| line.starts_with(told)), "{lines:?}");
    assert_eq!(
        crate::checkpoint::steps_in(&checkpoints).unwrap(),
        [2, 6, 8]
    );
}
