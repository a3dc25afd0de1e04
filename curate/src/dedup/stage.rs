//! State of deduplication between the signatures and the keep lists.

use std::path::Path;
use std::sync::Arc;

use super::config::{DedupConfig, KeepPolicy};
use super::equal::{Column, equal};
use super::keep_policy::ranks;
use super::minhash::Minhasher;
use super::numbering::{Flags, Numbering};
use super::open::open_all;
use super::report::DedupReport;
use super::signature::{SignatureColumn, SignatureFile, SignatureShape};
use super::union_find::{MOST, Order, UnionFind};
use super::verify::Verify;
use crate::error::{Error, Result};
use crate::progress::Progress;

pub(crate) struct Stage<'a> {
    config: &'a DedupConfig,
    pub(crate) out: &'a Path,
    /// Indexes of earlier crawls, then the shards.
    pub(crate) files: Vec<SignatureFile>,
    pub(crate) shape: SignatureShape,
    pub(crate) numbering: Numbering,
    ranks: Option<Arc<Vec<u64>>>,
    pub(crate) sets: UnionFind,
    /// With verification: the sets that need none, exact duplicates and documents of an earlier crawl. `sets` are
    /// then the candidates.
    verified: Option<UnionFind>,
    /// Documents that were removed as exact duplicates.
    pub(crate) exact: Flags,
    /// With verification: documents of this crawl that share a band with one of an earlier crawl.
    earlier: Flags,
    pub(crate) report: DedupReport,
}

impl<'a> Stage<'a> {
    pub(crate) fn open(config: &'a DedupConfig, out: &'a Path, shards: usize) -> Result<Stage<'a>> {
        let mut wrong = None;
        config.check(&mut |key, found, wanted| {
            // "exact" alone removes nothing and keeps all documents: the starting point for cutting evaluation texts
            if key != "memory_mb" && key != "exact" {
                wrong.get_or_insert((key.to_string(), found, wanted.to_string()));
            }
        });
        if let Some((key, found, wanted)) = wrong {
            return Err(Error::Config { key, found, wanted });
        }
        let shape = SignatureShape::of(Some(config));
        let shape_of_files = config.minhash.as_ref().map(|_| shape);
        let (files, numbering) = open_all(out, shards, config.index.as_deref(), shape_of_files)?;
        let is_other = |file: &&SignatureFile| file.shape().exact != shape.exact;
        if config.exact.is_some()
            && let Some(file) = files.iter().find(is_other)
        {
            return Err(Error::Config {
                key: "exact.normalized".to_string(),
                found: (shape.exact == 1).to_string(),
                wanted: format!(
                    "{}, as {} was made",
                    shape.exact == 0,
                    file.path().display()
                ),
            });
        }
        let total = numbering.total;
        if total >= MOST {
            return Err(Error::Config {
                key: "inputs".to_string(),
                found: format!("{total} documents"),
                wanted: "fewer than 2^40".to_string(),
            });
        }
        let ranks = ranks(config, &files, &numbering)?.map(Arc::new);
        let order = match &ranks {
            Some(ranks) => Order::Rank(ranks.clone()),
            None if config.keep == KeepPolicy::Datatrove => Order::sizes(total),
            None => Order::Number,
        };
        Ok(Stage {
            config,
            out,
            files,
            shape,
            ranks,
            sets: UnionFind::new(total, order),
            verified: None,
            exact: Flags::new(total),
            earlier: Flags::new(0),
            report: DedupReport {
                documents: total - numbering.earlier,
                indexed: numbering.earlier,
                ..DedupReport::default()
            },
            numbering,
        })
    }

    pub(crate) fn memory(&self) -> usize {
        usize::try_from(self.config.memory_mb << 20).unwrap_or(usize::MAX)
    }

    pub(crate) fn exact<const N: usize>(&mut self, progress: &dyn Progress) -> Result<()> {
        let memory = self.memory();
        let (exact, sets) = (&mut self.exact, &mut self.sets);
        let column = Column {
            files: &self.files,
            numbering: &self.numbering,
            column: SignatureColumn::Exact,
        };
        let mut join = |first, other| {
            sets.join(first, other);
            exact.set(other);
        };
        equal::<4, N>(&column, memory, &|_| false, &mut join, progress)?;
        if self.ranks.is_some() {
            // Of equal texts the one with the lowest rank is kept, not the first.
            for number in 0..self.numbering.total {
                if self.sets.root(number) == number {
                    self.exact.clear(number);
                } else {
                    self.exact.set(number);
                }
            }
        }
        Ok(())
    }

    /// The similarity from which candidates are duplicates, if they are verified.
    fn threshold(&self) -> Option<f64> {
        let minhash = self.config.minhash.as_ref()?;
        Some(minhash.verify).filter(|threshold| *threshold > 0.0)
    }

    /// From here on `sets` are candidates if they are to be verified.
    pub(crate) fn start_bands(&mut self) {
        if self.threshold().is_some() {
            self.verified = Some(self.sets.clone());
            self.earlier = Flags::new(self.numbering.total);
        }
    }

    pub(crate) fn band<const N: usize>(
        &mut self,
        band: u32,
        progress: &dyn Progress,
    ) -> Result<()> {
        let memory = self.memory();
        let (exact, sets) = (&self.exact, &mut self.sets);
        let (verified, earlier) = (&mut self.verified, &mut self.earlier);
        let old = self.numbering.earlier;
        let column = Column {
            files: &self.files,
            numbering: &self.numbering,
            column: SignatureColumn::Band(band),
        };
        let skip = |number| exact.get(number);
        let mut join = |first, other| match verified {
            // The first of equal keys is an earlier crawl's if any is.
            Some(verified) if first < old => {
                if other >= old {
                    verified.join(first, other);
                    earlier.set(other);
                }
            }
            _ => sets.join(first, other),
        };
        let found = equal::<2, N>(&column, memory, &skip, &mut join, progress)?;
        self.report.without_signature = found.without;
        self.report.pairs += found.repeated;
        Ok(())
    }

    /// Replaces the candidate sets by the verified ones.
    pub(crate) fn verify(&mut self, progress: &dyn Progress) -> Result<()> {
        let Some(minhash) = &self.config.minhash else {
            return Ok(());
        };
        let Some(mut verified) = self.verified.take() else {
            return Ok(());
        };
        let (exact, earlier) = (&self.exact, &self.earlier);
        let verify = Verify {
            minhash,
            hasher: &Minhasher::new(minhash),
            out: self.out,
            files: &self.files,
            numbering: &self.numbering,
            ranks: self.ranks.clone(),
            gone: &|number| exact.get(number) || earlier.get(number),
            memory: self.memory(),
            progress,
        };
        let mut remove = |document, keeper| verified.join(keeper, document);
        let (mut report, pairs) = verify.run(&mut self.sets, &mut remove)?;
        report.unverified = self.earlier.count();
        self.report.verify = Some(report);
        self.report.outputs.push(pairs);
        self.sets = verified;
        Ok(())
    }
}
