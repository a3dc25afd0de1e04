//! The reference of preference optimisation: log-probabilities of all answers under the initial weights. They are computed before
//! the first step, in the run's own layout, and kept in `reference.jsonl` in the run's folder, from which a resumed run reads
//! them. A file that is of other data or weights, or damaged, is made anew; the initial weights are read again for that.
//!
//! The first line of the file has its identity and the number of pairs; each other one is a pair.

use std::error::Error as StdError;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::sync::OnceLock;

use kernels::Tensor;
use serde::{Deserialize, Serialize};
use serde_json::json;
use xxhash_rust::xxh3::Xxh3Default;

use crate::checkpoint::state::Record;
use crate::config::exact::Exact;
use crate::config::plan::Plan;
use crate::data::{Sample, Samples};
use crate::dist::world::World;
use crate::error::{At, Error, Result};
use crate::metrics::Events;
use crate::trainer::step::Trainer;

const FILE: &str = "reference.jsonl";

/// Log-probabilities of the chosen and the rejected answer of each pair, by its number, of each set; the training set is the
/// first.
type Sets = Vec<Vec<[f64; 2]>>;

#[derive(Serialize, Deserialize)]
struct Head {
    identity: String,
    pairs: usize,
}

#[derive(Serialize, Deserialize)]
struct Line {
    /// Number of the set: 0 for the training set, then those to validate on.
    set: usize,
    pair: usize,
    /// Sums over the tokens of the answers, nats, as text for every digit.
    chosen: Exact,
    rejected: Exact,
}

/// The reference of a run, known from its file or else from its first rank on.
pub(crate) struct Reference<'a> {
    /// Each pair once, of each set.
    sources: Vec<&'a dyn Samples>,
    identity: String,
    found: OnceLock<Sets>,
}

impl<'a> Reference<'a> {
    /// The reference of a run with `train.preference`, of the pairs of these sets by name, the training set first. Process 0 looks
    /// for the file in the run's folder, and all read the same one.
    ///
    /// # Errors
    /// Sets without pairs; samples that cannot be read.
    pub(crate) fn of(
        plan: &Plan,
        init: Option<&Record>,
        sets: &[(&str, &'a dyn Samples)],
        out: &Path,
        world: &World,
    ) -> Result<Reference<'a>> {
        let mut sources = Vec::new();
        for (name, set) in sets {
            sources.push(set.pairs().ok_or_else(|| {
                Error::Plan(vec![format!(
                    "train.preference: found the set {name} without pairs, want a chosen and a rejected answer in each row"
                )])
            })?);
        }
        let identity = identity(plan, init, &sources)?;
        world.compare("preference pairs", &json!(identity))?;
        let mut reference = Reference {
            sources,
            identity,
            found: OnceLock::new(),
        };
        let path = out.join(FILE);
        let mut kept = None;
        if world.is_first() {
            kept = reference.read(&path)?;
        }
        let told = world.exchange(if kept.is_some() { "kept" } else { "" })?;
        if told[0].is_empty() {
            return Ok(reference);
        }
        if !world.is_first() {
            kept = reference.read(&path)?;
        }
        let Some(kept) = kept else {
            let problems = vec![format!(
                "found no reference of {}, want the one that process 0 reads",
                reference.identity
            )];
            return Err(Error::Foreign { path, problems });
        };
        reference.found = OnceLock::from(kept);
        Ok(reference)
    }

    /// Number of pairs of all sets, if the reference is known.
    pub(crate) fn pairs(&self) -> Option<usize> {
        let found = self.found.get()?;
        Some(found.iter().map(Vec::len).sum())
    }

    /// Computes the reference with the trainer's weights and those that it borrows, as all ranks do together; rank 0 writes the file.
    ///
    /// # Errors
    /// Failures of the pass or of the disk; pairs whose numbers have gaps.
    pub(crate) fn compute(
        &self,
        (trainer, lent): (&Trainer<'_>, &[Tensor]),
        (out, events): (&Path, &dyn Events),
    ) -> Result<()> {
        let mut sets = Sets::new();
        for source in &self.sources {
            let found = trainer.log_probabilities(*source, lent)?;
            if let Some(number) = found.iter().position(|both| both[0].is_nan()) {
                return Err(Error::Sample {
                    sample: number as u64,
                    source: format!("pair {number} is not there, or its log-probability is none")
                        .into(),
                });
            }
            sets.push(found);
        }
        if trainer.state.groups.place.rank() == 0 {
            let pairs: usize = sets.iter().map(Vec::len).sum();
            self.write(&sets, out)?;
            events.info(&format!(
                "reference: log-probabilities of the answers of {pairs} pairs, kept in {FILE}"
            ));
        }
        // every rank of the process has the same
        let _ = self.found.set(sets);
        Ok(())
    }

    /// A set whose pairs know their reference: `set` 0 is the training set.
    pub(crate) fn samples<'b>(&'b self, set: usize, samples: &'b dyn Samples) -> Referenced<'b> {
        let found = self.found.get().and_then(|sets| sets.get(set));
        Referenced {
            samples,
            references: found.map_or(&[], Vec::as_slice),
        }
    }

    fn write(&self, sets: &Sets, out: &Path) -> Result<()> {
        let (path, partial) = (out.join(FILE), out.join(format!(".{FILE}.partial")));
        let file = File::create(&partial).at("create", &partial)?;
        let mut file = BufWriter::new(file);
        let head = Head {
            identity: self.identity.clone(),
            pairs: sets.iter().map(Vec::len).sum(),
        };
        let mut write = |value: serde_json::Value| writeln!(file, "{value}").at("write", &partial);
        write(json!(head))?;
        for (set, pairs) in sets.iter().enumerate() {
            for (pair, both) in pairs.iter().enumerate() {
                let [chosen, rejected] = both.map(Exact);
                write(json!(Line {
                    set,
                    pair,
                    chosen,
                    rejected
                }))?;
            }
        }
        let file = file
            .into_inner()
            .map_err(std::io::IntoInnerError::into_error);
        let synced = file.and_then(|file| file.sync_all());
        synced.at("write", &partial)?;
        fs::rename(&partial, &path).at("rename", &partial)
    }

    /// Reads the file; `None` if there is none, or it is not that of this run.
    fn read(&self, path: &Path) -> Result<Option<Sets>> {
        if !path.exists() {
            return Ok(None);
        }
        let file = File::open(path).at("open", path)?;
        let mut lines = BufReader::new(file).lines();
        let head = lines.next().transpose().at("read", path)?;
        let head = head.and_then(|text| serde_json::from_str::<Head>(&text).ok());
        let Some(head) = head.filter(|head| head.identity == self.identity) else {
            return Ok(None);
        };
        let mut sets: Sets = vec![Vec::new(); self.sources.len()];
        for line in lines {
            let line = line.at("read", path)?;
            let Ok(line) = serde_json::from_str::<Line>(&line) else {
                return Ok(None);
            };
            match sets.get_mut(line.set) {
                Some(set) if set.len() == line.pair => {
                    set.push([line.chosen.0, line.rejected.0]);
                }
                _ => return Ok(None),
            }
        }
        let pairs: usize = sets.iter().map(Vec::len).sum();
        Ok((pairs == head.pairs).then_some(sets))
    }
}

/// Digest of everything that the log-probabilities depend on: the initial weights, the model and its number types, every text.
fn identity(plan: &Plan, init: Option<&Record>, sources: &[&dyn Samples]) -> Result<String> {
    let mut hash = Xxh3Default::new();
    let settings = json!({
        "init": init.map(|init| &init.xxh3), "seed": plan.seed, "model": plan.model, "vocab": plan.vocab,
        "determinism": plan.determinism, "precision": plan.train.precision, "sums": plan.train.bf16_sums,
    });
    hash.update(settings.to_string().as_bytes());
    let mut sample = Sample::of(plan);
    for source in sources {
        hash.update(&source.len().to_le_bytes());
        for index in 0..source.len() {
            if let Ok(text) = sample.text() {
                text.counts.fill(true);
                text.ends.clear();
                text.pairs.clear();
            }
            let read = source.read(index, &mut sample);
            read.map_err(|source| Error::Sample {
                sample: index,
                source,
            })?;
            let text = sample.text()?;
            hash.update(bytemuck::cast_slice(&text.tokens));
            let counts: Vec<u8> = text.counts.iter().map(|&counts| u8::from(counts)).collect();
            hash.update(&counts);
            for end in &text.ends {
                hash.update(&(*end as u64).to_le_bytes());
            }
            for pair in &text.pairs {
                hash.update(&pair.number.to_le_bytes());
            }
        }
    }
    Ok(format!("{:016x}", hash.digest()))
}

/// Samples whose pairs know their reference.
pub(crate) struct Referenced<'a> {
    pub samples: &'a dyn Samples,
    /// By number of the pair.
    pub references: &'a [[f64; 2]],
}

impl Samples for Referenced<'_> {
    fn len(&self) -> u64 {
        self.samples.len()
    }

    fn read(
        &self,
        index: u64,
        sample: &mut Sample,
    ) -> std::result::Result<(), Box<dyn StdError + Send + Sync>> {
        self.samples.read(index, sample)?;
        for pair in &mut sample.text()?.pairs {
            let known = usize::try_from(pair.number).ok();
            let known = known.and_then(|number| self.references.get(number));
            let Some(reference) = known else {
                let (number, most) = (pair.number, self.references.len());
                return Err(
                    format!("pair {number}, want one of the {most} of the reference").into(),
                );
            };
            pair.reference = *reference;
        }
        Ok(())
    }

    fn pairs(&self) -> Option<&dyn Samples> {
        self.samples.pairs()
    }
}
