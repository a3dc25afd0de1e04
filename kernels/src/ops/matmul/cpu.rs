//! Matrix product on the CPU: views for `cpu/gemm.rs`.

use super::{Numbers, Op};
use crate::cpu::gemm::{Plan, ViewMut, gemm};
use crate::cpu::pack::View;
use crate::cpu::tile::Finish;
use crate::{Result, Tensor};

pub(super) fn product(
    numbers: Numbers,
    c: &mut Tensor,
    a: (&Tensor, Op),
    b: (&Tensor, Op),
    leaf: usize,
    accumulate: bool,
) -> Result<()> {
    let device = c.device().clone();
    let finish = if accumulate {
        Finish::Add
    } else {
        Finish::Store
    };
    let plan = Plan {
        device: &device,
        numbers,
        leaf,
        finish,
        parallel: true,
    };
    let (rows, cols) = c.rows_cols();
    let c = ViewMut {
        data: c.f32_mut(),
        rows,
        cols,
        row_stride: cols,
    };
    gemm(c, view(a), view(b), plan)
}

fn view((x, op): (&Tensor, Op)) -> View<'_> {
    let (rows, cols) = x.rows_cols();
    let plain = View::new(x.f32(), rows, cols, cols);
    if op == Op::Plain {
        plain
    } else {
        plain.transposed()
    }
}
