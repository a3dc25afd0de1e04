//! Models with linear layers in few bits, written as compressed-tensors and DeepSeek store them and read back; GPTQ's and AWQ's read.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::checkpoint::safetensors::Reader;
use crate::checkpoint::{Int4Form, MODEL, WeightFormat, export_hf, export_quantized, import_hf};
use crate::config::Family;
use crate::eval::logits;
use crate::fixtures::{
    Chain, Log, tiny_bloom, tiny_deepseek, tiny_gemma, tiny_gemma2, tiny_gpt, tiny_gpt_oss,
    tiny_llama, tiny_moe, tiny_neox, tiny_olmo,
};
use crate::trainer::run;

/// A tensor of the model as it was exported whole, and as it came back from fewer bits.
struct Pair {
    name: String,
    dims: Vec<usize>,
    whole: Vec<f32>,
    back: Vec<f32>,
}

impl Pair {
    /// Asserts that numbers are off by at most `most` parts of the largest of the `scaled` ones with their scale.
    fn assert_near(&self, scaled: usize, most: f32, model: &str) {
        for (a, b) in self.whole.chunks(scaled).zip(self.back.chunks(scaled)) {
            let largest = a.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            let both = a.iter().zip(b);
            let off = both.fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
            assert!(
                off <= 1.001 * most * largest,
                "{model} {}: {off} of {largest}",
                self.name
            );
        }
    }
}

/// Imports the quantized folder `name`, beside which `whole` is the same model; returns the checkpoint and all tensors of both.
fn read_back(folder: &Path, name: &str) -> (PathBuf, Vec<Pair>) {
    let path = |name: &str| folder.join(name);
    let read = import_hf(&path(name), &path(&format!("{name}-read"))).unwrap();
    export_hf(&read.checkpoint, &path(&format!("{name}-back"))).unwrap();
    let mut whole = Reader::open(&path("whole").join(MODEL)).unwrap();
    let mut back = Reader::open(&path(&format!("{name}-back")).join(MODEL)).unwrap();
    let entries: Vec<_> = whole.entries().cloned().collect();
    let pair = |entry: crate::checkpoint::safetensors::Entry| {
        let [mut a, mut b] = [vec![0.0; entry.elements()], vec![0.0; entry.elements()]];
        whole
            .read_part(&entry.name, &entry.dims, 0, &mut a)
            .unwrap();
        back.read_part(&entry.name, &entry.dims, 0, &mut b).unwrap();
        Pair {
            name: entry.name,
            dims: entry.dims,
            whole: a,
            back: b,
        }
    };
    (read.checkpoint, entries.into_iter().map(pair).collect())
}

#[test]
fn a_model_in_eight_bits_comes_back_within_half_a_step() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let mut plan = tiny_llama();
    plan.train.steps = 20;
    let samples = Chain::of(&plan);
    let done = run(&plan, &samples, None, &path("run"), &Log::default()).unwrap();
    export_hf(&done.checkpoint, &path("whole")).unwrap();
    let tokens: Vec<u32> = (0..16).map(|at| (at * 7 + 3) % 200).collect();
    let wanted = logits(&done.checkpoint, &tokens).unwrap().concat();
    let spread = wanted.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    // half of the largest step, in parts of a row's largest size: e4m3 has 3 fraction bits, int8 has 255 numbers
    for (kind, name, step) in [
        (WeightFormat::Fp8, "fp8", 1.0 / 16.0),
        (WeightFormat::Int8, "int8", 1.0 / 255.0),
    ] {
        export_quantized(&done.checkpoint, &path(name), kind).unwrap();
        let (checkpoint, pairs) = read_back(dir.path(), name);
        let (mut linear, mut others) = (0, 0);
        for pair in pairs {
            let is_linear = pair.name.ends_with("_proj.weight");
            let most = if is_linear { step } else { 1.0 / 256.0 };
            pair.assert_near(*pair.dims.last().unwrap(), most, name);
            *if is_linear { &mut linear } else { &mut others } += 1;
            assert!(
                !is_linear || pair.whole != pair.back,
                "{name} {}",
                pair.name
            );
        }
        assert_eq!((linear, others), (14, 7));
        let found = logits(&checkpoint, &tokens).unwrap().concat();
        let off = found
            .iter()
            .zip(&wanted)
            .fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
        assert!(off > 0.0 && off < 0.1 * spread, "{name}: {off} of {spread}");
        let size = |folder: &str| fs::metadata(path(folder).join(MODEL)).unwrap().len();
        assert!(3 * size(name) < 2 * size("whole"));
    }
}

/// Projections to latents and up from them, experts and shared experts are linear layers as others are. The router is none, and the
/// biases by which experts are chosen keep their bits.
#[test]
fn linear_layers_of_latents_and_experts_come_back_and_routers_stay() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let plan = tiny_deepseek();
    let samples = Chain::of(&plan);
    let done = run(&plan, &samples, None, &path("run"), &Log::default()).unwrap();
    export_hf(&done.checkpoint, &path("whole")).unwrap();
    let form = Int4Form::CompressedTensors;
    // half of the largest step, in parts of the largest size of the numbers with one scale
    for (kind, name, ignored, step) in [
        (WeightFormat::Fp8, "fp8", "ignore", 1.0 / 16.0),
        (
            WeightFormat::Fp8Blocks,
            "blocks",
            "modules_to_not_convert",
            1.0 / 16.0,
        ),
        (WeightFormat::Int8, "int8", "ignore", 1.0 / 255.0),
        (WeightFormat::Int4 { group: 4, form }, "int4", "ignore", 0.1),
    ] {
        export_quantized(&done.checkpoint, &path(name), kind).unwrap();
        let config = fs::read(path(name).join("config.json")).unwrap();
        let config: Value = serde_json::from_slice(&config).unwrap();
        assert_eq!(
            config["quantization_config"][ignored],
            json!(["lm_head", "model.layers.1.mlp.gate"]),
            "{name}"
        );
        let (_, pairs) = read_back(dir.path(), name);
        let mut linear = 0;
        for pair in pairs {
            if pair.name.ends_with("e_score_correction_bias") {
                let is_same = pair.whole == pair.back;
                assert!(
                    is_same && pair.whole.iter().any(|bias| *bias != 0.0),
                    "{name}"
                );
                continue;
            }
            let is_linear = pair.name.contains("_proj");
            let most = if is_linear { step } else { 1.0 / 256.0 };
            let scaled = match kind {
                WeightFormat::Fp8Blocks => pair.whole.len(),
                WeightFormat::Int4 { group, .. } => group,
                WeightFormat::Fp8 | WeightFormat::Int8 => *pair.dims.last().unwrap(),
            };
            pair.assert_near(scaled, most, name);
            assert!(
                !is_linear || pair.whole != pair.back,
                "{name} {}",
                pair.name
            );
            linear += usize::from(is_linear);
        }
        // of each layer five around attention, three of the dense layer, and three of each of nine experts
        assert_eq!(linear, 2 * 5 + 3 + 3 * 9, "{name}");
    }
    let form = Int4Form::Gptq;
    let as_gptq = WeightFormat::Int4 { group: 4, form };
    let error = export_quantized(&done.checkpoint, &path("no"), as_gptq).unwrap_err();
    assert!(error.to_string().contains("such as routers"), "{error}");
    let mut plan = tiny_deepseek();
    plan.model.mtp_num_layers = 1;
    let samples = Chain::of(&plan);
    let done = run(&plan, &samples, None, &path("depths"), &Log::default()).unwrap();
    let error = export_quantized(&done.checkpoint, &path("no"), WeightFormat::Fp8).unwrap_err();
    assert!(error.to_string().contains("mtp_num_layers = 1"), "{error}");
}

#[test]
fn other_quantizations_and_models_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for plan in [
        tiny_gpt(),
        tiny_neox(),
        tiny_bloom(),
        tiny_olmo(),
        tiny_gemma2(),
        tiny_gemma(),
        tiny_moe(),
        tiny_gpt_oss(),
    ] {
        let samples = Chain::of(&plan);
        let run_in = path(&format!("{:?}", plan.model.family));
        let done = run(&plan, &samples, None, &run_in, &Log::default()).unwrap();
        let error = export_quantized(&done.checkpoint, &path("no"), WeightFormat::Fp8).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("without experts"), "{error}");
        let is_llama = plan.model.family == Family::Llama;
        assert_eq!(
            error.contains("found 4 experts in family = Llama"),
            is_llama,
            "{error}"
        );
    }
    let plan = tiny_llama();
    let done = run(
        &plan,
        &Chain::of(&plan),
        None,
        &path("run"),
        &Log::default(),
    )
    .unwrap();
    export_quantized(&done.checkpoint, &path("int8"), WeightFormat::Int8).unwrap();
    let file = path("int8").join("config.json");
    let good: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    for (pointer, value, wanted) in [
        (
            "/quant_method",
            json!("exl2"),
            "quant_method: found \"exl2\", want \"compressed-tensors\" or \"fp8\" or \"gptq\" or \"awq\" or \"mxfp4\"",
        ),
        (
            "/format",
            json!("nvfp4-pack-quantized"),
            "format: found \"nvfp4-pack-quantized\"",
        ),
        (
            "/config_groups/group_0/weights/num_bits",
            json!(4),
            "weights.num_bits: found 4, want 8",
        ),
        (
            "/config_groups/group_0/weights/strategy",
            json!("group"),
            "weights.strategy: found \"group\"",
        ),
    ] {
        let mut config = good.clone();
        *config["quantization_config"].pointer_mut(pointer).unwrap() = value;
        fs::write(&file, config.to_string()).unwrap();
        let error = import_hf(&path("int8"), &path("read"))
            .unwrap_err()
            .with_causes();
        assert!(error.contains(wanted), "{error} wants {wanted}");
    }
    // bytes without the settings that say what they are
    let mut config = good.clone();
    config
        .as_object_mut()
        .unwrap()
        .shift_remove("quantization_config");
    fs::write(&file, config.to_string()).unwrap();
    let error = import_hf(&path("int8"), &path("read"))
        .unwrap_err()
        .with_causes();
    assert!(error.contains("I8") || error.contains("dtype"), "{error}");
    // cut short
    fs::write(&file, good.to_string()).unwrap();
    let weights = path("int8").join(MODEL);
    let bytes = fs::read(&weights).unwrap();
    fs::write(&weights, &bytes[..bytes.len() - 5]).unwrap();
    let error = import_hf(&path("int8"), &path("read"))
        .unwrap_err()
        .with_causes();
    assert!(error.contains("bytes by the header"), "{error}");
}

/// Copies a golden folder (tests/oracles/packed_folders.py) to where a test may change it.
fn golden_folder(kind: &str, to: &Path) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracles/packed_");
    fs::create_dir_all(to).unwrap();
    for name in ["config.json", MODEL, "whole.safetensors"] {
        fs::copy(
            Path::new(&format!("{folder}{kind}")).join(name),
            to.join(name),
        )
        .unwrap();
    }
}

#[test]
fn gptq_awq_and_packed_folders_have_the_weights_of_their_formula() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for kind in ["gptq4", "gptq8", "awq", "int4", "int8"] {
        let folder = path(kind);
        golden_folder(kind, &folder);
        let read = import_hf(&folder, &path(&format!("{kind}-read"))).unwrap();
        export_hf(&read.checkpoint, &path(&format!("{kind}-back"))).unwrap();
        let mut whole = Reader::open(&folder.join("whole.safetensors")).unwrap();
        let mut back = Reader::open(&path(&format!("{kind}-back")).join(MODEL)).unwrap();
        let entries: Vec<_> = whole.entries().cloned().collect();
        assert_eq!(entries.len(), 12);
        for entry in entries {
            let [mut a, mut b] = [vec![0.0; entry.elements()], vec![0.0; entry.elements()]];
            whole
                .read_part(&entry.name, &entry.dims, 0, &mut a)
                .unwrap();
            back.read_part(&entry.name, &entry.dims, 0, &mut b).unwrap();
            assert_eq!(a, b, "{kind} {}", entry.name);
        }
    }
}

/// Changes the bytes of a tensor of a file.
fn patch(file: &Path, tensor: &str, change: impl Fn(&mut [u8])) {
    let mut bytes = fs::read(file).unwrap();
    let length = usize::try_from(u64::from_le_bytes(bytes[..8].try_into().unwrap())).unwrap();
    let header: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let ends = header[tensor]["data_offsets"].as_array().unwrap();
    let [from, to] =
        [0, 1].map(|at| 8 + length + usize::try_from(ends[at].as_u64().unwrap()).unwrap());
    change(&mut bytes[from..to]);
    fs::write(file, bytes).unwrap();
}

/// Changes the header of a file; the text must keep its length.
fn patch_header(file: &Path, from: &str, to: &str) {
    let bytes = fs::read(file).unwrap();
    let length = usize::try_from(u64::from_le_bytes(bytes[..8].try_into().unwrap())).unwrap();
    let header = String::from_utf8(bytes[8..8 + length].to_vec()).unwrap();
    assert!(header.contains(from), "{header}");
    let header = header.replace(from, to);
    assert_eq!(header.len(), length);
    let all = [&bytes[..8], header.as_bytes(), &bytes[8 + length..]].concat();
    fs::write(file, all).unwrap();
}

#[test]
fn packed_folders_that_lie_are_refused_with_the_tensor() {
    let dir = tempfile::tempdir().unwrap();
    let layer = "model.layers.0.self_attn.q_proj";
    type Change<'a> = &'a dyn Fn(&Path);
    let cut = |folder: &Path| {
        let bytes = fs::read(folder.join(MODEL)).unwrap();
        fs::write(folder.join(MODEL), &bytes[..bytes.len() - 3]).unwrap();
    };
    let file = |folder: &Path| folder.join(MODEL);
    let config = |folder: &Path, pointer: &str, value: Value| {
        let path = folder.join("config.json");
        let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        *config.pointer_mut(pointer).unwrap() = value;
        fs::write(path, config.to_string()).unwrap();
    };
    let cases: [(&str, Change<'_>, &str); 12] = [
        ("gptq4", &cut, "bytes by the header"),
        (
            "gptq4",
            &|folder| {
                let name = format!("{layer}.g_idx");
                patch(&file(folder), &name, |bytes| bytes[4] = 9);
            },
            "q_proj.weight: group of input 1: found 9, want less than 2",
        ),
        (
            "gptq4",
            &|folder| {
                patch(&file(folder), &format!("{layer}.bias"), |bytes| {
                    bytes[1] = 1
                });
            },
            "q_proj.bias: found numbers, want zeros",
        ),
        (
            "gptq4",
            &|folder| config(folder, "/quantization_config/group_size", json!(4)),
            "q_proj.scales: found [2, 16], want [4, 16]",
        ),
        (
            "gptq4",
            &|folder| config(folder, "/quantization_config/bits", json!(8)),
            "q_proj.qweight: found [2, 16], want [4, 16]",
        ),
        (
            "gptq4",
            &|folder| config(folder, "/quantization_config/bits", json!(3)),
            "quantization_config.bits: found 3, want 4 or 8",
        ),
        (
            "gptq4",
            &|folder| patch_header(&file(folder), "q_proj.qzeros", "q_proj.qzerox"),
            "q_proj.qzeros: found nothing, want [2, 2]",
        ),
        (
            "gptq4",
            &|folder| patch_header(&file(folder), "q_proj.g_idx", "q_proj.x_idx"),
            "q_proj.g_idx: found nothing, want [16]",
        ),
        (
            "awq",
            &|folder| config(folder, "/quantization_config/version", json!("gemv")),
            "quantization_config.version: found \"gemv\", want \"gemm\"",
        ),
        (
            "awq",
            &|folder| config(folder, "/head_dim", json!(4)),
            "found 4 outputs, want a multiple of 8",
        ),
        (
            "int4",
            &|folder| {
                let name = format!("{layer}.weight_shape");
                patch(&file(folder), &name, |bytes| bytes[0] = 17);
            },
            "weight_shape: found [17, 16], want [16, 16]",
        ),
        (
            "int8",
            &|folder| {
                let at = "/quantization_config/config_groups/group_0/weights/strategy";
                config(folder, at, json!("token"));
            },
            "weights.strategy: found \"token\", want \"group\" or \"channel\"",
        ),
    ];
    for (number, (kind, change, wanted)) in cases.iter().enumerate() {
        let folder = dir.path().join(format!("{number}"));
        golden_folder(kind, &folder);
        change(&folder);
        let error = import_hf(&folder, &dir.path().join("read")).unwrap_err();
        let error = error.with_causes();
        assert!(error.contains(wanted), "{error} wants {wanted}");
    }
}

#[test]
fn settings_of_gptq_may_be_in_a_file_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("gptq");
    golden_folder("gptq8", &folder);
    let path = folder.join("config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let mut settings = config["quantization_config"].take();
    config
        .as_object_mut()
        .unwrap()
        .shift_remove("quantization_config");
    settings
        .as_object_mut()
        .unwrap()
        .shift_remove("quant_method");
    fs::write(&path, config.to_string()).unwrap();
    fs::write(folder.join("quantize_config.json"), settings.to_string()).unwrap();
    import_hf(&folder, &dir.path().join("read")).unwrap();
}

#[test]
fn four_bits_and_blocks_of_fp8_come_back_within_half_a_step() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let mut plan = tiny_llama();
    // ragged blocks: 144 is one block and 16
    plan.model.d_model = 160;
    plan.model.d_ffn = 144;
    let samples = Chain::of(&plan);
    let done = run(&plan, &samples, None, &path("run"), &Log::default()).unwrap();
    export_hf(&done.checkpoint, &path("whole")).unwrap();
    let wanted = weights(&path("whole"));
    let int4 = |group| WeightFormat::Int4 {
        group,
        form: Int4Form::CompressedTensors,
    };
    // FP8: half of 32 by 448. 4 bits: half a step of a group, of which 7.5 are its largest size, and what bf16's rounding of the scale moves the largest number by
    for (format, name, step, unit) in [
        (int4(16), "int4", 1.06 / 15.0, [1, 16]),
        (WeightFormat::Fp8Blocks, "blocks", 1.001 / 28.0, [128, 128]),
    ] {
        export_quantized(&done.checkpoint, &path(name), format).unwrap();
        let read = import_hf(&path(name), &path(&format!("{name}-read"))).unwrap();
        export_hf(&read.checkpoint, &path(&format!("{name}-back"))).unwrap();
        let found = weights(&path(&format!("{name}-back")));
        let mut largest_off = 0.0f32;
        for (tensor, (dims, a)) in &wanted {
            let (_, b) = &found[tensor];
            if !tensor.ends_with("_proj.weight") {
                continue;
            }
            let columns = dims[1];
            let mut largest = BTreeMap::new();
            let block = |at: usize| (at / columns / unit[0], at % columns / unit[1]);
            for (at, x) in a.iter().enumerate() {
                let most: &mut f32 = largest.entry(block(at)).or_default();
                *most = most.max(x.abs());
            }
            for (at, (a, b)) in a.iter().zip(b).enumerate() {
                let part = (a - b).abs() / largest[&block(at)];
                assert!(part <= step, "{name} {tensor} {at}: {a} and {b}");
                largest_off = largest_off.max(part);
            }
        }
        assert!(largest_off > 0.8 * step, "{name}: {largest_off}");
    }
    let error = export_quantized(&done.checkpoint, &path("no"), int4(128));
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("128 with linear layers of [144, 160] inputs"),
        "{error}"
    );
    // scales that do not fit
    let config = path("blocks").join("config.json");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("128", "64")).unwrap();
    let error = import_hf(&path("blocks"), &path("read")).unwrap_err();
    let error = error.with_causes();
    assert!(
        error.contains("found F8_E4M3 without scales that fit"),
        "{error}"
    );
}

/// Dims and numbers of a folder's tensors.
fn weights(folder: &Path) -> BTreeMap<String, (Vec<usize>, Vec<f32>)> {
    let mut reader = Reader::open(&folder.join(MODEL)).unwrap();
    let entries: Vec<_> = reader.entries().cloned().collect();
    let read = entries.into_iter().map(|entry| {
        let mut values = vec![0.0; entry.elements()];
        let read = reader.read_part(&entry.name, &entry.dims, 0, &mut values);
        read.unwrap();
        (entry.name, (entry.dims, values))
    });
    read.collect()
}
