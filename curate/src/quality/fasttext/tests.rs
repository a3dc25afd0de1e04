//! Tests of the reader against fastText's own predictions, and with damaged files.

use super::*;

/// fastText 0.9.3's models and answers (`tests/oracles/fasttext_models.py`).
const MODELS: [(&str, &[u8]); 8] = [
    (
        "hs.bin",
        include_bytes!("../../../tests/data/fasttext/hs.bin.zst"),
    ),
    (
        "softmax-wide.bin",
        include_bytes!("../../../tests/data/fasttext/softmax-wide.bin.zst"),
    ),
    (
        "softmax-words.bin",
        include_bytes!("../../../tests/data/fasttext/softmax-words.bin.zst"),
    ),
    (
        "ova.bin",
        include_bytes!("../../../tests/data/fasttext/ova.bin.zst"),
    ),
    (
        "ns.bin",
        include_bytes!("../../../tests/data/fasttext/ns.bin.zst"),
    ),
    (
        "hs-pruned.ftz",
        include_bytes!("../../../tests/data/fasttext/hs-pruned.ftz.zst"),
    ),
    (
        "softmax-odd.ftz",
        include_bytes!("../../../tests/data/fasttext/softmax-odd.ftz.zst"),
    ),
    (
        "softmax-qout.ftz",
        include_bytes!("../../../tests/data/fasttext/softmax-qout.ftz.zst"),
    ),
];
const GOLDEN: &str = include_str!("../../../tests/data/fasttext/golden.jsonl");

fn bytes(name: &str) -> Vec<u8> {
    let model = MODELS.iter().find(|m| m.0 == name).unwrap();
    zstd::decode_all(model.1).unwrap()
}

fn parse(bytes: &[u8]) -> Result<FastText> {
    FastText::read(&mut Source::over(
        Path::new("model"),
        bytes,
        bytes.len() as u64,
    ))
}

#[derive(serde::Deserialize)]
struct Golden {
    model: String,
    text: String,
    best: Vec<(String, f64)>,
}

#[test]
fn labels_and_probabilities_are_fasttexts() {
    let models: Vec<FastText> = MODELS.iter().map(|m| parse(&bytes(m.0)).unwrap()).collect();
    let mut scratch = FastTextScratch::new();
    let mut found = Vec::new();
    let mut compared = 0;
    for line in GOLDEN.lines() {
        let golden: Golden = serde_json::from_str(line).unwrap();
        let at = MODELS.iter().position(|m| m.0 == golden.model).unwrap();
        models[at].predict(&golden.text, 5, &mut scratch, &mut found);
        assert_eq!(found.len(), golden.best.len(), "{line}");
        for (&(label, p), (wanted_label, wanted_p)) in found.iter().zip(&golden.best) {
            assert!((f64::from(p) - wanted_p).abs() < 1e-5, "{p} in {line}");
            // labels of one probability come in any order
            let label = &models[at].labels()[label];
            let equals = golden.best.iter().filter(|b| (b.1 - wanted_p).abs() < 1e-5);
            let tied: Vec<&String> = equals.map(|b| &b.0).collect();
            let last = golden
                .best
                .last()
                .is_some_and(|b| (b.1 - wanted_p).abs() < 1e-5);
            assert!(
                label == wanted_label || tied.contains(&label) || last,
                "{label} in {line}"
            );
        }
        compared += 1;
    }
    assert!(compared > 700);
}

#[test]
fn answers_do_not_depend_on_what_is_remembered() {
    let model = parse(&bytes("hs.bin")).unwrap();
    let other = parse(&bytes("ova.bin")).unwrap();
    let texts: Vec<String> = GOLDEN
        .lines()
        .map(|l| serde_json::from_str::<Golden>(l).unwrap().text)
        .collect();
    let mut warm = FastTextScratch::new();
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for (i, text) in texts.iter().enumerate().take(150) {
        if i % 7 == 0 {
            other.predict(text, 1, &mut warm, &mut a);
        }
        model.predict(text, 3, &mut warm, &mut a);
        model.predict(text, 3, &mut FastTextScratch::new(), &mut b);
        assert_eq!(a, b, "{text:?}");
    }
}

#[test]
fn line_feeds_are_white_space() {
    let model = parse(&bytes("hs.bin")).unwrap();
    let mut scratch = FastTextScratch::new();
    let (mut a, mut b) = (Vec::new(), Vec::new());
    model.predict("everyone has\nthe\n\nright\n", 3, &mut scratch, &mut a);
    model.predict("everyone has the right", 3, &mut scratch, &mut b);
    assert_eq!(a, b);
    assert!(!a.is_empty());
    model.predict("everyone", 0, &mut scratch, &mut a);
    assert!(a.is_empty());
}

#[test]
fn what_is_no_model_is_named_with_its_offset() {
    let message = |bytes: &[u8]| parse(bytes).err().unwrap().to_string();
    assert_eq!(
        message(b""),
        "model: at byte 0: found 0 bytes left, expected magic number"
    );
    assert!(
        message(b"{\"vectors\": 1}").contains("at byte 0: found 1702240891, expected 793712314")
    );
    let whole = bytes("hs.bin");
    let mut vectors = whole.clone();
    vectors[8 + 7 * 4] = 2;
    assert!(message(&vectors).contains("at byte 36: found 2, expected model: 3"));
    let mut version = whole.clone();
    version[4] = 13;
    assert!(message(&version).contains("at byte 4: found 13, expected model version: 11 to 12"));
    assert!(message(&whole[..whole.len() - 1]).contains("bytes left, expected"));
    let mut longer = whole.clone();
    longer.push(0);
    let wanted = format!(
        "at byte {}: found 1 more bytes, expected the end",
        whole.len()
    );
    assert!(message(&longer).contains(&wanted));
}

#[test]
fn every_cut_of_a_model_is_an_error() {
    for (name, _) in MODELS {
        let whole = bytes(name);
        let mut cut = 0;
        while cut < whole.len() {
            assert!(parse(&whole[..cut]).is_err(), "{name} cut at {cut}");
            cut += if cut < 3000 { 1 } else { 997 };
        }
    }
}

/// Bytes changed at random: an error or some answer, never a panic; memory stays that of the file's
/// size, because sizes are compared with it first.
#[test]
fn flipped_bytes_neither_panic_nor_allocate() {
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random % below as u64).unwrap()
    };
    let mut scratch = FastTextScratch::new();
    let mut found = Vec::new();
    for (name, _) in MODELS {
        let whole = bytes(name);
        for round in 0..400 {
            let mut damaged = whole.clone();
            for _ in 0..1 + next(4) {
                // headers and dictionary more often than weights
                let at = next(if round % 2 == 0 { 200 } else { whole.len() });
                damaged[at] = u8::try_from(next(256)).unwrap();
            }
            if let Ok(model) = parse(&damaged) {
                model.predict(
                    "the right of all \u{434}\u{430}",
                    3,
                    &mut scratch,
                    &mut found,
                );
                assert!(found.len() <= 3);
            }
        }
    }
}
