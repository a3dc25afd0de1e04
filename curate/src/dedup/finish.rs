//! Final step of deduplication: from sets to keep lists, counts of clusters and FineWeb-2's rehydration.
//!
//! FineWeb-2 (Penedo et al. 2025, arXiv:2506.20920; huggingface/fineweb-2 at d0defb2) keeps one document of each
//! cluster, records the cluster's size, and repeats the document in training accordingly: [`super::REHYDRATION`]. We write
//! the size beside every kept document (`KeepList::cluster_size`) and report what the repetition would yield;
//! nothing is repeated here. Exact duplicates count as well, as they do where MinHash alone finds them.

use super::cluster::{self, Sizes};
use super::numbering::Numbering;
use super::rehydration::{rehydrate, rehydration};
use super::signature::SignatureFile;
use super::stage::Stage;
use super::{DedupReport, RemovedCounts};
use crate::corpus::{EARLIER, KeepList};
use crate::error::Result;
use crate::progress::Progress;
use crate::write::shard_file;

impl Stage<'_> {
    /// Writes keep lists and clusters; returns the data for later passes.
    pub(super) fn finish(
        mut self,
        progress: &dyn Progress,
    ) -> Result<(Vec<SignatureFile>, Numbering, DedupReport)> {
        let mut sizes = Sizes::new(self.numbering.total);
        for number in 0..self.numbering.total {
            let root = self.sets.root(number);
            if root != number {
                sizes.add(root);
            }
        }
        self.report.rehydration = rehydration();
        for file in self.numbering.indexes..self.files.len() {
            let list = self.list(file, &sizes);
            self.report.kept_per_shard.push(list.kept() as u64);
            self.report.removed_per_shard.push(RemovedCounts::of(&list));
            rehydrate(&mut self.report.rehydration, &list);
            let name = shard_file("keep", file - self.numbering.indexes, "keep");
            self.report.outputs.push(list.write(self.out, &name)?);
            progress.documents(list.len() as u64, list.kept() as u64);
        }
        self.report.kept = self.report.kept_per_shard.iter().sum();
        self.report.cluster_sizes = sizes.histogram();
        self.report.clusters = self.report.cluster_sizes.values().sum();
        let shown = cluster::largest(&sizes, &mut self.sets, self.numbering.total);
        drop(sizes);
        self.report.largest_cluster = shown.first().map_or(0, |set| set.size);
        let clusters = cluster::write(self.out, shown, &self.exact, &self.numbering, &self.files)?;
        self.report.outputs.push(clusters);
        Ok((self.files, self.numbering, self.report))
    }

    /// The status of a file's documents.
    fn list(&mut self, file: usize, sizes: &Sizes) -> KeepList {
        let start = self.numbering.starts[file];
        let end = start + self.files[file].count();
        let mut list = KeepList::all_kept(usize::try_from(end - start).unwrap_or(0));
        for number in start..end {
            let root = self.sets.root(number);
            let at = usize::try_from(number - start).unwrap_or(0);
            if root == number {
                list.of[at] = sizes.of(number);
                continue;
            }
            list.of[at] = self.numbering.packed(root);
            list.flags[at] = if root < self.numbering.earlier {
                self.report.earlier += 1;
                EARLIER
            } else if self.exact.get(number) {
                self.report.exact += 1;
                1
            } else {
                self.report.fuzzy += 1;
                2
            };
        }
        list
    }
}
