//! Description of a dataset for people: counts, checksums and the sidecar.

use crate::dataset::read::{Dataset, at};
use crate::dataset::sidecar::Sidecar;
use crate::dataset::stored::StoredFile;
use crate::error::Result;
use std::path::Path;

/// The output of `millrace inspect PREFIX.idx --json`. `tokens_sha256` is over the ids as little-endian u32
/// (floating-point values cut to whole numbers).
///
/// # Errors
/// As [`Dataset::open`].
pub fn inspect(prefix: &Path) -> Result<serde_json::Value> {
    use sha2::{Digest, Sha256};
    let data = Dataset::open(prefix)?;
    let sidecar = Sidecar::read(prefix)?;
    if let Some(sidecar) = &sidecar {
        sidecar.check(&data)?;
    }
    let mut hash = Sha256::new();
    let mut tokens = vec![0u32; 1 << 16];
    let mut bytes = Vec::with_capacity(4 << 16);
    for i in 0..at(data.sequences()) {
        let length = u64::from(data.length(i));
        let mut from = 0;
        while from < length {
            let n = at((length - from).min(1 << 16));
            data.read(i, from, &mut tokens[..n])?;
            bytes.clear();
            tokens[..n]
                .iter()
                .for_each(|t| bytes.extend_from_slice(&t.to_le_bytes()));
            hash.update(&bytes);
            from += n as u64;
        }
    }
    let show = |d: Option<usize>| -> Result<Vec<u32>> {
        let mut shown = Vec::new();
        for s in d.map_or(0..0, |d| data.document(d)) {
            let n = at(u64::from(data.length(at(s))).min(64 - shown.len() as u64));
            let from = shown.len();
            shown.resize(from + n, 0);
            data.read(at(s), 0, &mut shown[from..])?;
        }
        Ok(shown)
    };
    let sha256 = |file: &StoredFile| -> Result<_> {
        let mut hash = Sha256::new();
        file.stream(0..file.len(), |piece| {
            hash.update(piece);
            Ok(())
        })?;
        Ok(hash.finalize())
    };
    let documents = at(data.documents());
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    Ok(serde_json::json!({
        "kind": "token dataset",
        "dtype": data.token_type().name(),
        "sequences": data.sequences(),
        "documents": data.documents(),
        "tokens": data.tokens(),
        "tokens_sha256": hex(&hash.finalize()),
        "bin_sha256": hex(&sha256(data.bin())?),
        "idx_sha256": hex(&sha256(data.idx())?),
        "first": show((documents > 0).then_some(0))?,
        "last": show(documents.checked_sub(1))?,
        "modes": data.modes().is_some(),
        "sidecar": sidecar,
    }))
}
