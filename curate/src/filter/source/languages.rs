//! Language of a source file by its name and its text.
//!
//! Names, extensions and interpreters of 800 languages are those of GitHub's linguist (b45dbe9; `languages.tsv.zst`, made by
//! tests/oracles/source_tables.py). A whole file name decides first, then the interpreter of a `#!` line, then the
//! longest known extension. Where several languages share the extension, signs of our own decide (`SIGNS`), then the
//! classifier of source code (`code`), then the language that GitHub lists as popular, then the one that names the
//! extension first. linguist itself decides there by its own patterns and a classifier, which are not ours.

use std::sync::LazyLock;

use regex::Regex;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::file;
use crate::check::Problem;
use crate::contract::{Draft, Filter, Opening, StepConfig, StepScratch};
use crate::error::Result;
use crate::quality::code::identify_code;
use crate::verdict::{Judge, KEEP, Verdict, broken};

/// A language of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Language(usize);

/// Purpose of a language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LanguageKind {
    /// Programs.
    Programming,
    /// Documents and styles, such as HTML and CSS.
    Markup,
    /// Data, such as JSON and YAML.
    Data,
    /// Texts, such as Markdown.
    Prose,
}

struct Entry {
    name: &'static str,
    kind: LanguageKind,
    is_popular: bool,
}

struct Table {
    entries: Vec<Entry>,
    names: FxHashMap<String, Language>,
    files: FxHashMap<&'static str, Vec<Language>>,
    interpreters: FxHashMap<&'static str, Vec<Language>>,
    /// By extension in lower case, without its dot; of several languages first those that name it first.
    extensions: FxHashMap<String, Vec<Language>>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let packed = &include_bytes!("languages.tsv.zst")[..];
    // the file is part of the program and a test reads it
    let text = zstd::decode_all(packed).expect("the table of languages is whole");
    let text: &'static str = String::leak(String::from_utf8_lossy(&text).into_owned());
    let mut table = Table {
        entries: Vec::new(),
        names: FxHashMap::default(),
        files: FxHashMap::default(),
        interpreters: FxHashMap::default(),
        extensions: FxHashMap::default(),
    };
    let mut ranked: FxHashMap<String, Vec<(usize, Language)>> = FxHashMap::default();
    for line in text.lines() {
        let fields: Vec<&'static str> = line.split('\t').collect();
        let &[name, kind, extensions, files, interpreters, popular] = &fields[..] else {
            continue;
        };
        let language = Language(table.entries.len());
        let kind = match kind {
            "programming" => LanguageKind::Programming,
            "markup" => LanguageKind::Markup,
            "data" => LanguageKind::Data,
            _ => LanguageKind::Prose,
        };
        table.entries.push(Entry {
            name,
            kind,
            is_popular: popular == "1",
        });
        table.names.insert(name.to_lowercase(), language);
        let list = |text: &'static str| text.split('|').filter(|s| !s.is_empty());
        for file in list(files) {
            table.files.entry(file).or_default().push(language);
        }
        for program in list(interpreters) {
            table
                .interpreters
                .entry(program)
                .or_default()
                .push(language);
        }
        for (rank, extension) in list(extensions).enumerate() {
            let extension = extension.trim_start_matches('.').to_ascii_lowercase();
            ranked.entry(extension).or_default().push((rank, language));
        }
    }
    for (extension, mut languages) in ranked {
        languages.sort_by_key(|(rank, language)| (*rank, language.0));
        languages.dedup_by_key(|(_, language)| language.0);
        let languages = languages.into_iter().map(|(_, language)| language);
        table.extensions.insert(extension, languages.collect());
    }
    table
});

impl Language {
    /// Name, as linguist writes it.
    pub(super) fn name(self) -> &'static str {
        TABLE.entries[self.0].name
    }

    /// Its purpose.
    pub(super) fn kind(self) -> LanguageKind {
        TABLE.entries[self.0].kind
    }
}

/// A language by its name, in any case.
pub(super) fn by_name(name: &str) -> Option<Language> {
    TABLE.names.get(&name.to_lowercase()).copied()
}

/// Fields of `meta` that have the language: that of the step `file_language` first.
const LANGUAGES: [&str; 4] = ["file_language", "lang", "language", "programming_language"];

/// The language that `meta` names, if there is one of that name.
pub(super) fn told_language(draft: &Draft) -> Option<Language> {
    let names = LANGUAGES
        .iter()
        .filter_map(|key| file::field(draft, key)?.as_str());
    names.into_iter().find_map(by_name)
}

/// Signs of a language among those that share an extension. Our own.
static SIGNS: LazyLock<Vec<(&str, &str, Regex)>> = LazyLock::new(|| {
    [
        ("h m mm", "Objective-C", r"(?m)^[ \t]*(?:@(?:interface|implementation|protocol|property|class|end|import)\b|#import\b)"),
        ("h", "C++", r"(?m)^[ \t]*(?:template[ \t]*<|namespace\b|class[ \t]+\w+[^;]*[{:]|using[ \t]+\w|(?:public|private|protected)[ \t]*:)|\bstd::|^[ \t]*#[ \t]*include[ \t]*<(?:string|vector|map|memory|iostream|functional|utility|algorithm)>"),
        ("h", "C", ""),
        ("m", "Mercury", r"(?m)^:- module\b"),
        ("m", "Wolfram Language", r"(?m)\(\*|^\s*BeginPackage\["),
        ("m", "MATLAB", r"(?m)^[ \t]*(?:%|function\b|end\b|classdef\b)|\.\*|;[ \t]*$"),
        ("pl", "Prolog", r"(?m)^[^#\n]*:-"),
        ("pl pm t", "Raku", r"(?m)^[ \t]*(?:use v6\b|(?:my )?class \w+|unit module|multi sub\b)"),
        ("pl pm t", "Perl", r"(?m)\buse (?:strict|warnings|v?5)|^[ \t]*(?:my|our|sub)\b|\$\w"),
        ("t", "Turing", r"(?m)^[ \t]*(?:proc|var \w+ *:|put )"),
        ("ts", "XML", r"\A\s*<(?:\?xml|TS\b)"),
        ("rs", "XML", r"\A\s*<\?xml"),
        ("rs", "RenderScript", r"#pragma version|#pragma rs"),
        ("rs", "Rust", ""),
        ("v", "Rocq Prover", r"(?m)^[ \t]*(?:Require|Import|Theorem|Lemma|Definition|Fixpoint|Proof|Inductive|Section)\b"),
        ("v", "V", r"(?m)^[ \t]*(?:fn |pub fn |module main|import )"),
        ("v", "Verilog", r"(?m)^[ \t]*(?:module|endmodule|input|output|wire|reg|always|assign|`)"),
        ("php", "Hack", r"<\?hh"),
        ("php inc", "PHP", r"<\?"),
        ("cls", "Apex", r"(?mi)^[ \t]*(?:(?:global|public|private)[ \t]+)+(?:with sharing |without sharing |virtual |abstract )*class\b"),
        ("cls", "TeX", r"\\(?:NeedsTeXFormat|ProvidesClass|LoadClass|def)"),
        ("cls", "VBA", r"(?mi)^VERSION \d|^Attribute VB_"),
        ("sql", "PLpgSQL", r"(?i)\$\$|language plpgsql|\bRAISE NOTICE\b"),
        ("sql", "PLSQL", r"(?i)\bpragma\b|\bsys_refcursor\b|create or replace (?:package|procedure|trigger|function|type)|dbms_output|varchar2"),
        ("sql", "TSQL", r"(?im)^[ \t]*go[ \t]*\r?$|\bdeclare @|\bset nocount\b|\bnvarchar\b|\[dbo\]"),
        ("sql", "SQL", ""),
        ("r", "Rebol", r"(?i)\bREBOL\b"),
        ("r", "R", ""),
        ("fs", "GLSL", r"(?m)^[ \t]*(?:#version|precision|uniform|varying|void main)"),
        ("fs", "Forth", r"(?m)^: "),
        ("fs", "F#", ""),
        ("pro", "Prolog", r"(?m)^[^#\n]*:-"),
        ("pro", "IDL", r"(?mi)^[ \t]*(?:pro|function)[ \t]+\w+[^\n]*,|^[ \t]*compile_opt"),
        ("pro", "QMake", r"(?m)^[ \t]*(?:HEADERS|SOURCES|TEMPLATE|QT|CONFIG|TARGET)\b"),
        ("md", "GCC Machine Description", r"(?m)^\((?:define_|match_)"),
        ("md", "Markdown", ""),
        ("html", "HTML", ""),
        ("yml yaml", "YAML", ""),
        ("json", "JSON", ""),
        ("txt", "Text", ""),
        ("lisp lsp", "Common Lisp", r"(?mi)^[ \t]*\((?:defun|in-package|defpackage|defmacro|defclass)\b"),
        ("lsp", "NewLisp", r"(?m)^[ \t]*\(define "),
        ("cl", "OpenCL", r"(?m)\b__?kernel\b|^[ \t]*(?://|/\*|#)"),
        ("cl", "Common Lisp", r"(?mi)^[ \t]*\((?:defun|in-package|defpackage|defmacro)\b"),
        ("cl", "Cool", r"(?m)^class\b"),
        ("asm", "Motorola 68K Assembly", r"(?im)\bmoveq?(?:\.[bwl])?\s+#?[$\w]|\b[ad][0-7]\s*,\s*[ad][0-7]\b"),
        ("asm", "Assembly", ""),
        ("ml", "Standard ML", r"(?m)=> |^[ \t]*case\b"),
        ("ml", "OCaml", ""),
        ("sc", "Scala", r"(?m)^[ \t]*(?:import|object|class|def|val)\b"),
        ("sc", "SuperCollider", ""),
        ("d", "DTrace", r"(?m)^\w+:\w*:\w*:|^#pragma D"),
        ("d", "Makefile", r"(?m)^[\w./\\-]+ ?:.*\\$"),
        ("d", "D", ""),
        ("e", "Eiffel", r"(?m)^(?:note|indexing|class|feature)\b"),
        ("f", "Forth", r"(?m)^: "),
        ("f for", "Fortran", r"(?im)^(?:[c*!]|[ \t]*(?:subroutine|program|end|integer|real|function)\b)"),
        ("st", "Smalltalk", r"(?m)^!|\w+ subclass: #|^\w+ >> |\|\s*\w+\s*\|"),
        ("cs", "Smalltalk", r"(?m)^![\w\s]+methodsFor: "),
        ("cs", "C#", ""),
        ("bb", "BitBake", r"(?m)^[ \t]*(?:DESCRIPTION|SUMMARY|LICENSE|SRC_URI|inherit|require)\b"),
        ("bb", "Clojure", r"(?m)^[ \t]*\((?:def|defn|ns|let|require)\b"),
        ("bb", "BlitzBasic", ""),
        ("es", "JavaScript", r"(?:\bvar\b|\bfunction\b|=>|//|/\*)"),
        ("es", "Erlang", ""),
        ("gd", "GDScript", r"(?m)^[ \t]*(?:extends|func|var|tool|class)\b"),
        ("gs", "GLSL", r"(?m)^#version"),
        ("gs", "Genie", r"(?m)^(?:uses|init|namespace)\b"),
        ("gs", "JavaScript", ""),
        ("i", "SWIG", r"(?m)^[ \t]*%\w+"),
        ("inc", "Assembly", r"(?im)^[ \t]*(?:mov|section|db|dw|equ|%define|macro)\b"),
        ("inc", "Pascal", r"(?im)^[ \t]*(?:procedure|function|unit|interface|\{\$)"),
        ("inc", "SourcePawn", r"(?m)^[ \t]*(?:stock|native|forward|#pragma)\b"),
        ("j", "Objective-J", r"(?m)^@import|^@implementation"),
        ("j", "Jasmin", r"(?m)^[ \t]*\.(?:class|method|super|source)\b"),
        ("ls", "LoomScript", r"(?m)^[ \t]*package\b"),
        ("ls", "LiveScript", ""),
        ("mod", "Modula-2", r"(?m)^[ \t]*(?:DEFINITION |IMPLEMENTATION )?MODULE\b"),
        ("mod", "XML", r"\A\s*<!"),
        ("n", "Roff", r#"(?m)^\.(?:[A-Za-z]{2}\b|\\")"#),
        ("n", "Nemerle", ""),
        ("nl", "NewLisp", r"(?m)^[ \t]*[(;]"),
        ("pp", "Pascal", r"(?im)^[ \t]*(?:unit|program|begin|end[;.])"),
        ("pp", "Puppet", ""),
        ("q", "HiveQL", r"(?i)\bselect\b[\s\S]+\bfrom\b"),
        ("q", "q", ""),
        ("spec", "Ruby", r"(?m)^[ \t]*(?:require|describe|class|module)\b"),
        ("spec", "RPM Spec", ""),
        ("tst", "GAP", r"(?m)gap> "),
        ("tst", "Scilab", ""),
        ("bas frm vba", "VBA", r"(?mi)^Attribute VB_|^[ \t]*Option Explicit|\bThisWorkbook\b"),
        ("w", "CWeb", r"(?m)^@\w?"),
        ("x", "Logos", r"(?m)^%(?:hook|end|ctor|orig)"),
        ("x", "Linker Script", r"(?m)^[ \t]*(?:OUTPUT_ARCH|OUTPUT_FORMAT|SECTIONS)\b"),
        ("x", "RPC", r"\b(?:program|version)\b"),
        ("plist", "XML Property List", r"\A\s*<"),
        ("1 2 3 4 5 6 7 8 9 man", "Roff Manpage", r"(?m)^\.(?:TH|Dd|SH|Sh)\b"),
        ("1 2 3 4 5 6 7 8 9", "Roff", r#"(?m)^\.(?:[A-Za-z]{2}\b|\\")"#),
    ]
    .map(|(extensions, name, pattern)| {
        (extensions, name, Regex::new(pattern).expect("the pattern is one"))
    })
    .into()
});

/// Bytes of the text that decide.
const LOOKED_AT: usize = 32 << 10;

/// The language of a file; none if neither its name nor its first line is known.
pub(super) fn identify(path: &str, text: &str) -> Option<Language> {
    let name = file::file_name(path);
    if let Some([language]) = TABLE.files.get(name).map(Vec::as_slice) {
        return Some(*language);
    }
    let mut end = text.len().min(LOOKED_AT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let head = &text[..end];
    if let Some(language) = interpreter(head) {
        return Some(language);
    }
    let lower = name.to_ascii_lowercase();
    let mut dots = lower.match_indices('.').map(|(at, _)| &lower[at + 1..]);
    let (extension, candidates) = dots.find_map(|e| Some((e, TABLE.extensions.get(e)?)))?;
    let &[first, _, ..] = &candidates[..] else {
        return candidates.first().copied();
    };
    for (extensions, language, sign) in SIGNS.iter() {
        if !extensions.split(' ').any(|e| e == extension) {
            continue;
        }
        let among = candidates.iter().find(|l| l.name() == *language);
        if let Some(&found) = among.filter(|_| sign.as_str().is_empty() || sign.is_match(head)) {
            return Some(found);
        }
    }
    let label = identify_code(head, None).label;
    let by_text = candidates.iter().find(|l| l.name() == label);
    let popular = candidates.iter().find(|l| TABLE.entries[l.0].is_popular);
    Some(*by_text.or(popular).unwrap_or(&first))
}

/// The language of the interpreter that the first line names.
fn interpreter(text: &str) -> Option<Language> {
    let line = text.strip_prefix("#!")?.lines().next()?;
    let mut words = line.split_ascii_whitespace();
    let mut program = file::file_name(words.next()?);
    if program == "env" {
        let is_setting = |w: &&str| w.starts_with('-') || w.contains('=');
        program = file::file_name(words.find(|w| !is_setting(w))?);
    }
    let known = |program: &str| match TABLE.interpreters.get(program)?[..] {
        [language] => Some(language),
        _ => None,
    };
    // python3.11 is python3 or python
    let is_version = |c: char| c.is_ascii_digit() || c == '.' || c == '-';
    let major = program.split_once('.').map_or(program, |(major, _)| major);
    known(program)
        .or_else(|| known(major))
        .or_else(|| known(program.trim_end_matches(is_version)))
}

/// Language of source files by their name and text. The language is written to `meta.file_language`, for the step
/// `starcoder` among others.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct FileLanguage {
    /// Languages to keep, as GitHub's linguist names them (`Python`, `C++`); empty: all.
    pub keep: Vec<String>,
    /// Kinds to keep; empty: all.
    pub kinds: Vec<LanguageKind>,
    /// Field of `meta` with the file's path. Default: `path`, `file_path`, `max_stars_repo_path`, `filename` or
    /// `file_name`, else the path of the address.
    pub path_key: String,
}

impl StepConfig for FileLanguage {
    fn name(&self) -> &'static str {
        "file_language"
    }

    fn check(&self, problem: Problem<'_>) {
        for (i, name) in self.keep.iter().enumerate() {
            if by_name(name).is_none() {
                let wanted = "the name of a language in GitHub's linguist, such as \"C++\"";
                problem(&format!("keep[{i}]"), format!("{name:?}"), wanted);
            }
        }
    }

    fn open(&self, _: &Opening<'_>) -> Result<Box<dyn Filter>> {
        Ok(Box::new(self.clone()))
    }
}

impl Filter for FileLanguage {
    fn apply(&self, draft: &mut Draft, _: &mut StepScratch, _: &mut Judge) -> Verdict {
        let path = file::path(draft, &self.path_key).unwrap_or_default();
        let found = identify(path, &draft.text);
        let name = found.map_or("unknown", Language::name);
        if !self.keep.is_empty() && !self.keep.iter().any(|k| k.eq_ignore_ascii_case(name)) {
            let wanted = self.keep.join(" ");
            return Verdict::Break(broken("file_language.keep", name, wanted));
        }
        let kind = found.map(Language::kind);
        if !self.kinds.is_empty() && !kind.is_some_and(|kind| self.kinds.contains(&kind)) {
            return Verdict::Break(broken(
                "file_language.kinds",
                name,
                format!("{:?}", self.kinds),
            ));
        }
        if let Some(found) = found {
            draft.note("file_language", Value::String(found.name().to_string()));
        }
        KEEP
    }

    fn metrics(&self) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_first_lines_and_extensions_decide() {
        let name = |path, text| identify(path, text).map(Language::name);
        assert_eq!(name("a/Makefile", ""), Some("Makefile"));
        assert_eq!(
            name("run", "#!/usr/bin/env -S python3.11 -u\n"),
            Some("Python")
        );
        assert_eq!(name("run", "#!/bin/bash\n"), Some("Shell"));
        assert_eq!(name("x/Main.JAVA", ""), Some("Java"));
        assert_eq!(name("a.blade.php", ""), Some("Blade"));
        assert_eq!(name("a.h", "@interface A\n@end\n"), Some("Objective-C"));
        assert_eq!(name("a.h", "int f(void);\n"), Some("C"));
        assert_eq!(name("a.h", "namespace a {\n}\n"), Some("C++"));
        assert_eq!(name("a.pl", "main :- write(x).\n"), Some("Prolog"));
        assert_eq!(name("a.nothing-known", "x"), None);
        assert_eq!(name("", ""), None);
    }

    #[test]
    fn signs_name_languages_of_the_table() {
        for (extensions, language, _) in SIGNS.iter() {
            let found = by_name(language).unwrap_or_else(|| panic!("{language}"));
            let shares = |e: &str| {
                TABLE
                    .extensions
                    .get(e)
                    .is_some_and(|all| all.contains(&found))
            };
            assert!(
                extensions.split(' ').any(shares),
                "{language}: {extensions}"
            );
        }
        assert!(TABLE.entries.len() > 700, "{}", TABLE.entries.len());
    }

    #[test]
    fn a_language_is_one_of_the_table() {
        let mut draft = Draft {
            meta: Some(json!({"language": "en", "lang": "c++"})),
            ..Draft::default()
        };
        assert_eq!(told_language(&draft).map(Language::name), Some("C++"));
        draft.meta = Some(json!({"language": "en"}));
        assert!(told_language(&draft).is_none());
    }
}
