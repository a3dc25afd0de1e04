//! A run of a tensor's elements, without a copy: for ops on flat tensors, such as optimizers over shards.

use crate::cuda::Address;
use crate::device::Kind;
use crate::{DType, Device, Element, Error, Result, Tensor};
use std::borrow::Cow;
use std::ops::Range;

/// Some elements of a tensor, to read.
#[derive(Clone, Copy)]
pub struct View<'a> {
    tensor: &'a Tensor,
    start: usize,
    len: usize,
}

/// Some elements of a tensor, to write.
pub struct ViewMut<'a> {
    tensor: &'a mut Tensor,
    start: usize,
    len: usize,
}

impl Tensor {
    /// All elements, flat.
    pub fn view(&self) -> View<'_> {
        View {
            start: 0,
            len: self.elements(),
            tensor: self,
        }
    }

    /// All elements, flat, to write.
    pub fn view_mut(&mut self) -> ViewMut<'_> {
        ViewMut {
            start: 0,
            len: self.elements(),
            tensor: self,
        }
    }

    /// Elements `range`, counted over all dims.
    /// # Errors
    /// `Argument` if it does not have them.
    pub fn flat(&self, range: Range<usize>) -> Result<View<'_>> {
        self.expect_range(&range)?;
        Ok(View {
            start: range.start,
            len: range.len(),
            tensor: self,
        })
    }

    /// Elements `range`, counted over all dims, to write.
    /// # Errors
    /// `Argument` if it does not have them.
    pub fn flat_mut(&mut self, range: Range<usize>) -> Result<ViewMut<'_>> {
        self.expect_range(&range)?;
        Ok(ViewMut {
            start: range.start,
            len: range.len(),
            tensor: self,
        })
    }

    fn expect_range(&self, range: &Range<usize>) -> Result<()> {
        if range.start <= range.end && range.end <= self.elements() {
            return Ok(());
        }
        Err(Error::Argument {
            op: "flat",
            name: "range",
            found: format!("{range:?}"),
            wanted: format!("a range within {} elements", self.elements()),
        })
    }
}

impl<'a> View<'a> {
    /// Number of elements.
    #[expect(clippy::len_without_is_empty, reason = "as of a tensor's elements")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Kind of number.
    pub fn dtype(&self) -> DType {
        self.tensor.dtype()
    }

    /// The device of its memory.
    pub fn device(&self) -> &'a Device {
        self.tensor.device()
    }

    /// Elements `range` of it.
    /// # Errors
    /// `Argument` if it does not have them.
    pub fn part(&self, range: Range<usize>) -> Result<View<'a>> {
        if range.end > self.len {
            return Err(outside(&range, self.len));
        }
        self.tensor
            .flat(self.start + range.start..self.start + range.end)
    }

    /// The values, where they are in host memory.
    /// # Errors
    /// `NotOnHost` if they are on another device; `DType` if the tensor holds other numbers.
    pub fn host<T: Element>(&self) -> Result<&'a [T]> {
        let all = self.tensor.host::<T>()?;
        Ok(&all[self.start..self.start + self.len])
    }

    /// Copies the values to the host, after all work that was given to the device before.
    /// # Errors
    /// `Argument` if `to` is not as long; `DType` if the tensor holds other numbers; `Driver` if the device fails.
    pub fn download_to<T: Element>(&self, to: &mut [T]) -> Result<()> {
        self.tensor.expect("download", "tensor", T::DTYPE)?;
        expect_len("download", to.len(), self.len)?;
        match self.tensor.device().kind() {
            Kind::Cpu => to.copy_from_slice(self.host()?),
            Kind::Cuda(cuda) => cuda.download(bytemuck::cast_slice_mut(to), self.address())?,
        }
        Ok(())
    }

    /// The values on the host: lent where they are there, else copied after all work that was given to the device
    /// before.
    /// # Errors
    /// `DType` if the tensor holds other numbers; `Driver` if the device fails.
    pub fn read<T: Element>(&self) -> Result<Cow<'a, [T]>> {
        if self.device().is_host() {
            return Ok(Cow::Borrowed(self.host()?));
        }
        let mut values = vec![T::zeroed(); self.len];
        self.download_to(&mut values)?;
        Ok(Cow::Owned(values))
    }

    /// A copy of the values on the host.
    /// # Errors
    /// As `read`.
    pub fn download<T: Element>(&self) -> Result<Vec<T>> {
        Ok(self.read()?.into_owned())
    }

    /// The values, for the CPU backend.
    /// # Panics
    /// If they are not f32 in host memory.
    pub(crate) fn f32(&self) -> &'a [f32] {
        &self.tensor.f32()[self.start..self.start + self.len]
    }

    /// The address of the first value, for kernels.
    pub(crate) fn address(&self) -> Address {
        let Address(first) = self.tensor.address();
        Address(first + (self.start * self.dtype().bytes()) as u64)
    }
}

impl ViewMut<'_> {
    /// Number of elements.
    #[expect(clippy::len_without_is_empty, reason = "as of a tensor's elements")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Kind of number.
    pub fn dtype(&self) -> DType {
        self.tensor.dtype()
    }

    /// The device of its memory.
    pub fn device(&self) -> &Device {
        self.tensor.device()
    }

    /// The same elements, for a shorter time.
    pub fn reborrow(&mut self) -> ViewMut<'_> {
        ViewMut {
            start: self.start,
            len: self.len,
            tensor: self.tensor,
        }
    }

    /// The same elements, to read.
    pub fn as_view(&self) -> View<'_> {
        View {
            start: self.start,
            len: self.len,
            tensor: self.tensor,
        }
    }

    /// Elements `range` of it.
    /// # Errors
    /// `Argument` if it does not have them.
    pub fn part(&mut self, range: Range<usize>) -> Result<ViewMut<'_>> {
        if range.end > self.len {
            return Err(outside(&range, self.len));
        }
        self.tensor
            .flat_mut(self.start + range.start..self.start + range.end)
    }

    /// The values, to write, where they are in host memory.
    /// # Errors
    /// `NotOnHost` if they are on another device; `DType` if the tensor holds other numbers.
    pub fn host_mut<T: Element>(&mut self) -> Result<&mut [T]> {
        let all = self.tensor.host_mut::<T>()?;
        Ok(&mut all[self.start..self.start + self.len])
    }

    /// Copies values from the host.
    /// # Errors
    /// `Argument` if `values` are not as many; `DType` if the tensor holds other numbers; `Driver` if the device fails.
    pub fn upload<T: Element>(&mut self, values: &[T]) -> Result<()> {
        self.tensor.expect("upload", "tensor", T::DTYPE)?;
        expect_len("upload", values.len(), self.len)?;
        let to = self.address();
        match self.tensor.device().kind() {
            Kind::Cpu => self.host_mut()?.copy_from_slice(values),
            Kind::Cuda(cuda) => cuda.upload(to, bytemuck::cast_slice(values))?,
        }
        Ok(())
    }

    /// Lets `change` change the values on the host: in place where they are there, else in a copy that returns to the
    /// device.
    /// # Errors
    /// `DType` if the tensor holds other numbers; `Driver` if the device fails.
    pub fn edit<T: Element, R>(&mut self, change: impl FnOnce(&mut [T]) -> R) -> Result<R> {
        if self.device().is_host() {
            return Ok(change(self.host_mut()?));
        }
        let mut values = self.as_view().download()?;
        let result = change(&mut values);
        self.upload(&values)?;
        Ok(result)
    }

    /// Like `edit`, for all values anew: those that `write` receives are unspecified.
    /// # Errors
    /// As `edit`.
    pub fn renew<T: Element, R>(&mut self, write: impl FnOnce(&mut [T]) -> R) -> Result<R> {
        if self.device().is_host() {
            return Ok(write(self.host_mut()?));
        }
        let mut values = vec![T::zeroed(); self.len];
        let result = write(&mut values);
        self.upload(&values)?;
        Ok(result)
    }

    /// The values, to write, for the CPU backend.
    /// # Panics
    /// If they are not f32 in host memory.
    pub(crate) fn f32_mut(&mut self) -> &mut [f32] {
        &mut self.tensor.f32_mut()[self.start..self.start + self.len]
    }

    /// The address of the first value, for kernels.
    pub(crate) fn address(&self) -> Address {
        self.as_view().address()
    }
}

/// The words of several u32 tensors of one device on the host, by one download: they are put side by side on the device
/// first. Waits for the device once, however many there are.
/// # Errors
/// `DType` if one is no u32; `Memory`; `Driver` if the device fails.
pub fn download_words(tensors: &[&Tensor]) -> Result<Vec<Vec<u32>>> {
    for tensor in tensors {
        tensor.expect("download_words", "tensors", DType::U32)?;
    }
    let is_one_download = tensors.len() > 1 && tensors.iter().all(|x| !x.device().is_host());
    let (Some(first), true) = (tensors.first(), is_one_download) else {
        return tensors.iter().map(|tensor| tensor.download()).collect();
    };
    let total: usize = tensors.iter().map(|tensor| tensor.elements()).sum();
    let all = Tensor::empty(&[total], DType::U32, first.device())?;
    let mut start = 0;
    for tensor in tensors {
        let len = tensor.elements();
        if let (Kind::Cuda(cuda), true) = (first.device().kind(), len > 0) {
            let to = all.flat(start..start + len)?.address();
            cuda.copy(to, tensor.address(), len * DType::U32.bytes())?;
        }
        start += len;
    }
    let words: Vec<u32> = all.download()?;
    let mut rest = words.as_slice();
    let parts = tensors.iter().map(|tensor| {
        let (part, later) = rest.split_at(tensor.elements());
        rest = later;
        part.to_vec()
    });
    Ok(parts.collect())
}

/// Checks that these are f32, and the others are as many f32 on the same kind of device.
pub(crate) fn expect_alike(
    op: &'static str,
    first: View<'_>,
    others: &[(&'static str, View<'_>)],
) -> Result<()> {
    first.tensor.expect(op, "first", DType::F32)?;
    for (name, other) in others {
        other.tensor.expect(op, name, DType::F32)?;
        if other.len != first.len {
            return Err(Error::Argument {
                op,
                name,
                found: format!("{} elements", other.len),
                wanted: format!("{}", first.len),
            });
        }
        if other.device().is_host() != first.device().is_host() {
            return Err(Error::Argument {
                op,
                name,
                found: other.device().name().to_owned(),
                wanted: first.device().name().to_owned(),
            });
        }
    }
    Ok(())
}

fn expect_len(op: &'static str, found: usize, len: usize) -> Result<()> {
    if found == len {
        return Ok(());
    }
    Err(Error::Argument {
        op,
        name: "values",
        found: format!("{found} of them"),
        wanted: format!("{len}"),
    })
}

fn outside(range: &Range<usize>, len: usize) -> Error {
    Error::Argument {
        op: "part",
        name: "range",
        found: format!("{range:?}"),
        wanted: format!("a range within {len} elements"),
    }
}
