//! Questions of a job to the planner: the shape of its model, the layouts that `train` accepts, and the training of a layout.

use crate::job::{BlendTable, Job, Problem};
use crate::plan::{
    Asked, Cluster, Decoder, InPrecision, Latent, Layout, Mixture, OptimizerState, Planned,
    Recompute, Rejected, Shape, Windowed, dualpipe, least_layers, offloaded, rank_bytes, sort,
};
use train::config::{
    Determinism, Family, OptimizerKind, ParallelConfig, Plan, Precision, TrainConfig,
};
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

/// Precisions other than the job's of which a cluster has rates, with them: bf16, f32, and on GPUs fp8. `cluster` is as its file has
/// it. A rate that is only assumed is none.
pub(super) fn other_precisions(job: &Job, cluster: &Cluster) -> Vec<InPrecision> {
    let own = job.train.as_ref().map(|train| train.precision);
    let in_precision = |precision, cluster| InPrecision { precision, cluster };
    let bf16 = Some(in_precision(Precision::Bf16, cluster.clone()));
    let f32 = match cluster.matrix_f32 {
        Some(_) => cluster.clone().in_f32().ok(),
        None => None,
    };
    let f32 = f32.map(|cluster| in_precision(Precision::F32, cluster));
    let has_fp8 = cluster.cores.is_none() && cluster.matrix_fp8.is_some();
    let fp8 = has_fp8.then(|| in_precision(Precision::Fp8, cluster.clone().in_fp8()));
    let all = [bf16, f32, fp8].into_iter().flatten();
    all.filter(|of| Some(of.precision) != own).collect()
}

/// Whether products of the job's layers are of 8 bits: with `train.precision = "fp8"` on GPUs.
pub(super) fn is_in_fp8(job: &Job, cluster: &Cluster) -> bool {
    let precision = job.train.as_ref().map(|train| train.precision);
    precision == Some(Precision::Fp8) && cluster.cores.is_none()
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
        precision: train.precision,
        others: &[],
        searches_precision: false,
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
    if model.mtp_num_layers > 0 {
        let wanted = "0: times of further depths are not planned";
        problem(
            "model.mtp_num_layers",
            &model.mtp_num_layers.to_string(),
            wanted,
        );
    }
    if model.moe.is_some() && model.family == Family::T5 {
        let wanted = "none: mixtures of an encoder and a decoder are not planned";
        problem("model.moe", "a mixture of family t5", wanted);
    }
    let blend = job.blend.as_ref();
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
        value_dim: match model.has_latents() {
            true => model.v_head_dim,
            false => model.d_head(),
        },
        latent: model.has_latents().then_some(Latent {
            queries: model.q_lora_rank,
            keys_values: model.kv_lora_rank,
            shared_key: model.qk_pos_emb_head_dim,
        }),
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
        decoder: (model.family == Family::T5).then(|| Decoder {
            layers: match model.decoder_layers {
                0 => model.layers,
                own => own,
            },
            length: blend.map_or(0, BlendTable::decoder_tokens),
        }),
        predictions: (model.family == Family::Bert)
            .then(|| blend.map_or(0, BlendTable::predictions)),
        vocab: vocab.or(trained.map(|t| t.vocab)).unwrap_or(50_304),
        is_tied: model.is_tied(),
        seq_length: blend.map_or(0, |blend| blend.seq_length),
        is_fused: true,
        state: job
            .train
            .as_ref()
            .map_or_else(OptimizerState::default, |train| OptimizerState {
                is_muon: train.optimizer == OptimizerKind::Muon,
                has_averages: train.ema_decay > 0.0,
            }),
    })
}

/// The job's model as it is served with texts of `tokens` tokens; `None` of one that contradicts itself.
pub(super) fn served(job: &Job, shape: &Shape, tokens: usize) -> Option<Plan> {
    let plan = Plan {
        model: job.model.clone()?,
        parallel: ParallelConfig::default(),
        train: TrainConfig::default(),
        vocab: shape.vocab,
        seq_length: match shape.seq_length {
            0 => tokens,
            own => own,
        },
        decoder_length: shape.decoder.map_or(0, |decoder| decoder.length.max(1)),
        predictions: shape
            .predictions
            .map_or(0, |predictions| predictions.max(1)),
        start: None,
        eod: None,
        seed: 0,
        determinism: job.determinism,
        fingerprint: String::new(),
    };
    plan.problems().is_empty().then_some(plan)
}

/// Layers of the job's model that see the last tokens alone.
pub(super) fn windowed(job: &Job) -> Option<Windowed> {
    let model = job.model.as_ref()?;
    let seeing_all = model.layers.checked_div(model.global_every).unwrap_or(0);
    (model.sliding_window > 0).then_some(Windowed {
        layers: model.layers - seeing_all,
        tokens: model.sliding_window,
    })
}

/// A problem for `--run` with a model that is no decoder: the random data of runs is text.
pub(super) fn check_run(job: &Job, problems: &mut Vec<Problem>) {
    let family = job.model.as_ref().map(|model| model.family);
    if let Some(family @ (Family::Bert | Family::T5)) = family {
        problems.push(Problem {
            key: "model.family".into(),
            found: format!("{family:?}").to_lowercase(),
            wanted: "a decoder".into(),
        });
    }
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
    let mut partly = Vec::new();
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
            (None, Some(_)) => {
                if of.layout.recompute == Recompute::None {
                    partly.extend(with_layers_again(job, asked, &of));
                }
                rejected.push(Rejected {
                    layout: of.layout,
                    reason: "does not fit in the memory that the ranks share".into(),
                    bytes: lacks,
                });
            }
        }
    }
    if !partly.is_empty() {
        kept.extend(partly);
        sort(&mut kept);
    }
    (kept, rejected)
}

/// Numbers of devices that are tried on each side of one on which nothing fits.
const TRIED: usize = 8;

/// Numbers of devices of the cluster on which a layout fits, near one on which none does: with more memory if that is what lacks, otherwise
/// the nearest one below and above.
pub(super) fn devices_that_fit(job: &Job, asked: &Asked<'_>, lacks_memory: bool) -> Vec<usize> {
    let (devices, most) = (asked.devices, asked.cluster.devices());
    // of more than a node, whole nodes
    let unit = match asked.cluster.devices_per_node {
        of_node if devices >= of_node => of_node,
        _ => 1,
    };
    let fits = |devices: &usize| {
        let asked = Asked {
            devices: *devices,
            ..*asked
        };
        let (planned, _) = accepted(job, &asked, crate::plan::search(&asked));
        !planned.is_empty()
    };
    let doubled = || {
        std::iter::successors(Some(devices), |count| count.checked_mul(2))
            .skip(1)
            .take_while(|count| *count <= most)
    };
    if lacks_memory {
        return doubled().find(fits).into_iter().collect();
    }
    let below = (1..=TRIED).filter_map(|step| devices.checked_sub(step * unit));
    let below = below.filter(|count| *count > 0).find(fits);
    let above = (1..=TRIED).map(|step| devices + step * unit);
    let above = above.take_while(|count| *count <= most).find(fits);
    below.into_iter().chain(above).collect()
}

/// Layouts that would fit with the optimizer's state in host memory, without those that break another rule of `train`: an estimate.
pub(super) fn with_offload(job: &Job, asked: &Asked<'_>, rejected: &[Rejected]) -> Vec<Planned> {
    accepted(job, asked, (offloaded(asked, rejected), Vec::new())).0
}

/// Layouts that would fit with DualPipe, without those that break another rule of `train`: an estimate.
pub(super) fn with_dualpipe(
    job: &Job,
    asked: &Asked<'_>,
    planned: &[Planned],
    rejected: &[Rejected],
) -> Vec<Planned> {
    let dual = dualpipe(asked, planned, rejected);
    accepted(job, asked, (dual, Vec::new())).0
}

/// The layout with the fewest layers computed again that fits in the memory that its ranks share.
fn with_layers_again(job: &Job, asked: &Asked<'_>, of: &Planned) -> Option<Planned> {
    let fits = |layout: &Layout| {
        let bytes = plan_of(job, asked, layout).and_then(|plan| shared_bytes(asked, &plan));
        bytes.is_some_and(|bytes| bytes <= asked.cluster.memory)
    };
    let layout = least_layers(&asked.shape, &of.layout, fits)?;
    Some(asked.planned(layout, rank_bytes(&asked.shape, &layout)))
}

/// Bytes that the ranks of a node hold together, where they share its memory.
fn shared_bytes(asked: &Asked<'_>, plan: &Plan) -> Option<f64> {
    asked.cluster.cores?;
    let stages = predict_stages(plan).ok()?;
    let bytes: usize = stages.iter().map(|stage| stage.together).sum();
    let nodes = plan
        .parallel
        .world()
        .div_ceil(asked.cluster.devices_per_node);
    Some(bytes as f64 / nodes as f64)
}

/// The job's training with a layout.
pub(super) fn plan_of(job: &Job, asked: &Asked<'_>, layout: &Layout) -> Option<Plan> {
    let (model, mut train) = (job.model.clone()?, job.train.clone()?);
    train.micro_batch = layout.micro_batch;
    train.precision = layout.precision;
    train.recompute = match layout.recompute {
        Recompute::None => train::config::Recompute::None,
        Recompute::Selective => train::config::Recompute::Selective,
        Recompute::Layers(_) | Recompute::Full => train::config::Recompute::Full,
    };
    train.recompute_layers = layout.recompute.layers().into_iter().collect();
    Some(Plan {
        model,
        parallel: ParallelConfig {
            stage_layers: layout.uneven_layers(&asked.shape),
            ..layout.parallel(asked.cluster.devices_per_node)
        },
        train,
        vocab: asked.shape.vocab,
        seq_length: asked.shape.seq_length,
        decoder_length: asked.shape.decoder.map_or(0, |decoder| decoder.length),
        predictions: asked.shape.predictions.unwrap_or(0),
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
    use crate::plan::stage_bytes;
    use std::path::Path;

    fn recipe(name: &str, sets: &[&str]) -> Job {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("jobs/recipes");
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        crate::job::load(&folder.join(format!("{name}.toml")), &sets).unwrap()
    }

    /// The planner counts the matrices, with 2 bytes per weight; Millrace's own memory by formula has every weight, with 4. The others are
    /// at most 14 widths of norms and biases per layer and 8 of the ends, and of BERT the biases of the vocabulary and, on the first stage, the
    /// rows of positions and of two segments.
    fn assert_weights(job: &Job, vocab: usize, layout: &Layout) {
        let cluster = Cluster::load("dgx-h100").unwrap();
        let asked = of_model(job, &cluster, layout.devices(), Some(vocab)).unwrap();
        let plan = plan_of(job, &asked, layout).unwrap();
        let own = predict_stages(&plan).unwrap();
        assert_eq!(own.len(), layout.pp);
        let shape = &asked.shape;
        for (stage, own) in own.iter().enumerate() {
            let others =
                own.fullest.weights as f64 / 4.0 - stage_bytes(shape, layout, stage).weights / 2.0;
            let mut most = shape.width * (14 * layout.stage_layers(shape, stage) + 8);
            if shape.predictions.is_some() {
                most += shape.vocab;
                if stage == 0 {
                    most += (shape.seq_length + 2) * shape.width;
                }
            }
            assert!(
                others >= 0.0 && others <= most as f64,
                "{}, {layout:?}, stage {stage}: {others} of {most}",
                job.name
            );
        }
    }

    #[test]
    fn weights_of_each_stage_are_those_that_training_holds() {
        let shared = [
            "model.moe.shared_d_ffn=2048",
            "model.moe.dense_first=3",
            "model.moe.d_ffn=1024",
        ];
        let every = ["model.moe.every=2", "model.moe.experts=16"];
        let sets: [&[&str]; 3] = [&[], &shared, &every];
        for sets in sets {
            let job = recipe("mixtral_8x7b", sets);
            for [tp, pp, dp, ep, chunks] in [[1, 4, 16, 8, 1], [2, 2, 16, 4, 4], [1, 1, 64, 2, 1]] {
                let layout = Layout {
                    tp,
                    pp,
                    chunks,
                    dp,
                    ep,
                    zero: 1,
                    overlap: true,
                    ..Layout::one(256)
                };
                assert_weights(&job, 32_000, &layout);
            }
        }
    }

    /// Latents are whole on each tensor-parallel rank; 61 layers on 16 stages are 13 times four and three times three.
    #[test]
    fn weights_of_latents_and_of_uneven_stages_are_those_that_training_holds() {
        let few = ["model.moe.experts=32", "parallel.ep=32"];
        let plain = [
            "model.q_lora_rank=0",
            "model.layers=12",
            "parallel.stage_layers=[]",
            "parallel.pp=1",
        ];
        let plain = [&few[..], &plain].concat();
        for (job, pp, chunks) in [
            (recipe("deepseek_v3", &few), 16, 1),
            (recipe("deepseek_v3", &plain), 5, 1),
            (recipe("deepseek_v3", &plain), 2, 3),
        ] {
            for tp in [1, 4] {
                let layout = Layout {
                    tp,
                    pp,
                    chunks,
                    dp: 8,
                    ep: 8,
                    zero: 1,
                    ..Layout::one(15_360)
                };
                assert_weights(&job, 129_280, &layout);
            }
        }
    }

    /// The head of a masked encoder has a layer before it; of an encoder with a decoder, both are embedded on the first stage.
    #[test]
    fn weights_of_encoders_are_those_that_training_holds() {
        let tied = ["model.tie_embeddings=tied"];
        for job in [
            recipe("bert_large_24h", &[]),
            recipe("t5_3b", &[]),
            recipe("t5_3b", &tied),
        ] {
            for [tp, pp, chunks] in [[1, 1, 1], [2, 2, 1], [4, 4, 3], [8, 8, 1], [2, 5, 1]] {
                let layout = Layout {
                    tp,
                    pp,
                    chunks,
                    ..Layout::one(240)
                };
                assert_weights(&job, 30_592, &layout);
            }
        }
    }

    /// A small llama on this kind of cluster.
    fn small(layers: usize) -> Job {
        let sets = [
            format!("model.layers={layers}"),
            "model.d_model=64".into(),
            "model.heads=4".into(),
            "model.kv_heads=4".into(),
            "model.d_ffn=160".into(),
            "blend.seq_length=64".into(),
            "train.global_batch=16".into(),
            "train.precision=f32".into(),
            "parallel={}".into(),
            "device=cpu".into(),
        ];
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("jobs/recipes");
        crate::job::load(&folder.join("llama3_8b.toml"), &sets).unwrap()
    }

    fn cores(memory: f64) -> Cluster {
        let text = format!(
            "name = 'x'\nnodes = 1\ndevices_per_node = 4\ncores = 4\nmatrix_tflops = 0.2\nmatrix_f32_tflops = 0.1\nmemory_gb = {memory}\nmemory_gb_s = 20\nlink_gb_s = 5\n"
        );
        let cluster = Cluster::parse(&text, Path::new("x.toml")).unwrap();
        cluster.in_f32().unwrap()
    }

    /// The bytes that the first layers of a stage no longer keep, as a share of those of all its layers: the share of what `train` predicts,
    /// pass by pass of its schedule.
    #[test]
    fn activations_of_some_layers_are_those_that_training_holds() {
        let job = small(12);
        let cluster = cores(1.0);
        let asked = of_model(&job, &cluster, 4, Some(512)).unwrap();
        for (pp, chunks) in [(1, 1), (2, 1), (4, 1), (2, 2), (4, 3), (2, 6)] {
            let of = |recompute| Layout {
                pp,
                chunks,
                recompute,
                ..Layout::one(16)
            };
            let trained = |recompute, stage: usize| {
                let plan = plan_of(&job, &asked, &of(recompute)).unwrap();
                predict_stages(&plan).unwrap()[stage].fullest.activations as f64
            };
            let counted =
                |recompute, stage| stage_bytes(&asked.shape, &of(recompute), stage).activations;
            let layers = 12 / pp;
            for stage in 0..pp {
                let (none, full) = (Recompute::None, Recompute::Full);
                let in_flight = of(none).in_flight(stage);
                let head = match stage + 1 == pp {
                    true => 4.0 * 64.0 * (512.0 + 64.0),
                    false => 0.0,
                };
                let layer = (counted(none, stage) - head) / in_flight / layers as f64;
                // all of a stage, without the layer that is being computed again
                let whole = counted(none, stage) - (counted(full, stage) - layer);
                let whole_of_training = trained(none, stage) - trained(full, stage);
                for number in 1..layers {
                    let partly = Recompute::Layers(number);
                    let has_whole_chunk = number >= layers / chunks;
                    let running = if has_whole_chunk { layer } else { 0.0 };
                    let less = counted(none, stage) - (counted(partly, stage) - running);
                    let wanted =
                        (trained(none, stage) - trained(partly, stage)) / whole_of_training;
                    assert!(
                        (less / whole - wanted).abs() < 1e-9,
                        "pp {pp} x {chunks}, stage {stage}, {number} layers: {} {wanted}",
                        less / whole
                    );
                }
            }
        }
    }

    /// Where ranks share their memory, the fewest layers are those with which the bytes that `train` predicts fit.
    #[test]
    fn the_fewest_layers_fit_by_the_bytes_that_training_holds() {
        let job = small(6);
        let mut count = 0;
        for memory in [0.006, 0.012, 0.02] {
            let cluster = cores(memory);
            let asked = of_model(&job, &cluster, 2, Some(512)).unwrap();
            let (planned, rejected) = accepted(&job, &asked, crate::plan::search(&asked));
            let bytes = |layout: &Layout| {
                let plan = plan_of(&job, &asked, layout).unwrap();
                let ranks = train::trainer::memory::predict(&plan).unwrap();
                ranks.iter().map(|rank| rank.total() as f64).sum::<f64>()
            };
            let fits = |layout: &Layout| bytes(layout) <= cluster.memory;
            let mut wanted = Vec::new();
            for of in &rejected {
                if of.bytes.is_some() && of.layout.recompute == Recompute::None {
                    let with = |number| Layout {
                        recompute: Recompute::Layers(number),
                        ..of.layout
                    };
                    wanted.extend((1..6 / of.layout.pp).map(with).find(fits));
                }
            }
            let found = planned.iter().map(|of| of.layout);
            let mut found: Vec<Layout> =
                found.filter(|of| of.recompute.layers().is_some()).collect();
            let key = |of: &Layout| format!("{of:?}");
            found.sort_by_key(key);
            wanted.sort_by_key(key);
            assert_eq!(found, wanted, "{memory} GB");
            count += found.len();
            for layout in found {
                let plan = plan_of(&job, &asked, &layout).unwrap();
                let number = layout.recompute.layers().unwrap();
                assert_eq!(plan.train.recompute_layers, [number]);
                assert_eq!(plan.train.recompute, train::config::Recompute::Full);
                let toml = layout.to_toml(&asked.shape, 4);
                let lines = format!("recompute = \"full\"\nrecompute_layers = [{number}]\n");
                assert!(toml.contains(&lines), "{toml}");
            }
        }
        assert!(count > 0);
    }

    /// Gemma 3: five of six layers have windows.
    #[test]
    fn layers_with_windows_are_counted() {
        let of = |sets: &[&str]| windowed(&recipe("llama3_8b", sets));
        let windowed = |layers| {
            Some(Windowed {
                layers,
                tokens: 1024,
            })
        };
        assert_eq!(of(&[]), None);
        let window = "model.sliding_window=1024";
        assert_eq!(of(&[window]), windowed(32));
        assert_eq!(of(&[window, "model.global_every=6"]), windowed(27));
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
