//! Gradients of whole models with every option are the differences of their losses, tensor by tensor:
//! masks, positions, norms, activations and dropout are drawn and made again in the same way forward
//! and backward.

use kernels::{Device, Tensor};

use crate::Plan;
use crate::claims::parity::by_tensor;
use crate::fixtures::{Chain, nth_step, options};
use crate::mesh::Groups;
use crate::model::param;
use crate::step::Trainer;

/// Length of the walk for each number of a tensor.
const STEP: f32 = 5e-4;

/// Largest distance of slope and difference over the larger of both, over tensors whose slope stands
/// out from the rounding of losses; how many there were. The gradients are those of `of`.
fn worst(plan: &Plan, of: &Plan) -> (f64, usize) {
    let specs = param::specs(plan);
    let new = |plan| Trainer::new(plan, &specs, Groups::single(), Device::cpu()).unwrap();
    let (mut walker, mut still) = (new(plan), new(of));
    let (samples, next) = (Chain::of(plan), nth_step(plan, 3));
    for (weight, same) in walker.weights.iter_mut().zip(&mut still.weights) {
        // larger than at the start, so that attention is not flat; norms as they are, or it is a step
        if weight.dims().len() > 1 {
            weight.f32_mut().iter_mut().for_each(|x| *x *= 4.0);
        }
        same.f32_mut().copy_from_slice(weight.f32());
    }
    let (_, gradients) = still.gradients(&samples, &next).unwrap();
    let gradients = by_tensor(&still, &gradients);
    let (mut worst, mut seen) = (0.0f64, 0);
    for (slot, spec) in specs.iter().enumerate() {
        let start: Vec<f32> = walker.weights[slot].f32().to_vec();
        let dims = [spec.live_elements()];
        let way = kernels::testing::random(&dims, slot as u64, &Device::cpu()).unwrap();
        let way = unit(way);
        let gradient = gradients[slot].f32()[..dims[0]].iter().zip(way.f32());
        let slope: f64 = gradient.map(|(d, w)| f64::from(*d) * f64::from(*w)).sum();
        let [ahead, back] = [1.0, -1.0].map(|sign| {
            let moved = walker.weights[slot].f32_mut().iter_mut();
            for ((x, from), w) in moved.zip(&start).zip(way.f32()) {
                *x = from + sign * STEP * w;
            }
            walker.gradients(&samples, &next).unwrap().0
        });
        let found = (ahead - back) / (2.0 * f64::from(STEP));
        walker.weights[slot].f32_mut().copy_from_slice(&start);
        if slope.abs() > 2e-2 {
            worst = worst.max((found - slope).abs() / slope.abs().max(found.abs()));
            seen += 1;
        }
    }
    (worst, seen)
}

/// Numbers of size 1 at most, so that no weight goes far.
fn unit(mut way: Tensor) -> Tensor {
    way.f32_mut()
        .iter_mut()
        .for_each(|x| *x = x.clamp(-1.0, 1.0));
    way
}

#[test]
fn gradients_with_every_option_are_the_differences_of_losses() {
    for plan in options() {
        let (found, tensors) = worst(&plan, &plan);
        println!("{tensors} tensors, worst {found}");
        assert!(found < 0.01, "{found} {:?}", plan.model);
        assert!(tensors > 5, "{tensors} {:?}", plan.model);
    }
}

#[test]
fn gradients_under_another_dropout_are_not() {
    let plan = &options()[0];
    let mut other = plan.clone();
    other.seed += 1;
    assert!(worst(plan, &other).0 > 0.1);
}
