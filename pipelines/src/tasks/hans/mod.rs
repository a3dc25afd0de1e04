//! Pairs of sentences in the manner of HANS (McCoy et al. 2019, arXiv:1902.01007): every word of the hypothesis is in the
//! premise, which says it or does not. A model that judges by surface form answers "entailment" to all of them.
//!
//! Three heuristics, ten subcases each, half of them entailed. Words (`words`) and templates (`subcases`) are our own:
//! results are not those of the published file, which `eval --task hans --data` reads. The same seed gives the same
//! pairs; no pair of a subcase occurs twice. Row n is of subcase n modulo 30, so the first rows have all of them.

mod subcases;
mod words;

use super::rows::Row;
use index::numpy_random::PythonRandom;
use serde_json::json;
use std::collections::BTreeSet;
use subcases::{HEURISTICS, SUBCASES, Subcase};

/// Draws of a pair until one is new; templates have thousands of them.
const TRIES: usize = 1000;

/// `count` pairs of each subcase.
pub(super) fn rows(seed: u64, count: usize) -> Vec<Row> {
    let mut random = PythonRandom::new(seed);
    let mut known: BTreeSet<[String; 2]> = BTreeSet::new();
    let mut rows = Vec::with_capacity(count * SUBCASES.len());
    for _ in 0..count {
        for subcase in &SUBCASES {
            for _ in 0..TRIES {
                let pair = pair(subcase, &mut random);
                if known.insert(pair.clone()) {
                    rows.push(row(subcase, pair));
                    break;
                }
            }
        }
    }
    rows
}

fn row(subcase: &Subcase, [premise, hypothesis]: [String; 2]) -> Row {
    let label = match subcase.is_entailed {
        true => "entailment",
        false => "non-entailment",
    };
    let row = json!({
        "premise": premise, "hypothesis": hypothesis, "label": u8::from(!subcase.is_entailed),
        "gold_label": label, "heuristic": HEURISTICS[subcase.heuristic], "subcase": subcase.name,
    });
    row.as_object().cloned().unwrap_or_default()
}

fn pair(subcase: &Subcase, random: &mut PythonRandom) -> [String; 2] {
    let templates = subcase.templates[random.choice(subcase.templates.len())];
    let filling = Filling::draw(random);
    templates.map(|template| filling.fill(template))
}

/// A word for every slot.
struct Filling {
    people: [[&'static str; 2]; 3],
    are_many: [bool; 3],
    transitive: [&'static str; 2],
    intransitive: &'static str,
    doing: [&'static str; 2],
    lists: Vec<(&'static str, &'static str)>,
}

/// Numbers of two different elements.
fn two(random: &mut PythonRandom, of: usize) -> [usize; 2] {
    let first = random.choice(of);
    let second = random.choice(of - 1);
    [first, second + usize::from(second >= first)]
}

impl Filling {
    fn draw(random: &mut PythonRandom) -> Filling {
        let people = random.sample(words::PEOPLE.len(), 3).unwrap_or_default();
        let person = |at: usize| words::PEOPLE[people.get(at).copied().unwrap_or(at)];
        let people = [person(0), person(1), person(2)];
        let are_many = [0; 3].map(|_| random.choice(2) == 1);
        let transitive = two(random, words::TRANSITIVE.len()).map(|at| words::TRANSITIVE[at]);
        let intransitive = words::INTRANSITIVE[random.choice(words::INTRANSITIVE.len())];
        let doing = words::DOINGS[random.choice(words::DOINGS.len())];
        let named: [(&str, &[&str]); 12] = [
            ("near", &words::NEAR),
            ("place", &words::PLACES),
            ("adjective", &words::ADJECTIVES),
            ("sure", &words::SURE),
            ("unsure", &words::NOT_SURE),
            ("because", &words::BECAUSE),
            ("if", &words::IF),
            ("realized", &words::FACTIVE),
            ("said", &words::NOT_FACTIVE),
            ("heard", &words::PERSON_OR_CLAUSE),
            ("moved", &words::PERSON_OR_NOBODY),
            ("paid", &words::PAST_OR_PARTICIPLE),
        ];
        let lists = named.map(|(name, list)| (name, list[random.choice(list.len())]));
        Filling {
            people,
            are_many,
            transitive,
            intransitive,
            doing,
            lists: lists.to_vec(),
        }
    }

    fn fill(&self, template: &str) -> String {
        let mut text = String::new();
        for (at, part) in template.split(['{', '}']).enumerate() {
            match at % 2 {
                0 => text.push_str(part),
                _ => text.push_str(&self.slot(part)),
            }
        }
        text
    }

    fn slot(&self, name: &str) -> String {
        let person = |letter: &str| {
            let at = ["a", "b", "c"].iter().position(|known| *known == letter)?;
            Some((self.people[at], self.are_many[at]))
        };
        if let Some(letter) = name.strip_prefix("was ") {
            return match person(letter) {
                Some((_, true)) => "were".into(),
                _ => "was".into(),
            };
        }
        if let Some((forms, are_many)) = person(name.trim_end_matches('!')) {
            let the = if name.ends_with('!') { "The" } else { "the" };
            return format!("{the} {}", forms[usize::from(are_many)]);
        }
        match name {
            "A" => self.people[0][1].into(),
            "A!" => capital(self.people[0][1]),
            "t" => self.transitive[0].into(),
            "u" => self.transitive[1].into(),
            "i" => self.intransitive.into(),
            "doing" => self.doing[0].into(),
            "thing" => self.doing[1].into(),
            "Because" | "If" => capital(self.listed(&name.to_lowercase())),
            name => self.listed(name).into(),
        }
    }

    fn listed(&self, name: &str) -> &'static str {
        let found = self.lists.iter().find(|(known, _)| *known == name);
        found.map_or("", |(_, word)| word)
    }
}

fn capital(word: &str) -> String {
    let mut chars = word.chars();
    let first = chars.next().map(|c| c.to_uppercase().collect::<String>());
    first.unwrap_or_default() + chars.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn words_of(text: &str) -> Vec<String> {
        let words = text.split(|c: char| !c.is_alphanumeric());
        let words = words.filter(|word| !word.is_empty());
        words.map(str::to_lowercase).collect()
    }

    #[test]
    fn thirty_thousand_pairs_are_all_different_and_half_of_each_heuristic_is_entailed() {
        let rows = rows(1, 1000);
        assert_eq!(rows.len(), 30_000);
        let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
        let mut subcases = BTreeSet::new();
        for row in &rows {
            let text = |key: &str| row[key].as_str().unwrap().to_owned();
            *counts
                .entry((text("heuristic"), text("gold_label")))
                .or_default() += 1;
            subcases.insert(text("subcase"));
        }
        assert_eq!((counts.len(), subcases.len()), (6, 30));
        assert!(counts.values().all(|count| *count == 5000), "{counts:?}");
    }

    /// The rules of the data set: the hypothesis has no word that the premise has not; of the last two heuristics it is a
    /// run of the premise's words.
    #[test]
    fn every_hypothesis_overlaps_with_its_premise_as_its_heuristic_says() {
        for row in rows(7, 50) {
            let [premise, hypothesis] =
                ["premise", "hypothesis"].map(|key| words_of(row[key].as_str().unwrap()));
            for word in &hypothesis {
                let forms = [word.clone(), "was".into(), "were".into()];
                let is_there = forms.iter().any(|form| premise.contains(form));
                assert!(is_there, "{row:?}");
            }
            if row["heuristic"] != "lexical_overlap" {
                let found = premise
                    .windows(hypothesis.len())
                    .any(|run| run == hypothesis);
                assert!(found, "{row:?}");
            }
            for key in ["premise", "hypothesis"] {
                let text = row[key].as_str().unwrap();
                assert!(
                    text.ends_with('.') && text.starts_with(char::is_uppercase),
                    "{text}"
                );
                assert!(!text.contains("  ") && !text.contains(['{', '}']), "{text}");
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_pairs_and_another_gives_others() {
        assert_eq!(rows(3, 5), rows(3, 5));
        let premises = |seed| -> BTreeSet<String> {
            rows(seed, 5)
                .iter()
                .map(|row| row["premise"].to_string())
                .collect()
        };
        assert!(premises(3).intersection(&premises(4)).count() < 30);
    }
}
