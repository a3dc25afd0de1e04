//! Quantization that looks at a model's activations on calibration texts, block by block: GPTQ, AWQ and SmoothQuant.
//!
//! The texts run through a block as it is to measure its linear layers' inputs, with the blocks before it quantized already; the
//! block is quantized, and they run through it again to be the next block's inputs. In memory are one block's weights, the
//! products of its inputs, and the rows of all texts. Results do not depend on the number of threads.
//!
//! An expert's inputs are the rows that chose it. One that no text chooses is rounded to the nearest.

mod block;
mod block_weights;
mod inputs;
mod method;
mod pass;
mod scaling;
mod solver;

pub use method::{Calibration, GptqOptions, LayerError, Method};

use std::path::Path;

use crate::calibrate::block::Block;
use crate::calibrate::block_weights::sites;
use crate::calibrate::pass::Pass;
use crate::checkpoint::huggingface::names::pairs;
use crate::checkpoint::quantized::write::{FolderWriter, expect_fitting};
use crate::checkpoint::weight_source::WeightSource;
use crate::error::{Error, Result};

/// Writes the model of a checkpoint, a Hugging Face or PEFT folder or a GGUF file to the folder `out`, with the linear layers of its
/// blocks in few bits and all else in bf16. `on_block` is called after each
/// block with its number. Returns the layers in the order of the file; none with `SmoothQuant`.
///
/// # Errors
/// As `export_quantized`; no texts, a text that is too long, an id outside the vocabulary, activations that are not finite.
pub fn export_calibrated(
    path: &Path,
    out: &Path,
    calibration: Calibration<'_>,
    on_block: &mut dyn FnMut(usize),
) -> Result<Vec<LayerError>> {
    let Calibration {
        method,
        form,
        texts,
    } = calibration;
    let format = method.format(form);
    let mut source = WeightSource::open(path)?;
    method.check()?;
    expect_fitting(&source.plan, format)?;
    expect_texts(&source, texts)?;
    let is_ordered = matches!(method, Method::Gptq(options) if options.act_order);
    let mut folder = FolderWriter::create(&source.plan, out, format, is_ordered)?;
    let (pairs, shape) = (pairs(&source.plan), source.plan.shape());
    let mut pass = Pass::start(&mut source, texts)?;
    let mut errors = Vec::new();
    let mut at = 0;
    let mut block = 0;
    while at < pairs.len() {
        let prefix = format!("model.layers.{block}");
        let own = pairs[at..].iter();
        let own = own.take_while(|pair| pair.theirs.starts_with(&format!("{prefix}.")));
        let own = own.count();
        if own == 0 {
            let ours = source.read(&pairs[at].ours)?;
            let values: Vec<f32> = pairs[at]
                .elements_of_ours(&shape)
                .map(|i| ours[i])
                .collect();
            folder.write(&pairs[at], &values)?;
            at += 1;
            continue;
        }
        let own = Block {
            number: block,
            sites: &sites(&source.plan, block),
            pairs: &pairs[at..at + own],
            shape: &shape,
        };
        let quantized = own.quantize(method, &mut source, &mut pass)?;
        for pair in own.pairs {
            match quantized.codes.get(&pair.theirs) {
                Some(codes) => folder.write_codes(codes)?,
                None => folder.write(pair, quantized.weights.tensor(&pair.theirs))?,
            }
        }
        errors.extend(quantized.errors);
        at += own.pairs.len();
        on_block(block);
        block += 1;
    }
    folder.finish()?;
    Ok(errors)
}

/// Positions of the model at `path`: the longest text that it reads.
///
/// # Errors
/// A damaged model.
pub fn longest_text(path: &Path) -> Result<usize> {
    Ok(WeightSource::open(path)?.plan.seq_length)
}

fn expect_texts(source: &WeightSource, texts: &[Vec<u32>]) -> Result<()> {
    let most = source.plan.seq_length;
    let wrong = |what, found: String, wanted: String| {
        Err(Error::Request {
            what,
            found,
            wanted,
        })
    };
    if texts.is_empty() {
        return wrong("calibration texts", "none".into(), "at least one".into());
    }
    for text in texts {
        if text.is_empty() || text.len() > most {
            let found = format!("{} tokens", text.len());
            return wrong("calibration text", found, format!("1 to {most} tokens"));
        }
        if let Some(id) = text.iter().find(|id| **id as usize >= source.plan.vocab) {
            let wanted = format!("below the vocabulary of {}", source.plan.vocab);
            return wrong("token of a calibration text", id.to_string(), wanted);
        }
    }
    Ok(())
}
