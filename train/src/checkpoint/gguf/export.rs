//! Writes a model as a GGUF file, which llama.cpp and what is built on it load.

use std::fs;
use std::path::{Path, PathBuf};

use kernels::quant::BlockType;

use crate::checkpoint::gguf::file::{Entry, Reader, Writer};
use crate::checkpoint::gguf::import::is_gguf;
use crate::checkpoint::gguf::kind::Kind;
use crate::checkpoint::gguf::mix::{self, FileType};
use crate::checkpoint::gguf::names::{Expanded, Order, places};
use crate::checkpoint::gguf::settings::{self, Architecture, ROPE_FACTORS};
use crate::checkpoint::gguf::split_names::NORMALIZER_KEY;
use crate::checkpoint::gguf::tokenizer::{self, Around};
use crate::checkpoint::gguf::value::Metadata;
use crate::checkpoint::huggingface::names::pairs;
use crate::checkpoint::huggingface::pair::Pair;
use crate::checkpoint::initial_weights;
use crate::checkpoint::weight_source::WeightSource;
use crate::config::plan::Plan;
use crate::error::{At, Error, Result};

/// Choices of `export_gguf`.
#[derive(Clone, Debug)]
pub struct GgufOptions {
    /// Number formats.
    pub file_type: FileType,
    /// `general.name`.
    pub name: Option<String>,
    /// `tokenizer.json`; without it the file has the tokenizer of a GGUF file that it is made of, or none.
    pub tokenizer: Option<PathBuf>,
    /// llama.cpp's name of the tokenizer's split expression, in place of the one that is found.
    pub pre: Option<String>,
}

/// A tensor of the file and the tensors of Hugging Face's that it consists of.
struct Part {
    entry: Entry,
    /// The format that its rows are no whole blocks of.
    instead_of: Option<BlockType>,
    pairs: Vec<(Pair, Order)>,
}

/// Writes the model of a checkpoint, a Hugging Face folder or another GGUF file to `out`, one tensor at a time. Returns notes about
/// matrices that have another number format than the file's type gives them.
///
/// # Errors
/// A damaged model; one that llama.cpp lacks, with every setting that rules it out; a tokenizer that it lacks; a file
/// that cannot be written.
pub fn export_gguf(path: &Path, out: &Path, options: &GgufOptions) -> Result<Vec<String>> {
    let mut source = WeightSource::open(path)?;
    let plan = source.plan.clone();
    let Described {
        architecture,
        metadata,
    } = described(path, &plan, options)?;
    let parts = parts(&plan, architecture, options.file_type);
    let factors = settings::rope_factors(&plan);
    let mut entries: Vec<Entry> = parts.iter().map(|part| part.entry.clone()).collect();
    if let Some(factors) = &factors {
        entries.push(Entry {
            name: ROPE_FACTORS.into(),
            dims: vec![factors.len()],
            kind: Kind::F32,
        });
    }
    let name = out.file_name().unwrap_or_default().display().to_string();
    let partial = out.with_file_name(format!(".{name}.partial"));
    let written = Writer::create(&partial, &metadata, &entries)
        .and_then(|writer| write(writer, &mut source, &parts, factors.as_deref()));
    match written {
        Ok(()) => {
            fs::rename(&partial, out).at("rename", &partial)?;
            Ok(replaced(&parts))
        }
        Err(error) => {
            // it would be taken for a file that is being written
            let _ = fs::remove_file(&partial);
            Err(error)
        }
    }
}

/// Refuses what `export_gguf` refuses before it reads weights: a model or a tokenizer that llama.cpp lacks. A path without a model is
/// left to it.
///
/// # Errors
/// As `export_gguf`.
pub fn expect_gguf(path: &Path, options: &GgufOptions) -> Result<()> {
    let Ok(mut plan) = initial_weights::plan_at(path) else {
        return Ok(());
    };
    // merged when it is written
    plan.model.lora = None;
    described(path, &plan, options).map(drop)
}

/// Metadata of the model in a file.
struct Described {
    architecture: Architecture,
    metadata: Metadata,
}

fn described(path: &Path, plan: &Plan, options: &GgufOptions) -> Result<Described> {
    let refused = |lacking: Vec<String>| Error::Request {
        what: "model to write as GGUF",
        found: lacking.join("; "),
        wanted: format!(
            "one of the architectures of llama.cpp that are written ({}), with settings that it has",
            settings::names()
        ),
    };
    let architecture = settings::architecture(plan).map_err(refused)?;
    let mut metadata = settings::to_metadata(plan, architecture);
    metadata.set("general.file_type", options.file_type.code());
    metadata.set("general.quantization_version", 2_usize);
    if let Some(name) = &options.name {
        metadata.set("general.name", &**name);
    }
    match &options.tokenizer {
        Some(tokenizer) => {
            let around = Around {
                vocab: plan.vocab,
                eod: plan.eod,
                pre: options.pre.as_deref(),
            };
            tokenizer::add(&mut metadata, tokenizer, &around)?;
        }
        None if is_gguf(path) => {
            keep_tokenizer(&mut metadata, path)?;
            if let Some(pre) = &options.pre {
                metadata.set("tokenizer.ggml.pre", &**pre);
            }
        }
        None => metadata.set("tokenizer.ggml.model", "none"),
    }
    Ok(Described {
        architecture,
        metadata,
    })
}

/// A line for each format that takes the place of another.
fn replaced(parts: &[Part]) -> Vec<String> {
    let mut found: Vec<(BlockType, &Entry, usize)> = Vec::new();
    for part in parts {
        let Some(block) = part.instead_of else {
            continue;
        };
        let same = |(other, entry, _): &&mut (BlockType, &Entry, usize)| {
            *other == block && entry.kind == part.entry.kind
        };
        match found.iter_mut().find(same) {
            Some((_, _, count)) => *count += 1,
            None => found.push((block, &part.entry, 1)),
        }
    }
    let line = |(block, first, count): &(BlockType, &Entry, usize)| {
        format!(
            "{count} matrices, such as {}, are in {}, not in {}: their rows ({} numbers there) are no multiples of {}",
            first.name,
            first.kind.name(),
            block.name(),
            first.cols(),
            block.numbers()
        )
    };
    found.iter().map(line).collect()
}

/// Copies the metadata of a GGUF file's tokenizer, whether or not it can be read here.
fn keep_tokenizer(metadata: &mut Metadata, path: &Path) -> Result<()> {
    let source = Reader::open(path)?.metadata;
    metadata.set("tokenizer.ggml.model", "none");
    for (key, value) in source.iter() {
        if !key.starts_with("tokenizer.") && key != NORMALIZER_KEY {
            continue;
        }
        if source.is_lossy(key) {
            return Err(Error::Foreign {
                path: path.to_owned(),
                problems: vec![format!(
                    "{key}: found bytes that are not UTF-8, want a text to copy; --tokenizer FILE gives the tokenizer"
                )],
            });
        }
        metadata.set(key.clone(), value.clone());
    }
    Ok(())
}

/// Writes the data of all tensors.
fn write(
    mut writer: Writer,
    source: &mut WeightSource,
    parts: &[Part],
    factors: Option<&[f32]>,
) -> Result<()> {
    let shape = source.plan.shape();
    for part in parts {
        for (pair, order) in &part.pairs {
            let ours = source.read(&pair.ours)?;
            let theirs = pair.elements_of_ours(&shape).map(|at| ours[at]).collect();
            let values = order.to_gguf(theirs, &pair.dims);
            if let Some(at) = values.iter().position(|value| !value.is_finite()) {
                return Err(Error::Request {
                    what: "tensor to write as GGUF",
                    found: format!("{} with {} at element {at}", pair.theirs, values[at]),
                    wanted: "finite numbers".into(),
                });
            }
            writer.write(&part.entry.kind.encode(&values, part.entry.cols()))?;
        }
    }
    if let Some(factors) = factors {
        writer.write(&Kind::F32.encode(factors, factors.len()))?;
    }
    writer.finish()
}

/// Tensors of the file, in the order of Hugging Face's.
fn parts(plan: &Plan, architecture: settings::Architecture, file_type: FileType) -> Vec<Part> {
    let shape = plan.shape();
    let mut heads = architecture.heads(shape.heads, shape.kv_heads);
    heads.expanded = plan.model.latents().map(|latents| Expanded {
        still: latents.still,
        values: latents.values,
    });
    let model = mix::Model {
        layers: plan.model.layers,
        experts: plan.model.moe.as_ref().map_or(0, |moe| moe.experts),
        has_output: !plan.model.is_tied(),
    };
    let mut parts: Vec<Part> = Vec::new();
    for pair in pairs(plan) {
        let places = places(&pair.theirs, heads);
        if places.is_empty() {
            unreachable!(
                "the architecture has every tensor of the family: {}",
                pair.theirs
            );
        }
        for place in places {
            let mut dims = place.order.dims(&pair.dims);
            if place.name.contains("gate_inp_shexp") {
                // a row of one output
                dims.retain(|&dim| dim != 1);
            }
            if place.expert.is_some() {
                dims.insert(0, model.experts);
            }
            let own = (pair.clone(), place.order);
            let choice = mix::choice(file_type, &place.name, &dims, model);
            match parts.iter_mut().find(|part| part.entry.name == place.name) {
                Some(part) => part.pairs.push(own),
                None => parts.push(Part {
                    instead_of: choice.instead_of,
                    entry: Entry {
                        kind: choice.kind,
                        name: place.name,
                        dims,
                    },
                    pairs: vec![own],
                }),
            }
        }
    }
    parts
}
