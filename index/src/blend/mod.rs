//! Blend: several datasets mixed by weight, bit-equal to megatron-core's `BlendedDataset`.
//!
//! Weighted: target_d = ceil(size w_d); each dataset is built for ceil(target_d (1 + surplus)) samples; the blend
//! has sum target_d samples. Proportional: one epoch of each, weighted by its number of samples. Exhaustive: the
//! same, every sample once. A single dataset is used directly, without mixing. Sizes and caps are in `weights.rs`,
//! the greedy choice in `order.rs`. Source: megatron-core 0.16.1 `blended_megatron_dataset_builder.py`. The choice
//! at s does not depend on the size, so a longer run keeps the blend's order as long as no dataset's own order
//! changes ([`Order`]).

mod batches;
mod masked;
mod order;
mod parts;
mod size;
mod weights;

pub use masked::{MaskedBlend, MaskedBlendRequest, MaskedKind, build as build_masked};
pub use order::{Columns, weighted as weighted_order};
pub use size::{IndexBytes, index_bytes};
pub use weights::AboveCap;

use crate::cache::Cache;
use crate::dataset::read::Dataset;
use crate::error::{Error, Result};
use crate::samples::{Fim, FimText, GptSamples, Order, Request};
use crate::split::{self, Bounds, Part};
use parts::{bounds_of, each_part, place};
use rayon::prelude::*;
use std::path::Path;
use std::sync::Arc;

/// Surplus of samples built per dataset of a blend, as a share: room for rounding. Megatron's
/// `mid_level_dataset_surplus`.
pub const SURPLUS: f64 = 0.005;

/// A dataset and its weight, any positive scale.
pub type Source = (Arc<Dataset>, f64);

/// Rule by which datasets are mixed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mixture {
    /// By the weights given; datasets are repeated as needed.
    #[default]
    Weighted,
    /// One epoch of each at most, in proportion to their samples: Megatron without weights, with a size.
    Proportional,
    /// One epoch of each exactly: Megatron without weights and size. The requested number of samples is a lower limit.
    Exhaustive,
}

/// Request for a blend.
#[derive(Clone)]
pub struct BlendRequest<'a> {
    /// Datasets of train, valid and test: three times the same if `split` divides them. Empty: no such part.
    pub sources: [&'a [Source]; 3],
    /// Split string, e.g. `949,50,1`; `None` if every part has separate datasets.
    pub split: Option<&'a str>,
    /// Mixing rule.
    pub mixture: Mixture,
    /// Samples of train, valid, test; `None` means every sample of one epoch (in a weighted blend, of each dataset
    /// regardless of its weight), 0 means that there is no such part.
    pub samples: [Option<u64>; 3],
    /// Whether weights were given. Without weights a single dataset is used directly, as Megatron reads a lone path.
    pub weighed: bool,
    /// Length, seed and kind of a sample; its `samples` are ignored, and `drop_last` applies to the validation part.
    pub sample: Request,
    /// Samples built beyond those planned, as a share.
    pub surplus: f64,
    /// Maximum epochs of any dataset in a weighted blend, and the policy above it.
    pub max_epochs: Option<(f64, AboveCap)>,
    /// Samples of a global batch: every batch gets each dataset's share (MT-NLG's correction).
    pub even_batches: Option<u64>,
    /// Cache of index arrays.
    pub cache: Option<&'a Cache>,
}

impl<'a> BlendRequest<'a> {
    /// Megatron's defaults for one list of datasets that `split` divides.
    pub fn of(
        sources: &'a [Source],
        split: &'a str,
        samples: [Option<u64>; 3],
        seq_length: u64,
        seed: u32,
    ) -> BlendRequest<'a> {
        BlendRequest {
            sources: [sources; 3],
            split: Some(split),
            mixture: Mixture::Weighted,
            samples,
            weighed: true,
            sample: Request::of(seq_length, None, seed),
            surplus: SURPLUS,
            max_epochs: None,
            even_batches: None,
            cache: None,
        }
    }
}

/// One part of a blend.
pub struct Blend {
    part: Part,
    weights: Vec<f64>,
    datasets: Vec<GptSamples>,
    /// Dataset and its sample for every sample; None if a single dataset is used directly.
    columns: Option<Columns>,
}

/// Builds train, valid and test; `None` for a part whose ratio, datasets or requested samples are none.
///
/// # Errors
/// `Split`, `Blend` (weights, epochs), `EmptySplit` (a part without tokens), `Several` of them.
pub fn build(request: &BlendRequest) -> Result<[Option<Blend>; 3]> {
    let bounds = bounds_of(request.split)?;
    if !(request.surplus >= 0.0 && request.surplus.is_finite()) {
        return Err(Error::Blend {
            field: "surplus",
            found: request.surplus.to_string(),
            wanted: "a share of 0 or more".into(),
        });
    }
    let is_asked = |i: usize| !request.sources[i].is_empty() && request.samples[i] != Some(0);
    each_part(bounds, is_asked, |part, bounds| {
        Blend::new(request, part, bounds)
    })
}

impl Blend {
    fn new(r: &BlendRequest, part: Part, bounds: Bounds) -> Result<Blend> {
        let sources = r.sources[part as usize];
        let opening = Opening::of(r, part, bounds);
        if let ([source], true) = (sources, opening.is_alone(sources)) {
            // as Megatron: a lone prefix is repeated as often as the requested samples need
            let samples = r.samples[part as usize].filter(|_| r.mixture != Mixture::Exhaustive);
            opening.refuse_above_cap(source, samples)?;
            let dataset = opening.dataset(source, samples)?;
            return Ok(Blend {
                part,
                weights: vec![1.0],
                datasets: vec![dataset],
                columns: None,
            });
        }
        let blend = match (r.mixture, r.samples[part as usize]) {
            (Mixture::Weighted, Some(asked)) => opening.weighted(sources, asked)?,
            (Mixture::Weighted, None) | (Mixture::Proportional | Mixture::Exhaustive, _) => {
                opening.as_they_are(sources)?
            }
        };
        blend.refuse_more_than_there_is()?;
        Ok(blend)
    }

    /// Refuses a plan whose rounded shares take more samples of a dataset than its surplus provides.
    fn refuse_more_than_there_is(&self) -> Result<()> {
        let taken = self.taken(self.len());
        let mut problems = Vec::new();
        for ((dataset, used), weight) in self.datasets.iter().zip(taken).zip(&self.weights) {
            if used > dataset.len() {
                problems.push(Error::Blend {
                    field: "samples of a dataset",
                    found: format!("{used} taken from {}", dataset.dataset().prefix().display()),
                    wanted: format!("at most its {} at weight {weight}", dataset.len()),
                });
            }
        }
        Error::join(problems)
    }

    /// Samples.
    pub fn len(&self) -> u64 {
        match &self.columns {
            Some((d, _)) => d.len() as u64,
            None => self.datasets.iter().map(GptSamples::len).sum(),
        }
    }
    /// Whether it has no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The part.
    pub fn part(&self) -> Part {
        self.part
    }
    /// Normalised weights, one per dataset; lengths of the datasets if every sample is taken once.
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }
    /// The datasets' samples.
    pub fn datasets(&self) -> &[GptSamples] {
        &self.datasets
    }
    /// Dataset of each sample; empty if a single dataset is used directly.
    pub fn dataset_index(&self) -> &[i16] {
        self.columns.as_ref().map_or(&[], |c| &c.0)
    }
    /// Number of each sample in its dataset; empty if a single dataset is used directly.
    pub fn dataset_sample_index(&self) -> &[i64] {
        self.columns.as_ref().map_or(&[], |c| &c.1)
    }
    /// Sample order of each dataset.
    pub fn orders(&self) -> Vec<Order> {
        self.datasets.iter().map(|d| d.indices().order).collect()
    }

    /// Dataset and its sample at place `k`.
    ///
    /// # Errors
    /// `Range`.
    pub fn place(&self, k: u64) -> Result<(usize, u64)> {
        place(self.columns.as_ref(), self.datasets.len(), self.len(), k)
    }

    /// Fills `tokens` with sample `k`; returns the dataset's number.
    ///
    /// # Errors
    /// `Range`.
    pub fn read(&self, k: u64, tokens: &mut [u32]) -> Result<usize> {
        let (d, sample) = self.place(k)?;
        self.datasets[d].read(sample, tokens)?;
        Ok(d)
    }

    /// Like [`Blend::read`], with fill-in-the-middle applied.
    ///
    /// # Errors
    /// As [`GptSamples::read_fim`].
    pub fn read_fim(&self, k: u64, fim: &Fim, text: &FimText, tokens: &mut [u32]) -> Result<usize> {
        let (d, sample) = self.place(k)?;
        self.datasets[d].read_fim(sample, fim, text, tokens)?;
        Ok(d)
    }

    /// Samples taken from each dataset among the first `k`.
    pub fn taken(&self, k: u64) -> Vec<u64> {
        let Some((datasets, _)) = &self.columns else {
            return vec![k.min(self.len())];
        };
        let k = usize::try_from(k).unwrap_or(usize::MAX).min(datasets.len());
        let count = |part: &[i16]| {
            let mut taken = vec![0u64; self.datasets.len()];
            for d in part {
                if let Some(n) = taken.get_mut(usize::from(d.unsigned_abs())) {
                    *n += 1;
                }
            }
            taken
        };
        datasets[..k].par_chunks(1 << 20).map(count).reduce(
            || vec![0; self.datasets.len()],
            |a, b| a.iter().zip(&b).map(|(a, b)| a + b).collect(),
        )
    }
}

/// One part being opened.
struct Opening<'a> {
    r: &'a BlendRequest<'a>,
    part: Part,
    bounds: Bounds,
    sample: Request,
}

impl<'a> Opening<'a> {
    fn of(r: &'a BlendRequest<'a>, part: Part, bounds: Bounds) -> Opening<'a> {
        let mut sample = r.sample;
        sample.drop_last |= part != Part::Valid;
        Opening {
            r,
            part,
            bounds,
            sample,
        }
    }
}

impl Opening<'_> {
    /// Whether a single dataset is used directly, without an order over several.
    fn is_alone(&self, sources: &[Source]) -> bool {
        let is_mixed =
            self.r.split.is_some() && self.r.mixture == Mixture::Weighted && self.r.weighed;
        sources.len() == 1 && !is_mixed
    }

    fn dataset(&self, source: &Source, samples: Option<u64>) -> Result<GptSamples> {
        let request = Request {
            samples,
            ..self.sample
        };
        GptSamples::new(
            source.0.clone(),
            self.part,
            self.bounds,
            &request,
            self.r.cache,
        )
    }

    /// Builds every dataset's samples, or returns every problem.
    fn datasets(&self, sources: &[Source], samples: &[Option<u64>]) -> Result<Vec<GptSamples>> {
        let built: Vec<Result<GptSamples>> = sources
            .par_iter()
            .zip(samples)
            .map(|(source, samples)| self.dataset(source, *samples))
            .collect();
        let (mut datasets, mut problems) = (Vec::new(), Vec::new());
        for dataset in built {
            match dataset {
                Ok(d) => datasets.push(d),
                Err(e) => problems.push(e),
            }
        }
        Error::join(problems)?;
        Ok(datasets)
    }

    /// Refuses a lone dataset above the cap: there is no other to redistribute to.
    fn refuse_above_cap(&self, source: &Source, samples: Option<u64>) -> Result<()> {
        let (Some((epochs, _)), Some(asked)) = (self.r.max_epochs, samples) else {
            return Ok(());
        };
        let most = self.cap(source, epochs);
        if self.r.mixture != Mixture::Weighted || asked <= most {
            return Ok(());
        }
        Err(Error::Blend {
            field: "max_epochs",
            found: format!("{asked} samples of {}", source.0.prefix().display()),
            wanted: format!("at most {most}, {epochs} epochs"),
        })
    }

    /// Normalised weights and samples per dataset of a weighted blend of `asked` samples.
    fn plan(&self, sources: &[Source], asked: u64) -> Result<(Vec<f64>, Vec<u64>)> {
        let given: Vec<f64> = sources.iter().map(|s| s.1).collect();
        let mut shares = weights::normalise(&given)?;
        if let Some((epochs, above)) = self.r.max_epochs {
            let caps: Vec<u64> = sources.iter().map(|s| self.cap(s, epochs)).collect();
            let name = |d: usize| sources[d].0.prefix().display().to_string();
            shares = weights::capped(&shares, asked, &caps, above, &name)?;
        }
        let targets = weights::targets(&shares, asked);
        Ok((shares, targets))
    }

    fn weighted(&self, sources: &[Source], asked: u64) -> Result<Blend> {
        let (shares, targets) = self.plan(sources, asked)?;
        let built: Vec<Option<u64>> = targets
            .iter()
            .map(|t| Some(weights::with_surplus(*t, self.r.surplus)))
            .collect();
        let datasets = self.datasets(sources, &built)?;
        // Megatron normalises once more here; the second division can change the last bit.
        let shares = weights::normalise(&shares)?;
        self.blend(datasets, shares, Some(targets.iter().sum()))
    }

    fn as_they_are(&self, sources: &[Source]) -> Result<Blend> {
        let datasets = self.datasets(sources, &vec![None; sources.len()])?;
        let total: u64 = datasets.iter().map(GptSamples::len).sum();
        let lengths: Vec<f64> = datasets.iter().map(|d| d.len() as f64).collect();
        let empty = datasets.iter().filter(|d| d.is_empty());
        let problems = empty.map(|d| Error::EmptySplit {
            dataset: d.dataset().prefix().display().to_string(),
            split: self.part.name(),
            documents: d.documents().end - d.documents().start,
            tokens: d.epoch_tokens(),
            samples: 1,
            seq_length: d.seq_length(),
        });
        Error::join(problems.collect())?;
        let asked = self.r.samples[self.part as usize];
        match asked.filter(|_| self.r.mixture == Mixture::Proportional) {
            Some(n) => self.blend(datasets, weights::normalise(&lengths)?, Some(n.min(total))),
            None => self.blend(datasets, lengths, None),
        }
    }

    /// Without a size every sample is taken once, and weights are lengths.
    fn blend(
        &self,
        datasets: Vec<GptSamples>,
        weights: Vec<f64>,
        size: Option<u64>,
    ) -> Result<Blend> {
        let (part, lengths) = (
            self.part,
            datasets.iter().map(GptSamples::len).collect::<Vec<_>>(),
        );
        let build = || match (size, self.r.even_batches) {
            (None, _) => order::exhaustive(&lengths),
            (Some(size), None) => order::weighted(&weights, size),
            (Some(size), Some(batch)) => batches::batched(&weights, size, batch.max(1)),
        };
        // Megatron has no even batches: such an order must not be cached under Megatron's name
        let columns = match self.r.cache.filter(|_| self.r.even_batches.is_none()) {
            None => build()?,
            Some(cache) => {
                let identify = |d: &GptSamples| {
                    cache.identifiers("GPTDataset", d.dataset().prefix(), part, d.request())
                };
                let all = datasets.iter().map(identify).collect();
                let description = cache.describe_blend(all, part, &weights, size);
                let n = size.unwrap_or(lengths.iter().sum());
                let n = usize::try_from(n).unwrap_or(usize::MAX);
                cache.blend(&description, part, n, build)?
            }
        };
        Ok(Blend {
            part,
            weights,
            datasets,
            columns: Some(columns),
        })
    }

    /// Samples of a dataset in `epochs` epochs.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "0 <= x, saturating"
    )]
    fn cap(&self, source: &Source, epochs: f64) -> u64 {
        let documents = split::elements(self.bounds, source.0.sequences());
        let tokens: u64 = documents
            .map(|i| u64::from(source.0.length(usize::try_from(i).unwrap_or(usize::MAX))))
            .sum();
        let usable = (tokens as f64 * epochs) as u64;
        usable.saturating_sub(u64::from(self.sample.extra_token)) / self.sample.seq_length.max(1)
    }
}

/// Opens every dataset, or returns the problem of each that cannot be opened.
///
/// # Errors
/// As [`Dataset::open`], `Several` if there are.
pub fn open_all<'a>(prefixes: impl Iterator<Item = &'a Path>) -> Result<Vec<Arc<Dataset>>> {
    let (mut datasets, mut problems) = (Vec::new(), Vec::new());
    for prefix in prefixes {
        match Dataset::open(prefix) {
            Ok(d) => datasets.push(Arc::new(d)),
            Err(e) => problems.push(e),
        }
    }
    Error::join(problems)?;
    Ok(datasets)
}
