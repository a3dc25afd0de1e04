//! Differences between the Unicode tables of tokenizers 0.23.3 and the newer ones of the library used here.
//!
//! 0.23.3 takes punctuation from Unicode 8 and decompositions from Unicode 13, the release candidate both from
//! Unicode 17: BERT's splitter cuts at 141 code points that 0.23.3 does not cut at, leaves 2 whole that it cuts at,
//! and 21 are decomposed that 0.23.3 leaves as they are. Texts with none of these are treated equally by both.
//! Tables: `tests/oracles/tokenizer_kinds.py`; every code point is compared in `kinds.rs`.

use serde_json::Value;

/// First and last code point of each run of punctuation above ASCII, u32 little-endian.
const PUNCTUATION: &[u8] = include_bytes!("punctuation.bin");

/// Code points that the two treat differently, ascending.
const UNSETTLED: [u32; 164] = [
    0x61d, 0x9fd, 0xa76, 0xc77, 0xc84, 0x166d, 0x1b4e, 0x1b4f, 0x1b7d, 0x1b7e, 0x1b7f, 0x2e43,
    0x2e44, 0x2e45, 0x2e46, 0x2e47, 0x2e48, 0x2e49, 0x2e4a, 0x2e4b, 0x2e4c, 0x2e4d, 0x2e4e, 0x2e4f,
    0x2e52, 0x2e53, 0x2e54, 0x2e55, 0x2e56, 0x2e57, 0x2e58, 0x2e59, 0x2e5a, 0x2e5b, 0x2e5c, 0x2e5d,
    0x105c9, 0x105e4, 0x10d6e, 0x10ead, 0x10ed0, 0x10f55, 0x10f56, 0x10f57, 0x10f58, 0x10f59,
    0x10f86, 0x10f87, 0x10f88, 0x10f89, 0x111c9, 0x11383, 0x11385, 0x1138e, 0x11391, 0x113c5,
    0x113c7, 0x113c8, 0x113d4, 0x113d5, 0x113d7, 0x113d8, 0x1144b, 0x1144c, 0x1144d, 0x1144e,
    0x1144f, 0x1145a, 0x1145b, 0x1145d, 0x11660, 0x11661, 0x11662, 0x11663, 0x11664, 0x11665,
    0x11666, 0x11667, 0x11668, 0x11669, 0x1166a, 0x1166b, 0x1166c, 0x116b9, 0x1183b, 0x11938,
    0x11944, 0x11945, 0x11946, 0x119e2, 0x11a3f, 0x11a40, 0x11a41, 0x11a42, 0x11a43, 0x11a44,
    0x11a45, 0x11a46, 0x11a9a, 0x11a9b, 0x11a9c, 0x11a9e, 0x11a9f, 0x11aa0, 0x11aa1, 0x11aa2,
    0x11b00, 0x11b01, 0x11b02, 0x11b03, 0x11b04, 0x11b05, 0x11b06, 0x11b07, 0x11b08, 0x11b09,
    0x11be1, 0x11c41, 0x11c42, 0x11c43, 0x11c44, 0x11c45, 0x11c70, 0x11c71, 0x11ef7, 0x11ef8,
    0x11f43, 0x11f44, 0x11f45, 0x11f46, 0x11f47, 0x11f48, 0x11f49, 0x11f4a, 0x11f4b, 0x11f4c,
    0x11f4d, 0x11f4e, 0x11f4f, 0x11fff, 0x12ff1, 0x12ff2, 0x16121, 0x16122, 0x16123, 0x16124,
    0x16125, 0x16126, 0x16127, 0x16128, 0x16d68, 0x16d69, 0x16d6a, 0x16d6d, 0x16d6e, 0x16d6f,
    0x16e97, 0x16e98, 0x16e99, 0x16e9a, 0x16fe2, 0x1e5ff, 0x1e95e, 0x1e95f,
];

/// Whether a `tokenizer.json` has a step whose tables differ.
pub(super) fn matters_to(value: &Value) -> bool {
    const STEPS: [&str; 6] = [
        "BertPreTokenizer",
        "Punctuation",
        "BertNormalizer",
        "NFD",
        "NFKD",
        "StripAccents",
    ];
    fn has(value: &Value) -> bool {
        let own = value["type"].as_str().is_some_and(|t| STEPS.contains(&t));
        let members = [&value["normalizers"], &value["pretokenizers"]];
        let mut members = members.into_iter().filter_map(Value::as_array).flatten();
        own || members.any(has)
    }
    has(&value["normalizer"]) || has(&value["pre_tokenizer"])
}

/// Whether the two versions treat a character differently.
pub(super) fn is_unsettled(c: char) -> bool {
    UNSETTLED.binary_search(&u32::from(c)).is_ok()
}

/// Whether a text has such a character.
pub(super) fn is_in(text: &str) -> bool {
    !text.is_ascii() && text.chars().any(is_unsettled)
}

/// Punctuation as 0.23.3's BERT splitter has it.
pub(super) fn is_punctuation(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_punctuation();
    }
    let (runs, _) = PUNCTUATION.as_chunks::<8>();
    let run = |bytes: &[u8; 8]| {
        let [a, b, c, d, e, f, g, h] = *bytes;
        u32::from_le_bytes([a, b, c, d])..=u32::from_le_bytes([e, f, g, h])
    };
    let after = runs.partition_point(|bytes| *run(bytes).start() <= u32::from(c));
    after > 0 && run(&runs[after - 1]).contains(&u32::from(c))
}
