//! `quantize`: writes a model in fewer bits per weight.

use crate::machine::write_atomically;
use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use train::checkpoint::{FileType, GgufOptions, WeightFormat};

/// Number formats.
#[expect(non_camel_case_types, reason = "llama.cpp's and vLLM's names")]
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Type {
    #[value(name = "f32")]
    F32,
    #[value(name = "f16")]
    F16,
    #[value(name = "bf16")]
    Bf16,
    #[value(name = "q8_0")]
    Q8_0,
    #[value(name = "q6_k")]
    Q6_K,
    #[value(name = "q4_k_m")]
    Q4_K_M,
    #[value(name = "q4_0")]
    Q4_0,
    #[value(name = "fp8")]
    Fp8,
    #[value(name = "fp8-block")]
    Fp8Block,
    #[value(name = "w8a8")]
    W8a8,
    #[value(name = "int4")]
    Int4,
}

/// Output form of `quantize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    Gguf,
    Hf,
}

#[derive(Args)]
pub(crate) struct Quantize {
    /// Checkpoint, folder of checkpoints, Hugging Face folder, PEFT adapter or GGUF file.
    path: PathBuf,
    /// Number format of the weights: q8_0 (8.5 bits each), q6_k (6.6), q4_k_m (about 4.9), q4_0 (4.5), or f32, f16, bf16. Vectors
    /// and norms stay f32. With --to hf: fp8 or w8a8, linear layers in FP8 E4M3 or int8 with a scale for each output; fp8-block, in
    /// FP8 with a scale for each block of 128 x 128; int4, in 4 bits with a scale for each group of inputs of an output.
    #[arg(long = "type", value_name = "TYPE", value_enum)]
    kind: Type,
    /// Output format: `gguf` (a file for llama.cpp and what is built on it), or `hf` (a folder for transformers and vLLM).
    #[arg(long, value_enum, default_value = "gguf")]
    to: Form,
    /// Inputs of an output that share a scale in 4 bits.
    #[arg(long, value_name = "N", default_value_t = 128)]
    group_size: usize,
    /// Tokenizer (tokenizer.json) to include, with the tokenizer_config.json and chat_template.jinja beside it. Default: that of a
    /// Hugging Face folder; without one the file has no tokenizer.
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// llama.cpp's name of the tokenizer's split expression (`tokenizer.ggml.pre`), if it is not found by itself.
    #[arg(long, value_name = "NAME")]
    pre: Option<String>,
    /// Name of the model in the file. Default: the name of the file.
    #[arg(long)]
    name: Option<String>,
    /// File to write; with --to hf the folder.
    out: PathBuf,
}

/// Kinds of output.
enum Written {
    File(FileType),
    Folder(WeightFormat),
}

impl Quantize {
    /// The output's form, if the type is one of that form's.
    fn written(&self) -> Result<Written> {
        let group = self.group_size;
        let written = match self.kind {
            Type::F32 => Written::File(FileType::F32),
            Type::F16 => Written::File(FileType::F16),
            Type::Bf16 => Written::File(FileType::Bf16),
            Type::Q8_0 => Written::File(FileType::Q8_0),
            Type::Q6_K => Written::File(FileType::Q6_K),
            Type::Q4_K_M => Written::File(FileType::Q4_K_M),
            Type::Q4_0 => Written::File(FileType::Q4_0),
            Type::Fp8 => Written::Folder(WeightFormat::Fp8),
            Type::Fp8Block => Written::Folder(WeightFormat::Fp8Blocks),
            Type::W8a8 => Written::Folder(WeightFormat::Int8),
            Type::Int4 => Written::Folder(WeightFormat::Int4 { group }),
        };
        match (written, self.to) {
            (Written::File(_), Form::Hf) => {
                bail!("--to hf: wants --type fp8, fp8-block, w8a8 or int4")
            }
            (Written::Folder(_), Form::Gguf) => {
                bail!("--type fp8, fp8-block, w8a8 and int4: want --to hf")
            }
            (written, _) => Ok(written),
        }
    }
}

/// Writes a Hugging Face folder with the tokenizer's files.
fn to_folder(args: &Quantize, format: WeightFormat) -> Result<()> {
    let out = &args.out;
    if out.is_file() {
        bail!("{}: found a file, want a folder", out.display());
    }
    train::checkpoint::export_quantized(&args.path, out, format)?;
    let beside = match &args.tokenizer {
        Some(tokenizer) => tokenizer.parent().unwrap_or(Path::new("")).to_path_buf(),
        None => args.path.clone(),
    };
    for name in [
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
        "generation_config.json",
    ] {
        let from = match (&args.tokenizer, name) {
            (Some(tokenizer), "tokenizer.json") => tokenizer.clone(),
            _ => beside.join(name),
        };
        if from.is_file() {
            let bytes = std::fs::read(&from).with_context(|| from.display().to_string())?;
            write_atomically(&out.join(name), &bytes)?;
        }
    }
    log!("wrote {}", out.display());
    Ok(())
}

/// The verb.
pub(crate) fn quantize(args: &Quantize) -> Result<()> {
    let file_type = match args.written()? {
        Written::File(file_type) => file_type,
        Written::Folder(format) => return to_folder(args, format),
    };
    if args.out.is_dir() {
        bail!(
            "{}: found a folder, want the name of a file",
            args.out.display()
        );
    }
    if let Some(folder) = args.out.parent() {
        let made = std::fs::create_dir_all(folder);
        made.with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let beside = args.path.join("tokenizer.json");
    let tokenizer = args
        .tokenizer
        .clone()
        .or_else(|| beside.is_file().then_some(beside));
    let named = args.out.file_stem().map(|stem| stem.display().to_string());
    let options = GgufOptions {
        file_type,
        name: args.name.clone().or(named),
        tokenizer,
        pre: args.pre.clone(),
    };
    train::checkpoint::export_gguf(&args.path, &args.out, &options)?;
    let bytes = std::fs::metadata(&args.out).map_or(0, |found| found.len());
    log!(
        "wrote {} ({:.1} MB)",
        args.out.display(),
        bytes as f64 / 1e6
    );
    Ok(())
}
