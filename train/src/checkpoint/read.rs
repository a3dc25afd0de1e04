//! Verifying and loading checkpoints; `newest.rs` finds them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kernels::ViewMut;

use crate::checkpoint::bounds;
use crate::checkpoint::changes::{self, Compared};
use crate::checkpoint::files::{Tensors, names_of};
use crate::checkpoint::safetensors::{Entry, Reader};
use crate::checkpoint::snapshot::Kind;
use crate::checkpoint::state::Record;
use crate::checkpoint::state::{self, Digests, State};
use crate::checkpoint::write_shards::first_element;
use crate::checkpoint::{EMA, MODEL, OPTIMIZER, STATE};
use crate::config::ParallelConfig;
use crate::config::plan::Plan;
use crate::config::resume::{Difference, SettingChange};
use crate::config::sums::SumsRecord;
use crate::error::{Error, OnRank, Result};
use crate::model::fp8_delayed::Delayed;
use crate::model::param::{self, Spec};
use crate::optim::adamw::within;
use crate::optim::rank_state::RankState;

/// An opened checkpoint: its state is consistent and its model verified.
pub(crate) struct Opened {
    pub path: PathBuf,
    pub state: State,
    pub digests: Digests,
}

impl Opened {
    /// Reads the state, verifies every byte of the model, and compares the plan's numbers with the model's tensors
    /// before anything is allocated for them.
    ///
    /// # Errors
    /// `Foreign` with every number that the model's tensors contradict; `Damaged`.
    pub(crate) fn open(path: &Path) -> Result<Opened> {
        let (state, digests) = state::read(path)?;
        let opened = Opened {
            path: path.to_owned(),
            state,
            digests,
        };
        opened.verify(MODEL)?;
        opened.check_numbers()?;
        Ok(opened)
    }

    /// The plan on one rank, from which the tensors' names and dims follow.
    pub(crate) fn plan_of_one_rank(&self) -> Plan {
        let mut plan = self.state.plan.clone();
        plan.parallel = ParallelConfig::default();
        // a number for each pipeline rank of the layout that is left behind
        plan.train.recompute_layers.clear();
        plan
    }

    /// Refuses a plan that is not that of the tensors. Bounds are checked first, so that nothing is allocated for
    /// numbers that the files cannot hold: a list of tensors of 2^40 layers would exhaust the machine's memory.
    fn check_numbers(&self) -> Result<()> {
        let entries = self.tensors(MODEL)?.entries();
        let elements = entries.iter().map(Entry::elements);
        let size = bounds::Size {
            tensors: entries.len(),
            elements: elements.fold(0, usize::saturating_add),
        };
        let plan = self.plan_of_one_rank();
        let excesses = bounds::excesses_of_plan(&plan, size);
        if !excesses.is_empty() {
            let lines = excesses
                .iter()
                .map(|excess| format!("plan.{}", excess.line_of_plan()));
            return Err(self.contradiction(lines.collect()));
        }
        let mut problems = plan.problems();
        if problems.is_empty() {
            problems = shapes_that_differ(&param::specs(&plan), &entries);
        } else {
            problems
                .iter_mut()
                .for_each(|line| line.insert_str(0, "plan."));
        }
        match problems.is_empty() {
            true => Ok(()),
            false => Err(self.contradiction(problems)),
        }
    }

    fn contradiction(&self, problems: Vec<String>) -> Error {
        Error::Foreign {
            path: self.path.join(STATE),
            problems,
        }
    }

    /// Compares every byte of a kind's files (named by the whole one) with their checksums.
    pub(crate) fn verify(&self, kind: &str) -> Result<()> {
        // shards that do not fit together are reported before bytes are read
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

    /// The changes of the run's sums from here on, if it goes on as `now` says: its bits may then differ.
    pub(crate) fn changed_sums(&self, now: &SumsRecord) -> Vec<SettingChange> {
        let State {
            sums,
            plan,
            train_state,
            ..
        } = &self.state;
        // older checkpoints have no record: bf16 sums are in their plan, and the backend is not known
        let saved = match sums {
            Some(saved) => saved.clone(),
            None => SumsRecord::of(plan, &now.backend),
        };
        changes::of_sums(&saved, now, train_state.step)
    }

    /// Refuses a checkpoint of another job, with every difference; returns the changes that `train.resume.allow`
    /// permits (`changes.rs`). `init`: the initial weights that a new run would use.
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

    /// Restores the scales of fp8, if the checkpoint has them.
    pub(crate) fn restore_scales(&self, delayed: &mut Option<Delayed>) {
        if let (Some(delayed), Some(records)) = (delayed, &self.state.fp8) {
            delayed.restore(records);
        }
    }

    /// Reads the optimizer's state of local unit `index`.
    fn load_state(
        &self,
        state: &mut RankState<'_>,
        index: usize,
        optimizer: &mut Tensors,
        averages: &mut Option<Tensors>,
    ) -> Result<()> {
        let (local_shards, specs) = (&state.local_shards, state.specs);
        let rank = state.groups.place.rank();
        let held = local_shards.moments(index);
        for piece in local_shards.shards.units[local_shards.local[index].unit].pieces(held.clone())
        {
            let spec = &specs[piece.spec];
            let first = first_element(spec, &local_shards.place) + piece.local.start;
            let at = within(&held, &piece);
            let fill = |tensors: &mut Tensors, name: &str, out: kernels::Result<ViewMut<'_>>| {
                let read = out.and_then(|mut out| {
                    out.renew(|out| tensors.read_part(name, &spec.dims, first, out))
                });
                read.on_rank(rank, "load the optimizer's state")?
            };
            let m = state.moments.m[index].flat_mut(at.clone());
            fill(optimizer, &format!("{}.m", spec.name), m)?;
            if Kind::Second.is_of(spec) {
                let from = local_shards.second_at(index, specs, piece.at);
                let v = state.moments.v[index].flat_mut(from..from + at.len());
                fill(optimizer, &format!("{}.v", spec.name), v)?;
            }
            if let Some(averages) = averages {
                fill(averages, &spec.name, state.averages[index].flat_mut(at))?;
            }
        }
        Ok(())
    }
}

/// A line for each tensor whose dims differ between the plan and the files, that one of them lacks, and
/// that only the files have.
fn shapes_that_differ(specs: &[Spec], entries: &[Entry]) -> Vec<String> {
    let mut there: BTreeMap<&str, &[usize]> = entries
        .iter()
        .map(|entry| (entry.name.as_str(), entry.dims.as_slice()))
        .collect();
    let mut problems = Vec::new();
    for spec in specs {
        let (name, wanted) = (&spec.name, &spec.dims);
        match there.remove(name.as_str()) {
            Some(found) if found == wanted => {}
            Some(found) => problems.push(format!(
                "{name}: found {found:?} in the files, want {wanted:?} by the plan"
            )),
            None => problems.push(format!(
                "{name}: found nothing in the files, want {wanted:?} by the plan"
            )),
        }
    }
    let more = there.iter().map(|(name, found)| {
        format!("{name}: found {found:?} in the files, want no such tensor by the plan")
    });
    problems.extend(more);
    problems
}

/// Folder and file of a path that names a checkpoint or the running averages in one.
pub(crate) fn parts_of(checkpoint: &Path) -> (&Path, &'static str) {
    match checkpoint.parent() {
        Some(folder) if checkpoint.ends_with(EMA) => (folder, EMA),
        _ => (checkpoint, MODEL),
    }
}

/// Fills the weights that a rank holds, without those that it borrows; `read(spec, first, out)` reads elements of a whole
/// tensor from element `first` on.
pub(crate) fn load_weights(
    state: &mut RankState<'_>,
    read: &mut impl FnMut(&Spec, usize, &mut [f32]) -> Result<()>,
) -> Result<()> {
    for index in 0..state.local_shards.local.len() {
        if state.borrows(index) {
            continue;
        }
        let (local_shards, specs) = (&state.local_shards, state.specs);
        let unit = &local_shards.shards.units[local_shards.local[index].unit];
        let held = local_shards.weights(index);
        for piece in unit.pieces(held.clone()) {
            let spec = &specs[piece.spec];
            let out = if local_shards.has_weight_shards() {
                let at = piece.at - held.start;
                state.weight_shards[index].flat_mut(at..at + piece.local.len())
            } else {
                let slot = local_shards.slot(index, piece.spec);
                state.weights[slot].flat_mut(piece.local.clone())
            };
            let first = first_element(spec, &local_shards.place) + piece.local.start;
            let filled = out.and_then(|mut out| out.renew(|out| read(spec, first, out)));
            filled.on_rank(local_shards.place.rank(), "load weights")??;
        }
    }
    Ok(())
}
