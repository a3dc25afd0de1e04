//! The query of `/api/curves`.

use super::curve::{Axis, Window};
use crate::serve::ApiError;
use axum::http::StatusCode;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Points of a curve.
const POINTS: RangeInclusive<usize> = 4..=10_000;
/// Points of a curve if the query does not say how many.
const DEFAULT_POINTS: usize = 1000;

/// Curves that are asked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Query {
    /// Names of runs, each once; none: all.
    pub runs: Vec<String>,
    /// Fields, each once; none: all.
    pub fields: Vec<String>,
    pub window: Window,
}

impl Query {
    /// Reads the part of an address behind its question mark.
    ///
    /// # Errors
    /// 400 that names the wrong parameter.
    pub(super) fn parse(text: &str) -> Result<Query, ApiError> {
        let mut query = Query {
            runs: Vec::new(),
            fields: Vec::new(),
            window: Window {
                axis: Axis::Step,
                from: f64::NEG_INFINITY,
                to: f64::INFINITY,
                points: DEFAULT_POINTS,
                smoothing: 0.0,
            },
        };
        let (mut runs, mut fields) = (BTreeSet::new(), BTreeSet::new());
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decoded(name), decoded(value));
            let window = &mut query.window;
            match name.as_str() {
                "run" => {
                    if runs.insert(value.clone()) {
                        query.runs.push(value);
                    }
                }
                "field" => {
                    if fields.insert(value.clone()) {
                        query.fields.push(value);
                    }
                }
                "axis" => window.axis = axis(&value)?,
                "from" => window.from = number(&name, &value)?,
                "to" => window.to = number(&name, &value)?,
                "points" => {
                    let points = value.parse().ok().filter(|points| POINTS.contains(points));
                    let wanted = format!("an integer, {} to {}", POINTS.start(), POINTS.end());
                    window.points = points.ok_or_else(|| wrong(&name, &value, &wanted))?;
                }
                "smoothing" => {
                    let weight = number(&name, &value)?;
                    let is_right = (0.0..1.0).contains(&weight);
                    let wanted = "a number, 0 to below 1";
                    window.smoothing =
                        (is_right.then_some(weight)).ok_or_else(|| wrong(&name, &value, wanted))?;
                }
                other => {
                    let wanted = "run, field, axis, from, to, points or smoothing";
                    let message = format!("found the parameter {other:?}, want {wanted}");
                    return Err(ApiError::new(StatusCode::BAD_REQUEST, message));
                }
            }
        }
        Ok(query)
    }
}

fn axis(text: &str) -> Result<Axis, ApiError> {
    match text {
        "step" => Ok(Axis::Step),
        "tokens" => Ok(Axis::Tokens),
        "time" => Ok(Axis::Time),
        other => Err(wrong("axis", other, "step, tokens or time")),
    }
}

fn number(name: &str, text: &str) -> Result<f64, ApiError> {
    let found = text.parse::<f64>().ok().filter(|number| number.is_finite());
    found.ok_or_else(|| wrong(name, text, "a number"))
}

fn wrong(name: &str, found: &str, wanted: &str) -> ApiError {
    ApiError::field(name, format!("{name}: found {found:?}, want {wanted}"))
}

/// Text of a query: `+` is a space, `%41` a byte. A percent sign without two hexadecimal digits is itself.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 3).filter(|_| byte == b'%');
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let code = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(code) => {
                out.push(code);
                at += 3;
            }
            None => {
                out.push(if byte == b'+' { b' ' } else { byte });
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_have_any_characters() {
        let query = Query::parse("run=a%2Fb+c%26%C3%A9&run=%zz%4&field=valid_loss%2Fnews").unwrap();
        assert_eq!(query.runs, ["a/b c&\u{e9}", "%zz%4"]);
        assert_eq!(query.fields, ["valid_loss/news"]);
    }

    #[test]
    fn a_run_and_a_field_that_are_asked_for_again_are_asked_for_once() {
        let query = Query::parse(&("run=b&run=a&field=a&".to_owned() + &"run=a&".repeat(10_000)));
        let query = query.unwrap();
        assert_eq!(query.runs, ["b", "a"]);
        assert_eq!(query.fields, ["a"]);
    }

    #[test]
    fn windows_are_read_and_wrong_ones_name_their_parameter() {
        let text = "axis=tokens&from=-1.5&to=2e6&points=4&smoothing=0.99";
        let want = Window {
            axis: Axis::Tokens,
            from: -1.5,
            to: 2e6,
            points: 4,
            smoothing: 0.99,
        };
        assert_eq!(Query::parse(text).unwrap().window, want);
        for (text, name) in [
            ("axis=x", "axis"),
            ("from=nan", "from"),
            ("to=", "to"),
            ("points=3", "points"),
            ("points=10001", "points"),
            ("smoothing=1", "smoothing"),
            ("smoothing=-0.1", "smoothing"),
        ] {
            let error = Query::parse(text).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(name), "{text}");
        }
        assert!(Query::parse("file=/etc/passwd").is_err());
    }
}
