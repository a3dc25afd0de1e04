//! Index of evaluation records by the n-grams of their questions, with the data for scoring answers and passages.

use rustc_hash::{FxHashMap, FxHashSet};

use super::SampledRules;
use super::clean::Tokens;
use crate::decontaminate::evaluation::Entry;
use crate::text::narrow;

/// Tokens of an n-gram of answers and of passages.
pub(super) const ANSWER_NGRAM: usize = 3;
pub(super) const PASSAGE_NGRAM: usize = 4;
/// Answers of up to this many tokens must match word by word.
pub(super) const SHORT_ANSWER: usize = 3;
/// N-grams of more questions, or of more than twice the root of all, start no search.
const HOT: usize = 2000;

/// Scoring data of one part of a record.
#[derive(Default)]
pub(super) struct Part {
    pub(super) tokens: Vec<u64>,
    /// Different tokens.
    pub(super) unique: usize,
    /// Numbers of its n-grams, sorted.
    pub(super) ngrams: Vec<u32>,
    /// Sum over the n-grams; of a short answer over its tokens.
    pub(super) idf: f32,
}

/// A record.
pub(super) struct Record {
    task: u32,
    pub(super) question: Part,
    pub(super) answer: Option<Part>,
    pub(super) passage: Option<Part>,
}

/// Records and the n-grams of their questions.
pub(crate) struct Index {
    pub(super) rules: SampledRules,
    ngram: usize,
    records: Vec<Record>,
    /// Numbers of n-grams of all parts by hash.
    numbers: FxHashMap<u64, u32>,
    /// Records whose question has an n-gram, by its number, in order.
    questions: FxHashMap<u32, Vec<u32>>,
    pub(super) answer_idf: FxHashMap<u32, f32>,
    pub(super) passage_idf: FxHashMap<u32, f32>,
    /// N-grams of more questions than this are hot.
    hot: usize,
    /// Fingerprints of records, with their tasks.
    seen: FxHashSet<(u32, String)>,
}

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Hash of an n-gram, its length included.
pub(super) fn hash(tokens: &[u64]) -> u64 {
    let start = tokens.len() as u64;
    let mixed = tokens.iter().fold(start, |h, token| {
        (h ^ (h >> 32))
            .wrapping_mul(MULTIPLIER)
            .wrapping_add(*token)
    });
    mixed ^ (mixed >> 29)
}

impl Index {
    pub(crate) fn new(rules: &SampledRules, ngram: usize) -> Index {
        Index {
            rules: rules.clone(),
            ngram,
            records: Vec::new(),
            numbers: FxHashMap::default(),
            questions: FxHashMap::default(),
            answer_idf: FxHashMap::default(),
            passage_idf: FxHashMap::default(),
            hot: HOT,
            seen: FxHashSet::default(),
        }
    }

    pub(super) fn ngram(&self) -> usize {
        self.ngram
    }

    pub(super) fn record(&self, number: u32) -> &Record {
        &self.records[number as usize]
    }

    /// The task of a record.
    pub(super) fn task(&self, record: u32) -> u32 {
        self.record(record).task
    }

    /// Number of n-grams of questions.
    pub(crate) fn ngrams(&self) -> usize {
        self.questions.len()
    }

    /// N-grams of questions by the task of the first record that has them.
    pub(crate) fn tasks_of_ngrams(&self) -> impl Iterator<Item = u32> {
        let firsts = self
            .questions
            .values()
            .filter_map(|records| records.first());
        firsts.map(|record| self.task(*record))
    }

    /// Adds a record; 0 if it is too short to be searched for.
    pub(crate) fn add(&mut self, entry: &Entry<'_>, task: u32) -> u64 {
        let fields = [
            &self.rules.question_field,
            &self.rules.answer_field,
            &self.rules.passage_field,
        ];
        let (texts, fingerprint) = match entry {
            Entry::Record(map) => {
                let text = |field: &String| map.get(field.as_str()).and_then(|v| v.as_str());
                (fields.map(text), text(&"fingerprint".to_string()))
            }
            Entry::Other(value) => ([value.as_str(), None, None], None),
            // decon's comments
            Entry::Line(line) if line.starts_with('#') => return 0,
            Entry::Line(line) => ([Some(*line), None, None], None),
        };
        let [question, answer, passage] = texts;
        let parts = [passage, question, answer].into_iter().flatten();
        if !self.is_enough(&parts.collect::<Vec<_>>().join(" ")) {
            return 0;
        }
        if let Some(fingerprint) = fingerprint
            && !self.seen.insert((task, fingerprint.to_string()))
        {
            return 0;
        }
        let question = Tokens::of(question.unwrap_or_default());
        if question.is_blank() {
            return 0;
        }
        let number = narrow(self.records.len());
        let own = self.part(&question, self.ngram, 0, true);
        for ngram in &own.ngrams {
            self.questions.entry(*ngram).or_default().push(number);
        }
        let answer = answer.map(Tokens::of).filter(|t| !t.is_blank());
        let answer = answer.map(|t| self.part(&t, ANSWER_NGRAM, SHORT_ANSWER, false));
        let passage = passage.map(Tokens::of).filter(|t| !t.is_blank());
        let passage = passage.map(|t| self.part(&t, PASSAGE_NGRAM, 0, false));
        self.records.push(Record {
            task,
            question: own,
            answer,
            passage,
        });
        1
    }

    fn is_enough(&self, text: &str) -> bool {
        let tokens = Tokens::of(text);
        let mut cleaned = String::new();
        super::clean::clean(text, &mut cleaned);
        let words: FxHashSet<&str> = cleaned.split_whitespace().collect();
        tokens.len() >= self.rules.min_tokens && words.len() >= self.rules.min_unique_words
    }

    /// Numbers the n-grams of a part that has more than `least` tokens; a `short` one of fewer is one n-gram.
    fn part(&mut self, tokens: &Tokens, n: usize, least: usize, short: bool) -> Part {
        let hashes = tokens.hashes();
        let unique: FxHashSet<u64> = hashes.iter().copied().collect();
        let mut ngrams = Vec::new();
        let mut number = |ngram: &[u64]| {
            let next = narrow(self.numbers.len());
            ngrams.push(*self.numbers.entry(hash(ngram)).or_insert(next));
        };
        if hashes.len() > least && hashes.len() >= n {
            hashes.windows(n).for_each(&mut number);
        } else if short {
            number(hashes);
        }
        ngrams.sort_unstable();
        ngrams.dedup();
        Part {
            tokens: hashes.to_vec(),
            unique: unique.len(),
            ngrams,
            idf: 0.0,
        }
    }

    /// Weighs all n-grams; call once all records are in.
    pub(crate) fn weigh(&mut self) {
        let all = self.records.len() as f32;
        let root = (self.records.len() as f32).sqrt().floor() * 2.0;
        self.hot = (HOT..)
            .find(|least| *least as f32 >= root)
            .unwrap_or(usize::MAX);
        let idf = |records: usize| (all / records as f32).ln();
        let (mut answers, mut passages) = (FxHashMap::default(), FxHashMap::default());
        let mut of_tokens: FxHashMap<u64, usize> = FxHashMap::default();
        for record in &self.records {
            let counted = [
                (&record.answer, &mut answers),
                (&record.passage, &mut passages),
            ];
            for (part, counts) in counted {
                for ngram in part.iter().flat_map(|p| &p.ngrams) {
                    *counts.entry(*ngram).or_insert(0usize) += 1;
                }
            }
            let parts = [
                Some(&record.question),
                record.answer.as_ref(),
                record.passage.as_ref(),
            ];
            for part in parts.into_iter().flatten() {
                let unique: FxHashSet<u64> = part.tokens.iter().copied().collect();
                unique
                    .iter()
                    .for_each(|t| *of_tokens.entry(*t).or_insert(0) += 1);
            }
        }
        let weighed = |counts: FxHashMap<u32, usize>| -> FxHashMap<u32, f32> {
            counts
                .into_iter()
                .map(|(n, count)| (n, idf(count)))
                .collect()
        };
        (self.answer_idf, self.passage_idf) = (weighed(answers), weighed(passages));
        for record in &mut self.records {
            let own = record.question.ngrams.iter();
            record.question.idf = own.map(|n| idf(self.questions[n].len())).sum();
            if let Some(answer) = &mut record.answer {
                answer.idf = if answer.tokens.len() <= SHORT_ANSWER {
                    let mut unique = answer.tokens.clone();
                    unique.sort_unstable();
                    unique.dedup();
                    unique.iter().map(|t| idf(of_tokens[t])).sum()
                } else {
                    answer.ngrams.iter().map(|n| self.answer_idf[n]).sum()
                };
            }
            if let Some(passage) = &mut record.passage {
                passage.idf = passage.ngrams.iter().map(|n| self.passage_idf[n]).sum();
            }
        }
    }

    /// The weight of an n-gram of questions.
    pub(super) fn question_idf(&self, ngram: u32) -> f32 {
        let records = self.questions.get(&ngram).map_or(1, Vec::len);
        (self.records.len() as f32 / records as f32).ln()
    }

    /// The number of an n-gram of any part.
    pub(super) fn number(&self, ngram: &[u64]) -> Option<u32> {
        self.numbers.get(&hash(ngram)).copied()
    }

    /// The n-gram of questions that starts at a token, and the records that contain it.
    pub(super) fn question(&self, tokens: &[u64], at: usize) -> Option<(u32, &[u32])> {
        let number = self.number(&tokens[at..at + self.ngram])?;
        let records = self.questions.get(&number)?;
        Some((number, records))
    }

    /// Whether an n-gram in this many records is too common to start from.
    pub(super) fn is_hot(&self, records: &[u32]) -> bool {
        records.len() > self.hot
    }
}
