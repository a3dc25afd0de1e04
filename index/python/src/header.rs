//! The verification of a dataset's two files, and the counts that place the arrays of its `.idx`.

use crate::error::exception;
use index::dataset::Dataset;
use pyo3::prelude::*;
use std::path::PathBuf;

/// Counts of a verified `.idx`.
#[pyclass(frozen, get_all)]
pub(crate) struct Header {
    /// numpy's name of the token type.
    dtype: &'static str,
    /// Sequences.
    sequences: u64,
    /// Documents.
    documents: u64,
    /// Tokens in all sequences.
    tokens: u64,
    /// Whether every sequence has a mode.
    has_modes: bool,
}

/// Opens `PREFIX.idx` and `PREFIX.bin` and verifies every length, offset and boundary, and both sizes.
///
/// # Errors
/// `OSError` if a file cannot be read, `ValueError` if they are damaged or do not belong together.
#[pyfunction]
pub(crate) fn verify(py: Python<'_>, prefix: PathBuf) -> PyResult<Header> {
    let dataset = py.detach(|| Dataset::open(&prefix));
    let dataset = dataset.map_err(|e| exception(&e))?;
    Ok(Header {
        dtype: dataset.token_type().name(),
        sequences: dataset.sequences(),
        documents: dataset.documents(),
        tokens: dataset.tokens(),
        has_modes: dataset.modes().is_some(),
    })
}
