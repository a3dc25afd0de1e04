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
/// qkv: `[b*t, packed]` -> out: `[b*t, heads*width]` in head order, lse: `[b, heads, t]`.
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
/// dout, out: `[b*t, heads*width]`, qkv: `[b*t, packed]`, lse: `[b, heads, t]`.
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
/// q_packed: `[b, packed]`, k_cache and v_cache: `[b, kv_heads, max_t, width]` -> `[b, heads*width]`.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_same_bits, bits, differences, error, random, wide};
    use crate::{Device, tolerance};

    const HEADS: Heads = Heads {
        heads: 4,
        kv_heads: 2,
        width: 6,
    };

    /// Triple loop in f64; `keys(i)` is how many keys row i sees.
    fn reference(qkv: &[f64], h: &Heads, t: usize, keys: impl Fn(usize) -> usize) -> Vec<f64> {
        let (packed, e, per) = (h.packed(), h.width, h.heads / h.kv_heads);
        let b = qkv.len() / packed / t;
        let mut out = vec![0.0; b * t * h.heads * e];
        for s in 0..b {
            for head in 0..h.heads {
                let group = head / per * (per + 2) * e;
                let slot = |row: usize, slot: usize| {
                    &qkv[(s * t + row) * packed + group + slot * e..][..e]
                };
                for i in 0..t {
                    let q = slot(i, head % per);
                    let score = |j: usize| {
                        let dot: f64 = q.iter().zip(slot(j, per)).map(|(a, b)| a * b).sum();
                        dot / (e as f64).sqrt()
                    };
                    let p: Vec<f64> = (0..keys(i)).map(|j| score(j).exp()).collect();
                    let sum: f64 = p.iter().sum();
                    for c in 0..e {
                        let value: f64 = p
                            .iter()
                            .enumerate()
                            .map(|(j, p)| p * slot(j, per + 1)[c])
                            .sum();
                        out[((s * t + i) * h.heads + head) * e + c] = value / sum;
                    }
                }
            }
        }
        out
    }

    #[test]
    fn forward_matches_an_f64_loop_and_is_causal() {
        // 200 rows are three blocks of query rows.
        for (b, t) in [(1, 1), (2, 9), (1, 200)] {
            let qkv = random(&[b * t, HEADS.packed()], 1, &Device::cpu()).unwrap();
            let (out, _) = forward(&qkv, &HEADS, b, t).unwrap();
            let qkv = wide(qkv.f32());
            let bound = tolerance::sum(t) + tolerance::elementwise(8);
            assert!(error(out.f32(), &reference(&qkv, &HEADS, t, |i| i + 1)) < bound);
            if t > 1 {
                assert!(error(out.f32(), &reference(&qkv, &HEADS, t, |_| t)) > bound);
            }
        }
    }

    #[test]
    fn backward_matches_finite_differences() {
        let (b, t) = (2, 7);
        let qkv = random(&[b * t, HEADS.packed()], 1, &Device::cpu()).unwrap();
        let dout = random(&[b * t, 24], 2, &Device::cpu()).unwrap();
        let (out, lse) = forward(&qkv, &HEADS, b, t).unwrap();
        let dqkv = backward(&dout, &qkv, &out, &lse, &HEADS, b, t).unwrap();
        let dout = wide(dout.f32());
        let want = differences(&wide(qkv.f32()), 1e-5, |qkv| {
            let out = reference(qkv, &HEADS, t, |i| i + 1);
            out.iter().zip(&dout).map(|(o, d)| o * d).sum::<f64>()
        });
        let bound = tolerance::sum(t * 6) + tolerance::central_difference(1e-5);
        assert!(error(dqkv.f32(), &want) < bound);
        let mut swapped = want.clone();
        for row in swapped.chunks_mut(24) {
            row.rotate_left(6);
        }
        assert!(
            error(dqkv.f32(), &swapped) > bound,
            "heads must not be swapped"
        );
    }

    /// The closed-form backward in f64 over several blocks of query rows.
    #[test]
    fn backward_over_many_blocks_matches_an_f64_loop() {
        let h = Heads {
            heads: 1,
            kv_heads: 1,
            width: 8,
        };
        let t = 250;
        let qkv = random(&[t, 24], 1, &Device::cpu()).unwrap();
        let dout = random(&[t, 8], 2, &Device::cpu()).unwrap();
        let (out, lse) = forward(&qkv, &h, 1, t).unwrap();
        let dqkv = backward(&dout, &qkv, &out, &lse, &h, 1, t).unwrap();
        let (x, dy) = (wide(qkv.f32()), wide(dout.f32()));
        let (scale, mut want) = (1.0 / 8.0_f64.sqrt(), vec![0.0; t * 24]);
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let slot = |r: usize, s: usize| &x[r * 24 + s * 8..][..8];
        for i in 0..t {
            let p: Vec<f64> = (0..=i)
                .map(|j| (dot(slot(i, 0), slot(j, 1)) * scale).exp())
                .collect();
            let sum: f64 = p.iter().sum();
            let dy = &dy[i * 8..][..8];
            let dp: Vec<f64> = (0..=i).map(|j| dot(dy, slot(j, 2))).collect();
            let d = dot(&p, &dp) / sum;
            for j in 0..=i {
                let p = p[j] / sum;
                let ds = p * (dp[j] - d) * scale;
                for c in 0..8 {
                    want[i * 24 + c] += ds * x[j * 24 + 8 + c];
                    want[j * 24 + 8 + c] += ds * x[i * 24 + c];
                    want[j * 24 + 16 + c] += p * dy[c];
                }
            }
        }
        assert!(error(dqkv.f32(), &want) < tolerance::sum(t) + tolerance::elementwise(8));
    }

    #[test]
    fn decode_has_the_bits_of_forward() {
        let (b, t, max_t) = (2, 101, 120);
        let device = Device::cpu();
        let qkv = random(&[b * t, HEADS.packed()], 1, &device).unwrap();
        let (out, _) = forward(&qkv, &HEADS, b, t).unwrap();
        let mut k = Tensor::zeros(&[b, 2, max_t, 6], DType::F32, &device).unwrap();
        let mut v = Tensor::zeros(&[b, 2, max_t, 6], DType::F32, &device).unwrap();
        let packed = HEADS.packed();
        for position in 0..t {
            let row = |s: usize| qkv.f32()[(s * t + position) * packed..][..packed].to_vec();
            let rows: Vec<f32> = (0..b).flat_map(row).collect();
            let rows = Tensor::from_f32(&[b, packed], &rows, &device).unwrap();
            let one = decode(&rows, &mut k, &mut v, position, &HEADS).unwrap();
            for s in 0..b {
                let want = &out.f32()[(s * t + position) * 24..][..24];
                assert_eq!(bits(&one.f32()[s * 24..][..24]), bits(want), "{position}");
            }
        }
        let rows = Tensor::zeros(&[b, packed], DType::F32, &device).unwrap();
        let full = decode(&rows, &mut k, &mut v, max_t, &HEADS);
        assert!(matches!(
            full,
            Err(Error::Argument {
                name: "position",
                ..
            })
        ));
    }

    #[test]
    fn a_rank_with_half_the_heads_has_their_bits() {
        let (b, t) = (2, 100);
        let device = Device::cpu();
        let qkv = random(&[b * t, HEADS.packed()], 1, &device).unwrap();
        let (out, _) = forward(&qkv, &HEADS, b, t).unwrap();
        let half = Heads {
            heads: 2,
            kv_heads: 1,
            width: 6,
        };
        let rows: Vec<f32> = qkv
            .f32()
            .chunks(48)
            .flat_map(|r| r[24..].to_vec())
            .collect();
        let rows = Tensor::from_f32(&[b * t, 24], &rows, &device).unwrap();
        let (part, _) = forward(&rows, &half, b, t).unwrap();
        let want: Vec<f32> = out
            .f32()
            .chunks(24)
            .flat_map(|r| r[12..].to_vec())
            .collect();
        assert_eq!(bits(part.f32()), bits(&want));
    }

    #[test]
    fn bits_are_the_same_on_every_instruction_set() {
        assert_same_bits(|device| {
            let qkv = random(&[130, HEADS.packed()], 1, device).unwrap();
            let dout = random(&[130, 24], 2, device).unwrap();
            let (out, lse) = forward(&qkv, &HEADS, 1, 130).unwrap();
            let dqkv = backward(&dout, &qkv, &out, &lse, &HEADS, 1, 130).unwrap();
            vec![out, lse, dqkv]
        });
    }

    #[test]
    fn heads_that_do_not_divide_are_an_error() {
        let heads = Heads {
            heads: 3,
            kv_heads: 2,
            width: 4,
        };
        let qkv = random(&[4, 16], 1, &Device::cpu()).unwrap();
        assert!(matches!(
            forward(&qkv, &heads, 1, 4),
            Err(Error::Argument { name: "heads", .. })
        ));
    }
}
