//! Quality filters by models and by metrics: classifiers, language models, importance resampling, source code,
//! conditions.

mod classifier;
pub mod code;
mod condition;
pub mod dsir;
pub mod fasttext;
pub mod metrics;
mod model_file;
pub mod ngram;
mod perplexity;

pub use classifier::QualityConfig;
pub use code::CodeConfig;
pub use condition::ExpressionConfig;
pub use dsir::DsirConfig;
pub use perplexity::PerplexityConfig;
