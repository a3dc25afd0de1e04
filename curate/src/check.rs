//! Validation of settings: every contradiction is reported, as key path, found and wanted.

/// Receives problems of `check`: key path relative to the struct, found value, wanted value.
pub type Problem<'a> = &'a mut dyn FnMut(&str, String, &str);

/// Reports when `value` is outside `low..=high`.
pub(crate) fn range(problem: Problem<'_>, key: &str, value: f64, low: f64, high: f64) {
    if !(low..=high).contains(&value) {
        problem(
            key,
            format!("{value}"),
            &format!("a number from {low} to {high}"),
        );
    }
}
