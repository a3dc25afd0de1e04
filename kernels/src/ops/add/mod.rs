//! Elementwise additions in place: `x[r, c]` += `b[c]` and x += y. Each element is one rounded addition.

pub(crate) mod cpu;
pub(super) mod cuda;

use crate::{Result, Tensor};

/// Adds the bias to every row of x.
/// # Shapes
/// x: `[.., d]`, b: `[d]`.
/// # Errors
/// `Shape` or `DType` if they do not fit.
pub fn bias(x: &mut Tensor, b: &Tensor) -> Result<()> {
    let (_, d) = x.expect_rows("add::bias", "x")?;
    b.expect_f32("add::bias", "b", &[d])?;
    let device = x.device().clone();
    dispatch!(device, bias(x, b));
    Ok(())
}

/// Adds y to x.
/// # Shapes
/// The same dims.
/// # Errors
/// `Shape` or `DType` if they differ.
pub fn add_into(x: &mut Tensor, y: &Tensor) -> Result<()> {
    x.expect("add::add_into", "x", crate::DType::F32)?;
    y.expect_f32("add::add_into", "y", x.dims())?;
    let device = x.device().clone();
    dispatch!(device, add_into(x, y));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_same_bits, extreme, random};
    use crate::{Device, Error};

    #[test]
    fn additions_are_one_rounded_addition_each() {
        let device = Device::cpu();
        let (x, b) = (
            random(&[35, 45], 1, &device).unwrap(),
            random(&[45], 2, &device).unwrap(),
        );
        let mut biased = x.try_clone().unwrap();
        bias(&mut biased, &b).unwrap();
        let mut doubled = x.try_clone().unwrap();
        add_into(&mut doubled, &biased).unwrap();
        for i in 0..x.elements() {
            let want = x.f32()[i] + b.f32()[i % 45];
            assert_eq!(biased.f32()[i], want);
            assert_eq!(doubled.f32()[i], x.f32()[i] + want);
        }
    }

    #[test]
    fn bits_are_the_same_on_every_device() {
        assert_same_bits(|device| {
            let mut x = extreme(&[13, 37], 1, true, device).unwrap();
            bias(&mut x, &random(&[37], 2, device).unwrap()).unwrap();
            let biased = x.try_clone().unwrap();
            add_into(&mut x, &extreme(&[13, 37], 3, true, device).unwrap()).unwrap();
            vec![biased, x]
        });
    }

    #[test]
    fn other_dims_are_errors() {
        let device = Device::cpu();
        let mut x = random(&[4, 6], 1, &device).unwrap();
        let y = random(&[6, 4], 1, &device).unwrap();
        assert!(matches!(
            add_into(&mut x, &y),
            Err(Error::Shape { name: "y", .. })
        ));
        assert!(matches!(
            bias(&mut x, &y),
            Err(Error::Shape { name: "b", .. })
        ));
    }
}
