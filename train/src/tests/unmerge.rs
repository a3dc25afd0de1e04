//! Adapters taken out of the models that they were merged into. The base weights are those of torch, the adapters those of PEFT
//! (tests/oracles/lora_goldens.py).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::checkpoint::safetensors::Reader;
use crate::checkpoint::{MODEL, export_hf, import_hf, unmerge_hf};
use crate::tests::parity::Golden;
use crate::tests::peft::saved;

/// Adapters without tensors in place of the base's.
const NAMES: [&str; 5] = [
    "lora_gpt2",
    "lora_llama",
    "lora_mixtral",
    "lora_deepseek",
    "lora_patterns",
];

/// The tensors of a folder by name.
fn tensors(folder: &Path) -> BTreeMap<String, Vec<f32>> {
    let mut reader = Reader::open(&folder.join(MODEL)).unwrap();
    let entries: Vec<_> = reader.entries().cloned().collect();
    let read = entries.into_iter().map(|entry| {
        let mut values = vec![0.0; entry.elements()];
        let (name, dims) = (&entry.name, &entry.dims);
        reader.read_part(name, dims, 0, &mut values).unwrap();
        (entry.name, values)
    });
    read.collect()
}

/// The largest difference of the tensors that both folders have, and how many they are.
fn apart(one: &Path, other: &Path) -> (f32, usize) {
    let (one, other) = (tensors(one), tensors(other));
    let both = one
        .iter()
        .filter_map(|(name, a)| Some((a, other.get(name)?)));
    let (mut largest, mut count) = (0.0f32, 0);
    for (a, b) in both {
        assert_eq!(a.len(), b.len());
        count += 1;
        let off = a.iter().zip(b).map(|(a, b)| (a - b).abs());
        largest = off.fold(largest, f32::max);
    }
    (largest, count)
}

#[test]
fn a_model_without_its_adapter_has_the_base_s_weights_but_for_two_roundings() {
    for name in NAMES {
        let mut golden = Golden::open(name);
        let folder = tempfile::tempdir().unwrap();
        let [base, adapter] = saved(&mut golden, folder.path());
        let path = |name: &str| folder.path().join(name);
        export_hf(&adapter, &path("merged")).unwrap();
        let checkpoint = import_hf(&adapter, &path("run")).unwrap().checkpoint;
        // of a folder and of a checkpoint alike
        let modules = unmerge_hf(&path("merged"), &adapter, &path("out"), None).unwrap();
        let again = unmerge_hf(&checkpoint, &adapter, &path("again"), None).unwrap();
        assert!(modules > 0 && again == modules, "{name}");
        let (merged, count) = apart(&base, &path("merged"));
        assert!(merged > 1e-3, "{name}: {merged}");
        let (off, tensors_of_both) = apart(&base, &path("out"));
        assert!(off < 1e-6, "{name}: {off}");
        assert!(tensors_of_both == count && count > 10, "{name}: {count}");
        assert_eq!(apart(&path("out"), &path("again")).0, 0.0, "{name}");
        // once more is another model
        unmerge_hf(&path("out"), &adapter, &path("less"), None).unwrap();
        let (twice, _) = apart(&base, &path("less"));
        assert!((twice / merged - 1.0).abs() < 1e-3, "{name}: {twice}");
    }
}

/// A merged model rounded to fewer bits, one whose adapter took the place of the base's tensors, a folder without an adapter and an adapter
/// of another model.
#[test]
fn adapters_that_cannot_be_taken_out_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let at = |name: &str| {
        let folder = path(name);
        fs::create_dir(&folder).unwrap();
        saved(&mut Golden::open(name), &folder)
    };
    let [base, adapter] = at("lora_llama");
    let refused = |merged: &Path, adapter: &Path, wanted: &str| {
        let error = unmerge_hf(merged, adapter, &path("out"), None).unwrap_err();
        let error = error.with_causes();
        assert!(error.contains(wanted), "{error} wants {wanted}");
        assert!(!path("out").exists());
    };
    let [_, saving] = at("lora_saved");
    export_hf(&saving, &path("merged")).unwrap();
    refused(
        &path("merged"),
        &saving,
        "found a copy in place of the base's",
    );
    refused(
        &base,
        &base,
        "which has no adapter_config.json, want PEFT's folder",
    );
    let [_, of_gpt2] = at("lora_gpt2");
    refused(&base, &of_gpt2, "but the base model has no such layer");

    let rounded = path("rounded");
    fs::create_dir(&rounded).unwrap();
    fs::copy(base.join("config.json"), rounded.join("config.json")).unwrap();
    let (mut table, mut data) = (serde_json::Map::new(), Vec::new());
    let mut reader = Reader::open(&base.join(MODEL)).unwrap();
    let entries: Vec<_> = reader.entries().cloned().collect();
    for entry in entries {
        let mut values = vec![0.0f32; entry.elements()];
        let (name, dims) = (&entry.name, &entry.dims);
        reader.read_part(name, dims, 0, &mut values).unwrap();
        let begin = data.len();
        data.extend(values.iter().flat_map(|value| {
            let [_, _, low, high] = value.to_le_bytes();
            [low, high]
        }));
        let offsets: Value = json!([begin, data.len()]);
        let held = json!({"dtype": "BF16", "shape": dims, "data_offsets": offsets});
        table.insert(name.clone(), held);
    }
    let header = Value::Object(table).to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    fs::write(rounded.join(MODEL), bytes).unwrap();
    refused(
        &rounded,
        &adapter,
        "whose weights are not all stored in f32",
    );
}
