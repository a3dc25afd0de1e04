//! Rows of a table by id: y[i] = table[ids[i] - first], zero where the id is not in this table.
//!
//! The table may be a shard that holds ids first .. first + rows. Backward adds dy rows to the rows of
//! their ids in the tree of `reduce`: per table row, leaves of `leaf` tokens, absent leaves add nothing
//! (as a dense product with a one-hot matrix would), then one merge with the old gradient.

mod cpu;

use crate::{DType, Error, Result, Tensor};

/// Returns y: [n, d].
/// # Shapes
/// table: [rows, d], ids: n u32.
/// # Errors
/// `Shape` or `DType` if they do not fit.
pub fn forward(table: &Tensor, ids: &Tensor, first: usize) -> Result<Tensor> {
    let d = table_width(table, "table")?;
    ids.expect("embedding::forward", "ids", DType::U32)?;
    let mut y = Tensor::empty(&[ids.elements(), d], DType::F32, table.device())?;
    dispatch!(table.device(), forward(&mut y, table, ids, first));
    Ok(y)
}

/// Adds the gradient of the table to dtable.
/// # Shapes
/// dtable: [rows, d], dy: [n, d] with leading dims flattened, ids: n u32; leaf in tokens, 0 for one.
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
