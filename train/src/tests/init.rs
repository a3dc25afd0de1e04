//! Training from given weights: a checkpoint in any form or another program's folder, on every layout, and the
//! errors for a source that does not fit or has changed.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::checkpoint::{Reshard, check_init, export_hf, import_hf, reshard};
use crate::config::{OptimizerKind, Plan};
use crate::eval::{inspect, logits};
use crate::fixtures::{Chain, Gaps, Log, tiny_gpt, tiny_llama, tiny_moe, tiny_opt, tiny_t5};
use crate::tests::layouts::{Result, assert_same, train, train_on, with};
use crate::trainer::run;

/// A trained model's last checkpoint, under `folder`.
fn trained(plan: &Plan, folder: &Path) -> PathBuf {
    let samples = Chain::of(plan);
    let done = run(plan, &samples, None, folder, &Log::default()).unwrap();
    done.checkpoint
}

fn from(plan: &Plan, source: &Path) -> Plan {
    let mut plan = plan.clone();
    plan.train.init_from = source.display().to_string();
    plan
}

/// Metrics and bytes of the run from `source` on some layout.
fn gone_on(plan: &Plan, source: &Path, layout: &str) -> Result {
    train(&with(from(plan, source), layout))
}

#[test]
fn weights_of_every_form_start_the_same_run_on_every_layout() {
    for (plan, layouts) in [
        (
            tiny_gpt(),
            &["tp=2 pp=2 dp=2 zero=1 mb=3", "dp=3 zero=3 mb=2"][..],
        ),
        (tiny_llama(), &["pp=2 cp=2 dp=2 zero=3 tp=2 sp mb=3"]),
        (tiny_moe(), &["dp=2 ep=2 zero=2 mb=3"]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let mut before = plan.clone();
        (before.seed, before.train.ema_decay) = (7, 0.9);
        before.train.checkpoint.sharded = true;
        let before = with(before, "tp=2 dp=2 mb=3");
        let checkpoint = trained(&before, dir.path());
        let averages = checkpoint.join("ema.safetensors");
        // the optimizer starts from nothing, with averages that start as the weights
        let mut plan = plan;
        plan.train.ema_decay = 0.5;
        plan.train.optimizer = OptimizerKind::Muon;
        let want = gone_on(&plan, &checkpoint, "mb=12");
        assert_ne!(want.metrics, train(&with(plan.clone(), "mb=12")).metrics);
        for layout in layouts {
            assert_same(&gone_on(&plan, &checkpoint, layout), &want, layout);
        }
        reshard(&checkpoint, &path("whole"), &Reshard::default()).unwrap();
        assert_same(&gone_on(&plan, &path("whole"), "mb=12"), &want, "whole");
        let of_averages = gone_on(&plan, &averages, "mb=12");
        assert_ne!(of_averages.metrics, want.metrics);
        if plan.model.moe.is_none() {
            export_hf(&checkpoint, &path("hf")).unwrap();
            let found = gone_on(&plan, &path("hf"), layouts[0]);
            assert_same(&found, &want, "Hugging Face's folder");
            let imported = import_hf(&path("hf"), &path("imported"))
                .unwrap()
                .checkpoint;
            assert_same(&gone_on(&plan, &imported, "mb=12"), &want, "imported");
        }
    }
}

#[test]
fn a_t5_starts_from_given_weights_too() {
    let dir = tempfile::tempdir().unwrap();
    let mut plan = tiny_t5();
    let samples = Gaps::of(&plan);
    let (seed, log) = (plan.seed, Log::default());
    (plan.seed, plan.train.checkpoint.sharded) = (7, true);
    let source = run(&plan, &samples, None, dir.path(), &log)
        .unwrap()
        .checkpoint;
    (plan.seed, plan.train.checkpoint.sharded) = (seed, false);
    let plan = from(&plan, &source);
    let want = train_on(&with(plan.clone(), "mb=12"), &samples);
    let layout = "tp=2 dp=2 zero=3 mb=3";
    assert_same(&train_on(&with(plan, layout), &samples), &want, layout);
    assert!(check_init(&source, &tiny_gpt(), true).is_err());
}

#[test]
fn a_run_goes_on_from_its_own_checkpoints_and_notices_a_source_that_changed() {
    let dir = tempfile::tempdir().unwrap();
    let [first, other, out] = ["first", "other", "out"].map(|name| dir.path().join(name));
    let mut plan = tiny_gpt();
    let source = trained(&plan, &first);
    plan.seed = 2;
    let another = trained(&plan, &other);
    let plan = from(&tiny_gpt(), &source);
    let samples = Chain::of(&plan);
    let go = |plan: &Plan| {
        let log = Log::default();
        let done = run(plan, &samples, None, &out, &log);
        done.map(|done| (done, log.lines()))
    };
    let (done, lines) = go(&plan).unwrap();
    let start = format!(
        "note starts from the weights of {} (xxh3 {})",
        source.display(),
        done.init.clone().unwrap()
    );
    assert_eq!(lines[0], start);
    let told = inspect(&done.checkpoint).unwrap();
    assert_eq!(told["init"]["xxh3"].as_str(), done.init.as_deref());
    assert_eq!(go(&plan).unwrap().1, ["resumed 4"]);
    // elsewhere, in another form, but the same weights
    reshard(&source, &dir.path().join("moved"), &Reshard::default()).unwrap();
    let moved = go(&from(&plan, &dir.path().join("moved"))).unwrap();
    assert_eq!(moved.1, ["resumed 4"]);

    let changed = go(&from(&plan, &another)).unwrap_err().to_string();
    assert!(
        changed.contains("train.init_from (xxh3 of its weights): "),
        "{changed}"
    );
    let none = go(&tiny_gpt()).unwrap_err().to_string();
    assert!(none.ends_with("there, the seed's here"), "{none}");
    fs::remove_dir_all(&first).unwrap();
    let (again, lines) = go(&plan).unwrap();
    assert!(lines[0].ends_with("is not there any more"), "{lines:?}");
    assert_eq!((&lines[1][..], again.init), ("resumed 4", done.init));
}

#[test]
fn a_source_that_does_not_fit_is_refused_with_every_difference() {
    let dir = tempfile::tempdir().unwrap();
    let source = trained(&tiny_gpt(), dir.path());
    let mut plan = tiny_gpt();
    (plan.model.layers, plan.model.heads, plan.model.norm_eps) = (3, 2, 1e-6);
    (plan.vocab, plan.seq_length) = (201, 32);
    plan.model.dropout = 0.1;
    let refused = |plan: &Plan, known| {
        let error = check_init(&source, plan, known).unwrap_err();
        let Error::Foreign { problems, .. } = error else {
            panic!("{error}");
        };
        problems
    };
    let want = [
        "model.layers: found 2 there, want 3",
        "model.heads: found 4 there, want 2",
        "model.head_dim: found 8 there, want 16",
        "model.kv_heads: found 4 there, want 2",
        "model.norm_eps: found 0.00001 there, want 1e-6",
        "vocab: found 200 there, want 201",
        "seq_length: found 16 there, want 32",
    ];
    let sorted = |mut lines: Vec<String>| {
        lines.sort();
        lines
    };
    let mut wanted = want.map(str::to_owned);
    wanted.sort();
    assert_eq!(sorted(refused(&plan, true)), wanted);
    assert_eq!(refused(&plan, false).len(), want.len() - 1);
    let samples = Chain::of(&plan);
    let out = tempfile::tempdir().unwrap();
    let error = run(
        &from(&plan, &source),
        &samples,
        None,
        out.path(),
        &Log::default(),
    );
    let error = error.unwrap_err().to_string();
    assert!(want.iter().all(|line| error.contains(line)), "{error}");
    // rotary positions extend to longer texts, and families with the same architecture are interchangeable
    let llama = trained(&tiny_llama(), out.path());
    let mut longer = tiny_llama();
    (longer.seq_length, longer.model.family) = (32, crate::config::Family::Mistral);
    check_init(&llama, &longer, true).unwrap();
    assert!(refused(&tiny_llama(), true).len() > 5);
}

#[test]
fn of_a_longer_table_of_positions_the_first_rows_are_taken() {
    for plan in [tiny_gpt(), tiny_opt()] {
        let dir = tempfile::tempdir().unwrap();
        let source = trained(&plan, &dir.path().join("run"));
        let folder = dir.path().join("hf");
        export_hf(&source, &folder).unwrap();
        let mut shorter = plan.clone();
        shorter.seq_length = 8;
        // every rate is far below the precision of the weights
        (shorter.train.lr, shorter.train.min_lr) = (1e-30, 1e-30);
        let tokens = [3, 10, 17, 24, 31, 38, 45, 52];
        let want = logits(&source, &tokens).unwrap().concat();
        for (number, from_there) in [&source, &folder].into_iter().enumerate() {
            check_init(from_there, &shorter, true).unwrap();
            let out = dir.path().join(format!("shorter{number}"));
            let plan = from(&shorter, from_there);
            let log = Log::default();
            let done = run(&plan, &Chain::of(&plan), None, &out, &log).unwrap();
            let note = "the first 8 of its 16 learned positions are taken";
            assert!(log.lines().iter().any(|line| line.contains(note)));
            let found = logits(&done.checkpoint, &tokens).unwrap().concat();
            let off = found.iter().zip(&want).map(|(a, b)| (a - b).abs());
            let off = off.fold(0.0, f32::max);
            assert!(off < 1e-6, "{:?}: {off}", plan.model.family);
        }
        // a longer sample would have positions that nothing was learned of
        shorter.seq_length = 24;
        let error = check_init(&source, &shorter, true).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("seq_length: found 16 there, want 24"),
            "{error}"
        );
    }
}

#[test]
fn a_source_that_is_damaged_or_nothing_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let source = trained(&tiny_gpt(), dir.path());
    let told = |path: &Path| {
        let error = check_init(path, &tiny_gpt(), true).unwrap_err();
        error.with_causes()
    };
    let nothing = told(&dir.path().join("nothing"));
    assert!(nothing.contains("found neither state.json nor folders step-NNNNNNNN nor config.json"));
    let averages = told(&source.join("ema.safetensors"));
    assert!(averages.contains("no checksums of ema.safetensors"));
    let file = source.join("model.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&file, bytes).unwrap();
    let damaged = told(&source);
    assert!(damaged.contains("model.safetensors at byte "), "{damaged}");
}
