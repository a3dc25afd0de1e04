//! Causal attention on packed q, k, v: out_i = sum_j<=i softmax_j(q_i k_j / sqrt(e)) v_j.
//! Papers: Vaswani et al. 2017, arXiv:1706.03762; grouped queries: Ainslie et al. 2023, arXiv:2305.13245.
//!
//! We differ from flash attention: a row's scores are all held (a block of query rows times t floats), so
//! its softmax has one fixed order, 16 lane sums by key number, and weighted values are one chain over
//! ascending keys. A row's bits depend on no other row: `decode` gives the bits of `forward`.

mod cpu;

use crate::{DType, Error, Result, Tensor};

/// Heads of one rank and how a packed row lays them out: for each kv head, its heads / kv_heads query
/// heads, then its k, then its v, each `width` wide (Megatron's order).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Floats per head.
    pub width: usize,
}

impl Heads {
    /// Floats in a packed row.
    pub fn packed(&self) -> usize {
        self.kv_heads * self.group_width()
    }

    /// Query heads per kv head.
    pub(crate) fn per_group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// Floats of one kv head's group in a packed row.
    pub(crate) fn group_width(&self) -> usize {
        (self.per_group() + 2) * self.width
    }

    /// Checks that the counts make sense together.
    pub(crate) fn check(&self, op: &'static str) -> Result<()> {
        let whole = self.kv_heads > 0 && self.heads > 0 && self.heads.is_multiple_of(self.kv_heads);
        if whole && self.width > 0 {
            return Ok(());
        }
        let wanted = "heads a multiple of kv_heads, none of them 0".to_owned();
        Err(Error::Argument {
            op,
            name: "heads",
            found: format!("{self:?}"),
            wanted,
        })
    }
}

/// Returns out and the log of each row's sum of exponentials.
/// # Shapes
/// qkv: [b*t, packed] -> out: [b*t, heads*width] in head order, lse: [b, heads, t].
/// # Errors
/// `Shape`, `DType` or `Argument` if they do not fit; `Memory` for scratch.
pub fn forward(qkv: &Tensor, heads: &Heads, b: usize, t: usize) -> Result<(Tensor, Tensor)> {
    const OP: &str = "attention::forward";
    check_packed(OP, qkv, heads, b, t)?;
    let mut out = Tensor::empty(
        &[b * t, heads.heads * heads.width],
        DType::F32,
        qkv.device(),
    )?;
    let mut lse = Tensor::empty(&[b, heads.heads, t], DType::F32, qkv.device())?;
    dispatch!(qkv.device(), forward(&mut out, &mut lse, qkv, heads, t))?;
    Ok((out, lse))
}

/// Returns dqkv, packed as qkv. Gradients of k and v add over a group's query heads in head order.
/// # Shapes
/// dout, out: [b*t, heads*width], qkv: [b*t, packed], lse: [b, heads, t].
/// # Errors
/// `Shape`, `DType` or `Argument` if they do not fit; `Memory` for scratch.
pub fn backward(
    dout: &Tensor,
    qkv: &Tensor,
    out: &Tensor,
    lse: &Tensor,
    heads: &Heads,
    b: usize,
    t: usize,
) -> Result<Tensor> {
    const OP: &str = "attention::backward";
    check_packed(OP, qkv, heads, b, t)?;
    for (name, x) in [("dout", dout), ("out", out)] {
        x.expect(OP, name, DType::F32)?;
        if x.rows_cols() != (b * t, heads.heads * heads.width) {
            let wanted = format!("[{}, {}]", b * t, heads.heads * heads.width);
            return Err(Error::Shape {
                op: OP,
                name,
                found: x.dims().to_vec(),
                wanted,
            });
        }
    }
    lse.expect_f32(OP, "lse", &[b, heads.heads, t])?;
    let mut dqkv = Tensor::empty(qkv.dims(), DType::F32, qkv.device())?;
    dispatch!(
        qkv.device(),
        backward(&mut dqkv, (dout, out), (qkv, lse), heads, t)
    )?;
    Ok(dqkv)
}

/// Appends one row per sequence to the caches at `position` and returns its attention over all keys up
/// to it. Rotary positions, if any, are applied before.
/// # Shapes
/// q_packed: [b, packed], k_cache and v_cache: [b, kv_heads, max_t, width] -> [b, heads*width].
/// # Errors
/// `Shape`, `DType` or `Argument` if they do not fit or the cache is full; `Memory` for scratch.
pub fn decode(
    q_packed: &Tensor,
    k_cache: &mut Tensor,
    v_cache: &mut Tensor,
    position: usize,
    heads: &Heads,
) -> Result<Tensor> {
    const OP: &str = "attention::decode";
    heads.check(OP)?;
    let (b, _) = q_packed.expect_rows(OP, "q_packed")?;
    check_packed(OP, q_packed, heads, b, 1)?;
    k_cache.expect(OP, "k_cache", DType::F32)?;
    let wanted = |max_t| [b, heads.kv_heads, max_t, heads.width];
    match *k_cache.dims() {
        [_, _, max_t, _] if k_cache.dims() == wanted(max_t) => {
            v_cache.expect_f32(OP, "v_cache", k_cache.dims())?;
            if position >= max_t {
                let (found, wanted) = (position.to_string(), format!("below max_t {max_t}"));
                return Err(Error::Argument {
                    op: OP,
                    name: "position",
                    found,
                    wanted,
                });
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
    let width = heads.heads * heads.width;
    let mut out = Tensor::empty(&[b, width], DType::F32, q_packed.device())?;
    dispatch!(
        q_packed.device(),
        decode(&mut out, q_packed, (k_cache, v_cache), position, heads)
    )?;
    Ok(out)
}

fn check_packed(op: &'static str, qkv: &Tensor, heads: &Heads, b: usize, t: usize) -> Result<()> {
    heads.check(op)?;
    if qkv.expect_rows(op, "qkv")? == (b * t, heads.packed()) {
        return Ok(());
    }
    let wanted = format!("[{b} * {t}, {}]", heads.packed());
    Err(Error::Shape {
        op,
        name: "qkv",
        found: qkv.dims().to_vec(),
        wanted,
    })
}
