//! Finding, verifying and loading checkpoints.

use std::path::{Path, PathBuf};

use kernels::Tensor;

use crate::checkpoint::files::{Tensors, names_of};
use crate::checkpoint::origin::Record;
use crate::checkpoint::safetensors::Reader;
use crate::checkpoint::snapshot::Kind;
use crate::checkpoint::state::{self, Digests, State};
use crate::checkpoint::write::first_element;
use crate::checkpoint::{EMA, MODEL, OPTIMIZER, path_of, steps_in};
use crate::delayed::Delayed;
use crate::error::{Error, Result};
use crate::metrics::Events;
use crate::model::param::Spec;
use crate::optim::adamw::within;
use crate::plan::Plan;
use crate::precision::Bf16Sums;
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

    /// Compares every byte of a kind's files (named by the whole one) with their checksums.
    pub(crate) fn verify(&self, kind: &str) -> Result<()> {
        // what is put together wrongly is told before bytes are read
        self.tensors(kind)?;
        for name in names_of(&self.digests, kind) {
            let digest = self.digests.of(name).expect("a name of theirs");
            Reader::open(&self.path.join(name))?.verify(digest)?;
        }
        Ok(())
    }

    /// The tensors of a kind, from one file or shards.
    pub(crate) fn tensors(&self, kind: &str) -> Result<Tensors> {
        Tensors::open(&self.path, &self.digests, kind)
    }

    /// How the run made sums of bf16 products so far, if `plan` makes them otherwise. Before there was a
    /// choice, in pairs.
    pub(crate) fn other_sums(&self, plan: &Plan) -> Option<Bf16Sums> {
        let saved = &self.state.plan.train;
        let earlier = match saved.bf16_sums {
            Bf16Sums::Auto => Bf16Sums::Pairs,
            known => known,
        };
        let are_both = saved.precision.has_bf16() && plan.train.precision.has_bf16();
        (are_both && earlier != plan.train.bf16_sums).then_some(earlier)
    }

    /// Refuses a checkpoint of another job. Layout, learning rate and length may change. `init` is
    /// what a new run would start from.
    pub(crate) fn check_fits(&self, plan: &Plan, init: Option<&Record>) -> Result<()> {
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
            (
                "decoder_length",
                show(&saved.decoder_length),
                show(&plan.decoder_length),
            ),
            ("seed", show(&saved.seed), show(&plan.seed)),
            (
                "train.global_batch",
                show(&saved.train.global_batch),
                show(&plan.train.global_batch),
            ),
            (
                "train.optimizer",
                show(&saved.train.optimizer),
                show(&plan.train.optimizer),
            ),
            (
                "running averages (train.ema_decay)",
                show(&(saved.train.ema_decay > 0.0)),
                show(&(plan.train.ema_decay > 0.0)),
            ),
            (
                "train.batch_rampup",
                show(&saved.train.batch_rampup),
                show(&plan.train.batch_rampup),
            ),
            (
                "train.init_from (xxh3 of its weights)",
                show(&self.state.init.as_ref().map(|init| &init.xxh3)),
                show(&init.map(|init| &init.xxh3)),
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

    /// Reads whole tensors of a kind, those of a world of one.
    pub(crate) fn load_whole(
        &self,
        file: &str,
        specs: &[Spec],
        weights: &mut [Tensor],
    ) -> Result<()> {
        let mut reader = self.tensors(file)?;
        for (spec, tensor) in specs.iter().zip(weights) {
            reader.read_part(&spec.name, &spec.dims, 0, tensor.f32_mut())?;
        }
        Ok(())
    }

    /// Reads this rank's elements of every tensor on its stage and of its moments.
    pub(crate) fn load(&self, trainer: &mut Trainer<'_>) -> Result<()> {
        let mut model = self.tensors(MODEL)?;
        let mut optimizer = self.tensors(OPTIMIZER)?;
        let mut averages = match trainer.plan.train.ema_decay > 0.0 {
            true => Some(self.tensors(EMA)?),
            false => None,
        };
        load_weights(trainer, &mut |spec, first, out| {
            model.read_part(&spec.name, &spec.dims, first, out)
        })?;
        for index in 0..trainer.holding.local.len() {
            self.load_state(trainer, index, &mut optimizer, &mut averages)?;
        }
        self.restore_scales(&mut trainer.delayed);
        Ok(())
    }

    /// Scales of fp8 as they were, if it was trained with such.
    pub(crate) fn restore_scales(&self, delayed: &mut Option<Delayed>) {
        if let (Some(delayed), Some(records)) = (delayed, &self.state.fp8) {
            delayed.restore(records);
        }
    }

    /// Reads what the optimizer keeps of local unit `index`.
    fn load_state(
        &self,
        trainer: &mut Trainer<'_>,
        index: usize,
        optimizer: &mut Tensors,
        averages: &mut Option<Tensors>,
    ) -> Result<()> {
        let (holding, specs) = (&trainer.holding, trainer.specs);
        let held = holding.moments(index);
        for piece in holding.shards.units[holding.local[index].unit].pieces(held.clone()) {
            let spec = &specs[piece.spec];
            let first = first_element(spec, &holding.place) + piece.local.start;
            let at = within(&held, &piece);
            let m = &mut trainer.moments.m[index].f32_mut()[at.clone()];
            optimizer.read_part(&format!("{}.m", spec.name), &spec.dims, first, m)?;
            if Kind::Second.is_of(spec) {
                let from = holding.second_at(index, specs, piece.at);
                let v = &mut trainer.moments.v[index].f32_mut()[from..from + at.len()];
                optimizer.read_part(&format!("{}.v", spec.name), &spec.dims, first, v)?;
            }
            if let Some(averages) = averages {
                let average = &mut trainer.averages[index].f32_mut()[at];
                averages.read_part(&spec.name, &spec.dims, first, average)?;
            }
        }
        Ok(())
    }
}

/// Folder and file of what names a checkpoint, or the running averages in one.
pub(crate) fn parts_of(checkpoint: &Path) -> (&Path, &'static str) {
    match checkpoint.parent() {
        Some(folder) if checkpoint.ends_with(EMA) => (folder, EMA),
        _ => (checkpoint, MODEL),
    }
}

/// Fills the weights that a rank holds: `read` gives elements of a whole tensor, from one on.
pub(crate) fn load_weights(
    trainer: &mut Trainer<'_>,
    read: &mut impl FnMut(&Spec, usize, &mut [f32]) -> Result<()>,
) -> Result<()> {
    for index in 0..trainer.holding.local.len() {
        let (holding, specs) = (&trainer.holding, trainer.specs);
        let unit = &holding.shards.units[holding.local[index].unit];
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
            read(spec, first, out)?;
        }
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
            opened.verify(OPTIMIZER)?;
            if opened.state.plan.train.ema_decay > 0.0 {
                opened.verify(EMA)?;
            }
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
