//! Shape of the signatures that a job's settings require.

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
            kind: c.shingle.kind.code(),
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
