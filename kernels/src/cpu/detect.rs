//! Detection of this machine's instruction sets, and the CPU as a device: it only uses those that exist here and
//! give the promised bits.

use crate::{Device, Isa, Result, cuda};

#[cfg(target_arch = "x86_64")]
use super::tiles::{amx, self_check};

/// Why tiles are not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(any(test, target_arch = "x86_64")),
    expect(dead_code, reason = "other architectures lack them for one reason")
)]
pub(super) enum Lack {
    /// The processor has none, or no vectors of bf16 pairs beside them.
    Cpu,
    /// The system does not grant them.
    Leave,
    /// Their bits are not those promised.
    Check,
}

impl Isa {
    /// Returns the widest instruction set of this machine.
    pub fn detect() -> Isa {
        Isa::ALL
            .into_iter()
            .find(|isa| isa.is_available())
            .unwrap_or(Isa::Portable)
    }

    /// Whether this machine has it and it gives the promised bits.
    pub fn is_available(self) -> bool {
        match self {
            Isa::Amx => tiles_used().is_ok(),
            isa => isa.has_vectors(),
        }
    }
}

impl Device {
    /// Returns the CPU, using the widest instruction set it has.
    pub fn cpu() -> Device {
        Device::cpu_with(Isa::detect())
    }

    /// Returns the CPU restricted to `isa`, or to plain code if the machine lacks it. Results are the
    /// same bits with every instruction set.
    pub fn cpu_with(isa: Isa) -> Device {
        let isa = if isa.is_available() {
            isa
        } else {
            Isa::Portable
        };
        Device::unchecked(isa)
    }

    /// Opens an NVIDIA GPU.
    /// # Errors
    /// `NotAvailable` if a library, the device or a recent enough driver is missing; `Driver` if the driver refuses.
    pub fn cuda(options: &cuda::Options) -> Result<Device> {
        Device::on_cuda(options, Isa::detect())
    }

    /// Returns the CPU as `cpu_with` does, with one block of `bytes` from which tensors are cut. Pages that no tensor
    /// touches cost nothing.
    /// # Errors
    /// `Memory` if the system does not give the block.
    pub fn with_arena(isa: Isa, bytes: usize) -> Result<Device> {
        let device = Device::cpu_with(isa);
        device.reserve(bytes)?;
        Ok(device)
    }
}

/// Whether tiles are used, determined once.
#[cfg(target_arch = "x86_64")]
pub(super) fn tiles_used() -> std::result::Result<(), Lack> {
    use std::sync::OnceLock;
    static STATE: OnceLock<std::result::Result<(), Lack>> = OnceLock::new();
    *STATE.get_or_init(|| {
        if !amx::is_there() {
            return Err(Lack::Cpu);
        }
        if !amx::has_leave() {
            return Err(Lack::Leave);
        }
        // in a pool of its own: the check must not start the threads of the process, whose number is not set yet
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build();
        match pool.is_ok_and(|pool| pool.install(self_check::native_passes)) {
            true => Ok(()),
            false => Err(Lack::Check),
        }
    })
}

/// Whether the processor has tiles, regardless of the system's support.
#[cfg(target_arch = "x86_64")]
pub(super) fn tiles_of_cpu() -> std::result::Result<(), Lack> {
    amx::is_there().then_some(()).ok_or(Lack::Cpu)
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn tiles_used() -> std::result::Result<(), Lack> {
    Err(Lack::Cpu)
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn tiles_of_cpu() -> std::result::Result<(), Lack> {
    Err(Lack::Cpu)
}
