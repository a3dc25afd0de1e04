//! Checks the numbers of a model's configuration against the size of the weights beside it before anything is
//! allocated: a model of a hundred million layers in a file of 70 KB must be an error.

use crate::checkpoint::huggingface::described::Read;
use crate::config::ModelConfig;
use crate::config::architecture::Positions;
use crate::config::latent::Latents;
use crate::config::plan::Plan;

/// Longest sequence of a model whose positions are computed, and so have no table in its files.
const MOST_POSITIONS: usize = 1 << 31;

/// A model's sizes as its configuration states them.
#[derive(Clone, Copy)]
pub(crate) struct Numbers<'a> {
    pub model: &'a ModelConfig,
    pub vocab: usize,
    pub seq_length: usize,
    pub decoder_length: usize,
}

impl<'a> Numbers<'a> {
    pub(crate) fn of_import(read: &'a Read) -> Numbers<'a> {
        Numbers {
            model: &read.model,
            vocab: read.vocab,
            seq_length: read.seq_length,
            decoder_length: read.decoder_length,
        }
    }

    pub(crate) fn of_plan(plan: &'a Plan) -> Numbers<'a> {
        Numbers {
            model: &plan.model,
            vocab: plan.vocab,
            seq_length: plan.seq_length,
            decoder_length: plan.decoder_length,
        }
    }
}

/// The size of the weights beside a configuration.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub tensors: usize,
    /// Elements of all tensors together.
    pub elements: usize,
}

/// A number that is larger than the weights can hold.
pub(crate) struct Excess {
    /// Name of the number, for configurations that do not use ours.
    pub name: &'static str,
    /// Key in our plan.
    pub key: &'static str,
    pub found: usize,
    pub wanted: String,
}

impl Excess {
    /// Like `to_string`, with the plan's key.
    pub(crate) fn line_of_plan(&self) -> String {
        let Excess {
            key, found, wanted, ..
        } = self;
        format!("{key}: found {found}, want {wanted}")
    }
}

impl std::fmt::Display for Excess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Excess {
            name,
            found,
            wanted,
            ..
        } = self;
        write!(f, "{name}: found {found}, want {wanted}")
    }
}

/// A number of a configuration and its upper limit.
struct Limit {
    name: &'static str,
    key: &'static str,
    found: usize,
    most: usize,
    of: &'static str,
}

/// Every number that is larger than the files can hold: each layer needs at least one tensor, and each width is a
/// dim of some tensor.
pub(crate) fn excesses(numbers: Numbers<'_>, size: Size) -> Vec<Excess> {
    let model = numbers.model;
    let by_tensors = |name, key, found| Limit {
        name,
        key,
        found,
        most: size.tensors,
        of: "the number of tensors in the files",
    };
    let by_elements = |name, key, found| Limit {
        name,
        key,
        found,
        most: size.elements,
        of: "the number of elements in the files",
    };
    let by_positions = |name, key, found| Limit {
        name,
        key,
        found,
        most: MOST_POSITIONS,
        of: "the longest sequence",
    };
    let length = match model.architecture().positions {
        Positions::Learned => by_elements("length", "seq_length", numbers.seq_length),
        Positions::Rotary | Positions::Relative | Positions::Alibi => {
            by_positions("length", "seq_length", numbers.seq_length)
        }
    };
    let buckets = if numbers.decoder_length > 0 {
        model.relative_buckets
    } else {
        0
    };
    let latents = model.latents();
    let of_latents = |width: fn(&Latents) -> usize| latents.as_ref().map_or(0, width);
    let classify = model.classify.as_ref();
    let blocks = model.layers.saturating_add(model.mtp_num_layers);
    let moe = model.moe.as_ref();
    let of_moe = |count: fn(&crate::config::MoeConfig) -> usize| moe.map_or(0, count);
    let limits = [
        by_tensors("layers", "model.layers", model.layers),
        by_tensors(
            "decoder layers",
            "model.decoder_layers",
            model.decoder_layers,
        ),
        by_tensors(
            "depths of multi-token prediction",
            "model.mtp_num_layers",
            model.mtp_num_layers,
        ),
        length,
        by_positions("decoder length", "decoder_length", numbers.decoder_length),
        by_elements("vocabulary", "vocab", numbers.vocab),
        by_elements("width", "model.d_model", model.d_model),
        by_elements("heads", "model.heads", model.heads),
        by_elements("key-value heads", "model.kv_heads", model.kv_heads),
        by_elements("head width", "model.head_dim", model.head_dim),
        by_elements(
            "heads x head width",
            "model.heads * model.head_dim",
            model.heads.saturating_mul(model.head_dim),
        ),
        by_elements(
            "latent of queries",
            "model.q_lora_rank",
            of_latents(|of| of.queries.unwrap_or(0)),
        ),
        by_elements(
            "latent of keys and values",
            "model.kv_lora_rank",
            of_latents(|of| of.keys_values),
        ),
        by_elements(
            "heads x features of a key",
            "model.heads * model.qk_head_dim",
            model.heads.saturating_mul(of_latents(Latents::key)),
        ),
        by_elements(
            "heads x features of a value",
            "model.heads * model.v_head_dim",
            model.heads.saturating_mul(of_latents(|of| of.values)),
        ),
        by_elements("feed-forward width", "model.d_ffn", model.d_ffn),
        by_elements("buckets of positions", "model.relative_buckets", buckets),
        by_elements("experts", "model.moe.experts", of_moe(|moe| moe.experts)),
        by_elements(
            "layers x experts",
            "model.layers * model.moe.experts",
            blocks.saturating_mul(of_moe(|moe| moe.experts)),
        ),
        by_elements("experts' width", "model.moe.d_ffn", of_moe(|moe| moe.d_ffn)),
        by_elements(
            "shared experts' width",
            "model.moe.shared_d_ffn",
            of_moe(|moe| moe.shared_d_ffn),
        ),
        by_elements(
            "dense layers in front",
            "model.moe.dense_first",
            of_moe(|moe| moe.dense_first),
        ),
        by_elements("chosen experts", "model.moe.top_k", of_moe(|moe| moe.top_k)),
        by_elements(
            "rank of adapters",
            "model.lora.rank",
            model.lora.as_ref().map_or(0, |lora| lora.rank),
        ),
        by_elements(
            "classes",
            "model.classify.classes",
            classify.map_or(0, |classify| classify.classes),
        ),
        by_elements(
            "choices",
            "model.classify.choices",
            classify.map_or(0, |classify| classify.choices),
        ),
    ];
    let excess = |limit: Limit| Excess {
        name: limit.name,
        key: limit.key,
        found: limit.found,
        wanted: format!("at most {}, {}", limit.most, limit.of),
    };
    limits
        .into_iter()
        .filter(|limit| limit.found > limit.most)
        .map(excess)
        .collect()
}

/// Like `excesses`, for one of our plans, in which every expert has its own tensors.
pub(crate) fn excesses_of_plan(plan: &Plan, size: Size) -> Vec<Excess> {
    let mut excesses = excesses(Numbers::of_plan(plan), size);
    if let (Some(moe), true) = (&plan.model.moe, excesses.is_empty()) {
        let all = plan.model.layers.saturating_add(plan.model.mtp_num_layers);
        let mixtures = (0..all).filter(|&layer| plan.model.moe_at(layer).is_some());
        let found = mixtures.count().saturating_mul(moe.experts);
        if found > size.tensors {
            excesses.push(Excess {
                name: "experts of all layers",
                key: "model.moe.experts",
                found,
                wanted: format!(
                    "at most {} in all layers, the number of tensors in the files",
                    size.tensors
                ),
            });
        }
    }
    excesses
}
