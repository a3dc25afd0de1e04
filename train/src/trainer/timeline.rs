//! When the ranks of a pipeline start and end each pass of a step, from the time that a pass takes: a simulation of the
//! schedule that `train` runs, event by event.

use std::collections::VecDeque;

use crate::config::ParallelConfig;
use crate::parallel::schedule::{Action, actions};

/// Seconds of the passes of one micro-batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PassTimes {
    /// Through one model chunk, with sending the result on.
    pub forward: f64,
    /// Back through one model chunk.
    pub backward: f64,
    /// Forward pass of the head, added to the last model chunk's; its backward pass takes twice as long.
    pub head: f64,
}

/// One pass of a micro-batch through a model chunk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimedPass {
    /// Pipeline rank.
    pub rank: usize,
    /// Number of the micro-batch.
    pub micro_batch: usize,
    /// Model chunk of this rank.
    pub chunk: usize,
    /// Direction.
    pub is_backward: bool,
    /// Seconds since the step began.
    pub start: f64,
    /// Seconds since the step began.
    pub end: f64,
}

/// All passes of a step of one pipeline, rank by rank in the order in which each runs them. Needs `pp`, `virtual_stages` and
/// `schedule` of `parallel`.
pub fn timeline(
    parallel: &ParallelConfig,
    micro_batches: usize,
    times: PassTimes,
) -> Vec<Vec<TimedPass>> {
    let stages = parallel.pp;
    let last = stages * parallel.virtual_stages - 1;
    let mut left: Vec<VecDeque<Action>> = (0..stages)
        .map(|rank| actions(parallel, rank, micro_batches).into())
        .collect();
    let mut ends = [
        vec![vec![f64::NAN; micro_batches]; last + 1],
        vec![vec![f64::NAN; micro_batches]; last + 1],
    ];
    let mut passes: Vec<Vec<TimedPass>> = vec![Vec::new(); stages];
    loop {
        let mut has_moved = false;
        for rank in 0..stages {
            while let Some(&action) = left[rank].front() {
                let (micro_batch, chunk, is_backward) = match action {
                    Action::Forward { micro, chunk } => (micro, chunk, false),
                    Action::Backward { micro, chunk } => (micro, chunk, true),
                };
                let place = chunk * stages + rank;
                let ready = match (is_backward, place) {
                    (false, 0) => 0.0,
                    (false, _) => ends[0][place - 1][micro_batch],
                    (true, _) if place == last => ends[0][place][micro_batch],
                    (true, _) => ends[1][place + 1][micro_batch],
                };
                if ready.is_nan() {
                    break;
                }
                let start = passes[rank].last().map_or(0.0, |pass| pass.end).max(ready);
                let head = if place == last { times.head } else { 0.0 };
                let end = match is_backward {
                    false => start + times.forward + head,
                    true => start + times.backward + 2.0 * head,
                };
                ends[usize::from(is_backward)][place][micro_batch] = end;
                passes[rank].push(TimedPass {
                    rank,
                    micro_batch,
                    chunk,
                    is_backward,
                    start,
                    end,
                });
                left[rank].pop_front();
                has_moved = true;
            }
        }
        if !has_moved {
            return passes;
        }
    }
}

/// Micro-batches whose activations pipeline rank `rank` holds at once, by model chunk: combinations that the schedule has right before
/// a backward pass, each once. Of several in a row that differ by the same step the first and the last are there: no sum of bytes of the
/// chunks is larger between them. Needs `pp`, `virtual_stages` and `schedule` of `parallel`.
pub fn held_by_chunk(
    parallel: &ParallelConfig,
    rank: usize,
    micro_batches: usize,
) -> Vec<Vec<usize>> {
    let mut held = vec![0_usize; parallel.virtual_stages];
    let mut found = Vec::new();
    for action in actions(parallel, rank, micro_batches) {
        match action {
            Action::Forward { chunk, .. } => held[chunk] += 1,
            Action::Backward { chunk, .. } => {
                found.push(held.clone());
                held[chunk] -= 1;
            }
        }
    }
    let is_between = |at: usize| {
        let neighbours = at.checked_sub(1).and_then(|before| found.get(before));
        let Some((before, after)) = neighbours.zip(found.get(at + 1)) else {
            return false;
        };
        let steps = before.iter().zip(after).zip(&found[at]);
        steps
            .into_iter()
            .all(|((before, after), here)| before + after == 2 * here)
    };
    let mut ends: Vec<Vec<usize>> = (0..found.len())
        .filter(|at| !is_between(*at))
        .map(|at| found[at].clone())
        .collect();
    ends.sort_unstable();
    ends.dedup();
    ends
}

/// Seconds from the first start to the last end.
pub fn span(passes: &[Vec<TimedPass>]) -> f64 {
    let ends = passes.iter().filter_map(|passes| passes.last());
    ends.map(|pass| pass.end).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1F1B holds as many micro-batches as there are stages from a rank on; interleaved ranks fill the first chunk first.
    #[test]
    fn chunks_hold_what_the_schedule_has_started() {
        let of = |pp, virtual_stages, rank, micro_batches| {
            let parallel = ParallelConfig {
                pp,
                virtual_stages,
                ..Default::default()
            };
            held_by_chunk(&parallel, rank, micro_batches)
        };
        let most = |found: Vec<Vec<usize>>| found.into_iter().max();
        assert_eq!(most(of(4, 1, 0, 8)), Some(vec![4]));
        assert_eq!(most(of(4, 1, 3, 8)), Some(vec![1]));
        assert_eq!(most(of(4, 1, 0, 2)), Some(vec![2]));
        // two stages of two chunks: 2 * 1 + 2 forward passes before the first pair, of micro-batches 0 1, 0 1, 2
        let found = of(2, 2, 0, 4);
        assert!(found.contains(&vec![3, 2]), "{found:?}");
        // a longer step has no other combinations
        for (pp, chunks) in [(2, 2), (4, 3), (5, 1)] {
            for rank in 0..pp {
                let three = of(pp, chunks, rank, 3 * pp);
                assert_eq!(
                    of(pp, chunks, rank, 9 * pp),
                    three,
                    "{pp} x {chunks}, {rank}"
                );
            }
        }
    }

    /// Narayanan et al. 2021 (arXiv:2104.04473), section 2.2: the pipeline idles for (p - 1) / v micro-batches.
    #[test]
    fn uniform_pipelines_take_the_published_time() {
        for (pp, virtual_stages, micro_batches) in [
            (1, 1, 5),
            (4, 1, 8),
            (4, 1, 3),
            (8, 3, 64),
            (4, 2, 8),
            (35, 3, 70),
        ] {
            let parallel = ParallelConfig {
                pp,
                virtual_stages,
                ..Default::default()
            };
            let times = PassTimes {
                forward: 1.0,
                backward: 2.0,
                head: 0.0,
            };
            let passes = timeline(&parallel, micro_batches, times);
            let count: usize = passes.iter().map(Vec::len).sum();
            assert_eq!(count, 2 * pp * virtual_stages * micro_batches);
            let wanted = 3 * (micro_batches * virtual_stages + pp - 1);
            assert!(
                (span(&passes) - wanted as f64).abs() < 1e-9,
                "pp {pp} v {virtual_stages} m {micro_batches}: {} {wanted}",
                span(&passes)
            );
            for passes in &passes {
                for pair in passes.windows(2) {
                    assert!(pair[1].start >= pair[0].end);
                }
            }
        }
    }

    #[test]
    fn a_slow_last_stage_sets_the_pace() {
        let parallel = ParallelConfig {
            pp: 4,
            ..Default::default()
        };
        let times = PassTimes {
            forward: 1.0,
            backward: 2.0,
            head: 0.5,
        };
        let found = span(&timeline(&parallel, 100, times));
        // 100 micro-batches of 3 + 1.5 on the last stage, and the way there and back
        assert!((found - (450.0 + 9.0)).abs() < 1e-9, "{found}");
    }
}
