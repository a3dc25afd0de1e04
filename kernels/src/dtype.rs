//! Element types of tensors.

/// Kind of number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// IEEE binary32.
    F32,
    /// bfloat16; only products, activations and sums read it.
    Bf16,
    /// Token ids, targets and indices.
    U32,
    /// IEEE binary16; only `cast::stored` and what reads its results know it.
    F16,
    /// `float8_e4m3fn`, as `F16`.
    E4m3,
    /// `float8_e5m2`, as `F16`.
    E5m2,
}

/// A bfloat16: the upper half of an f32's bits. Those in tensors are never subnormal: products take such
/// numbers as zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct Bf16(pub u16);

/// Bits of an IEEE binary16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct F16(pub u16);

/// Bits of a `float8_e4m3fn`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct E4m3(pub u8);

/// Bits of a `float8_e5m2`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct E5m2(pub u8);

impl From<Bf16> for f32 {
    fn from(x: Bf16) -> f32 {
        f32::from_bits(u32::from(x.0) << 16)
    }
}

impl DType {
    /// Bytes of one element.
    pub fn bytes(self) -> usize {
        match self {
            DType::F32 | DType::U32 => 4,
            DType::Bf16 | DType::F16 => 2,
            DType::E4m3 | DType::E5m2 => 1,
        }
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            DType::F32 => "f32",
            DType::Bf16 => "bf16",
            DType::U32 => "u32",
            DType::F16 => "f16",
            DType::E4m3 => "e4m3",
            DType::E5m2 => "e5m2",
        })
    }
}
