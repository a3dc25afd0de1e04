//! The languages that the built-in identifier knows, and the scripts they are written in.
//!
//! Codes are ISO 639-1 where one exists, ISO 639-3 otherwise. All natural languages of ROOTS (Laurencon
//! et al. 2022, arXiv:2303.03915) but Tumbuka, for which no free text was available; those of CLD3 and
//! of Common Crawl's statistics; Akan includes Twi and Fante.

use Script::{
    Arabic, Armenian, Bengali, Burmese, Canadian, Cherokee, Cyrillic, Devanagari, Ethiopic,
    Georgian, Greek, Gujarati, Gurmukhi, Han, Hangul, Hebrew, Kana, Kannada, Khmer, Lao, Latin,
    Malayalam, Mongolian, Nko, Odia, OlChiki, Sinhala, Syriac, Tamil, Telugu, Thaana, Thai,
    Tibetan, Tifinagh, Vai, Yi,
};

use super::script::Script;

/// Scripts with several languages: the model decides.
const SHARED: &[(Script, &str)] = &[
    (
        Latin,
        "af ak ast ay az bm br bs ca ceb co cs cy da de ee en eo es et eu fi fo fon fr fy ga gd gl gn ha \
        haw hr ht hu id ig ilo is it jv kab ki kl ku la lb lg ln lt lus lv mg mi ms mt nb nds nl nn nso ny \
        oc om pl pt qu rn ro rw sk sl sm sn so sq sr ss st su sv sw tk tl tn to tpi tr ts uz ve vi war wo \
        xh yo za zu",
    ),
    (
        Cyrillic,
        "az ba be bg ce cv kk ky mk mn os ru sah sr tg tt uk uz",
    ),
    (Arabic, "ar ckb fa ps sd ug ur"),
    (Devanagari, "bho hi mai mr ne sa"),
    (Ethiopic, "am ti"),
    (Hebrew, "he yi"),
    (Han, "ja zh"),
];

/// Scripts with one language of those known.
const OWN: &[(Script, &str)] = &[
    (Greek, "el"),
    (Armenian, "hy"),
    (Syriac, "syr"),
    (Thaana, "dv"),
    (Bengali, "bn"),
    (Nko, "nqo"),
    (Gurmukhi, "pa"),
    (Gujarati, "gu"),
    (Odia, "or"),
    (Tamil, "ta"),
    (Telugu, "te"),
    (Kannada, "kn"),
    (Malayalam, "ml"),
    (Sinhala, "si"),
    (Thai, "th"),
    (Lao, "lo"),
    (Tibetan, "bo"),
    (Burmese, "my"),
    (Georgian, "ka"),
    (Hangul, "ko"),
    (Cherokee, "chr"),
    (Canadian, "iu"),
    (Khmer, "km"),
    (Mongolian, "mn"),
    (OlChiki, "sat"),
    (Tifinagh, "zgh"),
    (Kana, "ja"),
    (Yi, "ii"),
    (Vai, "vai"),
];

/// Letters of the Bengali script that Assamese has and Bengali lacks: ra and va. No Assamese text of some
/// words is without them.
const ASSAMESE: [char; 2] = ['\u{9f0}', '\u{9f1}'];

/// The language of a text in a script with only one language, or two that a letter distinguishes.
pub(super) fn told_by_letters(script: Script, text: &str) -> Option<&'static str> {
    match script {
        Bengali if text.contains(ASSAMESE) => Some("as"),
        _ => only(script),
    }
}

/// The language of a script that has only one.
fn only(script: Script) -> Option<&'static str> {
    OWN.iter().find(|o| o.0 == script).map(|o| o.1)
}

/// True if `code` is one of several languages written in `script`.
pub(super) fn is_written(code: &str, script: Script) -> bool {
    SHARED
        .iter()
        .any(|(s, codes)| *s == script && codes.split_ascii_whitespace().any(|c| c == code))
}

/// The static form of a known code.
pub(super) fn known(code: &str) -> Option<&'static str> {
    all().find(|&c| c == code)
}

/// Every known code, some of them several times.
fn all() -> impl Iterator<Item = &'static str> {
    let shared = SHARED.iter().flat_map(|s| s.1.split_ascii_whitespace());
    shared.chain(OWN.iter().map(|o| o.1)).chain(["as"])
}

/// Every known code once, in alphabetical order.
pub fn languages() -> Vec<&'static str> {
    let mut codes: Vec<&str> = all().collect();
    codes.sort_unstable();
    codes.dedup();
    codes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_languages_are_known() {
        // Laurencon et al. 2022, table 1; Chinese in both scripts, Akan with Twi
        let roots = "ak ar as bm eu bn ca zh en fon fr gu hi ig id xh zu kn ki rw rn ln lg ml mr ne nso or \
            pt pa st tn es sw ta te ur vi wo ts yo ny sn";
        for code in roots.split_ascii_whitespace() {
            assert!(known(code).is_some(), "{code}");
        }
        assert!(languages().len() >= 140, "{}", languages().len());
    }

    #[test]
    fn a_script_is_either_shared_or_owned() {
        for &script in Script::ALL {
            let shared = SHARED.iter().filter(|s| s.0 == script).count();
            let owned = OWN.iter().filter(|s| s.0 == script).count();
            assert!(shared + owned <= 1, "{script:?}");
        }
    }
}
