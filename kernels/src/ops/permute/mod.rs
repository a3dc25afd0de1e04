//! Tokens to experts and back: rows sorted by expert, in token order inside an expert, and the
//! weighted sum of each token's experts.
//!
//! `permute`: `y[r] = x[token of r]`; backward adds a token's rows in router order. `combine`: `y[i] = sum over j
//! of weight[i, j] * x[row of (i, j)]`, a chain of fused multiply-adds from 0 in router order j; a dropped or
//! foreign (i, j) adds nothing. A weight's gradient is a row's dot product: 16 lane sums and a fixed tree. Tokens
//! are in (sequence, position) order, so with ranks that hold consecutive sequences an expert's rows are the ranks'
//! rows concatenated: the same order for every layout.
//!
//! On a device the order is made there, and the host does not know how many rows there are: permuted tensors have a row for
//! every choice, of which those past the last expert's are zeros.

mod cpu;
pub(super) mod cuda;
mod order;

use std::ops::Range;

use crate::device::Kind;
use crate::{DType, Error, Result, Tensor};
use order::Lists;
pub use order::{DROPPED, Order};

impl Order {
    /// Returns the order of the choices whose experts are in `range`. Does not wait for a device, where choices of experts
    /// that do not exist have no row.
    /// # Shapes
    /// experts: `[n, k]` u32, expert of each choice in router order, or `DROPPED`; below `total`.
    /// # Errors
    /// `Shape`, `DType` or `Argument` if they do not fit; `Memory`.
    pub fn new(experts: &Tensor, total: usize, range: Range<usize>) -> Result<Order> {
        experts.expect("permute", "experts", DType::U32)?;
        let &[tokens, k] = experts.dims() else {
            return Err(Error::Shape {
                op: "permute",
                name: "experts",
                found: experts.dims().to_vec(),
                wanted: "[n, k]".to_owned(),
            });
        };
        if range.start > range.end || range.end > total {
            return Err(Error::Argument {
                op: "permute",
                name: "range",
                found: format!("{range:?}"),
                wanted: format!("a range inside 0..{total}"),
            });
        }
        let lists = match experts.device().kind() {
            Kind::Cpu => Lists::Host(cpu::lists(experts.u32(), total, range)?),
            Kind::Cuda(on) => Lists::Device(Box::new(cuda::lists(on, experts, range)?)),
        };
        Ok(Order { lists, k, tokens })
    }

    /// Returns, on a device, the rows of each expert by leaf of a sum over tokens, `leaf` tokens each: `[experts, leaves]`
    /// u32. `None` on the host, where `tokens` has them.
    /// # Errors
    /// `Argument` if `leaf` is 0; `Memory`.
    pub fn leaves(&self, leaf: usize) -> Result<Option<Tensor>> {
        if leaf == 0 {
            return Err(Error::Argument {
                op: "permute::Order::leaves",
                name: "leaf",
                found: "0".to_owned(),
                wanted: "tokens".to_owned(),
            });
        }
        let Lists::Device(lists) = &self.lists else {
            return Ok(None);
        };
        let experts = lists.offsets.elements() - 1;
        let count = self.tokens.div_ceil(leaf);
        let device = lists.offsets.device();
        let mut table = Tensor::zeros(&[experts, count], DType::U32, device)?;
        if let Kind::Cuda(on) = device.kind() {
            cuda::leaves(on, &mut table, lists, self.k * leaf)?;
        }
        Ok(Some(table))
    }
}

/// Returns the rows by expert: `[rows, d]`.
/// # Shapes
/// x: `[n, d]`.
/// # Errors
/// `Shape` or `DType` if x does not fit.
pub fn permute(x: &Tensor, order: &Order) -> Result<Tensor> {
    let d = order.check("permute", "x", x, order.token_count())?;
    let mut y = Tensor::empty(&[order.rows(), d], DType::F32, x.device())?;
    dispatch!(x.device(), permute(&mut y, x, order));
    Ok(y)
}

/// Returns the gradient of the tokens: `[n, d]`.
/// # Shapes
/// dy: `[rows, d]`.
/// # Errors
/// `Shape` or `DType` if dy does not fit.
pub fn permute_backward(dy: &Tensor, order: &Order) -> Result<Tensor> {
    let d = order.check("permute_backward", "dy", dy, order.rows())?;
    let mut dx = Tensor::empty(&[order.token_count(), d], DType::F32, dy.device())?;
    dispatch!(dy.device(), gather(&mut dx, dy, None, order));
    Ok(dx)
}

/// Returns the weighted sums of the experts' rows: `[n, d]`.
/// # Shapes
/// x: `[rows, d]`, weights: `[n, k]`.
/// # Errors
/// `Shape` or `DType` if they do not fit.
pub fn combine(x: &Tensor, weights: &Tensor, order: &Order) -> Result<Tensor> {
    const OP: &str = "combine";
    let d = order.check(OP, "x", x, order.rows())?;
    weights.expect_f32(OP, "weights", &[order.token_count(), order.k])?;
    let mut y = Tensor::empty(&[order.token_count(), d], DType::F32, x.device())?;
    dispatch!(x.device(), gather(&mut y, x, Some(weights), order));
    Ok(y)
}

/// Returns the gradients of x and of the weights (0 where nothing was added).
/// # Shapes
/// dy: `[n, d]`, x: `[rows, d]`, weights: `[n, k]` -> `[rows, d]`, `[n, k]`.
/// # Errors
/// `Shape` or `DType` if they do not fit.
pub fn combine_backward(
    dy: &Tensor,
    x: &Tensor,
    weights: &Tensor,
    order: &Order,
) -> Result<(Tensor, Tensor)> {
    const OP: &str = "combine_backward";
    let d = order.check(OP, "x", x, order.rows())?;
    dy.expect_f32(OP, "dy", &[order.token_count(), d])?;
    weights.expect_f32(OP, "weights", &[order.token_count(), order.k])?;
    let mut dx = Tensor::empty(x.dims(), DType::F32, x.device())?;
    let mut dweights = Tensor::empty(weights.dims(), DType::F32, x.device())?;
    dispatch!(
        x.device(),
        combine_backward(&mut dx, &mut dweights, dy, x, weights, order)
    );
    Ok((dx, dweights))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::testing::{
        all_devices, assert_same_bits, bits, differences, error, random, values, wide,
    };
    use crate::{Device, tolerance};

    const EXPERTS: [u32; 14] = [
        3, 1, 0, 3, DROPPED, 1, 3, 0, 1, 3, 0, DROPPED, DROPPED, DROPPED,
    ];

    fn experts(device: &Device) -> Tensor {
        Tensor::from_u32(&[7, 2], &EXPERTS, device).unwrap()
    }

    /// The choice of each row, on the host.
    fn choices(order: &Order) -> &[usize] {
        match &order.lists {
            Lists::Host(lists) => &lists.choices,
            Lists::Device(_) => panic!("on the host"),
        }
    }

    /// The offsets, counts by leaf, and the lists of an order on any device, `rows` of the choices' list.
    fn lists(order: &Order, leaf: usize) -> [Vec<u32>; 4] {
        let word = |x: &usize| u32::try_from(*x).unwrap();
        match &order.lists {
            Lists::Host(lists) => {
                let mut table = vec![0; lists.counts.len() * order.tokens.div_ceil(leaf)];
                let mut tokens = order.tokens();
                let mut offsets = vec![0];
                for (expert, count) in lists.counts.iter().enumerate() {
                    for token in tokens.by_ref().take(*count) {
                        table[expert * order.tokens.div_ceil(leaf) + token / leaf] += 1;
                    }
                    offsets.push(offsets[expert] + word(count));
                }
                let rows = lists.rows.iter();
                let rows = rows.map(|row| row.map_or(u32::MAX, |row| word(&row)));
                let mut choices: Vec<u32> = lists.choices.iter().map(word).collect();
                choices.resize(lists.rows.len(), u32::MAX);
                [offsets, table, choices, rows.collect()]
            }
            Lists::Device(lists) => {
                let table = order.leaves(leaf).unwrap().unwrap();
                let all = [&lists.offsets, &table, &lists.choices, &lists.rows];
                all.map(|x| x.download().unwrap())
            }
        }
    }

    #[test]
    fn devices_put_choices_in_the_order_of_the_host() {
        // tiles of 256 choices; more than 32 tiles and experts; experts without choices
        for (n, k, total) in [
            (1, 1, 1),
            (85, 3, 7),
            (300, 6, 40),
            (4200, 2, 5),
            (256, 1, 70),
        ] {
            let id = |i: usize| match (i * i + 7 * i) / 3 % (total + 2) {
                id if id < total => u32::try_from(id * id % total).unwrap(),
                _ => DROPPED,
            };
            let ids: Vec<u32> = (0..n * k).map(id).collect();
            for range in [0..total, total / 3..total / 2 + 1] {
                let mut all = Vec::new();
                for device in all_devices() {
                    let experts = Tensor::from_u32(&[n, k], &ids, &device).unwrap();
                    let order = Order::new(&experts, total, range.clone()).unwrap();
                    all.push(lists(&order, n.div_ceil(4)));
                }
                assert!(all.windows(2).all(|x| x[0] == x[1]), "{n} {k} {range:?}");
            }
        }
    }

    #[test]
    fn rows_are_sorted_by_expert_and_keep_token_order() {
        let order = Order::new(&experts(&Device::cpu()), 4, 0..4).unwrap();
        assert_eq!(order.counts().unwrap(), &[3, 3, 0, 4]);
        assert_eq!(choices(&order), [2, 7, 10, 1, 5, 8, 0, 3, 6, 9]);
        let tokens: Vec<usize> = order.tokens().collect();
        assert_eq!(tokens, [1, 3, 5, 0, 2, 4, 0, 1, 3, 4]);
    }

    #[test]
    fn ranges_of_experts_have_the_rows_of_the_whole() {
        let device = Device::cpu();
        let x = random(&[7, 5], 1, &device).unwrap();
        let rows = |range| {
            let order = Order::new(&experts(&device), 4, range).unwrap();
            permute(&x, &order).unwrap().f32().to_vec()
        };
        let parts = [rows(0..1), rows(1..3), rows(3..4)].concat();
        assert_eq!(parts, rows(0..4));
        assert_ne!([rows(3..4), rows(0..1), rows(1..3)].concat(), rows(0..4));
    }

    #[test]
    fn there_and_back_with_weights_that_sum_to_one_is_the_identity() {
        let device = Device::cpu();
        let x = random(&[3, 20], 1, &device).unwrap();
        let experts = Tensor::from_u32(&[3, 2], &[1, 0, 0, 2, 2, 1], &device).unwrap();
        let order = Order::new(&experts, 3, 0..3).unwrap();
        let halves = [0.25, 0.75, 0.5, 0.5, 1.0, 0.0];
        let weights = Tensor::from_f32(&[3, 2], &halves, &device).unwrap();
        let y = combine(&permute(&x, &order).unwrap(), &weights, &order).unwrap();
        assert!(error(y.f32(), &wide(x.f32())) < tolerance::elementwise(2));
    }

    #[test]
    fn combine_adds_in_router_order_and_skips_what_was_dropped() {
        let device = Device::cpu();
        let order = Order::new(&experts(&device), 4, 0..4).unwrap();
        let x = random(&[10, 33], 1, &device).unwrap();
        let weights = random(&[7, 2], 2, &device).unwrap();
        let y = combine(&x, &weights, &order).unwrap();
        let sum = |reversed: bool| -> Vec<f32> {
            let mut out = Vec::new();
            for i in 0..7 {
                for c in 0..33 {
                    let mut two = [2 * i, 2 * i + 1];
                    if reversed {
                        two.reverse();
                    }
                    out.push(two.iter().fold(0.0, |acc: f32, choice| {
                        let row = choices(&order).iter().position(|c| c == choice);
                        row.map_or(acc, |r| {
                            weights.f32()[*choice].mul_add(x.f32()[r * 33 + c], acc)
                        })
                    }));
                }
            }
            out
        };
        assert_eq!(bits(y.f32()), bits(&sum(false)));
        // Must fail: the other order.
        assert_ne!(bits(y.f32()), bits(&sum(true)));
        assert_eq!(&y.f32()[6 * 33..], &[0.0; 33]);
    }

    #[test]
    fn gradients_match_finite_differences() {
        let device = Device::cpu();
        let order = Order::new(&experts(&device), 4, 0..4).unwrap();
        let (x, weights) = (
            random(&[10, 5], 1, &device).unwrap(),
            random(&[7, 2], 2, &device).unwrap(),
        );
        let dy = random(&[7, 5], 3, &device).unwrap();
        let (dx, dweights) = combine_backward(&dy, &x, &weights, &order).unwrap();
        let loss = |x: &[f64], w: &[f64]| -> f64 {
            let term = |(row, &choice): (usize, &usize)| {
                let products =
                    (0..5).map(|c| x[row * 5 + c] * f64::from(dy.f32()[choice / 2 * 5 + c]));
                w[choice] * products.sum::<f64>()
            };
            choices(&order).iter().enumerate().map(term).sum()
        };
        let (x64, w64) = (wide(x.f32()), wide(weights.f32()));
        let bound = tolerance::sum(8) + tolerance::central_difference(1e-4);
        let want = differences(&x64, 1e-4, |x| loss(x, &w64));
        assert!(error(dx.f32(), &want) < bound);
        let want = differences(&w64, 1e-4, |w| loss(&x64, w));
        assert!(error(dweights.f32(), &want) < bound);
        let dtokens = permute_backward(&dx, &order).unwrap();
        let tokens = wide(random(&[7, 5], 9, &device).unwrap().f32());
        let want = differences(&tokens, 1e-4, |tokens| {
            let term = |(row, t): (usize, usize)| {
                (0..5)
                    .map(|c| tokens[t * 5 + c] * f64::from(dx.f32()[row * 5 + c]))
                    .sum::<f64>()
            };
            order.tokens().enumerate().map(term).sum()
        });
        assert!(error(dtokens.f32(), &want) < bound);
    }

    #[test]
    fn bits_are_the_same_on_every_instruction_set() {
        assert_same_bits(|device| {
            let order = Order::new(&experts(device), 4, 0..4).unwrap();
            // on a device there are rows of padding, which nobody reads
            let x = random(&[14, 45], 1, device).unwrap();
            let x = first(&x, order.rows());
            let weights = random(&[7, 2], 2, device).unwrap();
            let y = combine(&x, &weights, &order).unwrap();
            let (dx, dweights) = combine_backward(&y, &x, &weights, &order).unwrap();
            let back = permute_backward(&dx, &order).unwrap();
            // a range of the experts
            let some = Order::new(&experts(device), 4, 1..3).unwrap();
            let few = permute(&y, &some).unwrap();
            let sum = combine(&few, &weights, &some).unwrap();
            let rows = permute(&y, &order).unwrap();
            for padded in [&rows, &dx] {
                let rows = values(padded);
                assert!(rows[10 * 45..].iter().all(|x| *x == 0.0), "{device:?}");
            }
            let (rows, dx, few) = (first(&rows, 10), first(&dx, 10), first(&few, 3));
            vec![rows, y, dx, dweights, back, few, sum]
        });
    }

    /// The first rows of a matrix.
    fn first(x: &Tensor, rows: usize) -> Tensor {
        let (_, d) = x.rows_cols();
        let numbers = &values(x)[..rows * d];
        Tensor::from_f32(&[rows, d], numbers, x.device()).unwrap()
    }

    #[test]
    fn unknown_experts_and_wrong_rows_are_refused_by_name() {
        let device = Device::cpu();
        let found = Order::new(&experts(&device), 3, 0..3);
        assert!(matches!(
            found,
            Err(Error::Argument {
                name: "experts",
                ..
            })
        ));
        let found = Order::new(&experts(&device), 4, 2..5);
        assert!(matches!(found, Err(Error::Argument { name: "range", .. })));
        let order = Order::new(&experts(&device), 4, 0..4).unwrap();
        let x = random(&[6, 5], 1, &device).unwrap();
        let found = permute(&x, &order);
        assert!(matches!(found, Err(Error::Shape { name: "x", .. })));
        let rows = random(&[10, 5], 1, &device).unwrap();
        let found = combine(&rows, &x, &order);
        assert!(matches!(
            found,
            Err(Error::Shape {
                name: "weights",
                ..
            })
        ));
    }
}
