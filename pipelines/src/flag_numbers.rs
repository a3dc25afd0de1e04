//! Numbers that flags take: each reader refuses what is out of its range with the range.

/// A whole number, 1 or more.
///
/// # Errors
/// Anything else.
pub(crate) fn positive(text: &str) -> Result<usize, String> {
    let found = text.parse().ok().filter(|number| *number > 0);
    found.ok_or_else(|| "want a whole number, 1 or more".into())
}

/// A number from 0 to 1.
///
/// # Errors
/// Anything else.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    number(text, |number| (0.0..=1.0).contains(&number))
        .ok_or_else(|| "want a number, 0 to 1".into())
}

/// A number above 0.
///
/// # Errors
/// Anything else.
pub(crate) fn above_zero(text: &str) -> Result<f64, String> {
    number(text, |number| number > 0.0).ok_or_else(|| "want a number above 0".into())
}

/// A finite number.
///
/// # Errors
/// Anything else.
pub(crate) fn finite(text: &str) -> Result<f64, String> {
    number(text, |_| true).ok_or_else(|| "want a finite number".into())
}

fn number(text: &str, is_right: impl Fn(f64) -> bool) -> Option<f64> {
    let found = text.parse().ok().filter(|number: &f64| number.is_finite());
    found.filter(|number| is_right(*number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_range_are_refused() {
        assert_eq!(positive("7"), Ok(7));
        for text in ["0", "-1", "1.5", "", "x", "99999999999999999999"] {
            assert!(positive(text).is_err(), "{text}");
        }
        assert_eq!((share("1"), share("0")), (Ok(1.0), Ok(0.0)));
        assert_eq!((above_zero("1e-3"), finite("-2")), (Ok(1e-3), Ok(-2.0)));
        for text in ["nan", "inf", "-inf", "x"] {
            let all = [share(text), above_zero(text), finite(text)];
            assert!(all.iter().all(Result::is_err), "{text}");
        }
        assert!(share("3").is_err() && share("-0.1").is_err() && above_zero("0").is_err());
    }
}
