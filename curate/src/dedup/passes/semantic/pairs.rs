//! Documents of a cluster that are like earlier ones of it.

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use serde_json::json;

use super::config::{SemanticConfig, SemanticKeep};
use super::kmeans::{Centres, Nearest};
use super::product::dot;
use super::stored::{Row, Stored};
use crate::dedup::passes::kept::{Passes, Removal, fill, number};
use crate::dedup::priority::Priority;
use crate::dedup::report::SemanticReport;
use crate::dedup::sort::Sorter;
use crate::error::Result;

/// Centre, place of the source, order, shard, row.
const MEMBER: usize = 20;
/// Shard and document, and those of the document that stays.
const REMOVED: usize = 16;

/// An earlier document of a cluster that is like another one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Like {
    /// Its place in the order of the cluster.
    pub(super) place: usize,
    pub(super) similarity: f32,
}

/// A number that grows with `x`, which is finite.
fn ordered(x: f32) -> u32 {
    let bits = x.to_bits();
    match bits >> 31 {
        0 => bits | 1 << 31,
        _ => !bits,
    }
}

/// Documents in their clusters, and the order in which they are compared.
pub(super) struct Clusters<'a> {
    pub(super) stored: &'a Stored,
    pub(super) centres: &'a Centres,
    pub(super) config: &'a SemanticConfig,
    pub(super) priority: &'a Priority,
    /// Embeddings that are read at once.
    pub(super) block: usize,
}

impl Clusters<'_> {
    /// Removes the documents that are like earlier ones of their clusters.
    pub(super) fn remove_alike(
        &self,
        report: &mut SemanticReport,
        passes: &mut Passes<'_>,
    ) -> Result<()> {
        let mut members = passes.sorter::<MEMBER>("semantic", 4);
        self.stored.in_blocks(self.block, |first, values| {
            let nearest = self.centres.nearest_of_all(values);
            for (number, nearest) in (first.number..).zip(nearest) {
                members.push(self.member(Row { number, ..first }, nearest))?;
            }
            Ok(())
        })?;
        let mut removed = passes.sorter::<REMOVED>("semantic-removed", 4);
        let mut cluster: Option<u32> = None;
        let mut rows: Vec<Row> = Vec::new();
        members.drain(&mut |record: &[u8; MEMBER]| {
            let centre = number(record, 0);
            if cluster != Some(centre) {
                self.finish(&rows, report, passes, &mut removed)?;
                rows.clear();
                cluster = Some(centre);
            }
            rows.push(Row {
                shard: number(record, 12),
                number: number(record, 16),
            });
            Ok(())
        })?;
        self.finish(&rows, report, passes, &mut removed)?;
        passes.remove(removed, Removal::Semantic)
    }

    fn member(&self, row: Row, nearest: Nearest) -> [u8; MEMBER] {
        let order = match self.config.keep {
            SemanticKeep::Hard => ordered(nearest.similarity),
            SemanticKeep::Easy => !ordered(nearest.similarity),
            SemanticKeep::First => 0,
        };
        let place = self.priority.place(self.stored.entry(row).source);
        let mut record = [0; MEMBER];
        let numbers = [nearest.centre, place, order, row.shard, row.number];
        fill(&mut record, 0, &numbers);
        record
    }

    /// Removes from a cluster whatever is like an earlier member.
    fn finish(
        &self,
        rows: &[Row],
        report: &mut SemanticReport,
        passes: &mut Passes<'_>,
        removed: &mut Sorter<REMOVED>,
    ) -> Result<()> {
        report.largest_cluster = report.largest_cluster.max(rows.len() as u64);
        let least = self.config.min_similarity;
        // the first of a chain stays, and all that follow are its duplicates
        let mut stays: Vec<usize> = Vec::with_capacity(rows.len());
        let found = like_earlier(self.stored, rows, least, self.block)?;
        for (place, like) in found.iter().enumerate() {
            let Some(like) = like else {
                stays.push(place);
                continue;
            };
            let first = stays[like.place];
            stays.push(first);
            let (own, of) = (rows[place], rows[first]);
            let document = self.stored.entry(own).document;
            let mut record = [0; REMOVED];
            let numbers = [
                own.shard,
                document,
                of.shard,
                self.stored.entry(of).document,
            ];
            fill(&mut record, 0, &numbers);
            removed.push(record)?;
            passes.tell(&json!({"shard": own.shard, "document": document,
                "rule": "semantic.min_similarity", "value": like.similarity, "limit": least}))?;
        }
        passes.progress().documents(rows.len() as u64, 0);
        Ok(())
    }
}

/// For each member of a cluster the earlier one that is most like it, if it is as similar as `least`; of equal ones the first.
/// Two blocks are in memory at once.
pub(super) fn like_earlier(
    stored: &Stored,
    rows: &[Row],
    least: f64,
    block: usize,
) -> Result<Vec<Option<Like>>> {
    let width = stored.width();
    let mut found: Vec<Option<Like>> = vec![None; rows.len()];
    for (late, later) in rows.chunks(block).enumerate() {
        let own = stored.read(later)?;
        for (early, earlier) in rows.chunks(block).enumerate().take(late + 1) {
            let others = match early == late {
                true => own.clone(),
                false => stored.read(earlier)?,
            };
            let base = early * block;
            let of = |place: usize| -> Option<Like> {
                let x = &own[place * width..(place + 1) * width];
                let many = match early == late {
                    true => place,
                    false => earlier.len(),
                };
                let others = others.chunks_exact(width).take(many).enumerate();
                let mut best: Option<Like> = None;
                for (other, values) in others {
                    let similarity = dot(x, values);
                    let is_better = best.is_none_or(|best| similarity > best.similarity);
                    if f64::from(similarity) >= least && is_better {
                        let place = base + other;
                        best = Some(Like { place, similarity });
                    }
                }
                best
            };
            let likes: Vec<Option<Like>> = (0..later.len()).into_par_iter().map(of).collect();
            for (to, like) in found[late * block..].iter_mut().zip(likes) {
                if let Some(like) = like
                    && to.is_none_or(|before| like.similarity > before.similarity)
                {
                    *to = Some(like);
                }
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::stored::Planted;
    use super::*;

    #[test]
    fn numbers_follow_their_order() {
        let values = [-1.0f32, -0.5, -0.0, 0.0, 1e-30, 0.25, 1.0];
        let keys = values.map(ordered);
        assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "{keys:?}");
    }

    #[test]
    fn blocks_of_any_size_find_the_most_alike_of_all_earlier_documents() {
        let row = |i: u16| -> Vec<f32> {
            let angle = f32::from(i * 37 % 101) / 101.0 + f32::from(i % 13) * 3e-4;
            vec![angle.cos(), angle.sin()]
        };
        let rows: Vec<Vec<f32>> = (0..60).map(row).collect();
        let planted = Planted::of_rows(&rows);
        // another order than that of the file
        let order: Vec<Row> = (0..60)
            .map(|i| Row {
                shard: 0,
                number: i * 7 % 60,
            })
            .collect();
        let cosine = |place: usize, other: usize| -> f64 {
            let [a, b] = [place, other].map(|at| &rows[order[at].number as usize]);
            let pairs = a.iter().zip(b);
            pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
        };
        let best = |place: usize| -> Option<f64> {
            let all = (0..place).map(|other| cosine(place, other));
            all.filter(|cosine| *cosine >= 0.9997).reduce(f64::max)
        };
        let wanted: Vec<Option<f64>> = (0..60).map(best).collect();
        assert!(wanted.iter().flatten().count() > 20 && wanted.contains(&None));
        let whole = like_earlier(&planted.stored, &order, 0.9997, 1000).unwrap();
        for (place, (found, wanted)) in whole.iter().zip(&wanted).enumerate() {
            assert_eq!(found.is_some(), wanted.is_some(), "{place}");
            if let (Some(found), Some(wanted)) = (found, wanted) {
                assert!(found.place < place);
                assert!(
                    (cosine(place, found.place) - wanted).abs() < 1e-6,
                    "{place}"
                );
            }
        }
        for block in [1, 7, 59, 60] {
            let found = like_earlier(&planted.stored, &order, 0.9997, block).unwrap();
            assert_eq!(found, whole, "{block}");
        }
    }
}
