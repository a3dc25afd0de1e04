//! Blocks of the package `gguf`, errors of the searches, lengths.

use super::*;
use crate::rng;

/// Blocks of the package `gguf` (`tests/oracles/kernel_quant.py`).
const GOLDEN: &str = include_str!("../../tests/data/quant.txt");

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().as_chunks::<2>().0;
    let byte = |pair: &[u8; 2]| {
        let text = std::str::from_utf8(pair).unwrap();
        u8::from_str_radix(text, 16).unwrap()
    };
    digits.iter().map(byte).collect()
}

fn numbers(hex: &str) -> Vec<f32> {
    let bytes = bytes(hex);
    let words = bytes.as_chunks::<4>().0;
    words.iter().map(|word| f32::from_le_bytes(*word)).collect()
}

/// Bits of numbers, and one pattern for every NaN: the sign of 0 times an infinite scale is the processor's.
fn bits(x: &[f32]) -> Vec<u32> {
    let of = |x: &f32| if x.is_nan() { f32::NAN } else { *x }.to_bits();
    x.iter().map(of).collect()
}

#[test]
fn blocks_and_their_numbers_are_those_of_gguf() {
    let mut seen = Vec::new();
    for line in GOLDEN.lines() {
        let [name, x, blocks, back] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let kind = BlockType::ALL.into_iter().find(|kind| kind.name() == name);
        let kind = kind.unwrap();
        if !seen.contains(&kind) {
            seen.push(kind);
        }
        let (x, blocks, back) = (numbers(x), bytes(blocks), numbers(back));
        if !x.is_empty() {
            let mut found = vec![0; blocks.len()];
            kind.quantize(&x, &mut found);
            let both = found.chunks(kind.bytes()).zip(blocks.chunks(kind.bytes()));
            for (number, (found, wanted)) in both.enumerate() {
                assert_eq!(found, wanted, "{name}, block {number}");
            }
        }
        let mut found = vec![0.0; back.len()];
        kind.dequantize(&blocks, &mut found);
        assert_eq!(bits(&found), bits(&back), "{name}");
    }
    assert_eq!(seen, BlockType::ALL);
}

/// Mean squared error of the numbers that come back, over their mean square.
fn error(kind: BlockType, x: &[f32]) -> f64 {
    let mut blocks = vec![0; x.len() / kind.numbers() * kind.bytes()];
    kind.quantize(x, &mut blocks);
    let mut back = vec![0.0; x.len()];
    kind.dequantize(&blocks, &mut back);
    let square = |x: f32| f64::from(x) * f64::from(x);
    let off: f64 = x.iter().zip(&back).map(|(x, y)| square(x - y)).sum();
    off / x.iter().copied().map(square).sum::<f64>()
}

/// For normal numbers an optimal quantizer of b bits and a uniform grid has these errors (Max 1960, "Quantizing for
/// minimum distortion", table of uniform output levels): 4 bits .01154, 5 bits .00349, 6 bits .00104. Scales for each
/// 16 or 32 numbers do better on few numbers and lose to 6-bit scales: within a third.
#[test]
fn errors_of_normal_numbers_are_near_those_of_the_best_uniform_grid() {
    let mut x = vec![0.0; 64 * 256];
    rng::fill_normal(&mut x, 11, 0, 0, 0.02);
    for (kind, optimum) in [
        (BlockType::Q4_K, 0.01154),
        (BlockType::Q5_K, 0.00349),
        (BlockType::Q6_K, 0.00104),
    ] {
        let found = error(kind, &x);
        assert!(
            found < optimum * 4.0 / 3.0,
            "{}: {found} beside {optimum}",
            kind.name()
        );
    }
    let plain = error(BlockType::Q4_0, &x);
    assert!(error(BlockType::Q4_K, &x) < plain, "a search beats none");
}

#[test]
fn zeros_and_constants_come_back() {
    for kind in BlockType::ALL {
        let mut back = vec![1.0; kind.numbers()];
        let mut block = vec![255; kind.bytes()];
        kind.quantize(&vec![0.0; kind.numbers()], &mut block);
        kind.dequantize(&block, &mut back);
        assert!(back.iter().all(|&x| x == 0.0), "{}", kind.name());
        for constant in [0.5, -0.5] {
            kind.quantize(&vec![constant; kind.numbers()], &mut block);
            kind.dequantize(&block, &mut back);
            let worst = back
                .iter()
                .fold(0.0_f32, |worst, x| worst.max((x - constant).abs()));
            assert!(worst < 0.02, "{}: {worst}", kind.name());
        }
    }
}

#[test]
#[should_panic(expected = "Q8_0: 33 numbers and 34 bytes")]
fn parts_of_blocks_are_refused() {
    BlockType::Q8_0.quantize(&[0.0; 33], &mut [0; 34]);
}
