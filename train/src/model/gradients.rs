//! Gradient buffers of one rank for one block of sequences, by slot (a tied head has its own beside
//! the embedding's, so that both sums keep their own tree).

use kernels::{DType, Device, Tensor};

use crate::model::context::Slot;

/// Buffers of some slots. A new one is fresh: the first contribution replaces what is there.
pub(crate) struct Gradients {
    tensors: Vec<Option<Tensor>>,
    is_fresh: bool,
}

impl Gradients {
    /// For the slots of a part; `dims` are those of all slots.
    pub(crate) fn of(
        slots: &[Slot],
        dims: &[Vec<usize>],
        device: &Device,
    ) -> kernels::Result<Gradients> {
        let mut tensors: Vec<Option<Tensor>> = dims.iter().map(|_| None).collect();
        for &slot in slots {
            tensors[slot] = Some(Tensor::empty(&dims[slot], DType::F32, device)?);
        }
        Ok(Gradients {
            tensors,
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
        let tensor = self.tensors[slot].as_mut();
        (
            tensor.expect("a part's gradients are open when it runs backwards"),
            !self.is_fresh,
        )
    }

    /// Buffers for operations that can only add.
    pub(crate) fn sums<const N: usize>(&mut self, slots: [Slot; N]) -> [&mut Tensor; N] {
        let is_fresh = self.is_fresh;
        let buffers = self
            .tensors
            .get_disjoint_mut(slots)
            .expect("the slots of one layer are distinct and within the list");
        buffers.map(|tensor| {
            let tensor = tensor
                .as_mut()
                .expect("a part's gradients are open when it runs backwards");
            if is_fresh {
                tensor.fill(0.0);
            }
            tensor
        })
    }

    /// As `sums`, for ascending slots.
    pub(crate) fn sums_of(&mut self, slots: &[Slot]) -> Vec<&mut Tensor> {
        let is_fresh = self.is_fresh;
        let all = self.tensors.iter_mut().enumerate();
        let wanted = all.filter(|(slot, _)| slots.binary_search(slot).is_ok());
        wanted
            .map(|(_, tensor)| {
                let tensor = tensor
                    .as_mut()
                    .expect("a part's gradients are open when it runs backwards");
                if is_fresh {
                    tensor.fill(0.0);
                }
                tensor
            })
            .collect()
    }

    /// The buffer of a slot that this set has.
    pub(crate) fn tensor(&self, slot: Slot) -> &Tensor {
        self.tensors[slot]
            .as_ref()
            .expect("a set of gradients is asked for its own slots")
    }

    /// Gives away the buffer of a slot that this set has.
    pub(crate) fn take(&mut self, slot: Slot) -> Tensor {
        self.tensors[slot]
            .take()
            .expect("a set of gradients is asked for its own slots")
    }

    /// All buffers, to merge two sets of the same slots.
    pub(crate) fn present_mut(&mut self) -> impl Iterator<Item = (Slot, &mut Tensor)> {
        let all = self.tensors.iter_mut().enumerate();
        all.filter_map(|(slot, tensor)| Some((slot, tensor.as_mut()?)))
    }
}
