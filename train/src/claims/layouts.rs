//! Layout mode: every (dp, tp, pp), micro-batch and thread count gives the same bits.
//! The oracle is the run on one rank with whole-batch micro-batches of the same job.

use std::path::Path;

use crate::fixtures::{Chain, Log, tiny_gpt, tiny_llama};
use crate::{Determinism, ParallelConfig, Plan, TieEmbeddings, run};

/// (dp, tp, pp, micro_batch)
const LAYOUTS: [(usize, usize, usize, usize); 24] = [
    (1, 1, 1, 1),
    (1, 1, 1, 2),
    (1, 1, 1, 4),
    (1, 1, 1, 3),
    (1, 1, 1, 6),
    (2, 1, 1, 1),
    (2, 1, 1, 3),
    (3, 1, 1, 2),
    (4, 1, 1, 3),
    (6, 1, 1, 1),
    (1, 2, 1, 2),
    (1, 2, 1, 12),
    (1, 1, 2, 1),
    (1, 1, 2, 4),
    (2, 2, 1, 2),
    (2, 1, 2, 3),
    (1, 2, 2, 2),
    (2, 2, 2, 1),
    (2, 2, 2, 6),
    (3, 2, 2, 1),
    (3, 1, 2, 4),
    (4, 1, 2, 1),
    (6, 2, 1, 2),
    (12, 1, 1, 1),
];

struct Result {
    /// Bits of loss, gradient norm and validation loss of every step.
    metrics: Vec<String>,
    model: Vec<u8>,
    optimizer: Vec<u8>,
}

/// Reproducible fields of metrics.jsonl.
fn reproducible(out: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(out.join("metrics.jsonl")).unwrap();
    let line = |line: &str| {
        let mut value: serde_json::Value = serde_json::from_str(line).unwrap();
        for field in ["tokens_per_s", "tflops", "step_s", "memory_bytes"] {
            value.as_object_mut().unwrap().shift_remove(field);
        }
        value.to_string()
    };
    text.lines().map(line).collect()
}

fn train(plan: &Plan) -> Result {
    let folder = tempfile::tempdir().unwrap();
    let samples = Chain::of(plan);
    let outcome = run(
        plan,
        &samples,
        Some(&samples),
        folder.path(),
        &Log::default(),
    )
    .unwrap();
    let read = |name| std::fs::read(outcome.checkpoint.join(name)).unwrap();
    Result {
        metrics: reproducible(folder.path()),
        model: read("model.safetensors"),
        optimizer: read("optimizer.safetensors"),
    }
}

fn with(mut plan: Plan, (dp, tp, pp, micro_batch): (usize, usize, usize, usize)) -> Plan {
    plan.parallel = ParallelConfig { tp, pp, dp };
    plan.train.global_batch = 12;
    plan.train.micro_batch = micro_batch;
    plan
}

fn every_layout_matches(plan: Plan) {
    let want = train(&with(plan.clone(), (1, 1, 1, 12)));
    assert_eq!(want.metrics.len(), 6, "4 steps, 2 validations");
    for layout in LAYOUTS {
        let found = train(&with(plan.clone(), layout));
        assert_eq!(
            found.metrics, want.metrics,
            "(dp, tp, pp, micro_batch) = {layout:?}"
        );
        assert!(found.model == want.model, "weights of {layout:?}");
        assert!(found.optimizer == want.optimizer, "moments of {layout:?}");
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

/// Wide enough that matrix products run over several tiles and blocks in every direction.
fn wide(mut plan: Plan) -> Plan {
    (plan.model.d_model, plan.model.heads, plan.model.d_ffn) = (320, 4, 896);
    (plan.vocab, plan.seq_length) = (1500, 136);
    (plan.train.steps, plan.train.eval_samples) = (2, 3);
    plan
}

#[test]
fn products_over_several_tiles_are_layout_exact_too() {
    for plan in [wide(tiny_gpt()), wide(tiny_llama())] {
        let small = |layout| {
            let mut plan = with(plan.clone(), layout);
            plan.train.global_batch = 4;
            train(&plan)
        };
        let want = small((1, 1, 1, 4));
        for layout in [
            (1, 1, 1, 1),
            (4, 1, 1, 1),
            (1, 2, 1, 2),
            (1, 1, 2, 2),
            (2, 2, 2, 1),
        ] {
            let found = small(layout);
            assert_eq!(found.metrics, want.metrics, "{layout:?}");
            assert!(found.model == want.model, "{layout:?}");
            assert!(found.optimizer == want.optimizer, "{layout:?}");
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
        let want = odd((1, 1, 1, 7));
        for layout in [(1, 1, 1, 1), (7, 1, 1, 1), (1, 2, 2, 7), (1, 1, 2, 1)] {
            let found = odd(layout);
            assert_eq!(found.metrics, want.metrics, "{layout:?}");
            assert!(found.model == want.model, "{layout:?}");
            assert!(found.optimizer == want.optimizer, "{layout:?}");
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
        let want = train(&with(plan.clone(), (1, 1, 1, 4)));
        for tp in [4, 8] {
            let found = train(&with(plan.clone(), (1, tp, 1, 4)));
            assert_eq!(found.metrics, want.metrics, "tp = {tp}");
            assert!(found.model == want.model, "tp = {tp}");
        }
    }
}

#[test]
fn without_layout_mode_another_micro_batch_changes_bits() {
    // shows that the comparison above can fail
    let mut plan = tiny_gpt();
    plan.determinism = Determinism::Off;
    let one = train(&with(plan.clone(), (1, 1, 1, 12)));
    let other = train(&with(plan.clone(), (1, 1, 1, 2)));
    assert_ne!(one.metrics, other.metrics);
    let again = train(&with(plan, (1, 1, 1, 2)));
    assert_eq!(again.metrics, other.metrics);
    assert!(again.model == other.model);
}

#[test]
fn run_mode_repeats_its_own_bits_on_every_layout() {
    for layout in [(2, 1, 1, 3), (1, 2, 2, 2), (3, 2, 1, 2)] {
        let mut plan = with(tiny_llama(), layout);
        plan.determinism = Determinism::Run;
        let (one, other) = (train(&plan), train(&plan));
        assert_eq!(one.metrics, other.metrics, "{layout:?}");
        assert!(one.model == other.model, "{layout:?}");
    }
}

/// Run in a process of its own by the test below.
#[test]
#[ignore = "prints what thread_counts_do_not_change_bits compares"]
fn print_weights() {
    let Result {
        metrics,
        model,
        optimizer,
    } = train(&with(wide(tiny_llama()), (1, 2, 1, 2)));
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
                "claims::layouts::print_weights",
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
