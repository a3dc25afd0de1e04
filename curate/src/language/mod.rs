//! Language identification: scripts first, then a small linear model of character n-grams.
//!
//! Many scripts have only one of the known languages (`languages.rs`); in the others a compiled-in model decides
//! (`model.rs`, trained by `examples/train_language.rs`). The script with the most letters is the text's; a text
//! with a tenth of kana among its ideographs is Japanese. Confidence is the share of that script times the model's
//! probability. Of a text longer than `WHOLE` bytes, `PIECES` evenly spread pieces are read.
//!
//! A fastText model (lid.176, GlotLID) can replace the built-in one.

mod config;
mod features;
mod identifier;
mod languages;
mod model;
mod paragraphs;
mod script;
mod train;

use std::path::Path;
use std::sync::LazyLock;

use self::model::{Model, Sums};

pub use self::config::{LanguageConfig, OtherParagraphs};
pub use self::identifier::{Identifier, LanguageScratch};
pub use self::languages::languages;
pub use self::paragraphs::{Mixture, MixtureScratch, mixture};
pub use self::script::{Script, script_shares};
pub use self::train::{LanguageExamples, LanguageTraining};

/// A guess.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guess {
    /// ISO 639-1 code where one exists, ISO 639-3 otherwise; `und` if it cannot be determined.
    pub code: &'static str,
    /// 0 to 1.
    pub confidence: f64,
}

/// Undetermined.
pub(crate) const UNDETERMINED: &str = "und";
const NOTHING: Guess = Guess {
    code: UNDETERMINED,
    confidence: 0.0,
};

/// Texts up to this many bytes are scored as a whole.
const WHOLE: usize = 4096;
/// Pieces of longer texts, `WHOLE / PIECES` bytes each.
const PIECES: usize = 8;
/// Share of kana among kana and ideographs that makes a text Japanese. Chinese prose has next to none.
const KANA: f64 = 0.1;

static MODEL: LazyLock<Model> = LazyLock::new(|| {
    // the file is part of the program and a test reads it
    Model::parse(Path::new("language/model.bin"), include_bytes!("model.bin"))
        .expect("the built-in model is whole")
});

/// True for codes that [`identify`] can return.
pub(crate) fn is_known(code: &str) -> bool {
    code == UNDETERMINED || languages::known(code).is_some()
}

/// Buffers of the built-in model.
#[derive(Default)]
pub(crate) struct Buffers {
    sums: Sums,
    p: Vec<f32>,
}

/// Guesses the language of a text.
pub fn identify(text: &str) -> Guess {
    best(text, &mut Buffers::default())
}

/// The pieces of a text that are scored.
fn sample(text: &str) -> impl Iterator<Item = &str> {
    let (count, length) = if text.len() <= WHOLE {
        (1, text.len())
    } else {
        (PIECES, WHOLE / PIECES)
    };
    (0..count).map(move |i| {
        let start = if count == 1 {
            0
        } else {
            (text.len() - length) * i / (count - 1)
        };
        &text[text.floor_char_boundary(start)..text.floor_char_boundary(start + length)]
    })
}

/// The best language of the text's main script.
fn best(text: &str, buffers: &mut Buffers) -> Guess {
    let Buffers { sums, p } = buffers;
    let model = &*MODEL;
    model.reset(sums);
    for piece in sample(text) {
        model.add(piece, sums);
    }
    let Some((script, share)) = main_script(sums) else {
        return NOTHING;
    };
    let (code, p) = match languages::told_by_letters(script, text) {
        Some(code) => (code, 1.0),
        None => model.best(sums, script, p).unwrap_or((UNDETERMINED, 0.0)),
    };
    Guess {
        code,
        confidence: f64::from(p) * share,
    }
}

/// The script with the most letters and its share of them. Kana and ideographs count as one.
fn main_script(sums: &Sums) -> Option<(Script, f64)> {
    let count = |s: Script| u64::from(sums.letters[s as usize]);
    let all: u64 = sums.letters.iter().map(|&n| u64::from(n)).sum();
    let (kana, han) = (count(Script::Kana), count(Script::Han));
    let east = kana + han;
    let is_japanese = kana > 0 && kana as f64 >= KANA * east as f64;
    let weight = |s: Script| match s {
        Script::Kana if is_japanese => east,
        Script::Han if is_japanese => 0,
        Script::Han => east,
        Script::Kana => 0,
        _ => count(s),
    };
    let best = Script::ALL
        .iter()
        .copied()
        .rev()
        .max_by_key(|&s| weight(s))?;
    (weight(best) > 0).then(|| (best, weight(best) as f64 / all as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_sentences_are_recognised() {
        for (text, code) in [
            (
                "The house is on the hill and the children play in the garden every day.",
                "en",
            ),
            (
                "Das Haus steht auf dem Berg und die Kinder spielen jeden Tag im Garten.",
                "de",
            ),
            ("Это очень красивый дом, который стоит на горе.", "ru"),
            ("これは日本語の文章です。", "ja"),
            ("这是一个中文句子。", "zh"),
            ("ଓଡ଼ିଶା ଭାରତର ଏକ ରାଜ୍ୟ", "or"),
            ("সকলো মানুহৰ অধিকাৰ সমান।", "as"),
            ("সকল মানুষের অধিকার সমান।", "bn"),
            (
                "Umuntu ngumuntu ngabantu; bonke abantu bazalwa bekhululekile.",
                "zu",
            ),
        ] {
            assert_eq!(identify(text).code, code, "{text}");
        }
        assert!(is_known("en") && is_known("und") && !is_known("xx"));
    }

    #[test]
    fn texts_without_letters_are_undetermined() {
        for text in [
            "",
            " \n",
            "12345 + 6",
            "\u{1f600}\u{1f600}",
            "...",
            "\u{301}\u{0}",
        ] {
            let guess = identify(text);
            assert!(guess.confidence <= 1.0);
            if text != "\u{301}\u{0}" {
                assert_eq!(guess, NOTHING, "{text:?}");
            }
        }
    }

    #[test]
    fn long_texts_are_looked_at_from_end_to_end() {
        let german = "Die Kinder spielen jeden Tag im Garten hinter dem Haus. ".repeat(400);
        assert_eq!(identify(&german).code, "de");
        let pieces: Vec<&str> = sample(&german).collect();
        assert_eq!(pieces.len(), PIECES);
        assert!(german.starts_with(pieces[0]) && german.ends_with(pieces[PIECES - 1]));
        // characters of three bytes: pieces start and end between them
        let thai = "สวัสดี".repeat(1000);
        assert!(sample(&thai).all(|p| !p.is_empty()));
    }

    #[test]
    fn the_model_knows_every_language_of_shared_scripts() {
        for code in languages() {
            let in_model = MODEL.layers.iter().any(|l| l.codes.contains(&code));
            let codes = |&s: &Script| ["", "\u{9f0}"].map(|t| languages::told_by_letters(s, t));
            let alone = Script::ALL.iter().flat_map(codes).any(|c| c == Some(code));
            assert!(in_model || alone, "{code}");
        }
    }

    #[test]
    fn a_damaged_model_is_refused() {
        let whole = MODEL.to_bytes();
        assert_eq!(whole, include_bytes!("model.bin"));
        let path = Path::new("m");
        for cut in [0, 7, 8, 11, 15, 19, 25, 300, 5000, whole.len() - 1] {
            assert!(Model::parse(path, &whole[..cut]).is_err(), "cut at {cut}");
        }
        for (at, byte) in [(0, b'X'), (8, 40), (12, 255), (20, 99), (18, 0x7f)] {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            if at == 18 {
                bytes[19] = 0x7f;
                bytes[18] = 0x80;
            }
            assert!(Model::parse(path, &bytes).is_err(), "byte {at}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_gets_an_answer(text in "\\PC{0,300}") {
            let guess = identify(&text);
            proptest::prop_assert!(is_known(guess.code));
            proptest::prop_assert!((0.0..=1.0 + 1e-6).contains(&guess.confidence));
            crate::quality::code::identify_code(&text, Some(&text));
            let shares: f64 = script_shares(&text).iter().map(|s| s.1).sum();
            proptest::prop_assert!(shares == 0.0 || (shares - 1.0).abs() < 1e-9);
        }
    }
}
