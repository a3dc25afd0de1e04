//! Sums over the tokens of experts here: gradients of their weights, in the tree of all other sums over tokens.

use kernels::comm::tensors;
use kernels::grouped_matmul;
use kernels::matmul::{Numbers, Op};
use kernels::{DType, Tensor, reduce};

use crate::model::context::Context;
use crate::model::moe::token_dispatcher::TokenDispatcher;

/// The factors of a weight's gradient, of all experts' rows here.
#[derive(Clone, Copy)]
pub(super) struct Factors<'a> {
    /// Gradient of the outputs.
    pub dy: &'a Tensor,
    /// Inputs.
    pub x: &'a Tensor,
}

/// Adds the products of output gradients and inputs, if any token is here, to `sums`, one for each expert here. The factors
/// are of these numbers.
///
/// Where both sequences and experts are shared out, the tree joins the parts of a sequence before it joins those of
/// the ranks that sent them, so each rank's sum is reduced over context-parallel ranks here.
pub(super) fn add_sums(
    numbers: Numbers,
    (sums, op): (&mut [&mut Tensor], Op),
    factors: Option<Factors<'_>>,
    dispatcher: &TokenDispatcher,
    cx: &Context<'_>,
) -> kernels::Result<()> {
    if !cx.has_parts_of_experts() {
        return match factors {
            Some(Factors { dy, x }) => {
                let leaves = dispatcher.leaves();
                grouped_matmul::backward_weight(numbers, (sums, op), dy, x, leaves)
            }
            None => Ok(()),
        };
    }
    let ranks = cx.groups.ep.size();
    let zeros = (sums
        .iter()
        .flat_map(|sum| std::iter::repeat_n(&**sum, ranks)))
    .map(|sum| Tensor::zeros(sum.dims(), DType::F32, sum.device()));
    let mut parts = zeros.collect::<kernels::Result<Vec<Tensor>>>()?;
    if let Some(Factors { dy, x }) = factors {
        let mut parts: Vec<&mut Tensor> = parts.iter_mut().collect();
        let leaves = dispatcher.leaves_by_rank();
        grouped_matmul::backward_weight(numbers, (&mut parts, op), dy, x, &leaves)?;
    }
    for part in &mut parts {
        tensors::all_reduce_sum(cx.groups.cp, part.view_mut())?;
    }
    for (sum, parts) in sums.iter_mut().zip(parts.chunks_mut(ranks)) {
        // their number is a power of two
        let mut step = 1;
        while step < ranks {
            for pair in parts.chunks_mut(2 * step) {
                let (left, right) = pair.split_at_mut(step);
                reduce::tree_add_into(&mut left[0], &right[0])?;
            }
            step *= 2;
        }
        reduce::tree_add_into(sum, &parts[0])?;
    }
    Ok(())
}
