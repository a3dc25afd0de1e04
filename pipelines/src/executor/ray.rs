//! Ray executor: one Ray job per task over the Jobs REST API (`/api/jobs/`), polled from here; then one for the
//! remaining stages, or for the training.
//!
//! Ray's jobs have no dependencies, so this process waits: it shows progress and resubmits failed tasks. If it is
//! killed, the same command finds the jobs that are still running and watches them again.

use super::work::{Work, quoted, shell};
use crate::job::{Ray, WrongUse};
use crate::log::print;
use crate::progress::Progress;
use crate::submission::{Submission, SubmittedJob};
use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Interval between two polls.
const PAUSE: Duration = Duration::from_millis(500);
/// Consecutive failures of the dashboard that are tolerated.
const PATIENCE: usize = 60;

/// A task to submit, and how often it failed before.
struct Waiting {
    task: usize,
    attempt: usize,
}

/// A job that is pending or running.
struct Running {
    id: String,
    /// None: the job of the remaining stages.
    task: Option<usize>,
    attempt: usize,
}

/// State of a Ray job.
struct State {
    status: String,
    why: String,
    /// Exit code of its command, once it has ended.
    code: Option<i64>,
}

impl State {
    fn is_alive(&self) -> bool {
        matches!(self.status.as_str(), "RUNNING" | "PENDING")
    }
}

/// Exit code of a job or a machine that is refused.
const BAD_JOB: i64 = 2;

/// The number in a message such as `Job entrypoint command failed with exit code 2, last available logs ...`.
fn exit_code(message: &str) -> Option<i64> {
    let (_, after) = message.split_once("exit code ")?;
    let digits = after.find(|c: char| !c.is_ascii_digit());
    after[..digits.unwrap_or(after.len())].parse().ok()
}

impl Ray {
    pub(super) fn submit(&self, work: &Work, dry_run: bool) -> Result<()> {
        if dry_run {
            let mut text = String::new();
            for task in work.todo.iter().map(|t| Some(*t)).chain([None]) {
                text += &format!(
                    "POST {}/api/jobs/ {}\n",
                    self.address,
                    self.body(work, task, 0)
                );
            }
            return print(&text);
        }
        let under_way = self.adopt_rest(work);
        let progress = Progress::start("ray", "tasks", work.tasks as u64);
        progress.add((work.tasks - work.todo.len()) as u64);
        let first = |&task: &usize| Waiting { task, attempt: 0 };
        let mut waiting: Vec<Waiting> = work.todo.iter().rev().map(first).collect();
        let mut running = self.adopt(work, &mut waiting);
        let most = if self.at_once == 0 {
            usize::MAX
        } else {
            self.at_once
        };
        while !waiting.is_empty() || !running.is_empty() {
            while running.len() < most
                && let Some(Waiting { task, attempt }) = waiting.pop()
            {
                running.push(self.start(work, Some(task), attempt)?);
                self.remember(work, &running)?;
            }
            for (task, attempt) in self.look(&mut running, &progress)? {
                let task = task.unwrap_or(0);
                waiting.push(Waiting { task, attempt });
            }
            std::thread::sleep(PAUSE);
        }
        progress.finish(&format!("{} tasks", work.tasks));
        let mut rest = match under_way {
            Some(rest) => vec![rest],
            None => vec![self.start(work, None, 0)?],
        };
        self.remember(work, &rest)?;
        let progress = Progress::start("ray", "tasks", 1);
        while !rest.is_empty() {
            for (_, attempt) in self.look(&mut rest, &progress)? {
                rest.push(self.start(work, None, attempt)?);
                self.remember(work, &rest)?;
            }
            std::thread::sleep(PAUSE);
        }
        progress.finish("the rest of the job");
        Ok(())
    }

    /// The job of the remaining stages, or of the training, that an earlier process has submitted and that is not over.
    fn adopt_rest(&self, work: &Work) -> Option<Running> {
        let before = Submission::read(&work.out()).filter(|s| s.executor == "ray")?;
        let mut rest = before.jobs.into_iter().filter(|job| job.tasks.is_empty());
        let is_alive = |job: &SubmittedJob| self.status(&job.id).is_ok_and(|of| of.is_alive());
        rest.find(is_alive).map(|job| Running {
            id: job.id,
            task: None,
            attempt: 0,
        })
    }

    /// Jobs of an earlier process that are still running; their tasks are taken out of `waiting`.
    fn adopt(&self, work: &Work, waiting: &mut Vec<Waiting>) -> Vec<Running> {
        let before = Submission::read(&work.out()).filter(|s| s.executor == "ray");
        let mut running = Vec::new();
        for job in before.iter().flat_map(|s| &s.jobs) {
            let alive = self.status(&job.id).is_ok_and(|of| of.is_alive());
            if let (true, [task]) = (alive, &job.tasks[..]) {
                waiting.retain(|waiting| waiting.task != *task);
                running.push(Running {
                    id: job.id.clone(),
                    task: Some(*task),
                    attempt: 0,
                });
            }
        }
        running
    }

    fn remember(&self, work: &Work, running: &[Running]) -> Result<()> {
        let job = |r: &Running| SubmittedJob {
            id: r.id.clone(),
            tasks: r.task.into_iter().collect(),
        };
        let answer = Submission {
            executor: "ray".into(),
            jobs: running.iter().map(job).collect(),
        };
        answer.write(work.cx)
    }

    /// Removes finished jobs from `running`; returns (task, attempt) of those to submit again.
    fn look(
        &self,
        running: &mut Vec<Running>,
        progress: &Progress,
    ) -> Result<Vec<(Option<usize>, usize)>> {
        let mut again = Vec::new();
        let mut left = Vec::new();
        for job in running.drain(..) {
            let State { status, why, code } = self.patiently(|| self.status(&job.id))?;
            match status.as_str() {
                "SUCCEEDED" => progress.add(1),
                "FAILED" if code == Some(BAD_JOB) => {
                    let log = self.log(&job.id);
                    return Err(WrongUse::new(format!(
                        "the Ray job {} is refused with exit code {BAD_JOB}, which no other start mends: {why}\n{log}",
                        job.id
                    ))
                    .into());
                }
                // a job that somebody stops is not started again
                "FAILED" if job.attempt < self.retries => {
                    again.push((job.task, job.attempt + 1));
                }
                "FAILED" | "STOPPED" => {
                    let log = self.log(&job.id);
                    bail!(
                        "the Ray job {} {} for the {}th time: {why}\n{log}",
                        job.id,
                        status.to_lowercase(),
                        job.attempt + 1
                    );
                }
                _ => left.push(job),
            }
        }
        *running = left;
        Ok(again)
    }

    fn start(&self, work: &Work, task: Option<usize>, attempt: usize) -> Result<Running> {
        let body = self.body(work, task, attempt);
        let answer = self.patiently(|| self.post(&body))?;
        let id = answer["submission_id"]
            .as_str()
            .or(answer["job_id"].as_str());
        let id = id.ok_or_else(|| anyhow!("Ray answered {answer}, expected a submission_id"))?;
        Ok(Running {
            id: id.to_string(),
            task,
            attempt,
        })
    }

    fn body(&self, work: &Work, task: Option<usize>, attempt: usize) -> Value {
        let (line, what) = match task {
            Some(task) => (
                work.task_line(&work.task(self.cpus), &task.to_string()),
                format!("{task} of {}", work.tasks),
            ),
            None => match &work.training {
                Some(_) => (shell(&work.launch()), "train".to_string()),
                None => (shell(&work.rest(self.cpus)), "rest".to_string()),
            },
        };
        // a launch only waits for processes that have resources of their own
        let training = work.training.as_ref().filter(|_| task.is_none());
        let cpus = training.map_or(self.cpus, |_| 0);
        let variables = training
            .into_iter()
            .flat_map(|training| &training.environment);
        let variables: Map<String, Value> = variables
            .map(|variable| (variable.name.clone(), json!(variable.value)))
            .collect();
        let folder = quoted(&work.folder.to_string_lossy());
        let mut body = json!({
            "entrypoint": format!("cd {folder} && exec {line}"),
            "entrypoint_num_cpus": cpus,
            "metadata": {"name": work.name(), "task": what, "attempt": attempt.to_string()},
        });
        if !variables.is_empty() {
            body["runtime_env"] = json!({"env_vars": variables});
        }
        body
    }

    /// Retries a request while the dashboard restarts or is busy.
    fn patiently<T>(&self, ask: impl Fn() -> Result<T>) -> Result<T> {
        let mut failures = 0;
        loop {
            match ask() {
                Ok(answer) => return Ok(answer),
                Err(_) if failures < PATIENCE => failures += 1,
                Err(e) => return Err(e),
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn post(&self, body: &Value) -> Result<Value> {
        let url = format!("{}/api/jobs/", self.address);
        let mut answer = ureq::post(&url)
            .send_json(body)
            .with_context(|| format!("POST {url} (ray.address); is Ray's dashboard there? Without Ray use executor = \"local\""))?;
        answer
            .body_mut()
            .read_json()
            .with_context(|| format!("the answer of {url}"))
    }

    /// The state of a job.
    fn status(&self, id: &str) -> Result<State> {
        let url = format!("{}/api/jobs/{id}", self.address);
        let mut answer = ureq::get(&url)
            .call()
            .with_context(|| format!("GET {url}"))?;
        let answer: Value = answer
            .body_mut()
            .read_json()
            .with_context(|| format!("the answer of {url}"))?;
        let text = |key: &str| answer[key].as_str().unwrap_or_default().to_string();
        let why = text("message");
        Ok(State {
            status: text("status"),
            // older versions of Ray have it in the message alone
            code: answer["driver_exit_code"].as_i64().or(exit_code(&why)),
            why,
        })
    }

    /// The last lines a job printed, if the dashboard has them.
    fn log(&self, id: &str) -> String {
        let url = format!("{}/api/jobs/{id}/logs", self.address);
        let answer = || -> Result<Value> { Ok(ureq::get(&url).call()?.body_mut().read_json()?) };
        let text = answer()
            .ok()
            .and_then(|t| t["logs"].as_str().map(str::to_string));
        let text = text.unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages of Ray 2's job supervisor.
    #[test]
    fn the_exit_code_of_a_command_is_in_rays_message() {
        let failed = "Job entrypoint command failed with exit code 2, last available logs (truncated to 20,000 chars):\nx";
        for (message, code) in [
            (failed, Some(2)),
            ("failed with exit code 137", Some(137)),
            ("failed with exit code -9", None),
            ("Job supervisor actor died", None),
            ("", None),
        ] {
            assert_eq!(exit_code(message), code, "{message}");
        }
    }
}
