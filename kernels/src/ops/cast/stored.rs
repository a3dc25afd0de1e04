//! Numbers stored in 8 or 16 bits, with the scales that give them back: the grids and scales of `cast::rounded`,
//! `scaled_rows`, `scaled_blocks` and `scaled`, so widened and scaled back they are those results, to the bit.

use super::codes as cpu;
use super::{Blocks, Format, cuda, cuts};
use crate::error::refuse;
use crate::{DType, Result, Tensor};

/// Numbers of a format, and what gives their sizes back.
#[derive(Debug)]
pub struct Stored {
    /// Dims of the numbers that were rounded; type of the format.
    pub codes: Tensor,
    /// Inverse scales in f32, `[row blocks, column blocks]`.
    pub back: Tensor,
}

/// Numbers of a format with one scale, and the largest size before.
#[derive(Debug)]
pub struct Observed {
    /// Dims of the numbers that were rounded; type of the format.
    pub codes: Tensor,
    /// `[1]`, f32; NaN does not count.
    pub amax: Tensor,
}

impl Format {
    /// The type that stores its numbers with subnormals; `None` for bf16, whose tensors have none.
    pub fn dtype(self) -> Option<DType> {
        match self {
            Format::Bf16 => None,
            Format::F16 => Some(DType::F16),
            Format::E4m3 => Some(DType::E4m3),
            Format::E5m2 => Some(DType::E5m2),
        }
    }
}

/// An empty tensor for the codes of x.
fn codes_of(op: &'static str, x: &Tensor, format: Format) -> Result<Tensor> {
    x.expect_number(op, "x")?;
    let Some(dtype) = format.dtype() else {
        return refuse(
            op,
            "format",
            format!("{format:?}"),
            "F16, E4m3 or E5m2".to_owned(),
        );
    };
    Tensor::empty(x.dims(), dtype, x.device())
}

/// Returns the rounded numbers.
/// # Shapes
/// x: any, f32 or bf16.
/// # Errors
/// `DType` if x holds no numbers, `Argument` for bf16, `Memory` if they do not fit.
pub fn stored(x: &Tensor, format: Format) -> Result<Tensor> {
    let mut codes = codes_of("cast::stored", x, format)?;
    let grid = format.grid();
    try_dispatch!(x.device(), stored_scaled(&mut codes, None, x, grid, 1.0));
    Ok(codes)
}

/// Returns the numbers of `cast::scaled` before they are scaled back, too large ones as the format's largest, and the
/// largest size of x, in one pass.
/// # Errors
/// As `stored`; `Argument` if the scale is not a finite number above 0.
pub fn stored_scaled(x: &Tensor, format: Format, scale: f32) -> Result<Observed> {
    const OP: &str = "cast::stored_scaled";
    let mut codes = codes_of(OP, x, format)?;
    if !(scale > 0.0 && scale.is_finite()) {
        return refuse(
            OP,
            "scale",
            scale.to_string(),
            "a finite number above 0".to_owned(),
        );
    }
    let mut amax = Tensor::zeros(&[1], DType::F32, x.device())?;
    let mut grid = format.grid();
    grid.beyond = grid.largest;
    let to = Some(&mut amax);
    try_dispatch!(x.device(), stored_scaled(&mut codes, to, x, grid, scale));
    Ok(Observed { codes, amax })
}

/// Returns the numbers of `cast::scaled_blocks` before they are scaled back, and the blocks' inverse scales, in one pass.
/// With runs of one row and all columns they are those of `cast::scaled_rows` with each row's own amax.
/// # Errors
/// As `stored`; `Argument` if a run or slice is 0.
pub fn stored_blocks(x: &Tensor, format: Format, blocks: &Blocks) -> Result<Stored> {
    const OP: &str = "cast::stored_blocks";
    let mut codes = codes_of(OP, x, format)?;
    blocks.check(OP)?;
    let (rows, columns) = x.rows_cols();
    let rows = cuts(rows, blocks.rows.0, blocks.rows.1);
    let columns = cuts(columns, blocks.columns.0, blocks.columns.1);
    let dims = [rows.len() - 1, columns.len() - 1];
    let mut back = Tensor::empty(&dims, DType::F32, x.device())?;
    let to = [&mut codes, &mut back];
    try_dispatch!(
        x.device(),
        stored_blocks(to, x, format.grid(), [&rows, &columns])
    );
    Ok(Stored { codes, back })
}

/// The format whose numbers a tensor stores.
fn format_of(op: &'static str, codes: &Tensor) -> Result<Format> {
    match codes.dtype() {
        DType::F16 => Ok(Format::F16),
        DType::E4m3 => Ok(Format::E4m3),
        DType::E5m2 => Ok(Format::E5m2),
        DType::F32 | DType::Bf16 | DType::U32 => Err(crate::Error::DType {
            op,
            name: "codes",
            found: codes.dtype(),
            wanted: DType::F16,
        }),
    }
}

/// Returns stored numbers in f32.
/// # Errors
/// `DType` if x is not f16, e4m3 or e5m2; `Memory` if they do not fit.
pub fn widened(codes: &Tensor) -> Result<Tensor> {
    let grid = format_of("cast::widened", codes)?.grid();
    let mut y = Tensor::empty(codes.dims(), DType::F32, codes.device())?;
    try_dispatch!(codes.device(), widened(&mut y, codes, grid));
    Ok(y)
}

/// Returns numbers of 8 bits with rows and columns swapped, `[rows, columns]` -> `[columns, rows]`: a product of them reads
/// both factors along k.
/// # Errors
/// `DType` if they have not 8 bits; `Memory` if they do not fit.
pub fn turned(codes: &Tensor) -> Result<Tensor> {
    const OP: &str = "cast::turned";
    if codes.dtype() != DType::E5m2 {
        codes.expect(OP, "codes", DType::E4m3)?;
    }
    let (rows, columns) = codes.rows_cols();
    let mut y = Tensor::empty(&[columns, rows], codes.dtype(), codes.device())?;
    try_dispatch!(codes.device(), turned(&mut y, codes));
    Ok(y)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cast::{rounded, row_amax, scaled, scaled_blocks, scaled_rows};
    use crate::testing::{all_devices, bits, extreme, random, simulator, stored_as, values};
    use crate::{Device, E4m3, E5m2, Error, F16};

    const FORMATS: [Format; 3] = [Format::F16, Format::E4m3, Format::E5m2];

    fn bytes(x: &Tensor) -> Vec<u8> {
        match x.dtype() {
            DType::F16 => {
                let codes = x.download::<F16>().unwrap();
                codes.iter().flat_map(|x| x.0.to_le_bytes()).collect()
            }
            DType::E4m3 => x.download::<E4m3>().unwrap().iter().map(|x| x.0).collect(),
            _ => x.download::<E5m2>().unwrap().iter().map(|x| x.0).collect(),
        }
    }

    fn same(found: &[f32], want: &[f32], place: &str) {
        let alike = |(f, w): (&f32, &f32)| f.to_bits() == w.to_bits() || f.is_nan() && w.is_nan();
        assert_eq!(found.len(), want.len());
        let differs = found.iter().zip(want).position(|pair| !alike(pair));
        assert!(differs.is_none(), "{place}: at {differs:?}");
    }

    #[test]
    fn widened_and_scaled_back_they_are_the_rounded_numbers_on_every_device() {
        let cpu = Device::cpu();
        for device in all_devices() {
            for (format, stored_in) in FORMATS
                .into_iter()
                .flat_map(|format| [(format, DType::F32), (format, DType::Bf16)])
            {
                let place = format!("{device:?} {format:?} {stored_in:?}");
                let mut x = values(&random(&[13, 300], 1, &cpu).unwrap());
                x.extend(values(&extreme(&[3, 300], 2, true, &cpu).unwrap()));
                for (at, x) in x.iter_mut().enumerate() {
                    *x *= 10f32.powi(i32::try_from(at % 9).unwrap() - 5);
                }
                let wide = Tensor::from_f32(&[16, 300], &x, &cpu).unwrap();
                let given = stored_as(
                    stored_in,
                    &Tensor::from_f32(&[16, 300], &x, &device).unwrap(),
                );
                let wide = match stored_in {
                    DType::F32 => wide,
                    _ => crate::testing::widened(&stored_as(stored_in, &wide)),
                };
                let codes = stored(&given, format).unwrap();
                let found = widened(&codes).unwrap();
                same(
                    &values(&found),
                    rounded(&wide, format).unwrap().f32(),
                    &place,
                );

                let with_scale = stored_scaled(&given, format, 0.375).unwrap();
                let back = 1.0_f32 / 0.375;
                let found: Vec<f32> = values(&widened(&with_scale.codes).unwrap());
                let found: Vec<f32> = found.iter().map(|x| x * back).collect();
                same(&found, scaled(&wide, format, 0.375).unwrap().f32(), &place);
                let all = Tensor::from_f32(&[1, 16 * 300], wide.f32(), &cpu).unwrap();
                let amax = row_amax(&all).unwrap();
                assert_eq!(bits(&values(&with_scale.amax)), bits(amax.f32()), "{place}");

                let blocks = Blocks {
                    rows: (5, 8),
                    columns: (128, 200),
                };
                let by_blocks = stored_blocks(&given, format, &blocks).unwrap();
                assert_eq!(by_blocks.back.dims(), [4, 3]);
                let (wide_codes, back) =
                    (widened(&by_blocks.codes).unwrap(), values(&by_blocks.back));
                let ends = [cuts(16, 5, 8), cuts(300, 128, 200)];
                let block = |ends: &[usize], at| ends.iter().rposition(|end| *end <= at).unwrap();
                let found: Vec<f32> = values(&wide_codes)
                    .iter()
                    .enumerate()
                    .map(|(at, x)| {
                        x * back[block(&ends[0], at / 300) * 3 + block(&ends[1], at % 300)]
                    })
                    .collect();
                same(
                    &found,
                    scaled_blocks(&wide, format, &blocks).unwrap().f32(),
                    &place,
                );

                let rows = Blocks {
                    rows: (1, 16),
                    columns: (300, 300),
                };
                let by_rows = stored_blocks(&given, format, &rows).unwrap();
                let back = values(&by_rows.back);
                let found = values(&widened(&by_rows.codes).unwrap());
                let found: Vec<f32> = (found.iter().enumerate())
                    .map(|(at, x)| x * back[at / 300])
                    .collect();
                let amax = row_amax(&wide).unwrap();
                same(
                    &found,
                    scaled_rows(&wide, format, &amax).unwrap().f32(),
                    &place,
                );
            }
        }
    }

    /// torch's order of codes: ascending codes are ascending numbers, and the ends are known.
    #[test]
    fn codes_are_those_of_torch() {
        let device = Device::cpu();
        let of = |format, x: &[f32]| {
            let x = Tensor::from_f32(&[x.len()], x, &device).unwrap();
            bytes(&stored(&x, format).unwrap())
        };
        // torch.tensor([...]).to(torch.float8_e4m3fn).view(torch.uint8), float8_e5m2 likewise
        let x = [1.0, -1.0, 448.0, 0.001953125, 0.015625, -0.0, f32::NAN];
        assert_eq!(
            of(Format::E4m3, &x),
            [0x38, 0xb8, 0x7e, 0x01, 0x08, 0x80, 0x7f]
        );
        let x = [
            1.0,
            -2.0,
            57344.0,
            2f32.powi(-16),
            2f32.powi(-14),
            f32::INFINITY,
            f32::NAN,
        ];
        assert_eq!(
            of(Format::E5m2, &x),
            [0x3c, 0xc0, 0x7b, 0x01, 0x04, 0x7c, 0x7f]
        );
        let x = [1.0, -65504.0, 2f32.powi(-24), 1e9];
        let halves: Vec<u8> = [0x3c00u16, 0xfbff, 0x0001, 0x7c00]
            .iter()
            .flat_map(|x| x.to_le_bytes())
            .collect();
        assert_eq!(of(Format::F16, &x), halves);
        // every code of 8 bits comes back as itself
        for code in 0..=255u8 {
            let e4m3 = Tensor::from_host(&[1], &[E4m3(code)], &device).unwrap();
            let e5m2 = Tensor::from_host(&[1], &[E5m2(code)], &device).unwrap();
            for (codes, format) in [(e4m3, Format::E4m3), (e5m2, Format::E5m2)] {
                let wide = widened(&codes).unwrap();
                let is_nan = wide.f32()[0].is_nan();
                assert!(
                    is_nan || of(format, wide.f32()) == [code],
                    "{format:?} {code:x}"
                );
            }
        }
    }

    #[test]
    fn bytes_turn_and_copy_on_every_device() {
        let devices = [Some(Device::cpu()), simulator::device()];
        for device in devices.into_iter().flatten() {
            for [rows, columns] in [[1, 1], [33, 70], [64, 31]] {
                let codes: Vec<E4m3> = (0..rows * columns)
                    .map(|at: usize| E4m3(at.to_le_bytes()[0]))
                    .collect();
                let x = Tensor::from_host(&[rows, columns], &codes, &device).unwrap();
                let found = turned(&x).unwrap().download::<E4m3>().unwrap();
                let want: Vec<E4m3> = (0..rows * columns)
                    .map(|at| codes[at % rows * columns + at / rows])
                    .collect();
                assert_eq!(found, want, "{device:?}");
            }
        }
        let x = random(&[2, 3], 1, &Device::cpu()).unwrap();
        assert!(matches!(turned(&x), Err(Error::DType { .. })));
        assert!(matches!(widened(&x), Err(Error::DType { .. })));
        assert!(matches!(
            stored(&x, Format::Bf16),
            Err(Error::Argument { .. })
        ));
        assert!(stored_scaled(&x, Format::E4m3, 0.0).is_err());
    }
}
