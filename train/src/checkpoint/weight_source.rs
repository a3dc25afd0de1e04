//! The weights of a model, tensor by tensor: a conversion needs the memory of one, not of the model.

use std::collections::BTreeSet;
use std::path::Path;

use crate::checkpoint::MODEL;
use crate::checkpoint::adapters::{self, Factors};
use crate::checkpoint::files::Tensors;
use crate::checkpoint::huggingface::import::{Converter, Folder};
use crate::checkpoint::newest::checkpoint_at;
use crate::checkpoint::read::{Opened, parts_of};
use crate::config::LoraConfig;
use crate::config::adapted_layers::has_inputs_first;
use crate::config::plan::Plan;
use crate::error::{Error, Result};
use crate::model::param::{self, Spec};

/// An opened model.
pub(crate) struct WeightSource {
    pub plan: Plan,
    specs: Vec<Spec>,
    held: Held,
    /// Adapters that are merged into the tensors beside them.
    lora: Option<LoraConfig>,
    /// Names of the layers that have them.
    adapted: BTreeSet<String>,
    /// The tensor that was read last: parts of it are asked for one after the other.
    last: Option<(String, Vec<f32>)>,
}

enum Held {
    Checkpoint(Tensors),
    Foreign(Box<Converter>),
}

impl WeightSource {
    /// Opens a checkpoint (verified), the newest of a folder of checkpoints, the file `ema.safetensors` of one, a Hugging
    /// Face folder or a GGUF file.
    ///
    /// # Errors
    /// A damaged checkpoint, folder or file; a model with virtual tokens, which no other form of a whole model has.
    pub(crate) fn open(path: &Path) -> Result<WeightSource> {
        let source = WeightSource::open_any(path)?;
        if source.plan.model.prompt.is_some() {
            return Err(Error::Request {
                what: "model to convert",
                found: "one with virtual tokens in front of its texts (model.prompt)".into(),
                wanted:
                    "one without, or `convert --to peft`, which writes them beside their base model"
                        .into(),
            });
        }
        Ok(source)
    }

    /// Whether its weights are stored in f32; `false` as well where that is not known.
    pub(crate) fn is_f32(&self) -> bool {
        match &self.held {
            Held::Checkpoint(_) => true,
            Held::Foreign(converter) => converter.folder.is_f32(),
        }
    }

    fn open_any(path: &Path) -> Result<WeightSource> {
        if let Some(folder) = Folder::open_other(path)? {
            let plan = folder.plan.clone();
            let held = Held::Foreign(Box::new(Converter::new(folder)));
            return Ok(WeightSource::new(plan, held));
        }
        let path = match path.is_file() {
            true => path.to_owned(),
            false => checkpoint_at(path)?.path,
        };
        let (folder, file) = parts_of(&path);
        let opened = Opened::open(folder)?;
        if file != MODEL {
            opened.verify(file)?;
        }
        let held = Held::Checkpoint(opened.tensors(file)?);
        Ok(WeightSource::new(opened.plan_of_one_rank(), held))
    }

    /// With adapters merged: the plan is that of a model without them.
    fn new(mut plan: Plan, held: Held) -> WeightSource {
        let all = param::specs(&plan);
        let adapted = all
            .iter()
            .filter_map(|spec| spec.name.strip_suffix(".lora_a"));
        let adapted = adapted.map(str::to_owned).collect();
        let lora = plan.model.lora.take();
        WeightSource {
            lora,
            adapted,
            specs: param::specs(&plan),
            plan,
            held,
            last: None,
        }
    }

    /// Numbers of one of our tensors.
    pub(crate) fn read(&mut self, name: &str) -> Result<&[f32]> {
        let is_last = self.last.as_ref().is_some_and(|(last, _)| last == name);
        if !is_last {
            self.last = None;
            let spec = self.specs.iter().find(|spec| spec.name == name);
            let spec = spec.ok_or_else(|| Error::Request {
                what: "tensor",
                found: name.to_owned(),
                wanted: "one of the model's".into(),
            })?;
            let mut values = vec![0.0; spec.dims.iter().product()];
            match &mut self.held {
                Held::Checkpoint(reader) => {
                    reader.read_part(name, &spec.dims, 0, &mut values)?;
                    let layer = name.strip_suffix(".weight").unwrap_or_default();
                    if let Some(lora) = self.lora.as_ref().filter(|_| self.adapted.contains(layer))
                    {
                        add_adapter(reader, (lora, layer), spec, &mut values)?;
                    }
                }
                Held::Foreign(converter) => converter.read(spec, 0, &mut values)?,
            }
            self.last = Some((name.to_owned(), values));
        }
        Ok(self.last.as_ref().map_or(&[], |(_, values)| values))
    }
}

/// Merges the adapter of a layer into its weight.
fn add_adapter(
    reader: &mut Tensors,
    (lora, layer): (&LoraConfig, &str),
    spec: &Spec,
    values: &mut [f32],
) -> Result<()> {
    let (rows, columns, rank) = (spec.dims[0], spec.dims[1], lora.rank);
    let mut read = |part: &str, dims: [usize; 2]| -> Result<Vec<f32>> {
        let mut values = vec![0.0; dims[0] * dims[1]];
        let name = format!("{layer}.{part}");
        reader.read_part(&name, &dims, 0, &mut values)?;
        Ok(values)
    };
    let by_inputs = has_inputs_first(layer);
    let (a, b) = match by_inputs {
        false => (
            read("lora_a", [rank, columns])?,
            read("lora_b", [rows, rank])?,
        ),
        true => {
            let a = read("lora_a", [rows, rank])?;
            (
                adapters::transposed(&a, rank),
                read("lora_b", [columns, rank])?,
            )
        }
    };
    let of = Factors {
        a: &a,
        b: &b,
        rank,
        scale: lora.scale(),
    };
    adapters::merge(values, of, a.len() / rank, by_inputs);
    Ok(())
}
