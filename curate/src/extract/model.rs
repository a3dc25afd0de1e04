//! The extraction model, which classifies blocks as main text: two ensembles of oblivious decision trees over byte
//! features.
//!
//! In an oblivious tree every level applies one test to all blocks, so a tree is a few passes over columns without
//! branches, and its answers are bits of an index into its leaves (Kohavi 1994; gradient boosting of them:
//! Prokhorenkova et al. 2018, arXiv:1706.09516). The second ensemble sees the first one's output for neighbours and
//! surrounding elements (stacking, Wolpert 1992), which makes runs of text coherent. Leaves are integers: the
//! verdict is exact on every machine.
//!
//! tests/oracles/extraction_train.py writes `model.bin`, from pages with known main text. Layout,
//! little endian: magic "MXM2"; weights of linear.rs (text, own classes,
//! classes around), a byte each; for each of two ensembles: columns u16, trees u16, depth u8, then
//! per tree `depth` pairs (column u16, least u8) and 2^depth leaves i16 in 1/1024 of a logit; bias i32.

use std::sync::LazyLock;

use super::areas::Areas;
use super::blocks::Page;
use super::buckets::{CLASS_WEIGHTS, TEXT_WEIGHTS};
use super::columns::{Columns, TOGETHER, distances, log, share};
use super::linear::Weights;

/// Most levels of a tree.
const LEVELS: usize = 6;
const LEAVES: usize = 1 << LEVELS;

struct Tree {
    /// Column, and the least value that sets the level's bit.
    questions: Vec<(u16, u8)>,
    leaves: [i16; LEAVES],
}

struct Ensemble {
    columns: usize,
    trees: Vec<Tree>,
    bias: i32,
}

struct Model {
    weights: Weights<'static>,
    ensembles: [Ensemble; 2],
}

static MODEL: LazyLock<Model> = LazyLock::new(|| {
    // the file is part of the program and a test reads it
    model(include_bytes!("model.bin")).expect("the built-in model is whole")
});

fn model(mut bytes: &'static [u8]) -> Option<Model> {
    let magic = take(&mut bytes, 4)?;
    (magic == b"MXM2").then_some(())?;
    let weights = Weights {
        text: take(&mut bytes, TEXT_WEIGHTS)?,
        own: take(&mut bytes, CLASS_WEIGHTS)?,
        around: take(&mut bytes, CLASS_WEIGHTS)?,
    };
    let ensembles = [ensemble(&mut bytes)?, ensemble(&mut bytes)?];
    Some(Model { weights, ensembles })
}

/// Weights of words.
pub(super) fn weights() -> &'static Weights<'static> {
    &MODEL.weights
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (head, tail) = bytes.split_at_checked(count)?;
    *bytes = tail;
    Some(head)
}

pub(crate) fn word(bytes: &mut &[u8]) -> Option<u16> {
    Some(u16::from_le_bytes(take(bytes, 2)?.try_into().ok()?))
}

fn ensemble(bytes: &mut &[u8]) -> Option<Ensemble> {
    let columns = usize::from(word(bytes)?);
    let count = word(bytes)?;
    let depth = take(bytes, 1)?[0];
    (usize::from(depth) <= LEVELS).then_some(())?;
    let mut trees = Vec::new();
    for _ in 0..count {
        let mut questions = Vec::new();
        for _ in 0..depth {
            questions.push((word(bytes)?, take(bytes, 1)?[0]));
        }
        let mut leaves = [0; LEAVES];
        for (leaf, b) in leaves
            .iter_mut()
            .zip(take(bytes, 2 << depth)?.as_chunks().0)
        {
            *leaf = i16::from_le_bytes(*b);
        }
        trees.push(Tree { questions, leaves });
    }
    let bias = i32::from_le_bytes(take(bytes, 4)?.try_into().ok()?);
    Some(Ensemble {
        columns,
        trees,
        bias,
    })
}

impl Ensemble {
    /// Logits of all blocks, in 1/1024.
    fn scores(&self, columns: &Columns) -> Vec<i32> {
        let mut scores = vec![[self.bias; TOGETHER]; columns.rows().div_ceil(TOGETHER)];
        for tree in &self.trees {
            let asked = tree.questions.iter().map(|q| columns.padded(q.0.into()));
            let asked: Vec<&[[u8; TOGETHER]]> = asked.collect();
            for (number, scores) in scores.iter_mut().enumerate() {
                let mut leaf = [0; TOGETHER];
                for (level, column) in asked.iter().enumerate() {
                    let (bit, least) = (1u8 << level, tree.questions[level].1);
                    for (index, &value) in leaf.iter_mut().zip(&column[number]) {
                        *index |= if value >= least { bit } else { 0 };
                    }
                }
                for (score, &index) in scores.iter_mut().zip(&leaf) {
                    *score += i32::from(tree.leaves[usize::from(index) % LEAVES]);
                }
            }
        }
        let mut scores = scores.into_flattened();
        scores.truncate(columns.rows());
        scores
    }
}

/// Logits in 1/1024 of each block being main text; `columns` are those of `features::first` and are
/// extended.
pub(super) fn scores(page: &Page, areas: &Areas, columns: &mut Columns) -> Vec<i32> {
    if columns.rows() == 0 {
        return vec![0; page.blocks.len()];
    }
    let [first, second] = &MODEL.ensembles;
    debug_assert_eq!(
        columns.len(),
        first.columns,
        "model.bin is of other features"
    );
    let one = first.scores(columns);
    context(columns, page, areas, &one);
    debug_assert_eq!(
        columns.len(),
        second.columns,
        "model.bin is of other features"
    );
    // Their mean is better than either on pages of unseen hosts.
    let two = second.scores(columns);
    one.iter().zip(&two).map(|(a, b)| (a + b) / 2).collect()
}

/// Chance in sixtieths from a logit in 1/1024: 1 / (1 + exp(-x)) by a table of half logits.
fn chance(logit: i32) -> u64 {
    const TABLE: [u8; 17] = [
        1, 2, 3, 5, 7, 11, 16, 23, 30, 37, 44, 49, 53, 55, 57, 58, 59,
    ];
    let at = (logit + 8 * 512 + 256).clamp(0, 16 * 512 + 511) / 512;
    usize::try_from(at)
        .ok()
        .and_then(|i| TABLE.get(i))
        .map_or(59, |&c| c.into())
}

/// Logit on a byte scale: 0 to 120, 60 is even.
fn level(logit: i32) -> u8 {
    u8::try_from((logit / 102 + 60).clamp(0, 120)).unwrap_or(120)
}

/// The first ensemble's output around each block.
pub(super) fn context(columns: &mut Columns, page: &Page, areas: &Areas, logits: &[i32]) {
    let blocks = &page.blocks;
    columns.push(|i| level(logits[i]));
    for step in [-6isize, -4, -3, -2, -1, 1, 2, 3, 4, 6] {
        columns.push(|i| {
            let other = i.checked_add_signed(step).and_then(|j| logits.get(j));
            other.map_or(121, |&l| level(l))
        });
    }
    let weight = |i: usize| u64::from(blocks[i].counts.chars) + 10;
    let mut mass = vec![0u64];
    let mut bulk = vec![0u64];
    for i in 0..blocks.len() {
        mass.push(mass[i] + weight(i) * chance(logits[i]));
        bulk.push(bulk[i] + weight(i));
    }
    let n = blocks.len();
    let mean = |a: usize, b: usize| share((mass[b] - mass[a]) / 60, bulk[b] - bulk[a]);
    for reach in [3usize, 10, 30] {
        columns.push(|i| mean(i.saturating_sub(reach), i));
        columns.push(|i| mean((i + 1).min(n), (i + 1 + reach).min(n)));
    }
    columns.push(|i| share(mass[i], mass[n]));
    columns.push(|_| mean(0, n));
    columns.push(|_| log(mass[n] / 60));
    let is_text: Vec<bool> = logits.iter().map(|&l| l > 0).collect();
    distances(columns, &is_text);
    let mut inside = vec![(0u64, 0u64); page.areas.len()];
    for (i, block) in blocks.iter().enumerate() {
        let sum = &mut inside[block.area as usize];
        sum.0 += weight(i) * chance(logits[i]);
        sum.1 += weight(i);
    }
    for (i, area) in page.areas.iter().enumerate().skip(1).rev() {
        let (part, whole) = inside[i];
        let sum = &mut inside[area.parent as usize];
        *sum = (sum.0 + part, sum.1 + whole);
    }
    let mut at: Vec<u32> = blocks.iter().map(|b| b.area).collect();
    for _ in 0..6 {
        columns.push(|i| {
            let (part, whole) = inside[at[i] as usize];
            share(part / 60, whole)
        });
        columns.push(|i| share(inside[at[i] as usize].0, mass[n]));
        for area in &mut at {
            *area = page.areas[*area as usize].parent;
        }
    }
    for candidate in areas.candidates() {
        let (part, whole) = inside[candidate.area as usize];
        columns.push(|_| share(part / 60, whole));
        columns.push(|_| share(part, mass[n]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extract::{blocks, features, html, meta};

    #[test]
    fn the_model_fits_the_features_and_its_tables_are_whole() {
        let model = &*MODEL;
        let tree = html::parse("<h1>a</h1><p>b c d.</p><p>e</p>");
        let (says, hints) = meta::read(&tree, None, None);
        let page = blocks::cut(&tree, None);
        let areas = Areas::new(&page);
        let mut columns = features::first(&page, &areas, &says, &hints);
        assert_eq!(columns.len(), model.ensembles[0].columns);
        context(&mut columns, &page, &areas, &[0, 100, -100]);
        assert_eq!(columns.len(), model.ensembles[1].columns);
        for ensemble in &model.ensembles {
            for tree in &ensemble.trees {
                assert!(tree.questions.len() <= LEVELS);
                assert!(
                    tree.questions
                        .iter()
                        .all(|q| usize::from(q.0) < ensemble.columns)
                );
            }
        }
    }

    #[test]
    fn trees_by_columns_answer_as_trees_by_rows() {
        let leaves = |few: &[i16]| {
            let mut all = [0; LEAVES];
            all[..few.len()].copy_from_slice(few);
            all
        };
        let ensemble = Ensemble {
            columns: 2,
            trees: vec![
                Tree {
                    questions: vec![(0, 10), (1, 5)],
                    leaves: leaves(&[1, 20, 300, 4000]),
                },
                Tree {
                    questions: vec![(1, 255)],
                    leaves: leaves(&[-7, 9]),
                },
            ],
            bias: 100,
        };
        let rows = [[0u8, 0], [10, 4], [9, 5], [200, 255]];
        // By hand: leaf = [a >= 10] + 2 [b >= 5]; the second tree adds 9 only for b = 255.
        let wanted = [94, 113, 393, 4109];
        for count in [0, 1, 4, 31, 32, 33, 67] {
            let mut columns = Columns::new(count);
            columns.push(|i| rows[i % 4][0]);
            columns.push(|i| rows[i % 4][1]);
            let wanted: Vec<i32> = (0..count).map(|i| wanted[i % 4]).collect();
            assert_eq!(ensemble.scores(&columns), wanted);
        }
    }
}
