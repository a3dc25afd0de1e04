//! Sixteen f32 lanes with one meaning on AVX-512, AVX2 + FMA, NEON and plain Rust.
//!
//! A kernel is written once over `Lanes` and compiled once per instruction set; every operation is a
//! correctly rounded IEEE operation on each lane and nothing is reassociated, so the bits agree.
#![expect(unsafe_code, reason = "calls into functions with target features")]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod lanes;
#[cfg(target_arch = "aarch64")]
mod neon;
mod plain;

use crate::Isa;
#[cfg(target_arch = "x86_64")]
pub(super) use avx512::Wide;
pub(crate) use lanes::{AHEAD, FP8_PLACE, Kernel, LANES, Lanes, NEAREST};
pub(crate) use plain::Plain;

/// Runs `K` with the vectors of `isa`, which the processor must have (devices see to it).
pub(crate) fn run<K: Kernel<Args>, Args>(isa: Isa, args: Args) -> K::Out {
    let run = compiled::<K, Args>(isa);
    // SAFETY: the machine has this function's features, as `compiled` asserts.
    unsafe { run(args) }
}

/// `K` compiled for the vectors of `isa`, for callers that run it often. It is safe to call on the machine that asked for it.
/// # Panics
/// If the processor does not have them (devices see to it).
pub(crate) fn compiled<K: Kernel<Args>, Args>(isa: Isa) -> unsafe fn(Args) -> K::Out {
    assert!(
        isa.has_vectors(),
        "devices only offer instruction sets the machine has"
    );
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Amx | Isa::Avx512Bf16 | Isa::Avx512 => avx512::run::<K, Args>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::run::<K, Args>,
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => neon::run::<K, Args>,
        _ => K::run::<Plain>,
    }
}

/// Declares a function over `Lanes` that takes the instruction set as its first argument:
/// `vector_fn! { fn scale<L>(x: &mut [f32], by: f32) { ... } }` is called as `scale(isa, x, by)`.
macro_rules! vector_fn {
    ($(#[$meta:meta])* $vis:vis fn $name:ident<$lanes:ident>
        ($($arg:ident: $kind:ty),* $(,)?) $(-> $out:ty)? $body:block) => {
        $(#[$meta])*
        $vis fn $name(isa: $crate::Isa, $($arg: $kind),*) $(-> $out)? {
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
    use crate::{Bf16, F16};

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

    /// Sixteen rows transposed, sixteen numbers widened, 32 as words and back, each of the first five floats.
    fn moved<L: Lanes>(x: &[f32], halves: &[Bf16]) -> (Vec<f32>, Vec<Bf16>) {
        let rows: [L; LANES] = std::array::from_fn(|i| L::load(&x[i * LANES..]));
        let turned = L::transpose(rows);
        let words = L::load_words(halves);
        let mut again = vec![Bf16(0); 2 * LANES];
        words.store_words(&mut again);
        // SAFETY: the slice has more than five floats.
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
        fn widened<L>(bytes: &[u8], halves: &[F16]) -> Vec<f32> {
            let halves = halves.chunks_exact(LANES).map(|x| {
                // SAFETY: sixteen numbers.
                unsafe { L::finite_f16_at(x.as_ptr()) }
            });
            let codes = bytes.chunks_exact(LANES).flat_map(|x| {
                let x = x.as_ptr();
                // SAFETY: sixteen bytes.
                let [even, odd] = unsafe { L::nibbles_of_two_at::<true>(x) };
                // SAFETY: the same.
                let plain = unsafe { L::nibbles_of_two_at::<false>(x) };
                // SAFETY: the same.
                let (signed, unsigned) = unsafe { (L::nibbles_at::<true>(x), L::nibbles_at::<false>(x)) };
                // SAFETY: the same.
                let (whole, small) = unsafe { (L::bytes_at(x.cast()), L::fp8_at(x)) };
                [whole, small, signed, unsigned, even, odd, plain[0], plain[1]]
            });
            halves.chain(codes).flat_map(L::to_array).collect()
        }
    }

    #[test]
    fn every_instruction_set_widens_all_codes_and_all_finite_halves() {
        let bytes: Vec<u8> = (0..=u8::MAX).collect();
        let finite = |bits: &u16| bits & 0x7c00 != 0x7c00;
        let halves: Vec<u16> = (0..=u16::MAX).filter(finite).collect();
        let mut wanted: Vec<f32> = (halves.iter())
            .map(|&x| half::f16::from_bits(x).to_f32())
            .collect();
        let plain = |x: u8| [f32::from(x % 16), f32::from(x / 16)];
        let fp8 = |x: u8| {
            let size = match x >> 3 & 15 {
                0 => f32::from(x & 7) * 2f32.powi(-9),
                exponent => f32::from(8 + (x & 7)) * 2f32.powi(i32::from(exponent) - 10),
            };
            2f32.powi(-120) * if x < 128 { size } else { -size }
        };
        let signed = |x: u8| plain(x).map(|x| if x < 8.0 { x } else { x - 16.0 });
        for x in bytes.chunks_exact(LANES) {
            let low = &x[..LANES / 2];
            wanted.extend(x.iter().map(|&x| f32::from(x.cast_signed())));
            wanted.extend(x.iter().map(|&x| fp8(x)));
            wanted.extend(low.iter().flat_map(|&x| signed(x)));
            wanted.extend(low.iter().flat_map(|&x| plain(x)));
            for of in [&signed as &dyn Fn(u8) -> [f32; 2], &plain] {
                for half in 0..2 {
                    wanted.extend(x.iter().map(|&x| of(x)[half]));
                }
            }
        }
        let halves: Vec<F16> = halves.into_iter().map(F16).collect();
        for isa in available() {
            let found = widened(isa, &bytes, &halves);
            assert!(bits(&found) == bits(&wanted), "{isa:?}");
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
