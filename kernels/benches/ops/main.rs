//! Speed of the ops on this machine: best of several runs, GFLOP/s or GB/s.
//!
//! Command: `RAYON_NUM_THREADS=1 cargo bench -p millrace-kernels --bench ops [-- FILTER]`. A GFLOP is 1e9
//! multiplies and adds; bytes are those the op has to read and write once. The last column is the share of the
//! machine's measured ceiling (`ceilings.rs`); an op whose arrays fit a nearer cache may exceed that of copies.
#![expect(clippy::print_stdout, reason = "the table is the result")]

mod ceilings;

use ceilings::Ceilings;
use kernels::activation::{self, Kind};
use kernels::dropout::{Dropout, Place};
use kernels::int8_matmul::{self, Int8Weights};
use kernels::matmul::{Numbers, Op, product};
use kernels::testing::random;
use kernels::{AdamW, DType, Device, Heads, Isa, Tensor};
use std::time::{Duration, Instant};

/// Best time over repeated runs that together take about a fifth of a second.
fn best(mut run: impl FnMut()) -> f64 {
    run();
    let start = Instant::now();
    let mut best = f64::INFINITY;
    while start.elapsed() < Duration::from_millis(200) {
        let one = Instant::now();
        run();
        best = best.min(one.elapsed().as_secs_f64());
    }
    best
}

const DROPOUT: Dropout = Dropout {
    p: 0.1,
    seed: 1,
    step: 1,
    tensor: 0,
};
const PLACE: Place = Place {
    sequence: 0,
    position: 0,
    t: 1024,
    feature: 0,
};

struct Table {
    filter: String,
    ceilings: Ceilings,
}

impl Table {
    fn row(&self, name: &str, unit: &str, work: f64, run: impl FnMut()) {
        if name.contains(&self.filter) {
            let seconds = best(run);
            let rate = work / seconds / 1e9;
            let ceiling = self.ceilings.of(name, unit);
            let share = ceiling.map(|most| format!("{:4.0}%", 100.0 * rate / most));
            println!(
                "{name:<58} {rate:>9.1} {unit:<7} {:>10.3} ms {}",
                seconds * 1e3,
                share.unwrap_or_default()
            );
        }
    }

    fn product(
        &self,
        device: &Device,
        (m, n, k): (usize, usize, usize),
        ops: (Op, Op),
        leaf: usize,
    ) {
        let dims = |op, rows, cols| {
            if op == Op::Plain {
                [rows, cols]
            } else {
                [cols, rows]
            }
        };
        let a = random(&dims(ops.0, m, k), 1, device).expect("fits");
        let b = random(&dims(ops.1, k, n), 2, device).expect("fits");
        let mut c = Tensor::zeros(&[m, n], DType::F32, device).expect("fits");
        let mark = |op| if op == Op::Plain { "" } else { "^T" };
        let marks = (mark(ops.0), mark(ops.1));
        for numbers in [Numbers::F32, Numbers::Bf16, Numbers::Bf16Tiles] {
            let name = format!(
                "matmul {numbers:?} A{}B{} {m} x {n} x {k} leaf {leaf}, {}",
                marks.0,
                marks.1,
                device.name()
            );
            self.row(&name, "GFLOP/s", 2.0 * (m * n * k) as f64, || {
                let operands = ((&a, ops.0), (&b, ops.1));
                product(numbers, &mut c, operands.0, operands.1, leaf, false).expect("shapes fit");
            });
        }
    }
}

fn products(table: &Table) {
    use Op::{Plain, Transposed};
    let device = Device::cpu();
    for leaf in [0, 128, 32] {
        table.product(&device, (1024, 1024, 1024), (Plain, Plain), leaf);
    }
    table.product(&device, (1024, 1024, 1024), (Plain, Transposed), 128);
    table.product(&device, (1024, 1024, 1024), (Transposed, Plain), 128);
    table.product(&device, (2048, 2048, 2048), (Plain, Transposed), 256);
    table.product(&device, (1024, 3072, 768), (Plain, Transposed), 96);
    table.product(&device, (1024, 768, 3072), (Plain, Transposed), 384);
    table.product(&device, (1024, 1024, 256), (Plain, Transposed), 32);
    table.product(&device, (1024, 256, 1024), (Plain, Transposed), 128);
    table.product(&device, (256, 1024, 1024), (Transposed, Plain), 32);
    table.product(&device, (256, 256, 8192), (Transposed, Plain), 128);
    table.product(&device, (768, 3072, 8192), (Transposed, Plain), 128);
    table.product(&device, (1024, 8192, 256), (Plain, Transposed), 32);
    table.product(&device, (1024, 1024, 32), (Plain, Transposed), 4);
    table.product(&device, (96, 1024, 64), (Plain, Transposed), 0);
    table.product(&device, (96, 64, 1024), (Plain, Plain), 0);
    for (n, k) in [
        (2304, 768),
        (3072, 768),
        (768, 3072),
        (1152, 384),
        (1536, 384),
        (384, 1536),
    ] {
        table.product(&device, (1024, n, k), (Plain, Transposed), 0);
        table.product(&device, (1024, k, n), (Plain, Plain), n / 8);
        for leaf in [128, 32] {
            table.product(&device, (n, k, 1024), (Transposed, Plain), leaf);
        }
    }
    table.product(&device, (1024, 50_304, 768), (Plain, Transposed), 0);
    for (n, k) in [(3072, 768), (768, 3072)] {
        let x = random(&[1024, k], 1, &device).expect("memory for the bench");
        let w = random(&[n, k], 2, &device).expect("memory for the bench");
        let w = Int8Weights::new(&w).expect("memory for the bench");
        let work = 2.0 * (1024 * n * k) as f64;
        table.row(
            &format!("int8_matmul 1024 x {n} x {k}"),
            "GOP/s",
            work,
            || {
                int8_matmul::product(&x, &w, None, None).expect("memory for the bench");
            },
        );
    }
    table.product(&device, (1, 4096, 4096), (Plain, Transposed), 512);
    table.product(&device, (1, 768, 768), (Plain, Transposed), 0);
    table.product(&device, (1, 4096, 4096), (Plain, Plain), 512);
    table.product(&device, (8, 4096, 4096), (Plain, Transposed), 512);
    let narrow = [Isa::Avx2, Isa::Portable];
    for isa in narrow.into_iter().filter(|isa| isa.is_available()) {
        let size = if isa == Isa::Portable { 128 } else { 1024 };
        table.product(
            &Device::cpu_with(isa),
            (size, size, size),
            (Plain, Plain),
            32,
        );
    }
}

fn rows(table: &Table) {
    let device = Device::cpu();
    let (n, d) = (1024, 768);
    let bytes = (n * d * 4) as f64;
    let tensor = |dims: &[usize], seed| random(dims, seed, &device).expect("fits");
    let (x, dy, w) = (tensor(&[n, d], 1), tensor(&[n, d], 2), tensor(&[d], 3));
    let mut dw = tensor(&[d], 4);
    let mut db = tensor(&[d], 5);
    let (_, mean, inv_std) = kernels::layer_norm::forward(&x, &w, &w, 1e-5).expect("fits");
    table.row("layer_norm forward 1024 x 768", "GB/s", 2.0 * bytes, || {
        kernels::layer_norm::forward(&x, &w, &w, 1e-5).expect("fits");
    });
    table.row(
        "layer_norm backward 1024 x 768",
        "GB/s",
        3.0 * bytes,
        || {
            let saved = kernels::layer_norm::Statistics {
                mean: &mean,
                inv_std: &inv_std,
            };
            let sums = kernels::layer_norm::Gradients {
                dw: &mut dw,
                db: &mut db,
            };
            kernels::layer_norm::backward(&dy, &x, &w, &saved, None, sums, 128).expect("fits");
        },
    );
    let (_, inv_rms) = kernels::rms_norm::forward(&x, &w, 1e-5).expect("fits");
    table.row("rms_norm forward 1024 x 768", "GB/s", 2.0 * bytes, || {
        kernels::rms_norm::forward(&x, &w, 1e-5).expect("fits");
    });
    table.row("rms_norm backward 1024 x 768", "GB/s", 3.0 * bytes, || {
        kernels::rms_norm::backward(&dy, &x, &w, &inv_rms, None, &mut dw, 128).expect("fits");
    });
    table.row("gelu forward 1024 x 768", "GB/s", 2.0 * bytes, || {
        activation::forward(&x, None, Kind::GeluTanh).expect("fits");
    });
    table.row("gelu backward 1024 x 768", "GB/s", 3.0 * bytes, || {
        activation::backward(&dy, &x, None, Kind::GeluTanh).expect("fits");
    });
    table.row("swiglu forward 1024 x 768", "GB/s", 1.5 * bytes, || {
        kernels::glu::forward(&x, kernels::glu::Gate::Silu).expect("fits");
    });
    gates(table, &x, &dy, bytes);
    let mut kept = tensor(&[n, d], 7);
    table.row("dropout 1024 x 768", "GB/s", 2.0 * bytes, || {
        kernels::dropout::forward(&mut kept, &DROPOUT, &PLACE).expect("fits");
    });
    table.row("sum_rows 1024 x 768", "GB/s", bytes, || {
        kernels::reduce::sum_rows(&mut dw, &x, 128, true).expect("fits");
    });
    let mut y = tensor(&[n, d], 6);
    table.row("add_into 1024 x 768", "GB/s", 3.0 * bytes, || {
        kernels::add::add_into(&mut y, &x).expect("fits");
    });
    table.row("sum_squares 1024 x 768", "GB/s", bytes, || {
        std::hint::black_box(kernels::reduce::sum_squares(&[x.view()]).expect("fits"));
    });
    let runs = kernels::rows::Runs {
        count: n,
        run: d / 2,
        from_stride: d,
        to_stride: d,
    };
    table.row("copy_runs 1024 x 384 of 768", "GB/s", bytes, || {
        kernels::rows::copy_runs(y.view_mut(), x.view(), runs).expect("fits");
    });
    optimizer(table);
}

fn gates(table: &Table, x: &Tensor, dy: &Tensor, bytes: f64) {
    use kernels::activation::Kind;
    for kind in [Kind::GeluErf, Kind::QuickGelu, Kind::SquaredRelu] {
        let name = format!("activation {kind:?} forward 1024 x 768");
        table.row(&name, "GB/s", 2.0 * bytes, || {
            kernels::activation::forward(x, None, kind).expect("fits");
        });
        let name = format!("activation {kind:?} backward 1024 x 768");
        table.row(&name, "GB/s", 3.0 * bytes, || {
            kernels::activation::backward(dy, x, None, kind).expect("fits");
        });
    }
    use kernels::glu::Gate;
    for (form, gate) in [("Tanh", Gate::GeluTanh), ("Erf", Gate::GeluErf)] {
        let name = format!("geglu {form} forward 1024 x 768");
        table.row(&name, "GB/s", 1.5 * bytes, || {
            kernels::glu::forward(x, gate).expect("fits");
        });
    }
}

/// Eight experts, two per token, 1024 tokens of 256.
fn experts(table: &Table) {
    use kernels::{grouped_matmul, permute};
    let device = Device::cpu();
    let (n, k, d, f) = (1024, 2, 256, 1024);
    let choices: Vec<u32> = (0..2048).map(|i| (i * 7 + i / 3) % 8).collect();
    let choices = Tensor::from_u32(&[n, k], &choices, &device).expect("fits");
    let order = permute::Order::new(&choices, 8, 0..8).expect("fits");
    let tensor = |dims: &[usize], seed| random(dims, seed, &device).expect("fits");
    let (x, weights) = (tensor(&[n, d], 1), tensor(&[n, k], 2));
    let rows = permute::permute(&x, &order).expect("fits");
    let bytes = (2 * rows.elements() * 4) as f64;
    table.row("permute 1024 x 2 x 256", "GB/s", bytes, || {
        permute::permute(&x, &order).expect("fits");
    });
    table.row("combine 1024 x 2 x 256", "GB/s", 0.75 * bytes, || {
        permute::combine(&rows, &weights, &order).expect("fits");
    });
    let w: Vec<Tensor> = (30..38).map(|seed| tensor(&[f, d], seed)).collect();
    let w: Vec<&Tensor> = w.iter().collect();
    let work = (2 * n * k * d * f) as f64;
    let counts = order.counts().expect("the host has them");
    let op = Op::Transposed;
    let mut dw: Vec<Tensor> = (40..48).map(|seed| tensor(&[f, d], seed)).collect();
    let mut dw: Vec<&mut Tensor> = dw.iter_mut().collect();
    let leaves: Vec<Vec<usize>> = counts.iter().map(|n| vec![*n]).collect();
    for numbers in [Numbers::F32, Numbers::Bf16, Numbers::Bf16Tiles] {
        let kind = (numbers, DType::F32);
        let y = grouped_matmul::forward(kind, &rows, (&w, op), counts, 0).expect("fits");
        let name = format!("grouped_matmul {numbers:?} 8 experts");
        table.row(&name, "GFLOP/s", work, || {
            grouped_matmul::forward(kind, &rows, (&w, op), counts, 0).expect("fits");
        });
        let name = format!("grouped_matmul {numbers:?} weights 8 experts");
        table.row(&name, "GFLOP/s", work, || {
            let dw = (&mut dw[..], op);
            grouped_matmul::backward_weight(numbers, dw, &y, &rows, &leaves).expect("fits");
        });
    }
    let logits = tensor(&[n, 8], 6);
    let router = kernels::route::Router {
        k,
        groups: None,
        score: kernels::route::Score::TopKSoftmax,
        scale: 1.0,
    };
    let bytes = (n * 8 * 4) as f64;
    table.row("route forward 1024 x 8", "GB/s", bytes, || {
        kernels::route::forward(&logits, None, &router).expect("fits");
    });
}

fn optimizer(table: &Table) {
    let (n, device) = (1 << 20, Device::cpu());
    let of = |x: f32| Tensor::from_f32(&[n], &vec![x; n], &device).expect("fits");
    let [mut w, mut m, mut v, g] = [0.1, 0.0, 0.0, 0.01].map(of);
    let p = AdamW {
        lr: 1e-3,
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        weight_decay: 0.1,
        grad_scale: 1.0,
        step: 10,
    };
    table.row("adamw 1048576", "GB/s", (28 * n) as f64, || {
        kernels::adamw::step(
            w.view_mut(),
            g.view(),
            kernels::adamw::Moments {
                m: m.view_mut(),
                v: v.view_mut(),
            },
            &p,
        )
        .expect("fits");
    });
}

/// Forward and backward, with blocks of keys and leaves as training has them.
fn attention(table: &Table) {
    let device = Device::cpu();
    for (b, t, heads, kv_heads) in [
        (4, 256, 4, 4),
        (4, 256, 6, 6),
        (1, 1024, 12, 12),
        (1, 1024, 12, 4),
    ] {
        let heads = Heads {
            heads,
            kv_heads,
            width: 64,
        };
        let mut qkv = random(&[b * t, heads.packed()], 1, &device).expect("fits");
        let dout = random(&[b * t, heads.heads * heads.width], 2, &device).expect("fits");
        let shape = format!("b {b} t {t} heads {}/{}", heads.heads, heads.kv_heads);
        for numbers in [Numbers::F32, Numbers::Bf16, Numbers::Bf16Tiles] {
            let call = kernels::attention::Call {
                block: t / 8,
                numbers,
                ..kernels::attention::Call::causal(&heads, b, t)
            };
            let (out, lse) = kernels::attention::forward(&qkv, &call).expect("fits");
            // Two products over the lower triangle; backward has five.
            let work = (2 * b * heads.heads * t * t * heads.width) as f64;
            let name = format!("attention {numbers:?} forward {shape}");
            table.row(&name, "GFLOP/s", work, || {
                kernels::attention::forward(&qkv, &call).expect("fits");
            });
            let name = format!("attention {numbers:?} backward {shape}");
            table.row(&name, "GFLOP/s", 2.5 * work, || {
                let passed = kernels::attention::Passed {
                    dout: &dout,
                    out: &out,
                    lse: &lse,
                    qkv: &qkv,
                    turn: None,
                };
                kernels::attention::backward(&passed, &call, t / 8, None).expect("fits");
            });
        }
        let bytes = (2 * qkv.elements() * 4) as f64;
        let by = |frequencies| kernels::rope::Turn {
            heads: &heads,
            positions: kernels::rope::Positions::Run { t, offset: 0 },
            frequencies,
        };
        let scaling = kernels::rope::Scaling::Linear { factor: 4.0 };
        let half = kernels::rope::Frequencies::new(1e4, heads.width / 2, &scaling).expect("fits");
        let plain = kernels::rope::Scaling::Plain;
        let whole = kernels::rope::Frequencies::new(1e4, heads.width, &plain).expect("fits");
        table.row(&format!("rope forward {shape}"), "GB/s", bytes, || {
            kernels::rope::forward(&mut qkv, &by(&whole)).expect("fits");
        });
        let name = format!("rope forward, half a head, {shape}");
        table.row(&name, "GB/s", bytes / 2.0, || {
            kernels::rope::forward(&mut qkv, &by(&half)).expect("fits");
        });
    }
}

/// T5: a bias by distance, no scale, every key seen.
fn biased(table: &Table) {
    use kernels::attention::{Bias, Buckets, Call, Mask, Passed};
    let (device, b, t) = (Device::cpu(), 4, 256);
    let heads = Heads {
        heads: 4,
        kv_heads: 4,
        width: 64,
    };
    let tensor = |dims: &[usize], seed| random(dims, seed, &device).expect("fits");
    let (qkv, biases) = (tensor(&[b * t, heads.packed()], 1), tensor(&[4, 32], 2));
    let (dout, mut dtable) = (tensor(&[b * t, 256], 3), tensor(&[4, 32], 4));
    let buckets = Buckets {
        buckets: 32,
        max_distance: 128,
        bidirectional: true,
    };
    let call = Call {
        scores: kernels::attention::Scores::scaled(false),
        bias: Some(Bias {
            table: &biases,
            buckets,
        }),
        mask: Mask::default(),
        ..Call::causal(&heads, b, t)
    };
    let (out, lse) = kernels::attention::forward(&qkv, &call).expect("fits");
    let passed = Passed {
        dout: &dout,
        out: &out,
        lse: &lse,
        qkv: &qkv,
        turn: None,
    };
    let work = (4 * b * heads.heads * t * t * heads.width) as f64;
    let name = "attention with a bias, forward b 4 t 256 heads 4";
    table.row(name, "GFLOP/s", work, || {
        kernels::attention::forward(&qkv, &call).expect("fits");
    });
    let name = "attention with a bias, backward b 4 t 256 heads 4";
    table.row(name, "GFLOP/s", 2.5 * work, || {
        kernels::attention::backward(&passed, &call, t / 8, Some(&mut dtable)).expect("fits");
    });
}

fn losses(table: &Table) {
    let device = Device::cpu();
    let (n, v) = (512, 8192);
    let logits = random(&[n, v], 1, &device).expect("fits");
    let targets = Tensor::from_u32(&[n], &vec![5; n], &device).expect("fits");
    let weights = Tensor::from_f32(&[n], &vec![1e-3; n], &device).expect("fits");
    let bytes = (n * v * 4) as f64;
    let statistics =
        || kernels::cross_entropy::statistics(&logits, &targets, 0, v, v / 8).expect("fits");
    table.row("cross_entropy statistics 512 x 8192", "GB/s", bytes, || {
        statistics();
    });
    let (maxima, sums, _) = statistics();
    let max = kernels::cross_entropy::merge_maxima(&maxima).expect("fits");
    let sum = kernels::cross_entropy::merge_sums(sums, &maxima, &max).expect("fits");
    let mut grads = logits.try_clone().expect("fits");
    table.row(
        "cross_entropy backward 512 x 8192",
        "GB/s",
        2.0 * bytes,
        || {
            kernels::cross_entropy::backward(
                &mut grads,
                &max,
                &sum,
                &targets,
                kernels::cross_entropy::Slopes::of_loss(&weights),
                0,
                v,
            )
            .expect("fits");
        },
    );
}

fn main() {
    let filter = std::env::args()
        .skip(1)
        .find(|arg| !arg.starts_with('-'))
        .unwrap_or_default();
    println!(
        "{}, {} threads",
        Device::cpu().name(),
        rayon::current_num_threads()
    );
    let ceilings = Ceilings::measure();
    let told = |rate: Option<f64>| rate.map_or("-".into(), |rate| format!("{rate:.1}"));
    println!(
        "ceilings: {} GFLOP/s in f32, {} in bf16 pairs, {} in tiles; copies {:.1} GB/s, {:.1} out of cache",
        told(ceilings.f32),
        told(ceilings.bf16),
        told(ceilings.tiles),
        ceilings.copy,
        ceilings.copy_uncached
    );
    let table = Table { filter, ceilings };
    products(&table);
    attention(&table);
    biased(&table);
    rows(&table);
    experts(&table);
    losses(&table);
}
