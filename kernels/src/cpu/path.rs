//! Selection of the instruction set of a CPU's ops, and the reason why no wider one is used. Results are the same
//! bits with each; only time differs.

use std::env::consts::ARCH;
use std::fmt;

use super::detect::{Lack, tiles_of_cpu, tiles_used};
use crate::Isa;

/// The selected instruction set and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuPath {
    isa: Isa,
    /// Setting that excludes wider ones.
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

    /// Returns `isa`, if `mask` excludes wider ones; None if the machine lacks it.
    pub fn masked(isa: Isa, mask: &'static str) -> Option<CpuPath> {
        let mask = Some(mask);
        isa.is_available().then_some(CpuPath { isa, mask })
    }

    /// Returns the instruction set.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Describes the selection on a machine of an architecture; `has` says which sets it has, `tiles` why it lacks
    /// tiles.
    fn told(
        &self,
        architecture: &str,
        has: &dyn Fn(Isa) -> bool,
        tiles: Result<(), Lack>,
    ) -> String {
        let wider = Isa::ALL.into_iter().take_while(|isa| *isa != self.isa);
        // Sets of other architectures do not count as missing.
        let wider = wider.filter(|isa| isa.is_of(architecture));
        let (masked, mut missing): (Vec<Isa>, Vec<Isa>) = wider.partition(|isa| has(*isa));
        let mut why = Vec::new();
        if let (Some(mask), false) = (self.mask, masked.is_empty()) {
            why.push(format!("{} masked by {mask}", names(&masked)));
        }
        if let (Some(Isa::Amx), Err(Lack::Leave | Lack::Check)) = (missing.first(), tiles) {
            missing.remove(0);
            let because = match tiles {
                Err(Lack::Check) => "amx fails its self-check",
                _ => "the system does not give amx",
            };
            why.push(because.into());
        }
        if !missing.is_empty() {
            why.push(format!("this CPU has no {}", names(&missing)));
        }
        match why.is_empty() {
            true => self.isa.name().into(),
            false => format!("{} ({})", self.isa.name(), why.join("; ")),
        }
    }
}

/// Such as `avx512 (amx, avx512_bf16 masked by MILLRACE_CPU)`.
impl fmt::Display for CpuPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // masked tiles are not tried
        let tiles = match self.mask {
            Some(_) if self.isa != Isa::Amx => tiles_of_cpu(),
            _ => tiles_used(),
        };
        let has = |isa: Isa| match isa {
            Isa::Amx => tiles.is_ok(),
            isa => isa.is_available(),
        };
        f.write_str(&self.told(ARCH, &has, tiles))
    }
}

fn names(all: &[Isa]) -> String {
    let names: Vec<&str> = all.iter().map(|isa| isa.name()).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_is_told_with_why_nothing_wider_is() {
        let told = |isa, mask, widest: Isa, tiles: Result<(), Lack>| {
            let rank = |isa: Isa| Isa::ALL.iter().position(|one| *one == isa);
            let has = move |isa: Isa| rank(isa) >= rank(widest);
            CpuPath { isa, mask }.told("x86_64", &has, tiles)
        };
        let (mask, none) = (Some("X"), Err(Lack::Cpu));
        for (found, wanted) in [
            (told(Isa::Amx, None, Isa::Amx, Ok(())), "amx"),
            (
                told(Isa::Avx512Bf16, None, Isa::Avx512Bf16, none),
                "avx512_bf16 (this CPU has no amx)",
            ),
            (
                told(Isa::Avx512Bf16, mask, Isa::Amx, Ok(())),
                "avx512_bf16 (amx masked by X)",
            ),
            (
                told(Isa::Avx512Bf16, None, Isa::Avx512Bf16, Err(Lack::Leave)),
                "avx512_bf16 (the system does not give amx)",
            ),
            (
                told(Isa::Avx512, mask, Isa::Avx512Bf16, Err(Lack::Check)),
                "avx512 (avx512_bf16 masked by X; amx fails its self-check)",
            ),
            (
                told(Isa::Avx512, mask, Isa::Avx512Bf16, none),
                "avx512 (avx512_bf16 masked by X; this CPU has no amx)",
            ),
            (
                told(Isa::Avx2, None, Isa::Avx2, none),
                "avx2 (this CPU has no amx, avx512_bf16, avx512)",
            ),
            (
                told(Isa::Portable, mask, Isa::Avx512, none),
                "portable (avx512, avx2 masked by X; this CPU has no amx, avx512_bf16)",
            ),
        ] {
            assert_eq!(found, wanted);
        }
    }

    #[test]
    fn what_other_architectures_have_is_not_missing() {
        let told = |architecture, isa, mask, here: &[Isa]| {
            let has = |isa: Isa| here.contains(&isa);
            CpuPath { isa, mask }.told(architecture, &has, Err(Lack::Cpu))
        };
        let arm = [Isa::Neon, Isa::Portable];
        for (found, wanted) in [
            (told("aarch64", Isa::Neon, None, &arm), "neon"),
            (
                told("aarch64", Isa::Portable, Some("X"), &arm),
                "portable (neon masked by X)",
            ),
            (
                told("aarch64", Isa::Portable, None, &arm[1..]),
                "portable (this CPU has no neon)",
            ),
            (told("riscv64", Isa::Portable, None, &arm[1..]), "portable"),
            (
                told("x86_64", Isa::Portable, None, &arm[1..]),
                "portable (this CPU has no amx, avx512_bf16, avx512, avx2)",
            ),
        ] {
            assert_eq!(found, wanted);
        }
        // The sets of this machine belong to its architecture, or its message would not name them.
        for isa in Isa::ALL {
            assert!(!isa.is_available() || isa.is_of(ARCH), "{isa:?}");
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
