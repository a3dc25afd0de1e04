//! A contiguous row-major tensor that owns its memory; rank 1 to 4, dims slowest first.

#![expect(unsafe_code, reason = "parts of a tensor lie in its memory")]

use crate::buffer::{ALIGN, Buffer};
use crate::cuda::{Address, Arg, Event};
use crate::device::Kind;
use crate::{Bf16, DType, Device, E4m3, E5m2, Error, F16, Result};
use std::borrow::Cow;
use std::marker::PhantomData;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Maximum number of dims a tensor can have.
const MAX_RANK: usize = 4;

/// A number that tensors hold.
pub trait Element: bytemuck::Pod + Send + Sync {
    /// Its kind.
    const DTYPE: DType;
}

impl Element for f32 {
    const DTYPE: DType = DType::F32;
}

impl Element for Bf16 {
    const DTYPE: DType = DType::Bf16;
}

impl Element for F16 {
    const DTYPE: DType = DType::F16;
}

impl Element for E4m3 {
    const DTYPE: DType = DType::E4m3;
}

impl Element for E5m2 {
    const DTYPE: DType = DType::E5m2;
}

impl Element for u32 {
    const DTYPE: DType = DType::U32;
}

/// Owned, contiguous, row-major, 64-byte aligned. Dropping it returns the memory to the device.
pub struct Tensor {
    // `None` only inside `drop`.
    buffer: Option<Buffer>,
    /// The tensor it was cut from, which owns the memory.
    cut_from: Option<Arc<Tensor>>,
    dims: [usize; MAX_RANK],
    rank: usize,
    dtype: DType,
    device: Device,
}

impl Tensor {
    /// Returns a tensor with unspecified (but initialised) values.
    /// # Errors
    /// `Shape` if the rank is not 1 to 4, `Memory` if it does not fit.
    pub fn empty(dims: &[usize], dtype: DType, device: &Device) -> Result<Tensor> {
        let (dims, rank, elements) = checked(dims, device)?;
        let buffer = Some(device.take(elements.saturating_mul(dtype.bytes()))?);
        Ok(Tensor {
            buffer,
            cut_from: None,
            dims,
            rank,
            dtype,
            device: device.clone(),
        })
    }

    /// Returns a tensor of zeros.
    /// # Errors
    /// As `empty`.
    pub fn zeros(dims: &[usize], dtype: DType, device: &Device) -> Result<Tensor> {
        let mut tensor = Tensor::empty(dims, dtype, device)?;
        tensor.clear()?;
        Ok(tensor)
    }

    /// Sets every element to 0.
    /// # Errors
    /// `Driver` if the device fails.
    pub fn clear(&mut self) -> Result<()> {
        match self.device.kind() {
            Kind::Cpu => {
                let bytes = self.elements() * self.dtype.bytes();
                self.buffer_mut().u8_mut(bytes).fill(0);
                Ok(())
            }
            Kind::Cuda(cuda) => cuda.clear(self.address(), self.len_bytes()),
        }
    }

    /// Returns a tensor with these values, last dim fastest.
    /// # Errors
    /// `Shape` if `values` is not as long as `dims` says; else as `empty`.
    pub fn from_host<T: Element>(dims: &[usize], values: &[T], device: &Device) -> Result<Tensor> {
        let mut tensor = Tensor::empty(dims, T::DTYPE, device)?;
        tensor.expect_len("from_host", values.len())?;
        tensor.upload(values)?;
        Ok(tensor)
    }

    /// `from_host` of f32.
    /// # Errors
    /// As `from_host`.
    pub fn from_f32(dims: &[usize], values: &[f32], device: &Device) -> Result<Tensor> {
        Tensor::from_host(dims, values, device)
    }

    /// `from_host` of u32.
    /// # Errors
    /// As `from_host`.
    pub fn from_u32(dims: &[usize], values: &[u32], device: &Device) -> Result<Tensor> {
        Tensor::from_host(dims, values, device)
    }

    /// The values, where they are in host memory.
    /// # Errors
    /// `NotOnHost` if they are on another device; `DType` if the tensor holds other numbers.
    pub fn host<T: Element>(&self) -> Result<&[T]> {
        self.expect_on_host::<T>()?;
        Ok(bytemuck::cast_slice(self.buffer().u8(self.len_bytes())))
    }

    /// The values, to write, where they are in host memory.
    /// # Errors
    /// As `host`.
    pub fn host_mut<T: Element>(&mut self) -> Result<&mut [T]> {
        self.expect_on_host::<T>()?;
        let bytes = self.len_bytes();
        Ok(bytemuck::cast_slice_mut(self.buffer_mut().u8_mut(bytes)))
    }

    /// Copies all values to the host, after all work that was given to the device before.
    /// # Errors
    /// `DType` if the tensor holds other numbers; `Driver` if the device fails.
    pub fn download<T: Element>(&self) -> Result<Vec<T>> {
        let mut values = vec![T::zeroed(); self.elements()];
        self.view().download_to(&mut values)?;
        Ok(values)
    }

    /// Copies all values from the host.
    /// # Errors
    /// `Shape` if `values` are not as many; `DType` if the tensor holds other numbers; `Driver` if the device fails.
    pub fn upload<T: Element>(&mut self, values: &[T]) -> Result<()> {
        self.view_mut().upload(values)
    }

    /// Copies the values to a tensor on `device`.
    /// # Errors
    /// `Memory` if it does not fit; `Driver` if a device fails.
    pub fn to_device(&self, device: &Device) -> Result<Tensor> {
        let mut copy = Tensor::empty(self.dims(), self.dtype, device)?;
        let bytes = self.len_bytes();
        match (self.device.kind(), device.kind()) {
            (Kind::Cpu, Kind::Cpu) => copy.bytes_mut().copy_from_slice(self.bytes()),
            (Kind::Cpu, Kind::Cuda(cuda)) => cuda.upload(copy.address(), self.bytes())?,
            (Kind::Cuda(cuda), Kind::Cpu) => cuda.download(copy.bytes_mut(), self.address())?,
            (Kind::Cuda(from), Kind::Cuda(to)) if std::sync::Arc::ptr_eq(from, to) => {
                to.copy(copy.address(), self.address(), bytes)?;
            }
            (Kind::Cuda(from), Kind::Cuda(to)) => {
                let mut staged = vec![0; bytes];
                from.download(&mut staged, self.address())?;
                to.upload(copy.address(), &staged)?;
            }
        }
        Ok(copy)
    }

    /// The memory of the values on the host, of any type: lent where it is there, else copied.
    /// # Errors
    /// `Driver` if the device fails.
    pub fn read_bytes(&self) -> Result<Cow<'_, [u8]>> {
        match self.device.kind() {
            Kind::Cpu => Ok(Cow::Borrowed(self.bytes())),
            Kind::Cuda(cuda) => {
                let mut bytes = vec![0; self.len_bytes()];
                cuda.download(&mut bytes, self.address())?;
                Ok(Cow::Owned(bytes))
            }
        }
    }

    /// Lets `write` write the memory of all values, of the tensor's type; what it receives is unspecified.
    /// # Errors
    /// `Driver` if the device fails.
    pub fn renew_bytes<R>(&mut self, write: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        if self.device.is_host() {
            return Ok(write(self.bytes_mut()));
        }
        let mut bytes = vec![0; self.len_bytes()];
        let result = write(&mut bytes);
        if let Kind::Cuda(cuda) = self.device.kind() {
            cuda.upload(self.address(), &bytes)?;
        }
        Ok(result)
    }

    fn expect_on_host<T: Element>(&self) -> Result<()> {
        if !self.device.is_host() {
            return Err(Error::NotOnHost {
                device: self.device.name().to_owned(),
            });
        }
        self.expect("host", "tensor", T::DTYPE)
    }

    /// The address of the first value, for kernels.
    pub(crate) fn address(&self) -> Address {
        self.buffer().address()
    }

    /// Bytes of the values.
    fn len_bytes(&self) -> usize {
        self.elements() * self.dtype.bytes()
    }

    fn expect_len(&self, op: &'static str, len: usize) -> Result<()> {
        if self.elements() == len {
            return Ok(());
        }
        let wanted = format!("dims that hold {len} values");
        Err(Error::Shape {
            op,
            name: "dims",
            found: self.dims().to_vec(),
            wanted,
        })
    }

    /// Dims, slowest first.
    pub fn dims(&self) -> &[usize] {
        &self.dims[..self.rank]
    }

    /// Product of the dims.
    pub fn elements(&self) -> usize {
        self.dims().iter().product()
    }

    /// Kind of number.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The device of its memory.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the same values under other dims.
    /// # Errors
    /// `Shape` if the element counts differ or the rank is not 1 to 4.
    pub fn reshape(mut self, dims: &[usize]) -> Result<Tensor> {
        let (padded, rank, elements) = checked(dims, &self.device)?;
        if elements != self.elements() {
            let wanted = format!("the {} elements of {:?}", self.elements(), self.dims());
            return Err(Error::Shape {
                op: "reshape",
                name: "dims",
                found: dims.to_vec(),
                wanted,
            });
        }
        (self.dims, self.rank) = (padded, rank);
        Ok(self)
    }

    /// A view of some rows of the first dim, without a copy.
    /// # Errors
    /// `Shape` if it does not have them, there are none, or they start within a line of 64 bytes.
    pub fn rows(&self, rows: Range<usize>) -> Result<impl Deref<Target = Tensor>> {
        let wrong = || {
            let wanted = format!("rows {rows:?}, which start a line of {ALIGN} bytes");
            Error::Shape {
                op: "rows",
                name: "rows",
                found: self.dims().to_vec(),
                wanted,
            }
        };
        if rows.is_empty() || rows.end > self.dims[0] || self.elements() == 0 {
            return Err(wrong());
        }
        let row = self.elements() / self.dims[0] * self.dtype.bytes();
        let offset = rows.start * row;
        let lines = Buffer::round_up(rows.len() * row).ok_or_else(wrong)?;
        if !offset.is_multiple_of(ALIGN) {
            return Err(wrong());
        }
        // SAFETY: the caller gets only a shared reference to the part, for no longer than self is borrowed, so both
        // are only read while the part lives.
        let buffer = unsafe { self.buffer().lend(offset, lines) };
        let mut dims = self.dims;
        dims[0] = rows.len();
        let part = Tensor {
            buffer: Some(buffer),
            cut_from: None,
            dims,
            rank: self.rank,
            dtype: self.dtype,
            device: self.device.clone(),
        };
        Ok(Rows {
            part,
            of: PhantomData,
        })
    }

    /// Cuts it into consecutive tensors of these dims, which `joined` joins again.
    /// # Errors
    /// `Shape` if they are not its elements, or one of them but the last ends within a line of 64 bytes.
    pub fn cut(self, dims: &[&[usize]]) -> Result<Vec<Tensor>> {
        let whole = Arc::new(self);
        let (mut offset, mut parts) = (0, Vec::with_capacity(dims.len()));
        let wrong = || {
            let wanted = format!("dims of parts in lines of {ALIGN} bytes: {dims:?}");
            Error::Shape {
                op: "cut",
                name: "dims",
                found: whole.dims().to_vec(),
                wanted,
            }
        };
        let end = whole.elements() * whole.dtype.bytes();
        for part in dims {
            let (part, rank, elements) = checked(part, &whole.device)?;
            let bytes = elements.saturating_mul(whole.dtype.bytes());
            if bytes == 0 || bytes > end - offset || !offset.is_multiple_of(ALIGN) {
                return Err(wrong());
            }
            let lines = Buffer::round_up(bytes).ok_or_else(wrong)?;
            // SAFETY: parts follow each other, the whole's values are read and written by nobody while it is shared, and
            // every part keeps it.
            let buffer = unsafe { whole.buffer().lend(offset, lines) };
            offset += bytes;
            parts.push(Tensor {
                buffer: Some(buffer),
                cut_from: Some(Arc::clone(&whole)),
                dims: part,
                rank,
                dtype: whole.dtype,
                device: whole.device.clone(),
            });
        }
        if offset < end {
            return Err(wrong());
        }
        Ok(parts)
    }

    /// The tensor that these were cut from; Err with the parts if they are not all of its parts in order.
    pub fn joined(mut parts: Vec<Tensor>) -> std::result::Result<Tensor, Vec<Tensor>> {
        let Some(whole) = parts.first().and_then(|part| part.cut_from.clone()) else {
            return Err(parts);
        };
        let is_of_it = |part: &Tensor| {
            let from = part.cut_from.as_ref();
            from.is_some_and(|from| Arc::ptr_eq(from, &whole))
        };
        let in_order = parts.is_sorted_by_key(|part| part.address().0);
        let elements: usize = parts.iter().map(Tensor::elements).sum();
        if !in_order || !parts.iter().all(is_of_it) || elements != whole.elements() {
            return Err(parts);
        }
        parts.clear();
        Arc::try_unwrap(whole).map_err(|_| parts)
    }

    /// The values.
    /// # Panics
    /// If the tensor does not hold f32.
    pub(crate) fn f32(&self) -> &[f32] {
        assert_eq!(self.dtype, DType::F32, "f32() is for f32 tensors only");
        self.buffer().f32(self.elements())
    }

    /// The values, to write.
    /// # Panics
    /// If the tensor does not hold f32.
    pub(crate) fn f32_mut(&mut self) -> &mut [f32] {
        assert_eq!(self.dtype, DType::F32, "f32_mut() is for f32 tensors only");
        let elements = self.elements();
        self.buffer_mut().f32_mut(elements)
    }

    /// The values.
    /// # Panics
    /// If the tensor does not hold bf16.
    pub(crate) fn bf16(&self) -> &[Bf16] {
        assert_eq!(self.dtype, DType::Bf16, "bf16() is for bf16 tensors only");
        self.buffer().bf16(self.elements())
    }

    /// The values, to write.
    /// # Panics
    /// If the tensor does not hold bf16.
    pub(crate) fn bf16_mut(&mut self) -> &mut [Bf16] {
        assert_eq!(
            self.dtype,
            DType::Bf16,
            "bf16_mut() is for bf16 tensors only"
        );
        let elements = self.elements();
        self.buffer_mut().bf16_mut(elements)
    }

    /// The memory of the values, of any type.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.buffer().u8(self.elements() * self.dtype.bytes())
    }

    /// The memory of the values, to write values of the type.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes = self.elements() * self.dtype.bytes();
        self.buffer_mut().u8_mut(bytes)
    }

    /// The values.
    /// # Panics
    /// If the tensor does not hold u32.
    pub(crate) fn u32(&self) -> &[u32] {
        assert_eq!(self.dtype, DType::U32, "u32() is for u32 tensors only");
        self.buffer().u32(self.elements())
    }

    /// The values, to write.
    /// # Panics
    /// If the tensor does not hold u32.
    pub(crate) fn u32_mut(&mut self) -> &mut [u32] {
        assert_eq!(self.dtype, DType::U32, "u32_mut() is for u32 tensors only");
        let elements = self.elements();
        self.buffer_mut().u32_mut(elements)
    }

    /// Returns a copy on the same device.
    /// # Errors
    /// `Memory` if it does not fit.
    pub fn try_clone(&self) -> Result<Tensor> {
        self.to_device(&self.device)
    }

    fn buffer(&self) -> &Buffer {
        self.buffer
            .as_ref()
            .expect("a tensor has its buffer until it is dropped")
    }

    fn buffer_mut(&mut self) -> &mut Buffer {
        self.buffer
            .as_mut()
            .expect("a tensor has its buffer until it is dropped")
    }

    /// All dims but the last as one, and the last: how ops see rows.
    pub(crate) fn rows_cols(&self) -> (usize, usize) {
        let (last, leading) = self.dims().split_last().expect("rank is at least 1");
        (leading.iter().product(), *last)
    }

    /// Checks the type.
    pub(crate) fn expect(&self, op: &'static str, name: &'static str, wanted: DType) -> Result<()> {
        if self.dtype == wanted {
            return Ok(());
        }
        Err(Error::DType {
            op,
            name,
            found: self.dtype,
            wanted,
        })
    }

    /// Checks that this is f32 or bf16.
    pub(crate) fn expect_number(&self, op: &'static str, name: &'static str) -> Result<()> {
        match self.dtype {
            DType::Bf16 => Ok(()),
            _ => self.expect(op, name, DType::F32),
        }
    }

    /// Checks that this is an f32 tensor with exactly these dims.
    pub(crate) fn expect_f32(
        &self,
        op: &'static str,
        name: &'static str,
        dims: &[usize],
    ) -> Result<()> {
        self.expect(op, name, DType::F32)?;
        self.expect_dims(op, name, dims)
    }

    fn expect_dims(&self, op: &'static str, name: &'static str, dims: &[usize]) -> Result<()> {
        if self.dims() == dims {
            return Ok(());
        }
        let wanted = format!("{dims:?}");
        Err(Error::Shape {
            op,
            name,
            found: self.dims().to_vec(),
            wanted,
        })
    }

    /// Checks that this has the type and dims of `other`.
    pub(crate) fn expect_like(
        &self,
        op: &'static str,
        name: &'static str,
        other: &Tensor,
    ) -> Result<()> {
        self.expect(op, name, other.dtype)?;
        self.expect_dims(op, name, other.dims())
    }

    /// Checks that this is an f32 tensor of at least one element and returns (rows, last dim).
    pub(crate) fn expect_rows(
        &self,
        op: &'static str,
        name: &'static str,
    ) -> Result<(usize, usize)> {
        self.expect(op, name, DType::F32)?;
        self.expect_number_rows(op, name)
    }

    /// Like `expect_rows`, of f32 or bf16.
    pub(crate) fn expect_number_rows(
        &self,
        op: &'static str,
        name: &'static str,
    ) -> Result<(usize, usize)> {
        self.expect_number(op, name)?;
        if self.elements() > 0 {
            return Ok(self.rows_cols());
        }
        let wanted = "no dim of 0".to_owned();
        Err(Error::Shape {
            op,
            name,
            found: self.dims().to_vec(),
            wanted,
        })
    }

    /// Checks that this is a u32 tensor of `len` elements.
    pub(crate) fn expect_ids(
        &self,
        op: &'static str,
        name: &'static str,
        len: usize,
    ) -> Result<()> {
        self.expect(op, name, DType::U32)?;
        if self.elements() == len {
            return Ok(());
        }
        Err(Error::Shape {
            op,
            name,
            found: self.dims().to_vec(),
            wanted: format!("{len} elements"),
        })
    }

    /// Drops it; its memory is used again after `until`, which is an event of another device.
    pub(crate) fn retire(mut self, until: Event) {
        if self.cut_from.is_none()
            && let Some(buffer) = self.buffer.take()
        {
            self.device.hold(buffer, until);
        }
    }
}

fn checked(dims: &[usize], device: &Device) -> Result<([usize; MAX_RANK], usize, usize)> {
    let rank = dims.len();
    if rank == 0 || rank > MAX_RANK {
        let wanted = "1 to 4 dims".to_owned();
        return Err(Error::Shape {
            op: "tensor",
            name: "dims",
            found: dims.to_vec(),
            wanted,
        });
    }
    let elements = dims
        .iter()
        .try_fold(1_usize, |n, &d| n.checked_mul(d))
        .ok_or_else(|| Error::Memory {
            device: device.name().to_owned(),
            bytes: usize::MAX,
        })?;
    let mut padded = [1; MAX_RANK];
    padded[..rank].copy_from_slice(dims);
    Ok((padded, rank, elements))
}

impl Drop for Tensor {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take()
            && self.cut_from.is_none()
        {
            self.device.give(buffer);
        }
    }
}

impl From<&Tensor> for Arg {
    fn from(tensor: &Tensor) -> Arg {
        Arg::Pointer(tensor.address())
    }
}

impl From<&mut Tensor> for Arg {
    fn from(tensor: &mut Tensor) -> Arg {
        Arg::Pointer(tensor.address())
    }
}

/// Null without a tensor.
impl From<Option<&Tensor>> for Arg {
    fn from(tensor: Option<&Tensor>) -> Arg {
        tensor.map_or(Arg::NULL, Arg::from)
    }
}

/// Rows of a tensor, to read.
struct Rows<'a> {
    part: Tensor,
    of: PhantomData<&'a Tensor>,
}

impl Deref for Rows<'_> {
    type Target = Tensor;

    fn deref(&self) -> &Tensor {
        &self.part
    }
}

impl Drop for Rows<'_> {
    fn drop(&mut self) {
        // the whole owns the memory: dropping the part must not return it to the device
        self.part.buffer = None;
    }
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tensor({} {:?} on ", self.dtype, self.dims())?;
        write!(f, "{})", self.device.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_lie_in_the_whole_and_give_it_back_once() {
        let device = Device::cpu();
        let cut = |dims: &[&[usize]]| {
            let whole = Tensor::from_f32(&[40], &[1.5; 40], &device).unwrap();
            whole.cut(dims)
        };
        let mut parts = cut(&[&[16], &[2, 8], &[8]]).unwrap();
        for (i, part) in (0_u8..).zip(&mut parts) {
            assert!(part.f32().iter().all(|x| *x == 1.5));
            part.f32_mut().fill(f32::from(i));
        }
        assert_eq!(parts[1].dims(), [2, 8]);
        let whole = Tensor::joined(parts).unwrap();
        assert_eq!(whole.dims(), [40]);
        let want = [[0.0; 16].as_slice(), &[1.0; 16], &[2.0; 8]].concat();
        assert_eq!(whole.f32(), want);
        drop(whole);
        assert_eq!(device.allocated_bytes(), 0);
        // kept by any part
        let mut parts = cut(&[&[16], &[24]]).unwrap();
        let last = parts.pop();
        drop(parts);
        assert!(device.allocated_bytes() > 0);
        drop(last);
        assert_eq!(device.allocated_bytes(), 0);
        for wrong in [[16, 23], [16, 25], [8, 32], [40, 0]] {
            let dims = wrong.each_ref().map(std::slice::from_ref);
            assert!(cut(&dims).is_err(), "{wrong:?}");
        }
        assert_eq!(device.allocated_bytes(), 0);
    }

    #[test]
    fn rows_are_read_where_they_lie_and_their_memory_stays_the_tensors() {
        let device = Device::cpu();
        let values: Vec<f32> = (0..96_u8).map(f32::from).collect();
        let whole = Tensor::from_f32(&[12, 8], &values, &device).unwrap();
        let used = device.allocated_bytes();
        for rows in [0..12, 0..1, 2..3, 10..12, 4..9] {
            let part = whole.rows(rows.clone()).unwrap();
            assert_eq!(part.dims(), [rows.len(), 8]);
            assert_eq!(part.f32(), &values[rows.start * 8..rows.end * 8]);
            assert_eq!(part.f32().as_ptr(), &raw const whole.f32()[rows.start * 8]);
            assert_eq!(device.allocated_bytes(), used);
        }
        // no other tensor got the memory in between
        let other = Tensor::from_f32(&[2, 8], &[-1.0; 16], &device).unwrap();
        assert_eq!(whole.f32(), values);
        drop(other);
        // of a part of another one, too
        let mut parts = whole.cut(&[&[8, 8], &[4, 8]]).unwrap();
        let last = parts.pop().unwrap();
        assert_eq!(last.rows(2..4).unwrap().f32(), &values[80..]);
        drop(last);
        drop(parts);
        assert_eq!(device.allocated_bytes(), 0);
    }

    #[test]
    fn rows_that_are_not_there_or_start_within_a_line_are_errors() {
        let x = Tensor::zeros(&[4, 8], DType::F32, &Device::cpu()).unwrap();
        for rows in [0..5, 4..5, 2..2, 1..2, 3..4] {
            let found = x.rows(rows.clone()).map(|_| ());
            assert!(
                matches!(found, Err(Error::Shape { op: "rows", .. })),
                "{rows:?}"
            );
        }
        let none = Tensor::zeros(&[4, 0], DType::F32, &Device::cpu()).unwrap();
        assert!(none.rows(0..1).is_err());
    }

    #[test]
    fn only_all_parts_in_their_order_are_joined() {
        let device = Device::cpu();
        let cut = || {
            Tensor::zeros(&[48], DType::F32, &device)
                .unwrap()
                .cut(&[[16].as_slice(); 3])
                .unwrap()
        };
        let mut parts = cut();
        parts.swap(0, 1);
        let mut parts = Tensor::joined(parts).unwrap_err();
        parts.swap(0, 1);
        let last = parts.pop().unwrap();
        let mut parts = Tensor::joined(parts).unwrap_err();
        let mut others = cut();
        parts.push(others.pop().unwrap());
        let mut parts = Tensor::joined(parts).unwrap_err();
        parts[2] = last;
        assert!(Tensor::joined(parts).is_ok());
        others = cut();
        drop(others.pop());
        assert!(Tensor::joined(others).is_err(), "one is gone");
        assert!(Tensor::joined(Vec::new()).is_err());
        assert!(Tensor::joined(vec![Tensor::zeros(&[3], DType::F32, &device).unwrap()]).is_err());
    }

    #[test]
    fn reshape_keeps_values_and_refuses_other_counts() {
        let x = Tensor::from_f32(&[2, 3], &[0., 1., 2., 3., 4., 5.], &Device::cpu()).unwrap();
        let x = x.reshape(&[3, 1, 2]).unwrap();
        assert_eq!(x.dims(), &[3, 1, 2]);
        assert_eq!(x.f32()[4], 4.0);
        assert!(matches!(
            x.reshape(&[7]),
            Err(Error::Shape { op: "reshape", .. })
        ));
    }

    #[test]
    fn wrong_lengths_and_ranks_are_errors() {
        let device = Device::cpu();
        assert!(matches!(
            Tensor::from_u32(&[2], &[1], &device),
            Err(Error::Shape { .. })
        ));
        assert!(matches!(
            Tensor::zeros(&[], DType::F32, &device),
            Err(Error::Shape { .. })
        ));
        assert!(Tensor::zeros(&[1; 5], DType::F32, &device).is_err());
    }

    #[test]
    #[should_panic(expected = "f32() is for f32 tensors only")]
    fn reading_ids_as_f32_breaks_an_invariant() {
        let _ = Tensor::zeros(&[1], DType::U32, &Device::cpu())
            .unwrap()
            .f32();
    }
}
