//! Sixteen f32 lanes with one meaning on AVX-512, AVX2 + FMA, NEON and plain Rust.
//!
//! A kernel is written once over `Lanes` and compiled once per instruction set; every operation is a
//! correctly rounded IEEE operation on each lane and nothing is reassociated, so the bits agree.
//! Element i of a row lies in lane i % 16; a row's sum is 16 lane sums and one fixed tree over lanes.
#![expect(
    unsafe_code,
    reason = "loads and stores through pointers, calls into functions with target features"
)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod plain;

use crate::Bf16;

#[cfg(target_arch = "x86_64")]
pub(super) use avx512::Wide;
pub(crate) use plain::Plain;

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
            // Little-endian alone: words of two numbers are loaded as they lie.
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Isa::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            Isa::Portable => true,
            // of another architecture
            _ => false,
        }
    }

    /// Whether processors of an architecture, by Rust's name of it, may have it.
    pub(super) fn is_of(self, architecture: &str) -> bool {
        match self {
            Isa::Amx | Isa::Avx512Bf16 | Isa::Avx512 | Isa::Avx2 => architecture == "x86_64",
            Isa::Neon => architecture == "aarch64",
            Isa::Portable => true,
        }
    }
}

/// How vectors of x86-64 ask for lines of memory, whatever their width.
#[cfg(target_arch = "x86_64")]
macro_rules! prefetches {
    () => {
        #[inline(always)]
        fn ask_for(x: *const f32) {
            // SAFETY: called only inside `run`; a prefetch reads nothing and faults nowhere.
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
    };
}
#[cfg(target_arch = "x86_64")]
use prefetches;

/// Sixteen f32. All methods act lane by lane.
pub(crate) trait Lanes: Copy {
    /// Vectors in a row of the matrix product's tile.
    const TILE_VECTORS: usize;

    fn splat(x: f32) -> Self;
    /// Float i of those at `x` in all lanes.
    /// # Safety
    /// LEN floats can be read at `x`; i < LEN.
    #[inline(always)]
    unsafe fn splat_of<const LEN: usize>(x: *const f32, i: usize) -> Self {
        // SAFETY: by the caller's word.
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
        Isa::Amx | Isa::Avx512Bf16 | Isa::Avx512 => unsafe { avx512::run::<K, Args>(args) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the machine has these features by the assert.
        Isa::Avx2 => unsafe { avx2::run::<K, Args>(args) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: the machine has the feature by the assert.
        Isa::Neon => unsafe { neon::run::<K, Args>(args) },
        _ => K::run::<Plain>(args),
    }
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

    fn available() -> impl Iterator<Item = Isa> {
        Isa::ALL.into_iter().filter(|isa| isa.is_available())
    }

    fn bits(x: &[f32]) -> Vec<u32> {
        x.iter().map(|x| x.to_bits()).collect()
    }

    #[test]
    fn every_instruction_set_gives_the_same_bits() {
        let x: Vec<f32> = (0..16_u8).map(|i| (f32::from(i) - 7.3) * 1.7).collect();
        let y: Vec<f32> = (0..16_u8).map(|i| (f32::from(i) - 3.1) * 0.3).collect();
        let wanted = bits(&every_operation(Isa::Portable, &x, &y));
        for isa in available() {
            assert_eq!(bits(&every_operation(isa, &x, &y)), wanted, "{isa:?}");
        }
    }

    /// Sixteen rows turned, sixteen numbers widened, 32 as words and back, each of the first five floats.
    fn moved<L: Lanes>(x: &[f32], halves: &[Bf16]) -> (Vec<f32>, Vec<Bf16>) {
        let rows: [L; LANES] = std::array::from_fn(|i| L::load(&x[i * LANES..]));
        let turned = L::transpose(rows);
        let words = L::load_words(halves);
        let mut again = vec![Bf16(0); 2 * LANES];
        words.store_words(&mut again);
        // SAFETY: five floats are there and more.
        let each: [L; 5] = std::array::from_fn(|i| unsafe { L::splat_of::<5>(x.as_ptr(), i) });
        let all = turned
            .into_iter()
            .chain([L::widen(halves), words])
            .chain(each);
        (all.flat_map(L::to_array).collect(), again)
    }

    vector_fn! {
        fn moves<L>(x: &[f32], halves: &[Bf16]) -> (Vec<f32>, Vec<Bf16>) {
            moved::<L>(x, halves)
        }
    }

    #[test]
    fn every_instruction_set_moves_numbers_alike() {
        let x: Vec<f32> = (0..LANES * LANES).map(|i| i as f32).collect();
        let halves: Vec<Bf16> = (0..32).map(|i| Bf16(0x3f80 + 257 * i)).collect();
        let mut wanted: Vec<f32> = (0..LANES * LANES)
            .map(|i| x[i % LANES * LANES + i / LANES])
            .collect();
        wanted.extend(halves[..LANES].iter().map(|x| f32::from(*x)));
        let words = halves.chunks_exact(2);
        let words = words.map(|x| u32::from(x[1].0) << 16 | u32::from(x[0].0));
        wanted.extend(words.map(f32::from_bits));
        (0..5).for_each(|i| wanted.extend([x[i]; LANES]));
        for isa in available() {
            let (found, again) = moves(isa, &x, &halves);
            assert_eq!(bits(&found), bits(&wanted), "{isa:?}");
            assert!(again == halves, "{isa:?}");
        }
    }

    vector_fn! {
        fn chosen<L>(x: &[f32], y: &[f32]) -> Vec<f32> {
            let (a, b) = (L::load(x), L::load(y));
            [a.max(b), a.min(b), a.select_less(b, a, b)].into_iter().flat_map(L::to_array).collect()
        }
    }

    #[test]
    fn max_and_min_return_the_second_for_nan_and_for_equal_numbers() {
        let (nan, mut pairs) = (f32::NAN, vec![(1.0, 2.0), (2.0, 1.0)]);
        pairs.extend([
            (nan, 1.0),
            (1.0, nan),
            (nan, -nan),
            (0.0, -0.0),
            (-0.0, 0.0),
        ]);
        pairs.resize(LANES, (3.0, 3.0));
        let (x, y): (Vec<f32>, Vec<f32>) = pairs.iter().copied().unzip();
        let choice = |takes: fn(&f32, &f32) -> bool| {
            let choose = move |(a, b): &(f32, f32)| if takes(a, b) { *a } else { *b };
            pairs.iter().map(choose).collect::<Vec<f32>>()
        };
        let (largest, least) = (choice(|a, b| a > b), choice(|a, b| a < b));
        let wanted = bits(&[largest, least.clone(), least].concat());
        for isa in available() {
            assert_eq!(bits(&chosen(isa, &x, &y)), wanted, "{isa:?}");
        }
    }
}
