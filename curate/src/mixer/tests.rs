//! Tests of translations: of patterns one by one, and of whole configurations.

use super::*;
use crate::expression::{self, Kind};

#[test]
fn jsonpath_patterns_become_conditions() {
    for (pattern, wanted) in [
        (
            "$.attributes[?(@.a && @.a[0] && @.a[0][2] < 0.5)]",
            "attributes.a[0][2] < 0.5",
        ),
        (
            "$@.attributes[?(@.a && @.a[0] && @.a[0][2] >= 1.0)]",
            "(attributes.a[0][2] > 1.0 or same(attributes.a[0][2], 1.0))",
        ),
        (
            "$.attributes[?(@.a__b-c[0][2] <= 0.5)]",
            "attributes[\"a__b-c\"][0][2] <= 0.5",
        ),
        ("$.metadata[?(@.length < 10000)]", "meta.length < 10000"),
        (
            "$.attributes[?(@.pii.too_much_pii == true)]",
            "attributes.pii.too_much_pii == true",
        ),
        ("$.attributes.foo", "has(attributes.foo)"),
        ("$.added", "has(meta.added)"),
        ("$['metadata'][\"x y\"]", "has(meta[\"x y\"])"),
        (
            "$[?(@.id == 'a' || @.source != 'b')]",
            "(id == \"a\" or not meta.source == \"b\")",
        ),
        (
            "$[?(@.source != 'b' || @.version nin ['v1', 2])]",
            "(not meta.source == \"b\" or not meta.version in [\"v1\", 2])",
        ),
        (
            "$.attributes[?(!@.a || !(@.b > 1 && @.c))]",
            "(not (has(attributes.a)) or not ((attributes.b > 1 and has(attributes.c))))",
        ),
        ("$.attributes[?(@.a != 1)]", "not same(attributes.a, 1)"),
        (
            "$.metadata[?(@.url ~= '^http:')]",
            "matches(meta.url, \"^http:\")",
        ),
        (
            "$.attributes.a[?(@[2] > 0.5)]",
            "any(attributes.a, it[2] > 0.5)",
        ),
        (
            "$.attributes.rows[?(@.n > 5 && @.k == 'x')]",
            "any(attributes.rows, (it.n > 5 and it.k == \"x\")) or (attributes.rows.n > 5 and attributes.rows.k == \"x\")",
        ),
    ] {
        let found = condition(pattern, Some(Syntax::Jsonpath));
        assert_eq!(found.as_deref(), Ok(wanted), "{pattern}");
    }
}

#[test]
fn jsonpath_patterns_without_a_counterpart_are_refused_with_their_place() {
    for (pattern, wanted) in [
        (
            "$..foo",
            "byte 1: found \"..foo\", wanted a name: descent is not translated",
        ),
        (
            "$.attributes[*]",
            "byte 12: found \"[*]\", wanted a name or a number: wildcards are not translated",
        ),
        (
            "$.attributes.a[0:2]",
            "byte 16: found \":2]\", wanted `]`: slices and several numbers are not translated",
        ),
        (
            "$.attributes['a','b']",
            "byte 16: found \",'b']\", wanted `]`: several names are not translated",
        ),
        ("attributes.a", "byte 0: found \"attributes.a\", wanted `$`"),
        ("$", "byte 1: found the end, wanted a field"),
        (
            "$.attributes[?(@.a == null)]",
            "byte 22: found \"null)]\", wanted a path, a number or a text",
        ),
        (
            "$.attributes[?(@.a == @.b)]",
            "byte 15: found == of these, wanted a path and a constant",
        ),
        (
            "$.attributes[?(@.a > 'x')]",
            "byte 15: found > of these, wanted numbers",
        ),
        (
            "$.attributes[?(@.a > 1].b",
            "byte 22: found \"].b\", wanted `)]`",
        ),
        (
            "$.attributes[?(@.a > 1)].b",
            "byte 24: found \".b\", wanted the end: what follows a filter is not translated",
        ),
        (
            "$.attributes[?(@.a.length() > 3)]",
            "byte 18: found \".length() > 3)]\", wanted a name: dolma finds no .length()",
        ),
        (
            "$.attributes.a[?(@[2] > 0.5 && @[1] > 3)]",
            "byte 17: found \"@[2] > 0.5 && @[1] >\", wanted one comparison: dolma looks for several inside the elements",
        ),
    ] {
        assert_eq!(
            jsonpath::condition(pattern),
            Err(wanted.to_string()),
            "{pattern}"
        );
    }
    let deep = format!("$.attributes[?({}@.a)]", "(".repeat(100));
    assert!(jsonpath::condition(&deep).unwrap_err().contains("levels"));
}

#[test]
fn jq_filters_become_conditions() {
    for (filter, wanted) in [
        (
            ".attributes.foo | length >= 3",
            "(default(length(attributes.foo), 0) >= 3)",
        ),
        (".attributes.foo | add >= 6", "(sum(attributes.foo) >= 6)"),
        (".attributes.baz == \"qux\"", "(attributes.baz == \"qux\")"),
        (".attributes.a != null", "(not (not has(attributes.a)))"),
        (
            ".attributes.a[0][-1] <= 0.01",
            "(not has(attributes.a[0][-1]) or attributes.a[0][-1] <= 0.01)",
        ),
        (
            "(.attributes.a | length) > 0",
            "(default(length(attributes.a), 0) > 0)",
        ),
        (
            "(.attributes.d | length == 0) or ((.attributes.d | map(.[2] * (.[1] - .[0])) | add) / (.text | length) <= 0.3)",
            "((default(length(attributes.d), 0) == 0) or ((sum(attributes.d, (it[2] * (it[1] - it[0]))) / length(text)) <= 0.3))",
        ),
        (
            "(.attributes.w | if type == \"array\" and length > 0 and .[0] != null then .[0][2] < 50 else false end)",
            "(((type(attributes.w) == \"array\") and (default(length(attributes.w), 0) > 0) and (not (not has(attributes.w[0])))) \
             and (not has(attributes.w[0][2]) or attributes.w[0][2] < 50))",
        ),
        ("(.metadata.n // 0) > 2", "(default(meta.n, 0) > 2)"),
        (
            ".metadata.url | test(\"^http:\") | not",
            "not matches(meta.url, \"^http:\")",
        ),
        (
            ".metadata.url | startswith(\"a.b\")",
            "matches(meta.url, \"^a\\.b\")",
        ),
        (
            ".attributes.a | any(.[2] > 0.5)",
            "any(attributes.a, (it[2] > 0.5))",
        ),
        (".attributes | has(\"a\")", "\"a\" in attributes"),
        (
            ".attributes.a | map(.[2]) | max > 1",
            "(max(attributes.a, it[2]) > 1)",
        ),
        (".metadata.a + 1 == 2", "((default(meta.a, 0) + 1) == 2)"),
    ] {
        let found = condition(filter, Some(Syntax::Jq));
        assert_eq!(found.as_deref(), Ok(wanted), "{filter}");
    }
    assert_eq!(
        jq::path(".attributes?.pii?.email?").as_deref(),
        Ok("attributes.pii.email")
    );
    let truthy = jq::condition(".attributes.foo").unwrap();
    expression::check(&truthy, Kind::Truth).unwrap();
}

#[test]
fn jq_filters_without_a_counterpart_are_refused_with_their_place() {
    for (filter, wanted) in [
        (".x | sum", "byte 5: found \"sum\", wanted one of null"),
        (
            ".a[] | . > 1",
            "byte 3: found \"] | . > 1\", wanted a number or a name: `.[]` and slices are not translated",
        ),
        ("..", "byte 0: found \"..\", wanted a path"),
        (".a == .b", "byte 3: found \"== .b\", wanted a comparison"),
        (
            ".a as $x | $x",
            "byte 3: found \"as $x | $x\", wanted the end",
        ),
        ("[.a]", "byte 0: found \"[.a]\", wanted a path, a constant"),
        ("\"\\(.a)\" == \"x\"", "byte 0: found"),
        (
            "if .a then 1 else 2 end",
            "byte 10: found \" 1 else 2 end\", wanted conditions",
        ),
        ("(.a", "byte 3: found the end, wanted `)`"),
        (".a | map(.b", "byte 11: found the end, wanted `)`"),
        ("", "byte 0: found the end"),
    ] {
        let why = jq::condition(filter).unwrap_err();
        assert!(why.starts_with(wanted), "{filter}: {why}");
    }
    let deep = "(".repeat(1000);
    assert!(jq::condition(&deep).unwrap_err().contains("levels"));
    // a condition occurs twice in what a choice becomes
    let mut filter = ".a > 1".to_string();
    for _ in 0..15 {
        filter = format!("if ({filter}) then .b > 1 else .c > 1 end");
    }
    assert!(
        jq::condition(&filter)
            .unwrap_err()
            .contains("a shorter filter")
    );
}

fn problems(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let value = yaml::parse(text).unwrap();
    of_value(&value, &mut |key, found_, wanted| {
        found.push(format!("{key}: {found_}: {wanted}"))
    });
    found
}

#[test]
fn every_key_without_a_counterpart_is_told_at_once() {
    let text = "streams:\n- name: a\n  documents: ['${oc.env:HOME}/documents/*.gz']\n  output: {path: o, discard_fields: [text]}\n  \
                filter: {include: ['$..a', $.attributes.b], exclude: [$.attributes.*]}\n  \
                span_replacement: [{span: '$..x', min_score: 1}]\n  compression: {output: bz2}\n";
    let found = problems(text);
    let keys = [
        "documents[0]",
        "filter.include[0]",
        "filter.exclude[0]",
        "span_replacement[0].span",
        "discard_fields[0]",
        "compression.output",
    ];
    assert_eq!(found.len(), keys.len(), "{found:#?}");
    for key in keys {
        assert!(
            found
                .iter()
                .any(|f| f.starts_with("streams[0].") && f.contains(key)),
            "{key}: {found:#?}"
        );
    }
    let found =
        problems("streams:\n- name: a\n  documents: [x]\n  output: {path: o}\n  filters: 3\n");
    assert!(
        found.len() == 1 && found[0].contains("unknown field `filters`"),
        "{found:?}"
    );
    assert_eq!(problems("streams: []\n").len(), 1);
}

#[test]
fn streams_share_a_job_by_their_names() {
    let text = "streams:\n- name: a b\n  documents: [a/documents/*.gz]\n  attributes: [x]\n  output: {path: o}\n  \
                filter: {exclude: ['$.attributes[?(@.n > 1)]']}\n- name: c\n  documents: [c/documents/*.gz]\n  output: {path: o, \
                min_text_length: 4}\n  span_replacement: [{span: $.attributes.s, min_score: 0.5, replacement: '-'}]\nprocesses: 2\n";
    let value = yaml::parse(text).unwrap();
    let found = of_value(&value, &mut |k, f, w| panic!("{k}: {f}: {w}")).unwrap();
    assert_eq!(
        found.job["curate"]["step"],
        json!([
            {"expression": {"name": "a-b_exclude_0", "keep": "not source == \"a-b\" or not (attributes.n > 1)"}},
            {"spans": {"replace": [{"spans": "attributes.s", "min_score": 0.5, "with": "-"}], "where": "source == \"c\""}},
            {"expression": {"name": "c_min_text_length", "keep": "not source == \"c\" or bytes(trim(text)) >= 4"}},
        ])
    );
    assert_eq!(found.job["curate"]["inputs"][0]["attributes"], json!(["x"]));
    assert!(
        found.notes.iter().any(|note| note.starts_with("processes")),
        "{:?}",
        found.notes
    );
}

proptest::proptest! {
    /// Every translation is an expression, and nothing panics.
    #[test]
    fn any_pattern_is_an_expression_or_refused(
        pattern in "(\\$|\\.|attributes|metadata|a|\\[|\\]|\\?\\(|\\)|@| && | \\|\\| |!|==|<=|>|1|1\\.0|'x'|,|length\\(\\)|\\PC){1,14}",
        filter in "(\\.|\\.attributes|\\.text|a|\\[0\\]|\\?|\\(|\\)| \\| | and | or | // |==|<|1|\"x\"|null|not|length|add|map\\(|any\\(|if | then | else | end|\\PC){1,14}",
    ) {
        for (pattern, syntax) in [(&pattern, Syntax::Jsonpath), (&filter, Syntax::Jq)] {
            if let Ok(found) = condition(pattern, Some(syntax)) {
                proptest::prop_assert!(expression::check(&found, Kind::Truth).is_ok());
            }
        }
    }
}
