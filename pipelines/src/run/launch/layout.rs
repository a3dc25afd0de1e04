//! Layout of an attempt: the job's own on all of its nodes, the planner's best one on fewer.
//!
//! A smaller layout is taken only with `determinism = "layout"`, so the bits are those of the job's own.

use crate::job::{Job, LoadError, Nodes};
use crate::run::plan;
use serde_json::{Value, json};
use train::config::{ParallelConfig, Plan, Recompute};

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
    Ok(all.chain(fewer).find(|choice| is_valid(job, choice)))
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
