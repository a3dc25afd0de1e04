//! What steps need that is not in the job file: models, lists, compiled rules.

use std::path::Path;

use super::condition::open_condition;
use crate::config::{LanguageConfig, Step};
use crate::dsir::Dsir;
use crate::error::{Error, Result};
use crate::fasttext::FastText;
use crate::filter::{BadWordsFilter, Fineweb2Filter, LineEditor, RedpajamaSignals, UrlFilter};
use crate::language::Identifier;
use crate::ngram::NgramModel;
use crate::quality::QualityConfig;
use crate::signals::Expression;

/// What a step needs that is not in the job file.
pub(super) enum Opened {
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

impl Opened {
    /// Opens what step number `step` needs; `before` are those in front of it.
    pub(super) fn of(number: usize, step: &Step, before: &[Step]) -> Result<Opened> {
        Ok(match step {
            Step::Language(config) => Opened::Language(open_identifier(number, config)?),
            Step::Url(config) => Opened::Urls(UrlFilter::open(config)?),
            Step::BadWords(config) => Opened::BadWords(BadWordsFilter::open(config)?),
            Step::Fineweb2(config) => Opened::Fineweb2(Fineweb2Filter::open(config)?),
            Step::Redpajama(config) => Opened::Signals(RedpajamaSignals::open(config)?),
            Step::Lines(config) => Opened::Lines(LineEditor::open(config)?),
            Step::Quality(config) => open_quality(number, config)?,
            Step::Perplexity(config) => {
                Opened::Perplexity(NgramModel::open(Path::new(&config.model))?)
            }
            Step::Dsir(config) => Opened::Dsir(Dsir::open(Path::new(&config.model))?),
            Step::Expression(config) => Opened::Condition(open_condition(number, config, before)?),
            _ => Opened::Nothing,
        })
    }
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
