#![doc = include_str!("../README.md")]

mod arena;
mod buffer;
pub mod comm;
mod cpu;
pub mod cuda;
mod descriptor;
mod device;
mod dtype;
mod error;
mod isa;
pub mod ops;
pub mod quant;
pub mod rng;
mod sum_order;
mod tensor;
#[doc(hidden)]
pub mod testing;
pub mod tolerance;
pub mod trace;
mod view;

pub use comm::Collective;
pub use cpu::{CpuPath, peak_flops};
pub use cuda::Stream;
pub use device::{Device, Mark, Placements, Use};
pub use dtype::{Bf16, DType, E4m3, E5m2, F16};
pub use error::{Error, Result};
pub use isa::Isa;
pub use ops::adamw::AdamW;
pub use ops::attention::Heads;
pub use ops::copy::copy;
pub use ops::sources::compile_all;
pub use ops::{
    activation, adamw, add, attention, cast, cross_entropy, dropout, embedding, glu,
    grouped_matmul, int8_matmul, layer_norm, lerp, matmul, muon, permute, qk_norm, reduce,
    rms_norm, rope, route, rows,
};
pub use sum_order::SumOrder;
pub use tensor::{Element, Tensor};
pub use view::{View, ViewMut, download_words};
