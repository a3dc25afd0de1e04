//! `quantize`: writes a model in fewer bits per weight.

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use train::checkpoint::{FileType, GgufOptions};

/// Number formats.
#[expect(non_camel_case_types, reason = "llama.cpp's names")]
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
}

/// Output form of `quantize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    Gguf,
}

#[derive(Args)]
pub(crate) struct Quantize {
    /// Checkpoint, folder of checkpoints, Hugging Face folder or GGUF file.
    path: PathBuf,
    /// Number format of the weights: q8_0 (8.5 bits each), q6_k (6.6), q4_k_m (about 4.9), q4_0 (4.5), or f32, f16, bf16. Vectors
    /// and norms stay f32.
    #[arg(long = "type", value_name = "TYPE", value_enum)]
    kind: Type,
    /// Output format: `gguf` (a file for llama.cpp and what is built on it).
    #[arg(long, value_enum, default_value = "gguf")]
    to: Form,
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
    /// File to write.
    out: PathBuf,
}

impl Type {
    fn file_type(self) -> FileType {
        match self {
            Type::F32 => FileType::F32,
            Type::F16 => FileType::F16,
            Type::Bf16 => FileType::Bf16,
            Type::Q8_0 => FileType::Q8_0,
            Type::Q6_K => FileType::Q6_K,
            Type::Q4_K_M => FileType::Q4_K_M,
            Type::Q4_0 => FileType::Q4_0,
        }
    }
}

/// The verb.
pub(crate) fn quantize(args: &Quantize) -> Result<()> {
    let Form::Gguf = args.to;
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
        file_type: args.kind.file_type(),
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
