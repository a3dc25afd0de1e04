//! Forms of a job's inputs: tables, or paths alone.
//!
//! `inputs = "texts"` and `inputs = ["texts", "more/*.jsonl.gz", { path = "b.csv", format = "csv" }]`: a path alone is an input with
//! `format = "auto"`, whose `source` is the name of its file or folder. If another input has that source, a number is added.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::input::{Format, Input};

/// Reads inputs in any of their forms.
///
/// # Errors
/// The deserializer's.
pub fn inputs<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Input>, D::Error> {
    deserializer.deserialize_any(Forms)
}

/// An input as a job has it.
enum Form {
    Path(String),
    Table(Box<Input>),
}

impl<'de> Deserialize<'de> for Form {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Form, D::Error> {
        deserializer.deserialize_any(OneForm)
    }
}

struct OneForm;

impl<'de> Visitor<'de> for OneForm {
    type Value = Form;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table, or a path in quotes")
    }

    fn visit_str<E>(self, path: &str) -> Result<Form, E> {
        Ok(Form::Path(path.to_string()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Form, A::Error> {
        let input = Input::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Form::Table(Box::new(input)))
    }
}

struct Forms;

impl<'de> Visitor<'de> for Forms {
    type Value = Vec<Input>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of tables or paths, or one path in quotes")
    }

    fn visit_str<E>(self, path: &str) -> Result<Vec<Input>, E> {
        Ok(named(vec![Form::Path(path.to_string())]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<Input>, A::Error> {
        let mut forms = Vec::new();
        while let Some(form) = list.next_element()? {
            forms.push(form);
        }
        Ok(named(forms))
    }
}

/// The inputs, those without a table with a source of their own.
fn named(forms: Vec<Form>) -> Vec<Input> {
    let own = |form: &Form| match form {
        Form::Table(input) => Some(input.source.clone()),
        Form::Path(_) => None,
    };
    let mut taken: Vec<String> = forms.iter().filter_map(own).collect();
    let mut input = |form| match form {
        Form::Table(input) => *input,
        Form::Path(path) => {
            let name = source_of(&path);
            let mut source = name.clone();
            let mut n = 1;
            while taken.contains(&source) {
                n += 1;
                source = format!("{name}-{n}");
            }
            taken.push(source.clone());
            Input {
                path,
                source,
                ..Input::of(Format::Auto)
            }
        }
    };
    forms.into_iter().map(&mut input).collect()
}

/// The name of a path's file or folder, of a pattern's last folder without marks, of a crawl's snapshot: its beginning up to a
/// dot, with a hyphen in place of each character that ids may not have.
fn source_of(path: &str) -> String {
    let place = match path.strip_prefix("cc:") {
        // cc:SNAPSHOT/warc?files=1
        Some(crawl) => crawl.split('/').next().unwrap_or(crawl),
        None => path,
    };
    let has_marks = |part: &&str| part.contains(['*', '?', '[']);
    let parts = place.split('/').take_while(|part| !has_marks(part));
    let is_name = |part: &&str| !part.is_empty() && !part.starts_with('.');
    let last = parts.filter(is_name).last().unwrap_or_default();
    let name = last.split('.').next().unwrap_or_default();
    let plain = |c: char| match c.is_ascii_alphanumeric() || c == '-' || c == '_' {
        true => c,
        false => '-',
    };
    let name: String = name.chars().map(plain).collect();
    match name.trim_matches('-') {
        "" => "input".to_string(),
        name => name.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Vec<Input>, serde_json::Error> {
        inputs(&mut serde_json::Deserializer::from_str(json))
    }

    #[test]
    fn paths_alone_are_inputs_of_any_format_with_sources_of_their_own() {
        let found = read(
            r#"["in/texts/*.jsonl", "../b/texts.txt", {"path": "c", "source": "texts-2"}, {"path": "d"}, "input"]"#,
        );
        let found = found.unwrap();
        let seen: Vec<(&str, &str)> = (found.iter())
            .map(|input| (&*input.path, &*input.source))
            .collect();
        let want = [
            ("in/texts/*.jsonl", "texts"),
            ("../b/texts.txt", "texts-3"),
            ("c", "texts-2"),
            ("d", "input"),
            ("input", "input-2"),
        ];
        assert_eq!(seen, want);
        let formats: Vec<Format> = found.iter().map(|input| input.format).collect();
        use Format::{Auto, Jsonl};
        assert_eq!(formats, [Auto, Auto, Jsonl, Jsonl, Auto]);
        let one = read("\"cc:CC-MAIN-2025-05/warc?files=1\"").unwrap();
        assert_eq!(one[0].source, "CC-MAIN-2025-05");
        for (path, source) in [
            ("a b\u{e9}.jsonl.gz", "a-b"),
            ("*.txt", "input"),
            ("./.x/", "input"),
            ("https://example.org/data/part-1.parquet", "part-1"),
        ] {
            assert_eq!(source_of(path), source);
            let mut problems = Vec::new();
            let input = Input {
                path: path.to_string(),
                source: source_of(path),
                ..Input::of(Format::Auto)
            };
            input.check(&mut |key, _, _| problems.push(key.to_string()));
            assert_eq!(problems, [""; 0]);
        }
    }

    #[test]
    fn other_values_are_refused_with_what_is_wanted() {
        for (json, want) in [
            ("5", "a list of tables or paths, or one path in quotes"),
            ("[5]", "a table, or a path in quotes"),
            (r#"[{"pth": "a"}]"#, "unknown field `pth`"),
        ] {
            let why = read(json).unwrap_err().to_string();
            assert!(why.contains(want), "{why}");
        }
    }
}
