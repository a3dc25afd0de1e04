//! Training of the model: the averaged structured perceptron (Collins 2002) with a margin.
//!
//! Weights are learnt twice: first of all features that occur twice or more, then again of the heaviest ones that fit the
//! table without sharing a slot, so that each makes up for those that are gone. They are whole numbers throughout, and
//! the order comes from one counter, so that the same lines give the same file.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::features::{FEATURES, features, list_hash};
use super::labels::{self, LABELS, OUTSIDE, of_class};
use super::model::{MAGIC, Scratch, best, half, place, write_ascending};
use super::runs;

/// Training settings.
#[derive(Clone, Copy, Debug)]
pub struct NameTraining {
    /// Logarithm of the table's slots.
    pub bits: u32,
    /// Most features.
    pub features: usize,
    /// Passes over the examples, of each of the two rounds.
    pub passes: u32,
    /// How much better the right labels must be than a wrong one on each token, in units of an update.
    pub margin: i32,
    /// The same for `OUTSIDE` in place of a name or address: higher finds more.
    pub margin_of_misses: i32,
    /// Seed of the order.
    pub seed: u64,
}

impl Default for NameTraining {
    fn default() -> Self {
        NameTraining {
            bits: 19,
            features: 200_000,
            passes: 8,
            margin: 6,
            margin_of_misses: 6,
            seed: 1,
        }
    }
}

/// Texts with their names and addresses; feeds [`NameExamples::train`].
#[derive(Default)]
pub struct NameExamples {
    settings: NameTraining,
    /// Classes of listed words, by half of the hash.
    words: BTreeMap<u32, u8>,
    /// The same for look-up.
    classes: FxHashMap<u32, u8>,
    runs: Vec<Example>,
    /// Number of each feature by its first bits, and those bits by number.
    numbers: FxHashMap<u64, u32>,
    hashes: Vec<u64>,
}

/// A run of tokens.
struct Example {
    features: Vec<[u32; FEATURES]>,
    allowed: Vec<u8>,
    labels: Vec<u8>,
}

/// A span of bytes of a text that is a name, or else an address.
#[derive(Clone, Copy, Debug)]
pub struct NamedSpan {
    /// First byte.
    pub start: usize,
    /// Byte behind the last.
    pub end: usize,
    /// Whether it is an address.
    pub is_address: bool,
}

/// Weights in the making: their values and, for the mean over all steps, values times the step of each change.
struct Weights {
    now: Vec<[i32; LABELS]>,
    sums: Vec<[i64; LABELS]>,
}

impl Weights {
    fn new(n: usize) -> Self {
        Weights {
            now: vec![[0; LABELS]; n],
            sums: vec![[0; LABELS]; n],
        }
    }

    fn add(&mut self, row: usize, label: u8, by: i32, step: i64) {
        self.now[row][usize::from(label)] += by;
        self.sums[row][usize::from(label)] += i64::from(by) * step;
    }

    /// Sum over all steps of the weights of a row, relative to those of `OUTSIDE`.
    fn mean(&self, row: usize, steps: i64) -> [i64; LABELS] {
        let whole: [i64; LABELS] =
            std::array::from_fn(|l| i64::from(self.now[row][l]) * steps - self.sums[row][l]);
        whole.map(|w| w - whole[OUTSIDE])
    }
}

/// The weights after a round.
struct Learnt {
    features: Weights,
    steps: Weights,
    count: i64,
}

impl NameExamples {
    /// No examples yet.
    pub fn new(settings: NameTraining) -> Self {
        NameExamples {
            settings,
            ..NameExamples::default()
        }
    }

    /// Adds a word to the lists of the classes (one bit each). All lists come before the first text.
    pub fn word(&mut self, word: &str, classes: u8) {
        let word = half(list_hash(word));
        *self.words.entry(word).or_default() |= classes;
        *self.classes.entry(word).or_default() |= classes;
    }

    /// Adds a text with its names and addresses, in order and apart.
    pub fn text(&mut self, text: &str, spans: &[NamedSpan]) {
        let NameExamples {
            classes,
            runs,
            numbers,
            hashes,
            ..
        } = self;
        runs::walk(
            text,
            |word| classes.get(&half(word)).copied().unwrap_or(0),
            |run| {
                let mut example = Example {
                    features: Vec::new(),
                    allowed: run.tokens.iter().map(|t| of_class(t.class)).collect(),
                    labels: vec![OUTSIDE as u8; run.tokens.len()],
                };
                for span in spans {
                    let inside = |t: &super::tokens::Token| {
                        t.span.start < span.end && span.start < t.span.end
                    };
                    let Some(first) = run.tokens.iter().position(inside) else {
                        continue;
                    };
                    let mut n = run.tokens[first..].iter().take_while(|t| inside(t)).count();
                    // a full stop at the end is no part
                    while n > 1
                        && example.allowed[first + n - 1] & labels::bits([labels::ADDRESS_END]) == 0
                    {
                        n -= 1;
                    }
                    let (one, begin, within, end) = match span.is_address {
                        false => (
                            labels::NAME,
                            labels::NAME_BEGIN,
                            labels::NAME_INSIDE,
                            labels::NAME_END,
                        ),
                        true => (
                            OUTSIDE,
                            labels::ADDRESS_BEGIN,
                            labels::ADDRESS_INSIDE,
                            labels::ADDRESS_END,
                        ),
                    };
                    let mut wanted = vec![within as u8; n];
                    wanted[0] = begin as u8;
                    wanted[n - 1] = if n == 1 { one } else { end } as u8;
                    // one that could never be found, such as a name in lower case, is not learnt
                    if wanted
                        .iter()
                        .zip(&example.allowed[first..])
                        .all(|(l, a)| a >> l & 1 == 1)
                    {
                        example.labels[first..first + n].copy_from_slice(&wanted);
                    }
                }
                for words in run.words.windows(5) {
                    let mut found = [0; FEATURES];
                    features(words.try_into().expect("windows of five"), &mut found);
                    example.features.push(found.map(|hash| {
                        let next = hashes.len() as u32;
                        *numbers.entry(hash >> (56 - 24)).or_insert_with(|| {
                            hashes.push(hash);
                            next
                        })
                    }));
                }
                runs.push(example);
            },
        );
    }

    /// Learns and returns the model's file; `report` gets lines on the way.
    ///
    /// # Errors
    /// If the file cannot be packed.
    pub fn train(mut self, mut report: impl FnMut(String)) -> std::io::Result<Vec<u8>> {
        let mut counts = vec![0u32; self.hashes.len()];
        for run in &self.runs {
            run.features
                .iter()
                .flatten()
                .for_each(|f| counts[*f as usize] += 1);
        }
        let tokens: usize = self.runs.iter().map(|r| r.labels.len()).sum();
        report(format!(
            "{} runs, {tokens} tokens, {} features, {} of them twice or more",
            self.runs.len(),
            counts.len(),
            counts.iter().filter(|c| **c > 1).count()
        ));
        let all: Vec<bool> = counts.iter().map(|c| *c > 1).collect();
        let learnt = self.round(&all, &mut report);
        let chosen = self.choose(&learnt);
        report(format!(
            "{} features chosen",
            chosen.iter().filter(|c| **c).count()
        ));
        let learnt = self.round(&chosen, &mut report);
        self.file(&chosen, &learnt)
    }

    /// Learns the weights of the features that are in use.
    fn round(&mut self, in_use: &[bool], report: &mut impl FnMut(String)) -> Learnt {
        let mut learnt = Learnt {
            features: Weights::new(self.hashes.len()),
            steps: Weights::new(LABELS),
            count: 0,
        };
        let mut order: Vec<u32> = (0..self.runs.len() as u32).collect();
        let mut random = self.settings.seed;
        let mut scratch = Scratch::default();
        for pass in 0..self.settings.passes {
            for i in (1..order.len()).rev() {
                // Knuth's generator of 64 bits
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                order.swap(i, ((random >> 33) % (i as u64 + 1)) as usize);
            }
            let mut wrong = 0u64;
            for at in &order {
                learnt.count += 1;
                wrong += u64::from(self.learn(
                    &self.runs[*at as usize],
                    in_use,
                    &mut learnt,
                    &mut scratch,
                ));
            }
            report(format!("pass {}: {wrong} runs wrong or close", pass + 1));
        }
        learnt
    }

    /// One step; whether there was something to learn.
    fn learn(
        &self,
        run: &Example,
        in_use: &[bool],
        learnt: &mut Learnt,
        scratch: &mut Scratch,
    ) -> bool {
        scratch.scores.clear();
        for (features, right) in run.features.iter().zip(&run.labels) {
            let mut sums = [0; LABELS];
            for feature in features.iter().filter(|f| in_use[**f as usize]) {
                for (sum, weight) in sums.iter_mut().zip(&learnt.features.now[*feature as usize]) {
                    *sum += weight;
                }
            }
            for (label, sum) in sums.iter_mut().enumerate() {
                if label != usize::from(*right) {
                    *sum += if label == OUTSIDE {
                        self.settings.margin_of_misses
                    } else {
                        self.settings.margin
                    };
                }
            }
            scratch.scores.push(sums);
        }
        let steps: [[i32; LABELS]; LABELS] = std::array::from_fn(|i| learnt.steps.now[i]);
        best(&steps, run.allowed.iter().copied(), scratch);
        if scratch.labels == run.labels {
            return false;
        }
        for i in 0..run.labels.len() {
            let (found, right) = (scratch.labels[i], run.labels[i]);
            if found != right {
                for feature in run.features[i].iter().filter(|f| in_use[**f as usize]) {
                    learnt
                        .features
                        .add(*feature as usize, right, 1, learnt.count);
                    learnt
                        .features
                        .add(*feature as usize, found, -1, learnt.count);
                }
            }
            if i > 0 {
                learnt
                    .steps
                    .add(usize::from(run.labels[i - 1]), right, 1, learnt.count);
                learnt
                    .steps
                    .add(usize::from(scratch.labels[i - 1]), found, -1, learnt.count);
            }
        }
        true
    }

    /// The heaviest features that fit the table.
    fn choose(&self, learnt: &Learnt) -> Vec<bool> {
        let weight = |i: usize| {
            let mean = learnt.features.mean(i, learnt.count);
            mean.iter().map(|w| w.unsigned_abs()).max().unwrap_or(0)
        };
        let mut order: Vec<(u64, u32)> = (0..self.hashes.len())
            .map(|i| (weight(i), i as u32))
            .filter(|(weight, _)| *weight > 0)
            .collect();
        order.sort_by_key(|(weight, i)| (std::cmp::Reverse(*weight), *i));
        let mut is_taken = vec![false; 1 << self.settings.bits];
        let mut chosen = vec![false; self.hashes.len()];
        let mut n = 0;
        for (_, i) in order {
            let (slot, _) = place(self.hashes[i as usize], self.settings.bits);
            if n < self.settings.features && !is_taken[slot] {
                is_taken[slot] = true;
                chosen[i as usize] = true;
                n += 1;
            }
        }
        chosen
    }

    fn file(&self, chosen: &[bool], learnt: &Learnt) -> std::io::Result<Vec<u8>> {
        let mut rows: Vec<(usize, u8, [i64; LABELS])> = (0..chosen.len())
            .filter(|i| chosen[*i])
            .map(|i| {
                let (slot, check) = place(self.hashes[i], self.settings.bits);
                (slot, check, learnt.features.mean(i, learnt.count))
            })
            .collect();
        rows.sort_by_key(|row| row.0);
        let mut sizes: Vec<i64> = rows
            .iter()
            .flat_map(|r| r.2.map(i64::abs))
            .filter(|w| *w > 0)
            .collect();
        sizes.sort_unstable();
        // one weight in a thousand is cut to 127
        let most = sizes
            .get(sizes.len() - sizes.len().div_ceil(1000))
            .copied()
            .unwrap_or(1)
            .max(1);
        let scaled = |w: i64| (w * 254 + w.signum() * most) / (2 * most);
        rows.retain(|row| row.2.iter().any(|w| scaled(*w) != 0));
        let mut file = MAGIC.to_vec();
        file.extend(self.settings.bits.to_le_bytes());
        for from in 0..LABELS {
            let steps: [i64; LABELS] = std::array::from_fn(|to| {
                i64::from(learnt.steps.now[from][to]) * learnt.count - learnt.steps.sums[from][to]
            });
            for weight in steps {
                let weight = scaled(weight).clamp(i64::from(i16::MIN), i64::from(i16::MAX));
                file.extend((weight as i16).to_le_bytes());
            }
        }
        write_ascending(&self.words.keys().copied().collect::<Vec<u32>>(), &mut file);
        file.extend(self.words.values());
        write_ascending(
            &rows.iter().map(|row| row.0 as u32).collect::<Vec<u32>>(),
            &mut file,
        );
        file.extend(rows.iter().map(|row| row.1));
        for label in 1..LABELS {
            file.extend(
                rows.iter()
                    .map(|row| scaled(row.2[label]).clamp(-127, 127) as i8 as u8),
            );
        }
        zstd::encode_all(file.as_slice(), 19)
    }
}
