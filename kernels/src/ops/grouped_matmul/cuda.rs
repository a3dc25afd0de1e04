//! Grouped product on CUDA: one launch for all experts, whose rows are found on the device. `grouped_matmul.cu` has the
//! trees of every device, `grouped_mma.cu` the sums of tensor cores.

use std::sync::Arc;

use super::groups::{Counts, Leaves, offsets_of};
use crate::cuda::{Address, Arg, Cuda, Grid, Source};
use crate::matmul::{Numbers, Op};
use crate::ops::matmul::cuda::{Side, kernel};
use crate::ops::matmul::mma;
use crate::{DType, Device, Result, Tensor};

pub(in crate::ops) static SOURCE: Source = Source {
    name: "grouped_matmul.cu",
    text: include_str!("grouped_matmul.cu"),
};

pub(in crate::ops) static MMA: Source = Source {
    name: "grouped_mma.cu",
    text: include_str!("grouped_mma.cu"),
};

/// Elements of a block's tile, per side.
const TILE: usize = 64;

/// The same of `grouped_f32_chain`.
const CHAIN_TILE: usize = 128;

fn is_bf16(x: &Tensor) -> bool {
    x.dtype() == DType::Bf16
}

/// Addresses as a kernel reads them.
fn table(addresses: impl Iterator<Item = Arg>, device: &Device) -> Result<Tensor> {
    let address = |arg| match arg {
        Arg::Pointer(Address(address)) => address,
        _ => 0,
    };
    let addresses: Vec<u64> = addresses.map(address).collect();
    let words: &[u32] = bytemuck::cast_slice(&addresses);
    Tensor::from_u32(&[words.len()], words, device)
}

/// Blocks for the tiles of any split of the rows (`cuda/groups.cuh`), times those across.
fn grid([rows, width]: [usize; 2], experts: usize, tile: usize) -> Grid {
    Grid::blocks((rows / tile + experts + 1) * width.div_ceil(tile), 256)
}

/// Which rows are an expert's, as arguments.
fn groups(offsets: &Tensor, rows: usize) -> [Arg; 3] {
    let experts = offsets.elements().saturating_sub(1);
    [offsets.into(), experts.into(), rows.into()]
}

pub(super) fn product(
    on: &Arc<Cuda>,
    numbers: Numbers,
    y: &mut Tensor,
    x: &Tensor,
    (w, op): (&[&Tensor], Op),
    counts: Counts<'_>,
    leaf: usize,
) -> Result<()> {
    let ((rows, k), (_, n)) = (x.rows_cols(), y.rows_cols());
    if rows == 0 {
        return Ok(());
    }
    let uploaded;
    let offsets = match counts {
        Counts::OnDevice(offsets) => offsets,
        Counts::Known(counts) => {
            uploaded = offsets_of(counts.iter().copied(), x.device())?;
            &uploaded
        }
    };
    let [w_row, w_k] = match op {
        Op::Plain => [1, n],
        Op::Transposed => [k, 1],
    };
    let matrix = |w: &Tensor| Side {
        first: w.into(),
        is_bf16: is_bf16(w),
        rows: n,
        row: w_row,
        k: w_k,
    };
    let out = [(&*y).into(), is_bf16(y).into()];
    if numbers.is_by_tensor_cores() {
        let matrices = w.iter().map(|w| matrix(w)).collect::<Vec<Side>>();
        return by_tensor_cores(on, numbers, out, x, &matrices, offsets);
    }
    let is_chain = numbers == Numbers::F32 && (leaf == 0 || leaf >= k);
    let (function, tile) = match is_chain {
        true => ("grouped_f32_chain", CHAIN_TILE),
        false => {
            let names = ["grouped_f32", "grouped_bf16_pairs"];
            (kernel(numbers, names, x.device())?, TILE)
        }
    };
    let leaf = if leaf == 0 { k.max(1) } else { leaf };
    let matrices = table(w.iter().map(|w| (*w).into()), x.device())?;
    let of_x = [x.into(), is_bf16(x).into()];
    let of_w = [
        (&matrices).into(),
        w.first().is_some_and(|w| is_bf16(w)).into(),
        n.into(),
        w_row.into(),
        w_k.into(),
    ];
    let sizes = [k.into(), leaf.into()];
    let sizes = if is_chain { &sizes[..1] } else { &sizes };
    let args = [&out[..], &of_x, &groups(offsets, rows), &of_w, sizes].concat();
    on.launch(&SOURCE, function, grid([rows, n], w.len(), tile), &args)
}

/// `product` whose factors are in lines of 16 bits: x as a whole, and each matrix.
fn by_tensor_cores(
    on: &Arc<Cuda>,
    numbers: Numbers,
    out: [Arg; 2],
    x: &Tensor,
    w: &[Side],
    offsets: &Tensor,
) -> Result<()> {
    let (rows, k) = x.rows_cols();
    let factor = |side| mma::Factor {
        numbers,
        side,
        k,
        device: x.device(),
    };
    let side = Side {
        first: x.into(),
        is_bf16: is_bf16(x),
        rows,
        row: k,
        k: 1,
    };
    let lines = factor(side).lines(on)?;
    // all or none of them are copied: the kernel reads lines of one length
    let are_as_read = w.iter().all(|side| factor(*side).is_as_read());
    let read = |side: &Side| match are_as_read {
        true => factor(*side).lines(on),
        false => factor(*side).copied(on),
    };
    let w_lines = w.iter().map(read).collect::<Result<Vec<mma::Lines>>>()?;
    let Some((first, n)) = w_lines.first().zip(w.first().map(|side| side.rows)) else {
        return Ok(());
    };
    let matrices = table(w_lines.iter().map(|lines| lines.first), x.device())?;
    let is_along_k = w.first().is_some_and(|side| side.k == 1);
    let function = match (numbers == Numbers::F16Mma, is_along_k) {
        (false, true) => "grouped_mma_bf16_kk",
        (false, false) => "grouped_mma_bf16_kr",
        (true, true) => "grouped_mma_f16_kk",
        (true, false) => "grouped_mma_f16_kr",
    };
    let of_x = [lines.first, lines.bytes_a_line.into()];
    let of_w = [
        (&matrices).into(),
        n.into(),
        first.bytes_a_line.into(),
        k.into(),
    ];
    let args = [&out[..], &of_x, &groups(offsets, rows), &of_w].concat();
    on.launch(&MMA, function, grid([rows, n], w.len(), mma::TILE), &args)
}

/// Adds the tree over leaves of `a^T b` to each expert's part of dw.
pub(super) fn backward_weight(
    on: &Arc<Cuda>,
    numbers: Numbers,
    dw: &mut [&mut Tensor],
    a: &Tensor,
    b: &Tensor,
    leaves: Leaves<'_>,
) -> Result<()> {
    let ((rows, height), (_, width)) = (a.rows_cols(), b.rows_cols());
    if rows == 0 {
        return Ok(());
    }
    let (device, experts) = (a.device(), dw.len());
    let uploaded;
    let offsets = match leaves {
        Leaves::OnDevice { offsets, .. } => offsets,
        Leaves::Known(leaves) => {
            let counts = leaves.iter().map(|leaves| leaves.iter().sum());
            uploaded = offsets_of(counts, device)?;
            &uploaded
        }
    };
    let to = table(dw.iter().map(|dw| (&**dw).into()), device)?;
    if numbers.is_by_tensor_cores() {
        return weights_by_tensor_cores(on, numbers, &to, [a, b], offsets);
    }
    let names = ["grouped_weights_f32", "grouped_weights_bf16_pairs"];
    let function = kernel(numbers, names, device)?;
    let counted;
    let by_leaf = match leaves {
        Leaves::OnDevice { rows, .. } => rows,
        Leaves::Known(leaves) => {
            let count = leaves.first().map_or(0, Vec::len);
            let word = |rows: &usize| u32::try_from(*rows).unwrap_or(u32::MAX);
            let words: Vec<u32> = leaves.iter().flatten().map(word).collect();
            counted = Tensor::from_u32(&[leaves.len(), count], &words, device)?;
            &counted
        }
    };
    let (_, count) = by_leaf.rows_cols();
    let args = [
        (&to).into(),
        a.into(),
        is_bf16(a).into(),
        height.into(),
        b.into(),
        is_bf16(b).into(),
        width.into(),
        offsets.into(),
        by_leaf.into(),
        count.into(),
    ];
    let mut grid = Grid::blocks(width.div_ceil(TILE), 256).by(height.div_ceil(TILE));
    grid.blocks[2] = u32::try_from(experts).unwrap_or(u32::MAX);
    on.launch(&SOURCE, function, grid, &args)
}

/// Adds `a^T b` over all rows of each expert to its part of dw: one chain of `mma.sync`, whatever the leaves are.
fn weights_by_tensor_cores(
    on: &Arc<Cuda>,
    numbers: Numbers,
    dw: &Tensor,
    factors: [&Tensor; 2],
    offsets: &Tensor,
) -> Result<()> {
    let lines = |x: &Tensor| {
        let (rows, width) = x.rows_cols();
        let side = Side {
            first: x.into(),
            is_bf16: is_bf16(x),
            rows: width,
            row: 1,
            k: width,
        };
        let factor = mma::Factor {
            numbers,
            side,
            k: rows,
            device: x.device(),
        };
        factor.lines(on)
    };
    let [(_, height), (_, width)] = factors.map(Tensor::rows_cols);
    let [a, b] = factors.map(lines);
    let (a, b) = (a?, b?);
    let args = [
        dw.into(),
        a.first,
        height.into(),
        a.bytes_a_line.into(),
        b.first,
        width.into(),
        b.bytes_a_line.into(),
        offsets.into(),
    ];
    let function = match numbers == Numbers::F16Mma {
        true => "grouped_mma_weights_f16",
        false => "grouped_mma_weights_bf16",
    };
    let blocks = height.div_ceil(mma::TILE) * width.div_ceil(mma::TILE);
    let experts = offsets.elements().saturating_sub(1);
    on.launch(&MMA, function, Grid::blocks(blocks, 256).by(experts), &args)
}
