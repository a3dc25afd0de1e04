//! DeBERTa's distances between tokens: clipped, or in logarithmic buckets.

use crate::infer::classifier::config::Relative;

/// Bucket of a distance: distances up to half of `buckets` are their own, further ones share buckets whose widths grow
/// with the logarithm up to `positions`. In f32 as the model was trained, which decides ties.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "distances below 2^20"
)]
pub(super) fn bucket(distance: i64, buckets: usize, positions: usize) -> i64 {
    let half = (buckets / 2) as i64;
    if distance.abs() <= half {
        return distance;
    }
    let last = ((positions as f64 - 1.0) / half as f64) as f32;
    let ratio = (distance.abs() as f32 / half as f32).ln() / last.ln();
    let steps = (ratio * (half - 1) as f32).ceil();
    (steps as i64 + half) * distance.signum()
}

/// Rows of the table of distances for query - key from -(t - 1) to t - 1, ascending.
pub(super) fn rows_of(relative: &Relative, t: usize) -> Vec<usize> {
    let (span, t) = (relative.span() as i64, t as i64);
    let row = |distance: i64| {
        let found = match relative.buckets {
            0 => distance,
            buckets => bucket(distance, buckets, relative.positions),
        };
        let row = (found + span).clamp(0, 2 * span - 1);
        usize::try_from(row).expect("clamped at 0")
    };
    (1 - t..t).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn buckets_are_those_of_transformers() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../tests/data/classifiers/buckets.json"
        );
        let tables: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let tables = tables.as_array().unwrap();
        assert_eq!(tables.len(), 5);
        for table in tables {
            let number = |key: &str| usize::try_from(table[key].as_u64().unwrap()).unwrap();
            let (buckets, positions) = (number("buckets"), number("positions"));
            let first = table["first"].as_i64().unwrap();
            for (at, wanted) in (first..).zip(table["of"].as_array().unwrap()) {
                let found = bucket(at, buckets, positions);
                assert_eq!(Some(found), wanted.as_i64(), "{buckets} {positions} {at}");
            }
        }
    }

    #[test]
    fn rows_of_distances_ascend_within_the_table() {
        for buckets in [0, 8] {
            let relative = Relative {
                buckets,
                positions: 24,
                has_keys: true,
                has_queries: true,
                is_shared: true,
                is_normed: false,
            };
            let rows = rows_of(&relative, 40);
            assert_eq!(rows.len(), 79);
            assert!(rows.is_sorted() && rows[78] < 2 * relative.span());
            assert_eq!(rows[39], relative.span());
        }
    }
}
