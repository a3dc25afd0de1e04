//! Each op once at a shape of its own on the simulated GPU, for the counters of `kernels/docs/kernel_table.py`: bytes of
//! global memory and conflicts of shared memory's banks. Run by that script, as an ignored test.

use crate::grouped_matmul::{Counts, Leaves};
use crate::matmul::{self, Numbers, Op, matmul, product, product_of_eight};
use crate::testing::{random, simulator, stored_as};
use crate::{AdamW, DType, Device, Heads, Result, Tensor};
use crate::{
    activation, adamw, add, attention, cast, cross_entropy, embedding, glu, grouped_matmul,
    layer_norm, lerp, muon, permute, qk_norm, reduce, rms_norm, rope, route, rows,
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

/// Four experts of 64, 128, 0 and 64 rows, as the device counts them, and factors of 8 bits.
fn grouped_products(device: &Device) -> Result<()> {
    let [x, dy] = [1, 2].map(|seed| random(&[SIDE, SIDE], seed, device).unwrap());
    let w: Vec<Tensor> = (3..7)
        .map(|seed| random(&[SIDE, SIDE], seed, device).unwrap())
        .collect();
    let w: Vec<&Tensor> = w.iter().collect();
    let offsets = Tensor::from_u32(&[5], &[0, 64, 192, 192, 256], device)?;
    let leaves = Tensor::from_u32(&[4, 2], &[32, 32, 64, 64, 0, 0, 32, 32], device)?;
    let counts = Counts::OnDevice(&offsets);
    for (numbers, leaf) in [
        (Numbers::F32, 0),
        (Numbers::F32, SIDE / 8),
        (Numbers::Bf16, 0),
        (Numbers::Bf16Mma, 0),
        (Numbers::F16Mma, 0),
    ] {
        let kind = (numbers, DType::F32);
        for op in [Op::Plain, Op::Transposed] {
            grouped_matmul::forward(kind, &x, (&w, op), counts, leaf)?;
        }
        if numbers.is_by_tensor_cores() {
            let mut dw: Vec<Tensor> = (0..4)
                .map(|_| Tensor::zeros(&[SIDE, SIDE], DType::F32, device))
                .collect::<Result<_>>()?;
            let mut dw: Vec<&mut Tensor> = dw.iter_mut().collect();
            let leaves = Leaves::OnDevice {
                offsets: &offsets,
                rows: &leaves,
            };
            grouped_matmul::backward_weight(numbers, (&mut dw, Op::Plain), &dy, &x, leaves)?;
        }
    }
    let blocks = cast::Blocks {
        rows: (1, SIDE),
        columns: (SIDE, SIDE),
    };
    let four = cast::stored_blocks(&x, cast::Format::E4m3, &blocks)?;
    let five = cast::stored_blocks(&dy, cast::Format::E5m2, &blocks)?;
    let [four, five] = [&four, &five].map(|of| matmul::Eight {
        codes: &of.codes,
        back: &of.back,
    });
    let mut c = Tensor::zeros(&[SIDE, SIDE], DType::F32, device)?;
    for [a, b] in [[four, four], [four, five], [five, four]] {
        product_of_eight(&mut c, a, b, matmul::End::Store)?;
    }
    Ok(())
}

/// A router of 8 experts, two per token, and the way of 256 rows to them and back.
fn mixture(device: &Device) -> Result<()> {
    let ([n, d], experts) = (ROWS, 8);
    let make = |dims: &[usize], seed| random(dims, seed, device).unwrap();
    let logits = make(&[n, experts], 1);
    let router = route::Router {
        k: 2,
        groups: None,
        score: route::Score::TopKSoftmax,
        scale: 1.0,
    };
    let mut started = route::start(&logits, None, &router)?;
    let losses = route::Losses {
        statistics: &started.unread,
        coefficients: &route::Coefficients {
            balance: 0.01,
            z: 0.001,
        },
    };
    let weights = &started.weights;
    route::backward(weights, &logits, &started.experts, &router, losses)?;
    let policy = route::Drop::ByWeight;
    route::drop_over(&mut started.experts, weights, experts, n / 4, policy)?;
    let order = permute::Order::new(&started.experts, experts, 0..experts)?;
    order.leaves(n / 8)?;
    let x = make(&[n, d], 2);
    let rows = permute::permute(&x, &order)?;
    let y = permute::combine(&rows, weights, &order)?;
    let (drows, _) = permute::combine_backward(&y, &rows, weights, &order)?;
    permute::permute_backward(&drows, &order)?;
    Ok(())
}

/// Casts to stored numbers, Muon, averages and copies.
fn rest(device: &Device) -> Result<()> {
    let [n, d] = ROWS;
    let make = |dims: &[usize], seed| random(dims, seed, device).unwrap();
    let (x, mut y) = (make(&[n, d], 1), make(&[n, d], 2));
    let codes = cast::stored(&x, cast::Format::E4m3)?;
    cast::widened(&codes)?;
    cast::turned(&codes)?;
    cast::stored_scaled(&x, cast::Format::E4m3, 0.5)?;
    lerp::towards(y.view_mut(), x.view(), 0.1)?;
    let mut u = make(&[n, d], 3);
    muon::momentum(y.view_mut(), u.view_mut(), x.view(), 1.0, 0.95)?;
    muon::orthogonalize(&mut make(&[n, n], 4), 1)?;
    let runs = rows::Runs {
        count: n,
        run: d / 2,
        from_stride: d,
        to_stride: d,
    };
    rows::copy_runs(y.view_mut(), x.view(), runs)?;
    rows::add(y.view_mut(), x.view())?;
    rows::scale(y.view_mut(), 0.5)?;
    rows::fill(u.view_mut(), 1.0)?;
    rows::sum_groups(&x, 4)?;
    rows::not_finite(x.view())?;
    rows::scaled_rows(&x, &make(&[n], 5))?;
    rows::dot_rows(&x, &y)?;
    let heads = Heads {
        heads: 4,
        kv_heads: 2,
        width: 64,
    };
    let (mut qkv, mut dqkv) = (make(&[n, heads.packed()], 6), make(&[n, heads.packed()], 7));
    let (q, k) = (make(&[64], 8), make(&[64], 9));
    let weights = || qk_norm::Weights { q: &q, k: &k };
    qk_norm::backward(&mut dqkv, &qkv, &heads, weights(), 1e-5, n / 8)?;
    qk_norm::forward(&mut qkv, &heads, weights(), 1e-5)?;
    joint_norms(&mut qkv, &mut dqkv, &heads)
}

/// Norms over all heads of a row.
fn joint_norms(qkv: &mut Tensor, dqkv: &mut Tensor, heads: &Heads) -> Result<()> {
    use qk_norm::joint::{Normed, Totals, backward, forward, products, squares};
    let (n, device) = (qkv.dims()[0], qkv.device().clone());
    let make = |dims: &[usize], seed| random(dims, seed, &device).unwrap();
    let widths = [heads.heads, heads.kv_heads].map(|heads_of| heads_of * heads.width);
    let (q, k) = (make(&widths[..1], 1), make(&widths[1..], 2));
    let weights = || qk_norm::Weights { q: &q, k: &k };
    let (of_q, of_k) = (make(&[n, 1], 3), make(&[n, 1], 4));
    let totals = Totals {
        q: &of_q,
        k: &of_k,
        q_width: widths[0],
        k_width: widths[1],
    };
    squares(qkv, heads)?;
    let normed = Normed {
        qkv,
        squares: totals,
        eps: 2.0,
    };
    products(dqkv, normed, heads, weights())?;
    backward(dqkv, (normed, totals), heads, weights(), n / 8)?;
    forward(qkv, heads, weights(), totals, 2.0)
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
    cross_entropy::cap(&mut changed, 30.0)?;
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
    for (numbers, stored) in [
        (Numbers::F32, DType::F32),
        (Numbers::Bf16, DType::Bf16),
        (Numbers::Bf16Mma, DType::Bf16),
        (Numbers::F16Mma, DType::F32),
    ] {
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
    over_pages(device, &qkv, &heads)
}

/// The same rows in a cache of pages of 16, in reverse order.
fn over_pages(device: &Device, qkv: &Tensor, heads: &Heads) -> Result<()> {
    let mut cache = Tensor::zeros(&[qkv.dims()[0], heads.kv_width()], DType::F32, device)?;
    let sequence = attention::PagedRows {
        rows: qkv.dims()[0],
        position: 0,
        pages: &[7, 6, 5, 4, 3, 2, 1, 0],
    };
    let call = attention::Paged {
        heads,
        page: 16,
        sequences: &[sequence],
        first_keys: None,
        window: 0,
        block: 0,
        numbers: Numbers::F32,
        scores: attention::Scores::scaled(true),
        sinks: None,
    };
    attention::forward_paged(qkv, &mut cache, &call)?;
    Ok(())
}

#[test]
#[ignore = "run by kernels/docs/kernel_table.py, with counters"]
fn every_op_runs_once_at_its_shape() {
    let device = simulator::device().expect("the simulated GPU needs a C++ compiler");
    products(&device).unwrap();
    grouped_products(&device).unwrap();
    mixture(&device).unwrap();
    rest(&device).unwrap();
    ops_on_rows(&device).unwrap();
    mixing(&device).unwrap();
    device.synchronize().unwrap();
}
