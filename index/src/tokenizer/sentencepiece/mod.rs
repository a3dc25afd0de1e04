//! SentencePiece models: ids equal to the reference program's `encode(text)` without bos and eos, and its `decode`.
//!
//! Paper: Kudo & Richardson 2018, arXiv:1808.06226. Facts: sentencepiece 0.2.3 (Unigram and BPE; word and char
//! models are refused). Encoding: normalise (normalize.rs), segment (unigram.rs or bpe.rs), then characters outside
//! the vocabulary become byte pieces, or one unknown id per run. Control pieces such as `<s>` in text are text.

mod bpe;
mod decode;
mod normalize;
mod proto;
mod sink;
pub(super) mod trie;
mod unigram;

use bpe::Bpe;
use normalize::Normalizer;
use proto::{Algorithm, Kind};
use rustc_hash::FxHashMap;
use sink::{Sink, byte_of};
use unigram::Unigram;

/// Longest text in bytes, before and after normalisation: positions are 31 bits, as in the reference.
const MOST_BYTES: usize = i32::MAX as usize;

/// A loaded model. Shared by threads.
#[derive(Debug)]
pub(super) struct SentencePiece {
    model: proto::Model,
    ids: FxHashMap<String, u32>,
    normalizer: Normalizer,
    denormalizer: Option<Normalizer>,
    cutter: Cutter,
    unknown: u32,
    /// Ids of the 256 byte pieces, if unknown characters fall back to them.
    byte_ids: Option<Box<[u32; 256]>>,
}

#[derive(Debug)]
enum Cutter {
    Unigram(Unigram),
    Bpe(Bpe),
}

/// Buffers of one thread.
#[derive(Default)]
pub(super) struct Scratch {
    normalized: Vec<u8>,
    arrivals: Vec<unigram::Arrival>,
    bpe: bpe::Scratch,
}

impl SentencePiece {
    /// Parses a `.model` file's bytes with the reference program's checks. The error names the location.
    pub(super) fn parse(bytes: &[u8]) -> Result<SentencePiece, String> {
        let model = proto::parse(bytes)?;
        let mut ids = FxHashMap::default();
        let (mut unknown, mut byte_ids) = (None, vec![None; 256]);
        for (id, p) in (0u32..).zip(&model.pieces) {
            let found = |what: &str| format!("piece {id} ({:?}): {what}", p.text);
            if let Some(first) = ids.insert(p.text.clone(), id) {
                return Err(found(&format!(
                    "found the text of piece {first}, wanted a new one"
                )));
            }
            if p.kind == Kind::Unknown && unknown.replace(id).is_some() {
                return Err(found(
                    "found a second unknown piece, wanted one in the model",
                ));
            }
            if p.kind == Kind::Byte {
                let slot = byte_of(&p.text).and_then(|b| byte_ids.get_mut(usize::from(b)));
                match slot {
                    Some(slot) if model.byte_fallback => *slot = Some(id),
                    Some(_) => return Err(found("found a byte piece in a model without fallback")),
                    None => return Err(found("found a byte piece, wanted <0x00> to <0xFF>")),
                }
            }
        }
        let unknown = unknown.ok_or("pieces: found no unknown piece, wanted one")?;
        let byte_ids = match (
            model.byte_fallback,
            byte_ids.into_iter().collect::<Option<Vec<u32>>>(),
        ) {
            (false, _) => None,
            (true, Some(ids)) => ids.into_boxed_slice().try_into().ok(),
            (true, None) => {
                return Err(
                    "pieces: found byte_fallback with fewer than 256 byte pieces, wanted all"
                        .into(),
                );
            }
        };
        let user_defined: Vec<&str> = (model.pieces.iter())
            .filter(|p| p.kind == Kind::UserDefined)
            .map(|p| p.text.as_str())
            .collect();
        let normalizer =
            Normalizer::new(&model.normalizer, model.whitespace_as_suffix, &user_defined)?;
        let denormalizer = match &model.denormalizer {
            Some(spec) if !spec.charsmap.is_empty() => Some(Normalizer::new(spec, false, &[])?),
            _ => None,
        };
        let cutter = match model.algorithm {
            Algorithm::Unigram => Cutter::Unigram(Unigram::new(&model.pieces, unknown)?),
            Algorithm::Bpe => Cutter::Bpe(Bpe::new(&model.pieces, unknown)?),
        };
        Ok(SentencePiece {
            model,
            ids,
            normalizer,
            denormalizer,
            cutter,
            unknown,
            byte_ids,
        })
    }

    /// Texts of all pieces, in the order of their ids.
    pub(super) fn pieces(&self) -> impl Iterator<Item = &str> {
        self.model.pieces.iter().map(|p| p.text.as_str())
    }

    /// Surface forms of bos, eos and pad; not every vocabulary has them.
    pub(super) fn roles(&self) -> [&str; 3] {
        [&self.model.bos, &self.model.eos, &self.model.pad]
    }

    /// Text of the unknown piece.
    pub(super) fn unknown(&self) -> &str {
        &self.model.pieces[self.unknown as usize].text
    }

    /// Id of a control piece by its text.
    pub(super) fn control(&self, text: &str) -> Option<u32> {
        let id = *self.ids.get(text)?;
        let piece = self.model.pieces.get(id as usize)?;
        (piece.kind == Kind::Control).then_some(id)
    }

    /// Control pieces (BOS, EOS, ...) by their texts.
    pub(super) fn controls(&self) -> Vec<(String, u32)> {
        let pieces = (0u32..).zip(&self.model.pieces);
        let controls = pieces.filter(|(_, piece)| piece.kind == Kind::Control);
        controls.map(|(id, p)| (p.text.clone(), id)).collect()
    }

    /// Appends the ids of `text`.
    pub(super) fn encode_into(
        &self,
        text: &str,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) -> Result<(), String> {
        let short = |len: usize| {
            (len < MOST_BYTES)
                .then_some(())
                .ok_or_else(|| format!("text of {len} bytes, wanted fewer than {MOST_BYTES}"))
        };
        short(text.len())?;
        scratch.normalized.clear();
        self.normalizer.normalize(text, &mut scratch.normalized);
        short(scratch.normalized.len())?;
        let first = out.len();
        let mut sink = Sink {
            out,
            unknown: self.unknown,
            byte_ids: self.byte_ids.as_deref(),
            backwards: false,
            after_unknown: false,
        };
        match &self.cutter {
            Cutter::Unigram(unigram) => {
                sink.backwards = true;
                unigram.encode_backwards(&scratch.normalized, &mut scratch.arrivals, &mut sink);
                out[first..].reverse();
            }
            Cutter::Bpe(bpe) => bpe.encode(&scratch.normalized, &mut scratch.bpe, &mut sink),
        }
        Ok(())
    }
}
