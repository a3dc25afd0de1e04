//! Mixtures of experts in Megatron-Core's form: those that megatron-core wrote give its logits and have its numbers, ours come back
//! bit for bit, and what either side lacks, or a damaged file has, is refused by name. Goldens: tests/oracles/megatron_dist_mixture.py.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use half::bf16;
use serde_json::Value as Json;

use crate::Error;
use crate::checkpoint::torch::dist::{METADATA, TorchDist};
use crate::checkpoint::torch::dist_writer::{Chunk, DistWriter};
use crate::checkpoint::torch::pickle::{Pickle, Value};
use crate::checkpoint::torch::pickle_writer::Object;
use crate::checkpoint::torch::save_writer::write_object;
use crate::checkpoint::weight_source::WeightSource;
use crate::checkpoint::{TorchDtype, check_init, export_hf, export_megatron, import_megatron};
use crate::config::{
    Activation, Biases, Determinism, DropPolicy, Family, MoeConfig, Plan, RouterScope, RouterScore,
};
use crate::fixtures::{tiny_gpt, tiny_llama, tiny_moe};
use crate::model::param;
use crate::tests::megatron::{golden, has_the_logits, oracles};
use crate::tests::megatron_written::{has_the_model, trained};

const GOLDENS: [&str; 2] = ["mixture_ep2", "mixture_grouped"];
const RECORD: &str = "megatron_dist_mixture.json";

/// A mixture of every layer, of the golden's kind.
fn of_all_layers() -> MoeConfig {
    MoeConfig {
        experts: 4,
        balance_loss: 0.02,
        scope: RouterScope::MicroBatch,
        drop: DropPolicy::Probability,
        ..MoeConfig::default()
    }
}

/// Sigmoid scores with a selection bias and groups, behind a dense layer, with a gated shared expert.
fn of_groups() -> MoeConfig {
    MoeConfig {
        experts: 8,
        top_k: 4,
        d_ffn: 8,
        dense_first: 1,
        score: RouterScore::Sigmoid,
        scale: 2.5,
        num_groups: 4,
        group_topk: 2,
        balance_loss: 1e-4,
        z_loss: 1e-3,
        expert_bias: true,
        drop: DropPolicy::Probability,
        shared_d_ffn: 16,
        shared_gate: true,
        ..MoeConfig::default()
    }
}

/// Our name of a parameter of a GPTModel of local layers.
fn ours(theirs: &str) -> String {
    let known = [
        ("embedding.word_embeddings.", "embedding."),
        ("output_layer.", "head."),
        ("decoder.final_layernorm.", "norm."),
        ("decoder.layers.", "layers."),
        ("input_layernorm.", "norm1."),
        ("pre_mlp_layernorm.", "norm2."),
        ("self_attention.linear_qkv.", "qkv."),
        ("self_attention.linear_proj.", "out."),
        ("mlp.experts.local_experts.", "experts."),
        ("mlp.shared_experts.gate_weight", "shared_gate.weight"),
        ("mlp.shared_experts.", "shared."),
        ("mlp.router.expert_bias", "router.bias"),
        ("mlp.", ""),
        ("linear_", ""),
    ];
    known
        .iter()
        .fold(theirs.to_owned(), |name, (theirs, ours)| {
            name.replace(theirs, ours)
        })
}

/// Our numbers in Megatron's order, of a tensor with its dims.
fn in_their_order(theirs: &str, dims: &[usize], ours: &[f32]) -> Vec<f32> {
    let [rows, cols] = match dims {
        &[rows] => [rows, 1],
        &[rows, cols] => [rows, cols],
        other => panic!("{theirs}: {other:?}"),
    };
    // a vocabulary's rows of padding are ours alone
    let is_vocabulary = theirs.contains("word_embeddings") || theirs.contains("output_layer");
    assert!(is_vocabulary || ours.len() == rows * cols, "{theirs}");
    let from = |row: usize, col: usize| {
        if theirs.contains("linear_fc1") {
            // eight chunks of gates and ups, each of them gates first
            let (width, chunk) = (rows / 2, rows / 16);
            let (half, at) = (row / width, row % width);
            return (at / chunk * 2 * chunk + half * chunk + at % chunk) * cols + col;
        }
        match theirs.contains("linear_fc2") || theirs.contains("linear_proj") {
            true => col * rows + row,
            false => row * cols + col,
        }
    };
    let places = (0..rows).flat_map(|row| (0..cols).map(move |col| (row, col)));
    places.map(|(row, col)| ours[from(row, col)]).collect()
}

/// As the script computes it.
fn fingerprint(values: &[f32]) -> u64 {
    let terms = (1u64..).zip(values);
    let terms = terms.map(|(at, x)| at.wrapping_mul(x.to_bits().into()));
    terms.fold(0, u64::wrapping_add)
}

#[test]
fn mixtures_that_megatron_wrote_have_its_numbers_and_give_its_logits() {
    let text = fs::read_to_string(oracles().join(RECORD)).unwrap();
    let record: Json = serde_json::from_str(&text).unwrap();
    for (name, want, count) in [
        (GOLDENS[0], of_all_layers(), 29),
        (GOLDENS[1], of_groups(), 59),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let imported = import_megatron(&golden(name), dir.path()).unwrap();
        let mut source = WeightSource::open(&imported.checkpoint).unwrap();
        assert_eq!(source.plan.model.moe, Some(want), "{name}");
        let weights = record["weights"][name].as_object().unwrap();
        assert_eq!(weights.len(), count, "{name}");
        for (theirs, about) in weights {
            let dims = about[0].as_array().unwrap().iter();
            let dims: Vec<usize> = dims
                .map(|dim| usize::try_from(dim.as_u64().unwrap()).unwrap())
                .collect();
            let values = source.read(&ours(theirs)).unwrap();
            let found = fingerprint(&in_their_order(theirs, &dims, values));
            assert_eq!(about[1], found.to_string(), "{name} {theirs}");
        }
        has_the_logits(&imported.checkpoint, RECORD, name, 64);
    }
}

#[test]
fn a_run_starts_from_a_mixture_of_megatrons_and_another_model_is_refused() {
    let mut plan = tiny_llama();
    let model = &mut plan.model;
    (model.d_model, model.heads, model.kv_heads, model.d_ffn) = (16, 4, 2, 24);
    (model.layers, model.moe) = (3, Some(of_groups()));
    (plan.vocab, plan.train.init_from) = (64, golden(GOLDENS[1]).display().to_string());
    (plan.train.steps, plan.train.lr, plan.train.min_lr) = (1, 1e-30, 1e-30);
    (plan.train.warmup_steps, plan.determinism) = (0, Determinism::Run);
    let dir = tempfile::tempdir().unwrap();
    let started = trained(&plan, &dir.path().join("run"));
    let imported = import_megatron(&golden(GOLDENS[1]), &dir.path().join("in")).unwrap();
    let [mut found, mut want] =
        [started, imported.checkpoint].map(|path| WeightSource::open(&path).unwrap());
    for spec in param::specs(&plan) {
        // a step at this rate leaves all but the biases, which have a rate of their own
        let moved = if spec.router_bias.is_some() {
            2e-3
        } else {
            0.0
        };
        let pairs = found.read(&spec.name).unwrap().iter();
        for (found, want) in pairs.zip(want.read(&spec.name).unwrap()) {
            assert!(
                (found - want).abs() <= moved,
                "{}: {found} {want}",
                spec.name
            );
        }
    }
    if let Some(moe) = &mut plan.model.moe {
        (moe.experts, moe.top_k) = (4, 2);
    }
    let said = check_init(&golden(GOLDENS[1]), &plan, true).unwrap_err();
    let said = said.to_string();
    for line in [
        "model.moe.experts: found 8 there, want 4",
        "model.moe.top_k: found 4 there, want 2",
    ] {
        assert!(said.contains(line), "{line} in {said}");
    }
}

/// Plans of mixtures that Megatron has.
fn plans() -> Vec<(&'static str, Plan)> {
    let with = |plan: Plan, moe: MoeConfig, set: fn(&mut Plan)| {
        let mut plan = plan;
        plan.model.moe = Some(moe);
        // capacity and losses over micro-batches are none of determinism = "layout"
        plan.determinism = Determinism::Run;
        set(&mut plan);
        plan
    };
    let mixtral = MoeConfig {
        experts: 4,
        drop: DropPolicy::Probability,
        ..MoeConfig::default()
    };
    let qwen = MoeConfig {
        scope: RouterScope::MicroBatch,
        score: RouterScore::SoftmaxTopK,
        ..tiny_moe().model.moe.unwrap()
    };
    let of_biases = MoeConfig {
        experts: 3,
        top_k: 1,
        every: 2,
        d_ffn: 16,
        score: RouterScore::Sigmoid,
        biases: true,
        ..of_all_layers()
    };
    let unbalanced = MoeConfig {
        experts: 4,
        num_groups: 2,
        score: RouterScore::SoftmaxTopK,
        group_topk: 2,
        balance_loss: 0.0,
        ..mixtral.clone()
    };
    vec![
        ("mixtral", with(tiny_llama(), mixtral, |_| {})),
        (
            "qwen",
            with(tiny_llama(), qwen, |plan| {
                (plan.model.family, plan.model.layers) = (Family::Qwen2, 4);
            }),
        ),
        (
            "sigmoid in groups",
            with(tiny_llama(), of_groups(), |plan| {
                plan.model.qk_norm = Some(true);
                plan.model.layers = 3;
            }),
        ),
        (
            "gpt with biases",
            with(tiny_gpt(), of_biases, |plan| {
                (plan.model.bias, plan.model.activation) =
                    (Some(Biases::All), Some(Activation::Gelu));
                plan.model.layers = 4;
            }),
        ),
        (
            "no loss",
            with(tiny_llama(), unbalanced, |plan| {
                plan.model.activation = Some(Activation::SquaredRelu);
            }),
        ),
    ]
}

#[test]
fn mixtures_come_back_bit_for_bit_in_one_form_and_in_sixteen_bits() {
    for (name, plan) in plans() {
        let dir = tempfile::tempdir().unwrap();
        let checkpoint = trained(&plan, &dir.path().join("run"));
        let mut ours = WeightSource::open(&checkpoint).unwrap();
        let (out, half) = (dir.path().join("out"), dir.path().join("half"));
        export_megatron(&checkpoint, &out, TorchDtype::F32).unwrap();
        let back = has_the_model(name, &out, &mut ours, |x| x);
        assert_eq!(back.moe, plan.model.moe, "{name}");
        let imported = import_megatron(&out, &dir.path().join("back")).unwrap();
        let bytes = |folder: &Path| fs::read(folder.join("model.safetensors")).unwrap();
        assert!(bytes(&imported.checkpoint) == bytes(&checkpoint), "{name}");
        export_megatron(&checkpoint, &half, TorchDtype::Bf16).unwrap();
        has_the_model(name, &half, &mut ours, |x| bf16::from_f32(x).to_f32());
        // and from a Hugging Face folder, where its class has the mixture
        let (hf, again) = (dir.path().join("hf"), dir.path().join("again"));
        let is_published = export_hf(&checkpoint, &hf).is_ok();
        assert_eq!(is_published, ["mixtral", "qwen"].contains(&name), "{name}");
        if is_published {
            export_megatron(&hf, &again, TorchDtype::F32).unwrap();
            let files = ["release/__0_0.distcp", "release/.metadata"];
            for file in files {
                let read = |folder: &Path| fs::read(folder.join(file)).unwrap();
                assert!(read(&again) == read(&out), "{name} {file}");
            }
        }
    }
}

/// Names of everything that a checkpoint has, states beside weights too.
fn entries(folder: &Path) -> BTreeSet<String> {
    let pickle = Pickle::read(&fs::read(folder.join(METADATA)).unwrap()).unwrap();
    let class = ["torch.distributed.checkpoint.metadata", "Metadata"];
    let (_, state) = pickle.object(pickle.root(), class).unwrap();
    let table = pickle.get(state.unwrap(), "state_dict_metadata").unwrap();
    let Value::Dict(pairs) = pickle.value(table) else {
        panic!("no table");
    };
    let names = pairs.iter().map(|(name, _)| pickle.text(*name).unwrap());
    names.map(str::to_owned).collect()
}

/// Both kinds of layers find every name: the norm before a mixture has one of each.
#[test]
fn written_mixtures_have_megatrons_entries_and_dims() {
    for (name, copies) in [
        (GOLDENS[0], &["decoder.layers.pre_mlp_layernorm.weight"][..]),
        (
            GOLDENS[1],
            &[
                "decoder.layers.1.pre_mlp_layernorm.weight",
                "decoder.layers.2.pre_mlp_layernorm.weight",
            ],
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let imported = import_megatron(&golden(name), &dir.path().join("run")).unwrap();
        let out = dir.path().join("out");
        export_megatron(&imported.checkpoint, &out, TorchDtype::F32).unwrap();
        let (out, from) = (out.join("release"), golden(name));
        let lost: Vec<String> = entries(&from).difference(&entries(&out)).cloned().collect();
        assert_eq!(lost, [""; 0], "{name}");
        let [found, want] = [&out, &from].map(|folder| TorchDist::open(folder).unwrap());
        let more: Vec<&str> = found
            .names()
            .filter(|name| want.dims(name).is_none())
            .collect();
        assert_eq!(more, copies, "{name}");
        for tensor in want.names() {
            assert_eq!(found.dims(tensor), want.dims(tensor), "{name} {tensor}");
        }
    }
}

/// Writes a checkpoint whose layers are not stacked anew, with the numbers that `change` leaves.
fn rewritten(from: &Path, to: &Path, change: impl Fn(&str, &mut Vec<f32>)) {
    let opened = TorchDist::open(from).unwrap();
    let mut writer = DistWriter::create(to).unwrap();
    for name in opened.names() {
        let dims = opened.dims(name).unwrap().to_vec();
        let (stacks, rest) = dims.split_at(dims.len().saturating_sub(2));
        for at in 0..stacks.iter().product::<usize>() {
            let at: Vec<usize> = stacks.iter().map(|_| at).collect();
            let mut values = opened.read(name, &at, rest).unwrap();
            change(name, &mut values);
            let chunk = Chunk {
                tensor: name.to_owned(),
                dims: dims.clone(),
                offsets: [at.clone(), vec![0; rest.len()]].concat(),
                sizes: [vec![1; at.len()], rest.to_vec()].concat(),
                dtype: TorchDtype::F32,
            };
            writer.chunk(chunk, values).unwrap();
        }
    }
    writer.finish().unwrap();
    fs::copy(from.join("common.pt"), to.join("common.pt")).unwrap();
}

#[test]
fn a_norm_of_two_names_has_the_same_numbers_under_both_or_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let imported = import_megatron(&golden(GOLDENS[1]), &path("run")).unwrap();
    export_megatron(&imported.checkpoint, &path("out"), TorchDtype::F32).unwrap();
    let [whole, other] = ["whole", "other"].map(path);
    for folder in [&whole, &other] {
        fs::create_dir(folder).unwrap();
    }
    rewritten(&path("out/release"), &whole, |_, _| {});
    import_megatron(&whole, &path("same")).unwrap();
    rewritten(&path("out/release"), &other, |name, values| {
        if name == "decoder.layers.2.pre_mlp_layernorm.weight" {
            values[3] += 1.0;
        }
    });
    let error = import_megatron(&other, &path("no")).unwrap_err();
    let said = error.to_string();
    assert!(
        said.contains("decoder.layers.2.pre_mlp_layernorm.weight: found other numbers"),
        "{said}"
    );
    // TransformerEngine's name alone
    let alone = path("alone");
    fs::create_dir(&alone).unwrap();
    let opened = TorchDist::open(&whole).unwrap();
    let mut writer = DistWriter::create(&alone).unwrap();
    for name in opened.names() {
        let is_fused = name.contains("mlp.linear_fc1.layer_norm") && !name.contains("layers.0.");
        let dims = opened.dims(name).unwrap().to_vec();
        if is_fused || dims.len() > 2 {
            continue;
        }
        let values = opened.read(name, &[], &dims).unwrap();
        let chunk = Chunk {
            tensor: name.to_owned(),
            offsets: vec![0; dims.len()],
            sizes: dims.clone(),
            dims,
            dtype: TorchDtype::F32,
        };
        writer.chunk(chunk, values).unwrap();
    }
    writer.finish().unwrap();
    fs::copy(whole.join("common.pt"), alone.join("common.pt")).unwrap();
    let said = import_megatron(&alone, &path("no"))
        .unwrap_err()
        .to_string();
    // the experts are missing, the norms are not
    assert!(
        said.contains("experts.linear_fc1.weight: found nothing"),
        "{said}"
    );
    assert!(!said.contains("layer_norm"), "{said}");
}

#[test]
fn mixtures_that_megatron_lacks_are_refused_by_every_setting() {
    let with = |plan: Plan, moe: MoeConfig| {
        let mut plan = plan;
        plan.model.moe = Some(moe);
        plan
    };
    let gpt_with_biases = || {
        let mut plan = tiny_gpt();
        plan.model.layers = 4;
        plan
    };
    let four = MoeConfig {
        experts: 4,
        ..MoeConfig::default()
    };
    for (plan, settings) in [
        (
            tiny_moe(),
            &["moe.capacity_factor = 1.25 with scope = Sequence"][..],
        ),
        (
            with(gpt_with_biases(), four.clone()),
            &[
                "moe.biases = false with bias = All",
                "activation = GeluTanh with moe",
            ],
        ),
        (
            with(
                tiny_llama(),
                MoeConfig {
                    biases: true,
                    ..four.clone()
                },
            ),
            &["moe.biases = true with bias = None"],
        ),
        (
            with(
                gpt_with_biases(),
                MoeConfig {
                    biases: true,
                    shared_d_ffn: 16,
                    ..four.clone()
                },
            ),
            &[
                "moe.shared_d_ffn = 16 with bias = All",
                "activation = GeluTanh with moe",
            ],
        ),
        (
            with(
                tiny_llama(),
                MoeConfig {
                    num_groups: 2,
                    score: RouterScore::SoftmaxTopK,
                    ..four.clone()
                },
            ),
            &[
                "moe.num_groups = 2, group_topk = 1 with experts = 4, top_k = 2, score = SoftmaxTopK",
            ],
        ),
        (
            with(
                tiny_llama(),
                MoeConfig {
                    experts: 1,
                    top_k: 1,
                    ..MoeConfig::default()
                },
            ),
            &["moe.score = TopKSoftmax with top_k = 1"],
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let checkpoint = trained(&plan, &dir.path().join("run"));
        let out = dir.path().join("out");
        match export_megatron(&checkpoint, &out, TorchDtype::F32) {
            Err(Error::Request { found, .. }) => {
                let lines: Vec<&str> = found.split("; ").collect();
                assert_eq!(lines, settings);
            }
            other => panic!("{settings:?}: {other:?}"),
        }
        assert!(!out.exists());
    }
}

/// A copy of a golden, with these settings in place of those of its args.
fn with_args(name: &str, to: &Path, changes: &[(&str, Object)]) -> PathBuf {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(golden(name)).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
    let (int, flag, text) = (Object::Int, Object::Bool, Object::text);
    let is_grouped = name == GOLDENS[1];
    let mut args = vec![
        ("num_layers", int(if is_grouped { 3 } else { 2 })),
        ("hidden_size", int(16)),
        ("ffn_hidden_size", int(24)),
        ("num_attention_heads", int(4)),
        ("group_query_attention", flag(true)),
        ("num_query_groups", int(2)),
        ("max_position_embeddings", int(16)),
        ("position_embedding_type", text("rope")),
        ("normalization", text("RMSNorm")),
        ("swiglu", flag(true)),
        ("untie_embeddings_and_output_weights", flag(true)),
        ("vocab_size", int(64)),
        ("num_experts", int(4)),
    ];
    if is_grouped {
        args.extend([
            ("num_experts", int(8)),
            ("moe_layer_freq", Object::List(vec![int(0), int(1), int(1)])),
            ("moe_ffn_hidden_size", int(8)),
            ("moe_router_topk", int(4)),
            ("moe_router_score_function", text("sigmoid")),
            ("moe_router_enable_expert_bias", flag(true)),
            ("moe_shared_expert_intermediate_size", int(16)),
            ("moe_shared_expert_gate", flag(true)),
        ]);
    }
    args.extend(changes.iter().cloned());
    let namespace = Object::with(["argparse", "Namespace"], args);
    let mut file = File::create(to.join("common.pt")).unwrap();
    write_object(&mut file, "common", &Object::dict([("args", namespace)])).unwrap();
    to.to_owned()
}

#[test]
fn settings_of_megatrons_mixtures_that_we_lack_are_refused_by_name() {
    let (int, flag, text) = (Object::Int, Object::Bool, Object::text);
    let numbers = |numbers: &[i64]| Object::List(numbers.iter().copied().map(int).collect());
    let dir = tempfile::tempdir().unwrap();
    // the least that args may say
    for name in GOLDENS {
        let folder = with_args(name, &dir.path().join(name), &[]);
        import_megatron(&folder, &dir.path().join("out")).unwrap();
    }
    let layers = "want 0 or 1 for each of 2 layers, the 1s at the multiples of an interval";
    for (changes, wanted) in [
        (
            vec![("moe_router_score_function", text("sqrtsoftplus"))],
            "args.moe_router_score_function: found sqrtsoftplus, want softmax or sigmoid",
        ),
        (
            vec![("moe_router_load_balancing_type", text("sinkhorn"))],
            "args.moe_router_load_balancing_type: found sinkhorn, want aux_loss, seq_aux_loss or none",
        ),
        (
            vec![(
                "moe_router_load_balancing_type",
                Object::List(vec![text("aux_loss"), text("global_aux_loss")]),
            )],
            "args.moe_router_load_balancing_type: found a list of 2, want a text",
        ),
        (
            vec![("moe_token_drop_policy", text("random"))],
            "args.moe_token_drop_policy: found random, want probs or position",
        ),
        (
            vec![
                ("moe_router_load_balancing_type", text("seq_aux_loss")),
                ("moe_aux_loss_coeff", Object::Float(0.1)),
                ("moe_expert_capacity_factor", Object::Float(1.5)),
            ],
            "args.moe_expert_capacity_factor: found 1.5, want None with seq_aux_loss",
        ),
        (
            vec![("moe_router_group_topk", int(1))],
            "args.moe_router_num_groups: found nothing, want a count",
        ),
        (
            vec![
                ("moe_router_group_topk", int(1)),
                ("moe_router_num_groups", int(2)),
            ],
            "args.moe_router_group_topk: found 1 with moe_router_topk = 2, want a quotient",
        ),
        (
            vec![("moe_apply_probs_on_input", flag(true))],
            "args.moe_apply_probs_on_input: found True, want False",
        ),
        (
            vec![("moe_router_force_load_balancing", flag(true))],
            "args.moe_router_force_load_balancing: found True, want False",
        ),
        (
            vec![("moe_latent_size", int(8))],
            "args.moe_latent_size: found 8, want None",
        ),
        (
            vec![("moe_input_jitter_eps", Object::Float(0.25))],
            "args.moe_input_jitter_eps: found 0.25, want None",
        ),
        (
            vec![("moe_router_topk_limited_devices", int(2))],
            "args.moe_router_topk_limited_devices: found 2, want None",
        ),
        (
            vec![
                ("add_bias_linear", flag(true)),
                ("moe_shared_expert_intermediate_size", int(16)),
            ],
            "args.moe_shared_expert_intermediate_size: found 16, want None with add_bias_linear",
        ),
        (
            vec![("moe_layer_freq", int(2))],
            "args.moe_layer_freq: found 2, want 1 or a list of 0 and 1",
        ),
        (vec![("moe_layer_freq", numbers(&[1, 0]))], layers),
        (vec![("moe_layer_freq", numbers(&[1, 1, 1]))], layers),
        (vec![("moe_layer_freq", numbers(&[1, 7]))], layers),
        (
            vec![("moe_router_pre_softmax", text("yes"))],
            "args.moe_router_pre_softmax: found \"yes\", want True or False",
        ),
        (
            vec![("num_experts", Object::Float(4.0))],
            "args.num_experts: found 4, want a count",
        ),
        (
            vec![("moe_router_topk", int(9))],
            "model.moe.top_k: found 9 with experts = 4",
        ),
        // tensors of another mixture
        (
            vec![("num_experts", Object::None)],
            "decoder.layers.mlp.router.weight: found, want no such tensor",
        ),
        (
            vec![("num_experts", int(5))],
            "decoder.layers.0.mlp.experts.experts.linear_fc1.weight: found [4, 48, 16], want [5, 48, 16]",
        ),
        (
            vec![("moe_ffn_hidden_size", int(16))],
            "decoder.layers.1.mlp.experts.experts.linear_fc2.weight: found [4, 16, 24], want [4, 16, 16]",
        ),
        (
            vec![("moe_shared_expert_intermediate_size", int(8))],
            "decoder.layers.0.mlp.shared_experts.linear_fc1.weight: found nothing, want [16, 16]",
        ),
        (
            vec![
                ("moe_router_score_function", text("sigmoid")),
                ("moe_router_enable_expert_bias", flag(true)),
            ],
            "decoder.layers.0.mlp.router.expert_bias: found nothing, want [4]",
        ),
        // numbers that the files cannot hold
        (
            vec![("num_experts", int(1 << 40))],
            "experts: found 1099511627776, want at most",
        ),
        (
            vec![("num_layers", int(1 << 40))],
            "layers: found 1099511627776, want at most",
        ),
        (
            vec![("moe_shared_expert_intermediate_size", int(1 << 40))],
            "shared experts' width: found 1099511627776, want at most",
        ),
    ] {
        let folder = with_args(GOLDENS[0], &dir.path().join("changed"), &changes);
        let error = import_megatron(&folder, &dir.path().join("no")).unwrap_err();
        let said = error.to_string();
        assert!(said.contains(wanted), "{wanted} in {said}");
        assert!(said.contains("changed"), "{said}");
    }
    let without_gate = [("moe_shared_expert_gate", flag(false))];
    let folder = with_args(GOLDENS[1], &dir.path().join("gate"), &without_gate);
    let error = import_megatron(&folder, &dir.path().join("no")).unwrap_err();
    let line = "decoder.layers.1.mlp.shared_experts.gate_weight: found, want no such tensor";
    assert!(error.to_string().contains(line), "{error}");
    assert!(!dir.path().join("no").exists());
}

#[test]
fn short_files_and_flipped_bits_of_a_mixture_are_refused_with_the_file_or_do_not_matter() {
    for name in GOLDENS {
        let dir = tempfile::tempdir().unwrap();
        let [folder, out] = ["in", "out"].map(|name| dir.path().join(name));
        with_args(name, &folder, &[]);
        let read = || import_megatron(&folder, &out);
        let weights = |checkpoint: &Path| fs::read(checkpoint.join("model.safetensors")).unwrap();
        let want = weights(&read().unwrap().checkpoint);
        for file in ["__0_0.distcp", "__1_0.distcp", "__1_1.distcp"] {
            let path = folder.join(file);
            let whole = fs::read(&path).unwrap();
            for length in [0, whole.len() / 3, whole.len() - 1] {
                fs::write(&path, &whole[..length]).unwrap();
                let said = read().unwrap_err().to_string();
                assert!(said.contains(file), "{name} {length}: {said}");
            }
            let mut refused = 0;
            for at in (0..whole.len()).step_by(997) {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << (at % 8);
                fs::write(&path, &bytes).unwrap();
                match read() {
                    Ok(found) => assert!(weights(&found.checkpoint) == want, "{file} {at}"),
                    Err(error) => {
                        assert!(error.to_string().contains(file), "{at}: {error}");
                        refused += 1;
                    }
                }
            }
            assert!(refused > 3, "{name} {file}: {refused}");
            fs::write(&path, &whole).unwrap();
        }
        assert!(weights(&read().unwrap().checkpoint) == want, "{name}");
    }
}
