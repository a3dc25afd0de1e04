//! Initial weights from `train.init_from`: one of our checkpoints (any step, form and layout, or the averages in
//! one), a folder of checkpoints, of which the newest verified one is used (`newest.rs`), or another program's
//! model. The run starts at step 0 with the first sample and a fresh optimizer; averages start as the weights.
//! Megatron-LM: `--load` with `--finetune`.
//!
//! The weights are identified by one XXH3 over names, dims and numbers in our order, which does not depend on the
//! form in which they are stored. The run's checkpoints record it, so that a changed source is noticed.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use kernels::Device;
use serde_json::{Value, json};
use xxhash_rust::xxh3::Xxh3Default;

use crate::checkpoint::STATE;
use crate::checkpoint::files::Tensors;
use crate::checkpoint::gguf::import::is_gguf;
use crate::checkpoint::huggingface::import::{Converter, Folder, is_hugging_face, is_megatron};
use crate::checkpoint::newest::{SkippedCheckpoint, checkpoint_at, is_folder_of_checkpoints};
use crate::checkpoint::read::{Opened, load_weights, parts_of};
use crate::checkpoint::state::Record;
use crate::config::architecture::Positions;
use crate::config::mtp::is_of_depth;
use crate::config::plan::Plan;
use crate::config::{ModelConfig, ParallelConfig, PromptConfig};
use crate::dist::mesh::RankCoord;
use crate::error::{Error, OnRank, Result};
use crate::metrics::Events;
use crate::model::param::{self, Spec};
use crate::optim::rank_state::RankState;

/// Elements that are hashed at a time.
const PART: usize = 1 << 18;

/// Keys of `[model]` and `[model.moe]` that matter only in training, or that follow from others.
pub(super) const FREE: [&str; 12] = [
    "family",
    "init_std",
    "dropout",
    "attention_dropout",
    "balance_loss",
    "z_loss",
    "scope",
    "capacity_factor",
    "drop",
    "init_ids",
    "mtp_num_layers",
    "mtp_loss_scaling_factor",
];

/// Key of the number of learned positions.
const LENGTH: &str = "seq_length";

/// Keys of `[model]` that only a head has to do with.
const OF_HEADS: [&str; 4] = ["classify", "logit_cap", "next_sentence", "tie_embeddings"];

enum Source {
    Ours(Tensors),
    /// Another program's model, whose tensors are converted from others.
    Foreign(Box<Converter>),
}

/// An opened source.
pub(crate) struct InitialWeights {
    path: PathBuf,
    /// Damaged checkpoints that were skipped for it.
    skipped: Vec<SkippedCheckpoint>,
    plan: Plan,
    source: Source,
    /// Names and dims of its tensors of classification heads, of adapters and of depths of multi-token prediction.
    optional: HashSet<(String, Vec<usize>)>,
}

impl InitialWeights {
    /// Opens and verifies the weights at `path`, for a job with this plan and vocabulary, if it is known yet.
    pub(crate) fn open(path: &Path, job: (&Plan, bool)) -> Result<InitialWeights> {
        let mut skipped = Vec::new();
        let mut path = path.to_owned();
        let is_foreign = is_megatron(&path) || is_hugging_face(&path);
        if !is_foreign && is_folder_of_checkpoints(&path) {
            let newest = checkpoint_at(&path)?;
            (path, skipped) = (newest.path, newest.skipped);
        }
        let (folder, kind) = parts_of(&path);
        let (plan, source) = if folder.join(STATE).exists() {
            let opened = Opened::open(folder)?;
            opened.verify(kind)?;
            let tensors = opened.tensors(kind)?;
            (opened.state.plan, Source::Ours(tensors))
        } else if is_foreign {
            let folder = match is_megatron(&path) {
                true => Folder::open_megatron(&path, Some(job))?,
                false => Folder::open_for(&path, job.0.model.mtp_num_layers)?,
            };
            let plan = folder.plan.clone();
            (plan, Source::Foreign(Box::new(Converter::new(folder))))
        } else {
            return Err(Error::Foreign {
                path,
                problems: vec![format!(
                    "found neither {STATE} nor folders step-NNNNNNNN nor config.json nor .metadata, want a checkpoint, a folder of checkpoints, or a model of Hugging Face or Megatron"
                )],
            });
        };
        let all: Vec<(String, Vec<usize>)> = match &source {
            Source::Ours(tensors) => {
                let entries = tensors.entries().into_iter();
                entries.map(|entry| (entry.name, entry.dims)).collect()
            }
            Source::Foreign(foreign) => foreign.folder.tensors(),
        };
        let optional = all.into_iter().filter(|(name, _)| may_be_missing(name));
        Ok(InitialWeights {
            path,
            skipped,
            plan,
            source,
            optional: optional.collect(),
        })
    }

    /// Refuses a model that is not the plan's, with every difference.
    pub(crate) fn check_fits(&self, plan: &Plan, is_vocab_known: bool) -> Result<()> {
        let (mut there, mut here) = (traits(&self.plan), traits(plan));
        if plan.model.classify.is_some() {
            // the source's own head is left behind
            for side in [&mut there, &mut here] {
                let mut model = side["model"].as_object_mut();
                for key in OF_HEADS {
                    model.as_mut().and_then(|model| model.shift_remove(key));
                }
            }
        }
        let own = &self.plan.model;
        for (key, is_there) in [
            ("lora", own.lora.is_some()),
            ("prompt", own.prompt.is_some()),
        ] {
            // adapters of the job are new; those of a source stay with its weights
            if let (false, Some(model)) = (is_there, here["model"].as_object_mut()) {
                model.shift_remove(key);
            }
        }
        if self.is_longer(plan) {
            // the first rows of its table of positions are the model's
            there[LENGTH] = here[LENGTH].clone();
        }
        let mut problems = Vec::new();
        differences(&there, &here, "", &mut problems);
        problems.retain(|problem| is_vocab_known || !problem.starts_with("vocab:"));
        if problems.is_empty() {
            return Ok(());
        }
        Err(Error::Foreign {
            path: self.path.clone(),
            problems,
        })
    }

    /// Whether it has learned more positions than the plan.
    fn is_longer(&self, plan: &Plan) -> bool {
        let learns = |plan: &Plan| plan.model.architecture().positions == Positions::Learned;
        learns(plan) && learns(&self.plan) && self.plan.seq_length > plan.seq_length
    }

    /// The record of this source that checkpoints keep; reads all weights.
    pub(crate) fn record(&mut self, plan: &Plan) -> Result<Record> {
        let mut hash = Xxh3Default::new();
        let mut part = vec![0.0f32; PART];
        for spec in param::specs(plan) {
            if !self.has(&spec) {
                continue;
            }
            hash.update(format!("{} {:?}\n", spec.name, spec.dims).as_bytes());
            let elements: usize = spec.dims.iter().product();
            for first in (0..elements).step_by(PART) {
                let out = &mut part[..PART.min(elements - first)];
                self.read(&spec, first, out)?;
                hash.update(bytemuck::cast_slice(out));
            }
        }
        Ok(Record {
            path: self.path.display().to_string(),
            xxh3: format!("{:016x}", hash.digest()),
        })
    }

    /// Loads a rank's weights.
    pub(crate) fn load(&mut self, state: &mut RankState<'_>) -> Result<()> {
        let plan = Plan::clone(&state.plan);
        let seed = plan.seed;
        load_weights(state, &mut |spec, first, out| {
            if self.has(spec) {
                return self.read(spec, first, out);
            }
            if let Some(prompt) = (plan.model.prompt.as_ref())
                .filter(|prompt| spec.name == param::PROMPT && !prompt.init_ids.is_empty())
            {
                let specs = param::specs(&plan);
                let table = specs.iter().find(|spec| spec.name == "embedding.weight");
                let table = table.expect("every model has an embedding");
                return self.read_embeddings(table, prompt, first, out);
            }
            let whole = spec.initial(
                seed,
                &RankCoord::of(0, &ParallelConfig::default()),
                &Device::cpu(),
            );
            let whole = whole.and_then(|whole| whole.download::<f32>());
            let whole = whole.on_rank(0, "draw the weights of a new head or adapter")?;
            out.copy_from_slice(&whole[first..first + out.len()]);
            Ok(())
        })?;
        let rank = state.groups.place.rank();
        state.start_averages().on_rank(rank, "start averages")
    }

    /// Whether the source has a tensor.
    fn has(&self, spec: &Spec) -> bool {
        if is_of_depth(&spec.name) {
            // other programs have their dims turned or in parts
            return self.optional.iter().any(|(name, _)| *name == spec.name);
        }
        let key = || (spec.name.clone(), spec.dims.clone());
        !may_be_missing(&spec.name) || self.optional.contains(&key())
    }

    /// Elements of the rows of virtual tokens, from `first` on, from the embeddings of ids.
    fn read_embeddings(
        &mut self,
        table: &Spec,
        prompt: &PromptConfig,
        first: usize,
        out: &mut [f32],
    ) -> Result<()> {
        let width = table.row_elements();
        let mut row = vec![0.0; width];
        for (at, out) in out.iter_mut().enumerate() {
            let (number, column) = ((first + at) / width, (first + at) % width);
            if column == 0 || at == 0 {
                let id = prompt.init_id(number).map_or(0, |id| id as usize);
                self.read(table, id * width, &mut row)?;
            }
            *out = row[column];
        }
        Ok(())
    }

    /// Elements of a whole tensor, from `first` on. Of a longer table of positions they are in its first rows.
    fn read(&mut self, spec: &Spec, first: usize, out: &mut [f32]) -> Result<()> {
        let mut there = spec.clone();
        if spec.name == param::POSITIONS {
            there.dims[0] = self.plan.position_rows();
        }
        let spec = &there;
        match &mut self.source {
            Source::Ours(tensors) => tensors.read_part(&spec.name, &spec.dims, first, out),
            Source::Foreign(foreign) => foreign.read(spec, first, out),
        }
    }
}

/// Whether a tensor is of a classification head, an adapter or a depth of multi-token prediction. Only these may be missing from a source: they start from the seed.
fn may_be_missing(name: &str) -> bool {
    param::is_of_classes(name) || param::is_of_adapter(name) || is_of_depth(name)
}

/// The source that the plan's `train.init_from` names, opened and checked to fit, with its record. A run that
/// resumes from a checkpoint of its `own` needs only the record, even if the source no longer exists.
pub(crate) fn of_plan(
    plan: &Plan,
    own: Option<&Opened>,
    events: &dyn Events,
) -> Result<(Option<InitialWeights>, Option<Record>)> {
    if plan.train.init_from.is_empty() {
        return Ok((None, None));
    }
    let path = Path::new(&plan.train.init_from);
    let known = own.and_then(|own| own.state.init.as_ref());
    if let Some(known) = known.filter(|_| !parts_of(path).0.exists()) {
        let path = path.display();
        events.note(&format!(
            "{path}, where the weights came from, is not there any more"
        ));
        return Ok((None, Some(known.clone())));
    }
    let mut origin = InitialWeights::open(path, (plan, true))?;
    for one in &origin.skipped {
        let from = path.display();
        events.note(&format!("{from}: {one}"));
    }
    origin.check_fits(plan, true)?;
    let record = origin.record(plan)?;
    if own.is_some() {
        return Ok((None, Some(record)));
    }
    if let Source::Foreign(foreign) = &origin.source {
        let at = origin.path.display();
        let notes = foreign.folder.notes.iter();
        notes.for_each(|note| events.note(&format!("{at}: {note}")));
    }
    if origin.is_longer(plan) {
        events.note(&format!(
            "{}: the first {} of its {} learned positions are taken, as many as a sample has",
            record.path, plan.seq_length, origin.plan.seq_length
        ));
    }
    events.note(&format!(
        "starts from the weights of {} (xxh3 {})",
        record.path, record.xxh3
    ));
    Ok((Some(origin), Some(record)))
}

/// Settings that two models must share for one to take the other's weights: `[model]` with all defaults and the
/// family's choices filled in, vocabulary, and the number of learned positions.
fn traits(plan: &Plan) -> Value {
    let (model, made) = (&plan.model, plan.model.architecture());
    // through text, for the decimals that the user wrote
    let text = serde_json::to_string(model).expect("a model is plain data");
    let mut all: Value = serde_json::from_str(&text).expect("just written");
    let shape = plan.shape();
    // the width of a head, which is a setting of its own, is the divisor of a model that states none
    let divisor = (model.scores().divisor).filter(|divisor| *divisor != shape.d_head as f32);
    for (key, value) in [
        ("kv_heads", json!(shape.kv_heads)),
        ("head_dim", json!(shape.d_head)),
        ("d_ffn", json!(shape.d_ffn)),
        ("norm", json!(made.norm)),
        ("activation", json!(made.activation)),
        ("bias", json!(made.biases)),
        ("qk_norm", json!(made.qk_norm)),
        (
            "qk_norm_over",
            json!(made.qk_norm.then_some(made.qk_norm_over)),
        ),
        ("score_divisor", json!(divisor)),
        ("norm_place", json!(made.norm_place)),
        ("norm_plus_one", json!(made.norm_plus_one)),
        ("scaled_embedding", json!(made.scaled_embedding)),
        ("embedding_norm", json!(made.has_embedding_norm)),
        ("alibi", json!(made.positions == Positions::Alibi)),
        ("attention_sinks", json!(made.has_sinks)),
        ("multi_latent_attention", json!(made.has_latents)),
        (
            "latent_norm_eps",
            json!(made.has_latents.then_some(model.latent_norm_eps())),
        ),
        ("parallel_residual", json!(made.is_parallel)),
        ("shared_norm", json!(made.has_shared_norm)),
        ("tie_embeddings", json!(made.is_tied)),
        ("positions", json!(format!("{:?}", made.positions))),
        ("masked", json!(made.is_masked)),
        ("encoder_decoder", json!(made.is_encoder_decoder)),
    ] {
        all[key] = value;
    }
    if model.moe.is_some() {
        all["moe"]["d_ffn"] = json!(model.d_expert());
    }
    if made.positions != Positions::Rotary {
        for key in [
            "rope_theta",
            "local_rope_theta",
            "rope_scaling",
            "rotary_percent",
        ] {
            all.as_object_mut()
                .and_then(|table| table.shift_remove(key));
        }
    }
    let mut all = json!({"model": all, "vocab": plan.vocab});
    if made.positions == Positions::Learned {
        all[LENGTH] = json!(plan.seq_length);
        all["first_position"] = json!(made.first_position);
    }
    all
}

/// A line for every leaf that differs.
fn differences(there: &Value, here: &Value, key: &str, lines: &mut Vec<String>) {
    let (Some(a), Some(b)) = (there.as_object(), here.as_object()) else {
        if there != here {
            lines.push(format!("{key}: found {there} there, want {here}"));
        }
        return;
    };
    let keys = a
        .keys()
        .chain(b.keys().filter(|name| !a.contains_key(*name)));
    for name in keys.filter(|name| !FREE.contains(&name.as_str())) {
        let path = match key {
            "" => name.clone(),
            _ => format!("{key}.{name}"),
        };
        let of = |table: &serde_json::Map<String, Value>| table.get(name).cloned();
        let (there, here) = (of(a).unwrap_or_default(), of(b).unwrap_or_default());
        differences(&there, &here, &path, lines);
    }
}

/// The model whose weights are at a path.
#[derive(Clone, Debug, PartialEq)]
pub struct InitialModel {
    /// Its `[model]` table.
    pub model: ModelConfig,
    /// Token ids that its embedding has rows for; tokenizers of published models often have fewer. 0 for Megatron's, whose
    /// padded rows fit any smaller vocabulary.
    pub vocab: usize,
}

/// The model at `path`, as `train.init_from` names it; its weights are not read.
///
/// # Errors
/// `Foreign` if there is no model, or one that does not say its shape; files that are damaged or not there.
pub fn initial_model(path: &Path) -> Result<InitialModel> {
    let plan = plan_at(path)?;
    Ok(InitialModel {
        model: plan.model,
        vocab: plan.vocab,
    })
}

/// The plan of the model at `path`, as `initial_model` finds it.
pub(crate) fn plan_at(path: &Path) -> Result<Plan> {
    Ok(if is_folder_of_checkpoints(path) {
        Opened::open(&checkpoint_at(path)?.path)?.state.plan
    } else if parts_of(path).0.join(STATE).exists() {
        Opened::open(parts_of(path).0)?.state.plan
    } else if is_megatron(path) {
        let plan = Folder::open_megatron(path, None)?.plan;
        Plan { vocab: 0, ..plan }
    } else if is_gguf(path) {
        Folder::open_gguf(path)?.plan
    } else {
        Folder::open(path)?.plan
    })
}

/// Checks whether the weights at `path` can be a run's initial weights; the plan's `vocab` is compared only if it
/// is known yet.
///
/// # Errors
/// `Foreign` with every difference; a source that is damaged or not there.
pub fn check_init(path: &Path, plan: &Plan, is_vocab_known: bool) -> Result<()> {
    InitialWeights::open(path, (plan, is_vocab_known))?.check_fits(plan, is_vocab_known)
}
