//! Tests of expressions.

use std::sync::LazyLock;

use serde_json::Value as Json;

use super::*;

struct Document;

impl Metrics for Document {
    fn number(&self, name: &str) -> Option<f64> {
        match name {
            "chars" => Some(1000.0),
            "gopher_quality.short_doc" => Some(80.0),
            "half" => Some(0.5),
            _ => None,
        }
    }

    fn text(&self, name: &str) -> Option<&str> {
        (name == "language").then_some("en")
    }

    fn field(&self, root: &str) -> Option<&Json> {
        (root == "meta").then(|| &*META)
    }
}

static META: LazyLock<Json> = LazyLock::new(|| {
    crate::text::json::from_slice(
        br#"{"n": 3, "deep": {"list": [1, 2.5, 4], "odd name": "x"}, "word": "Stra\u00dfe ", "yes": true, "no": false,
        "nothing": null, "tags": ["news", "sport"], "spans": [[0, 10, 1.0], [10, 30, 0.5], [30, 40, 0.25]], "nan": NaN,
        "empty": [], "rows": [{"a": 1}, {"a": 5, "b": "z"}, 7]}"#,
    )
    .unwrap()
});

fn parse(source: &str) -> Result<Expression, String> {
    let scope = Scope {
        numbers: &[],
        texts: &["language"],
        fields: &["meta"],
    };
    Expression::parse(source, Kind::Truth, scope)
}

#[test]
fn conditions_hold_as_arithmetic_says() {
    for (source, wanted) in [
        ("chars == 1000", true),
        ("chars > 1e3", false),
        ("gopher_quality.short_doc >= 80 and language == 'en'", true),
        ("language == \"de\" or half*2 == 1", true),
        (
            "1 + 2 * 3 == 7 and (1 + 2) * 3 == 9 and 8 / 4 / 2 == 1 and 5 - 2 - 1 == 2",
            true,
        ),
        ("not chars < 10 and not (half > 1 or half < 0)", true),
        ("!(chars < 10) && -half < 0 || false", true),
        ("true or false and false", true),
        (
            "min(chars, 3, half) == 0.5 and max(chars, 3) == chars and ln(1) == 0",
            true,
        ),
        ("language != 'en'", false),
        ("order.is == 1", false),
    ] {
        assert_eq!(parse(source).unwrap().holds(&Document), wanted, "{source}");
    }
}

#[test]
fn a_figure_that_was_not_measured_meets_no_comparison() {
    for source in [
        "x > 1",
        "x < 1",
        "x == x",
        "x != 1",
        "max(x, 1) > 0",
        "x + 1 > 0",
        "ln(x) < 9",
    ] {
        assert!(!parse(source).unwrap().holds(&Document), "{source}");
    }
}

#[test]
fn names_are_told_once_and_sorted() {
    let e = parse("b.c > 1 and a > b.c and language == 'x'").unwrap();
    assert_eq!(e.names().collect::<Vec<_>>(), ["a", "b.c", "language"]);
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    for (source, wanted) in [
        (
            "",
            "byte 0: found the end, wanted a name, a number, a text or `(`",
        ),
        (
            "chars >",
            "byte 7: found the end, wanted a name, a number, a text or `(`",
        ),
        (
            "chars > 1 half",
            "byte 10: found \"half\", wanted the end, `and` or `or`",
        ),
        (
            "chars",
            "byte 0: found a number, \"chars\", wanted a condition",
        ),
        (
            "chars > 'x'",
            "byte 8: found a text, \"'x'\", wanted a number",
        ),
        (
            "language + 1 > 2",
            "byte 0: found a text, \"language + 1\", wanted a number",
        ),
        (
            "1 < chars < 3",
            "byte 10: found \"<\", wanted the end, `and` or `or`",
        ),
        ("(chars > 1", "byte 10: found the end, wanted `)`"),
        (
            "sqrt(chars) > 1",
            "byte 0: found sqrt(), wanted one of min max sum mean count any all ln length bytes trim lower has matches type default same",
        ),
        ("ln(1, 2) > 1", "byte 0: found 2 arguments of ln, wanted 1"),
        ("chars > 1x", "byte 8: found \"1x\", wanted a number"),
        (
            "language == 'en",
            "byte 12: found \"'en\", wanted a closed text",
        ),
        (
            "chars > 1 and",
            "byte 13: found the end, wanted a name, a number, a text or `(`",
        ),
    ] {
        assert_eq!(parse(source).unwrap_err(), wanted, "{source}");
    }
    assert!(parse(&"(".repeat(1000)).unwrap_err().contains("64 levels"));
    assert!(
        parse(&"not ".repeat(1000))
            .unwrap_err()
            .contains("64 levels")
    );
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_parser_fail_otherwise(source in "([a-z0-9.<>=!&|+*/() '\"\\[\\],-]|and|or|not|in|meta|it|any\\(|meta.spans|\\PC){0,60}") {
        if let Ok(e) = parse(&source) {
            e.holds(&Document);
        }
    }
}

#[test]
fn values_of_the_metadata_are_compared_by_their_kind() {
    for (source, wanted) in [
        ("meta.n == 3 and meta.n + 1 > 3.5", true),
        ("meta.deep.list[0] == 1 and meta.deep.list[-1] == 4", true),
        ("meta.deep.list[3] == 4 or meta.deep.list[-4] == 1", false),
        ("meta.deep[\"odd name\"] == 'x' and meta[ 'n' ] == 3", true),
        ("meta.yes and not meta.no", true),
        ("meta.yes == true and meta.no != true", true),
        ("length(meta.word) == 7 and bytes(meta.word) == 8", true),
        (
            "trim(meta.word) == 'Stra\u{df}e' and lower(trim(meta.word)) == 'stra\u{df}e'",
            true,
        ),
        (
            "length(meta.deep.list) == 3 and length(meta.deep) == 2",
            true,
        ),
        ("'news' in meta.tags and not 'film' in meta.tags", true),
        (
            "meta.n in [1, 2, 3] and language in ['de', 'en'] and not meta.n in []",
            true,
        ),
        ("-meta.n in [-3]", true),
        ("'list' in meta.deep and not 'n' in meta.deep", true),
        ("'tra' in meta.word and 'e' in language", true),
        (
            "matches(meta.word, '^S.*e\\s$') and not matches(language, '^e$')",
            true,
        ),
        (
            "has(meta.n) and has(meta.deep.list[1]) and has(language)",
            true,
        ),
        (
            "has(meta.nothing) or has(meta.none) or has(meta.n.n) or has(meta.nan)",
            false,
        ),
        ("meta.rows[1].a == 5 and meta.rows[1].b == 'z'", true),
        ("min(meta.n, 2) == 2 and max(meta.n, 2) == 3", true),
        (
            "same(meta.n, 3) and not same(meta.n, 3.0) and not same(meta.none, 3)",
            true,
        ),
        (
            "same(meta.deep.list[1], 2.5) and same(meta.yes, true) and same(meta.tags[0], 'news')",
            true,
        ),
        (
            "type(meta.n) == 'number' and type(meta.word) == 'string' and type(meta.yes) == 'boolean'",
            true,
        ),
        (
            "type(meta.tags) == 'array' and type(meta.deep) == 'object' and type(meta.nothing) == 'null'",
            true,
        ),
        (
            "default(meta.none, 7) == 7 and default(meta.n, 7) == 3 and default(length(meta.n), 0) == 0",
            true,
        ),
    ] {
        assert_eq!(parse(source).unwrap().holds(&Document), wanted, "{source}");
    }
}

#[test]
fn what_is_absent_or_of_another_kind_meets_no_comparison() {
    for value in [
        "meta.none",
        "meta.nothing",
        "meta.word",
        "meta.tags",
        "meta.yes",
        "meta.nan",
        "meta.n.x",
        "meta.tags.x",
    ] {
        for with in ["> 1", "< 1", "== 3", "!= 3", "+ 1 > 0", "in [3]"] {
            let source = format!("{value} {with}");
            assert!(!parse(&source).unwrap().holds(&Document), "{source}");
        }
    }
    for source in [
        "meta.n == 'x'",
        "meta.n != 'x'",
        "meta.n",
        "meta.tags",
        "3 in meta.n",
        "3 in meta.deep",
        "matches(meta.n, '.')",
        "length(meta.n) >= 0",
        "sum(meta.n) >= 0",
        "sum(meta.tags) >= 0",
        "max(meta.empty) >= 0",
        "mean(meta.empty) >= 0",
        "max(meta.rows, it.a) >= 0",
    ] {
        assert!(!parse(source).unwrap().holds(&Document), "{source}");
    }
}

#[test]
fn functions_of_a_list_see_each_element() {
    for (source, wanted) in [
        (
            "sum(meta.deep.list) == 7.5 and mean(meta.deep.list) == 2.5",
            true,
        ),
        (
            "max(meta.deep.list) == 4 and min(meta.deep.list) == 1",
            true,
        ),
        (
            "count(meta.tags) == 2 and count(meta.empty) == 0 and sum(meta.empty) == 0",
            true,
        ),
        ("sum(meta.spans, it[2] * (it[1] - it[0])) == 22.5", true),
        (
            "max(meta.spans, it[2]) == 1 and min(meta.spans, it[1] - it[0]) == 10",
            true,
        ),
        (
            "any(meta.spans, it[2] >= 1) and not all(meta.spans, it[2] >= 0.5)",
            true,
        ),
        ("count(meta.spans, it[2] >= 0.5 and it[0] > 0) == 1", true),
        (
            "all(meta.empty, it > 3) and not any(meta.empty, it < 3)",
            true,
        ),
        (
            "any(meta.tags, it == 'sport') and any(meta.tags, matches(it, '^n')) and any(meta.tags, it in ['news'])",
            true,
        ),
        (
            "any(meta.rows, it.b == 'z') and count(meta.rows, has(it.a)) == 2",
            true,
        ),
        (
            "any(meta.spans, any(it, it == 30)) and sum(meta.spans, sum(it)) == 121.75",
            true,
        ),
        ("max(max(meta.deep.list, it * 2), meta.n) == 8", true),
    ] {
        assert_eq!(parse(source).unwrap().holds(&Document), wanted, "{source}");
    }
}

#[test]
fn wrong_uses_of_values_are_told_with_their_place() {
    for (source, wanted) in [
        (
            "it > 1",
            "byte 0: found \"it\", wanted `it` only inside a function of a list's elements",
        ),
        (
            "any(meta.x, meta.y > 1)",
            "byte 12: found \"meta\", wanted `it` or a constant inside a function of a list's elements",
        ),
        (
            "any(meta.x, chars > 1)",
            "byte 12: found \"chars\", wanted `it` or a constant inside a function of a list's elements",
        ),
        (
            "any(chars, it > 1)",
            "byte 11: found \"it\", wanted `it` only inside a function of a list's elements",
        ),
        (
            "meta.x in [meta.y]",
            "byte 11: found \"meta.y\", wanted a constant",
        ),
        (
            "language in [1]",
            "byte 13: found a number, \"1\", wanted a text",
        ),
        (
            "chars in 'x'",
            "byte 0: found a number, \"chars in 'x'\", wanted a text",
        ),
        ("chars in 3", "byte 9: found a number, \"3\", wanted a text"),
        (
            "meta..x > 1",
            "byte 0: found \"meta..x\", wanted a name behind each dot",
        ),
        (
            "meta.x[ > 1",
            "byte 8: found \">\", wanted a whole number or a quoted name",
        ),
        ("meta.x[1 > 1", "byte 9: found \">\", wanted `]`"),
        (
            "length(meta.x, 1) > 1",
            "byte 0: found 2 arguments of length, wanted 1",
        ),
        (
            "length(3) > 1",
            "byte 7: found a number, \"3\", wanted a text",
        ),
        (
            "sum(meta.x, it == 1) > 1",
            "byte 12: found a condition, \"it == 1\", wanted a number",
        ),
        (
            "count(meta.x, it + 1) > 1",
            "byte 14: found a number, \"it + 1\", wanted a condition",
        ),
        (
            "matches(language, language)",
            "found a pattern that is no constant, wanted matches(text, \"pattern\")",
        ),
        (
            "same(chars, 1)",
            "byte 0: found other arguments of same, wanted a value of the metadata and a constant",
        ),
        ("sum(meta.x", "byte 10: found the end, wanted `,` or `)`"),
        ("meta.x in [1", "byte 12: found the end, wanted `,` or `]`"),
    ] {
        assert_eq!(parse(source).unwrap_err(), wanted, "{source}");
    }
    let why = parse("matches(language, '(')").unwrap_err();
    assert!(
        why.starts_with("byte 18: found error") && why.ends_with("wanted a regular expression"),
        "{why}"
    );
}

#[test]
fn a_dropped_document_shows_what_was_compared() {
    let e = parse("meta.deep.list[1] > 3 and chars > 1 and 'x' in meta.tags and meta.none > 1")
        .unwrap();
    assert_eq!(
        e.shown(&Document),
        "chars=1000 meta.deep.list[1]=2.5 meta.tags=[\"news\",\"sport\"] meta.none=?"
    );
}
