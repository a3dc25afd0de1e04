//! Speed of single matrix products with cold caches: several sets of operands in turn.
//!
//! `cargo bench -p millrace-kernels --bench product -- [OPTIONS] KIND:M:N:K...` prints one line per product: the
//! product and the median of its GFLOP/s. KIND is `nn`, `nt` or `tn`: which operand is transposed. Options, each
//! with one value: `--numbers f32|pairs|tiles|bf16` (`bf16`: tiles with AMX, else pairs, as in training),
//! `--stored` with a letter for each of a, b and the result (`f` f32, `h` bf16), `--leaf`, `--sets`, `--seconds`
//! for each product, `--packed true` to pack b before; prints `-` for products that read no packs. One thread with
//! `RAYON_NUM_THREADS=1`. `kernels/benches/beside_torch.py` runs it beside torch.
#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]

use kernels::matmul::{Factor, Numbers, Op, Packed, product};
use kernels::testing::{random, stored_as};
use kernels::{DType, Device, Isa, Tensor};
use std::time::Instant;

struct Options {
    numbers: Numbers,
    stored: [DType; 3],
    leaf: usize,
    sets: usize,
    seconds: f64,
    packed: bool,
}

fn main() {
    let mut options = Options {
        numbers: Numbers::F32,
        stored: [DType::F32; 3],
        leaf: 0,
        sets: 12,
        seconds: 0.6,
        packed: false,
    };
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    while let Some(arg) = args.next() {
        let Some(name) = arg.strip_prefix("--") else {
            match time(&arg, &options) {
                Some(gflops) => println!("{arg} {gflops:.1}"),
                None => println!("{arg} -"),
            }
            continue;
        };
        let value = args.next().expect("an option has a value");
        let number = || value.parse::<f64>().expect("a number");
        match name {
            "numbers" => {
                options.numbers = match value.as_str() {
                    "f32" => Numbers::F32,
                    "pairs" => Numbers::Bf16,
                    "tiles" => Numbers::Bf16Tiles,
                    "bf16" if Isa::detect() == Isa::Amx => Numbers::Bf16Tiles,
                    "bf16" => Numbers::Bf16,
                    _ => panic!("--numbers is f32, pairs, tiles or bf16"),
                }
            }
            "stored" => {
                for (stored, letter) in options.stored.iter_mut().zip(value.chars()) {
                    *stored = if letter == 'h' {
                        DType::Bf16
                    } else {
                        DType::F32
                    };
                }
            }
            "leaf" => options.leaf = value.parse().expect("a number"),
            "sets" => options.sets = value.parse().expect("a number"),
            "seconds" => options.seconds = number(),
            "packed" => options.packed = value == "true",
            _ => panic!("no option --{name}"),
        }
    }
}

/// Median GFLOP/s of a product; None if it should be of packs and none are read.
fn time(product_of: &str, options: &Options) -> Option<f64> {
    let device = Device::cpu();
    let parts: Vec<&str> = product_of.split(':').collect();
    let [kind, m, n, k] = parts[..] else {
        panic!("a product is KIND:M:N:K")
    };
    let [m, n, k] = [m, n, k].map(|size| size.parse::<usize>().expect("a number"));
    let (op_a, op_b) = match kind {
        "nn" => (Op::Plain, Op::Plain),
        "nt" => (Op::Plain, Op::Transposed),
        "tn" => (Op::Transposed, Op::Plain),
        _ => panic!("a kind is nn, nt or tn"),
    };
    let operand = |op, [rows, columns]: [usize; 2], stored| -> Vec<Tensor> {
        let dims = if op == Op::Plain {
            [rows, columns]
        } else {
            [columns, rows]
        };
        let x = random(&dims, 1, &device).expect("fits");
        (0..options.sets).map(|_| stored_as(stored, &x)).collect()
    };
    let [a_stored, b_stored, c_stored] = options.stored;
    let (a, b) = (
        operand(op_a, [m, k], a_stored),
        operand(op_b, [k, n], b_stored),
    );
    let mut c = operand(Op::Plain, [m, n], c_stored);
    let packs: Vec<Packed> = if options.packed {
        let pack = |b| Packed::new(options.numbers, (b, op_b), options.leaf, &device);
        b.iter()
            .map(|b| pack(b).expect("fits"))
            .collect::<Option<_>>()?
    } else {
        Vec::new()
    };
    let (mut seconds, start) = (Vec::new(), Instant::now());
    while start.elapsed().as_secs_f64() < options.seconds || seconds.len() < options.sets {
        let set = seconds.len() % options.sets;
        let factor = match packs.get(set) {
            Some(pack) => Factor::Packed(pack),
            None => Factor::from((&b[set], op_b)),
        };
        let (a, c, begun) = ((&a[set], op_a), &mut c[set], Instant::now());
        product(options.numbers, c, a, factor, options.leaf, false).expect("fits");
        seconds.push(begun.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    Some(2e-9 * (m * n * k) as f64 / seconds[seconds.len() / 2])
}
