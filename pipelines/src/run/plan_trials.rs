//! `plan --run`: trains with each of some planned layouts for a few steps and measures them. A layout is a `millrace train` of its
//! own on random tokens, so that one that fails, crashes or does not fit is a row and no end.

use crate::job::{BlendDataset, BlendTable, Executor, Job, WrongUse};
use crate::machine::memory_bytes;
use crate::plan::{Measured, Planned, Trial, WARM_UP};
use crate::signals::{Interrupted, Signals};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use index::dataset::{DatasetWriter, Sidecar, TokenType, TokenizerNote};
use serde::Deserialize;
use std::fs::{self, File};
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use train::config::{Plan, TrainConfig};
use train::dist::{DeviceKind, Transport};

/// Flags of `plan` that run layouts.
#[derive(Args)]
pub(super) struct TrialArgs {
    /// Train with the N best layouts for a few steps on this machine, on random tokens, and rank them by the measured time.
    #[arg(long, value_name = "N", conflicts_with_all = ["check_tables", "size"])]
    run: Option<usize>,
    /// Steps of each run; the first two do not count.
    #[arg(long, value_name = "STEPS", default_value_t = 8, requires = "run")]
    run_steps: usize,
    /// Seconds after which a run is ended and counts as failed.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 600.0,
        requires = "run"
    )]
    run_limit: f64,
    /// Processes of each run, which share its ranks and are connected over TCP; with one, ranks are threads.
    #[arg(long, value_name = "P", default_value_t = 1, requires = "run")]
    run_processes: usize,
    /// Run N layouts from all over the ranking instead of the N best, to see how well it predicts.
    #[arg(long, requires = "run")]
    spread: bool,
    /// Folder for the runs. Default: `plan` in the job's folder.
    #[arg(long, value_name = "DIR", requires = "run")]
    out: Option<PathBuf>,
}

/// Most layouts that are run.
const MOST_RUNS: usize = 10_000;
/// Most steps of a run.
const MOST_STEPS: usize = 100_000;
/// Most seconds of a run: a week.
const MOST_SECONDS: f64 = 7.0 * 86_400.0;
/// Shortest and longest time between two looks at a run.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Most tokens of the random data; longer runs read them again.
const MOST_TOKENS: usize = 4 << 20;
/// Steps that a run could do beyond those that are measured: it is ended before it writes a checkpoint.
const SPARE_STEPS: u64 = 1000;

impl TrialArgs {
    /// Whether layouts are to be run.
    pub(super) fn is_given(&self) -> bool {
        self.run.is_some()
    }

    /// The layouts to run among the fitting ones, which are ranked: as indices in ascending order.
    fn choice(&self, fitting: usize) -> Vec<usize> {
        let count = self.run.unwrap_or(0).min(fitting);
        match self.spread {
            false => (0..count).collect(),
            // the first and the last one, and others at even distances
            true => (0..count)
                .map(|at| at * (fitting - 1) / (count - 1).max(1))
                .collect(),
        }
    }

    /// # Errors
    /// `WrongUse` for a number out of range.
    pub(super) fn check(&self) -> Result<(), WrongUse> {
        let least = WARM_UP + 1;
        let wrong = |flag: &str, found: String, wanted: String| {
            Err(WrongUse::new(format!(
                "{flag}: found {found}, want {wanted}"
            )))
        };
        if let Some(run) = self.run.filter(|run| !(1..=MOST_RUNS).contains(run)) {
            return wrong("--run", run.to_string(), format!("1 to {MOST_RUNS}"));
        }
        if !(least..=MOST_STEPS).contains(&self.run_steps) {
            let wanted = format!("{least} to {MOST_STEPS}: the first {WARM_UP} do not count");
            return wrong("--run-steps", self.run_steps.to_string(), wanted);
        }
        if !(self.run_limit > 0.0 && self.run_limit <= MOST_SECONDS) {
            let wanted = format!("above 0, at most {MOST_SECONDS}");
            return wrong("--run-limit", self.run_limit.to_string(), wanted);
        }
        if let Some(out) = self.out.as_ref().filter(|out| out.to_str().is_none()) {
            return wrong("--out", out.display().to_string(), "a path in UTF-8".into());
        }
        if !(1..=1024).contains(&self.run_processes) {
            return wrong(
                "--run-processes",
                self.run_processes.to_string(),
                "1 to 1024".into(),
            );
        }
        Ok(())
    }
}

/// Rows of the layouts that were run.
pub(super) struct Trials {
    /// In the order of the ranking.
    pub rows: Vec<Trial>,
    /// Places of the rows in the ranking.
    pub places: Vec<usize>,
    /// Folder with the job, the log and the metrics of each run.
    pub folder: PathBuf,
    /// The signal that ended the runs early.
    pub interrupted: Option<Interrupted>,
}

impl Trials {
    /// The end of the verb.
    ///
    /// # Errors
    /// `Interrupted`; or no layout has a measured time.
    pub(super) fn end(self) -> Result<()> {
        if let Some(interrupted) = self.interrupted {
            return Err(interrupted.into());
        }
        match self.rows.iter().any(|row| row.measured_s().is_some()) {
            true => Ok(()),
            false => bail!(
                "none of the {} layouts that were run has a measured time; their logs are in {}",
                self.rows.len(),
                self.folder.display()
            ),
        }
    }
}

/// Runs layouts of `planned`, one after the other. `plan_of` makes the training of a layout.
///
/// # Errors
/// The folder of the runs cannot be made. A run that fails is a row.
pub(super) fn run(
    job: &Job,
    planned: &[Planned],
    args: &TrialArgs,
    plan_of: impl Fn(&Planned) -> Option<Plan>,
) -> Result<Trials> {
    let folder = args.out.clone().unwrap_or_else(|| job.out.join("plan"));
    let folder = new_folder(&folder)?;
    let places = args.choice(planned.len());
    let signals = Signals::listen()?;
    let mut trials = Trials {
        rows: Vec::new(),
        places,
        folder,
        interrupted: None,
    };
    let mut runner = Runner {
        job,
        args,
        folder: &trials.folder,
        data: None,
        signals: &signals,
    };
    for (number, place) in trials.places.iter().enumerate() {
        let of = &planned[*place];
        let outcome = match plan_of(of) {
            None => Row::failed("the job has no model or no training"),
            // also a file that cannot be written, or a process that cannot be started
            Some(plan) => runner
                .row(number, &plan)
                .unwrap_or_else(|error| Row::failed(format!("{error:#}"))),
        };
        let outcome = match outcome {
            Row::Outcome(outcome) => outcome,
            Row::Interrupted(signal) => {
                log!("plan: stopped by a signal; {number} layouts were run");
                trials.interrupted = Some(signal);
                break;
            }
        };
        let trial = Trial {
            layout: of.layout,
            predicted_s: of.time.total,
            predicted_bytes: plan_of(of).map_or(0, |plan| tensor_bytes(&plan)),
            outcome,
        };
        info!(
            "plan: layout {} of {}: {}",
            number + 1,
            trials.places.len(),
            match &trial.outcome {
                Ok(found) => format!(
                    "{:.4} s per step, predicted {:.4}",
                    found.step_s, trial.predicted_s
                ),
                Err(reason) => reason.clone(),
            }
        );
        trials.rows.push(trial);
    }
    runner.remove_data();
    trials.places.truncate(trials.rows.len());
    Ok(trials)
}

/// A folder of its own for the runs of this call.
fn new_folder(parent: &Path) -> Result<PathBuf> {
    let make = || -> std::io::Result<PathBuf> {
        fs::create_dir_all(parent)?;
        let folder = tempfile::Builder::new().prefix("run-").tempdir_in(parent)?;
        Ok(folder.keep())
    };
    make().with_context(|| format!("cannot make a folder in {}", parent.display()))
}

/// Predicted bytes of the tensors of all ranks, without copies for checkpoints: none is written.
fn tensor_bytes(plan: &Plan) -> usize {
    let ranks = train::trainer::memory::predict(plan).unwrap_or_default();
    let tensors = ranks
        .iter()
        .map(|rank| rank.weights + rank.optimizer + rank.gradients + rank.activations + rank.packs);
    tensors.sum()
}

/// The end of a run.
enum Row {
    Outcome(Result<Measured, String>),
    Interrupted(Interrupted),
}

impl Row {
    fn failed(reason: impl Into<String>) -> Row {
        Row::Outcome(Err(reason.into()))
    }
}

/// Runs one layout after the other.
struct Runner<'a> {
    job: &'a Job,
    args: &'a TrialArgs,
    folder: &'a Path,
    /// The random tokens, once they are written.
    data: Option<PathBuf>,
    signals: &'a Signals,
}

impl Runner<'_> {
    fn row(&mut self, number: usize, plan: &Plan) -> Result<Row> {
        let (bytes, memory) = (tensor_bytes(plan) as u64, memory_bytes());
        if self.job.device == DeviceKind::Cpu && memory > 0 && bytes > memory {
            let gb = |bytes: u64| bytes as f64 / 1e9;
            return Ok(Row::failed(format!(
                "does not fit: needs {:.1} GB, this machine has {:.1}",
                gb(bytes),
                gb(memory)
            )));
        }
        let folder = self.folder.join(format!("layout-{:02}", number + 1));
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let job = self.child_job(plan, &folder)?;
        let file = folder.join("job.toml");
        fs::write(&file, job.to_toml()).with_context(|| file.display().to_string())?;
        let program = std::env::current_exe().context("the path of this program")?;
        let row = with_free_port(|| {
            let mut run = Processes::start(&program, &file, &folder, self.args.run_processes)?;
            let row = self.watch(&mut run, &job)?;
            let found_port_taken = run.found_port_taken();
            Ok(Attempt {
                row,
                found_port_taken,
            })
        });
        // a model whose steps take microseconds may be ahead of a look at it
        let _ = fs::remove_dir_all(job.out.join("checkpoints"));
        row
    }

    /// Follows a run until it has its steps, or cannot have them.
    fn watch(&self, run: &mut Processes, job: &Job) -> Result<Row> {
        let started = Instant::now();
        let metrics = job.out.join(crate::journal::FILE);
        loop {
            // in this order: steps that are there when a process ends are seen
            let end = run.end()?;
            let records = records(&metrics);
            if let Some(counted) = records.get(..self.args.run_steps) {
                let seconds: Vec<f64> = (counted.iter())
                    .map(|record| record.step_s.unwrap_or(f64::NAN))
                    .collect();
                let bytes = counted.last().and_then(|record| record.memory_bytes);
                let bytes = bytes.unwrap_or(0);
                return Ok(Row::Outcome(Measured::of(&seconds, bytes)));
            }
            if self.signals.is_asked() {
                return Ok(Row::Interrupted(self.signals.interrupted()));
            }
            if let Some(reason) = end {
                return Ok(Row::failed(reason));
            }
            if started.elapsed().as_secs_f64() > self.args.run_limit {
                return Ok(Row::failed(format!(
                    "{} of {} steps after {} s",
                    records.len(),
                    self.args.run_steps,
                    self.args.run_limit
                )));
            }
            // looks cost time of the cores that the run is measured on
            std::thread::sleep((started.elapsed() / 50).clamp(PAUSE, LONGEST_PAUSE));
        }
    }

    /// The job of a layout: the model and the training of `plan` on random tokens, and nothing else.
    fn child_job(&mut self, plan: &Plan, folder: &Path) -> Result<Job> {
        let prefix = match &self.data {
            Some(prefix) => prefix.clone(),
            None => {
                let prefix = self.folder.join("data").join("random");
                write_tokens(&prefix, plan, self.args.run_steps)?;
                self.data.insert(prefix).clone()
            }
        };
        let default = TrainConfig::default();
        let mut launch = self.job.launch.clone();
        launch.transport = match self.args.run_processes {
            1 => Transport::Threads,
            _ => Transport::Sockets,
        };
        launch.secret = String::new();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Job {
            name: format!("{}: {}", self.job.name, folder.display()),
            out: folder.join("out"),
            seed: self.job.seed,
            threads: match (self.job.threads, self.args.run_processes) {
                (0, 1) => 0,
                (0, processes) => (cores / processes).max(1),
                (threads, _) => threads,
            },
            device: self.job.device,
            determinism: self.job.determinism,
            executor: Executor::Local,
            blend: Some(BlendTable {
                seq_length: plan.seq_length,
                split: "1,0,0".into(),
                dataset: vec![BlendDataset {
                    name: "random".into(),
                    weight: None,
                    prefix: Some(prefix),
                }],
                ..BlendTable::default()
            }),
            model: Some(plan.model.clone()),
            parallel: plan.parallel.clone(),
            launch,
            train: Some(TrainConfig {
                steps: self.args.run_steps as u64 + SPARE_STEPS,
                init_from: String::new(),
                time_budget: String::new(),
                batch_rampup: None,
                warmup_steps: 0,
                decay_steps: 0,
                wsd_decay_steps: 0,
                eval_every: 0,
                eval_tasks: default.eval_tasks,
                early_stop: default.early_stop,
                checkpoint: train::config::CheckpointConfig {
                    every: 0,
                    ..default.checkpoint
                },
                resume: default.resume,
                log_every: 1,
                profile: default.profile,
                ..plan.train.clone()
            }),
            ..Job::default()
        })
    }

    fn remove_data(&self) {
        // the tokens are of no use any more; a folder that stays does no harm
        let _ = self
            .data
            .as_deref()
            .and_then(Path::parent)
            .map(fs::remove_dir_all);
    }
}

/// A line of `metrics.jsonl`.
#[derive(Deserialize)]
struct Step {
    /// `None`, JSON's null, is no number.
    step_s: Option<f64>,
    memory_bytes: Option<u64>,
}

/// Steps that are in `metrics.jsonl`, in order; a line that is being written is not.
fn records(path: &Path) -> Vec<Step> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines = text
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'));
    lines
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// Writes documents of random ids below the vocabulary; 0 ends a document.
fn write_tokens(prefix: &Path, plan: &Plan, steps: usize) -> Result<()> {
    let length = plan.seq_length + 1;
    let wanted = plan.train.global_batch.saturating_mul(steps + 1);
    let documents = wanted.min(MOST_TOKENS / length).max(2);
    let token_type = TokenType::for_vocab(plan.vocab);
    let mut writer = DatasetWriter::create(prefix, token_type)?;
    let ids = (plan.vocab as u64).min(1 << 31);
    let mut random = plan.seed;
    let mut bytes = Vec::new();
    for _ in 0..documents {
        bytes.clear();
        for at in 0..length {
            let id = match at + 1 == length {
                true => 0,
                // not the end of a document, if there is another id
                false => (1 + next_random(&mut random) % (ids - 1).max(1)).min(ids - 1),
            };
            let width = usize::try_from(token_type.bytes()).unwrap_or(4);
            bytes.extend_from_slice(&id.to_le_bytes()[..width]);
        }
        let length = u32::try_from(length).context("a sequence of fewer than 2^32 tokens")?;
        writer.documents(&bytes, &[length])?;
    }
    let written = writer.finish()?;
    let sidecar = Sidecar {
        dataset: serde_json::json!("random ids of millrace plan --run"),
        tokenizer: TokenizerNote {
            xxh3: "none".into(),
            vocab: plan.vocab,
            encoder: "none".into(),
            end_of_document: Some(0),
            special_tokens: Default::default(),
        },
        dtype: token_type.name().into(),
        documents: written.documents,
        empty_documents: 0,
        sequences: written.sequences,
        tokens: written.tokens,
        text_bytes: 0,
        groups: Vec::new(),
        statistics: None,
    };
    Ok(sidecar.write(prefix)?)
}

/// The next number of splitmix64 (Steele et al. 2014).
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A run of a layout.
struct Attempt {
    row: Row,
    /// Whether it failed because process 0 could not listen at the port that was chosen for it.
    found_port_taken: bool,
}

/// Longest time for process 0 to end behind another one of its run.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// Ports that are tried for the processes of a run.
const PORTS: usize = 8;

/// The row of the first attempt whose port was free. A port that is free when it is chosen may be another program's by the time
/// process 0 listens at it: then the run begins again with another one.
fn with_free_port(mut attempt: impl FnMut() -> Result<Attempt>) -> Result<Row> {
    for _ in 1..PORTS {
        let Attempt {
            row,
            found_port_taken,
        } = attempt()?;
        if !found_port_taken {
            return Ok(row);
        }
    }
    attempt().map(|last| last.row)
}

/// The processes of a run; ended when it is dropped.
struct Processes {
    children: Vec<Child>,
    logs: Vec<PathBuf>,
    /// That process 0 listens at; 0 of a single process.
    port: u16,
    /// Ends the others when this process is gone, whatever ended it. It learns of each before that begins.
    guard: Child,
}

const GUARD: &str = "a shell that ends a run";

/// Variables by which launchers describe a process; a run has its own.
const LAUNCHER: [&str; 5] = [
    "RANK",
    "WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_USE_AGENT_STORE",
];

impl Processes {
    /// Starts `PROGRAM train` in each process.
    fn start(program: &Path, job: &Path, folder: &Path, count: usize) -> Result<Processes> {
        let port = match count {
            1 => 0,
            _ => likely_free_port().context("a free port for the processes of a run")?,
        };
        let mut run = Processes {
            children: Vec::new(),
            logs: Vec::new(),
            port,
            guard: guard().context(GUARD)?,
        };
        for process in 0..count {
            let log = match count {
                1 => folder.join("log.txt"),
                _ => folder.join(format!("log-{process}.txt")),
            };
            let to = File::create(&log).with_context(|| log.display().to_string())?;
            // waits until the guard knows the number of its process, which the program takes over
            let mut command = Command::new("/bin/sh");
            command.args(["-c", "read -r _ && exec \"$@\" </dev/null", "gate"]);
            command.arg(program).arg("train").arg(job);
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(to)
                // a terminal's signal is for this process, which ends the run
                .process_group(0);
            for name in LAUNCHER {
                command.env_remove(name);
            }
            if count > 1 {
                command
                    .env("RANK", process.to_string())
                    .env("WORLD_SIZE", count.to_string())
                    .env("MASTER_ADDR", "127.0.0.1")
                    .env("MASTER_PORT", port.to_string());
            }
            let child = command.spawn();
            let mut child = child.with_context(|| format!("cannot start {}", program.display()))?;
            let (id, gate) = (child.id(), child.stdin.take());
            run.children.push(child);
            run.logs.push(log);
            if let (Some(words), Some(mut gate)) = (&mut run.guard.stdin, gate) {
                writeln!(words, "{id}").context(GUARD)?;
                writeln!(gate, "go").context(GUARD)?;
            }
        }
        Ok(run)
    }

    /// The reason why the run cannot go on, once a process has failed or all have ended.
    fn end(&mut self) -> Result<Option<String>> {
        let mut running = 0;
        for (child, log) in self.children.iter_mut().zip(&self.logs) {
            match child.try_wait().context("a process of a run")? {
                None => running += 1,
                Some(status) if status.success() => {}
                Some(status) => return Ok(Some(reason(status, log))),
            }
        }
        Ok((running == 0).then(|| "it ended before its last step".into()))
    }

    /// Whether process 0 could not listen at its port, by its log. The others may be the first to fail then, so that it is waited for.
    fn found_port_taken(&mut self) -> bool {
        let has_ended = |child: &mut Child| !matches!(child.try_wait(), Ok(None));
        if self.port == 0 || !self.children.iter_mut().any(has_ended) {
            return false;
        }
        let until = Instant::now() + LAST_WORDS;
        while Instant::now() < until && !self.children.first_mut().is_none_or(has_ended) {
            std::thread::sleep(PAUSE);
        }
        let said = format!("port {}: found in use", self.port);
        let is_said = |log: &PathBuf| fs::read_to_string(log).is_ok_and(|log| log.contains(&said));
        self.logs.first().is_some_and(is_said)
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for child in &mut self.children {
            // one that has ended already cannot be killed, and is only waited for
            let _ = child.kill();
            let _ = child.wait();
        }
        // a word is a regular end; a shell that has ended holds nothing
        if let Some(mut words) = self.guard.stdin.take() {
            let _ = words.write_all(b"done\n");
        }
        let _ = self.guard.wait();
    }
}

/// A shell that reads numbers of processes, line by line, and kills them once its input ends without the word `done`, as it does when
/// this process is killed.
fn guard() -> std::io::Result<Child> {
    let script = r#"while read -r word; do
        [ "$word" = done ] && exit
        set -- "$@" "$word"
    done
    [ $# -eq 0 ] || kill -9 "$@""#;
    Command::new("/bin/sh")
        .args(["-c", script, "guard"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
}

/// Characters of a reason.
const REASON: usize = 400;

/// The error that a process logged last, in one line, or how it ended.
fn reason(status: ExitStatus, log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let error = text.rfind("error: ").map(|at| &text[at + 7..]);
    let error = error.map(|lines| {
        let lines: Vec<&str> = lines.split_whitespace().collect();
        lines.join(" ").chars().take(REASON).collect::<String>()
    });
    match (status.signal(), error) {
        (Some(9), _) => "ended by signal 9, as the system does when memory is short".into(),
        (Some(signal), _) => format!("ended by signal {signal}"),
        (None, Some(error)) => error,
        (None, None) => format!("ended with {status}"),
    }
}

/// A port of this host that is free now; it may be taken before it is used (`with_free_port`).
fn likely_free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn attempt(found_port_taken: bool) -> Result<Attempt> {
        Ok(Attempt {
            row: Row::failed("a reason"),
            found_port_taken,
        })
    }

    #[test]
    fn a_run_whose_port_was_taken_begins_again_and_others_do_not() {
        for (taken, wanted) in [(0, 1), (2, 3), (100, PORTS)] {
            let mut count = 0;
            let row = with_free_port(|| {
                count += 1;
                attempt(count <= taken)
            });
            assert!(matches!(row, Ok(Row::Outcome(Err(_)))));
            assert_eq!(count, wanted, "{taken}");
        }
        let mut count = 0;
        let failed = with_free_port(|| {
            count += 1;
            bail!("no such program")
        });
        assert!(failed.is_err());
        assert_eq!(count, 1);
    }

    /// Programs that end as `millrace train` does where its port is taken, by the words of `kernels` (`comm::tests`), and for another reason.
    #[test]
    fn a_taken_port_is_found_in_the_log_of_process_0() {
        let said = "process 0 on h: port $MASTER_PORT: found in use, want a free one";
        for (line, is_taken) in [
            (said, true),
            ("process 0 on h: port 0: found in use", false),
            ("wrong", false),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let program = folder.path().join("program");
            fs::write(
                &program,
                format!("#!/bin/sh\necho \"error: {line}\" >&2\nexit 1\n"),
            )
            .unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
            let mut run = Processes::start(&program, Path::new("job"), folder.path(), 2).unwrap();
            while run.end().unwrap().is_none() {
                std::thread::sleep(PAUSE);
            }
            assert_eq!(run.found_port_taken(), is_taken, "{line}");
        }
    }
}
