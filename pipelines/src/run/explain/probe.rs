//! The range of a key, asked from the program: values at the edges of its type are checked as in a job file, and the answers to
//! those that are refused are the range.

use crate::job::problems;
use crate::job::reference::{Key, keys, tables};
use toml::{Table, Value};

/// The accepted values of a key, in words.
pub(super) fn range(key: &Key) -> String {
    if !key.words.is_empty() {
        let words: Vec<String> = key.words.iter().map(|(w, _)| format!("\"{w}\"")).collect();
        let any = if key.kind.starts_with("list") {
            "any of "
        } else {
            ""
        };
        return format!("{any}{}", words.join(", "));
    }
    let probe = Probe::of(key);
    let mut wanted: Vec<String> = Vec::new();
    for value in edges(&key.kind) {
        for text in probe.answers(value) {
            if !wanted.contains(&text) {
                wanted.push(text);
            }
        }
    }
    if wanted.is_empty() {
        return any_of(&key.kind);
    }
    wanted.join("; ")
}

/// Limits of a number that hold in every job, as JSON Schema names them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Bounds {
    pub minimum: Option<u8>,
    pub exclusive_minimum: Option<u8>,
    pub maximum: Option<u8>,
    pub exclusive_maximum: Option<u8>,
}

/// The limits 0 and 1 of a key's numbers, where the program has them. A key whose middle value is refused, because it
/// depends on other keys, has none; nor has one whose default is outside.
pub(crate) fn bounds(key: &Key) -> Bounds {
    let probe = Probe::of(key);
    let default = key.default.parse::<f64>().ok();
    let found = match key.kind.as_str() {
        "integer" => probe.bounds_of_integer(),
        "number" => probe.bounds_of_number(),
        _ => Bounds::default(),
    };
    match default {
        Some(default) if !found.allow(default) => Bounds::default(),
        Some(_) | None => found,
    }
}

impl Bounds {
    fn allow(self, value: f64) -> bool {
        let is = |limit: Option<u8>, fits: fn(&f64, &f64) -> bool| {
            limit.is_none_or(|limit| fits(&value, &f64::from(limit)))
        };
        is(self.minimum, f64::ge)
            && is(self.exclusive_minimum, f64::gt)
            && is(self.maximum, f64::le)
            && is(self.exclusive_maximum, f64::lt)
    }
}

/// A key that is given values.
struct Probe<'a> {
    key: &'a Key,
    place: String,
    /// Answers to a job without the key.
    without: Vec<String>,
}

impl Probe<'_> {
    fn of(key: &Key) -> Probe<'_> {
        let mut probe = Probe {
            key,
            place: place_of(key),
            without: Vec::new(),
        };
        probe.without = probe.wanted(Table::new());
        probe
    }

    fn wanted(&self, tables: Table) -> Vec<String> {
        let mut job: Table = BASE.parse().unwrap_or_default();
        merge(&mut job, tables);
        let of_key = problems(&job).into_iter().filter(|p| p.key == self.place);
        of_key.map(|p| p.wanted).collect()
    }

    /// The answers to a value that is refused; none to one that is accepted.
    fn answers(&self, value: Value) -> Vec<String> {
        let mut answers = self.wanted(with(self.key, value));
        answers.retain(|text| !self.without.contains(text));
        answers
    }

    /// Whether every job refuses a value: an answer that names another key (`at least 1, or eval_every = 0`) is of this job alone.
    fn refuses(&self, value: Value) -> bool {
        let is_of_every_job = |text: &String| !text.contains('=') && !text.contains(" with");
        self.answers(value).iter().any(is_of_every_job)
    }

    fn bounds_of_integer(&self) -> Bounds {
        let refuses = |value| self.refuses(Value::Integer(value));
        let minimum = match [refuses(1), refuses(0), refuses(-1)] {
            [true, _, _] | [false, false, false] => None,
            [false, true, _] => Some(1),
            [false, false, true] => Some(0),
        };
        Bounds {
            minimum,
            ..Bounds::default()
        }
    }

    fn bounds_of_number(&self) -> Bounds {
        let refuses = |value| self.refuses(Value::Float(value));
        if refuses(0.5) {
            return Bounds::default();
        }
        // some keys are f32
        let little = f64::from(f32::EPSILON);
        let (is_below, is_above) = (refuses(-little), refuses(1.0 + little));
        let (at_zero, at_one) = (refuses(0.0), refuses(1.0));
        Bounds {
            minimum: (is_below && !at_zero).then_some(0),
            exclusive_minimum: (is_below && at_zero).then_some(0),
            maximum: (is_above && !at_one).then_some(1),
            exclusive_maximum: (is_above && at_one).then_some(1),
        }
    }
}

/// Every value of a type.
fn any_of(kind: &str) -> String {
    match kind {
        "boolean" => "true or false".to_string(),
        "integer" => "any whole number".to_string(),
        "number" => "any number".to_string(),
        "string" => "any text".to_string(),
        kind => format!("any {kind}"),
    }
}

/// More than any limit on a count; the sizes of a model can still be multiplied.
const LARGE: i64 = 1_000_003;

fn edges(kind: &str) -> Vec<Value> {
    match kind {
        "integer" => [-1, 0, LARGE].map(Value::Integer).to_vec(),
        "number" => [-1.0, 0.0, 1.5, 1e300].map(Value::Float).to_vec(),
        "string" => vec![Value::String(String::new())],
        _ => Vec::new(),
    }
}

/// A job whose tables are checked against each other, to put the value into.
const BASE: &str = "name = 'x'\nout = 'o'\n[curate]\ninputs = [{ path = 'a' }]\n[tokenize]\n\
    [blend]\nseq_length = 64\ndataset = [{ name = 'a', prefix = 'p' }]\n\
    [model]\nlayers = 2\nd_model = 64\nheads = 2\n\
    [train]\nsteps = 2\nglobal_batch = 2\nmicro_batch = 1\nwarmup_steps = 1\n";

/// Puts the tables of `from` into those of `to`; lists of tables element by element.
fn merge(to: &mut Table, from: Table) {
    for (name, value) in from {
        match (to.get_mut(&name), value) {
            (Some(Value::Table(old)), Value::Table(new)) => merge(old, new),
            (Some(Value::Array(old)), Value::Array(new)) if !old.is_empty() => {
                for (old, new) in old.iter_mut().zip(new) {
                    match (old, new) {
                        (Value::Table(old), Value::Table(new)) => merge(old, new),
                        (old, new) => *old = new,
                    }
                }
            }
            (_, value) => {
                to.insert(name, value);
            }
        }
    }
}

/// The names on the way to a key, and whether each is a list of tables.
fn steps_to(key: &Key) -> Vec<(&str, bool)> {
    let mut end = 0;
    let names = key.path.split('.').map(|name| {
        end += name.len();
        let is_list = end < key.path.len() && is_list_of_tables(&key.path[..end]);
        end += 1;
        (name, is_list)
    });
    names.collect()
}

/// The key as problems name it: `curate.inputs[0].path`.
fn place_of(key: &Key) -> String {
    let names: Vec<String> = steps_to(key)
        .into_iter()
        .map(|(name, is_list)| format!("{name}{}", if is_list { "[0]" } else { "" }))
        .collect();
    names.join(".")
}

/// The tables around a key, with this value at it.
fn with(key: &Key, value: Value) -> Table {
    let steps = steps_to(key);
    let mut value = value;
    for (depth, (name, is_list)) in steps.iter().enumerate().rev() {
        if *is_list {
            value = Value::Array(vec![value]);
        }
        let mut table = Table::new();
        if depth + 1 == steps.len() {
            table.extend(required_beside(key));
        }
        table.insert((*name).to_string(), value);
        value = Value::Table(table);
    }
    match value {
        Value::Table(table) => table,
        // a path has at least one name
        _ => Table::new(),
    }
}

fn is_list_of_tables(path: &str) -> bool {
    keys().any(|key| key.path == path && key.kind.starts_with("list of tables"))
}

/// Keys of the same table that have no default.
fn required_beside(key: &Key) -> Table {
    let table = tables()
        .iter()
        .find(|t| t.keys.iter().any(|k| k.path == key.path));
    let required = table.iter().flat_map(|t| &t.keys);
    required
        .filter(|other| other.default == "required" && other.path != key.path)
        .map(|other| (last(&other.path).to_string(), sample(other)))
        .collect()
}

/// The last name of a path.
pub(super) fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// A value that shows the form: the default, or one of the type.
fn sample(key: &Key) -> Value {
    let parsed = format!("x = {}", key.default).parse::<Table>();
    if let Some(value) = parsed.ok().and_then(|mut table| table.remove("x")) {
        return value;
    }
    if let Some((word, _)) = key.words.first() {
        return match key.kind.starts_with("list") {
            true => Value::Array(vec![Value::String(word.clone())]),
            false => Value::String(word.clone()),
        };
    }
    let first = key.kind.split(" or ").next().unwrap_or(&key.kind);
    of_kind(first)
}

fn of_kind(kind: &str) -> Value {
    if let Some(parts) = kind.strip_prefix('[').and_then(|k| k.strip_suffix(']')) {
        return Value::Array(parts.split(", ").map(of_kind).collect());
    }
    if let Some(inner) = kind.strip_prefix("list of ") {
        return Value::Array(vec![of_kind(inner.trim_end_matches('s'))]);
    }
    match kind {
        "integer" => Value::Integer(1),
        "number" => Value::Float(0.5),
        "boolean" => Value::Boolean(true),
        kind if kind.starts_with("table") => Value::Table(Table::new()),
        _ => Value::String("...".into()),
    }
}

/// The key in a job file.
pub(super) fn example(key: &Key) -> String {
    toml::to_string(&with(key, sample(key))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(path: &str) -> &'static Key {
        keys().find(|key| key.path == path).unwrap()
    }

    #[test]
    fn ranges_are_what_the_program_refuses() {
        // `train.steps` must be positive, `curate.sample` a share, by their checks
        assert!(
            range(key("curate.sample")).contains('1'),
            "{}",
            range(key("curate.sample"))
        );
        assert!(
            !range(key("train.lr")).starts_with("any"),
            "{}",
            range(key("train.lr"))
        );
        assert_eq!(range(key("curate.figures")), "true or false");
        let of = |path: &str| bounds(key(path));
        let at_least = |minimum| Bounds {
            minimum: Some(minimum),
            ..Bounds::default()
        };
        assert_eq!(of("train.global_batch"), at_least(1));
        assert_eq!(of("train.warmup_steps"), at_least(0));
        let share = Bounds {
            minimum: Some(0),
            maximum: Some(1),
            ..Bounds::default()
        };
        assert_eq!(of("curate.sample"), share);
        let below_one = Bounds {
            minimum: Some(0),
            exclusive_maximum: Some(1),
            ..Bounds::default()
        };
        assert_eq!(of("train.beta1"), below_one);
        // 0 is accepted where `eval_every` is 0
        assert_eq!(of("train.eval_samples"), at_least(0));
        assert!(range(key("device")).contains("\"cpu\""));
    }

    #[test]
    fn every_example_is_toml_with_the_key_in_it() {
        for key in keys() {
            let text = example(key);
            let parsed: Table = text.parse().unwrap();
            assert!(
                !parsed.is_empty() && text.contains(last(&key.path)),
                "{text}"
            );
        }
    }
}
