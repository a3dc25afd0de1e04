//! `pipelines/docs/keys.md`, the reference of all keys of a job file, is made from the sources: keys, types and meanings from the
//! structs and their doc comments, defaults and accepted names from the program.

mod kinds;
mod probe;
mod sources;

use crate::jobs::root;
use kinds::{Kind, kind};
use probe::Step;
use serde_json::{Map, Value};
use sources::{Body, Field, Item, Payload, Sources, attribute};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The document, relative to the repository.
const FILE: &str = "pipelines/docs/keys.md";

/// The command that writes it.
const COMMAND: &str =
    "MILLRACE_WRITE_KEYS=1 cargo test --release -p millrace-tests --test all -- key_reference";

/// The tables on their way to the document.
struct Reference<'a> {
    sources: &'a Sources,
    text: String,
    /// Heading of each table that is written, by file and type.
    headings: BTreeMap<(String, String), String>,
    /// Words that the sources lack.
    problems: Vec<String>,
}

/// A table to write.
struct Table<'a> {
    item: &'a Item,
    fields: &'a [Field],
    docs: &'a str,
    path: Vec<Step>,
}

/// `[table]` or `[[table]]`.
fn heading(path: &[Step]) -> String {
    let keys = path.iter().filter_map(|step| match step {
        Step::Key(key, _) => Some(key.as_str()),
        Step::Element => None,
    });
    let name = keys.collect::<Vec<_>>().join(".");
    match path.last() {
        Some(Step::Element) => format!("`[[{name}]]`"),
        Some(Step::Key(..)) => format!("`[{name}]`"),
        None => "Top level".to_string(),
    }
}

/// A link to a heading, as GitHub names it.
fn link(heading: &str) -> String {
    let anchor: String = heading
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || "-_ ".contains(*c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect();
    format!("[{heading}](#{anchor})")
}

/// A doc comment in a cell of a table.
fn cell(docs: &str) -> String {
    docs.replace("[`", "`")
        .replace("`]", "`")
        .replace('|', "\\|")
}

/// A value as a job file has it.
fn toml(value: &Value) -> String {
    match value {
        Value::Null => "none".to_string(),
        Value::Object(table) if table.is_empty() => "{}".to_string(),
        Value::Object(table) => {
            let pair = |(key, value): (&String, &Value)| format!("{key} = {}", toml(value));
            let pairs: Vec<String> = table.iter().map(pair).collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(toml).collect();
            format!("[{}]", values.join(", "))
        }
        Value::String(_) | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

impl<'a> Reference<'a> {
    fn new(sources: &'a Sources) -> Reference<'a> {
        Reference {
            sources,
            text: String::new(),
            headings: BTreeMap::new(),
            problems: Vec::new(),
        }
    }

    /// Notes a field or variant without a doc comment.
    fn needs_docs(&mut self, item: &Item, name: &str, docs: &str) {
        if docs.is_empty() {
            let (file, of) = (&item.file, &item.name);
            self.problems
                .push(format!("{file}: {of}: {name} has no doc comment"));
        }
    }

    /// Notes names that the program accepts and the sources do not have, or the other way round.
    fn compare(&mut self, place: &str, documented: &[String], accepted: &[String]) {
        let (mut documented, mut accepted) = (documented.to_vec(), accepted.to_vec());
        documented.sort();
        accepted.sort();
        if documented != accepted {
            self.problems.push(format!(
                "{place}: the program accepts {accepted:?}, the sources have {documented:?}"
            ));
        }
    }

    /// Writes a table and those inside it.
    fn table(&mut self, table: &Table<'a>) {
        let Table {
            item,
            fields,
            docs,
            path,
        } = table;
        let title = heading(path);
        let level = if path.len() > 1 { "###" } else { "##" };
        let required = probe::required(self.sources, item, fields);
        let documented: Vec<String> = fields.iter().map(|f| f.key().to_string()).collect();
        let accepted = probe::accepted_keys(path, &required);
        // a value of several types refuses a wrong one without naming keys
        if !accepted.is_empty() {
            self.compare(&title, &documented, &accepted);
        }
        writeln!(self.text, "\n{level} {title}\n").unwrap();
        // a comment often begins with the name of the table
        let intro = docs.strip_prefix(&*title).unwrap_or(docs);
        let intro = intro.trim_start_matches([':', '.', ' ']);
        if !intro.is_empty() && !path.is_empty() {
            writeln!(self.text, "{}\n", cell(intro)).unwrap();
        }
        self.text
            .push_str("| key | type | default | meaning |\n|---|---|---|---|\n");
        let mut inner = Vec::new();
        for (at, field) in fields.iter().enumerate() {
            self.needs_docs(item, &field.name, &field.docs);
            let of = kind(self.sources, &item.file, &field.kind);
            let mut place = path.clone();
            place.push(Step::Key(field.key().to_string(), required.clone()));
            let default = probe::default_of(self.sources, item, fields, at, path);
            let default = match (&of, default) {
                (_, None) => "required".to_string(),
                (Kind::Table(table), Some(Value::Object(_)))
                    if probe::minimal(self.sources, table).is_empty() =>
                {
                    "its keys'".to_string()
                }
                (_, Some(Value::Null)) => "none".to_string(),
                (_, Some(value)) => format!("`{}`", toml(&value)),
            };
            let mut meaning = cell(&field.docs);
            if let Some(words) = of.words() {
                meaning.push_str(&self.words(words, &of, &place));
            }
            if field.kind.ends_with("Limits") {
                let names = probe::limit_names(path).join("`, `");
                write!(meaning, " Names: `{names}`.").unwrap();
            }
            let mut tables = Vec::new();
            tables_of(self.sources, &of, &place, &mut tables);
            for table in tables {
                let id = (table.item.file.clone(), table.id());
                let known = self.headings.get(&id).cloned();
                let title = known.unwrap_or_else(|| {
                    let title = heading(&table.path);
                    self.headings.insert(id, title.clone());
                    inner.push(table);
                    title
                });
                write!(meaning, " {}", link(&title)).unwrap();
            }
            let forms = attribute(&field.serde, "deserialize_with");
            let of = match forms.is_some_and(|with| with.ends_with("read::inputs")) {
                true => format!("{} or strings, or string", of.name()),
                false => of.name(),
            };
            let key = field.key();
            let default = default.replace('|', "\\|");
            writeln!(self.text, "| `{key}` | {of} | {default} | {meaning} |").unwrap();
        }
        for table in &inner {
            self.table(table);
        }
    }

    /// The words of an enum with their meanings; nothing for those that are keys of tables.
    fn words(&mut self, item: &Item, of: &Kind<'_>, place: &[Step]) -> String {
        let Body::Enum(variants) = &item.body else {
            return String::new();
        };
        let mut place = place.to_vec();
        if matches!(of, Kind::List(_)) {
            place.push(Step::Element);
        }
        let documented: Vec<String> = variants.iter().map(|v| item.word(v)).collect();
        self.compare(
            &heading(&place),
            &documented,
            &probe::accepted_words(&place),
        );
        let mut text = String::new();
        for variant in variants {
            // the docs of a step are those of its settings
            if !matches!(variant.payload, Payload::One(_)) {
                self.needs_docs(item, &variant.name, &variant.docs);
            }
            if !matches!(variant.payload, Payload::None) {
                continue;
            }
            let (word, docs) = (item.word(variant), cell(&variant.docs));
            write!(text, "<br>`\"{word}\"`: {docs}").unwrap();
        }
        text
    }
}

/// The tables that a value at `path` may hold.
fn tables_of<'a>(sources: &'a Sources, of: &Kind<'a>, path: &[Step], found: &mut Vec<Table<'a>>) {
    let below = |step: Step| [path, &[step]].concat();
    match of {
        Kind::Plain(_) | Kind::Tuple(_) | Kind::Word(_) => {}
        Kind::Optional(inner) => tables_of(sources, inner, path, found),
        Kind::List(inner) => tables_of(sources, inner, &below(Step::Element), found),
        Kind::Map(inner) => {
            let name = Step::Key("NAME".into(), Map::new());
            tables_of(sources, inner, &below(name), found);
        }
        Kind::Either(parts) => {
            for part in parts {
                tables_of(sources, part, path, found);
            }
        }
        Kind::Table(item) => {
            if let Body::Struct(fields) = &item.body {
                let (docs, path) = (&*item.docs, path.to_vec());
                found.push(Table {
                    item,
                    fields,
                    docs,
                    path,
                });
            }
        }
        Kind::Tagged(item) => {
            let Body::Enum(variants) = &item.body else {
                return;
            };
            for variant in variants {
                let path = below(Step::Key(item.word(variant), Map::new()));
                match &variant.payload {
                    Payload::None => {}
                    Payload::One(rust) => {
                        tables_of(sources, &kind(sources, &item.file, rust), &path, found);
                    }
                    Payload::Fields(fields) => found.push(Table {
                        item,
                        fields,
                        docs: &variant.docs,
                        path,
                    }),
                }
            }
        }
    }
}

impl Table<'_> {
    /// Name of the type, with the variant whose fields these are.
    fn id(&self) -> String {
        match (&self.item.body, self.path.last()) {
            (Body::Enum(_), Some(Step::Key(key, _))) => format!("{}::{key}", self.item.name),
            (Body::Struct(_) | Body::Tuple(_) | Body::Enum(_), _) => self.item.name.clone(),
        }
    }
}

/// Every source file of the crates: path relative to the repository, text.
fn files() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders: Vec<_> = ["curate", "index", "kernels", "train", "pipelines"]
        .map(|folder| root().join(folder).join("src"))
        .to_vec();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let name = path.strip_prefix(root()).unwrap().display().to_string();
                found.push((name, std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found
}

/// The document, and what the sources lack.
fn made(files: &[(String, String)]) -> (String, Vec<String>) {
    let sources = Sources::of(files.iter().map(|(path, text)| (&**path, &**text)));
    let mut reference = Reference::new(&sources);
    let job = sources.find("pipelines/src/job/table.rs", "Job").unwrap();
    let Body::Struct(fields) = &job.body else {
        panic!("a job is no struct");
    };
    reference.text = format!(
        "# Keys of a job file\n\n\
         Every key that a job accepts, made from the doc comments of the sources and the defaults of the program. Do not edit it;\n\
         change the sources and run\n\n    {COMMAND}\n\n\
         `--set table.key=value` overrides a key on the command line, `--check` prints the resolved job. \"Required\" has no default,\n\
         \"none\" means that the key is absent, and \"its keys'\" that each key of the table has a default of its own.\n\
         `[table]` is a table, `[[table]]` an element of a list of tables; both can be written inline as `{{ key = value }}`.\n"
    );
    reference.table(&Table {
        item: job,
        fields,
        docs: "",
        path: Vec::new(),
    });
    (reference.text, reference.problems)
}

#[test]
fn the_key_reference_is_what_sources_and_program_say() {
    let (text, problems) = made(&files());
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    let path = root().join(FILE);
    if std::env::var_os("MILLRACE_WRITE_KEYS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &text).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = text.lines().zip(committed.lines()).find(|(a, b)| a != b);
    assert!(
        text == committed,
        "{FILE} is not what the sources say: run\n  {COMMAND}\nfirst difference: {differs:?}"
    );
    assert!(text.lines().count() > 400, "{text}");
}

/// The sources with one line changed, or lines taken out with it.
fn with_table_changed(change: impl Fn(&str) -> String) -> Vec<String> {
    let mut files = files();
    let path = "pipelines/src/job/table.rs";
    let file = files.iter_mut().find(|(name, _)| name == path).unwrap();
    let changed = change(&file.1);
    assert_ne!(changed, file.1);
    file.1 = changed;
    made(&files).1
}

#[test]
fn a_key_without_a_doc_comment_is_a_problem() {
    let problems = with_table_changed(|text| {
        let (before, after) = text.split_once("    pub threads: usize,\n").unwrap();
        let mut lines: Vec<&str> = before.lines().collect();
        while lines.last().is_some_and(|line| line.starts_with("    ///")) {
            lines.pop();
        }
        format!("{}\n    pub threads: usize,\n{after}", lines.join("\n"))
    });
    let wanted = "pipelines/src/job/table.rs: Job: threads has no doc comment";
    assert_eq!(problems, [wanted]);
}

#[test]
fn a_key_that_the_reference_misses_is_a_problem() {
    let problems = with_table_changed(|text| text.replacen("    pub threads: usize,\n", "", 1));
    let [problem] = problems.as_slice() else {
        panic!("{problems:?}");
    };
    assert!(
        problem.starts_with("Top level: the program accepts"),
        "{problem}"
    );
}
