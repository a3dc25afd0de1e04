//! `quantization_config` of a `config.json`: which stored weights are products with scales. Written by `quantized.rs`.

use serde_json::{Value, json};

/// Takes `quantization_config` out of a `config.json`; whether there was one.
///
/// # Errors
/// A line for every setting that is not read.
pub(crate) fn take_config(config: &mut Value) -> std::result::Result<bool, Vec<String>> {
    let Some(found) = config
        .as_object_mut()
        .and_then(|table| table.shift_remove("quantization_config"))
    else {
        return Ok(false);
    };
    let mut problems = Vec::new();
    let mut expect = |key: &str, value: &Value, wanted: &[Value]| {
        if !wanted.contains(value) {
            let wanted: Vec<String> = wanted.iter().map(Value::to_string).collect();
            let wanted = wanted.join(" or ");
            problems.push(format!(
                "quantization_config.{key}: found {value}, want {wanted}"
            ));
        }
    };
    expect(
        "quant_method",
        &found["quant_method"],
        &[json!("compressed-tensors")],
    );
    let formats = ["float-quantized", "int-quantized", "naive-quantized"].map(|name| json!(name));
    expect("format", &found["format"], &formats);
    let groups = found["config_groups"].as_object();
    for (name, group) in groups.into_iter().flatten() {
        let weights = &group["weights"];
        for (key, wanted) in [
            ("num_bits", vec![json!(8)]),
            ("type", vec![json!("float"), json!("int")]),
            ("symmetric", vec![json!(true)]),
            ("strategy", vec![json!("channel"), json!("tensor")]),
        ] {
            expect(
                &format!("config_groups.{name}.weights.{key}"),
                &weights[key],
                &wanted,
            );
        }
    }
    match problems.is_empty() {
        true => Ok(true),
        false => Err(problems),
    }
}
