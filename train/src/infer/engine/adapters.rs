//! Low-rank adapters beside a model: loaded and unloaded between steps, chosen by each request.

use std::path::Path;

use kernels::{Device, Tensor};

use crate::checkpoint::adapters::{LayerAdapter, LoraAdapter, transposed};
use crate::checkpoint::read_adapter::read_adapter;
use crate::checkpoint::write_shards::first_element;
use crate::config::adapted_layers::has_inputs_first;
use crate::config::exact::narrow;
use crate::config::plan::Plan;
use crate::dist::mesh::RankCoord;
use crate::error::Result;
use crate::infer::engine::blocks::Serial;
use crate::model::param::{self, Spec};
use crate::model::row_adapters::AdapterWeights;

/// Number of an adapter in an engine; it is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AdapterId(pub(super) u64);

/// An adapter on a rank.
pub(super) struct Loaded {
    pub weights: AdapterWeights,
    /// Number in front of the first blocks of its texts: keys and values differ from those of other adapters.
    pub root: Serial,
    /// Unloaded; it is dropped after its last request.
    pub is_retired: bool,
}

/// Reads adapters for the model of an engine, away from the thread that owns the engine.
#[derive(Clone)]
pub struct AdapterReader {
    pub(super) plan: Plan,
}

/// An adapter that was read for a model.
pub struct Adapter(pub(super) LoraAdapter);

impl AdapterReader {
    /// Reads a folder in PEFT's form, or a checkpoint that was trained with `[model.lora]`.
    ///
    /// # Errors
    /// An adapter of another model, with everything that does not fit; a damaged file.
    pub fn read(&self, path: &Path) -> Result<Adapter> {
        Ok(Adapter(read_adapter(path, &self.plan)?))
    }
}

/// A rank's part of an adapter.
pub(super) fn part_of(
    adapter: &LoraAdapter,
    plan: &Plan,
    place: &RankCoord,
    device: &Device,
) -> kernels::Result<AdapterWeights> {
    let specs = param::specs(plan);
    let weights = specs.iter().map(|spec| {
        let of_a = spec.name.strip_suffix(".lora_a");
        let layer = of_a.or(spec.name.strip_suffix(".lora_b"));
        let Some((layer, own)) = layer.and_then(|layer| Some((layer, adapter.layers.get(layer)?)))
        else {
            return Ok(None);
        };
        let (spec, values) = matrix(spec, own, has_inputs_first(layer));
        let (dims, first) = (spec.local_dims(place.tp), first_element(&spec, place));
        let here = &values[first..first + dims.iter().product::<usize>()];
        Tensor::from_f32(&dims, here, device).map(Some)
    });
    Ok(AdapterWeights {
        weights: weights.collect::<kernels::Result<_>>()?,
        scale: narrow(adapter.scale),
    })
}

/// The spec and the numbers of A or B at the adapter's rank, in the model's order.
fn matrix(spec: &Spec, own: &LayerAdapter, is_by_inputs: bool) -> (Spec, Vec<f32>) {
    let mut spec = spec.clone();
    let is_b = spec.name.ends_with(".lora_b");
    let (dim, values) = match (is_b, is_by_inputs) {
        (true, _) => (1, own.b.clone()),
        (false, false) => (0, own.a.clone()),
        (false, true) => (1, transposed(&own.a, own.a.len() / own.rank)),
    };
    spec.dims[dim] = own.rank;
    (spec, values)
}
