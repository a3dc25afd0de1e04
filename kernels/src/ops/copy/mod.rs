//! Copies of runs of numbers that are larger than caches.

mod cpu;

use crate::Device;

/// Copies `from` to `to` with all threads.
/// # Panics
/// If their lengths differ.
pub fn copy(to: &mut [f32], from: &[f32], device: &Device) {
    assert_eq!(to.len(), from.len(), "copies are as long as their source");
    dispatch!(device, copy(to, from, device));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{bits, devices, random};

    #[test]
    fn all_of_a_run_is_copied_and_nothing_else() {
        for device in devices() {
            for len in [0, 1, 15, 16, 16_384, 50_001] {
                let from = random(&[len + 1], 1, &device).unwrap();
                let mut to = vec![7.0; len + 2];
                copy(&mut to[1..=len], &from.f32()[1..], &device);
                assert_eq!((to[0], to[len + 1]), (7.0, 7.0));
                assert!(
                    bits(&to[1..=len]) == bits(&from.f32()[1..]),
                    "{device:?} {len}"
                );
            }
        }
    }

    #[test]
    #[should_panic(expected = "copies are as long as their source")]
    fn other_lengths_break_an_invariant() {
        copy(&mut [0.0; 2], &[0.0; 3], &Device::cpu());
    }
}
