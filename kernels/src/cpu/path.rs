//! Which instruction set a CPU's ops use, and why no wider one. Results are the same bits with each;
//! only time differs.

use std::fmt;

use crate::cpu::Isa;

/// The choice, with what speaks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuPath {
    isa: Isa,
    /// What masks wider ones.
    mask: Option<&'static str>,
}

impl CpuPath {
    /// Returns the widest of this machine.
    pub fn widest() -> CpuPath {
        CpuPath {
            isa: Isa::detect(),
            mask: None,
        }
    }

    /// Returns `isa`, for `mask` masks what is wider; None if the machine lacks it.
    pub fn masked(isa: Isa, mask: &'static str) -> Option<CpuPath> {
        let mask = Some(mask);
        isa.is_available().then_some(CpuPath { isa, mask })
    }

    /// Returns the instruction set.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// What is told of it on a machine of which `has` knows.
    fn told(&self, has: &dyn Fn(Isa) -> bool, has_amx: bool) -> String {
        let wider = Isa::ALL.iter().take_while(|isa| **isa != self.isa);
        let (masked, missing): (Vec<Isa>, Vec<Isa>) = wider.partition(|isa| has(**isa));
        let mut why = Vec::new();
        if let (Some(mask), false) = (self.mask, masked.is_empty()) {
            why.push(format!("{} masked by {mask}", names(&masked)));
        }
        if !missing.is_empty() {
            why.push(format!("this CPU has no {}", names(&missing)));
        }
        if has_amx {
            why.push("amx is not used".into());
        }
        match why.is_empty() {
            true => self.isa.name().into(),
            false => format!("{} ({})", self.isa.name(), why.join("; ")),
        }
    }
}

/// Such as `avx512 (avx512_bf16 masked by MILLRACE_CPU)`.
impl fmt::Display for CpuPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.told(&Isa::is_available, has_amx()))
    }
}

fn names(all: &[Isa]) -> String {
    let names: Vec<&str> = all.iter().map(|isa| isa.name()).collect();
    names.join(", ")
}

/// Whether the processor has tiles of bf16 (Intel's manual, CPUID leaf 7: EDX bits 22 and 24), whatever
/// the system allows.
#[cfg(target_arch = "x86_64")]
fn has_amx() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    let (tiles_bf16, tiles) = (1 << 22, 1 << 24);
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & (tiles_bf16 | tiles) == tiles_bf16 | tiles
}

#[cfg(not(target_arch = "x86_64"))]
fn has_amx() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_is_told_with_why_nothing_wider_is() {
        let told = |isa, mask, widest: Isa, has_amx| {
            let rank = |isa: Isa| Isa::ALL.iter().position(|one| *one == isa);
            let has = move |isa: Isa| rank(isa) >= rank(widest);
            CpuPath { isa, mask }.told(&has, has_amx)
        };
        let mask = Some("X");
        for (found, wanted) in [
            (
                told(Isa::Avx512Bf16, None, Isa::Avx512Bf16, false),
                "avx512_bf16",
            ),
            (
                told(Isa::Avx512Bf16, mask, Isa::Avx512Bf16, true),
                "avx512_bf16 (amx is not used)",
            ),
            (
                told(Isa::Avx512, mask, Isa::Avx512Bf16, false),
                "avx512 (avx512_bf16 masked by X)",
            ),
            (
                told(Isa::Avx2, None, Isa::Avx2, false),
                "avx2 (this CPU has no avx512_bf16, avx512)",
            ),
            (
                told(Isa::Portable, mask, Isa::Avx512, false),
                "portable (avx512, avx2 masked by X; this CPU has no avx512_bf16)",
            ),
        ] {
            assert_eq!(found, wanted);
        }
    }

    #[test]
    fn names_are_those_of_one_instruction_set_each() {
        for isa in Isa::ALL {
            assert_eq!(Isa::named(isa.name()), Some(isa));
            assert_eq!(CpuPath::masked(isa, "X").is_some(), isa.is_available());
        }
        assert_eq!(Isa::named("AVX512"), None);
        assert_eq!(CpuPath::widest().isa(), Isa::detect());
    }
}
