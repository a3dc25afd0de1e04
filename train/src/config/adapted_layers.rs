//! Linear layers that low-rank adapters may stand beside: their targets, sizes, and what tensor parallelism splits.
//!
//! Weights are `[out, in]`; those whose input features are split, `out` and `fc2`, are `[in, out]`. A is stored like the weight
//! beside it: `[rank, in]`, or `[in, rank]`. B is `[out, rank]`. A matrix is split where its layer is.

use crate::config::LoraTarget;
use crate::config::latent::{KV_DOWN, KV_UP, Q_DOWN, Q_PROJ, Q_UP};
use crate::config::plan::Plan;

/// Name of the layer that makes logits of its own matrix.
pub(crate) const HEAD: &str = "head";

/// Features of a layer that tensor-parallel ranks share out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SplitFeatures {
    Outputs,
    Inputs,
    /// Every rank has the whole layer.
    None,
}

/// A linear layer that has an adapter.
#[derive(Clone, Debug)]
pub(crate) struct AdaptedLayer {
    /// Name of the layer in the model.
    pub name: String,
    /// Input features of the whole layer.
    pub input: usize,
    /// Output features of the whole layer.
    pub out: usize,
    pub split: SplitFeatures,
    /// Number of the expert that it belongs to.
    pub expert: Option<usize>,
}

/// A matrix of an adapter.
pub(crate) struct AdapterMatrix {
    pub name: String,
    /// Dims of the whole matrix.
    pub dims: [usize; 2],
    /// Its rows are shared out over tensor-parallel ranks.
    pub is_split: bool,
}

impl AdaptedLayer {
    /// A and B, with `rank` features between them.
    pub(crate) fn matrices(&self, rank: usize) -> [AdapterMatrix; 2] {
        let of_a = match self.split {
            SplitFeatures::Inputs => [self.input, rank],
            SplitFeatures::Outputs | SplitFeatures::None => [rank, self.input],
        };
        [
            AdapterMatrix {
                name: format!("{}.lora_a", self.name),
                dims: of_a,
                is_split: self.split == SplitFeatures::Inputs,
            },
            AdapterMatrix {
                name: format!("{}.lora_b", self.name),
                dims: [self.out, rank],
                is_split: self.split == SplitFeatures::Outputs,
            },
        ]
    }
}

/// The target that a layer of this name belongs to, if adapters may stand beside it.
pub(crate) fn target_of(layer: &str) -> Option<LoraTarget> {
    let last = layer.rsplit('.').next()?;
    match last {
        "qkv" | Q_PROJ | Q_DOWN | Q_UP | KV_DOWN | KV_UP => Some(LoraTarget::Qkv),
        "out" => Some(LoraTarget::Out),
        "fc1" | "fc2" if layer.contains(".experts.") => Some(LoraTarget::Experts),
        "fc1" => Some(LoraTarget::Fc1),
        "fc2" => Some(LoraTarget::Fc2),
        "router" => Some(LoraTarget::Router),
        HEAD => Some(LoraTarget::Head),
        _ => None,
    }
}

/// Whether the weight of a layer of this name is `[in, out]`.
pub(crate) fn has_inputs_first(layer: &str) -> bool {
    let last = layer.rsplit('.').next().unwrap_or_default();
    ["out", "fc2"].contains(&last)
}

/// The layers of a block that have adapters, in the order of the forward pass, those of experts last.
pub(crate) fn of_block(plan: &Plan, block: usize) -> Vec<AdaptedLayer> {
    let (s, at) = (plan.shape(), plan.model.block_name(block));
    let widths = plan.model.architecture().fc1_widths();
    let layer = |name: &str, input, out, split| AdaptedLayer {
        name: format!("{at}.{name}"),
        input,
        out,
        split,
        expert: None,
    };
    let feed_forward = |name: &str, f: usize| {
        let (first, second) = (format!("{name}fc1"), format!("{name}fc2"));
        [
            layer(&first, s.d_model, widths * f, SplitFeatures::Outputs),
            layer(&second, f, s.d_model, SplitFeatures::Inputs),
        ]
    };
    let mut layers = Vec::new();
    match plan.model.latents() {
        None => layers.push(layer("qkv", s.d_model, s.packed, SplitFeatures::Outputs)),
        Some(latents) => {
            for weight in latents.weights(s.d_model, s.heads) {
                let &[out, input] = weight.dims.as_slice() else {
                    continue; // a norm's
                };
                let split = match weight.is_split {
                    true => SplitFeatures::Outputs,
                    false => SplitFeatures::None,
                };
                layers.push(layer(weight.layer, input, out, split));
            }
        }
    }
    let mixed = s.heads * s.d_value;
    layers.push(layer("out", mixed, s.d_model, SplitFeatures::Inputs));
    match plan.model.moe_at(block) {
        None => layers.extend(feed_forward("", s.d_ffn)),
        Some(moe) => {
            if moe.shared_d_ffn > 0 {
                layers.extend(feed_forward("shared.", moe.shared_d_ffn));
            }
            layers.push(layer("router", s.d_model, moe.experts, SplitFeatures::None));
            for expert in 0..moe.experts {
                let both = feed_forward(&format!("experts.{expert}."), plan.model.d_expert());
                layers.extend(both.map(|layer| AdaptedLayer {
                    expert: Some(expert),
                    ..layer
                }));
            }
        }
    }
    layers.retain(|layer| is_adapted(plan, &layer.name));
    layers
}

/// The head, if it has an adapter.
pub(crate) fn of_head(plan: &Plan) -> Option<AdaptedLayer> {
    let s = plan.shape();
    (!plan.model.is_tied() && is_adapted(plan, HEAD)).then(|| AdaptedLayer {
        name: HEAD.into(),
        input: s.d_model,
        out: s.padded_vocab,
        split: SplitFeatures::Outputs,
        expert: None,
    })
}

fn is_adapted(plan: &Plan, layer: &str) -> bool {
    let lora = plan.model.lora.as_ref();
    let target = target_of(layer);
    lora.is_some_and(|lora| target.is_some_and(|target| lora.targets.contains(&target)))
}
