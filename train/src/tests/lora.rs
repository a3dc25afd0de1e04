//! Low-rank adapters: gradients by the chain rule from those of the merged weights, frozen weights untouched, the same bits on
//! every layout, memory, resuming, and models to start from.

use kernels::{Device, Tensor, rng};

use crate::checkpoint::MODEL;
use crate::checkpoint::check_init;
use crate::checkpoint::safetensors::Reader;
use crate::config::{Bf16Sums, LoraConfig, LoraTarget, Plan, Precision, TieEmbeddings};
use crate::dist::mesh::Groups;
use crate::fixtures::{
    Chain, Log, nth_step, options, tiny_bert, tiny_deepseek, tiny_gpt, tiny_gpt_oss, tiny_llama,
    tiny_moe,
};
use crate::model::param::{self, Spec, is_of_lora};
use crate::tests::layouts::{assert_same, train, train_in, with};
use crate::tests::parity::by_tensor;
use crate::tests::share::Share;
use crate::trainer::step::Trainer;
use crate::trainer::{memory, run};

fn adapted(mut plan: Plan) -> Plan {
    plan.model.lora = Some(LoraConfig {
        rank: 4,
        alpha: 6.0,
        ..LoraConfig::default()
    });
    plan
}

/// With adapters of every layer that can have one, a head of its own among them.
pub(super) fn adapted_everywhere(plan: Plan) -> Plan {
    let mut plan = adapted(plan);
    plan.model.tie_embeddings = TieEmbeddings::Untied;
    let has_experts = plan.model.moe.is_some();
    let of_mixture = [LoraTarget::Experts, LoraTarget::Router];
    let mut targets = LoraTarget::ALL.to_vec();
    targets.retain(|target| has_experts || !of_mixture.contains(target));
    plan.model.lora.as_mut().unwrap().targets = targets;
    plan
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.host::<f32>().unwrap().to_vec()
}

/// a `[n, k]` times b `[k, m]`, in f64.
fn product(a: &[f64], b: &[f64], [n, k, m]: [usize; 3]) -> Vec<f64> {
    let at = |row: usize, column: usize| (0..k).map(|i| a[row * k + i] * b[i * m + column]).sum();
    (0..n * m).map(|i| at(i / m, i % m)).collect()
}

fn transposed(a: &[f64], [n, m]: [usize; 2]) -> Vec<f64> {
    (0..n * m).map(|i| a[i % n * m + i / n]).collect()
}

fn wide(a: &[f32]) -> Vec<f64> {
    a.iter().map(|x| f64::from(*x)).collect()
}

/// Layers whose weights are stored by input rows.
fn is_by_rows(name: &str) -> bool {
    name.ends_with(".out") || name.ends_with(".fc2")
}

/// Tensors by name.
struct Named<'a>(&'a [Spec], Vec<Vec<f64>>);

impl Named<'_> {
    fn get(&self, name: &str) -> (&[usize], &[f64]) {
        let at = self.0.iter().position(|spec| spec.name == name).unwrap();
        (&self.0[at].dims, &self.1[at])
    }
}

/// W + scale B A of a layer, in the order of W.
fn merged(weights: &Named<'_>, layer: &str, scale: f64) -> Vec<f64> {
    let (dims, weight) = weights.get(&format!("{layer}.weight"));
    let (_, a) = weights.get(&format!("{layer}.lora_a"));
    let (of_b, b) = weights.get(&format!("{layer}.lora_b"));
    let rank = of_b[1];
    let more = match is_by_rows(layer) {
        // A is [in, rank], B [out, rank]
        true => product(a, &transposed(b, [dims[1], rank]), [dims[0], rank, dims[1]]),
        false => product(b, a, [dims[0], rank, dims[1]]),
    };
    weight
        .iter()
        .zip(more)
        .map(|(w, more)| w + scale * more)
        .collect()
}

#[test]
fn gradients_are_those_of_the_merged_weights_by_the_chain_rule() {
    let mut gated = tiny_llama();
    gated.model.qk_norm = Some(true);
    let everywhere =
        [tiny_llama(), tiny_moe(), tiny_deepseek(), tiny_gpt_oss()].map(adapted_everywhere);
    let plain = [tiny_gpt(), tiny_llama(), gated].map(adapted);
    for mut plan in plain.into_iter().chain(everywhere) {
        plan.model.dropout = 0.0;
        let scale = plan.model.lora.as_ref().unwrap().scale();
        assert_eq!(scale, 1.5);
        let specs = param::specs(&plan);
        let mut trainer = Trainer::new(&plan, &specs, Groups::single(), Device::cpu()).unwrap();
        for (at, (spec, weight)) in specs.iter().zip(&mut trainer.state.weights).enumerate() {
            if spec.name.ends_with(".lora_b") {
                let mut values = vec![0.0; weight.elements()];
                rng::fill_normal(&mut values, 3, at as u64, 0, 0.05);
                *weight = Tensor::from_f32(&spec.dims, &values, &Device::cpu()).unwrap();
            }
        }
        let weights = trainer
            .state
            .weights
            .iter()
            .map(|weight| wide(&values(weight)));
        let weights = Named(&specs, weights.collect());
        let samples = Chain::of(&plan);
        let next = nth_step(&plan, 1);
        let (loss, gradients) = trainer.gradients(&samples, &next).unwrap();
        let trained: Vec<Spec> = specs
            .iter()
            .filter(|spec| !spec.is_frozen)
            .cloned()
            .collect();
        let found = of_adapters(&trainer, &gradients);
        assert_eq!(found.len(), trained.len());
        let found = Named(&trained, found);

        let mut whole = plan.clone();
        whole.model.lora = None;
        let of_whole = param::specs(&whole);
        let mut trainer = Trainer::new(&whole, &of_whole, Groups::single(), Device::cpu()).unwrap();
        for (spec, weight) in of_whole.iter().zip(&mut trainer.state.weights) {
            let layer = spec.name.strip_suffix(".weight").unwrap_or_default();
            let has_adapter = trained
                .iter()
                .any(|own| own.name == format!("{layer}.lora_a"));
            let values = match has_adapter {
                true => merged(&weights, layer, scale),
                false => weights.get(&spec.name).1.to_vec(),
            };
            #[expect(clippy::cast_possible_truncation, reason = "rounds to f32")]
            let values: Vec<f32> = values.iter().map(|x| *x as f32).collect();
            *weight = Tensor::from_f32(&spec.dims, &values, &Device::cpu()).unwrap();
        }
        let (of_merged, gradients) = trainer.gradients(&samples, &next).unwrap();
        assert!((loss - of_merged).abs() < 1e-6 * loss, "{loss} {of_merged}");
        let wanted = by_tensor(&trainer, &gradients);
        let wanted = Named(&of_whole, wanted.iter().map(|x| wide(&values(x))).collect());
        for spec in &trained {
            let (layer, part) = spec.name.rsplit_once('.').unwrap();
            let (dims, dw) = wanted.get(&format!("{layer}.weight"));
            let (_, a) = weights.get(&format!("{layer}.lora_a"));
            let (_, b) = weights.get(&format!("{layer}.lora_b"));
            let [rows, columns] = [dims[0], dims[1]];
            let want = match (is_by_rows(layer), part) {
                (false, "lora_a") => product(&transposed(b, [rows, 4]), dw, [4, rows, columns]),
                (false, _) => product(dw, &transposed(a, [4, columns]), [rows, columns, 4]),
                (true, "lora_a") => product(dw, b, [rows, columns, 4]),
                (true, _) => product(&transposed(dw, [rows, columns]), a, [columns, rows, 4]),
            };
            let (_, found) = found.get(&spec.name);
            let largest = want
                .iter()
                .fold(0.0f64, |most, x| most.max(scale * x.abs()));
            let off = found.iter().zip(&want);
            let off = off.fold(0.0f64, |most, (x, want)| most.max((x - scale * want).abs()));
            assert!(
                largest > 0.0 && off < 2e-5 * largest,
                "{}: {off} of {largest}",
                spec.name
            );
        }
    }
}

/// Gradients of the adapters, tensor by tensor; frozen units have none.
fn of_adapters(trainer: &Trainer<'_>, gradients: &[Tensor]) -> Vec<Vec<f64>> {
    let own = &trainer.state.local_shards;
    let mut found = Vec::new();
    for (index, gradient) in gradients.iter().enumerate() {
        let unit = &own.shards.units[own.local[index].unit];
        assert_eq!(unit.is_frozen, own.moments(index).is_empty());
        assert!(!unit.is_frozen || gradient.elements() == 1);
        let flat = wide(&values(gradient));
        let pieces = unit.pieces(own.moments(index));
        found.extend(pieces.map(|piece| flat[piece.at..piece.at + piece.local.len()].to_vec()));
    }
    found
}

#[test]
fn every_layout_gives_the_same_bits_and_frozen_weights_keep_theirs() {
    let mut share = Share::one_in(3);
    for mut plan in [
        adapted(tiny_gpt()),
        adapted(tiny_llama()),
        adapted(options().remove(0)),
    ] {
        plan.model.layers = 4;
        let want = train(&with(plan.clone(), "mb=12"));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(MODEL);
        std::fs::write(&path, &want.model).unwrap();
        let mut file = Reader::open(&path).unwrap();
        for spec in param::specs(&plan) {
            let whole = spec.initial(
                plan.seed,
                &crate::dist::mesh::RankCoord::single(),
                &Device::cpu(),
            );
            let mut found = vec![0.0; spec.dims.iter().product()];
            file.read_part(&spec.name, &spec.dims, 0, &mut found)
                .unwrap();
            let is_same = values(&whole.unwrap()) == found;
            assert_eq!(is_same, spec.is_frozen, "{}", spec.name);
            assert_eq!(spec.is_frozen, !is_of_lora(&spec.name));
        }
        let layouts = [
            "mb=1",
            "mb=3",
            "dp=3 mb=2",
            "tp=2 mb=2",
            "tp=2 mb=12",
            "tp=2 sp mb=3",
            "pp=2 mb=1",
            "pp=2 vs=2 tp=2 sp dp=2 mb=2",
            "dp=2 zero=1 mb=3",
            "dp=3 zero=2 mb=4",
            "dp=2 zero=3 tp=2 sp pp=2 mb=3",
            "cp=2 mb=4",
            "cp=2 dp=2 zero=2 mb=3",
            "full mb=2",
            "selective cp=2 tp=2 mb=1",
            "chunked mb=3",
        ];
        for layout in share.of(&layouts) {
            let found = train(&with(plan.clone(), layout));
            assert_same(&found, &want, layout);
        }
    }
}

/// Loss and gradients of the adapters, whose weights are moved by `far` times `along`.
fn moved(plan: &Plan, along: &[Vec<f64>], far: f64) -> (f64, Vec<Vec<f64>>) {
    let specs = param::specs(plan);
    let mut trainer = Trainer::new(plan, &specs, Groups::single(), Device::cpu()).unwrap();
    let mut along = along.iter();
    for (at, (spec, weight)) in specs.iter().zip(&mut trainer.state.weights).enumerate() {
        if spec.is_frozen {
            continue;
        }
        let mut own = values(weight);
        if spec.name.ends_with(".lora_b") {
            rng::fill_normal(&mut own, 3, at as u64, 0, 0.05);
        }
        if let Some(along) = along.next() {
            #[expect(clippy::cast_possible_truncation, reason = "rounds to f32")]
            let shift = |(x, by): (&mut f32, &f64)| *x += (by * far) as f32;
            own.iter_mut().zip(along).for_each(shift);
        }
        *weight = Tensor::from_f32(&spec.dims, &own, &Device::cpu()).unwrap();
    }
    let samples = Chain::of(plan);
    let (loss, gradients) = trainer.gradients(&samples, &nth_step(plan, 1)).unwrap();
    (loss, of_adapters(&trainer, &gradients))
}

#[test]
fn dropout_of_adapters_has_the_gradient_of_its_own_loss_and_is_not_in_evaluations() {
    for plan in [tiny_gpt(), tiny_llama()] {
        let mut plan = adapted(plan);
        plan.model.dropout = 0.0;
        let (without, _) = moved(&plan, &[], 0.0);
        plan.model.lora.as_mut().unwrap().dropout = 0.4;
        let (loss, gradient) = moved(&plan, &[], 0.0);
        assert!((loss - without).abs() > 1e-3, "{loss} {without}");
        // each matrix alone, so that an error in one is not hidden by the others
        for at in 0..gradient.len() {
            let mut along = gradient.clone();
            let others = along
                .iter_mut()
                .enumerate()
                .filter(|(other, _)| *other != at);
            others.for_each(|(_, values)| values.fill(0.0));
            let square: f64 = gradient[at].iter().map(|x| x * x).sum();
            let far = 2e-3 / square.sqrt();
            let sides = [-far, far].map(|far| moved(&plan, &along, far).0);
            let found = (sides[1] - sides[0]) / (2.0 * far);
            assert!(
                (found - square).abs() < 0.02 * square,
                "matrix {at}: {found} along the gradient, want {square}"
            );
        }
        // an evaluation drops nothing
        let specs = param::specs(&plan);
        let mut dry = plan.clone();
        dry.model.lora.as_mut().unwrap().dropout = 0.0;
        let evaluated = [&plan, &dry].map(|plan| {
            let trainer = Trainer::new(plan, &specs, Groups::single(), Device::cpu()).unwrap();
            trainer.evaluate(&Chain::of(plan), 4, &[]).unwrap().loss
        });
        assert_eq!(evaluated[0], evaluated[1]);
    }
}

#[test]
fn every_layout_drops_the_same_elements_of_the_adapters_inputs() {
    let mut share = Share::one_in(2);
    for plan in [adapted(tiny_gpt()), adapted(tiny_llama())] {
        let mut plan = plan;
        plan.model.layers = 4;
        plan.model.lora.as_mut().unwrap().dropout = 0.25;
        let want = train(&with(plan.clone(), "mb=12"));
        let layouts = [
            "mb=1",
            "dp=3 mb=2",
            "tp=2 mb=2",
            "tp=2 sp mb=3",
            "pp=2 vs=2 tp=2 sp dp=2 mb=2",
            "dp=2 zero=3 tp=2 sp pp=2 mb=3",
            "cp=2 mb=4",
            "full mb=2",
            "selective cp=2 tp=2 mb=1",
        ];
        for layout in share.of(&layouts) {
            assert_same(&train(&with(plan.clone(), layout)), &want, layout);
        }
        plan.train.precision = Precision::Bf16;
        plan.train.bf16_sums = Bf16Sums::Pairs;
        let want = train(&with(plan.clone(), "mb=12"));
        for layout in ["tp=2 sp mb=3", "cp=2 mb=4"] {
            assert_same(&train(&with(plan.clone(), layout)), &want, layout);
        }
    }
}

#[test]
fn layouts_agree_in_bf16_and_with_some_targets() {
    let mut plan = adapted(tiny_llama());
    (plan.train.precision, plan.train.bf16_sums) = (Precision::Bf16, Bf16Sums::Pairs);
    let lora = plan.model.lora.as_mut().unwrap();
    (lora.targets, lora.rs_lora) = (vec![LoraTarget::Qkv, LoraTarget::Fc2], true);
    assert_eq!(lora.scale(), 3.0);
    let want = train(&with(plan.clone(), "mb=12"));
    for layout in ["tp=2 sp mb=3", "pp=2 mb=1", "dp=2 zero=3 mb=2", "cp=2 mb=4"] {
        assert_same(&train(&with(plan.clone(), layout)), &want, layout);
    }
}

#[test]
fn a_stage_of_the_embedding_alone_gets_the_gradient_of_its_rows() {
    let plan = adapted(tiny_gpt());
    let want = train(&with(plan.clone(), "mb=12"));
    let mut split = with(plan.clone(), "pp=2 mb=1");
    split.parallel.stage_layers = vec![0, plan.model.layers];
    assert_same(&train(&split), &want, "no block on the first stage");
}

#[test]
fn ranks_hold_the_bytes_that_the_formulas_say_and_no_moments_of_frozen_weights() {
    for mut plan in [adapted(tiny_gpt()), adapted(tiny_llama())] {
        plan.model.layers = 4;
        (plan.train.global_batch, plan.train.micro_batch) = (12, 1);
        for layout in [
            "mb=1",
            "dp=2 zero=1 mb=1",
            "dp=3 zero=3 mb=2",
            "tp=2 sp pp=2 mb=1",
            "cp=2 mb=2",
        ] {
            let plan = with(plan.clone(), layout);
            let predicted = memory::predict(&plan).unwrap();
            let measured = memory::measure(&plan, &Chain::of(&plan)).unwrap();
            assert_eq!(measured, predicted, "{layout}");
        }
        let ranks = memory::predict(&plan).unwrap();
        let mut full = plan.clone();
        full.model.lora = None;
        let of_full = memory::predict(&full).unwrap();
        assert!(ranks[0].optimizer * 2 < of_full[0].optimizer);
        assert!(ranks[0].gradients * 2 < of_full[0].gradients);
        assert!(plan.trained_parameters() * 3 < full.parameters());
    }
}

#[test]
fn adapters_start_from_any_model_resume_and_are_part_of_the_model() {
    let dir = tempfile::tempdir().unwrap();
    let base = tiny_llama();
    let samples = Chain::of(&base);
    let base_folder = dir.path().join("base");
    let done = run(&base, &samples, None, &base_folder, &Log::default()).unwrap();
    let mut plan = adapted(base.clone());
    plan.train.init_from = done.checkpoint.display().to_string();
    plan.train.steps = 6;
    let whole = dir.path().join("whole");
    let want = train_in(&plan, &whole, &samples);
    // stopped by an error after step 4, resumed from there
    let killed = dir.path().join("killed");
    let fails = Chain {
        fails_at: Some(5 * 8),
        ..Chain::of(&base)
    };
    run(&plan, &fails, Some(&samples), &killed, &Log::default()).unwrap_err();
    assert_same(&train_in(&plan, &killed, &samples), &want, "resumed");
    // at step 1 the adapters add nothing
    let text = std::fs::read_to_string(whole.join("metrics.jsonl")).unwrap();
    let first: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let mut full = base.clone();
    full.train.init_from.clone_from(&plan.train.init_from);
    let of_full = dir.path().join("full");
    train_in(&full, &of_full, &samples);
    let text = std::fs::read_to_string(of_full.join("metrics.jsonl")).unwrap();
    let wanted: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(first["loss"], wanted["loss"]);

    // another training goes on from the adapters, but not without them
    let checkpoint = whole.join("checkpoints/step-00000006");
    check_init(&checkpoint, &plan, true).unwrap();
    let error = check_init(&checkpoint, &base, true).unwrap_err();
    assert!(error.to_string().contains("lora"), "{error}");
}

#[test]
fn adapters_that_do_not_fit_are_refused() {
    let with = |plan: Plan, targets: &[LoraTarget], dropout| {
        let mut plan = adapted(plan);
        let lora = plan.model.lora.as_mut().unwrap();
        (lora.targets, lora.dropout) = (targets.to_vec(), dropout);
        plan
    };
    let mut every_layer = tiny_moe();
    let moe = every_layer.model.moe.as_mut().unwrap();
    (moe.every, moe.shared_d_ffn, moe.shared_gate) = (1, 0, false);
    for (plan, wanted) in [
        (
            adapted(tiny_bert()),
            "model.lora: found a table with family = Bert",
        ),
        (
            with(tiny_llama(), &[LoraTarget::Qkv, LoraTarget::Experts], 0.0),
            "model.lora.targets: found [Qkv, Experts], want neither experts nor router",
        ),
        (
            with(tiny_gpt(), &[LoraTarget::Head], 0.0),
            "model.lora.targets: found [Head], want no head: tied embeddings",
        ),
        (
            with(every_layer, &[LoraTarget::Fc1], 0.0),
            "model.lora.targets: found [Fc1], want experts",
        ),
        (
            with(tiny_moe(), &[LoraTarget::Experts], 0.1),
            "model.lora.dropout: found 0.1 with experts among targets",
        ),
    ] {
        let problems = plan.problems().join("\n");
        assert!(problems.contains(wanted), "{problems}");
    }
    let mut plan = adapted(tiny_llama());
    let lora = plan.model.lora.as_mut().unwrap();
    (lora.rank, lora.alpha, lora.targets) = (0, f64::NAN, vec![LoraTarget::Out, LoraTarget::Out]);
    (plan.train.precision, plan.train.ema_decay) = (Precision::Fp8, 0.9);
    let problems = plan.problems().join("\n");
    for key in [
        "model.lora.rank: found 0",
        "model.lora.alpha: found NaN",
        "model.lora.targets: found [Out, Out]",
        "train.precision: found fp8 with model.lora",
        "train.ema_decay: found 0.9 with model.lora",
    ] {
        assert!(problems.contains(key), "{key} in {problems}");
    }
}
