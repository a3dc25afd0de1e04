//! Writes a Hugging Face folder whose linear layers are in few bits, one tensor at a time.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::checkpoint::MODEL;
use crate::checkpoint::huggingface::config;
use crate::checkpoint::huggingface::deepseek::{SCORE_BIAS, is_deepseek};
use crate::checkpoint::huggingface::names::pairs;
use crate::checkpoint::huggingface::pair::Pair;
use crate::checkpoint::quantized::eight_bits::EightBits;
use crate::checkpoint::quantized::int4::GroupCodes;
use crate::checkpoint::safetensors::{Entry, Format, Writer};
use crate::checkpoint::weight_source::WeightSource;
use crate::checkpoint::write::sync;
use crate::config::Family;
use crate::config::plan::Plan;
use crate::error::{At, Error, Result};

/// Sides of a block of FP8.
const BLOCK: usize = 128;

/// Number format of the linear layers of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightFormat {
    /// FP8 E4M3 with a scale for each output, as compressed-tensors (preset `FP8_DYNAMIC`).
    Fp8,
    /// FP8 E4M3 with a scale for each block of 128 x 128, as DeepSeek-V3 and vLLM's `fp8`.
    Fp8Blocks,
    /// Whole numbers of 8 bits with a scale for each output, as compressed-tensors (preset `W8A8`).
    Int8,
    /// Whole numbers of 4 bits with a scale for each group of inputs of an output.
    Int4 {
        /// Inputs of a scale; they divide each layer's inputs.
        group: usize,
        /// Names and order of the stored words.
        form: Int4Form,
    },
}

/// Names and order of words of 4-bit numbers. Both hold the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Int4Form {
    /// compressed-tensors' preset `W4A16`, with scales in bf16.
    CompressedTensors,
    /// AutoGPTQ's, with scales in f16, which has bf16's scales from 2^-17 on exactly.
    Gptq,
}

impl WeightFormat {
    /// Tensors of a linear layer's weight `[out, in]`, in file order.
    fn entries(self, pair: &Pair) -> Vec<(Entry, Format)> {
        let (name, [out, inputs]) = (&pair.theirs, [pair.dims[0], pair.dims[1]]);
        let entry = |name: String, dims: &[usize], format| {
            let dims = dims.to_vec();
            (Entry { name, dims }, format)
        };
        let coded = |format| entry(name.clone(), &pair.dims, format);
        match self {
            WeightFormat::Fp8 | WeightFormat::Int8 => {
                let format = match self {
                    WeightFormat::Int8 => Format::I8,
                    _ => Format::F8E4m3,
                };
                let scales = entry(format!("{name}_scale"), &[out, 1], Format::F32);
                vec![coded(format), scales]
            }
            WeightFormat::Fp8Blocks => {
                let dims = [out, inputs].map(|side| side.div_ceil(BLOCK));
                let scales = entry(format!("{name}_scale_inv"), &dims, Format::F32);
                vec![coded(Format::F8E4m3), scales]
            }
            WeightFormat::Int4 { group, form } => {
                let groups = inputs / group.max(1);
                match form {
                    Int4Form::CompressedTensors => {
                        let words = [out, inputs.div_ceil(8)];
                        vec![
                            entry(format!("{name}_packed"), &words, Format::I32),
                            entry(format!("{name}_scale"), &[out, groups], Format::Bf16),
                            entry(format!("{name}_shape"), &[2], Format::I64),
                        ]
                    }
                    Int4Form::Gptq => {
                        let layer = name.strip_suffix(".weight").unwrap_or(name);
                        let named = |kind: &str| format!("{layer}.{kind}");
                        vec![
                            entry(named("qweight"), &[inputs / 8, out], Format::I32),
                            entry(named("qzeros"), &[groups, out / 8], Format::I32),
                            entry(named("scales"), &[groups, out], Format::F16),
                            entry(named("g_idx"), &[inputs], Format::I32),
                        ]
                    }
                }
            }
        }
    }

    /// `quantization_config`. `kept`: layers that stay as they are.
    fn to_config(self, is_ordered: bool, kept: &[String]) -> Value {
        let of = |bits: u32, kind: &str, strategy: &str| {
            json!({"num_bits": bits, "type": kind, "symmetric": true, "strategy": strategy, "dynamic": false,
                "group_size": null, "block_structure": null, "actorder": null})
        };
        let by_token = |kind: &str| {
            let mut inputs = of(8, kind, "token");
            inputs["dynamic"] = json!(true);
            inputs
        };
        let (format, weights, inputs) = match self {
            WeightFormat::Fp8Blocks => {
                return json!({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                    "weight_block_size": [BLOCK, BLOCK], "modules_to_not_convert": kept});
            }
            WeightFormat::Fp8 => (
                "float-quantized",
                of(8, "float", "channel"),
                by_token("float"),
            ),
            WeightFormat::Int8 => ("int-quantized", of(8, "int", "channel"), by_token("int")),
            WeightFormat::Int4 {
                group,
                form: Int4Form::Gptq,
            } => {
                return json!({"quant_method": "gptq", "bits": 4, "group_size": group, "desc_act": false, "sym": true,
                    "static_groups": is_ordered, "true_sequential": false, "lm_head": false, "checkpoint_format": "gptq"});
            }
            WeightFormat::Int4 { group, .. } => {
                let mut weights = of(4, "int", "group");
                weights["group_size"] = json!(group);
                if is_ordered {
                    weights["actorder"] = json!("weight");
                }
                ("pack-quantized", weights, Value::Null)
            }
        };
        json!({
            "quant_method": "compressed-tensors", "format": format, "quantization_status": "compressed",
            "ignore": kept, "kv_cache_scheme": null,
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights,
                "input_activations": inputs, "output_activations": null}},
        })
    }
}

/// Whether a tensor is the matrix of a linear layer within a block. A router is none: it stays as it is.
pub(crate) fn is_linear(pair: &Pair) -> bool {
    let is_of_block = pair.theirs.starts_with("model.layers.");
    let ends = ["_proj.weight", "_proj_with_mqa.weight"];
    let is_projection = ends.iter().any(|end| pair.theirs.ends_with(end));
    is_of_block && pair.dims.len() == 2 && is_projection
}

/// Number format of a tensor that is no linear layer's matrix. The biases by which DeepSeek-V3 chooses experts move in steps that are
/// smaller than bf16's, and its published files have them in f32.
fn kept_format(pair: &Pair) -> Format {
    match pair.theirs.ends_with(SCORE_BIAS) {
        true => Format::F32,
        false => Format::Bf16,
    }
}

/// Layers that stay as they are: the head and routers.
fn kept_layers(plan: &Plan) -> Vec<String> {
    let layers = 0..plan.model.layers;
    let routers = layers.filter(|layer| plan.model.moe_at(*layer).is_some());
    let routers = routers.map(|layer| format!("model.layers.{layer}.mlp.gate"));
    ["lm_head".to_owned()].into_iter().chain(routers).collect()
}

/// Refuses a model that a folder of this format cannot hold.
pub(crate) fn expect_fitting(plan: &Plan, format: WeightFormat) -> Result<()> {
    let model = &plan.model;
    let mut lacking = config::inexpressible(plan);
    let is_llama = matches!(
        model.family,
        Family::Llama | Family::Mistral | Family::Qwen2 | Family::Qwen3
    );
    if !(is_llama || is_deepseek(model.family)) {
        lacking.push(format!("family = {:?}", model.family));
    }
    if let Some(moe) = model.moe.as_ref().filter(|_| is_llama) {
        let experts = moe.experts;
        lacking.push(format!("{experts} experts in family = {:?}", model.family));
    }
    if model.classify.is_some() {
        lacking.push("a classification head".into());
    }
    if model.mtp_num_layers > 0 {
        lacking.push(format!("mtp_num_layers = {}", model.mtp_num_layers));
    }
    if !lacking.is_empty() {
        return Err(Error::Request {
            what: "model to write in few bits",
            found: lacking.join("; "),
            wanted: "a LLaMA, Mistral, Qwen 2 or Qwen 3 without experts, or a DeepSeek-V2 or V3 without depths of multi-token prediction"
                .into(),
        });
    }
    if let (
        WeightFormat::Int4 {
            form: Int4Form::Gptq,
            ..
        },
        true,
    ) = (format, model.moe.is_some())
    {
        return Err(Error::Request {
            what: "form of 4 bits",
            found: format!("GPTQ's with family = {:?}", model.family),
            wanted: "compressed-tensors': GPTQ's has no list of layers that stay as they are, such as routers".into(),
        });
    }
    if let WeightFormat::Int4 { group, form } = format {
        let linear: Vec<Pair> = pairs(plan).into_iter().filter(is_linear).collect();
        let mut inputs: Vec<usize> = linear.iter().map(|pair| pair.dims[1]).collect();
        inputs.retain(|inputs| group == 0 || !inputs.is_multiple_of(group));
        inputs.sort_unstable();
        inputs.dedup();
        if !inputs.is_empty() {
            return Err(Error::Request {
                what: "group of inputs with one scale",
                found: format!("{group} with linear layers of {inputs:?} inputs"),
                wanted: "a number that divides them".into(),
            });
        }
        let ragged = linear
            .iter()
            .find(|pair| pair.dims.iter().any(|dim| !dim.is_multiple_of(8)));
        if let (Int4Form::Gptq, Some(pair)) = (form, ragged) {
            return Err(Error::Request {
                what: "linear layer in GPTQ's form",
                found: format!("{} of {:?}", pair.theirs, pair.dims),
                wanted: "inputs and outputs in multiples of 8".into(),
            });
        }
    }
    Ok(())
}

/// A folder that is being written. Tensors come in the order of `pairs`.
pub(crate) struct FolderWriter {
    format: WeightFormat,
    writer: Writer,
    out: PathBuf,
    config: Value,
}

impl FolderWriter {
    /// Creates the folder and the header of its weights. `is_ordered`: GPTQ rounded the inputs in an order of its own.
    pub(crate) fn create(
        plan: &Plan,
        out: &Path,
        format: WeightFormat,
        is_ordered: bool,
    ) -> Result<FolderWriter> {
        let mut config = config::to_json(plan)?;
        config["quantization_config"] = format.to_config(is_ordered, &kept_layers(plan));
        for key in ["torch_dtype", "dtype"] {
            if config.get(key).is_some() {
                config[key] = json!("bfloat16");
            }
        }
        let entries = pairs(plan)
            .into_iter()
            .flat_map(|pair| match is_linear(&pair) {
                true => format.entries(&pair),
                false => {
                    let format = kept_format(&pair);
                    let (name, dims) = (pair.theirs, pair.dims);
                    vec![(Entry { name, dims }, format)]
                }
            });
        fs::create_dir_all(out).at("create", out)?;
        let partial = out.join(format!(".{MODEL}.partial"));
        let metadata = Some(json!({"format": "pt"}));
        Ok(FolderWriter {
            format,
            writer: Writer::create_in(&partial, entries.collect(), metadata)?,
            out: out.to_owned(),
            config,
        })
    }

    /// Writes the next tensor; values: those of theirs, in their order. Weights of linear layers are rounded to the nearest.
    pub(crate) fn write(&mut self, pair: &Pair, values: &[f32]) -> Result<()> {
        if !is_linear(pair) {
            if kept_format(pair) == Format::F32 {
                return self.writer.write(values);
            }
            let halves = values.iter().map(|x| half::bf16::from_f32(*x));
            let bytes: Vec<u8> = halves.flat_map(|x| x.to_le_bytes()).collect();
            return self.writer.write_bytes(&bytes);
        }
        let columns = pair.dims[1];
        let scaled = match self.format {
            WeightFormat::Fp8 => EightBits::Fp8.by_rows(values, columns),
            WeightFormat::Int8 => EightBits::Int8.by_rows(values, columns),
            WeightFormat::Fp8Blocks => EightBits::Fp8.by_blocks(values, columns, [BLOCK, BLOCK]),
            WeightFormat::Int4 { group, .. } => {
                return self.write_codes(&GroupCodes::nearest(values, columns, group));
            }
        };
        self.writer.write_bytes(&scaled.bytes)?;
        self.writer.write(&scaled.scales)
    }

    /// Writes the next tensor, a linear layer's weight in 4 bits.
    pub(crate) fn write_codes(&mut self, codes: &GroupCodes) -> Result<()> {
        if let WeightFormat::Int4 {
            form: Int4Form::Gptq,
            ..
        } = self.format
        {
            let parts = codes.gptq();
            return parts
                .iter()
                .try_for_each(|part| self.writer.write_bytes(part));
        }
        self.writer.write_bytes(&codes.packed())?;
        self.writer.write_bytes(&codes.packed_scales())?;
        let dims = [codes.codes.len() / codes.columns.max(1), codes.columns];
        let shape = dims.map(|dim| (dim as u64).to_le_bytes());
        self.writer.write_bytes(shape.as_flattened())
    }

    /// Gives the files their names.
    pub(crate) fn finish(self) -> Result<()> {
        let FolderWriter {
            writer,
            out,
            config,
            ..
        } = self;
        writer.finish()?;
        let partial = out.join(format!(".{MODEL}.partial"));
        fs::rename(&partial, out.join(MODEL)).at("rename", &partial)?;
        let partial = out.join(".config.json.partial");
        let mut file = File::create(&partial).at("create", &partial)?;
        file.write_all(format!("{config:#}\n").as_bytes())
            .at("write", &partial)?;
        file.sync_all().at("sync", &partial)?;
        fs::rename(&partial, out.join("config.json")).at("rename", &partial)?;
        sync(&out)
    }
}

/// Writes the model of a checkpoint, a Hugging Face or PEFT folder or a GGUF file to the folder `out`, with the linear layers of
/// its blocks in this format, each number rounded to the nearest, and all else in bf16 (biases of scores of experts in f32), one tensor
/// at a time.
///
/// # Errors
/// A damaged model; one whose class in transformers cannot express it, or has other linear layers; a group that does not divide
/// their inputs; a folder that cannot be written.
pub fn export_quantized(path: &Path, out: &Path, format: WeightFormat) -> Result<()> {
    let mut model = WeightSource::open(path)?;
    expect_fitting(&model.plan, format)?;
    let mut folder = FolderWriter::create(&model.plan, out, format, false)?;
    let shape = model.plan.shape();
    for pair in pairs(&model.plan) {
        let ours = model.read(&pair.ours)?;
        let values: Vec<f32> = pair.elements_of_ours(&shape).map(|at| ours[at]).collect();
        folder.write(&pair, &values)?;
    }
    folder.finish()
}
