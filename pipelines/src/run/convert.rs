//! `convert`: exports checkpoints to other forms, and imports other programs' models as checkpoints.

use super::new_outputs::NewFolder;
use crate::flag_numbers::positive;
use crate::generation::{HuggingFaceFiles, checkpoints_in, tokenizer_for};
use crate::job::WrongUse;
use crate::machine::write_atomically;
use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use train::checkpoint::TorchDtype;

/// Output form of `convert`.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum Form {
    Hf,
    Megatron,
    Millrace,
    Peft,
}

/// Number format of `--to megatron`.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum Dtype {
    F32,
    Bf16,
}

impl From<Dtype> for TorchDtype {
    fn from(dtype: Dtype) -> TorchDtype {
        match dtype {
            Dtype::F32 => TorchDtype::F32,
            Dtype::Bf16 => TorchDtype::Bf16,
        }
    }
}

#[derive(Args)]
pub(crate) struct Convert {
    /// Checkpoint, folder of checkpoints (the newest is taken), with --to peft the folder `adapters` of a job, Hugging Face folder (with config.json), PEFT adapter, GGUF file, or Megatron
    /// checkpoint (torch_dist).
    #[arg(long, value_name = "DIR")]
    checkpoint: PathBuf,
    /// Output format: `hf` (Hugging Face, adapters merged), `megatron` (torch_dist, for any parallelism, adapters merged), `millrace`
    /// (weights only unless --state, whole files unless --tp or --pp), or `peft` (the adapters alone).
    #[arg(long, value_enum, default_value = "hf")]
    to: Form,
    /// Convert the running averages instead of the weights.
    #[arg(long)]
    averages: bool,
    /// Include the optimizer's state and the averages, so that training can resume.
    #[arg(long, conflicts_with = "averages")]
    state: bool,
    /// Split into shards for N tensor-parallel ranks.
    #[arg(long, value_name = "N", value_parser = positive)]
    tp: Option<usize>,
    /// Split into shards for N pipeline ranks.
    #[arg(long, value_name = "N", value_parser = positive)]
    pp: Option<usize>,
    /// Largest size of a Hugging Face file, such as 5GB or 500MB; larger models become several files.
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    max_shard_size: Option<u64>,
    /// Number format of a Megatron checkpoint. Default: f32.
    #[arg(long, value_enum)]
    dtype: Option<Dtype>,
    /// PEFT folder of a low-rank adapter to take out of the model, into which it was merged, with --to hf: the weights are the base's but
    /// for the rounding of f32. Weights in fewer bits are refused.
    #[arg(long, value_name = "DIR")]
    unmerge: Option<PathBuf>,
    /// Tokenizer to copy into the output folder. Default: for a Hugging Face folder, the one in or above the checkpoint, that of an
    /// adapter's base model, or the GGUF file's own. A Hugging Face folder has tokenizer.json, tokenizer_config.json,
    /// chat_template.jinja and generation_config.json, copied from beside the tokenizer or made.
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// Folder to write; it must be new or empty.
    out: PathBuf,
}

/// Hugging Face's sizes: decimal units, or binary ones with an i.
fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: u64 = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 1,
        "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "KIB" => 1 << 10,
        "MIB" => 1 << 20,
        "GIB" => 1 << 30,
        _ => return Err(format!("{text:?} is no size such as 5GB, 500MB or 2GiB")),
    };
    let number = digits.trim().parse::<u64>().ok();
    let size = number.and_then(|number| number.checked_mul(unit));
    size.filter(|size| *size > 0)
        .ok_or_else(|| format!("{text:?} is no size above 0 such as 5GB, 500MB or 2GiB"))
}

/// Program whose form a model has.
#[derive(Clone, Copy, PartialEq)]
enum Origin {
    Own,
    Megatron,
    Gguf,
    HuggingFace,
}

impl Origin {
    fn of(model: &Path) -> Origin {
        // a checkpoint of Megatron's may have Hugging Face's configuration beside it
        if train::checkpoint::is_megatron(model) {
            Origin::Megatron
        } else if train::checkpoint::is_gguf(model) {
            Origin::Gguf
        } else if train::checkpoint::is_hugging_face(model) {
            Origin::HuggingFace
        } else {
            Origin::Own
        }
    }

    fn is_foreign(self) -> bool {
        self != Origin::Own
    }
}

impl Convert {
    fn is_split(&self) -> bool {
        self.tp.is_some() || self.pp.is_some()
    }
}

/// The verb.
///
/// # Errors
/// `WrongUse` for flags that do not go together, and for an output that is there; models that are damaged or have no such form.
pub(crate) fn convert(args: &Convert) -> Result<()> {
    let (from, out) = (&args.checkpoint, &args.out);
    let is_foreign = Origin::of(from).is_foreign();
    let (to_hf, to_millrace) = (args.to == Form::Hf, args.to == Form::Millrace);
    for (flag, is_given, is_apt, wanted) in [
        (
            "--tp and --pp",
            args.is_split(),
            to_millrace && !is_foreign,
            "a checkpoint and --to millrace",
        ),
        (
            "--state",
            args.state,
            to_millrace && !is_foreign,
            "a checkpoint and --to millrace",
        ),
        (
            "--dtype",
            args.dtype.is_some(),
            args.to == Form::Megatron,
            "--to megatron",
        ),
        ("--averages", args.averages, !is_foreign, "a checkpoint"),
        (
            "--max-shard-size",
            args.max_shard_size.is_some(),
            to_hf,
            "--to hf",
        ),
        ("--unmerge", args.unmerge.is_some(), to_hf, "--to hf"),
    ] {
        if is_given && !is_apt {
            return Err(WrongUse::new(format!("{flag}: wants {wanted}")).into());
        }
    }
    // before hours of writing
    let folder = NewFolder::expect(out, |name| {
        // a killed conversion may have given Megatron's folder its name, but no tracker that makes it a checkpoint
        args.to == Form::Megatron && name == "release" && !train::checkpoint::is_megatron(out)
    })?;
    let from = match is_foreign {
        true => from.clone(),
        false => checkpoint_of(from)?,
    };
    let checkpoint = match args.averages {
        true => averages_of(&from)?,
        false => from.clone(),
    };
    let beside = Beside::read(args, &checkpoint)?;
    let written = folder.fill(|| {
        let written = write(args, &from, &checkpoint)?;
        beside.write(out)?;
        Ok(written)
    })?;
    log!("wrote {}", written.display());
    Ok(())
}

/// Writes the weights at `checkpoint`, which are the model at `from` or its averages. Returns the checkpoint itself: the path that
/// `train.init_from` and `--checkpoint` take.
fn write(args: &Convert, from: &Path, checkpoint: &Path) -> Result<PathBuf> {
    let out = &args.out;
    let origin = Origin::of(from);
    Ok(match args.to {
        Form::Peft if origin.is_foreign() => bail!(
            "{} is another program's; --to peft wants a checkpoint that was trained with adapters",
            from.display()
        ),
        Form::Peft => {
            let adapters = adapters_in(from);
            for name in &adapters {
                let own = from.join(name).join(CHECKPOINTS);
                train::checkpoint::export_peft(&own, &out.join(name))?;
                name_base(&out.join(name));
            }
            if adapters.is_empty() {
                train::checkpoint::export_peft(checkpoint, out)?;
                name_base(out);
            }
            out.clone()
        }
        Form::Megatron if origin == Origin::Megatron => bail!(
            "{} is Megatron's already; `--to millrace` makes a checkpoint of it",
            from.display()
        ),
        Form::Megatron => {
            let dtype = args.dtype.unwrap_or(Dtype::F32);
            train::checkpoint::export_megatron(checkpoint, out, dtype.into())?;
            out.clone()
        }
        Form::Hf if let Some(adapter) = &args.unmerge => {
            let layers =
                train::checkpoint::unmerge_hf(checkpoint, adapter, out, args.max_shard_size)?;
            log!(
                "convert: took the adapter out of {layers} layers, whose weights are the base's but for the rounding of f32"
            );
            out.clone()
        }
        Form::Hf
            if matches!(origin, Origin::Megatron | Origin::HuggingFace)
                && train::checkpoint::adapter_base(from)?.is_none() =>
        {
            let then = match origin {
                Origin::Megatron => ", which `--to hf` takes",
                Origin::Own | Origin::Gguf | Origin::HuggingFace => "",
            };
            bail!(
                "{} is another program's; `--to millrace` makes a checkpoint of it{then}",
                from.display()
            )
        }
        Form::Millrace if origin == Origin::Gguf => {
            imported(train::checkpoint::import_gguf(from, out)?)
        }
        Form::Millrace if origin == Origin::Megatron => {
            imported(train::checkpoint::import_megatron(from, out)?)
        }
        Form::Millrace if origin == Origin::HuggingFace => {
            imported(train::checkpoint::import_hf(from, out)?)
        }
        Form::Hf => {
            train::checkpoint::export_hf_shards(checkpoint, out, args.max_shard_size)?;
            out.clone()
        }
        Form::Millrace => {
            let to = train::checkpoint::Reshard {
                split: args
                    .is_split()
                    .then(|| (args.tp.unwrap_or(1), args.pp.unwrap_or(1))),
                keeps_state: args.state,
            };
            train::checkpoint::reshard(checkpoint, out, &to)?;
            out.clone()
        }
    })
}

/// Logs what is missing before other programs open an adapter by its folder: its base as a whole model in Hugging Face's form.
fn name_base(adapter: &Path) {
    let base = train::checkpoint::adapter_base(adapter).ok().flatten();
    let (found, base) = match base {
        Some(base) => {
            let is_adapter =
                train::checkpoint::adapter_base(&base).is_ok_and(|under| under.is_some());
            let found = match (is_adapter, train::checkpoint::is_hugging_face(&base)) {
                (true, _) => "an adapter, which other programs take for no base",
                (false, true) => return,
                (false, false) => "no Hugging Face folder",
            };
            (found, base.display().to_string())
        }
        None => ("no folder that is there", "BASE".into()),
    };
    log!(
        "convert: base_model_name_or_path of {} names {found}; `millrace convert --checkpoint {base} --to hf FOLDER` makes one of the \
         model that the adapter stands beside, to be named there",
        adapter.join("adapter_config.json").display()
    );
}

/// The checkpoint that `path` names: itself, the newest of a job or of a folder of checkpoints, or a folder of several adapters.
fn checkpoint_of(path: &Path) -> Result<PathBuf> {
    if !path.exists() {
        bail!("{}: there is no such file or folder", path.display());
    }
    let path = checkpoints_in(path);
    if !adapters_in(&path).is_empty() {
        return Ok(path);
    }
    let found = train::checkpoint::checkpoint_at(&path)?;
    for skipped in &found.skipped {
        log!("convert: {skipped}");
    }
    Ok(found.path)
}

/// The running averages in a checkpoint, whole or in shards.
fn averages_of(checkpoint: &Path) -> Result<PathBuf> {
    let file = checkpoint.join("ema.safetensors");
    let entries = std::fs::read_dir(checkpoint)
        .into_iter()
        .flatten()
        .flatten();
    let mut names = entries.map(|entry| entry.file_name());
    if !names.any(|name| name.to_string_lossy().starts_with("ema.")) {
        bail!(
            "{}: found no running averages (ema.safetensors), want a checkpoint of a training with train.ema_decay",
            checkpoint.display()
        );
    }
    Ok(file)
}

/// Folder of a job's checkpoints.
const CHECKPOINTS: &str = "checkpoints";

/// Names of the adapters in a folder of several, as `[[finetune.adapters]]` makes it.
fn adapters_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let has_checkpoints = |name: &String| folder.join(name).join(CHECKPOINTS).is_dir();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(has_checkpoints).collect();
    names.sort();
    names
}

/// Files for the output folder beside the weights.
enum Beside {
    HuggingFace(HuggingFaceFiles),
    /// The tokenizer that is named for another form.
    Tokenizer(String),
    None,
}

impl Beside {
    fn read(args: &Convert, checkpoint: &Path) -> Result<Beside> {
        let given = args.tokenizer.as_deref();
        match (args.to, given) {
            // the reader names an absent checkpoint
            (Form::Hf, _) if checkpoint.exists() => {
                match HuggingFaceFiles::find(checkpoint, given)? {
                    Some(files) => Ok(Beside::HuggingFace(files)),
                    None => {
                        log!("convert: no tokenizer in or above {}", checkpoint.display());
                        Ok(Beside::None)
                    }
                }
            }
            (Form::Megatron | Form::Millrace | Form::Peft, Some(given)) => {
                // of a folder of several adapters each stands beside the same base
                let model = match adapters_in(checkpoint).first() {
                    Some(name) => checkpoint.join(name).join(CHECKPOINTS),
                    None => checkpoint.to_owned(),
                };
                let tokenizer = tokenizer_for(given, &model)?;
                Ok(Beside::Tokenizer(tokenizer.json().to_owned()))
            }
            _ => Ok(Beside::None),
        }
    }

    fn write(self, out: &Path) -> Result<()> {
        match self {
            Beside::HuggingFace(files) => files.write(out),
            Beside::Tokenizer(json) => {
                write_atomically(&out.join("tokenizer.json"), json.as_bytes())
            }
            Beside::None => Ok(()),
        }
    }
}

/// The checkpoint that an import wrote, after printing the ignored fields of the other program's configuration.
fn imported(imported: train::checkpoint::Imported) -> PathBuf {
    for note in &imported.notes {
        log!("convert: {note}");
    }
    imported.checkpoint
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_hugging_face_reads_them() {
        for (text, size) in [
            ("5GB", 5_000_000_000),
            ("500mb", 500_000_000),
            ("1GiB", 1 << 30),
            ("77", 77),
        ] {
            assert_eq!(bytes(text), Ok(size), "{text}");
        }
        for text in ["", "GB", "5TBX", "0MB", "-1GB", "99999999999GB"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
