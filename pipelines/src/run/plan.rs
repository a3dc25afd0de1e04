//! `plan`: the fastest layouts of a job's model on a cluster, or the planner's times beside published ones.

use super::plan_serving::ServingArgs;
use super::plan_table;
use super::plan_trials::{self, TrialArgs};
use crate::job::{self, Job, LoadError, Problem};
use crate::log::print;
use crate::machine::duration;
use crate::plan::{
    Asked, Cluster, Gantt, Layout, Planned, Recompute, Rejected, Row, Shape, check_tables,
    chinchilla_tokens, model_of, parse_count, search,
};
use anyhow::{Result, bail};
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use train::config::{Determinism, Family, ParallelConfig, Plan, Precision};
use train::dist::DeviceKind;
use train::trainer::memory::predict_stages;

#[derive(Args)]
pub(crate) struct PlanArgs {
    /// Job file (TOML) with a model and its training.
    #[arg(required_unless_present_any = ["check_tables", "size"], requires = "cluster")]
    job: Option<PathBuf>,
    /// Override one key of the job.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Cluster file, or dgx-a100, dgx-h100, dgx-h200, dgx-b200.
    #[arg(long, value_name = "NAME|FILE")]
    cluster: Option<String>,
    /// Devices to use. Default: all of the cluster.
    #[arg(long)]
    devices: Option<usize>,
    /// Rows of embedding and head. Default: tokenize.tokenizer.train.vocab, or 50304.
    #[arg(long)]
    vocab: Option<usize>,
    /// Layouts to show.
    #[arg(long, default_value_t = 10)]
    top: usize,
    /// Print the times of published runs beside the planner's, and stop.
    #[arg(long, conflicts_with = "job")]
    check_tables: bool,
    /// Print the shape, learning rate and number of tokens of a GPT model with this many parameters (5B, 350M), and stop.
    #[arg(long, conflicts_with_all = ["job", "check_tables"], value_parser = parse_count)]
    size: Option<f64>,
    /// Tokens of its training (300B). Default: 20 per parameter (Hoffmann et al. 2022).
    #[arg(long, requires = "size", value_parser = parse_count)]
    tokens: Option<f64>,
    #[command(flatten)]
    serving: ServingArgs,
    #[command(flatten)]
    trials: TrialArgs,
    /// Print JSON to stdout.
    #[arg(long)]
    json: bool,
}

/// Most rows of an embedding: ids have 32 bits.
const MOST_VOCAB: usize = 1 << 32;

/// The verb.
pub(crate) fn plan(args: &PlanArgs) -> Result<()> {
    if args.check_tables {
        return tables(&check_tables()?, args.json);
    }
    if let Some(size) = args.size {
        return sized(size, args.tokens, args.json);
    }
    let (Some(path), Some(cluster)) = (&args.job, &args.cluster) else {
        bail!("plan needs a job and --cluster");
    };
    args.trials.check()?;
    let job: Job = job::load(path, &args.set)?;
    let file = cluster;
    let mut cluster = Cluster::load(file)?;
    let is_f32 = is_in_f32(&job, &cluster);
    if is_f32 {
        let resolved = cluster.in_f32();
        cluster = resolved.map_err(|problem| LoadError::problems(file.into(), vec![problem]))?;
    }
    if args.serving.is_given() {
        let mut problems = Vec::new();
        args.serving.check(&mut problems);
        let shape = shape(&job, args.vocab, &mut problems);
        let (Some(shape), true) = (shape, problems.is_empty()) else {
            return Err(LoadError::problems(path.clone(), problems).into());
        };
        let assumed = assumed_of_a_server(&cluster, is_f32);
        if is_f32 {
            cluster.number_bytes = 4.0;
        }
        return (args.serving).run(&job.name, shape, &cluster, assumed, args.json);
    }
    let asked = asked(&job, &cluster, args)
        .map_err(|problems| LoadError::problems(path.clone(), problems))?;
    let (planned, rejected) = accepted(&job, &asked, search(&asked));
    let answer = Answer {
        job: &job,
        asked: &asked,
        planned: &planned[..planned.len().min(args.top.max(1))],
        fitting: planned.len(),
        rejected: &rejected,
        assumed: assumed(&cluster, is_f32),
    };
    if !args.json {
        print(&answer.to_text())?;
    }
    let trials = match args.trials.is_given() && !planned.is_empty() {
        true => Some(plan_trials::run(&job, &planned, &args.trials, |of| {
            plan_of(&job, &asked, &of.layout)
        })?),
        false => None,
    };
    if args.json {
        let mut value = answer.to_json();
        if let Some(trials) = &trials {
            value["run"] = plan_table::to_json(trials, &planned, cluster.devices_per_node);
        }
        print(&format!("{value}\n"))?;
    } else if let Some(trials) = &trials {
        print(&plan_table::to_text(
            trials,
            &planned,
            cluster.devices_per_node,
        ))?;
    }
    if planned.is_empty() {
        bail!("no layout of this model fits on {} devices", asked.devices);
    }
    match trials {
        Some(trials) => trials.end(),
        None => Ok(()),
    }
}

/// Whether the job's products are of f32: on a GPU only with that precision; a CPU multiplies other formats than bf16 in f32, too.
fn is_in_f32(job: &Job, cluster: &Cluster) -> bool {
    let precision = job.train.as_ref().map(|train| train.precision);
    match precision {
        None | Some(Precision::Bf16) => false,
        Some(Precision::F32) => true,
        Some(Precision::Fp16 | Precision::Fp8) => cluster.cores.is_some(),
    }
}

const NO_OP_LATENCY: &str = "operations start in no time: the cluster has no op_latency_us";
const NO_LINK_LATENCY: &str = "collectives start in no time: the cluster has no link_latency_us";

/// Assumptions in place of rates that the cluster has not.
fn assumed(cluster: &Cluster, is_f32: bool) -> Vec<&'static str> {
    let shares = cluster.cores.is_some();
    let all = [
        (
            is_f32 && cluster.matrix_f32.is_none(),
            "products of f32 at the rate of 16 bits: the cluster has no matrix_f32_tflops",
        ),
        (shares && cluster.op_latency == 0.0, NO_OP_LATENCY),
        (shares && cluster.link_latency == 0.0, NO_LINK_LATENCY),
    ];
    let all = all.into_iter().filter(|(is_assumed, _)| *is_assumed);
    all.map(|(_, text)| text).collect()
}

/// The same for a server, whose steps are short: their starts count on any device.
fn assumed_of_a_server(cluster: &Cluster, is_f32: bool) -> Vec<&'static str> {
    let mut all = assumed(cluster, is_f32);
    if cluster.cores.is_none() && cluster.op_latency == 0.0 {
        all.push(NO_OP_LATENCY);
    }
    if cluster.cores.is_none() && cluster.link_latency == 0.0 {
        all.push(NO_LINK_LATENCY);
    }
    all
}

/// Trainings of the job with the layouts of all devices of `nodes` nodes of `cluster`, the fastest first; none if the planner does not
/// know times of the model, or no layout fits.
///
/// # Errors
/// Those of `Cluster::load`.
pub(super) fn ranked(job: &Job, cluster: &str, nodes: Nodes) -> Result<Vec<Plan>, LoadError> {
    let cluster = Cluster {
        nodes: nodes.count,
        devices_per_node: nodes.ranks_per_node,
        ..Cluster::load(cluster)?
    };
    let cluster = match is_in_f32(job, &cluster) {
        true => cluster.clone().in_f32().unwrap_or(cluster),
        false => cluster,
    };
    let Ok(asked) = of_model(job, &cluster, cluster.devices(), None) else {
        return Ok(Vec::new());
    };
    let (planned, _) = accepted(job, &asked, search(&asked));
    let plans = planned
        .iter()
        .filter_map(|of| plan_of(job, &asked, &of.layout));
    Ok(plans.collect())
}

/// Nodes to plan for.
pub(super) struct Nodes {
    pub count: usize,
    pub ranks_per_node: usize,
}

fn asked<'a>(job: &Job, cluster: &'a Cluster, args: &PlanArgs) -> Result<Asked<'a>, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut problem = |key: &str, found: &str, wanted: &str| {
        problems.push(Problem {
            key: key.into(),
            found: found.into(),
            wanted: wanted.into(),
        });
    };
    let devices = args.devices.unwrap_or(cluster.devices());
    let per_node = cluster.devices_per_node;
    let is_whole = devices < per_node || devices.is_multiple_of(per_node);
    if devices == 0 || devices > cluster.devices() || !is_whole {
        let wanted = format!(
            "up to {} in whole nodes of {per_node}, or a part of one",
            cluster.devices()
        );
        problem("--devices", &devices.to_string(), &wanted);
    }
    if args.trials.is_given() && devices > per_node {
        let wanted = format!("--devices of at most {per_node}: layouts are run on one machine");
        problem("--run", &format!("layouts of {devices} devices"), &wanted);
    }
    let found = of_model(job, cluster, devices, args.vocab);
    match (found, problems.is_empty()) {
        (Ok(asked), true) => Ok(Asked {
            may_be_fewer: cluster.cores.is_some() && args.devices.is_none(),
            ..asked
        }),
        (found, _) => {
            problems.extend(found.err().into_iter().flatten());
            Err(problems)
        }
    }
}

/// The question for all layouts of the job's model on `devices` devices, or the reasons why it cannot be planned.
fn of_model<'a>(
    job: &Job,
    cluster: &'a Cluster,
    devices: usize,
    vocab: Option<usize>,
) -> Result<Asked<'a>, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut problem = |key: &str, found: &str, wanted: &str| {
        problems.push(Problem {
            key: key.into(),
            found: found.into(),
            wanted: wanted.into(),
        });
    };
    if job.train.is_none() {
        problem("train", "nothing", "global_batch and steps");
    }
    let seq_length = job.blend.as_ref().map_or(0, |blend| blend.seq_length);
    if seq_length == 0 {
        problem("blend.seq_length", "nothing", "tokens of a sequence");
    }
    let shape = shape(job, vocab, &mut problems);
    let (Some(shape), Some(train), true) = (shape, &job.train, problems.is_empty()) else {
        return Err(problems);
    };
    Ok(Asked {
        shape,
        cluster,
        devices,
        may_be_fewer: false,
        global_batch: train.global_batch,
    })
}

/// The shape of the job's model; `None`, or with more problems, if it cannot be planned.
fn shape(job: &Job, vocab: Option<usize>, problems: &mut Vec<Problem>) -> Option<Shape> {
    let mut problem = |key: &str, found: &str, wanted: &str| {
        problems.push(Problem {
            key: key.into(),
            found: found.into(),
            wanted: wanted.into(),
        });
    };
    if let Some(vocab) = vocab.filter(|vocab| !(1..=MOST_VOCAB).contains(vocab)) {
        problem("--vocab", &vocab.to_string(), &format!("1 to {MOST_VOCAB}"));
    }
    let Some(model) = &job.model else {
        problem("model", "nothing", "the model to plan");
        return None;
    };
    if model.moe.is_some() {
        let wanted = "a dense model: times of mixtures are not planned";
        problem("model.moe", "a mixture", wanted);
    }
    if model.has_latents() {
        let wanted = "a model without latents: their times are not planned";
        problem("model.multi_latent_attention", "true", wanted);
    }
    if matches!(model.family, Family::Bert | Family::T5) {
        let family = format!("{:?}", model.family).to_lowercase();
        problem("model.family", &family, "a decoder");
    }
    let trained = job
        .tokenize
        .as_ref()
        .and_then(|t| t.tokenizer.train.as_ref());
    Some(Shape {
        layers: model.layers,
        width: model.d_model,
        heads: model.heads,
        kv_heads: model.kv_heads(),
        head_dim: model.d_head(),
        ffn: model.d_ffn(),
        is_gated: model.is_gated(),
        vocab: vocab.or(trained.map(|t| t.vocab)).unwrap_or(50_304),
        is_tied: model.is_tied(),
        seq_length: job.blend.as_ref().map_or(0, |blend| blend.seq_length),
        is_fused: true,
    })
}

/// The reason why a layout trains as another one that is planned.
fn same_as_another(job: &Job, layout: &Layout) -> Option<String> {
    let is_cut = layout.cp > 1 && layout.micro_batch > 1;
    let is_same = is_cut && job.determinism == Determinism::Layout && job.device == DeviceKind::Cpu;
    is_same.then(|| {
        "as micro_batch = 1: with determinism = \"layout\", parts of sequences are summed one sequence at a time".into()
    })
}

/// Moves the layouts that `train` would refuse to the rejected ones.
fn accepted(
    job: &Job,
    asked: &Asked<'_>,
    (planned, mut rejected): (Vec<Planned>, Vec<Rejected>),
) -> (Vec<Planned>, Vec<Rejected>) {
    let mut kept = Vec::new();
    for of in planned {
        let plan = plan_of(job, asked, &of.layout);
        let problem = (plan.as_ref()).and_then(|plan| plan.problems().into_iter().next());
        let problem = problem.or_else(|| same_as_another(job, &of.layout));
        let bytes = plan.and_then(|plan| shared_bytes(asked, &plan));
        let lacks = bytes.filter(|bytes| *bytes > asked.cluster.memory);
        match (problem, lacks) {
            (None, None) => kept.push(of),
            (Some(reason), _) => rejected.push(Rejected {
                layout: of.layout,
                reason,
                bytes: None,
            }),
            (None, Some(_)) => rejected.push(Rejected {
                layout: of.layout,
                reason: "does not fit in the memory that the ranks share".into(),
                bytes: lacks,
            }),
        }
    }
    (kept, rejected)
}

/// Bytes that the ranks of a node hold together, where they share its memory.
fn shared_bytes(asked: &Asked<'_>, plan: &Plan) -> Option<f64> {
    asked.cluster.cores?;
    let stages = predict_stages(plan).ok()?;
    let of_stage = plan.parallel.world() / plan.parallel.pp;
    let bytes: usize = stages.iter().map(|rank| rank.total()).sum();
    let nodes = plan
        .parallel
        .world()
        .div_ceil(asked.cluster.devices_per_node);
    Some((of_stage * bytes) as f64 / nodes as f64)
}

/// The job's training with a layout.
fn plan_of(job: &Job, asked: &Asked<'_>, layout: &Layout) -> Option<Plan> {
    let (model, mut train) = (job.model.clone()?, job.train.clone()?);
    train.micro_batch = layout.micro_batch;
    train.recompute = match layout.recompute {
        Recompute::None => train::config::Recompute::None,
        Recompute::Selective => train::config::Recompute::Selective,
        Recompute::Full => train::config::Recompute::Full,
    };
    Some(Plan {
        model,
        parallel: ParallelConfig {
            tp: layout.tp,
            cp: layout.cp,
            pp: layout.pp,
            dp: layout.dp,
            virtual_stages: layout.chunks,
            count_embedding: layout.counts_ends,
            count_head: layout.counts_ends,
            sequence: layout.is_sequence_parallel,
            zero: layout.zero,
            ranks_per_node: asked.cluster.devices_per_node.min(layout.devices()),
            ..ParallelConfig::default()
        },
        train,
        vocab: asked.shape.vocab,
        seq_length: asked.shape.seq_length,
        decoder_length: 0,
        predictions: 0,
        start: None,
        eod: None,
        seed: u64::from(job.seed),
        determinism: job.determinism,
        fingerprint: String::new(),
    })
}

/// The answer of `plan` to a question.
struct Answer<'a> {
    job: &'a Job,
    asked: &'a Asked<'a>,
    planned: &'a [Planned],
    /// Layouts that fit, of which `planned` are the fastest.
    fitting: usize,
    rejected: &'a [Rejected],
    /// In place of rates that the cluster has not.
    assumed: Vec<&'static str>,
}

/// Training as a whole with the fastest layout.
struct Training {
    steps: u64,
    tokens: f64,
    seconds: f64,
    /// Bytes of a checkpoint: weights and two moments in f32.
    checkpoint: f64,
    kwh: Option<f64>,
    price: Option<f64>,
    failures: Option<f64>,
    /// Seconds between checkpoints that lose least (Young 1974, CACM 17(9)).
    interval: Option<f64>,
}

impl Answer<'_> {
    fn training(&self, best: &Planned) -> Training {
        let cluster = self.asked.cluster;
        let steps = self.job.train.as_ref().map_or(0, |train| train.steps);
        let devices = best.layout.devices() as f64;
        let seconds = steps as f64 * best.time.total;
        let checkpoint = 12.0 * self.asked.shape.parameters();
        let per_second = cluster
            .failures_per_year
            .map(|f| f * devices / (365.0 * 86_400.0));
        let written = cluster.checkpoint_rate.map(|rate| checkpoint / rate);
        Training {
            steps,
            tokens: steps as f64 * self.tokens_per_step(),
            seconds,
            checkpoint,
            kwh: cluster.watts.map(|watts| watts * devices * seconds / 3.6e6),
            price: cluster
                .price_per_hour
                .map(|price| price * devices * seconds / 3600.0),
            failures: per_second.map(|rate| rate * seconds),
            interval: per_second
                .zip(written)
                .map(|(rate, written)| (2.0 * written / rate).sqrt()),
        }
    }

    fn tokens_per_step(&self) -> f64 {
        (self.asked.global_batch * self.asked.shape.seq_length) as f64
    }

    /// Model FLOP/s per device, counting half of the scores as the kernel computes them.
    fn flops(&self, of: &Planned) -> f64 {
        let flop = self
            .asked
            .shape
            .model_flop(self.asked.global_batch as f64, 0.5);
        flop / (of.time.total * of.layout.devices() as f64)
    }

    /// Bytes that Millrace itself holds on the fullest rank, as `train` predicts them.
    fn exact(&self, layout: &Layout) -> Option<usize> {
        let stages = predict_stages(&plan_of(self.job, self.asked, layout)?).ok()?;
        stages.iter().map(|rank| rank.total()).max()
    }

    /// Numbers of rejected layouts by reason: rules of `train` by their key, others without their numbers.
    fn reasons(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for of in self.rejected {
            let reason = match of.reason.split_once(": found") {
                Some((key, _)) => format!("a rule of {key}"),
                None => {
                    let words = of.reason.split_whitespace();
                    let is_number = |word: &str| word.parse::<usize>().is_ok();
                    let words: Vec<&str> = words.filter(|word| !is_number(word)).collect();
                    words.join(" ")
                }
            };
            *counts.entry(reason).or_default() += 1;
        }
        counts
    }

    /// The layout that lacks least memory, of those that lack some.
    fn nearest(&self) -> Option<&Rejected> {
        let lacking = self.rejected.iter().filter(|of| of.bytes.is_some());
        lacking.min_by(|a, b| a.bytes.unwrap_or(0.0).total_cmp(&b.bytes.unwrap_or(0.0)))
    }

    fn to_json(&self) -> Value {
        let gb = |bytes: f64| bytes / 1e9;
        let planned: Vec<Value> = self.planned.iter().map(|of| {
            json!({
                "layout": of.layout.to_json(), "step_s": of.time.total, "tokens_per_s": self.tokens_per_step() / of.time.total,
                "model_tflops_per_device": self.flops(of) / 1e12,
                "memory_gb": {
                    "weights": gb(of.memory.weights), "gradients": gb(of.memory.gradients),
                    "optimizer": gb(of.memory.optimizer), "millrace": self.exact(&of.layout).map(|bytes| gb(bytes as f64)),
                    "activations": gb(of.memory.activations), "total": gb(of.memory.total()),
                },
                "seconds": {
                    "bubble": of.time.bubble, "collectives": of.time.collectives, "reduction": of.time.reduction,
                    "optimizer": of.time.optimizer,
                },
            })
        }).collect();
        let rejected: Vec<Value> = self
            .rejected
            .iter()
            .map(|of| {
                json!({"layout": of.layout.to_json(), "reason": of.reason, "memory_gb": of.bytes.map(gb)})
            })
            .collect();
        let training = self.planned.first().map(|best| {
            let of = self.training(best);
            json!({
                "steps": of.steps, "tokens": of.tokens, "seconds": of.seconds, "checkpoint_gb": gb(of.checkpoint), "kwh": of.kwh,
                "price": of.price, "failures": of.failures, "checkpoint_interval_s": of.interval,
            })
        });
        let best = self.planned.first();
        json!({
            "cluster": self.asked.cluster.name, "devices": self.asked.devices,
            "parameters": self.asked.shape.parameters(), "layouts_that_fit": self.fitting, "layouts": planned,
            "training": training, "rejected": rejected, "assumed": self.assumed,
            "toml": best.map(|best| best.layout.to_toml(self.asked.cluster.devices_per_node)),
        })
    }

    fn to_text(&self) -> String {
        let parameters = self.asked.shape.parameters();
        let count = match parameters < 1e8 {
            true => format!("{:.2}M", parameters / 1e6),
            false => format!("{:.2}B", parameters / 1e9),
        };
        let mut text = format!(
            "{} on {} devices of {}: {count} parameters, {} tokens a step; {} layouts fit, {} do not\n",
            self.job.name,
            self.asked.devices,
            self.asked.cluster.name,
            self.tokens_per_step(),
            self.fitting,
            self.rejected.len(),
        );
        self.write(&mut text)
            .unwrap_or_else(|_| unreachable!("a string takes all text"));
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        if let Some(best) = self.planned.first() {
            writeln!(
                text,
                "\n{}   step s  TFLOP/s    GB  Millrace GB",
                Layout::HEADS
            )?;
            // a core does less than one TFLOP/s
            let digits = if self.asked.cluster.cores.is_some() {
                4
            } else {
                0
            };
            for of in self.planned {
                let l = &of.layout;
                writeln!(
                    text,
                    "{}{:>9.3}{:>9.*}{:>6.1} {:>12}",
                    l.columns(),
                    of.time.total,
                    digits,
                    self.flops(of) / 1e12,
                    of.memory.total() / 1e9,
                    match self.exact(l) {
                        Some(bytes) if bytes as f64 > self.asked.cluster.memory => {
                            format!("{:.1}, no", bytes as f64 / 1e9)
                        }
                        Some(bytes) => format!("{:.1}", bytes as f64 / 1e9),
                        None => "-".into(),
                    },
                )?;
            }
            self.write_best(text, best)?;
        }
        for assumption in &self.assumed {
            writeln!(text, "assumed: {assumption}")?;
        }
        text.push_str("\nlayouts that were rejected, by reason:\n");
        for (reason, count) in self.reasons() {
            writeln!(text, "{count:>8}  {reason}")?;
        }
        if self.planned.is_empty()
            && let Some(nearest) = self.nearest()
        {
            let l = &nearest.layout;
            writeln!(
                text,
                "nearest: tp {} cp {} pp {} dp {} micro-batch {} ZeRO {} recompute {} needs {:.1} GB of {:.1}; take more devices, or a smaller model",
                l.tp,
                l.cp,
                l.pp,
                l.dp,
                l.micro_batch,
                l.zero,
                l.recompute.name(),
                nearest.bytes.unwrap_or(0.0) / 1e9,
                self.asked.cluster.memory / 1e9,
            )?;
        }
        Ok(())
    }

    fn write_best(&self, text: &mut String, best: &Planned) -> std::fmt::Result {
        let (time, memory) = (&best.time, &best.memory);
        let share = |part: f64| 100.0 * part / time.total;
        writeln!(
            text,
            "\nfastest: bubble {:.1}%, collectives {:.1}%, reduction of gradients {:.1}%, optimizer {:.1}% of {:.3} s",
            share(time.bubble),
            share(time.collectives),
            share(time.reduction),
            share(time.optimizer),
            time.total,
        )?;
        writeln!(
            text,
            "memory of the fullest rank: weights {:.1} GB, gradients {:.1}, optimizer {:.1}, activations {:.1}",
            memory.weights / 1e9,
            memory.gradients / 1e9,
            memory.optimizer / 1e9,
            memory.activations / 1e9,
        )?;
        let training = self.training(best);
        writeln!(
            text,
            "training: {} steps, {:.3e} tokens, {}; checkpoint {:.0} GB",
            training.steps,
            training.tokens,
            duration(training.seconds),
            training.checkpoint / 1e9,
        )?;
        let mut known = |value: Option<f64>, line: &dyn Fn(f64) -> String, key: &str| match value {
            Some(value) => writeln!(text, "{}", line(value)),
            None => writeln!(text, "not known: the cluster has no {key}"),
        };
        known(
            training.kwh,
            &|kwh| format!("energy: {:.1} MWh", kwh / 1e3),
            "watts",
        )?;
        known(
            training.price,
            &|price| format!("price: {price:.0}"),
            "price_per_hour",
        )?;
        known(
            training.failures,
            &|count| format!("expected failures: {count:.1}"),
            "failures_per_year",
        )?;
        known(
            training.interval,
            &|seconds| format!("checkpoint every {}", duration(seconds)),
            "checkpoint_gb_s",
        )?;
        // the chart is of ranks that each have a core
        let ranks = best
            .layout
            .devices()
            .min(self.asked.cluster.devices_per_node);
        if best.layout.pp > 1 && self.asked.cluster.turns(ranks) == 1.0 {
            let gantt = Gantt::new(&best.layout, time);
            write!(
                text,
                "\npipeline of a step, {:.3} s (F forward, B backward):\n{gantt}",
                gantt.span()
            )?;
        }
        let toml = best.layout.to_toml(self.asked.cluster.devices_per_node);
        write!(text, "\n{toml}")
    }
}

/// The model of a size.
fn sized(size: f64, tokens: Option<f64>, is_json: bool) -> Result<()> {
    let Some(of) = model_of(size) else {
        bail!(
            "no shape for {size:.3e} parameters: the tables end at 1.1e12, and small sizes need at least a layer of 768"
        );
    };
    let tokens = tokens.unwrap_or(chinchilla_tokens(of.parameters));
    let shape = &of.shape;
    let steps = (tokens / (of.global_batch * shape.seq_length) as f64).ceil();
    if is_json {
        let value = json!({
            "parameters": of.parameters, "layers": shape.layers, "d_model": shape.width, "heads": shape.heads, "lr": of.lr,
            "min_lr": of.lr / 10.0, "init_std": of.init_std, "global_batch": of.global_batch, "seq_length": shape.seq_length,
            "tokens": tokens, "steps": steps,
        });
        return print(&format!("{value}\n"));
    }
    print(&format!(
        "# {:.3e} parameters, {tokens:.3e} tokens\n[blend]\nseq_length = {}\n\n[model]\nfamily = \"gpt\"\nlayers = {}\nd_model = {}\nheads = {}\ninit_std = {:.6}\n\n[train]\nsteps = {steps}\nglobal_batch = {}\nlr = {:e}\nmin_lr = {:e}\nwarmup_steps = {}\n",
        of.parameters,
        shape.seq_length,
        shape.layers,
        shape.width,
        shape.heads,
        of.init_std,
        of.global_batch,
        of.lr,
        of.lr / 10.0,
        // 0.15% of the steps
        (0.0015 * steps).ceil(),
    ))
}

/// Published rows and the planner's.
fn tables(rows: &[Row], is_json: bool) -> Result<()> {
    let mut text = String::new();
    for row in rows {
        if is_json {
            writeln!(text, "{}", serde_json::to_string(row)?)?;
            continue;
        }
        let found = match (&row.refused, row.predicted_s, row.error) {
            (None, Some(seconds), Some(error)) => {
                format!("{seconds:>8.2} s {:>+6.1}%", 100.0 * error)
            }
            (reason, ..) => format!("refused: {}", reason.as_deref().unwrap_or("no time")),
        };
        let notes = match (row.fits, row.fitted) {
            (false, _) if row.refused.is_none() => "does not fit",
            (_, true) => "fitted",
            _ => "",
        };
        writeln!(
            text,
            "{:<26} {:<44} {:>6} {:>8.2} s {found} {notes}",
            row.source, row.row, row.gpus, row.published_s
        )?;
    }
    if !is_json {
        for (kind, is_fitted) in [("fitted", true), ("unseen", false)] {
            let errors: Vec<f64> = rows
                .iter()
                .filter(|row| row.fitted == is_fitted)
                .filter_map(|row| row.error.map(f64::abs))
                .collect();
            let mean = errors.iter().sum::<f64>() / errors.len().max(1) as f64;
            let worst = errors.iter().copied().fold(0.0, f64::max);
            writeln!(
                text,
                "{kind}: {} rows, mean error {:.1}%, worst {:.1}%",
                errors.len(),
                100.0 * mean,
                100.0 * worst
            )?;
        }
    }
    print(&text)
}
