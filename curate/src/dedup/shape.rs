//! Shape of the signatures that a job's settings require.

use xxhash_rust::xxh3::xxh3_64;

use super::config::{DedupConfig, KeepPolicy};
use super::minhash::MinhashPreset;
use super::signature::SignatureShape;

impl SignatureShape {
    /// The shape that a config requires.
    pub fn of(config: Option<&DedupConfig>) -> SignatureShape {
        let normalized = config.and_then(|d| d.exact.as_ref());
        let exact = u32::from(normalized.is_some_and(|e| e.normalized));
        let Some((dedup, c)) = config.and_then(|d| Some((d, d.minhash.as_ref()?))) else {
            return SignatureShape {
                exact,
                ..SignatureShape::default()
            };
        };
        let narrow = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        SignatureShape {
            family: if c.preset == MinhashPreset::Fineweb {
                1
            } else {
                2
            },
            kind: c.shingle.kind.code() | (language_number(&c.language) << 8),
            ngram: narrow(c.shingle.n),
            bands: narrow(c.bands),
            rows: narrow(c.rows),
            width: if dedup.keep == KeepPolicy::Datatrove {
                narrow(c.rows)
            } else {
                1
            },
            seed: c.seed,
            exact,
        }
    }
}

/// 24 bits that stand for the language of words; 0: English.
fn language_number(language: &str) -> u32 {
    if language.is_empty() {
        return 0;
    }
    let hash = xxh3_64(language.as_bytes()) & 0x00ff_ffff;
    u32::try_from(hash).unwrap_or(0).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dedup::MinhashConfig;

    #[test]
    fn signatures_of_another_language_have_another_shape() {
        let shape = |language: &str| {
            let minhash = MinhashConfig {
                language: language.to_string(),
                ..MinhashConfig::default()
            };
            SignatureShape::of(Some(&DedupConfig {
                minhash: Some(minhash),
                ..DedupConfig::default()
            }))
        };
        assert_eq!(shape("").kind, 0);
        assert_ne!(shape("de").kind, shape("").kind);
        assert_ne!(shape("de").kind, shape("document").kind);
        assert_eq!(shape("de").kind & 0xff, 0);
    }
}
