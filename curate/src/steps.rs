//! What the steps of the chain do to a document: repair it, name it, measure it, judge it.
//!
//! Models and lists of steps are opened once, before any data is read. A judge keeps the figures of every rule if a
//! condition asks for them.

use std::path::Path;

use serde_json::{Value, json};

use crate::clock::Clock;
use crate::code::identify_code;
use crate::config::{CodeConfig, LanguageConfig, Step};
use crate::dsir::{Dsir, DsirConfig, DsirScratch};
use crate::error::{Error, Result};
use crate::fasttext::{FastText, FastTextScratch};
use crate::filter::{
    BadWordsFilter, Fineweb2Filter, LineEditor, Redpajama, RedpajamaSignals, UrlFilter,
};
use crate::language::{Identifier, LanguageScratch, MixtureScratch, mixture, script_shares};
use crate::ngram::NgramModel;
use crate::normalize::{NormalizeConfig, Repairs};
use crate::quality::{ExpressionConfig, PerplexityConfig, QualityConfig};
use crate::signals::{Expression, Signals};
use crate::text::{Scratch, chars};
use crate::verdict::{Judge, KEEP, Measure, Verdict, broken};

/// Names in conditions that stand for texts.
pub(crate) const TEXTS: [&str; 3] = ["language", "url", "subset"];

/// A document on its way.
#[derive(Clone, Default)]
pub(crate) struct Draft {
    pub(crate) id: String,
    pub(crate) url: Option<String>,
    pub(crate) subset: Option<String>,
    pub(crate) language: String,
    pub(crate) repairs: Repairs,
    /// Rule of each piece of personal data that was found.
    pub(crate) personal: Vec<&'static str>,
    pub(crate) text: String,
    pub(crate) meta: Option<Value>,
    /// Every figure, if they are kept.
    pub(crate) measures: Vec<Measure>,
    /// Dropped by something that has no limit.
    pub(crate) is_lost: bool,
}

/// Buffers of one thread.
#[derive(Default)]
pub(crate) struct StepScratch {
    pub(crate) text: Scratch,
    pub(crate) clock: Clock,
    language: LanguageScratch,
    mixture: MixtureScratch,
    quality: FastTextScratch,
    dsir: DsirScratch,
    labels: Vec<(usize, f32)>,
    rewritten: String,
}

/// What a step needs that is not in the job file.
enum Opened {
    Nothing,
    Language(Identifier),
    Urls(UrlFilter),
    BadWords(BadWordsFilter),
    Fineweb2(Fineweb2Filter),
    Signals(RedpajamaSignals),
    Lines(LineEditor),
    /// With the number of the label.
    Quality(FastText, usize),
    Perplexity(NgramModel),
    Dsir(Dsir),
    Condition(Expression),
}

/// The steps of a chain, ready.
pub(crate) struct Steps {
    steps: Vec<(Step, Opened)>,
    keeps_figures: bool,
    measures_all: bool,
}

impl Steps {
    /// Opens what the steps need; `measures_all` leaves every figure in the drafts.
    pub(crate) fn open(steps: &[Step], measures_all: bool) -> Result<Steps> {
        let opened = steps.iter().enumerate().map(|(i, step)| {
            let opened = match step {
                Step::Language(config) => Opened::Language(open_identifier(i, config)?),
                Step::Url(config) => Opened::Urls(UrlFilter::open(config)?),
                Step::BadWords(config) => Opened::BadWords(BadWordsFilter::open(config)?),
                Step::Fineweb2(config) => Opened::Fineweb2(Fineweb2Filter::open(config)?),
                Step::Redpajama(config) => Opened::Signals(RedpajamaSignals::open(config)?),
                Step::Lines(config) => Opened::Lines(LineEditor::open(config)?),
                Step::Quality(config) => open_quality(i, config)?,
                Step::Perplexity(config) => {
                    Opened::Perplexity(NgramModel::open(Path::new(&config.model))?)
                }
                Step::Dsir(config) => Opened::Dsir(Dsir::open(Path::new(&config.model))?),
                Step::Expression(config) => open_condition(i, config, &steps[..i])?,
                _ => Opened::Nothing,
            };
            Ok((step.clone(), opened))
        });
        Ok(Steps {
            steps: opened.collect::<Result<_>>()?,
            keeps_figures: steps.iter().any(|s| matches!(s, Step::Expression(_))),
            measures_all,
        })
    }

    /// Runs all of them, up to the first rule that is broken.
    /// `after` is what comes behind them, which figures have to know of.
    pub(crate) fn run(
        &self,
        draft: &mut Draft,
        scratch: &mut StepScratch,
        after: &dyn Fn(&str) -> Verdict,
    ) -> Verdict {
        if self.measures_all {
            return self.measure(draft, scratch, after);
        }
        let mut judge = match self.keeps_figures {
            true => Judge::keeping(),
            false => Judge::strict(),
        };
        for (step, opened) in &self.steps {
            let verdict = one(step, opened, draft, scratch, &mut judge);
            scratch.clock.lap(step.name());
            verdict?;
        }
        KEEP
    }

    /// The same verdict and the same draft, and every figure: after the first broken rule goes on with a copy.
    fn measure(
        &self,
        draft: &mut Draft,
        scratch: &mut StepScratch,
        after: &dyn Fn(&str) -> Verdict,
    ) -> Verdict {
        let mut judge = Judge::measuring();
        let mut verdict = KEEP;
        let mut on = draft.clone();
        let mut is_lost = false;
        for (step, opened) in &self.steps {
            let stopped = one(step, opened, &mut on, scratch, &mut judge);
            scratch.clock.lap(step.name());
            is_lost = stopped.is_break();
            if verdict.is_continue() {
                verdict = judge.verdict();
                if verdict.is_continue() {
                    verdict = stopped;
                }
                // a step that breaks a rule leaves the text as it was
                let text = verdict.is_break().then(|| std::mem::take(&mut draft.text));
                draft.clone_from(&on);
                if let Some(text) = text {
                    draft.text = text;
                }
            }
            if is_lost {
                break;
            }
        }
        draft.measures = judge.measures().to_vec();
        draft.is_lost = is_lost || after(&on.text).is_break();
        verdict
    }
}

fn one(
    step: &Step,
    opened: &Opened,
    draft: &mut Draft,
    scratch: &mut StepScratch,
    judge: &mut Judge,
) -> Verdict {
    let words = &mut scratch.text;
    match (step, opened) {
        (Step::Normalize(config), _) => normalize(config, draft, &mut scratch.rewritten),
        (Step::Language(config), Opened::Language(identifier)) => {
            name_language(config, identifier, draft, scratch, judge)?;
        }
        (Step::Code(config), _) => name_code(config, draft, judge)?,
        (Step::Url(_), Opened::Urls(filter)) => filter.judge(draft.url.as_deref())?,
        (Step::GopherQuality(rules), _) => rules.measure(&draft.text, words, judge)?,
        (Step::GopherRepetition(rules), _) => rules.measure(&draft.text, words, judge)?,
        (Step::C4(rules), _) => {
            rules.measure(&draft.text, words, &mut scratch.rewritten, judge)?;
            draft.text.clone_from(&scratch.rewritten);
        }
        (Step::Dclm(rules), _) => {
            rules.measure(&draft.text, words, &mut scratch.rewritten, judge)?;
            draft.text.clone_from(&scratch.rewritten);
        }
        (Step::Fineweb2(_), Opened::Fineweb2(filter)) => {
            filter.measure(&draft.text, words, judge)?;
        }
        (Step::Dolma(rules), _) => rules.measure(&draft.text, words, judge)?,
        (Step::Nemo(rules), _) => rules.measure(&draft.text, words, judge)?,
        (Step::MassiveText(rules), _) => rules.measure(&draft.text, words, judge)?,
        (Step::Openwebtext(rules), _) => {
            let out = &mut scratch.rewritten;
            rules.measure(&draft.text, &draft.language, out, judge)?;
            draft.text.clone_from(out);
        }
        (Step::Redpajama(config), Opened::Signals(signals)) => {
            quality_signals(config, signals, draft, judge)?;
        }
        (Step::BadWords(_), Opened::BadWords(filter)) => {
            filter.measure(&draft.text, &draft.id, &draft.language, judge)?;
        }
        (Step::Lines(_), Opened::Lines(editor)) => {
            editor.measure(&draft.text, &mut scratch.rewritten, judge)?;
            draft.text.clone_from(&scratch.rewritten);
        }
        (Step::Fineweb(rules), _) => rules.measure(&draft.text, words, judge)?,
        (Step::Length(rules), _) => rules.measure(&draft.text, judge)?,
        (Step::Pii(config), _) => {
            let found = &mut draft.personal;
            if config.apply(&draft.text, &mut scratch.rewritten, &mut |rule| {
                found.push(rule)
            })? {
                draft.text.clone_from(&scratch.rewritten);
            }
        }
        (Step::Quality(config), Opened::Quality(model, label)) => {
            score(config, model, *label, draft, scratch, judge)?;
        }
        (Step::Perplexity(config), Opened::Perplexity(model)) => {
            perplexity(config, model, draft, judge)?;
        }
        (Step::Dsir(config), Opened::Dsir(model)) => {
            resample(config, model, draft, scratch, judge)?
        }
        (Step::Expression(config), Opened::Condition(condition)) => {
            meets(config, condition, draft, judge.measures())?;
        }
        _ => {}
    }
    KEEP
}

fn open_quality(step: usize, config: &QualityConfig) -> Result<Opened> {
    let model = FastText::open(Path::new(&config.model))?;
    match model.label(&config.label) {
        Some(label) => Ok(Opened::Quality(model, label)),
        None => Err(Error::Config {
            key: format!("step[{step}].quality.label"),
            found: format!("{:?}", config.label),
            wanted: format!("a label of the model {}", config.model),
        }),
    }
}

/// A page of which every rule can be measured: its figures' names are those that conditions may use.
const PROBE: &str = "The people of the town and those who live with them have to walk to the river that flows by.\n\
    They have to be back with the others before it is dark, and all of them know that.\n\n\
    To be there in time is not hard, and of those who have tried most say that the way is short.\n\
    The river and the hills have been there for longer than the town, and that is good to know.\n\
    With the first light they set out again, and the old bridge carries them to the other side.\n";

fn open_condition(step: usize, config: &ExpressionConfig, before: &[Step]) -> Result<Opened> {
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
    Ok(Opened::Condition(condition))
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

fn meets(
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

/// Signals cost more than any filter: they are counted only for those who ask.
fn quality_signals(
    config: &Redpajama,
    signals: &RedpajamaSignals,
    draft: &mut Draft,
    judge: &mut Judge,
) -> Verdict {
    if !config.store && judge.may_stop_counting() {
        return KEEP;
    }
    let found = signals.of(&draft.text);
    if config.store {
        let stored = found.iter().map(|s| (s.name.to_string(), json!(s.spans)));
        note(draft, "quality_signals", Value::Object(stored.collect()));
    }
    signals.measure(&found, judge)
}

fn score(
    config: &QualityConfig,
    model: &FastText,
    label: usize,
    draft: &mut Draft,
    scratch: &mut StepScratch,
    judge: &mut Judge,
) -> Verdict {
    let all = model.labels().len();
    model.predict(&draft.text, all, &mut scratch.quality, &mut scratch.labels);
    let found = scratch.labels.iter().find(|(l, _)| *l == label);
    let score = found.map_or(0.0, |(_, p)| f64::from(*p));
    note(draft, "quality", json!((score * 1e6).round() / 1e6));
    judge.at_least("quality.score", score, config.min_score)?;
    if !config.buckets.is_empty() {
        // of several models the greatest bucket counts
        let before = draft
            .meta
            .as_ref()
            .and_then(|m| m["quality_bucket"].as_u64());
        let bucket = config.bucket(score).max(before.unwrap_or(0));
        note(draft, "quality_bucket", bucket.into());
        judge.at_least("quality.bucket", bucket as f64, config.min_bucket as f64)?;
    }
    if config.pareto_alpha > 0.0 {
        let limit = config.pareto_limit(&draft.id);
        if score <= limit {
            return Verdict::Break(broken("quality.pareto", score, limit));
        }
    }
    KEEP
}

fn resample(
    config: &DsirConfig,
    model: &Dsir,
    draft: &mut Draft,
    scratch: &mut StepScratch,
    judge: &mut Judge,
) -> Verdict {
    let (weight, words) = model.weigh(&draft.text, &mut scratch.dsir);
    let key = weight + config.noise(&draft.id);
    note(draft, "dsir", json!({ "weight": weight, "key": key }));
    judge.at_least("dsir.words", words as f64, config.min_words as f64)?;
    // no limit at all: infinity is no number in the files of figures
    judge.at_least("dsir.weight", weight, f64::MIN)?;
    judge.at_least("dsir.key", key, config.min_key.unwrap_or(f64::MIN))
}

fn perplexity(
    config: &PerplexityConfig,
    model: &NgramModel,
    draft: &mut Draft,
    judge: &mut Judge,
) -> Verdict {
    let value = match config.lowercase {
        true => model.document_perplexity(&draft.text.to_lowercase()),
        false => model.document_perplexity(&draft.text),
    };
    note(draft, "perplexity", json!((value * 1e3).round() / 1e3));
    if let Some(bucket) = config.bucket(value) {
        note(draft, "perplexity_bucket", bucket.into());
    }
    judge.at_least("perplexity.value", value, config.min)?;
    let most = if config.max > 0.0 {
        config.max
    } else {
        f64::INFINITY
    };
    judge.at_most("perplexity.max", value, most)
}

/// Opens a language step's model and compares what is to be kept with its labels.
fn open_identifier(step: usize, config: &LanguageConfig) -> Result<Identifier> {
    let identifier = Identifier::open(&config.model)?;
    match config.keep.iter().position(|code| !identifier.knows(code)) {
        None => Ok(identifier),
        Some(i) => Err(Error::Config {
            key: format!("step[{step}].language.keep[{i}]"),
            found: format!("{:?}", config.keep[i]),
            wanted: format!("a label of the model {}", config.model),
        }),
    }
}

/// Puts a value into the document's `meta`.
fn note(draft: &mut Draft, key: &str, value: Value) {
    if !matches!(draft.meta, Some(Value::Object(_))) {
        draft.meta = Some(json!({}));
    }
    if let Some(Value::Object(meta)) = draft.meta.as_mut() {
        meta.insert(key.to_string(), value);
    }
}

fn normalize(config: &NormalizeConfig, draft: &mut Draft, rewritten: &mut String) {
    draft.repairs = config.repair(&draft.text, rewritten);
    if !draft.repairs.is_empty() {
        std::mem::swap(&mut draft.text, rewritten);
        let made: serde_json::Map<String, Value> = draft
            .repairs
            .made()
            .map(|(name, lines)| (name.to_string(), lines.into()))
            .collect();
        note(draft, "normalized", Value::Object(made));
    }
}

/// Four digits are more than a share of letters means.
fn shares<'a>(shares: impl Iterator<Item = (&'a str, f64)>) -> Value {
    let round = |share: f64| (share * 1e4).round() / 1e4;
    let pairs = shares.map(|(name, share)| (name.to_string(), round(share).into()));
    Value::Object(pairs.collect())
}

fn name_language(
    config: &LanguageConfig,
    identifier: &Identifier,
    draft: &mut Draft,
    scratch: &mut StepScratch,
    judge: &mut Judge,
) -> Verdict {
    if config.scripts {
        let found = script_shares(&draft.text);
        let found = shares(found.iter().map(|(script, share)| (script.code(), *share)));
        note(draft, "scripts", found);
    }
    let confidence = if config.per_paragraph {
        let found = mixture(identifier, &draft.text, &mut scratch.mixture);
        let (code, share) = found.main().unwrap_or(("und", 0.0));
        draft.language = code.to_string();
        let found = shares(
            found
                .shares
                .iter()
                .map(|(code, share)| (code.as_str(), *share)),
        );
        note(draft, "languages", found);
        share
    } else {
        let (code, confidence) = identifier.identify(&draft.text, &mut scratch.language);
        draft.language = code.to_string();
        confidence
    };
    if !config.keep.is_empty() && !config.keep.contains(&draft.language) {
        let wanted = config.keep.join(" ");
        return Verdict::Break(broken("language.keep", draft.language.as_str(), wanted));
    }
    judge.at_least("language.min_confidence", confidence, config.min_confidence)
}

fn name_code(config: &CodeConfig, draft: &mut Draft, judge: &mut Judge) -> Verdict {
    let guess = identify_code(&draft.text, draft.url.as_deref());
    note(draft, "code", Value::String(guess.label.to_string()));
    if !config.keep.is_empty() && !config.keep.iter().any(|k| k == guess.label) {
        let wanted = config.keep.join(" ");
        return Verdict::Break(broken("code.keep", guess.label, wanted));
    }
    judge.at_least(
        "code.min_confidence",
        guess.confidence,
        config.min_confidence,
    )
}
