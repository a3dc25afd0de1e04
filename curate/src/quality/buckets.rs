//! Buckets of scores, shared by the classifiers of an ensemble: of several steps the greatest bucket counts.

use std::ops::RangeInclusive;

use crate::check::Problem;
use crate::contract::Draft;

/// Reports edges that are not ascending numbers in `range`, and a minimum above the last bucket.
pub(super) fn check_buckets(
    buckets: &[f64],
    min_bucket: u64,
    range: RangeInclusive<f64>,
    problem: Problem<'_>,
) {
    let inside = buckets.iter().all(|edge| range.contains(edge));
    if !inside || !buckets.is_sorted() {
        let wanted = match range.end().is_finite() {
            true => format!(
                "scores from {} to {}, the lowest first",
                range.start(),
                range.end()
            ),
            false => "scores, the lowest first".to_string(),
        };
        problem("buckets", format!("{buckets:?}"), &wanted);
    }
    if min_bucket > buckets.len() as u64 {
        let wanted = "at most the number of `buckets`";
        problem("min_bucket", min_bucket.to_string(), wanted);
    }
}

/// The bucket of a score: as documents keep it, to six places.
pub(super) fn bucket(edges: &[f64], score: f64) -> u64 {
    let score = (score * 1e6).round() / 1e6;
    edges.partition_point(|edge| *edge <= score) as u64
}

/// Puts the greater of the score's bucket and that of steps before into the metadata; returns it.
pub(super) fn add_bucket(draft: &mut Draft, edges: &[f64], score: f64) -> u64 {
    let meta = draft.meta.as_ref();
    let before = meta.and_then(|meta| meta["quality_bucket"].as_u64());
    let bucket = bucket(edges, score).max(before.unwrap_or(0));
    draft.note("quality_bucket", bucket.into());
    bucket
}
