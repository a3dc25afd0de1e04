//! Self-attention with grouped queries (Ainslie et al. 2023, arXiv:2305.13245).
//! y = concat_h softmax(q_h k^T / sqrt(e)) v . W_out; where the architecture has them, RMS norms of
//! queries and keys (`qk_norms.rs`), then rotary positions (Su et al. 2021,
//! arXiv:2104.09864) or linear biases of scores (ALiBi), and sinks: a learned score per head beside those of the keys. A row attends to those before it, in its window and its document.
//! With latents (`latent.rs`) queries, keys and values come from narrow rows, and values, narrower than keys, have zeros behind them.
//!
//! Tensor parallel: whole groups of heads per rank; one all-reduce forward (in `out`) and one backward (in `qkv`).
//! Scores are never stored: backward recomputes them from lse. With qk_norm the projection is kept as it was before
//! the norms.
//!
//! Context parallel: ring attention (`ring.rs`). A rank has the queries of its tokens; keys and values of the
//! others pass by one part after another, which works for any number of heads, and a row's softmax is that of a
//! single rank. Their gradients are summed over ranks as leaves of query rows.

use kernels::attention::{
    Alibi, Bias, Buckets, Call, Keys, Mask, Next, Passed, RunningBackward, RunningForward, Scores,
};
use kernels::rope::{Frequencies, Turn};
use kernels::{DType, Heads, Tensor, attention, reduce, rope};

use crate::config::architecture::Positions;
use crate::config::numbers;
use crate::config::plan::Plan;
use crate::model::context::Context;
use crate::model::gradients::Gradients;
use crate::model::latent::{self, Latent};
use crate::model::linear::{ColumnLinear, End, RowLinear};
use crate::model::qk_norms::{QkNorms, Squares};
use crate::model::ring::Ring;
use crate::model::slots::{Slot, Slots};

pub(crate) struct Attention {
    projection: Projection,
    out: RowLinear,
    norms: Option<QkNorms>,
    /// This rank's heads.
    pub heads: Heads,
    /// Features of a head's value, the first ones of its width; the others are zeros.
    values: usize,
    /// Angles, if positions are rotary.
    rotary: Option<Frequencies>,
    /// Keys a row attends to; 0: all up to it.
    pub window: usize,
    /// How products of queries and keys become scores on the first rank.
    scores: Scores,
    is_causal: bool,
    bias: Option<RelativeBias>,
    /// Scores of this rank's heads beside those of the keys, `[heads]`.
    sinks: Option<Slot>,
    dropout: f32,
    /// Dropout tensor number of the probabilities.
    tensor: u32,
}

/// From rows to packed queries, keys and values.
enum Projection {
    Packed(ColumnLinear),
    Latent(Box<Latent>),
}

/// Packed queries, keys and values as attention reads them, and what backward of the projection reads.
struct Projected {
    qkv: Tensor,
    /// The same before norms and rotary positions, with qk_norm.
    raw: Option<Tensor>,
    latents: Option<latent::Saved>,
}

/// The table of biases by distance, which all layers of a stack use.
struct RelativeBias {
    table: Slot,
    /// This layer's gradient of it.
    gradient: Slot,
    buckets: Buckets,
}

/// Kept from forward: `[m, d]`, `[n, packed]`, latents, and mixed values `[n, h*e]`, without zeros behind a head's, and `[b, h, t]`
/// unless recomputed.
pub(crate) struct Saved {
    x: Tensor,
    qkv: Tensor,
    latents: Option<latent::Saved>,
    core: Option<(Tensor, Tensor)>,
}

impl Saved {
    /// `[m, d]`
    pub(crate) fn input(&self) -> &Tensor {
        &self.x
    }

    /// `[m, d]`
    pub(crate) fn into_input(self) -> Tensor {
        self.x
    }

    /// The large tensors.
    pub(crate) fn large(&mut self) -> Vec<&mut Tensor> {
        let core = self.core.iter_mut().flat_map(|(mixed, lse)| [mixed, lse]);
        let latents = self.latents.iter_mut().flat_map(latent::Saved::large);
        [&mut self.x, &mut self.qkv]
            .into_iter()
            .chain(latents)
            .chain(core)
            .collect()
    }

    /// Drops the tensors that `backward` can recompute from queries, keys and values.
    pub(crate) fn without_core(self) -> Saved {
        Saved { core: None, ..self }
    }
}

impl Attention {
    /// Inputs of the linear layers in the order in which they run: `[m, d]` of those that read rows, latents of those up from them,
    /// mixed values `[n, h*e]` of the last. `None` if a pass did not keep them.
    pub(crate) fn linear_inputs(
        &self,
        saved: &Saved,
        cx: &Context<'_>,
    ) -> kernels::Result<Option<Vec<Tensor>>> {
        let Some((mixed, _)) = &saved.core else {
            return Ok(None);
        };
        let mut inputs = vec![saved.x.try_clone()?];
        if let (Projection::Latent(latent), Some(latents)) = (&self.projection, &saved.latents) {
            inputs.extend(latent.up_inputs(latents, cx)?);
        }
        inputs.push(mixed.try_clone()?);
        Ok(Some(inputs))
    }

    /// The layer of block `block`; `tensor` identifies the dropout of probabilities.
    pub(crate) fn named(
        block: usize,
        plan: &Plan,
        (tp, tensor): (usize, u32),
        slots: &Slots<'_>,
    ) -> Attention {
        let (shape, architecture) = (plan.shape(), plan.model.architecture());
        let at = plan.model.block_name(block);
        let heads = Heads {
            heads: shape.heads / tp,
            kv_heads: shape.kv_heads / tp,
            width: shape.d_head,
        };
        let angles = || plan.model.frequencies_at(block, plan.seq_length);
        let is_rotary = architecture.positions == Positions::Rotary;
        Attention {
            projection: match Latent::named(&at, plan, tp, slots) {
                Some(latent) => Projection::Latent(Box::new(latent)),
                None => {
                    let name = format!("{at}.qkv");
                    Projection::Packed(ColumnLinear::named(&name, shape.packed, slots))
                }
            },
            out: RowLinear::named(&format!("{at}.out"), shape.heads * shape.d_value, slots),
            norms: QkNorms::named(&at, plan, slots),
            heads,
            values: shape.d_value,
            rotary: is_rotary.then(|| angles().expect("the plan's angles are checked")),
            window: plan.model.window_at(block),
            scores: plan.model.scores(),
            is_causal: plan.model.is_causal(block),
            bias: (architecture.positions == Positions::Relative)
                .then(|| RelativeBias::named(block, plan, slots)),
            sinks: slots.find(&format!("{at}.sinks.weight")),
            dropout: plan.model.attention_dropout,
            tensor,
        }
    }

    /// Slots of the table of relative positions and of its gradient here.
    pub(crate) fn bias(&self) -> Option<[Slot; 2]> {
        let bias = self.bias.as_ref();
        bias.map(|bias| [bias.table, bias.gradient])
    }

    /// x: `[m, d]` -> packed queries, keys and values `[n, packed]` in f32.
    pub(crate) fn project(&self, x: &Tensor, cx: &Context<'_>) -> kernels::Result<Tensor> {
        Ok(self.projected(x, DType::F32, cx)?.qkv)
    }

    /// Like `project`, with packed rows stored as `stored`, which is f32 with norms or latents.
    fn projected(&self, x: &Tensor, stored: DType, cx: &Context<'_>) -> kernels::Result<Projected> {
        let of = |qkv| Projected {
            qkv,
            raw: None,
            latents: None,
        };
        match (&self.projection, &self.norms) {
            (Projection::Packed(projection), None) => {
                let mut qkv = match self.turn(cx) {
                    Some(turn) => projection.forward_turned(x, (stored, turn), cx)?,
                    None => projection.forward(x, stored, cx)?,
                };
                if stored == DType::F32 {
                    cx.make_operand(&mut qkv)?;
                }
                Ok(of(qkv))
            }
            (Projection::Packed(projection), Some(norms)) => {
                let raw = projection.forward(x, DType::F32, cx)?;
                let (qkv, _) = self.prepare(&raw, norms, cx)?;
                let raw = Some(raw);
                Ok(Projected { raw, ..of(qkv) })
            }
            (Projection::Latent(latent), _) => {
                let (mut qkv, latents) = latent.forward(x, cx)?;
                if let Some(turn) = self.turn(cx) {
                    rope::forward(&mut qkv, &turn)?;
                }
                cx.make_operand(&mut qkv)?;
                let latents = Some(latents);
                Ok(Projected { latents, ..of(qkv) })
            }
        }
    }

    /// Rotary embedding of queries and keys, if positions are rotary.
    fn turn<'a>(&'a self, cx: &Context<'a>) -> Option<Turn<'a>> {
        self.rotary.as_ref().map(|frequencies| Turn {
            heads: &self.heads,
            positions: cx.positions(),
            frequencies,
        })
    }

    /// Number format in which queries, keys, values and their gradients are stored.
    fn stored(&self, cx: &Context<'_>) -> DType {
        match (&self.projection, &self.norms) {
            (Projection::Packed(_), None) => cx.between_products(),
            (Projection::Packed(_), Some(_)) | (Projection::Latent(_), _) => DType::F32,
        }
    }

    /// Packed rows after norms, rotary positions and the rounding of `model/precision.rs`.
    fn prepare(
        &self,
        raw: &Tensor,
        norms: &QkNorms,
        cx: &Context<'_>,
    ) -> kernels::Result<(Tensor, Squares)> {
        let mut qkv = raw.try_clone()?;
        let squares = norms.forward(&mut qkv, &self.heads, cx)?;
        if let Some(turn) = self.turn(cx) {
            rope::forward(&mut qkv, &turn)?;
        }
        cx.make_operand(&mut qkv)?;
        Ok((qkv, squares))
    }

    /// mixed values `[n, h*e]`, with zeros behind those of a head -> `[m, d]`
    pub(crate) fn join(&self, mixed: Tensor, cx: &Context<'_>) -> kernels::Result<Tensor> {
        let mixed = latent::narrowed(mixed, self.heads.width, self.values)?;
        self.out.forward(&mixed, cx)
    }

    /// x: `[m, d]` -> `[m, d]`
    pub(crate) fn forward(&self, x: Tensor, cx: &Context<'_>) -> kernels::Result<(Tensor, Saved)> {
        let Projected { qkv, raw, latents } = self.projected(&x, self.stored(cx), cx)?;
        let (mixed, lse) = self.mix_values(&qkv, cx)?;
        let y = self.out.forward(&mixed, cx)?;
        let core = Some((mixed, lse));
        let qkv = raw.unwrap_or(qkv);
        Ok((
            y,
            Saved {
                x,
                qkv,
                latents,
                core,
            },
        ))
    }

    /// Like `mix`, without zeros behind the values of a head.
    fn mix_values(&self, qkv: &Tensor, cx: &Context<'_>) -> kernels::Result<(Tensor, Tensor)> {
        let (mixed, lse) = self.mix(qkv, cx)?;
        let mixed = latent::narrowed(mixed, self.heads.width, self.values)?;
        Ok((mixed, lse))
    }

    /// Packed rows -> mixed values `[n, h*e]` and the logsumexp.
    fn mix(&self, qkv: &Tensor, cx: &Context<'_>) -> kernels::Result<(Tensor, Tensor)> {
        let Some(ring) = Ring::of(cx, self.is_causal, self.window) else {
            return attention::forward(qkv, &self.call(qkv, None, cx));
        };
        let own = attention::take_kv(qkv, &self.heads)?;
        let call = self.call(qkv, Some((&own, cx.sequence.first)), cx);
        let mut running = RunningForward::new(qkv, &call)?;
        let visit = |start, kv: &Tensor| running.visit(qkv, &self.call(qkv, Some((kv, start)), cx));
        ring.travel(&own, visit, |_, ()| Ok(()))?;
        running.finish(&call)
    }

    /// Backward of `mix`: the gradient of packed rows.
    fn unmix(
        &self,
        passed: &Passed<'_>,
        dtable: Option<&mut Tensor>,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let qkv = passed.qkv;
        let Some(ring) = Ring::of(cx, self.is_causal, self.window) else {
            let call = self.call(qkv, None, cx);
            return Ok(attention::backward(passed, &call, cx.sums.token_leaf, dtable)?.0);
        };
        let own = attention::take_kv(qkv, &self.heads)?;
        let call = self.call(qkv, Some((&own, cx.sequence.first)), cx);
        let mut slopes = RunningBackward::new(passed, &call, cx.sums.token_leaf)?;
        let mut dkv = None;
        let visit =
            |start, kv: &Tensor| slopes.visit(passed, &self.call(qkv, Some((kv, start)), cx));
        ring.travel(&own, visit, |part, sum| {
            let sum = ring.sum_for(part, sum)?;
            dkv = dkv.take().or(sum);
            Ok(())
        })?;
        slopes.finish(passed, &call, dkv.as_ref(), dtable)
    }

    /// Arguments of the attention op: mask and dropout. kv: available keys and values and the first one's position.
    pub(crate) fn call<'a>(
        &'a self,
        qkv: &Tensor,
        kv: Option<(&'a Tensor, usize)>,
        cx: &Context<'a>,
    ) -> Call<'a> {
        let keys = kv.map_or(Keys::Own, |(kv, start)| Keys::Part {
            kv,
            time: cx.sequence.time * cx.groups.cp.size(),
            start,
            first: cx.sequence.first,
        });
        let bounds = cx
            .sequence
            .documents
            .and_then(|documents| documents.bounds.as_deref());
        Call {
            heads: &self.heads,
            b: qkv.dims()[0] / cx.sequence.time,
            t: cx.sequence.time,
            keys,
            block: cx.sequence.key_block,
            numbers: cx.attention_numbers(),
            scores: self.scores(cx),
            bias: self.bias_of(cx),
            sinks: self.sinks(cx),
            mask: Mask {
                is_causal: self.is_causal,
                window: self.window,
                bounds,
            },
            dropout: cx.drop_probabilities(self.dropout, self.tensor, &self.heads),
        }
    }

    /// The next position of every sequence, whose first visible key is `first_key`.
    pub(crate) fn next<'a>(
        &'a self,
        position: usize,
        first_key: usize,
        cx: &Context<'a>,
    ) -> Next<'a> {
        Next {
            heads: &self.heads,
            position,
            first_key,
            block: cx.sequence.key_block,
            numbers: cx.attention_numbers(),
            scores: self.scores(cx),
            bias: self.bias_of(cx),
            sinks: self.sinks(cx),
        }
    }

    /// How products of queries and keys become scores: linear biases are those of the rank's heads.
    pub(crate) fn scores(&self, cx: &Context<'_>) -> Scores {
        Scores {
            alibi: self.scores.alibi.map(|alibi| Alibi {
                first: self.heads.heads * cx.groups.tp.rank(),
                ..alibi
            }),
            ..self.scores
        }
    }

    /// The scores of the rank's heads beside those of the keys.
    pub(crate) fn sinks<'a>(&self, cx: &Context<'a>) -> Option<&'a Tensor> {
        self.sinks.map(|sinks| cx.weight(sinks))
    }

    fn bias_of<'a>(&self, cx: &Context<'a>) -> Option<Bias<'a>> {
        self.bias.as_ref().map(|bias| Bias {
            table: cx.weight(bias.table),
            buckets: bias.buckets,
        })
    }

    /// dy: `[m, d]` -> dx: `[m, d]`
    pub(crate) fn backward(
        &self,
        dy: &Tensor,
        saved: Saved,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let Saved {
            x,
            qkv,
            latents,
            core,
        } = saved;
        let dqkv = self.backward_core(dy, (qkv, core), gradients, cx)?;
        match (&self.projection, latents) {
            (Projection::Packed(projection), _) => projection.backward(&dqkv, &x, gradients, cx),
            (Projection::Latent(latent), Some(saved)) => {
                latent.backward(&dqkv, (&x, saved), gradients, cx)
            }
            (Projection::Latent(_), None) => unreachable!("latents are kept"),
        }
    }

    /// `backward` where nothing below the layer learns: gradients of its own weights.
    pub(crate) fn backward_own(
        &self,
        dy: &Tensor,
        saved: Saved,
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<()> {
        let projection = match &self.projection {
            Projection::Packed(projection) => projection,
            Projection::Latent(_) => return self.backward(dy, saved, gradients, cx).map(drop),
        };
        let Saved { x, qkv, core, .. } = saved;
        let dqkv = self.backward_core(dy, (qkv, core), gradients, cx)?;
        projection.backward_own(&dqkv, &x, gradients, cx)
    }

    /// dy: `[m, d]` -> the gradient of packed queries, keys and values: `[n, packed]`
    fn backward_core(
        &self,
        dy: &Tensor,
        (qkv, core): (Tensor, Option<(Tensor, Tensor)>),
        gradients: &mut Gradients,
        cx: &Context<'_>,
    ) -> kernels::Result<Tensor> {
        let (qkv, before) = match &self.norms {
            Some(norms) => {
                let (prepared, squares) = self.prepare(&qkv, norms, cx)?;
                (prepared, Some((norms, qkv, squares)))
            }
            None => (qkv, None),
        };
        let (mixed, lse) = match core {
            Some(core) => core,
            None => self.mix_values(&qkv, cx)?,
        };
        let end = End::Stored(cx.between_products());
        let mut dmixed = self.out.backward(dy, &mixed, end, gradients, cx)?;
        if dmixed.dtype() == DType::F32 {
            cx.make_operand(&mut dmixed)?;
        }
        let widened = |x| latent::widened(x, self.heads.width, self.values);
        let (mixed, dmixed) = (widened(mixed)?, widened(dmixed)?);
        let passed = Passed {
            dout: &dmixed,
            out: &mixed,
            lse: &lse,
            qkv: &qkv,
            turn: self.turn(cx),
        };
        if let Some(sinks) = self.sinks.filter(|sinks| gradients.has(*sinks)) {
            let rows = attention::sink_gradients(&passed, &self.call(&qkv, None, cx))?;
            let (dsinks, accumulate) = gradients.target(sinks);
            reduce::sum_rows(dsinks, &rows, cx.sums.token_leaf, accumulate)?;
        }
        let dtable = match &self.bias {
            Some(bias) => {
                let [dtable] = gradients.sums([bias.gradient])?;
                Some(dtable)
            }
            None => None,
        };
        let mut dqkv = self.unmix(&passed, dtable, cx)?;
        drop((qkv, mixed, lse, dmixed));
        if let Some((norms, raw, squares)) = before {
            norms.backward((&mut dqkv, &raw), &squares, &self.heads, gradients, cx)?;
        }
        Ok(dqkv)
    }
}

/// 4-byte words of each tensor that a block keeps of the queries, keys and values of n rows.
pub(crate) fn kept((plan, block): (&Plan, usize), n: usize, tp: usize) -> Vec<usize> {
    let count = n * plan.shape().packed / tp;
    if let Some(latents) = plan.model.latents() {
        return latent::kept(&latents, n).chain([count]).collect();
    }
    if !plan.model.architecture().qk_norm && numbers::has_bf16_between(plan, block) {
        return vec![count.div_ceil(2)];
    }
    vec![count]
}

impl RelativeBias {
    fn named(block: usize, plan: &Plan, slots: &Slots<'_>) -> RelativeBias {
        let model = &plan.model;
        let (stack, number) = if model.is_decoder_block(block) {
            ("decoder", block - model.layers)
        } else {
            ("encoder", block)
        };
        let name = format!("{stack}.relative_bias.weight");
        RelativeBias {
            table: slots.get(&name),
            gradient: slots.gradient(&name, number),
            buckets: Buckets {
                buckets: model.relative_buckets,
                max_distance: model.relative_max_distance,
                bidirectional: !model.is_causal(block),
            },
        }
    }
}
