//! Predicted memory of layouts that nobody chose, against the bytes that the device counts in a step.

use crate::fixtures::{Chain, tiny_gpt, tiny_llama};
use crate::tests::layouts::with;
use crate::trainer::memory;

/// One of the choices, by splitmix64 (Steele et al. 2014).
fn pick<'a>(state: &mut u64, choices: &[&'a str]) -> &'a str {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let number = usize::try_from((z ^ (z >> 31)) >> 33).unwrap();
    choices[number % choices.len()]
}

/// Words of `with`, each axis by itself.
fn random_layout(state: &mut u64) -> String {
    let words = [
        pick(state, &["tp=1", "tp=2", "tp=4"]),
        pick(state, &["", "sp"]),
        pick(state, &["cp=1", "cp=1", "cp=2", "cp=4"]),
        pick(state, &["pp=1", "pp=2", "pp=4"]),
        pick(state, &["vs=1", "vs=2"]),
        pick(state, &["dp=1", "dp=2", "dp=3"]),
        pick(state, &["zero=0", "zero=1", "zero=2", "zero=3"]),
        pick(state, &["mb=1", "mb=2", "mb=3", "mb=4", "mb=6"]),
        pick(state, &["", "selective", "full"]),
        pick(state, &["", "chunked"]),
    ];
    let words = words.into_iter().filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn predicted_memory_of_thirty_random_layouts_is_the_counted_one() {
    let (mut state, mut count, mut largest) = (31, 0, 0);
    while count < 30 {
        let base = if count % 2 == 0 {
            tiny_gpt()
        } else {
            tiny_llama()
        };
        let layout = random_layout(&mut state);
        let plan = with(base, &layout);
        if plan.parallel.world() > 12 || !plan.problems().is_empty() {
            continue;
        }
        let measured = memory::measure(&plan, &Chain::of(&plan)).unwrap();
        assert_eq!(measured, memory::predict(&plan).unwrap(), "{layout}");
        (count, largest) = (count + 1, largest.max(plan.parallel.world()));
    }
    assert!(largest > 4, "layouts of few ranks alone");
}
