//! Vocabulary of a training: words and labels with their counts, as in fastText's dictionary.
//!
//! Words are numbered by falling count, followed by labels; words rarer than `min_count` are left out. The end of a
//! text is a word. When three quarters of [`MOST_WORDS`] are reached, the rarest ones are dropped, permanently. We
//! differ: of equal counts the one read first comes first (fastText's sort is not stable).

use rustc_hash::FxHashMap;

use super::examples::{Examples, is_space};
use crate::error::Result;
use crate::quality::fasttext::dictionary::{END, LABEL};

/// fastText's MAX_VOCAB_SIZE.
const MOST_WORDS: usize = 30_000_000;

pub(super) struct Vocabulary {
    pub(super) words: Vec<(Box<[u8]>, i64)>,
    pub(super) labels: Vec<(String, i64)>,
    /// Place of each label of the examples among `labels`.
    pub(super) rank: Vec<u32>,
    /// Words, ends and labels, with repetitions.
    pub(super) tokens: u64,
}

#[derive(Default)]
struct Counts {
    words: FxHashMap<Box<[u8]>, (i64, u64)>,
    tokens: u64,
    least: i64,
}

impl Counts {
    fn add(&mut self, word: &[u8]) {
        self.tokens += 1;
        if let Some((count, _)) = self.words.get_mut(word) {
            *count += 1;
            return;
        }
        self.words.insert(word.into(), (1, self.tokens));
        if self.words.len() > MOST_WORDS / 4 * 3 {
            self.least += 1;
            let least = self.least;
            self.words.retain(|_, (count, _)| *count >= least);
        }
    }
}

pub(super) fn count(examples: &Examples, min_count: i64) -> Result<Vocabulary> {
    let mut counts = Counts {
        least: 1,
        ..Counts::default()
    };
    let mut of_labels = vec![0i64; examples.names.len()];
    for example in &examples.train {
        let text = examples.text(example)?;
        let words = text.as_bytes().split(is_space).filter(|w| !w.is_empty());
        let words = words.filter(|w| !w.starts_with(LABEL.as_bytes()));
        words
            .take_while(|w| *w != END)
            .chain([END])
            .for_each(|word| counts.add(word));
        for label in examples.labels(example) {
            of_labels[*label as usize] += 1;
            counts.tokens += 1;
        }
    }
    let words = counts
        .words
        .into_iter()
        .filter(|(_, (count, _))| *count >= min_count);
    let mut words = words.collect::<Vec<_>>();
    words.sort_unstable_by_key(|(_, (count, first))| (-count, *first));
    // a label of which all examples were held out is none
    let mut order: Vec<usize> = (0..of_labels.len()).filter(|l| of_labels[*l] > 0).collect();
    order.sort_by_key(|l| -of_labels[*l]);
    let mut rank = vec![0; of_labels.len()];
    for (place, label) in (0..).zip(&order) {
        rank[*label] = place;
    }
    Ok(Vocabulary {
        words: words
            .into_iter()
            .map(|(word, (count, _))| (word, count))
            .collect(),
        labels: order
            .iter()
            .map(|l| (examples.names[*l].clone(), of_labels[*l]))
            .collect(),
        rank,
        tokens: counts.tokens,
    })
}
