//! Gradient buffers of one rank for one block of sequences, one per weight (a tied head has its
//! own beside the embedding's, so that both sums keep their own tree).

use kernels::{DType, Device, Tensor};

use crate::model::context::Slot;

/// Buffers in slot order. After `restart` the next contribution replaces what is there.
pub(crate) struct Gradients {
    tensors: Vec<Tensor>,
    is_fresh: bool,
}

impl Gradients {
    pub(crate) fn like(dims: &[Vec<usize>], device: &Device) -> kernels::Result<Gradients> {
        let tensors = dims
            .iter()
            .map(|dims| Tensor::zeros(dims, DType::F32, device));
        Ok(Gradients {
            tensors: tensors.collect::<kernels::Result<_>>()?,
            is_fresh: true,
        })
    }

    /// Forgets the contents without touching memory.
    pub(crate) fn restart(&mut self) {
        self.is_fresh = true;
    }

    /// To be called after the first micro-batch was added.
    pub(crate) fn keep(&mut self) {
        self.is_fresh = false;
    }

    /// Buffer and whether the operation must add to it (else it overwrites).
    pub(crate) fn target(&mut self, slot: Slot) -> (&mut Tensor, bool) {
        (&mut self.tensors[slot], !self.is_fresh)
    }

    /// Buffers for operations that can only add.
    pub(crate) fn sums<const N: usize>(&mut self, slots: [Slot; N]) -> [&mut Tensor; N] {
        let is_fresh = self.is_fresh;
        let buffers = self
            .tensors
            .get_disjoint_mut(slots)
            .expect("the slots of one layer are distinct and within the list");
        buffers.map(|tensor| {
            if is_fresh {
                tensor.fill(0.0);
            }
            tensor
        })
    }

    pub(crate) fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    pub(crate) fn tensors_mut(&mut self) -> &mut [Tensor] {
        &mut self.tensors
    }
}
