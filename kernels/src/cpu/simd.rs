//! Sixteen f32 lanes with one meaning on AVX-512, AVX2 + FMA and plain Rust.
//!
//! A kernel is written once over `Lanes` and compiled once per instruction set; every operation is a
//! correctly rounded IEEE operation on each lane and nothing is reassociated, so the bits agree.
//! Element i of a row lies in lane i % 16; a row's sum is 16 lane sums and one fixed tree over lanes.
#![expect(
    unsafe_code,
    reason = "vector intrinsics and calls into functions with target features"
)]

use crate::Bf16;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// Lanes of a vector, on every instruction set.
pub(crate) const LANES: usize = 16;
/// 3 * 2^22: a number below 2^22 that it is added to, and that it is taken from again, is rounded to the nearest
/// integer, ties to even; in between the integer is what the lowest bits hold.
pub(crate) const NEAREST: f32 = 12_582_912.0;
/// Bits of 1.0.
const ONE: u32 = 0x3f80_0000;
/// Floats between asking for a line and using it, where memory is gone through once.
pub(crate) const AHEAD: usize = 32 * LANES;

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
    /// Plain Rust; on x86-64 its fused multiply-add is a slow library call.
    Portable,
}

impl Isa {
    /// From the widest to the plainest.
    pub const ALL: [Isa; 5] = [
        Isa::Amx,
        Isa::Avx512Bf16,
        Isa::Avx512,
        Isa::Avx2,
        Isa::Portable,
    ];

    /// Returns its name in settings and messages.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Amx => "amx",
            Isa::Avx512Bf16 => "avx512_bf16",
            Isa::Avx512 => "avx512",
            Isa::Avx2 => "avx2",
            Isa::Portable => "portable",
        }
    }

    /// Returns the one of a name.
    pub fn named(name: &str) -> Option<Isa> {
        Isa::ALL.into_iter().find(|isa| isa.name() == name)
    }

    /// Returns the widest instruction set of this machine.
    pub fn detect() -> Isa {
        Isa::ALL
            .into_iter()
            .find(|isa| isa.is_available())
            .unwrap_or(Isa::Portable)
    }

    /// Whether this machine has it, and its bits are those promised.
    pub fn is_available(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Amx => super::tiles::amx::state().is_ok(),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Bf16 => {
                is_x86_feature_detected!("avx512bf16")
                    && is_x86_feature_detected!("avx512bw")
                    && Isa::Avx512.is_available()
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => is_x86_feature_detected!("avx512f") && Isa::Avx2.is_available(),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Amx | Isa::Avx512Bf16 | Isa::Avx512 | Isa::Avx2 => false,
            Isa::Portable => true,
        }
    }
}

/// Sixteen f32. All methods act lane by lane.
pub(crate) trait Lanes: Copy {
    /// Vectors in a row of the matrix product's tile.
    const TILE_VECTORS: usize;

    fn splat(x: f32) -> Self;
    /// # Safety
    /// Sixteen floats can be read at `x`.
    unsafe fn load_at(x: *const f32) -> Self;
    /// # Safety
    /// Sixteen floats can be written at `out`.
    unsafe fn store_at(self, out: *mut f32);
    fn add(self, b: Self) -> Self;
    fn sub(self, b: Self) -> Self;
    fn mul(self, b: Self) -> Self;
    fn div(self, b: Self) -> Self;
    /// `self * b + c`, rounded once.
    fn fma(self, b: Self, c: Self) -> Self;
    /// `self > b ? self : b`; so `b` when either is NaN.
    fn max(self, b: Self) -> Self;
    /// `self < b ? self : b`; so `b` when either is NaN.
    fn min(self, b: Self) -> Self;
    fn sqrt(self) -> Self;
    /// `2^n` where `self` is n + `NEAREST`, n integral in `[-126, 127]`.
    fn pow2(self) -> Self;
    /// `self < b ? then : other`; `other` when either is NaN.
    fn select_less(self, b: Self, then: Self, other: Self) -> Self;
    /// Lane j of result i is lane i of input j.
    fn transpose(rows: [Self; LANES]) -> [Self; LANES];

    /// The first 16 numbers.
    #[inline(always)]
    fn widen(x: &[Bf16]) -> Self {
        let mut lanes = [0.0; LANES];
        (lanes.iter_mut().zip(&x[..LANES])).for_each(|(lane, x)| *lane = (*x).into());
        Self::load(&lanes)
    }

    /// The first 32 numbers as words of two, the even one below.
    #[inline(always)]
    fn load_words(x: &[Bf16]) -> Self {
        let mut words = [0.0; LANES];
        for (word, x) in words.iter_mut().zip(x[..2 * LANES].chunks_exact(2)) {
            *word = f32::from_bits(u32::from(x[1].0) << 16 | u32::from(x[0].0));
        }
        Self::load(&words)
    }

    /// As `load_words`, the other way.
    #[inline(always)]
    fn store_words(self, out: &mut [Bf16]) {
        let words = self.to_array();
        for (word, out) in words.iter().zip(out[..2 * LANES].chunks_exact_mut(2)) {
            let [a, b, c, d] = word.to_bits().to_le_bytes();
            (out[0], out[1]) = (
                Bf16(u16::from_le_bytes([a, b])),
                Bf16(u16::from_le_bytes([c, d])),
            );
        }
    }

    /// Writes a + b, `len` numbers in couples of vectors; returns whether one of a or b is zero, of either sign.
    /// # Safety
    /// As many can be read at `a` and `b` and written at `out`, which may be one of them.
    #[inline(always)]
    unsafe fn add_all(a: *const f32, b: *const f32, out: *mut f32, len: usize) -> bool {
        let mut has_zero = false;
        for at in (0..len).step_by(LANES) {
            // SAFETY: by the caller's word.
            unsafe {
                let (a, b) = (Self::load_at(a.add(at)), Self::load_at(b.add(at)));
                for (a, b) in a.to_array().into_iter().zip(b.to_array()) {
                    has_zero |= a == 0.0 || b == 0.0;
                }
                a.add(b).store_at(out.add(at));
            }
        }
        has_zero
    }

    /// Asks for the line of memory at `x`, if there is one.
    #[inline(always)]
    fn ask_for(_: *const f32) {}

    /// As `ask_for`, for a line that will be written.
    #[inline(always)]
    fn ask_to_write(_: *const f32) {}

    /// Asks for the line at `x` no nearer than L2, to write or read it a product later: until a line comes to L1 it
    /// takes one of the few places that panels' lines pass through.
    #[inline(always)]
    fn ask_far(_: *const f32) {}

    #[inline(always)]
    fn load(x: &[f32]) -> Self {
        assert!(x.len() >= LANES, "a full vector is read");
        // SAFETY: sixteen floats are there by the assert.
        unsafe { Self::load_at(x.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, out: &mut [f32]) {
        assert!(out.len() >= LANES, "a full vector is written");
        // SAFETY: there is room for sixteen floats by the assert.
        unsafe { self.store_at(out.as_mut_ptr()) }
    }

    /// Loads 1 to 16 floats; the lanes past the end get `fill`.
    #[inline(always)]
    fn load_part(x: &[f32], fill: f32) -> Self {
        if x.len() >= LANES {
            return Self::load(x);
        }
        Self::load(&tail(x, fill))
    }

    /// Stores the first `out.len()` lanes, at most 16.
    #[inline(always)]
    fn store_part(self, out: &mut [f32]) {
        if out.len() >= LANES {
            return self.store(out);
        }
        store_tail(&self.to_array(), out);
    }

    #[inline(always)]
    fn to_array(self) -> [f32; LANES] {
        let mut lanes = [0.0; LANES];
        self.store(&mut lanes);
        lanes
    }

    /// Sum of the lanes: halves added until one is left.
    #[inline(always)]
    fn sum(self) -> f32 {
        let mut lanes = self.to_array();
        let mut width = LANES / 2;
        while width > 0 {
            for i in 0..width {
                lanes[i] += lanes[i + width];
            }
            width /= 2;
        }
        lanes[0]
    }

    /// Largest lane.
    #[inline(always)]
    fn largest(self) -> f32 {
        self.to_array()
            .into_iter()
            .fold(f32::NEG_INFINITY, |a, b| if b > a { b } else { a })
    }
}

/// Out of line, so that the loops over whole vectors keep their registers.
#[cold]
#[inline(never)]
fn tail(x: &[f32], fill: f32) -> [f32; LANES] {
    let mut lanes = [fill; LANES];
    lanes[..x.len()].copy_from_slice(x);
    lanes
}

/// As `tail`, the other way.
#[cold]
#[inline(never)]
fn store_tail(lanes: &[f32; LANES], out: &mut [f32]) {
    out.copy_from_slice(&lanes[..out.len()]);
}

/// A computation written over `Lanes`, to be compiled once per instruction set.
pub(crate) trait Kernel<Args> {
    type Out;
    /// Implementations are `#[inline(always)]`, so that they take on the caller's target features.
    fn run<L: Lanes>(args: Args) -> Self::Out;
}

/// Runs `K` with the vectors of `isa`, which must be available (devices see to it).
pub(crate) fn run<K: Kernel<Args>, Args>(isa: Isa, args: Args) -> K::Out {
    assert!(
        isa.is_available(),
        "devices only offer instruction sets the machine has"
    );
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the machine has these features by the assert.
        Isa::Amx | Isa::Avx512Bf16 | Isa::Avx512 => unsafe { run_avx512::<K, Args>(args) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the machine has these features by the assert.
        Isa::Avx2 => unsafe { run_avx2::<K, Args>(args) },
        _ => K::run::<Plain>(args),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx2,fma")]
fn run_avx512<K: Kernel<Args>, Args>(args: Args) -> K::Out {
    K::run::<Wide>(args)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn run_avx2<K: Kernel<Args>, Args>(args: Args) -> K::Out {
    K::run::<Pair>(args)
}

/// Declares a function over `Lanes` that takes the instruction set as its first argument:
/// `vector_fn! { fn scale<L>(x: &mut [f32], by: f32) { ... } }` is called as `scale(isa, x, by)`.
macro_rules! vector_fn {
    ($(#[$meta:meta])* $vis:vis fn $name:ident<$lanes:ident>
        ($($arg:ident: $kind:ty),* $(,)?) $(-> $out:ty)? $body:block) => {
        $(#[$meta])*
        $vis fn $name(isa: $crate::cpu::Isa, $($arg: $kind),*) $(-> $out)? {
            struct Body;
            impl $crate::cpu::simd::Kernel<($($kind,)*)> for Body {
                type Out = vector_fn!(@out $($out)?);
                #[inline(always)]
                fn run<$lanes: $crate::cpu::simd::Lanes>(
                    ($($arg,)*): ($($kind,)*)
                ) -> vector_fn!(@out $($out)?) {
                    $body
                }
            }
            $crate::cpu::simd::run::<Body, _>(isa, ($($arg,)*))
        }
    };
    (@out) => { () };
    (@out $out:ty) => { $out };
}
pub(crate) use vector_fn;

/// Plain Rust: an array, which compilers map to whatever vectors the target has.
#[derive(Clone, Copy)]
pub(crate) struct Plain([f32; LANES]);

macro_rules! plain_binary {
    ($name:ident, |$a:ident, $b:ident| $value:expr) => {
        #[inline(always)]
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
    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        let mut out = c.0;
        for (o, (a, b)) in out.iter_mut().zip(self.0.into_iter().zip(b.0)) {
            *o = a.mul_add(b, *o);
        }
        Plain(out)
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        Plain(self.0.map(f32::sqrt))
    }
    #[inline(always)]
    fn pow2(self) -> Self {
        let power = |x: f32| f32::from_bits((x.to_bits() << 23).wrapping_add(ONE));
        Plain(self.0.map(power))
    }
    #[inline(always)]
    fn select_less(self, b: Self, then: Self, other: Self) -> Self {
        let mut out = other.0;
        for (i, o) in out.iter_mut().enumerate() {
            if self.0[i] < b.0[i] {
                *o = then.0[i];
            }
        }
        Plain(out)
    }
    #[inline(always)]
    fn transpose(rows: [Self; LANES]) -> [Self; LANES] {
        std::array::from_fn(|i| Plain(std::array::from_fn(|j| rows[j].0[i])))
    }
}

/// One AVX-512 register. Made only inside `run_avx512`, hence only where the features are.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(crate) struct Wide(pub(super) __m512);

#[cfg(target_arch = "x86_64")]
macro_rules! wide {
    ($name:ident($($arg:ident),*) = $value:expr) => {
        #[inline(always)]
        fn $name(self, $($arg: Self),*) -> Self {
            // SAFETY: a `Wide` exists only where AVX-512 does.
            Wide(unsafe { $value(self.0, $($arg.0),*) })
        }
    };
}

#[cfg(target_arch = "x86_64")]
impl Lanes for Wide {
    const TILE_VECTORS: usize = 2;

    #[inline(always)]
    fn ask_for(x: *const f32) {
        // SAFETY: called only inside `run_avx512`; a prefetch reads nothing and faults nowhere.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(x.cast()) }
    }

    #[inline(always)]
    fn ask_to_write(x: *const f32) {
        // SAFETY: as in `ask_for`.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(x.cast()) }
    }

    #[inline(always)]
    fn ask_far(x: *const f32) {
        // SAFETY: as in `ask_for`.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(x.cast()) }
    }

    #[inline(always)]
    fn splat(x: f32) -> Self {
        // SAFETY: called only inside `run_avx512`.
        Wide(unsafe { _mm512_set1_ps(x) })
    }
    #[inline(always)]
    unsafe fn load_at(x: *const f32) -> Self {
        // SAFETY: the caller vouches for sixteen floats; inside `run_avx512`.
        Wide(unsafe { _mm512_loadu_ps(x) })
    }
    #[inline(always)]
    unsafe fn store_at(self, out: *mut f32) {
        // SAFETY: the caller vouches for room for sixteen floats.
        unsafe { _mm512_storeu_ps(out, self.0) }
    }
    #[inline(always)]
    fn widen(x: &[Bf16]) -> Self {
        let x = &x[..LANES];
        // SAFETY: sixteen numbers of two bytes are there; called only inside `run_avx512`.
        Wide(unsafe {
            let halves = _mm512_cvtepu16_epi32(_mm256_loadu_si256(x.as_ptr().cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(halves))
        })
    }
    #[inline(always)]
    fn load_words(x: &[Bf16]) -> Self {
        let x = &x[..2 * LANES];
        // SAFETY: 64 bytes are there; called only inside `run_avx512`.
        Wide(unsafe { _mm512_loadu_ps(x.as_ptr().cast()) })
    }
    #[inline(always)]
    fn store_words(self, out: &mut [Bf16]) {
        let out = &mut out[..2 * LANES];
        // SAFETY: there is room for 64 bytes.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr().cast(), self.0) }
    }
    #[inline(always)]
    unsafe fn add_all(a: *const f32, b: *const f32, out: *mut f32, len: usize) -> bool {
        // A mask waits for its last test: several are under way at once.
        let mut others = [[u16::MAX; 2]; 2];
        // SAFETY: by the caller's word; called only inside `run_avx512`.
        unsafe {
            let size = _mm512_set1_epi32(i32::MAX);
            for at in (0..len).step_by(2 * LANES) {
                for (vector, others) in others.iter_mut().enumerate() {
                    let at = at + vector * LANES;
                    let (a, b) = (_mm512_loadu_ps(a.add(at)), _mm512_loadu_ps(b.add(at)));
                    for (others, x) in others.iter_mut().zip([a, b]) {
                        *others =
                            _mm512_mask_test_epi32_mask(*others, _mm512_castps_si512(x), size);
                    }
                    _mm512_storeu_ps(out.add(at), _mm512_add_ps(a, b));
                }
            }
        }
        others != [[u16::MAX; 2]; 2]
    }
    wide!(add(b) = _mm512_add_ps);
    wide!(sub(b) = _mm512_sub_ps);
    wide!(mul(b) = _mm512_mul_ps);
    wide!(div(b) = _mm512_div_ps);
    wide!(max(b) = _mm512_max_ps);
    wide!(min(b) = _mm512_min_ps);
    wide!(fma(b, c) = _mm512_fmadd_ps);
    wide!(sqrt() = _mm512_sqrt_ps);
    #[inline(always)]
    fn pow2(self) -> Self {
        // SAFETY: a `Wide` exists only where AVX-512 does.
        Wide(unsafe {
            let shifted = _mm512_slli_epi32::<23>(_mm512_castps_si512(self.0));
            let one = _mm512_set1_epi32(ONE.cast_signed());
            _mm512_castsi512_ps(_mm512_add_epi32(shifted, one))
        })
    }
    #[inline(always)]
    fn select_less(self, b: Self, then: Self, other: Self) -> Self {
        // SAFETY: a `Wide` exists only where AVX-512 does.
        Wide(unsafe {
            let less = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(self.0, b.0);
            _mm512_mask_blend_ps(less, other.0, then.0)
        })
    }
    #[inline(always)]
    fn transpose(rows: [Self; LANES]) -> [Self; LANES] {
        // SAFETY: a `Wide` exists only where AVX-512 does.
        unsafe { transpose_avx512(rows) }
    }
}

/// Two AVX registers. Made only inside `run_avx2`, hence only where the features are.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(crate) struct Pair(__m256, __m256);

#[cfg(target_arch = "x86_64")]
macro_rules! pair {
    ($name:ident($($arg:ident),*) = $value:expr) => {
        #[inline(always)]
        fn $name(self, $($arg: Self),*) -> Self {
            // SAFETY: a `Pair` exists only where AVX2 and FMA do.
            unsafe { Pair($value(self.0, $($arg.0),*), $value(self.1, $($arg.1),*)) }
        }
    };
}

#[cfg(target_arch = "x86_64")]
impl Lanes for Pair {
    const TILE_VECTORS: usize = 1;

    #[inline(always)]
    fn ask_for(x: *const f32) {
        // SAFETY: called only inside `run_avx2`; a prefetch reads nothing and faults nowhere.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(x.cast()) }
    }

    #[inline(always)]
    fn ask_to_write(x: *const f32) {
        // SAFETY: as in `ask_for`.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(x.cast()) }
    }

    #[inline(always)]
    fn ask_far(x: *const f32) {
        // SAFETY: as in `ask_for`.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(x.cast()) }
    }

    #[inline(always)]
    fn splat(x: f32) -> Self {
        // SAFETY: called only inside `run_avx2`.
        let half = unsafe { _mm256_set1_ps(x) };
        Pair(half, half)
    }
    #[inline(always)]
    unsafe fn load_at(x: *const f32) -> Self {
        // SAFETY: the caller vouches for sixteen floats; inside `run_avx2`.
        unsafe { Pair(_mm256_loadu_ps(x), _mm256_loadu_ps(x.add(8))) }
    }
    #[inline(always)]
    unsafe fn store_at(self, out: *mut f32) {
        // SAFETY: the caller vouches for room for sixteen floats.
        unsafe {
            _mm256_storeu_ps(out, self.0);
            _mm256_storeu_ps(out.add(8), self.1);
        }
    }
    pair!(add(b) = _mm256_add_ps);
    pair!(sub(b) = _mm256_sub_ps);
    pair!(mul(b) = _mm256_mul_ps);
    pair!(div(b) = _mm256_div_ps);
    pair!(max(b) = _mm256_max_ps);
    pair!(min(b) = _mm256_min_ps);
    pair!(fma(b, c) = _mm256_fmadd_ps);
    pair!(sqrt() = _mm256_sqrt_ps);
    pair!(pow2() = pow2_avx2);
    #[inline(always)]
    fn select_less(self, b: Self, then: Self, other: Self) -> Self {
        // SAFETY: a `Pair` exists only where AVX2 and FMA do.
        unsafe {
            Pair(
                _mm256_blendv_ps(other.0, then.0, _mm256_cmp_ps::<_CMP_LT_OQ>(self.0, b.0)),
                _mm256_blendv_ps(other.1, then.1, _mm256_cmp_ps::<_CMP_LT_OQ>(self.1, b.1)),
            )
        }
    }
    #[inline(always)]
    fn transpose(rows: [Self; LANES]) -> [Self; LANES] {
        let mut out = rows;
        for first in [0, 8] {
            let [mut low, mut high] = [[rows[0].0; 8]; 2];
            for i in 0..8 {
                (low[i], high[i]) = (rows[first + i].0, rows[first + i].1);
            }
            // SAFETY: a `Pair` exists only where AVX2 and FMA do.
            let (low, high) = unsafe { (transpose_avx2(low), transpose_avx2(high)) };
            for i in 0..8 {
                if first == 0 {
                    (out[i].0, out[8 + i].0) = (low[i], high[i]);
                } else {
                    (out[i].1, out[8 + i].1) = (low[i], high[i]);
                }
            }
        }
        out
    }
}

/// Pairs, then quads within 128-bit parts, then the parts themselves.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f,avx2,fma")]
fn transpose_avx512(rows: [Wide; LANES]) -> [Wide; LANES] {
    let mut quads = rows;
    for (quad, rows) in quads.chunks_exact_mut(4).zip(rows.chunks_exact(4)) {
        let pd = |x| _mm512_castps_pd(x);
        let low = [
            _mm512_unpacklo_ps(rows[0].0, rows[1].0),
            _mm512_unpacklo_ps(rows[2].0, rows[3].0),
        ];
        let high = [
            _mm512_unpackhi_ps(rows[0].0, rows[1].0),
            _mm512_unpackhi_ps(rows[2].0, rows[3].0),
        ];
        quad[0] = Wide(_mm512_castpd_ps(_mm512_unpacklo_pd(pd(low[0]), pd(low[1]))));
        quad[1] = Wide(_mm512_castpd_ps(_mm512_unpackhi_pd(pd(low[0]), pd(low[1]))));
        quad[2] = Wide(_mm512_castpd_ps(_mm512_unpacklo_pd(
            pd(high[0]),
            pd(high[1]),
        )));
        quad[3] = Wide(_mm512_castpd_ps(_mm512_unpackhi_pd(
            pd(high[0]),
            pd(high[1]),
        )));
    }
    // quads[4g + c], part l: rows 4g .. 4g + 4 of column 4l + c.
    let mut out = quads;
    for c in 0..4 {
        let [a, b, d, e] = [quads[c].0, quads[4 + c].0, quads[8 + c].0, quads[12 + c].0];
        let even = [
            _mm512_shuffle_f32x4::<0x88>(a, b),
            _mm512_shuffle_f32x4::<0x88>(d, e),
        ];
        let odd = [
            _mm512_shuffle_f32x4::<0xdd>(a, b),
            _mm512_shuffle_f32x4::<0xdd>(d, e),
        ];
        out[c] = Wide(_mm512_shuffle_f32x4::<0x88>(even[0], even[1]));
        out[4 + c] = Wide(_mm512_shuffle_f32x4::<0x88>(odd[0], odd[1]));
        out[8 + c] = Wide(_mm512_shuffle_f32x4::<0xdd>(even[0], even[1]));
        out[12 + c] = Wide(_mm512_shuffle_f32x4::<0xdd>(odd[0], odd[1]));
    }
    out
}

/// As `transpose_avx512` for a quarter: 8 rows of 8.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2,fma")]
fn transpose_avx2(rows: [__m256; 8]) -> [__m256; 8] {
    let mut quads = rows;
    for (quad, rows) in quads.chunks_exact_mut(4).zip(rows.chunks_exact(4)) {
        let low = [
            _mm256_unpacklo_ps(rows[0], rows[1]),
            _mm256_unpacklo_ps(rows[2], rows[3]),
        ];
        let high = [
            _mm256_unpackhi_ps(rows[0], rows[1]),
            _mm256_unpackhi_ps(rows[2], rows[3]),
        ];
        quad[0] = _mm256_shuffle_ps::<0x44>(low[0], low[1]);
        quad[1] = _mm256_shuffle_ps::<0xee>(low[0], low[1]);
        quad[2] = _mm256_shuffle_ps::<0x44>(high[0], high[1]);
        quad[3] = _mm256_shuffle_ps::<0xee>(high[0], high[1]);
    }
    let mut out = quads;
    for c in 0..4 {
        out[c] = _mm256_permute2f128_ps::<0x20>(quads[c], quads[4 + c]);
        out[4 + c] = _mm256_permute2f128_ps::<0x31>(quads[c], quads[4 + c]);
    }
    out
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2,fma")]
fn pow2_avx2(x: __m256) -> __m256 {
    let shifted = _mm256_slli_epi32::<23>(_mm256_castps_si256(x));
    let one = _mm256_set1_epi32(ONE.cast_signed());
    _mm256_castsi256_ps(_mm256_add_epi32(shifted, one))
}

#[cfg(test)]
mod tests {
    use super::*;

    vector_fn! {
        fn every_operation<L>(x: &[f32], y: &[f32]) -> Vec<f32> {
            let (a, b) = (L::load(x), L::load_part(&y[..11], 2.5));
            let results = [
                a.add(b), a.sub(b), a.mul(b), a.div(b), a.fma(b, L::splat(0.1)), a.max(b), a.min(b),
                a.mul(a).sqrt(), a.add(L::splat(NEAREST)).pow2(), a.select_less(b, L::splat(1.0), a),
            ];
            let mut out = Vec::new();
            for r in results {
                out.extend(r.to_array());
                out.push(r.sum());
                out.push(r.largest());
            }
            out
        }
    }

    #[test]
    fn every_instruction_set_gives_the_same_bits() {
        let x: Vec<f32> = (0..16_u8).map(|i| (f32::from(i) - 7.3) * 1.7).collect();
        let y: Vec<f32> = (0..16_u8).map(|i| (f32::from(i) - 3.1) * 0.3).collect();
        let bits = |isa| {
            every_operation(isa, &x, &y)
                .iter()
                .map(|x| x.to_bits())
                .collect::<Vec<_>>()
        };
        for isa in [Isa::Avx512, Isa::Avx2]
            .into_iter()
            .filter(|isa| isa.is_available())
        {
            assert_eq!(bits(isa), bits(Isa::Portable), "{isa:?}");
        }
    }

    #[test]
    fn max_and_min_return_the_second_for_nan() {
        let nan = [f32::NAN; 16];
        let check = |out: Vec<f32>| out.iter().all(|x| !x.is_nan());
        vector_fn! {
            fn both<L>(x: &[f32]) -> Vec<f32> {
                let (a, one) = (L::load(x), L::splat(1.0));
                [a.max(one).to_array(), a.min(one).to_array()].concat()
            }
        }
        for isa in [Isa::Avx512, Isa::Avx2, Isa::Portable] {
            assert!(!isa.is_available() || check(both(isa, &nan)));
        }
    }
}
