//! Filters of source files: StarCoder's, StarCoder 2's and RedPajama's.
//!
//! `starcoder`: Li et al. 2023 (arXiv:2305.06161), as bigcode-dataset bebec92 computes it (`filtering.py`); limits by extension are
//! those of its visual inspection (`starcoder.tsv`, tests/oracles/source_tables.py), bounds of JSON and YAML files the
//! paper's. `comments` adds SantaCoder's bounds of the share of comments (arXiv:2301.03988; comments.rs). `starcoder2`:
//! Lozhkov et al. 2024 (arXiv:2402.19173), section 2.1. `redpajama`: RedPajama-1T's rules for GitHub as dolma 1.2.1
//! (`code_redpajama_taggers_v1`) measures them: its tokens are words and runs of marks.
//! Lines are Python's `splitlines`, lengths are in characters. We differ: extensions are compared in lower case, as are
//! StarCoder 2's phrases of generated files; a visible share of exactly a fifth is kept, as in the papers.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;

use super::encoded::Encoded;
use super::file::{self, file_name};
use super::languages::{self, Language};
use super::{comments, generated};
use crate::check::Problem;
use crate::contract::{Draft, Filter, Opening, StepConfig, StepScratch};
use crate::error::Result;
use crate::extract::visible_chars;
use crate::filter::limits::{Limits, Rule, Rules};
use crate::text::unicode::{self, LETTER, SPACE, is_word};
use crate::text::{chars, plain};
use crate::verdict::{Judge, KEEP, Verdict, broken, empty};

/// Whose rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceProfile {
    /// StarCoder's, by extension.
    Starcoder,
    /// StarCoder 2's, by language.
    #[default]
    Starcoder2,
    /// RedPajama's for GitHub.
    Redpajama,
}

/// Filters of source files: lengths of lines, letters, generated files, encoded data, data files.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SourceCode {
    /// Whose rules.
    pub profile: SourceProfile,
    /// With `starcoder`: files with extensions that its inspection did not see are kept under the common limits (1000
    /// characters a line, 100 on average, a quarter letters and digits); otherwise they are dropped, as published.
    pub any_extension: bool,
    /// With `starcoder`: SantaCoder's bounds of the share of comments, for Python, Java and JavaScript.
    pub comments: bool,
    /// Field of `meta` with the file's path. Default: `path`, `file_path`, `max_stars_repo_path`, `filename` or
    /// `file_name`, else the path of the address.
    pub path_key: String,
    /// Limits that differ from the published ones; `false` switches a rule off.
    pub limits: Limits,
}

const STARCODER: [Rule; 11] = [
    Rule::at_most("source_code.max_line_length", 1000.0),
    Rule::at_most("source_code.max_mean_line_length", 100.0),
    Rule::at_least("source_code.min_alphanumeric_ratio", 0.25),
    Rule::at_least("source_code.min_alphabetic_ratio", 0.25),
    Rule::at_most("source_code.max_xml_declarations", 0.0),
    Rule::at_least("source_code.min_visible_ratio", 0.2),
    Rule::at_least("source_code.min_visible_chars", 101.0),
    Rule::at_least("source_code.min_data_chars", 50.0),
    Rule::at_most("source_code.max_data_chars", 5000.0),
    Rule::at_least("source_code.min_comment_ratio", 0.01),
    Rule::at_most("source_code.max_comment_ratio", 0.8),
];

const STARCODER2: [Rule; 10] = [
    Rule::at_most("source_code.max_lines", 100_000.0),
    Rule::at_most("source_code.max_mean_line_length", 100.0),
    Rule::at_most("source_code.max_line_length", 1000.0),
    Rule::at_least("source_code.min_alphabetic_ratio", 0.25),
    Rule::at_least("source_code.min_alphanumeric_ratio", 0.25),
    Rule::at_most("source_code.max_encoded_run", 1024.0),
    Rule::at_most("source_code.max_encoded_ratio", 0.5),
    Rule::at_most("source_code.max_data_lines", 512.0),
    Rule::at_least("source_code.min_visible_chars", 100.0),
    Rule::at_least("source_code.min_visible_ratio", 0.2),
];

const REDPAJAMA: [Rule; 4] = [
    Rule::at_most("source_code.max_line_length", 1000.0),
    Rule::at_most("source_code.max_mean_line_length", 100.0),
    Rule::at_least("source_code.min_alphanumeric_ratio", 0.25),
    Rule::at_least("source_code.min_letters_per_token", 1.5),
];

/// StarCoder 2 bounds only the longest line of these.
const LONG_LINES: [&str; 9] = [
    "HTML",
    "JSON",
    "Markdown",
    "Roff",
    "Roff Manpage",
    "SMT",
    "TeX",
    "Text",
    "XML",
];
/// Its bound.
const LONGEST_LINE: f64 = 100_000.0;
/// Languages that need no letters: digits count too.
const FEW_LETTERS: [&str; 2] = ["Motorola 68K Assembly", "WebAssembly"];
/// Data languages, with a bound of lines.
const DATA: [&str; 5] = [
    "Text",
    "JSON",
    "YAML",
    "Web Ontology Language",
    "Graphviz (DOT)",
];
/// Text files that stay: their names without extension.
const TEXTS: [&str; 5] = ["readme", "notes", "todo", "description", "cmakelists"];

/// A row of StarCoder's inspection.
#[derive(Clone, Copy)]
struct Inspected {
    language: &'static str,
    is_included: bool,
    alphanumeric: Option<f64>,
    longest: Option<f64>,
    alphabetic: Option<f64>,
    drops_xml: bool,
}

/// Rows by extension.
static INSPECTED: LazyLock<FxHashMap<&str, Vec<Inspected>>> = LazyLock::new(|| {
    let mut rows: FxHashMap<&str, Vec<Inspected>> = FxHashMap::default();
    for line in include_str!("starcoder.tsv").lines() {
        let fields: Vec<&'static str> = line.split('\t').collect();
        if let &[
            extension,
            language,
            included,
            alphanumeric,
            longest,
            alphabetic,
            xml,
        ] = &fields[..]
        {
            rows.entry(extension).or_default().push(Inspected {
                language,
                is_included: included == "1",
                alphanumeric: alphanumeric.parse().ok(),
                longest: longest.parse().ok(),
                alphabetic: alphabetic.parse().ok(),
                drops_xml: xml == "1",
            });
        }
    }
    rows
});

/// The common limits, for extensions without a row.
const COMMON: Inspected = Inspected {
    language: "",
    is_included: true,
    alphanumeric: Some(0.25),
    longest: Some(1000.0),
    alphabetic: None,
    drops_xml: true,
};

/// The row of a file; `language` decides between two.
fn inspected(extension: &str, language: &str) -> Option<Inspected> {
    let rows = INSPECTED.get(extension)?;
    let language = match language {
        "C#" => "c-sharp".to_string(),
        "F#" => "f-sharp".to_string(),
        other => other.to_lowercase().replace(' ', "-"),
    };
    let named = rows.iter().find(|row| row.language == language);
    // a file without an extension is a Dockerfile or a Makefile, or neither
    let first = rows.first().filter(|_| !extension.is_empty());
    named.or(first).copied()
}

/// A file to measure.
#[derive(Clone, Copy, Debug)]
pub struct SourceFile<'a> {
    /// Path, empty if it is unknown.
    pub path: &'a str,
    /// Language as GitHub's linguist names it, empty if it is unknown.
    pub language: &'a str,
    /// The text.
    pub text: &'a str,
}

/// Lengths of lines and kinds of characters.
struct Counts {
    chars: usize,
    lines: usize,
    longest: usize,
    in_lines: usize,
    letters: usize,
    alphanumeric: usize,
}

impl Counts {
    fn of(text: &str) -> Counts {
        let mut counts = Counts {
            chars: chars(text),
            lines: 0,
            longest: 0,
            in_lines: 0,
            letters: 0,
            alphanumeric: 0,
        };
        for line in unicode::split_lines(text) {
            let length = chars(line);
            counts.lines += 1;
            counts.longest = counts.longest.max(length);
            counts.in_lines += length;
        }
        let table = unicode::table();
        for c in text.chars() {
            let is_letter = table[c as usize] & LETTER != 0;
            counts.letters += usize::from(is_letter);
            counts.alphanumeric += usize::from(is_letter || c.is_numeric());
        }
        counts
    }

    fn mean_line(&self) -> f64 {
        plain::share(self.in_lines, self.lines)
    }

    fn alphanumeric_share(&self) -> f64 {
        plain::share(self.alphanumeric, self.chars)
    }

    fn letter_share(&self) -> f64 {
        plain::share(self.letters, self.chars)
    }
}

impl SourceCode {
    /// Lets `judge` compare every metric of a file.
    pub fn measure(&self, file: SourceFile<'_>, judge: &mut Judge) -> Verdict {
        if file.text.is_empty() {
            return Verdict::Break(empty("source_code.empty"));
        }
        let counts = Counts::of(file.text);
        match self.profile {
            SourceProfile::Starcoder => self.starcoder(file, &counts, judge),
            SourceProfile::Starcoder2 => {
                let found = languages::by_name(file.language);
                let found = found.or_else(|| languages::identify(file.path, file.text));
                let language = found.map_or("", Language::name);
                self.starcoder2(SourceFile { language, ..file }, &counts, judge)
            }
            SourceProfile::Redpajama => self.redpajama(file.text, &counts, judge),
        }
    }

    fn starcoder(&self, file: SourceFile<'_>, counts: &Counts, judge: &mut Judge) -> Verdict {
        let SourceFile {
            path,
            language,
            text,
        } = file;
        let extension = file::extension(path);
        let row = inspected(&extension, language);
        let row = match row.filter(|row| row.is_included) {
            Some(row) => row,
            None if row.is_none() && self.any_extension => COMMON,
            None => {
                let wanted = "an extension that StarCoder includes";
                return Verdict::Break(broken("source_code.extension", extension, wanted));
            }
        };
        let mut rules = Rules::new(&STARCODER, &self.limits, judge);
        if let Some(longest) = row.longest {
            rules.check_with("max_line_length", longest, counts.longest as f64)?;
            rules.check("max_mean_line_length", counts.mean_line())?;
        }
        if let Some(least) = row.alphanumeric {
            rules.check_with("min_alphanumeric_ratio", least, counts.alphanumeric_share())?;
        }
        if let Some(least) = row.alphabetic {
            rules.check_with("min_alphabetic_ratio", least, counts.letter_share())?;
        }
        if row.drops_xml {
            let head = crate::text::excerpt(text, 100);
            let found = head.matches("<?xml version=").count();
            rules.check("max_xml_declarations", found as f64)?;
        }
        if row.language == "html" {
            let visible = visible_chars(text);
            rules.check("min_visible_ratio", plain::share(visible, counts.chars))?;
            rules.check("min_visible_chars", visible as f64)?;
        }
        if matches!(row.language, "json" | "yaml") {
            rules.check("min_data_chars", counts.chars as f64)?;
            rules.check("max_data_chars", counts.chars as f64)?;
        }
        let name = match row.language {
            "python" => "Python",
            "java" => "Java",
            "javascript" => "JavaScript",
            _ => "",
        };
        if let Some(share) = self.comments.then(|| comments::share(name, text)).flatten() {
            rules.check("min_comment_ratio", share)?;
            rules.check("max_comment_ratio", share)?;
        }
        KEEP
    }

    fn starcoder2(&self, file: SourceFile<'_>, counts: &Counts, judge: &mut Judge) -> Verdict {
        let SourceFile {
            path,
            language,
            text,
        } = file;
        let is = |names: &[&str]| names.contains(&language);
        let mut rules = Rules::new(&STARCODER2, &self.limits, judge);
        rules.check("max_lines", counts.lines as f64)?;
        let longest = counts.longest as f64;
        if is(&LONG_LINES) {
            rules.check_with("max_line_length", LONGEST_LINE, longest)?;
        } else {
            rules.check("max_mean_line_length", counts.mean_line())?;
            rules.check("max_line_length", longest)?;
        }
        if let Some(mark) = generated::mark(path, text) {
            return Verdict::Break(broken("source_code.generated", mark, "no mark of linguist"));
        }
        if let Some(phrase) = generated::phrase(text) {
            return Verdict::Break(broken("source_code.generated", phrase, "no such phrase"));
        }
        if is(&FEW_LETTERS) {
            rules.check("min_alphanumeric_ratio", counts.alphanumeric_share())?;
        } else {
            rules.check("min_alphabetic_ratio", counts.letter_share())?;
        }
        let encoded = Encoded::of(text);
        rules.check("max_encoded_run", encoded.longest as f64)?;
        rules.check("max_encoded_ratio", plain::share(encoded.all, counts.chars))?;
        if is(&DATA) {
            rules.check("max_data_lines", counts.lines as f64)?;
        }
        if language == "HTML" {
            let visible = visible_chars(text);
            rules.check("min_visible_chars", visible as f64)?;
            rules.check("min_visible_ratio", plain::share(visible, counts.chars))?;
        }
        if language == "Text" {
            let name = file_name(path).to_lowercase();
            let stem = name
                .rsplit_once('.')
                .map_or(name.as_str(), |(stem, _)| stem);
            if !name.contains("requirement") && !TEXTS.contains(&stem) {
                let wanted = "a text file of a wanted name";
                return Verdict::Break(broken("source_code.text_name", name, wanted));
            }
        }
        KEEP
    }

    fn redpajama(&self, text: &str, counts: &Counts, judge: &mut Judge) -> Verdict {
        let mut rules = Rules::new(&REDPAJAMA, &self.limits, judge);
        rules.check("max_line_length", counts.longest as f64)?;
        rules.check("max_mean_line_length", counts.mean_line())?;
        rules.check("min_alphanumeric_ratio", counts.alphanumeric_share())?;
        let letters = plain::share(counts.letters, pieces(text));
        rules.check("min_letters_per_token", letters)
    }

    fn rules(&self) -> &'static [Rule] {
        match self.profile {
            SourceProfile::Starcoder => &STARCODER,
            SourceProfile::Starcoder2 => &STARCODER2,
            SourceProfile::Redpajama => &REDPAJAMA,
        }
    }
}

/// Pieces into which words and runs of marks cut a text: one more than there are of them.
fn pieces(text: &str) -> usize {
    let (mut count, mut before) = (1, SPACE);
    for c in text.chars() {
        let kind = match c {
            '_' => LETTER,
            c if unicode::is(c, SPACE) => SPACE,
            c if is_word(c) => LETTER,
            _ => 0,
        };
        count += usize::from(kind != SPACE && kind != before);
        before = kind;
    }
    count
}

impl StepConfig for SourceCode {
    fn name(&self) -> &'static str {
        "source_code"
    }

    fn check(&self, problem: Problem<'_>) {
        self.limits.check(self.rules(), problem);
        if self.profile != SourceProfile::Starcoder {
            for (key, is_set) in [
                ("any_extension", self.any_extension),
                ("comments", self.comments),
            ] {
                if is_set {
                    let wanted = "false, or profile = \"starcoder\"";
                    problem(key, "true".to_string(), wanted);
                }
            }
        }
    }

    fn open(&self, _: &Opening<'_>) -> Result<Box<dyn Filter>> {
        Ok(Box::new(self.clone()))
    }
}

impl Filter for SourceCode {
    fn apply(&self, draft: &mut Draft, _: &mut StepScratch, judge: &mut Judge) -> Verdict {
        let path = file::path(draft, &self.path_key).unwrap_or_default();
        let language = languages::told_language(draft).map_or("", Language::name);
        let file = SourceFile {
            path,
            language,
            text: &draft.text,
        };
        self.measure(file, judge)
    }

    fn metrics(&self) -> Vec<String> {
        let names = self.rules().iter().map(|rule| rule.name().to_string());
        names.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(profile: &str, path: &str, text: &str) -> Option<String> {
        let config: SourceCode = serde_json::from_str(profile).unwrap();
        config.check(&mut |k, f, w| panic!("{k}: {f}: {w}"));
        let language = "";
        let verdict = config.measure(
            SourceFile {
                path,
                language,
                text,
            },
            &mut Judge::strict(),
        );
        verdict
            .break_value()
            .map(|r| r.rule.replace("source_code.", ""))
    }

    #[test]
    fn each_limit_of_starcoder_holds_and_breaks() {
        let one = r#"{"profile": "starcoder"}"#;
        let line = |n: usize| format!("{}\n", "a".repeat(n));
        let short = "a\n".repeat(20);
        let broken = |path: &str, text: &str| reason(one, path, text).unwrap_or_default();
        assert_eq!(broken("a.py", &(line(1000) + &short)), "");
        assert_eq!(broken("a.py", &(line(1001) + &short)), "max_line_length");
        assert_eq!(broken("a.py", &line(100)), "");
        assert_eq!(broken("a.py", &(line(101))), "max_mean_line_length");
        assert_eq!(broken("a.md", &line(5000)), "");
        assert_eq!(broken("a.py", "a..."), "");
        assert_eq!(broken("a.py", "a...."), "min_alphanumeric_ratio");
        assert_eq!(broken("a.xyz", "a"), "extension");
        assert_eq!(broken("a.cdf", "a"), "extension");
        assert_eq!(
            broken("a.py", "<?xml version='1'?>"),
            "max_xml_declarations"
        );
        assert_eq!(broken("a.xslt", "<?xml version='1'?>"), "");
        assert_eq!(broken("a.json", &"a".repeat(49)), "min_data_chars");
        assert_eq!(broken("a.json", &"a\n".repeat(2500)), "");
        assert_eq!(broken("a.json", &"ab\n".repeat(1667)), "max_data_chars");
        assert_eq!(
            broken("a.json", &"1234\n".repeat(20)),
            "min_alphabetic_ratio"
        );
        assert_eq!(
            broken("a.html", &format!("<p>{}", "b\n".repeat(50))),
            "min_visible_chars"
        );
        assert_eq!(broken("a.html", &format!("<p>{}c", "b\n".repeat(50))), "");
        assert_eq!(broken("a.py", ""), "empty");
        let any = r#"{"profile": "starcoder", "any_extension": true, "comments": true}"#;
        assert_eq!(reason(any, "a.xyz", "a"), None);
        assert_eq!(
            reason(any, "a.py", "a = 1\n").as_deref(),
            Some("min_comment_ratio")
        );
        assert_eq!(
            reason(any, "a.py", "# aaaaaaaaaaaaaaaaaaaaaaaa\n").as_deref(),
            Some("max_comment_ratio")
        );
        assert_eq!(reason(any, "a.py", "a = 1 # b\n"), None);
    }

    #[test]
    fn each_limit_of_starcoder_2_holds_and_breaks() {
        let broken = |path: &str, text: &str| reason("{}", path, text).unwrap_or_default();
        assert_eq!(broken("a.c", &"a b\n".repeat(100_000)), "");
        assert_eq!(broken("a.c", &"a b\n".repeat(100_001)), "max_lines");
        assert_eq!(broken("a.md", &"a b ".repeat(25_000)), "");
        assert_eq!(broken("a.md", &"a b ".repeat(25_001)), "max_line_length");
        assert_eq!(broken("a.c", &"a b ".repeat(26)), "max_mean_line_length");
        assert_eq!(broken("a.c", "a = 1; /* autogenerated */"), "generated");
        assert_eq!(broken("a/node_modules/b.js", "a"), "generated");
        assert_eq!(broken("a.c", "12a."), "");
        assert_eq!(broken("a.c", "12a.."), "min_alphabetic_ratio");
        assert_eq!(broken("a.wat", "12a.."), "");
        assert_eq!(
            broken(
                "a.c",
                &format!("{}\n(x) {}", "a b c d\n".repeat(300), "a/\n".repeat(341))
            ),
            ""
        );
        assert_eq!(
            broken(
                "a.c",
                &format!("{}\n(x) {}", "a b c d\n".repeat(400), "a/\n".repeat(342))
            ),
            "max_encoded_run"
        );
        assert_eq!(
            broken("a.c", &format!("(x) {}", "a/\n".repeat(30))),
            "max_encoded_ratio"
        );
        assert_eq!(broken("a.yaml", &"a: b\n".repeat(512)), "");
        assert_eq!(broken("a.yaml", &"a: b\n".repeat(513)), "max_data_lines");
        assert_eq!(broken("notes.txt", "a b c"), "");
        assert_eq!(broken("Requirements-dev.txt", "a b c"), "");
        assert_eq!(broken("other.txt", "a b c"), "text_name");
        assert_eq!(broken("a.html", &format!("<p>{}", "b.\n".repeat(34))), "");
    }

    #[test]
    fn tokens_of_redpajama_are_words_and_marks() {
        assert_eq!(pieces("ab_1 += c()"), 5);
        assert_eq!(pieces(""), 1);
        let one = r#"{"profile": "redpajama"}"#;
        assert_eq!(reason(one, "", "abc def").as_deref(), None);
        assert_eq!(
            reason(one, "", "a b c d").as_deref(),
            Some("min_letters_per_token")
        );
    }

    #[test]
    fn keys_of_another_profile_are_refused() {
        let config: SourceCode =
            serde_json::from_str(r#"{"comments": true, "limits": {"max_data_chars": 3}}"#).unwrap();
        let mut found = Vec::new();
        config.check(&mut |k, f, _| found.push(format!("{k}: {f}")));
        assert_eq!(
            found,
            [
                "limits.max_data_chars: \"max_data_chars\"",
                "comments: true"
            ]
        );
    }
}
