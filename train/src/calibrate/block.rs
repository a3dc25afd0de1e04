//! Quantizes one block.

use std::collections::BTreeMap;

use crate::calibrate::block_weights::{BlockWeights, OurTensors, Site, Source, by_columns};
use crate::calibrate::inputs::{Inputs, OutputError};
use crate::calibrate::method::{GptqOptions, LayerError, Method};
use crate::calibrate::pass::Pass;
use crate::calibrate::scaling;
use crate::calibrate::solver::Solver;
use crate::checkpoint::huggingface::pair::Pair;
use crate::checkpoint::quantized::eight_bits::EightBits;
use crate::checkpoint::quantized::int4::GroupCodes;
use crate::checkpoint::weight_source::WeightSource;
use crate::config::plan::Shape;
use crate::error::{OnRank, Result};

/// A block to quantize.
pub(super) struct Block<'a> {
    pub number: usize,
    pub sites: &'a [Site],
    pub pairs: &'a [Pair],
    pub shape: &'a Shape,
}

/// A quantized block.
pub(super) struct Quantized {
    /// With factors folded, before rounding.
    pub weights: BlockWeights,
    /// Of the linear layers in 4 bits, by their weights' names.
    pub codes: BTreeMap<String, GroupCodes>,
    pub errors: Vec<LayerError>,
}

/// Factors of the columns of each layer, after they were folded.
type Factors = BTreeMap<String, Vec<f64>>;

impl Block<'_> {
    /// Quantizes the block and moves the texts' rows through the quantized block.
    pub(super) fn quantize(
        &self,
        method: Method,
        source: &mut WeightSource,
        pass: &mut Pass,
    ) -> Result<Quantized> {
        let mut ours = OurTensors::new();
        for pair in self.pairs {
            if !ours.contains_key(&pair.ours) {
                let read = source.read(&pair.ours)?.to_vec();
                ours.insert(pair.ours.clone(), read);
            }
        }
        pass.load(&ours)?;
        let has_products = !matches!(method, Method::SmoothQuant { .. });
        let inputs = pass.inputs(self.number, has_products)?;
        let measures = measures(&inputs, pass)?;
        let before = BlockWeights::of(self.number, self.pairs, self.shape, &ours);
        let mut weights = before.clone();
        let mut columns = Factors::new();
        for (at, site) in self.sites.iter().enumerate() {
            let found = factors(method, site, &before, &inputs[at], measures[at].as_ref())?;
            if let Some(found) = found {
                let folded = weights.fold(site, &found);
                let of_layers = site.layers.iter();
                columns.extend(of_layers.map(|layer| (layer.clone(), folded.clone())));
            }
        }
        let mut rounded = weights.clone();
        let mut codes = BTreeMap::new();
        let mut errors = Vec::new();
        for (at, site) in self.sites.iter().enumerate() {
            let n = inputs[at].count();
            let products = inputs[at].products.as_ref();
            let solver = match method {
                Method::Gptq(options) => products.map(|products| Solver::new(products, n, options)),
                Method::Awq { .. } | Method::SmoothQuant { .. } => None,
            };
            for layer in &site.layers {
                let own = weights.weight(layer);
                let coded = match (method, &solver) {
                    (Method::Gptq(_), Some(solver)) => solver.round(own),
                    (Method::Gptq(GptqOptions { group, .. }) | Method::Awq { group }, _) => {
                        GroupCodes::nearest(own, n, group)
                    }
                    (Method::SmoothQuant { .. }, _) => {
                        rounded.set(layer, EightBits::Int8.rounded_rows(own, n));
                        continue;
                    }
                };
                rounded.set(layer, coded.values());
                if let Some(measure) = &measures[at] {
                    let change = Change {
                        before: before.weight(layer),
                        after: &self.unfolded(rounded.weight(layer), layer, &columns),
                        group: coded.group,
                    };
                    let name = weights.name(layer, "weight");
                    let found = change.error(&name, n, measure);
                    errors.push(found.on_rank(0, "measure outputs")?);
                }
                codes.insert(weights.name(layer, "weight"), coded);
            }
        }
        let place = |error: &LayerError| {
            let mut pairs = self.pairs.iter();
            pairs.position(|pair| pair.theirs == error.name)
        };
        errors.sort_by_key(place);
        rounded.put(self.pairs, self.shape, &mut ours);
        pass.load(&ours)?;
        pass.step(self.number)?;
        Ok(Quantized {
            weights,
            codes,
            errors,
        })
    }

    /// A folded weight as it acts on the inputs and outputs of the model before.
    fn unfolded(&self, weight: &[f32], layer: &str, columns: &Factors) -> Vec<f32> {
        let mut weight = weight.to_vec();
        if let Some(factors) = columns.get(layer) {
            let back: Vec<f64> = factors.iter().map(|factor| 1.0 / factor).collect();
            weight = by_columns(&weight, &back);
        }
        let reads = |site: &&Site| matches!(&site.source, Source::Linear(own) if own == layer);
        let after = self.sites.iter().find(reads);
        let rows = after.and_then(|site| columns.get(&site.layers[0]));
        if let Some(factors) = rows {
            let width = (weight.len() / factors.len()).max(1);
            for (row, factor) in weight.chunks_mut(width).zip(factors) {
                #[expect(clippy::cast_possible_truncation, reason = "a weight is f32")]
                row.iter_mut()
                    .for_each(|x| *x = (f64::from(*x) * factor) as f32);
            }
        }
        weight
    }
}

fn measures(inputs: &[Inputs], pass: &Pass) -> Result<Vec<Option<OutputError>>> {
    let device = pass.device();
    let made = inputs.iter().map(|inputs| OutputError::new(inputs, device));
    made.collect::<kernels::Result<_>>()
        .on_rank(0, "measure outputs")
}

/// Factors of a site's inputs; `None` if the method has none there.
fn factors(
    method: Method,
    site: &Site,
    weights: &BlockWeights,
    inputs: &Inputs,
    measure: Option<&OutputError>,
) -> Result<Option<Vec<f64>>> {
    let own: Vec<&[f32]> = site
        .layers
        .iter()
        .map(|layer| weights.weight(layer))
        .collect();
    Ok(match method {
        Method::SmoothQuant { alpha } => site
            .is_after_norm()
            .then(|| scaling::smooth(&own, inputs, alpha)),
        Method::Awq { group } => match measure {
            Some(measure) if weights.can_fold(site, inputs.count()) => {
                let found = scaling::awq(&own, inputs, measure, group);
                Some(found.on_rank(0, "search scales")?)
            }
            Some(_) | None => None,
        },
        Method::Gptq(_) => None,
    })
}

/// A layer before and after.
struct Change<'a> {
    before: &'a [f32],
    after: &'a [f32],
    group: usize,
}

impl Change<'_> {
    fn error(&self, name: &str, n: usize, measure: &OutputError) -> kernels::Result<LayerError> {
        let off = |other: &[f32]| -> Vec<f32> {
            self.before.iter().zip(other).map(|(a, b)| a - b).collect()
        };
        let whole = measure.of(self.before)?.max(f64::MIN_POSITIVE);
        let nearest = GroupCodes::nearest(self.before, n, self.group).values();
        Ok(LayerError {
            name: name.to_owned(),
            error: measure.of(&off(self.after))? / whole,
            nearest: measure.of(&off(&nearest))? / whole,
        })
    }
}
