//! Rotary positions on the CPU, as a separate op.

use crate::Tensor;
use crate::cpu::ROW_BLOCK;
use crate::cpu::rotary::{Part, Rotary};
use crate::descriptor::rope::{Turn, Way};
use rayon::prelude::*;

pub(super) fn turn(qkv: &mut Tensor, turn: &Turn<'_>, way: Way) {
    let (device, packed) = (qkv.device().clone(), turn.heads.packed());
    let rotary = Rotary::new(*turn, way, &device);
    qkv.f32_mut()
        .par_chunks_mut(packed * ROW_BLOCK)
        .enumerate()
        .for_each(|(block, rows)| {
            let part = Part {
                row: block * ROW_BLOCK,
                column: 0,
                rows: rows.len() / packed,
                columns: packed,
            };
            rotary.in_place(device.isa(), rows, packed, part);
        });
}
