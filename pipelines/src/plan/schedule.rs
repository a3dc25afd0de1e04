//! The pipeline of a planned step as a Gantt chart of text.

use crate::plan::layout::Layout;
use crate::plan::time::StepTime;
use std::fmt::{self, Display, Formatter};
use train::config::ParallelConfig;
use train::trainer::timeline::{PassTimes, TimedPass, span, timeline};

/// Passes of a step of one pipeline.
pub(crate) struct Gantt {
    passes: Vec<Vec<TimedPass>>,
}

/// Characters of a line.
const COLUMNS: usize = 96;
/// Ranks that are shown; of more, evenly spaced ones.
const LINES: usize = 16;

impl Gantt {
    /// Simulates the layout's schedule.
    pub(crate) fn new(layout: &Layout, time: &StepTime) -> Gantt {
        let parallel = ParallelConfig {
            pp: layout.pp,
            virtual_stages: layout.chunks,
            ..Default::default()
        };
        let times = PassTimes {
            forward: time.forward,
            backward: time.backward,
            head: time.head / 3.0,
        };
        Gantt {
            passes: timeline(&parallel, layout.micro_batches(), times),
        }
    }

    /// Passes by rank, each in the order in which it runs them.
    pub(crate) fn passes(&self) -> &[Vec<TimedPass>] {
        &self.passes
    }

    /// Seconds of all passes.
    pub(crate) fn span(&self) -> f64 {
        span(&self.passes)
    }
}

impl Display for Gantt {
    /// A line per rank: `F` forward, `B` backward, `.` idle, by the middle of each column.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (whole, ranks) = (self.span(), self.passes.len());
        let shown = ranks.min(LINES);
        for line in 0..shown {
            let rank = line * (ranks - 1) / (shown - 1).max(1);
            let passes = &self.passes[rank];
            let at = |column: usize| {
                let time = (column as f64 + 0.5) / COLUMNS as f64 * whole;
                let next = passes.partition_point(|pass| pass.end <= time);
                match passes.get(next) {
                    Some(pass) if pass.start <= time && pass.is_backward => 'B',
                    Some(pass) if pass.start <= time => 'F',
                    _ => '.',
                }
            };
            let line: String = (0..COLUMNS).map(at).collect();
            writeln!(f, "{rank:>4} {line}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::cluster::Cluster;
    use crate::plan::layout::Recompute;
    use crate::plan::rates::CONSTANTS;
    use crate::plan::shape::Shape;
    use crate::plan::time::step_time;

    #[test]
    fn the_formula_of_a_step_is_the_simulated_one() {
        let cluster = Cluster::load("dgx-a100").unwrap();
        let shape = Shape::gpt(96, 12_288, 96);
        for (pp, chunks, global_batch) in [(1, 1, 8), (8, 1, 64), (8, 3, 64), (16, 1, 48)] {
            let layout = Layout {
                tp: 8,
                pp,
                chunks,
                is_sequence_parallel: true,
                recompute: Recompute::Selective,
                ..Layout::one(global_batch)
            };
            let time = step_time(&shape, &layout, &cluster, &CONSTANTS);
            let gantt = Gantt::new(&layout, &time);
            let formula = time.total - time.reduction - time.optimizer;
            let ratio = gantt.span() / formula;
            assert!(
                (ratio - 1.0).abs() < 0.02,
                "pp {pp} chunks {chunks}: {ratio}"
            );
            let text = gantt.to_string();
            assert_eq!(text.lines().count(), pp);
            assert!(text.contains('F') && text.contains('B'));
        }
    }
}
