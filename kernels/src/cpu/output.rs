//! Output memory of products, f32 or bf16, shared by tasks that write disjoint tiles.
#![expect(unsafe_code, reason = "tasks write disjoint tiles of one output")]

use super::simd::Lanes;
use crate::{Bf16, DType, Tensor};

/// Bytes of a line of memory.
pub(crate) const LINE: usize = 64;

/// Borrowed for a whole product.
pub(crate) enum DataMut<'a> {
    F32(&'a mut [f32]),
    Bf16(&'a mut [Bf16]),
}

impl<'a> From<&'a mut [f32]> for DataMut<'a> {
    fn from(data: &'a mut [f32]) -> Self {
        DataMut::F32(data)
    }
}

impl<'a> DataMut<'a> {
    /// The values of a tensor of f32 or bf16.
    pub(crate) fn of(x: &'a mut Tensor) -> DataMut<'a> {
        match x.dtype() {
            DType::Bf16 => DataMut::Bf16(x.bf16_mut()),
            _ => DataMut::F32(x.f32_mut()),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            DataMut::F32(x) => x.len(),
            DataMut::Bf16(x) => x.len(),
        }
    }

    /// The first `len` numbers and the others.
    pub(crate) fn split_at(self, len: usize) -> (DataMut<'a>, DataMut<'a>) {
        match self {
            DataMut::F32(x) => {
                let (first, rest) = x.split_at_mut(len);
                (DataMut::F32(first), DataMut::F32(rest))
            }
            DataMut::Bf16(x) => {
                let (first, rest) = x.split_at_mut(len);
                (DataMut::Bf16(first), DataMut::Bf16(rest))
            }
        }
    }

    /// Zeros everywhere.
    pub(crate) fn clear(self) {
        match self {
            DataMut::F32(x) => x.fill(0.0),
            DataMut::Bf16(x) => x.fill(Bf16::default()),
        }
    }

    pub(crate) fn shared(&mut self) -> Shared {
        match self {
            DataMut::F32(x) => Shared::F32(x.as_mut_ptr()),
            DataMut::Bf16(x) => Shared::Bf16(x.as_mut_ptr()),
        }
    }
}

/// The start of an output that many tasks write, each its own tiles.
#[derive(Clone, Copy)]
pub(crate) enum Shared {
    F32(*mut f32),
    Bf16(*mut Bf16),
}

// SAFETY: tasks write disjoint tiles of the exclusively borrowed output.
unsafe impl Send for Shared {}
// SAFETY: each tile is written by one task, so shared pointers never race.
unsafe impl Sync for Shared {}

impl Shared {
    /// Prefetches the lines of elements first .. first + len.
    #[inline(always)]
    pub(crate) fn prefetch<L: Lanes>(self, first: usize, len: usize) {
        match self {
            Shared::F32(x) => {
                for at in (first..first + len).step_by(LINE / size_of::<f32>()) {
                    L::prefetch_to_l2(x.wrapping_add(at));
                }
            }
            Shared::Bf16(x) => {
                for at in (first..first + len).step_by(LINE / size_of::<Bf16>()) {
                    L::prefetch_to_l2(x.wrapping_add(at).cast());
                }
            }
        }
    }
}

/// Borrowed to read.
#[derive(Clone, Copy)]
pub(crate) enum Data<'a> {
    F32(&'a [f32]),
    Bf16(&'a [Bf16]),
}

impl<'a> Data<'a> {
    /// The values of a tensor of f32 or bf16.
    pub(crate) fn of(x: &'a Tensor) -> Data<'a> {
        match x.dtype() {
            DType::Bf16 => Data::Bf16(x.bf16()),
            _ => Data::F32(x.f32()),
        }
    }

    /// Elements first .. end.
    pub(crate) fn part(self, first: usize, end: usize) -> Data<'a> {
        match self {
            Data::F32(x) => Data::F32(&x[first..end]),
            Data::Bf16(x) => Data::Bf16(&x[first..end]),
        }
    }

    /// Prefetches the lines of elements first .. first + len.
    #[inline(always)]
    pub(crate) fn prefetch<L: Lanes>(self, first: usize, len: usize) {
        match self {
            Data::F32(x) => {
                for at in (first..first + len).step_by(LINE / size_of::<f32>()) {
                    L::prefetch_to_l2(x.as_ptr().wrapping_add(at));
                }
            }
            Data::Bf16(x) => {
                for at in (first..first + len).step_by(LINE / size_of::<Bf16>()) {
                    L::prefetch_to_l2(x.as_ptr().wrapping_add(at).cast());
                }
            }
        }
    }
}
