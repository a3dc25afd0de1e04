//! The few templates that are text; all others are dropped.
//!
//! Names and arguments as on the English Wikipedia; other wikis share many of them.

use super::wiki::Wiki;

/// Text of `{{name|arg|...}}`.
pub(super) fn render(args: &[String], wiki: &Wiki<'_>) -> String {
    let name = args.first().map_or("", |n| n.trim());
    let lower = name.to_lowercase().replace('_', " ");
    let plain: Vec<&str> = args[1.min(args.len())..]
        .iter()
        .filter(|a| !is_named(a))
        .map(|a| a.trim())
        .collect();
    let arg = |i: usize| plain.get(i).copied().unwrap_or_default();
    if let Some(value) = magic(name, wiki) {
        return value;
    }
    match lower.as_str() {
        // its one argument
        "nowrap" | "nobr" | "nobreak" | "small" | "smaller" | "big" | "bigger" | "larger"
        | "sc" | "smallcaps" | "small caps" | "em" | "strong" | "strongbad" | "nobold"
        | "noitalic" | "abbr" | "abbrlink" | "tooltip" | "ill" | "interlanguage link" | "quote"
        | "blockquote" | "cquote" | "quotation" | "center" | "visible anchor" | "vanchor"
        | "poemquote" | "var" | "mvar" | "math" | "mono" | "tt" | "code" | "kbd" | "samp"
        | "dfn" | "sup" | "sub" | "hlist" | "unbulleted list" | "ubl" | "flatlist"
        | "plainlist" | "not a typo" | "as written" | "sic" | "proper name" | "underline"
        | "sortname" => match lower.as_str() {
            "hlist" | "unbulleted list" | "ubl" => plain.join(", "),
            "sortname" => [arg(0), arg(1)].join(" "),
            _ => first(args, &plain),
        },
        "lang" | "transl" | "transliteration" | "langx" | "script" | "color" | "font color"
        | "colored text" => plain
            .last()
            .map_or("", |last| if plain.len() > 1 { last } else { "" })
            .to_string(),
        "nihongo" | "nihongo2" | "nihongo3" => match (arg(0), arg(1)) {
            ("", kanji) => kanji.to_string(),
            (english, "") => english.to_string(),
            (english, kanji) => format!("{english} ({kanji})"),
        },
        "convert" | "cvt" => convert(&plain),
        "val" | "formatnum" | "gaps" | "nts" | "number" => plain.concat(),
        "frac" | "fraction" | "sfrac" => match plain.as_slice() {
            [n, d] => format!("{n}/{d}"),
            [whole, n, d] => format!("{whole} {n}/{d}"),
            [d] => format!("1/{d}"),
            _ => String::new(),
        },
        "circa" | "c." | "ca" | "ca." => joined("c. ", arg(0)),
        "floruit" | "fl." => joined("fl. ", arg(0)),
        "born" => joined("born ", arg(0)),
        "as of" => joined("as of ", &plain.join(" ")),
        "start date" | "date" | "birth date" | "dob" => plain.join("-"),
        "us$" | "usd" => joined("US$", arg(0)),
        "\u{20ac}" | "euro" | "eur" => joined("\u{20ac}", arg(0)),
        "\u{a3}" | "gbp" | "pound sterling" => joined("\u{a3}", arg(0)),
        "inr" | "indian rupee" => joined("\u{20b9}", arg(0)),
        "ndash" | "en dash" | "\u{2013}" => "\u{2013}".to_string(),
        "spaced ndash" | "snd" | "spnd" | "spaced en dash" => " \u{2013} ".to_string(),
        "mdash" | "em dash" | "\u{2014}" => "\u{2014}".to_string(),
        "snds" | "spaced mdash" => " \u{2014} ".to_string(),
        "'" | "apostrophe" => "'".to_string(),
        "'s" | "`s" => "'s".to_string(),
        "!" => "|".to_string(),
        "=" => "=".to_string(),
        "dot" | "\u{b7}" | "middot" | "\u{2022}" | "bull" => " \u{b7} ".to_string(),
        "nbsp" | "space" | "spaces" | "thinsp" | "zwsp" => " ".to_string(),
        "okina" | "hamza" => "\u{2bb}".to_string(),
        "year" => arg(0).to_string(),
        _ => match lower.strip_prefix("lang-").or(lower.strip_prefix("lang ")) {
            Some(_) => arg(0).to_string(),
            None => String::new(),
        },
    }
}

/// `name=value`; a `=` behind a quote or a link is text.
fn is_named(arg: &str) -> bool {
    let Some((name, _)) = arg.split_once('=') else {
        return false;
    };
    let name = name.trim();
    !name.is_empty() && name.len() < 40 && !name.contains(['<', '[', '{', '"', '/', ':', '.'])
}

/// The first argument, also if it is written `1=` or `text=`.
fn first(args: &[String], plain: &[&str]) -> String {
    if let Some(text) = plain.first() {
        return (*text).to_string();
    }
    let named = args.iter().skip(1).find_map(|a| {
        let (name, value) = a.split_once('=')?;
        matches!(name.trim(), "1" | "text" | "quote").then(|| value.trim().to_string())
    });
    named.unwrap_or_default()
}

fn joined(before: &str, value: &str) -> String {
    if value.is_empty() {
        return String::new();
    }
    format!("{before}{value}")
}

/// `{{convert|5|km|mi}}` keeps the first figure with its unit; ranges keep both ends.
fn convert(args: &[&str]) -> String {
    match args {
        [a, "to" | "-" | "\u{2013}", b, unit, ..] => format!("{a}\u{2013}{b} {unit}"),
        [a, "and", b, unit, ..] => format!("{a} and {b} {unit}"),
        [a, "by" | "x" | "\u{d7}", b, unit, ..] => format!("{a} by {b} {unit}"),
        [a, unit, ..] => format!("{a} {unit}"),
        [a] => (*a).to_string(),
        [] => String::new(),
    }
}

/// `{{PAGENAME}}` and parser functions with a colon.
fn magic(name: &str, wiki: &Wiki<'_>) -> Option<String> {
    if matches!(
        name,
        "PAGENAME" | "FULLPAGENAME" | "SUBPAGENAME" | "BASEPAGENAME"
    ) {
        return Some(wiki.title.to_string());
    }
    let (function, value) = name.split_once(':')?;
    match function.to_lowercase().as_str() {
        "formatnum" | "lc" | "uc" | "ucfirst" | "lcfirst" => Some(value.trim().to_string()),
        _ => None,
    }
}
