//! The weights of one block under Hugging Face's names, and the folding of scales from a layer's inputs into the layer before.
//!
//! x diag(s)^-1 (W diag(s))^T = x W^T: a linear layer's inputs are divided by s where they come from, a norm's weight or the rows of
//! the linear layer before, and its columns multiplied by s (SmoothQuant, Xiao et al. 2022, arXiv:2211.10438, sec. 4; AWQ, Lin et
//! al. 2023, arXiv:2306.00978, sec. 3).

use std::collections::BTreeMap;

use crate::checkpoint::huggingface::pair::Pair;
use crate::config::plan::{Plan, Shape};

/// Linear layers of a block with the same inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Site {
    /// Their names within the block.
    pub layers: Vec<String>,
    pub source: Source,
}

/// The layer, within the block, whose outputs are a site's inputs times factors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A norm that no other layer reads.
    Norm(&'static str),
    /// The linear layer of this name, with a row for each input.
    Linear(String),
    /// None: a row is read by several inputs (values of grouped heads), or a layer that is not quantized reads the inputs as well (a
    /// router). Values of latents are rows among those of keys, and are left alone.
    Fixed,
}

/// The sites of block `number`, in the order in which `Block::linear_inputs` has their inputs.
pub(super) fn sites(plan: &Plan, number: usize) -> Vec<Site> {
    let (model, shape) = (&plan.model, plan.shape());
    let before = Source::Norm("input_layernorm");
    let mut sites = match model.latents() {
        None => {
            let values = "self_attn.v_proj";
            let layers = ["self_attn.q_proj", "self_attn.k_proj", values];
            let source = match shape.kv_heads == shape.heads {
                true => Source::Linear(values.into()),
                false => Source::Fixed,
            };
            vec![
                Site::of(&layers, before),
                Site::of(&["self_attn.o_proj"], source),
            ]
        }
        Some(latents) => {
            let down = "self_attn.kv_a_proj_with_mqa";
            let queries = match latents.queries {
                None => vec![Site::of(&["self_attn.q_proj", down], before)],
                Some(_) => vec![
                    Site::of(&["self_attn.q_a_proj", down], before),
                    Site::of(
                        &["self_attn.q_b_proj"],
                        Source::Norm("self_attn.q_a_layernorm"),
                    ),
                ],
            };
            let up = [
                Site::of(
                    &["self_attn.kv_b_proj"],
                    Source::Norm("self_attn.kv_a_layernorm"),
                ),
                Site::of(&["self_attn.o_proj"], Source::Fixed),
            ];
            queries.into_iter().chain(up).collect()
        }
    };
    match model.moe_at(number) {
        None => sites.extend(gated("mlp", Source::Norm("post_attention_layernorm"))),
        Some(moe) => {
            let experts = (0..moe.experts).map(|expert| format!("mlp.experts.{expert}"));
            let shared = (moe.shared_d_ffn > 0).then(|| "mlp.shared_experts".to_owned());
            let all = experts.chain(shared);
            sites.extend(all.flat_map(|at| gated(&at, Source::Fixed)));
        }
    }
    sites
}

/// Sites of the gated layer of this name.
fn gated(at: &str, source: Source) -> [Site; 2] {
    let [gate, up, down] = ["gate", "up", "down"].map(|name| format!("{at}.{name}_proj"));
    [
        Site::of(&[&gate, &up], source),
        Site::of(&[&down], Source::Linear(up.clone())),
    ]
}

impl Site {
    fn of(layers: &[&str], source: Source) -> Site {
        Site {
            layers: layers.iter().map(|&layer| layer.to_owned()).collect(),
            source,
        }
    }

    /// Whether its inputs come from a norm.
    pub(super) fn is_after_norm(&self) -> bool {
        matches!(self.source, Source::Norm(_))
    }
}

/// Our tensors of a block by name.
pub(super) type OurTensors = BTreeMap<String, Vec<f32>>;

/// The weights of a block.
#[derive(Clone)]
pub(super) struct BlockWeights {
    /// `model.layers.3`
    prefix: String,
    tensors: BTreeMap<String, Vec<f32>>,
}

impl BlockWeights {
    /// Those of block `number`, from our tensors.
    pub(super) fn of(
        number: usize,
        pairs: &[Pair],
        shape: &Shape,
        ours: &OurTensors,
    ) -> BlockWeights {
        let of_pair = |pair: &Pair| {
            let own = ours.get(&pair.ours).map_or(&[][..], Vec::as_slice);
            let values = pair.elements_of_ours(shape).map(|at| own[at]).collect();
            (pair.theirs.clone(), values)
        };
        BlockWeights {
            prefix: format!("model.layers.{number}"),
            tensors: pairs.iter().map(of_pair).collect(),
        }
    }

    /// Writes them back into our tensors.
    pub(super) fn put(&self, pairs: &[Pair], shape: &Shape, ours: &mut OurTensors) {
        for pair in pairs {
            if let Some(own) = ours.get_mut(&pair.ours) {
                let values = self.tensor(&pair.theirs);
                let places = pair.elements_of_ours(shape).zip(values);
                places.for_each(|(at, value)| own[at] = *value);
            }
        }
    }

    /// A tensor by its name in their file.
    pub(super) fn tensor(&self, name: &str) -> &[f32] {
        self.tensors.get(name).map_or(&[], Vec::as_slice)
    }

    /// Replaces a layer's weight.
    pub(super) fn set(&mut self, layer: &str, weight: Vec<f32>) {
        self.tensors.insert(self.name(layer, "weight"), weight);
    }

    /// Name of a tensor of a layer of the block.
    pub(super) fn name(&self, layer: &str, kind: &str) -> String {
        format!("{}.{layer}.{kind}", self.prefix)
    }

    /// The weight of a layer.
    pub(super) fn weight(&self, layer: &str) -> &[f32] {
        self.tensor(&self.name(layer, "weight"))
    }

    /// Whether the inputs of a site can be divided by factors where they come from.
    pub(super) fn can_fold(&self, site: &Site, inputs: usize) -> bool {
        match &site.source {
            Source::Norm(norm) => self.weight(norm).len() == inputs,
            Source::Linear(_) => true,
            Source::Fixed => false,
        }
    }

    /// Divides the inputs of a site by factors, one for each, and multiplies the columns of its layers by them. A norm's weight is
    /// stored in bf16, so a factor there is the quotient of what is stored; returns the factors.
    pub(super) fn fold(&mut self, site: &Site, factors: &[f64]) -> Vec<f64> {
        let mut factors = factors.to_vec();
        match &site.source {
            Source::Norm(norm) => {
                let name = self.name(norm, "weight");
                let weight = self.tensors.get_mut(&name);
                let weight = weight.map_or(&mut [][..], Vec::as_mut_slice);
                for (x, factor) in weight.iter_mut().zip(&mut factors) {
                    #[expect(clippy::cast_possible_truncation, reason = "a weight is f32")]
                    let divided = half::bf16::from_f32((f64::from(*x) / *factor) as f32).to_f32();
                    if *x == 0.0 || divided == 0.0 || !divided.is_finite() {
                        *factor = 1.0;
                        continue;
                    }
                    *factor = f64::from(*x) / f64::from(divided);
                    *x = divided;
                }
            }
            Source::Linear(layer) => {
                // of a bias, a row has one element
                for kind in ["weight", "bias"] {
                    let Some(weight) = self.tensors.get_mut(&self.name(layer, kind)) else {
                        continue;
                    };
                    let width = weight.len() / factors.len().max(1);
                    for (row, factor) in weight.chunks_mut(width.max(1)).zip(&factors) {
                        row.iter_mut().for_each(|x| *x = scaled(*x, 1.0 / factor));
                    }
                }
            }
            Source::Fixed => factors.fill(1.0),
        }
        for layer in &site.layers {
            let name = self.name(layer, "weight");
            if let Some(weight) = self.tensors.get_mut(&name) {
                *weight = by_columns(weight, &factors);
            }
        }
        factors
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a weight is f32")]
fn scaled(x: f32, factor: f64) -> f32 {
    (f64::from(x) * factor) as f32
}

/// A matrix `[out, n]` with its columns multiplied by n factors.
pub(super) fn by_columns(weights: &[f32], factors: &[f64]) -> Vec<f32> {
    let rows = weights.chunks(factors.len().max(1));
    let of_rows = rows.flat_map(|row| {
        row.iter()
            .zip(factors)
            .map(|(x, factor)| scaled(*x, *factor))
    });
    of_rows.collect()
}
