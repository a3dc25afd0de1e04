//! Processes, ranks and their groups: the launch, the world of a run's processes, the mesh of parallel axes.

pub(crate) mod devices;
pub(crate) mod gpu_groups;
pub(crate) mod keep_alive;
pub(crate) mod launch;
pub(crate) mod mesh;
pub(crate) mod rates;
pub(crate) mod secret;
pub(crate) mod team;
pub(crate) mod threads;
pub(crate) mod world;

pub use devices::{CudaLibrary, CudaPaths, DeviceKind, Devices, InferenceOptions};
pub use launch::{Collectives, LaunchConfig, Transport, cpu_path, is_one_of_many, mpi_here};
pub use mesh::{MeshPlace, mesh_place};
pub use rates::{MachineRates, ProductRates, measure as measure_rates};
pub use world::World;
