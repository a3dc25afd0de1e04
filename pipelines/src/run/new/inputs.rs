//! The inputs of a new job: the data as a whole, or its files by patterns and names where they are read in different ways.

use super::names::ending;
use super::sample::{Group, Sample};
use std::path::Path;

/// An input of a new job.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub path: String,
    /// The format's name.
    pub format: String,
    pub is_recursive: bool,
    pub text_key: Option<String>,
    pub delimiter: Option<char>,
}

/// The inputs for data; none forgets a file or has one twice.
pub(super) fn places(sample: &Sample) -> Vec<Place> {
    if let Some(keys) = common_keys(sample).filter(|_| sample.unreadable.is_empty()) {
        let mut formats: Vec<&str> = sample.groups.iter().map(|g| g.format.as_str()).collect();
        formats.sort_unstable();
        formats.dedup();
        let format = match formats.as_slice() {
            // `auto` counts a file of another kind as one bad record
            [one] if sample.unknown.is_empty() => one,
            _ => "auto",
        };
        return vec![Place {
            path: sample.path.to_string_lossy().into_owned(),
            format: format.to_string(),
            is_recursive: sample.is_deep,
            text_key: keys.text_key,
            delimiter: keys.delimiter,
        }];
    }
    let of_group = |group: &Group| {
        let paths = paths(sample, group);
        let place = |path| Place {
            path,
            format: group.format.clone(),
            is_recursive: false,
            text_key: written_key(group),
            delimiter: group.delimiter,
        };
        paths.into_iter().map(place).collect::<Vec<_>>()
    };
    sample.groups.iter().flat_map(of_group).collect()
}

/// Whether the inputs are parts of the data.
pub(super) fn names_files(sample: &Sample) -> bool {
    !sample.unreadable.is_empty() || common_keys(sample).is_none()
}

/// A group's key, if a reader needs it.
fn written_key(group: &Group) -> Option<String> {
    let is_own = |key: &&String| group.is_table() && *key == "content";
    let key = group.text_key.as_ref().filter(|key| !is_own(key));
    key.filter(|_| group.has_fields()).cloned()
}

/// Keys that fit all files.
struct Common {
    text_key: Option<String>,
    delimiter: Option<char>,
}

/// The keys for all files, if one of each fits.
fn common_keys(sample: &Sample) -> Option<Common> {
    let mut tables = sample.groups.iter().filter(|group| group.format == "csv");
    let delimiter = tables.next().and_then(|group| group.delimiter);
    let is_one = tables.all(|group| group.delimiter == delimiter);
    let formats = || sample.groups.iter().map(|group| &group.format);
    let is_mixed = formats().any(|format| Some(format) != formats().next());
    // `auto` goes by the name where the bytes do not tell
    if !is_one || sample.has_misnamed && is_mixed {
        return None;
    }
    Some(Common {
        text_key: common_key(sample)?,
        delimiter,
    })
}

/// The key for the text of all files, if one fits.
fn common_key(sample: &Sample) -> Option<Option<String>> {
    let mut groups = sample.groups.iter().filter(|group| group.has_fields());
    if groups.clone().all(|group| written_key(group).is_none()) {
        return Some(None);
    }
    let first = groups.next().map(|group| &group.text_key)?;
    groups
        .all(|group| group.text_key == *first)
        .then(|| first.clone())
}

/// Patterns of a group's files by their endings; by name those whose ending others have too.
fn paths(sample: &Sample, group: &Group) -> Vec<String> {
    let folder = sample.path.to_string_lossy();
    let folder = folder.trim_end_matches('/');
    let below = if sample.is_deep { "/**" } else { "" };
    let mut endings: Vec<String> = group.files.iter().map(|file| ending(file)).collect();
    endings.sort();
    endings.dedup();
    let mut paths = Vec::new();
    for own in endings {
        let has = |name: &Path| ending(name) == own;
        let taken = |file: &&std::path::PathBuf| file.to_string_lossy().ends_with(&own);
        let is_alone =
            (sample.all.iter().filter(taken)).all(|file| has(file) && group.files.contains(file));
        // in a pattern, brackets make a mark of patterns an ordinary character
        let literal = |text: &str| -> String {
            let one = |c: char| match c {
                '*' | '?' | '[' => format!("[{c}]"),
                c => c.to_string(),
            };
            text.chars().map(one).collect()
        };
        let files = || group.files.iter().filter(|file| has(file));
        if is_alone && !own.is_empty() && files().count() > 1 {
            paths.push(format!("{}{below}/*{}", literal(folder), literal(&own)));
        } else {
            paths.extend(files().map(|file| file.to_string_lossy().into_owned()));
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn group(format: &str, text_key: Option<&str>, names: &[&str]) -> Group {
        Group {
            format: format.to_string(),
            text_key: text_key.map(str::to_string),
            delimiter: None,
            is_chat: false,
            files: names
                .iter()
                .map(|name| Path::new("/d").join(name))
                .collect(),
            bytes: 1,
            fields: Default::default(),
        }
    }

    fn sample_of(groups: Vec<Group>) -> Sample {
        Sample {
            path: PathBuf::from("/d"),
            all: groups.iter().flat_map(|g| g.files.clone()).collect(),
            groups,
            ..Sample::default()
        }
    }

    fn shown(sample: &Sample) -> Vec<String> {
        let place = |p: Place| format!("{} {} {:?}", p.path, p.format, p.text_key);
        places(sample).into_iter().map(place).collect()
    }

    #[test]
    fn files_with_one_key_are_one_input() {
        let jsonl = || group("jsonl", Some("story"), &["a.jsonl", "b.jsonl"]);
        assert_eq!(
            shown(&sample_of(vec![jsonl()])),
            ["/d jsonl Some(\"story\")"]
        );
        let text = group("text", None, &["c.txt"]);
        assert_eq!(
            shown(&sample_of(vec![jsonl(), text])),
            ["/d auto Some(\"story\")"]
        );
        // tables find `content` by themselves
        let table = group("parquet", Some("content"), &["a.parquet"]);
        let lines = group("jsonl", None, &["a.jsonl"]);
        assert_eq!(shown(&sample_of(vec![table, lines])), ["/d auto None"]);
    }

    #[test]
    fn files_with_several_keys_are_named_by_endings_or_one_by_one() {
        let sample = sample_of(vec![
            group("csv", Some("review"), &["a.csv.gz", "b.csv.gz", "c.csv"]),
            group("jsonl", Some("raw"), &["a.jsonl", "b.jsonl"]),
            group("jsonl", None, &["c.jsonl", "d.txt.gz", "e.txt.gz"]),
        ]);
        let want = [
            "/d/c.csv csv Some(\"review\")",
            "/d/*.csv.gz csv Some(\"review\")",
            "/d/a.jsonl jsonl Some(\"raw\")",
            "/d/b.jsonl jsonl Some(\"raw\")",
            "/d/c.jsonl jsonl None",
            "/d/*.txt.gz jsonl None",
        ];
        assert_eq!(shown(&sample), want);
    }

    #[test]
    fn tables_with_several_delimiters_are_inputs_of_their_own() {
        let csv = |delimiter: Option<char>, name: &str| Group {
            delimiter,
            ..group("csv", None, &[name])
        };
        let delimiters = |groups: Vec<Group>| -> Vec<(String, Option<char>)> {
            let places = places(&sample_of(groups)).into_iter();
            places.map(|place| (place.path, place.delimiter)).collect()
        };
        let one = delimiters(vec![
            csv(Some(';'), "a.csv"),
            group("text", None, &["b.txt"]),
        ]);
        assert_eq!(one, [("/d".to_string(), Some(';'))]);
        let two = delimiters(vec![csv(Some(';'), "a.csv"), csv(None, "b.csv")]);
        let want = [("/d/a.csv", Some(';')), ("/d/b.csv", None)];
        assert_eq!(two, want.map(|(path, own)| (path.to_string(), own)));
    }

    #[test]
    fn what_a_folder_leaves_out_is_in_no_pattern() {
        let mut sample = sample_of(vec![
            group("text", None, &["a.md", "b.md"]),
            group("csv", Some("review"), &["a.csv"]),
            group("jsonl", Some("story"), &["a.jsonl"]),
        ]);
        sample.all.push(PathBuf::from("/d/README.md"));
        let want = [
            "/d/a.md text None",
            "/d/b.md text None",
            "/d/a.csv csv Some(\"review\")",
            "/d/a.jsonl jsonl Some(\"story\")",
        ];
        assert_eq!(shown(&sample), want);
    }

    #[test]
    fn broken_files_are_in_no_input() {
        let mut sample = sample_of(vec![group("parquet", None, &["a.parquet", "b.parquet"])]);
        let broken = PathBuf::from("/d/c.parquet");
        sample.all.push(broken.clone());
        sample.unreadable.push((broken, "x".to_string()));
        let want = ["/d/a.parquet parquet None", "/d/b.parquet parquet None"];
        assert_eq!(shown(&sample), want);
    }
}
