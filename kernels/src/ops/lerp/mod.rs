//! Elementwise interpolation, x += (y - x) share: running averages of weights. Two rounded operations after the
//! difference; no element depends on another.

mod cpu;
pub(super) mod cuda;

use crate::view::expect_alike;
use crate::{Result, View, ViewMut};

/// Moves every x towards its y by `share` of their distance.
/// # Errors
/// `Argument` or `DType` if they differ in length or are no f32.
pub fn towards(mut x: ViewMut<'_>, y: View<'_>, share: f32) -> Result<()> {
    expect_alike("lerp::towards", x.as_view(), &[("y", y)])?;
    dispatch!(y.device(), towards(&mut x, y, share));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_same_bits, error, random, wide};
    use crate::{Device, tolerance};

    #[test]
    fn repeated_steps_match_the_closed_form() {
        let device = Device::cpu();
        let start = random(&[20_001], 1, &device).unwrap();
        let goal = random(&[20_001], 2, &device).unwrap();
        let mut x = start.try_clone().unwrap();
        for _ in 0..20 {
            towards(x.view_mut(), goal.view(), 0.125).unwrap();
        }
        // the remaining distance is (1 - share)^20
        let left = 0.875f64.powi(20);
        let want: Vec<f64> = wide(start.f32())
            .iter()
            .zip(wide(goal.f32()))
            .map(|(start, goal)| goal + (start - goal) * left)
            .collect();
        let bound = tolerance::elementwise(3 * 20);
        assert!(error(x.f32(), &want) < bound);
        towards(x.view_mut(), goal.view(), 0.001).unwrap();
        assert!(error(x.f32(), &want) > bound, "one step more is noticed");
    }

    #[test]
    fn every_device_gives_the_same_bits() {
        assert_same_bits(|device| {
            let [mut x, y] = [1, 2].map(|seed| random(&[20_001], seed, device).unwrap());
            let run = x.flat_mut(3..20_000).unwrap();
            towards(run, y.flat(3..20_000).unwrap(), 0.3).unwrap();
            vec![x]
        });
    }
}
