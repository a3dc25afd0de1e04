//! Scores of a task's documents: requests to the model, and what each metric takes of the answers.

use super::bbq;
use super::definition::{Definition, Exact, Filter, Step};
use super::detokenize;
use super::documents::{Document, Table, Target};
use super::metrics::{Item, Metric, argmax};
use super::model::{Request, TextModel};
use super::python_text;
use super::rows::Row;
use super::shape::Shape;
use crate::progress::Progress;
use anyhow::{Context as _, Result};
use regex::Regex;
use serde_json::{Value, json};
use train::eval::Likelihood;

/// Name of the only filter of tasks without any.
pub(super) const NO_FILTER: &str = "none";

/// A document's part of a metric after a filter.
pub(super) struct Scored {
    pub metric: Metric,
    pub filter: String,
    pub item: Item,
}

/// A document with the model's answers.
pub(super) struct Answered {
    pub document: Document,
    pub likelihoods: Vec<Likelihood>,
    /// Response, if it was asked for text.
    pub response: Option<String>,
    /// Answers found in the response, by filter.
    pub found: Vec<(String, String)>,
    pub scores: Vec<Scored>,
}

impl Answered {
    /// The record of a document, for people to look at.
    pub(super) fn record(&self, task: &str, row: usize) -> Value {
        let texts = |of: fn(&Request) -> &String| -> Vec<&String> {
            self.document.requests.iter().map(of).collect()
        };
        let mut record = json!({"task": task, "doc_id": self.document.number, "row": row + 1});
        let mut set = |key: &str, value: Value| record[key] = value;
        let mut contexts = texts(|(context, _)| context);
        contexts.dedup();
        set("prompts", json!(contexts));
        if self.response.is_none() {
            set(
                "continuations",
                json!(texts(|(_, continuation)| continuation)),
            );
            let logs: Vec<f64> = self.likelihoods.iter().map(|l| l.log).collect();
            let greedy: Vec<bool> = self.likelihoods.iter().map(|l| l.is_greedy).collect();
            set("log_likelihoods", json!(logs));
            set("is_greedy", json!(greedy));
        }
        match &self.document.parts.target {
            Target::Choices(numbers) if numbers.len() == 1 => set("target", json!(numbers[0])),
            Target::Choices(numbers) => set("target", json!(numbers)),
            Target::Texts(texts) => set("target", json!(texts)),
            Target::Answer => {}
        }
        if let Some(response) = &self.response {
            set("response", json!(response));
            let found: serde_json::Map<String, Value> = self
                .found
                .iter()
                .map(|(filter, answer)| (filter.clone(), json!(answer)))
                .collect();
            set("found", json!(found));
        }
        for score in &self.scores {
            let value = match &score.item {
                Item::Number(number) => json!(number),
                Item::Weighted { log, weight } => json!([log, weight]),
                Item::Classes { gold, predicted } => json!([gold, predicted]),
                Item::Bbq(_) => continue,
            };
            set(&format!("{},{}", score.metric.name(), score.filter), value);
        }
        record
    }
}

/// Asks the model for all documents of a task and scores its answers.
///
/// # Errors
/// Errors of the model and the tokenizer, with the row.
pub(super) fn answer(
    model: &TextModel<'_>,
    table: &Table<'_>,
    documents: Vec<Document>,
) -> Result<Vec<Answered>> {
    let definition = table.definition;
    let all: usize = documents.iter().map(|d| d.requests.len()).sum();
    let progress = Progress::start(&format!("eval/{}", definition.name), "requests", all as u64);
    let scorer = Scorer::of(definition)?;
    let mut answered = Vec::with_capacity(documents.len());
    let at = |document: &Document| {
        let (number, _) = &table.rows[document.number];
        format!("{}: row {}", table.path.display(), number + 1)
    };
    if definition.shape == Shape::Rolling {
        for document in documents {
            let place = at(&document);
            answered.push(scorer.long(model, document).context(place)?);
            progress.add(1);
        }
    } else if definition.shape == Shape::Generation {
        let prompts = documents.iter().map(|document| {
            let first = document.requests.first().context("no request");
            let ids = first.and_then(|(prompt, _)| model.prompt(prompt, definition.max_tokens));
            ids.with_context(|| at(document))
        });
        let prompts: Vec<Vec<u32>> = prompts.collect::<Result<_>>()?;
        let until = (definition.until.as_slice(), definition.max_tokens);
        let responses = model.generate(&prompts, until, &mut || progress.add(1))?;
        let both = documents.into_iter().zip(responses);
        answered.extend(both.map(|(document, response)| scorer.response(document, response)));
    } else {
        let requests: Vec<&Request> = documents.iter().flat_map(|d| &d.requests).collect();
        let place = |request: usize| {
            let mut before = 0;
            let of = documents.iter().find(|document| {
                before += document.requests.len();
                request < before
            });
            of.map_or_else(String::new, at)
        };
        let how = (definition.tokens, &place as &dyn Fn(usize) -> String);
        let likelihoods = model.log_likelihoods(&requests, how, &mut |n| progress.add(n as u64))?;
        let mut rest = likelihoods.as_slice();
        for document in documents {
            let (own, after) = rest.split_at(document.requests.len());
            rest = after;
            let (_, row) = &table.rows[document.number];
            answered.push(scorer.short(document, own.to_vec(), row));
        }
    }
    progress.finish(&format!("{} documents", answered.len()));
    Ok(answered)
}

struct Scorer<'a> {
    definition: &'a Definition,
    filters: Vec<(&'a Filter, Vec<Option<Regex>>)>,
    ignored: Vec<Regex>,
}

impl<'a> Scorer<'a> {
    fn of(definition: &'a Definition) -> Result<Scorer<'a>> {
        let patterns = |filter: &'a Filter| -> Result<_> {
            let pattern = |step: &Step| match step {
                Step::Regex { pattern, .. } => Regex::new(pattern).map(Some),
                Step::Strip {} => Ok(None),
            };
            let patterns = filter.steps.iter().map(pattern);
            Ok((filter, patterns.collect::<Result<_, regex::Error>>()?))
        };
        let ignored = definition.exact.ignore.iter().map(|p| Regex::new(p));
        Ok(Scorer {
            definition,
            filters: definition
                .filters
                .iter()
                .map(patterns)
                .collect::<Result<_>>()?,
            ignored: ignored.collect::<Result<_, _>>()?,
        })
    }

    fn scores(&self, item: impl Fn(Metric) -> Option<Item>) -> Vec<Scored> {
        let metrics = self.definition.metrics.iter();
        let scored = |&metric| {
            Some(Scored {
                metric,
                filter: NO_FILTER.into(),
                item: item(metric)?,
            })
        };
        metrics.filter_map(scored).collect()
    }

    /// A document whose answers are log-likelihoods of short texts.
    fn short(&self, document: Document, likelihoods: Vec<Likelihood>, row: &Row) -> Answered {
        let logs: Vec<f64> = likelihoods.iter().map(|l| l.log).collect();
        let choices = &document.parts.choices;
        let chosen = argmax(logs.iter().copied());
        let chosen_by = |length: fn(&str) -> usize| {
            let each = logs.iter().zip(choices);
            argmax(each.map(|(log, choice)| log / length(choice) as f64))
        };
        let targets: &[usize] = match &document.parts.target {
            Target::Choices(numbers) => numbers,
            _ => &[],
        };
        let truth = |is_right: bool| Some(Item::Number(f64::from(u8::from(is_right))));
        let is_continuation = self.definition.shape == Shape::Continuation;
        let scores = self.scores(|metric| match metric {
            Metric::Acc if is_continuation => truth(likelihoods.first()?.is_greedy),
            Metric::Acc => truth(targets.contains(&chosen)),
            Metric::AccNorm => truth(targets.contains(&chosen_by(|text| text.chars().count()))),
            Metric::AccBytes => truth(targets.contains(&chosen_by(str::len))),
            Metric::Perplexity => Some(Item::Number(*logs.first()?)),
            Metric::F1 => Some(Item::Classes {
                gold: *targets.first()?,
                predicted: chosen,
            }),
            Metric::ExactMatch => {
                let greedy = targets.iter().filter_map(|&n| likelihoods.get(n));
                truth(greedy.into_iter().any(|l| l.is_greedy))
            }
            Metric::LikelihoodDiff => Some(Item::Number(match logs.as_slice() {
                [more, less] => (more - less).abs(),
                [a, b, c, d] => (a.exp() + b.exp()).ln() - (c.exp() + d.exp()).ln(),
                _ => return None,
            })),
            Metric::PctStereotype => truth(logs.first()? > logs.get(1)?),
            Metric::PctMalePreferred => truth(chosen > 1),
            Metric::LogGap => match logs.as_slice() {
                [first, second] => Some(Item::Number(first - second)),
                _ => None,
            },
            Metric::PctFirst => truth(chosen == 0),
            Metric::AccuracyAmb
            | Metric::AccuracyDisamb
            | Metric::AmbBiasScore
            | Metric::DisambBiasScore => {
                Some(Item::Bbq(bbq::answer(row, choices, targets, chosen)))
            }
            Metric::WordPerplexity
            | Metric::BytePerplexity
            | Metric::BitsPerByte
            | Metric::MegatronPpl
            | Metric::MegatronAdjustedPpl => None,
        });
        Answered {
            document,
            likelihoods,
            response: None,
            found: Vec::new(),
            scores,
        }
    }

    /// A document to which the model responded with a text.
    fn response(&self, document: Document, response: String) -> Answered {
        let mut found = Vec::new();
        for (filter, patterns) in &self.filters {
            found.push((filter.name.clone(), extracted(&response, filter, patterns)));
        }
        if found.is_empty() {
            found.push((NO_FILTER.into(), response.clone()));
        }
        let texts: &[String] = match &document.parts.target {
            Target::Texts(texts) => texts,
            _ => &[],
        };
        let mut scores = Vec::new();
        for (filter, answer) in &found {
            let answer = self.compared(answer);
            let is_right = texts.iter().any(|text| self.compared(text) == answer);
            for &metric in &self.definition.metrics {
                scores.push(Scored {
                    metric,
                    filter: filter.clone(),
                    item: Item::Number(f64::from(u8::from(is_right))),
                });
            }
        }
        Answered {
            document,
            likelihoods: Vec::new(),
            response: Some(response),
            found,
            scores,
        }
    }

    /// A document of which a whole text is scored.
    fn long(&self, model: &TextModel<'_>, document: Document) -> Result<Answered> {
        let definition = self.definition;
        let text = &document.parts.answer;
        let (log, predicted) = match definition.stride {
            0 => (model.rolling(text)?, 0),
            stride => model.strided(text, stride)?,
        };
        let original = &document.parts.original;
        let words = detokenize::words(original) as f64;
        let bytes = original.len() as f64;
        let megatrons_words = python_text::strip(original).split(' ').count() as f64;
        let of = |weight| Some(Item::Weighted { log, weight });
        let scores = self.scores(|metric| match metric {
            Metric::WordPerplexity => of(words),
            Metric::BytePerplexity | Metric::BitsPerByte => of(bytes),
            Metric::MegatronPpl => of(predicted as f64),
            Metric::MegatronAdjustedPpl => of(megatrons_words - 1.0),
            _ => None,
        });
        Ok(Answered {
            document,
            likelihoods: vec![Likelihood {
                log,
                is_greedy: false,
            }],
            response: None,
            found: Vec::new(),
            scores,
        })
    }

    /// A text without the differences that `exact_match` ignores.
    fn compared(&self, text: &str) -> String {
        let Exact {
            ignore_case,
            ignore_punctuation,
            ..
        } = self.definition.exact;
        let mut text = text.to_owned();
        for pattern in &self.ignored {
            text = pattern.replace_all(&text, "").into_owned();
        }
        if ignore_case {
            text = text.to_lowercase();
        }
        if ignore_punctuation {
            text.retain(|c| !python_text::is_punctuation(c));
        }
        text
    }
}

/// The answer that a filter finds in a response.
fn extracted(response: &str, filter: &Filter, patterns: &[Option<Regex>]) -> String {
    let mut text = response.to_owned();
    for (step, pattern) in filter.steps.iter().zip(patterns) {
        text = match (step, pattern) {
            (Step::Regex { last, .. }, Some(pattern)) => {
                let mut matches = pattern.captures_iter(&text);
                let found = if *last {
                    matches.last()
                } else {
                    matches.next()
                };
                let group = found.and_then(|found| {
                    // the whole match, if the pattern has no groups
                    let first = usize::from(found.len() > 1);
                    let groups = (first..found.len()).filter_map(|i| found.get(i));
                    let mut texts = groups.map(|group| group.as_str());
                    texts.find(|text| !text.is_empty()).map(str::to_owned)
                });
                group.map_or("[invalid]".into(), |text| {
                    python_text::strip(&text).to_owned()
                })
            }
            _ => python_text::strip(&text).to_owned(),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_found_as_gsm8ks_filters_find_them() {
        let definition = Definition::find("gsm8k").unwrap();
        let scorer = Scorer::of(&definition).unwrap();
        let found = |response: &str| -> Vec<String> {
            let each = scorer.filters.iter();
            each.map(|(filter, patterns)| extracted(response, filter, patterns))
                .collect()
        };
        assert_eq!(found("so 3 and $1,234.\n#### 1,234"), ["1,234", "1,234"]);
        assert_eq!(found("it is 7 or 12.50."), ["[invalid]", "12.50."]);
        assert_eq!(found("none"), ["[invalid]", "[invalid]"]);
        assert_eq!(scorer.compared("A #### $1,234."), "1234");
        let trivia = Definition::find("triviaqa").unwrap();
        let scorer = Scorer::of(&trivia).unwrap();
        assert_eq!(scorer.compared("St. Paul's"), "st pauls");
    }
}
