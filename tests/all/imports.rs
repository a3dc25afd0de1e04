//! Import graph between the files of a crate, read from the text of its `use` declarations and paths.
//!
//! A file points at the file that defines each name it uses: `use crate::a::Name` points at the file of `crate::a`,
//! or, if that file only re-exports `Name` with `pub use`, at the file behind it. A re-export adds no edge, since
//! the file that re-exports a name does not need it. Code under `#[cfg(test)]` is left out, since tests may name
//! anything.

use std::collections::{BTreeMap, BTreeSet};

/// Module path (`["a", "b"]`) of each file and the files that it imports from, by name relative to `src/`.
pub(crate) struct Imports {
    pub(crate) edges: BTreeMap<String, BTreeSet<String>>,
}

/// A file's text without comments, strings and test code, as words and signs.
pub(crate) fn tokens(text: &str) -> Vec<String> {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let byte = bytes[at];
        if rest.starts_with(b"//") {
            at += rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
        } else if rest.starts_with(b"/*") {
            at += comment(rest);
        } else if let Some(length) = raw_string(rest) {
            at += length;
            out.push("\"".into());
        } else if byte == b'"' {
            at += string(rest);
            out.push("\"".into());
        } else if byte == b'\'' {
            at += quote(rest);
        } else if byte == b'_' || byte.is_ascii_alphanumeric() {
            let end = rest
                .iter()
                .position(|&b| !(b == b'_' || b.is_ascii_alphanumeric()))
                .unwrap_or(rest.len());
            out.push(text[at..at + end].to_owned());
            at += end;
        } else if rest.starts_with(b"::") {
            out.push("::".into());
            at += 2;
        } else {
            if byte.is_ascii() && !byte.is_ascii_whitespace() {
                out.push(char::from(byte).to_string());
            }
            at += 1;
        }
    }
    out
}

/// Bytes of the block comment that `text` opens with; they nest.
fn comment(text: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        if text[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    at
}

/// Bytes of the raw string that `text` opens with (`r"`, `r#"`, `br#"`).
fn raw_string(text: &[u8]) -> Option<usize> {
    let prefix = if text.starts_with(b"br") {
        2
    } else {
        usize::from(text.starts_with(b"r"))
    };
    if prefix == 0 {
        return None;
    }
    let hashes = text[prefix..].iter().take_while(|&&b| b == b'#').count();
    if text.get(prefix + hashes) != Some(&b'"') {
        return None;
    }
    let close = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
    let body = &text[prefix + hashes + 1..];
    let end = body.windows(close.len()).position(|w| w == close)?;
    Some(prefix + hashes + 1 + end + close.len())
}

/// Bytes of the string that `text` opens with.
fn string(text: &[u8]) -> usize {
    let mut at = 1;
    while at < text.len() {
        match text[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    at
}

/// Bytes of the character or lifetime that `text` opens with.
fn quote(text: &[u8]) -> usize {
    if text.get(1) == Some(&b'\\') {
        let end = text.iter().skip(3).position(|&b| b == b'\'');
        return end.map_or(text.len(), |e| e + 4);
    }
    // a character has one to four bytes
    let end = text.iter().skip(2).take(4).position(|&b| b == b'\'');
    match end {
        Some(e) if e == 0 || !text[1].is_ascii() => e + 3,
        _ => 1,
    }
}

/// The declarations and names of a file.
#[derive(Default)]
struct Contents {
    /// Modules in separate files, and their `#[path]`, if any.
    modules: Vec<Module>,
    /// Paths as written, from `use` and from expressions.
    paths: Vec<Vec<String>>,
    /// Names re-exported by `pub use`, with the path of each.
    exports: Vec<Export>,
}

struct Export {
    /// `*` for all of a module's names.
    name: String,
    path: Vec<String>,
}

struct Module {
    name: String,
    is_test: bool,
}

fn contents(text: &str) -> Contents {
    let tokens = without_tests(&tokens(text));
    let mut found = Contents::default();
    for module in tokens_of_modules(text) {
        found.modules.push(module);
    }
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at] == "use" {
            let end = tokens[at..].iter().position(|t| t == ";").unwrap_or(0) + at;
            let mut trees = Vec::new();
            tree(&tokens[at + 1..end], &mut Vec::new(), &mut trees);
            if at > 0 && (tokens[at - 1] == "pub" || tokens[at - 1] == ")") {
                found.exports.extend(trees);
            } else {
                found.paths.extend(trees.into_iter().map(|t| t.path));
            }
            at = end.max(at + 1);
        } else if tokens.get(at + 1).is_some_and(|t| t == "::")
            && (at == 0 || tokens[at - 1] != "::")
            && is_word(&tokens[at])
        {
            let mut path = vec![tokens[at].clone()];
            let mut next = at + 1;
            while tokens.get(next).is_some_and(|t| t == "::")
                && tokens.get(next + 1).is_some_and(|t| is_word(t))
            {
                path.push(tokens[next + 1].clone());
                next += 2;
            }
            // a macro is found by name, whichever module defines it
            if tokens.get(next).is_none_or(|t| t != "!") {
                found.paths.push(path);
            }
            at = next;
        } else {
            at += 1;
        }
    }
    found
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic())
}

/// The paths of a `use` tree.
fn tree(tokens: &[String], prefix: &mut Vec<String>, found: &mut Vec<Export>) {
    let depth = prefix.len();
    let mut renamed = None;
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at].as_str() {
            "{" => {
                let mut open = 0;
                let mut from = at + 1;
                for (end, token) in tokens.iter().enumerate().skip(at) {
                    match token.as_str() {
                        "{" => open += 1,
                        "}" => open -= 1,
                        _ => {}
                    }
                    if open == 0 || (open == 1 && token == ",") {
                        tree(&tokens[from..end], prefix, found);
                        from = end + 1;
                    }
                    if open == 0 {
                        break;
                    }
                }
                prefix.truncate(depth);
                return;
            }
            "::" => {}
            "*" => prefix.push("*".into()),
            "as" => {
                renamed = tokens.get(at + 1).cloned();
                break;
            }
            "self" if at > 0 => {}
            word => prefix.push(word.to_owned()),
        }
        at += 1;
    }
    if !tokens.is_empty() {
        let name = renamed.or_else(|| prefix.last().cloned());
        found.push(Export {
            name: name.unwrap_or_default(),
            path: prefix.clone(),
        });
    }
    prefix.truncate(depth);
}

/// Declarations `mod name;`, with a note which of them are test code.
fn tokens_of_modules(text: &str) -> Vec<Module> {
    let tokens = tokens(text);
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        let is_declaration = tokens[at] == "mod" && tokens.get(at + 2).is_some_and(|t| t == ";");
        if is_declaration {
            let before = tokens[at.saturating_sub(12)..at].join("");
            let last = before
                .rsplit([';', '}'])
                .next()
                .unwrap_or_default()
                .to_owned();
            found.push(Module {
                name: tokens[at + 1].clone(),
                is_test: last.contains("cfg(test)") || last.contains("cfg(all(test"),
            });
        }
    }
    found
}

/// Tokens without the items under `#[cfg(test)]`.
pub(crate) fn without_tests(tokens: &[String]) -> Vec<String> {
    let mark: Vec<String> = ["#", "[", "cfg", "(", "test", ")", "]"]
        .map(String::from)
        .into();
    let mut out = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if !tokens[at..].starts_with(&mark) {
            out.push(tokens[at].clone());
            at += 1;
            continue;
        }
        at += mark.len();
        let mut open = 0_i32;
        while at < tokens.len() {
            let token = tokens[at].as_str();
            at += 1;
            match token {
                "{" | "(" | "[" => open += 1,
                "}" | ")" | "]" => open -= 1,
                _ => {}
            }
            // an attribute's bracket does not end the item
            if open == 0 && (token == ";" || token == "}" || token == ",") {
                break;
            }
            if open < 0 {
                at -= 1;
                break;
            }
        }
    }
    out
}

impl Imports {
    /// `files`: name relative to the crate's `src/` and text. The root is `lib.rs`.
    pub(crate) fn read(files: &BTreeMap<String, String>) -> Imports {
        let mut modules = BTreeMap::new();
        let mut parsed = BTreeMap::new();
        let mut open = vec![(Vec::new(), "lib.rs".to_owned())];
        while let Some((path, file)) = open.pop() {
            let Some(text) = files.get(&file) else {
                continue;
            };
            let read = contents(text);
            for module in read.modules.iter().filter(|m| !m.is_test) {
                let mut child: Vec<String> = Vec::clone(&path);
                child.push(module.name.clone());
                let stem = child.join("/");
                let names = [format!("{stem}.rs"), format!("{stem}/mod.rs")];
                if let Some(name) = names.into_iter().find(|n| files.contains_key(n)) {
                    open.push((child, name));
                }
            }
            let exports = read.exports;
            modules.insert(
                path.clone(),
                Node {
                    file: file.clone(),
                    exports,
                },
            );
            parsed.insert(file, (path, read.paths));
        }
        let mut edges = BTreeMap::new();
        for (file, (own, paths)) in &parsed {
            let mut to = BTreeSet::new();
            for path in paths {
                to.extend(target(own, path, &modules, 0).filter(|t| t != file));
            }
            edges.insert(file.clone(), to);
        }
        Imports { edges }
    }

    /// Groups of files with circular imports, the largest first.
    pub(crate) fn circles(&self) -> Vec<Vec<String>> {
        let reach: BTreeMap<&String, BTreeSet<&String>> =
            self.edges.keys().map(|f| (f, self.reachable(f))).collect();
        let mut found: Vec<Vec<String>> = Vec::new();
        for (file, all) in &reach {
            if !all.contains(file) || found.iter().any(|c| c.contains(file)) {
                continue;
            }
            let circle = all.iter().filter(|o| reach[**o].contains(*file));
            found.push(circle.map(|o| (*o).clone()).collect());
        }
        found.sort_by_key(|c| std::cmp::Reverse(c.len()));
        found
    }

    /// Imports from a file of a higher layer, and files without a layer. `layers` are the groups of folders (with a
    /// slash behind them) and files, the lowest first; of several that match, the longest counts. `lib.rs` is above
    /// all.
    pub(crate) fn upward(&self, layers: &[&[&str]]) -> Vec<String> {
        let layer_of = |file: &str| {
            let named = layers.iter().enumerate().flat_map(|(layer, names)| {
                let fits = move |name: &&&str| match name.strip_suffix('/') {
                    Some(_) => file.starts_with(**name),
                    None => file == **name,
                };
                names
                    .iter()
                    .filter(fits)
                    .map(move |name| (name.len(), layer))
            });
            named.max().map(|(_, layer)| layer)
        };
        let mut found = Vec::new();
        for (from, to) in self.edges.iter().filter(|(from, _)| *from != "lib.rs") {
            let Some(layer) = layer_of(from) else {
                found.push(format!("{from} is in no layer"));
                continue;
            };
            let above = to.iter().filter(|t| layer_of(t).is_none_or(|l| l > layer));
            found.extend(above.map(|to| format!("{from} -> {to}")));
        }
        found
    }

    fn reachable(&self, from: &str) -> BTreeSet<&String> {
        let mut seen = BTreeSet::new();
        let mut open: Vec<&String> = self.edges[from].iter().collect();
        while let Some(file) = open.pop() {
            if seen.insert(file) {
                open.extend(self.edges.get(file).into_iter().flatten());
            }
        }
        seen
    }
}

/// A module with a file.
struct Node {
    file: String,
    exports: Vec<Export>,
}

type Modules = BTreeMap<Vec<String>, Node>;

/// Longest chain of re-exports that is followed.
const MOST_EXPORTS: usize = 8;

/// The file that defines the name at the end of a path, seen from module `own`.
fn target(own: &[String], path: &[String], modules: &Modules, depth: usize) -> Option<String> {
    let mut full: Vec<String> = match path.first()?.as_str() {
        "crate" => Vec::new(),
        "self" | "super" => own.to_vec(),
        first => {
            let mut child = own.to_vec();
            child.push(first.to_owned());
            if !modules.contains_key(&child) {
                return None;
            }
            own.to_vec()
        }
    };
    let mut rest = path;
    if ["crate", "self"].contains(&rest[0].as_str()) {
        rest = &rest[1..];
    }
    while rest.first().is_some_and(|p| p == "super") {
        full.pop();
        rest = &rest[1..];
    }
    while let Some((part, after)) = rest.split_first() {
        full.push(part.clone());
        if modules.contains_key(&full) {
            rest = after;
            continue;
        }
        full.pop();
        let exports = &modules.get(&full)?.exports;
        let passed = exports.iter().find(|e| e.name == *part);
        if let Some(export) = passed.filter(|_| depth < MOST_EXPORTS) {
            let mut behind = export.path.clone();
            behind.extend_from_slice(after);
            if let Some(found) = target(&full, &behind, modules, depth + 1) {
                return Some(found);
            }
        }
        break;
    }
    modules.get(&full).map(|n| n.file.clone())
}

#[test]
fn a_planted_circle_is_found_and_a_re_export_or_a_test_is_none() {
    let files = |helper: &str| -> BTreeMap<String, String> {
        [
            (
                "lib.rs",
                "pub mod top; pub mod low; #[cfg(test)] mod tests;",
            ),
            (
                "top/mod.rs",
                "mod part; pub use part::Part; use crate::low::{self, Low};",
            ),
            (
                "top/part.rs",
                "/* use super::Part; */ pub struct Part; // crate::top",
            ),
            ("low.rs", helper),
            ("tests.rs", "use crate::top::Part;"),
        ]
        .map(|(name, text)| (name.to_owned(), text.to_owned()))
        .into()
    };
    let clean = "#[cfg(test)] mod tests { use crate::top; } const A: &str = \"crate::top::Part\";";
    let clean = Imports::read(&files(clean));
    assert!(clean.circles().is_empty(), "{:?}", clean.edges);
    assert!(
        clean.edges["top/mod.rs"].contains("low.rs"),
        "{:?}",
        clean.edges
    );
    assert_eq!(clean.edges.len(), 4, "{:?}", clean.edges);

    let through_the_re_export = "fn f() -> crate::top::Part { loop {} }";
    let down = Imports::read(&files(through_the_re_export));
    assert!(
        down.edges["low.rs"].contains("top/part.rs"),
        "{:?}",
        down.edges
    );
    assert!(down.circles().is_empty(), "{:?}", down.edges);

    for circle in [
        "use crate::top;",
        "use crate::top as t;",
        "fn f() { super::top::g() }",
    ] {
        let found = Imports::read(&files(circle)).circles();
        assert_eq!(found, [["low.rs", "top/mod.rs"]], "{circle}");
    }
}

#[test]
fn a_planted_arrow_up_is_found_and_so_is_a_file_without_a_layer() {
    let upward = |low: &str, layers: &[&[&str]]| {
        let files = [
            ("lib.rs", "pub mod top; mod low; mod side;"),
            ("top/mod.rs", "mod part; use crate::low::Low;"),
            ("top/part.rs", "use crate::side::Side;"),
            ("low.rs", low),
            ("side.rs", "use crate::low::Low;"),
        ];
        let files = files.map(|(name, text)| (name.to_owned(), text.to_owned()));
        Imports::read(&files.into()).upward(layers)
    };
    let layers: &[&[&str]] = &[&["low.rs", "side.rs"], &["top/"]];
    assert_eq!(upward("", layers), [""; 0]);
    // within a layer only circular imports are forbidden
    assert_eq!(upward("use crate::side::Side;", layers), [""; 0]);
    let found = upward("use crate::top::part::Part;", layers);
    assert_eq!(found, ["low.rs -> top/part.rs"]);
    // a file of a folder can have a separate layer
    let split: &[&[&str]] = &[&["top/part.rs", "low.rs", "side.rs"], &["top/"]];
    assert_eq!(upward("use crate::top::part::Part;", split), [""; 0]);
    let found = upward("use crate::top;", split);
    assert_eq!(found, ["low.rs -> top/mod.rs"]);
    let found = upward("", &[&["low.rs"], &["top/"]]);
    assert_eq!(found, ["side.rs is in no layer", "top/part.rs -> side.rs"]);
}
