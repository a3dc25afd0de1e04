//! Licences in a text: identifier lines of SPDX, and phrases of the texts and notices of common licences.
//!
//! Identifiers and expressions are parsed by the `spdx` crate (list of SPDX 3.x). A licence's text or notice is known by
//! phrases that it must have, compared as words without marks, so that comment signs and line breaks do not matter;
//! where one licence's phrases include another's, the longer list wins. Permissive are the licences that the Blue Oak
//! Council rates (list 15, any rating), copyleft those that the `spdx` crate marks as such.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, MatchKind};
use serde::{Deserialize, Serialize};
use spdx::{Expression, LicenseId, ParseMode};

/// Obligations of a licence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LicenseClass {
    /// Rated by the Blue Oak Council.
    Permissive,
    /// Derived works must carry the licence.
    Copyleft,
    /// Any other, among them licences that nobody lists.
    Other,
    /// No licence was found.
    None,
}

impl LicenseClass {
    /// Name in job files and metadata.
    pub(super) fn name(self) -> &'static str {
        match self {
            LicenseClass::Permissive => "permissive",
            LicenseClass::Copyleft => "copyleft",
            LicenseClass::Other => "other",
            LicenseClass::None => "none",
        }
    }
}

static BLUE_OAK: LazyLock<BTreeSet<&str>> =
    LazyLock::new(|| include_str!("blue_oak.txt").lines().collect());

/// Bytes of a text that are searched: its start, where notices are, and what a licence's text has at most.
const LOOKED_AT: usize = 64 << 10;
/// Before an expression.
const TAG: &str = "SPDX-License-Identifier:";

/// Licences by phrases, all of which must occur. Of two that both occur, one that has the other's phrases wins.
const PHRASES: [(&str, &[&str]); 68] = [
    (
        "Apache-2.0",
        &["licensed under the apache license version 2 0"],
    ),
    ("Apache-2.0", &["apache license version 2 0 january 2004"]),
    ("Apache-1.1", &["the apache software license version 1 1"]),
    ("MIT-0", &[MIT]),
    (
        "MIT",
        &[
            MIT,
            "the above copyright notice and this permission notice shall be included in",
        ],
    ),
    (
        "MIT",
        &["this source code is licensed under the mit license"],
    ),
    ("MIT", &["licensed under the mit license"]),
    ("MIT", &["released under the mit license"]),
    ("BSD-2-Clause", &[BSD]),
    (
        "BSD-3-Clause",
        &[BSD, "may be used to endorse or promote products derived"],
    ),
    (
        "BSD-3-Clause",
        &[
            BSD,
            "may not be used to endorse or promote products derived",
        ],
    ),
    (
        "BSD-4-Clause",
        &[
            BSD,
            "may be used to endorse or promote products derived",
            "all advertising materials mentioning features",
        ],
    ),
    (
        "BSD-3-Clause",
        &["use of this source code is governed by a bsd style license"],
    ),
    ("0BSD", &[ISC]),
    (
        "ISC",
        &[
            ISC,
            "the above copyright notice and this permission notice appear in all copies",
        ],
    ),
    (
        "GPL-1.0-or-later",
        &[GPL, "either version 1 or at your option any later version"],
    ),
    (
        "GPL-2.0-or-later",
        &[
            GPL,
            "either version 2 of the license or at your option any later version",
        ],
    ),
    (
        "GPL-2.0-or-later",
        &[GPL, "either version 2 or at your option any later version"],
    ),
    (
        "GPL-3.0-or-later",
        &[
            GPL,
            "either version 3 of the license or at your option any later version",
        ],
    ),
    (
        "GPL-2.0-only",
        &["gnu general public license version 2 as published by the free software foundation"],
    ),
    (
        "GPL-2.0-only",
        &["gnu general public license as published by the free software foundation version 2"],
    ),
    (
        "GPL-3.0-only",
        &["gnu general public license version 3 as published by the free software foundation"],
    ),
    (
        "GPL-3.0-only",
        &["gnu general public license as published by the free software foundation version 3"],
    ),
    (
        "LGPL-2.1-or-later",
        &[
            LGPL,
            "either version 2 1 of the license or at your option any later version",
        ],
    ),
    (
        "LGPL-2.0-or-later",
        &[
            LGPL,
            "either version 2 of the license or at your option any later version",
        ],
    ),
    (
        "LGPL-3.0-or-later",
        &[
            LGPL,
            "either version 3 of the license or at your option any later version",
        ],
    ),
    (
        "LGPL-2.0-or-later",
        &[
            "gnu library general public license as published by the free software foundation",
            "either version 2 of the license or at your option any later version",
        ],
    ),
    (
        "AGPL-3.0-or-later",
        &[
            "gnu affero general public license as published by the free software foundation",
            "either version 3 of the license or at your option any later version",
        ],
    ),
    (
        "GPL-1.0-only",
        &["gnu general public license version 1 february 1989"],
    ),
    (
        "GPL-2.0-only",
        &["gnu general public license version 2 june 1991"],
    ),
    (
        "GPL-3.0-only",
        &["gnu general public license version 3 29 june 2007"],
    ),
    (
        "LGPL-2.0-only",
        &["gnu library general public license version 2 june 1991"],
    ),
    (
        "LGPL-2.1-only",
        &["gnu lesser general public license version 2 1 february 1999"],
    ),
    (
        "LGPL-3.0-only",
        &["gnu lesser general public license version 3 29 june 2007"],
    ),
    (
        "AGPL-3.0-only",
        &["gnu affero general public license version 3 19 november 2007"],
    ),
    (
        "MPL-1.1",
        &["the contents of this file are subject to the mozilla public license version 1 1"],
    ),
    (
        "MPL-1.1",
        &["mozilla public license version 1 1 1 definitions"],
    ),
    (
        "MPL-2.0",
        &["subject to the terms of the mozilla public license v 2 0"],
    ),
    (
        "MPL-2.0",
        &["mozilla public license version 2 0 1 definitions"],
    ),
    ("EPL-1.0", &["eclipse public license v 1 0"]),
    ("EPL-2.0", &["eclipse public license v 2 0"]),
    ("EPL-2.0", &["eclipse public license 2 0"]),
    (
        "CDDL-1.0",
        &["common development and distribution license cddl version 1 0"],
    ),
    (
        "CDDL-1.1",
        &["common development and distribution license cddl version 1 1"],
    ),
    ("EUPL-1.1", &["european union public licence v 1 1"]),
    ("EUPL-1.2", &["european union public licence v 1 2"]),
    (
        "Unlicense",
        &["this is free and unencumbered software released into the public domain"],
    ),
    ("CC0-1.0", &["cc0 1 0 universal"]),
    (
        "CC-BY-4.0",
        &["creative commons attribution 4 0 international"],
    ),
    (
        "CC-BY-4.0",
        &["attribution 4 0 international creative commons"],
    ),
    (
        "CC-BY-SA-4.0",
        &["creative commons attribution sharealike 4 0 international"],
    ),
    (
        "CC-BY-SA-4.0",
        &["attribution sharealike 4 0 international creative commons"],
    ),
    (
        "CC-BY-NC-4.0",
        &["attribution noncommercial 4 0 international"],
    ),
    (
        "CC-BY-NC-SA-4.0",
        &["attribution noncommercial sharealike 4 0 international"],
    ),
    ("BSL-1.0", &["boost software license version 1 0"]),
    (
        "Zlib",
        &[
            "in no event will the authors be held liable for any damages arising from the use of this software",
            "altered source versions must be plainly marked as such",
        ],
    ),
    ("WTFPL", &["do what the fuck you want to public license"]),
    ("Artistic-2.0", &["the artistic license 2 0"]),
    (
        "Artistic-1.0-Perl",
        &["the artistic license", "standard version"],
    ),
    ("PSF-2.0", &["python software foundation license version 2"]),
    (
        "PostgreSQL",
        &[
            "permission to use copy modify and distribute this software and its documentation for any purpose without fee and without a written agreement is hereby granted",
        ],
    ),
    (
        "NCSA",
        &[
            "permission is hereby granted free of charge to any person obtaining a copy of this software and associated documentation files",
            "redistributions of source code must retain the above copyright notice this list of conditions and the following disclaimers",
        ],
    ),
    (
        "UPL-1.0",
        &["the universal permissive license upl version 1 0"],
    ),
    ("MS-PL", &["microsoft public license ms pl"]),
    ("OFL-1.1", &["sil open font license version 1 1"]),
    ("SSPL-1.0", &["server side public license version 1"]),
    ("BUSL-1.1", &["business source license 1 1"]),
    ("Elastic-2.0", &["elastic license 2 0"]),
];

const MIT: &str = "permission is hereby granted free of charge to any person obtaining a copy of this software and associated documentation files";
const BSD: &str = "redistribution and use in source and binary forms with or without modification are permitted provided that the following conditions are met";
const ISC: &str = "permission to use copy modify and or distribute this software for any purpose with or without fee is hereby granted";
const GPL: &str = "gnu general public license as published by the free software foundation";
const LGPL: &str = "gnu lesser general public license as published by the free software foundation";

/// All phrases, each once, and a search for them.
static SEARCH: LazyLock<(Vec<&str>, AhoCorasick)> = LazyLock::new(|| {
    let phrases: BTreeSet<&str> = PHRASES.iter().flat_map(|(_, p)| *p).copied().collect();
    let phrases: Vec<&str> = phrases.into_iter().collect();
    let search = AhoCorasick::builder()
        .match_kind(MatchKind::Standard)
        .build(&phrases)
        .expect("some hundred phrases fit");
    (phrases, search)
});

/// Licences that were found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Found {
    /// Expressions of SPDX, in the order of the text, or identifiers in order.
    pub(super) licenses: Vec<String>,
    /// The least permissive of them; a choice (`OR`) counts as its most permissive part.
    pub(super) class: Option<LicenseClass>,
}

impl Found {
    fn add(&mut self, license: &str, class: LicenseClass) {
        if !self.licenses.iter().any(|l| l == license) {
            self.licenses.push(license.to_string());
        }
        self.class = self.class.max(Some(class));
    }

    /// Class of all of them.
    pub(super) fn class(&self) -> LicenseClass {
        self.class.unwrap_or(LicenseClass::None)
    }
}

/// Licences that a text names or contains: those of identifier lines if there are any, else those of its phrases.
pub(super) fn of_text(text: &str) -> Found {
    let mut end = text.len().min(LOOKED_AT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let text = &text[..end];
    let mut found = Found::default();
    let mut from = 0;
    while let Some(at) = text[from..].find(TAG) {
        from += at + TAG.len();
        let line = text[from..].lines().next().unwrap_or_default();
        let ends = ["*/", "-->", "#}", "\"", "'", "<", "|"];
        let ends = ends.iter().filter_map(|end| line.find(end));
        let expression = line[..ends.min().unwrap_or(line.len())].trim();
        add_expression(expression, &mut found);
    }
    if found.licenses.is_empty() {
        by_phrases(text, &mut found);
    }
    found
}

/// Licences of a field: an expression, or a list of them, all of which hold.
pub(super) fn of_field(value: &serde_json::Value) -> Found {
    let mut found = Found::default();
    match value {
        serde_json::Value::String(text) => add_expression(text, &mut found),
        serde_json::Value::Array(values) => {
            let texts = values.iter().filter_map(|v| v.as_str());
            texts.for_each(|text| add_expression(text, &mut found));
        }
        _ => {}
    }
    found
}

/// Longest expression: a hostile one nests.
const LONGEST: usize = 512;

fn add_expression(text: &str, found: &mut Found) {
    let text = text.trim();
    if text.is_empty() || text.len() > LONGEST || matches!(text, "NONE" | "NOASSERTION") {
        return;
    }
    if let Ok(expression) = Expression::parse_mode(text, ParseMode::LAX) {
        let class = class_of(&expression);
        return found.add(text, class);
    }
    // a name such as "Apache 2.0"
    match spdx::imprecise_license_id(text).filter(|(_, used)| *used == text.len()) {
        Some((id, _)) => found.add(id.name, class_of_id(id)),
        None => found.add(text, LicenseClass::Other),
    }
}

fn class_of(expression: &Expression) -> LicenseClass {
    let class = |req: &spdx::LicenseReq| req.license.id().map_or(LicenseClass::Other, class_of_id);
    for wanted in [LicenseClass::Permissive, LicenseClass::Copyleft] {
        if expression.evaluate(|req| class(req) <= wanted) {
            return wanted;
        }
    }
    LicenseClass::Other
}

fn class_of_id(id: LicenseId) -> LicenseClass {
    match (BLUE_OAK.contains(id.name), id.is_copyleft()) {
        (true, _) => LicenseClass::Permissive,
        (false, true) => LicenseClass::Copyleft,
        (false, false) => LicenseClass::Other,
    }
}

/// Adds the licences whose phrases the text has.
fn by_phrases(text: &str, found: &mut Found) {
    let words = words(text);
    let (phrases, search) = &*SEARCH;
    let mut has = vec![false; phrases.len()];
    for hit in search.find_overlapping_iter(&words) {
        // words are parted by single blanks, and one precedes the first and follows the last
        let bytes = words.as_bytes();
        let alone = bytes[hit.start() - 1] == b' ' && bytes[hit.end()] == b' ';
        has[hit.pattern().as_usize()] |= alone;
    }
    let holds = |phrase: &&str| phrases.binary_search(phrase).is_ok_and(|i| has[i]);
    let full = |(_, needed): &&(&str, &[&'static str])| needed.iter().all(&holds);
    let full: Vec<&(&str, &[&str])> = PHRASES.iter().filter(full).collect();
    // one whose phrases are a part of another's is that other
    let is_part = |a: &[&str], b: &[&str]| a.len() < b.len() && a.iter().all(|p| b.contains(p));
    let mut names: Vec<&str> = full
        .iter()
        .filter(|(_, phrases)| !full.iter().any(|(_, other)| is_part(phrases, other)))
        .map(|(name, _)| *name)
        .collect();
    names.sort_unstable();
    names.dedup();
    // texts that have or name another's
    let families = [
        ("LGPL-3.0-only", "GPL-3.0-only"),
        ("AGPL-3.0-only", "GPL-3.0-only"),
        ("Apache-1.1", "BSD-2-Clause"),
        ("Apache-1.1", "BSD-3-Clause"),
        ("Artistic-2.0", "Artistic-1.0-Perl"),
    ];
    for (has, names_too) in families {
        if names.contains(&has) {
            names.retain(|name| *name != names_too);
        }
    }
    // a licence's own text has its notice as an example
    let texts: Vec<&str> = names
        .iter()
        .filter_map(|n| n.strip_suffix("-only"))
        .collect();
    let is_example = |name: &&str| {
        name.strip_suffix("-or-later")
            .is_some_and(|n| texts.contains(&n))
    };
    let kept: Vec<&str> = names.iter().filter(|n| !is_example(n)).copied().collect();
    for name in kept {
        let class = spdx::license_id(name).map_or(LicenseClass::Other, class_of_id);
        found.add(name, class);
    }
}

/// Words in lower case, parted by single blanks, with one around them; marks part words.
fn words(text: &str) -> String {
    let mut words = String::with_capacity(text.len() + 2);
    words.push(' ');
    for c in text.chars() {
        if c.is_ascii_alphanumeric() {
            words.push(c.to_ascii_lowercase());
        } else if c.is_alphanumeric() {
            words.push(c);
        } else if !words.ends_with(' ') {
            words.push(' ');
        }
    }
    if !words.ends_with(' ') {
        words.push(' ');
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifier_lines_are_parsed_to_their_end() {
        let found = |text: &str| {
            let f = of_text(text);
            (f.licenses.join(", "), f.class())
        };
        let (permissive, copyleft) = (LicenseClass::Permissive, LicenseClass::Copyleft);
        assert_eq!(
            found("// SPDX-License-Identifier: MIT\n"),
            ("MIT".into(), permissive)
        );
        assert_eq!(
            found("/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */\n"),
            ("GPL-2.0 WITH Linux-syscall-note".into(), copyleft)
        );
        assert_eq!(
            found("# SPDX-License-Identifier: GPL-2.0-only OR MIT"),
            ("GPL-2.0-only OR MIT".into(), permissive)
        );
        assert_eq!(
            found("# SPDX-License-Identifier: MIT AND MPL-2.0"),
            ("MIT AND MPL-2.0".into(), copyleft)
        );
        assert_eq!(
            found("# SPDX-License-Identifier: Mine-1.0"),
            ("Mine-1.0".into(), LicenseClass::Other)
        );
        assert_eq!(
            found("# SPDX-License-Identifier:"),
            (String::new(), LicenseClass::None)
        );
    }

    #[test]
    fn notices_are_known_in_any_comment() {
        let notice = " * This program is free software; you can redistribute it and/or modify\n * it under the terms of the GNU General Public License as published by\n * the Free Software Foundation; either version 2 of the License, or\n * (at your option) any later version.\n";
        let found = of_text(notice);
        assert_eq!(found.licenses, ["GPL-2.0-or-later"]);
        assert_eq!(found.class(), LicenseClass::Copyleft);
        let notice = "# Licensed under the Apache License, Version 2.0 (the \"License\");\n";
        assert_eq!(of_text(notice).licenses, ["Apache-2.0"]);
        assert_eq!(of_text("print(1)").class(), LicenseClass::None);
    }

    #[test]
    fn every_licence_of_the_phrases_is_one_of_spdx() {
        for (name, phrases) in PHRASES {
            assert!(spdx::license_id(name).is_some(), "{name}");
            for phrase in phrases {
                assert_eq!(words(phrase).trim(), *phrase);
            }
        }
        assert!(BLUE_OAK.len() > 200);
        // older names of the list are not in SPDX's any more
        let unknown = BLUE_OAK.iter().filter(|n| spdx::license_id(n).is_none());
        assert!(unknown.count() < 10);
    }
}
