//! Predicted bytes of a blend's index arrays, from counts alone: they grow with the requested samples (Megatron's
//! arrays have a row for each), so a job can be refused before they are built.
//!
//! A dataset of D sequences and E epochs with N samples: 4 D E bytes of documents, 8 (N + 1) of starts (16 above
//! 2^31 positions), 4 N of places (8 from 2^32 - 2 samples on); a blend of n samples: 10 n, its dataset and sample.

use super::{BlendRequest, Mixture, Opening, Source, weights};
use crate::error::Result;
use crate::samples::{Request, Sizes, epoch_tokens};
use crate::split::{self, Part};

/// Bytes of the arrays of one part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexBytes {
    /// Sequence numbers, all epochs of all datasets.
    pub documents: u64,
    /// Sample starts and sample order, over all datasets.
    pub samples: u64,
    /// Dataset of every sample, if there are several datasets.
    pub order: u64,
}

impl IndexBytes {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.documents
            .saturating_add(self.samples)
            .saturating_add(self.order)
    }
}

/// Bytes that `build_blend` allocates for the arrays of train, valid and test, for the lifetime of the blend; reads the
/// lengths of all sequences once.
///
/// # Errors
/// As `build_blend` for splits, weights and epochs.
pub fn index_bytes(request: &BlendRequest) -> Result<[IndexBytes; 3]> {
    let bounds = match request.split {
        Some(split) => split::parse(split)?,
        None => [Some((0.0, 1.0)); 3],
    };
    let mut parts = [IndexBytes::default(); 3];
    for (i, part) in Part::ALL.into_iter().enumerate() {
        let asked = !request.sources[i].is_empty() && request.samples[i] != Some(0);
        if let (Some(bounds), true) = (bounds[i], asked) {
            parts[i] = Opening::of(request, part, bounds).bytes(request.sources[i])?;
        }
    }
    Ok(parts)
}

impl Opening<'_> {
    fn bytes(&self, sources: &[Source]) -> Result<IndexBytes> {
        let asked = self.r.samples[self.part as usize];
        let mut bytes = IndexBytes::default();
        if self.is_alone(sources) {
            let samples = asked.filter(|_| self.r.mixture != Mixture::Exhaustive);
            self.add(&sources[0], samples, &mut bytes);
            return Ok(bytes);
        }
        let taken = match (self.r.mixture, asked) {
            (Mixture::Weighted, Some(asked)) => {
                let (_, targets) = self.plan(sources, asked)?;
                for (source, target) in sources.iter().zip(&targets) {
                    let built = weights::with_surplus(*target, self.r.surplus);
                    self.add(source, Some(built), &mut bytes);
                }
                targets.iter().sum()
            }
            (Mixture::Weighted, None) | (Mixture::Proportional | Mixture::Exhaustive, _) => {
                let each = sources.iter().map(|s| self.add(s, None, &mut bytes));
                let total: u64 = each.sum();
                let asked = asked.filter(|_| self.r.mixture == Mixture::Proportional);
                asked.map_or(total, |asked| asked.min(total))
            }
        };
        bytes.order = 10u64.saturating_mul(taken);
        Ok(bytes)
    }

    /// Adds one dataset's bytes; returns its samples. Errors of building it are reported by the build.
    fn add(&self, source: &Source, samples: Option<u64>, bytes: &mut IndexBytes) -> u64 {
        let request = Request {
            samples,
            ..self.sample
        };
        let documents = split::elements(self.bounds, source.0.sequences());
        let count = documents.end - documents.start;
        let tokens = epoch_tokens(&documents, &|i| source.0.length(i));
        let Some(sizes) = Sizes::of(tokens, &request) else {
            return 0;
        };
        let positions = count.saturating_mul(sizes.order.epochs);
        let start = if i32::try_from(positions).is_ok() {
            8
        } else {
            16
        };
        let place = if sizes.samples < u64::from(u32::MAX) - 1 {
            4
        } else {
            8
        };
        let rows = sizes.samples.saturating_add(1).saturating_mul(start);
        let places = sizes.samples.saturating_mul(place);
        bytes.documents = bytes.documents.saturating_add(positions.saturating_mul(4));
        bytes.samples = bytes.samples.saturating_add(rows).saturating_add(places);
        sizes.samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blend::build;
    use crate::dataset::write::DatasetWriter;
    use crate::dataset::{Dataset, TokenType};
    use crate::samples::GptSamples;
    use std::path::Path;
    use std::sync::Arc;

    fn dataset(folder: &Path, name: &str, documents: u32) -> Arc<Dataset> {
        let prefix = folder.join(name);
        let mut writer = DatasetWriter::create(&prefix, TokenType::U16).unwrap();
        for document in 0..documents {
            let length = 3 + document % 40;
            let bytes = vec![1; 2 * usize::try_from(length).unwrap()];
            writer.documents(&bytes, &[length]).unwrap();
        }
        writer.finish().unwrap();
        Arc::new(Dataset::open(&prefix).unwrap())
    }

    /// Bytes of the arrays that were built.
    fn built(request: &BlendRequest) -> [IndexBytes; 3] {
        let parts = build(request).unwrap();
        parts.map(|part| {
            let Some(part) = part else {
                return IndexBytes::default();
            };
            let documents = |d: &GptSamples| d.indices().document_index.bytes().len() as u64;
            let all = |d: &GptSamples| d.indices().bytes();
            let of =
                |bytes: &dyn Fn(&GptSamples) -> u64| part.datasets().iter().map(bytes).sum::<u64>();
            let order = 2 * part.dataset_index().len() + 8 * part.dataset_sample_index().len();
            IndexBytes {
                documents: of(&documents),
                samples: of(&all) - of(&documents),
                order: order as u64,
            }
        })
    }

    #[test]
    fn what_is_predicted_is_what_is_built() {
        let folder = tempfile::tempdir().unwrap();
        let sources = [
            (dataset(folder.path(), "a", 500), 0.7),
            (dataset(folder.path(), "b", 90), 0.3),
        ];
        let mut seen = Vec::new();
        for mixture in [
            Mixture::Weighted,
            Mixture::Proportional,
            Mixture::Exhaustive,
        ] {
            for list in [&sources[..], &sources[..1]] {
                for split in [Some("90,10,0"), None] {
                    for train in [1, 100, 3000, 40_000] {
                        let mut request =
                            BlendRequest::of(list, "90,10,0", [Some(train), Some(20), None], 16, 7);
                        (request.split, request.mixture) = (split, mixture);
                        if mixture == Mixture::Weighted {
                            request.samples[2] = Some(0);
                        }
                        let predicted = index_bytes(&request).unwrap();
                        assert_eq!(predicted, built(&request), "{mixture:?} {split:?} {train}");
                        seen.push(predicted[0].total());
                    }
                }
            }
        }
        // grows with the requested samples, where datasets are repeated
        assert!(seen.iter().max().unwrap() > &(40_000 * 12));
    }

    #[test]
    fn a_hundred_million_steps_are_told_without_being_built() {
        let folder = tempfile::tempdir().unwrap();
        let sources = [
            (dataset(folder.path(), "a", 500), 0.7),
            (dataset(folder.path(), "b", 90), 0.3),
        ];
        let asked = [Some(3_200_000_000), Some(1), Some(0)];
        let request = BlendRequest::of(&sources, "90,10,0", asked, 32, 7);
        let [train, ..] = index_bytes(&request).unwrap();
        assert!(train.order >= 32_000_000_000 && train.samples >= 12 * 3_200_000_000);
        assert!(train.total() > 70_000_000_000, "{train:?}");
    }
}
