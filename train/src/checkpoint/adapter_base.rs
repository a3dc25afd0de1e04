//! The whole model that adapters or virtual tokens stand beside, and whether another model is it.

use std::path::{Path, PathBuf};

use crate::checkpoint::huggingface::adapter_folder::{is_adapter, named_base};
use crate::checkpoint::read::parts_of;
use crate::checkpoint::{STATE, path_of, state, steps_in};
use crate::config::plan::Plan;
use crate::error::Result;

/// Trainings that are followed from one to the one before.
const MOST: usize = 100;

/// Path of the model that the adapters or virtual tokens of a run with this plan stand beside: the source of its weights or, if
/// that is a checkpoint whose adapters or virtual tokens the run went on with, the model that those stand beside. Empty for weights
/// that were drawn from a seed.
pub(crate) fn base_of(plan: &Plan) -> String {
    let mut base = plan.train.init_from.clone();
    for _ in 0..MOST {
        let before = plan_at(Path::new(&base));
        let has_some = |plan: &Plan| plan.model.lora.is_some() || plan.model.prompt.is_some();
        let Some(before) = before.filter(has_some) else {
            break;
        };
        base = before.train.init_from;
    }
    base
}

/// The plan of a checkpoint, or of the newest of a folder of checkpoints, all of which have the same source.
fn plan_at(path: &Path) -> Option<Plan> {
    let (folder, _) = parts_of(path);
    if folder.join(STATE).exists() {
        return state::read(folder).ok().map(|(state, _)| state.plan);
    }
    let steps = steps_in(folder).ok()?.into_iter().rev();
    let mut plans = steps.filter_map(|step| state::read(&path_of(folder, step)).ok());
    plans.next().map(|(state, _)| state.plan)
}

/// The base model that the adapter at `adapter` (a folder in PEFT's form, a checkpoint or a folder of checkpoints) was made for, if
/// its name is another than that of the model at `model`. The same model may have several names: a quantized or converted copy
/// has another.
///
/// # Errors
/// A folder in PEFT's form whose configuration cannot be read.
pub fn other_base(adapter: &Path, model: &Path) -> Result<Option<String>> {
    let (base, folder) = match is_adapter(adapter) {
        true => (named_base(adapter)?, Some(adapter)),
        false => {
            let plan = plan_at(adapter);
            (plan.as_ref().map(base_of).unwrap_or_default(), None)
        }
    };
    let is_same = base.is_empty() || is_named(&base, folder, model);
    Ok((!is_same).then_some(base))
}

/// Whether a base of this name, given in `folder` if that is a folder of PEFT's, is at `model`.
fn is_named(base: &str, folder: Option<&Path>, model: &Path) -> bool {
    let model = model.canonicalize().unwrap_or_else(|_| model.to_owned());
    let beside = folder.map(|folder| folder.join(base));
    let mut places = [Some(PathBuf::from(base)), beside].into_iter().flatten();
    if let Some(place) = places.find_map(|place| place.canonicalize().ok()) {
        // a checkpoint is in the folder of its run
        return model.starts_with(&place) || place.starts_with(&model);
    }
    // a name of the hub's, `owner/name`, whose folder is of any place, or of its cache
    let last = base.rsplit('/').next().unwrap_or(base);
    let cached = format!("models--{}", base.replace('/', "--"));
    let mut parts = model.components().map(|part| part.as_os_str());
    let is_in_cache = parts.any(|part| part.eq_ignore_ascii_case(&cached));
    let name = model.file_name();
    is_in_cache || name.is_some_and(|name| name.eq_ignore_ascii_case(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_is_known_by_its_path_or_by_its_name_on_the_hub() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in [
            "runs/a/checkpoints/step-00000002",
            "adapter",
            "Llama-3",
            "llama.q",
            "hub/models--Meta--Other/snapshots/1f",
        ] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        std::fs::create_dir(at("adapter/own")).unwrap();
        let text = |name: &str| at(name).display().to_string();
        for (base, folder, model, is_same) in [
            (text("Llama-3"), None, at("adapter/../Llama-3"), true),
            (text("Llama-3"), None, at("llama.q"), false),
            (
                text("runs/a/checkpoints"),
                None,
                at("runs/a/checkpoints/step-00000002"),
                true,
            ),
            (text("runs/a/checkpoints"), None, at("runs/a"), true),
            (
                "../Llama-3".into(),
                Some(at("adapter")),
                at("Llama-3"),
                true,
            ),
            ("own".into(), Some(at("adapter")), at("Llama-3"), false),
            (
                "meta/llama-3".into(),
                Some(at("adapter")),
                at("Llama-3"),
                true,
            ),
            (
                "meta/other".into(),
                None,
                at("hub/models--Meta--Other/snapshots/1f"),
                true,
            ),
            ("meta/llama-2".into(), None, at("Llama-3"), false),
        ] {
            assert_eq!(
                is_named(&base, folder.as_deref(), &model),
                is_same,
                "{base} {model:?}"
            );
        }
    }
}
