//! OpenWebMath's rules for pages with mathematics.
//!
//! Paper: Paster et al. 2023, arXiv:2310.06786. Definitions: keirp/OpenWebMath, `filtering/filter_dataset.py` (rules on text and address)
//! and `extract_from_cc/extract_from_warc.py` (signs of mathematics). The two trained models are not part of this crate:
//! MathScore is a fastText classifier, to be run by the step `quality` before this one (`score_key`), the perplexity a
//! KenLM model over normalised words (step `perplexity`, `perplexity_key`). Their thresholds are the published ones and
//! apply where a document has the figures. We differ: signs of mathematics are looked for in the text, as the page's
//! source is gone (`require_math`, off by default).

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::limits::{Limits, Rule, Rules};
use crate::check::Problem;
use crate::contract::{Draft, Filter, Opening, StepConfig, StepScratch};
use crate::error::Result;
use crate::text::{chars, plain};
use crate::verdict::{Judge, KEEP, Verdict, broken};

/// OpenWebMath's rules. Lines with more than one `newcommand` are removed.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Openwebmath {
    /// Field of `meta` with MathScore. Default: `math_score`; without the field the rules on it do not apply.
    pub score_key: String,
    /// Field of `meta` with the perplexity. Default: `perplexity`; without the field the rule does not apply.
    pub perplexity_key: String,
    /// Drops texts without a sign of mathematics: a formula between dollar signs, or one of the LaTeX commands that the paper's
    /// prefilter looks for.
    pub require_math: bool,
    /// Limits that differ from the published ones; `false` switches a rule off.
    pub limits: Limits,
}

impl Default for Openwebmath {
    fn default() -> Self {
        Openwebmath {
            score_key: "math_score".to_string(),
            perplexity_key: "perplexity".to_string(),
            require_math: false,
            limits: Limits::default(),
        }
    }
}

const RULES: [Rule; 4] = [
    Rule::at_most("openwebmath.max_perplexity", 15_000.0),
    Rule::at_least("openwebmath.min_math_score", 0.17),
    Rule::at_least("openwebmath.min_chars", 100.0),
    Rule::at_most("openwebmath.max_accent_ratio", 0.015),
];

/// Parts of addresses that are dropped.
const ADDRESSES: [&str; 74] = [
    "worldwidescience",
    "science.gov",
    "archive.org",
    "scribd.com",
    "unz.com",
    "/profile/",
    "/researcher",
    "noobstarter.com",
    "philpapers.org",
    "thesa.com",
    "beyondhighbrow.com",
    "careyoukeep.com",
    "eevblog.com",
    "happyslide.net",
    "issuu.com",
    "zh-cn.unz.com",
    "vixra.org",
    "medcraveonline.com",
    "sciendo.com",
    "open.library.ubc.ca",
    "eurotrib.com",
    "postthreads.org",
    "jim.bmj.com",
    "wanweibaike.com",
    "hzdr.de",
    "/joursearch/",
    "docplayer.net",
    "bookofmormonblog.org",
    "bradford-delong.com",
    "profiles.stanford.edu",
    "vo.astronet.ru",
    "homainstallationen.at",
    "/author/",
    // two commas are missing there: the three make one word
    "/authors//serials/read.dukeupress.edu",
    "thewikipost.org",
    "is.tuebingen.mpg.de",
    "discourse.darkjedibrotherhood.com",
    "springermedizin.de",
    "materials-chain.com",
    "www.unzmag.net",
    "is.mpg.de",
    "hobby8.5ch.net",
    "forums.penny-arcade.com",
    "wowwiki.com",
    "8chan.moe",
    "plosone.org",
    "www.is.mpg.de",
    "feeds.churchturing.org",
    "learn.gcs.edu",
    "mobinuke.com",
    "judithcurry.com",
    "tek-tips.com",
    "skepticforum.com",
    "all_publications",
    ".de/publications",
    "nih.gov",
    "lastfm.it",
    "/commit",
    "vitaminstore",
    "studylib.net",
    "dokumen.pub",
    "manualzz.com",
    "fraser.stlouisfed.org",
    // those of the function beside the list
    "arxiv-vanity",
    "proceedings",
    "bibbase",
    "nrsworld.com",
    "bibtex",
    "issn",
    "arxiv-export",
    "bmjopen",
    "stackexchange.com/users",
    "mathoverflow.net/users",
    // its own rule: see `address`
    "/search",
];

/// Words of an address of LibreTexts that need no formula.
const LIBRETEXTS: [&str; 3] = ["math", "phys", "stats"];

/// Commands that show mathematics: the paper's.
const COMMANDS: &str = r"\end \begin \ref \frac \label \bf \right \left \rm \alpha \mu \def \it \pi \sigma \sum \lambda \beta \nu \partial \int \delta \rho \phi \gamma \omega \over \nonumber \bar \sqrt \theta \tau \em \rangle \hat \tilde \cal \hline \item \psi \vec \langle \epsilon \eta \cdot \in \xi \infty \quad \mathcal \times \emph \mathbf \prime \be \mathrm \ee \vspace \pm \chi \ell \text \qquad \noindent \to \varphi \hspace \leq \cos \eqref \overline \sin \kappa \hbox \rightarrow \varepsilon \textit \dagger \big \otimes \equiv \zeta \dot \ln";

static COMMAND: LazyLock<AhoCorasick> =
    LazyLock::new(|| AhoCorasick::new(COMMANDS.split(' ')).expect("a hundred short words fit"));

/// Numbers of pages that LibreTexts writes as formulas.
static PAGE_INDEX: LazyLock<[Regex; 2]> = LazyLock::new(|| {
    [
        r"\$\$\\PageIndex\{[^\}]*\}\$\$",
        r"\$\\PageIndex\{[^\}]*\}\$",
    ]
    .map(|pattern| Regex::new(pattern).expect("the pattern is one"))
});
static FORMULA: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\$\$[^\$]*\$\$|\$[^\$]*\$").expect("the pattern is one"));

/// The part of an address for which it is dropped.
fn address(url: &str) -> Option<&'static str> {
    let is_in = |part: &&&str| match **part {
        "/search" => url.contains("/search") && !url.contains("//search"),
        part => url.contains(part),
    };
    ADDRESSES.iter().find(is_in).copied()
}

/// Whether a text has a formula between dollar signs.
fn has_formula(text: &str) -> bool {
    let [double, single] = &*PAGE_INDEX;
    let text = double.replace_all(text, "");
    FORMULA.is_match(&single.replace_all(&text, ""))
}

/// Characters with an accent, of the thirteen that count; of the text in lower case.
fn accents(text: &str) -> usize {
    let lower = text.chars().flat_map(char::to_lowercase);
    lower.filter(|c| "üïöêäâîûôèéà".contains(*c)).count()
}

impl Openwebmath {
    /// Judges a page; `out` receives its text.
    pub fn measure(&self, page: &MathPage<'_>, out: &mut String, judge: &mut Judge) -> Verdict {
        let mut rules = Rules::new(&RULES, &self.limits, judge);
        if let Some(perplexity) = page.perplexity {
            rules.check("max_perplexity", perplexity)?;
        }
        if let Some(score) = page.score {
            rules.check("min_math_score", score)?;
        }
        if let Some(part) = address(page.url) {
            return Verdict::Break(broken("openwebmath.address", part, "no such address"));
        }
        out.clear();
        for (number, line) in page
            .text
            .split('\n')
            .filter(|l| l.matches("newcommand").count() < 2)
            .enumerate()
        {
            if number > 0 {
                out.push('\n');
            }
            out.push_str(line);
        }
        let count = chars(out);
        rules.check("min_chars", count as f64)?;
        let is_book =
            page.url.contains("libretexts") && !LIBRETEXTS.iter().any(|w| page.url.contains(w));
        if is_book && !has_formula(out) {
            return Verdict::Break(broken("openwebmath.no_formula", 0.0, 1.0));
        }
        rules.check("max_accent_ratio", plain::share(accents(out), count))?;
        if self.require_math && !COMMAND.is_match(out.as_str()) && !has_formula(out) {
            return Verdict::Break(broken("openwebmath.no_math", 0.0, 1.0));
        }
        KEEP
    }
}

/// A page to judge.
#[derive(Clone, Copy, Debug, Default)]
pub struct MathPage<'a> {
    /// Address, or empty.
    pub url: &'a str,
    /// The text.
    pub text: &'a str,
    /// MathScore, if it is known.
    pub score: Option<f64>,
    /// Perplexity, if it is known.
    pub perplexity: Option<f64>,
}

impl StepConfig for Openwebmath {
    fn name(&self) -> &'static str {
        "openwebmath"
    }

    fn check(&self, problem: Problem<'_>) {
        self.limits.check(&RULES, problem);
        for (key, name) in [
            ("score_key", &self.score_key),
            ("perplexity_key", &self.perplexity_key),
        ] {
            if name.is_empty() {
                problem(key, "\"\"".to_string(), "the name of a field of meta");
            }
        }
    }

    fn open(&self, _: &Opening<'_>) -> Result<Box<dyn Filter>> {
        Ok(Box::new(self.clone()))
    }
}

impl Filter for Openwebmath {
    fn apply(&self, draft: &mut Draft, scratch: &mut StepScratch, judge: &mut Judge) -> Verdict {
        let figure = |key: &str| draft.meta.as_ref()?.get(key).and_then(Value::as_f64);
        let page = MathPage {
            url: draft.url.as_deref().unwrap_or_default(),
            text: &draft.text,
            score: figure(&self.score_key),
            perplexity: figure(&self.perplexity_key),
        };
        self.measure(&page, &mut scratch.rewritten, judge)?;
        draft.text.clone_from(&scratch.rewritten);
        KEEP
    }

    fn metrics(&self) -> Vec<String> {
        RULES.iter().map(|rule| rule.name().to_string()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(config: &str, page: MathPage<'_>) -> String {
        let config: Openwebmath = serde_json::from_str(config).unwrap();
        config.check(&mut |k, f, w| panic!("{k}: {f}: {w}"));
        let verdict = config.measure(&page, &mut String::new(), &mut Judge::strict());
        let rule = verdict.break_value().map_or(String::new(), |r| r.rule);
        rule.replace("openwebmath.", "")
    }

    #[test]
    fn each_rule_holds_at_its_limit_and_breaks_past_it() {
        let text = "a ".repeat(50);
        let page = MathPage {
            text: &text,
            score: Some(0.17),
            perplexity: Some(15_000.0),
            ..MathPage::default()
        };
        assert_eq!(reason("{}", page), "");
        assert_eq!(
            reason(
                "{}",
                MathPage {
                    score: Some(0.16),
                    ..page
                }
            ),
            "min_math_score"
        );
        assert_eq!(
            reason(
                "{}",
                MathPage {
                    perplexity: Some(15_001.0),
                    ..page
                }
            ),
            "max_perplexity"
        );
        assert_eq!(
            reason(
                "{}",
                MathPage {
                    text: &text[1..],
                    ..page
                }
            ),
            "min_chars"
        );
        assert_eq!(reason("{}", MathPage { text: "", ..page }), "min_chars");
        let accents = format!("{}é", "a".repeat(99));
        assert_eq!(
            reason(
                "{}",
                MathPage {
                    text: &accents,
                    ..page
                }
            ),
            ""
        );
        let accents = format!("{}éÉ", "a".repeat(98));
        assert_eq!(
            reason(
                "{}",
                MathPage {
                    text: &accents,
                    ..page
                }
            ),
            "max_accent_ratio"
        );
        for (url, want) in [
            ("https://arxiv.org/abs/1", ""),
            ("https://h/search?q=1", "address"),
            ("https://search.h/search", ""),
            ("https://h.org/authors/x", ""),
            ("https://nih.gov/x", "address"),
            ("https://bio.libretexts.org/x", "no_formula"),
            ("https://math.libretexts.org/x", ""),
        ] {
            assert_eq!(reason("{}", MathPage { url, ..page }), want, "{url}");
        }
        let math = r#"{"require_math": true}"#;
        assert_eq!(reason(math, page), "no_math");
        let formula = format!("{text} $x$");
        assert_eq!(
            reason(
                math,
                MathPage {
                    text: &formula,
                    ..page
                }
            ),
            ""
        );
        let index = format!("{text} $\\PageIndex{{1}}$");
        assert_eq!(
            reason(
                "{}",
                MathPage {
                    text: &index,
                    url: "https://bio.libretexts.org/",
                    ..page
                }
            ),
            "no_formula"
        );
    }

    #[test]
    fn lines_of_macros_go() {
        let text = format!("{}\n\\newcommand\\newcommand\n\\newcommand", "a".repeat(99));
        let mut out = String::new();
        let page = MathPage {
            text: &text,
            ..MathPage::default()
        };
        let verdict = Openwebmath::default().measure(&page, &mut out, &mut Judge::strict());
        assert!(verdict.is_continue());
        assert_eq!(out, format!("{}\n\\newcommand", "a".repeat(99)));
    }
}
