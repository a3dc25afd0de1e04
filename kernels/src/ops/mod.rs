//! The ops. Each folder holds the contract, checks and dispatch in `mod.rs` and one file per backend.

/// Calls the backend's implementation, as a span of `trace`; checks are done before, in the op's `mod.rs`. A launch on
/// CUDA can fail, so the function that dispatches returns a `Result`.
macro_rules! dispatch {
    ($device:expr, $call:ident($($arg:expr),* $(,)?)) => {{
        let _span = $crate::trace::op(concat!(module_path!(), "::", stringify!($call)));
        match $device.kind() {
            $crate::device::Kind::Cpu => cpu::$call($($arg),*),
            $crate::device::Kind::Cuda(on) => cuda::$call(on, $($arg),*)?,
        }
    }};
}

/// `dispatch` of a call that can fail on the CPU as well.
macro_rules! try_dispatch {
    ($device:expr, $call:ident($($arg:expr),* $(,)?)) => {{
        let _span = $crate::trace::op(concat!(module_path!(), "::", stringify!($call)));
        match $device.kind() {
            $crate::device::Kind::Cpu => cpu::$call($($arg),*)?,
            $crate::device::Kind::Cuda(on) => cuda::$call(on, $($arg),*)?,
        }
    }};
}

pub mod activation;
pub mod adamw;
pub mod add;
pub mod attention;
pub mod cast;
pub mod copy;
pub mod cross_entropy;
pub mod dropout;
pub mod embedding;
pub mod glu;
pub mod grouped_matmul;
pub mod int8_matmul;
pub mod layer_norm;
pub mod lerp;
pub mod matmul;
pub mod muon;
mod norm;
pub mod permute;
pub mod qk_norm;
pub mod reduce;
pub mod rms_norm;
pub mod rope;
pub mod route;
pub mod rows;
pub(crate) mod sources;
#[cfg(test)]
mod traffic;

#[cfg(test)]
mod tests {
    use crate::matmul::{Op, matmul};
    use crate::testing::{bits, random};
    use crate::{AdamW, Device, Heads, Tensor};
    use crate::{
        activation, adamw, attention, cross_entropy, glu, layer_norm, reduce, rms_norm, rope,
    };

    /// Bits of a little of everything, large enough that parallel loops split.
    fn everything() -> Vec<Vec<u32>> {
        let device = Device::cpu();
        let make = |dims: &[usize], seed| random(dims, seed, &device).unwrap();
        let (n, d) = (150, 192);
        let (x, w, b, dy) = (
            make(&[n, d], 1),
            make(&[d], 2),
            make(&[d], 3),
            make(&[n, d], 4),
        );
        let mut product = make(&[d, d], 5);
        matmul(&mut product, x.transposed(), &dy, 16, true).unwrap();
        let mut few = make(&[2, 3000], 6);
        let tall = make(&[3000, 700], 7);
        matmul(
            &mut few,
            (&make(&[2, 700], 8), Op::Plain),
            tall.transposed(),
            64,
            false,
        )
        .unwrap();
        let (y, mean, inv_std) = layer_norm::forward(&x, &w, &b, 1e-5).unwrap();
        let (mut dw, mut db) = (make(&[d], 9), make(&[d], 10));
        let saved = layer_norm::Statistics {
            mean: &mean,
            inv_std: &inv_std,
        };
        let sums = layer_norm::Gradients {
            dw: &mut dw,
            db: &mut db,
        };
        let dx = layer_norm::backward(&dy, &x, &w, &saved, None, sums, 16).unwrap();
        let (z, inv_rms) = rms_norm::forward(&x, &w, 1e-5).unwrap();
        let dz = rms_norm::backward(&dy, &x, &w, &inv_rms, None, &mut dw, 16).unwrap();
        let heads = Heads {
            heads: 4,
            kv_heads: 4,
            width: 16,
        };
        let mut qkv = make(&[n, d], 11);
        let angles = rope::Frequencies::new(1e4, heads.width, &rope::Scaling::Plain).unwrap();
        let turn = rope::Turn {
            heads: &heads,
            positions: rope::Positions::Run { t: n, offset: 0 },
            frequencies: &angles,
        };
        rope::forward(&mut qkv, &turn).unwrap();
        let call = attention::Call::causal(&heads, 1, n);
        let (out, lse) = attention::forward(&qkv, &call).unwrap();
        let passed = attention::Passed {
            dout: &out,
            out: &out,
            lse: &lse,
            qkv: &qkv,
            turn: None,
        };
        let (dqkv, _) = attention::backward(&passed, &call, 20, None).unwrap();
        let mut dbias = make(&[4, 8], 17);
        let bias = attention::Bias {
            table: &make(&[4, 8], 18),
            buckets: attention::Buckets {
                buckets: 8,
                max_distance: 40,
                bidirectional: false,
            },
        };
        let call = attention::Call {
            bias: Some(bias),
            ..call
        };
        let (biased, _) = attention::forward(&qkv, &call).unwrap();
        attention::backward(&passed, &call, 20, Some(&mut dbias)).unwrap();
        let ids = Tensor::from_u32(&[n], &vec![7; n], &device).unwrap();
        let (maxima, sums, _) = cross_entropy::statistics(&x, &ids, 0, d, d / 8).unwrap();
        let max = cross_entropy::merge_maxima(&maxima).unwrap();
        let sums = cross_entropy::merge_sums(sums, &maxima, &max).unwrap();
        let mut dtable = make(&[9, d], 12);
        crate::embedding::backward(&mut dtable, &dy, &ids, 0, 16).unwrap();
        let mut columns = make(&[d], 13);
        reduce::sum_rows(&mut columns, &x, 16, false).unwrap();
        let (mut weights, mut m, mut v) = (make(&[n, d], 14), make(&[n, d], 15), make(&[n, d], 16));
        v.f32_mut().iter_mut().for_each(|v| *v *= *v);
        let p = AdamW {
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
        adamw::step(weights.view_mut(), dy.view(), moments, &p).unwrap();
        let more = [
            activation::forward(&x, None, activation::Kind::GeluTanh).unwrap(),
            glu::forward(&x, glu::Gate::Silu).unwrap(),
            weights,
            m,
            v,
            biased,
            dbias,
        ];
        let all = [
            product, few, y, dx, dw, db, z, dz, out, lse, dqkv, sums, dtable, columns,
        ];
        all.iter().chain(&more).map(|x| bits(x.f32())).collect()
    }

    #[test]
    fn thread_count_changes_no_bits() {
        let with = |threads| {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            pool.install(everything)
        };
        let one = with(1);
        assert!(one == with(2));
        assert!(one == with(5));
    }
}
