//! Linear layers in 8 bits as the package compressed-tensors stores them, which vLLM and transformers load: `weight` in FP8 E4M3 or
//! int8, and `weight_scale` `[out, 1]`, of which each row is the product.
//!
//! Facts from compressed-tensors 0.20 (`quantization/utils/helpers.py`, `lifecycle/forward.py`): a row's scale is its largest size
//! divided by half of the range, 448 or 127.5, or f32's epsilon if that is 0; numbers are divided by it, clamped and rounded to
//! the nearest, ties to even. Activations are quantized by token as they come (presets `FP8_DYNAMIC` and `W8A8` without
//! calibration).

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

use crate::checkpoint::MODEL;
use crate::checkpoint::huggingface::config;
use crate::checkpoint::huggingface::names::pairs;
use crate::checkpoint::huggingface::pair::Pair;
use crate::checkpoint::safetensors::{Entry, Format, Writer};
use crate::checkpoint::weight_source::WeightSource;
use crate::checkpoint::write::sync;
use crate::config::Family;
use crate::error::{At, Error, Result};

/// Number format of the linear layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EightBits {
    /// FP8 E4M3.
    Fp8,
    /// Whole numbers.
    Int8,
}

impl EightBits {
    fn format(self) -> Format {
        match self {
            EightBits::Fp8 => Format::F8E4m3,
            EightBits::Int8 => Format::I8,
        }
    }

    /// Half of the range between the smallest and the largest number.
    fn half_range(self) -> f32 {
        match self {
            EightBits::Fp8 => 448.0,
            EightBits::Int8 => 127.5,
        }
    }

    /// The stored byte of a scaled number.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped before"
    )]
    fn byte(self, x: f32) -> u8 {
        match self {
            EightBits::Int8 => (x.round_ties_even().clamp(-128.0, 127.0) as i8).cast_unsigned(),
            EightBits::Fp8 => {
                let sign = if x.is_sign_negative() { 128 } else { 0 };
                let size = x.abs().min(448.0);
                // steps of 2^-9 below 2^-6, else eight of them to a power of two
                let exponent = (size.to_bits() >> 23).cast_signed() - 127;
                let exponent = exponent.max(-6);
                let steps = (size * 2.0f32.powi(3 - exponent)).round_ties_even();
                // eight steps more are the next exponent
                let code = steps as i32 + 8 * (exponent + 6);
                sign | code as u8
            }
        }
    }

    /// Bytes of a matrix by rows of `columns` numbers, and the scale of each row.
    fn quantize(self, values: &[f32], columns: usize) -> (Vec<u8>, Vec<f32>) {
        let mut bytes = Vec::with_capacity(values.len());
        let mut scales = Vec::new();
        for row in values.chunks(columns.max(1)) {
            let largest = row.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            let scale = match largest / self.half_range() {
                0.0 => f32::EPSILON,
                scale => scale,
            };
            bytes.extend(row.iter().map(|x| self.byte(x / scale)));
            scales.push(scale);
        }
        (bytes, scales)
    }

    fn to_config(self) -> Value {
        let (kind, format) = match self {
            EightBits::Fp8 => ("float", "float-quantized"),
            EightBits::Int8 => ("int", "int-quantized"),
        };
        let of = |strategy: &str, dynamic: bool| {
            json!({"num_bits": 8, "type": kind, "symmetric": true, "strategy": strategy, "dynamic": dynamic,
                "group_size": null, "block_structure": null, "actorder": null})
        };
        json!({
            "quant_method": "compressed-tensors", "format": format, "quantization_status": "compressed",
            "ignore": ["lm_head"], "kv_cache_scheme": null,
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": of("channel", false),
                "input_activations": of("token", true), "output_activations": null}},
        })
    }
}

/// Whether a tensor is the matrix of a linear layer within a block.
fn is_linear(pair: &Pair) -> bool {
    let is_of_block = pair.theirs.starts_with("model.layers.");
    is_of_block && pair.dims.len() == 2 && pair.theirs.ends_with("_proj.weight")
}

/// Writes the model of a checkpoint, a Hugging Face or PEFT folder or a GGUF file to the folder `out`, with the linear layers of
/// its blocks in 8 bits and all else in bf16, one tensor at a time.
///
/// # Errors
/// A damaged model; one whose class in transformers cannot express it, or has other linear layers; a folder that cannot be
/// written.
pub fn export_eight_bits(path: &Path, out: &Path, kind: EightBits) -> Result<()> {
    let mut model = WeightSource::open(path)?;
    let mut lacking = config::inexpressible(&model.plan);
    let is_llama = matches!(
        model.plan.model.family,
        Family::Llama | Family::Mistral | Family::Qwen2 | Family::Qwen3
    );
    if !is_llama || model.plan.model.moe.is_some() || model.plan.model.classify.is_some() {
        lacking.push(format!("family = {:?}", model.plan.model.family));
    }
    if !lacking.is_empty() {
        return Err(Error::Request {
            what: "model to write in 8 bits",
            found: lacking.join("; "),
            wanted: "a LLaMA, Mistral, Qwen 2 or Qwen 3 without experts".into(),
        });
    }
    let mut config = config::to_json(&model.plan)?;
    config["quantization_config"] = kind.to_config();
    for key in ["torch_dtype", "dtype"] {
        if config.get(key).is_some() {
            config[key] = json!("bfloat16");
        }
    }
    let (pairs, shape) = (pairs(&model.plan), model.plan.shape());
    let mut entries = Vec::new();
    for pair in &pairs {
        let (name, dims) = (pair.theirs.clone(), pair.dims.clone());
        let format = if is_linear(pair) {
            kind.format()
        } else {
            Format::Bf16
        };
        entries.push((Entry { name, dims }, format));
        if is_linear(pair) {
            let (name, dims) = (format!("{}_scale", pair.theirs), vec![pair.dims[0], 1]);
            entries.push((Entry { name, dims }, Format::F32));
        }
    }
    fs::create_dir_all(out).at("create", out)?;
    let file = out.join(MODEL);
    let partial = out.join(format!(".{MODEL}.partial"));
    let mut writer = Writer::create_in(&partial, entries, Some(json!({"format": "pt"})))?;
    for pair in &pairs {
        let ours = model.read(&pair.ours)?;
        let values: Vec<f32> = pair.elements_of_ours(&shape).map(|at| ours[at]).collect();
        if is_linear(pair) {
            let (bytes, scales) = kind.quantize(&values, pair.dims[1]);
            writer.write_bytes(&bytes)?;
            writer.write(&scales)?;
        } else {
            let halves: Vec<half::bf16> = values.iter().map(|x| half::bf16::from_f32(*x)).collect();
            let bytes = halves.iter().flat_map(|x| x.to_le_bytes());
            writer.write_bytes(&bytes.collect::<Vec<u8>>())?;
        }
    }
    writer.finish()?;
    fs::rename(&partial, &file).at("rename", &partial)?;
    let partial = out.join(".config.json.partial");
    let mut file = File::create(&partial).at("create", &partial)?;
    file.write_all(format!("{config:#}\n").as_bytes())
        .at("write", &partial)?;
    file.sync_all().at("sync", &partial)?;
    fs::rename(&partial, out.join("config.json")).at("rename", &partial)?;
    sync(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_e4m3_are_the_nearest_of_all_its_numbers() {
        let all: Vec<(u8, f32)> = (0u8..=255)
            .map(|byte| (byte, Format::F8E4m3.widened(u16::from(byte))))
            .filter(|(_, x)| !x.is_nan())
            .collect();
        assert_eq!(all.len(), 254);
        for (byte, x) in &all {
            assert_eq!(EightBits::Fp8.byte(*x), *byte, "{x}");
        }
        let mut sizes: Vec<(u8, f32)> = all
            .iter()
            .copied()
            .filter(|(byte, _)| *byte < 128)
            .collect();
        sizes.sort_by(|a, b| a.1.total_cmp(&b.1));
        for both in sizes.windows(2) {
            let [(low, a), (high, b)] = [both[0], both[1]];
            let middle = f32::midpoint(a, b);
            // ties go to the even byte
            let even = if low % 2 == 0 { low } else { high };
            assert_eq!(EightBits::Fp8.byte(middle), even, "{middle}");
            assert_eq!(EightBits::Fp8.byte(middle.next_down()), low);
            assert_eq!(EightBits::Fp8.byte(-middle.next_up()), high | 128);
        }
        assert_eq!(EightBits::Fp8.byte(1e9), 126);
    }

    /// compressed-tensors' bytes and scales (tests/oracles/eight_bits.py).
    #[test]
    fn rows_are_quantized_as_compressed_tensors_does() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracles/eight_bits.json");
        let golden: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        let words = |value: &Value| -> Vec<u32> { serde_json::from_value(value.clone()).unwrap() };
        let numbers =
            |value: &Value| -> Vec<f32> { words(value).into_iter().map(f32::from_bits).collect() };
        let values = numbers(&golden["values"]);
        let columns = usize::try_from(golden["columns"].as_u64().unwrap()).unwrap();
        for (kind, name) in [(EightBits::Fp8, "fp8"), (EightBits::Int8, "int8")] {
            let (bytes, scales) = kind.quantize(&values, columns);
            assert_eq!(scales, numbers(&golden[name]["scales"]), "{name}");
            let wanted: Vec<u8> = serde_json::from_value(golden[name]["bytes"].clone()).unwrap();
            assert_eq!(bytes, wanted, "{name}");
        }
    }
}
