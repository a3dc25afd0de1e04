//! Ranks and scales of an adapter's modules: `r` and `lora_alpha` of PEFT's configuration, and those that `rank_pattern` and
//! `alpha_pattern` give to some modules.
//!
//! A pattern is a regular expression for the end of a module's name from a dot on, as in PEFT 0.21 (`utils/other.py`,
//! `get_pattern_key`: `re.match(rf"(.*\.)?({key})$", name)`); the first that matches counts. We differ: Rust's expressions have
//! no look-around and no back-references, and such patterns are refused.

use regex::Regex;
use serde_json::{Map, Value};

use crate::checkpoint::huggingface::adapter_folder::shown;

/// Rank and scale of a module.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Size {
    pub rank: usize,
    pub scale: f64,
}

/// The settings that they follow from.
pub(super) struct Sizes {
    rank: f64,
    alpha: f64,
    ranks: Vec<Pattern>,
    alphas: Vec<Pattern>,
    /// The scale is alpha / sqrt(rank), not alpha / rank.
    is_by_root: bool,
}

/// The number of the modules whose names an expression matches.
struct Pattern {
    name: Regex,
    number: f64,
}

fn rank_of(value: &Value) -> Option<f64> {
    let rank = value.as_f64();
    rank.filter(|rank| *rank >= 1.0 && rank.fract() == 0.0 && *rank <= f64::from(u32::MAX))
}

fn alpha_of(value: &Value) -> Option<f64> {
    value.as_f64().filter(|alpha| alpha.is_finite())
}

impl Sizes {
    /// Reads them, or adds what is wrong to `problems`.
    pub(super) fn read(config: &Map<String, Value>, problems: &mut Vec<String>) -> Sizes {
        let mut number = |key: &str, of: fn(&Value) -> Option<f64>, wanted: &str| {
            let found = config.get(key).and_then(of);
            found.unwrap_or_else(|| {
                let found = shown(config.get(key));
                problems.push(format!("{key}: found {found}, want {wanted}"));
                1.0
            })
        };
        let rank = number("r", rank_of, WHOLE);
        let alpha = number("lora_alpha", alpha_of, "a number");
        Sizes {
            rank,
            alpha,
            ranks: RANKS.read(config, problems),
            alphas: ALPHAS.read(config, problems),
            is_by_root: config.get("use_rslora") == Some(&Value::Bool(true)),
        }
    }

    /// Those of a module, named as in the base model.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number of 32 bits"
    )]
    pub(super) fn of(&self, module: &str) -> Size {
        let first = |patterns: &[Pattern], all: f64| {
            let found = patterns.iter().find(|one| one.name.is_match(module));
            found.map_or(all, |one| one.number)
        };
        let rank = first(&self.ranks, self.rank);
        let alpha = first(&self.alphas, self.alpha);
        let divisor = if self.is_by_root { rank.sqrt() } else { rank };
        Size {
            rank: rank as usize,
            scale: alpha / divisor,
        }
    }
}

const WHOLE: &str = "a whole number above 0";

/// A table of expressions and their numbers.
struct Table {
    key: &'static str,
    /// The number of a value.
    of: fn(&Value) -> Option<f64>,
    wanted: &'static str,
}

const RANKS: Table = Table {
    key: "rank_pattern",
    of: rank_of,
    wanted: WHOLE,
};

const ALPHAS: Table = Table {
    key: "alpha_pattern",
    of: alpha_of,
    wanted: "a number",
};

impl Table {
    /// Its patterns in the order of the file.
    fn read(&self, config: &Map<String, Value>, problems: &mut Vec<String>) -> Vec<Pattern> {
        let Table { key, of, wanted } = self;
        let table = match config.get(*key) {
            None | Some(Value::Null) => return Vec::new(),
            Some(Value::Object(table)) => table,
            Some(
                other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)),
            ) => {
                problems.push(format!("{key}: found {other}, want an object"));
                return Vec::new();
            }
        };
        let mut read = Vec::new();
        for (expression, value) in table {
            let name = Regex::new(&format!(r"^(?:.*\.)?(?:{expression})$"));
            match (name, of(value)) {
                (Ok(name), Some(number)) => read.push(Pattern { name, number }),
                (Err(_), _) => problems.push(format!(
                    "{key}: found {expression:?}, want a regular expression without look-around and back-references"
                )),
                (Ok(_), None) => {
                    problems.push(format!("{key}.{expression}: found {value}, want {wanted}"));
                }
            }
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(config: Value) -> Result<Sizes, Vec<String>> {
        let mut problems = Vec::new();
        let Value::Object(config) = config else {
            panic!("{config}");
        };
        let sizes = Sizes::read(&config, &mut problems);
        if problems.is_empty() {
            Ok(sizes)
        } else {
            Err(problems)
        }
    }

    #[test]
    fn the_first_pattern_that_matches_the_end_of_a_name_counts() {
        // PEFT 0.21.2: get_pattern_key(list(pattern), name) gives the same keys
        let sizes = read(json!({
            "r": 8, "lora_alpha": 16.0, "rank_pattern": {"layers\\.[01]\\.self_attn.q_proj": 2, "q_proj": 4, "^model.layers.2.mlp.up_proj": 3, "up|down": 7},
            "alpha_pattern": {"q_proj|v_proj": 4},
        }));
        let sizes = sizes.unwrap_or_else(|problems| panic!("{problems:?}"));
        for (module, rank, scale) in [
            ("model.layers.1.self_attn.q_proj", 2, 2.0),
            ("model.layers.2.self_attn.q_proj", 4, 1.0),
            ("model.layers.2.self_attn.eq_proj", 8, 2.0),
            ("model.layers.2.self_attn.v_proj", 8, 0.5),
            ("model.layers.2.mlp.up_proj", 3, 16.0 / 3.0),
            ("model.layers.2.up", 7, 16.0 / 7.0),
            ("model.layers.2.down", 7, 16.0 / 7.0),
            ("model.layers.2.down.x", 8, 2.0),
            ("q_proj", 4, 1.0),
        ] {
            assert_eq!(sizes.of(module), Size { rank, scale }, "{module}");
        }
        let by_root = json!({"r": 4, "lora_alpha": 6, "use_rslora": true, "rank_pattern": {"v": 9}, "alpha_pattern": null});
        let by_root = read(by_root).unwrap_or_else(|problems| panic!("{problems:?}"));
        assert_eq!(
            [by_root.of("a.v").scale, by_root.of("a.q").scale],
            [2.0, 3.0]
        );
    }

    #[test]
    fn patterns_that_cannot_be_read_are_named() {
        for (key, value, wanted) in [
            (
                "rank_pattern",
                json!({"v": 0}),
                "rank_pattern.v: found 0, want a whole number above 0",
            ),
            (
                "rank_pattern",
                json!({"v": 1.5}),
                "rank_pattern.v: found 1.5",
            ),
            (
                "rank_pattern",
                json!([1]),
                "rank_pattern: found [1], want an object",
            ),
            (
                "alpha_pattern",
                json!({"v": "1"}),
                "alpha_pattern.v: found \"1\", want a number",
            ),
            ("alpha_pattern", json!({"(?!v)": 1}), "without look-around"),
            (
                "alpha_pattern",
                json!({"(": 1}),
                "alpha_pattern: found \"(\"",
            ),
        ] {
            let mut config = json!({"r": 8, "lora_alpha": 16});
            config[key] = value;
            let problems = read(config).map(|_| ()).unwrap_err();
            assert!(problems[0].contains(wanted), "{problems:?} wants {wanted}");
        }
    }
}
