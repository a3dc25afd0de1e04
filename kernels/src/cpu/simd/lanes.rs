//! The trait of sixteen f32 lanes, and the means to write kernels over it.
//!
//! Element i of a row is in lane i % 16; a row's sum is 16 lane sums and one fixed tree over lanes.
#![expect(unsafe_code, reason = "loads and stores through pointers")]

use crate::{Bf16, F16};

/// Lanes of a vector, on every instruction set.
pub(crate) const LANES: usize = 16;

/// 3 * 2^22: adding it to a number below 2^22 and subtracting it again rounds to the nearest integer, ties to even;
/// in between, the lowest bits hold the integer.
pub(crate) const NEAREST: f32 = 12_582_912.0;

/// 2^112: the quotient of binary32's and binary16's numbers with the same bits of exponent and mantissa.
pub(super) const F16_BIAS: f32 = 5_192_296_858_534_827_628_530_496_329_220_096.0;

/// Bit of binary32 at which `fp8_at` puts the lowest one of FP8.
pub(crate) const FP8_PLACE: u32 = 20;

/// Bits of binary32 that it sets.
pub(super) const FP8_BITS: i32 = i32::MIN | 0x7f << FP8_PLACE;

/// Bits of 1.0.
pub(super) const ONE: u32 = 0x3f80_0000;

/// Prefetch instructions of x86-64, for every vector width.
#[cfg(target_arch = "x86_64")]
macro_rules! prefetches {
    () => {
        #[inline(always)]
        fn prefetch(x: *const f32) {
            // SAFETY: called only inside `run`; a prefetch reads nothing and faults nowhere.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(x.cast()) }
        }

        #[inline(always)]
        fn prefetch_to_write(x: *const f32) {
            // SAFETY: called only inside `run`; a prefetch with intent to write changes no memory and faults nowhere.
            unsafe { _mm_prefetch::<_MM_HINT_ET0>(x.cast()) }
        }

        #[inline(always)]
        fn prefetch_to_l2(x: *const f32) {
            // SAFETY: called only inside `run`; a prefetch reads nothing and faults nowhere.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(x.cast()) }
        }
    };
}

#[cfg(target_arch = "x86_64")]
pub(super) use prefetches;

/// Sixteen f32. All methods act lane by lane.
pub(crate) trait Lanes: Copy {
    /// Vectors in a row of the matrix product's tile.
    const TILE_VECTORS: usize;
    /// Rows of its tallest tile.
    const TILE_ROWS: usize;

    fn splat(x: f32) -> Self;
    /// Broadcasts float i of those at `x`.
    /// # Safety
    /// LEN floats can be read at `x`; i < LEN.
    #[inline(always)]
    unsafe fn splat_of<const LEN: usize>(x: *const f32, i: usize) -> Self {
        // SAFETY: i < LEN floats can be read at `x`, by this function's contract.
        Self::splat(unsafe { *x.add(i) })
    }
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
        let x = &x[..LANES];
        // SAFETY: sixteen numbers are there.
        unsafe { Self::widen_at(x.as_ptr()) }
    }

    /// # Safety
    /// Sixteen numbers can be read at `x`.
    #[inline(always)]
    unsafe fn widen_at(x: *const Bf16) -> Self {
        // SAFETY: sixteen numbers can be read, by this function's contract.
        let x = unsafe { std::slice::from_raw_parts(x, LANES) };
        let mut lanes = [0.0; LANES];
        (lanes.iter_mut().zip(x)).for_each(|(lane, x)| *lane = (*x).into());
        Self::load(&lanes)
    }

    /// Numbers 0, 2, 4 and so on of 32, and numbers 1, 3, 5 and so on.
    /// # Safety
    /// 32 numbers can be read at `x`.
    #[inline(always)]
    unsafe fn widen_two_at(x: *const Bf16) -> [Self; 2] {
        // SAFETY: the numbers can be read, by this function's contract.
        let x = unsafe { std::slice::from_raw_parts(x, 2 * LANES) };
        let mut lanes = [[0.0; LANES]; 2];
        for (lane, pair) in x.chunks_exact(2).enumerate() {
            for (vector, x) in lanes.iter_mut().zip(pair) {
                vector[lane] = (*x).into();
            }
        }
        lanes.map(|lanes| Self::load(&lanes))
    }

    /// V vectors, one after another. A closure's body would be compiled without the instruction set where it is not inlined.
    /// # Safety
    /// V times sixteen floats can be read at `x`.
    #[inline(always)]
    unsafe fn load_all_at<const V: usize>(x: *const f32) -> [Self; V] {
        let mut all = [Self::splat(0.0); V];
        for (v, own) in all.iter_mut().enumerate() {
            // SAFETY: V vectors can be read, by this function's contract.
            *own = unsafe { Self::load_at(x.add(v * LANES)) };
        }
        all
    }

    /// The first V vectors.
    #[inline(always)]
    fn load_all<const V: usize>(x: &[f32]) -> [Self; V] {
        let x = &x[..V * LANES];
        // SAFETY: V vectors are there.
        unsafe { Self::load_all_at(x.as_ptr()) }
    }

    /// Sixteen signed bytes.
    /// # Safety
    /// Sixteen bytes can be read at `x`.
    #[inline(always)]
    unsafe fn bytes_at(x: *const i8) -> Self {
        // SAFETY: sixteen bytes can be read, by this function's contract.
        let x = unsafe { std::slice::from_raw_parts(x, LANES) };
        let mut lanes = [0.0; LANES];
        (lanes.iter_mut().zip(x)).for_each(|(lane, x)| *lane = f32::from(*x));
        Self::load(&lanes)
    }

    /// Sixteen finite numbers of FP8 E4M3, 2^-120 times as large: sign, exponent and fraction at their places in binary32, whose bias is
    /// 120 more, which is exact for subnormals too.
    /// # Safety
    /// Sixteen bytes can be read at `x`.
    #[inline(always)]
    unsafe fn fp8_at(x: *const u8) -> Self {
        // SAFETY: sixteen bytes can be read, by this function's contract.
        let x = unsafe { std::slice::from_raw_parts(x, LANES) };
        let mut lanes = [0.0; LANES];
        for (lane, x) in lanes.iter_mut().zip(x) {
            let bits = i32::from(x.cast_signed()) << FP8_PLACE & FP8_BITS;
            *lane = f32::from_bits(bits.cast_unsigned());
        }
        Self::load(&lanes)
    }

    /// Sixteen numbers of 4 bits, signed or not, two a byte, the even one below.
    /// # Safety
    /// Eight bytes can be read at `x`.
    #[inline(always)]
    unsafe fn nibbles_at<const SIGNED: bool>(x: *const u8) -> Self {
        // SAFETY: eight bytes can be read, by this function's contract.
        let x = unsafe { std::slice::from_raw_parts(x, LANES / 2) };
        let mut lanes = [0.0; LANES];
        for (pair, x) in lanes.chunks_exact_mut(2).zip(x) {
            pair.copy_from_slice(&nibbles(*x, SIGNED));
        }
        Self::load(&lanes)
    }

    /// Numbers 0, 2, 4 and so on of 32 of 4 bits, signed or not, two a byte, and numbers 1, 3, 5 and so on.
    /// # Safety
    /// Sixteen bytes can be read at `x`.
    #[inline(always)]
    unsafe fn nibbles_of_two_at<const SIGNED: bool>(x: *const u8) -> [Self; 2] {
        // SAFETY: sixteen bytes can be read, by this function's contract.
        let x = unsafe { std::slice::from_raw_parts(x, LANES) };
        let mut lanes = [[0.0; LANES]; 2];
        for (lane, x) in x.iter().enumerate() {
            for (vector, x) in lanes.iter_mut().zip(nibbles(*x, SIGNED)) {
                vector[lane] = x;
            }
        }
        lanes.map(|lanes| Self::load(&lanes))
    }

    /// Sixteen finite numbers of IEEE binary16.
    /// # Safety
    /// Sixteen numbers can be read at `x`.
    #[inline(always)]
    unsafe fn finite_f16_at(x: *const F16) -> Self {
        // SAFETY: sixteen numbers can be read, by this function's contract.
        let x = unsafe { std::slice::from_raw_parts(x, LANES) };
        let mut lanes = [0.0; LANES];
        for (lane, x) in lanes.iter_mut().zip(x) {
            let bits = u32::from(x.0);
            // the exponent is moved, and then brought from binary16's bias to binary32's, exactly for subnormals too
            let size = f32::from_bits((bits & 0x7fff) << 13) * F16_BIAS;
            *lane = f32::from_bits(size.to_bits() | (bits & 0x8000) << 16);
        }
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

    /// The inverse of `load_words`.
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
            // SAFETY: `len` floats can be read at `a` and `b` and written at `out`, by this function's contract.
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

    /// Prefetches the line at `x`, if it exists.
    #[inline(always)]
    fn prefetch(_: *const f32) {}

    /// Like `ask_for`, with the intent to write.
    #[inline(always)]
    fn prefetch_to_write(_: *const f32) {}

    /// Prefetches the line at `x` no nearer than L2, to write or read it a product later: a pending line into L1
    /// takes one of the few line-fill buffers that panels' lines need.
    #[inline(always)]
    fn prefetch_to_l2(_: *const f32) {}

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

/// The inverse of `tail`.
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

/// Prefetch distance in floats, for memory that is read once.
pub(crate) const AHEAD: usize = 32 * LANES;

/// Both numbers of a byte, the low one first.
fn nibbles(byte: u8, are_signed: bool) -> [f32; 2] {
    [byte & 15, byte >> 4].map(|bits| match bits {
        8.. if are_signed => f32::from(bits) - 16.0,
        _ => f32::from(bits),
    })
}
