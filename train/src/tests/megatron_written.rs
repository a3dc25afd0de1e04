//! Megatron checkpoints that are written: they come back with the bits of the model from whatever form it had, are the same bytes
//! each time, replace one another whole, and settings that Megatron lacks are refused together.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use half::bf16;

use crate::Error;
use crate::checkpoint::megatron::export::write_model;
use crate::checkpoint::weight_source::WeightSource;
use crate::checkpoint::{
    FileType, GgufOptions, TorchDtype, export_gguf, export_hf, export_megatron, import_megatron,
    is_megatron,
};
use crate::config::{
    Activation, Biases, Family, ModelConfig, NormKind, Plan, QkNormOver, RopeScaling, TieEmbeddings,
};
use crate::fixtures::{
    Log, options, samples_of, tiny_bert, tiny_bloom, tiny_deepseek, tiny_falcon, tiny_gemma,
    tiny_gemma2, tiny_gpt, tiny_gpt_oss, tiny_llama, tiny_neox, tiny_olmo, tiny_opt,
};
use crate::model::param;
use crate::trainer::run;

pub(super) fn trained(plan: &Plan, folder: &Path) -> PathBuf {
    let samples = samples_of(plan);
    let done = run(plan, samples.as_ref(), None, folder, &Log::default());
    done.unwrap().checkpoint
}

/// A plan of each kind that the reader knows.
fn plans() -> Vec<(&'static str, Plan)> {
    let with = |plan: Plan, set: fn(&mut Plan)| {
        let mut plan = plan;
        set(&mut plan);
        plan
    };
    let of = |family| {
        let mut plan = tiny_llama();
        plan.model.family = family;
        plan
    };
    vec![
        ("gpt", tiny_gpt()),
        (
            "gpt with erf-GELU",
            with(tiny_gpt(), |plan| {
                plan.model.activation = Some(Activation::Gelu);
                (plan.model.dropout, plan.model.tie_embeddings) = (0.1, TieEmbeddings::Untied);
            }),
        ),
        (
            "gpt without biases",
            with(tiny_gpt(), |plan| {
                plan.model.activation = Some(Activation::SquaredRelu);
                (plan.model.bias, plan.model.kv_heads) = (Some(Biases::None), 2);
                (plan.model.norm, plan.model.qk_norm) = (Some(NormKind::Rms), Some(true));
            }),
        ),
        ("llama", tiny_llama()),
        (
            "llama 3.1",
            with(tiny_llama(), |plan| {
                plan.model.rope_theta = 5e5;
                (plan.model.norm_eps, plan.model.head_dim) = (1e-6, 12);
                plan.model.rope_scaling = Some(RopeScaling::Llama3 {
                    factor: 32.0,
                    low_freq_factor: 1.0,
                    high_freq_factor: 4.0,
                    original_length: 8192,
                });
            }),
        ),
        ("mistral", of(Family::Mistral)),
        (
            "qwen2",
            with(of(Family::Qwen2), |plan| {
                plan.model.tie_embeddings = TieEmbeddings::Tied;
                plan.model.rope_scaling = Some(RopeScaling::Linear { factor: 2.5 });
            }),
        ),
        ("qwen3", of(Family::Qwen3)),
        (
            "phi3",
            with(of(Family::Phi3), |plan| {
                plan.model.rotary_percent = 0.5;
            }),
        ),
        (
            "gpt-neox in turns",
            with(tiny_neox(), |plan| {
                plan.model.parallel_residual = Some(false);
            }),
        ),
    ]
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

/// The model of an imported folder is that of the plan, its numbers those of `want`, rounded but for selection biases. Returns the
/// model's settings.
pub(super) fn has_the_model(
    name: &str,
    found: &Path,
    want: &mut WeightSource,
    round: fn(f32) -> f32,
) -> ModelConfig {
    let dir = tempfile::tempdir().unwrap();
    let imported = import_megatron(found, dir.path()).unwrap();
    let mut found = WeightSource::open(&imported.checkpoint).unwrap();
    let (read, made) = (&found.plan.model, &want.plan.model);
    let told = |plan: &Plan| {
        let (mut kind, model) = (plan.model.architecture(), &plan.model);
        // dropout of embeddings, which weights do not show
        kind.drops_embedding = true;
        let text = format!("{kind:?} {:?} {:?}", model.rope_scaling, plan.shape());
        (text, plan.seq_length, plan.vocab, model.layers)
    };
    assert_eq!(told(&found.plan), told(&want.plan), "{name}");
    for (found, want) in [
        (read.norm_eps, made.norm_eps),
        (read.rope_theta, made.rope_theta),
        (read.rotary_percent, made.rotary_percent),
    ] {
        assert_eq!(found.to_bits(), want.to_bits(), "{name}");
    }
    for spec in param::specs(&want.plan.clone()) {
        let round = match spec.router_bias {
            Some(_) => |x| x,
            None => round,
        };
        let want = want.read(&spec.name).unwrap().iter().map(|x| round(*x));
        let want: Vec<f32> = want.collect();
        assert!(
            bits(found.read(&spec.name).unwrap()) == bits(&want),
            "{name} {}",
            spec.name
        );
    }
    found.plan.model.clone()
}

/// Bytes of all files under a folder.
fn bytes_in(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let (mut all, mut folders) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(inner) = folders.pop() {
        for entry in fs::read_dir(inner).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => drop(all.insert(path.clone(), fs::read(&path).unwrap())),
            }
        }
    }
    let names = |path: PathBuf| path.strip_prefix(folder).unwrap().display().to_string();
    all.into_iter()
        .map(|(path, bytes)| (names(path), bytes))
        .collect()
}

#[test]
fn models_come_back_bit_for_bit_from_checkpoints_hugging_face_folders_and_gguf_files() {
    let mut sources = 0;
    for (name, plan) in plans() {
        let dir = tempfile::tempdir().unwrap();
        let checkpoint = trained(&plan, dir.path());
        let mut ours = WeightSource::open(&checkpoint).unwrap();
        let out = dir.path().join("megatron");
        export_megatron(&checkpoint, &out, TorchDtype::F32).unwrap();
        has_the_model(name, &out, &mut ours, |x| x);
        let want = bytes_in(&out);
        let names: Vec<&str> = want.keys().map(String::as_str).collect();
        let files = [
            "latest_checkpointed_iteration.txt",
            "release/.metadata",
            "release/__0_0.distcp",
            "release/common.pt",
            "release/metadata.json",
        ];
        assert_eq!(names, files, "{name}");
        let (hf, gguf) = (dir.path().join("hf"), dir.path().join("model.gguf"));
        let as_gguf = GgufOptions {
            file_type: FileType::F32,
            name: None,
            tokenizer: None,
            pre: None,
        };
        let mut others = vec![checkpoint.clone()];
        others.extend(export_hf(&checkpoint, &hf).ok().map(|()| hf));
        let written = export_gguf(&checkpoint, &gguf, &as_gguf);
        others.extend(written.ok().map(|_| gguf));
        sources += others.len();
        for (number, other) in others.iter().enumerate() {
            let again = dir.path().join(format!("again {number}"));
            export_megatron(other, &again, TorchDtype::F32).unwrap();
            let found = bytes_in(&again);
            for (found, want) in found.iter().zip(&want) {
                // a folder in another form does not have every setting of training
                let is_same = found == want || (found.0 == "release/common.pt" && number > 0);
                assert!(is_same, "{name}: {} from {}", want.0, other.display());
            }
            has_the_model(name, &again, &mut ours, |x| x);
        }
        // bf16: each number is the nearest
        let half = dir.path().join("half");
        export_megatron(&checkpoint, &half, TorchDtype::Bf16).unwrap();
        has_the_model(name, &half, &mut ours, |x| bf16::from_f32(x).to_f32());
        let size = |folder: &Path| {
            fs::metadata(folder.join("release/__0_0.distcp"))
                .unwrap()
                .len()
        };
        assert!(size(&half) < size(&out), "{name}");
    }
    assert!(sources >= 10 + 7 + 5, "{sources}");
}

#[test]
fn a_conversion_that_was_cut_leaves_nothing_to_read_and_the_next_one_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let checkpoint = trained(&tiny_gpt(), &dir.path().join("run"));
    let other = trained(&tiny_llama(), &dir.path().join("other"));
    let path = |name: &str| dir.path().join(name);
    export_megatron(&checkpoint, &path("calm"), TorchDtype::F32).unwrap();
    let want = bytes_in(&path("calm"));
    // the states that a kill leaves, in order: some files, the folder in place, the old one aside
    let out = path("out");
    for state in 0..5 {
        let _ = fs::remove_dir_all(&out);
        if state > 1 {
            export_megatron(&other, &out, TorchDtype::F32).unwrap();
        }
        let [release, tracker] =
            ["release", "latest_checkpointed_iteration.txt"].map(|n| out.join(n));
        let partial = out.join(".release.partial");
        fs::create_dir_all(&partial).unwrap();
        for file in ["common.pt", "metadata.json", "__0_0.distcp"] {
            fs::copy(path("calm/release").join(file), partial.join(file)).unwrap();
        }
        if state > 2 {
            fs::copy(path("calm/release/.metadata"), partial.join(".metadata")).unwrap();
            fs::remove_file(&tracker).unwrap();
        }
        if state > 3 {
            fs::rename(&release, out.join(".release.dropped")).unwrap();
            fs::rename(&partial, &release).unwrap();
        }
        // the old one is whole until the new one is
        assert_eq!(is_megatron(&out), state == 2, "{state}");
        if state == 2 {
            import_megatron(&out, &path("back")).unwrap();
        } else {
            import_megatron(&out, &path("back")).unwrap_err();
        }
        export_megatron(&checkpoint, &out, TorchDtype::F32).unwrap();
        assert!(bytes_in(&out) == want, "{state}");
    }
    // a source that breaks off in its middle: nothing is left of what was written
    let (hf, none) = (path("hf"), path("none"));
    export_hf(&checkpoint, &hf).unwrap();
    let mut source = WeightSource::open(&hf).unwrap();
    let model = fs::File::options()
        .write(true)
        .open(hf.join("model.safetensors"));
    let model = model.unwrap();
    model.set_len(model.metadata().unwrap().len() / 2).unwrap();
    let error = write_model(&mut source, &none, TorchDtype::F32).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
    assert_eq!(fs::read_dir(&none).unwrap().count(), 0);
}

/// A training's checkpoints are not hidden behind a tracker that names another.
#[test]
fn a_folder_with_checkpoints_of_a_training_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let checkpoint = trained(&tiny_gpt(), &dir.path().join("run"));
    let out = dir.path().join("out");
    fs::create_dir(&out).unwrap();
    let tracker = out.join("latest_checkpointed_iteration.txt");
    fs::write(&tracker, "1200").unwrap();
    let error = export_megatron(&checkpoint, &out, TorchDtype::F32).unwrap_err();
    assert!(error.to_string().contains("with iteration 1200"), "{error}");
    assert_eq!(fs::read_dir(&out).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(&tracker).unwrap(), "1200");
}

#[test]
fn models_that_megatron_lacks_are_refused_by_every_setting_at_once() {
    let [gpt_with_gate, _, window, parallel, _, _, _, both_norms] = &options()[..] else {
        panic!("eight plans");
    };
    let with = |set: fn(&mut Plan)| {
        let mut plan = tiny_llama();
        set(&mut plan);
        plan
    };
    let sinks = with(|plan| plan.model.attention_sinks = Some(true));
    let depths = with(|plan| plan.model.mtp_num_layers = 1);
    let layer_norms = with(|plan| {
        (plan.model.norm, plan.model.qk_norm) = (Some(NormKind::Layer), Some(true));
    });
    let over_all = with(|plan| {
        (plan.model.qk_norm, plan.model.qk_norm_over) = (Some(true), Some(QkNormOver::All));
    });
    let tanh = with(|plan| plan.model.activation = Some(Activation::GeluTanh));
    let scaled = with(|plan| {
        plan.model.rope_scaling = Some(RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 2.0,
            original_length: 8192,
        });
    });
    for (plan, settings) in [
        (&tiny_bert(), &["family = Bert"][..]),
        (gpt_with_gate, &["activation = Geglu with bias = None"]),
        (window, &["sliding_window = 7"]),
        (parallel, &["parallel_residual = true"]),
        (both_norms, &["norm_place = Both"]),
        (&tiny_neox(), &["parallel_residual = true"]),
        (&tiny_falcon(), &["parallel_residual = true"]),
        (
            &tiny_opt(),
            &["2 rows before the first position", "activation = Relu"],
        ),
        (&tiny_bloom(), &["Alibi positions", "embedding_norm = true"]),
        (&tiny_olmo(), &["norm_place = After", "qk_norm_over = All"]),
        (
            &tiny_gemma(),
            &[
                "activation = GegluTanh with bias = None",
                "norm_place = Both",
                "norm_plus_one = true",
                "scaled_embedding = true",
                "sliding_window = 5",
                "score_divisor = 20",
            ],
        ),
        (&tiny_gemma2(), &["attention_cap = 0.5", "logit_cap = 1.5"]),
        (
            &tiny_gpt_oss(),
            &["attention_sinks = true", "rope_scaling = Some(Yarn"],
        ),
        (&tiny_deepseek(), &["multi_latent_attention = true"]),
        (&sinks, &["attention_sinks = true"]),
        (&depths, &["mtp_num_layers = 1"]),
        (&layer_norms, &["qk_norm = true with norm = Layer"]),
        (&over_all, &["qk_norm_over = All"]),
        (&tanh, &["activation = GeluTanh with bias = None"]),
        (&scaled, &["rope_scaling = Some(Llama3"]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let checkpoint = trained(plan, &dir.path().join("run"));
        let out = dir.path().join("out");
        match export_megatron(&checkpoint, &out, TorchDtype::F32) {
            Err(Error::Request { found, .. }) => {
                for setting in settings {
                    assert!(found.contains(setting), "{setting} in {found}");
                }
            }
            other => panic!("{settings:?}: {other:?}"),
        }
        assert!(!out.exists());
    }
}
