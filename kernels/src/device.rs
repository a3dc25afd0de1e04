//! Device: memory of tensors and backend of ops: the CPU, or an NVIDIA GPU.
//!
//! Caching allocator: a device keeps freed buffers by size, so the tensors of a training step cost no page faults
//! after the first step. The pool never holds more than the peak of live bytes; beyond that, memory returns to the
//! system. Clones share the pool. Nothing is global: two devices are independent of each other.
//!
//! Streams of a GPU share the pool, too. A block that is freed on another stream than that of computation is held until
//! an event after the stream's work has come; a block that is taken there waits for what computation was given before.

use crate::arena::Arena;
use crate::buffer::Buffer;
use crate::cuda::{self, Cuda, Event, OnStream, Stream};
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

/// A place in the work of a device's stream, for `Device::wait`.
pub struct Mark(Option<Event>);

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
    /// Tables in the memory of a CUDA device.
    words: Mutex<Words>,
}

/// All that a table depends on, as words, and the table.
type CachedTable = (Vec<u64>, Arc<Vec<f32>>);

/// The same of a table in a device's memory.
type CachedWords = (Vec<u64>, Arc<Buffer>);

/// The tables of a CUDA device.
#[derive(Default)]
struct Words {
    /// The last ones used first.
    cached: Vec<CachedWords>,
    /// Memory of others, for the next of the same size.
    spare: Vec<Buffer>,
}

/// Tables that a CUDA device keeps.
const KEPT_TABLES: usize = 8;

#[derive(Default)]
struct Memory {
    free: BTreeMap<usize, Vec<Buffer>>,
    free_bytes: usize,
    /// Freed blocks that a stream may still use, until an event.
    held: Vec<(Event, Buffer)>,
    live_bytes: usize,
    peak_bytes: usize,
    arena: Option<Arena>,
    /// Peak bytes that came from the system outside the arena.
    overflow_bytes: usize,
    overflow_live: usize,
    /// By use.
    live_by_use: [usize; 4],
    placements: Placements,
}

/// The sizes and addresses of the memory that was taken during a time, in order: their number and a hash. Two training
/// steps with equal placements put every tensor at the same address, as a CUDA graph that is replayed needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placements {
    /// Tensors that took memory.
    pub count: u64,
    hash: u64,
}

impl Placements {
    fn add(&mut self, buffer: &Buffer) {
        self.count += 1;
        for word in [buffer.bytes() as u64, buffer.address().0] {
            // one step of splitmix64's mixing
            let mixed = (self.hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            self.hash = mixed ^ (mixed >> 31);
        }
    }
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
    /// `Memory` if the system has too little; `Driver` if the device fails.
    pub fn reserve(&self, bytes: usize) -> Result<()> {
        let block = self.allocate(self.rounded(bytes)?)?;
        self.memory().arena = Some(Arena::of(block));
        Ok(())
    }

    /// Bytes that a buffer for `bytes` takes.
    fn rounded(&self, bytes: usize) -> Result<usize> {
        Buffer::round_up(bytes).ok_or_else(|| self.lacks(bytes))
    }

    fn lacks(&self, bytes: usize) -> Error {
        Error::Memory {
            device: self.name().to_owned(),
            bytes,
        }
    }

    /// A new block of memory; zeros on the host, unspecified values elsewhere. If the system has too little, the pool
    /// gives back what nobody uses.
    fn allocate(&self, size: usize) -> Result<Buffer> {
        if let Some(buffer) = self.try_allocate(size)? {
            return Ok(buffer);
        }
        let unused = {
            let mut memory = self.memory();
            memory.free_bytes = 0;
            std::mem::take(&mut memory.free)
        };
        let is_worth_a_try = !unused.is_empty();
        drop(unused);
        let again = match is_worth_a_try {
            true => self.try_allocate(size)?,
            false => None,
        };
        again.ok_or_else(|| self.lacks(size))
    }

    fn try_allocate(&self, size: usize) -> Result<Option<Buffer>> {
        match &self.0.backend {
            Backend::Cpu => Ok(Buffer::zeroed(size)),
            Backend::Cuda(cuda) => Buffer::on_cuda(cuda, size),
        }
    }

    /// The memory of the device, of all programs together; `None` for the host.
    /// # Errors
    /// `Driver` if the device fails.
    pub fn system_memory(&self) -> Result<Option<cuda::SystemMemory>> {
        match &self.0.backend {
            Backend::Cpu => Ok(None),
            Backend::Cuda(cuda) => cuda.memory().map(Some),
        }
    }

    /// Waits, downloads and allocations so far; zeros for the host.
    pub fn counters(&self) -> cuda::Counters {
        match &self.0.backend {
            Backend::Cpu => cuda::Counters::default(),
            Backend::Cuda(cuda) => cuda.counters(),
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

    /// Lets the calling thread work on a stream of the device until the result is dropped: all ops, copies and
    /// collectives that it starts run there, in order. A CPU has one.
    pub fn enter(&self, stream: Stream) -> OnStream {
        OnStream::enter(stream)
    }

    /// Marks all work that the thread's stream was given.
    /// # Errors
    /// `Driver` if the device fails.
    pub fn mark(&self) -> Result<Mark> {
        match &self.0.backend {
            Backend::Cpu => Ok(Mark(None)),
            Backend::Cuda(cuda) => cuda.record().map(Some).map(Mark),
        }
    }

    /// Lets later work of the thread's stream wait for a mark; the host does not.
    /// # Errors
    /// `Driver` if the device fails.
    pub fn wait(&self, mark: &Mark) -> Result<()> {
        match (&self.0.backend, &mark.0) {
            (Backend::Cuda(cuda), Some(event)) => cuda.wait(event),
            _ => Ok(()),
        }
    }

    /// The placements since the last call.
    pub fn take_placements(&self) -> Placements {
        std::mem::take(&mut self.memory().placements)
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

    /// The GPU.
    /// # Errors
    /// `Argument` if it is a CPU.
    pub(crate) fn gpu(&self) -> Result<&Arc<Cuda>> {
        match &self.0.backend {
            Backend::Cuda(cuda) => Ok(cuda),
            Backend::Cpu => Err(Error::Argument {
                op: "collective",
                name: "device",
                found: self.name().to_owned(),
                wanted: "a GPU, as on the other ranks".to_owned(),
            }),
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

    /// Like `cached_table` for a CUDA device, in its memory: of the tables that were asked for, the last few are kept. They
    /// are not in the arena, where tables that depend on the data would move a step's tensors.
    pub(crate) fn cached_words<T: bytemuck::Pod>(
        &self,
        key: impl Iterator<Item = u64> + Clone,
        make: impl FnOnce() -> Vec<T>,
    ) -> Result<Arc<Buffer>> {
        let mut words = self.0.words.lock().unwrap_or_else(PoisonError::into_inner);
        let Words { cached, spare } = &mut *words;
        let found = (cached.iter()).position(|(found, _)| found.iter().copied().eq(key.clone()));
        let entry = match (found, &self.0.backend) {
            (Some(at), _) => cached.remove(at),
            (None, Backend::Cuda(cuda)) => {
                while cached.len() >= KEPT_TABLES
                    && let Some((_, table)) = cached.pop()
                {
                    // one that a call still uses is freed when it ends
                    spare.extend(Arc::try_unwrap(table));
                }
                let table = make();
                let bytes: &[u8] = bytemuck::cast_slice(&table);
                let size = self.rounded(bytes.len())?;
                let buffer = match spare.iter().position(|buffer| buffer.bytes() == size) {
                    Some(at) => spare.remove(at),
                    None => self.allocate(size)?,
                };
                if spare.len() > KEPT_TABLES {
                    spare.remove(0);
                }
                cuda.upload(buffer.address(), bytes)?;
                (key.collect(), Arc::new(buffer))
            }
            (None, Backend::Cpu) => unreachable!("tables of the CPU are in `cached_table`"),
        };
        let table = Arc::clone(&entry.1);
        cached.insert(0, entry);
        Ok(table)
    }

    // A panic elsewhere cannot leave the counters half written, so a poisoned lock is still good.
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.0.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a buffer of at least `bytes` initialised bytes with unspecified values.
    pub(crate) fn take(&self, bytes: usize) -> Result<Buffer> {
        let size = self.rounded(bytes)?;
        let pooled = {
            let mut memory = self.memory();
            memory.release(|event| Ok(event.is_done()))?;
            let mut pooled = memory.find(size);
            if pooled.is_none()
                && memory.holds(size)
                && let Backend::Cuda(cuda) = &self.0.backend
                && cuda::current() == Stream::Compute
            {
                // what is held may be used once the stream has waited for it
                memory.release(|event| cuda.wait(event).map(|()| true))?;
                pooled = memory.find(size);
            }
            let is_in_arena = pooled.as_ref().is_some_and(|part| part.offset().is_some());
            if memory.arena.is_some() && !is_in_arena {
                memory.overflow_live += size;
                memory.overflow_bytes = memory.overflow_bytes.max(memory.overflow_live);
            }
            memory.live_bytes += size;
            memory.live_by_use[self.1 as usize] += size;
            memory.peak_bytes = memory.peak_bytes.max(memory.live_bytes);
            pooled
        };
        // Zeroing a large block outside the lock keeps other threads going.
        let found = match pooled {
            Some(buffer) => Ok(buffer),
            None => self.allocate(size),
        };
        match found {
            Ok(buffer) => {
                if let Backend::Cuda(cuda) = &self.0.backend
                    && cuda::current() != Stream::Compute
                {
                    // computation may have freed it with work that is yet to run
                    cuda.wait(&cuda.record_on(Stream::Compute)?)?;
                }
                self.memory().placements.add(&buffer);
                Ok(buffer)
            }
            Err(error) => {
                let mut memory = self.memory();
                memory.live_bytes -= size;
                memory.live_by_use[self.1 as usize] -= size;
                if memory.arena.is_some() {
                    memory.overflow_live -= size;
                }
                drop(memory);
                Err(error)
            }
        }
    }

    /// Takes a buffer back.
    pub(crate) fn give(&self, buffer: Buffer) {
        if let Backend::Cuda(cuda) = &self.0.backend
            && cuda::current() != Stream::Compute
            // of a device that is lost, no stream uses anything
            && let Ok(event) = cuda.record()
        {
            return self.hold(buffer, event);
        }
        let spare = {
            let mut memory = self.memory();
            memory.count_out(buffer.bytes(), self.1);
            memory.give(buffer)
        };
        // memory is freed outside the lock
        drop(spare);
    }

    /// Takes a buffer back that is in use until an event.
    pub(crate) fn hold(&self, buffer: Buffer, until: Event) {
        let mut memory = self.memory();
        memory.count_out(buffer.bytes(), self.1);
        memory.held.push((until, buffer));
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // the driver waits for work of its own device, but other devices may read what is held
        self.held.iter().for_each(|(event, _)| event.finish());
    }
}

impl Memory {
    /// A free block of this size.
    fn find(&mut self, size: usize) -> Option<Buffer> {
        let part = self.arena.as_mut().and_then(|arena| arena.take(size));
        if part.is_some() {
            return part;
        }
        let pooled = self.free.get_mut(&size).and_then(Vec::pop);
        if pooled.is_some() {
            self.free_bytes -= size;
        }
        pooled
    }

    /// Counts a block that is no tensor's any more.
    fn count_out(&mut self, size: usize, of: Use) {
        self.live_bytes -= size;
        self.live_by_use[of as usize] -= size;
    }

    /// Makes a block free. Returns it if the pool has enough.
    fn give(&mut self, buffer: Buffer) -> Option<Buffer> {
        let size = buffer.bytes();
        if let Some(arena) = &mut self.arena {
            if let Some(offset) = buffer.offset() {
                arena.give(buffer, offset);
                return None;
            }
            self.overflow_live -= size;
        }
        if self.free_bytes + size > self.peak_bytes {
            return Some(buffer);
        }
        self.free_bytes += size;
        self.free.entry(size).or_default().push(buffer);
        None
    }

    /// Whether a held block may be of use for this size: one of the same, or a neighbour in the arena.
    fn holds(&self, size: usize) -> bool {
        let is_useful = |buffer: &Buffer| buffer.bytes() == size || buffer.offset().is_some();
        self.held.iter().any(|(_, buffer)| is_useful(buffer))
    }

    /// Makes the held blocks free whose event `is_over`.
    fn release(&mut self, is_over: impl Fn(&Event) -> Result<bool>) -> Result<()> {
        let mut at = 0;
        while at < self.held.len() {
            if is_over(&self.held[at].0)? {
                let (_, buffer) = self.held.swap_remove(at);
                self.give(buffer);
            } else {
                at += 1;
            }
        }
        Ok(())
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
