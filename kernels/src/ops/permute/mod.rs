//! Tokens to experts and back: rows sorted by expert, in token order inside an expert, and the
//! weighted sum of each token's experts.
//!
//! `permute`: `y[r] = x[token of r]`; backward adds a token's rows in router order. `combine`: `y[i] = sum over j
//! of weight[i, j] * x[row of (i, j)]`, a chain of fused multiply-adds from 0 in router order j; a dropped or
//! foreign (i, j) adds nothing. A weight's gradient is a row's dot product: 16 lane sums and a fixed tree. Tokens
//! are in (sequence, position) order, so with ranks that hold consecutive sequences an expert's rows are the ranks'
//! rows concatenated: the same order for every layout.

mod cpu;
pub(super) mod cuda;
mod order;

use crate::{DType, Result, Tensor};
pub use order::{DROPPED, Order};

/// Returns the rows by expert: `[rows, d]`.
/// # Shapes
/// x: `[n, d]`.
/// # Errors
/// `Shape` or `DType` if x does not fit.
pub fn permute(x: &Tensor, order: &Order) -> Result<Tensor> {
    let d = order.check("permute", "x", x, order.token_count())?;
    let mut y = Tensor::empty(&[order.choices.len(), d], DType::F32, x.device())?;
    dispatch!(x.device(), permute(&mut y, x, order));
    Ok(y)
}

/// Returns the gradient of the tokens: `[n, d]`.
/// # Shapes
/// dy: `[rows, d]`.
/// # Errors
/// `Shape` or `DType` if dy does not fit.
pub fn permute_backward(dy: &Tensor, order: &Order) -> Result<Tensor> {
    let d = order.check("permute_backward", "dy", dy, order.choices.len())?;
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
    let d = order.check(OP, "x", x, order.choices.len())?;
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
    let d = order.check(OP, "x", x, order.choices.len())?;
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
    use crate::testing::{assert_same_bits, bits, differences, error, random, wide};
    use crate::{Device, tolerance};

    const EXPERTS: [u32; 14] = [
        3, 1, 0, 3, DROPPED, 1, 3, 0, 1, 3, 0, DROPPED, DROPPED, DROPPED,
    ];

    fn experts(device: &Device) -> Tensor {
        Tensor::from_u32(&[7, 2], &EXPERTS, device).unwrap()
    }

    #[test]
    fn rows_are_sorted_by_expert_and_keep_token_order() {
        let order = Order::new(&experts(&Device::cpu()), 4, 0..4).unwrap();
        assert_eq!(order.counts(), &[3, 3, 0, 4]);
        assert_eq!(order.choices, [2, 7, 10, 1, 5, 8, 0, 3, 6, 9]);
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
                    let mut choices = [2 * i, 2 * i + 1];
                    if reversed {
                        choices.reverse();
                    }
                    out.push(choices.iter().fold(0.0, |acc: f32, choice| {
                        let row = order.choices.iter().position(|c| c == choice);
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
            order.choices.iter().enumerate().map(term).sum()
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
            let x = random(&[10, 45], 1, device).unwrap();
            let weights = random(&[7, 2], 2, device).unwrap();
            let y = combine(&x, &weights, &order).unwrap();
            let (dx, dweights) = combine_backward(&y, &x, &weights, &order).unwrap();
            let back = permute_backward(&dx, &order).unwrap();
            // a range of the experts
            let some = Order::new(&experts(device), 4, 1..3).unwrap();
            let few = permute(&y, &some).unwrap();
            let sum = combine(&few, &weights, &some).unwrap();
            vec![
                permute(&y, &order).unwrap(),
                y,
                dx,
                dweights,
                back,
                few,
                sum,
            ]
        });
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
