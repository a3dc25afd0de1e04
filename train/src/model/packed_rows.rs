//! Packed rows of an encoder-decoder: encoder and decoder sequences of a sample are interleaved in TOKEN_CHUNKS
//! chunks, so that pipeline, context and sequence parallelism shard both like one sequence.
//!
//! Each chunk is an eighth of the encoder's rows, then an eighth of the decoder's, so a contiguous range of whole
//! chunks has the same share of both. Embedding and transport work on all rows; layers on one half at a time.

use kernels::rows::{self, Runs};
use kernels::{DType, Tensor};

use crate::config::plan::TOKEN_CHUNKS;
use crate::model::context::Context;

/// Rows of the two parts of a chunk.
fn runs(cx: &Context<'_>) -> [usize; 2] {
    let pair = cx.pair.expect("only an encoder-decoder interleaves rows");
    [pair.rows.encoder, pair.rows.decoder].map(|length| length / TOKEN_CHUNKS)
}

/// `[m, d]` -> the encoder's and the decoder's rows of them.
pub(crate) fn split(x: &Tensor, cx: &Context<'_>) -> kernels::Result<[Tensor; 2]> {
    let (runs, d) = (runs(cx), x.dims()[1]);
    let count = x.dims()[0] / (runs[0] + runs[1]);
    let mut encoder = Tensor::empty(&[count * runs[0], d], DType::F32, x.device())?;
    let mut decoder = Tensor::empty(&[count * runs[1], d], DType::F32, x.device())?;
    let of = |run: usize| Runs {
        count,
        run: run * d,
        from_stride: (runs[0] + runs[1]) * d,
        to_stride: run * d,
    };
    rows::copy_runs(encoder.view_mut(), x.view(), of(runs[0]))?;
    let from = x.flat(runs[0] * d..x.elements())?;
    rows::copy_runs(decoder.view_mut(), from, of(runs[1]))?;
    Ok([encoder, decoder])
}

/// The inverse of `split`.
pub(crate) fn join([encoder, decoder]: [&Tensor; 2], cx: &Context<'_>) -> kernels::Result<Tensor> {
    let (runs, d) = (runs(cx), encoder.dims()[1]);
    let all = encoder.dims()[0] + decoder.dims()[0];
    let mut x = Tensor::empty(&[all, d], DType::F32, encoder.device())?;
    let of = |run: usize| Runs {
        count: all / (runs[0] + runs[1]),
        run: run * d,
        from_stride: run * d,
        to_stride: (runs[0] + runs[1]) * d,
    };
    rows::copy_runs(x.view_mut(), encoder.view(), of(runs[0]))?;
    let to = x.flat_mut(runs[0] * d..all * d)?;
    rows::copy_runs(to, decoder.view(), of(runs[1]))?;
    Ok(x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::documents::order;
    use crate::dist::mesh::Groups;
    use crate::model::context::Weights;

    #[test]
    fn what_is_split_and_joined_is_as_before_and_in_the_order_told() {
        let plan = crate::fixtures::tiny_t5();
        let (t, groups) = (plan.sample_tokens(), Groups::single());
        let cx = Context::of(&plan, Weights::All(&[], None), &groups);
        let order: Vec<usize> = order(plan.seq_length, plan.decoder_length).collect();
        let rows: Vec<f32> = order.iter().chain(&order).map(|&at| at as f32).collect();
        let x = Tensor::from_f32(&[2 * t, 1], &rows, &kernels::Device::cpu()).unwrap();
        let [encoder, decoder] = split(&x, &cx).unwrap();
        let (te, td) = (plan.seq_length, plan.decoder_length);
        let wanted = |from: usize, to: usize| -> Vec<f32> {
            (from..to).chain(from..to).map(|at| at as f32).collect()
        };
        assert_eq!(encoder.host::<f32>().unwrap(), wanted(0, te));
        assert_eq!(decoder.host::<f32>().unwrap(), wanted(te, te + td));
        assert_eq!(
            join([&encoder, &decoder], &cx)
                .unwrap()
                .host::<f32>()
                .unwrap(),
            rows
        );
    }
}
