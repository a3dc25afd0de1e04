//! Quality filters by models and by metrics: fastText and transformer classifiers, language models, importance
//! resampling, source code, conditions.

mod buckets;
mod classifier;
pub mod code;
mod condition;
pub mod dsir;
pub mod fasttext;
pub mod metrics;
mod model_file;
pub mod ngram;
mod perplexity;
mod sample_scores;
mod transformer;

pub use classifier::QualityConfig;
pub use code::CodeConfig;
pub use condition::ExpressionConfig;
pub(crate) use condition::check_name;
pub use dsir::DsirConfig;
pub use perplexity::PerplexityConfig;
pub use sample_scores::{SampleScores, Sampling};
pub use transformer::{ClassifierConfig, ScoreFunction};
