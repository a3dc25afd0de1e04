//! Attention on packed q, k, v: out_i = sum_j softmax_j(q_i k_j / sqrt(e)) v_j over the keys that row i attends to,
//! a contiguous range: causal, within a window, of its document, or all (`Mask`). Scores may be divided by another number and
//! capped or have linear biases (`Scores`); a sink is one more score of every softmax (`Call::sinks`). T5's variants: unscaled scores, a position bias (`Bias`), and keys of another sequence (`Keys::Other`). Papers: Vaswani et al. 2017,
//! arXiv:1706.03762; grouped queries: Ainslie et al. 2023, arXiv:2305.13245; windows: Beltagy et al. 2020,
//! arXiv:2004.05150; bias: Raffel et al. 2020, JMLR 21. Dropout applies to the probabilities after the softmax.
//!
//! Flash attention with an online softmax (Milakov & Gimelshein 2018, arXiv:1805.02867; Dao et al. 2022,
//! arXiv:2205.14135): a row starts with its sink, if there is one, visits the keys in blocks of `Call::block`, in ascending order, and carries three
//! things on: the largest score m, the sum of e^(score - m) and the values weighted with them. If a block has a
//! larger score, sum and values are first multiplied by e^(m - new m); each then continues as one chain over
//! ascending keys. Scratch is a tile of query rows times a block of keys. Backward takes the blocks in the same
//! order.
//!
//! A row's bits depend on no other row, and not on which rank has the keys: `decode` gives the bits of `forward`, a
//! part of the rows those of the whole, and keys may come in parts, one `visit` after another (ring attention, Liu
//! et al. 2023, arXiv:2310.01889). Gradients of keys and values are sums over leaves of query rows in the tree of
//! `reduce`, so that parts aligned with it add up to the whole's bits. Keys that no row of a tile attends to are
//! not visited. No result is -0.0.

#[cfg(test)]
mod alibi;
#[cfg(test)]
mod biased;
#[cfg(test)]
mod capped;
mod cpu;
#[cfg(test)]
mod cross;
pub(super) mod cuda;
#[cfg(test)]
mod masks;
#[cfg(test)]
mod on_devices;
mod pages;
#[cfg(test)]
mod parts;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod sinks;
mod state;
#[cfg(test)]
mod tensor_cores;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tiles;

use crate::descriptor::attention::check_sinks;
use crate::descriptor::heads::{check_number_rows, check_rows};
use crate::error::refuse;
use crate::{DType, Device, Error, Result, Tensor};
use state::{Running, Slopes};

pub use crate::descriptor::alibi::Alibi;
pub use crate::descriptor::attention::{Call, Dropped, Keys, Mask, Next, Passed, Scores};
pub use crate::descriptor::heads::Heads;
pub use crate::descriptor::position_bias::{Bias, Buckets};
pub use pages::{Paged, PagedRows};

/// Returns out and the log of each row's sum of exponentials (0 where a row sees neither a key nor a sink). With
/// `Keys::Part` they are the bits of those rows of the whole.
/// # Shapes
/// qkv: `[b*t, packed]`, f32 or, if the call's numbers are, bf16 -> out: `[b*t, heads*width]` in head order, lse:
/// `[b, heads, t]`. With
/// `Keys::Other` qkv is `[b*t, heads*width]`, queries alone.
/// # Errors
/// `Shape`, `DType` or `Argument` if they do not fit; `Memory` for scratch.
pub fn forward(qkv: &Tensor, call: &Call<'_>) -> Result<(Tensor, Tensor)> {
    call.check("attention::forward", qkv)?;
    let (mut out, mut lse) = outputs(call, qkv.device())?;
    try_dispatch!(qkv.device(), forward_whole(&mut out, &mut lse, qkv, call));
    Ok((out, lse))
}

/// Output tensors of forward: `[b*t, heads*width]` and `[b, heads, t]`.
fn outputs(call: &Call<'_>, device: &Device) -> Result<(Tensor, Tensor)> {
    let heads = call.heads;
    let dims = [call.b * call.t, heads.heads * heads.width];
    let out = Tensor::empty(&dims, DType::F32, device)?;
    let lse = Tensor::empty(&[call.b, heads.heads, call.t], DType::F32, device)?;
    Ok((out, lse))
}

/// Online-softmax state of query rows over keys that come in parts, in ascending order: the bits of `forward` with
/// all of them, if every part but the last ends a block.
pub struct RunningForward(Running);

impl RunningForward {
    /// The state before the first part; b*t*heads*(width + 2) floats, t rounded up to 32.
    /// # Errors
    /// As `forward`.
    pub fn new(qkv: &Tensor, call: &Call<'_>) -> Result<RunningForward> {
        call.check("attention::forward", qkv)?;
        let mut running = Running::new(call, qkv.device())?;
        dispatch!(qkv.device(), begin(&mut running, call));
        Ok(RunningForward(running))
    }

    /// Runs the rows over the call's keys. # Errors As `forward`.
    pub fn visit(&mut self, qkv: &Tensor, call: &Call<'_>) -> Result<()> {
        call.check("attention::forward", qkv)?;
        try_dispatch!(qkv.device(), forward(&mut self.0, qkv, call));
        Ok(())
    }

    /// Returns out and lse, as `forward`.
    /// # Errors
    /// `Memory` if they do not fit.
    pub fn finish(self, call: &Call<'_>) -> Result<(Tensor, Tensor)> {
        let device = self.0.device().clone();
        let (mut out, mut lse) = outputs(call, &device)?;
        dispatch!(device, forward_end(self.0, &mut out, &mut lse, call));
        Ok((out, lse))
    }
}

/// Returns dqkv, packed and stored as qkv. Gradients of k and v are sums over leaves of `leaf` query rows (0: one
/// leaf) in the tree of `reduce`; a leaf is one chain over a group's query heads and ascending rows.
///
/// With keys apart (`Part`, `Other`) the second tensor is their gradient from these query rows,
/// `[b * held, kv_width]`; keys and values in a part's dqkv are 0. Parts of whole leaves add up, in the
/// same tree, to the bits of the whole.
///
/// A call with a bias adds the gradient of its table to dtable, `[heads, buckets]`: leaves as above, merged
/// in the same tree, then sequences, then once with the old value.
/// # Errors
/// `Shape`, `DType` or `Argument` if they do not fit, or if one of bias and dtable comes without the
/// other; `Memory` for scratch.
pub fn backward(
    passed: &Passed<'_>,
    call: &Call<'_>,
    leaf: usize,
    dtable: Option<&mut Tensor>,
) -> Result<(Tensor, Option<Tensor>)> {
    check_table(call, dtable.as_deref())?;
    if matches!(call.keys, Keys::Own) {
        check_passed(OP_BACKWARD, passed, call)?;
        let (qkv, device) = (passed.qkv, passed.qkv.device());
        let mut dqkv = Tensor::empty(qkv.dims(), qkv.dtype(), device)?;
        let outs = (&mut dqkv, dtable);
        try_dispatch!(device, backward_whole(outs, passed, call, leaf));
        return Ok((dqkv, None));
    }
    let mut slopes = RunningBackward::new(passed, call, leaf)?;
    let dkv = slopes.visit(passed, call)?;
    let dqkv = slopes.finish(passed, call, None, dtable)?;
    Ok((dqkv, Some(dkv_rows(&dkv, call.heads)?)))
}

/// Gradients of query rows over keys that come in parts, as in `RunningForward`.
pub struct RunningBackward(Slopes);

impl RunningBackward {
    /// The state before the first part; b*t*heads*width floats, leaves of t rounded up to 32.
    /// # Errors
    /// As `backward`.
    pub fn new(passed: &Passed<'_>, call: &Call<'_>, leaf: usize) -> Result<RunningBackward> {
        check_passed(OP_BACKWARD, passed, call)?;
        let device = passed.qkv.device();
        Ok(RunningBackward(Slopes::new(call, leaf, device)?))
    }

    /// Adds the call's keys' contribution to the queries' gradients; returns the keys' and values' own gradients
    /// from these query rows, `[b, kv_heads, held, 2*width]`.
    /// # Errors
    /// As `backward`.
    pub fn visit(&mut self, passed: &Passed<'_>, call: &Call<'_>) -> Result<Tensor> {
        check_passed(OP_BACKWARD, passed, call)?;
        let device = passed.qkv.device();
        let heads = call.heads;
        let dims = [call.b, heads.kv_heads, call.held(), 2 * heads.width];
        let mut dkv = Tensor::empty(&dims, DType::F32, device)?;
        try_dispatch!(device, backward((&mut self.0, &mut dkv), passed, call));
        Ok(dkv)
    }

    /// Returns dqkv as `backward` does. Its keys and values are `dkv`, `[b, kv_heads, t, 2*width]`, or 0.
    /// # Errors
    /// As `backward`.
    pub fn finish(
        self,
        passed: &Passed<'_>,
        call: &Call<'_>,
        dkv: Option<&Tensor>,
        dtable: Option<&mut Tensor>,
    ) -> Result<Tensor> {
        check_table(call, dtable.as_deref())?;
        let (device, heads) = (passed.qkv.device(), call.heads);
        if let Some(dkv) = dkv {
            let dims = [call.b, heads.kv_heads, call.t, 2 * heads.width];
            dkv.expect_f32(OP_BACKWARD, "dkv", &dims)?;
        }
        let mut dqkv = Tensor::empty(passed.qkv.dims(), passed.qkv.dtype(), device)?;
        let outs = (&mut dqkv, dtable);
        try_dispatch!(device, backward_end(self.0, outs, dkv, (passed, call)));
        Ok(dqkv)
    }
}

/// Returns each row's part of the gradient of the call's sinks, -e^(sink - lse) (dout . out), whose sum over all rows it
/// is: a sink's value is 0, so its score has no other influence than on the row's sum of exponentials.
/// # Shapes
/// `[b*t, heads]`
/// # Errors
/// `Shape`, `DType` or `Argument` if they do not fit, or if the call has no sinks; `Memory`.
pub fn sink_gradients(passed: &Passed<'_>, call: &Call<'_>) -> Result<Tensor> {
    const OP: &str = "attention::sink_gradients";
    check_passed(OP, passed, call)?;
    let Some(sinks) = call.sinks else {
        let wanted = "one score per head".to_owned();
        return refuse(OP, "sinks", "none".to_owned(), wanted);
    };
    let (dims, device) = ([call.b * call.t, call.heads.heads], passed.qkv.device());
    let mut rows = Tensor::empty(&dims, DType::F32, device)?;
    dispatch!(device, sink_gradients(&mut rows, sinks, passed, call));
    Ok(rows)
}

/// Returns gradients of keys and values, `[b, kv_heads, t, 2*width]`, as rows `[b * t, kv_width]`.
/// # Errors
/// `Shape` or `DType` if they do not fit.
pub fn dkv_rows(dkv: &Tensor, heads: &Heads) -> Result<Tensor> {
    const OP: &str = "attention::dkv_rows";
    let rows = dkv.elements() / heads.kv_width();
    let t = match *dkv.dims() {
        [_, kv_heads, t, width] if (kv_heads, width) == (heads.kv_heads, 2 * heads.width) => t,
        _ => {
            return Err(Error::Shape {
                op: OP,
                name: "dkv",
                found: dkv.dims().to_vec(),
                wanted: format!("[b, {}, t, {}]", heads.kv_heads, 2 * heads.width),
            });
        }
    };
    let mut out = Tensor::empty(&[rows, heads.kv_width()], DType::F32, dkv.device())?;
    dispatch!(dkv.device(), settle_rows(&mut out, dkv, t, heads.width));
    Ok(out)
}

const OP_BACKWARD: &str = "attention::backward";

/// A bias and its table's gradient come together.
fn check_table(call: &Call<'_>, dtable: Option<&Tensor>) -> Result<()> {
    match (&call.bias, dtable) {
        (None, None) => Ok(()),
        (Some(bias), Some(dtable)) => bias.check(OP_BACKWARD, ("dtable", dtable), call.heads.heads),
        (bias, _) => {
            let told = |is_there| if is_there { "given" } else { "none" };
            let wanted = format!("{}, as the call's bias", told(bias.is_some()));
            refuse(
                OP_BACKWARD,
                "dtable",
                told(bias.is_none()).to_owned(),
                wanted,
            )
        }
    }
}

/// Returns the keys and values of packed rows, f32 or bf16, as f32: `[n, packed]` -> `[n, kv_width]`.
/// # Errors
/// `Shape`, `DType` or `Argument` if they do not fit.
pub fn take_kv(qkv: &Tensor, heads: &Heads) -> Result<Tensor> {
    const OP: &str = "attention::take_kv";
    heads.check(OP)?;
    let (n, _) = qkv.expect_number_rows(OP, "qkv")?;
    check_number_rows(OP, ("qkv", qkv), heads, [n, heads.packed()])?;
    let mut kv = Tensor::empty(&[n, heads.kv_width()], DType::F32, qkv.device())?;
    dispatch!(qkv.device(), take_kv(&mut kv, qkv, heads));
    Ok(kv)
}

/// Replaces the keys and values of packed rows by `kv`, as `take_kv` returns them.
/// # Errors
/// As `take_kv`.
pub fn put_kv(qkv: &mut Tensor, kv: &Tensor, heads: &Heads) -> Result<()> {
    const OP: &str = "attention::put_kv";
    heads.check(OP)?;
    let (n, _) = qkv.expect_rows(OP, "qkv")?;
    check_rows(OP, ("qkv", qkv), heads, [n, heads.packed()])?;
    kv.expect_f32(OP, "kv", &[n, heads.kv_width()])?;
    let device = qkv.device().clone();
    dispatch!(device, put_kv(qkv, kv, heads));
    Ok(())
}

fn check_passed(op: &'static str, passed: &Passed<'_>, call: &Call<'_>) -> Result<()> {
    call.check(op, passed.qkv)?;
    let heads = call.heads;
    let dims = [call.b * call.t, heads.heads * heads.width];
    call.check_factor(op, ("dout", passed.dout), dims[1])?;
    check_rows(op, ("out", passed.out), heads, dims)?;
    if let Some(turn) = &passed.turn {
        turn.check(op, "qkv", passed.qkv)?;
    }
    passed
        .lse
        .expect_f32(op, "lse", &[call.b, heads.heads, call.t])
}

/// Appends one row per sequence to the caches at `next.position` and returns its attention over the keys
/// from `next.first_key` up to it. Rotary positions, if any, are applied before.
/// # Shapes
/// q_packed: `[b, packed]`, k_cache and v_cache: `[b, kv_heads, max_t, width]` -> `[b, heads*width]`.
/// # Errors
/// `Shape`, `DType` or `Argument` if they do not fit or the cache is full; `Memory` for scratch.
pub fn decode(
    q_packed: &Tensor,
    k_cache: &mut Tensor,
    v_cache: &mut Tensor,
    next: &Next<'_>,
) -> Result<Tensor> {
    const OP: &str = "attention::decode";
    let heads = next.heads;
    next.numbers.expect_on(OP, q_packed.device())?;
    heads.check(OP)?;
    let (b, _) = q_packed.expect_rows(OP, "q_packed")?;
    check_rows(OP, ("q_packed", q_packed), heads, [b, heads.packed()])?;
    k_cache.expect(OP, "k_cache", DType::F32)?;
    let wanted = |max_t| [b, heads.kv_heads, max_t, heads.width];
    match *k_cache.dims() {
        [_, _, max_t, _] if k_cache.dims() == wanted(max_t) => {
            v_cache.expect_f32(OP, "v_cache", k_cache.dims())?;
            for (name, found, limit) in [
                ("position", next.position, max_t),
                ("first_key", next.first_key, next.position + 1),
            ] {
                if found >= limit {
                    return refuse(OP, name, found.to_string(), format!("below {limit}"));
                }
            }
        }
        _ => {
            let found = k_cache.dims().to_vec();
            let wanted = format!("[{b}, {}, max_t, {}]", heads.kv_heads, heads.width);
            return Err(Error::Shape {
                op: OP,
                name: "k_cache",
                found,
                wanted,
            });
        }
    }
    next.scores.check(OP, next.bias.is_some())?;
    if let Some(alibi) = next.scores.alibi {
        alibi.check(OP, heads.heads, next.position.saturating_add(1))?;
    }
    if let Some(bias) = &next.bias {
        bias.check(OP, ("table", bias.table), heads.heads)?;
    }
    check_sinks(OP, next.sinks, heads)?;
    let width = heads.heads * heads.width;
    let mut out = Tensor::empty(&[b, width], DType::F32, q_packed.device())?;
    try_dispatch!(
        q_packed.device(),
        decode(&mut out, q_packed, k_cache, v_cache, next)
    );
    Ok(out)
}

const OP_PAGED: &str = "attention::forward_paged";

/// Puts the keys and values of packed rows of several sequences in their pages of the cache, then returns the rows'
/// attention. Rotary positions, if any, are applied before.
/// # Shapes
/// qkv: `[n, packed]`, cache: `[pages * page, kv_width]` (rows as `take_kv` returns them) -> `[n, heads*width]`.
/// # Errors
/// `Shape`, `DType` or `Argument` if they do not fit; `Memory` for scratch.
pub fn forward_paged(qkv: &Tensor, cache: &mut Tensor, call: &Paged<'_>) -> Result<Tensor> {
    call.check(qkv, cache)?;
    let dims = [qkv.dims()[0], call.heads.heads * call.heads.width];
    let mut out = Tensor::empty(&dims, DType::F32, qkv.device())?;
    try_dispatch!(qkv.device(), forward_paged(&mut out, cache, qkv, call));
    Ok(out)
}
