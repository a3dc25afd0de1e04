//! Byte-level BPE training: Hugging Face's trainer on our word counts.
//!
//! Papers: Sennrich et al. 2016, arXiv:1508.07909; byte alphabet and pattern: Radford et al. 2019 (GPT-2). Ties in pair
//! counts go to the smaller ids.

use super::settings::TrainSettings;
use crate::tokenizer::alphabet::byte_alphabet;
use crate::tokenizer::load::tokenizer_json;
use ahash::AHashMap;
use compact_str::CompactString;
use tokenizers::vocab::bucket_added_vocabulary::AddedToken;

/// A `tokenizer.json`. Special tokens come first, the end of a document as id 0.
pub(super) fn train(
    settings: &TrainSettings,
    counts: &[(Box<[u8]>, u64)],
) -> Result<String, String> {
    let alphabet = byte_alphabet();
    // The trainer numbers words in this map's order and its hasher is seeded per process: the order reaches
    // only sums of counts, which do not depend on it (shown by a test that trains twice).
    let mut words: AHashMap<CompactString, u64> = AHashMap::with_capacity(counts.len());
    for (word, count) in counts {
        let chars = word.iter().map(|b| alphabet[usize::from(*b)]).collect();
        words.insert(chars, *count);
    }
    let special = settings.specials();
    let added = special.iter().map(|t| AddedToken::from(*t, true)).collect();
    let trainer = tokenizers::trainers::BpeTrainer::builder()
        .vocab_size(settings.vocab)
        .min_frequency(settings.min_frequency)
        .show_progress(false)
        .special_tokens(added)
        .initial_alphabet(alphabet.iter().copied().collect())
        .build();
    let (vocab, merges, _) = trainer.do_train(&words).map_err(|e| e.to_string())?;
    let mut entries: Vec<(String, u32)> = vocab.into_iter().collect();
    entries.sort_by_key(|(_, id)| *id);
    Ok(tokenizer_json(&entries, &merges, &special))
}
