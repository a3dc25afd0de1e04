//! Each op once at a shape of its own on the simulated GPU, for the counters of `kernels/docs/kernel_table.py`: bytes of
//! global memory and conflicts of shared memory's banks. Run by that script, as an ignored test.

use crate::matmul::{Numbers, Op, matmul, product};
use crate::testing::{random, simulator, stored_as};
use crate::{AdamW, DType, Device, Heads, Result, Tensor};
use crate::{
    activation, adamw, add, attention, cast, cross_entropy, embedding, glu, grouped_matmul,
    layer_norm, reduce, rms_norm, rope, rows,
};

/// Rows and width of ops on rows.
const ROWS: [usize; 2] = [256, 512];
/// m = n = k of products.
const SIDE: usize = 256;

fn products(device: &Device) -> Result<()> {
    let [a, b] = [1, 2].map(|seed| random(&[SIDE, SIDE], seed, device).unwrap());
    let mut c = Tensor::zeros(&[SIDE, SIDE], DType::F32, device)?;
    matmul(&mut c, &a, b.transposed(), SIDE / 8, false)?;
    matmul(&mut c, &a, b.transposed(), 0, false)?;
    product(Numbers::Bf16, &mut c, &a, b.transposed(), 0, false)?;
    for numbers in [Numbers::Bf16Mma, Numbers::F16Mma] {
        for op_a in [Op::Plain, Op::Transposed] {
            for op_b in [Op::Plain, Op::Transposed] {
                product(numbers, &mut c, (&a, op_a), (&b, op_b), 0, false)?;
            }
        }
    }
    for numbers in [Numbers::F32, Numbers::Bf16] {
        let leaves = [vec![SIDE / 2, SIDE / 2]];
        let dw = (&mut [&mut c][..], Op::Plain);
        grouped_matmul::backward_weight(numbers, dw, &b, &a, &leaves)?;
    }
    Ok(())
}

fn ops_on_rows(device: &Device) -> Result<()> {
    let [n, d] = ROWS;
    let make = |dims: &[usize], seed| random(dims, seed, device).unwrap();
    let (x, dy) = (make(&[n, d], 1), make(&[n, d], 2));
    let (w, b) = (make(&[d], 3), make(&[d], 4));
    let (mut dw, mut db) = (make(&[d], 5), make(&[d], 6));
    let mut changed = make(&[n, d], 7);
    let (_, mean, inv_std) = layer_norm::forward(&x, &w, &b, 1e-5)?;
    let saved = layer_norm::Statistics {
        mean: &mean,
        inv_std: &inv_std,
    };
    let sums = layer_norm::Gradients {
        dw: &mut dw,
        db: &mut db,
    };
    layer_norm::backward(&dy, &x, &w, &saved, None, sums, n / 8)?;
    let (_, inv_rms) = rms_norm::forward(&x, &w, 1e-5)?;
    rms_norm::backward(&dy, &x, &w, &inv_rms, None, &mut dw, n / 8)?;
    let kind = activation::Kind::GeluTanh;
    activation::forward(&x, None, kind)?;
    activation::backward(&dy, &x, None, kind)?;
    glu::forward(&x, glu::Gate::Silu)?;
    glu::backward(&make(&[n, d / 2], 8), &x, glu::Gate::Silu)?;
    add::bias(&mut changed, &b)?;
    reduce::sum_rows(&mut dw, &x, n / 8, false)?;
    rows::largest(x.view())?;
    let ids: Vec<u32> = (0..256).map(|row| row * 7 % 256).collect();
    let ids = Tensor::from_u32(&[n], &ids, device)?;
    let (maxima, sums, _) = cross_entropy::statistics(&x, &ids, 0, d, d / 8)?;
    let max = cross_entropy::merge_maxima(&maxima)?;
    cross_entropy::merge_sums(sums, &maxima, &max)?;
    embedding::forward(&x, &ids, 0)?;
    embedding::backward(&mut changed, &dy, &ids, 0, n / 8)?;
    let (mut m, mut v) = (
        make(&[n, d], 9),
        Tensor::zeros(&[n, d], DType::F32, device)?,
    );
    let settings = AdamW {
        lr: 1e-3,
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        weight_decay: 0.1,
        grad_scale: 1.0,
        step: 3,
    };
    let moments = adamw::Moments {
        m: m.view_mut(),
        v: v.view_mut(),
    };
    adamw::step(changed.view_mut(), dy.view(), moments, &settings)?;
    let amax = cast::row_amax(&x)?;
    cast::scaled_rows(&x, cast::Format::E4m3, &amax)?;
    let blocks = cast::Blocks {
        rows: (128, n),
        columns: (128, d),
    };
    cast::scaled_blocks(&x, cast::Format::E4m3, &blocks)?;
    cast::scaled(&x, cast::Format::E4m3, 0.5)?;
    cast::rounded(&x, cast::Format::F16)?;
    Ok(())
}

/// 4 heads of 64, 128 positions.
fn mixing(device: &Device) -> Result<()> {
    let heads = Heads {
        heads: 4,
        kv_heads: 4,
        width: 64,
    };
    let t = 128;
    let mut qkv = random(&[t, heads.packed()], 1, device)?;
    let frequencies = rope::Frequencies::new(1e4, heads.width, &rope::Scaling::Plain)?;
    let turn = rope::Turn {
        heads: &heads,
        positions: rope::Positions::Run { t, offset: 0 },
        frequencies: &frequencies,
    };
    rope::forward(&mut qkv, &turn)?;
    for (numbers, stored) in [(Numbers::F32, DType::F32), (Numbers::Bf16, DType::Bf16)] {
        let qkv = stored_as(stored, &qkv);
        let call = attention::Call {
            numbers,
            ..attention::Call::causal(&heads, 1, t)
        };
        let (out, lse) = attention::forward(&qkv, &call)?;
        let dout = stored_as(stored, &out);
        let passed = attention::Passed {
            dout: &dout,
            out: &out,
            lse: &lse,
            qkv: &qkv,
            turn: None,
        };
        attention::backward(&passed, &call, t / 8, None)?;
    }
    Ok(())
}

#[test]
#[ignore = "run by kernels/docs/kernel_table.py, with counters"]
fn every_op_runs_once_at_its_shape() {
    let device = simulator::device().expect("the simulated GPU needs a C++ compiler");
    products(&device).unwrap();
    ops_on_rows(&device).unwrap();
    mixing(&device).unwrap();
    device.synchronize().unwrap();
}
