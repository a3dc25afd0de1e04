//! Layout mode: every layout, micro-batch, recomputation and thread count gives the same bits.
//! The oracle is the run on one rank with whole-batch micro-batches of the same job.

use std::path::Path;

use kernels::rng;

use crate::config::{Determinism, ParallelConfig, Plan, TieEmbeddings};
use crate::config::{PipelineSchedule, Recompute};
use crate::data::Samples;
use crate::fixtures::{
    Chain, Log, options, samples_of, tiny_bert, tiny_gpt, tiny_llama, tiny_moe, tiny_t5,
};
use crate::tests::mixture::SHARED_OUT;
use crate::tests::share::Share;
use crate::tests::{bert, t5};
use crate::trainer::{memory, run};

/// Layouts grouped by feature, as `key=value` words; absent keys keep their defaults.
pub(super) const LAYOUTS: [&str; 54] = [
    // micro-batches, data
    "mb=1",
    "mb=2",
    "mb=3",
    "mb=6",
    "dp=2 mb=1",
    "dp=2 mb=3",
    "dp=3 mb=2",
    "dp=4 mb=3",
    "dp=12 mb=1",
    // tensor, sequence
    "tp=2 mb=2",
    "tp=4 mb=12",
    "tp=2 dp=2 mb=3",
    "tp=2 sp mb=1",
    "tp=2 sp mb=4",
    "tp=4 sp mb=3",
    "tp=2 sp dp=3 mb=2",
    // pipeline
    "pp=2 mb=1",
    "pp=4 mb=4",
    "pp=2 gpipe mb=3",
    "pp=2 vs=2 mb=1",
    "pp=2 vs=2 mb=4",
    "pp=2 vs=2 tp=2 sp dp=2 mb=2",
    "pp=2 layers=3,1 mb=2",
    "pp=3 layers=1,3,0 mb=3",
    "pp=2 vs=2 layers=0,2,1,1 mb=2",
    "pp=3 count mb=2",
    "pp=2 tp=2 dp=3 mb=1",
    // ZeRO
    "dp=2 zero=1 mb=3",
    "dp=3 zero=1 mb=2",
    "dp=2 zero=2 mb=1",
    "dp=2 zero=2 mb=6",
    "dp=3 zero=2 mb=4",
    "dp=4 zero=2 mb=3",
    "dp=2 zero=3 mb=2",
    "dp=3 zero=3 mb=2",
    "dp=4 zero=3 mb=1",
    "dp=2 zero=3 tp=2 sp pp=2 mb=3",
    "dp=2 zero=2 pp=2 vs=2 mb=1",
    "dp=2 zero=1 tp=2 pp=2 mb=3 here",
    "dp=4 zero=3 pp=2 mb=1 here",
    // context
    "cp=2 mb=1",
    "cp=2 mb=4",
    "cp=4 mb=2",
    "cp=8 mb=12",
    "cp=2 tp=2 sp mb=2",
    "cp=2 dp=3 mb=2",
    "cp=2 dp=2 zero=2 mb=3",
    "cp=2 dp=2 zero=3 pp=2 tp=2 sp mb=3",
    // recomputation, nodes, orders
    "selective mb=3",
    "full mb=2",
    "full=1 pp=2 vs=2 mb=2",
    "full=1,2 pp=2 tp=2 sp dp=2 zero=2 mb=3",
    "selective cp=2 tp=2 mb=1",
    "dp=4 tp=2 nodes=4 order=tp-dp-pp-cp-ep pp=2 zero=1 mb=3",
];

pub(super) fn with(mut plan: Plan, layout: &str) -> Plan {
    plan.train.global_batch = 12;
    plan.parallel = ParallelConfig::default();
    for word in layout.split(' ') {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let list = || value.split(',').map(|n| n.parse().unwrap()).collect();
        let number = || value.parse::<usize>().unwrap();
        let (parallel, train) = (&mut plan.parallel, &mut plan.train);
        match key {
            "mb" => train.micro_batch = number(),
            "dp" => parallel.dp = number(),
            "ep" => parallel.ep = number(),
            "tp" => parallel.tp = number(),
            "sp" => parallel.sequence = true,
            "pp" => parallel.pp = number(),
            "vs" => parallel.virtual_stages = number(),
            "gpipe" => parallel.schedule = PipelineSchedule::Gpipe,
            "layers" => parallel.stage_layers = list(),
            "count" => (parallel.count_embedding, parallel.count_head) = (true, true),
            "zero" => parallel.zero = value.parse().unwrap(),
            "here" => parallel.overlap = false,
            "cp" => parallel.cp = number(),
            "nodes" => parallel.ranks_per_node = number(),
            "order" => parallel.order = value.into(),
            "chunked" => train.chunked_cross_entropy = true,
            "selective" => train.recompute = Recompute::Selective,
            "full" => {
                train.recompute = Recompute::Full;
                if !value.is_empty() {
                    train.recompute_layers = list();
                }
            }
            _ => panic!("{word}"),
        }
    }
    plan
}

pub(super) struct Result {
    /// Bits of loss, gradient norm and validation loss of every step.
    pub(super) metrics: Vec<String>,
    pub model: Vec<u8>,
    pub optimizer: Vec<u8>,
    /// Scales of fp8 and their histories, if there are any.
    pub scales: serde_json::Value,
}

/// Reproducible fields of metrics.jsonl.
pub(super) fn reproducible(out: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(out.join("metrics.jsonl")).unwrap();
    let line = |line: &str| {
        let mut value: serde_json::Value = serde_json::from_str(line).unwrap();
        for field in [
            "tokens_per_s",
            "tflops",
            "step_s",
            "memory_bytes",
            "stall_s",
        ] {
            value.as_object_mut().unwrap().shift_remove(field);
        }
        value.to_string()
    };
    text.lines().map(line).collect()
}

/// Whether a training in a folder ends: its samples fail after the batches of `steps` steps, if the plan has more.
pub(super) fn ends_within(steps: u64, plan: &Plan, folder: &Path) -> bool {
    let batch = plan.train.global_batch as u64;
    let samples = Chain {
        fails_at: (steps < plan.train.steps).then_some(steps * batch),
        ..Chain::of(plan)
    };
    let valid = Chain::of(plan);
    run(plan, &samples, Some(&valid), folder, &Log::default()).is_ok()
}

pub(super) fn train_in(plan: &Plan, folder: &Path, samples: &dyn Samples) -> Result {
    let outcome = run(plan, samples, Some(samples), folder, &Log::default()).unwrap();
    let read = |name| std::fs::read(outcome.checkpoint.join(name)).unwrap();
    let state: serde_json::Value = serde_json::from_slice(&read("state.json")).unwrap();
    Result {
        metrics: reproducible(folder),
        model: read("model.safetensors"),
        optimizer: read("optimizer.safetensors"),
        scales: state["fp8"].clone(),
    }
}

pub(super) fn train(plan: &Plan) -> Result {
    train_on(plan, samples_of(plan).as_ref())
}

pub(super) fn train_on(plan: &Plan, samples: &dyn Samples) -> Result {
    let folder = tempfile::tempdir().unwrap();
    train_in(plan, folder.path(), samples)
}

pub(super) fn assert_same(found: &Result, want: &Result, layout: &str) {
    assert_eq!(found.metrics, want.metrics, "{layout}");
    assert!(found.model == want.model, "weights of {layout}");
    assert!(found.optimizer == want.optimizer, "moments of {layout}");
    assert!(found.scales == want.scales, "scales of {layout}");
}

/// Layers enough for every layout of the table.
fn four_layers(plan: &mut Plan) {
    plan.model.layers = 4;
    if plan.model.kv_heads > 0 {
        (plan.model.heads, plan.model.kv_heads) = (8, 4);
    }
}

fn every_layout_matches(mut plan: Plan) {
    four_layers(&mut plan);
    let want = train(&with(plan.clone(), "mb=12"));
    assert_eq!(want.metrics.len(), 6, "4 steps, 2 validations");
    for layout in LAYOUTS {
        assert_same(&train(&with(plan.clone(), layout)), &want, layout);
    }
}

#[test]
fn every_layout_of_a_gpt_gives_the_same_bits() {
    every_layout_matches(tiny_gpt());
}

#[test]
fn every_layout_of_a_llama_gives_the_same_bits() {
    every_layout_matches(tiny_llama());
}

/// A table of all layouts (train/docs/determinism.md): last loss, gradient norm and hashes of the bytes.
#[test]
#[ignore = "prints a table; run it by name with --nocapture"]
fn print_layout_table() {
    println!("| layout | ranks | model | loss | gradient norm | weights | moments |");
    println!("|---|---|---|---|---|---|---|");
    let mixture = [LAYOUTS.as_slice(), SHARED_OUT.as_slice()].concat();
    for (name, mut plan, layouts) in [
        ("gpt", tiny_gpt(), LAYOUTS.as_slice()),
        ("llama", tiny_llama(), LAYOUTS.as_slice()),
        ("mixture", tiny_moe(), mixture.as_slice()),
        ("bert", tiny_bert(), bert::LAYOUTS.as_slice()),
        ("t5", tiny_t5(), t5::LAYOUTS.as_slice()),
    ] {
        if name != "t5" {
            four_layers(&mut plan);
        }
        for layout in ["mb=12"].iter().chain(layouts) {
            let plan = with(plan.clone(), layout);
            let Result {
                metrics,
                model,
                optimizer,
                ..
            } = train(&plan);
            let last = metrics.iter().rfind(|line| line.contains("grad_norm"));
            let last: serde_json::Value = serde_json::from_str(last.unwrap()).unwrap();
            let hash = xxhash_rust::xxh3::xxh3_64;
            println!(
                "| {layout} | {} | {name} | {} | {} | {:016x} | {:016x} |",
                plan.parallel.world(),
                last["loss"],
                last["grad_norm"],
                hash(&model),
                hash(&optimizer)
            );
        }
    }
}

/// Layouts with every axis and way of recomputation, of four layers and 12 sequences.
pub(super) const KINDS: [&str; 9] = [
    "mb=1",
    "dp=3 zero=2 mb=2",
    "tp=2 mb=2",
    "tp=4 sp dp=2 mb=3",
    "pp=2 vs=2 tp=2 sp dp=2 mb=2",
    "cp=2 tp=2 sp mb=2",
    "cp=4 dp=2 zero=3 mb=3",
    "full=1,2 pp=2 tp=2 sp dp=2 zero=2 mb=3",
    "selective cp=2 tp=2 mb=1",
];

/// Compares layouts of a plan of 12 sequences with one rank, bit for bit, and each rank's memory with the prediction.
pub(super) fn assert_same_in(plan: &Plan, layouts: &[&str]) {
    let want = train(&with(plan.clone(), "mb=12"));
    for layout in layouts {
        let plan = with(plan.clone(), layout);
        assert_same(&train(&plan), &want, layout);
        let measured = memory::measure(&plan, &Chain::of(&plan)).unwrap();
        assert_eq!(measured, memory::predict(&plan).unwrap(), "{layout}");
    }
}

/// Wide enough that matrix products run over several tiles and blocks in every direction.
pub(super) fn wide(mut plan: Plan) -> Plan {
    (plan.model.d_model, plan.model.heads, plan.model.d_ffn) = (320, 4, 896);
    (plan.vocab, plan.seq_length) = (1500, 136);
    (plan.train.steps, plan.train.eval_samples) = (2, 3);
    plan
}

#[test]
fn products_over_several_tiles_are_layout_exact_too() {
    let mut share = Share::one_in(2);
    for plan in [wide(tiny_gpt()), wide(tiny_llama())] {
        let small = |layout| {
            let mut plan = with(plan.clone(), layout);
            plan.train.global_batch = 4;
            train(&plan)
        };
        let want = small("mb=4");
        let layouts = [
            "mb=1",
            "dp=4 mb=1",
            "tp=2 mb=2",
            "pp=2 mb=2",
            "dp=2 tp=2 pp=2 mb=1",
            "dp=2 tp=2 sp zero=3 mb=2",
            "cp=4 full mb=1",
            "cp=2 tp=2 sp dp=2 zero=2 selective mb=1",
        ];
        for layout in share.of(&layouts) {
            assert_same(&small(layout), &want, layout);
        }
    }
}

#[test]
fn the_other_way_of_tying_and_odd_batches_are_layout_exact_too() {
    let mut gpt = tiny_gpt();
    gpt.model.tie_embeddings = TieEmbeddings::Untied;
    let mut llama = tiny_llama();
    llama.model.tie_embeddings = TieEmbeddings::Tied;
    for plan in [gpt, llama] {
        let odd = |layout| {
            let mut plan = with(plan.clone(), layout);
            plan.train.global_batch = 7;
            train(&plan)
        };
        let want = odd("mb=7");
        for layout in [
            "mb=1",
            "dp=7 mb=1",
            "tp=2 sp pp=2 mb=7",
            "pp=2 mb=1",
            "dp=7 zero=3 mb=1",
            "dp=7 pp=2 zero=2 mb=1",
        ] {
            assert_same(&odd(layout), &want, layout);
        }
    }
}

#[test]
fn every_option_is_layout_exact_too() {
    for plan in options() {
        let want = train(&with(plan.clone(), "mb=12"));
        for layout in [
            "tp=2 sp pp=2 dp=2 zero=3 selective mb=2",
            "cp=4 full dp=2 zero=2 mb=3",
            "tp=2 cp=2 pp=2 mb=1",
        ] {
            let plan = with(plan.clone(), layout);
            assert_same(&train(&plan), &want, &format!("{layout} {:?}", plan.model));
            let measured = memory::measure(&plan, &Chain::of(&plan)).unwrap();
            let predicted = memory::predict(&plan).unwrap();
            assert_eq!(measured, predicted, "{layout} {:?}", plan.model);
        }
    }
}

#[test]
fn eight_tensor_parallel_ranks_give_the_bits_of_one() {
    for mut plan in [tiny_gpt(), tiny_llama()] {
        (plan.model.d_model, plan.model.heads) = (64, 8);
        if plan.model.kv_heads > 0 {
            plan.model.kv_heads = 8;
        }
        let want = train(&with(plan.clone(), "mb=4"));
        for layout in ["tp=4 mb=4", "tp=8 mb=4", "tp=8 sp mb=4"] {
            assert_same(&train(&with(plan.clone(), layout)), &want, layout);
        }
    }
}

/// A layout of at most 16 ranks with every axis drawn at random; `None` if it does not fit.
fn drawn(plan: &Plan, number: u64) -> Option<Plan> {
    let mut counter = 0;
    let mut draw = |from: &[usize]| {
        counter += 1;
        let u = rng::uniform(77, number, counter) * from.len() as f64;
        from[(0..from.len()).rfind(|&i| i as f64 <= u).unwrap_or(0)]
    };
    let mut plan = plan.clone();
    let (parallel, train) = (&mut plan.parallel, &mut plan.train);
    (parallel.tp, parallel.cp) = (draw(&[1, 1, 2, 4]), draw(&[1, 1, 2, 4]));
    (parallel.pp, parallel.dp) = (draw(&[1, 1, 2, 4]), draw(&[1, 2, 3, 4]));
    parallel.virtual_stages = if parallel.pp > 1 { draw(&[1, 2]) } else { 1 };
    parallel.sequence = draw(&[0, 1]) == 1;
    parallel.overlap = draw(&[0, 1, 1]) == 1;
    parallel.zero = u8::try_from(draw(&[0, 1, 2, 3])).unwrap();
    parallel.order =
        ["tp-cp-ep-dp-pp", "pp-dp-tp-ep-cp", "tp-dp-cp-pp-ep"][draw(&[0, 1, 2])].into();
    parallel.ranks_per_node = if parallel.order.starts_with("tp") {
        draw(&[0, 4, 8])
    } else {
        0
    };
    if parallel.virtual_stages == 1 && draw(&[0, 1]) == 1 {
        parallel.schedule = PipelineSchedule::Gpipe;
    }
    train.micro_batch = draw(&[1, 2, 3, 4, 6]);
    train.recompute = [Recompute::None, Recompute::Selective, Recompute::Full][draw(&[0, 1, 2])];
    train.chunked_cross_entropy = draw(&[0, 1]) == 1;
    let few = plan.parallel.world() <= 16;
    (few && plan.problems().is_empty()).then_some(plan)
}

#[test]
fn layouts_drawn_at_random_give_the_same_bits() {
    const DRAWN: usize = 12;
    let (mut gpt, mut llama) = (tiny_gpt(), tiny_llama());
    four_layers(&mut gpt);
    four_layers(&mut llama);
    for mut plan in [gpt, llama] {
        plan.train.global_batch = 12;
        plan.train.steps = 2;
        let want = train(&with(plan.clone(), "mb=12"));
        let layouts = (0..).filter_map(|number| drawn(&plan, number));
        for plan in layouts.take(DRAWN) {
            let layout = format!("{:?} {:?}", plan.parallel, plan.train);
            assert_same(&train(&plan), &want, &layout);
        }
    }
}

#[test]
fn a_run_goes_on_in_another_layout_with_the_same_bits() {
    let mut plan = tiny_gpt();
    plan.model.layers = 4;
    let want = train(&with(plan.clone(), "mb=12"));
    let path = [
        ("dp=2 zero=1 mb=3", 1),
        ("dp=3 zero=3 tp=2 sp mb=2", 2),
        ("pp=2 vs=2 cp=2 mb=4", 3),
        ("dp=2 tp=2 pp=2 zero=2 full mb=1", 4),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (layout, steps) in path {
        let mut plan = with(plan.clone(), layout);
        // a run that ends early: the rate must be that of the whole job
        plan.train.checkpoint.every = 1;
        let is_done = ends_within(steps, &plan, folder.path());
        assert_eq!(is_done, steps == plan.train.steps, "{layout}");
    }
    let samples = Chain::of(&plan);
    let found = train_in(&with(plan, "mb=12"), folder.path(), &samples);
    assert_same(&found, &want, "four layouts one after the other");
}

#[test]
fn without_layout_mode_another_micro_batch_changes_bits() {
    // shows that the comparison above can fail
    let mut plan = tiny_gpt();
    plan.determinism = Determinism::Off;
    let one = train(&with(plan.clone(), "mb=12"));
    let other = train(&with(plan.clone(), "mb=2"));
    assert_ne!(one.metrics, other.metrics);
    let again = train(&with(plan, "mb=2"));
    assert_eq!(again.metrics, other.metrics);
    assert!(again.model == other.model);
}

#[test]
fn run_mode_repeats_its_own_bits_on_every_layout() {
    for layout in [
        "dp=2 mb=3",
        "tp=2 pp=2 mb=2",
        "dp=3 tp=2 zero=3 mb=2",
        "cp=2 tp=2 sp dp=2 zero=1 mb=3",
    ] {
        let mut plan = with(tiny_llama(), layout);
        plan.determinism = Determinism::Run;
        assert_same(&train(&plan), &train(&plan), layout);
    }
}

/// Without fixed leaves the bits differ, but the numbers are those of the same training.
#[test]
fn run_mode_on_any_layout_trains_the_same_model() {
    let mut plan = tiny_gpt();
    plan.determinism = Determinism::Run;
    let loss = |layout: &str| {
        let lines = train(&with(plan.clone(), layout)).metrics;
        let last: serde_json::Value = serde_json::from_str(&lines[lines.len() - 2]).unwrap();
        last["loss"].as_f64().unwrap()
    };
    let want = loss("mb=12");
    for layout in [
        "dp=3 zero=2 mb=2",
        "cp=2 dp=2 mb=3",
        "cp=4 zero=3 dp=2 mb=1",
        "tp=2 sp mb=4",
    ] {
        assert!((loss(layout) / want - 1.0).abs() < 1e-5, "{layout}");
    }
}

/// Run in a separate process by the test below.
#[test]
#[ignore = "prints the results that thread_counts_do_not_change_bits compares"]
fn print_weights() {
    let Result {
        metrics,
        model,
        optimizer,
        ..
    } = train(&with(wide(tiny_llama()), "tp=2 sp mb=2"));
    let hash = xxhash_rust::xxh3::xxh3_64;
    println!(
        "weights {:?} {} {}",
        metrics,
        hash(&model),
        hash(&optimizer)
    );
}

#[test]
fn thread_counts_do_not_change_bits() {
    let on = |threads: &str| {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "tests::layouts::print_weights",
                "--ignored",
                "--nocapture",
            ])
            .env("RAYON_NUM_THREADS", threads)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let line = text.lines().find_map(|line| line.split_once("weights "));
        line.unwrap_or_else(|| panic!("{text}")).1.to_owned()
    };
    let one = on("1");
    assert_eq!(on("2"), one);
    assert_eq!(on("5"), one);
}
