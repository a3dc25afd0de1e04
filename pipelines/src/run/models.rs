//! `classifier`, `ngram`, `dsir`: quality models, trained from texts and used by steps of `[curate]`.

use crate::log::print;
use crate::progress::Progress as Bar;
use crate::run::classifiers::open_classifier;
use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use curate::corpus::Corpus;
use curate::quality::dsir::{DsirHash, DsirTraining, dsir_cut};
use curate::quality::fasttext::{
    ClassifierInput, ClassifierLoss, ClassifierTraining, score_corpus,
};
use curate::quality::ngram::{NgramTraining, perplexity_cuts};
use curate::quality::{Sampling, ScoreFunction};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Verbs of `classifier`.
#[derive(Subcommand)]
pub(crate) enum Classifier {
    /// Train a fastText model on texts of two or more labels; prints a report to stdout.
    Train(TrainClassifier),
    /// Score texts; prints the distribution of scores and the thresholds of buckets of equal size.
    Score {
        /// fastText model (.bin or .ftz), or a Hugging Face folder of a transformer.
        #[arg(long, value_name = "PATH")]
        model: PathBuf,
        /// Label whose score counts. Default: hq of a fastText model, the one with the highest score of a transformer.
        #[arg(long)]
        label: Option<String>,
        /// Number of buckets; Nemotron-CC uses 20.
        #[arg(long, default_value_t = 20, value_name = "N")]
        buckets: usize,
        #[command(flatten)]
        texts: Texts,
    },
}

/// Texts: .jsonl, .parquet, .arrow and .feather files, lines of any other file, job folders; compressed or not; patterns are expanded.
#[derive(Args)]
pub(crate) struct Texts {
    /// Files, patterns or job folders.
    #[arg(required = true)]
    inputs: Vec<String>,
    /// Field that holds the text.
    #[arg(long, default_value = "text", value_name = "NAME")]
    field: String,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Loss {
    Softmax,
    Hs,
    Ova,
}

#[derive(Args)]
pub(crate) struct TrainClassifier {
    /// Model to write (.bin).
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Texts of the label hq (repeatable).
    #[arg(long, value_name = "PATH")]
    positive: Vec<String>,
    /// Texts of the label lq (repeatable).
    #[arg(long, value_name = "PATH")]
    negative: Vec<String>,
    /// Texts of another label (repeatable).
    #[arg(long = "texts", value_name = "LABEL=PATH")]
    texts: Vec<String>,
    /// Files in fastText's format, with __label__NAME among the words of a line (repeatable).
    #[arg(long, value_name = "PATH")]
    labelled: Vec<String>,
    /// Field that holds the text.
    #[arg(long, default_value = "text", value_name = "NAME")]
    field: String,
    /// Dimension of the word vectors.
    #[arg(long, default_value_t = 100)]
    dim: usize,
    /// Initial learning rate.
    #[arg(long, default_value_t = 0.1)]
    rate: f64,
    /// Epochs.
    #[arg(long, default_value_t = 5)]
    epochs: usize,
    /// Length of the longest word n-grams.
    #[arg(long, default_value_t = 2, value_name = "N")]
    word_ngrams: usize,
    /// Fewest occurrences of a word in the vocabulary.
    #[arg(long, default_value_t = 1, value_name = "N")]
    min_count: i64,
    /// Hash buckets for n-grams.
    #[arg(long, default_value_t = 2_000_000, value_name = "N")]
    buckets: u32,
    /// Length of the shortest character n-grams.
    #[arg(long, default_value_t = 0, value_name = "N")]
    min_chars: usize,
    /// Length of the longest character n-grams; 0: none.
    #[arg(long, default_value_t = 0, value_name = "N")]
    max_chars: usize,
    /// Output layer: softmax, hierarchical softmax, or one against all.
    #[arg(long, value_enum, default_value = "softmax")]
    loss: Loss,
    /// Seed of the sampling, the order and the initial weights.
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Share of the texts held out to measure the report's accuracy.
    #[arg(long, default_value_t = 0.1, value_name = "SHARE")]
    held_out: f64,
    /// Most texts per label; 0: no limit.
    #[arg(long, default_value_t = 0, value_name = "N")]
    per_label: usize,
    /// Use all texts. Default: as many of each label as the rarest label has.
    #[arg(long)]
    unbalanced: bool,
}

/// Verbs of `ngram`.
#[derive(Subcommand)]
pub(crate) enum Ngram {
    /// Estimate a model with modified Kneser-Ney smoothing, as KenLM's lmplz does; each line of a text is a sentence.
    Train {
        /// Model to write (ARPA).
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// Length of the longest n-grams, 2 to 5 words.
        #[arg(long, default_value_t = 5, value_name = "N")]
        order: usize,
        /// Drop n-grams that occur at most this often, one number per length, e.g. 0,0,1.
        #[arg(long, value_delimiter = ',', value_name = "N,N,..")]
        prune: Vec<u64>,
        /// Use fixed discounts where the counts do not determine any.
        #[arg(long)]
        discount_fallback: bool,
        /// Fold texts to lower case first.
        #[arg(long)]
        lowercase: bool,
        /// Memory for sorting in MiB.
        #[arg(long, default_value_t = 1024, value_name = "MB")]
        memory_mb: usize,
        #[command(flatten)]
        texts: Texts,
    },
    /// Find the perplexities that divide texts into head, middle and tail.
    Buckets {
        /// Model (ARPA or KenLM binary).
        #[arg(long, value_name = "FILE")]
        model: PathBuf,
        /// Share of the texts below each threshold.
        #[arg(long, value_delimiter = ',', default_values_t = [1.0 / 3.0, 2.0 / 3.0], value_name = "SHARE,..")]
        shares: Vec<f64>,
        /// Fold texts to lower case first.
        #[arg(long)]
        lowercase: bool,
        #[command(flatten)]
        texts: Texts,
    },
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Hash {
    Sha256,
    Xxh3,
}

/// Verbs of `dsir`.
#[derive(Subcommand)]
pub(crate) enum Dsir {
    /// Fit a model to the hashed word n-grams of target and raw texts.
    Fit {
        /// Model to write (JSON).
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// Target texts: examples of the documents to select (repeatable).
        #[arg(long, required = true, value_name = "PATH")]
        target: Vec<String>,
        /// Raw texts: examples of the documents to select from (repeatable).
        #[arg(long, required = true, value_name = "PATH")]
        raw: Vec<String>,
        /// Length of the longest word n-grams.
        #[arg(long, default_value_t = 2, value_name = "N")]
        ngrams: usize,
        /// Hash buckets for n-grams.
        #[arg(long, default_value_t = 10_000, value_name = "N")]
        buckets: usize,
        /// Hash of the n-grams: sha256 as the authors' package, or xxh3, which is faster.
        #[arg(long, value_enum, default_value = "sha256")]
        hash: Hash,
        /// Field that holds the text.
        #[arg(long, default_value = "text", value_name = "NAME")]
        field: String,
    },
    /// Find the limit (`min_key`) that keeps a given number of the documents measured by a job's `dsir` step.
    Cut {
        /// Documents to keep.
        #[arg(long, value_name = "N")]
        count: usize,
        /// Job folders or clean shards.
        #[arg(required = true)]
        inputs: Vec<String>,
    },
}

/// Progress of reading and training.
struct Shown(Bar);

impl curate::Progress for Shown {
    fn bytes(&self, _read: u64) {}
    fn documents(&self, read: u64, _kept: u64) {
        self.0.add(read);
    }
}

fn shown(stage: &str) -> Shown {
    Shown(Bar::start(stage, "documents", 0))
}

/// Prints a report to stdout and a line about it to stderr.
fn done(shown: Shown, report: &impl Serialize, said: &str) -> Result<()> {
    shown.0.finish(said);
    print(&format!("{}\n", serde_json::to_string_pretty(report)?))
}

/// `classifier`.
pub(crate) fn classifier(verb: Classifier) -> Result<()> {
    match verb {
        Classifier::Train(args) => train_classifier(&args),
        Classifier::Score {
            model,
            label,
            buckets,
            texts,
        } => {
            let corpus = Corpus::find(&texts.inputs, &texts.field)?;
            let shown = shown("score");
            if model.is_dir() {
                let sampling = Sampling {
                    label: label.unwrap_or_default(),
                    function: ScoreFunction::Auto,
                    buckets,
                };
                let model = open_classifier(&model)?;
                let report = sampling.score(&*model, &corpus, &shown)?;
                return done(shown, &report, &format!("{} documents", report.documents));
            }
            let label = label.unwrap_or_else(|| "hq".to_string());
            let report = score_corpus(&model, &label, buckets, &corpus, &shown)?;
            done(shown, &report, &format!("{} documents", report.documents))
        }
    }
}

fn train_classifier(args: &TrainClassifier) -> Result<()> {
    let find = |paths: &[String]| Corpus::find(paths, &args.field);
    let mut inputs = Vec::new();
    for (label, paths) in [("hq", &args.positive), ("lq", &args.negative)] {
        if !paths.is_empty() {
            let (label, corpus) = (label.to_string(), find(paths)?);
            inputs.push(ClassifierInput::Of { label, corpus });
        }
    }
    for text in &args.texts {
        let Some((label, path)) = text.split_once('=').filter(|t| !t.0.is_empty()) else {
            anyhow::bail!("--texts: found {text:?}, wanted LABEL=PATH");
        };
        let corpus = find(&[path.to_string()])?;
        let label = label.to_string();
        inputs.push(ClassifierInput::Of { label, corpus });
    }
    if !args.labelled.is_empty() {
        inputs.push(ClassifierInput::Labelled(find(&args.labelled)?));
    }
    let training = ClassifierTraining {
        dim: args.dim,
        rate: args.rate,
        epochs: args.epochs,
        word_ngrams: args.word_ngrams,
        min_count: args.min_count,
        buckets: args.buckets,
        min_chars: args.min_chars,
        max_chars: args.max_chars,
        loss: match args.loss {
            Loss::Softmax => ClassifierLoss::Softmax,
            Loss::Hs => ClassifierLoss::Hs,
            Loss::Ova => ClassifierLoss::Ova,
        },
        seed: args.seed,
        held_out: args.held_out,
        per_label: args.per_label,
        balanced: !args.unbalanced,
    };
    let shown = shown("classifier");
    let report = training.train(&inputs, &args.out, &shown)?;
    let said = format!(
        "{}: {} examples, accuracy {:.4} on {} held out",
        args.out.display(),
        report.examples,
        report.held_out.accuracy,
        report.held_out.texts
    );
    done(shown, &report, &said)
}

/// `ngram`.
pub(crate) fn ngram(verb: Ngram) -> Result<()> {
    match verb {
        Ngram::Train {
            out,
            order,
            prune,
            discount_fallback,
            lowercase,
            memory_mb,
            texts,
        } => {
            let training = NgramTraining {
                order,
                prune,
                discount_fallback,
                lowercase,
                memory_mb,
            };
            let corpus = Corpus::find(&texts.inputs, &texts.field)?;
            let shown = shown("ngram");
            let report = training.train(&corpus, &out, &shown)?;
            let said = format!("{}: {} words", out.display(), report.words);
            done(shown, &report, &said)
        }
        Ngram::Buckets {
            model,
            shares,
            lowercase,
            texts,
        } => {
            let corpus = Corpus::find(&texts.inputs, &texts.field)?;
            let shown = shown("buckets");
            let report = perplexity_cuts(&model, &shares, lowercase, &corpus, &shown)?;
            done(shown, &report, &format!("{} documents", report.documents))
        }
    }
}

/// `dsir`.
pub(crate) fn dsir(verb: Dsir) -> Result<()> {
    match verb {
        Dsir::Fit {
            out,
            target,
            raw,
            ngrams,
            buckets,
            hash,
            field,
        } => {
            let training = DsirTraining {
                ngrams,
                buckets,
                hash: match hash {
                    Hash::Sha256 => DsirHash::Sha256,
                    Hash::Xxh3 => DsirHash::Xxh3,
                },
            };
            let target = Corpus::find(&target, &field)?;
            let raw = Corpus::find(&raw, &field)?;
            let shown = shown("dsir");
            let report = training.fit(&target, &raw, &out, &shown)?;
            done(shown, &report, &out.display().to_string())
        }
        Dsir::Cut { count, inputs } => {
            let paths: Vec<&Path> = inputs.iter().map(Path::new).collect();
            let shown = shown("dsir");
            let report = dsir_cut(&paths, count, &shown)?;
            done(shown, &report, &format!("{} documents", report.documents))
        }
    }
}
