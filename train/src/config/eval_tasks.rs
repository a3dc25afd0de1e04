//! Evaluation tasks during training.

use serde::{Deserialize, Serialize};

use crate::config::Problem;

/// Evaluation tasks that run on checkpoints while the training goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EvalTasks {
    /// Steps between evaluations, a multiple of `train.checkpoint.every`; the last step is evaluated too. 0: none.
    /// Default: 0.
    pub every: u64,
    /// Names of tasks (`millrace eval --task list` prints them), or paths of definitions. Default: none.
    pub tasks: Vec<String>,
    /// Rows: a file for each task that needs one, in their order. Default: none.
    pub data: Vec<String>,
    /// Rows for examples: none, or a file for each task that needs rows. Default: none.
    pub shots_data: Vec<String>,
    /// Examples in front of each question. Default: the task's own number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shots: Option<usize>,
    /// Evaluate only the first rows, so many; 0: all. Default: 0.
    pub limit: usize,
}

impl EvalTasks {
    pub(crate) fn is_default(&self) -> bool {
        *self == EvalTasks::default()
    }

    /// Whether the checkpoint of a step is evaluated; `steps`: those of the run.
    pub fn is_due(&self, step: u64, steps: u64) -> bool {
        self.every > 0 && (step.is_multiple_of(self.every) || step == steps)
    }

    /// `checkpoints`: steps between checkpoints.
    pub(crate) fn check(&self, checkpoints: u64, problem: Problem<'_>) {
        if self.every == 0 {
            return;
        }
        if checkpoints == 0 || !self.every.is_multiple_of(checkpoints) {
            let found = format!("{} with checkpoint.every = {checkpoints}", self.every);
            problem("eval_tasks.every", found, "a multiple of checkpoint.every");
        }
        if self.tasks.is_empty() {
            let wanted = "a name of a task, or eval_tasks.every = 0";
            problem("eval_tasks.tasks", "none".into(), wanted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evaluations_follow_checkpoints_and_the_last_step() {
        let tasks = EvalTasks {
            every: 20,
            tasks: vec!["arc_easy".into()],
            ..EvalTasks::default()
        };
        let due: Vec<u64> = (1..=50).filter(|&step| tasks.is_due(step, 50)).collect();
        assert_eq!(due, [20, 40, 50]);
        assert!(!EvalTasks::default().is_due(50, 50));
        let problems = |tasks: &EvalTasks, checkpoints| {
            let mut keys = Vec::new();
            tasks.check(checkpoints, &mut |key, _, _| keys.push(key.to_owned()));
            keys
        };
        assert_eq!(problems(&tasks, 10), [""; 0]);
        let none = EvalTasks {
            every: 20,
            ..EvalTasks::default()
        };
        for checkpoints in [0, 30] {
            assert_eq!(
                problems(&none, checkpoints),
                ["eval_tasks.every", "eval_tasks.tasks"]
            );
        }
        assert_eq!(problems(&EvalTasks::default(), 0), [""; 0]);
    }
}
