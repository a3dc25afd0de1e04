//! The types of keys: what a field's Rust type means in a job file.

use super::sources::{Body, Item, Payload, Sources, Variant};

/// The type of a value in a job file.
pub(super) enum Kind<'a> {
    /// TOML's name of it.
    Plain(&'static str),
    Optional(Box<Kind<'a>>),
    List(Box<Kind<'a>>),
    /// A list of a fixed form.
    Tuple(Vec<Kind<'a>>),
    /// A table whose keys are names to choose.
    Map(Box<Kind<'a>>),
    Table(&'a Item),
    /// One of several words.
    Word(&'a Item),
    /// A table with one key, the name of a variant.
    Tagged(&'a Item),
    /// One of several types.
    Either(Vec<Kind<'a>>),
}

/// The kind of a Rust type that is written in `file`.
pub(super) fn kind<'a>(sources: &'a Sources, file: &str, rust: &str) -> Kind<'a> {
    let inner = |name: &str| {
        let rest = rust.strip_prefix(name)?.strip_prefix('<')?;
        rest.strip_suffix('>')
    };
    if let Some(rest) = inner("Option") {
        return Kind::Optional(Box::new(kind(sources, file, rest)));
    }
    if let Some(rest) = inner("Vec") {
        return Kind::List(Box::new(kind(sources, file, rest)));
    }
    if let Some(rest) = inner("BTreeMap").and_then(|r| r.strip_prefix("String, ")) {
        return Kind::Map(Box::new(kind(sources, file, rest)));
    }
    if let Some(rest) = rust.strip_prefix('(').and_then(|r| r.strip_suffix(')')) {
        let parts = rest.split(", ").map(|part| kind(sources, file, part));
        return Kind::Tuple(parts.collect());
    }
    if let Some((rest, count)) = rust
        .strip_prefix('[')
        .and_then(|r| r.strip_suffix(']')?.split_once("; "))
    {
        let parts = (0..count.parse::<usize>().unwrap()).map(|_| kind(sources, file, rest));
        return Kind::Tuple(parts.collect());
    }
    match rust {
        "bool" => Kind::Plain("boolean"),
        "String" | "PathBuf" => Kind::Plain("string"),
        "f32" | "f64" => Kind::Plain("number"),
        "u8" | "u16" | "u32" | "u64" | "usize" | "i32" | "i64" => Kind::Plain("integer"),
        name => {
            let item = sources.find(file, name);
            let item = item.unwrap_or_else(|| panic!("{file}: no source of the type {name}"));
            of_item(sources, item)
        }
    }
}

fn of_item<'a>(sources: &'a Sources, item: &'a Item) -> Kind<'a> {
    match &item.body {
        Body::Struct(_) => Kind::Table(item),
        Body::Tuple(rust) => kind(sources, &item.file, rust),
        Body::Enum(variants) if super::sources::has_word(&item.serde, "untagged") => {
            let of = |variant: &Variant| match &variant.payload {
                Payload::One(rust) => kind(sources, &item.file, rust),
                Payload::None | Payload::Fields(_) => {
                    panic!("{}: {}: {}", item.file, item.name, variant.name)
                }
            };
            Kind::Either(variants.iter().map(of).collect())
        }
        Body::Enum(variants) => {
            let is_word = |variant: &Variant| matches!(variant.payload, Payload::None);
            match variants.iter().all(is_word) {
                true => Kind::Word(item),
                false => Kind::Tagged(item),
            }
        }
    }
}

impl Kind<'_> {
    /// The kind in words.
    pub(super) fn name(&self) -> String {
        match self {
            Kind::Plain(name) => (*name).to_string(),
            Kind::Optional(inner) => inner.name(),
            Kind::List(inner) => format!("list of {}", inner.plural()),
            Kind::Tuple(parts) => {
                let parts: Vec<String> = parts.iter().map(Kind::name).collect();
                format!("[{}]", parts.join(", "))
            }
            Kind::Map(inner) => format!("table of {}", inner.plural()),
            Kind::Table(_) | Kind::Tagged(_) => "table".to_string(),
            Kind::Word(_) => "word".to_string(),
            Kind::Either(parts) => {
                let parts: Vec<String> = parts.iter().map(Kind::name).collect();
                parts.join(" or ")
            }
        }
    }

    fn plural(&self) -> String {
        match self {
            Kind::Plain(_) | Kind::Table(_) | Kind::Tagged(_) | Kind::Word(_) => {
                format!("{}s", self.name())
            }
            Kind::Either(parts) => {
                let parts: Vec<String> = parts.iter().map(Kind::plural).collect();
                parts.join(" or ")
            }
            Kind::Optional(_) | Kind::List(_) | Kind::Tuple(_) | Kind::Map(_) => self.name(),
        }
    }

    /// The enum that a value of this kind is a variant of.
    pub(super) fn words(&self) -> Option<&Item> {
        match self {
            Kind::Word(item) | Kind::Tagged(item) => Some(item),
            Kind::Optional(inner) | Kind::List(inner) => inner.words(),
            Kind::Plain(_) | Kind::Tuple(_) | Kind::Map(_) | Kind::Table(_) | Kind::Either(_) => {
                None
            }
        }
    }
}
