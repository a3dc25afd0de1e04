//! Merge of several datasets into one, equal to tokenizing their documents in one go.
//!
//! Tokens are copied as they are, lengths follow each other, document boundaries are moved by the sequences before.
//! The result equals Megatron's `tools/merge_datasets.py` over the same prefixes in the same order.
//! We differ: the order is the caller's (Megatron's tool sorts names), and inputs are verified before a byte is written.

use crate::dataset::paths::idx_path;
use crate::dataset::read::Dataset;
use crate::dataset::write::{DatasetWriter, Written};
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};

/// Merges `parts` (prefixes) into `prefix`.
///
/// # Errors
/// `Io` and `Format` of a part; `Mismatch` if there is no part, a part has another token type or some have modes.
pub fn merge(parts: &[PathBuf], prefix: &Path) -> Result<Written> {
    let mismatch = |path: &Path, field, found: String, wanted: String| Error::Mismatch {
        path: path.to_path_buf(),
        field,
        found,
        wanted,
    };
    let parts = parts
        .iter()
        .map(|p| Dataset::open(p))
        .collect::<Result<Vec<_>>>()?;
    let Some(first) = parts.first() else {
        return Err(mismatch(
            prefix,
            "parts",
            "none".into(),
            "one or more".into(),
        ));
    };
    let with_modes = parts.iter().any(|p| p.modes().is_some());
    for part in &parts {
        if part.token_type() != first.token_type() {
            return Err(mismatch(
                &idx_path(part.prefix()),
                "token type",
                part.token_type().name().into(),
                format!(
                    "{} as in {}",
                    first.token_type().name(),
                    first.prefix().display()
                ),
            ));
        }
        // a part without sequences has no modes to have
        if with_modes && part.modes().is_none() && part.sequences() > 0 {
            return Err(mismatch(
                &idx_path(part.prefix()),
                "sequence modes",
                "none".into(),
                "modes, as other parts have them".into(),
            ));
        }
    }
    let mut writer = DatasetWriter::create(prefix, first.token_type())?;
    for part in &parts {
        writer.dataset(part)?;
    }
    writer.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::idx_format::TokenType;
    use crate::dataset::write::put_tokens;

    fn write(prefix: &Path, token_type: TokenType, documents: &[&[u32]], modes: bool) {
        let mut w = DatasetWriter::create(prefix, token_type).unwrap();
        for d in documents {
            let mut bytes = Vec::new();
            put_tokens(token_type, d, &mut bytes).unwrap();
            // one sequence per token: several sequences per document
            let lengths = vec![1; d.len()];
            w.append(&bytes, &lengths, &[u32::try_from(d.len()).unwrap()])
                .unwrap();
            if modes {
                w.modes(&vec![3; d.len()]);
            }
        }
        w.finish().unwrap();
    }

    #[test]
    fn merging_parts_gives_the_bytes_of_one_write() {
        let dir = tempfile::tempdir().unwrap();
        let at = |n: &str| dir.path().join(n);
        let documents: [&[u32]; 6] = [&[1, 2], &[], &[3], &[4, 5, 6], &[], &[7]];
        for modes in [false, true] {
            write(&at("whole"), TokenType::U16, &documents, modes);
            for cuts in [[0, 2], [2, 5], [3, 3], [6, 6]] {
                write(&at("a"), TokenType::U16, &documents[..cuts[0]], modes);
                write(
                    &at("b"),
                    TokenType::U16,
                    &documents[cuts[0]..cuts[1]],
                    modes,
                );
                write(&at("c"), TokenType::U16, &documents[cuts[1]..], modes);
                let written = merge(&[at("a"), at("b"), at("c")], &at("merged")).unwrap();
                assert_eq!((written.documents, written.tokens), (6, 7));
                for suffix in ["bin", "idx"] {
                    let read = |n: &str| std::fs::read(at(n).with_extension(suffix)).unwrap();
                    assert_eq!(read("merged"), read("whole"), "{suffix} cut at {cuts:?}");
                }
            }
        }
        assert_eq!(
            Dataset::open(&at("merged")).unwrap().modes(),
            Some(&[3; 7][..])
        );
    }

    #[test]
    fn parts_that_disagree_are_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let at = |n: &str| dir.path().join(n);
        write(&at("a"), TokenType::U16, &[&[1]], false);
        write(&at("b"), TokenType::I32, &[&[1]], false);
        write(&at("c"), TokenType::U16, &[&[1]], true);
        let why = |parts: &[PathBuf]| merge(parts, &at("m")).unwrap_err().to_string();
        assert!(why(&[at("a"), at("b")]).contains("b.idx: token type: found int32, wanted uint16"));
        assert!(why(&[at("a"), at("c")]).contains("a.idx: sequence modes: found none"));
        assert!(why(&[]).contains("parts: found none"));
        assert!(!at("m.bin").exists() && !at("m.idx").exists());
    }
}
