//! Language identification without a model file: whatlang on a sample of the text.
//!
//! Paper: Cavnar & Trenkle 1994 (trigram ranks), as the `whatlang` crate does it for 69 languages.
//! whatlang runs at 4 MB/s, so it sees at most [`SAMPLE`] bytes, in three pieces from the start, the
//! middle and the end of the text.

use whatlang::Lang;

/// Bytes of text that are looked at.
const SAMPLE: usize = 1024;

/// A guess.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guess {
    /// ISO 639-1 code where one exists, ISO 639-3 otherwise; `und` if nothing can be told.
    pub code: &'static str,
    /// 0 to 1.
    pub confidence: f64,
}

/// ISO 639-3 to 639-1 for whatlang's languages.
const CODES: &str = "afr af aka ak amh am ara ar aze az bel be ben bn bul bg cat ca ces cs cmn zh dan da \
    deu de ell el eng en epo eo est et fin fi fra fr guj gu heb he hin hi hrv hr hun hu hye hy ind id \
    ita it jav jv jpn ja kan kn kat ka khm km kor ko lat la lav lv lit lt mal ml mar mr mkd mk mya my \
    nep ne nld nl nob nb ori or pan pa pes fa pol pl por pt ron ro rus ru sin si slk sk slv sl sna sn \
    spa es srp sr swe sv tam ta tel te tgl tl tha th tuk tk tur tr ukr uk urd ur uzb uz vie vi yid yi \
    zul zu cym cy";

/// The short code of a whatlang language.
fn short(lang: Lang) -> &'static str {
    let long = lang.code();
    let mut words = CODES.split_ascii_whitespace();
    while let (Some(three), Some(two)) = (words.next(), words.next()) {
        if three == long {
            return two;
        }
    }
    long
}

/// True for codes that [`identify`] can return.
pub(crate) fn is_known(code: &str) -> bool {
    code == "und" || Lang::all().iter().any(|&l| short(l) == code)
}

const ENGLISH: Guess = Guess {
    code: "en",
    confidence: 1.0,
};

/// English function words make up a fifth of the words and "the" alone a thirtieth: true of ordinary
/// English prose and of no other language. Saves the slow look at most pages of an English crawl.
fn is_plainly_english(text: &str) -> bool {
    let (mut words, mut common, mut articles) = (0usize, 0usize, 0usize);
    for word in text
        .split(|c: char| !c.is_alphabetic())
        .filter(|w| !w.is_empty())
    {
        words += 1;
        match word {
            "the" | "The" => articles += 1,
            "and" | "of" | "to" | "that" | "with" | "for" | "this" | "are" | "from" | "was"
            | "is" | "it" | "in" | "you" | "on" | "a" | "be" | "as" => common += 1,
            _ => {}
        }
    }
    words >= 20 && articles * 30 >= words && (articles + common) * 5 >= words
}

/// Guesses the language of a text.
pub fn identify(text: &str) -> Guess {
    let guess = if text.len() <= SAMPLE {
        if is_plainly_english(text) {
            return ENGLISH;
        }
        whatlang::detect(text)
    } else {
        let third = SAMPLE / 3;
        let middle = text.len() / 2 - third / 2;
        let mut sample = String::with_capacity(SAMPLE + 8);
        for start in [0, middle, text.len() - third] {
            let from = text.floor_char_boundary(start);
            let to = text.floor_char_boundary(start + third);
            sample.push_str(&text[from..to]);
            sample.push(' ');
        }
        if is_plainly_english(&sample) {
            return ENGLISH;
        }
        whatlang::detect(&sample)
    };
    guess.map_or(
        Guess {
            code: "und",
            confidence: 0.0,
        },
        |info| Guess {
            code: short(info.lang()),
            confidence: info.confidence(),
        },
    )
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
            (
                "\u{42d}\u{442}\u{43e} \u{43e}\u{447}\u{435}\u{43d}\u{44c} \u{43a}\u{440}\u{430}\u{441}\u{438}\u{432}\u{44b}\u{439} \u{434}\u{43e}\u{43c}, \u{43a}\u{43e}\u{442}\u{43e}\u{440}\u{44b}\u{439} \u{441}\u{442}\u{43e}\u{438}\u{442} \u{43d}\u{430} \u{433}\u{43e}\u{440}\u{435}.",
                "ru",
            ),
        ] {
            assert_eq!(identify(text).code, code);
        }
        assert_eq!(identify("").code, "und");
        assert!(is_known("en") && !is_known("xx"));
    }

    #[test]
    fn every_language_has_a_distinct_code() {
        let mut codes: Vec<&str> = Lang::all().iter().map(|&l| short(l)).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), Lang::all().len());
    }
}
