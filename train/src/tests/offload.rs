//! Activation offload: the same bits as without, memory as predicted, and less of it.

use crate::config::Plan;
use crate::fixtures::{samples_of, tiny_bert, tiny_gpt, tiny_llama, tiny_moe, tiny_t5};
use crate::tests::layouts::{assert_same, train, with};
use crate::trainer::memory;

fn offloaded(mut plan: Plan, layers: usize) -> Plan {
    plan.train.offload.layers = layers;
    plan
}

fn families() -> [Plan; 5] {
    [tiny_gpt(), tiny_llama(), tiny_moe(), tiny_bert(), tiny_t5()]
}

#[test]
fn what_waits_in_a_file_changes_no_bits() {
    for plan in families() {
        let want = train(&with(plan.clone(), "mb=12"));
        for (layers, layout) in [
            (usize::MAX, "mb=12"),
            (1, "mb=1"),
            (usize::MAX, "pp=2 dp=2 zero=2 mb=3"),
            (1, "tp=2 sp selective mb=2"),
            (usize::MAX, "full=1 dp=2 zero=3 mb=2"),
        ] {
            let what = format!("{:?} {layers} {layout}", plan.model.family);
            let plan = offloaded(with(plan.clone(), layout), layers);
            assert_same(&train(&plan), &want, &what);
        }
    }
}

#[test]
fn memory_is_as_predicted_and_less() {
    for mut plan in families() {
        if let Some(moe) = &mut plan.model.moe {
            // which choices are dropped depends on the router
            moe.capacity_factor = 0.0;
        }
        for layout in ["mb=2", "pp=2 selective mb=3", "full=1 tp=2 sp mb=1"] {
            let of = |layers| {
                let plan = offloaded(with(plan.clone(), layout), layers);
                let measured = memory::measure(&plan, samples_of(&plan).as_ref()).unwrap();
                let what = format!("{:?} {layers} {layout}", plan.model.family);
                assert_eq!(measured, memory::predict(&plan).unwrap(), "{what}");
                measured.iter().map(|rank| rank.activations).sum::<usize>()
            };
            let (none, one, all) = (of(0), of(1), of(usize::MAX));
            assert!(all <= one && one < none, "{none} {one} {all}");
        }
    }
}

#[test]
fn a_folder_that_is_none_is_told_before_the_first_step() {
    let mut plan = offloaded(with(tiny_gpt(), "mb=2"), 1);
    plan.train.offload.folder = Some("/nowhere/at/all".into());
    let problems = plan.problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("train.offload.folder") && problems[0].contains("/nowhere"));
}
