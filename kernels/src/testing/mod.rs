//! Shared by tests and benches of this workspace: random tensors, f64 differences, error measures.

pub mod simulator;

use crate::cpu::bf16::rounded;
use crate::{Bf16, DType, Device, Isa, Result, Tensor, rng};

/// Returns normals as a tensor; the same (seed, dims) give the same values.
/// # Errors
/// As `Tensor::empty`.
pub fn random(dims: &[usize], seed: u64, device: &Device) -> Result<Tensor> {
    let mut x = vec![0.0; dims.iter().product()];
    rng::fill_normal(&mut x, seed, 0, 0, 1.0);
    Tensor::from_f32(dims, &x, device)
}

/// Returns normals among which are numbers that break careless kernels: zeros of both signs, subnormals, very large
/// ones; with `broken` infinities and NaN, too.
/// # Errors
/// As `Tensor::empty`.
pub fn extreme(dims: &[usize], seed: u64, broken: bool, device: &Device) -> Result<Tensor> {
    let special = [
        0.0,
        -0.0,
        1e-40,
        -1e-44,
        1e30,
        -1e30,
        f32::MIN_POSITIVE,
        -90.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    let count = if broken {
        special.len()
    } else {
        special.len() - 3
    };
    let mut x = vec![0.0; dims.iter().product()];
    rng::fill_normal(&mut x, seed, 0, 0, 1.0);
    for (i, x) in x.iter_mut().enumerate().skip(3).step_by(7) {
        *x = special[i / 7 % count];
    }
    Tensor::from_f32(dims, &x, device)
}

/// Returns the f32 values of a tensor of any device.
pub fn values(x: &Tensor) -> Vec<f32> {
    x.download().expect("a test's device works")
}

/// Whether a product of as many multiplications is better left to the other instruction sets: plain Rust calls the C
/// library for each fused multiply-add.
pub fn takes_long(device: &Device, multiplications: usize) -> bool {
    device.isa() == Isa::Portable && multiplications > 2_000_000
}

/// Returns `devices()` and the simulated GPU.
pub fn all_devices() -> Vec<Device> {
    let mut all = devices();
    all.extend(simulator::device());
    all
}

/// Panics unless `run` returns the same bits, or NaN alike, on every instruction set and on the simulated GPU.
pub fn assert_same_bits(run: impl Fn(&Device) -> Vec<Tensor>) {
    assert_same_bits_on(&all_devices(), run);
}

/// Like `assert_same_bits` on these devices.
pub fn assert_same_bits_on(devices: &[Device], run: impl Fn(&Device) -> Vec<Tensor>) {
    let mut wanted: Option<(String, Vec<Vec<u32>>)> = None;
    for device in devices {
        let found = run(device);
        let found: Vec<Vec<u32>> = found.iter().map(|x| comparable(&values(x))).collect();
        let Some((first, wanted)) = &wanted else {
            wanted = Some((device.name().to_owned(), found));
            continue;
        };
        assert_eq!(found.len(), wanted.len(), "{}", device.name());
        for (at, (found, wanted)) in found.iter().zip(wanted).enumerate() {
            let differs = found.iter().zip(wanted).position(|(a, b)| a != b);
            assert!(
                differs.is_none() && found.len() == wanted.len(),
                "tensor {at} of {} differs from {first} at {differs:?}: {} {}",
                device.name(),
                f32::from_bits(found[differs.unwrap_or(0)]),
                f32::from_bits(wanted[differs.unwrap_or(0)]),
            );
        }
    }
}

/// Bits of each number, the same for every NaN: a NaN's sign and payload are its architecture's choice.
fn comparable(x: &[f32]) -> Vec<u32> {
    let one = |x: &f32| if x.is_nan() { f32::NAN } else { *x }.to_bits();
    x.iter().map(one).collect()
}

/// Returns one device per instruction set of this machine.
pub fn devices() -> Vec<Device> {
    Isa::ALL
        .into_iter()
        .filter(|isa| isa.is_available())
        .map(Device::cpu_with)
        .collect()
}

/// Widens to f64.
pub fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|x| f64::from(*x)).collect()
}

/// Returns the largest |found - wanted| over the largest |wanted| (at least 1e-30).
pub fn error(found: &[f32], wanted: &[f64]) -> f64 {
    assert_eq!(
        found.len(),
        wanted.len(),
        "one wanted number per found number"
    );
    let size = wanted.iter().fold(1e-30_f64, |m, x| m.max(x.abs()));
    let distance = |(f, w): (&f32, &f64)| {
        let distance = (f64::from(*f) - w).abs();
        if distance.is_nan() {
            f64::INFINITY
        } else {
            distance
        }
    };
    found.iter().zip(wanted).map(distance).fold(0.0, f64::max) / size
}

/// Returns the gradient of `f` at `x` by central differences of step `h`.
pub fn differences(x: &[f64], h: f64, f: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let mut x = x.to_vec();
    (0..x.len())
        .map(|i| {
            let at = x[i];
            x[i] = at + h;
            let above = f(&x);
            x[i] = at - h;
            let below = f(&x);
            x[i] = at;
            (above - below) / (2.0 * h)
        })
        .collect()
}

/// Returns the binary-counter tree over leaves, the slow obvious way: blocks (start, size) in a list,
/// the last two merged while they are equal in size, at the end from the right.
pub fn tree(leaves: impl IntoIterator<Item = f32>) -> f32 {
    let mut blocks: Vec<(usize, f32)> = Vec::new();
    for leaf in leaves {
        blocks.push((1, leaf));
        while let [.., (a, x), (b, y)] = blocks[..]
            && a == b
        {
            blocks.truncate(blocks.len() - 2);
            blocks.push((a + b, x + y));
        }
    }
    blocks
        .into_iter()
        .rev()
        .map(|(_, x)| x)
        .reduce(|right, left| left + right)
        .unwrap_or(0.0)
}

/// Returns a copy of f32 numbers, rounded to bf16 if that is the type.
pub fn stored_as(dtype: DType, x: &Tensor) -> Tensor {
    if dtype == DType::F32 {
        return x.try_clone().expect("a test's tensors fit");
    }
    let round = |x: &f32| {
        let [.., low, high] = rounded(*x).to_le_bytes();
        Bf16(u16::from_le_bytes([low, high]))
    };
    let rounded: Vec<Bf16> = values(x).iter().map(round).collect();
    Tensor::from_host(x.dims(), &rounded, x.device()).expect("a test's tensors fit")
}

/// Returns numbers of f32 or bf16 as f32.
pub fn widened(x: &Tensor) -> Tensor {
    if x.dtype() == DType::F32 {
        return x.try_clone().expect("a test's tensors fit");
    }
    let values: Vec<Bf16> = x.download().expect("a test's device works");
    let values: Vec<f32> = values.iter().map(|x| f32::from(*x)).collect();
    Tensor::from_f32(x.dims(), &values, x.device()).expect("a test's tensors fit")
}

/// Bits of each number, to compare without -0.0 == 0.0 and NaN != NaN.
pub fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}
