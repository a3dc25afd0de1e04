//! Lanes in plain Rust, for every processor.
//!
//! Where processors have vectors of their own nearly all take those, and the operations are functions: inlined into every
//! kernel, sixteen lanes one by one were more code than all vectors together and took longest to compile. Their
//! bodies cost more than the calls: a fused multiply-add without its instruction is a call for each lane.
#![expect(unsafe_code, reason = "vectors are read and written through pointers")]

use super::lanes::{LANES, Lanes, ONE};

/// Plain Rust: an array, which compilers map to whatever vectors the target has.
#[derive(Clone, Copy)]
pub(crate) struct Plain([f32; LANES]);

macro_rules! plain_binary {
    ($name:ident, |$a:ident, $b:ident| $value:expr) => {
        #[cfg_attr(any(target_arch = "x86_64", target_arch = "aarch64"), inline(never))]
        #[cfg_attr(
            not(any(target_arch = "x86_64", target_arch = "aarch64")),
            inline(always)
        )]
        fn $name(self, b: Self) -> Self {
            let mut out = [0.0; LANES];
            for (o, ($a, $b)) in out.iter_mut().zip(self.0.into_iter().zip(b.0)) {
                *o = $value;
            }
            Plain(out)
        }
    };
}

impl Lanes for Plain {
    const TILE_VECTORS: usize = 1;
    const TILE_ROWS: usize = 4;

    #[inline(always)]
    fn splat(x: f32) -> Self {
        Plain([x; LANES])
    }
    #[inline(always)]
    unsafe fn load_at(x: *const f32) -> Self {
        // SAFETY: the caller vouches for sixteen floats; arrays of f32 need f32 alignment only.
        Plain(unsafe { x.cast::<[f32; LANES]>().read() })
    }
    #[inline(always)]
    unsafe fn store_at(self, out: *mut f32) {
        // SAFETY: the caller vouches for room for sixteen floats.
        unsafe { out.cast::<[f32; LANES]>().write(self.0) }
    }
    plain_binary!(add, |a, b| a + b);
    plain_binary!(sub, |a, b| a - b);
    plain_binary!(mul, |a, b| a * b);
    plain_binary!(div, |a, b| a / b);
    plain_binary!(max, |a, b| if a > b { a } else { b });
    plain_binary!(min, |a, b| if a < b { a } else { b });
    #[cfg_attr(any(target_arch = "x86_64", target_arch = "aarch64"), inline(never))]
    #[cfg_attr(
        not(any(target_arch = "x86_64", target_arch = "aarch64")),
        inline(always)
    )]
    fn fma(self, b: Self, c: Self) -> Self {
        let mut out = c.0;
        for (o, (a, b)) in out.iter_mut().zip(self.0.into_iter().zip(b.0)) {
            *o = a.mul_add(b, *o);
        }
        Plain(out)
    }
    #[cfg_attr(any(target_arch = "x86_64", target_arch = "aarch64"), inline(never))]
    #[cfg_attr(
        not(any(target_arch = "x86_64", target_arch = "aarch64")),
        inline(always)
    )]
    fn sqrt(self) -> Self {
        Plain(self.0.map(f32::sqrt))
    }
    #[cfg_attr(any(target_arch = "x86_64", target_arch = "aarch64"), inline(never))]
    #[cfg_attr(
        not(any(target_arch = "x86_64", target_arch = "aarch64")),
        inline(always)
    )]
    fn pow2(self) -> Self {
        let power = |x: f32| f32::from_bits((x.to_bits() << 23).wrapping_add(ONE));
        Plain(self.0.map(power))
    }
    #[cfg_attr(any(target_arch = "x86_64", target_arch = "aarch64"), inline(never))]
    #[cfg_attr(
        not(any(target_arch = "x86_64", target_arch = "aarch64")),
        inline(always)
    )]
    fn select_less(self, b: Self, then: Self, other: Self) -> Self {
        let mut out = other.0;
        for (i, o) in out.iter_mut().enumerate() {
            if self.0[i] < b.0[i] {
                *o = then.0[i];
            }
        }
        Plain(out)
    }
    #[cfg_attr(any(target_arch = "x86_64", target_arch = "aarch64"), inline(never))]
    #[cfg_attr(
        not(any(target_arch = "x86_64", target_arch = "aarch64")),
        inline(always)
    )]
    fn transpose(rows: [Self; LANES]) -> [Self; LANES] {
        std::array::from_fn(|i| Plain(std::array::from_fn(|j| rows[j].0[i])))
    }
}
