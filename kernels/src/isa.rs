//! Instruction sets of CPUs, by name. `cpu/detect.rs` finds which of them this machine has.

/// Instruction set of the CPU kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// Tiles for products of bf16 whose sums are made in tiles; for everything else the same as `Avx512Bf16`.
    Amx,
    /// AVX-512 F and BW with products of bf16 pairs; for everything else the same as `Avx512`.
    Avx512Bf16,
    /// AVX-512 F, with AVX2 and FMA.
    Avx512,
    /// AVX2 and FMA.
    Avx2,
    /// NEON, of 64-bit ARM.
    Neon,
    /// Plain Rust; on x86-64 its fused multiply-add is a slow library call.
    Portable,
}

impl Isa {
    /// From the widest to the plainest of each architecture.
    pub const ALL: [Isa; 6] = [
        Isa::Amx,
        Isa::Avx512Bf16,
        Isa::Avx512,
        Isa::Avx2,
        Isa::Neon,
        Isa::Portable,
    ];

    /// Returns its name in settings and messages.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Amx => "amx",
            Isa::Avx512Bf16 => "avx512_bf16",
            Isa::Avx512 => "avx512",
            Isa::Avx2 => "avx2",
            Isa::Neon => "neon",
            Isa::Portable => "portable",
        }
    }

    /// Returns the instruction set with this name.
    pub fn named(name: &str) -> Option<Isa> {
        Isa::ALL.into_iter().find(|isa| isa.name() == name)
    }

    /// Whether this processor has the vectors that ops of this instruction set use; for `Amx` this says nothing
    /// about tiles.
    pub(crate) fn has_vectors(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Amx | Isa::Avx512Bf16 => {
                is_x86_feature_detected!("avx512bf16")
                    && is_x86_feature_detected!("avx512bw")
                    && Isa::Avx512.has_vectors()
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => is_x86_feature_detected!("avx512f") && Isa::Avx2.has_vectors(),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            // Little-endian alone: words of two numbers are loaded in memory order.
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Isa::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            Isa::Portable => true,
            // of another architecture
            _ => false,
        }
    }

    /// Whether processors of an architecture (Rust's name for it) can have it.
    pub(crate) fn is_of(self, architecture: &str) -> bool {
        match self {
            Isa::Amx | Isa::Avx512Bf16 | Isa::Avx512 | Isa::Avx2 => architecture == "x86_64",
            Isa::Neon => architecture == "aarch64",
            Isa::Portable => true,
        }
    }
}
