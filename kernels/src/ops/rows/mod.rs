//! Data movement and small arithmetic between layers: copies of runs of rows, sums, factors, fills. All memory bound;
//! every element is one rounded operation unless an op says otherwise.

mod cpu;
pub(super) mod cuda;
mod runs;

use crate::view::expect_alike;
use crate::{DType, Error, Result, Tensor, View, ViewMut};

pub use runs::Runs;

/// Copies runs of elements of any type: run i is `run` elements from `from_stride` i on, to `to_stride` i on.
/// # Errors
/// `Argument` if the runs do not fit the views or overlap in `to`; `DType` if the views' types differ.
pub fn copy_runs(mut to: ViewMut<'_>, from: View<'_>, runs: Runs) -> Result<()> {
    const OP: &str = "rows::copy_runs";
    runs.check(OP, to.len(), from.len())?;
    if to.dtype() != from.dtype() {
        return Err(Error::DType {
            op: OP,
            name: "from",
            found: from.dtype(),
            wanted: to.dtype(),
        });
    }
    if runs.elements() == 0 {
        return Ok(());
    }
    try_dispatch!(from.device(), copy_runs(&mut to, from, runs));
    Ok(())
}

/// x += y, elementwise.
/// # Errors
/// `Argument` or `DType` if they differ in length or are no f32.
pub fn add(mut x: ViewMut<'_>, y: View<'_>) -> Result<()> {
    expect_alike("rows::add", x.as_view(), &[("y", y)])?;
    dispatch!(y.device(), add(&mut x, y));
    Ok(())
}

/// x += value; with 0.0 it turns -0.0 into 0.0, as a sum with zeros of other ranks does.
/// # Errors
/// `DType` if x is no f32.
pub fn shift(mut x: ViewMut<'_>, value: f32) -> Result<()> {
    expect_alike("rows::shift", x.as_view(), &[])?;
    let device = x.device().clone();
    dispatch!(device, shift(&mut x, value));
    Ok(())
}

/// x *= factor.
/// # Errors
/// `DType` if x is no f32.
pub fn scale(mut x: ViewMut<'_>, factor: f32) -> Result<()> {
    expect_alike("rows::scale", x.as_view(), &[])?;
    let device = x.device().clone();
    dispatch!(device, scale(&mut x, factor));
    Ok(())
}

/// x = value, for all elements.
/// # Errors
/// `DType` if x is no f32.
pub fn fill(mut x: ViewMut<'_>, value: f32) -> Result<()> {
    expect_alike("rows::fill", x.as_view(), &[])?;
    let device = x.device().clone();
    dispatch!(device, fill(&mut x, value));
    Ok(())
}

/// x = 1 / (1 + e^-x), for all elements, in f64 and rounded once.
/// # Errors
/// `DType` if x is no f32.
pub fn logistic(mut x: ViewMut<'_>) -> Result<()> {
    expect_alike("rows::logistic", x.as_view(), &[])?;
    let device = x.device().clone();
    dispatch!(device, logistic(&mut x));
    Ok(())
}

/// dx = dx s (1 - s), for all elements: the gradient through `logistic`, whose result is s.
/// # Errors
/// `Argument` or `DType` if they do not fit.
pub fn logistic_backward(mut dx: ViewMut<'_>, s: View<'_>) -> Result<()> {
    expect_alike("rows::logistic_backward", dx.as_view(), &[("s", s)])?;
    dispatch!(s.device(), logistic_backward(&mut dx, s));
    Ok(())
}

/// Returns each row of x times its number.
/// # Shapes
/// x: `[r, d]`, by: r elements -> `[r, d]`.
/// # Errors
/// `Shape` or `DType` if they do not fit; `Memory`.
pub fn scaled_rows(x: &Tensor, by: &Tensor) -> Result<Tensor> {
    let (rows, _) = x.expect_rows("rows::scaled_rows", "x")?;
    expect_numbers("rows::scaled_rows", by, rows)?;
    let mut out = Tensor::empty(x.dims(), DType::F32, x.device())?;
    dispatch!(x.device(), scaled_rows(&mut out, x, by));
    Ok(out)
}

/// Returns the dot products of the rows of a and b, in f64 in order of columns, rounded once.
/// # Shapes
/// a and b: `[r, d]` -> `[r, 1]`.
/// # Errors
/// `Shape` or `DType` if they do not fit; `Memory`.
pub fn dot_rows(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let (rows, _) = a.expect_rows("rows::dot_rows", "a")?;
    b.expect_f32("rows::dot_rows", "b", a.dims())?;
    let mut out = Tensor::empty(&[rows, 1], DType::F32, a.device())?;
    dispatch!(a.device(), dot_rows(&mut out, a, b));
    Ok(out)
}

/// Returns the sums of each `group` adjacent rows, chains of additions from 0.0 in order of rows.
/// # Shapes
/// x: `[groups * group, d]` -> `[groups, d]`.
/// # Errors
/// `Shape` or `DType` if they do not fit; `Memory`.
pub fn sum_groups(x: &Tensor, group: usize) -> Result<Tensor> {
    let (rows, d) = x.expect_rows("rows::sum_groups", "x")?;
    if group == 0 || !rows.is_multiple_of(group) {
        return Err(Error::Argument {
            op: "rows::sum_groups",
            name: "group",
            found: group.to_string(),
            wanted: format!("a divisor of {rows} rows"),
        });
    }
    let mut out = Tensor::empty(&[rows / group, d], DType::F32, x.device())?;
    dispatch!(x.device(), sum_groups(&mut out, x, group));
    Ok(out)
}

/// Returns the largest element, at least 0.0, as one number on x's device; NaN is passed over.
/// # Errors
/// `DType` if x is no f32; `Memory`.
pub fn largest(x: View<'_>) -> Result<Tensor> {
    expect_alike("rows::largest", x, &[])?;
    let mut out = Tensor::zeros(&[1], DType::F32, x.device())?;
    dispatch!(x.device(), largest(&mut out, x));
    Ok(out)
}

/// Raises a number that is held as its bits, from 0.0 on, to the largest element of x; NaN is passed over. Bits of such
/// floats are ordered as the floats are.
/// # Errors
/// `Argument` or `DType` if `bits` is not one u32, or x no f32.
pub fn raise(mut bits: ViewMut<'_>, x: View<'_>) -> Result<()> {
    const OP: &str = "rows::raise";
    expect_alike(OP, x, &[])?;
    if (bits.dtype(), bits.len()) != (DType::U32, 1) {
        return Err(Error::Argument {
            op: OP,
            name: "bits",
            found: format!("{} of {:?}", bits.len(), bits.dtype()),
            wanted: "one u32".to_owned(),
        });
    }
    try_dispatch!(x.device(), raise(&mut bits, x));
    Ok(())
}

/// Returns the first element that is not finite: its number and value. Waits for the device.
/// # Errors
/// `DType` if x is no f32; `Driver` if the device fails.
pub fn first_not_finite(x: View<'_>) -> Result<Option<(usize, f32)>> {
    let words = not_finite(x)?.download()?;
    Ok(first_of(x.len(), &words))
}

/// Words of `not_finite`.
const NOT_FINITE_WORDS: usize = 4;

/// Returns, in words on x's device, the number of elements from the first that is not finite to the end, the lower
/// word first, 0 if all are finite, and the bits of that element. `first_of` reads them, so that they can be downloaded with
/// others.
/// # Errors
/// `DType` if x is no f32; `Memory`.
pub fn not_finite(x: View<'_>) -> Result<Tensor> {
    expect_alike("rows::not_finite", x, &[])?;
    let mut words = Tensor::zeros(&[NOT_FINITE_WORDS], DType::U32, x.device())?;
    dispatch!(x.device(), not_finite(&mut words, x));
    Ok(words)
}

/// The number and value of the first of `len` elements that is not finite, by the words of `not_finite`.
pub fn first_of(len: usize, words: &[u32]) -> Option<(usize, f32)> {
    let word = |at: usize| words.get(at).copied().unwrap_or(0);
    let left = u64::from(word(0)) | u64::from(word(1)) << 32;
    let left = usize::try_from(left).unwrap_or(usize::MAX);
    (left > 0).then(|| (len.saturating_sub(left), f32::from_bits(word(2))))
}

fn expect_numbers(op: &'static str, by: &Tensor, rows: usize) -> Result<()> {
    by.expect(op, "by", DType::F32)?;
    if by.elements() == rows {
        return Ok(());
    }
    Err(Error::Shape {
        op,
        name: "by",
        found: by.dims().to_vec(),
        wanted: format!("{rows} elements"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{all_devices, assert_same_bits, random, stored_as, values};
    use crate::{Device, Use};

    const RUNS: Runs = Runs {
        count: 7,
        run: 5,
        from_stride: 9,
        to_stride: 6,
    };

    #[test]
    fn runs_of_every_type_land_where_the_strides_say_and_nothing_else_changes() {
        for device in all_devices() {
            let from: Vec<f32> = (0_u16..70).map(f32::from).collect();
            let mut wanted = vec![-1.0_f32; 50];
            for i in 0..RUNS.count {
                for j in 0..RUNS.run {
                    wanted[1 + i * RUNS.to_stride + j] = from[2 + i * RUNS.from_stride + j];
                }
            }
            let f32s = Tensor::from_f32(&[70], &from, &device).unwrap();
            let mut to = Tensor::from_f32(&[50], &[-1.0; 50], &device).unwrap();
            let run = to.flat_mut(1..50).unwrap();
            copy_runs(run, f32s.flat(2..70).unwrap(), RUNS).unwrap();
            assert_eq!(values(&to), wanted, "{device:?}");
            let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
            let u32s = Tensor::from_u32(&[70], &bits(&from), &device).unwrap();
            let mut to = Tensor::from_u32(&[50], &bits(&[-1.0; 50]), &device).unwrap();
            let run = to.flat_mut(1..50).unwrap();
            copy_runs(run, u32s.flat(2..70).unwrap(), RUNS).unwrap();
            assert_eq!(to.download::<u32>().unwrap(), bits(&wanted), "{device:?}");
            let halves = stored_as(DType::Bf16, &f32s);
            let minus = Tensor::from_f32(&[50], &[-1.0; 50], &device).unwrap();
            let mut to = stored_as(DType::Bf16, &minus);
            let run = to.flat_mut(1..50).unwrap();
            copy_runs(run, halves.flat(2..70).unwrap(), RUNS).unwrap();
            let found: Vec<crate::Bf16> = to.download().unwrap();
            let found: Vec<f32> = found.into_iter().map(f32::from).collect();
            assert_eq!(found, wanted, "{device:?}");
        }
    }

    #[test]
    fn runs_that_do_not_fit_are_errors() {
        let device = Device::cpu();
        let from = Tensor::zeros(&[59], DType::F32, &device).unwrap();
        let mut to = Tensor::zeros(&[41], DType::F32, &device).unwrap();
        copy_runs(to.view_mut(), from.view(), RUNS).unwrap();
        let short = |from: usize, to: usize, runs| {
            let from = Tensor::zeros(&[from], DType::F32, &device).unwrap();
            let mut to = Tensor::zeros(&[to], DType::F32, &device).unwrap();
            let found = copy_runs(to.view_mut(), from.view(), runs);
            assert!(matches!(found, Err(Error::Argument { .. })), "{runs:?}");
        };
        short(58, 41, RUNS);
        short(59, 40, RUNS);
        let overlapping = Runs {
            to_stride: 4,
            ..RUNS
        };
        short(59, 41, overlapping);
        let endless = Runs {
            count: usize::MAX,
            ..RUNS
        };
        short(59, 41, endless);
        let ids = Tensor::zeros(&[59], DType::U32, &device).unwrap();
        let found = copy_runs(to.view_mut(), ids.view(), RUNS);
        assert!(matches!(found, Err(Error::DType { .. })));
        assert!(sum_groups(&from, 2).is_err());
        assert!(scaled_rows(&from.reshape(&[59, 1]).unwrap(), &to).is_err());
    }

    #[test]
    fn a_sum_with_zero_leaves_no_negative_zero() {
        for device in all_devices() {
            let mut x = Tensor::from_f32(&[3], &[-0.0, 1.0, -2.0], &device).unwrap();
            shift(x.view_mut(), 0.0).unwrap();
            assert_eq!(values(&x)[0].to_bits(), 0);
        }
    }

    #[test]
    fn a_number_grows_to_the_largest_of_all_that_come() {
        for device in all_devices() {
            let mut bits = Tensor::zeros(&[3], DType::U32, &device).unwrap();
            let mut at = |which: usize, numbers: &[f32]| -> Vec<f32> {
                let x = Tensor::from_f32(&[numbers.len()], numbers, &device).unwrap();
                raise(bits.flat_mut(which..which + 1).unwrap(), x.view()).unwrap();
                let bits: Vec<u32> = bits.download().unwrap();
                bits.into_iter().map(f32::from_bits).collect()
            };
            assert_eq!(at(1, &[-3.0, 0.5, f32::NAN]), [0.0, 0.5, 0.0]);
            assert_eq!(at(1, &[0.25, -1.0]), [0.0, 0.5, 0.0]);
            assert_eq!(at(2, &[1e-40]), [0.0, 0.5, 1e-40]);
            assert_eq!(at(1, &[7.0, f32::INFINITY]), [0.0, f32::INFINITY, 1e-40]);
            let x = Tensor::zeros(&[2], DType::F32, &device).unwrap();
            let two = raise(bits.flat_mut(0..2).unwrap(), x.view());
            assert!(matches!(two, Err(Error::Argument { name: "bits", .. })));
        }
    }

    #[test]
    fn the_first_number_that_is_not_finite_is_found() {
        for device in all_devices() {
            let device = device.for_use(Use::Work);
            let mut numbers = vec![1.0_f32; 5000];
            let x = Tensor::from_f32(&[5000], &numbers, &device).unwrap();
            assert_eq!(first_not_finite(x.view()).unwrap(), None);
            numbers[4000] = f32::NAN;
            numbers[3000] = f32::NEG_INFINITY;
            let x = Tensor::from_f32(&[5000], &numbers, &device).unwrap();
            let found = first_not_finite(x.view()).unwrap();
            assert_eq!(found, Some((3000, f32::NEG_INFINITY)));
            let found = first_not_finite(x.flat(3001..5000).unwrap()).unwrap();
            assert_eq!(found.map(|(at, _)| at), Some(999));
            let x = Tensor::from_f32(&[4], &[-3.0, f32::NAN, 2.5, 0.0], &device).unwrap();
            assert_eq!(values(&largest(x.view()).unwrap()), [2.5]);
            assert_eq!(values(&largest(x.flat(0..2).unwrap()).unwrap()), [0.0]);
        }
    }

    #[test]
    fn every_device_gives_the_same_bits() {
        assert_same_bits(|device| {
            let of = |dims: &[usize], seed| random(dims, seed, device).unwrap();
            let (x, y, by) = (of(&[37, 45], 1), of(&[37, 45], 2), of(&[37], 3));
            let mut sum = of(&[37, 45], 4);
            add(sum.flat_mut(2..900).unwrap(), x.flat(5..903).unwrap()).unwrap();
            shift(sum.flat_mut(900..1000).unwrap(), 0.3).unwrap();
            scale(sum.flat_mut(1000..1500).unwrap(), 0.7).unwrap();
            fill(sum.flat_mut(1500..1600).unwrap(), -0.0).unwrap();
            logistic(sum.flat_mut(1600..1650).unwrap()).unwrap();
            let slopes = sum.flat_mut(1600..1650).unwrap();
            logistic_backward(slopes, x.flat(7..57).unwrap()).unwrap();
            let largest = largest(x.view()).unwrap();
            let groups = of(&[36, 45], 5);
            vec![
                scaled_rows(&x, &by).unwrap(),
                dot_rows(&x, &y).unwrap(),
                sum_groups(&groups, 4).unwrap(),
                sum,
                largest,
            ]
        });
    }
}
