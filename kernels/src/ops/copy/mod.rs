//! Copies of runs of numbers that are larger than caches.

mod cpu;
mod cuda;

use crate::view::expect_alike;
use crate::{Result, View, ViewMut};

/// Copies `from` to `to`, f32 on one device, with all threads.
/// # Errors
/// `Argument` or `DType` if they differ in length or are no f32.
pub fn copy(mut to: ViewMut<'_>, from: View<'_>) -> Result<()> {
    expect_alike("copy", to.as_view(), &[("from", from)])?;
    dispatch!(from.device(), copy(&mut to, from));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{all_devices, bits, random, values};
    use crate::{Device, Error, Tensor};

    #[test]
    fn all_of_a_run_is_copied_and_nothing_else() {
        for device in all_devices() {
            for len in [0, 1, 15, 16, 16_384, 50_001] {
                let from = random(&[len + 1], 1, &device).unwrap();
                let mut to = Tensor::from_f32(&[len + 2], &vec![7.0; len + 2], &device).unwrap();
                let run = to.flat_mut(1..len + 1).unwrap();
                copy(run, from.flat(1..len + 1).unwrap()).unwrap();
                let to = values(&to);
                assert_eq!((to[0], to[len + 1]), (7.0, 7.0));
                assert!(
                    bits(&to[1..=len]) == bits(&values(&from)[1..]),
                    "{device:?} {len}"
                );
            }
        }
    }

    #[test]
    fn other_lengths_are_an_error() {
        let [mut to, from] =
            [2, 3].map(|n| Tensor::from_f32(&[n], &vec![0.0; n], &Device::cpu()).unwrap());
        let found = copy(to.view_mut(), from.view());
        assert!(matches!(found, Err(Error::Argument { .. })));
    }
}
