//! Blocks of rows, each by one task: its codes, its products, its activation.

use crate::cpu::activation::{Activation, by_kind};
use crate::cpu::int8::Panels;
use crate::cpu::simd::{Lanes, vector_fn};
use crate::descriptor::activation::Kind;
use crate::{Result, Tensor};
use rayon::prelude::*;

/// Rows of a task: its codes and results stay in the second cache.
const BLOCK: usize = 48;

pub(super) fn product(
    y: &mut Tensor,
    x: &Tensor,
    w: &Panels,
    bias: Option<&Tensor>,
    then: Option<Kind>,
) -> Result<()> {
    let isa = x.device().isa();
    let [n, k] = w.dims();
    let bias = match bias {
        Some(bias) => Some(bias.host::<f32>()?),
        None => None,
    };
    let x = x.host::<f32>()?;
    y.host_mut::<f32>()?
        .par_chunks_mut(BLOCK * n)
        .zip(x.par_chunks(BLOCK * k))
        .for_each(|(y, x)| {
            w.multiply(isa, x, bias, y);
            if let Some(kind) = then {
                activate(isa, y, kind);
            }
        });
    Ok(())
}

vector_fn! {
    fn activate<L>(x: &mut [f32], kind: Kind) {
        by_kind!(kind, C => values::<L, C>(x));
    }
}

#[inline(always)]
fn values<L: Lanes, C: Activation>(x: &mut [f32]) {
    for x in x.chunks_mut(16) {
        C::value(L::load_part(x, 0.0)).store_part(x);
    }
}
