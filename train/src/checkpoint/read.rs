//! Verifying and loading checkpoints; `newest.rs` finds them.

use std::path::{Path, PathBuf};

use kernels::Tensor;

use crate::checkpoint::changes::{self, Compared};
use crate::checkpoint::files::{Tensors, names_of};
use crate::checkpoint::safetensors::Reader;
use crate::checkpoint::snapshot::Kind;
use crate::checkpoint::state::Record;
use crate::checkpoint::state::{self, Digests, State};
use crate::checkpoint::write_shards::first_element;
use crate::checkpoint::{EMA, MODEL, OPTIMIZER};
use crate::config::plan::Plan;
use crate::config::precision::Bf16Sums;
use crate::config::resume::{Difference, SettingChange};
use crate::error::{Error, Result};
use crate::model::fp8_delayed::Delayed;
use crate::model::param::Spec;
use crate::optim::adamw::within;
use crate::optim::rank_state::RankState;

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

    /// Refuses a checkpoint of another job, with every difference; returns what the job changes as
    /// `train.resume.allow` lets it (`changes.rs`). `init` is what a new run would start from.
    pub(crate) fn check_fits(
        &self,
        plan: &Plan,
        init: Option<&Record>,
    ) -> Result<Vec<SettingChange>> {
        let step = self.state.train_state.step;
        let Compared {
            changes,
            mut refused,
        } = changes::compare(&self.state.plan, plan, step);
        let weights =
            |record: Option<&Record>| record.map_or("the seed's", |init| &init.xxh3).to_owned();
        let (found, wanted) = (weights(self.state.init.as_ref()), weights(init));
        let mut refuse = |key: &str, found: String, wanted: String| {
            refused.push(Difference {
                key: key.to_owned(),
                found,
                wanted,
                allowed_by: None,
            });
        };
        if found != wanted {
            refuse("train.init_from (xxh3 of its weights)", found, wanted);
        }
        if step > plan.train.steps {
            let wanted = plan.train.steps.to_string();
            refuse("train.steps", format!("{step} done"), wanted);
        }
        if refused.is_empty() {
            return Ok(changes);
        }
        Err(Error::Mismatch {
            path: self.path.clone(),
            differences: refused,
        })
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
    pub(crate) fn load(&self, state: &mut RankState<'_>) -> Result<()> {
        let mut model = self.tensors(MODEL)?;
        let mut optimizer = self.tensors(OPTIMIZER)?;
        let mut averages = match state.plan.train.ema_decay > 0.0 {
            true => Some(self.tensors(EMA)?),
            false => None,
        };
        load_weights(state, &mut |spec, first, out| {
            model.read_part(&spec.name, &spec.dims, first, out)
        })?;
        for index in 0..state.local_shards.local.len() {
            self.load_state(state, index, &mut optimizer, &mut averages)?;
        }
        self.restore_scales(&mut state.delayed);
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
        state: &mut RankState<'_>,
        index: usize,
        optimizer: &mut Tensors,
        averages: &mut Option<Tensors>,
    ) -> Result<()> {
        let (local_shards, specs) = (&state.local_shards, state.specs);
        let held = local_shards.moments(index);
        for piece in local_shards.shards.units[local_shards.local[index].unit].pieces(held.clone())
        {
            let spec = &specs[piece.spec];
            let first = first_element(spec, &local_shards.place) + piece.local.start;
            let at = within(&held, &piece);
            let m = &mut state.moments.m[index].f32_mut()[at.clone()];
            optimizer.read_part(&format!("{}.m", spec.name), &spec.dims, first, m)?;
            if Kind::Second.is_of(spec) {
                let from = local_shards.second_at(index, specs, piece.at);
                let v = &mut state.moments.v[index].f32_mut()[from..from + at.len()];
                optimizer.read_part(&format!("{}.v", spec.name), &spec.dims, first, v)?;
            }
            if let Some(averages) = averages {
                let average = &mut state.averages[index].f32_mut()[at];
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
    state: &mut RankState<'_>,
    read: &mut impl FnMut(&Spec, usize, &mut [f32]) -> Result<()>,
) -> Result<()> {
    for index in 0..state.local_shards.local.len() {
        let (local_shards, specs) = (&state.local_shards, state.specs);
        let unit = &local_shards.shards.units[local_shards.local[index].unit];
        let held = local_shards.weights(index);
        for piece in unit.pieces(held.clone()) {
            let spec = &specs[piece.spec];
            let out = if local_shards.has_weight_shards() {
                let at = piece.at - held.start;
                &mut state.weight_shards[index].f32_mut()[at..at + piece.local.len()]
            } else {
                let slot = local_shards.slot(index, piece.spec);
                &mut state.weights[slot].f32_mut()[piece.local.clone()]
            };
            let first = first_element(spec, &local_shards.place) + piece.local.start;
            read(spec, first, out)?;
        }
    }
    Ok(())
}
