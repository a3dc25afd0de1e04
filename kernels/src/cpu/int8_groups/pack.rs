//! Packing of a second factor for products with rounded rows (`mod.rs`).

use half::f16;
use rayon::prelude::*;

use super::layout::{QUAD, WIDTH};
use crate::cpu::Isa;
use crate::cpu::codes::{Code, Scales};
use crate::cpu::codes_pack::Coded;
use crate::cpu::pack::Matrix;
use crate::cpu::simd::LANES;

/// Floats of memory of all panels of op(B) `[k, n]`.
pub(crate) fn floats(code: Code, [k, n]: [usize; 2]) -> usize {
    n.div_ceil(WIDTH) * code.panel(k, WIDTH)
}

/// Packs all of op(B); false if some of its numbers are no multiples that fit.
pub(crate) fn fill(isa: Isa, code: Code, words: &mut [f32], b: Matrix<'_>) -> bool {
    let apart = size_of::<f32>() * code.panel(b.rows(), WIDTH);
    if apart == 0 {
        return true;
    }
    let coded = Coded::of_width(isa, code, b, WIDTH);
    let words: &mut [u8] = bytemuck::cast_slice_mut(words);
    let panels = words.par_chunks_exact_mut(apart).enumerate();
    panels
        .map(|(panel, out)| fill_panel(&coded, code, panel, out))
        .all(|fits| fits)
}

fn fill_panel(coded: &Coded<'_>, code: Code, panel: usize, out: &mut [u8]) -> bool {
    let groups = out.chunks_exact_mut(code.bytes_of_group());
    groups.enumerate().all(|(group, out)| {
        out.fill(0);
        let (scales, codes) = out.split_at_mut(code.bytes_of_scales());
        coded.all(panel, group * code.steps(), |column, own| {
            let (vector, lane) = (column / LANES, column % LANES);
            match code.form_of_scales() {
                Scales::Half => {
                    let scale = f16::from_f32(own.scale).to_le_bytes();
                    scales.as_chunks_mut().0[column] = scale;
                }
                Scales::Single => {
                    scales.as_chunks_mut().0[column] = own.scale.to_le_bytes();
                }
                Scales::WithOffsets => {
                    let words = scales.as_chunks_mut().0;
                    words[2 * vector * LANES + lane] = own.scale.to_le_bytes();
                    words[(2 * vector + 1) * LANES + lane] = own.offset.to_le_bytes();
                }
            }
            for (step, number) in own.codes[..code.steps()].iter().enumerate() {
                let (quad, place) = (step / QUAD, column * QUAD + step % QUAD);
                // 4 or 8 bits without a sign
                let [number, ..] = (i32::from(*number) + code.shift()).to_le_bytes();
                if code.is_nibble() {
                    codes[quad / 2 * QUAD * WIDTH + place] |= number << (quad % 2 * 4);
                } else {
                    codes[quad * QUAD * WIDTH + place] = number;
                }
            }
        })
    })
}
