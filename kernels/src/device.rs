//! Device: memory of tensors and backend of ops: the CPU, or an NVIDIA GPU.
//!
//! Caching allocator: a device keeps freed buffers by size, so the tensors of a training step cost no page faults
//! after the first step. The pool never holds more than the peak of live bytes; beyond that, memory returns to the
//! system. Clones share the pool. Nothing is global: two devices are independent of each other.

use crate::arena::Arena;
use crate::buffer::Buffer;
use crate::cuda::{self, Cuda};
use crate::{Error, Isa, Result};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A device for tensors. Cheap to clone.
#[derive(Clone)]
pub struct Device(Arc<Shared>, Use);

/// Purpose of tensors, for separate memory accounting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Activations and scratch: everything without another purpose.
    Work,
    /// Weights, whole, in shards or gathered.
    Weights,
    /// Gradients and their sums.
    Gradients,
    /// The optimizer's state.
    Optimizer,
}

/// Kind of device, for dispatch.
#[derive(Clone, Copy)]
pub(crate) enum Kind<'a> {
    Cpu,
    Cuda(&'a Arc<Cuda>),
}

enum Backend {
    Cpu,
    Cuda(Arc<Cuda>),
}

struct Shared {
    backend: Backend,
    name: String,
    /// Of the host's vectors.
    isa: Isa,
    memory: Mutex<Memory>,
    /// Cache of the last table of rotary angles, which a step uses many times.
    table: Mutex<Option<CachedTable>>,
    /// Tables in the memory of a CUDA device, the last ones used first.
    words: Mutex<Vec<CachedWords>>,
}

/// All that a table depends on, as words, and the table.
type CachedTable = (Vec<u64>, Arc<Vec<f32>>);

/// The same of a table in a device's memory.
type CachedWords = (Vec<u64>, Arc<Buffer>);

/// Tables that a CUDA device keeps.
const KEPT_TABLES: usize = 8;

#[derive(Default)]
struct Memory {
    free: BTreeMap<usize, Vec<Buffer>>,
    free_bytes: usize,
    live_bytes: usize,
    peak_bytes: usize,
    arena: Option<Arena>,
    /// Peak bytes that came from the system outside the arena.
    overflow_bytes: usize,
    overflow_live: usize,
    /// By use.
    live_by_use: [usize; 4],
}

impl Device {
    /// A CPU that runs ops with `isa`, which the caller has found on this machine (`cpu/detect.rs`).
    pub(crate) fn unchecked(isa: Isa) -> Device {
        let name = match isa {
            Isa::Amx => "cpu (avx512, bf16, amx)",
            Isa::Avx512Bf16 => "cpu (avx512, bf16)",
            Isa::Avx512 => "cpu (avx512)",
            Isa::Avx2 => "cpu (avx2)",
            Isa::Neon => "cpu (neon)",
            Isa::Portable => "cpu (portable)",
        };
        Device::of(Backend::Cpu, name.to_owned(), isa)
    }

    /// An NVIDIA GPU, whose host code uses `isa`.
    pub(crate) fn on_cuda(options: &cuda::Options, isa: Isa) -> Result<Device> {
        let cuda = Cuda::open(options)?;
        let name = cuda.label();
        Ok(Device::of(Backend::Cuda(Arc::new(cuda)), name, isa))
    }

    fn of(backend: Backend, name: String, isa: Isa) -> Device {
        let shared = Shared {
            backend,
            name,
            isa,
            memory: Mutex::default(),
            table: Mutex::new(None),
            words: Mutex::default(),
        };
        Device(Arc::new(shared), Use::Work)
    }

    /// Takes one block of `bytes` from the system, from which tensors are cut from now on.
    /// # Errors
    /// `Memory` if the system does not give it.
    pub fn reserve(&self, bytes: usize) -> Result<()> {
        let lacking = || Error::Memory {
            device: self.name().to_owned(),
            bytes,
        };
        let size = Buffer::round_up(bytes).ok_or_else(lacking)?;
        let block = self.allocate(size).ok_or_else(lacking)?;
        self.memory().arena = Some(Arena::of(block));
        Ok(())
    }

    /// A new block of memory; zeros on the host, unspecified values elsewhere.
    fn allocate(&self, size: usize) -> Option<Buffer> {
        match &self.0.backend {
            Backend::Cpu => Buffer::zeroed(size),
            Backend::Cuda(cuda) => Buffer::on_cuda(cuda, size),
        }
    }

    /// True if the host reads and writes its tensors.
    pub fn is_host(&self) -> bool {
        matches!(self.0.backend, Backend::Cpu)
    }

    /// Waits until all work that was given to the device is done.
    /// # Errors
    /// `Driver` if it failed.
    pub fn synchronize(&self) -> Result<()> {
        match &self.0.backend {
            Backend::Cpu => Ok(()),
            Backend::Cuda(cuda) => cuda.synchronize(),
        }
    }

    /// Peak bytes that did not fit the arena; 0 without one.
    pub fn overflow_bytes(&self) -> usize {
        self.memory().overflow_bytes
    }

    /// The same device for tensors of another use.
    pub fn for_use(&self, purpose: Use) -> Device {
        Device(Arc::clone(&self.0), purpose)
    }

    /// Bytes held by live tensors of this handle's use now.
    pub fn used_bytes(&self) -> usize {
        self.memory().live_by_use[self.1 as usize]
    }

    /// Bytes that a tensor of this many 4-byte elements takes.
    pub fn bytes_of(elements: usize) -> usize {
        Buffer::round_up(elements.saturating_mul(4)).unwrap_or(usize::MAX)
    }

    /// Name for messages, such as `cpu (avx512)`.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Bytes held by live tensors now.
    pub fn allocated_bytes(&self) -> usize {
        self.memory().live_bytes
    }

    /// Peak bytes held by live tensors.
    pub fn peak_bytes(&self) -> usize {
        self.memory().peak_bytes
    }

    pub(crate) fn kind(&self) -> Kind<'_> {
        match &self.0.backend {
            Backend::Cpu => Kind::Cpu,
            Backend::Cuda(cuda) => Kind::Cuda(cuda),
        }
    }

    pub(crate) fn isa(&self) -> Isa {
        self.0.isa
    }

    /// Returns the table that a backend cached under `key`, made by `make` if another one was.
    pub(crate) fn cached_table(
        &self,
        key: impl Iterator<Item = u64> + Clone,
        make: impl FnOnce() -> Vec<f32>,
    ) -> Arc<Vec<f32>> {
        let mut cached = self.0.table.lock().unwrap_or_else(PoisonError::into_inner);
        match &*cached {
            Some((found, table)) if found.iter().copied().eq(key.clone()) => Arc::clone(table),
            _ => {
                let table = Arc::new(make());
                *cached = Some((key.collect(), Arc::clone(&table)));
                table
            }
        }
    }

    /// Like `cached_table` for a CUDA device, in its memory: of the tables that were asked for, the last few are kept.
    pub(crate) fn cached_words<T: bytemuck::Pod>(
        &self,
        key: impl Iterator<Item = u64> + Clone,
        make: impl FnOnce() -> Vec<T>,
    ) -> Result<Arc<Buffer>> {
        let mut cached = self.0.words.lock().unwrap_or_else(PoisonError::into_inner);
        let found = (cached.iter()).position(|(found, _)| found.iter().copied().eq(key.clone()));
        let entry = match (found, &self.0.backend) {
            (Some(at), _) => cached.remove(at),
            (None, Backend::Cuda(cuda)) => {
                let table = make();
                let bytes: &[u8] = bytemuck::cast_slice(&table);
                let lacking = || Error::Memory {
                    device: self.name().to_owned(),
                    bytes: bytes.len(),
                };
                let size = Buffer::round_up(bytes.len()).ok_or_else(lacking)?;
                let buffer = self.allocate(size).ok_or_else(lacking)?;
                cuda.upload(buffer.address(), bytes)?;
                (key.collect(), Arc::new(buffer))
            }
            (None, Backend::Cpu) => unreachable!("tables of the CPU are in `cached_table`"),
        };
        let table = Arc::clone(&entry.1);
        cached.insert(0, entry);
        cached.truncate(KEPT_TABLES);
        Ok(table)
    }

    // A panic elsewhere cannot leave the counters half written, so a poisoned lock is still good.
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.0.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a buffer of at least `bytes` initialised bytes with unspecified values.
    pub(crate) fn take(&self, bytes: usize) -> Result<Buffer> {
        let lacking = |bytes| Error::Memory {
            device: self.name().to_owned(),
            bytes,
        };
        let size = Buffer::round_up(bytes).ok_or_else(|| lacking(bytes))?;
        let pooled = {
            let mut memory = self.memory();
            let part = memory.arena.as_mut().and_then(|arena| arena.take(size));
            let pooled = match part {
                Some(part) => Some(part),
                None => {
                    if memory.arena.is_some() {
                        memory.overflow_live += size;
                        memory.overflow_bytes = memory.overflow_bytes.max(memory.overflow_live);
                    }
                    let pooled = memory.free.get_mut(&size).and_then(Vec::pop);
                    if pooled.is_some() {
                        memory.free_bytes -= size;
                    }
                    pooled
                }
            };
            memory.live_bytes += size;
            memory.live_by_use[self.1 as usize] += size;
            memory.peak_bytes = memory.peak_bytes.max(memory.live_bytes);
            pooled
        };
        // Zeroing a large block outside the lock keeps other threads going.
        match pooled.or_else(|| self.allocate(size)) {
            Some(buffer) => Ok(buffer),
            None => {
                let mut memory = self.memory();
                memory.live_bytes -= size;
                memory.live_by_use[self.1 as usize] -= size;
                if memory.arena.is_some() {
                    memory.overflow_live -= size;
                }
                drop(memory);
                Err(lacking(size))
            }
        }
    }

    /// Takes a buffer back.
    pub(crate) fn give(&self, buffer: Buffer) {
        let size = buffer.bytes();
        let mut memory = self.memory();
        memory.live_bytes -= size;
        memory.live_by_use[self.1 as usize] -= size;
        if let Some(arena) = &mut memory.arena {
            if let Some(offset) = buffer.offset() {
                arena.give(buffer, offset);
                return;
            }
            memory.overflow_live -= size;
        }
        if memory.free_bytes + size <= memory.peak_bytes {
            memory.free_bytes += size;
            memory.free.entry(size).or_default().push(buffer);
        } else {
            drop(memory);
            drop(buffer);
        }
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Tensor};

    #[test]
    fn freed_buffers_are_used_again() {
        let device = Device::cpu();
        let first = Tensor::empty(&[1000], DType::F32, &device).unwrap();
        let address = first.f32().as_ptr();
        drop(first);
        assert_eq!(device.allocated_bytes(), 0);
        let second = Tensor::empty(&[1000], DType::F32, &device).unwrap();
        assert_eq!(second.f32().as_ptr(), address);
        assert_eq!(device.allocated_bytes(), 4032);
        assert_eq!(device.peak_bytes(), 4032);
    }

    #[test]
    fn an_arena_serves_tensors_and_counts_what_does_not_fit() {
        let device = Device::with_arena(Isa::detect(), 1000).unwrap();
        let first = Tensor::zeros(&[200], DType::F32, &device).unwrap();
        let address = first.f32().as_ptr();
        assert_eq!(device.overflow_bytes(), 0);
        let second = Tensor::zeros(&[200], DType::F32, &device).unwrap();
        assert_eq!(device.overflow_bytes(), Device::bytes_of(200));
        drop(first);
        let third = Tensor::zeros(&[100], DType::F32, &device).unwrap();
        assert_eq!(third.f32().as_ptr(), address);
        drop((second, third));
        assert_eq!(device.allocated_bytes(), 0);
        assert_eq!(device.overflow_bytes(), Device::bytes_of(200));
    }

    #[test]
    fn bytes_are_counted_by_use() {
        let device = Device::cpu();
        let weights = device.for_use(Use::Weights);
        let x = Tensor::empty(&[100], DType::F32, &weights).unwrap();
        let y = Tensor::empty(&[3], DType::U32, &device).unwrap();
        assert_eq!(weights.used_bytes(), Device::bytes_of(100));
        assert_eq!(device.used_bytes(), Device::bytes_of(3));
        assert_eq!(device.allocated_bytes(), 448 + 64);
        drop((x, y));
        assert_eq!((weights.used_bytes(), device.used_bytes()), (0, 0));
    }

    #[test]
    fn zeros_are_zero_in_a_used_buffer() {
        let device = Device::cpu();
        drop(Tensor::from_f32(&[3], &[1.0, 2.0, 3.0], &device).unwrap());
        let zeros = Tensor::zeros(&[3], DType::F32, &device).unwrap();
        assert_eq!(zeros.f32(), &[0.0; 3]);
    }

    #[test]
    fn impossible_sizes_are_an_error() {
        let found = Tensor::empty(&[usize::MAX / 8, 3], DType::F32, &Device::cpu());
        assert!(matches!(found, Err(Error::Memory { .. })));
    }
}
