//! Finding, verifying and loading checkpoints.

use std::path::{Path, PathBuf};

use kernels::Tensor;

use crate::checkpoint::safetensors::{Digest, Reader};
use crate::checkpoint::state::{self, State};
use crate::checkpoint::{MODEL, OPTIMIZER, path_of, steps_in};
use crate::error::{Error, Result};
use crate::mesh::Place;
use crate::metrics::Events;
use crate::model::param::Spec;
use crate::optim::adamw::Moments;
use crate::plan::Plan;

/// A checkpoint whose state holds together and whose model is verified.
pub(crate) struct Opened {
    pub path: PathBuf,
    pub state: State,
    optimizer: Digest,
}

impl Opened {
    /// Reads the state and verifies every byte of the model.
    pub(crate) fn open(path: &Path) -> Result<Opened> {
        let (state, model, optimizer) = state::read(path)?;
        Reader::open(&path.join(MODEL))?.verify(&model)?;
        Ok(Opened {
            path: path.to_owned(),
            state,
            optimizer,
        })
    }

    fn verify_optimizer(&self) -> Result<()> {
        Reader::open(&self.path.join(OPTIMIZER))?.verify(&self.optimizer)
    }

    /// Refuses a checkpoint of another job. Layout, learning rate and length may change.
    pub(crate) fn check_fits(&self, plan: &Plan) -> Result<()> {
        let saved = &self.state.plan;
        let show = |x: &dyn std::fmt::Debug| format!("{x:?}");
        for (key, found, wanted) in [
            (
                "fingerprint",
                saved.fingerprint.clone(),
                plan.fingerprint.clone(),
            ),
            ("model", show(&saved.model), show(&plan.model)),
            ("vocab", show(&saved.vocab), show(&plan.vocab)),
            (
                "seq_length",
                show(&saved.seq_length),
                show(&plan.seq_length),
            ),
            ("seed", show(&saved.seed), show(&plan.seed)),
            (
                "train.global_batch",
                show(&saved.train.global_batch),
                show(&plan.train.global_batch),
            ),
        ] {
            if found != wanted {
                let (path, key) = (self.path.clone(), key.to_owned());
                return Err(Error::Mismatch {
                    path,
                    key,
                    found,
                    wanted,
                });
            }
        }
        if self.state.step > plan.train.steps {
            let (path, key) = (self.path.clone(), "train.steps".to_owned());
            let (found, wanted) = (self.state.step.to_string(), plan.train.steps.to_string());
            return Err(Error::Mismatch {
                path,
                key,
                found,
                wanted,
            });
        }
        Ok(())
    }

    /// Reads this rank's part of every tensor on its stage.
    pub(crate) fn load_weights(
        &self,
        specs: &[Spec],
        place: &Place,
        weights: &mut [Tensor],
    ) -> Result<()> {
        let mut reader = Reader::open(&self.path.join(MODEL))?;
        load(&mut reader, specs, place, "", weights)
    }

    pub(crate) fn load_moments(
        &self,
        specs: &[Spec],
        place: &Place,
        moments: &mut Moments,
    ) -> Result<()> {
        let mut reader = Reader::open(&self.path.join(OPTIMIZER))?;
        load(&mut reader, specs, place, ".m", &mut moments.m)?;
        load(&mut reader, specs, place, ".v", &mut moments.v)
    }
}

fn load(
    reader: &mut Reader,
    specs: &[Spec],
    place: &Place,
    suffix: &str,
    tensors: &mut [Tensor],
) -> Result<()> {
    let local = specs.iter().filter(|spec| spec.is_on(place.pp_rank));
    for (spec, tensor) in local.zip(tensors) {
        let (first, _) = spec.share(place.tp_rank, place.tp);
        let name = format!("{}{suffix}", spec.name);
        reader.read_rows(&name, &spec.dims, first, tensor.f32_mut())?;
    }
    Ok(())
}

/// The newest checkpoint that is whole; damaged ones are noted and passed over.
///
/// # Errors
/// `NoWholeCheckpoint` if there are some but all are damaged: going on from nothing would throw
/// away work without a word.
pub(crate) fn newest(folder: &Path, events: &dyn Events) -> Result<Option<Opened>> {
    let mut reasons = Vec::new();
    for step in steps_in(folder)?.into_iter().rev() {
        let path = path_of(folder, step);
        let opened = Opened::open(&path).and_then(|opened| {
            opened.verify_optimizer()?;
            Ok(opened)
        });
        match opened {
            Ok(opened) => return Ok(Some(opened)),
            Err(error) => {
                let reason = with_causes(&error);
                events.note(&format!("checkpoint of step {step} is not used: {reason}"));
                reasons.push(reason);
            }
        }
    }
    if reasons.is_empty() {
        return Ok(None);
    }
    Err(Error::NoWholeCheckpoint {
        path: folder.to_owned(),
        reasons: reasons.join("; "),
    })
}

/// Message and causes in one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
