//! The weights of a model, tensor by tensor: a conversion needs the memory of one, not of the model.

use std::path::Path;

use crate::checkpoint::MODEL;
use crate::checkpoint::files::Tensors;
use crate::checkpoint::huggingface::import::{Converter, Folder};
use crate::checkpoint::newest::checkpoint_at;
use crate::checkpoint::read::{Opened, parts_of};
use crate::config::plan::Plan;
use crate::error::{Error, Result};
use crate::model::param::{self, Spec};

/// An opened model.
pub(crate) struct WeightSource {
    pub plan: Plan,
    specs: Vec<Spec>,
    held: Held,
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
    /// A damaged checkpoint, folder or file.
    pub(crate) fn open(path: &Path) -> Result<WeightSource> {
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

    fn new(plan: Plan, held: Held) -> WeightSource {
        WeightSource {
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
                Held::Checkpoint(reader) => reader.read_part(name, &spec.dims, 0, &mut values)?,
                Held::Foreign(converter) => converter.read(spec, 0, &mut values)?,
            }
            self.last = Some((name.to_owned(), values));
        }
        Ok(self.last.as_ref().map_or(&[], |(_, values)| values))
    }
}
