//! The weights of a Hugging Face folder: which tensor is in which file, and its numbers, those of quantized layers included.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::checkpoint::MODEL;
use crate::checkpoint::huggingface::pair::Pair;
use crate::checkpoint::huggingface::{bert, gpt_neox, mxfp4, t5};
use crate::checkpoint::quantized::packed::{PackedLayer, Part};
use crate::checkpoint::quantized::scheme::Scheme;
use crate::checkpoint::safetensors::{Format, Reader};
use crate::checkpoint::torch::save::TorchFile;
use crate::config::Family;
use crate::config::plan::Plan;
use crate::error::{At, Error, Result};

/// Formats of weights, and of masks beside them.
const FORMATS: [&str; 5] = ["F32", "F16", "BF16", "U8", "BOOL"];

/// Behind the name of a quantized tensor: its scales.
const SCALE: &str = "_scale";

/// The end of a linear layer's weight.
const WEIGHT: &str = ".weight";

/// Suffixes of tensors in older files that are not weights.
const NOT_WEIGHTS: [&str; 7] = [
    "EncDecAttention.relative_attention_bias.weight",
    ".attn.bias",
    ".attn.masked_bias",
    ".attention.bias",
    ".attention.masked_bias",
    "rotary_emb.inv_freq",
    "embeddings.position_ids",
];

/// Beginnings of tensors of BERT that its masked language model does not use, as transformers' class
/// does not: the pooler and next-sentence head; a second copy of the head's bias.
const OF_OTHER_HEADS: [&str; 3] = [
    "bert.pooler.",
    "cls.seq_relationship.",
    "cls.predictions.decoder.bias",
];

/// The output head of classes that store one separately.
const HEAD: &str = "lm_head.weight";

/// Names of a head that is kept although it is tied.
const TIED: &[&str] = &[
    "lm_head.weight",
    "cls.predictions.decoder.weight",
    gpt_neox::HEAD,
];

/// Names of duplicates of the embedding.
fn copies(plan: &Plan) -> impl Iterator<Item = &'static str> {
    let heads = if plan.model.is_tied() { TIED } else { &[] };
    let tables = if plan.model.family == Family::T5 {
        &t5::TABLES[..]
    } else {
        &[]
    };
    heads.iter().chain(tables).copied()
}

pub(crate) fn foreign(path: &Path, problems: Vec<String>) -> Error {
    Error::Foreign {
        path: path.to_owned(),
        problems,
    }
}

/// A file with tensors.
enum Weights {
    Safetensors(Reader),
    Torch(TorchFile),
}

/// Location of a tensor.
struct Held {
    dims: Vec<usize>,
    /// Name in its file.
    name: String,
    /// Number of its file.
    file: usize,
    format: Format,
}

/// The folder's files and which tensor is in which.
pub(crate) struct Files {
    folder: PathBuf,
    weights: Vec<Weights>,
    tensors: BTreeMap<String, Held>,
    /// Prefix of every tensor name in these files that the list of names does not have.
    prefix: &'static str,
    /// How weights are stored, if the model is quantized.
    scheme: Option<Scheme>,
    /// Beginnings of the names of tensors that the model does not use.
    passed_over: Vec<String>,
}

/// Names of the file with all tensors and of the table of several files, by preference as transformers has it.
const KINDS: [(&str, &str); 2] = [
    (MODEL, "model.safetensors.index.json"),
    ("pytorch_model.bin", "pytorch_model.bin.index.json"),
];

/// Files of the first kind that the folder has.
fn files_in(folder: &Path) -> Result<BTreeSet<String>> {
    for (whole, index) in KINDS {
        let index = folder.join(index);
        if index.exists() {
            return files_of_index(&index);
        }
        if folder.join(whole).exists() {
            return Ok([whole.to_owned()].into());
        }
    }
    let wanted = KINDS.map(|(whole, index)| format!("{whole}, {index}"));
    Err(foreign(
        folder,
        vec![format!(
            "found no weights, want one of {}",
            wanted.join(", ")
        )],
    ))
}

fn files_of_index(index: &Path) -> Result<BTreeSet<String>> {
    let text = fs::read(index).at("read", index)?;
    let wrong = |found: String| foreign(index, vec![format!("weight_map: {found}")]);
    let value: Value =
        serde_json::from_slice(&text).map_err(|error| wrong(format!("not JSON: {error}")))?;
    let map = value["weight_map"].as_object();
    let map = map.ok_or_else(|| wrong("found nothing, want a table of files".into()))?;
    let names = map.values().map(|name| name.as_str().map(str::to_owned));
    let names: Option<BTreeSet<String>> = names.collect();
    let names = names.ok_or_else(|| wrong("found other things than names of files".into()))?;
    // a plain file name: in this folder and no other
    let is_plain = |name: &&String| Path::new(name).file_name() == Some(name.as_ref());
    match names.iter().find(|name| !is_plain(name)) {
        Some(name) => Err(wrong(format!("found {name:?}, want names of files here"))),
        None => Ok(names),
    }
}

/// The current transformers name of a tensor: the first BERT files use TensorFlow's names for norms.
fn modern(name: &str) -> String {
    for (old, new) in [
        ("LayerNorm.gamma", "LayerNorm.weight"),
        ("LayerNorm.beta", "LayerNorm.bias"),
    ] {
        if let Some(start) = name.strip_suffix(old) {
            return format!("{start}{new}");
        }
    }
    name.to_owned()
}

impl Files {
    pub(crate) fn open(folder: &Path) -> Result<Files> {
        Files::open_in(folder, None)
    }

    /// Opens the files of a model whose weights are stored so.
    pub(crate) fn open_in(folder: &Path, scheme: Option<Scheme>) -> Result<Files> {
        let mut files = Files {
            scheme,
            folder: folder.to_owned(),
            weights: Vec::new(),
            tensors: BTreeMap::new(),
            prefix: "",
            passed_over: Vec::new(),
        };
        for file in files_in(folder)? {
            files.add(&folder.join(file))?;
        }
        // the first published GPT-2 files lack it
        if !files
            .tensors
            .keys()
            .any(|name| name.starts_with("transformer."))
        {
            files.prefix = "transformer.";
        }
        Ok(files)
    }

    fn add(&mut self, path: &Path) -> Result<()> {
        let file = self.weights.len();
        let mut hold = |name: &str, dims: &[usize], format| {
            let (dims, name) = (dims.to_vec(), name.to_owned());
            let held = Held {
                dims,
                name,
                file,
                format,
            };
            self.tensors.insert(modern(&held.name), held);
        };
        if path.extension().is_some_and(|kind| kind == "bin") {
            let torch = TorchFile::open(path)?;
            let entries = torch.entries();
            entries.for_each(|(name, dims)| hold(name, dims, Format::F32));
            self.weights.push(Weights::Torch(torch));
        } else {
            let formats = self.scheme.map_or(&FORMATS[..], Scheme::formats);
            let reader = Reader::open_any(path, formats)?;
            let stored = reader.stored();
            stored.for_each(|(entry, format)| hold(&entry.name, &entry.dims, format));
            self.weights.push(Weights::Safetensors(reader));
        }
        Ok(())
    }

    /// Ignores tensors whose names start with one of these; returns how many there are.
    pub(crate) fn pass_over(&mut self, beginnings: Vec<String>) -> usize {
        self.passed_over = beginnings;
        let names = self.tensors.keys();
        names.filter(|name| self.is_passed_over(name)).count()
    }

    fn is_passed_over(&self, name: &str) -> bool {
        self.passed_over.iter().any(|start| name.starts_with(start))
    }

    /// Whether there is a tensor of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Whether every tensor is known to be stored in f32: torch's files are widened without a look at their format.
    pub(crate) fn are_f32(&self) -> bool {
        let is_whole = |weights: &Weights| match weights {
            Weights::Safetensors(_) => true,
            Weights::Torch(_) => false,
        };
        self.weights.iter().all(is_whole)
            && self.tensors.values().all(|held| held.format == Format::F32)
    }

    /// Number of tensors.
    pub(crate) fn count(&self) -> usize {
        self.tensors.len()
    }

    /// Refuses files whose tensors are not exactly these, apart from those that `is_passed_over` names.
    pub(crate) fn expect(
        &self,
        wanted: &[(String, Vec<usize>)],
        is_passed_over: &dyn Fn(&str) -> bool,
    ) -> Result<()> {
        let mut problems = Vec::new();
        let mut unused: BTreeSet<&String> = self.tensors.keys().collect();
        for (name, dims) in wanted {
            match self.tensors.get_key_value(name) {
                None => problems.push(format!("{name}: found nothing, want {dims:?}")),
                Some((key, held)) => {
                    unused.remove(key);
                    if held.dims != *dims {
                        let found = &held.dims;
                        problems.push(format!("{name}: found {found:?}, want {dims:?}"));
                    }
                }
            }
        }
        let unused = unused.into_iter().filter(|name| !is_passed_over(name));
        problems.extend(unused.map(|name| format!("{name}: found, want no such tensor")));
        match problems.is_empty() {
            true => Ok(()),
            false => Err(foreign(&self.folder, problems)),
        }
    }

    /// Numbers of a tensor, which has these dims.
    pub(crate) fn read(&mut self, name: &str, dims: &[usize]) -> Result<Vec<f32>> {
        self.values(&Pair::of(name.to_owned(), String::new(), dims))
    }

    /// Elements of all tensors together: no number of the model can be larger.
    pub(crate) fn elements(&self) -> usize {
        let counts = self.tensors.values().map(|held| {
            let count = |n: usize, &dim: &usize| n.saturating_mul(dim);
            held.dims.iter().fold(1usize, count)
        });
        let all = counts.fold(0, usize::saturating_add);
        all.saturating_mul(self.scheme.map_or(1, Scheme::weights_per_element))
    }

    fn name_of<'n>(&self, theirs: &'n str) -> &'n str {
        theirs.strip_prefix(self.prefix).unwrap_or(theirs)
    }

    /// The list of tensors, if those of the files are exactly these.
    pub(crate) fn matched(&mut self, plan: &Plan, mut pairs: Vec<Pair>) -> Result<Vec<Pair>> {
        // transformers 5 writes a head that equals the embedding as the embedding alone, scaled or not
        if plan.model.family == Family::T5 && !self.tensors.contains_key(HEAD) {
            let head = pairs.iter_mut().find(|pair| pair.theirs == HEAD);
            head.into_iter()
                .for_each(|head| head.theirs = "shared.weight".into());
        }
        let mut problems = Vec::new();
        let mut unused: BTreeSet<&String> = self.tensors.keys().collect();
        for pair in &pairs {
            let name = self.name_of(&pair.theirs);
            if let Some(parts) = self.blocks(pair) {
                self.match_blocks(&parts, &mut unused, &mut problems);
                continue;
            }
            match (self.tensors.get_key_value(name), self.parts(pair)) {
                (None, Some(parts)) => self.match_parts(parts, &mut unused, &mut problems),
                // a stack has as many pairs as parts
                (None, None) if pair.part() > 0 => {}
                (None, None) => {
                    problems.push(format!("{name}: found nothing, want {:?}", pair.dims))
                }
                (Some(_), _) if pair.part() > 0 => {}
                (Some((key, held)), _) => {
                    unused.remove(key);
                    if held.dims != pair.dims {
                        let (found, wanted) = (&held.dims, &pair.dims);
                        problems.push(format!("{name}: found {found:?}, want {wanted:?}"));
                    } else if !held.format.is_numbers() {
                        let found = held.format.name();
                        problems.push(format!("{name}: found {found}, want numbers"));
                    } else if held.format.is_coded() && self.scale_of(name).is_none() {
                        let found = held.format.name();
                        problems.push(format!(
                            "{name}: found {found} without scales that fit, want them"
                        ));
                    }
                }
            }
        }
        let is_passed_over = |name: &str| {
            NOT_WEIGHTS.iter().any(|end| name.ends_with(end))
                || plan.model.family == Family::Bert
                    && OF_OTHER_HEADS.iter().any(|start| name.starts_with(start))
                || copies(plan).any(|copy| copy == name)
                || self.is_scale(name)
                || self.is_bias_of_packed(name)
                || self.is_passed_over(name)
        };
        let unused = unused.into_iter().filter(|name| !is_passed_over(name));
        problems.extend(unused.map(|name| format!("{name}: found, want no such tensor")));
        if problems.is_empty() {
            self.check_copies(plan, &pairs)?;
            self.check_biases(&pairs)?;
            return Ok(pairs);
        }
        Err(Error::Foreign {
            path: self.folder.clone(),
            problems,
        })
    }

    /// The pooler of a file whose class has no use for it, for a run that starts a classification head from it.
    pub(crate) fn spare_pooler(&self, plan: &Plan, pairs: &[Pair]) -> Vec<Pair> {
        let own = bert::pooler(plan);
        let is_there = |pair: &Pair| {
            let held = self.tensors.get(&pair.theirs);
            held.is_some_and(|held| held.dims == pair.dims)
        };
        let is_used = pairs.iter().any(|pair| pair.ours == own[0].ours);
        if is_used || !own.iter().all(is_there) {
            return Vec::new();
        }
        own.into()
    }

    /// A second copy of a tied tensor must equal the embedding.
    fn check_copies(&mut self, plan: &Plan, pairs: &[Pair]) -> Result<()> {
        for name in copies(plan) {
            if !self.tensors.contains_key(name) {
                continue;
            }
            let table = self.values(&pairs[0])?;
            let mut copy = pairs[0].clone();
            copy.theirs = name.into();
            if self.values(&copy)? != table {
                let wanted = "want the tied embedding's";
                return Err(Error::Foreign {
                    path: self.folder.clone(),
                    problems: vec![format!("{name}: found other numbers, {wanted}")],
                });
            }
        }
        Ok(())
    }

    /// Numbers of a tensor that was matched.
    pub(crate) fn values(&mut self, pair: &Pair) -> Result<Vec<f32>> {
        if let Some(parts) = self.parts(pair) {
            return self.packed(pair, parts);
        }
        if let Some(parts) = self.blocks(pair) {
            return self.unblocked(pair, &parts);
        }
        let name = self.name_of(&pair.theirs);
        let held = self.tensors.get(name);
        let missing = || foreign(&self.folder, vec![format!("{name}: found nothing")]);
        let held = held.ok_or_else(missing)?;
        let mut values = match &mut self.weights[held.file] {
            Weights::Safetensors(reader) => {
                let mut values = vec![0.0; pair.elements()];
                reader.read_part(&held.name, &pair.dims, pair.first_element(), &mut values)?;
                values
            }
            Weights::Torch(torch) => {
                let mut values = torch.read(&held.name)?;
                if pair.elements() < values.len() {
                    values.drain(..pair.first_element());
                    values.truncate(pair.elements());
                }
                return Ok(values);
            }
        };
        let coded = held.format.is_coded();
        if let Some((name, block)) = self.scale_of(name).filter(|_| coded)
            && let Some(held) = self.tensors.get(&name)
            && let Weights::Safetensors(reader) = &mut self.weights[held.file]
        {
            let mut scales = vec![0.0; held.dims.iter().product()];
            reader.read_part(&held.name, &held.dims, 0, &mut scales)?;
            let columns = values.len() / pair.dims[0].max(1);
            let wide = columns.div_ceil(block[1].max(1));
            for (at, row) in values.chunks_mut(columns.max(1)).enumerate() {
                let own = &scales[at / block[0] * wide..];
                for (part, scale) in row.chunks_mut(block[1].max(1)).zip(own) {
                    part.iter_mut().for_each(|x| *x *= scale);
                }
            }
        }
        Ok(values)
    }

    /// Name and block of the scales of a tensor, if they are there and fit its dims.
    fn scale_of(&self, name: &str) -> Option<(String, [usize; 2])> {
        let of = self.tensors.get(name)?;
        let columns = of.dims[1..].iter().product();
        let (suffix, blocks) = match self.scheme? {
            Scheme::Rows => (SCALE, None),
            Scheme::Blocks { block, suffix } => (suffix, Some(block)),
            Scheme::Packed(_) | Scheme::Mxfp4 => return None,
        };
        let name = format!("{name}{suffix}");
        let dims = &self.tensors.get(&name)?.dims;
        let block = match (blocks, dims.iter().product::<usize>()) {
            (Some([high, wide]), _) => {
                let wanted = [of.dims[0].div_ceil(high), of.dims.get(1)?.div_ceil(wide)];
                (dims[..] == wanted).then_some([high, wide])?
            }
            (None, 1) => [of.dims[0], columns],
            (None, count) => (count == of.dims[0]).then_some([1, columns])?,
        };
        Some((name, block))
    }

    /// Whether a tensor holds the scales of another, or those of a layer's inputs, which we do not round.
    fn is_scale(&self, name: &str) -> bool {
        let suffix = match self.scheme {
            Some(Scheme::Rows) => SCALE,
            Some(Scheme::Blocks { suffix, .. }) => suffix,
            Some(Scheme::Packed(_) | Scheme::Mxfp4) | None => return false,
        };
        let of = name.strip_suffix(suffix);
        let scales = of
            .and_then(|of| self.scale_of(of))
            .is_some_and(|(own, _)| own == name);
        let of_inputs = name.strip_suffix(".input_scale");
        scales
            || of_inputs.is_some_and(|layer| self.tensors.contains_key(&format!("{layer}{WEIGHT}")))
    }

    /// The tensors of a packed layer, if its words are there.
    fn parts(&self, pair: &Pair) -> Option<Result<Vec<Part>, String>> {
        let Some(Scheme::Packed(packing)) = self.scheme else {
            return None;
        };
        let base = self.name_of(&pair.theirs).strip_suffix(WEIGHT)?;
        let dims = <[usize; 2]>::try_from(&pair.dims[..]).ok()?;
        // a Conv1D of GPT-2 has other dims
        if pair.theirs.starts_with("transformer.") {
            return None;
        }
        let words = packing.words(base);
        self.tensors
            .contains_key(&words)
            .then(|| packing.parts(base, dims))
    }

    /// The tensors in place of stacked matrices, if theirs are in blocks.
    fn blocks(&self, pair: &Pair) -> Option<[mxfp4::Part; 2]> {
        if self.scheme != Some(Scheme::Mxfp4) || self.tensors.contains_key(&pair.theirs) {
            return None;
        }
        mxfp4::parts(&pair.theirs, &pair.dims)
    }

    fn match_blocks<'t>(
        &'t self,
        parts: &[mxfp4::Part],
        unused: &mut BTreeSet<&'t String>,
        problems: &mut Vec<String>,
    ) {
        for part in parts {
            let (name, wanted) = (&part.name, &part.dims);
            let line = match self.tensors.get_key_value(name) {
                None => format!("{name}: found nothing, want {wanted:?}"),
                Some((key, held)) => {
                    unused.remove(key);
                    match (held.dims == *wanted, held.format) {
                        (true, Format::U8) => continue,
                        (true, format) => format!("{name}: found {}, want U8", format.name()),
                        (false, _) => format!("{name}: found {:?}, want {wanted:?}", held.dims),
                    }
                }
            };
            // once for all parts of a stack
            if !problems.contains(&line) {
                problems.push(line);
            }
        }
    }

    /// Numbers of stacked matrices that were matched.
    fn unblocked(&mut self, pair: &Pair, parts: &[mxfp4::Part; 2]) -> Result<Vec<f32>> {
        let mut read = |part: &mxfp4::Part| {
            let held = self.tensors.get(&part.name);
            let held = held.and_then(|held| Some((held, self.weights.get_mut(held.file)?)));
            match held {
                Some((held, Weights::Safetensors(reader))) => {
                    let first = pair.part() * part.bytes;
                    reader.read_bytes(&held.name, &part.dims, first..first + part.bytes)
                }
                _ => {
                    let line = format!("{}: found no safetensors file with it", part.name);
                    Err(foreign(&self.folder, vec![line]))
                }
            }
        };
        let [blocks, scales] = parts;
        let name = &scales.name;
        let (blocks, scales) = (read(blocks)?, read(scales)?);
        if scales.contains(&mxfp4::NO_SCALE) {
            let line = format!("{name}: found a scale of 255, which is no number, want 0 to 254");
            return Err(foreign(&self.folder, vec![line]));
        }
        Ok(mxfp4::values(&blocks, &scales, pair.dims[2]))
    }

    fn match_parts<'t>(
        &'t self,
        parts: Result<Vec<Part>, String>,
        unused: &mut BTreeSet<&'t String>,
        problems: &mut Vec<String>,
    ) {
        let parts = match parts {
            Ok(parts) => parts,
            Err(problem) => return problems.push(problem),
        };
        for part in parts {
            let (name, wanted) = (&part.name, &part.dims);
            match self.tensors.get_key_value(name) {
                None if part.is_optional => {}
                None => problems.push(format!("{name}: found nothing, want {wanted:?}")),
                Some((key, held)) => {
                    unused.remove(key);
                    if held.dims != *wanted {
                        let found = &held.dims;
                        problems.push(format!("{name}: found {found:?}, want {wanted:?}"));
                    }
                    let file = self.weights.get(held.file);
                    if !matches!(file, Some(Weights::Safetensors(_))) {
                        problems.push(format!("{name}: found a torch file, want safetensors"));
                    }
                }
            }
        }
    }

    /// Whether a tensor is the bias of a packed layer.
    fn is_bias_of_packed(&self, name: &str) -> bool {
        let Some((Scheme::Packed(packing), base)) = self.scheme.zip(name.strip_suffix(".bias"))
        else {
            return false;
        };
        self.tensors.contains_key(&packing.words(base))
    }

    /// AutoGPTQ gives every layer a bias; those that the model lacks must be zero.
    fn check_biases(&mut self, pairs: &[Pair]) -> Result<()> {
        let known: BTreeSet<&str> = pairs
            .iter()
            .map(|pair| self.name_of(&pair.theirs))
            .collect();
        let spare = self
            .tensors
            .iter()
            .filter(|(name, _)| !known.contains(&***name) && self.is_bias_of_packed(name));
        let spare: Vec<(String, Vec<usize>)> = spare
            .map(|(name, held)| (name.clone(), held.dims.clone()))
            .collect();
        for (name, dims) in spare {
            if self.read(&name, &dims)?.iter().any(|x| *x != 0.0) {
                let line = format!("{name}: found numbers, want zeros: the model has no such bias");
                return Err(foreign(&self.folder, vec![line]));
            }
        }
        Ok(())
    }

    /// Numbers of a packed layer that was matched.
    fn packed(&mut self, pair: &Pair, parts: Result<Vec<Part>, String>) -> Result<Vec<f32>> {
        let wrong =
            |problem: String| foreign(&self.folder, vec![format!("{}: {problem}", pair.theirs)]);
        let (Some(Scheme::Packed(packing)), Ok(dims)) =
            (self.scheme, <[usize; 2]>::try_from(&pair.dims[..]))
        else {
            return Err(wrong("found words, want numbers".into()));
        };
        let mut layer = PackedLayer::default();
        for part in parts.map_err(&wrong)? {
            if let Some(held) = self.tensors.get(&part.name)
                && let Some(Weights::Safetensors(reader)) = self.weights.get_mut(held.file)
            {
                layer.read(&part, &held.name, reader)?;
            }
        }
        packing.weights(&layer, dims).map_err(&wrong)
    }
}
