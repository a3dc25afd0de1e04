//! The ops. Each folder holds the contract, checks and dispatch in `mod.rs` and one file per backend.

/// Calls the backend's implementation; checks are done before, in the op's `mod.rs`.
macro_rules! dispatch {
    ($device:expr, $call:ident($($arg:expr),* $(,)?)) => {
        match $device.kind() {
            $crate::device::Kind::Cpu => cpu::$call($($arg),*),
        }
    };
}

pub mod adamw;
pub mod add;
pub mod attention;
pub mod cross_entropy;
pub mod embedding;
pub mod gelu;
pub mod layer_norm;
pub mod matmul;
pub mod reduce;
pub mod rms_norm;
pub mod rope;
pub mod swiglu;
