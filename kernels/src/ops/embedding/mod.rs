//! Embedding lookup: `y[i] = table[ids[i] - first]`, zero where the id is not in this table.
//!
//! The table may be a shard that holds ids first .. first + rows. Backward adds dy rows to the rows of
//! their ids in the tree of `reduce`: per table row, leaves of `leaf` tokens, absent leaves add nothing
//! (as a dense product with a one-hot matrix would), then one merge with the old gradient.

mod cpu;
pub(super) mod cuda;
mod tokens;

use crate::{DType, Error, Result, Tensor};

/// Returns y: `[n, d]`.
/// # Shapes
/// table: `[rows, d]`, ids: n u32.
/// # Errors
/// `Shape` or `DType` if they do not fit.
pub fn forward(table: &Tensor, ids: &Tensor, first: usize) -> Result<Tensor> {
    let d = table_width(table, "table")?;
    ids.expect("embedding::forward", "ids", DType::U32)?;
    let mut y = Tensor::empty(&[ids.elements(), d], DType::F32, ids.device())?;
    dispatch!(table.device(), forward(&mut y, table, ids, first));
    Ok(y)
}

/// Adds the gradient of the table to dtable.
/// # Shapes
/// dtable: `[rows, d]`, dy: `[n, d]` with leading dims flattened, ids: n u32; leaf in tokens, 0 for one.
/// # Errors
/// `Shape` or `DType` if they do not fit.
pub fn backward(
    dtable: &mut Tensor,
    dy: &Tensor,
    ids: &Tensor,
    first: usize,
    leaf: usize,
) -> Result<()> {
    let d = table_width(dtable, "dtable")?;
    let (n, width) = dy.expect_rows("embedding::backward", "dy")?;
    if width != d {
        let wanted = format!("a last dim of {d}");
        let found = dy.dims().to_vec();
        return Err(Error::Shape {
            op: "embedding::backward",
            name: "dy",
            found,
            wanted,
        });
    }
    ids.expect_ids("embedding::backward", "ids", n)?;
    let device = dtable.device().clone();
    dispatch!(device, backward(dtable, dy, ids, first, leaf));
    Ok(())
}

fn table_width(table: &Tensor, name: &'static str) -> Result<usize> {
    table.expect("embedding", name, DType::F32)?;
    match table.dims() {
        &[_, d] if d > 0 => Ok(d),
        dims => {
            let wanted = "[rows, d]".to_owned();
            Err(Error::Shape {
                op: "embedding",
                name,
                found: dims.to_vec(),
                wanted,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;
    use crate::testing::{assert_same_bits, bits, random, tree};

    #[test]
    fn shards_copy_rows_and_give_zero_elsewhere() {
        let device = Device::cpu();
        let table = random(&[6, 5], 1, &device).unwrap();
        let ids = Tensor::from_u32(&[2, 2], &[12, 3, 10, 15], &device).unwrap();
        let y = forward(&table, &ids, 10).unwrap();
        assert_eq!(y.dims(), &[4, 5]);
        let row = |r: usize| &table.f32()[r * 5..(r + 1) * 5];
        assert_eq!(y.f32(), [row(2), &[0.0; 5], row(0), row(5)].concat());
    }

    #[test]
    fn backward_has_the_bits_of_the_dense_tree() {
        let device = Device::cpu();
        let (n, d, rows, first) = (90, 7, 5, 2);
        let dy = random(&[n, d], 1, &device).unwrap();
        let ids: Vec<u32> = (0..90)
            .map(|i| {
                [0, 2, 3, 3, 3, 4, 6, 7][crate::rng::philox([1; 2], [i, 0, 0, 0])[0] as usize % 8]
            })
            .collect();
        let ids = Tensor::from_u32(&[n], &ids, &device).unwrap();
        for leaf in [0, 1, 4, 13, 200] {
            let old = random(&[rows, d], 2, &device).unwrap();
            let mut dtable = old.try_clone().unwrap();
            backward(&mut dtable, &dy, &ids, first, leaf).unwrap();
            let leaf = if leaf == 0 { n } else { leaf };
            for row in 0..rows {
                for c in 0..d {
                    let chain = |start: usize| {
                        (start..n.min(start + leaf)).fold(0.0_f32, |acc, i| {
                            let here = ids.u32()[i] as usize == first + row;
                            if here { acc + dy.f32()[i * d + c] } else { acc }
                        })
                    };
                    let want = old.f32()[row * d + c] + tree((0..n).step_by(leaf).map(chain));
                    assert_eq!(
                        dtable.f32()[row * d + c].to_bits(),
                        want.to_bits(),
                        "{leaf}"
                    );
                }
            }
        }
    }

    #[test]
    fn bits_are_the_same_on_every_device() {
        assert_same_bits(|device| {
            let (n, d, rows) = (77, 19, 6);
            let ids: Vec<u32> = (0..77).map(|i| (i * i + 3 * i) % 9).collect();
            let ids = Tensor::from_u32(&[n], &ids, device).unwrap();
            let table = random(&[rows, d], 1, device).unwrap();
            let dy = random(&[n, d], 2, device).unwrap();
            let mut all = vec![forward(&table, &ids, 2).unwrap()];
            for leaf in [0, 1, 4, 13, 200] {
                let mut dtable = table.try_clone().unwrap();
                backward(&mut dtable, &dy, &ids, 2, leaf).unwrap();
                all.push(dtable);
            }
            let mut nothing = table.try_clone().unwrap();
            backward(&mut nothing, &dy, &ids, 100, 4).unwrap();
            all.push(nothing);
            all
        });
    }

    #[test]
    fn rows_nobody_asked_for_keep_their_bits() {
        let device = Device::cpu();
        let mut dtable = Tensor::from_f32(&[2, 1], &[-0.0, -0.0], &device).unwrap();
        let dy = Tensor::from_f32(&[1, 1], &[-0.0], &device).unwrap();
        let ids = Tensor::from_u32(&[1], &[1], &device).unwrap();
        backward(&mut dtable, &dy, &ids, 0, 0).unwrap();
        // A leaf starts from 0.0, so row 1 gets -0.0 + (0.0 + -0.0).
        assert_eq!(bits(dtable.f32()), bits(&[-0.0, 0.0]));
    }
}
