//! Peaks of gradients and activations: a step simulated through the pipeline's schedule.

use crate::parallel::schedule::Action;

/// Peak bytes over a step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Peaks {
    pub gradients: usize,
    pub activations: usize,
}

/// Bytes that the passes of a training's step keep on one rank. Ranks of a stage with equal steps have equal peaks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Step {
    /// Inputs, targets and their loss masks of all micro-batches.
    pub inputs: usize,
    /// Passes of each micro-batch, by model chunk on this rank.
    pub passes: Vec<Vec<Pass>>,
}

impl Step {
    pub(super) fn micro_batches(&self) -> usize {
        self.passes.len()
    }
}

/// Bytes of a micro-batch in a model chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pass {
    /// Activations, from the forward pass to the backward pass.
    pub kept: usize,
    /// Losses, from the forward pass to the step's end.
    pub losses: usize,
    /// All gradients of the chunk after the backward pass.
    pub gradients: usize,
}

/// Peaks over a step of trainings that run together, simulated through the schedule.
pub(super) fn peaks(steps: &[Step], schedule: &[Action]) -> Peaks {
    let order: Vec<(usize, &Vec<Pass>)> = (steps.iter().enumerate())
        .flat_map(|(training, step)| step.passes.iter().map(move |passes| (training, passes)))
        .collect();
    let chunks = order.first().map_or(0, |(_, passes)| passes.len());
    let mut kept: usize = steps.iter().map(|step| step.inputs).sum();
    let mut gradients = vec![0; steps.len() * chunks];
    let mut most = Peaks::default();
    for action in schedule {
        match *action {
            Action::Forward { micro, chunk } => {
                let pass = &order[micro].1[chunk];
                kept += pass.kept + pass.losses;
                most.activations = most.activations.max(kept);
            }
            Action::Backward { micro, chunk } => {
                let (training, passes) = order[micro];
                kept -= passes[chunk].kept;
                gradients[training * chunks + chunk] = passes[chunk].gradients;
                most.gradients = most.gradients.max(gradients.iter().sum());
            }
        }
    }
    most
}
