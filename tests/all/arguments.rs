//! Arguments of functions have names: a tuple in their place has at most two fields, of different types, so that no two
//! numbers can be swapped unseen. Lists of pairs (`&[(f64, f64)]`) are data and may be tuples.

use crate::imports::{tokens, without_tests};
use std::collections::BTreeMap;

/// `function: the argument's type` of each argument that is such a tuple.
fn unnamed(text: &str) -> Vec<String> {
    let tokens = without_tests(&tokens(text));
    let mut found = Vec::new();
    for (at, _) in tokens
        .iter()
        .enumerate()
        .filter(|(_, token)| *token == "fn")
    {
        let Some(name) = tokens.get(at + 1).filter(|name| *name != "(") else {
            continue;
        };
        let open = past_generics(&tokens, at + 2);
        if tokens.get(open).is_none_or(|token| token != "(") {
            continue;
        }
        let list = &tokens[open + 1..close(&tokens, open)];
        for argument in fields(list) {
            let Some(colon) = top_level(argument).find(|&i| argument[i] == ":") else {
                continue;
            };
            let kind = bare(&argument[colon + 1..]);
            if kind.first().is_none_or(|token| token != "(") {
                continue;
            }
            let types: Vec<String> = fields(&kind[1..close(kind, 0)])
                .into_iter()
                .map(|field| without_lifetimes(field).join(" "))
                .collect();
            let is_repeated = |i: usize| types[..i].contains(&types[i]);
            if types.len() > 2 || (0..types.len()).any(is_repeated) {
                found.push(format!("{name}: ({})", types.join(", ")));
            }
        }
    }
    found
}

/// The type behind references and `Option`.
fn bare(mut kind: &[String]) -> &[String] {
    loop {
        kind = match kind {
            [first, rest @ ..] if first == "&" || first == "mut" || is_lifetime(first) => rest,
            [first, open, rest @ ..] if first == "Option" && open == "<" => rest,
            _ => return kind,
        };
    }
}

/// The tokens have lifetimes without their quote; names of types are longer.
fn is_lifetime(token: &str) -> bool {
    token == "_"
        || token == "static"
        || token.len() == 1 && token.as_bytes()[0].is_ascii_lowercase()
}

fn without_lifetimes(kind: &[String]) -> Vec<&str> {
    let tokens = kind.iter().map(String::as_str);
    tokens.filter(|token| !is_lifetime(token)).collect()
}

/// The token after the generic parameters that may start at `at`.
fn past_generics(tokens: &[String], at: usize) -> usize {
    if tokens.get(at).is_none_or(|token| token != "<") {
        return at;
    }
    let mut depth = 0;
    for (i, token) in tokens.iter().enumerate().skip(at) {
        match token.as_str() {
            "<" => depth += 1,
            ">" if tokens[i - 1] != "-" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return i + 1;
        }
    }
    tokens.len()
}

/// Where the bracket that opens at `open` closes.
fn close(tokens: &[String], open: usize) -> usize {
    let mut depth = 0;
    for (i, token) in tokens.iter().enumerate().skip(open) {
        match token.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return i;
        }
    }
    tokens.len()
}

/// Indices of tokens outside all brackets.
fn top_level(tokens: &[String]) -> impl Iterator<Item = usize> + '_ {
    let mut depth = 0;
    (0..tokens.len()).filter(move |&i| {
        match tokens[i].as_str() {
            "(" | "[" | "{" | "<" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            ">" if i > 0 && tokens[i - 1] != "-" => depth -= 1,
            _ => return depth == 0,
        }
        false
    })
}

/// Parts between the commas outside all brackets.
fn fields(tokens: &[String]) -> Vec<&[String]> {
    let commas: Vec<usize> = top_level(tokens).filter(|&i| tokens[i] == ",").collect();
    let mut parts = Vec::new();
    let mut from = 0;
    for comma in commas.into_iter().chain([tokens.len()]) {
        parts.push(&tokens[from..comma]);
        from = comma + 1;
    }
    parts.retain(|part| !part.is_empty());
    parts
}

#[test]
fn arguments_have_names() {
    let mut found = BTreeMap::new();
    let files = crate::architecture::sources();
    let is_test = |file: &str| file.contains("/tests/") || file.ends_with("tests.rs");
    for (file, text) in files
        .into_iter()
        .filter(|(file, _)| file.contains("/src/") && !is_test(file))
    {
        let unnamed = unnamed(&text);
        if !unnamed.is_empty() {
            found.insert(file, unnamed);
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn tuples_of_one_type_or_of_three_fields_are_found() {
    let text = "
        fn a((x, y): (usize, usize)) {}
        fn b<'t, F: Fn(u8, u8) -> u8>(f: F, of: &'t (A<'t>, B, C), z: u8) {}
        fn c(x: Option<(&'a Tensor, &Tensor)>) {}
        fn d((x, y): (usize, u8), list: &[(f64, f64)], f: impl Fn(u8, u8), x: [usize; 2]) {}
        #[cfg(test)]
        mod tests { fn e(x: (u8, u8)) {} }
    ";
    let found = unnamed(text);
    assert_eq!(
        found,
        [
            "a: (usize, usize)",
            "b: (A < >, B, C)",
            "c: (& Tensor, & Tensor)"
        ]
    );
}
