//! Where tensors live and ops run. Today one kind: the CPU, with the best instruction set found.
//!
//! A device keeps freed buffers by size, so the tensors of a training step cost no page faults after
//! the first step. The pool never holds more than the peak of live bytes; past that memory goes back
//! to the system. Clones share the pool. Nothing is global: two devices know nothing of each other.

use crate::buffer::Buffer;
use crate::cpu::Isa;
use crate::ops::rope::Frequencies;
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A place for tensors. Cheap to clone.
#[derive(Clone)]
pub struct Device(Arc<Shared>);

/// Kind of device, for dispatch.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Cpu,
}

struct Shared {
    isa: Isa,
    memory: Mutex<Memory>,
    rope: Mutex<Option<(RopeKey, Arc<Vec<f32>>)>>,
}

/// What a table of rotary angles depends on: positions, offset, angles per position.
pub(crate) type RopeKey = (usize, usize, Frequencies);

#[derive(Default)]
struct Memory {
    free: BTreeMap<usize, Vec<Buffer>>,
    free_bytes: usize,
    live_bytes: usize,
    peak_bytes: usize,
}

impl Device {
    /// Returns the CPU, using the widest instruction set it has.
    pub fn cpu() -> Device {
        Device::cpu_with(Isa::detect())
    }

    /// Returns the CPU restricted to `isa`, falling back to what the machine has. Results are the
    /// same bits with every instruction set; this exists to test that.
    pub fn cpu_with(isa: Isa) -> Device {
        let isa = if isa.is_available() {
            isa
        } else {
            Isa::Portable
        };
        Device(Arc::new(Shared {
            isa,
            memory: Mutex::default(),
            rope: Mutex::new(None),
        }))
    }

    /// Name for messages, such as `cpu (avx512)`.
    pub fn name(&self) -> &str {
        match self.0.isa {
            Isa::Avx512 => "cpu (avx512)",
            Isa::Avx2 => "cpu (avx2)",
            Isa::Portable => "cpu (portable)",
        }
    }

    /// Bytes held by live tensors now.
    pub fn allocated_bytes(&self) -> usize {
        self.memory().live_bytes
    }

    /// Most bytes held by live tensors at any time so far.
    pub fn peak_bytes(&self) -> usize {
        self.memory().peak_bytes
    }

    pub(crate) fn kind(&self) -> Kind {
        Kind::Cpu
    }

    pub(crate) fn isa(&self) -> Isa {
        self.0.isa
    }

    /// Returns the cached rotary table of `key`, made by `make` when another was cached.
    pub(crate) fn rope_table(
        &self,
        (t, offset, frequencies): (usize, usize, &Frequencies),
        make: impl FnOnce() -> Vec<f32>,
    ) -> Arc<Vec<f32>> {
        let mut cached = self.0.rope.lock().unwrap_or_else(PoisonError::into_inner);
        match &*cached {
            Some(((a, b, found), table)) if (*a, *b) == (t, offset) && found == frequencies => {
                Arc::clone(table)
            }
            _ => {
                let table = Arc::new(make());
                let key = (t, offset, frequencies.clone());
                *cached = Some((key, Arc::clone(&table)));
                table
            }
        }
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
            let pooled = memory.free.get_mut(&size).and_then(Vec::pop);
            if pooled.is_some() {
                memory.free_bytes -= size;
            }
            memory.live_bytes += size;
            memory.peak_bytes = memory.peak_bytes.max(memory.live_bytes);
            pooled
        };
        // Zeroing a large block outside the lock keeps other threads going.
        match pooled.or_else(|| Buffer::zeroed(size)) {
            Some(buffer) => Ok(buffer),
            None => {
                self.memory().live_bytes -= size;
                Err(lacking(size))
            }
        }
    }

    /// Takes a buffer back.
    pub(crate) fn give(&self, buffer: Buffer) {
        let size = buffer.bytes();
        let mut memory = self.memory();
        memory.live_bytes -= size;
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
