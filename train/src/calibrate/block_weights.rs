//! The weights of one block under Hugging Face's names, and the folding of scales from a layer's inputs into the layer before.
//!
//! x diag(s)^-1 (W diag(s))^T = x W^T: a linear layer's inputs are divided by s where they come from, a norm's weight or the rows of
//! the linear layer before, and its columns multiplied by s (SmoothQuant, Xiao et al. 2022, arXiv:2211.10438, sec. 4; AWQ, Lin et
//! al. 2023, arXiv:2306.00978, sec. 3).

use std::collections::BTreeMap;

use crate::checkpoint::huggingface::pair::Pair;
use crate::config::plan::Shape;

/// Linear layers of a block with the same inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Site {
    /// Queries, keys and values.
    Attention,
    /// Attention's output projection.
    Out,
    /// Gate and up projections.
    FeedForward,
    /// The down projection.
    Down,
}

impl Site {
    /// In the order in which a block computes them.
    pub(super) const ALL: [Site; 4] = [Site::Attention, Site::Out, Site::FeedForward, Site::Down];

    /// Its linear layers, within a block.
    pub(super) fn layers(self) -> &'static [&'static str] {
        match self {
            Site::Attention => &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
            Site::Out => &["self_attn.o_proj"],
            Site::FeedForward => &["mlp.gate_proj", "mlp.up_proj"],
            Site::Down => &["mlp.down_proj"],
        }
    }

    /// The layer whose outputs are its inputs times factors.
    pub(super) fn before(self) -> &'static str {
        match self {
            Site::Attention => "input_layernorm",
            Site::Out => "self_attn.v_proj",
            Site::FeedForward => "post_attention_layernorm",
            Site::Down => "mlp.up_proj",
        }
    }

    /// Whether its inputs come from a norm.
    pub(super) fn is_after_norm(self) -> bool {
        matches!(self, Site::Attention | Site::FeedForward)
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

    /// Whether the inputs of a site can be divided by factors where they come from: values of grouped heads are inputs of several.
    pub(super) fn can_fold(&self, site: Site, inputs: usize) -> bool {
        let before = self.weight(site.before());
        match site {
            Site::Attention | Site::FeedForward => before.len() == inputs,
            Site::Out => before.len() == self.weight("self_attn.q_proj").len(),
            Site::Down => true,
        }
    }

    /// Divides the inputs of a site by factors, one for each, and multiplies the columns of its layers by them. A norm's weight is
    /// stored in bf16, so a factor there is the quotient of what is stored; returns the factors.
    pub(super) fn fold(&mut self, site: Site, factors: &[f64]) -> Vec<f64> {
        let before = self.name(site.before(), "weight");
        let mut factors = factors.to_vec();
        if let Some(weight) = self.tensors.get_mut(&before) {
            if site.is_after_norm() {
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
            } else {
                let width = weight.len() / factors.len().max(1);
                for (row, factor) in weight.chunks_mut(width.max(1)).zip(&factors) {
                    row.iter_mut().for_each(|x| *x = scaled(*x, 1.0 / factor));
                }
            }
        }
        if !site.is_after_norm()
            && let Some(bias) = self.tensors.get_mut(&self.name(site.before(), "bias"))
        {
            for (x, factor) in bias.iter_mut().zip(&factors) {
                *x = scaled(*x, 1.0 / factor);
            }
        }
        for layer in site.layers() {
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
