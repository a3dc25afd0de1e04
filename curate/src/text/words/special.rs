//! Special cases: words that are split (or kept whole) by table: contractions, abbreviations, times, emoticons.
//!
//! The list is that of spaCy 3.8's blank English tokenizer (lang/tokenizer_exceptions.py and
//! lang/en/tokenizer_exceptions.py), built here from its generating rules: 1347 entries, of which 176 are every language's.
//! An entry is the pieces a word splits into; joined, they are the word.

use rustc_hash::FxHashMap;

/// Word to the byte lengths of its pieces.
pub(super) type Specials = FxHashMap<Box<str>, Vec<u8>>;

const EMOTICONS: &str = r#":) :-) :)) :-)) :))) :-))) (: (-: =) (= :] :-] [: [-: [= =] :o) (o: :} :-} 8) 8-) (-8
    ;) ;-) (; (-; :( :-( :(( :-(( :((( :-((( ): )-: =( >:( :') :'-) :'( :'-( :/ :-/ =/ =| :| :-| ]= =[
    :1 :P :-P :p :-p :O :-O :o :-o :0 :-0 :() >:o :* :-* :3 :-3 =3 :> :-> :X :-X :x :-x :D :-D ;D ;-D
    =D xD XD xDD XDD 8D 8-D ^_^ ^__^ ^___^ >.< >.> <.< ._. ;_; -_- -__- v.v V.V v_v V_V o_o o_O O_o O_O
    0_o o_0 0_0 o.O O.o O.O o.o 0.0 o.0 0.o @_@ <3 <33 <333 </3 (^_^) (-_-) (._.) (>_<) (*_*)
    ><(((*>"#;

/// Emoticons with characters outside ASCII.
const EMOTICONS_WIDE: [&str; 6] = [
    "(\u{ac}_\u{ac})",
    "\u{ca0}_\u{ca0}",
    "\u{ca0}\u{fe35}\u{ca0}",
    "(\u{ca0}_\u{ca0})",
    "\u{af}\\(\u{30c4})/\u{af}",
    "(\u{256f}\u{b0}\u{25a1}\u{b0}\u{ff09}\u{256f}\u{fe35}\u{253b}\u{2501}\u{253b}",
];

/// Kept whole in every language.
const BASE_WHOLE: &str = r#"\t \n ' \") <space> '' C++"#;

/// Kept whole in English.
const WHOLE: &str = r#"'S 's and/or w/o 're 'Cause 'cause 'cos 'Cos 'coz 'Coz 'cuz
    'Cuz 'bout ma'am Ma'am o'clock O'clock lovin' Lovin' lovin Lovin havin' Havin' havin Havin doin'
    Doin' doin Doin goin' Goin' goin Goin nothin' Nothin' nothin Nothin nuthin' Nuthin' nuthin Nuthin
    ol' Ol' ol Ol somethin' Somethin' somethin Somethin em 'em ll 'll nuff 'nuff 'd
    Mt. Ak. Ala. Apr. Ariz. Ark. Aug. Calif. Colo. Conn. Dec. Del. Feb. Fla. Ga. Ia. Id. Ill. Ind.
    Jan. Jul. Jun. Kan. Kans. Ky. La. Mar. Mass. Mich. Minn. Miss. N.C. N.D. N.H. N.J. N.M. N.Y. Neb.
    Nebr. Nev. Nov. Oct. Okla. Ore. Pa. S.C. Sep. Sept. Tenn. Va. Wash. Wis.
    a.m. Adm. Bros. co. Co. Corp. D.C. Dr. e.g. E.g. E.G. Gen. Gov. i.e. I.e. I.E. Inc. Jr. Ltd. Md.
    Messrs. Mo. Mont. Mr. Mrs. Ms. p.m. Ph.D. Prof. Rep. Rev. Sen. St. vs. v.s."#;

/// Split at the bars.
const SPLIT: &str = "y'|all y|all how|'d|'y How|'d|'y not|'ve not|ve Not|'ve Not|ve can|not Can|not gon|na \
    Gon|na got|ta Got|ta let|'s Let|'s c'm|on C'm|on";

/// Never special although the rules would make them so.
const NEVER: [&str; 16] = [
    "Ill", "ill", "Its", "its", "Hell", "hell", "Shell", "shell", "Shed", "shed", "were", "Were",
    "Well", "well", "Whore", "whore",
];

/// Auxiliary verbs that take n't and n't've.
const NEGATED_HAVE: &str = "ca could do does did had may might must need ought sha should wo would";
/// Verbs that take only n't.
const NEGATED: &str = "ai are is was were have has dare";

struct Builder {
    specials: Specials,
}

impl Builder {
    fn add(&mut self, pieces: &[&str]) {
        let lengths = pieces
            .iter()
            .map(|p| u8::try_from(p.len()).unwrap_or(u8::MAX))
            .collect();
        self.specials.insert(pieces.concat().into(), lengths);
    }

    /// `stem + tail`, in lower case and capitalised, with and without apostrophes.
    fn contract(&mut self, stem: &str, tail: &[&str]) {
        for form in [stem.to_string(), capitalised(stem)] {
            let mut with: Vec<&str> = vec![&form];
            with.extend(tail);
            self.add(&with);
            let bare: Vec<&str> = tail.iter().map(|t| without_apostrophe(t)).collect();
            let mut without: Vec<&str> = vec![&form];
            without.extend(&bare);
            self.add(&without);
        }
    }

    fn contractions(&mut self) {
        self.contract("i", &["'m"]);
        self.contract("i", &["'m", "a"]);
        for pronoun in ["i", "you", "he", "she", "it", "we", "they"] {
            for tail in [&["'ll"][..], &["'ll", "'ve"], &["'d"], &["'d", "'ve"]] {
                self.contract(pronoun, tail);
            }
        }
        for pronoun in ["i", "you", "we", "they"] {
            self.contract(pronoun, &["'ve"]);
        }
        for pronoun in ["you", "we", "they"] {
            self.contract(pronoun, &["'re"]);
        }
        for pronoun in ["he", "she", "it"] {
            self.contract(pronoun, &["'s"]);
        }
        let singular = ["there", "that", "this"];
        let plural = ["these", "those"];
        let neither = ["who", "what", "when", "where", "why", "how"];
        for word in singular.iter().chain(&plural).chain(&neither) {
            for tail in [&["'ll"][..], &["'ll", "'ve"], &["'d"], &["'d", "'ve"]] {
                self.contract(word, tail);
            }
            if !plural.contains(word) {
                self.contract(word, &["'s"]);
            }
            // The rules call "that" and "this" singular, "there" neither.
            if !["that", "this"].contains(word) {
                self.contract(word, &["'re"]);
                self.contract(word, &["'ve"]);
            }
        }
    }

    fn verbs(&mut self) {
        for verb in NEGATED_HAVE.split(' ') {
            self.contract_not(verb, &[]);
            self.contract_not(verb, &["'ve"]);
        }
        for verb in ["could", "might", "must", "should", "would"] {
            self.contract(verb, &["'ve"]);
        }
        for verb in NEGATED.split(' ') {
            self.contract_not(verb, &[]);
        }
    }

    fn contract_not(&mut self, verb: &str, tail: &[&str]) {
        let mut pieces = vec!["n't"];
        pieces.extend(tail);
        self.contract(verb, &pieces);
    }

    /// Special cases of every language.
    fn base(&mut self) {
        for word in EMOTICONS.split_ascii_whitespace().chain(EMOTICONS_WIDE) {
            self.add(&[word]);
        }
        for word in BASE_WHOLE.split_ascii_whitespace() {
            self.add(&[word]);
        }
        for word in [" ", "\t", "\n", "\u{2014}", "\u{a0}"] {
            self.add(&[word]);
        }
        for letter in ('a'..='z').chain(['\u{e4}', '\u{f6}', '\u{fc}']) {
            self.add(&[&format!("{letter}.")]);
        }
        for unit in "cfkCFK".chars() {
            self.add(&["\u{b0}", &unit.to_string(), "."]);
        }
    }

    /// English words.
    fn english(&mut self) {
        for word in WHOLE.split_ascii_whitespace() {
            self.add(&[word]);
        }
        self.add(&["\u{2018}S"]);
        self.add(&["\u{2018}s"]);
        for word in SPLIT.split_ascii_whitespace() {
            let pieces: Vec<&str> = word.split('|').collect();
            self.add(&pieces);
        }
        for hour in 1..=12 {
            for period in ["a.m.", "am", "p.m.", "pm"] {
                self.add(&[&hour.to_string(), period]);
            }
        }
    }
}

fn capitalised(word: &str) -> String {
    let mut chars = word.chars();
    chars
        .next()
        .map_or_else(String::new, |c| c.to_uppercase().chain(chars).collect())
}

/// "'ll" to "ll", "n't" to "nt".
fn without_apostrophe(piece: &str) -> &str {
    match piece {
        "n't" => "nt",
        _ => piece.strip_prefix('\'').unwrap_or(piece),
    }
}

/// Special cases of a language without its own.
pub(super) fn base() -> Specials {
    let mut b = Builder {
        specials: Specials::default(),
    };
    b.base();
    b.specials
}

/// All special words of English, with every straight apostrophe also as a curly one.
pub(super) fn specials() -> Specials {
    let mut b = Builder {
        specials: Specials::default(),
    };
    b.base();
    b.english();
    b.contractions();
    b.verbs();
    NEVER.iter().for_each(|w| {
        b.specials.remove(*w);
    });
    let curly: Vec<(String, Vec<u8>)> = b
        .specials
        .iter()
        .filter(|(word, _)| word.contains('\''))
        .map(|(word, lengths)| (word.replace('\'', "\u{2019}"), curly_lengths(word, lengths)))
        .collect();
    for (word, lengths) in curly {
        b.specials.insert(word.into(), lengths);
    }
    b.specials
}

/// Piece lengths once each straight apostrophe (1 byte) is a curly one (3 bytes).
fn curly_lengths(word: &str, lengths: &[u8]) -> Vec<u8> {
    let mut start = 0;
    let piece = |&n: &u8| {
        let end = start + usize::from(n);
        let apostrophes = word[start..end].matches('\'').count();
        start = end;
        n + u8::try_from(2 * apostrophes).unwrap_or(0)
    };
    lengths.iter().map(piece).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_spacys_size() {
        assert_eq!(specials().len(), 1347);
        assert_eq!(base().len(), 176);
    }

    #[test]
    fn pieces_add_up_to_the_word() {
        for (word, lengths) in specials() {
            let sum: usize = lengths.iter().map(|&n| usize::from(n)).sum();
            assert_eq!(sum, word.len(), "{word}");
        }
    }
}
