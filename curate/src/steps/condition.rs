//! Conditions of one's own over the figures of the steps in front.

use super::opened::Opened;
use super::{Draft, StepScratch, one};
use crate::config::Step;
use crate::error::{Error, Result};
use crate::filter::{Fineweb2Filter, RedpajamaSignals};
use crate::quality::ExpressionConfig;
use crate::signals::{Expression, Signals};
use crate::text::chars;
use crate::verdict::{Judge, KEEP, Measure, Verdict, broken};

/// Names in conditions that stand for texts.
pub(crate) const TEXTS: [&str; 3] = ["language", "url", "subset"];

/// A page of which every rule can be measured: its figures' names are those that conditions may use.
const PROBE: &str = "The people of the town and those who live with them have to walk to the river that flows by.\n\
    They have to be back with the others before it is dark, and all of them know that.\n\n\
    To be there in time is not hard, and of those who have tried most say that the way is short.\n\
    The river and the hills have been there for longer than the town, and that is good to know.\n\
    With the first light they set out again, and the old bridge carries them to the other side.\n";

/// A condition whose figures are all measured by the steps in front of it.
pub(super) fn open_condition(
    step: usize,
    config: &ExpressionConfig,
    before: &[Step],
) -> Result<Expression> {
    let wrong = |found: String, wanted: String| Error::Config {
        key: format!("step[{step}].expression.keep"),
        found,
        wanted,
    };
    let condition = Expression::parse(&config.keep, &TEXTS)
        .map_err(|why| wrong(why, "a condition over figures".into()))?;
    let mut known: Vec<String> = OWN.iter().chain(&TEXTS).map(|n| n.to_string()).collect();
    let (mut judge, mut scratch) = (Judge::measuring(), StepScratch::default());
    for step in before {
        let mut draft = Draft {
            text: PROBE.to_string(),
            ..Draft::default()
        };
        match step {
            // those that need a model
            Step::Language(_) => known.push("language.min_confidence".into()),
            Step::Quality(_) => known.extend(["quality.score", "quality.bucket"].map(String::from)),
            Step::Dsir(_) => {
                let figures = ["dsir.words", "dsir.weight", "dsir.key"];
                known.extend(figures.map(String::from));
            }
            Step::Perplexity(_) => known.push("perplexity.value".into()),
            Step::BadWords(_) => known.push("bad_words.ratio".into()),
            Step::Lines(_) => known.push("lines.removed_ratio".into()),
            Step::Fineweb2(config) => {
                let filter = Fineweb2Filter::open(config)?;
                drop(filter.measure(PROBE, &mut scratch.text, &mut judge));
            }
            Step::Redpajama(config) => {
                let signals = RedpajamaSignals::open(config)?.of(PROBE);
                let names = signals.iter().map(|s| format!("redpajama.{}", s.name));
                known.extend(names);
            }
            _ => drop(one(
                step,
                &Opened::Nothing,
                &mut draft,
                &mut scratch,
                &mut judge,
            )),
        }
    }
    known.extend(judge.measures().iter().map(|m| m.rule.clone()));
    if let Some(name) = condition.names().find(|n| !known.iter().any(|k| k == n)) {
        known.sort();
        known.dedup();
        let found = format!("{name:?}");
        return Err(wrong(
            found,
            format!("a figure of a step before: {}", known.join(" ")),
        ));
    }
    Ok(condition)
}

/// Figures of the document itself.
const OWN: [&str; 3] = ["chars", "bytes", "lines"];

/// A document as conditions see it.
struct Figures<'a> {
    draft: &'a Draft,
    measures: &'a [Measure],
}

impl Signals for Figures<'_> {
    fn number(&self, name: &str) -> Option<f64> {
        let text = &self.draft.text;
        match name {
            "chars" => Some(chars(text) as f64),
            "bytes" => Some(text.len() as f64),
            "lines" => Some(memchr::memchr_iter(b'\n', text.as_bytes()).count() as f64 + 1.0),
            // a step that is there twice is asked for what it said last
            _ => self
                .measures
                .iter()
                .rev()
                .find(|m| m.rule == name)
                .map(|m| m.value),
        }
    }

    fn text(&self, name: &str) -> Option<&str> {
        match name {
            "language" => Some(&self.draft.language),
            "url" => Some(self.draft.url.as_deref().unwrap_or_default()),
            "subset" => Some(self.draft.subset.as_deref().unwrap_or_default()),
            _ => None,
        }
    }
}

/// Breaks, with every figure it names, if the condition does not hold.
pub(super) fn meets(
    config: &ExpressionConfig,
    condition: &Expression,
    draft: &Draft,
    measures: &[Measure],
) -> Verdict {
    let figures = Figures { draft, measures };
    if condition.holds(&figures) {
        return KEEP;
    }
    let shown = condition.names().map(|name| match figures.text(name) {
        Some(text) => format!("{name}={text}"),
        None => match figures.number(name) {
            Some(number) => format!("{name}={number}"),
            None => format!("{name}=?"),
        },
    });
    let shown = shown.collect::<Vec<_>>().join(" ");
    Verdict::Break(broken(
        &format!("expression.{}", config.name),
        shown,
        config.keep.as_str(),
    ))
}
