//! Tokens to experts and back: rows sorted by expert, in token order inside an expert, and the
//! weighted sum of each token's experts.
//!
//! `permute`: `y[r] = x[token of r]`; backward adds a token's rows in router order.
//! `combine`: `y[i] = sum over j of weight[i, j] * x[row of (i, j)]`, a chain of fused multiply-adds from
//! 0 in router order j; a dropped or foreign (i, j) adds nothing. A weight's gradient is a row's dot
//! product: 16 lane sums and a fixed tree.
//! Tokens lie in (sequence, position) order, so with ranks that hold runs of sequences an expert's
//! rows are the ranks' rows one after the other: the same order for every layout.

mod cpu;

use crate::{DType, Error, Result, Tensor};
use std::ops::Range;

/// Expert of a choice that capacity dropped.
pub const DROPPED: u32 = u32::MAX;

/// Which choice lies in which row, for one range of experts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Row to choice: token * k + j.
    choices: Vec<usize>,
    /// Choice to row; `None` if dropped or of an expert outside the range.
    rows: Vec<Option<usize>>,
    /// Rows per expert of the range.
    counts: Vec<usize>,
    k: usize,
}

impl Order {
    /// Returns the order of the choices whose experts are in `range`.
    /// # Shapes
    /// experts: `[n, k]` u32, expert of each choice in router order, or `DROPPED`; below `total`.
    /// # Errors
    /// `Shape`, `DType` or `Argument` if they do not fit.
    pub fn new(experts: &Tensor, total: usize, range: Range<usize>) -> Result<Order> {
        const OP: &str = "permute";
        experts.expect(OP, "experts", DType::U32)?;
        let &[_, k] = experts.dims() else {
            return Err(Error::Shape {
                op: OP,
                name: "experts",
                found: experts.dims().to_vec(),
                wanted: "[n, k]".to_owned(),
            });
        };
        if range.start > range.end || range.end > total {
            return Err(Error::Argument {
                op: OP,
                name: "range",
                found: format!("{range:?}"),
                wanted: format!("a range inside 0..{total}"),
            });
        }
        let here = |expert: u32| {
            let expert = expert as usize;
            range.contains(&expert).then(|| expert - range.start)
        };
        let mut counts = vec![0; range.len()];
        for (i, &expert) in experts.u32().iter().enumerate() {
            if expert != DROPPED && expert as usize >= total {
                return Err(Error::Argument {
                    op: OP,
                    name: "experts",
                    found: format!("{expert} at choice {i}"),
                    wanted: format!("below {total} or dropped"),
                });
            }
            if let Some(expert) = here(expert) {
                counts[expert] += 1;
            }
        }
        let mut next: Vec<usize> = counts
            .iter()
            .scan(0, |start, count| {
                let first = *start;
                *start += count;
                Some(first)
            })
            .collect();
        let mut choices = vec![0; counts.iter().sum()];
        let mut rows = vec![None; experts.elements()];
        for (i, &expert) in experts.u32().iter().enumerate() {
            if let Some(expert) = here(expert) {
                choices[next[expert]] = i;
                rows[i] = Some(next[expert]);
                next[expert] += 1;
            }
        }
        Ok(Order {
            choices,
            rows,
            counts,
            k,
        })
    }

    /// Rows of each expert of the range, as `grouped_matmul` takes them.
    pub fn counts(&self) -> &[usize] {
        &self.counts
    }

    /// Token of each row, ascending inside an expert.
    pub fn tokens(&self) -> impl Iterator<Item = usize> {
        self.choices.iter().map(|choice| choice / self.k)
    }

    /// Tokens, whether any of their choices are in the range or not.
    pub fn token_count(&self) -> usize {
        self.rows.len().checked_div(self.k).unwrap_or(0)
    }

    fn check(
        &self,
        op: &'static str,
        name: &'static str,
        x: &Tensor,
        rows: usize,
    ) -> Result<usize> {
        x.expect(op, name, DType::F32)?;
        match x.dims() {
            &[n, d] if n == rows && d > 0 => Ok(d),
            dims => Err(Error::Shape {
                op,
                name,
                found: dims.to_vec(),
                wanted: format!("[{rows}, d]"),
            }),
        }
    }
}

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
    dispatch!(x.device(), gather(&mut y, x, Some(weights.f32()), order));
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
        combine_backward(&mut dx, &mut dweights, (dy, x, weights), order)
    );
    Ok((dx, dweights))
}

#[cfg(test)]
mod tests {
    use super::*;
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
            vec![permute(&y, &order).unwrap(), y, dx, dweights]
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
