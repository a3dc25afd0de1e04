//! Causal attention on packed q, k, v: out_i = sum_j<=i softmax_j(q_i k_j / sqrt(e)) v_j.
//! Papers: Vaswani et al. 2017, arXiv:1706.03762; grouped queries: Ainslie et al. 2023, arXiv:2305.13245.
//!
//! We differ from flash attention: a row's scores are all held (a block of query rows times t floats), so
//! its softmax has one fixed order, 16 lane sums by key number, and weighted values are one chain over
//! ascending keys. A row's bits depend on no other row: `decode` gives the bits of `forward`, and a part
//! of the rows (context parallelism) those of the whole. Gradients of keys and values are sums over
//! leaves of query rows in the tree of `reduce`, so that parts aligned with it add up to the whole's bits.

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

    /// Floats of a row's keys and values alone: each kv head's k, then its v.
    pub fn kv_width(&self) -> usize {
        2 * self.kv_heads * self.width
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
    check_packed("attention::forward", qkv, heads, b, t)?;
    attend(qkv, None, heads, b, t)
}

/// The keys and values that a part of each sequence's query rows may see.
#[derive(Clone, Copy)]
pub struct Keys<'a> {
    /// `[b * time, kv_width]`: those of whole sequences, as `take_kv` gives them.
    pub kv: &'a Tensor,
    /// Rows of a whole sequence.
    pub time: usize,
    /// Position of the part's first row.
    pub first: usize,
}

/// As `forward` for rows first .. first + t of each sequence: the bits of those rows of the whole.
/// # Errors
/// As `forward`.
pub fn forward_part(
    qkv: &Tensor,
    keys: &Keys<'_>,
    heads: &Heads,
    b: usize,
    t: usize,
) -> Result<(Tensor, Tensor)> {
    const OP: &str = "attention::forward_part";
    check_packed(OP, qkv, heads, b, t)?;
    check_keys(OP, keys, heads, b, t)?;
    attend(qkv, Some(keys), heads, b, t)
}

fn attend(
    qkv: &Tensor,
    keys: Option<&Keys<'_>>,
    heads: &Heads,
    b: usize,
    t: usize,
) -> Result<(Tensor, Tensor)> {
    let width = heads.heads * heads.width;
    let mut out = Tensor::empty(&[b * t, width], DType::F32, qkv.device())?;
    let mut lse = Tensor::empty(&[b, heads.heads, t], DType::F32, qkv.device())?;
    dispatch!(
        qkv.device(),
        forward(&mut out, &mut lse, (qkv, keys), heads, t)
    )?;
    Ok((out, lse))
}

/// What backward needs of forward, and the gradient of its result.
#[derive(Clone, Copy)]
pub struct Passed<'a> {
    /// `[b*t, heads*width]`
    pub dout: &'a Tensor,
    /// `[b*t, heads*width]`
    pub out: &'a Tensor,
    /// `[b, heads, t]`
    pub lse: &'a Tensor,
    /// `[b*t, packed]`
    pub qkv: &'a Tensor,
}

/// Returns dqkv, packed as qkv. Gradients of k and v are sums over leaves of `leaf` query rows (0: one
/// leaf) in the tree of `reduce`; a leaf is one chain over a group's query heads and ascending rows.
/// # Errors
/// `Shape`, `DType` or `Argument` if they do not fit; `Memory` for scratch.
pub fn backward(
    passed: &Passed<'_>,
    heads: &Heads,
    b: usize,
    t: usize,
    leaf: usize,
) -> Result<Tensor> {
    check_passed("attention::backward", passed, heads, b, t)?;
    let Passed {
        dout,
        out,
        lse,
        qkv,
    } = *passed;
    let mut dqkv = Tensor::empty(qkv.dims(), DType::F32, qkv.device())?;
    dispatch!(
        qkv.device(),
        backward(
            (&mut dqkv, None),
            (dout, out, lse),
            (qkv, None),
            heads,
            (t, leaf)
        )
    )?;
    Ok(dqkv)
}

/// As `backward` for what `forward_part` saw: returns dqkv, whose keys and values are 0, and their
/// gradient from this part `[b * time, kv_width]`. Parts of whole leaves add up, in the same tree, to
/// the bits of the whole.
/// # Errors
/// As `backward`.
pub fn backward_part(
    passed: &Passed<'_>,
    keys: &Keys<'_>,
    heads: &Heads,
    b: usize,
    t: usize,
    leaf: usize,
) -> Result<(Tensor, Tensor)> {
    const OP: &str = "attention::backward_part";
    check_passed(OP, passed, heads, b, t)?;
    check_keys(OP, keys, heads, b, t)?;
    let Passed {
        dout,
        out,
        lse,
        qkv,
    } = *passed;
    let mut dqkv = Tensor::empty(qkv.dims(), DType::F32, qkv.device())?;
    let mut dkv = Tensor::empty(keys.kv.dims(), DType::F32, qkv.device())?;
    dispatch!(
        qkv.device(),
        backward(
            (&mut dqkv, Some(&mut dkv)),
            (dout, out, lse),
            (qkv, Some(keys)),
            heads,
            (t, leaf)
        )
    )?;
    Ok((dqkv, dkv))
}

/// Returns the keys and values of packed rows: `[n, packed]` -> `[n, kv_width]`.
/// # Errors
/// `Shape`, `DType` or `Argument` if they do not fit.
pub fn take_kv(qkv: &Tensor, heads: &Heads) -> Result<Tensor> {
    const OP: &str = "attention::take_kv";
    heads.check(OP)?;
    let (n, _) = qkv.expect_rows(OP, "qkv")?;
    check_packed(OP, qkv, heads, n, 1)?;
    let mut kv = Tensor::empty(&[n, heads.kv_width()], DType::F32, qkv.device())?;
    let groups = qkv.f32().chunks_exact(heads.group_width());
    for (to, from) in kv.f32_mut().chunks_exact_mut(2 * heads.width).zip(groups) {
        to.copy_from_slice(&from[heads.per_group() * heads.width..]);
    }
    Ok(kv)
}

/// Replaces the keys and values of packed rows by `kv`, as `take_kv` gives them.
/// # Errors
/// As `take_kv`.
pub fn put_kv(qkv: &mut Tensor, kv: &Tensor, heads: &Heads) -> Result<()> {
    const OP: &str = "attention::put_kv";
    heads.check(OP)?;
    let (n, _) = qkv.expect_rows(OP, "qkv")?;
    check_packed(OP, qkv, heads, n, 1)?;
    kv.expect_f32(OP, "kv", &[n, heads.kv_width()])?;
    let groups = qkv.f32_mut().chunks_exact_mut(heads.group_width());
    for (to, from) in groups.zip(kv.f32().chunks_exact(2 * heads.width)) {
        to[heads.per_group() * heads.width..].copy_from_slice(from);
    }
    Ok(())
}

fn check_passed(
    op: &'static str,
    passed: &Passed<'_>,
    heads: &Heads,
    b: usize,
    t: usize,
) -> Result<()> {
    check_packed(op, passed.qkv, heads, b, t)?;
    for (name, x) in [("dout", passed.dout), ("out", passed.out)] {
        x.expect(op, name, DType::F32)?;
        if x.rows_cols() != (b * t, heads.heads * heads.width) {
            let wanted = format!("[{}, {}]", b * t, heads.heads * heads.width);
            return Err(Error::Shape {
                op,
                name,
                found: x.dims().to_vec(),
                wanted,
            });
        }
    }
    passed.lse.expect_f32(op, "lse", &[b, heads.heads, t])
}

fn check_keys(op: &'static str, keys: &Keys<'_>, heads: &Heads, b: usize, t: usize) -> Result<()> {
    if keys.first + t > keys.time {
        let wanted = format!("at most {} - {t}, the part's rows", keys.time);
        return Err(Error::Argument {
            op,
            name: "first",
            found: keys.first.to_string(),
            wanted,
        });
    }
    keys.kv
        .expect_f32(op, "kv", &[b * keys.time, heads.kv_width()])
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

    fn backward_of(
        dout: &Tensor,
        qkv: &Tensor,
        (out, lse): (&Tensor, &Tensor),
        heads: &Heads,
        (b, t, leaf): (usize, usize, usize),
    ) -> Tensor {
        let passed = Passed {
            dout,
            out,
            lse,
            qkv,
        };
        backward(&passed, heads, b, t, leaf).unwrap()
    }

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
        let dqkv = backward_of(&dout, &qkv, (&out, &lse), &HEADS, (b, t, 0));
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
        let dqkv = backward_of(&dout, &qkv, (&out, &lse), &h, (1, t, 0));
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
        let bound = tolerance::sum(t) + tolerance::elementwise(8);
        assert!(error(dqkv.f32(), &want) < bound);
        let in_leaves = backward_of(&dout, &qkv, (&out, &lse), &h, (1, t, 30));
        assert!(error(in_leaves.f32(), &want) < bound);
        let moved = bits(in_leaves.f32()) != bits(dqkv.f32());
        assert!(moved, "leaves are another order of additions");
    }

    #[test]
    fn parts_of_the_rows_have_the_bits_of_the_whole() {
        let device = Device::cpu();
        let (b, t, leaf) = (2, 128, 16);
        let qkv = random(&[b * t, HEADS.packed()], 1, &device).unwrap();
        let dout = random(&[b * t, 24], 2, &device).unwrap();
        let (out, lse) = forward(&qkv, &HEADS, b, t).unwrap();
        let want = backward_of(&dout, &qkv, (&out, &lse), &HEADS, (b, t, leaf));
        let kv = take_kv(&qkv, &HEADS).unwrap();
        for parts in [2, 4, 8] {
            let rows = t / parts;
            // rows part * rows .. of each sequence
            let cut = |x: &Tensor, part: usize| {
                let width = x.elements() / (b * t);
                let whole = x.f32().chunks(t * width);
                let values: Vec<f32> = whole
                    .flat_map(|x| x[part * rows * width..(part + 1) * rows * width].to_vec())
                    .collect();
                Tensor::from_f32(&[b * rows, width], &values, &device).unwrap()
            };
            let mut found = Vec::new();
            for part in 0..parts {
                let keys = Keys {
                    kv: &kv,
                    time: t,
                    first: part * rows,
                };
                let qkv = cut(&qkv, part);
                let (mixed, lse) = forward_part(&qkv, &keys, &HEADS, b, rows).unwrap();
                assert_eq!(bits(mixed.f32()), bits(cut(&out, part).f32()));
                let dout = cut(&dout, part);
                let passed = Passed {
                    dout: &dout,
                    out: &mixed,
                    lse: &lse,
                    qkv: &qkv,
                };
                found.push(backward_part(&passed, &keys, &HEADS, b, rows, leaf).unwrap());
            }
            let sums: Vec<f32> = (0..b * t * HEADS.kv_width())
                .map(|i| crate::testing::tree(found.iter().map(|(_, dkv)| dkv.f32()[i])))
                .collect();
            let sums = Tensor::from_f32(&[b * t, HEADS.kv_width()], &sums, &device).unwrap();
            for (part, (dqkv, _)) in found.iter_mut().enumerate() {
                put_kv(dqkv, &cut(&sums, part), &HEADS).unwrap();
                assert_eq!(bits(dqkv.f32()), bits(cut(&want, part).f32()), "{parts}");
            }
        }
    }

    #[test]
    fn a_part_past_the_end_is_an_error() {
        let device = Device::cpu();
        let qkv = random(&[4, HEADS.packed()], 1, &device).unwrap();
        let kv = random(&[8, HEADS.kv_width()], 1, &device).unwrap();
        let keys = Keys {
            kv: &kv,
            time: 8,
            first: 5,
        };
        let found = forward_part(&qkv, &keys, &HEADS, 1, 4);
        assert!(matches!(found, Err(Error::Argument { name: "first", .. })));
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
            let dqkv = backward_of(&dout, &qkv, (&out, &lse), &HEADS, (1, 130, 20));
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
