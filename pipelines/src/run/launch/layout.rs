//! Layout of an attempt: the job's own on all of its nodes, the planner's best one on fewer.
//!
//! A smaller layout is taken only with `determinism = "layout"`, so the bits are those of the job's own.

use crate::job::{Job, LoadError, Nodes, Problem};
use crate::plan::Cluster;
use crate::run::plan;
use serde_json::{Value, json};
use train::config::{ParallelConfig, Plan, Recompute};
use train::dist::DeviceKind;
use train::trainer::memory::predict_stages;

/// The cluster whose rates rank layouts where the job names none.
const CLUSTER: &str = "dgx-h100";

/// The settings of a layout.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Choice {
    pub parallel: ParallelConfig,
    pub micro_batch: usize,
    pub recompute: Recompute,
    pub recompute_layers: Vec<usize>,
}

impl Choice {
    /// The job's own.
    pub(super) fn of_job(job: &Job) -> Option<Choice> {
        let train = job.train.as_ref()?;
        Some(Choice {
            parallel: job.parallel.clone(),
            micro_batch: train.micro_batch,
            recompute: train.recompute,
            recompute_layers: train.recompute_layers.clone(),
        })
    }

    fn of_plan(plan: Plan) -> Choice {
        Choice {
            parallel: plan.parallel,
            micro_batch: plan.train.micro_batch,
            recompute: plan.train.recompute,
            recompute_layers: plan.train.recompute_layers,
        }
    }

    /// The job with this layout.
    pub(super) fn in_job(&self, job: &Job) -> Job {
        let mut job = job.clone();
        job.parallel = self.parallel.clone();
        if let Some(train) = &mut job.train {
            train.micro_batch = self.micro_batch;
            train.recompute = self.recompute;
            train.recompute_layers = self.recompute_layers.clone();
        }
        job
    }

    /// `--set` arguments that give a job this layout.
    pub(super) fn sets(&self, job: &Job) -> Result<Vec<String>, toml::ser::Error> {
        if Choice::of_job(job).as_ref() == Some(self) {
            return Ok(Vec::new());
        }
        let set = |key: &str, value: toml::Value| format!("{key}={value}");
        Ok(vec![
            set("parallel", toml::Value::try_from(&self.parallel)?),
            set(
                "train.micro_batch",
                toml::Value::try_from(self.micro_batch)?,
            ),
            set("train.recompute", toml::Value::try_from(self.recompute)?),
            set(
                "train.recompute_layers",
                toml::Value::try_from(&self.recompute_layers)?,
            ),
        ])
    }

    /// The settings by the names of the job's keys.
    pub(super) fn to_json(&self) -> Value {
        let of = &self.parallel;
        json!({
            "tp": of.tp, "cp": of.cp, "pp": of.pp, "dp": of.dp, "ep": of.ep, "virtual_stages": of.virtual_stages,
            "zero": of.zero, "sequence": of.sequence, "micro_batch": self.micro_batch, "recompute": self.recompute,
            "recompute_layers": self.recompute_layers,
        })
    }
}

/// The layout of a training on `count` nodes; None if no layout that keeps the bits fits on them.
///
/// # Errors
/// The cluster of `nodes.cluster` cannot be read.
pub(super) fn choose(job: &Job, nodes: &Nodes, count: usize) -> Result<Option<Choice>, LoadError> {
    let own = Choice::of_job(job);
    if count == nodes.count {
        return Ok(own);
    }
    let ranks_per_node = job.parallel.world() / nodes.count;
    let planned = plan::ranked(
        job,
        cluster_of(nodes),
        plan::Nodes {
            count,
            ranks_per_node,
        },
    )?;
    let planned: Vec<Choice> = planned.into_iter().map(Choice::of_plan).collect();
    // the job's own micro-batch and recomputation were chosen for its memory; some layers or all of them are one choice
    let is_alike = |choice: &&Choice| {
        own.as_ref().is_some_and(|own| {
            choice.micro_batch == own.micro_batch
                && choice.recompute == own.recompute
                && (choice.recompute_layers == own.recompute_layers
                    || choice.recompute_layers.is_empty())
        })
    };
    let alike = planned.iter().filter(is_alike);
    let all = alike.chain(&planned).cloned();
    let fewer = own
        .clone()
        .and_then(|own| with_fewer_replicas(own, count * ranks_per_node));
    let most = most_bytes(job, nodes)?;
    let is_held = |choice: &Choice| {
        let Some(most) = most else {
            return true;
        };
        let plan = choice.in_job(job).rough_plan();
        let needed = plan.and_then(|plan| needed_bytes(&plan, job, nodes));
        needed.is_none_or(|needed| needed <= most)
    };
    Ok(all
        .chain(fewer)
        .find(|choice| is_valid(job, choice) && is_held(choice)))
}

/// Bytes that a training as Millrace holds it needs of a GPU, or else of a node; None of one that cannot be predicted.
fn needed_bytes(plan: &Plan, job: &Job, nodes: &Nodes) -> Option<f64> {
    let stages = predict_stages(plan).ok()?;
    let fullest = stages.iter().map(|stage| stage.fullest.total()).max()?;
    let of_node = job.parallel.world() / nodes.count.max(1);
    let together = match (job.device, nodes.gpus) {
        (DeviceKind::Cpu, _) => of_node,
        (DeviceKind::Cuda, 0) => 1,
        // ranks take turns on fewer GPUs
        (DeviceKind::Cuda, gpus) => of_node.div_ceil(gpus),
    };
    Some(fullest as f64 * together as f64)
}

/// Bytes that a GPU of the cluster, or else a node, has for its ranks; None if a job does not say. They are at least those of the job's
/// own layout: it trains there, so that a cluster in whose devices it does not fit has other ones.
fn most_bytes(job: &Job, nodes: &Nodes) -> Result<Option<f64>, LoadError> {
    let given = match (job.device, nodes.mem_mb) {
        (DeviceKind::Cuda, _) => Cluster::load(cluster_of(nodes))?.memory,
        (DeviceKind::Cpu, 0) => return Ok(None),
        (DeviceKind::Cpu, mem_mb) => mem_mb as f64 * MIB,
    };
    let plan = job.rough_plan();
    let own = plan.and_then(|plan| needed_bytes(&plan, job, nodes));
    Ok(Some(own.map_or(given, |own| own.max(given))))
}

const MIB: f64 = (1 << 20) as f64;

/// The problem of nodes with less memory than their ranks hold: the check of nodes before an attempt would leave out every one. A
/// vocabulary that only a tokenizer knows is not counted.
pub(super) fn memory_problem(job: &Job, nodes: &Nodes) -> Option<Problem> {
    let mut plan = job.rough_plan()?;
    let tokenize = job.tokenize.as_ref();
    if tokenize.is_none_or(|tokenize| tokenize.tokenizer.train.is_none()) {
        plan.vocab = 1;
    }
    let needed = match job.device {
        DeviceKind::Cpu => needed_bytes(&plan, job, nodes)? / MIB,
        DeviceKind::Cuda => return None,
    };
    let is_short = nodes.mem_mb > 0 && (nodes.mem_mb as f64) < needed;
    is_short.then(|| Problem {
        key: "nodes.mem_mb".into(),
        found: nodes.mem_mb.to_string(),
        wanted: format!(
            "at least {needed:.0} MiB, which the ranks of a node are predicted to hold"
        ),
    })
}

/// The name or file of the cluster that ranks smaller layouts.
pub(super) fn cluster_of(nodes: &Nodes) -> &str {
    match nodes.cluster.as_str() {
        "" => CLUSTER,
        named => named,
    }
}

/// The layout with as many data-parallel replicas as the ranks allow, for models whose times are not planned.
fn with_fewer_replicas(own: Choice, ranks: usize) -> Option<Choice> {
    let of_replica = own.parallel.world() / own.parallel.dp;
    let dp = ranks / of_replica;
    let is_whole = dp * of_replica == ranks && dp > 0;
    is_whole.then_some(Choice {
        parallel: ParallelConfig { dp, ..own.parallel },
        ..own
    })
}

/// Whether the job with this layout has no contradictions.
fn is_valid(job: &Job, choice: &Choice) -> bool {
    let mut job = choice.in_job(job);
    job.executor = crate::job::Executor::Local;
    let mut problems = Vec::new();
    job.check(&mut problems);
    problems.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(text: &str) -> Job {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job.toml");
        let text = format!(
            "name = 'x'\nout = 'o'\nexecutor = 'slurm'\n{text}\n[blend]\nseq_length = 32\n[[blend.dataset]]\nname = 'a'\n\
             prefix = 'a'\n[model]\nfamily = 'llama'\nlayers = 2\nd_model = 32\nheads = 4\nkv_heads = 2\n\
             [train]\nsteps = 4\nwarmup_steps = 1\nglobal_batch = 4\nmicro_batch = 1\n"
        );
        std::fs::write(&path, text).unwrap();
        crate::job::load(&path, &[]).unwrap()
    }

    #[test]
    fn fewer_nodes_get_a_layout_that_fits_their_ranks_and_three_that_divide_nothing_get_none() {
        let job = job("parallel = { dp = 4 }\nnodes = { count = 4, fewest = 1 }");
        let nodes = job.training_nodes().unwrap();
        let of = |count| choose(&job, &nodes, count).unwrap();
        assert_eq!(of(4), Choice::of_job(&job));
        for count in [1, 2] {
            let choice = of(count).unwrap();
            assert_eq!(choice.parallel.world(), count);
            assert_eq!(choice.micro_batch, 1);
            let sets = choice.sets(&job).unwrap();
            assert!(sets[0].starts_with("parallel={"), "{sets:?}");
        }
        // 3 divides neither 4 sequences, 4 heads nor 2 layers
        assert_eq!(of(3), None);
        assert_eq!(Choice::of_job(&job).unwrap().sets(&job).unwrap(), [""; 0]);
    }

    /// GPUs of every size between what the job's own layout needs and what one node would: none is given a layout that Millrace does not
    /// hold, and those of the largest size are given one.
    #[test]
    fn fewer_nodes_of_gpus_get_no_layout_that_they_do_not_hold() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gpus.toml");
        let mut job = job(
            "device = 'cuda'\nparallel = { dp = 4, zero = 3 }\nnodes = { count = 4, fewest = 1, gpus = 1 }",
        );
        job.model.as_mut().unwrap().d_model = 512;
        let fullest = |job: &Job| {
            let stages = predict_stages(&job.rough_plan().unwrap()).unwrap();
            stages
                .iter()
                .map(|stage| stage.fullest.total())
                .max()
                .unwrap() as f64
        };
        let own = fullest(&job);
        let alone = fullest(
            &with_fewer_replicas(Choice::of_job(&job).unwrap(), 1)
                .unwrap()
                .in_job(&job),
        );
        assert!(own < 0.8 * alone, "{own} {alone}");
        let mut found = Vec::new();
        for part in 0..=10 {
            let memory = own + (1.05 * alone - own) * f64::from(part) / 10.0;
            let cluster = format!(
                "name = 'x'\nnodes = 4\ndevices_per_node = 1\nmatrix_tflops = 1\nmemory_gb = {}\nmemory_gb_s = 1\n\
                 link_gb_s = 1\nnetwork_gb_s = 1\n",
                memory / 1e9
            );
            std::fs::write(&file, cluster).unwrap();
            let mut nodes = job.training_nodes().unwrap();
            nodes.cluster = file.to_str().unwrap().to_owned();
            let choice = choose(&job, &nodes, 1).unwrap();
            if let Some(choice) = &choice {
                let bytes = fullest(&choice.in_job(&job));
                assert!(
                    bytes <= 1.000_001 * memory,
                    "{choice:?}: {bytes} of {memory}"
                );
            }
            found.push(choice.is_some());
        }
        assert!(!found[0] && found[10], "{found:?}");
    }

    #[test]
    fn nodes_with_less_memory_than_their_ranks_hold_are_a_problem() {
        let mut job = job("parallel = { dp = 4 }\nnodes = { count = 2 }");
        let mut nodes = job.training_nodes().unwrap();
        let needed = needed_bytes(
            &Plan {
                vocab: 1,
                ..job.rough_plan().unwrap()
            },
            &job,
            &nodes,
        );
        let needed = needed.unwrap() / MIB;
        for (mem_mb, is_short) in [(needed - 1.0, true), (needed + 1.0, false), (0.0, false)] {
            nodes.mem_mb = format!("{mem_mb:.0}").parse().unwrap();
            assert_eq!(memory_problem(&job, &nodes).is_some(), is_short, "{mem_mb}");
        }
        nodes.mem_mb = 1;
        job.device = DeviceKind::Cuda;
        assert!(memory_problem(&job, &nodes).is_none());
    }

    #[test]
    fn a_mixture_is_planned_with_its_experts() {
        let mut job = job("parallel = { dp = 2, tp = 2 }\nnodes = { count = 2, fewest = 1 }");
        job.model.as_mut().unwrap().moe = Some(train::config::MoeConfig {
            experts: 2,
            ..Default::default()
        });
        let nodes = job.training_nodes().unwrap();
        let choice = choose(&job, &nodes, 1).unwrap().unwrap();
        assert_eq!(choice.parallel.world(), 2);
        assert!(choice.parallel.dp.is_multiple_of(choice.parallel.ep));
    }

    #[test]
    fn a_model_whose_times_are_not_planned_loses_replicas() {
        let mut job = job("parallel = { dp = 2, tp = 2 }\nnodes = { count = 2, fewest = 1 }");
        job.model.as_mut().unwrap().family = train::config::Family::Bert;
        let nodes = job.training_nodes().unwrap();
        let own = Choice::of_job(&job).unwrap();
        let smaller = with_fewer_replicas(own, 2).unwrap();
        assert_eq!((smaller.parallel.dp, smaller.parallel.tp), (1, 2));
        let planned = plan::ranked(
            &job,
            cluster_of(&nodes),
            plan::Nodes {
                count: 1,
                ranks_per_node: 2,
            },
        );
        assert!(planned.unwrap().is_empty());
    }
}
