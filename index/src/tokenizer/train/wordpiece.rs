//! WordPiece training: the most frequent pair of neighbours is joined, as in BPE, until the vocabulary is full.
//!
//! Schuster & Nakajima 2012 ask for the pair that raises the likelihood most; Hugging Face's trainer, and so most BERT
//! vocabularies made since, joins by frequency, and that is done here. Characters inside a word are `##x`. Ties go to the
//! smaller pair of ids. At most 1000 characters (Hugging Face's limit for BERT) make the alphabet, the most frequent ones;
//! a word with another character is unknown as a whole and is ignored.

use super::settings::TrainSettings;
use crate::tokenizer::load::wordpiece_json;
use rustc_hash::{FxHashMap, FxHashSet};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Maximum characters of the alphabet.
const ALPHABET: usize = 1000;
/// Longer words are unknown to the encoder.
const LONGEST: usize = 100;

type Pair = (u32, u32);

/// A `tokenizer.json` from sorted words with their counts.
pub(super) fn train(settings: &TrainSettings, words: &[(String, u64)]) -> Result<String, String> {
    let special = settings.specials();
    let mut vocab = Vocabulary::default();
    for token in &special {
        vocab.id(token);
    }
    let known = alphabet(words);
    let usable: Vec<(&str, u64)> = (words.iter())
        .map(|(w, n)| (w.as_str(), *n))
        .filter(|(w, _)| w.chars().count() <= LONGEST && w.chars().all(|c| known.contains(&c)))
        .collect();
    let mut forms: Vec<String> = (usable.iter())
        .flat_map(|(w, _)| w.chars().enumerate().map(|(i, c)| form(i, c)))
        .collect();
    forms.sort_unstable();
    forms.dedup();
    for form in &forms {
        vocab.id(form);
    }
    if vocab.tokens.len() > settings.vocab {
        return Err(format!(
            "vocab: found {}, wanted room for {} special tokens and characters",
            settings.vocab,
            vocab.tokens.len()
        ));
    }
    if usable.is_empty() {
        return Err("found no word to train on, wanted some".into());
    }
    let mut joins = Joins::new(&usable, &mut vocab);
    while vocab.tokens.len() < settings.vocab {
        let Some((pair, count)) = joins.most_frequent() else {
            break;
        };
        if count < settings.min_frequency {
            break;
        }
        let right = &vocab.tokens[pair.1 as usize];
        let joined = format!(
            "{}{}",
            vocab.tokens[pair.0 as usize],
            right.trim_start_matches("##")
        );
        let id = vocab.id(&joined);
        joins.join(pair, id);
    }
    let entries: Vec<(String, u32)> = vocab.tokens.into_iter().zip(0..).collect();
    Ok(wordpiece_json(&entries, settings.lowercase, &special))
}

/// The most frequent characters; of equals the smaller ones.
fn alphabet(words: &[(String, u64)]) -> FxHashSet<char> {
    let mut counts: FxHashMap<char, u64> = FxHashMap::default();
    for (word, n) in words {
        for c in word.chars() {
            *counts.entry(c).or_default() += n;
        }
    }
    let mut sorted: Vec<(Reverse<u64>, char)> =
        counts.into_iter().map(|(c, n)| (Reverse(n), c)).collect();
    sorted.sort_unstable();
    sorted.into_iter().take(ALPHABET).map(|(_, c)| c).collect()
}

/// A character as a token: plain at the start of a word, else with `##`.
fn form(place: usize, c: char) -> String {
    if place == 0 {
        c.to_string()
    } else {
        format!("##{c}")
    }
}

#[derive(Default)]
struct Vocabulary {
    tokens: Vec<String>,
    ids: FxHashMap<String, u32>,
}

impl Vocabulary {
    /// Id of a token, a new one if it has none. Vocabularies have at most a million entries.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "settings.vocab is at most a million"
    )]
    fn id(&mut self, token: &str) -> u32 {
        if let Some(id) = self.ids.get(token) {
            return *id;
        }
        let id = self.tokens.len() as u32;
        self.ids.insert(token.to_string(), id);
        self.tokens.push(token.to_string());
        id
    }
}

/// Words as ids, and how often each pair of neighbours occurs.
struct Joins {
    words: Vec<(Vec<u32>, u64)>,
    counts: FxHashMap<Pair, u64>,
    /// Words that may hold a pair; some no longer do.
    places: FxHashMap<Pair, Vec<usize>>,
    /// Counts at the time of the push (lazy deletion): outdated entries are skipped.
    queue: BinaryHeap<(u64, Reverse<Pair>)>,
}

impl Joins {
    fn new(usable: &[(&str, u64)], vocab: &mut Vocabulary) -> Joins {
        let words: Vec<(Vec<u32>, u64)> = (usable.iter())
            .map(|(w, n)| {
                let ids = w.chars().enumerate().map(|(i, c)| vocab.id(&form(i, c)));
                (ids.collect(), *n)
            })
            .collect();
        let mut joins = Joins {
            words: Vec::new(),
            counts: FxHashMap::default(),
            places: FxHashMap::default(),
            queue: BinaryHeap::new(),
        };
        for (place, (ids, n)) in words.iter().enumerate() {
            for pair in ids.windows(2) {
                joins.add((pair[0], pair[1]), *n, place);
            }
        }
        let counts = joins.counts.iter().map(|(pair, n)| (*n, Reverse(*pair)));
        joins.queue = counts.collect();
        joins.words = words;
        joins
    }

    fn add(&mut self, pair: Pair, n: u64, place: usize) {
        *self.counts.entry(pair).or_default() += n;
        let places = self.places.entry(pair).or_default();
        if places.last() != Some(&place) {
            places.push(place);
        }
    }

    fn most_frequent(&mut self) -> Option<(Pair, u64)> {
        while let Some((n, Reverse(pair))) = self.queue.pop() {
            match self.counts.get(&pair).copied() {
                Some(now) if now == n => return Some((pair, n)),
                Some(now) if now > 0 && now < n => self.queue.push((now, Reverse(pair))),
                _ => {}
            }
        }
        None
    }

    /// Replaces every `pair` by `id`.
    fn join(&mut self, pair: Pair, id: u32) {
        let places = self.places.remove(&pair).unwrap_or_default();
        let mut raised: FxHashSet<Pair> = FxHashSet::default();
        for place in places {
            let (mut ids, n) = std::mem::take(&mut self.words[place]);
            for old in ids.windows(2) {
                if let Some(count) = self.counts.get_mut(&(old[0], old[1])) {
                    *count = count.saturating_sub(n);
                }
            }
            let (mut read, mut write) = (0, 0);
            while read < ids.len() {
                let joins = ids[read..].starts_with(&[pair.0, pair.1]);
                ids[write] = if joins { id } else { ids[read] };
                read += if joins { 2 } else { 1 };
                write += 1;
            }
            ids.truncate(write);
            for new in ids.windows(2) {
                let new = (new[0], new[1]);
                self.add(new, n, place);
                if new.0 == id || new.1 == id {
                    raised.insert(new);
                }
            }
            self.words[place] = (ids, n);
        }
        self.counts.remove(&pair);
        let counts = &self.counts;
        let pushed = raised
            .iter()
            .filter_map(|p| Some((*counts.get(p)?, Reverse(*p))));
        self.queue.extend(pushed);
    }
}
