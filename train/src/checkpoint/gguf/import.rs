//! Tensors of a GGUF file under Hugging Face's names.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use crate::checkpoint::gguf::file::Reader;
use crate::checkpoint::gguf::names::{Expanded, Heads, Order, Place, places};
use crate::checkpoint::gguf::settings::{self, ROPE_FACTORS, Tensors};
use crate::checkpoint::huggingface::pair::Pair;
use crate::config::plan::Plan;
use crate::error::{Error, Result};

/// First bytes of a file.
const MAGIC: [u8; 4] = *b"GGUF";

/// Whether a path is a GGUF file.
pub fn is_gguf(path: &Path) -> bool {
    use std::io::Read;
    let mut magic = [0; 4];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && magic == MAGIC
}

/// An opened file.
pub(crate) struct Gguf {
    reader: Reader,
    heads: Heads,
    /// All experts of a layer, which are asked for one by one.
    last: Option<(String, Vec<f32>)>,
}

impl Gguf {
    /// Opens a file; returns it with Hugging Face's `config.json` of its model.
    ///
    /// # Errors
    /// A damaged file; `Foreign` with every key that is missing or that our models lack.
    pub(crate) fn open(path: &Path) -> Result<(Gguf, Json)> {
        let mut reader = Reader::open(path)?;
        let foreign = |problems: Vec<String>| Error::Foreign {
            path: path.to_owned(),
            problems,
        };
        let names: BTreeSet<&str> = reader.entries().map(|entry| &*entry.name).collect();
        let has = |name: &str| names.contains(name);
        let embedding = reader
            .entries()
            .find(|entry| entry.name == "token_embd.weight");
        let vocab = embedding.and_then(|entry| entry.dims.first().copied());
        let mut tensors = Tensors {
            vocab: vocab.unwrap_or(0),
            has_output: has("output.weight"),
            has_attention_biases: has("blk.0.attn_q.bias"),
            has_mlp_biases: has("blk.0.ffn_up.bias"),
            rope_factors: None,
        };
        if has(ROPE_FACTORS) {
            tensors.rope_factors = Some(reader.read(ROPE_FACTORS)?);
        }
        let found = settings::to_config(&reader.metadata, &tensors);
        let (architecture, config) = found.map_err(foreign)?;
        let count = |key: &str| {
            let key = format!("{}.attention.{key}", architecture.name());
            reader
                .metadata
                .whole(&key)
                .and_then(|count| usize::try_from(count).ok())
        };
        let queries = count("head_count").unwrap_or(1).max(1);
        let mut heads =
            architecture.heads(queries, count("head_count_kv").unwrap_or(queries).max(1));
        let width = |name: &str| {
            config[name]
                .as_u64()
                .and_then(|of| usize::try_from(of).ok())
        };
        let widths = width("qk_nope_head_dim").zip(width("v_head_dim"));
        heads.expanded = widths.map(|(still, values)| Expanded { still, values });
        let gguf = Gguf {
            reader,
            heads,
            last: None,
        };
        Ok((gguf, config))
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.reader.path().to_owned()
    }

    /// Number of tensors.
    pub(crate) fn count(&self) -> usize {
        self.reader.entries().count()
    }

    /// Elements of all tensors together.
    pub(crate) fn elements(&self) -> usize {
        let of = |dims: &[usize]| dims.iter().fold(1, |n: usize, &dim| n.saturating_mul(dim));
        let all = self.reader.entries().map(|entry| of(&entry.dims));
        all.fold(0, usize::saturating_add)
    }

    /// Refuses a file whose tensors are not those of these.
    pub(crate) fn expect(&self, plan: &Plan, pairs: &[Pair]) -> Result<()> {
        let mut problems = Vec::new();
        let mut unused: BTreeSet<&str> = self.reader.entries().map(|entry| &*entry.name).collect();
        unused.remove(ROPE_FACTORS);
        let experts = plan.model.moe.as_ref().map_or(0, |moe| moe.experts);
        for pair in pairs {
            let places = places(&pair.theirs, self.heads);
            if places.is_empty() {
                problems.push(format!("{}: no tensor of GGUF's", pair.theirs));
            }
            for place in places {
                let name = &*place.name;
                let mut dims = place.order.dims(&pair.dims);
                if place.expert.is_some() {
                    dims.insert(0, experts);
                }
                unused.remove(name);
                let plain = |dims: &[usize]| -> Vec<usize> {
                    dims.iter().copied().filter(|&dim| dim != 1).collect()
                };
                match self.reader.entries().find(|entry| entry.name == name) {
                    None => problems.push(format!("{name}: found nothing, want {dims:?}")),
                    Some(entry) if plain(&entry.dims) != plain(&dims) => {
                        problems.push(format!("{name}: found {:?}, want {dims:?}", entry.dims));
                    }
                    Some(_) => {}
                }
            }
        }
        problems.extend(
            unused
                .iter()
                .map(|name| format!("{name}: found, want no such tensor")),
        );
        match problems.is_empty() {
            true => Ok(()),
            false => Err(Error::Foreign {
                path: self.path(),
                problems,
            }),
        }
    }

    /// Numbers of a tensor that `expect` has seen.
    pub(crate) fn values(&mut self, pair: &Pair) -> Result<Vec<f32>> {
        let places = places(&pair.theirs, self.heads);
        match &places[..] {
            [] => Err(Error::Foreign {
                path: self.path(),
                problems: vec![format!("{}: no tensor of GGUF's", pair.theirs)],
            }),
            [
                Place {
                    name,
                    expert: Some(expert),
                    ..
                },
            ] => self.of_expert(name, *expert, pair.elements()),
            [
                Place {
                    name,
                    order: Order::Same,
                    expert: None,
                },
            ] => self.reader.read(name),
            parts => {
                let mut values = vec![0.0; pair.elements()];
                for part in parts {
                    let own = self.reader.read(&part.name)?;
                    part.order.put_back(&own, &pair.dims, &mut values);
                }
                Ok(values)
            }
        }
    }

    /// Numbers of an expert's matrix, in a tensor of those of all experts.
    fn of_expert(&mut self, name: &str, expert: usize, size: usize) -> Result<Vec<f32>> {
        let is_last = self.last.as_ref().is_some_and(|(last, _)| last == name);
        if !is_last {
            self.last = None;
            let all = self.reader.read(name)?;
            self.last = Some((name.to_owned(), all));
        }
        let all = self.last.as_ref().map_or(&[][..], |(_, all)| all);
        let own = all.get(expert * size..(expert + 1) * size);
        Ok(own.unwrap_or_default().to_vec())
    }
}
