//! Sums in fixed trees: column sums over rows, merges, slices of a vocabulary, squares.
//!
//! The tree is the binary counter of `matmul`: leaves of `leaf` rows, each a chain of additions from
//! 0.0 in ascending rows; equal aligned power-of-two blocks merge, the rest from the right.

mod cpu;
pub(super) mod cuda;

use crate::{DType, Error, Result, Tensor, View};

pub(crate) use cpu::{COLUMNS, LeafSums, leaf_rows, settle};

/// Computes `out[c]`, the sum over rows of `x[r, c]`, or adds it to out (one rounding). `leaf` is in rows;
/// 0 or anything from n up is one leaf.
/// # Shapes
/// x: `[.., d]`, f32 or bf16, with leading dims flattened to n, out: `[d]`.
/// # Errors
/// `Shape` or `DType` if they do not fit.
pub fn sum_rows(out: &mut Tensor, x: &Tensor, leaf: usize, accumulate: bool) -> Result<()> {
    let (_, d) = x.expect_number_rows("reduce::sum_rows", "x")?;
    out.expect_f32("reduce::sum_rows", "out", &[d])?;
    dispatch!(x.device(), sum_rows(out, x, leaf, accumulate));
    Ok(())
}

/// Checks sums of `[d]`, or `[parts, d]` where each of `parts` equal runs of the n rows has its own.
pub(crate) fn expect_sums(
    op: &'static str,
    name: &'static str,
    sums: &Tensor,
    [n, d]: [usize; 2],
) -> Result<()> {
    let (parts, width) = sums.expect_rows(op, name)?;
    if width == d && n.is_multiple_of(parts) {
        return Ok(());
    }
    let wanted = format!("[{d}] or [parts of {n} rows, {d}]");
    Err(Error::Shape {
        op,
        name,
        found: sums.dims().to_vec(),
        wanted,
    })
}

/// Adds b to a: one merge of the tree, elementwise.
/// # Errors
/// `Shape` or `DType` if they differ.
pub fn tree_add_into(a: &mut Tensor, b: &Tensor) -> Result<()> {
    super::add::add_into(a, b)
}

/// Returns the tree sum over the first dim: `out[i]` is the tree over s of `sums[s, i]`.
/// # Shapes
/// sums: `[slices, n]` -> `[n]`.
/// # Errors
/// `DType` or `Shape` if sums is empty; `Memory` if the result does not fit.
pub fn tree_sum_slices(sums: &Tensor) -> Result<Tensor> {
    let (_, n) = sums.expect_rows("reduce::tree_sum_slices", "sums")?;
    let mut out = Tensor::empty(&[n], DType::F32, sums.device())?;
    // A leaf of one row is 0.0 + x, so a -0.0 slice counts as 0.0 wherever it is held.
    dispatch!(sums.device(), sum_rows(&mut out, sums, 1, false));
    Ok(out)
}

/// Returns each view's sum of squares in f64, two u32 words each, on the views' device; `None` without views. Blocks of
/// 4096 elements, 16 lane sums per block and a fixed tree over lanes, blocks added in order. Squares of f32 are exact in
/// f64. Thread count changes nothing.
/// # Errors
/// `DType` if one is no f32; `Memory`.
pub fn squares(views: &[View<'_>]) -> Result<Option<Tensor>> {
    for view in views {
        crate::view::expect_alike("reduce::squares", *view, &[])?;
    }
    let Some(first) = views.first() else {
        return Ok(None);
    };
    let mut sums = Tensor::empty(&[views.len() * 2], DType::U32, first.device())?;
    dispatch!(first.device(), squares(&mut sums, views));
    Ok(Some(sums))
}

/// `squares` on the host. Waits for the device.
/// # Errors
/// As `squares`; `Driver` if the device fails.
pub fn sum_squares(views: &[View<'_>]) -> Result<Vec<f64>> {
    match squares(views)? {
        Some(sums) => Ok(numbers(&sums.download::<u32>()?)),
        None => Ok(Vec::new()),
    }
}

/// The f64 numbers in pairs of words, as `squares` puts them out.
pub fn numbers(words: &[u32]) -> Vec<f64> {
    let pairs = words.chunks_exact(2);
    pairs
        .map(|pair| bytemuck::cast([pair[0], pair[1]]))
        .collect()
}

/// Elements whose squares `sum_squares` adds as one block.
const SQUARES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;
    use crate::testing::{assert_same_bits, bits, random, stored_as, tree, widened};
    use proptest::prelude::*;

    fn rows(x: &Tensor, first: usize, len: usize) -> Tensor {
        let (_, d) = x.rows_cols();
        Tensor::from_f32(
            &[len, d],
            &x.f32()[first * d..(first + len) * d],
            x.device(),
        )
        .unwrap()
    }

    fn summed(x: &Tensor, leaf: usize) -> Tensor {
        let (_, d) = x.rows_cols();
        let mut out = Tensor::zeros(&[d], DType::F32, x.device()).unwrap();
        sum_rows(&mut out, x, leaf, false).unwrap();
        out
    }

    #[test]
    fn sum_rows_has_the_bits_of_the_definition() {
        for device in crate::testing::devices() {
            for (n, d, leaf) in [
                (1, 1, 0),
                (7, 3, 2),
                (64, 300, 4),
                (50, 129, 7),
                (9, 16, 100),
            ] {
                let x = random(&[n, d], 1, &device).unwrap();
                let mut out = random(&[d], 2, &device).unwrap();
                let old = out.try_clone().unwrap();
                sum_rows(&mut out, &x, leaf, true).unwrap();
                let leaf = if leaf == 0 { n } else { leaf };
                for c in 0..d {
                    let chain = |s: usize| {
                        (s..n.min(s + leaf)).fold(0.0_f32, |acc, r| acc + x.f32()[r * d + c])
                    };
                    let want = old.f32()[c] + tree((0..n).step_by(leaf).map(chain));
                    assert_eq!(
                        out.f32()[c].to_bits(),
                        want.to_bits(),
                        "{device:?} {n} {d} {leaf}"
                    );
                }
                let half = stored_as(DType::Bf16, &x);
                let same =
                    bits(summed(&half, leaf).f32()) == bits(summed(&widened(&half), leaf).f32());
                assert!(same, "bf16 {device:?} {n} {d} {leaf}");
            }
        }
    }

    /// Maximal aligned blocks of leaves first .. end: (start, size).
    fn aligned_blocks(first: usize, end: usize) -> Vec<(usize, usize)> {
        let mut blocks = Vec::new();
        let mut start = first;
        while start < end {
            let mut size = 1;
            while start.is_multiple_of(2 * size) && start + 2 * size <= end {
                size *= 2;
            }
            blocks.push((start, size));
            start += size;
        }
        blocks
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

        /// Each rank holds a random range of leaves, reduces its aligned blocks, and the merges of
        /// blocks from all ranks in the one tree give the bits of one rank that holds everything.
        #[test]
        fn any_assignment_of_leaves_to_ranks_has_the_bits_of_one_rank(
            leaves in 1_usize..70, cuts in prop::collection::vec(0_usize..70, 0..6), seed in 0_u64..99,
        ) {
            const LEAF: usize = 3;
            let device = Device::cpu();
            let x = random(&[leaves * LEAF, 5], seed, &device).unwrap();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(leaves)).collect();
            cuts.extend([0, leaves]);
            cuts.sort_unstable();
            let mut waiting: Vec<(usize, usize, Tensor)> = Vec::new();
            for rank in cuts.windows(2) {
                for (start, size) in aligned_blocks(rank[0], rank[1]) {
                    let block = summed(&rows(&x, start * LEAF, size * LEAF), LEAF);
                    waiting.push((start, size, block));
                    while let [.., (a, a_size, _), (_, b_size, _)] = &waiting[..]
                        && a_size == b_size && a % (2 * a_size) == 0
                    {
                        let (_, _, right) = waiting.pop().unwrap();
                        let (_, size, left) = waiting.last_mut().unwrap();
                        tree_add_into(left, &right).unwrap();
                        *size *= 2;
                    }
                }
            }
            while waiting.len() > 1 {
                let (_, _, right) = waiting.pop().unwrap();
                tree_add_into(&mut waiting.last_mut().unwrap().2, &right).unwrap();
            }
            prop_assert_eq!(bits(waiting[0].2.f32()), bits(summed(&x, LEAF).f32()));
        }
    }

    #[test]
    fn a_swapped_merge_changes_bits() {
        let device = Device::cpu();
        let x = random(&[8, 64], 1, &device).unwrap();
        let one = |r: usize| summed(&rows(&x, r, 1), 1);
        let add = |mut a: Tensor, b: Tensor| {
            tree_add_into(&mut a, &b).unwrap();
            a
        };
        let pairs = |a: [usize; 4]| add(add(one(a[0]), one(a[1])), add(one(a[2]), one(a[3])));
        let right = add(pairs([0, 1, 2, 3]), pairs([4, 5, 6, 7]));
        let swapped = add(pairs([0, 2, 1, 3]), pairs([4, 5, 6, 7]));
        assert_eq!(bits(right.f32()), bits(summed(&x, 1).f32()));
        assert_ne!(bits(swapped.f32()), bits(summed(&x, 1).f32()));
    }

    #[test]
    fn slices_are_added_in_the_tree() {
        let device = Device::cpu();
        let x = random(&[11, 33], 1, &device).unwrap();
        let out = tree_sum_slices(&x).unwrap();
        for c in 0..33 {
            let want = tree((0..11).map(|s| x.f32()[s * 33 + c]));
            assert_eq!(out.f32()[c].to_bits(), want.to_bits());
        }
    }

    #[test]
    fn sum_squares_is_right_and_its_blocks_are_fixed() {
        let x = random(&[100_003], 1, &Device::cpu()).unwrap();
        let want: f64 = x.f32().iter().map(|x| f64::from(*x).powi(2)).sum();
        let found = sum_squares(&[x.view()]).unwrap()[0];
        assert!((found / want - 1.0).abs() < 1e-13);
        let one = rayon::ThreadPoolBuilder::new()
            .num_threads(1)
            .build()
            .unwrap();
        let three = rayon::ThreadPoolBuilder::new()
            .num_threads(3)
            .build()
            .unwrap();
        let run = || sum_squares(&[x.view()]).unwrap()[0].to_bits();
        assert_eq!(one.install(run), three.install(run));
        assert_eq!(sum_squares(&[x.flat(7..7).unwrap()]).unwrap(), [0.0]);
    }

    #[test]
    fn every_device_gives_the_same_bits() {
        assert_same_bits(|device| {
            let mut all = Vec::new();
            for (n, d, leaf) in [
                (1, 1, 0),
                (7, 3, 2),
                (64, 300, 4),
                (50, 129, 7),
                (9, 16, 100),
            ] {
                let x = random(&[n, d], 1, device).unwrap();
                for x in [stored_as(DType::Bf16, &x), x] {
                    let mut out = random(&[d], 2, device).unwrap();
                    sum_rows(&mut out, &x, leaf, true).unwrap();
                    sum_rows(&mut out, &x, leaf, true).unwrap();
                    all.push(out);
                    all.push(Tensor::zeros(&[d], DType::F32, device).unwrap());
                    let last = all.len() - 1;
                    sum_rows(&mut all[last], &x, leaf, false).unwrap();
                }
            }
            let x = random(&[100_003], 1, device).unwrap();
            let views = [0..100_003, 5..6, 9..9, 4096..8192, 3..70_000].map(|r| x.flat(r).unwrap());
            let words: Vec<u32> = sum_squares(&views)
                .unwrap()
                .iter()
                .flat_map(|sum| bytemuck::cast::<f64, [u32; 2]>(*sum))
                .collect();
            let words: Vec<f32> = words.into_iter().map(f32::from_bits).collect();
            all.push(Tensor::from_f32(&[words.len()], &words, device).unwrap());
            all
        });
    }
}
