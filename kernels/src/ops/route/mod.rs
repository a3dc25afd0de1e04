//! Top-k router of a mixture of experts: choices and weights from logits, losses, capacity, gradients.
//! Papers: Shazeer et al. 2017, arXiv:1701.06538; Fedus et al. 2021, arXiv:2101.03961 (load balance);
//! Zoph et al. 2022, arXiv:2202.08906 (z-loss); Wang et al. 2024, arXiv:2408.15664 (bias for the choice only).
//!
//! A bias changes choices only: weights and the load balance use scores without it (DeepSeek-V3, arXiv:2412.19437,
//! eq. 18; megatron-core's `compute_routing_scores_for_aux_loss`), the balance then of choices that no groups limit.
//!
//! A row is computed in f64 and rounded once, so it is the same alone or in a batch. Ties go to the lower expert. A
//! batch's sums (`Statistics`) are integers: counts of choices, probabilities in units of 2^-32, squared log-sums
//! in units of 2^-24, so no order of tokens or ranks changes them. We differ from Megatron there: it sums floats.

mod capacity;
mod cpu;
pub(super) mod cuda;
mod router;
mod statistics;

use crate::{DType, Error, Result, Tensor};
pub use capacity::{Drop, capacity};
pub use router::{Groups, Router, Score};
pub use statistics::{Coefficients, Losses, Statistics, Unread, Words};

/// Most groups of experts: the kernel keeps those of a token as bits of a word.
pub const MOST_GROUPS: usize = 64;

/// Choices of a batch of tokens.
pub struct Routing {
    /// Chosen experts in falling order of score: `[n, k]` u32.
    pub experts: Tensor,
    /// Their weights: `[n, k]`.
    pub weights: Tensor,
    /// Statistics of these tokens for the losses.
    pub statistics: Statistics,
}

/// Returns choices, weights and statistics. Waits for the device.
/// # Shapes
/// As `start`.
/// # Errors
/// As `start`; `Driver` if the device fails.
pub fn forward(logits: &Tensor, bias: Option<&Tensor>, router: &Router) -> Result<Routing> {
    let started = start(logits, bias, router)?;
    let words = match started.unread.tensor() {
        Some(tensor) => tensor.download()?,
        None => Vec::new(),
    };
    let statistics = started.unread.read(&words)?;
    let Started {
        experts, weights, ..
    } = started;
    Ok(Routing {
        experts,
        weights,
        statistics,
    })
}

/// Choices of a batch of tokens whose statistics are not on the host yet.
pub struct Started {
    /// As in `Routing`.
    pub experts: Tensor,
    /// As in `Routing`.
    pub weights: Tensor,
    /// Statistics of these tokens.
    pub unread: Unread,
}

/// Returns choices and weights, and the statistics as words on the device, so that they can be downloaded with others.
/// # Shapes
/// logits: `[n, experts]`, bias: `[experts]` if there is one, used by `Sigmoid` alone.
/// # Errors
/// `Shape`, `DType` or `Argument` if they do not fit.
pub fn start(logits: &Tensor, bias: Option<&Tensor>, router: &Router) -> Result<Started> {
    const OP: &str = "route::forward";
    let (n, experts) = check(OP, logits, router)?;
    if let Some(bias) = bias {
        bias.expect_f32(OP, "bias", &[experts])?;
        if router.score != Score::Sigmoid {
            return Err(Error::Argument {
                op: OP,
                name: "bias",
                found: format!("given with {:?}", router.score),
                wanted: "Sigmoid".to_owned(),
            });
        }
    }
    let mut choices = Tensor::empty(&[n, router.k], DType::U32, logits.device())?;
    let mut weights = Tensor::empty(&[n, router.k], DType::F32, logits.device())?;
    let unread = dispatch!(
        logits.device(),
        forward(&mut choices, &mut weights, logits, bias, router)
    );
    Ok(Started {
        experts: choices,
        weights,
        unread,
    })
}

/// Returns the gradient of the logits: of the weights, and of the losses times their coefficients.
/// # Shapes
/// dweights: `[n, k]`, experts: as `forward` gave them before any drop; a dropped choice has a
/// dweight of 0.
/// # Errors
/// `Shape`, `DType` or `Argument` if they do not fit; that experts exist is seen on the host alone.
pub fn backward(
    dweights: &Tensor,
    logits: &Tensor,
    experts: &Tensor,
    router: &Router,
    losses: Losses<'_>,
) -> Result<Tensor> {
    const OP: &str = "route::backward";
    let (n, count) = check(OP, logits, router)?;
    dweights.expect_f32(OP, "dweights", &[n, router.k])?;
    experts.expect_ids(OP, "experts", n * router.k)?;
    // the kernel passes over others, so that the host need not wait for the choices
    if experts.device().is_host()
        && let Some(expert) = experts.u32().iter().find(|e| **e as usize >= count)
    {
        return Err(Error::Argument {
            op: OP,
            name: "experts",
            found: expert.to_string(),
            wanted: format!("below {count}"),
        });
    }
    let [tokens, known, k] = losses.statistics.sizes();
    if known != count || k != router.k || tokens == 0 {
        return Err(Error::Argument {
            op: OP,
            name: "statistics",
            found: format!("{tokens} tokens, {known} experts, k = {k}"),
            wanted: format!("tokens, {count} experts, k = {}", router.k),
        });
    }
    let mut dlogits = Tensor::empty(&[n, count], DType::F32, logits.device())?;
    try_dispatch!(
        logits.device(),
        backward(&mut dlogits, dweights, logits, experts, router, &losses)
    );
    Ok(dlogits)
}

/// Marks the choices over `capacity` of each expert as dropped and returns how many of each: `[total]` u32 on the device of
/// the choices. Does not wait for a device, where a NaN weight is larger than numbers; on the host it is an error.
/// # Shapes
/// experts: `[n, k]` u32, below `total` or dropped already, weights: `[n, k]`.
/// # Errors
/// `Shape`, `DType` or `Argument` if they do not fit; `Memory`.
pub fn drop_over(
    experts: &mut Tensor,
    weights: &Tensor,
    total: usize,
    capacity: usize,
    policy: Drop,
) -> Result<Tensor> {
    const OP: &str = "route::drop_over";
    experts.expect_ids(OP, "experts", experts.elements())?;
    weights.expect_f32(OP, "weights", experts.dims())?;
    let mut dropped = Tensor::zeros(&[total], DType::U32, experts.device())?;
    try_dispatch!(
        weights.device(),
        drop_over(&mut dropped, experts, weights, capacity, policy)
    );
    Ok(dropped)
}

fn check(op: &'static str, logits: &Tensor, router: &Router) -> Result<(usize, usize)> {
    let (n, experts) = logits.expect_rows(op, "logits")?;
    let argument = |name, found: String, wanted: String| {
        Err(Error::Argument {
            op,
            name,
            found,
            wanted,
        })
    };
    if router.k == 0 || router.k > experts {
        let wanted = format!("1 to {experts}");
        return argument("k", router.k.to_string(), wanted);
    }
    if let Some(groups) = router.groups {
        let Groups { count, kept } = groups;
        let is_even = (1..=MOST_GROUPS).contains(&count) && experts.is_multiple_of(count);
        let holds_k = (1..=count).contains(&kept) && kept * (experts / count) >= router.k;
        if !(is_even && holds_k) {
            let wanted = format!(
                "1 to {MOST_GROUPS} equal groups of {experts} experts, some of them with {} or more",
                router.k
            );
            return argument("groups", format!("{groups:?}"), wanted);
        }
    }
    if u32::try_from(experts).is_err() {
        return argument("experts", experts.to_string(), "below 2^32".to_owned());
    }
    if !(router.scale > 0.0 && router.scale.is_finite()) {
        let wanted = "above 0 and finite".to_owned();
        return argument("scale", router.scale.to_string(), wanted);
    }
    Ok((n, experts))
}

#[cfg(test)]
mod tests;
