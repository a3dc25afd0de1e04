//! `train.bf16_sums`: tiles give the same bits for every layout and resume, but others than pairs; several
//! processes give the same bits; a run that resumes with another order says so.

use std::net::TcpListener;
use std::path::Path;
use std::thread;

use crate::config::{Bf16Sums, Plan, Precision};
use crate::dist::launch::{LaunchConfig, Launcher};
use crate::dist::world::World;
use crate::fixtures::{Chain, Log, samples_of, tiny_bert, tiny_gpt, tiny_llama, tiny_moe, tiny_t5};
use crate::tests::layouts::{assert_same, train, train_in, with};
use crate::tests::share::Share;
use crate::trainer::{memory, run, run_in_world};

const LAYOUTS: [&str; 7] = [
    "dp=3 mb=2",
    "tp=2 mb=3",
    "tp=4 sp mb=4",
    "pp=2 dp=2 zero=3 mb=3",
    "cp=2 dp=2 zero=2 mb=1",
    "full mb=2",
    "pp=2 vs=2 tp=2 sp dp=2 selective mb=2",
];

fn summed(mut plan: Plan, sums: Bf16Sums) -> Plan {
    plan.train.precision = Precision::Bf16;
    plan.train.bf16_sums = sums;
    plan
}

fn four_layers(mut plan: Plan) -> Plan {
    plan.model.layers = 4;
    if plan.model.kv_heads > 0 {
        (plan.model.heads, plan.model.kv_heads) = (8, 4);
    }
    plan
}

fn logged(plan: &Plan, folder: &Path) -> Vec<String> {
    let (samples, log) = (samples_of(plan), Log::default());
    run(plan, samples.as_ref(), None, folder, &log).unwrap();
    log.lines()
}

#[test]
fn every_layout_gives_the_same_bits_in_tiles() {
    let mut share = Share::one_in(2);
    for plan in [tiny_gpt(), tiny_llama()] {
        let plan = summed(four_layers(plan), Bf16Sums::Tiles);
        let want = train(&with(plan.clone(), "mb=12"));
        for layout in share.of(&LAYOUTS) {
            assert_same(&train(&with(plan.clone(), layout)), &want, layout);
        }
        let pairs = train(&with(summed(plan, Bf16Sums::Pairs), "mb=12"));
        assert!(pairs.model != want.model, "sums are made otherwise");
    }
}

#[test]
fn every_kind_of_model_has_the_same_bits_in_tiles() {
    for (plan, layouts) in [
        (tiny_moe(), ["dp=2 ep=2 tp=2 mb=2", "pp=2 dp=2 zero=2 mb=1"]),
        (tiny_bert(), ["cp=2 tp=2 sp mb=1", "pp=2 dp=3 zero=3 mb=2"]),
        (tiny_t5(), ["cp=2 tp=2 sp mb=1", "pp=2 dp=3 zero=3 mb=2"]),
    ] {
        let plan = summed(plan, Bf16Sums::Tiles);
        let want = train(&with(plan.clone(), "mb=12"));
        for layout in layouts {
            let what = format!("{layout} {:?}", plan.model.family);
            assert_same(&train(&with(plan.clone(), layout)), &want, &what);
        }
    }
}

#[test]
fn kept_packs_are_as_large_as_predicted_and_change_no_bits() {
    let next_sentence = {
        let mut plan = tiny_bert();
        plan.model.next_sentence = true;
        plan
    };
    for (plan, layout) in [
        (tiny_gpt(), "mb=2"),
        (tiny_llama(), "tp=2 sp pp=2 dp=2 zero=2 mb=1"),
        (tiny_moe(), "ep=2 dp=2 tp=2 mb=2"),
        (tiny_bert(), "mb=1"),
        (next_sentence, "pp=2 tp=2 mb=2"),
        (tiny_t5(), "pp=2 full mb=2"),
    ] {
        let plan = with(summed(plan, Bf16Sums::Tiles), layout);
        let of = |plan: &Plan| {
            let measured = memory::measure(plan, samples_of(plan).as_ref()).unwrap();
            let packs = |ranks: &[memory::RankMemory]| -> Vec<usize> {
                ranks.iter().map(|rank| rank.packs).collect()
            };
            let found = packs(&measured);
            assert_eq!(found, packs(&memory::predict(plan).unwrap()), "{layout}");
            found.iter().sum::<usize>()
        };
        assert!(of(&plan) > 0, "{layout}");
        let mut alone = plan.clone();
        alone.train.keep_packed = false;
        assert_eq!(of(&alone), 0, "{layout}");
        assert_same(&train(&plan), &train(&alone), layout);
        let mut shared = plan.clone();
        (shared.parallel.zero, shared.parallel.dp) = (3, 2);
        let mut once = plan.clone();
        (once.parallel.dp, once.parallel.ep, once.parallel.zero) = (1, 1, 0);
        (once.train.global_batch, once.train.micro_batch) = (1, 1);
        let pairs = summed(plan, Bf16Sums::Pairs);
        for (plan, what) in [(shared, "zero 3"), (once, "once"), (pairs, "pairs")] {
            let packs = memory::predict(&plan).unwrap();
            assert!(packs.iter().all(|rank| rank.packs == 0), "{layout} {what}");
        }
    }
}

#[test]
fn packs_with_their_zeros_fit_the_arena() {
    for plan in [tiny_gpt(), tiny_moe()] {
        let plan = summed(plan, Bf16Sums::Tiles);
        for layout in ["mb=12", "mb=1", "tp=2 sp pp=2 dp=2 zero=3 mb=2"] {
            let folder = tempfile::tempdir().unwrap();
            let lines = logged(&with(plan.clone(), layout), folder.path());
            let is_full = |line: &String| line.contains("did not fit");
            assert!(!lines.iter().any(is_full), "{layout}: {lines:?}");
        }
    }
}

#[test]
fn a_run_goes_on_with_the_sums_that_its_checkpoint_tells_or_says_so() {
    let plan = with(summed(tiny_gpt(), Bf16Sums::Tiles), "mb=4");
    let want = train(&plan);
    let steps = |plan: &Plan, steps| {
        let mut plan = plan.clone();
        plan.train.decay_steps = plan.train.steps;
        plan.train.steps = steps;
        plan
    };
    let folder = tempfile::tempdir().unwrap();
    let half = plan.train.steps / 2;
    train_in(
        &steps(&plan, half),
        folder.path(),
        samples_of(&plan).as_ref(),
    );
    let path = format!("checkpoints/step-{half:08}/state.json");
    let state = std::fs::read(folder.path().join(path)).unwrap();
    let state: serde_json::Value = serde_json::from_slice(&state).unwrap();
    assert_eq!(state["plan"]["train"]["bf16_sums"], "tiles");
    let whole = steps(&plan, plan.train.steps);
    let found = train_in(&whole, folder.path(), samples_of(&plan).as_ref());
    assert!(found.model == want.model && found.optimizer == want.optimizer);

    let told = "note sums of bf16 products were made in tiles so far, from here on in pairs";
    let is_told = |lines: &[String]| lines.iter().any(|line| line.starts_with(told));
    let more = steps(&plan, plan.train.steps + 1);
    assert!(!is_told(&logged(&more, folder.path())));
    let more = steps(&summed(plan.clone(), Bf16Sums::Pairs), plan.train.steps + 2);
    let lines = logged(&more, folder.path());
    assert!(is_told(&lines), "{lines:?}");
    assert!(lines.contains(&"note sums of bf16 products are made in pairs".to_owned()));
}

#[test]
fn what_auto_came_to_is_recorded() {
    let plan = with(summed(tiny_gpt(), Bf16Sums::Auto), "mb=4");
    let folder = tempfile::tempdir().unwrap();
    let lines = logged(&plan, folder.path());
    let path = format!("checkpoints/step-{:08}/state.json", plan.train.steps);
    let state = std::fs::read(folder.path().join(path)).unwrap();
    let state: serde_json::Value = serde_json::from_slice(&state).unwrap();
    let recorded = state["plan"]["train"]["bf16_sums"].as_str().unwrap();
    let has_amx = kernels::Isa::Amx.is_available();
    assert_eq!(recorded, if has_amx { "tiles" } else { "pairs" });
    let told = format!("note sums of bf16 products are made in {recorded}");
    assert!(lines.contains(&told), "{lines:?}");
}

#[test]
fn processes_that_would_sum_otherwise_are_told_before_the_first_step() {
    let mut plan = with(tiny_gpt(), "dp=2 mb=2");
    plan.train.eval_every = 0;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = LaunchConfig {
        port: listener.local_addr().unwrap().port(),
        patience: "20s".into(),
        ..LaunchConfig::default()
    };
    drop(listener);
    let folder = tempfile::tempdir().unwrap();
    // as `auto` comes out on a host with AMX and one without
    let sums = [Bf16Sums::Tiles, Bf16Sums::Pairs];
    let texts: Vec<String> = thread::scope(|scope| {
        let (config, plan, folder) = (&config, &plan, folder.path());
        let one = |(process, sums)| {
            let launcher = Launcher {
                name: "torchrun",
                size_key: "WORLD_SIZE",
                process,
                processes: 2,
                address: Some("127.0.0.1".into()),
                port: 1,
                is_address_given: true,
                is_mpi: false,
                host: format!("host-{process}"),
            };
            scope.spawn(move || {
                let world = World::among(config, &plan.parallel, (launcher, folder)).unwrap();
                let plan = summed(plan.clone(), sums);
                let (samples, log) = (Chain::of(&plan), Log::default());
                let run = run_in_world(&plan, &samples, &[], (folder, &world), &log);
                run.unwrap_err().to_string()
            })
        };
        let threads: Vec<_> = sums.into_iter().enumerate().map(one).collect();
        let ends = threads.into_iter().map(|thread| thread.join().unwrap());
        ends.collect()
    });
    let want = "the processes do not have the same sums of bf16 products (train.bf16_sums = \"pairs\" or \"tiles\" runs on every host): rank 1 on host-1 has \"pairs\", rank 0 on host-0 \"tiles\"";
    assert_eq!(texts, [want, want]);
    let left = std::fs::read_dir(folder.path()).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, [".secret"], "nothing of a training");
}
