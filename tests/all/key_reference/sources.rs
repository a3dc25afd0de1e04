//! The structs and enums of the sources, with their doc comments and serde attributes.
//!
//! A reader of lines, not of Rust: it relies on rustfmt, which puts every field, variant and attribute on lines of its own.

use std::collections::BTreeMap;

/// A struct or an enum.
#[derive(Debug)]
pub(super) struct Item {
    /// Path of the file, relative to the repository.
    pub file: String,
    pub name: String,
    pub docs: String,
    /// All `#[serde(...)]` attributes.
    pub serde: String,
    pub body: Body,
}

/// The kind of an [`Item`].
#[derive(Debug)]
pub(super) enum Body {
    Struct(Vec<Field>),
    /// A struct around one type.
    Tuple(String),
    Enum(Vec<Variant>),
}

/// A field of a struct or of a variant.
#[derive(Debug, Default)]
pub(super) struct Field {
    pub name: String,
    pub kind: String,
    pub docs: String,
    pub serde: String,
}

/// A variant of an enum.
#[derive(Debug, Default)]
pub(super) struct Variant {
    pub name: String,
    pub docs: String,
    pub serde: String,
    pub payload: Payload,
}

/// The data of a variant.
#[derive(Debug, Default)]
pub(super) enum Payload {
    #[default]
    None,
    One(String),
    Fields(Vec<Field>),
}

/// The value of `name = "value"` in serde attributes.
pub(super) fn attribute<'a>(serde: &'a str, name: &str) -> Option<&'a str> {
    let start = format!("{name} = \"");
    let at = serde.match_indices(&start).map(|(at, _)| at).find(|at| {
        *at == 0 || !serde[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_')
    })?;
    serde[at + start.len()..].split('"').next()
}

/// Whether serde attributes have the bare word `name`.
pub(super) fn has_word(serde: &str, name: &str) -> bool {
    serde.split([',', '(', ')']).any(|part| part.trim() == name)
}

impl Field {
    /// The key in a job file.
    pub(super) fn key(&self) -> &str {
        attribute(&self.serde, "rename").unwrap_or(&self.name)
    }
}

impl Item {
    /// The word of a variant in a job file, by serde's rules.
    pub(super) fn word(&self, variant: &Variant) -> String {
        if let Some(name) = attribute(&variant.serde, "rename") {
            return name.to_string();
        }
        match attribute(&self.serde, "rename_all") {
            Some("snake_case") => snake_case(&variant.name),
            Some("lowercase") => variant.name.to_lowercase(),
            Some(other) => panic!("{}: {}: rename_all = {other:?}", self.file, self.name),
            None => variant.name.clone(),
        }
    }

    /// Whether a job may leave out `field`.
    pub(super) fn has_default(&self, field: &Field) -> bool {
        has_word(&self.serde, "default")
            || attribute(&self.serde, "from").is_some()
            || has_word(&field.serde, "default")
            || attribute(&field.serde, "default").is_some()
            || field.kind.starts_with("Option<")
    }
}

fn snake_case(name: &str) -> String {
    let mut out = String::new();
    for (i, c) in name.char_indices() {
        if i > 0 && c.is_uppercase() {
            out.push('_');
        }
        out.extend(c.to_lowercase());
    }
    out
}

/// All items that serde reads, by crate folder and name.
#[derive(Debug, Default)]
pub(super) struct Sources {
    items: BTreeMap<(String, String), Vec<Item>>,
}

impl Sources {
    /// Reads `(path, text)` of every file; a path starts with its crate's folder.
    pub(super) fn of<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Sources {
        let mut sources = Sources::default();
        for (path, text) in files {
            let folder = path.split('/').next().unwrap().to_string();
            for item in items(path, text) {
                let key = (folder.clone(), item.name.clone());
                sources.items.entry(key).or_default().push(item);
            }
        }
        sources
    }

    /// The item that `path` (`Input`, `curate::read::Input`) means in `file`.
    pub(super) fn find(&self, file: &str, path: &str) -> Option<&Item> {
        let crates = ["curate", "index", "kernels", "train", "pipelines"];
        let first = path.split("::").next()?;
        let folder = match crates.contains(&first) {
            true => first,
            false => file.split('/').next()?,
        };
        let name = path.rsplit("::").next()?;
        let found = self.items.get(&(folder.to_string(), name.to_string()))?;
        let here = found.iter().find(|item| item.file == file);
        match (here, found.as_slice()) {
            (Some(item), _) => Some(item),
            (None, [item]) => Some(item),
            (None, several) => {
                let files: Vec<_> = several.iter().map(|item| &item.file).collect();
                panic!("{file}: {path} is in {files:?}")
            }
        }
    }
}

/// The items of a file that derive `Deserialize`.
fn items(path: &str, text: &str) -> Vec<Item> {
    let mut found = Vec::new();
    let mut lines = text.lines().peekable();
    let mut pending = Pending::default();
    let mut is_registry = false;
    while let Some(line) = lines.next() {
        if line == "step_registry! {" {
            is_registry = true;
            continue;
        }
        let line = match is_registry {
            true => line.strip_prefix("    ").unwrap_or(line),
            false => line,
        };
        if pending.take(line, &mut lines) {
            continue;
        }
        let Some((is_struct, name, rest)) = head(line) else {
            pending = Pending::default();
            continue;
        };
        let before = std::mem::take(&mut pending);
        let is_read = before.derives.contains("Deserialize") || is_registry;
        let body = match rest.strip_prefix('(') {
            Some(kind) => Body::Tuple(
                kind.trim_end_matches(");")
                    .trim_start_matches("pub ")
                    .into(),
            ),
            None if rest != "{" => continue,
            None => {
                let mut inner = Vec::new();
                for line in lines.by_ref() {
                    let line = match is_registry {
                        true => line.strip_prefix("    ").unwrap_or(line),
                        false => line,
                    };
                    if line == "}" {
                        break;
                    }
                    inner.push(line.strip_prefix("    ").unwrap_or(line));
                }
                match is_struct {
                    true => Body::Struct(fields(&inner)),
                    false => Body::Enum(variants(&inner)),
                }
            }
        };
        if is_read {
            let serde = match is_registry {
                // written by the macro
                true => "rename_all = \"snake_case\"".to_string(),
                false => before.serde,
            };
            found.push(Item {
                file: path.to_string(),
                name,
                docs: before.docs,
                serde,
                body,
            });
        }
        is_registry = false;
    }
    found
}

/// `struct Name {` or `enum Name {` with any visibility: is it a struct, name, what follows.
fn head(line: &str) -> Option<(bool, String, &str)> {
    let rest = line
        .strip_prefix("pub(crate) ")
        .or_else(|| line.strip_prefix("pub(super) "))
        .or_else(|| line.strip_prefix("pub "))
        .unwrap_or(line);
    let (is_struct, rest) = match rest.strip_prefix("struct ") {
        Some(rest) => (true, rest),
        None => (false, rest.strip_prefix("enum ")?),
    };
    let end = rest.find(|c: char| !c.is_alphanumeric())?;
    Some((is_struct, rest[..end].to_string(), rest[end..].trim()))
}

/// Doc comments and attributes before what they belong to.
#[derive(Default)]
struct Pending {
    docs: String,
    serde: String,
    derives: String,
}

impl Pending {
    /// Takes a line, and those that its attribute goes on in; false if it is neither.
    fn take<'a>(&mut self, line: &str, rest: &mut impl Iterator<Item = &'a str>) -> bool {
        if let Some(doc) = line.strip_prefix("///") {
            let doc = doc.trim();
            if !self.docs.is_empty() && !doc.is_empty() {
                self.docs.push(' ');
            }
            self.docs.push_str(doc);
            return true;
        }
        if !line.starts_with("#[") {
            return line.starts_with("//");
        }
        let mut attribute = line.to_string();
        while !attribute.ends_with(']') {
            match rest.next() {
                Some(next) => attribute.push_str(next.trim()),
                None => break,
            }
        }
        let of = |name: &str| {
            let inner = attribute.strip_prefix(name)?;
            Some(inner.trim_end_matches(")]").to_string())
        };
        if let Some(inner) = of("#[serde(") {
            self.serde.push_str(&inner);
            self.serde.push(',');
        } else if let Some(inner) = of("#[derive(") {
            self.derives.push_str(&inner);
        }
        true
    }
}

fn fields(lines: &[&str]) -> Vec<Field> {
    let mut found = Vec::new();
    let mut pending = Pending::default();
    let mut lines = lines.iter().copied();
    while let Some(line) = lines.next() {
        if line.is_empty() || pending.take(line, &mut lines) {
            continue;
        }
        let mut line = line.to_string();
        while !line.ends_with(',') {
            match lines.next() {
                Some(next) => line.push_str(next.trim()),
                None => break,
            }
        }
        let line = line.trim_start_matches("pub ").trim_end_matches(',');
        let Some((name, kind)) = line.split_once(": ") else {
            panic!("no field: {line}");
        };
        let before = std::mem::take(&mut pending);
        found.push(Field {
            name: name.to_string(),
            kind: kind.to_string(),
            docs: before.docs,
            serde: before.serde,
        });
    }
    found
}

fn variants(lines: &[&str]) -> Vec<Variant> {
    let mut found = Vec::new();
    let mut pending = Pending::default();
    let mut lines = lines.iter().copied();
    while let Some(line) = lines.next() {
        if line.is_empty() || pending.take(line, &mut lines) {
            continue;
        }
        let end = line
            .find(|c: char| !c.is_alphanumeric())
            .unwrap_or(line.len());
        let rest = line[end..].trim();
        let payload = if rest == "{" {
            let inner: Vec<&str> = lines
                .by_ref()
                .take_while(|line| *line != "},")
                .map(|line| line.strip_prefix("    ").unwrap_or(line))
                .collect();
            Payload::Fields(fields(&inner))
        } else if let Some(kind) = rest.strip_prefix('(') {
            Payload::One(kind.trim_end_matches("),").to_string())
        } else {
            Payload::None
        };
        let before = std::mem::take(&mut pending);
        found.push(Variant {
            name: line[..end].to_string(),
            docs: before.docs,
            serde: before.serde,
            payload,
        });
    }
    found
}
