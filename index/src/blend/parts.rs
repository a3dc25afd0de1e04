//! Helpers shared by blends of texts and of masked samples: the parts of a split, and a sample's position among
//! datasets.

use super::order::Columns;
use crate::error::{Error, Result};
use crate::split::{self, Bounds, Part};

/// Bounds of train, valid and test; without a split each part has all of its separate datasets.
pub(super) fn bounds_of(split: Option<&str>) -> Result<[Option<Bounds>; 3]> {
    match split {
        Some(split) => split::parse(split),
        None => Ok([Some((0.0, 1.0)); 3]),
    }
}

/// Opens every requested part that has bounds; reports all problems at once.
pub(super) fn each_part<T>(
    bounds: [Option<Bounds>; 3],
    is_asked: impl Fn(usize) -> bool,
    open: impl Fn(Part, Bounds) -> Result<T>,
) -> Result<[Option<T>; 3]> {
    let mut parts = [None, None, None];
    let mut problems = Vec::new();
    for (i, part) in Part::ALL.into_iter().enumerate() {
        if let (Some(bounds), true) = (bounds[i], is_asked(i)) {
            match open(part, bounds) {
                Ok(opened) => parts[i] = Some(opened),
                Err(e) => problems.push(e),
            }
        }
    }
    Error::join(problems)?;
    Ok(parts)
}

/// Dataset and its sample at place `k` of `len`, of that many datasets; without columns the single dataset is used
/// directly.
///
/// # Errors
/// `Range`.
pub(super) fn place(
    columns: Option<&Columns>,
    datasets: usize,
    len: u64,
    k: u64,
) -> Result<(usize, u64)> {
    let Some((numbers, samples)) = columns else {
        return Ok((0, k));
    };
    let found = usize::try_from(k).ok().and_then(|i| {
        let dataset = usize::try_from(*numbers.get(i)?).ok()?;
        (dataset < datasets).then(|| (dataset, samples[i].unsigned_abs()))
    });
    found.ok_or(Error::Range {
        what: "blended sample",
        index: k,
        len,
    })
}
