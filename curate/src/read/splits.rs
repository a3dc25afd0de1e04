//! Splits and configurations of a dataset's folder, as the Hugging Face Hub has them: by the card's `configs`, else by names.
//!
//! Facts: <https://huggingface.co/docs/datasets/repository_structure>, and `datasets` 4.0, whose order of rules this is:
//! files `data/SPLIT-00000-of-00001.*` first, then folders and then files whose name has a split's keyword between characters that
//! are no letters; if none has, all files are `train`. A card's configuration has patterns for each split, or a folder (`data_dir`)
//! in which names tell. We differ: where nothing is asked for, all files are read, also those of no split.

use serde_json::Value;

use super::storage::{fixed_part, matches};
use crate::text::yaml;

/// Keywords of the splits that names tell, in the order in which `datasets` looks for them.
const KEYWORDS: [(&str, &[&str]); 3] = [
    (TRAIN, &["train", "training"]),
    ("validation", &["validation", "valid", "dev", "val"]),
    ("test", &["test", "testing", "eval", "evaluation"]),
];
/// The split of files without one.
const TRAIN: &str = "train";
/// The configuration that is meant where none is named.
const DEFAULT: &str = "default";
/// Names of splits or configurations that an error lists.
const SHOWN: usize = 20;

/// The split and the configuration of a file, as far as its folder tells them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) split: Option<String>,
    pub(super) config: Option<String>,
}

/// The split and the configuration to read; None: all.
#[derive(Clone, Copy, Default)]
pub(super) struct Wanted<'a> {
    pub(super) split: Option<&'a str>,
    pub(super) config: Option<&'a str>,
}

/// Files of a split, by their numbers.
struct Split {
    name: String,
    files: Vec<usize>,
}

/// A configuration of a card; without a name that of a folder whose names tell the splits.
struct Config {
    name: Option<String>,
    is_default: bool,
    splits: Vec<Split>,
}

/// The place of each file, by the paths below the folder and the card's text; None for a file that is not wanted.
///
/// # Errors
/// A card that cannot be read, or a split or configuration that is not there, in words. Only if one is wanted.
pub(super) fn places(
    files: &[&str],
    card: Option<&str>,
    wanted: Wanted<'_>,
) -> Result<Vec<Option<Place>>, String> {
    let configs = card.map_or(Ok(Vec::new()), |card| of_card(card, files));
    if wanted.split.is_none() && wanted.config.is_none() {
        // a card that cannot be read tells nothing
        let configs = match configs {
            Ok(configs) if configs.is_empty() => vec![by_names(files, card.is_some())],
            Ok(configs) => configs,
            Err(_) => Vec::new(),
        };
        let told = (0..files.len()).map(|file| Some(place_of(file, &configs)));
        return Ok(told.collect());
    }
    let mut configs = configs?;
    if configs.is_empty() {
        if let Some(name) = wanted.config {
            return Err(format!(
                "no configuration {name:?}: the folder has no card (README.md) with `configs`"
            ));
        }
        configs.push(Config {
            splits: in_folder(files, ""),
            ..by_names(files, true)
        });
    }
    let has_several = configs.len() > 1;
    let config = chosen(configs, wanted.config)?;
    let names = list_of(config.splits.iter().map(|split| &*split.name));
    let mut found = vec![None; files.len()];
    let mut is_there = wanted.split.is_none();
    for split in &config.splits {
        if wanted.split.is_some_and(|name| name != split.name) {
            continue;
        }
        is_there = true;
        for &file in &split.files {
            found[file].get_or_insert_with(|| Place {
                split: Some(split.name.clone()),
                config: config.name.clone().filter(|_| has_several),
            });
        }
    }
    if let (false, Some(name)) = (is_there, wanted.split) {
        let of = config.name.filter(|_| has_several);
        let of = of.map_or(String::new(), |config| {
            format!(" of the configuration {config:?}")
        });
        return Err(format!("no split {name:?}{of}; there are {names}"));
    }
    if found.iter().all(Option::is_none) {
        return Err("the card names no file that is there for the split".to_string());
    }
    Ok(found)
}

/// The configuration of this name; without a name the one that `datasets` takes.
fn chosen(configs: Vec<Config>, wanted: Option<&str>) -> Result<Config, String> {
    let names = list_of(configs.iter().filter_map(|config| config.name.as_deref()));
    let is_one = configs.len() == 1;
    let is_it = |config: &Config| match wanted {
        Some(name) => config.name.as_deref() == Some(name),
        None => is_one || config.is_default,
    };
    let found = configs.into_iter().find(is_it);
    found.ok_or_else(|| match wanted {
        Some(name) => format!("no configuration {name:?}; there are {names}"),
        None => format!(
            "none of the configurations is the default: `dataset_config` must be one of {names}"
        ),
    })
}

/// Names for an error: the first ones.
fn list_of<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<&str> = names.collect();
    let more = if names.len() > SHOWN { ", ..." } else { "" };
    names[..names.len().min(SHOWN)].join(", ") + more
}

/// The place of a file that is in one split alone, and the one configuration that has it.
fn place_of(file: usize, configs: &[Config]) -> Place {
    let of = || {
        configs.iter().flat_map(|config| {
            let splits = config.splits.iter();
            let with_file = splits.filter(|split| split.files.binary_search(&file).is_ok());
            with_file.map(move |split| (&*split.name, config.name.as_deref()))
        })
    };
    let one = |mut names: Vec<&str>| {
        names.sort_unstable();
        names.dedup();
        match names[..] {
            [name] => Some(name.to_string()),
            _ => None,
        }
    };
    Place {
        split: one(of().map(|(split, _)| split).collect()),
        config: one(of().filter_map(|(_, config)| config).collect()).filter(|_| configs.len() > 1),
    }
}

/// The splits that names tell; of a folder that may be no dataset only if every file's name tells one.
fn by_names(files: &[&str], is_dataset: bool) -> Config {
    let all: Vec<usize> = (0..files.len()).collect();
    let mut splits = named_splits(files, &all);
    if !is_dataset {
        let is_told = |file: &usize| {
            let mut of = splits.iter();
            of.any(|split| split.files.binary_search(file).is_ok())
        };
        if !all.iter().all(is_told) {
            splits.clear();
        }
    }
    Config {
        name: None,
        is_default: true,
        splits,
    }
}

/// The splits that the names of some files tell, by the first of the rules that holds for any file.
fn named_splits(files: &[&str], some: &[usize]) -> Vec<Split> {
    let mut sharded: Vec<Split> = Vec::new();
    for &file in some {
        let Some(name) = sharded_name(files[file]) else {
            continue;
        };
        match sharded.iter_mut().find(|split| split.name == name) {
            Some(split) => split.files.push(file),
            None => sharded.push(Split {
                name: name.to_string(),
                files: vec![file],
            }),
        }
    }
    if !sharded.is_empty() {
        return sharded;
    }
    for has_keyword in [folder_has, file_has] {
        let splits = KEYWORDS.iter().map(|(name, keywords)| {
            let is_of = |file: &usize| {
                let path = files[*file];
                !is_special(path) && keywords.iter().any(|word| has_keyword(path, word))
            };
            Split {
                name: (*name).to_string(),
                files: some.iter().copied().filter(is_of).collect(),
            }
        });
        let splits: Vec<Split> = splits.filter(|split| !split.files.is_empty()).collect();
        if !splits.is_empty() {
            return splits;
        }
    }
    Vec::new()
}

/// The split of `data/SPLIT-00000-of-00001.parquet`.
fn sharded_name(path: &str) -> Option<&str> {
    let name = path.strip_prefix("data/")?;
    if name.contains('/') {
        return None;
    }
    let is_number = |text: Option<&str>| {
        text.is_some_and(|text| text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit()))
    };
    // the last place where both numbers are
    let mut places: Vec<usize> = name.match_indices("-of-").map(|(at, _)| at).collect();
    places.reverse();
    let is_place = |at: &usize| {
        let behind = &name[at + "-of-".len()..];
        is_number(behind.get(..5))
            && behind[5..].contains('.')
            && *at > 6
            && is_number(name.get(at - 5..*at))
            && name.as_bytes()[at - 6] == b'-'
    };
    let at = places.into_iter().find(is_place)?;
    Some(&name[..at - 6])
}

/// A character that ends a word in names.
fn is_between(b: u8) -> bool {
    b"-._ ".contains(&b) || b.is_ascii_digit()
}

/// Whether a name has a word, with no letter beside it; `at_end`: also at its end.
fn has_word(name: &str, word: &str, at_end: bool) -> bool {
    let bytes = name.as_bytes();
    name.match_indices(word).any(|(at, _)| {
        let before = at.checked_sub(1).map(|i| bytes[i]);
        let behind = bytes.get(at + word.len());
        before.is_none_or(is_between) && behind.map_or(at_end, |b| is_between(*b))
    })
}

fn file_has(path: &str, word: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    has_word(name, word, false)
}

fn folder_has(path: &str, word: &str) -> bool {
    let folders = path.rsplit_once('/').map_or("", |(folders, _)| folders);
    folders.split('/').any(|name| has_word(name, word, true))
}

/// Whether a file is in a folder such as `__pycache__`, which only a pattern that says so names.
fn is_special(path: &str) -> bool {
    let folders = path.rsplit_once('/').map_or("", |(folders, _)| folders);
    folders.split('/').any(|name| name.starts_with("__"))
}

/// The configurations of a card, in its order; none of a card without.
///
/// # Errors
/// `configs` of another shape, in words.
fn of_card(card: &str, files: &[&str]) -> Result<Vec<Config>, String> {
    let Some(text) = configs_of(card) else {
        return Ok(Vec::new());
    };
    let wrong = |why: &str| format!("`configs` of README.md: {why}");
    let head = yaml::parse(&text).map_err(|why| wrong(&why))?;
    let list = match &head["configs"] {
        Value::Array(list) => list,
        Value::Null => return Ok(Vec::new()),
        other => return Err(wrong(&format!("found {other}, wanted a list"))),
    };
    let configs = list.iter().map(|config| {
        let name = word(&config["config_name"]);
        let name = name.ok_or_else(|| wrong("a configuration without a config_name"))?;
        let folder = config["data_dir"].as_str().unwrap_or_default();
        let folder = clean(folder);
        let splits = match &config["data_files"] {
            Value::Null => in_folder(files, folder),
            data => by_patterns(data, files, folder).map_err(|why| wrong(&why))?,
        };
        Ok(Config {
            is_default: name == DEFAULT || config["default"] == Value::Bool(true),
            name: Some(name),
            splits,
        })
    });
    configs.collect()
}

/// The lines of a card's head that have its `configs`.
fn configs_of(card: &str) -> Option<String> {
    let mut lines = card.trim_start_matches('\u{feff}').lines();
    lines.next().filter(|line| line.trim_end() == "---")?;
    let head = lines.take_while(|line| line.trim_end() != "---");
    let mut from = head.skip_while(|line| !line.starts_with("configs:"));
    let mut text = from.next()?.to_string();
    let is_inside = |line: &&str| line.is_empty() || line.starts_with([' ', '\t', '-', '#', ']']);
    for line in from.take_while(is_inside) {
        text.push('\n');
        text.push_str(line);
    }
    Some(text)
}

/// A scalar as text.
fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(is_on) => Some(is_on.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A path below the folder without what names the folder itself.
fn clean(path: &str) -> &str {
    let path = path.strip_prefix("./").unwrap_or(path);
    let path = if path == "." { "" } else { path };
    path.trim_end_matches('/')
}

/// The splits that names tell in a folder below; `train` where they tell none.
fn in_folder(files: &[&str], folder: &str) -> Vec<Split> {
    let below: Vec<Option<&str>> = files.iter().map(|path| below(path, folder)).collect();
    // a text without a card's head
    let is_data = |i: &usize| below[*i].is_some_and(|path| path != "README.md");
    let some: Vec<usize> = (0..files.len()).filter(is_data).collect();
    let names: Vec<&str> = below.into_iter().map(Option::unwrap_or_default).collect();
    let splits = named_splits(&names, &some);
    if splits.is_empty() && !some.is_empty() {
        return vec![Split {
            name: TRAIN.to_string(),
            files: some,
        }];
    }
    splits
}

/// The path below a folder.
fn below<'p>(path: &'p str, folder: &str) -> Option<&'p str> {
    if folder.is_empty() {
        return Some(path);
    }
    path.strip_prefix(folder)?.strip_prefix('/')
}

/// The splits of `data_files`: patterns of one split, `train`, or of several by name.
fn by_patterns(data: &Value, files: &[&str], folder: &str) -> Result<Vec<Split>, String> {
    let all_of = |patterns: &Value| -> Option<Vec<usize>> {
        let texts = |list: &[Value]| -> Option<Vec<String>> {
            list.iter()
                .map(|one| one.as_str().map(str::to_string))
                .collect()
        };
        let patterns = match patterns {
            Value::Array(list) => texts(list)?,
            one => texts(std::slice::from_ref(one))?,
        };
        let is_of = |file: &usize| {
            let path = below(files[*file], folder);
            path.is_some_and(|path| {
                let fits = |pattern: &String| {
                    let pattern = clean(pattern);
                    // most of a hundred configurations differ in their folders
                    path.starts_with(fixed_part(pattern))
                        && matches(pattern, path)
                        && (is_special(pattern) || !is_special(path))
                };
                patterns.iter().any(fits)
            })
        };
        Some((0..files.len()).filter(is_of).collect())
    };
    let wrong = || {
        let wanted = "a pattern, a list of them, or a list of {split, path}";
        format!("found data_files: {data}, wanted {wanted}")
    };
    let split = |name: String, patterns: &Value| -> Result<Split, String> {
        let files = all_of(patterns).ok_or_else(wrong)?;
        Ok(Split { name, files })
    };
    let mut splits: Vec<Split> = Vec::new();
    match data {
        Value::Object(by_name) => {
            for (name, patterns) in by_name {
                splits.push(split(name.clone(), patterns)?);
            }
        }
        Value::Array(list) if list.iter().any(Value::is_object) => {
            for one in list {
                let name = word(&one["split"]).ok_or_else(wrong)?;
                splits.push(split(name, &one["path"])?);
            }
        }
        patterns => splits.push(split(TRAIN.to_string(), patterns)?),
    }
    Ok(splits)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Splits by name with the files of each, of a folder whose names tell them.
    fn named<'f>(files: &[&'f str]) -> Vec<(String, Vec<&'f str>)> {
        let all: Vec<usize> = (0..files.len()).collect();
        let splits = named_splits(files, &all).into_iter();
        let of = |split: Split| {
            let of = split.files.iter().map(|&file| files[file]).collect();
            (split.name, of)
        };
        splits.map(of).collect()
    }

    /// The files that are read.
    fn read<'f>(files: &[&'f str], card: &str, split: &str, config: &str) -> Vec<&'f str> {
        let wanted = Wanted {
            split: Some(split).filter(|name| !name.is_empty()),
            config: Some(config).filter(|name| !name.is_empty()),
        };
        let found = places(files, Some(card), wanted).unwrap();
        let read = files.iter().zip(found).filter(|(_, place)| place.is_some());
        read.map(|(file, _)| *file).collect()
    }

    fn refused(files: &[&str], card: Option<&str>, split: &str, config: &str) -> String {
        let wanted = Wanted {
            split: Some(split).filter(|name| !name.is_empty()),
            config: Some(config).filter(|name| !name.is_empty()),
        };
        places(files, card, wanted).unwrap_err()
    }

    /// The examples of the documentation, <https://huggingface.co/docs/datasets/repository_structure>.
    #[test]
    fn names_tell_splits_as_the_documentation_has_it() {
        for (split, files) in [
            ("train", ["train.csv", "my_train_file.csv", "train1.csv"]),
            (
                "validation",
                [
                    "validation.csv",
                    "my_validation_file.csv",
                    "validation1.csv",
                ],
            ),
            ("test", ["test.csv", "my_test_file.csv", "test1.csv"]),
        ] {
            assert_eq!(named(&files), [(split.to_string(), files.to_vec())]);
        }
        // the keywords of "a valid repository"
        let files = ["data/training.csv", "data/eval.csv", "data/valid.csv"];
        let want = [
            ("train".to_string(), vec![files[0]]),
            ("validation".to_string(), vec![files[2]]),
            ("test".to_string(), vec![files[1]]),
        ];
        assert_eq!(named(&files), want);
        // "test-file.csv for example instead of testfile.csv"
        assert_eq!(named(&["testfile.csv", "trainings.csv", "latest.csv"]), []);
        assert_eq!(named(&["test-file.csv"])[0].0, "test");
        // folders come before the names of files
        let files = ["data/train/test_bees.csv", "data/my-dev2/a.csv", "test.csv"];
        let want = [
            ("train".to_string(), vec![files[0]]),
            ("validation".to_string(), vec![files[1]]),
        ];
        assert_eq!(named(&files), want);
        // splits of any name, before all other rules
        let files = [
            "data/random-00000-of-00003.csv",
            "data/train-00000-of-00001-0a1b.parquet",
            "data/random-00001-of-00003.csv",
            "test/a.csv",
            "data/test-0-of-1.csv",
        ];
        let want = [
            ("random".to_string(), vec![files[0], files[2]]),
            ("train".to_string(), vec![files[1]]),
        ];
        assert_eq!(named(&files), want);
        assert_eq!(named(&["__train__/train.csv", "a/b.csv"]), []);
    }

    const CARD: &str = "---\nlicense: mit\nconfigs:\n- config_name: main\n  default: true\n  data_files:\n  - split: train\n    \
        path:\n    - \"one/*.csv\"\n    - two/**\n  - split: held_out\n    path: last.csv\n\n# of others\n- config_name: 2019\n  \
        data_files: \"old/*\"\n- config_name: more\n  data_dir: more\nfeatures:\n- !!x y\n---\nconfigs: of the text\n";
    const FILES: [&str; 7] = [
        "last.csv",
        "more/dev.csv",
        "more/train.csv",
        "old/a.csv",
        "one/a.csv",
        "train.csv",
        "two/deep/test.csv",
    ];

    #[test]
    fn a_cards_configurations_come_before_names() {
        let train = ["one/a.csv", "two/deep/test.csv"];
        assert_eq!(read(&FILES, CARD, "train", ""), train);
        assert_eq!(read(&FILES, CARD, "held_out", "main"), ["last.csv"]);
        assert_eq!(read(&FILES, CARD, "", "2019"), ["old/a.csv"]);
        assert_eq!(read(&FILES, CARD, "train", "more"), ["more/train.csv"]);
        let both = ["more/dev.csv", "more/train.csv"];
        assert_eq!(read(&FILES, CARD, "", "more"), both);
        // without a configuration in the card, names tell; without names all is train
        let card = "---\nlicense: mit\n---\n";
        let files = ["README.md", "dev.csv", "train.csv", "x.csv"];
        assert_eq!(read(&files, card, "train", ""), ["train.csv"]);
        assert_eq!(read(&["a.csv", "b.csv"], card, "train", "").len(), 2);
    }

    #[test]
    fn files_are_told_their_place_if_it_is_the_only_one() {
        let place = |split: &str, config: &str| {
            let some = |name: &str| Some(name.to_string()).filter(|name| !name.is_empty());
            Some(Place {
                split: some(split),
                config: some(config),
            })
        };
        let found = places(&FILES, Some(CARD), Wanted::default()).unwrap();
        let want = [
            place("held_out", "main"),
            place("validation", "more"),
            place("train", "more"),
            place("train", "2019"),
            place("train", "main"),
            place("", ""),
            place("train", "main"),
        ];
        assert_eq!(found, want);
        // one configuration needs no name, and a file of two splits has none
        let card = "---\nconfigs:\n- config_name: c\n  data_files:\n  - {split: a, path: [x, y]}\n  - {split: b, path: y}\n---\n";
        let found = places(&["x", "y"], Some(card), Wanted::default()).unwrap();
        assert_eq!(found, [place("a", ""), place("", "")]);
        // a folder without a card is a dataset if all names say so
        for (files, want) in [
            (
                ["test.csv", "train.csv"],
                [place("test", ""), place("train", "")],
            ),
            (["notes.csv", "train.csv"], [place("", ""), place("", "")]),
        ] {
            assert_eq!(places(&files, None, Wanted::default()).unwrap(), want);
        }
        // a card of another shape tells nothing
        let broken = "---\nconfigs:\n- data_files: x\n---\n";
        let found = places(&["train.csv"], Some(broken), Wanted::default()).unwrap();
        assert_eq!(found, [place("", "")]);
    }

    #[test]
    fn unknown_splits_and_configurations_are_refused_with_those_that_are_there() {
        for (files, card, split, config, want) in [
            (
                &FILES[..],
                Some(CARD),
                "test",
                "",
                "no split \"test\" of the configuration \"main\"; there are train, held_out",
            ),
            (
                &FILES,
                Some(CARD),
                "",
                "other",
                "no configuration \"other\"; there are main, 2019, more",
            ),
            (
                &["dev.csv", "train.csv"],
                None,
                "test",
                "",
                "no split \"test\"; there are train, validation",
            ),
            (
                &["a.csv"],
                None,
                "",
                "x",
                "no configuration \"x\": the folder has no card (README.md) with `configs`",
            ),
            (
                &["a.csv"],
                Some("---\nconfigs:\n- config_name: a\n- config_name: b\n---\n"),
                "train",
                "",
                "none of the configurations is the default: `dataset_config` must be one of a, b",
            ),
            (
                &["a.csv"],
                Some("---\nconfigs:\n- config_name: a\n  data_files: gone/*\n---\n"),
                "train",
                "",
                "the card names no file that is there for the split",
            ),
            (
                &["a.csv"],
                Some("---\nconfigs:\n- data_files: x\n---\n"),
                "train",
                "",
                "`configs` of README.md: a configuration without a config_name",
            ),
            (
                &["a.csv"],
                Some("---\nconfigs:\n- config_name: a\n  data_files: [{split: train}]\n---\n"),
                "train",
                "",
                "`configs` of README.md: found data_files: [{\"split\":\"train\"}], wanted a pattern, a list of them, or a list of {split, path}",
            ),
        ] {
            assert_eq!(refused(files, card, split, config), want);
        }
    }

    proptest::proptest! {
        #[test]
        fn no_card_and_no_name_ends_otherwise(card in "(configs:|- |config_name: a|data_files|:|\\[|\\{|\n|  |x|\\PC){0,40}",
            name in "(data/|train|-00000|-of-|00001|\\.|/|\\PC){0,8}")
        {
            let card = format!("---\n{card}\n---\n");
            let wanted = Wanted { split: Some("train"), config: None };
            let _ = places(&[&name], Some(&card), wanted);
            let _ = places(&[&name], Some(&card), Wanted::default());
        }
    }
}
