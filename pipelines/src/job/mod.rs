//! The job file: one struct per table, resolved defaults, and every contradiction between tables.
//!
//! Parse, resolve, print, then run; reading is in `load.rs`. A table that belongs to a crate is that crate's config
//! struct.

mod adapter_table;
mod adapters;
mod blend;
mod check;
mod classify;
mod deserializer;
mod executors;
mod files;
mod finetune;
mod load;
mod markers;
mod module_names;
mod nodes;
pub(crate) mod place;
mod problem;
mod prompt_method;
mod prompt_tuning;
pub(crate) mod reference;
mod secrets;
mod table;
mod task_template;
mod template_table;
mod tokenize;
mod usage;
mod values;

pub(crate) use adapters::ADAPTERS;
pub(crate) use blend::{
    BlendDataset, BlendSampler, BlendSamples, BlendTable, BlendWeights, FimTable,
};
pub(crate) use classify::{ClassifyTable, ClassifyTask};
pub(crate) use curate::text::near::or_nearest;
pub(crate) use executors::{Kubernetes, Ray, Slurm};
pub(crate) use files::Files;
pub(crate) use finetune::{BadRows, ChatFormat, FinetuneTable, TooLong};
pub use load::load;
pub(crate) use load::{LoadError, load_with, problems};
pub(crate) use markers::{Marked, Marker, at_last_marker, at_markers, has_marker, task_of};
pub(crate) use nodes::Nodes;
pub use problem::Problem;
pub use table::Job;
pub(crate) use table::{Eval, EvalPart, Executor, Generate};
pub(crate) use task_template::{Filled, TaskTemplate, TaskTemplates};
pub(crate) use tokenize::{
    DatasetTable, Naming, Sentences, TokenDataset, Tokenize, TokenizerTable,
};
pub(crate) use usage::{Refused, WrongUse};
