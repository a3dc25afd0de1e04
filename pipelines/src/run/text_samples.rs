//! Text samples for the trainer: padding, the optional extra token, and fill-in-the-middle.
//!
//! A sample is L + 1 tokens, so that L of them are predicted from those before. Without the extra token it is L
//! tokens, and the last position has no target. Padding (of a partial last sample, or `blend.pad_id` in the data)
//! is token 0 and is not predicted. Source: megatron-core 0.16.1 `gpt_dataset.py` (`__getitem__`), Megatron-LM
//! `fim_dataset.py` (facts).

use crate::job::{BlendTable, FimTable};
use anyhow::{Context as _, Result};
use index::blend::Blend;
use index::samples::{Fim, FimText, PAD};
use index::tokenizer::Tokenizer;
use std::sync::Arc;

/// A blend and the processing of its samples.
pub(crate) struct TextSamples {
    pub blend: Blend,
    reading: Arc<Reading>,
}

/// Processing of a sample's tokens.
pub(crate) struct Reading {
    pad: Option<u32>,
    fim: Option<(Fim, Tokenizer)>,
}

impl Reading {
    /// From `[blend]`; `tokenizer` is called only if fill-in-the-middle needs it.
    pub(crate) fn of(
        table: &BlendTable,
        tokenizer: impl FnOnce() -> Result<Tokenizer>,
    ) -> Result<Arc<Reading>> {
        let fim = match &table.fim {
            None => None,
            Some(fim) => {
                let tokenizer = tokenizer().context("blend.fim needs the job's tokenizer")?;
                Some((rates(fim, &tokenizer)?, tokenizer))
            }
        };
        Ok(Arc::new(Reading {
            pad: table.pad_id,
            fim,
        }))
    }
}

/// Fill-in-the-middle settings, with token names resolved to ids.
fn rates(fim: &FimTable, tokenizer: &Tokenizer) -> Result<Fim> {
    let id = |key: &str, token: &str| {
        let id = tokenizer.id_of(token);
        id.with_context(|| format!("blend.fim.{key}: the tokenizer has no token {token:?}"))
    };
    Ok(Fim {
        rate: fim.rate,
        spm_rate: fim.spm_rate,
        fragment_rate: fim.fragment_rate,
        split: match &fim.split_sample {
            Some(token) => Some(id("split_sample", token)?),
            None => None,
        },
        no_prefix: fim.no_prefix.clone(),
        prefix: id("prefix_token", &fim.prefix_token)?,
        middle: id("middle_token", &fim.middle_token)?,
        suffix: id("suffix_token", &fim.suffix_token)?,
        pad: id("pad_token", &fim.pad_token)?,
        eod: id("eod_token", &fim.eod_token)?,
    })
}

impl TextSamples {
    pub(crate) fn new(blend: Blend, reading: &Arc<Reading>) -> TextSamples {
        TextSamples {
            blend,
            reading: Arc::clone(reading),
        }
    }

    /// Tokens of a sample: L, and the extra one if samples have it.
    pub(crate) fn tokens(&self) -> usize {
        let first = self.blend.datasets().first();
        let tokens = first.map_or(0, index::samples::GptSamples::sample_tokens);
        usize::try_from(tokens).unwrap_or(usize::MAX)
    }

    /// Fills `tokens` with sample `k` after fill-in-the-middle, padding as [`PAD`]; returns the dataset's number.
    pub(crate) fn read(&self, k: u64, tokens: &mut [u32]) -> index::Result<usize> {
        let Some((fim, tokenizer)) = &self.reading.fim else {
            return self.blend.read(k, tokens);
        };
        let text = FimText {
            decode: &|ids| tokenizer.decode_text(ids),
            encode: &|text| tokenizer.encode(text),
        };
        self.blend.read_fim(k, fim, &text, tokens)
    }

    /// Fills `to` with sample `k` in the trainer's form.
    pub(crate) fn fill(&self, k: u64, to: &mut train::data::TextSample) -> index::Result<()> {
        let n = self.tokens().min(to.tokens.len());
        let (text, missing) = to.tokens.split_at_mut(n);
        self.read(k, text)?;
        missing.fill(PAD);
        for (i, token) in to.tokens.iter_mut().enumerate() {
            if *token == PAD || Some(*token) == self.reading.pad {
                *token = 0;
                if let Some(counts) = i.checked_sub(1).and_then(|i| to.counts.get_mut(i)) {
                    *counts = false;
                }
            }
        }
        Ok(())
    }
}
