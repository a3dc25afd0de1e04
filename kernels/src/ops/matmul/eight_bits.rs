//! Products of factors stored in 8 bits on tensor cores: `eight_bits.cu`. An element is one chain of `mma.sync` in ascending
//! k of the stored numbers, times the inverse scales of its row and column; then the epilogue of other products, in f32.
//!
//! Scales belong to rows of a factor or to all of it, so that they can be taken out of the sum. Format: Micikevicius et al.
//! 2022, arXiv:2209.05433.

use std::sync::Arc;

use super::cuda::ended;
use super::mma::TILE;
use super::operand::Then;
use super::sides::Epilogue;
use crate::cuda::{Cuda, Grid, Source};
use crate::device::Kind;
use crate::{DType, Device, Error, Result, Tensor};

pub(in crate::ops) static SOURCE: Source = Source {
    name: "eight_bits.cu",
    text: include_str!("eight_bits.cu"),
};

const OP: &str = "matmul::product_of_eight";

/// Numbers of a 16-byte chunk: lines along k are whole ones.
const CHUNK: usize = 16;

/// A factor of 8 bits in lines along k, and what gives its sizes back.
#[derive(Clone, Copy, Debug)]
pub struct Eight<'a> {
    /// `[rows, k]`, E4M3 or E5M2.
    pub codes: &'a Tensor,
    /// Inverse scales in f32, of each row or one for all.
    pub back: &'a Tensor,
}

/// Whether a device multiplies factors of 8 bits with `k` numbers a row: GPUs from compute capability 8.9 on, if lines are whole
/// chunks of 16 bytes.
pub fn has_eight_bits(device: &Device, k: usize) -> bool {
    match device.kind() {
        Kind::Cpu => false,
        Kind::Cuda(on) => on.capability() >= (8, 9) && k > 0 && k.is_multiple_of(CHUNK),
    }
}

/// The end of a product: how its sums are stored.
#[derive(Debug)]
pub enum End<'a> {
    /// They are c.
    Store,
    /// They are added to c, which is f32.
    Add,
    /// A fused epilogue.
    Then(Then<'a>),
}

impl<'a> From<Option<Then<'a>>> for End<'a> {
    fn from(then: Option<Then<'a>>) -> Self {
        then.map_or(End::Store, End::Then)
    }
}

/// Computes c = a b^T of factors of 8 bits, of which at most one is E5M2.
/// # Shapes
/// a: `[m, k]`, b: `[n, k]`, c: `[m, n]` with leading dims flattened, f32 or bf16.
/// # Errors
/// `Shape`, `DType` or `Argument` if they do not fit; `NotImplemented` where `has_eight_bits` is false.
pub fn product_of_eight<'a>(
    c: &mut Tensor,
    a: Eight<'_>,
    b: Eight<'_>,
    end: impl Into<End<'a>>,
) -> Result<()> {
    let ((m, k), (n, _)) = (a.codes.rows_cols(), b.codes.rows_cols());
    let function = function(&a, &b)?;
    let end = end.into();
    if b.codes.dims() != [n, k] {
        return Err(Error::Shape {
            op: OP,
            name: "b",
            found: b.codes.dims().to_vec(),
            wanted: format!("[rows, {k}]"),
        });
    }
    for (name, factor, rows) in [("a", &a, m), ("b", &b, n)] {
        factor.back.expect(OP, name, DType::F32)?;
        if ![1, rows].contains(&factor.back.elements()) || u32::try_from(rows).is_err() {
            return Err(Error::Shape {
                op: OP,
                name,
                found: factor.back.dims().to_vec(),
                wanted: format!("inverse scales of {rows} rows, or one"),
            });
        }
    }
    match end {
        End::Add => c.expect(OP, "c", DType::F32)?,
        End::Store | End::Then(_) => c.expect_number(OP, "c")?,
    }
    if c.rows_cols() != (m, n) {
        return Err(Error::Shape {
            op: OP,
            name: "c",
            found: c.dims().to_vec(),
            wanted: format!("[{m}, {n}] with leading dims flattened"),
        });
    }
    let device = c.device().clone();
    let Kind::Cuda(on) = device.kind() else {
        return Err(refused(&device));
    };
    if !has_eight_bits(&device, k) {
        return Err(refused(&device));
    }
    let _span = crate::trace::op("kernels::ops::matmul::product_of_eight");
    let run = |c: &mut Tensor, end: Epilogue<'_>| launch(on, function, c, [&a, &b], &end);
    match end {
        End::Store => run(c, Epilogue::default()),
        End::Add => {
            let end = Epilogue {
                accumulate: true,
                ..Epilogue::default()
            };
            run(c, end)
        }
        End::Then(then) => {
            then.check(OP, c, n)?;
            ended(on, c, then, &run)
        }
    }
}

fn refused(device: &Device) -> Error {
    Error::NotImplemented {
        op: "products of 8 bits, or of rows that are no multiple of 16",
        device: device.name().to_owned(),
    }
}

/// The kernel by the types of both factors.
fn function(a: &Eight<'_>, b: &Eight<'_>) -> Result<&'static str> {
    let wrong = |name, found| Error::DType {
        op: OP,
        name,
        found,
        wanted: DType::E4m3,
    };
    match (a.codes.dtype(), b.codes.dtype()) {
        (DType::E4m3, DType::E4m3) => Ok("product_e4m3_e4m3"),
        (DType::E4m3, DType::E5m2) => Ok("product_e4m3_e5m2"),
        (DType::E5m2, DType::E4m3) => Ok("product_e5m2_e4m3"),
        (DType::E4m3 | DType::E5m2, found) => Err(wrong("b", found)),
        (found, _) => Err(wrong("a", found)),
    }
}

fn launch(
    on: &Arc<Cuda>,
    function: &'static str,
    c: &mut Tensor,
    [a, b]: [&Eight<'_>; 2],
    end: &Epilogue<'_>,
) -> Result<()> {
    let ((m, k), (n, _)) = (a.codes.rows_cols(), b.codes.rows_cols());
    if m == 0 || n == 0 {
        return Ok(());
    }
    let size = |x: usize| u32::try_from(x).unwrap_or(u32::MAX);
    let c_is_bf16 = c.dtype() == DType::Bf16;
    let first = [
        c.into(),
        c_is_bf16.into(),
        a.codes.into(),
        size(m).into(),
        a.back.into(),
        size(a.back.elements()).into(),
        b.codes.into(),
        size(n).into(),
        b.back.into(),
        size(b.back.elements()).into(),
        size(k).into(),
        size(k).into(),
    ];
    let args = [&first[..], &end.args()].concat();
    let blocks = m.div_ceil(TILE) * n.div_ceil(TILE);
    on.launch(&SOURCE, function, Grid::blocks(blocks, 256), &args)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cast::{self, Blocks, Format, Stored};
    use crate::matmul::{Numbers, product};
    use crate::rope::{Frequencies, Positions, Scaling, Turn};
    use crate::testing::{bits, random, simulator, stored_as, values, wide, widened};
    use crate::{Heads, activation, add, rope, tolerance};

    /// With scales of rows, or one of all.
    fn stored(x: &Tensor, format: Format, by_row: bool) -> Stored {
        let (rows, columns) = x.rows_cols();
        let blocks = Blocks {
            rows: (if by_row { 1 } else { rows }, rows),
            columns: (columns, columns),
        };
        cast::stored_blocks(x, format, &blocks).unwrap()
    }

    fn eight(x: &Stored) -> Eight<'_> {
        Eight {
            codes: &x.codes,
            back: &x.back,
        }
    }

    /// The numbers in f32.
    fn scaled_back(x: &Stored) -> Tensor {
        let (back, (_, columns)) = (values(&x.back), x.codes.rows_cols());
        let mut numbers = values(&cast::widened(&x.codes).unwrap());
        for (at, number) in numbers.iter_mut().enumerate() {
            *number *= back[if back.len() == 1 { 0 } else { at / columns }];
        }
        Tensor::from_f32(x.codes.dims(), &numbers, x.codes.device()).unwrap()
    }

    /// Numbers and sums of sizes of a b^T in f64, of what is stored.
    fn exact(a: &Stored, b: &Stored) -> (Vec<f64>, Vec<f64>) {
        let numbers = |x: &Stored| wide(&values(&scaled_back(x)));
        let (of_a, of_b, (_, k)) = (numbers(a), numbers(b), a.codes.rows_cols());
        let pairs = of_a
            .chunks(k)
            .flat_map(|a| of_b.chunks(k).map(move |b| (a, b)));
        let dot = |(a, b): (&[f64], &[f64])| -> (f64, f64) {
            let terms = a.iter().zip(b).map(|(a, b)| a * b);
            terms.fold((0.0, 0.0), |(sum, sizes), x| (sum + x, sizes + x.abs()))
        };
        pairs.map(dot).unzip()
    }

    fn is_near(found: &[f32], (want, sizes): &(Vec<f64>, Vec<f64>), k: usize) -> bool {
        let bound = tolerance::tensor_core_of_eight(k);
        assert_eq!(found.len(), want.len());
        let all = found.iter().zip(want).zip(sizes);
        all.into_iter()
            .all(|((found, want), sizes)| (f64::from(*found) - want).abs() <= bound * sizes)
    }

    #[test]
    fn products_are_those_of_the_stored_numbers() {
        let Some(device) = simulator::device() else {
            return;
        };
        let make = |dims: [usize; 2], seed| random(&dims, seed, &device).unwrap();
        use Format::{E4m3, E5m2};
        for [m, n, k] in [[1, 1, 16], [130, 37, 48], [5, 260, 208], [129, 129, 64]] {
            let (x, w) = (make([m, k], 1), make([n, k], 2));
            for (of_a, of_b) in [(E4m3, E4m3), (E4m3, E5m2), (E5m2, E4m3)] {
                for by_row in [[true, false], [false, true], [true, true], [false, false]] {
                    let a = stored(&x, of_a, by_row[0]);
                    let b = stored(&w, of_b, by_row[1]);
                    let place = (m, n, k, of_a, of_b, by_row);
                    let mut c = make([m, n], 3);
                    product_of_eight(&mut c, eight(&a), eight(&b), End::Store).unwrap();
                    let want = exact(&a, &b);
                    assert!(is_near(&values(&c), &want, k), "{place:?}");
                    // scales are powers of two, and the simulator adds in the same order: the bits of the product of
                    // the numbers as bf16, which holds them
                    let wide_a = scaled_back(&a);
                    let mut in_bf16 = make([m, n], 3);
                    let wide_b = scaled_back(&b);
                    let b_t = wide_b.transposed();
                    product(Numbers::Bf16Mma, &mut in_bf16, &wide_a, b_t, 0, false).unwrap();
                    assert!(bits(&values(&c)) == bits(&values(&in_bf16)), "{place:?}");
                    // must fail: another scale
                    let off = |by: f64| {
                        let other = want.0.iter().map(|x| x * by).collect();
                        is_near(&values(&c), &(other, want.1.clone()), k)
                    };
                    assert!(!off(2.0) && !off(0.5), "{place:?}");
                    let mut sum = make([m, n], 3);
                    let old = values(&sum);
                    product_of_eight(&mut sum, eight(&a), eight(&b), End::Add).unwrap();
                    let added = old.iter().zip(values(&c)).map(|(old, c)| old + c);
                    assert!(
                        bits(&values(&sum)) == bits(&added.collect::<Vec<f32>>()),
                        "{place:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn epilogues_are_those_of_other_products() {
        let Some(device) = simulator::device() else {
            return;
        };
        let heads = Heads {
            heads: 2,
            kv_heads: 1,
            width: 16,
        };
        let (m, n, k) = (33, heads.packed(), 64);
        let make = |dims: &[usize], seed| random(dims, seed, &device).unwrap();
        let x = stored(&make(&[m, k], 1), Format::E4m3, true);
        let w = stored(&make(&[n, k], 2), Format::E4m3, false);
        let bias = make(&[n], 3);
        let frequencies = Frequencies::new(1e4, heads.width, &Scaling::Plain).unwrap();
        let turn = || Turn {
            heads: &heads,
            positions: Positions::Run { t: m, offset: 2 },
            frequencies: &frequencies,
        };
        for dtype in [DType::F32, DType::Bf16] {
            let run = |end: End<'_>| {
                let mut c = Tensor::zeros(&[m, n], dtype, &device).unwrap();
                product_of_eight(&mut c, eight(&x), eight(&w), end).unwrap();
                bits(&values(&widened(&c)))
            };
            let plain = |bias: Option<&Tensor>| {
                let mut c = Tensor::zeros(&[m, n], DType::F32, &device).unwrap();
                product_of_eight(&mut c, eight(&x), eight(&w), End::Store).unwrap();
                if let Some(bias) = bias {
                    add::bias(&mut c, bias).unwrap();
                }
                c
            };
            let rounded = |x: &Tensor| bits(&values(&widened(&stored_as(dtype, x))));
            let with_bias = plain(Some(&bias));
            assert!(run(End::Then(Then::Bias(&bias))) == rounded(&with_bias));
            let mut turned = plain(Some(&bias));
            rope::forward(&mut turned, &turn()).unwrap();
            let then = Then::Rotary {
                bias: Some(&bias),
                turn: turn(),
            };
            assert!(run(End::Then(then)) == rounded(&turned));
            let kind = activation::Kind::GeluTanh;
            let mut found = Tensor::zeros(&[m, n], dtype, &device).unwrap();
            let then = Then::Activation {
                kind,
                bias: Some(&bias),
                values: &mut found,
            };
            run(End::Then(then));
            let want = activation::forward(&with_bias, None, kind).unwrap();
            assert!(bits(&values(&widened(&found))) == rounded(&want));
        }
    }

    #[test]
    fn factors_that_do_not_fit_are_refused_by_name() {
        let device = Device::cpu();
        let zeros = |dims: &[usize], dtype| Tensor::zeros(dims, dtype, &device).unwrap();
        let (codes, back) = (zeros(&[4, 32], DType::E4m3), zeros(&[1], DType::F32));
        let five = zeros(&[4, 32], DType::E5m2);
        let mut c = zeros(&[4, 4], DType::F32);
        let of = |codes| Eight { codes, back: &back };
        let name = |found: Result<()>| match found {
            Err(Error::Shape { name, .. } | Error::DType { name, .. }) => name,
            Err(Error::NotImplemented { .. }) => "device",
            _ => panic!("refused"),
        };
        let both = product_of_eight(&mut c, of(&five), of(&five), End::Store);
        assert_eq!(name(both), "b");
        let numbers = zeros(&[4, 32], DType::F32);
        let wide = product_of_eight(&mut c, of(&numbers), of(&codes), End::Store);
        assert_eq!(name(wide), "a");
        let short = zeros(&[4, 16], DType::E4m3);
        let found = product_of_eight(&mut c, of(&codes), of(&short), End::Store);
        assert_eq!(name(found), "b");
        let two = zeros(&[2], DType::F32);
        let scaled = Eight {
            codes: &codes,
            back: &two,
        };
        let found = product_of_eight(&mut c, scaled, of(&codes), End::Store);
        assert_eq!(name(found), "a");
        let mut long = zeros(&[4, 5], DType::F32);
        let found = product_of_eight(&mut long, of(&codes), of(&codes), End::Store);
        assert_eq!(name(found), "c");
        let found = product_of_eight(&mut c, of(&codes), of(&codes), End::Store);
        assert_eq!(name(found), "device");
        assert!(!has_eight_bits(&device, 32));
        let Some(gpu) = simulator::device() else {
            return;
        };
        assert!(has_eight_bits(&gpu, 32) && !has_eight_bits(&gpu, 40));
    }
}
