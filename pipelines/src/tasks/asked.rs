//! The tasks of a run with their files: from flags of `eval`, or from `train.eval_tasks`.

use super::adjectives::NAME as ADJECTIVES;
use super::labels;
use super::{Checked, Needs, Request, TaskError, check};
use std::path::PathBuf;
use train::config::EvalTasks;

/// Resamples of bootstrap errors by default: lm-evaluation-harness's number.
const RESAMPLES: usize = 100_000;

/// Tasks to evaluate one after another.
pub(crate) struct Asked {
    tasks: Vec<One>,
    shots: Option<usize>,
    limit: Option<usize>,
    resamples: usize,
}

struct One {
    task: String,
    data: Option<PathBuf>,
    shots_data: Option<PathBuf>,
}

/// Names of tasks and their files, as people give them.
pub(crate) struct Given<'a> {
    pub(crate) tasks: &'a [String],
    /// A file for each task that needs one.
    pub(crate) data: &'a [PathBuf],
    /// None, or a file for each task that needs rows.
    pub(crate) shots_data: &'a [PathBuf],
    pub(crate) shots: Option<usize>,
    pub(crate) limit: Option<usize>,
    /// Resamples of bootstrap errors; 0: no standard errors.
    pub(crate) resamples: usize,
}

/// Checks that no two tasks have one name. `tasks`: as they were asked for.
fn expect_distinct(tasks: &[String], checked: &[Checked]) -> Result<(), TaskError> {
    for (at, task) in checked.iter().enumerate() {
        let before = &checked[..at];
        if let Some(first) = before.iter().position(|other| other.name == task.name) {
            return Err(TaskError::Twice {
                first: tasks[first].clone(),
                second: tasks[at].clone(),
                name: task.name.clone(),
            });
        }
    }
    Ok(())
}

impl Asked {
    /// Gives each task its files.
    ///
    /// # Errors
    /// `TaskError` for a task that is not there or not sound; `Twice` for two of one name; `Files` for another number of files, or
    /// for examples that no task takes.
    pub(crate) fn of(given: &Given<'_>) -> Result<Asked, TaskError> {
        let checked = given.tasks.iter().map(|task| check(task));
        let checked: Vec<Checked> = checked.collect::<Result<_, _>>()?;
        expect_distinct(given.tasks, &checked)?;
        let has_shots = checked.iter().any(|task| task.has_shots);
        let needs: Vec<Needs> = checked.into_iter().map(|task| task.needs).collect();
        let count = |least: fn(&Needs) -> bool| needs.iter().filter(|needs| least(needs)).count();
        let wanted = count(|needs| matches!(needs, Needs::File(_)));
        // files for tasks that have rows of their own are given to all of them or to none
        let most = count(|needs| *needs != Needs::Nothing);
        let files = given.data.len();
        if ![wanted, most].contains(&files) || ![0, files].contains(&given.shots_data.len()) {
            let of = given.tasks.iter().zip(&needs);
            let of = of.filter_map(|(task, needs)| match needs {
                Needs::File(data) => Some(format!("{task} ({data})")),
                Needs::Nothing | Needs::MayTake => None,
            });
            let wanted = match most {
                0 => "neither: the tasks have rows of their own".to_owned(),
                _ => format!(
                    "one --data for each of {}, and no --shots-data or as many",
                    of.collect::<Vec<_>>().join(", ")
                ),
            };
            return Err(TaskError::Files {
                data: files,
                shots_data: given.shots_data.len(),
                wanted,
            });
        }
        if !given.shots_data.is_empty() && given.shots.is_none() && !has_shots {
            return Err(TaskError::Files {
                data: files,
                shots_data: given.shots_data.len(),
                wanted: format!(
                    "--shots K beside --shots-data: {} takes no examples by itself",
                    given.tasks.join(", ")
                ),
            });
        }
        let (mut data, mut shots_data) = (given.data.iter(), given.shots_data.iter());
        let tasks = given.tasks.iter().zip(&needs).map(|(task, needs)| {
            let takes = match needs {
                Needs::File(_) => true,
                Needs::MayTake => files == most,
                Needs::Nothing => false,
            };
            let next = |files: &mut std::slice::Iter<'_, PathBuf>| match takes {
                true => files.next().cloned(),
                false => None,
            };
            One {
                task: task.clone(),
                data: next(&mut data),
                shots_data: next(&mut shots_data),
            }
        });
        Ok(Asked {
            tasks: tasks.collect(),
            shots: given.shots,
            limit: given.limit,
            resamples: given.resamples,
        })
    }

    /// Those of `train.eval_tasks`.
    ///
    /// # Errors
    /// As `of`; `File` for one that is not there.
    pub(crate) fn of_training(config: &EvalTasks) -> Result<Asked, TaskError> {
        if config.tasks.iter().any(|task| task == ADJECTIVES) {
            return Err(TaskError::Definition {
                name: ADJECTIVES.into(),
                why: "it samples texts, which `millrace eval` does after the training".into(),
            });
        }
        if config.tasks.iter().any(|task| task == labels::NAME) {
            return Err(labels::without_head());
        }
        let paths = |of: &[String]| -> Vec<PathBuf> { of.iter().map(PathBuf::from).collect() };
        let (data, shots_data) = (paths(&config.data), paths(&config.shots_data));
        for (key, files) in [("data", &data), ("shots_data", &shots_data)] {
            let absent = files.iter().enumerate().find(|(_, file)| !file.exists());
            if let Some((number, file)) = absent {
                return Err(TaskError::File {
                    path: file.clone(),
                    why: format!("no such file, in train.eval_tasks.{key}[{number}]"),
                });
            }
        }
        Asked::of(&Given {
            tasks: &config.tasks,
            data: &data,
            shots_data: &shots_data,
            shots: config.shots,
            limit: (config.limit > 0).then_some(config.limit),
            resamples: RESAMPLES,
        })
    }

    /// Each task with its files, in order.
    pub(crate) fn requests(&self) -> impl Iterator<Item = Request<'_>> {
        self.tasks.iter().map(|one| Request {
            task: &one.task,
            data: one.data.as_deref(),
            shots_data: one.shots_data.as_deref(),
            shots: self.shots,
            limit: self.limit,
            resamples: self.resamples,
        })
    }
}
