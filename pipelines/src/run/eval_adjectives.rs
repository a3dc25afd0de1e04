//! `eval PATH --task adjectives`: sampled continuations of prompts on people, whose adjectives are counted by group.

use crate::generation::{Dtype, Located, ModelFiles, SamplingArgs, answer, encode};
use crate::tasks::{Prompt, Results, adjective_results};
use anyhow::{Result, bail};
use train::infer::GenerateOptions;

/// Texts of each prompt by default, tokens of a text, temperature and nucleus: GPT-3's.
pub(super) const SAMPLES: usize = 800;
const TOKENS: usize = 50;
const TOP_P: f64 = 0.9;

/// Seed of the first text; text i of all has this plus i.
const SEED: u64 = 1234;

/// How texts are sampled.
pub(super) struct Sampling {
    /// Texts of each prompt.
    pub(super) texts: usize,
    pub(super) dtype: Dtype,
}

/// Samples the texts and adds the results, and a line for each text to `records`.
///
/// # Errors
/// A model that does not continue texts.
pub(super) fn evaluate(
    subject: Located,
    sampling: Sampling,
    results: &mut Results,
    records: &mut Vec<u8>,
) -> Result<()> {
    let samples = sampling.texts;
    if samples == 0 {
        bail!("--samples: found 0, want at least 1");
    }
    let files = ModelFiles::read(subject, None)?;
    let args = SamplingArgs::of_dtype(sampling.dtype);
    let mut engine = args.engine(&files)?;
    let mut found = Vec::new();
    let mut seed = SEED;
    for prompt in Prompt::all() {
        let ids = encode(&files.tokenizer, &prompt.text(), false)?;
        let options = GenerateOptions {
            max_tokens: TOKENS,
            temperature: 1.0,
            top_p: TOP_P,
            stop: files.end_ids.iter().map(|&id| vec![id]).collect(),
            ..GenerateOptions::default()
        };
        let mut asked = Vec::with_capacity(samples);
        for _ in 0..samples {
            let options = GenerateOptions {
                seed,
                ..options.clone()
            };
            asked.push((ids.clone(), options));
            seed += 1;
        }
        let answers = answer(&mut engine, &files, &args, asked, &mut |_, _| Ok(()))?;
        log!(
            "eval/adjectives: {} texts after {:?}",
            answers.len(),
            prompt.text()
        );
        found.push((
            prompt,
            answers.into_iter().map(|answer| answer.text).collect(),
        ));
    }
    for (name, result) in adjective_results(&found, records) {
        results.insert(&name, result);
    }
    Ok(())
}
