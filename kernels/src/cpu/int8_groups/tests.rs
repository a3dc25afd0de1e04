//! Tiles of sixteen rows, which processors with AMX compute, beside tiles of few rows, which all others do.

use super::*;
use crate::Device;
use crate::cpu::Numbers;
use crate::cpu::pack::View;

/// Numbers that codes hold: `[k, n]`, with a scale for each column and group.
fn numbers(code: Code, [k, n]: [usize; 2]) -> Vec<f32> {
    let mut numbers = vec![0.0; k * n];
    let (least, many) = match code {
        Code::Four => (-8, 16),
        Code::FourWithOffsets => (0, 16),
        Code::EightWithOffsets => (0, 32),
        Code::Eight | Code::EightRounded | Code::EightWithWideScales => (-127, 255),
        Code::Fp8 => unreachable!("only whole numbers have sums of integers"),
    };
    let mut state = 7_u32;
    for (at, number) in numbers.iter_mut().enumerate() {
        let (step, column) = (at / n, at % n);
        let kind = u16::try_from((column * 7 + step / code.steps() * 3) % 11).unwrap();
        let scale = f32::from(kind + 1) / 64.0;
        let offset = if code.has_offsets() {
            -4.0 * scale
        } else {
            0.0
        };
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let drawn = i16::try_from((state >> 16) % many).unwrap() + least;
        *number = f32::from(drawn).mul_add(scale, offset);
    }
    numbers
}

struct Factors {
    a: Vec<f32>,
    words: Vec<f32>,
    code: Code,
    shape: [usize; 3],
}

impl Factors {
    fn new(code: Code, shape @ [m, n, k]: [usize; 3]) -> Factors {
        let b = numbers(code, [k, n]);
        let mut words = vec![0.0; floats(code, [k, n])];
        let view = View::new(&b, k, n, n);
        assert!(
            fill(Isa::detect(), code, &mut words, view.into()),
            "{code:?}"
        );
        let angle = |i: usize| f32::from(u16::try_from(i % 9973).unwrap()) * 0.37;
        let a = (0..m * k).map(|i| angle(i).sin() * (1.0 + angle(i / k)));
        Factors {
            a: a.collect(),
            words,
            code,
            shape,
        }
    }

    /// The bits of c + A B.
    fn multiply(&self, isa: Isa, tall: Option<TallTiles>, leaf: usize, finish: Finish) -> Vec<u32> {
        let [m, n, k] = self.shape;
        let device = Device::cpu_with(isa);
        let mut c = vec![0.5; m * n];
        let view = ViewMut {
            data: c.as_mut_slice().into(),
            rows: m,
            cols: n,
            row_stride: n,
        };
        let plan = Plan {
            device: &device,
            numbers: Numbers::F32,
            leaf,
            finish,
            epilogue: Epilogue::default(),
            parallel: m > 16,
        };
        let right = Right {
            words: &self.words,
            code: self.code,
        };
        let a = View::new(&self.a, m, k, k);
        gemm_by(tall, view, a.into(), right, plan).unwrap();
        c.into_iter().map(f32::to_bits).collect()
    }
}

#[test]
fn tiles_of_sixteen_rows_have_the_bits_of_tiles_of_few() {
    let whole = Code::ALL.into_iter().filter(|code| code.is_whole());
    for code in whole {
        for shape in [
            [7, 33, 64],
            [16, 64, 320],
            [17, 31, 130],
            [23, 70, 97],
            [40, 96, 256],
        ] {
            let factors = Factors::new(code, shape);
            for leaf in [0, 32, 96] {
                for finish in [Finish::Store, Finish::Add] {
                    let wanted = factors.multiply(Isa::Portable, None, leaf, finish);
                    let tall = Some(TallTiles::Emulated);
                    let found = factors.multiply(Isa::Portable, tall, leaf, finish);
                    assert!(found == wanted, "{code:?} {shape:?} {leaf} {finish:?}");
                }
            }
        }
    }
}

#[test]
fn only_more_rows_than_a_low_tile_has_make_a_tall_one() {
    let heights = |m, has_tall| -> Vec<[usize; 2]> {
        let tiles = tiles_of(m, has_tall);
        let mut next = 0;
        for tile in &tiles {
            assert_eq!(tile.first, next);
            next += tile.count;
        }
        assert_eq!(next, m);
        tiles.iter().map(|tile| [tile.count, tile.height]).collect()
    };
    assert_eq!(heights(6, true), [[6, 6]]);
    assert_eq!(heights(7, true), [[7, 16]]);
    assert_eq!(heights(19, true), [[16, 16], [2, 2], [1, 1]]);
    assert_eq!(heights(16, false), [[6, 6], [6, 6], [4, 4]]);
}
