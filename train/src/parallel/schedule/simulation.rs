//! Simulates schedules with the program's communication rules: sending never blocks, receiving takes the oldest
//! message of a channel. A schedule is valid if every rank reaches its end, every message is the one that its
//! receiver expects, and each model chunk processes each micro-batch once in each direction, in order.

use std::collections::VecDeque;

use super::{Action, actions};
use crate::config::parallel::{ParallelConfig, PipelineSchedule};

/// One message: which micro-batch, which model chunk it is for.
type Message = (usize, usize);

/// Largest number of micro-batches whose activations a rank holds at once, over its model chunks.
fn play(parallel: &ParallelConfig, microbatches: usize) -> Result<Vec<usize>, String> {
    let lists = (0..parallel.pp).map(|rank| actions(parallel, rank, microbatches).into());
    play_lists(lists.collect(), parallel.virtual_stages, microbatches)
}

fn play_lists(
    mut left: Vec<VecDeque<Action>>,
    v: usize,
    microbatches: usize,
) -> Result<Vec<usize>, String> {
    let p = left.len();
    let last = p * v - 1;
    let mut ahead: Vec<VecDeque<Message>> = vec![VecDeque::new(); p];
    let mut back: Vec<VecDeque<Message>> = vec![VecDeque::new(); p];
    let mut forwards = vec![0; last + 1];
    let mut backwards = vec![0; last + 1];
    let (mut held, mut most) = (vec![0usize; p], vec![0usize; p]);
    let take = |mail: &mut VecDeque<Message>, wanted: Message| match mail.front() {
        None => Ok(false),
        Some(&found) if found == wanted => {
            mail.pop_front();
            Ok(true)
        }
        Some(found) => Err(format!("{found:?} came instead of {wanted:?}")),
    };
    loop {
        let mut moved = false;
        for rank in 0..p {
            while let Some(&action) = left[rank].front() {
                match action {
                    Action::Forward { micro, chunk } => {
                        let model_chunk = chunk * p + rank;
                        if model_chunk > 0 && !take(&mut ahead[rank], (micro, model_chunk))? {
                            break;
                        }
                        if forwards[model_chunk] != micro {
                            return Err(format!(
                                "model chunk {model_chunk} runs {micro} out of turn"
                            ));
                        }
                        forwards[model_chunk] += 1;
                        held[rank] += 1;
                        most[rank] = most[rank].max(held[rank]);
                        if model_chunk < last {
                            ahead[(rank + 1) % p].push_back((micro, model_chunk + 1));
                        }
                    }
                    Action::Backward { micro, chunk } => {
                        let model_chunk = chunk * p + rank;
                        if model_chunk < last && !take(&mut back[rank], (micro, model_chunk))? {
                            break;
                        }
                        if backwards[model_chunk] != micro || forwards[model_chunk] <= micro {
                            return Err(format!(
                                "model chunk {model_chunk} turns {micro} out of turn"
                            ));
                        }
                        backwards[model_chunk] += 1;
                        held[rank] -= 1;
                        if model_chunk > 0 {
                            back[(rank + p - 1) % p].push_back((micro, model_chunk - 1));
                        }
                    }
                }
                left[rank].pop_front();
                moved = true;
            }
        }
        if left.iter().all(VecDeque::is_empty) {
            break;
        }
        if !moved {
            return Err(format!("no rank can go on; left: {:?}", left[0].front()));
        }
    }
    let done = |counts: &[usize]| counts.iter().all(|&count| count == microbatches);
    if done(&forwards) && done(&backwards) {
        Ok(most)
    } else {
        Err("some passes are missing".into())
    }
}

fn parallel(pp: usize, virtual_stages: usize) -> ParallelConfig {
    ParallelConfig {
        pp,
        virtual_stages,
        ..Default::default()
    }
}

#[test]
fn one_f_one_b_ends_and_holds_few_micro_batches() {
    for p in 1..9 {
        for m in 0..20 {
            let most = play(&parallel(p, 1), m).unwrap();
            for (rank, most) in most.into_iter().enumerate() {
                assert!(most <= (p - rank).min(m), "{p} stages, {m} micro-batches");
            }
        }
    }
}

#[test]
fn gpipe_ends_and_holds_every_micro_batch() {
    for p in 1..9 {
        for m in 0..20 {
            let mut parallel = parallel(p, 1);
            parallel.schedule = PipelineSchedule::Gpipe;
            assert_eq!(play(&parallel, m).unwrap(), vec![m; p]);
        }
    }
}

#[test]
fn interleaved_pieces_end_for_every_number_of_micro_batches() {
    for p in 2..7 {
        for v in 2..5 {
            for m in 0..25 {
                let most = play(&parallel(p, v), m);
                let most = most.unwrap_or_else(|why| panic!("p {p} v {v} m {m}: {why}"));
                let group = p + if m < p { 0 } else { m % p };
                for (rank, most) in most.into_iter().enumerate() {
                    let bound = 2 * (p - rank - 1) + (v - 1) * group + 1;
                    assert!(most <= bound, "p {p} v {v} m {m}: {most} above {bound}");
                }
            }
        }
    }
}

#[test]
fn a_schedule_that_waits_for_itself_is_noticed() {
    let lists = || (0..2).map(|rank| actions(&parallel(2, 1), rank, 3).into());
    let mut left: Vec<VecDeque<Action>> = lists().collect();
    // the last stage receives a gradient before its forward pass
    left[1].swap(0, 1);
    assert!(play_lists(left, 1, 3).is_err());
    // the first stage expects the gradients in another order than they arrive
    let mut left: Vec<VecDeque<Action>> = lists().collect();
    left[0].swap(3, 5);
    assert!(play_lists(left, 1, 3).is_err());
}
