//! Finding, verifying and loading checkpoints.

use std::path::{Path, PathBuf};

use kernels::Tensor;

use crate::checkpoint::safetensors::Reader;
use crate::checkpoint::state::{self, Digests, State};
use crate::checkpoint::{MODEL, OPTIMIZER, STATE, path_of, steps_in};
use crate::error::{Error, Result};
use crate::mesh::Place;
use crate::metrics::Events;
use crate::model::param::Spec;
use crate::plan::Plan;
use crate::step::Trainer;

/// A checkpoint whose state holds together and whose model is verified.
pub(crate) struct Opened {
    pub path: PathBuf,
    pub state: State,
    pub digests: Digests,
}

impl Opened {
    /// Reads the state and verifies every byte of the model.
    pub(crate) fn open(path: &Path) -> Result<Opened> {
        let (state, digests) = state::read(path)?;
        let opened = Opened {
            path: path.to_owned(),
            state,
            digests,
        };
        opened.verify(MODEL)?;
        Ok(opened)
    }

    /// Compares every byte of a file with its checksums.
    pub(crate) fn verify(&self, file: &str) -> Result<()> {
        let Some(digest) = self.digests.of(file) else {
            return Err(Error::Damaged {
                path: self.path.join(STATE),
                offset: 0,
                what: "files".into(),
                found: format!("no checksums of {file}"),
                wanted: "checksums of every file that is needed".into(),
            });
        };
        Reader::open(&self.path.join(file))?.verify(digest)
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
            (
                "train.batch_rampup",
                show(&saved.train.batch_rampup),
                show(&plan.train.batch_rampup),
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
        let step = self.state.course.step;
        if step > plan.train.steps {
            let (path, key) = (self.path.clone(), "train.steps".to_owned());
            let (found, wanted) = (step.to_string(), plan.train.steps.to_string());
            return Err(Error::Mismatch {
                path,
                key,
                found,
                wanted,
            });
        }
        Ok(())
    }

    /// Reads whole tensors, those of a world of one.
    pub(crate) fn load_whole(&self, specs: &[Spec], weights: &mut [Tensor]) -> Result<()> {
        let mut reader = Reader::open(&self.path.join(MODEL))?;
        for (spec, tensor) in specs.iter().zip(weights) {
            reader.read_part(&spec.name, &spec.dims, 0, tensor.f32_mut())?;
        }
        Ok(())
    }

    /// Reads this rank's elements of every tensor on its stage and of its moments.
    pub(crate) fn load(&self, trainer: &mut Trainer<'_>) -> Result<()> {
        let (holding, specs) = (&trainer.holding, trainer.specs);
        let mut model = Reader::open(&self.path.join(MODEL))?;
        let mut optimizer = Reader::open(&self.path.join(OPTIMIZER))?;
        for (index, local) in holding.local.iter().enumerate() {
            let unit = &holding.shards.units[local.unit];
            let held = holding.weights(index);
            for piece in unit.pieces(held.clone()) {
                let spec = &specs[piece.spec];
                let out = if holding.has_weight_shards() {
                    let at = piece.at - held.start;
                    &mut trainer.weight_shards[index].f32_mut()[at..at + piece.local.len()]
                } else {
                    let slot = holding.slot(index, piece.spec);
                    &mut trainer.weights[slot].f32_mut()[piece.local.clone()]
                };
                let first = first_element(spec, &holding.place) + piece.local.start;
                model.read_part(&spec.name, &spec.dims, first, out)?;
            }
            let held = holding.moments(index);
            for piece in unit.pieces(held.clone()) {
                let spec = &specs[piece.spec];
                let first = first_element(spec, &holding.place) + piece.local.start;
                let at = piece.at - held.start..piece.at - held.start + piece.local.len();
                let moments = &mut trainer.moments;
                for (suffix, flat) in [(".m", &mut moments.m), (".v", &mut moments.v)] {
                    let name = format!("{}{suffix}", spec.name);
                    let out = &mut flat[index].f32_mut()[at.clone()];
                    optimizer.read_part(&name, &spec.dims, first, out)?;
                }
            }
        }
        Ok(())
    }
}

/// First element of a rank's share in the whole tensor.
fn first_element(spec: &Spec, place: &Place) -> usize {
    spec.share(place.tp_rank, place.tp).0 * spec.row_elements()
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
            opened.verify(OPTIMIZER)?;
            Ok(opened)
        });
        match opened {
            Ok(opened) => return Ok(Some(opened)),
            Err(error) => {
                let reason = error.with_causes();
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
