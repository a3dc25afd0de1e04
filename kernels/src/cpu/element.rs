//! Element types of matrices in memory, f32 or bf16, and their conversion to vectors.

use super::Isa;
use super::bf16::{Step, Task, perform_on_floats, perform_on_pairs};
use super::output::{Data, LINE, Shared};
use super::simd::{LANES, Lanes};
use crate::Bf16;

/// Numbers of two vectors, those of a row that are written at once.
pub(crate) const TWO: usize = 2 * LANES;

/// A kind of number in memory.
pub(crate) trait Element: Copy + Default + Send + Sync {
    /// Numbers in a line of memory.
    const LINE: usize = LINE / size_of::<Self>();

    /// Runs a task whose words (`bf16.rs`) are one of them, or two as they are.
    fn perform<T: Task>(isa: Isa, task: T);
    /// The first 16.
    fn load<L: Lanes>(x: &[Self]) -> L;
    /// At most 16; zeros past their end.
    fn load_part<L: Lanes>(x: &[Self]) -> L;
    /// At most 32; zeros past their end.
    fn two<L: Lanes>(x: &[Self]) -> [L; 2];
    /// Words of the first 16, or 32 where a word has two.
    fn join<L: Lanes, N: Step<L>>(x: &[Self]) -> L;
    /// Stores the first `out.len()`, at most 32.
    fn settle<L: Lanes, N: Step<L>>(x: [L; 2], out: &mut [Self]);
    fn value(self) -> f32;
    /// # Panics
    /// If the output is of the other kind.
    fn output(of: Shared) -> *mut Self;
    /// # Panics
    /// If the numbers are of the other kind.
    fn input(of: Data<'_>) -> &[Self];
}

const KINDS: &str = "matrices of a product's end are of one kind";

impl Element for f32 {
    fn perform<T: Task>(isa: Isa, task: T) {
        perform_on_floats(isa, task);
    }

    #[inline(always)]
    fn load<L: Lanes>(x: &[f32]) -> L {
        L::load(x)
    }

    #[inline(always)]
    fn load_part<L: Lanes>(x: &[f32]) -> L {
        if x.is_empty() {
            return L::splat(0.0);
        }
        L::load_part(x, 0.0)
    }

    #[inline(always)]
    fn two<L: Lanes>(x: &[f32]) -> [L; 2] {
        if x.len() >= TWO {
            return [L::load(x), L::load(&x[LANES..])];
        }
        let (low, high) = x.split_at(x.len().min(LANES));
        [f32::load_part(low), f32::load_part(high)]
    }

    #[inline(always)]
    fn join<L: Lanes, N: Step<L>>(x: &[f32]) -> L {
        let high = if N::PER_WORD == 2 { &x[LANES..] } else { x };
        N::join(L::load(x), L::load(high))
    }

    #[inline(always)]
    fn settle<L: Lanes, N: Step<L>>(x: [L; 2], out: &mut [f32]) {
        if out.len() >= TWO {
            x[0].store(out);
            x[1].store(&mut out[LANES..]);
        } else if let Some((low, high)) = out.split_at_mut_checked(LANES) {
            x[0].store(low);
            x[1].store_part(high);
        } else {
            x[0].store_part(out);
        }
    }

    #[inline(always)]
    fn value(self) -> f32 {
        self
    }

    #[inline(always)]
    fn output(of: Shared) -> *mut f32 {
        match of {
            Shared::F32(x) => x,
            Shared::Bf16(_) => unreachable!("{KINDS}"),
        }
    }

    #[inline(always)]
    fn input(of: Data<'_>) -> &[f32] {
        match of {
            Data::F32(x) => x,
            Data::Bf16(_) => unreachable!("{KINDS}"),
        }
    }
}

impl Element for Bf16 {
    fn perform<T: Task>(isa: Isa, task: T) {
        perform_on_pairs(isa, task);
    }

    #[inline(always)]
    fn load<L: Lanes>(x: &[Bf16]) -> L {
        L::widen(x)
    }

    #[inline(always)]
    fn load_part<L: Lanes>(x: &[Bf16]) -> L {
        if x.len() >= LANES {
            return L::widen(x);
        }
        let mut all = [Bf16(0); LANES];
        all[..x.len()].copy_from_slice(x);
        L::widen(&all)
    }

    #[inline(always)]
    fn two<L: Lanes>(x: &[Bf16]) -> [L; 2] {
        if x.len() >= TWO {
            return [L::widen(x), L::widen(&x[LANES..])];
        }
        let (low, high) = x.split_at(x.len().min(LANES));
        [Bf16::load_part(low), Bf16::load_part(high)]
    }

    #[inline(always)]
    fn join<L: Lanes, N: Step<L>>(x: &[Bf16]) -> L {
        if N::PER_WORD == 2 {
            L::load_words(x)
        } else {
            L::widen(x)
        }
    }

    #[inline(always)]
    fn settle<L: Lanes, N: Step<L>>(x: [L; 2], out: &mut [Bf16]) {
        let words = N::join(x[0], x[1]);
        if out.len() >= TWO {
            words.store_words(out);
        } else {
            let mut all = [Bf16(0); TWO];
            words.store_words(&mut all);
            out.copy_from_slice(&all[..out.len()]);
        }
    }

    #[inline(always)]
    fn value(self) -> f32 {
        self.into()
    }

    #[inline(always)]
    fn output(of: Shared) -> *mut Bf16 {
        match of {
            Shared::Bf16(x) => x,
            Shared::F32(_) => unreachable!("{KINDS}"),
        }
    }

    #[inline(always)]
    fn input(of: Data<'_>) -> &[Bf16] {
        match of {
            Data::Bf16(x) => x,
            Data::F32(_) => unreachable!("{KINDS}"),
        }
    }
}
