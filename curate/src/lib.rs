#![doc = include_str!("../README.md")]

mod chain;
mod clock;
mod code;
mod config;
mod corpus;
mod decontaminate;
mod dedup;
mod document;
mod dsir;
mod error;
mod extract;
mod fasttext;
mod filter;
#[cfg(test)]
mod hostile;
mod inspect;
mod journal;
mod json;
mod language;
mod names;
mod ngram;
mod normalize;
mod panics;
mod pii;
mod progress;
mod quality;
mod quarantine;
mod read;
mod report;
mod secrets;
mod shard;
mod signals;
mod statistics;
mod steps;
mod store;
mod text;
mod texts;
mod unicode;
mod verdict;
mod words;
mod write;

pub use code::{CODE_LABELS, CodeExamples, CodeGuess, CodeTraining, identify_code};
pub use config::{
    CodeConfig, CurateConfig, DecontaminateConfig, DecontaminateProfile, DedupConfig, ExactConfig,
    Format, Input, KeepPolicy, LanguageConfig, OutputFormat, Problem, Step,
};
pub use corpus::{Corpus, CorpusCounts};
pub use decontaminate::{CutRules, Decontaminator, SampledRules};
pub use dedup::{
    BloomConfig, BloomRemove, BloomReport, Contaminated, CutReport, Decontamination, DedupReport,
    EditList, Fate, KeepList, LineHash, LineKeep, LineUnit, LinesConfig, MinhashConfig,
    MinhashPreset, MinhashScratch, Minhasher, REHYDRATION, Rehydrated, Shingle, ShingleKind,
    SignatureColumn, SignatureFile, SignatureShape, SubstringConfig, SubstringUnit, TaskHits,
    UrlDedupConfig, UrlKeep, VerifyReport, decontaminate, dedup, index_files, merge_indexes,
};
pub use document::{CleanDocument, Documents, KeptDocuments, documents, kept_documents};
pub use dsir::{Dsir, DsirConfig, DsirCut, DsirHash, DsirReport, DsirSide, DsirTraining, dsir_cut};
pub use error::{Error, Result};
pub use extract::{
    BlockFeatures, ExtractConfig, Extracted, Favour, PageMeta, PageSource, TextForm,
    block_features, extract_html, extract_page,
};
pub use fasttext::{
    ClassifierInput, ClassifierLoss, ClassifierReport, ClassifierTraining, FastText,
    FastTextScratch, HeldOut, LabelFigures, ScoreReport, score_corpus,
};
pub use filter::{
    BadWords, BadWordsFilter, C4Profile, C4Quality, Dclm, Dolma, DolmaGopher, Fineweb2,
    Fineweb2Filter, FinewebQuality, GopherQuality, GopherRepetition, Length, Limit, Limits,
    LineAction, LineEdit, LineEditor, Lines, MassiveText, Nemo, Openwebtext, Profile,
    QualitySignal, Redpajama, RedpajamaSignals, UrlConfig, UrlFilter,
};
pub use inspect::{inspect, kind_of};
pub use language::{
    Guess, Identifier, LanguageExamples, LanguageScratch, LanguageTraining, Mixture,
    MixtureScratch, Script, identify, languages, mixture, script_shares,
};
pub use ngram::{
    NgramModel, NgramReport, NgramState, NgramTraining, PerplexityCuts, perplexity_cuts,
};
pub use normalize::{Form, NormalizeConfig, REPAIRS, Repairs};
pub use panics::is_panic_expected;
pub use pii::{PiiAction, PiiConfig, PiiKind};
pub use progress::{Progress, Silent};
pub use quality::{ExpressionConfig, PerplexityConfig, QualityConfig};
pub use read::{Record, each_record};
pub use report::{Sample, ShardReport};
pub use secrets::{HIDDEN, is_secret, is_written_out, shown, without_passwords};
pub use shard::{Curator, Shard, input_files, missing_inputs, shards};
pub use signals::{Candidates, Choice, Expression, Refilter, Signals, WhatIf, read_figures};
pub use statistics::{
    Distinct, Distribution, FIGURES, Frequent, QUANTILES, Row, State, Statistics, TextFigures,
    measure,
};
pub use store::{ObjectFolder, Put, is_inside, is_url};
pub use text::Scratch;
pub use texts::{Found, TextReader, TextRecord, is_plain};
pub use verdict::{Figure, Judge, KEEP, Measure, Reason, Side, Verdict};
pub use words::{Splitter, Word};
pub use write::{OutputFile, checksum};
