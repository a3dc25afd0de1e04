//! Gradient buffers of one rank for one block of sequences, by slot. A tied head has its own buffer beside the
//! embedding's, so that both sums keep their own tree.

use std::ops::Range;

use kernels::{DType, Device, Tensor};

use crate::model::slots::Slot;

/// Floats per cache line.
const LINE: usize = 16;

/// Buffers of some slots. A new one is fresh: the first contribution replaces what is there.
pub(crate) struct Gradients {
    tensors: Vec<Option<Tensor>>,
    is_fresh: bool,
}

impl Gradients {
    /// For the slots of a layer; `dims` are those of all slots. The buffers of a unit are contiguous where cache
    /// lines allow it.
    pub(crate) fn of(
        units: &[Range<Slot>],
        dims: &[Vec<usize>],
        device: &Device,
    ) -> kernels::Result<Gradients> {
        let mut tensors: Vec<Option<Tensor>> = dims.iter().map(|_| None).collect();
        for unit in units {
            let dims: Vec<&[usize]> = dims[unit.clone()].iter().map(Vec::as_slice).collect();
            let lens = || dims.iter().map(|dims| dims.iter().product::<usize>());
            let is_in_lines = lens().rev().skip(1).all(|len| len.is_multiple_of(LINE));
            let parts = if is_in_lines && lens().all(|len| len > 0) {
                Tensor::empty(&[lens().sum()], DType::F32, device)?.cut(&dims)?
            } else {
                let each = dims
                    .iter()
                    .map(|dims| Tensor::empty(dims, DType::F32, device));
                each.collect::<kernels::Result<_>>()?
            };
            for (slot, part) in unit.clone().zip(parts) {
                tensors[slot] = Some(part);
            }
        }
        Ok(Gradients {
            tensors,
            is_fresh: true,
        })
    }

    /// Marks the contents as stale without touching memory.
    pub(crate) fn restart(&mut self) {
        self.is_fresh = true;
    }

    /// To be called after the first micro-batch was added.
    pub(crate) fn keep(&mut self) {
        self.is_fresh = false;
    }

    /// Whether the gradient of a slot is wanted: those of frozen weights are not.
    pub(crate) fn has(&self, slot: Slot) -> bool {
        self.tensors.get(slot).is_some_and(Option::is_some)
    }

    /// Buffer and whether the operation must add to it (else it overwrites).
    pub(crate) fn target(&mut self, slot: Slot) -> (&mut Tensor, bool) {
        let tensor = self.tensors[slot].as_mut();
        (
            tensor.expect("a part's gradients are open when it runs backwards"),
            !self.is_fresh,
        )
    }

    /// Runs `of` with some rows of a buffer, which start a line of memory, and whether it must add to them.
    pub(crate) fn in_rows(
        &mut self,
        slot: Slot,
        rows: Range<usize>,
        of: impl FnOnce(&mut Tensor, bool) -> kernels::Result<()>,
    ) -> kernels::Result<()> {
        let whole = self.tensors[slot]
            .take()
            .expect("a part's gradients are open when it runs backwards");
        let (all, width) = (whole.dims()[0], whole.dims()[1..].to_vec());
        let runs = [rows.start, rows.len(), all - rows.end];
        let dims = runs.map(|run| [&[run], width.as_slice()].concat());
        let dims: Vec<&[usize]> = (dims.iter().filter(|dims| dims[0] > 0))
            .map(Vec::as_slice)
            .collect();
        let mut parts = whole.cut(&dims)?;
        let done = of(&mut parts[usize::from(rows.start > 0)], !self.is_fresh);
        let whole = Tensor::joined(parts).expect("these are all parts in their order");
        self.tensors[slot] = Some(whole);
        done
    }

    /// Buffers for operations that can only add.
    pub(crate) fn sums<const N: usize>(
        &mut self,
        slots: [Slot; N],
    ) -> kernels::Result<[&mut Tensor; N]> {
        let buffers = self
            .tensors
            .get_disjoint_mut(slots)
            .expect("the slots of one layer are distinct and within the list");
        let mut buffers = buffers.map(|tensor| {
            tensor
                .as_mut()
                .expect("a part's gradients are open when it runs backwards")
        });
        if self.is_fresh {
            for tensor in &mut buffers {
                tensor.clear()?;
            }
        }
        Ok(buffers)
    }

    /// Like `sums` for gradients of the dims of `like`; those of frozen weights are written to `room` and dropped.
    pub(crate) fn sums_or<'g, const N: usize>(
        &'g mut self,
        slots: [Slot; N],
        like: &Tensor,
        room: &'g mut [Option<Tensor>; N],
    ) -> kernels::Result<[&'g mut Tensor; N]> {
        if self.has(slots[0]) {
            return self.sums(slots);
        }
        for tensor in room.iter_mut() {
            *tensor = Some(Tensor::zeros(like.dims(), DType::F32, like.device())?);
        }
        Ok(room
            .each_mut()
            .map(|tensor| tensor.as_mut().expect("just made")))
    }

    /// Like `sums`, for ascending slots.
    pub(crate) fn sums_of(&mut self, slots: &[Slot]) -> kernels::Result<Vec<&mut Tensor>> {
        let is_fresh = self.is_fresh;
        let all = self.tensors.iter_mut().enumerate();
        let wanted = all.filter(|(slot, _)| slots.binary_search(slot).is_ok());
        wanted
            .map(|(_, tensor)| {
                let tensor = tensor
                    .as_mut()
                    .expect("a part's gradients are open when it runs backwards");
                if is_fresh {
                    tensor.clear()?;
                }
                Ok(tensor)
            })
            .collect()
    }

    /// The buffer of a slot that this set has.
    pub(crate) fn tensor(&self, slot: Slot) -> &Tensor {
        self.tensors[slot]
            .as_ref()
            .expect("a set of gradients is asked for its own slots")
    }

    /// Takes the buffers of a unit as one contiguous tensor, `[elements]`; None if they are not contiguous.
    pub(crate) fn take(&mut self, unit: Range<Slot>) -> Option<Tensor> {
        let tensors = &mut self.tensors[unit];
        let taken = tensors.iter_mut().map(Option::take);
        let parts =
            taken.map(|tensor| tensor.expect("a set of gradients is asked for its own slots"));
        match Tensor::joined(parts.collect()) {
            Ok(whole) => Some(whole),
            Err(parts) => {
                for (tensor, part) in tensors.iter_mut().zip(parts) {
                    *tensor = Some(part);
                }
                None
            }
        }
    }

    /// All buffers, to merge two sets of the same slots.
    pub(crate) fn present_mut(&mut self) -> impl Iterator<Item = (Slot, &mut Tensor)> {
        let all = self.tensors.iter_mut().enumerate();
        all.filter_map(|(slot, tensor)| Some((slot, tensor.as_mut()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernels::{Error, rows};

    #[test]
    fn rows_of_a_buffer_are_written_where_they_lie_and_come_back_after_an_error() {
        let device = Device::cpu();
        // side by side in one block of memory, and a bias
        let dims = [vec![32, 3], vec![48]];
        let unit = std::slice::from_ref(&(0..2));
        let mut gradients = Gradients::of(unit, &dims, &device).unwrap();
        for slot in 0..2 {
            rows::fill(gradients.target(slot).0.view_mut(), -1.0).unwrap();
            for (run, value) in [(0..16, 0.0), (16..32, 1.0)] {
                let write = |part: &mut Tensor, accumulate| {
                    assert_eq!((part.dims()[0], accumulate), (16, slot == 1));
                    rows::fill(part.view_mut(), value)
                };
                gradients.in_rows(slot, run, write).unwrap();
            }
            gradients.keep();
        }
        let all = (0..2).map(|slot| gradients.tensor(slot));
        let found: Vec<(&[usize], &[f32])> =
            all.map(|x| (x.dims(), x.host::<f32>().unwrap())).collect();
        let of = |value: f32, count: usize| vec![value; count];
        let first = [of(0.0, 48), of(1.0, 48)].concat();
        let second = [of(0.0, 16), of(1.0, 16), of(-1.0, 16)].concat();
        assert_eq!(
            found,
            [(&[32, 3][..], &first[..]), (&[48][..], &second[..])]
        );

        let bytes = 0;
        let device = device.name().to_owned();
        let fails = |_: &mut Tensor, _| Err(Error::Memory { device, bytes });
        assert!(gradients.in_rows(1, 16..48, fails).is_err());
        assert_eq!(gradients.tensor(1).host::<f32>().unwrap(), second);
        assert!(gradients.take(0..2).is_some(), "they are still contiguous");
    }
}
