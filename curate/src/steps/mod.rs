//! What the steps of the chain do to a document: repair it, name it, measure it, judge it.
//!
//! Models and lists of steps are opened once, before any data is read. A judge keeps the figures of every rule if a
//! condition asks for them.

mod condition;
mod models;
mod names;
mod opened;

use serde_json::{Value, json};

use crate::clock::Clock;
use crate::config::Step;
use crate::dsir::DsirScratch;
use crate::error::Result;
use crate::fasttext::FastTextScratch;
use crate::language::{LanguageScratch, MixtureScratch};
use crate::normalize::Repairs;
use crate::text::Scratch;
use crate::verdict::{Judge, KEEP, Measure, Verdict};

pub(crate) use condition::TEXTS;
use condition::meets;
use models::{perplexity, quality_signals, resample, score};
use names::{name_code, name_language, normalize};
use opened::Opened;

/// A document on its way.
#[derive(Clone, Default)]
pub(crate) struct Draft {
    pub(crate) id: String,
    pub(crate) url: Option<String>,
    pub(crate) subset: Option<String>,
    pub(crate) language: String,
    pub(crate) repairs: Repairs,
    /// Rule of each piece of personal data that was found.
    pub(crate) personal: Vec<String>,
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
            let opened = Opened::of(i, step, &steps[..i])?;
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
                found.push(rule.to_string())
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

/// Puts a value into the document's `meta`.
fn note(draft: &mut Draft, key: &str, value: Value) {
    if !matches!(draft.meta, Some(Value::Object(_))) {
        draft.meta = Some(json!({}));
    }
    if let Some(Value::Object(meta)) = draft.meta.as_mut() {
        meta.insert(key.to_string(), value);
    }
}
