//! Relative position bias of T5: `bias[h, i, j] = table[bucket(j - i), h]`, and the table's gradient.
//! Paper: Raffel et al. 2020, JMLR 21, sec. 2.1; buckets as in Mesh TensorFlow.
//!
//! With b buckets for one direction, m = b / 2 and n the distance: bucket n if n < m, else
//! `m + floor(ln(n / m) / ln(max_distance / m) * (b - m))`, at most b - 1. Both directions: each has half
//! of the buckets, keys after the query the upper half. Causal: keys after the query count as distance 0.
//! The logarithm's quotient is rounded to f32 as transformers does it, so that borders are the same.
//!
//! Gradient: per bucket and head a sum over (query, key) pairs, cut into leaves of `leaf` query rows;
//! a leaf is one chain from 0 over its pairs in ascending (query, key) order, leaves are merged by the
//! binary-counter tree, then one merge with the old value. Heads know nothing of each other.

mod cpu;

use crate::{DType, Error, Result, Tensor};

/// How distances become buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buckets {
    /// Buckets, rows of the table. T5: 32.
    pub buckets: usize,
    /// Distance from which all share the last bucket. T5: 128.
    pub max_distance: usize,
    /// Whether keys after the query have buckets of their own (encoder) or none (decoder).
    pub bidirectional: bool,
}

/// Which queries and keys of a sequence a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Position of the first query.
    pub first_query: usize,
    /// Queries.
    pub queries: usize,
    /// Position of the first key.
    pub first_key: usize,
    /// Keys.
    pub keys: usize,
}

impl Buckets {
    /// Returns the bucket of a key at `key` seen from `query`.
    pub fn of(&self, query: usize, key: usize) -> usize {
        let (half, first) = match (self.bidirectional, key > query) {
            (true, after) => (self.buckets / 2, usize::from(after) * (self.buckets / 2)),
            (false, true) => return 0,
            (false, false) => (self.buckets, 0),
        };
        first + self.of_distance(query.abs_diff(key), half)
    }

    /// Bucket of a distance among the `half` buckets of its direction.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "rounded to f32 as the definition asks; a bucket number is small and not negative"
    )]
    fn of_distance(&self, distance: usize, half: usize) -> usize {
        let exact = half / 2;
        if distance < exact {
            return distance;
        }
        let ratio = f64::from(distance as f32 / exact as f32).ln() as f32;
        let range = (self.max_distance as f64 / exact as f64).ln() as f32;
        let step = ratio / range * (half - exact) as f32;
        (exact + step as usize).min(half - 1)
    }

    fn check(&self, op: &'static str) -> Result<()> {
        let argument = |name, found: usize, wanted: String| {
            Err(Error::Argument {
                op,
                name,
                found: found.to_string(),
                wanted,
            })
        };
        let half = self.buckets / (1 + usize::from(self.bidirectional));
        if half < 2 || self.bidirectional && !self.buckets.is_multiple_of(2) {
            let wanted = "even and at least 4, or at least 2 when causal".to_owned();
            return argument("buckets", self.buckets, wanted);
        }
        if self.max_distance <= half / 2 {
            let wanted = format!("above {}", half / 2);
            return argument("max_distance", self.max_distance, wanted);
        }
        Ok(())
    }
}

/// Returns the bias: `[heads, queries, keys]`.
/// # Shapes
/// table: `[buckets, heads]`; a rank's table has the columns of its heads.
/// # Errors
/// `Shape`, `DType` or `Argument` if they do not fit.
pub fn forward(table: &Tensor, buckets: &Buckets, span: &Span) -> Result<Tensor> {
    const OP: &str = "relative_bias::forward";
    let heads = check(OP, "table", table, buckets, span)?;
    let dims = [heads, span.queries, span.keys];
    let mut bias = Tensor::empty(&dims, DType::F32, table.device())?;
    dispatch!(table.device(), forward(&mut bias, table, buckets, span));
    Ok(bias)
}

/// Adds the table's gradient to dtable; leaf in query rows, 0 for one per sequence.
/// # Shapes
/// dtable: `[buckets, heads]`, dbias: `[b, heads, queries, keys]`, one per sequence.
/// # Errors
/// `Shape`, `DType` or `Argument` if they do not fit.
pub fn backward(
    dtable: &mut Tensor,
    dbias: &Tensor,
    buckets: &Buckets,
    span: &Span,
    leaf: usize,
) -> Result<()> {
    const OP: &str = "relative_bias::backward";
    let heads = check(OP, "dtable", dtable, buckets, span)?;
    dbias.expect(OP, "dbias", DType::F32)?;
    if dbias.dims().len() != 4 || dbias.dims()[1..] != [heads, span.queries, span.keys] {
        return Err(Error::Shape {
            op: OP,
            name: "dbias",
            found: dbias.dims().to_vec(),
            wanted: format!("[b, {heads}, {}, {}]", span.queries, span.keys),
        });
    }
    let device = dtable.device().clone();
    dispatch!(device, backward(dtable, dbias, buckets, span, leaf));
    Ok(())
}

fn check(
    op: &'static str,
    name: &'static str,
    table: &Tensor,
    buckets: &Buckets,
    span: &Span,
) -> Result<usize> {
    buckets.check(op)?;
    if span.queries == 0 || span.keys == 0 {
        return Err(Error::Argument {
            op,
            name: "span",
            found: format!("{} queries and {} keys", span.queries, span.keys),
            wanted: "at least one of each".to_owned(),
        });
    }
    table.expect(op, name, DType::F32)?;
    match table.dims() {
        &[rows, heads] if rows == buckets.buckets && heads > 0 => Ok(heads),
        dims => Err(Error::Shape {
            op,
            name,
            found: dims.to_vec(),
            wanted: format!("[{}, heads]", buckets.buckets),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;
    use crate::testing::{assert_same_bits, bits, random, tree};

    /// Lines of `buckets max_distance bidirectional | buckets of key - query = -300 .. 300`.
    const GOLDEN: &str = include_str!("../../../tests/data/t5_buckets.txt");

    const BOTH: Buckets = Buckets {
        buckets: 8,
        max_distance: 12,
        bidirectional: true,
    };
    const SPAN: Span = Span {
        first_query: 4,
        queries: 6,
        first_key: 0,
        keys: 15,
    };

    #[test]
    fn buckets_are_those_of_transformers() {
        let mut different = false;
        for line in GOLDEN.lines() {
            let (left, right) = line.split_once(" | ").unwrap();
            let n: Vec<usize> = left.split(' ').map(|w| w.parse().unwrap()).collect();
            let buckets = Buckets {
                buckets: n[0],
                max_distance: n[1],
                bidirectional: n[2] == 1,
            };
            let want: Vec<usize> = right.split(' ').map(|w| w.parse().unwrap()).collect();
            let found: Vec<usize> = (0..=600).map(|key| buckets.of(300, key)).collect();
            assert_eq!(found, want, "{left}");
            // Must fail: the distance taken the other way round.
            different |= (0..=600).any(|key| buckets.of(key, 300) != want[key]);
        }
        assert!(different && GOLDEN.lines().count() >= 8);
    }

    #[test]
    fn a_part_of_the_positions_and_heads_has_the_bias_of_the_whole() {
        let device = Device::cpu();
        let table = random(&[8, 3], 1, &device).unwrap();
        let whole = Span {
            first_query: 0,
            queries: 15,
            first_key: 0,
            keys: 15,
        };
        let whole = forward(&table, &BOTH, &whole).unwrap();
        let column: Vec<f32> = (0..8).map(|b| table.f32()[b * 3 + 1]).collect();
        let column = Tensor::from_f32(&[8, 1], &column, &device).unwrap();
        let part = forward(&column, &BOTH, &SPAN).unwrap();
        assert_eq!(part.f32(), &whole.f32()[15 * 15 + 4 * 15..][..6 * 15]);
    }

    #[test]
    fn backward_has_the_bits_of_the_tree_over_query_rows() {
        let device = Device::cpu();
        let dbias = random(&[3, 2, 6, 15], 1, &device).unwrap();
        for leaf in [0, 1, 2, 6] {
            let old = random(&[8, 2], 2, &device).unwrap();
            let mut found = old.try_clone().unwrap();
            backward(&mut found, &dbias, &BOTH, &SPAN, leaf).unwrap();
            let leaf = if leaf == 0 { 6 } else { leaf };
            for bucket in 0..8 {
                for head in 0..2 {
                    let chain = |first: usize| {
                        let mut sum = 0.0_f32;
                        for row in first..first + leaf {
                            let at = ((row / 6 * 2 + head) * 6 + row % 6) * 15;
                            for key in 0..15 {
                                if BOTH.of(4 + row % 6, key) == bucket {
                                    sum += dbias.f32()[at + key];
                                }
                            }
                        }
                        sum
                    };
                    let at = bucket * 2 + head;
                    let want = old.f32()[at] + tree((0..18).step_by(leaf).map(chain));
                    assert_eq!(found.f32()[at].to_bits(), want.to_bits(), "{leaf} {bucket}");
                }
            }
        }
    }

    #[test]
    fn backward_is_the_transpose_of_forward() {
        let device = Device::cpu();
        let table = random(&[8, 2], 1, &device).unwrap();
        let dbias = random(&[1, 2, 6, 15], 2, &device).unwrap();
        let bias = forward(&table, &BOTH, &SPAN).unwrap();
        let mut dtable = Tensor::zeros(&[8, 2], DType::F32, &device).unwrap();
        backward(&mut dtable, &dbias, &BOTH, &SPAN, 0).unwrap();
        let dot = |a: &Tensor, b: &Tensor| {
            let products = a.f32().iter().zip(b.f32());
            products
                .map(|(a, b)| f64::from(*a) * f64::from(*b))
                .sum::<f64>()
        };
        let (left, right) = (dot(&bias, &dbias), dot(&table, &dtable));
        assert!((left - right).abs() < crate::tolerance::sum(180) * 180.0);
    }

    #[test]
    fn bits_are_the_same_on_every_instruction_set_and_number_of_threads() {
        let run = |device: &Device| {
            let mut dtable = random(&[8, 5], 1, device).unwrap();
            let bias = forward(&dtable, &BOTH, &SPAN).unwrap();
            let dbias = random(&[2, 5, 6, 15], 2, device).unwrap();
            backward(&mut dtable, &dbias, &BOTH, &SPAN, 2).unwrap();
            vec![bias, dtable]
        };
        assert_same_bits(run);
        let with = |threads| -> Vec<Vec<u32>> {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
            let outs = pool.build().unwrap().install(|| run(&Device::cpu()));
            outs.iter().map(|x| bits(x.f32())).collect()
        };
        assert!(with(1) == with(4));
    }

    #[test]
    fn tables_and_buckets_that_do_not_fit_are_refused_by_name() {
        let device = Device::cpu();
        let mut table = random(&[8, 2], 1, &device).unwrap();
        let refused = |buckets, max_distance, bidirectional| {
            let buckets = Buckets {
                buckets,
                max_distance,
                bidirectional,
            };
            match forward(&table, &buckets, &SPAN) {
                Err(Error::Argument { name, .. } | Error::Shape { name, .. }) => name,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(refused(7, 128, true), "buckets");
        assert_eq!(refused(2, 128, true), "buckets");
        assert_eq!(refused(1, 128, false), "buckets");
        assert_eq!(refused(8, 2, true), "max_distance");
        assert_eq!(refused(16, 128, true), "table");
        let dbias = random(&[1, 2, 6, 14], 1, &device).unwrap();
        let found = backward(&mut table, &dbias, &BOTH, &SPAN, 0);
        assert!(matches!(found, Err(Error::Shape { name: "dbias", .. })));
        let none = Span { keys: 0, ..SPAN };
        let found = forward(&table, &BOTH, &none);
        assert!(matches!(found, Err(Error::Argument { name: "span", .. })));
    }
}
