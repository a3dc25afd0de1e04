//! TOML to a resolved [`Job`], with every problem reported at once.
//!
//! A problem names the file, the key path, the value found and the value wanted. Unknown keys and wrong types are
//! found one at a time: deserialise, remove the offending key, try again; so one run names them all. Contradictions
//! are then collected from every table. As a last check the loader compares the key paths of the input with those
//! of the resolved job, which finds keys that nothing has read.

use super::deserializer::{self, WrongValue};
use super::module_names::target_of;
use super::place::{self, Place};
use super::problem::Problem;
use super::reference;
use super::table::Job;
use super::values::{dotted, get, leaves, remove, short};
use curate::text::near::or_nearest;
use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Why a job cannot be used.
#[derive(Debug)]
pub enum LoadError {
    /// The file cannot be read or is no TOML.
    File {
        /// Job file.
        path: PathBuf,
        /// Cause.
        why: String,
    },
    /// The file is TOML but not a job.
    Problems {
        /// Job file.
        path: PathBuf,
        /// All of them.
        problems: Vec<Problem>,
        /// Where each is in the file, as far as that is known; may be shorter.
        places: Vec<Option<Place>>,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::File { path, why } => write!(f, "{}: {why}", path.display()),
            LoadError::Problems {
                path,
                problems,
                places,
            } => {
                let plural = if problems.len() == 1 { "" } else { "s" };
                write!(f, "{}: {} problem{plural}", path.display(), problems.len())?;
                for (at, p) in problems.iter().enumerate() {
                    let (file, key) = (path.display(), &p.key);
                    let place = places.get(at).and_then(Option::as_ref);
                    write!(f, "\n\n  file   {file}")?;
                    if let Some(place) = place {
                        write!(f, ":{}:{}", place.line, place.column)?;
                    }
                    write!(f, "\n  key    {key}")?;
                    write!(f, "\n  found  {}\n  wanted {}", p.found, p.wanted)?;
                    if let Some(place) = place {
                        write!(f, "{place}")?;
                    }
                }
                let known = problems.iter().map(|p| without_numbers(&p.key));
                let known = known.into_iter().find(|key| is_key(key));
                match known {
                    Some(key) => write!(f, "\n\n`millrace explain {key}` describes this key"),
                    None => Ok(()),
                }
            }
        }
    }
}

impl std::error::Error for LoadError {}

impl LoadError {
    /// Problems of a job file that was read, with their places in it.
    pub(crate) fn of_job(path: &Path, overrides: &[String], problems: Vec<Problem>) -> LoadError {
        // an object of a store is not asked for again
        let text = match curate::store::is_url(path) {
            true => String::new(),
            false => std::fs::read_to_string(path).unwrap_or_default(),
        };
        LoadError::of_text(path, &text, overrides, problems)
    }

    fn of_text(path: &Path, text: &str, set: &[String], problems: Vec<Problem>) -> LoadError {
        let mut places = place::places(text, &problems);
        for (problem, place) in problems.iter().zip(&mut places) {
            // the value of a key that is set elsewhere is not the one in the file
            if set.iter().any(|set| is_of(&problem.key, set)) {
                *place = None;
            }
        }
        LoadError::Problems {
            path: path.to_path_buf(),
            problems,
            places,
        }
    }

    /// Problems whose places in the file are not known.
    pub(crate) fn problems(path: PathBuf, problems: Vec<Problem>) -> LoadError {
        LoadError::Problems {
            path,
            problems,
            places: Vec::new(),
        }
    }
}

/// `curate.inputs.path` of `curate.inputs[0].path`.
fn without_numbers(key: &str) -> String {
    let mut plain = String::new();
    let mut rest = key;
    while let Some((before, after)) = rest.split_once('[') {
        plain.push_str(before);
        rest = after.split_once(']').map_or("", |(_, rest)| rest);
    }
    plain + rest
}

fn is_key(path: &str) -> bool {
    reference::keys().any(|key| key.path == path)
}

/// Reads a job file, applies `--set` overrides, and returns it resolved.
///
/// # Errors
/// `File`, or `Problems` with every problem.
pub fn load(path: &Path, overrides: &[String]) -> Result<Job, LoadError> {
    load_with(path, overrides, &|_| Vec::new())
}

/// Like [`load`], with the problems that `more` finds in a job whose keys and types are right: of files, for one.
///
/// # Errors
/// As [`load`].
pub(crate) fn load_with(
    path: &Path,
    overrides: &[String],
    more: &dyn Fn(&Job) -> Vec<Problem>,
) -> Result<Job, LoadError> {
    let file = |why: String| LoadError::File {
        path: path.to_path_buf(),
        why,
    };
    let text = read(path).map_err(file)?;
    let mut table: Table = text
        .parse()
        .map_err(|e: toml::de::Error| file(e.to_string()))?;
    let mut problems = Vec::new();
    for set in overrides {
        if let Err(p) = apply(&mut table, set) {
            problems.push(p);
        }
    }
    let mut job = parse(&table, &mut problems);
    // of a job with wrong keys some are left out
    let is_whole = problems.is_empty();
    let wrong: Vec<String> = problems.iter().map(|problem| problem.key.clone()).collect();
    job.take_initial_model(&mut problems);
    check(&job, &mut problems);
    // a value that was removed, as it has the wrong type, is not missing, and its list is not empty
    let is_removed = |key: &String| {
        let list = format!("{key}[");
        let is_in = |wrong: &String| wrong.starts_with(&list) && wrong.ends_with(']');
        wrong.iter().any(|wrong| wrong == key || is_in(wrong))
    };
    let mut at = 0;
    problems.retain(|problem| {
        at += 1;
        at <= wrong.len() || !is_removed(&problem.key)
    });
    if is_whole {
        let mut more = more(&job);
        more.retain(|one| problems.iter().all(|problem| problem.key != one.key));
        problems.extend(more);
    }
    if problems.is_empty() {
        Ok(job)
    } else {
        Err(LoadError::of_text(path, &text, overrides, problems))
    }
}

/// Names of the lists that have wrong entries.
fn lists_of(problems: &[Problem]) -> Vec<String> {
    let of_entries = problems.iter().filter(|problem| problem.key.ends_with(']'));
    of_entries.map(|problem| last_name(&problem.key)).collect()
}

/// `targets` of `finetune.lora.targets[0]`.
fn last_name(key: &str) -> String {
    let plain = without_numbers(key);
    plain.rsplit('.').next().unwrap_or_default().to_owned()
}

/// Whether a key is one that `set`, `table.key=value`, writes, or is in or around it.
fn is_of(key: &str, set: &str) -> bool {
    let path = set.split('=').next().unwrap_or_default();
    let names: Vec<&str> = path
        .split('.')
        .filter(|name| name.parse::<usize>().is_err())
        .collect();
    let (set, key) = (names.join("."), without_numbers(key));
    let is_inside = |inner: &str, outer: &str| {
        inner == outer
            || inner
                .strip_prefix(outer)
                .is_some_and(|rest| rest.starts_with('.'))
    };
    is_inside(&key, &set) || is_inside(&set, &key)
}

/// Every problem of a job that is not in a file.
pub(crate) fn problems(table: &Table) -> Vec<Problem> {
    let mut problems = Vec::new();
    let job = parse(table, &mut problems);
    check(&job, &mut problems);
    problems
}

/// Adds the contradictions of a job to the problems of its keys.
fn check(job: &Job, problems: &mut Vec<Problem>) {
    let emptied = lists_of(problems);
    let mut further = Vec::new();
    job.check(&mut further);
    // a list whose entries are wrong is not empty in the file
    further.retain(|one| one.found != "[]" || !emptied.contains(&last_name(&one.key)));
    problems.extend(further);
}

/// Reads a job file, which may be an object of a store that is configured by the environment.
fn read(path: &Path) -> Result<String, String> {
    if !curate::store::is_url(path) {
        return std::fs::read_to_string(path).map_err(|e| match e.kind() {
            ErrorKind::NotFound => {
                "there is no such file; `millrace new pretrain DIR --from DATA` writes a job".into()
            }
            ErrorKind::IsADirectory => {
                let job = path.join("job.toml");
                let hint = match job.is_file() {
                    true => format!("; the job in it is {}", job.display()),
                    false => String::new(),
                };
                format!("is a folder, wanted a job file (TOML){hint}")
            }
            _ => e.to_string(),
        });
    }
    let url = path.to_string_lossy();
    let (folder, name) = url.rsplit_once('/').ok_or("no path")?;
    let folder =
        curate::store::ObjectFolder::open(folder, &BTreeMap::new()).map_err(|e| e.to_string())?;
    let object = folder.read(name).map_err(|e| e.to_string())?;
    let (bytes, _) = object.ok_or("no such object")?;
    String::from_utf8(bytes).map_err(|e| e.to_string())
}

/// Puts `table.key=value` into the table; a value that is no TOML is a string.
fn apply(table: &mut Table, set: &str) -> Result<(), Problem> {
    let wrong = |found: &str, wanted: &str| Problem {
        key: format!("--set {set}"),
        found: found.into(),
        wanted: wanted.into(),
    };
    let (path, text) = set
        .split_once('=')
        .ok_or_else(|| wrong("no '='", "table.key=value"))?;
    let value = format!("x = {text}")
        .parse::<Table>()
        .ok()
        .and_then(|mut t| t.remove("x"))
        .unwrap_or_else(|| Value::String(text.into()));
    let keys: Vec<&str> = path.split('.').collect();
    let mut root = Value::Table(std::mem::take(table));
    let outcome = insert(&mut root, &keys, value);
    if let Value::Table(t) = root {
        *table = t;
    }
    outcome.map_err(|found| wrong(&found, "a path of tables or array numbers"))
}

/// Walks to the last key, creating missing tables.
fn insert(place: &mut Value, keys: &[&str], value: Value) -> Result<(), String> {
    let Some((key, rest)) = keys.split_first() else {
        *place = value;
        return Ok(());
    };
    match place {
        Value::Table(t) => {
            let next = t
                .entry((*key).to_string())
                .or_insert_with(|| Value::Table(Table::new()));
            insert(next, rest, value)
        }
        Value::Array(a) => {
            let len = a.len();
            match key.parse::<usize>().ok().and_then(|i| a.get_mut(i)) {
                Some(next) => insert(next, rest, value),
                None => Err(format!("{key} in an array of {len}")),
            }
        }
        other => Err(format!("{key} below a {}", other.type_str())),
    }
}

/// Deserialises, removing offending keys until the rest fits.
fn parse(table: &Table, problems: &mut Vec<Problem>) -> Job {
    let mut rest = Value::Table(table.clone());
    let mut taken = Taken::default();
    loop {
        match deserializer::read::<Job>(&rest) {
            Ok(job) => {
                if problems.is_empty() {
                    unread_keys(&rest, &job, problems);
                }
                return job;
            }
            Err(e) => {
                let Explained {
                    mut problem,
                    keys,
                    unusable,
                } = explain(&rest, &e);
                problem.key = dotted(&taken.as_written(&keys));
                let removed = remove(&mut rest, &unusable);
                taken.note(&unusable);
                problems.push(problem);
                if !removed {
                    // nothing to remove: stop instead of looping; the problems found are reported
                    return Job::default();
                }
            }
        }
    }
}

/// Array elements removed so far, by their index in the file: later elements have moved up.
#[derive(Default)]
struct Taken(Vec<(Vec<String>, usize)>);

impl Taken {
    /// The key path with the file's indices.
    fn as_written(&self, keys: &[String]) -> Vec<String> {
        let mut out: Vec<String> = Vec::with_capacity(keys.len());
        for k in keys {
            let number = k.parse::<usize>().ok().map(|mut i| {
                let mut gone: Vec<usize> =
                    self.0.iter().filter(|t| t.0 == out).map(|t| t.1).collect();
                gone.sort_unstable();
                gone.iter().for_each(|g| i += usize::from(*g <= i));
                i.to_string()
            });
            out.push(number.unwrap_or_else(|| k.clone()));
        }
        out
    }

    fn note(&mut self, keys: &[String]) {
        let mut path = self.as_written(keys);
        if let Some(i) = path.pop().and_then(|k| k.parse().ok()) {
            self.0.push((path, i));
        }
    }
}

/// A deserialisation error in words.
struct Explained {
    problem: Problem,
    /// Path of the key that is wrong.
    keys: Vec<String>,
    /// Path of the value that has no meaning without it.
    unusable: Vec<String>,
}

/// The problem behind a deserialisation error.
fn explain(root: &Value, e: &WrongValue) -> Explained {
    let message = e.message().to_string();
    let mut keys = e.path();
    let quoted = |text: &str| text.split('`').nth(1).unwrap_or_default().to_string();
    let unknown = ["unknown field", "unknown variant"]
        .iter()
        .any(|m| message.starts_with(m));
    if message.starts_with("unknown field") && keys.last() != Some(&quoted(&message)) {
        keys.push(quoted(&message));
    }
    // The path may end in an enum variant that the input spells as a string; cut the steps that are not in the
    // input.
    while !keys.is_empty() && get(root, &keys).is_none() {
        keys.pop();
    }
    let unusable = keys.clone();
    // a choice that the input spells as a table of one key
    let variant = quoted(&message);
    let is_variant = message.starts_with("unknown variant")
        && matches!(get(root, &keys), Some(Value::Table(t)) if t.contains_key(&variant));
    if is_variant {
        keys.push(variant);
    }
    let value = get(root, &keys);
    let found = match (unknown, value) {
        (true, _) if is_variant => {
            let name = keys.last().cloned().unwrap_or_default();
            let known = message.split('`').skip(3).step_by(2);
            format!("unknown key {name:?}{}", or_nearest(&name, known))
        }
        (true, _) if message.starts_with("unknown field") => {
            let name = keys.last().cloned().unwrap_or_default();
            let known: Vec<&str> = message.split('`').skip(3).step_by(2).collect();
            let hint = match elsewhere(&name) {
                none if none.is_empty() => or_nearest(&name, known),
                there => there,
            };
            format!("unknown key {name:?}{hint}")
        }
        (true, Some(Value::String(word))) => {
            let known = message.split('`').skip(3).step_by(2);
            let hint = match target_of(&keys, word) {
                Some(target) => format!("; did you mean {target:?}?"),
                None => or_nearest(word, known),
            };
            format!("{word:?}{hint}")
        }
        (_, Some(v)) => short(v),
        (_, None) => "nothing".into(),
    };
    let wanted = message
        .split_once("expected ")
        .map_or(message.clone(), |(_, w)| plain_type(w));
    Explained {
        problem: Problem {
            key: dotted(&keys),
            found,
            wanted,
        },
        keys,
        unusable,
    }
}

/// Tables that have a key of this name, if they are few; of many, those that are least deep.
fn elsewhere(name: &str) -> String {
    let mut paths: Vec<&str> = reference::keys()
        .map(|key| key.path.as_str())
        .filter(|path| path.rsplit('.').next() == Some(name))
        .collect();
    if paths.len() > 2 {
        let depth = |path: &str| path.matches('.').count();
        let least = paths.iter().map(|path| depth(path)).min();
        paths.retain(|path| Some(depth(path)) == least);
    }
    match paths.as_slice() {
        [one] => format!("; did you mean {one:?}?"),
        [one, other] => format!("; did you mean {one:?} or {other:?}?"),
        _ => String::new(),
    }
}

/// The wanted type as a user of TOML names it, from serde's words.
fn plain_type(wanted: &str) -> String {
    match wanted {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more".to_string(),
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number".to_string(),
        "f32" | "f64" => "a number".to_string(),
        "a boolean" => "true or false".to_string(),
        "a string" | "string" | "path string" => "text in quotes".to_string(),
        "a sequence" => "a list".to_string(),
        "a map" => "a table".to_string(),
        other if other.starts_with("struct ") => "a table".to_string(),
        other => other.replace('`', "\""),
    }
}

/// Check against silently ignored keys: every key path of the input must be in the resolved job.
fn unread_keys(input: &Value, job: &Job, problems: &mut Vec<Problem>) {
    let job: &dyn erased_serde::Serialize = job;
    let Ok(resolved) = Value::try_from(job) else {
        return;
    };
    let mut paths = Vec::new();
    leaves(input, &mut Vec::new(), &mut paths);
    for keys in paths {
        // an empty text is how some keys say that they are absent, and is not written
        let is_empty = get(input, &keys).is_some_and(|value| value.as_str() == Some(""));
        if get(&resolved, &keys).is_none() && !is_empty {
            problems.push(Problem {
                key: dotted(&keys),
                found: get(input, &keys).map_or_else(String::new, short),
                wanted: "a key that the job has (nothing reads this one)".into(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str, sets: &[&str]) -> Vec<Problem> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("job.toml");
        std::fs::write(&path, text).unwrap();
        let sets: Vec<String> = sets.iter().map(|s| s.to_string()).collect();
        match load(&path, &sets) {
            Ok(_) => Vec::new(),
            Err(LoadError::Problems { problems, .. }) => problems,
            Err(e) => panic!("{e}"),
        }
    }

    const SMALL: &str = "name = 'x'\nout = 'o'\n[blend]\nseq_length = 64\n[[blend.dataset]]\nname = 'a'\nprefix = 'p'\n\
        [model]\nlayers = 2\nd_model = 64\nheads = 2\n[train]\nsteps = 2\nglobal_batch = 2\nmicro_batch = 1\nwarmup_steps = 1\n";

    #[test]
    fn unknown_key_wrong_type_and_contradiction_are_reported_in_one_go() {
        let text = SMALL
            .replace("steps = 2", "steps = 'many'\nstep_size = 3")
            .replace("heads = 2", "heads = 3");
        let found = problems(&text, &[]);
        let keys: Vec<&str> = found.iter().map(|p| p.key.as_str()).collect();
        for key in ["train.steps", "train.step_size", "model.heads"] {
            assert!(keys.contains(&key), "{key} not in {keys:?}");
        }
        let unknown = found.iter().find(|p| p.key == "train.step_size").unwrap();
        assert!(unknown.found.contains("unknown key"), "{unknown:?}");
    }

    #[test]
    fn a_wrong_name_of_a_step_is_one_problem_with_the_nearest_names() {
        let text = "name = 'x'\nout = 'o'\n[curate]\ninputs = [{ path = 'a.jsonl', source = 'a' }]\n\
            [[curate.step]]\ngopher_qualty = {}\n[[curate.step]]\ngopher_repetition = {}\n\
            [[curate.step]]\nlanguag = { keep = ['en'] }\n";
        let found = problems(text, &[]);
        let keys: Vec<&str> = found.iter().map(|p| p.key.as_str()).collect();
        let wanted = ["curate.step[0].gopher_qualty", "curate.step[2].languag"];
        assert_eq!(keys, wanted);
        for (problem, near) in found.iter().zip(["\"gopher_quality\"", "\"language\""]) {
            assert!(problem.found.contains(near), "{problem:?}");
        }
    }

    #[test]
    fn words_of_each_documents_language_want_a_step_that_finds_it() {
        let job = |steps: &str| {
            format!(
                "name = 'x'\nout = 'o'\n[curate]\ninputs = 'a.jsonl'\n{steps}[dedup.minhash]\nlanguage = 'document'\n"
            )
        };
        let found = problems(&job(""), &[]);
        let keys: Vec<&str> = found.iter().map(|p| p.key.as_str()).collect();
        assert_eq!(keys, ["dedup.minhash.language"]);
        assert_eq!(problems(&job("step = [{ language = {} }]\n"), &[]), []);
        // one language needs no step
        let german = problems(&job("").replace("'document'", "'de'"), &[]);
        assert_eq!(german, []);
    }

    #[test]
    fn messages_name_the_nearest_key_and_plain_types() {
        // (line of the job, key, found, wanted)
        let table = [
            (
                "train",
                "stepz = 2",
                "train.stepz",
                "did you mean \"steps\"",
                "",
            ),
            (
                "train",
                "learning_rate = 1",
                "train.learning_rate",
                "unknown key",
                "",
            ),
            (
                "train",
                "layers = 2",
                "train.layers",
                "did you mean \"model.layers\"",
                "",
            ),
            ("train", "lr = 'x'", "train.lr", "string \"x\"", "a number"),
            (
                "train",
                "eval_every = -1",
                "train.eval_every",
                "-1",
                "a whole number, 0 or more",
            ),
            (
                "train",
                "eval_every = 1.5",
                "train.eval_every",
                "1.5",
                "a whole number, 0 or more",
            ),
            (
                "train",
                "checkpoint = 3",
                "train.checkpoint",
                "integer 3",
                "a table",
            ),
            (
                "blend",
                "split = 3",
                "blend.split",
                "integer 3",
                "text in quotes",
            ),
            (
                "blend",
                "even_batches = 'no'",
                "blend.even_batches",
                "string",
                "true or false",
            ),
            ("blend", "train = 'x'", "blend.train", "string", "a list"),
            (
                "blend",
                "weights = 'token'",
                "blend.weights",
                "did you mean \"tokens\"",
                "",
            ),
            (
                "model",
                "family = 'lama'",
                "model.family",
                "did you mean \"llama\"",
                "",
            ),
        ];
        for (name, line, key, found, wanted) in table {
            let text = SMALL.replace(&format!("[{name}]\n"), &format!("[{name}]\n{line}\n"));
            let problems = problems(&text, &[]);
            let [problem] = problems.as_slice() else {
                panic!("{line}: {problems:?}");
            };
            assert_eq!(problem.key, key);
            assert!(problem.found.contains(found), "{line}: {problem:?}");
            assert!(problem.wanted.contains(wanted), "{line}: {problem:?}");
        }
    }

    #[test]
    fn the_message_ends_with_the_next_command() {
        let problem = Problem {
            key: "curate.inputs[1].path".into(),
            found: "nothing".into(),
            wanted: "a file".into(),
        };
        let error = LoadError::problems("j.toml".into(), vec![problem]);
        let end = "wanted a file\n\n`millrace explain curate.inputs.path` describes this key";
        assert!(error.to_string().ends_with(end), "{error}");
    }

    #[test]
    fn wrong_array_elements_keep_the_numbers_of_the_file() {
        let text = "name = 'x'\nout = 'o'\n[curate]\ninputs = [{ path = 1 }, { path = 'a' }, { path = 2 }]\n\
            [[curate.step]]\nnonsense = {}\n[[curate.step]]\nc4 = { words = 'x' }\n";
        let found = problems(text, &[]);
        let keys: Vec<&str> = found.iter().map(|p| p.key.as_str()).collect();
        for key in [
            "curate.inputs[0].path",
            "curate.inputs[2].path",
            "curate.step[0]",
        ] {
            assert!(
                keys.iter().any(|k| k.starts_with(key)),
                "{key} not in {keys:?}"
            );
        }
        assert!(
            keys.iter().any(|k| k.starts_with("curate.step[1]")),
            "{keys:?}"
        );
    }

    #[test]
    fn a_good_job_has_no_problem_and_prints_to_itself() {
        assert_eq!(problems(SMALL, &[]), []);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("job.toml");
        std::fs::write(&path, SMALL).unwrap();
        let job = load(&path, &[]).unwrap();
        std::fs::write(&path, job.to_toml()).unwrap();
        assert_eq!(load(&path, &[]).unwrap(), job);
    }

    #[test]
    fn a_value_of_a_wrong_type_is_one_problem() {
        for (inputs, key) in [
            ("5", "curate.inputs"),
            ("[5]", "curate.inputs[0]"),
            ("['a', 5]", "curate.inputs[1]"),
        ] {
            let text = format!("name = 'x'\nout = 'o'\n[curate]\ninputs = {inputs}\n");
            let found = problems(&text, &[]);
            let keys: Vec<&str> = found.iter().map(|p| p.key.as_str()).collect();
            assert_eq!(keys, [key], "{found:?}");
        }
    }

    #[test]
    fn a_list_is_no_table_by_position() {
        let text = "name = 'x'\nout = 'o'\ncurate = ['in.jsonl']\n[dedup]\nminhash = [5]\n";
        let found = problems(text, &[]);
        for key in ["curate", "dedup.minhash"] {
            let is_told = |p: &Problem| p.key == key && p.wanted == "a table";
            assert!(found.iter().any(is_told), "{key} is not in {found:?}");
        }
    }

    #[test]
    fn inputs_may_be_paths() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("job.toml");
        let read = |inputs: &str| {
            let text = format!("name = 'x'\nout = 'o'\n[curate]\ninputs = {inputs}\n");
            std::fs::write(&path, text).unwrap();
            load(&path, &[]).unwrap().curate.unwrap().inputs
        };
        let whole = read(
            "[{ path = 'a/b', format = 'auto', source = 'b' }, { path = 'c.jsonl', source = 'c' }]",
        );
        assert_eq!(read("'a/b'"), whole[..1]);
        assert_eq!(read("['a/b', { path = 'c.jsonl', source = 'c' }]"), whole);
        let set = ["curate.inputs=a/b".to_string()];
        let job = load(&path, &set).unwrap();
        assert_eq!(job.curate.as_ref().unwrap().inputs, whole[..1]);
        // the resolved job has tables
        std::fs::write(&path, job.to_toml()).unwrap();
        assert_eq!(load(&path, &[]).unwrap(), job);
    }

    #[test]
    fn the_message_for_a_folder_names_the_job_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let message = || load(dir.path(), &[]).unwrap_err().to_string();
        assert!(message().ends_with("wanted a job file (TOML)"));
        let job = dir.path().join("job.toml");
        std::fs::write(&job, "").unwrap();
        let end = format!("; the job in it is {}", job.display());
        assert!(message().ends_with(&end), "{}", message());
    }

    #[test]
    fn set_overrides_numbers_strings_and_array_elements() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("job.toml");
        std::fs::write(&path, SMALL).unwrap();
        let sets = [
            "train.steps=7",
            "out=elsewhere",
            "blend.dataset.0.weight=0.5",
        ]
        .map(String::from);
        let job = load(&path, &sets).unwrap();
        assert_eq!(job.train.unwrap().steps, 7);
        assert_eq!(job.out, PathBuf::from("elsewhere"));
        assert_eq!(job.blend.unwrap().dataset[0].weight, Some(0.5));
        assert!(!problems(SMALL, &["train.stepz=7"]).is_empty());
        assert!(!problems(SMALL, &["nonsense"]).is_empty());
    }
}
