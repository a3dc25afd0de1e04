//! `train.chunked_cross_entropy`: the same bits as with all logits at once on every layout and in every precision,
//! memory as predicted, and resumes that switch it on or off.

use crate::config::{Bf16Sums, Determinism, Fp8Recipe, Plan, Precision, TieEmbeddings};
use crate::fixtures::{
    Log, options, samples_of, tiny_bert, tiny_gpt, tiny_llama, tiny_moe, tiny_t5,
};
use crate::tests::layouts::{Result, assert_same, train, train_in, wide, with};
use crate::tests::share::Share;
use crate::trainer::{memory, run};

/// Each axis that the head knows of, and several at once.
const LAYOUTS: [&str; 6] = [
    "chunked mb=12",
    "chunked mb=1",
    "chunked tp=2 mb=3",
    "chunked tp=4 sp dp=2 zero=3 mb=3",
    "chunked pp=2 cp=2 dp=2 zero=2 mb=3",
    "chunked full pp=2 tp=2 sp cp=2 mb=2",
];

/// Matrices of the head's own and shared ones, with and without a bias, masked, scaled, with a z-loss.
fn models() -> Vec<Plan> {
    let mut untied = tiny_gpt();
    untied.model.tie_embeddings = TieEmbeddings::Untied;
    untied.train.z_loss = 1e-2;
    let mut told = tiny_bert();
    (told.model.post_norm, told.model.next_sentence) = (true, true);
    let mut dropped = tiny_t5();
    dropped.model.dropout = 0.2;
    let mut own = tiny_t5();
    own.model.tie_embeddings = TieEmbeddings::Untied;
    vec![
        tiny_gpt(),
        untied,
        tiny_llama(),
        tiny_bert(),
        told,
        dropped,
        own,
        tiny_moe(),
    ]
}

fn assert_layouts(plan: &Plan, layouts: Vec<&str>, what: &str) {
    let mut plan = plan.clone();
    if plan.model.kv_heads > 0 {
        // enough to share out
        (plan.model.heads, plan.model.kv_heads) = (8, 4);
    }
    let want = train(&with(plan.clone(), "mb=12"));
    for layout in layouts {
        let what = format!("{layout} {:?} {what}", plan.model.family);
        assert_same(&train(&with(plan.clone(), layout)), &want, &what);
    }
}

#[test]
fn chunks_give_the_bits_of_all_logits_at_once() {
    let mut share = Share::one_in(3);
    for plan in models() {
        assert_layouts(&plan, share.of(&LAYOUTS), "");
    }
    for plan in options() {
        assert_layouts(&plan, share.of(&LAYOUTS[3..]), "options");
    }
}

/// A rank has 8 chunks, or 4, 2, 1 of them.
#[test]
fn ranks_with_one_chunk_give_the_bits_of_one_with_all() {
    for mut plan in [tiny_gpt(), tiny_bert()] {
        (plan.model.d_model, plan.model.heads) = (64, 8);
        let layouts = vec![
            "chunked tp=8 mb=4",
            "chunked tp=8 sp mb=4",
            "tp=8 mb=4",
            "chunked tp=2 mb=4",
        ];
        assert_layouts(&plan, layouts, "");
    }
}

#[test]
fn every_precision_has_the_same_bits_in_chunks() {
    let mut share = Share::one_in(2);
    for (precision, sums) in [
        (Precision::Bf16, Bf16Sums::Pairs),
        (Precision::Bf16, Bf16Sums::Tiles),
        (Precision::Fp16, Bf16Sums::Auto),
        (Precision::Fp8, Bf16Sums::Tiles),
    ] {
        for mut plan in [tiny_gpt(), tiny_bert(), tiny_t5()] {
            (plan.train.precision, plan.train.bf16_sums) = (precision, sums);
            plan.train.loss_scale.initial = 1024.0;
            plan.train.fp8.recipe = Fp8Recipe::Delayed;
            let layouts = share.of(&["chunked mb=3", "chunked tp=2 sp pp=2 mb=2"]);
            assert_layouts(&plan, layouts, &format!("{precision:?} {sums:?}"));
        }
    }
}

#[test]
fn chunks_over_several_tiles_have_the_same_bits_too() {
    for (precision, sums) in [
        (Precision::F32, Bf16Sums::Auto),
        (Precision::Bf16, Bf16Sums::Tiles),
    ] {
        let mut plan = wide(tiny_gpt());
        (plan.train.precision, plan.train.bf16_sums) = (precision, sums);
        let small = |layout| {
            let mut plan = with(plan.clone(), layout);
            plan.train.global_batch = 4;
            train(&plan)
        };
        let want = small("mb=4");
        for layout in ["chunked mb=4", "chunked tp=2 dp=2 sp mb=1"] {
            assert_same(&small(layout), &want, &format!("{layout} {precision:?}"));
        }
    }
}

#[test]
fn memory_is_as_predicted_and_has_no_logits() {
    for mut plan in models() {
        if let Some(moe) = &mut plan.model.moe {
            // which choices are dropped depends on the router
            moe.capacity_factor = 0.0;
        }
        for layout in ["mb=3", "pp=2 tp=2 sp mb=2", "cp=2 dp=2 zero=2 full mb=1"] {
            let of = |layout: &str| {
                let plan = with(plan.clone(), layout);
                let measured = memory::measure(&plan, samples_of(&plan).as_ref()).unwrap();
                let what = format!("{layout} {:?}", plan.model.family);
                assert_eq!(measured, memory::predict(&plan).unwrap(), "{what}");
                measured.iter().map(|rank| rank.activations).sum::<usize>()
            };
            let (kept, dropped) = (of(layout), of(&format!("chunked {layout}")));
            assert!(dropped < kept, "{layout} {kept} {dropped}");
        }
    }
    // one micro-batch of one rank saves exactly the logits
    let plan = tiny_gpt();
    let of = |layout| memory::predict(&with(plan.clone(), layout)).unwrap()[0].activations;
    let logits = 4 * 4 * plan.seq_length * plan.padded_vocab();
    assert_eq!(of("mb=4") - of("chunked mb=4"), logits);
}

#[test]
fn a_planned_arena_holds_every_tensor_of_a_run() {
    for plan in models() {
        for layout in [
            "chunked mb=12",
            "chunked tp=2 sp dp=2 zero=2 mb=2",
            "chunked pp=2 mb=3",
        ] {
            let plan = with(plan.clone(), layout);
            let (folder, log) = (tempfile::tempdir().unwrap(), Log::default());
            let samples = samples_of(&plan);
            let valid = Some(samples.as_ref());
            run(&plan, samples.as_ref(), valid, folder.path(), &log).unwrap();
            let has_more = log.lines().iter().any(|line| line.contains("arena"));
            assert!(!has_more, "{layout} {:?}", log.lines());
        }
    }
}

#[test]
fn a_run_goes_on_with_chunks_and_without() {
    for plan in [tiny_gpt(), tiny_t5()] {
        let want = train(&with(plan.clone(), "mb=12"));
        let folder = tempfile::tempdir().unwrap();
        for (layout, steps) in [("chunked mb=3", 2), ("mb=2", 3), ("chunked tp=2 mb=6", 4)] {
            let mut plan = with(plan.clone(), layout);
            // the decay runs to the same step
            (plan.train.decay_steps, plan.train.steps) = (4, steps);
            let samples = samples_of(&plan);
            let found = train_in(&plan, folder.path(), samples.as_ref());
            if steps == 4 {
                assert!(found.model == want.model && found.optimizer == want.optimizer);
            }
        }
    }
}

/// Without fixed leaves sums over the vocabulary are made in another order by chunks, again in the same one.
#[test]
fn without_layout_mode_chunks_repeat_their_bits_and_train_the_same_model() {
    for determinism in [Determinism::Run, Determinism::Off] {
        let last = |result: &Result| {
            let lines = &result.metrics;
            let line: serde_json::Value = serde_json::from_str(&lines[lines.len() - 2]).unwrap();
            line["loss"].as_f64().unwrap()
        };
        let mut plan = tiny_gpt();
        plan.determinism = determinism;
        for (layout, chunked) in [
            ("mb=12", "chunked mb=12"),
            ("tp=2 sp mb=4", "chunked tp=2 sp mb=4"),
        ] {
            let of = |layout| train(&with(plan.clone(), layout));
            let (whole, found) = (of(layout), of(chunked));
            assert_same(&of(chunked), &found, chunked);
            assert!(
                (last(&found) / last(&whole) - 1.0).abs() < 1e-5,
                "{chunked}"
            );
        }
    }
}
