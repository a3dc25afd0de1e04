//! Numbering plans of all regions: the facts of libphonenumber 9.0.43's metadata (Apache-2.0), which
//! `tests/oracles/phone_metadata.py` writes to `regions.tsv` (103 KB). Patterns are compiled at a region's first use.

use std::sync::LazyLock;

use regex::Regex;

const TABLE: &str = include_str!("regions.tsv");

static PLANS: LazyLock<Vec<Plan>> = LazyLock::new(|| {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(Plan::from_line).collect()
});

/// A pattern of digits.
type Pattern = LazyLock<Regex, Box<dyn FnOnce() -> Regex + Send>>;

/// One format of a country's numbers.
struct Format {
    /// Beginning of the numbers that have it.
    leading: Option<Pattern>,
    whole: Pattern,
    /// Whether such a number is written with the prefix for calls inside.
    wants_prefix: bool,
}

/// Numbering plan of a region.
pub(super) struct Plan {
    /// ISO 3166 code, or `001` for services without a country.
    pub(super) region: &'static str,
    /// Country code.
    pub(super) code: u16,
    abroad: Option<Pattern>,
    inside: Option<Inside>,
    leading: Option<Pattern>,
    general: Pattern,
    lengths: Vec<usize>,
    local_lengths: Vec<usize>,
    /// Fewest digits that somebody in the region dials for a valid number: those of the shortest one, or of a local one
    /// that becomes longer, or of a call abroad.
    pub(super) fewest_dialled: usize,
    types: Pattern,
    formats: Vec<Format>,
}

/// The prefix for calls inside a country.
struct Inside {
    pattern: Pattern,
    /// What the number becomes: digits, and the groups `\1` and `\2` of the pattern.
    rule: &'static str,
}

/// Digits of the shortest call abroad: a prefix of one digit, a country code of two and a number of four.
const FEWEST_ABROAD: usize = 7;

/// Compared with the lengths that a plan has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Length {
    Possible,
    Local,
    TooShort,
    TooLong,
    Between,
}

/// `None` for an empty pattern.
fn pattern(source: &'static str, is_whole: bool) -> Option<Pattern> {
    let end = if is_whole { "$" } else { "" };
    let compile: Box<dyn FnOnce() -> Regex + Send> = Box::new(move || {
        let ascii = source.replace(r"\d", "[0-9]");
        Regex::new(&format!("^(?:{ascii}){end}"))
            .expect("the table's patterns were compiled when it was made")
    });
    (!source.is_empty()).then(|| LazyLock::new(compile))
}

/// Matches nothing if the plan has no such pattern.
fn whole(source: &'static str) -> Pattern {
    pattern(if source.is_empty() { "[^0-9]" } else { source }, true).unwrap_or_else(|| {
        LazyLock::new(Box::new(|| {
            Regex::new("^[^0-9]$").expect("a class is a pattern")
        }))
    })
}

fn numbers(list: &str) -> Vec<usize> {
    list.split(',').filter_map(|n| n.parse().ok()).collect()
}

impl Plan {
    fn from_line(line: &'static str) -> Option<Plan> {
        let mut fields = line.split('\t');
        let mut next = || fields.next().unwrap_or("");
        let (region, code) = (next(), next().parse().ok()?);
        let (abroad, inside, rule, leading) = (next(), next(), next(), next());
        let (general, lengths, local, types, formats) = (next(), next(), next(), next(), next());
        let formats = formats.split(';').filter_map(|format| {
            let mut parts = format.split('~');
            let (leading, all, wanted) = (parts.next()?, parts.next()?, parts.next()?);
            Some(Format {
                leading: pattern(leading, false),
                whole: whole(all),
                wants_prefix: wanted == "1",
            })
        });
        let (lengths, local_lengths) = (numbers(lengths), numbers(local));
        let local = local_lengths.first().filter(|_| !rule.is_empty());
        let fewest = lengths.first().into_iter().chain(local).copied().min();
        Some(Plan {
            region,
            code,
            abroad: pattern(abroad, false),
            inside: pattern(inside, false).map(|pattern| Inside { pattern, rule }),
            leading: pattern(leading, false),
            general: whole(general),
            lengths,
            local_lengths,
            fewest_dialled: fewest.unwrap_or(0).min(FEWEST_ABROAD),
            types: whole(types),
            formats: formats.collect(),
        })
    }

    /// End of the prefix for calls abroad at the beginning of `digits`.
    pub(super) fn after_abroad(&self, digits: &str) -> Option<usize> {
        Some(self.abroad.as_ref()?.find(digits)?.end())
    }

    /// Whether `digits` has the form of the plan's numbers, of whatever type and length.
    pub(super) fn is_general(&self, digits: &str) -> bool {
        self.general.is_match(digits)
    }

    /// Whether `digits` is a number of one of the plan's types.
    pub(super) fn has(&self, digits: &str) -> bool {
        self.lengths.contains(&digits.len())
            && self.general.is_match(digits)
            && self.types.is_match(digits)
    }

    pub(super) fn length(&self, digits: &str) -> Length {
        let n = digits.len();
        let (Some(least), Some(most)) = (self.lengths.first(), self.lengths.last()) else {
            return Length::Between;
        };
        if self.local_lengths.contains(&n) {
            Length::Local
        } else if self.lengths.contains(&n) {
            Length::Possible
        } else if n < *least {
            Length::TooShort
        } else if n > *most {
            Length::TooLong
        } else {
            Length::Between
        }
    }

    /// `digits` without the prefix for calls inside, if it has one that leaves a number.
    pub(super) fn without_inside(&self, digits: &str) -> Option<String> {
        let Inside { pattern, rule } = self.inside.as_ref()?;
        let found = pattern.captures(digits)?;
        let rest = &digits[found.get(0)?.end()..];
        let last = found.get(found.len() - 1).filter(|_| found.len() > 1);
        let mut number = String::new();
        if last.is_some() {
            let mut parts = rule.split('\\');
            number.push_str(parts.next().unwrap_or(""));
            for part in parts {
                let (group, digits) = part.split_at(part.len().min(1));
                let group = group.parse().ok().and_then(|n| found.get(n));
                number.push_str(group.map_or("", |g| g.as_str()));
                number.push_str(digits);
            }
        }
        number.push_str(rest);
        (!self.is_general(digits) || self.is_general(&number)).then_some(number)
    }

    /// Whether the number is written with the prefix for calls inside.
    pub(super) fn wants_inside(&self, number: &str) -> bool {
        let fits = |f: &&Format| {
            f.leading.as_ref().is_none_or(|l| l.is_match(number)) && f.whole.is_match(number)
        };
        self.formats
            .iter()
            .find(fits)
            .is_some_and(|f| f.wants_prefix)
    }
}

/// The plan of a region with a country.
pub(super) fn of_region(region: &str) -> Option<&'static Plan> {
    PLANS.iter().find(|p| p.region == region && region != "001")
}

/// The plans of a country code, the main one first.
pub(super) fn of_code(code: u16) -> &'static [Plan] {
    let start = PLANS.partition_point(|p| p.code < code);
    let rest = &PLANS[start..];
    &rest[..rest.partition_point(|p| p.code == code)]
}

/// Whether some region of the country code has the number.
pub(super) fn is_valid(code: u16, number: &str) -> bool {
    let plans = of_code(code);
    if let [only] = plans {
        return only.has(number);
    }
    let of_region = |p: &&Plan| match &p.leading {
        Some(leading) => leading.is_match(number),
        None => p.has(number),
    };
    plans.iter().find(of_region).is_some_and(|p| p.has(number))
}
