//! Gradient of attention sinks, row by row.

use super::softmax::dot;
use crate::Tensor;
use crate::cpu::math::exp_of_score;
use crate::cpu::output::Data;
use crate::cpu::simd::vector_fn;
use crate::descriptor::attention::{Call, Passed};
use rayon::prelude::*;

/// rows: `[b*t, heads]`.
pub(in crate::ops::attention) fn sink_gradients(
    rows: &mut Tensor,
    sinks: &Tensor,
    passed: &Passed<'_>,
    call: &Call<'_>,
) {
    let (heads, width, t) = (call.heads.heads, call.heads.width, call.t);
    let isa = rows.device().isa();
    let (sinks, out, lse) = (sinks.f32(), passed.out.f32(), passed.lse.f32());
    let dout = Data::of(passed.dout);
    let all = rows.f32_mut().par_chunks_exact_mut(heads).enumerate();
    all.for_each(|(row, of)| {
        let mut lses = vec![0.0; heads];
        for (head, (x, of_head)) in of.iter_mut().zip(&mut lses).enumerate() {
            let at = (row * heads + head) * width;
            *x = dot(isa, dout.part(at, at + width), &out[at..at + width]);
            *of_head = lse[(row / t * heads + head) * t + row % t];
        }
        weigh(isa, of, sinks, &lses);
    });
}

vector_fn! {
    /// x = 0 - e^(sink - lse) x, so that no result is -0.0.
    fn weigh<L>(x: &mut [f32], sinks: &[f32], lse: &[f32]) {
        for ((x, sinks), lse) in x.chunks_mut(16).zip(sinks.chunks(16)).zip(lse.chunks(16)) {
            let p = exp_of_score(L::load_part(sinks, 0.0).sub(L::load_part(lse, 0.0)));
            L::splat(0.0).sub(p.mul(L::load_part(x, 0.0))).store_part(x);
        }
    }
}
