//! Integration tests: one binary, one module per area of claims. Oracles are outside programs; their answers are in
//! `data/`, with the scripts that made them in `oracles/`.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod architecture;
mod arguments;
mod bad_input;
mod blend_jobs;
mod checkpoints;
mod classify_jobs;
mod convert;
mod curation;
mod cut_jobs;
mod datatrove;
mod determinism;
mod documents;
mod duplicates;
mod executors;
mod export;
mod fields;
mod finetune_jobs;
mod folder;
mod full_disk;
mod generate;
mod gpu;
mod hostile_numbers;
mod hosts;
mod imports;
mod jobs;
mod key_reference;
mod launch;
mod lm_eval;
mod masked_jobs;
mod megatron;
mod megatron_masked;
mod models;
mod new_jobs;
mod plan;
mod plan_run;
mod preference_jobs;
mod prompt_tuning_jobs;
mod quantize_jobs;
mod samplers;
mod schema;
mod serve;
mod serve_adapters;
mod shell;
mod status;
mod takedown;
mod takedown_datasets;
mod tokenize;
mod tokenize_files;
mod transformers;
mod watch;
mod wrong_inputs;
mod wrong_jobs;
mod wrong_lines;
