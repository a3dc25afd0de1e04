//! 1F1B schedule: one forward, one backward (PipeDream-Flush).
//! Paper: Narayanan et al. 2021, arXiv:2104.04473, sec. 2.2.
//! Stage s of p holds at most p - s micro-batches at once.

use super::action::{Action, backward, forward};

/// Actions of `stage` (from 0) out of `stages` for `microbatches` micro-batches.
pub(super) fn one_f_one_b(stage: usize, stages: usize, microbatches: usize) -> Vec<Action> {
    let warmup = (stages - 1 - stage).min(microbatches);
    let mut plan = Vec::with_capacity(2 * microbatches);
    plan.extend((0..warmup).map(forward));
    for m in warmup..microbatches {
        plan.push(forward(m));
        plan.push(backward(m - warmup));
    }
    plan.extend((microbatches - warmup..microbatches).map(backward));
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parallel::schedule::Action::{Backward, Forward};

    /// One line per stage and column per time slot, a backward taking two slots like in the paper.
    fn drawing(stages: usize, microbatches: usize) -> Vec<String> {
        let mut done_forward = vec![vec![None; microbatches]; stages];
        let mut done_backward = vec![vec![None; microbatches]; stages];
        let mut lines = vec![String::new(); stages];
        let mut left: Vec<_> = (0..stages)
            .map(|s| one_f_one_b(s, stages, microbatches).into_iter().peekable())
            .collect();
        while left.iter_mut().any(|actions| actions.peek().is_some()) {
            for s in 0..stages {
                while let Some(&action) = left[s].peek() {
                    let ready = match action {
                        Forward { .. } if s == 0 => Some(0),
                        Forward { micro: m, .. } => done_forward[s - 1][m],
                        Backward { micro: m, .. } if s + 1 == stages => done_forward[s][m],
                        Backward { micro: m, .. } => done_backward[s + 1][m],
                    };
                    let Some(ready) = ready else { break };
                    while lines[s].len() < ready {
                        lines[s].push('.');
                    }
                    match action {
                        Forward { micro: m, .. } => {
                            lines[s].push_str(&m.to_string());
                            done_forward[s][m] = Some(lines[s].len());
                        }
                        Backward { micro: m, .. } => {
                            let letter = char::from(b'a' + u8::try_from(m).unwrap());
                            lines[s].extend([letter, letter]);
                            done_backward[s][m] = Some(lines[s].len());
                        }
                    }
                    left[s].next();
                }
            }
        }
        lines
    }

    #[test]
    fn stages_4_microbatches_8_matches_the_papers_figure() {
        // figure 4 (top): forward digits, backward letters, devices 1 to 4
        let want = [
            "0123......aa4bb5cc6dd7ee.ff.gg.hh",
            ".012....aa3bb4cc5dd6ee7ff.gg.hh",
            "..01..aa2bb3cc4dd5ee6ff7gg.hh",
            "...0aa1bb2cc3dd4ee5ff6gg7hh",
        ];
        assert_eq!(drawing(4, 8), want);
    }
}
