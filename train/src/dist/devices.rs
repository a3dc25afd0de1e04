//! Devices that ranks compute on: the CPU, or NVIDIA GPUs. A GPU is no part of a plan: a run may go on from its
//! checkpoints on other devices.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kernels::cuda::nccl::Nccl;
use kernels::{Device, Isa, SumOrder, cuda};
use serde::{Deserialize, Serialize};

use crate::config::precision::{Precision, Units};
use crate::dist::launch::{Collectives, cpu_path};
use crate::error::{Error, Result};

/// A library of NVIDIA that was looked for, and the file by which it was opened.
pub use kernels::cuda::Found as CudaLibrary;

/// Kind of device that ranks compute on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// The processor.
    #[default]
    Cpu,
    /// NVIDIA GPUs, one per rank of a host, in turn if there are fewer.
    Cuda,
}

/// How to open the devices of this process.
#[derive(Clone, Debug, Default)]
pub enum Devices {
    /// The processor, with the instruction set of `cpu_path`.
    #[default]
    Cpu,
    /// NVIDIA GPUs.
    Cuda(CudaPaths),
}

/// Folders that NVIDIA GPUs need.
#[derive(Clone, Debug, Default)]
pub struct CudaPaths {
    /// Folders with NVIDIA's libraries, searched before the system's.
    pub libraries: Vec<PathBuf>,
    /// Folder of compiled kernels; without one they are kept in memory alone.
    pub cache: Option<PathBuf>,
    /// How tensors travel between ranks.
    pub collectives: Collectives,
    /// Number of devices to use, the first ones; None: all.
    pub most: Option<usize>,
}

impl CudaPaths {
    /// NVIDIA's libraries, found or not.
    pub fn found(&self) -> Vec<CudaLibrary> {
        cuda::libraries(&self.libraries)
    }

    /// Names of the devices.
    ///
    /// # Errors
    /// `Device` if a library or the driver is missing, or a device is too old.
    pub fn devices(&self) -> Result<Vec<String>> {
        let count = Devices::Cuda(self.clone()).check()?;
        let names = (0..count).map(|ordinal| {
            let device = Device::cuda(&self.options(ordinal));
            device.map(|device| device.name().to_owned())
        });
        names.collect::<kernels::Result<_>>().map_err(unavailable)
    }

    /// Compiles all kernels for an architecture, such as `sm_90`, into a folder. Returns the number of files.
    ///
    /// # Errors
    /// `Device` without NVRTC, or with its log.
    pub fn compile_kernels(&self, folder: &Path, architecture: &str) -> Result<usize> {
        let options = cuda::Options {
            cache: Some(folder.to_owned()),
            ..self.options(0)
        };
        kernels::compile_all(&options, architecture).map_err(unavailable)
    }

    fn options(&self, ordinal: usize) -> cuda::Options {
        cuda::Options {
            ordinal,
            libraries: self.libraries.clone(),
            cache: self.cache.clone(),
        }
    }
}

/// How a model is opened for inference: split over tensor-parallel ranks, each on the next device.
#[derive(Clone, Copy)]
pub struct InferenceOptions<'a> {
    /// Devices of the ranks, used again from the first if there are fewer.
    pub devices: &'a Devices,
    /// Number of ranks; 1: the whole model on the first device.
    pub ranks: usize,
    /// Number format of products; `None`: the one of the checkpoint.
    pub precision: Option<Precision>,
    /// Whether products with weights in blocks of 8 or 4 bits round their activations to 8 bits, on the CPU.
    pub rounds_activations: bool,
}

impl InferenceOptions<'_> {
    /// The same with this number format of products.
    pub fn in_precision(self, precision: Option<Precision>) -> Self {
        InferenceOptions { precision, ..self }
    }

    /// The same with activations that are rounded to 8 bits before products with weights in blocks of 8 or 4 bits
    /// (`kernels::matmul::Packed::with_rounded_rows`), or not.
    pub fn with_rounded_activations(self, rounds_activations: bool) -> Self {
        InferenceOptions {
            rounds_activations,
            ..self
        }
    }
}

impl Devices {
    /// A whole model on the first of these devices.
    pub fn whole(&self) -> InferenceOptions<'_> {
        self.split(1)
    }

    /// A model split over this number of ranks on these devices.
    pub fn split(&self, ranks: usize) -> InferenceOptions<'_> {
        InferenceOptions {
            devices: self,
            ranks,
            precision: None,
            rounds_activations: false,
        }
    }

    /// True if tensors are in host memory.
    pub fn is_cpu(&self) -> bool {
        matches!(self, Devices::Cpu)
    }

    /// Name of the backend, as job files have it.
    pub(crate) fn backend(&self) -> &'static str {
        match self {
            Devices::Cpu => "cpu",
            Devices::Cuda(_) => "cuda",
        }
    }

    /// Units that the order of sums follows; `cpu`: the instruction set of ops on the CPU.
    pub(crate) fn units(&self, cpu: Isa) -> Units {
        match self {
            Devices::Cpu => Units::Cpu(cpu),
            Devices::Cuda(_) => Units::Gpu,
        }
    }

    /// Returns the number of devices, after opening the libraries they need.
    ///
    /// # Errors
    /// `Device` if a library, the driver or a device is missing.
    pub fn check(&self) -> Result<usize> {
        match self {
            Devices::Cpu => Ok(1),
            Devices::Cuda(paths) => {
                if paths.collectives == Collectives::Nccl {
                    Nccl::open(&paths.libraries, SumOrder::Tree).map_err(unavailable)?;
                }
                let count = cuda::count(&paths.options(0)).map_err(unavailable)?;
                Ok(paths.most.map_or(count, |most| count.min(most)))
            }
        }
    }

    /// How tensors travel between ranks.
    pub(crate) fn collectives(&self) -> Collectives {
        match self {
            Devices::Cpu => Collectives::Auto,
            Devices::Cuda(paths) => paths.collectives,
        }
    }

    /// Opens NCCL for a run whose sums have this order; `None` if it is not wanted, or not there and not
    /// needed.
    ///
    /// # Errors
    /// `Device` if it is needed and missing or too old.
    pub(crate) fn nccl(&self, sums: SumOrder) -> Result<Option<Arc<Nccl>>> {
        let Devices::Cuda(paths) = self else {
            return Ok(None);
        };
        let open = || Nccl::open(&paths.libraries, sums).map(Arc::new);
        match paths.collectives {
            Collectives::Host => Ok(None),
            Collectives::Auto => Ok(open().ok()),
            Collectives::Nccl => open().map(Some).map_err(unavailable),
        }
    }

    /// Checks that ranks `local` of this host, by number, have a GPU each, as NCCL needs.
    ///
    /// # Errors
    /// `Device` if two share one; as `check`.
    pub(crate) fn check_cards(&self, local: Range<usize>) -> Result<()> {
        let count = self.check()?.max(1);
        if local.end <= count {
            return Ok(());
        }
        let second = count.max(local.start);
        Err(unavailable(kernels::Error::NotAvailable {
            library: "a GPU for each rank of this host, as launch.collectives = \"nccl\" needs"
                .into(),
            tried: format!(
                "{count} GPUs, so ranks {} and {second} share one",
                second % count
            ),
            hint: format!(
                "start at most {count} ranks on a host, or set launch.collectives = \"auto\" or \"host\""
            ),
        }))
    }

    /// Opens the device of a rank by its number on this host.
    ///
    /// # Errors
    /// `Device` if there is none or it is too old; `Cpu` as `cpu_path`.
    pub(crate) fn open(&self, local_rank: usize) -> Result<Device> {
        match self {
            Devices::Cpu => Ok(Device::cpu_with(cpu_path()?.isa())),
            Devices::Cuda(paths) => {
                let ordinal = local_rank % self.check()?.max(1);
                Device::cuda(&paths.options(ordinal)).map_err(unavailable)
            }
        }
    }
}

fn unavailable(source: kernels::Error) -> Error {
    Error::Device { source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_without_a_driver_is_an_error_with_what_was_tried_and_a_hint() {
        let paths = CudaPaths::default();
        let is_there = paths.found().iter().any(|one| {
            let is_driver = one.library == "libcuda";
            is_driver && one.opened.is_some()
        });
        if is_there {
            return;
        }
        let error = Devices::Cuda(paths).check().unwrap_err();
        assert!(error.is_unavailable());
        let text = error.with_causes();
        for part in ["libcuda", "tried libcuda.so.1", "device = \"cpu\""] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(Devices::Cpu.check().unwrap(), 1);
    }
}
