//! Finite differences: gradients of whole models with every option match the differences of their losses, tensor by
//! tensor. Masks, positions, norms, activations and dropout are drawn and recomputed in the same way forward and
//! backward.

use kernels::{Device, Tensor};

use crate::config::{Activation, Family, Plan, TieEmbeddings};
use crate::data::Samples;
use crate::dist::mesh::Groups;
use crate::fixtures::{Chain, Gaps, nth_step, options, tiny_t5};
use crate::model::param;
use crate::tests::parity::by_tensor;
use crate::trainer::step::Trainer;

/// Length of the walk for each number of a tensor.
const STEP: f32 = 5e-4;

/// Largest relative distance between gradient and difference (over the larger of both), over tensors whose gradient
/// exceeds the rounding of losses; and the number of these tensors. The gradients are those of `of`.
fn worst(plan: &Plan, of: &Plan) -> (f64, usize) {
    let specs = param::specs(plan);
    let new = |plan| Trainer::new(plan, &specs, Groups::single(), Device::cpu()).unwrap();
    let (mut walker, mut still) = (new(plan), new(of));
    let (text, spans) = (Chain::of(plan), Gaps::of(plan));
    // larger than at the start, so that attention is not flat; T5 starts with wide rows
    let (samples, by): (&dyn Samples, f32) = match plan.model.family {
        Family::T5 => (&spans, 1.0),
        _ => (&text, 4.0),
    };
    let next = nth_step(plan, 3);
    for (weight, same) in walker
        .state
        .weights
        .iter_mut()
        .zip(&mut still.state.weights)
    {
        // norms keep their weights, or the loss would step
        if weight.dims().len() > 1 {
            weight
                .host_mut::<f32>()
                .unwrap()
                .iter_mut()
                .for_each(|x| *x *= by);
        }
        same.host_mut::<f32>()
            .unwrap()
            .copy_from_slice(weight.host::<f32>().unwrap());
    }
    let (_, gradients) = still.gradients(samples, &next).unwrap();
    let gradients = by_tensor(&still, &gradients);
    let (mut worst, mut seen) = (0.0f64, 0);
    for (slot, spec) in specs.iter().enumerate() {
        let start: Vec<f32> = walker.state.weights[slot].host::<f32>().unwrap().to_vec();
        let dims = [spec.live_elements()];
        let way = kernels::testing::random(&dims, slot as u64, &Device::cpu()).unwrap();
        let way = unit(way);
        let gradient = gradients[slot].host::<f32>().unwrap()[..dims[0]]
            .iter()
            .zip(way.host::<f32>().unwrap());
        let slope: f64 = gradient.map(|(d, w)| f64::from(*d) * f64::from(*w)).sum();
        let [ahead, back] = [1.0, -1.0].map(|sign| {
            let moved = walker.state.weights[slot]
                .host_mut::<f32>()
                .unwrap()
                .iter_mut();
            for ((x, from), w) in moved.zip(&start).zip(way.host::<f32>().unwrap()) {
                *x = from + sign * STEP * w;
            }
            walker.gradients(samples, &next).unwrap().0
        });
        let found = (ahead - back) / (2.0 * f64::from(STEP));
        walker.state.weights[slot]
            .host_mut::<f32>()
            .unwrap()
            .copy_from_slice(&start);
        if slope.abs() > 2e-2 {
            worst = worst.max((found - slope).abs() / slope.abs().max(found.abs()));
            seen += 1;
        }
    }
    (worst, seen)
}

/// Numbers of size 1 at most, so that no weight changes much.
fn unit(mut way: Tensor) -> Tensor {
    way.host_mut::<f32>()
        .unwrap()
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

/// T5 with a tied head, and with gates and an untied head; dropout everywhere. No ReLU: the path of the differences
/// would cross its kink.
fn pairs() -> [Plan; 2] {
    let mut first = tiny_t5();
    first.model.activation = Some(Activation::GeluTanh);
    (first.model.dropout, first.model.attention_dropout) = (0.2, 0.1);
    let mut second = first.clone();
    second.model.activation = Some(Activation::GegluTanh);
    (second.model.tie_embeddings, second.model.decoder_layers) = (TieEmbeddings::Untied, 3);
    [first, second]
}

#[test]
fn gradients_of_an_encoder_and_a_decoder_are_the_differences_of_losses() {
    for plan in pairs() {
        let (found, tensors) = worst(&plan, &plan);
        println!("{tensors} tensors, worst {found}");
        assert!(found < 0.01, "{found} {:?}", plan.model);
        assert!(tensors > 20, "{tensors} {:?}", plan.model);
    }
}

#[test]
fn gradients_under_another_dropout_are_not() {
    for plan in [&options()[0], &pairs()[1]] {
        let mut other = plan.clone();
        other.seed += 1;
        assert!(worst(plan, &other).0 > 0.1);
    }
}
