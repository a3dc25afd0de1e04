//! Questions of a job to the planner: the shape of its model, the layouts that `train` accepts, and the training of a layout.

use crate::job::{Job, Problem};
use crate::plan::{Asked, Cluster, Layout, Mixture, Planned, Recompute, Rejected, Shape};
use train::config::{Determinism, Family, Plan, Precision};
use train::dist::DeviceKind;
use train::trainer::memory::predict_stages;

/// Most rows of an embedding: ids have 32 bits.
const MOST_VOCAB: usize = 1 << 32;

/// Whether the job's products are of f32: on a GPU only with that precision; a CPU multiplies other formats than bf16 in f32, too.
pub(super) fn is_in_f32(job: &Job, cluster: &Cluster) -> bool {
    let precision = job.train.as_ref().map(|train| train.precision);
    match precision {
        None | Some(Precision::Bf16) => false,
        Some(Precision::F32) => true,
        Some(Precision::Fp16 | Precision::Fp8) => cluster.cores.is_some(),
    }
}

/// The question for all layouts of the job's model on `devices` devices, or the reasons why it cannot be planned.
pub(super) fn of_model<'a>(
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
pub(super) fn shape(job: &Job, vocab: Option<usize>, problems: &mut Vec<Problem>) -> Option<Shape> {
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
    if model.has_latents() {
        let wanted = "a model without latents: their times are not planned";
        problem("model.multi_latent_attention", "true", wanted);
    }
    if model.mtp_num_layers > 0 {
        let wanted = "0: times of further depths are not planned";
        problem(
            "model.mtp_num_layers",
            &model.mtp_num_layers.to_string(),
            wanted,
        );
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
        mixture: model.moe.as_ref().map(|of| Mixture {
            experts: of.experts,
            top_k: of.top_k,
            ffn: match of.d_ffn {
                0 => model.d_ffn(),
                own => own,
            },
            shared: of.shared_d_ffn,
            every: of.every,
            dense_first: of.dense_first,
        }),
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
pub(super) fn accepted(
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
pub(super) fn plan_of(job: &Job, asked: &Asked<'_>, layout: &Layout) -> Option<Plan> {
    let (model, mut train) = (job.model.clone()?, job.train.clone()?);
    train.micro_batch = layout.micro_batch;
    train.recompute = match layout.recompute {
        Recompute::None => train::config::Recompute::None,
        Recompute::Selective => train::config::Recompute::Selective,
        Recompute::Full => train::config::Recompute::Full,
    };
    Some(Plan {
        model,
        parallel: layout.parallel(asked.cluster.devices_per_node),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Planned, stage_bytes};
    use std::path::Path;

    /// The planner counts the matrices, with 2 bytes per weight; Millrace's own memory by formula has every weight, with 4.
    #[test]
    fn weights_of_each_stage_are_those_that_training_holds() {
        let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("jobs/recipes/mixtral_8x7b.toml");
        let sets = |more: &[&str]| {
            let more = more.iter().map(|set| (*set).to_owned());
            crate::job::load(&recipe, &more.collect::<Vec<_>>()).unwrap()
        };
        let shared = [
            "model.moe.shared_d_ffn=2048",
            "model.moe.dense_first=3",
            "model.moe.d_ffn=1024",
        ];
        let every = ["model.moe.every=2", "model.moe.experts=16"];
        let cluster = Cluster::load("dgx-h100").unwrap();
        for job in [sets(&[]), sets(&shared), sets(&every)] {
            let asked = of_model(&job, &cluster, 64, Some(32_000)).unwrap();
            for layout in [[1, 4, 16, 8, 1], [2, 2, 16, 4, 4], [1, 1, 64, 2, 1]] {
                let [tp, pp, dp, ep, chunks] = layout;
                let layout = Layout {
                    tp,
                    cp: 1,
                    pp,
                    chunks,
                    dp,
                    ep,
                    micro_batch: 1,
                    global_batch: 256,
                    is_sequence_parallel: false,
                    recompute: Recompute::None,
                    zero: 1,
                    overlap: true,
                    counts_ends: false,
                };
                let plan = plan_of(&job, &asked, &layout).unwrap();
                let own = predict_stages(&plan).unwrap();
                assert_eq!(own.len(), pp);
                for (stage, own) in own.iter().enumerate() {
                    let found = 2.0 * stage_bytes(&asked.shape, &layout, stage).weights;
                    // norms, and a router that is whole on each tensor-parallel rank
                    let ratio = own.weights as f64 / found;
                    assert!(
                        (1.0..1.002).contains(&ratio),
                        "{layout:?}, stage {stage}: {ratio}"
                    );
                }
            }
        }
    }

    #[test]
    fn layouts_of_a_mixture_share_out_its_experts() {
        let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("jobs/recipes/mixtral_8x7b.toml");
        let sets = [
            "model.layers=4",
            "parallel.virtual_stages=1",
            "train.global_batch=16",
        ];
        let sets = sets.map(str::to_owned);
        let job = crate::job::load(&recipe, &sets).unwrap();
        let cluster = Cluster::load("dgx-h100").unwrap();
        let asked = of_model(&job, &cluster, 16, Some(32_000)).unwrap();
        let (planned, rejected) = accepted(&job, &asked, crate::plan::search(&asked));
        let degrees = |of: &Planned| of.layout.ep;
        let mut found: Vec<usize> = planned.iter().map(degrees).collect();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found, [1, 2, 4, 8]);
        let layouts = planned
            .iter()
            .map(|of| of.layout)
            .chain(rejected.iter().map(|of| of.layout));
        for layout in layouts {
            assert!(
                layout.dp.is_multiple_of(layout.ep) && 8 % layout.ep == 0,
                "{layout:?}"
            );
        }
    }
}
