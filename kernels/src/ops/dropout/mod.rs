//! Dropout in place: y = x * (kept ? 1 / (1 - p) : 0), the mask is recomputed in backward and never stored.
//! Paper: Srivastava et al. 2014, JMLR 15; scaled in training as torch does.
//!
//! An element is kept when its random word is at least p * 2^32. The word is Philox4x32-10 of
//! key = the first two words of Philox(seed, (step low, step high, tensor, `DOMAIN`)) and
//! counter = (16 (f / 64) + f % 16, position, sequence low, sequence high), word f % 64 / 16,
//! f being the feature: 16 neighbouring features are one word of 16 neighbouring counters.
//! We differ from torch and Megatron: no generator state and no rank, so any shard of rows or
//! features has the mask of the whole. As there, NaN times 0 stays NaN.

pub(crate) mod cpu;
pub(super) mod cuda;

pub use crate::descriptor::dropout::{Dropout, Place};
use crate::{Error, Result, Tensor};

/// Drops elements of x.
/// # Shapes
/// x: `[.., d]`, leading dims flattened to a multiple of `place.t` rows.
/// # Errors
/// `Shape` or `DType` if x does not fit, `Argument` if p is not in [0, 1) or a number is too large.
pub fn forward(x: &mut Tensor, dropout: &Dropout, place: &Place) -> Result<()> {
    apply("dropout::forward", "x", x, dropout, place)
}

/// Turns the gradient of the output into that of the input: the same mask and factor.
/// # Shapes
/// As `forward`.
/// # Errors
/// As `forward`.
pub fn backward(dx: &mut Tensor, dropout: &Dropout, place: &Place) -> Result<()> {
    apply("dropout::backward", "dx", dx, dropout, place)
}

fn apply(
    op: &'static str,
    name: &'static str,
    x: &mut Tensor,
    dropout: &Dropout,
    place: &Place,
) -> Result<()> {
    let argument = |name, found: String, wanted: String| Error::Argument {
        op,
        name,
        found,
        wanted,
    };
    let (n, d) = x.expect_rows(op, name)?;
    let t = place.t;
    if t == 0 || !n.is_multiple_of(t) {
        let found = x.dims().to_vec();
        let wanted = format!("rows that are a multiple of t = {t}");
        return Err(Error::Shape {
            op,
            name,
            found,
            wanted,
        });
    }
    if !(0.0..1.0).contains(&dropout.p) {
        let wanted = "at least 0 and below 1".to_owned();
        return Err(argument("p", dropout.p.to_string(), wanted));
    }
    let last = u32::try_from(t - 1).ok();
    if last.and_then(|l| place.position.checked_add(l)).is_none() {
        let found = format!("{} for {t} rows per sequence", place.position);
        return Err(argument("position", found, "below 2^32".to_owned()));
    }
    // A counter holds features up to 2^34.
    if place.feature.checked_add(d).is_none_or(|end| end > 1 << 34) {
        let found = format!("{} for {d} columns", place.feature);
        return Err(argument("feature", found, "at most 2^34".to_owned()));
    }
    if place.sequence.checked_add((n / t) as u64).is_none() {
        let found = place.sequence.to_string();
        return Err(argument("sequence", found, "below 2^64".to_owned()));
    }
    if dropout.p == 0.0 {
        return Ok(());
    }
    let device = x.device().clone();
    dispatch!(device, apply(x, &dropout.constants(), place));
    Ok(())
}

#[cfg(test)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "counters of small test cases"
)]
mod tests {
    use super::*;
    use crate::descriptor::dropout::DOMAIN;
    use crate::rng::philox;
    use crate::testing::{assert_same_bits, bits, extreme, random};
    use crate::{DType, Device};

    const DROPOUT: Dropout = Dropout {
        p: 0.3,
        seed: 11 << 32 | 7,
        step: 5,
        tensor: 3,
    };
    const PLACE: Place = Place {
        sequence: 40,
        position: 2,
        t: 6,
        feature: 0,
    };

    fn dropped(rows: usize, d: usize, dropout: &Dropout, place: &Place) -> Vec<f32> {
        let mut x = Tensor::empty(&[rows, d], DType::F32, &Device::cpu()).unwrap();
        x.f32_mut().fill(1.0);
        forward(&mut x, dropout, place).unwrap();
        x.f32().to_vec()
    }

    /// The definition, one element at a time.
    fn word(dropout: &Dropout, sequence: u64, position: u32, f: usize) -> u32 {
        let seed = [dropout.seed as u32, (dropout.seed >> 32) as u32];
        let step = [dropout.step as u32, (dropout.step >> 32) as u32];
        let key = philox(seed, [step[0], step[1], dropout.tensor, DOMAIN]);
        let lane = (16 * (f / 64) + f % 16) as u32;
        let counter = [lane, position, sequence as u32, (sequence >> 32) as u32];
        philox([key[0], key[1]], counter)[f % 64 / 16]
    }

    #[test]
    fn every_element_follows_the_definition() {
        let (rows, d) = (12, 203);
        let far = Place {
            sequence: (1 << 32) - 1,
            feature: 1000,
            ..PLACE
        };
        for place in [PLACE, far] {
            let mut x = random(&[rows, d], 1, &Device::cpu()).unwrap();
            let before = x.try_clone().unwrap();
            forward(&mut x, &DROPOUT, &place).unwrap();
            for (i, (y, x)) in x.f32().iter().zip(before.f32()).enumerate() {
                let (row, column) = (i / d, i % d);
                let sequence = place.sequence + (row / 6) as u64;
                let position = place.position + (row % 6) as u32;
                let found = word(&DROPOUT, sequence, position, place.feature + column);
                let kept = f64::from(found) >= (0.3_f32 as f64 * 2_f64.powi(32)).round();
                let scale = (1.0 / (1.0 - f64::from(0.3_f32))) as f32;
                let want = if kept { x * scale } else { x * 0.0 };
                assert_eq!(y.to_bits(), want.to_bits(), "row {row} column {column}");
            }
        }
    }

    #[test]
    fn shards_of_rows_and_columns_have_the_mask_of_the_whole() {
        let (rows, d) = (18, 160);
        let whole = dropped(rows, d, &DROPOUT, &PLACE);
        for (first, len) in [(0, 40), (40, 40), (64, 96), (13, 1), (150, 10)] {
            let place = Place {
                feature: first,
                ..PLACE
            };
            let part = dropped(rows, len, &DROPOUT, &place);
            for r in 0..rows {
                assert_eq!(
                    part[r * len..(r + 1) * len],
                    whole[r * d + first..][..len],
                    "columns {first} + {len}"
                );
            }
        }
        let later = Place {
            sequence: 41,
            ..PLACE
        };
        assert_eq!(dropped(12, d, &DROPOUT, &later), whole[6 * d..]);
        // Half of each sequence, as a rank of sequence parallelism holds.
        let half = Place {
            position: 5,
            t: 3,
            ..PLACE
        };
        let part = dropped(9, d, &DROPOUT, &half);
        for s in 0..3 {
            assert_eq!(
                part[s * 3 * d..][..3 * d],
                whole[(s * 6 + 3) * d..][..3 * d]
            );
        }
    }

    #[test]
    fn every_part_of_the_key_changes_the_mask() {
        let whole = dropped(6, 64, &DROPOUT, &PLACE);
        let seed = |seed| Dropout { seed, ..DROPOUT };
        let step = |step| Dropout { step, ..DROPOUT };
        let tensor = Dropout {
            tensor: 4,
            ..DROPOUT
        };
        let others = [seed(7), seed(8), step(6), step(5 << 32), tensor];
        for other in others {
            assert_ne!(dropped(6, 64, &other, &PLACE), whole, "{other:?}");
        }
        for place in [
            Place {
                sequence: 41,
                ..PLACE
            },
            Place {
                position: 3,
                ..PLACE
            },
            Place {
                feature: 1,
                ..PLACE
            },
        ] {
            assert_ne!(dropped(6, 64, &DROPOUT, &place), whole, "{place:?}");
        }
    }

    #[test]
    fn the_share_of_dropped_elements_is_p_within_five_standard_errors() {
        let n = 600 * 500;
        for p in [0.01, 0.1, 0.5, 0.9] {
            let dropout = Dropout { p, ..DROPOUT };
            let found = dropped(600, 500, &dropout, &PLACE);
            let share = found.iter().filter(|x| **x == 0.0).count() as f64 / n as f64;
            let p = f64::from(p);
            let bound = 5.0 * (p * (1.0 - p) / n as f64).sqrt();
            assert!((share - p).abs() < bound, "{share} of {p}");
            let mean = found.iter().map(|x| f64::from(*x)).sum::<f64>() / n as f64;
            assert!(
                (mean - 1.0).abs() < bound / (1.0 - p),
                "the mean is kept: {mean}"
            );
            // Must fail: another p.
            assert!((share - (p + 0.05)).abs() > bound);
        }
    }

    #[test]
    fn backward_is_the_transpose_of_forward() {
        let device = Device::cpu();
        let (mut x, mut dy) = (
            random(&[12, 70], 1, &device).unwrap(),
            random(&[12, 70], 2, &device).unwrap(),
        );
        let dot = |a: &[f32], b: &[f32]| {
            let products = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b));
            products.sum::<f64>()
        };
        let (old_x, old_dy) = (x.try_clone().unwrap(), dy.try_clone().unwrap());
        forward(&mut x, &DROPOUT, &PLACE).unwrap();
        backward(&mut dy, &DROPOUT, &PLACE).unwrap();
        let (left, right) = (dot(x.f32(), old_dy.f32()), dot(old_x.f32(), dy.f32()));
        assert!((left - right).abs() < 1e-4 * left.abs(), "{left} {right}");
    }

    #[test]
    fn nothing_is_dropped_at_zero_and_nan_is_not_hidden() {
        let mut x = random(&[6, 64], 1, &Device::cpu()).unwrap();
        let before = bits(x.f32());
        let none = Dropout { p: 0.0, ..DROPOUT };
        forward(&mut x, &none, &PLACE).unwrap();
        assert_eq!(bits(x.f32()), before);
        x.f32_mut().fill(f32::NAN);
        forward(&mut x, &DROPOUT, &PLACE).unwrap();
        assert!(x.f32().iter().all(|x| x.is_nan()));
    }

    #[test]
    fn bits_are_the_same_on_every_instruction_set() {
        assert_same_bits(|device| {
            let mut x = random(&[36, 101], 1, device).unwrap();
            forward(&mut x, &DROPOUT, &PLACE).unwrap();
            let mut all = vec![x];
            for (feature, d) in [(0, 1), (63, 2), (1000, 203), (64, 64)] {
                let place = Place {
                    sequence: (1 << 32) - 1,
                    feature,
                    ..PLACE
                };
                let mut x = extreme(&[12, d], 2, true, device).unwrap();
                backward(&mut x, &DROPOUT, &place).unwrap();
                all.push(x);
            }
            all
        });
    }

    #[test]
    fn bad_arguments_are_refused_by_name() {
        let mut x = random(&[6, 8], 1, &Device::cpu()).unwrap();
        for p in [-0.1, 1.0, 2.0, f32::NAN] {
            let found = forward(&mut x, &Dropout { p, ..DROPOUT }, &PLACE);
            assert!(matches!(found, Err(Error::Argument { name: "p", .. })));
        }
        for t in [0, 4] {
            let found = backward(&mut x, &DROPOUT, &Place { t, ..PLACE });
            assert!(matches!(found, Err(Error::Shape { name: "dx", .. })));
        }
        let late = Place {
            position: u32::MAX - 2,
            ..PLACE
        };
        let found = forward(&mut x, &DROPOUT, &late);
        assert!(matches!(
            found,
            Err(Error::Argument {
                name: "position",
                ..
            })
        ));
    }
}
