//! What the program itself says of keys: which ones a table accepts, and their defaults.

use super::kinds::{Kind, kind};
use super::sources::{Body, Field, Item, Payload, Sources};
use pipelines::Job;
use serde_json::{Map, Value, json};

/// A name that no key and no word has.
const NOBODY: &str = "no such name";

/// One step from the job's root to a table or a value.
#[derive(Clone)]
pub(super) enum Step {
    /// A key, with the values of the other keys that its table requires.
    Key(String, Map<String, Value>),
    /// An element of a list.
    Element,
}

/// A job with `value` at `path`, and else what is required.
fn job_with(path: &[Step], value: Value) -> Value {
    path.iter().rev().fold(value, |value, step| match step {
        Step::Key(key, others) => {
            let mut table = others.clone();
            table.insert(key.clone(), value);
            Value::Object(table)
        }
        Step::Element => json!([value]),
    })
}

fn parse(path: &[Step], value: Value) -> Result<Job, String> {
    serde_json::from_value(job_with(path, value)).map_err(|e| e.to_string())
}

/// The value at `path` of a job as it is printed; nothing where it is left out.
fn printed(job: &Job, path: &[Step]) -> Option<Value> {
    // as text, so that an f32 keeps its shortest digits
    let text = serde_json::to_string(job).unwrap();
    let mut value: Value = serde_json::from_str(&text).unwrap();
    for step in path {
        value = match step {
            Step::Key(key, _) => value.get_mut(key)?.take(),
            Step::Element => value.get_mut(0)?.take(),
        };
    }
    Some(value)
}

/// Names in backquotes that an error expects.
fn expected(error: &str) -> Vec<String> {
    let Some((_, names)) = error.split_once("expected ") else {
        return Vec::new();
    };
    let names = names.split('`').skip(1).step_by(2);
    names.map(ToString::to_string).collect()
}

/// The smallest value of a kind, and others.
fn examples(sources: &Sources, kind: &Kind<'_>) -> Vec<Value> {
    match kind {
        Kind::Plain("boolean") => vec![json!(false), json!(true)],
        Kind::Plain("integer") => vec![json!(0), json!(1), json!(7)],
        Kind::Plain("number") => vec![json!(0.0), json!(0.25), json!(1.0)],
        Kind::Plain(_) => vec![json!(""), json!("x")],
        Kind::Optional(inner) => examples(sources, inner),
        Kind::List(inner) => {
            let inner = examples(sources, inner);
            let one = inner.last().cloned().map(|value| json!([value]));
            [json!([])].into_iter().chain(one).collect()
        }
        Kind::Tuple(parts) => {
            let parts = parts.iter().map(|part| examples(sources, part));
            vec![parts.filter_map(|values| values.last().cloned()).collect()]
        }
        Kind::Map(_) => vec![json!({})],
        Kind::Table(item) => vec![Value::Object(minimal(sources, item))],
        Kind::Word(item) => {
            let Body::Enum(variants) = &item.body else {
                return Vec::new();
            };
            variants.iter().map(|v| json!(item.word(v))).collect()
        }
        Kind::Tagged(item) => match &item.body {
            Body::Enum(variants) => {
                let first = variants.first().map(|v| (item.word(v), &v.payload));
                let of = |(word, payload): (String, &Payload)| match payload {
                    Payload::Fields(fields) => json!({word: required(sources, item, fields)}),
                    Payload::One(_) | Payload::None => json!({word: {}}),
                };
                first.map(of).into_iter().collect()
            }
            Body::Struct(_) | Body::Tuple(_) => Vec::new(),
        },
        Kind::Either(parts) => parts
            .iter()
            .flat_map(|part| examples(sources, part))
            .collect(),
    }
}

/// Values of those of `fields` that a job has to give.
pub(super) fn required(sources: &Sources, item: &Item, fields: &[Field]) -> Map<String, Value> {
    let missing = fields.iter().filter(|field| !item.has_default(field));
    let value = |field: &Field| {
        let values = examples(sources, &kind(sources, &item.file, &field.kind));
        (field.key().to_string(), values.last().cloned().unwrap())
    };
    missing.map(value).collect()
}

/// A table with what it requires.
pub(super) fn minimal(sources: &Sources, item: &Item) -> Map<String, Value> {
    match &item.body {
        Body::Struct(fields) => required(sources, item, fields),
        Body::Tuple(_) | Body::Enum(_) => Map::new(),
    }
}

/// The keys that the program accepts in the table at `path`; nothing if it does not say.
pub(super) fn accepted_keys(path: &[Step], required: &Map<String, Value>) -> Vec<String> {
    let mut table = Map::new();
    table.insert(NOBODY.to_string(), json!(0));
    table.extend(required.clone());
    let error = parse(path, Value::Object(table)).expect_err("a name that no key has");
    expected(&error)
}

/// The words that the program accepts at `path`.
pub(super) fn accepted_words(path: &[Step]) -> Vec<String> {
    let error = parse(path, json!(NOBODY)).expect_err("a name that no word has");
    expected(&error)
}

/// The names of limits that the step at `path` knows, as its check lists them.
pub(super) fn limit_names(path: &[Step]) -> Vec<String> {
    let job = job_with(path, json!({ "limits": { NOBODY: 1 } }));
    let table: toml::Table = serde_json::from_value(job).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("job.toml");
    std::fs::write(&file, toml::to_string(&table).unwrap()).unwrap();
    let error = pipelines::load(&file, &[]).unwrap_err().to_string();
    let problem = error.split("\n\n").find(|p| p.contains(NOBODY));
    let problem = problem.unwrap_or_else(|| panic!("no word of the limits: {error}"));
    let names = problem.rsplit("one of ").next().unwrap();
    names.split_whitespace().map(ToString::to_string).collect()
}

/// The default of `fields[at]` in the table at `path`; `None` if it has to be given.
pub(super) fn default_of(
    sources: &Sources,
    item: &Item,
    fields: &[Field],
    at: usize,
    path: &[Step],
) -> Option<Value> {
    let field = &fields[at];
    if !item.has_default(field) {
        return None;
    }
    let required = required(sources, item, fields);
    let key = |key: &str| {
        let mut path = path.to_vec();
        path.push(Step::Key(key.to_string(), required.clone()));
        path
    };
    let place = key(field.key());
    let job = parse(path, Value::Object(required.clone())).unwrap();
    if let Some(value) = printed(&job, &place) {
        return Some(value);
    }
    let of = kind(sources, &item.file, &field.kind);
    if matches!(of, Kind::Optional(_)) {
        return Some(Value::Null);
    }
    // a default that is not printed: the value that changes nothing
    for value in examples(sources, &of) {
        if parse(&place, value.clone()).as_ref() == Ok(&job) {
            return Some(value);
        }
    }
    // a table that is not printed while all of it is as by default: another key makes it differ
    for other in fields.iter().filter(|other| other.key() != field.key()) {
        for value in examples(sources, &kind(sources, &item.file, &other.kind)) {
            let found = parse(&key(other.key()), value).ok();
            if let Some(value) = found.and_then(|job| printed(&job, &place)) {
                return Some(value);
            }
        }
    }
    panic!("{}: {}: no default found", item.file, field.name)
}
