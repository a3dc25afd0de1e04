//! One part of a blend: the order of its samples and where the tokens of each are.

use crate::error::exception;
use index::Error;
use index::blend::{AboveCap, BlendRequest, Mixture, Source, open_all};
use index::samples::{GptSamples, Request};
use index::split::Part;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;

/// The request for one part, by the names of a job's `[blend]`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Settings {
    part: String,
    prefixes: Vec<PathBuf>,
    /// One for every prefix.
    weights: Vec<f64>,
    /// Whether the weights were given: without them a lone dataset is used directly.
    weighed: bool,
    /// None: the whole of every dataset.
    split: Option<String>,
    mixture: String,
    /// None: every sample of one epoch.
    samples: Option<u64>,
    seq_length: u64,
    seed: u32,
    surplus: f64,
    /// 0 is no limit.
    max_epochs: f64,
    above_cap: String,
    /// Samples of a global batch.
    even_batches: Option<u64>,
    extra_token: bool,
    drop_last: bool,
}

/// A run of tokens in one sequence of one dataset.
#[derive(IntoPyObject)]
struct Piece {
    sequence: u64,
    offset: u64,
    length: u64,
}

/// Arrays of a dataset's samples, as Megatron stores them, little-endian.
#[pyclass(frozen, get_all)]
struct Arrays {
    /// i32, the sequence at every position of all epochs.
    document_index: Py<PyBytes>,
    /// Two numbers a row, the position and the offset of each start.
    sample_index: Py<PyBytes>,
    /// The sample at each place of the order.
    shuffle_index: Py<PyBytes>,
    /// Whether the rows of `sample_index` are i64 rather than i32.
    has_wide_starts: bool,
    /// Whether `shuffle_index` is i64 rather than u32.
    has_wide_places: bool,
}

/// The samples of one part of a blend.
#[pyclass(frozen)]
pub(crate) struct Blend(index::blend::Blend);

/// Builds the order of one part in Megatron's way.
///
/// # Errors
/// `OSError` and `ValueError` for datasets that cannot be opened and settings that cannot be met, every problem in one
/// message; `MemoryError`.
#[pyfunction]
pub(crate) fn build(py: Python<'_>, settings: Settings) -> PyResult<Blend> {
    let part = part(&settings.part)?;
    let mixture = mixture(&settings.mixture)?;
    let above_cap = above_cap(&settings.above_cap)?;
    let built = py.detach(|| open(&settings, part, mixture, above_cap));
    let blend = built.map_err(|e| exception(&e))?;
    let blend = blend.ok_or_else(|| {
        PyValueError::new_err(format!(
            "split {:?}: found no {} samples, wanted a ratio above 0 and a sample or more",
            settings.split.as_deref().unwrap_or("none"),
            part.name()
        ))
    })?;
    Ok(Blend(blend))
}

/// Opens the datasets and builds the part; None if the split or the number of samples leaves nothing.
fn open(
    settings: &Settings,
    part: Part,
    mixture: Mixture,
    above_cap: AboveCap,
) -> index::Result<Option<index::blend::Blend>> {
    let datasets = open_all(settings.prefixes.iter().map(PathBuf::as_path))?;
    for dataset in &datasets {
        dataset.expect_ids()?;
    }
    let weights = settings.weights.iter().copied();
    let sources: Vec<Source> = datasets.into_iter().zip(weights).collect();
    let mut lists: [&[Source]; 3] = [&[]; 3];
    let mut samples = [Some(0); 3];
    lists[part as usize] = &sources;
    samples[part as usize] = settings.samples;
    let request = BlendRequest {
        sources: lists,
        split: settings.split.as_deref(),
        mixture,
        samples,
        weighed: settings.weighed,
        sample: Request {
            extra_token: settings.extra_token,
            drop_last: settings.drop_last,
            ..Request::of(settings.seq_length, None, settings.seed)
        },
        surplus: settings.surplus,
        max_epochs: (settings.max_epochs > 0.0).then_some((settings.max_epochs, above_cap)),
        even_batches: settings.even_batches,
        cache: None,
    };
    let [train, valid, test] = index::blend::build(&request)?;
    Ok(match part {
        Part::Train => train,
        Part::Valid => valid,
        Part::Test => test,
    })
}

/// The error of a word that is none of `wanted`.
fn wrong(key: &str, found: &str, wanted: &str) -> PyErr {
    PyValueError::new_err(format!("{key}: found {found:?}, wanted {wanted}"))
}

fn part(name: &str) -> PyResult<Part> {
    let found = Part::ALL.into_iter().find(|p| p.name() == name);
    found.ok_or_else(|| wrong("part", name, "train, valid or test"))
}

fn mixture(name: &str) -> PyResult<Mixture> {
    match name {
        "weighted" => Ok(Mixture::Weighted),
        "proportional" => Ok(Mixture::Proportional),
        "exhaustive" => Ok(Mixture::Exhaustive),
        _ => Err(wrong(
            "mixture",
            name,
            "weighted, proportional or exhaustive",
        )),
    }
}

fn above_cap(name: &str) -> PyResult<AboveCap> {
    match name {
        "refuse" => Ok(AboveCap::Refuse),
        "redistribute" => Ok(AboveCap::Redistribute),
        _ => Err(wrong("above_cap", name, "refuse or redistribute")),
    }
}

impl Blend {
    fn samples(&self, dataset: usize) -> PyResult<&GptSamples> {
        let all = self.0.datasets();
        all.get(dataset).ok_or_else(|| {
            exception(&Error::Range {
                what: "dataset",
                index: dataset as u64,
                len: all.len() as u64,
            })
        })
    }
}

#[pymethods]
impl Blend {
    fn __len__(&self) -> PyResult<usize> {
        Ok(usize::try_from(self.0.len())?)
    }

    /// Tokens of a sample, with the extra one if samples have it.
    #[getter]
    fn sample_tokens(&self) -> u64 {
        let first = self.0.datasets().first();
        first.map_or(0, GptSamples::sample_tokens)
    }

    /// Normalised weights, one for every dataset.
    #[getter]
    fn weights(&self) -> Vec<f64> {
        self.0.weights().to_vec()
    }

    /// Number of the dataset of sample `k`, and of the sample in it.
    ///
    /// # Errors
    /// `IndexError`.
    fn place(&self, k: u64) -> PyResult<(usize, u64)> {
        self.0.place(k).map_err(|e| exception(&e))
    }

    /// Number of the dataset of sample `k`, and where its tokens are; fewer than `sample_tokens` if the data ends
    /// before.
    ///
    /// # Errors
    /// `IndexError`.
    fn pieces(&self, k: u64) -> PyResult<(usize, Vec<Piece>)> {
        let (number, sample) = self.place(k)?;
        let samples = self.samples(number)?;
        let indices = samples.indices();
        let range = || {
            exception(&Error::Range {
                what: "sample",
                index: k,
                len: self.0.len(),
            })
        };
        if sample >= samples.len() {
            return Err(range());
        }
        let row = indices.shuffle_index.at(usize::try_from(sample)?);
        let (position, mut offset) = indices.sample_index.row(row);
        let sequences = indices.document_index.get(position..).ok_or_else(range)?;
        let mut left = samples.sample_tokens();
        let mut pieces = Vec::new();
        for sequence in sequences {
            if left == 0 {
                break;
            }
            let sequence = sequence.unsigned_abs();
            let length = samples.dataset().length(sequence as usize);
            let length = u64::from(length).saturating_sub(offset).min(left);
            if length > 0 {
                let sequence = u64::from(sequence);
                pieces.push(Piece {
                    sequence,
                    offset,
                    length,
                });
            }
            left -= length;
            offset = 0;
        }
        Ok((number, pieces))
    }

    /// Copy of the dataset's number of each sample, i16; empty if a single dataset is used directly.
    fn dataset_index<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let bytes: Vec<u8> = self
            .0
            .dataset_index()
            .iter()
            .flat_map(|d| d.to_le_bytes())
            .collect();
        PyBytes::new(py, &bytes)
    }

    /// Copy of each sample's number in its dataset, i64; empty if a single dataset is used directly.
    fn dataset_sample_index<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let bytes: Vec<u8> = self
            .0
            .dataset_sample_index()
            .iter()
            .flat_map(|k| k.to_le_bytes())
            .collect();
        PyBytes::new(py, &bytes)
    }

    /// Copies of the index arrays of a dataset.
    ///
    /// # Errors
    /// `IndexError`.
    fn arrays(&self, py: Python<'_>, dataset: usize) -> PyResult<Arrays> {
        let indices = self.samples(dataset)?.indices();
        let bytes = |b: &[u8]| PyBytes::new(py, b).unbind();
        Ok(Arrays {
            document_index: bytes(indices.document_index.bytes()),
            sample_index: bytes(indices.sample_index.bytes()),
            shuffle_index: bytes(indices.shuffle_index.bytes()),
            has_wide_starts: matches!(indices.sample_index, index::samples::Starts::Wide(_)),
            has_wide_places: matches!(indices.shuffle_index, index::samples::Places::Wide(_)),
        })
    }
}
