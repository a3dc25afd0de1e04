//! `plan`: the fastest layouts of a job's model on a cluster, or the planner's times beside published ones.

use super::plan_answer::Answer;
use super::plan_page::Page;
use super::plan_question::{
    accepted, check_run, devices_that_fit, is_in_f32, is_in_fp8, of_model, other_precisions,
    plan_of, served, shape, windowed, with_dualpipe, with_offload,
};
use super::plan_serving::{Printed, Server, ServingArgs};
use super::plan_table;
use super::plan_training::parameters;
use super::plan_trials::{self, TrialArgs};
use crate::flag_numbers::positive;
use crate::job::{self, Job, LoadError, Problem, WrongUse};
use crate::log::print;
use crate::plan::{Asked, Cluster, Row, SizedKind, check_tables, model_of, parse_count, search};
use anyhow::{Result, bail};
use clap::Args;
use serde_json::json;
use std::cell::OnceCell;
use std::fmt::Write as _;
use std::path::PathBuf;
use train::config::Plan;

#[derive(Args)]
pub(crate) struct PlanArgs {
    /// Job file (TOML) with a model and its training.
    #[arg(required_unless_present_any = ["check_tables", "size"], requires = "cluster")]
    job: Option<PathBuf>,
    /// Override one key of the job.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Cluster file, or dgx-a100, dgx-h100, dgx-h200, dgx-b200, h800.
    #[arg(long, value_name = "NAME|FILE")]
    cluster: Option<String>,
    /// Devices to use. Default: all of the cluster.
    #[arg(long, value_parser = positive)]
    devices: Option<usize>,
    /// Rows of embedding and head. Default: tokenize.tokenizer.train.vocab, or 50304.
    #[arg(long)]
    vocab: Option<usize>,
    /// Search bf16, f32 and fp8, as far as the cluster has their rates, beside the job's own precision.
    #[arg(long, conflicts_with_all = ["check_tables", "size", "serve"])]
    search_precision: bool,
    /// Show layouts with the optimizer's state in host memory (ZeRO-Offload) as well, where device memory does not suffice: an estimate,
    /// as Millrace does not train so.
    #[arg(long, conflicts_with_all = ["check_tables", "size", "serve"])]
    offload: bool,
    /// Show layouts of a mixture of experts with DualPipe as well, which hides all-to-alls behind the computation of another micro-batch
    /// (DeepSeek-V3): an estimate, as Millrace does not train so.
    #[arg(long, conflicts_with_all = ["check_tables", "size", "serve"])]
    dualpipe: bool,
    /// Layouts to show.
    #[arg(long, default_value_t = 10, value_parser = positive)]
    top: usize,
    /// Print the times of published runs beside the planner's, and stop.
    #[arg(long, conflicts_with = "job")]
    check_tables: bool,
    /// Print the shape, learning rate and number of tokens of a model with this many parameters (5B, 350M), and stop.
    #[arg(long, conflicts_with_all = ["job", "check_tables"], value_parser = parse_count)]
    size: Option<f64>,
    /// Kind of the model of --size. Default: gpt.
    #[arg(long, value_enum, requires = "size")]
    kind: Option<SizedKind>,
    /// Tokens of its training (300B). Default: 20 per parameter (Hoffmann et al. 2022); of t5, mt5 and bert those of their papers.
    #[arg(long, requires = "size", value_parser = parse_count)]
    tokens: Option<f64>,
    #[command(flatten)]
    serving: ServingArgs,
    #[command(flatten)]
    trials: TrialArgs,
    /// Print JSON to stdout.
    #[arg(long)]
    json: bool,
    /// Write the answer as a page of its own as well: one HTML file without scripts that needs no network.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["check_tables", "size"])]
    html: Option<PathBuf>,
}

impl PlanArgs {
    /// # Errors
    /// `WrongUse` for flags that have no meaning beside the others: clap does not ask for one that a flag requires where that conflicts with
    /// another flag.
    fn check(&self) -> Result<(), WrongUse> {
        if let Some(flag) = self.serving.without_serve() {
            let message =
                format!("{flag} goes with --serve, which plans a server of the job's model");
            return Err(WrongUse::new(message));
        }
        if self.serving.is_given() && self.devices.is_some() {
            return Err(WrongUse::new(
                "--devices does not go with --serve, which looks at every number of devices of a node, and for experts of whole nodes",
            ));
        }
        let given = [
            ("--set", !self.set.is_empty()),
            ("--cluster", self.cluster.is_some()),
            ("--devices", self.devices.is_some()),
            ("--vocab", self.vocab.is_some()),
        ];
        let with = match (self.check_tables, self.size) {
            (true, _) => "--check-tables, whose runs have their own clusters and models",
            (false, Some(_)) => {
                "--size, whose models have the ids of its tables and which are planned for no cluster: put its answer into a job, and plan that"
            }
            (false, None) => {
                return match (self.tokens, self.kind) {
                    (Some(_), _) => Err(WrongUse::new(
                        "--tokens goes with --size; the tokens of a job are train.steps * train.global_batch * blend.seq_length",
                    )),
                    (None, Some(_)) => Err(WrongUse::new(
                        "--kind goes with --size; that of a job is model.family",
                    )),
                    (None, None) => Ok(()),
                };
            }
        };
        if self.check_tables && self.tokens.is_some() {
            return Err(WrongUse::new("--tokens goes with --size"));
        }
        if self.check_tables && self.kind.is_some() {
            return Err(WrongUse::new("--kind goes with --size"));
        }
        match given.iter().find(|(_, is_given)| *is_given) {
            Some((flag, _)) => Err(WrongUse::new(format!("{flag} does not go with {with}"))),
            None => Ok(()),
        }
    }
}

/// The verb.
pub(crate) fn plan(args: &PlanArgs) -> Result<()> {
    args.check()?;
    if args.check_tables {
        return tables(&check_tables()?, args.json);
    }
    if let Some(size) = args.size {
        let kind = args.kind.unwrap_or(SizedKind::Gpt);
        return sized(kind, size, args.tokens, args.json);
    }
    let (Some(path), Some(cluster)) = (&args.job, &args.cluster) else {
        bail!("plan needs a job and --cluster");
    };
    args.trials.check()?;
    let page = args.html.as_deref().map(Page::new).transpose()?;
    let job: Job = job::load(path, &args.set)?;
    let file = cluster;
    let mut cluster = Cluster::load(file)?;
    let others = other_precisions(&job, &cluster);
    let is_f32 = is_in_f32(&job, &cluster);
    if is_f32 {
        let resolved = cluster.in_f32();
        cluster = resolved.map_err(|problem| LoadError::problems(file.into(), vec![problem]))?;
    }
    if args.serving.is_given() {
        let mut problems = Vec::new();
        let shape = shape(&job, args.vocab, &mut problems);
        args.serving.check(shape.as_ref(), &mut problems);
        let (Some(shape), true) = (shape, problems.is_empty()) else {
            return Err(LoadError::problems(path.clone(), problems).into());
        };
        let tokens = args.serving.tokens().iter().sum();
        let plan = served(&job, &shape, tokens);
        let server = Server {
            name: &job.name,
            shape,
            parameters: parameters(&shape, plan.as_ref()),
            windowed: windowed(&job),
            cluster: &cluster,
            assumed: assumed(&cluster, is_f32),
        };
        let to = Printed {
            is_json: args.json,
            page: page.as_ref(),
        };
        return args.serving.run(server, &to);
    }
    let is_fp8 = is_in_fp8(&job, &cluster);
    if is_fp8 {
        cluster = cluster.in_fp8();
    }
    let asked = asked(&job, &cluster, args)
        .map_err(|problems| LoadError::problems(path.clone(), problems))?;
    let asked = Asked {
        others: &others,
        searches_precision: args.search_precision,
        ..asked
    };
    let (planned, rejected) = accepted(&job, &asked, search(&asked));
    // where nothing fits for want of memory it is a way out, whether it was asked for or not
    let lacks_memory = rejected.iter().any(|of| of.bytes.is_some());
    let may_offload =
        args.offload || (planned.is_empty() && lacks_memory && cluster.cores.is_none());
    let offloaded = may_offload.then(|| with_offload(&job, &asked, &rejected));
    let dual = args
        .dualpipe
        .then(|| with_dualpipe(&job, &asked, &planned, &rejected));
    let others_that_fit = match planned.is_empty() {
        true => devices_that_fit(&job, &asked, lacks_memory),
        false => Vec::new(),
    };
    let answer = Answer {
        job: &job,
        devices_that_fit: others_that_fit,
        asked: &asked,
        planned: &planned,
        top: args.top,
        rejected: &rejected,
        offloaded: offloaded.as_deref(),
        dual: dual.as_deref(),
        assumed: {
            let mut all = assumed(&cluster, is_f32);
            if is_fp8 && cluster.matrix_fp8.is_none() {
                all.push(NO_FP8_RATE);
            }
            all
        },
        held: OnceCell::new(),
        place: OnceCell::new(),
    };
    if !args.json {
        print(&answer.to_text())?;
    }
    // before layouts are run, which may take hours
    let summary = page.as_ref().map(|page| page.plan(&answer)).transpose()?;
    let trials = match args.trials.is_given() && !planned.is_empty() {
        true => Some(plan_trials::run(&job, &planned, &args.trials, |of| {
            plan_of(&job, &asked, &of.layout)
        })?),
        false => None,
    };
    let run = (trials.as_ref()).map(|trials| plan_table::to_json(trials, &planned, &asked));
    if let (Some(page), Some(summary), Some(run)) = (&page, summary, &run) {
        page.with_trials(&answer, summary, run)?;
    }
    if args.json {
        let mut value = answer.to_json();
        if let Some(run) = run {
            value["run"] = run;
        }
        print(&format!("{value}\n"))?;
    } else if let Some(trials) = &trials {
        print(&plan_table::to_text(trials, &planned, &asked))?;
    }
    if let Some(refusal) = answer.refusal() {
        bail!("{refusal}");
    }
    match trials {
        Some(trials) => trials.end(),
        None => Ok(()),
    }
}

const NO_FP8_RATE: &str =
    "products of 8 bits at the rate of 16: the cluster has no matrix_fp8_tflops";
const NO_OP_LATENCY: &str = "operations start in no time: the cluster has no op_latency_us";
const NO_REACHED: &str =
    "products reach as much of the rate as on A100: the cluster has no matrix_reached_tflops";
const NO_FP8_REACHED: &str = "products of 8 bits reach as much of the rate as those of 16 on A100: the cluster has no matrix_fp8_reached_tflops";
const NO_LINK_LATENCY: &str = "collectives start in no time: the cluster has no link_latency_us";

/// Assumptions in place of rates that the cluster has not.
fn assumed(cluster: &Cluster, is_f32: bool) -> Vec<&'static str> {
    let all = [
        (
            is_f32 && cluster.matrix_f32.is_none(),
            "products of f32 at the rate of 16 bits: the cluster has no matrix_f32_tflops",
        ),
        (
            !is_f32 && cluster.cores.is_none() && cluster.matrix_reached.is_none(),
            NO_REACHED,
        ),
        (
            cluster.matrix_of_layers.is_some() && cluster.matrix_fp8_reached.is_none(),
            NO_FP8_REACHED,
        ),
        (cluster.op_latency == 0.0, NO_OP_LATENCY),
        (cluster.link_latency == 0.0, NO_LINK_LATENCY),
    ];
    let all = all.into_iter().filter(|(is_assumed, _)| *is_assumed);
    all.map(|(_, text)| text).collect()
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
        false if is_in_fp8(job, &cluster) => cluster.in_fp8(),
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
    if args.trials.is_given() {
        check_run(job, &mut problems);
    }
    if args.offload && cluster.cores.is_some() {
        problems.push(Problem {
            key: "--offload".into(),
            found: "a cluster with cores".into(),
            wanted: "devices with memory of their own: that of cores is the host's".into(),
        });
    }
    let is_mixture = job.model.as_ref().is_some_and(|model| model.moe.is_some());
    if args.dualpipe && !(is_mixture && cluster.cores.is_none()) {
        problems.push(Problem {
            key: "--dualpipe".into(),
            found: match is_mixture {
                true => "a cluster with cores",
                false => "a model without experts",
            }
            .into(),
            wanted:
                "a mixture of experts on devices of their own: its all-to-alls are what is hidden"
                    .into(),
        });
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

/// The model of a size.
fn sized(kind: SizedKind, size: f64, tokens: Option<f64>, is_json: bool) -> Result<()> {
    let Some(of) = model_of(kind, size) else {
        bail!(
            "no shape of {} for {size:.3e} parameters: its table ends at {:.4e}, and small sizes need at least a layer of {}",
            kind.family(),
            1e9 * kind.most_billions(),
            kind.least_width()
        );
    };
    let tokens = tokens.unwrap_or(kind.tokens(of.parameters as f64)).round();
    let shape = &of.shape;
    let steps = (tokens / (of.global_batch as f64 * shape.seq_length as f64)).ceil();
    let warmup = (of.warmup * steps).ceil();
    if is_json {
        let mut value = json!({
            "family": kind.family(), "vocab": shape.vocab,
            "parameters": of.parameters, "layers": shape.layers, "d_model": shape.width, "heads": shape.heads, "lr": of.lr,
            "min_lr": tenth(of.lr), "init_std": of.init_std, "global_batch": of.global_batch, "seq_length": shape.seq_length,
            "tokens": whole(tokens), "steps": whole(steps), "warmup_steps": whole(warmup),
        });
        if let Some(decoder) = shape.decoder {
            value["decoder_layers"] = decoder.layers.into();
            value["decoder_length"] = decoder.length.into();
            value["head_dim"] = shape.head_dim.into();
            value["d_ffn"] = shape.ffn.into();
        }
        return print(&format!("{value}\n"));
    }
    let samples = match kind {
        SizedKind::Gpt => String::new(),
        SizedKind::T5 | SizedKind::Mt5 | SizedKind::Bert => {
            format!("samples = \"{}\"\n", kind.family())
        }
    };
    let [of_blend, of_model] = match shape.decoder {
        None => [String::new(), String::new()],
        Some(decoder) => [
            format!("decoder_length = {}\n", decoder.length),
            format!(
                "activation = \"geglu_tanh\"\ndecoder_layers = {}\nhead_dim = {}\nd_ffn = {}\n",
                decoder.layers, shape.head_dim, shape.ffn
            ),
        ],
    };
    let init_std = of.init_std.map(|std| format!("init_std = {std:.6}\n"));
    print(&format!(
        "# {:.3e} parameters with {} ids, {tokens:.3e} tokens\n[blend]\n{samples}seq_length = {}\n{of_blend}\n[model]\nfamily = \"{}\"\nlayers = {}\nd_model = {}\nheads = {}\n{of_model}{}\n[train]\nsteps = {steps}\nglobal_batch = {}\nlr = {:e}\nmin_lr = {:e}\nwarmup_steps = {warmup}\n",
        of.parameters as f64,
        shape.vocab,
        shape.seq_length,
        kind.family(),
        shape.layers,
        shape.width,
        shape.heads,
        init_std.unwrap_or_default(),
        of.global_batch,
        of.lr,
        tenth(of.lr),
    ))
}

/// A tenth of a number of a few digits, with as few.
fn tenth(number: f64) -> f64 {
    (number * 1e9).round() / 1e10
}

/// A number without a fraction, as JSON spells integers.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rounded and positive; above 2^64 the largest integer stands for it"
)]
fn whole(number: f64) -> u64 {
    number as u64
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
