//! Interleaved schedule: one forward, one backward with several model chunks per rank.
//! Paper: Narayanan et al. 2021, arXiv:2104.04473, sec. 2.2. Order and warm-up follow megatron-core
//! 0.16.1 (`get_schedule_table`, `get_pp_rank_microbatches`): micro-batches go in groups of p through
//! chunk 0, then chunk 1, ..; backward the same with the chunks reversed; rank r starts with
//! 2 (p - r - 1) + (v - 1) p forwards.
//! We differ: where a last group smaller than p would be left (Megatron refuses such a number of
//! micro-batches) it is joined to the group before.

use super::action::Action;

/// (micro-batch, chunk) in the order of forward passes.
fn table(stages: usize, chunks: usize, microbatches: usize) -> Vec<(usize, usize)> {
    let groups = (microbatches / stages).max(1);
    let mut table = Vec::with_capacity(microbatches * chunks);
    for group in 0..groups {
        let end = if group + 1 == groups {
            microbatches
        } else {
            (group + 1) * stages
        };
        for chunk in 0..chunks {
            table.extend((group * stages..end).map(|micro| (micro, chunk)));
        }
    }
    table
}

/// Forwards before the first backward.
fn warmup(rank: usize, stages: usize, chunks: usize, microbatches: usize) -> usize {
    let largest = if microbatches < stages {
        microbatches
    } else {
        stages + microbatches % stages
    };
    let ahead = 2 * (stages - rank - 1) + (chunks - 1) * largest;
    ahead.min(microbatches * chunks)
}

/// Actions of pipeline rank `rank` of `stages`, with `chunks` on each.
pub(super) fn interleaved(
    rank: usize,
    stages: usize,
    chunks: usize,
    microbatches: usize,
) -> Vec<Action> {
    let table = table(stages, chunks, microbatches);
    let forward = |k: usize| {
        let (micro, chunk) = table[k];
        Action::Forward { micro, chunk }
    };
    let backward = |k: usize| {
        let (micro, chunk) = table[k];
        let chunk = chunks - 1 - chunk;
        Action::Backward { micro, chunk }
    };
    let (total, warmup) = (table.len(), warmup(rank, stages, chunks, microbatches));
    let mut plan: Vec<Action> = (0..warmup).map(forward).collect();
    for k in warmup..total {
        plan.extend([forward(k), backward(k - warmup)]);
    }
    plan.extend((total - warmup..total).map(backward));
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From megatron-core by tests/oracles/megatron_schedule.py.
    #[test]
    fn order_and_warm_up_are_megatrons() {
        let text = include_str!("../../../tests/oracles/megatron_schedule.json");
        let cases: serde_json::Value = serde_json::from_str(text).unwrap();
        let number = |value: &serde_json::Value| usize::try_from(value.as_u64().unwrap()).unwrap();
        let mut compared = 0;
        for case in cases.as_array().unwrap() {
            let (p, v) = (number(&case["p"]), number(&case["v"]));
            let m = number(&case["m"]);
            let wanted: Vec<(usize, usize)> = (case["table"].as_array().unwrap().iter())
                .map(|pair| (number(&pair[0]), number(&pair[1])))
                .collect();
            assert_eq!(table(p, v, m), wanted, "{p} {v} {m}");
            for (rank, wanted) in case["warmup"].as_array().unwrap().iter().enumerate() {
                assert_eq!(warmup(rank, p, v, m), number(wanted), "{p} {v} {m}");
            }
            compared += 1;
        }
        assert!(compared >= 18, "{compared} cases");
    }
}
