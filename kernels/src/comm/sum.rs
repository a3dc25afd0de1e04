//! The arithmetic of collectives, the same for every transport: sums in the binary-counter tree by rank number,
//! maxima that keep NaN.

/// Elements per block of a sum, so that waiting blocks stay in L1.
pub(super) const SUM_BLOCK: usize = 1024;
/// From this length on, each rank adds its share of the elements and ranks exchange the shares.
pub(super) const SHARED_FROM: usize = 4096;

/// Adds the parts in the binary-counter tree, elementwise; all have the length of `out`.
pub(super) fn tree_sum(out: &mut [f32], parts: &[&[f32]]) {
    let mut waiting: Vec<Vec<f32>> = Vec::new();
    let mut spare: Vec<Vec<f32>> = Vec::new();
    for (block, out) in out.chunks_mut(SUM_BLOCK).enumerate() {
        for (i, part) in parts.iter().enumerate() {
            let mut sum = spare.pop().unwrap_or_default();
            sum.clear();
            sum.extend_from_slice(&part[block * SUM_BLOCK..][..out.len()]);
            let merges = if i + 1 == parts.len() {
                waiting.len()
            } else {
                i.trailing_ones() as usize
            };
            for _ in 0..merges {
                let older = waiting
                    .pop()
                    .expect("one block waits per one bit of the count");
                for (s, o) in sum.iter_mut().zip(&older) {
                    *s += o;
                }
                spare.push(older);
            }
            waiting.push(sum);
        }
        let sum = waiting.pop().expect("a group has at least one rank");
        out.copy_from_slice(&sum);
        spare.push(sum);
    }
}

/// The largest of the parts, elementwise; NaN if one is.
pub(super) fn largest<'a>(x: &mut [f32], parts: impl Iterator<Item = &'a [f32]>) {
    for (rank, part) in parts.enumerate() {
        if rank == 0 {
            x.copy_from_slice(part);
            continue;
        }
        for (x, y) in x.iter_mut().zip(part) {
            *x = if *y > *x || y.is_nan() { *y } else { *x };
        }
    }
}
