//! Models with linear layers in 8 bits, written as compressed-tensors stores them and read back.

use std::fs;

use serde_json::{Value, json};

use crate::checkpoint::safetensors::Reader;
use crate::checkpoint::{EightBits, MODEL, export_eight_bits, export_hf, import_hf};
use crate::eval::logits;
use crate::fixtures::{Chain, Log, tiny_gpt, tiny_llama, tiny_moe};
use crate::trainer::run;

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
        (EightBits::Fp8, "fp8", 1.0 / 16.0),
        (EightBits::Int8, "int8", 1.0 / 255.0),
    ] {
        export_eight_bits(&done.checkpoint, &path(name), kind).unwrap();
        let read = import_hf(&path(name), &path(&format!("{name}-read"))).unwrap();
        export_hf(&read.checkpoint, &path(&format!("{name}-back"))).unwrap();
        let mut whole = Reader::open(&path("whole").join(MODEL)).unwrap();
        let mut back = Reader::open(&path(&format!("{name}-back")).join(MODEL)).unwrap();
        let entries: Vec<_> = whole.entries().cloned().collect();
        let (mut linear, mut others) = (0, 0);
        for entry in entries {
            let [mut a, mut b] = [vec![0.0; entry.elements()], vec![0.0; entry.elements()]];
            whole
                .read_part(&entry.name, &entry.dims, 0, &mut a)
                .unwrap();
            back.read_part(&entry.name, &entry.dims, 0, &mut b).unwrap();
            let columns = *entry.dims.last().unwrap();
            let is_linear = entry.name.ends_with("_proj.weight");
            for (a, b) in a.chunks(columns).zip(b.chunks(columns)) {
                let largest = a.iter().fold(0.0f32, |most, x| most.max(x.abs()));
                let off = a
                    .iter()
                    .zip(b)
                    .fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
                let most = if is_linear { step } else { 1.0 / 256.0 };
                assert!(
                    off <= 1.001 * most * largest,
                    "{name} {}: {off} of {largest}",
                    entry.name
                );
            }
            *if is_linear { &mut linear } else { &mut others } += 1;
            assert!(!is_linear || a != b, "{name} {}", entry.name);
        }
        assert_eq!((linear, others), (14, 7));
        let found = logits(&read.checkpoint, &tokens).unwrap().concat();
        let off = found
            .iter()
            .zip(&wanted)
            .fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
        assert!(off > 0.0 && off < 0.1 * spread, "{name}: {off} of {spread}");
        let size = |folder: &str| fs::metadata(path(folder).join(MODEL)).unwrap().len();
        assert!(3 * size(name) < 2 * size("whole"));
    }
}

#[test]
fn other_quantizations_and_models_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for plan in [tiny_gpt(), tiny_moe()] {
        let samples = Chain::of(&plan);
        let run_in = path(&format!("{:?}", plan.model.family));
        let done = run(&plan, &samples, None, &run_in, &Log::default()).unwrap();
        let error = export_eight_bits(&done.checkpoint, &path("no"), EightBits::Fp8).unwrap_err();
        assert!(error.to_string().contains("without experts"), "{error}");
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
    export_eight_bits(&done.checkpoint, &path("int8"), EightBits::Int8).unwrap();
    let file = path("int8").join("config.json");
    let good: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    for (pointer, value, wanted) in [
        (
            "/quant_method",
            json!("gptq"),
            "quant_method: found \"gptq\", want \"compressed-tensors\"",
        ),
        (
            "/format",
            json!("pack-quantized"),
            "format: found \"pack-quantized\"",
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
