//! Rounding to a smaller number format, kept as f32: to the nearest, ties to even. Numbers too large become
//! infinite, or the largest number where the format has no infinity, as torch 2.15 converts.
//!
//! | format | fraction bits | smallest normal | largest | too large from |
//! |---|---|---|---|---|
//! | `Bf16` | 7 | 2^-126 | 3.39e38 | 3.3961e38 |
//! | `F16` (IEEE binary16) | 10 | 2^-14 | 65504 | 65520 |
//! | `E4m3` (`float8_e4m3fn`) | 3 | 2^-6 | 448 | stays 448 |
//! | `E5m2` (`float8_e5m2`) | 2 | 2^-14 | 57344 | 61440 |
//!
//! Numbers below the smallest normal are multiples of it times 2^-fraction bits.
//! FP8: Micikevicius et al. 2022, arXiv:2209.05433.

mod codes;
mod cpu;
pub(super) mod cuda;
mod format;
mod stored;

use crate::{DType, Result, Tensor};
pub use format::Format;
pub use stored::{Observed, Stored, stored, stored_blocks, stored_scaled, turned, widened};

/// Rounds every number in place.
/// # Errors
/// `DType` if x is not f32.
pub fn round(x: &mut Tensor, format: Format) -> Result<()> {
    x.expect("cast::round", "x", DType::F32)?;
    dispatch!(x.device().clone(), round(x, format.grid()));
    Ok(())
}

/// Returns the rounded numbers.
/// # Errors
/// `DType` if x is not f32, `Memory` if they do not fit.
pub fn rounded(x: &Tensor, format: Format) -> Result<Tensor> {
    x.expect("cast::rounded", "x", DType::F32)?;
    let mut y = Tensor::empty(x.dims(), DType::F32, x.device())?;
    dispatch!(x.device(), rounded(&mut y, x, format.grid()));
    Ok(y)
}

/// Returns the largest size of each row's numbers, `[n]`; NaN does not count.
/// # Shapes
/// Leading dims are flattened into rows.
/// # Errors
/// As `rounded`.
pub fn row_amax(x: &Tensor) -> Result<Tensor> {
    x.expect("cast::row_amax", "x", DType::F32)?;
    let (rows, columns) = x.rows_cols();
    let mut amax = Tensor::empty(&[rows], DType::F32, x.device())?;
    dispatch!(x.device(), row_amax(&mut amax, x, columns));
    Ok(amax)
}

/// Returns x rounded to the grid of the format times a power of two for each row: the least for which
/// `amax` of the row is not too large. The product with a scale and its inverse is exact.
/// # Shapes
/// Leading dims of x are flattened into rows; amax: `[n]`, or `[1]` for all of them.
/// # Errors
/// `Shape` if amax is not such; else as `rounded`.
pub fn scaled_rows(x: &Tensor, format: Format, amax: &Tensor) -> Result<Tensor> {
    const OP: &str = "cast::scaled_rows";
    x.expect(OP, "x", DType::F32)?;
    let (rows, _) = x.rows_cols();
    if amax.elements() != 1 {
        amax.expect_f32(OP, "amax", &[rows])?;
    }
    let mut y = Tensor::empty(x.dims(), DType::F32, x.device())?;
    dispatch!(x.device(), scaled_rows(&mut y, x, format.grid(), amax));
    Ok(y)
}

/// Returns x times `scale`, rounded to the grid of the format, times 1 / `scale`, each of the three rounded
/// to f32; numbers too large, infinity included, become the format's largest number.
/// # Errors
/// `Argument` if the scale is not a finite number above 0; else as `rounded`.
pub fn scaled(x: &Tensor, format: Format, scale: f32) -> Result<Tensor> {
    const OP: &str = "cast::scaled";
    x.expect(OP, "x", DType::F32)?;
    if !(scale > 0.0 && scale.is_finite()) {
        return Err(crate::Error::Argument {
            op: OP,
            name: "scale",
            found: scale.to_string(),
            wanted: "a finite number above 0".into(),
        });
    }
    let mut y = Tensor::empty(x.dims(), DType::F32, x.device())?;
    dispatch!(x.device(), scaled_all(&mut y, x, format.grid(), scale));
    Ok(y)
}

/// Blocks of a matrix: in each direction slices of `slice` that are cut into runs of `run`, the last of a
/// slice maybe shorter. Where matrices are parts of a larger one that was cut between slices, the blocks
/// are the larger one's.
#[derive(Clone, Copy, Debug)]
pub struct Blocks {
    /// Run and slice of rows.
    pub rows: (usize, usize),
    /// Run and slice of columns.
    pub columns: (usize, usize),
}

impl Blocks {
    fn check(&self, op: &'static str) -> Result<()> {
        let sizes = [self.rows, self.columns];
        if sizes.iter().any(|&(run, slice)| run == 0 || slice == 0) {
            let wanted = "runs and slices above 0".to_owned();
            return crate::error::refuse(op, "blocks", format!("{self:?}"), wanted);
        }
        Ok(())
    }
}

/// Like `scaled_rows`, each block by its own largest number.
/// # Errors
/// `Argument` if a run or slice is 0; else as `rounded`.
pub fn scaled_blocks(x: &Tensor, format: Format, blocks: &Blocks) -> Result<Tensor> {
    const OP: &str = "cast::scaled_blocks";
    x.expect(OP, "x", DType::F32)?;
    blocks.check(OP)?;
    let mut y = Tensor::empty(x.dims(), DType::F32, x.device())?;
    let cuts = (
        &cuts(x.rows_cols().0, blocks.rows.0, blocks.rows.1),
        &cuts(x.rows_cols().1, blocks.columns.0, blocks.columns.1),
    );
    dispatch!(
        x.device(),
        scaled_blocks(&mut y, x, format.grid(), cuts.0, cuts.1)
    );
    Ok(y)
}

/// Ends of runs.
fn cuts(len: usize, run: usize, slice: usize) -> Vec<usize> {
    let mut ends = vec![0];
    while ends[ends.len() - 1] < len {
        let start = ends[ends.len() - 1];
        let end_of_slice = (start / slice + 1) * slice;
        ends.push((start + run).min(end_of_slice).min(len));
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::format::INFINITE;
    use super::*;
    use crate::testing::{assert_same_bits, bits, values};
    use crate::{Device, rng};

    const FORMATS: [Format; 4] = [Format::Bf16, Format::F16, Format::E4m3, Format::E5m2];

    /// By definition, in f64: the multiple of the step at |x| that is nearest.
    fn nearest(x: f32, fraction: i32, least: i32, largest: f64, has_infinity: bool) -> f64 {
        let wide = f64::from(x);
        if wide.is_nan() || wide.is_infinite() && has_infinity {
            return wide;
        }
        let wide = wide.clamp(-1e39, 1e39);
        let mut exponent = least;
        while wide.abs() >= 2f64.powi(exponent + 1) {
            exponent += 1;
        }
        let step = 2f64.powi(exponent - fraction);
        let near = (wide / step).round_ties_even() * step;
        if near.abs() <= largest {
            near
        } else if has_infinity {
            f64::INFINITY.copysign(wide)
        } else {
            largest.copysign(wide)
        }
    }

    /// Every exponent and sign with fractions around all halves that any format has, and random ones.
    fn patterns() -> Vec<f32> {
        let mut fractions = vec![0u32, 1, 2, 0x7f_ffff, 0x7f_fffe];
        for bit in 10..23 {
            for near in [-1i64, 0, 1] {
                for above in [0u32, 1, 2, 5] {
                    let at = i64::from(1u32 << bit) * (1 + 2 * i64::from(above)) + near;
                    fractions.extend(u32::try_from(at).ok().filter(|&at| at < 1 << 23));
                }
            }
        }
        let mut all = Vec::new();
        for top in 0..512u32 {
            all.extend(fractions.iter().map(|f| f32::from_bits(top << 23 | f)));
        }
        let mut more = vec![0f32; 100_000];
        rng::fill_normal(&mut more, 5, 0, 0, 1.0);
        all.extend(FORMATS.map(Format::largest));
        all.extend(more.iter().map(|x| x * x * x * 300.0));
        all
    }

    #[test]
    fn numbers_are_the_nearest_of_their_format_by_definition() {
        let x = patterns();
        let x = Tensor::from_f32(&[x.len()], &x, &Device::cpu()).unwrap();
        for (format, fraction, least, largest, has_infinity) in [
            (Format::Bf16, 7, -126, 255.0 * 2f64.powi(120), true),
            (Format::F16, 10, -14, 65504.0, true),
            (Format::E4m3, 3, -6, 448.0, false),
            (Format::E5m2, 2, -14, 57344.0, true),
        ] {
            let y = rounded(&x, format).unwrap();
            for (&x, &y) in x.f32().iter().zip(y.f32()) {
                let want = nearest(x, fraction, least, largest, has_infinity);
                let is_same = if want.is_nan() {
                    y.is_nan()
                } else {
                    f64::from(y).to_bits() == want.to_bits()
                };
                assert!(is_same, "{format:?} of {x:e}: {y:e}, want {want:e}");
            }
        }
    }

    /// `tests/oracles/kernel_cast.py`: format, least f32 of a run and torch's conversion of it.
    #[test]
    fn fp8_numbers_begin_and_end_where_torch_has_them() {
        let golden = include_str!("../../../tests/data/cast.txt");
        for (name, format) in [("e4m3", Format::E4m3), ("e5m2", Format::E5m2)] {
            let number = |text: &str| u32::from_str_radix(text, 16).unwrap();
            let lines = golden.lines().filter_map(|line| line.strip_prefix(name));
            let runs: Vec<(u32, u32)> = lines
                .map(|line| line.trim().split_once(' ').unwrap())
                .map(|(first, result)| (number(first), number(result)))
                .collect();
            // zero, every positive number, and infinity
            assert_eq!(runs.len(), if format == Format::E4m3 { 127 } else { 125 });
            let ends = runs[1..].iter().map(|run| run.0).chain([INFINITE + 1]);
            for (&(first, result), end) in runs.iter().zip(ends) {
                for bits in [first, first.midpoint(end), end - 1] {
                    let both = [bits, bits | 1 << 31].map(f32::from_bits);
                    let x = Tensor::from_f32(&[2], &both, &Device::cpu()).unwrap();
                    let y = rounded(&x, format).unwrap();
                    let found = [y.f32()[0], y.f32()[1]].map(f32::to_bits);
                    assert_eq!(found, [result, result | 1 << 31], "{format:?} {bits:x}");
                }
            }
        }
    }

    #[test]
    fn blocks_fill_the_format_and_parts_of_a_matrix_are_as_in_the_whole() {
        let device = Device::cpu();
        let mut x = crate::testing::random(&[48, 320], 3, &device).unwrap();
        for (at, x) in x.f32_mut().iter_mut().enumerate() {
            *x *= 2f32.powi(i32::try_from(at % 37).unwrap() - 18);
        }
        let blocks = Blocks {
            rows: (16, 24),
            columns: (128, 160),
        };
        let whole = scaled_blocks(&x, Format::E4m3, &blocks).unwrap();
        for rows in [0..16, 16..24, 24..40, 40..48] {
            for columns in [0..128, 128..160, 160..288, 288..320] {
                let of = |x: &Tensor| -> Vec<f32> {
                    let rows = x.f32().chunks(320).skip(rows.start).take(rows.len());
                    rows.flat_map(|row| row[columns.clone()].to_vec()).collect()
                };
                let (x, y) = (of(&x), of(&whole));
                let amax = x.iter().fold(0f32, |most, x| most.max(x.abs()));
                let fits = |power: i32| f64::from(amax) * 2f64.powi(power) <= 448.0;
                let power = (-60..60).rfind(|&power| fits(power)).unwrap();
                for (x, y) in x.iter().zip(y) {
                    #[expect(clippy::cast_possible_truncation, reason = "a power of two")]
                    let scale = 2f64.powi(power) as f32;
                    let want = nearest(x * scale, 3, -6, 448.0, false) / f64::from(scale);
                    assert_eq!(f64::from(y), want);
                }
            }
        }
        let upper = Tensor::from_f32(&[24, 320], &x.f32()[..24 * 320], &device).unwrap();
        let upper = scaled_blocks(&upper, Format::E4m3, &blocks).unwrap();
        assert!(bits(upper.f32()) == bits(&whole.f32()[..24 * 320]));
        let amax = row_amax(&x).unwrap();
        let rows = scaled_rows(&x, Format::E5m2, &amax).unwrap();
        let each = Blocks {
            rows: (1, 48),
            columns: (320, 320),
        };
        let again = scaled_blocks(&x, Format::E5m2, &each).unwrap();
        assert!(bits(rows.f32()) == bits(again.f32()));
        let none = Blocks {
            rows: (0, 1),
            columns: (1, 1),
        };
        assert!(scaled_blocks(&x, Format::E4m3, &none).is_err());
        assert!(scaled_rows(&x, Format::E4m3, &upper).is_err());
    }

    #[test]
    fn one_scale_for_all_saturates_and_refuses_what_is_no_scale() {
        let device = Device::cpu();
        let x = [3.0, -1e30, f32::INFINITY, 449.0, f32::NAN, -0.0, 2e-5];
        let x = Tensor::from_f32(&[x.len()], &x, &device).unwrap();
        for format in [Format::E4m3, Format::E5m2] {
            let most = format.largest();
            let y = scaled(&x, format, 0.375).unwrap();
            let back = 1.0 / 0.375;
            // 1.125 is on both grids' way: E4M3 has it, E5M2 ties to the even 1
            let near = if format == Format::E4m3 { 1.125 } else { 1.0 };
            let found = y.f32();
            assert_eq!(found[0], near * back);
            assert_eq!(found[1..3], [-most * back, most * back]);
            assert!(found[4].is_nan() && found[5].to_bits() == (-0.0f32).to_bits());
        }
        for scale in [0.0, -1.0, f32::INFINITY, f32::NAN] {
            assert!(scaled(&x, Format::E4m3, scale).is_err(), "{scale}");
        }
        let x = patterns();
        assert_same_bits(|device| {
            let x = Tensor::from_f32(&[x.len()], &x, device).unwrap();
            [Format::E4m3, Format::E5m2]
                .map(|format| scaled(&x, format, 12.7).unwrap())
                .into()
        });
    }

    #[test]
    fn rounding_again_in_place_or_elsewhere_changes_nothing() {
        let x = patterns();
        assert_same_bits(|device| {
            let x = Tensor::from_f32(&[x.len()], &x, device).unwrap();
            let all = FORMATS.map(|format| {
                let once = rounded(&x, format).unwrap();
                let mut again = once.try_clone().unwrap();
                round(&mut again, format).unwrap();
                let numbers = values(&once);
                assert!(bits(&numbers) == bits(&values(&again)), "{format:?}");
                let largest = format.largest();
                let finite = numbers.iter().filter(|x| x.is_finite());
                assert_eq!(finite.copied().fold(0.0, f32::max), largest, "{format:?}");
                once
            });
            all.into()
        });
    }
}
