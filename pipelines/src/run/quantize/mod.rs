//! `quantize`: writes a model in fewer bits per weight.

mod calibration;
mod evaluation;

use crate::flag_numbers::{above_zero, positive, share};
use crate::generation::{HuggingFaceFiles, Located, checkpoints_in};
use crate::job::WrongUse;
use crate::log::print;
use crate::machine::write_atomically;
use crate::run::new_outputs::{NewFolder, expect_new_file, in_new_folders};
use crate::run::task_args::TaskArgs;
use crate::tasks::{ADJECTIVES, Asked};
use anyhow::{Context as _, Result};
use calibration::{Amount, Data};
use clap::{Args, ValueEnum};
use evaluation::{Figures, table};
use index::tokenizer::Tokenizer;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use train::calibrate::{Calibration, GptqOptions, LayerError, Method};
use train::checkpoint::{FileType, GgufOptions, Int4Form, WeightFormat};

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
    #[value(name = "gptq")]
    Gptq,
    #[value(name = "awq")]
    Awq,
}

/// Output form of `quantize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    Gguf,
    Hf,
}

/// Forms of 4-bit weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Packing {
    CompressedTensors,
    Gptq,
}

impl Packing {
    fn form(self) -> Int4Form {
        match self {
            Packing::CompressedTensors => Int4Form::CompressedTensors,
            Packing::Gptq => Int4Form::Gptq,
        }
    }
}

#[derive(Args)]
pub(crate) struct Quantize {
    /// Checkpoint, folder of checkpoints, job's folder, Hugging Face folder, PEFT adapter or GGUF file.
    path: PathBuf,
    /// Number format of the weights: q8_0 (8.5 bits each), q6_k (6.6), q4_k_m (about 4.9), q4_0 (4.5), or f32, f16, bf16. Vectors
    /// and norms stay f32. With --to hf: fp8 or w8a8, linear layers in FP8 E4M3 or int8 with a scale for each output; fp8-block, in
    /// FP8 with a scale for each block of 128 x 128; int4, in 4 bits with a scale for each group of inputs of an output;
    /// gptq or awq, in the same 4 bits with what --calibrate shows of the model's activations.
    #[arg(long = "type", value_name = "TYPE", value_enum)]
    kind: Type,
    /// Output format: `gguf` (a file for llama.cpp and what is built on it), or `hf` (a folder for transformers and vLLM).
    #[arg(long, value_enum, default_value = "gguf")]
    to: Form,
    /// Inputs of an output that share a scale in 4 bits.
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = positive)]
    group_size: usize,
    /// Form of weights in 4 bits (int4, gptq, awq), with the same numbers.
    #[arg(long, value_enum, default_value = "compressed-tensors")]
    packing: Packing,
    /// Texts to measure activations on, for gptq and awq, and for w8a8 with SmoothQuant's scales: a job (.toml), of whose training samples
    /// some are taken, or a file of texts (.txt, .jsonl, .parquet and others, column `text`).
    #[arg(long, value_name = "DATA")]
    calibrate: Option<PathBuf>,
    /// Texts to measure on.
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = positive, requires = "calibrate")]
    calibrate_samples: usize,
    /// Tokens of each text to measure on. Default: 512, or as many as the model reads.
    #[arg(long, value_name = "N", value_parser = positive, requires = "calibrate")]
    calibrate_length: Option<usize>,
    /// gptq: round inputs in the order of falling activations.
    #[arg(long)]
    act_order: bool,
    /// gptq: part of the mean of the activations' squares that is added to each.
    #[arg(long, value_name = "X", default_value_t = 0.01, value_parser = above_zero)]
    damping: f64,
    /// w8a8 with --calibrate: part of the activations' outliers that moves into weights.
    #[arg(long, value_name = "X", default_value_t = 0.5, value_parser = share)]
    alpha: f64,
    /// Held-out texts (.txt, .jsonl, .parquet and others, column `text`): print bits per byte and perplexity beside the size, before and after. With --task also the scores of tasks.
    #[arg(long, value_name = "FILE")]
    evaluate: Option<PathBuf>,
    #[command(flatten)]
    tasks: TaskArgs,
    /// Write figures before and after and the errors of layers as JSON, to a new file.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Tokenizer (tokenizer.json) to include, with the tokenizer_config.json and chat_template.jinja beside it. Default: that of a
    /// Hugging Face folder or GGUF file, with --to hf the one in or above a checkpoint too; without one the file has no tokenizer.
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// llama.cpp's name of the tokenizer's split expression (`tokenizer.ggml.pre`), if it is not found by itself.
    #[arg(long, value_name = "NAME")]
    pre: Option<String>,
    /// Name of the model in the file. Default: the name of the file.
    #[arg(long)]
    name: Option<String>,
    /// File to write, or with --to hf the folder; it must be new.
    out: PathBuf,
}

/// Texts and tasks that both models are measured on.
struct Evaluation<'a> {
    texts: Option<&'a Path>,
    tasks: Option<Asked>,
    tokenizer: Tokenizer,
}

impl<'a> Evaluation<'a> {
    /// None without `--evaluate` and `--task`.
    fn of(args: &'a Quantize) -> Result<Option<Evaluation<'a>>> {
        let (texts, is_given) = (args.evaluate.as_deref(), args.tasks.is_given());
        if texts.is_none() && !is_given {
            return Ok(None);
        }
        let tasks = match is_given {
            true => Some(args.tasks.asked()?),
            false => None,
        };
        if let Some(asked) = &tasks
            && asked.requests().any(|one| one.task == ADJECTIVES)
        {
            let message =
                format!("--task {ADJECTIVES}: it samples texts, which `millrace eval` does");
            return Err(WrongUse::new(message).into());
        }
        Ok(Some(Evaluation {
            texts,
            tasks,
            tokenizer: tokenizer(args)?,
        }))
    }

    fn figures(&self, model: &Path) -> Result<Figures> {
        Figures::of(model, self.texts, self.tasks.as_ref(), &self.tokenizer)
    }
}

/// Work to do.
enum Work {
    File(GgufOptions),
    Folder(WeightFormat),
    Calibrated(Method, Data),
}

impl Quantize {
    /// The work that the flags ask for, with its data opened.
    ///
    /// # Errors
    /// `WrongUse` for flags that do not go together; data that cannot be read.
    fn work(&self) -> Result<Work> {
        let group = self.group_size;
        let file_type = match self.kind {
            Type::F32 => FileType::F32,
            Type::F16 => FileType::F16,
            Type::Bf16 => FileType::Bf16,
            Type::Q8_0 => FileType::Q8_0,
            Type::Q6_K => FileType::Q6_K,
            Type::Q4_K_M => FileType::Q4_K_M,
            Type::Q4_0 => FileType::Q4_0,
            Type::Fp8 => return self.folder(WeightFormat::Fp8),
            Type::Fp8Block => return self.folder(WeightFormat::Fp8Blocks),
            Type::W8a8 if self.calibrate.is_some() => {
                return self.calibrated(Method::SmoothQuant { alpha: self.alpha });
            }
            Type::W8a8 => return self.folder(WeightFormat::Int8),
            Type::Int4 => {
                let form = self.packing.form();
                return self.folder(WeightFormat::Int4 { group, form });
            }
            Type::Gptq => {
                return self.calibrated(Method::Gptq(GptqOptions {
                    group,
                    damping: self.damping,
                    act_order: self.act_order,
                }));
            }
            Type::Awq => return self.calibrated(Method::Awq { group }),
        };
        if self.to == Form::Hf {
            let message = "--to hf: wants --type fp8, fp8-block, w8a8, int4, gptq or awq";
            return Err(WrongUse::new(message).into());
        }
        self.expect_no_data()?;
        Ok(Work::File(gguf_options(self, file_type)))
    }

    fn folder(&self, format: WeightFormat) -> Result<Work> {
        self.expect_folder()?;
        self.expect_no_data()?;
        Ok(Work::Folder(format))
    }

    fn calibrated(&self, method: Method) -> Result<Work> {
        self.expect_folder()?;
        match &self.calibrate {
            Some(data) => Ok(Work::Calibrated(method, Data::open(data)?)),
            None => Err(WrongUse::new("--type gptq and awq: want --calibrate DATA").into()),
        }
    }

    fn expect_folder(&self) -> Result<(), WrongUse> {
        let message = "--type fp8, fp8-block, w8a8, int4, gptq and awq: want --to hf";
        match self.to {
            Form::Gguf => Err(WrongUse::new(message)),
            Form::Hf => Ok(()),
        }
    }

    /// The model: of a job's folder its checkpoints.
    fn model(&self) -> PathBuf {
        checkpoints_in(&self.path)
    }

    fn expect_no_data(&self) -> Result<(), WrongUse> {
        let message = "--calibrate: wants --type gptq, awq or w8a8";
        match self.calibrate {
            Some(_) => Err(WrongUse::new(message)),
            None => Ok(()),
        }
    }
}

/// The tokenizer that `--tokenizer` names, or the one of the model.
fn tokenizer(args: &Quantize) -> Result<Tokenizer> {
    Ok(Located::find(&args.model(), &[], args.tokenizer.as_deref(), "quantize")?.tokenizer)
}

/// Writes a Hugging Face folder by activations.
fn calibrated(args: &Quantize, method: Method, data: &Data) -> Result<Vec<LayerError>> {
    let positions = train::calibrate::longest_text(&args.model())?;
    let amount = Amount {
        texts: args.calibrate_samples,
        tokens: args.calibrate_length.unwrap_or(512.min(positions)),
    };
    if amount.tokens > positions {
        let found = amount.tokens;
        let message = format!("--calibrate-length: found {found}, want 1 to {positions}");
        return Err(WrongUse::new(message).into());
    }
    let texts = data.texts(|| tokenizer(args), amount)?;
    let found: usize = texts.iter().map(Vec::len).sum();
    let wanted = amount.texts.saturating_mul(amount.tokens);
    let few = match found < wanted {
        true => format!(", fewer than the {wanted} of --calibrate-samples and --calibrate-length"),
        false => String::new(),
    };
    log!(
        "calibrates with {} texts of {found} tokens{few}",
        texts.len()
    );
    let calibration = Calibration {
        method,
        form: args.packing.form(),
        texts: &texts,
    };
    let on_block = &mut |block| info!("block {block}");
    let export = train::calibrate::export_calibrated;
    Ok(export(&args.model(), &args.out, calibration, on_block)?)
}

/// Settings of a GGUF file.
fn gguf_options(args: &Quantize, file_type: FileType) -> GgufOptions {
    let beside = args.model().join("tokenizer.json");
    let tokenizer = args
        .tokenizer
        .clone()
        .or_else(|| beside.is_file().then_some(beside));
    let named = args.out.file_stem().map(|stem| stem.display().to_string());
    GgufOptions {
        file_type,
        name: args.name.clone().or(named),
        tokenizer,
        pre: args.pre.clone(),
    }
}

/// Writes a GGUF file.
fn to_file(args: &Quantize, options: &GgufOptions) -> Result<()> {
    if let Some(folder) = args.out.parent() {
        let made = std::fs::create_dir_all(folder);
        made.with_context(|| format!("cannot make {}", folder.display()))?;
    }
    for note in train::checkpoint::export_gguf(&args.model(), &args.out, options)? {
        log!("quantize: note: {note}");
    }
    let bytes = std::fs::metadata(&args.out).map_or(0, |found| found.len());
    log!(
        "wrote {} ({:.1} MB)",
        args.out.display(),
        bytes as f64 / 1e6
    );
    Ok(())
}

/// The verb.
pub(crate) fn quantize(args: &Quantize) -> Result<()> {
    // before hours of work
    if let Some(report) = &args.report {
        expect_new_file("--report", report)?;
        if *report == args.out {
            let shown = report.display();
            let message = format!("--report: {shown} is the model's own name, want another file");
            return Err(WrongUse::new(message).into());
        }
    }
    let folder = match args.to {
        Form::Gguf => {
            expect_new_file("", &args.out)?;
            None
        }
        Form::Hf => Some(NewFolder::expect(&args.out, |_| false)?),
    };
    let work = args.work()?;
    let beside = match args.to {
        Form::Gguf => None,
        Form::Hf => HuggingFaceFiles::find(&args.model(), args.tokenizer.as_deref())?,
    };
    let evaluation = Evaluation::of(args)?;
    if let Work::File(options) = &work {
        train::checkpoint::expect_gguf(&args.model(), options)?;
    }
    let before = match &evaluation {
        Some(evaluation) => Some(evaluation.figures(&args.model())?),
        None => None,
    };
    let write = || match work {
        Work::File(options) => to_file(args, &options).map(|()| Vec::new()),
        Work::Folder(format) => {
            train::checkpoint::export_quantized(&args.model(), &args.out, format)?;
            Ok(Vec::new())
        }
        Work::Calibrated(method, data) => calibrated(args, method, &data),
    };
    let errors = match folder {
        None => in_new_folders(&args.out, write)?,
        Some(folder) => folder.fill(|| {
            let errors = write()?;
            match beside {
                Some(files) => files.write(&args.out)?,
                None => log!("quantize: no tokenizer in or above {}", args.path.display()),
            }
            log!("wrote {}", args.out.display());
            Ok(errors)
        })?,
    };
    let mut report = json!({"layers": errors.iter().map(layer).collect::<Vec<Value>>()});
    if let (Some(evaluation), Some(before)) = (&evaluation, before) {
        let after = evaluation.figures(&args.out)?;
        report["before"] = before.to_json();
        report["after"] = after.to_json();
        print(&table(&before, &after))?;
    }
    if !errors.is_empty() {
        let mean =
            |of: fn(&LayerError) -> f64| errors.iter().map(of).sum::<f64>() / errors.len() as f64;
        log!(
            "outputs of layers change by {:.5} of their squares (rounded to the nearest: {:.5})",
            mean(|layer| layer.error),
            mean(|layer| layer.nearest)
        );
    }
    if let Some(file) = &args.report {
        write_atomically(file, format!("{report:#}\n").as_bytes())?;
    }
    Ok(())
}

fn layer(of: &LayerError) -> Value {
    json!({"name": of.name, "error": of.error, "nearest": of.nearest})
}
