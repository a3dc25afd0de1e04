//! Elementwise interpolation, x += (y - x) share: running averages of weights. Two rounded operations after the
//! difference; no element depends on another.

mod cpu;

/// Moves every x towards its y by `share` of their distance.
/// # Panics
/// If the slices differ in length.
pub fn towards(x: &mut [f32], y: &[f32], share: f32) {
    assert!(x.len() == y.len(), "one target per number");
    cpu::towards(x, y, share);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{error, random, wide};
    use crate::{Device, tolerance};

    #[test]
    fn repeated_steps_match_the_closed_form() {
        let device = Device::cpu();
        let start = random(&[20_001], 1, &device).unwrap();
        let goal = random(&[20_001], 2, &device).unwrap();
        let mut x = start.f32().to_vec();
        for _ in 0..20 {
            towards(&mut x, goal.f32(), 0.125);
        }
        // the remaining distance is (1 - share)^20
        let left = 0.875f64.powi(20);
        let want: Vec<f64> = wide(start.f32())
            .iter()
            .zip(wide(goal.f32()))
            .map(|(start, goal)| goal + (start - goal) * left)
            .collect();
        let bound = tolerance::elementwise(3 * 20);
        assert!(error(&x, &want) < bound);
        towards(&mut x, goal.f32(), 0.001);
        assert!(error(&x, &want) > bound, "one step more is noticed");
    }
}
