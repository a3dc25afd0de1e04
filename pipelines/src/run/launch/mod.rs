//! `launch`: trains on the nodes of an allocation, as executors do. It runs once, beside the ranks: it checks the nodes, starts the
//! training on the healthy ones, and starts it again on those that are left when a node fails, in a smaller layout of the same bits
//! where they are fewer. Training resumes from its newest good checkpoint by itself.
//!
//! Stages that are no training run here as one process each, before and after it.

mod health;
mod layout;
mod ray;
mod record;
mod scheduler;
mod slurm;

pub(crate) use health::NodeArgs;
pub(crate) use record::LaunchRecord;

use super::stages;
use crate::job::{self, Job, Nodes, Problem, WrongUse};
use crate::manifest::Manifest;
use crate::plan::Cluster;
use crate::signals::{Interrupted, Requests};
use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use layout::Choice;
use record::{Attempt, layout_words};
use scheduler::Scheduler;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use train::dist::DeviceKind;

/// Flags of `launch`.
#[derive(Args)]
pub(crate) struct LaunchArgs {
    /// Job file (TOML).
    job: PathBuf,
    /// Override one key of the job.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Run only the stages before the training, or only those after it, as one process each.
    #[arg(long, value_name = "WHICH")]
    stages: Option<Around>,
}

/// Stages around the training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Around {
    Before,
    After,
}

/// Time between two looks at a process.
const PAUSE: Duration = Duration::from_millis(50);
/// Time after which a request that the scheduler did not take is made again.
const AGAIN: Duration = Duration::from_secs(5);
/// Time before the second of two attempts without a new checkpoint; each further one waits four times as long, up to about a minute.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The verb.
///
/// # Errors
/// A stage that fails; a training whose attempts fail, or whose nodes become too few; `Interrupted`; `WrongUse` where a stage or a rank ends
/// with exit code 2.
pub(crate) fn launch(args: &LaunchArgs) -> Result<()> {
    let job: Job = job::load(&args.job, &args.set)?;
    let launch = Launch {
        path: &args.job,
        set: &args.set,
        program: std::env::current_exe().context("the path of this program")?,
        requests: Requests::listen()?,
        job: &job,
    };
    match args.stages {
        Some(Around::Before) => launch.before(),
        Some(Around::After) => launch.after_training(),
        None => launch.all(),
    }
}

/// Problems of a job's `[nodes]` that its launch would meet: the cluster that ranks smaller layouts, and memory for the ranks.
pub(crate) fn node_problems(job: &Job) -> Vec<Problem> {
    let Some(nodes) = &job.nodes else {
        return Vec::new();
    };
    let mut problems = Cluster::problems_of("nodes.cluster", layout::cluster_of(nodes));
    problems.extend(layout::memory_problem(job, nodes));
    problems
}

/// Numbers of nodes that are looked at for a layout.
const LOOKED_AT: usize = 8;

/// Logs that `nodes.fewest` has no layout: the launch does not end before as few nodes are healthy, but then it does.
pub(crate) fn note_of_fewest(job: &Job) {
    let Some(nodes) = job.training_nodes() else {
        return;
    };
    let (fewest, count) = (nodes.least(), nodes.count);
    let has_layout = |number: &usize| {
        // a cluster that cannot be read is a problem of its own
        layout::choose(job, &nodes, *number).map_or(true, |choice| choice.is_some())
    };
    if fewest >= count || has_layout(&fewest) {
        return;
    }
    let most = count.min(fewest + LOOKED_AT);
    let next = match (fewest + 1..most).find(has_layout) {
        Some(number) => format!("with fewer than {number} healthy ones the launch ends"),
        None if most == count => {
            format!("with fewer than {count} (nodes.count) healthy ones the launch ends")
        }
        None => format!(
            "nor on up to {}: with as few healthy ones the launch ends",
            most - 1
        ),
    };
    log!(
        "nodes: note: no layout of this model with the bits of the job's own fits on {fewest} nodes (nodes.fewest); {next}"
    );
}

/// Arguments of the check of a node that is to hold ranks of the job, without the program.
pub(crate) fn check_line(job: &Job, nodes: &Nodes) -> Vec<String> {
    let mut line: Vec<String> = ["doctor", "--node"].map(str::to_owned).to_vec();
    line.push(job.out.to_string_lossy().into_owned());
    let processes = nodes.count * nodes.processes;
    let plan = job.rough_plan().filter(|_| job.device == DeviceKind::Cpu);
    let ranks = plan.and_then(|plan| train::trainer::memory::predict_in(&plan, processes).ok());
    let rank = ranks.and_then(|ranks| ranks.iter().map(|rank| rank.total()).max());
    if let Some(bytes) = rank {
        let of_node = bytes * (job.parallel.world() / nodes.count);
        line.extend(["--memory".into(), of_node.to_string()]);
    }
    if nodes.gpus > 0 {
        line.extend(["--gpus".into(), nodes.gpus.to_string()]);
    }
    line
}

/// A training on its way.
struct Launch<'a> {
    path: &'a Path,
    set: &'a [String],
    program: PathBuf,
    requests: Requests,
    job: &'a Job,
}

/// How an attempt ended that did not end the training.
enum End {
    Done,
    /// The allocation ends: the job is queued again.
    Requeue,
    Failed(String),
    /// Another start would fail in the same way.
    Hopeless(String),
    /// A job or a machine that is refused: no other start mends it.
    Refused(String),
}

/// Exit code of a job or a machine that no further start mends.
const BAD_JOB: i32 = 2;
/// Exit codes of ranks that were stopped by a signal and have written a checkpoint.
const STOPPED: [i32; 2] = [130, 143];

impl Launch<'_> {
    fn all(&self) -> Result<()> {
        let Some(nodes) = self.job.training_nodes() else {
            bail!(
                "{}: `launch` starts the training of a job with [train] and executor = \"slurm\" or \"ray\"",
                self.path.display()
            );
        };
        let scheduler = Scheduler::of_this_process(self.path, self.job, &nodes)?;
        let mut training = Training {
            launch: self,
            nodes: &nodes,
            scheduler: &scheduler,
            record: LaunchRecord::read(&self.job.out).unwrap_or_default(),
        };
        if !training.or_again(self.before(), "the allocation ends before the training")? {
            return Ok(());
        }
        let Some(choice) = training.run()? else {
            return Ok(());
        };
        let done = self.after(&choice.sets(self.job)?);
        training.or_again(
            done,
            "the allocation ends before the stages after the training",
        )?;
        Ok(())
    }

    /// The stages before the training, one after the other.
    fn before(&self) -> Result<()> {
        for (stage, is_there) in stages(self.job) {
            if stage == "train" {
                break;
            }
            if is_there {
                self.here(stage, &[])?;
            }
        }
        Ok(())
    }

    /// The stages after a training that others have run; refused before its end, because one process alone would train the rest.
    fn after_training(&self) -> Result<()> {
        let manifest = Manifest::open(&self.job.out, self.job.store()?)?;
        if self.job.train.is_some() && manifest.get("train")?.is_none() {
            let out = self.job.out.display();
            let newest = newest_checkpoint(&self.job.out);
            bail!(
                "{out}: the training is not done (its newest checkpoint is of step {newest}), and `--stages after` does not train"
            );
        }
        self.after(&[])
    }

    /// The stages after the training, which is done and passed over.
    fn after(&self, sets: &[String]) -> Result<()> {
        self.here("run", sets)
    }

    /// Runs a verb of the job in a process of its own.
    fn here(&self, verb: &str, sets: &[String]) -> Result<()> {
        let line = self.line(verb, sets);
        let mut command = Command::new(&line[0]);
        command.args(&line[1..]).stdin(Stdio::null());
        if verb == "blend" {
            // its table is no output of a launch
            command.stdout(Stdio::null());
        }
        let mut child = command.spawn().context("cannot start a stage")?;
        loop {
            if let Some(status) = child.try_wait().context("a stage")? {
                return match status.success() {
                    true => Ok(()),
                    false if self.requests.is_asked() => Err(self.requests.interrupted().into()),
                    // its message is printed already
                    false if status.code() == Some(BAD_JOB) => {
                        let why = format!("millrace {verb} ended with {status}");
                        Err(WrongUse::new(why).into())
                    }
                    false => bail!("millrace {verb} ended with {status}"),
                };
            }
            if self.requests.is_asked() || self.requests.is_requeue_asked() {
                // a stage keeps what it has finished; one that has ended already needs no signal
                let _ = child.kill();
                let _ = child.wait();
                return Err(self.requests.interrupted().into());
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// `millrace VERB JOB` on this machine alone, with more settings.
    fn line(&self, verb: &str, sets: &[String]) -> Vec<String> {
        let mut line = vec![self.program.to_string_lossy().into_owned(), verb.to_owned()];
        line.push(self.path.to_string_lossy().into_owned());
        let local = "executor=\"local\"".to_owned();
        for set in self.set.iter().chain([&local]).chain(sets) {
            line.extend(["--set".to_owned(), set.clone()]);
        }
        line
    }
}

/// The attempts of a training.
struct Training<'a> {
    launch: &'a Launch<'a>,
    nodes: &'a Nodes,
    scheduler: &'a Scheduler,
    record: LaunchRecord,
}

impl Training<'_> {
    /// Whether the stages are done; if the allocation ended before them, the job is queued again.
    fn or_again(&mut self, stages: Result<()>, why: &str) -> Result<bool> {
        match stages {
            Err(error) if error.is::<Interrupted>() && self.launch.requests.is_requeue_asked() => {
                self.requeue(why)?;
                Ok(false)
            }
            done => done.map(|()| true),
        }
    }

    /// Queues the job again, which then goes on where it stopped; refused after `nodes.retries` times without a new checkpoint,
    /// which shows that an allocation is too short for any progress.
    fn requeue(&mut self, why: &str) -> Result<()> {
        let newest = newest_checkpoint(&self.launch.job.out);
        let record = &mut self.record;
        if newest > record.queued_at {
            record.queued = 0;
        }
        if record.queued >= self.nodes.retries.max(1) {
            let times = record.queued;
            bail!(
                "{why}, and the job was queued again {times} times (nodes.retries) without a new checkpoint; a longer time, or checkpoints more often, would bring some"
            );
        }
        (record.queued, record.queued_at) = (record.queued + 1, newest);
        record.write(&self.launch.job.out)?;
        if !self.scheduler.requeue()? {
            bail!(
                "{why}, and {} cannot queue the job again",
                self.scheduler.name()
            );
        }
        log!("launch: {why}; the job is queued again");
        Ok(())
    }

    /// Attempts until the training is done; its last layout, or None if the job is queued again.
    fn run(&mut self) -> Result<Option<Choice>> {
        let out = &self.launch.job.out;
        self.record.executor = self.scheduler.name().into();
        let (mut failures, mut newest) = (0, newest_checkpoint(out));
        loop {
            if self.launch.requests.is_asked() {
                return Err(self.launch.requests.interrupted().into());
            }
            if self.launch.requests.is_requeue_asked() {
                self.requeue("the allocation ends")?;
                return Ok(None);
            }
            let Some((attempt, choice)) = self.prepare()? else {
                return Ok(None);
            };
            // a signal during the checks, before there are ranks to stop
            let requests = &self.launch.requests;
            if requests.is_asked() || requests.is_requeue_asked() {
                continue;
            }
            let end = self.attempt(attempt, &choice)?;
            let reason = match end {
                End::Done => return Ok(Some(choice)),
                End::Requeue => return Ok(None),
                End::Hopeless(reason) => bail!("{reason}"),
                End::Refused(reason) => return Err(WrongUse::new(reason).into()),
                End::Failed(reason) => reason,
            };
            let found = newest_checkpoint(out);
            failures = if found > newest { 0 } else { failures + 1 };
            newest = found;
            if failures > self.nodes.retries {
                bail!(
                    "{failures} attempts failed without a new checkpoint; the last one: {reason}"
                );
            }
            log!(
                "launch: {reason}; attempt {} follows",
                self.record.attempts.len() + 1
            );
            self.pause(failures);
        }
    }

    /// Waits before another attempt if the last ones brought nothing: locks of a lost node, and nodes that start again, take a while.
    fn pause(&self, failures: usize) {
        let Some(others) = failures.checked_sub(1) else {
            return;
        };
        let until = Instant::now() + FIRST_PAUSE * (1u32 << (2 * others.min(3)));
        let requests = &self.launch.requests;
        while Instant::now() < until && !requests.is_asked() && !requests.is_requeue_asked() {
            std::thread::sleep(PAUSE);
        }
    }

    /// Nodes and layout of the next attempt; None if too few nodes are healthy and the job is queued again.
    fn prepare(&mut self) -> Result<Option<(Attempt, Choice)>> {
        let (job, nodes) = (self.launch.job, self.nodes);
        let all = self.scheduler.nodes()?;
        let mut line = vec![self.launch.program.to_string_lossy().into_owned()];
        line.extend(check_line(job, nodes));
        let limit = Duration::from_secs(nodes.check_s);
        let mut checked = health::Checked::default();
        // of a whole cluster, as many as are wanted
        for candidates in all.chunks(nodes.allocated()) {
            if checked.healthy.len() < nodes.count {
                checked.extend(health::check(self.scheduler, candidates, &line, limit));
            }
        }
        for excluded in &checked.excluded {
            log!("launch: {} is excluded: {}", excluded.node, excluded.reason);
        }
        let healthy = checked.healthy.len().min(nodes.count);
        for count in (nodes.least()..=healthy).rev() {
            let Some(choice) = layout::choose(job, nodes, count)? else {
                log!("launch: no layout fits {count} nodes");
                continue;
            };
            let spare = checked.healthy.split_off(count);
            let attempt = Attempt {
                job: self.scheduler.job(),
                started: chrono::Utc::now().format("%Y-%m-%d %H:%M:%S").to_string(),
                nodes: checked.healthy,
                spare,
                excluded: checked.excluded,
                layout: choice.to_json(),
                is_smaller: count < nodes.count,
                end: None,
            };
            return Ok(Some((attempt, choice)));
        }
        if healthy >= nodes.least() {
            bail!(
                "{healthy} nodes are healthy, but no layout of this model with the bits of the job's own fits on {} to {healthy} of them{}; another number of nodes (nodes.count, nodes.fewest) has one, or none",
                nodes.least(),
                match job.device {
                    DeviceKind::Cpu => String::new(),
                    DeviceKind::Cuda => format!(
                        " with the GPUs of {} (nodes.cluster)",
                        layout::cluster_of(nodes)
                    ),
                }
            );
        }
        let why = format!(
            "{} of {} nodes are healthy, at least {} are needed (nodes.fewest)",
            checked.healthy.len(),
            all.len(),
            nodes.least()
        );
        if !self.scheduler.can_requeue() {
            bail!("{why}");
        }
        self.requeue(&why).map(|()| None)
    }

    /// Starts the ranks, waits for their end and records it.
    fn attempt(&mut self, attempt: Attempt, choice: &Choice) -> Result<End> {
        let (launch, nodes) = (self.launch, self.nodes);
        let number = self.record.attempts.len();
        let mut sets = choice.sets(launch.job)?;
        if nodes.cpus > 0 {
            let threads = (nodes.cpus / nodes.processes).max(1);
            sets.push(format!("threads={threads}"));
        }
        let line = launch.line("train", &sets);
        log!(
            "launch: attempt {} on {}; {}{}",
            number + 1,
            attempt.nodes.join(" "),
            if attempt.is_smaller {
                "smaller layout: "
            } else {
                ""
            },
            layout_words(&attempt.layout)
        );
        let mut command = self
            .scheduler
            .ranks(&attempt.nodes, nodes.processes, number, &line);
        self.record.attempts.push(attempt);
        self.record.write(&launch.job.out)?;
        let child = command.spawn();
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = child.with_context(|| format!("cannot run {program}"))?;
        let status = self.wait(&mut child)?;
        let is_requeue = launch.requests.is_requeue_asked();
        let end = match status {
            status if status.success() => End::Done,
            _ if launch.requests.is_asked() => {
                self.end("stopped by a signal")?;
                return Err(launch.requests.interrupted().into());
            }
            _ if is_requeue => End::Requeue,
            status if status.code() == Some(BAD_JOB) => End::Refused(format!(
                "the ranks ended with {status}: no other start mends it"
            )),
            status if status.code().is_some_and(|code| STOPPED.contains(&code)) => {
                End::Hopeless(format!("the ranks were stopped by a signal ({status})"))
            }
            status => End::Failed(format!("the ranks ended with {status}")),
        };
        match &end {
            End::Done => self.end("done")?,
            End::Requeue => {
                self.end("stopped before the allocation ends; the job is queued again")?;
                self.requeue("the allocation ends")?;
            }
            End::Failed(reason) | End::Hopeless(reason) | End::Refused(reason) => {
                self.end(reason)?;
            }
        }
        Ok(end)
    }

    /// Waits for the ranks. Before the allocation ends, and at a signal to this process, they are asked to stop, once: a second
    /// request would end them without a checkpoint.
    fn wait(&self, child: &mut Child) -> Result<ExitStatus> {
        let (mut is_stopping, mut next) = (false, Instant::now());
        loop {
            if let Some(status) = child.try_wait().context("the ranks")? {
                return Ok(status);
            }
            let requests = &self.launch.requests;
            let is_asked = requests.is_asked() || requests.is_requeue_asked();
            if is_asked && !is_stopping && Instant::now() >= next {
                match self.scheduler.stop() {
                    Ok(()) => {
                        is_stopping = true;
                        log!("launch: the training stops after a checkpoint");
                    }
                    Err(error) => {
                        log!("launch: the ranks could not be asked to stop: {error:#}");
                        next = Instant::now() + AGAIN;
                    }
                }
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn end(&mut self, how: &str) -> Result<()> {
        if let Some(last) = self.record.attempts.last_mut() {
            last.end = Some(how.to_owned());
        }
        self.record.write(&self.launch.job.out)
    }
}

/// Number of the newest checkpoint of the job in `out`, whole or not; 0 without one.
fn newest_checkpoint(out: &Path) -> u64 {
    let entries = std::fs::read_dir(out.join("checkpoints"));
    let entries = entries.into_iter().flatten().flatten();
    let steps = entries.filter_map(|entry| {
        let name = entry.file_name();
        name.to_str()?.strip_prefix("step-")?.parse::<u64>().ok()
    });
    steps.max().unwrap_or(0)
}
