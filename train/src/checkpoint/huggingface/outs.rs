//! Tensors of a model in Hugging Face's names and order, for tests that compare with transformers.

use kernels::Tensor;

use crate::checkpoint::huggingface::names::pairs;
use crate::checkpoint::huggingface::pair::Pair;
use crate::config::plan::Plan;
use crate::error::{OnRank, Result};
use crate::model::param::Spec;

/// A matrix or vector under its new name.
pub(crate) struct Out {
    pub name: String,
    pub dims: Vec<usize>,
    pub values: Vec<f32>,
}

/// All tensors of a model: weights, or tensors of the same shapes.
pub(crate) struct Source<'a> {
    pub plan: &'a Plan,
    pub specs: &'a [Spec],
    pub tensors: &'a [Tensor],
}

impl Source<'_> {
    /// Numbers of one tensor of theirs.
    fn values(&self, pair: &Pair) -> Result<Vec<f32>> {
        let slot = self.specs.iter().position(|spec| spec.name == pair.ours);
        let ours = &self.tensors[slot.expect("names come from the same plan")];
        let ours = ours.view().read::<f32>().on_rank(0, "read weights")?;
        let shape = self.plan.shape();
        Ok(pair.elements_of_ours(&shape).map(|at| ours[at]).collect())
    }
}

/// The tensors of the family's class in transformers.
pub(crate) fn tensors(source: &Source<'_>) -> Vec<Out> {
    let pairs = pairs(source.plan);
    let tensors = pairs.chunk_by(|a, b| a.theirs == b.theirs);
    let tensors = tensors.map(|pairs| {
        let values = pairs.iter().map(|pair| source.values(pair));
        let values: Result<Vec<_>> = values.collect();
        Out {
            values: values.expect("a test's tensors can be read").concat(),
            name: pairs[0].theirs.clone(),
            dims: pairs[0].dims.clone(),
        }
    });
    tensors.collect()
}
