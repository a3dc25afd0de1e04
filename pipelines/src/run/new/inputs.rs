//! The inputs of a new job: the data as a whole, or its files by patterns and names where they are read in different ways.

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
}

/// The inputs for data; none forgets a file or has one twice.
pub(super) fn places(sample: &Sample) -> Vec<Place> {
    if let Some(text_key) = common_key(sample).filter(|_| sample.unreadable.is_empty()) {
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
            text_key,
        }];
    }
    let of_group = |group: &Group| {
        let paths = paths(sample, group);
        let place = |path| Place {
            path,
            format: group.format.clone(),
            is_recursive: false,
            text_key: written_key(group),
        };
        paths.into_iter().map(place).collect::<Vec<_>>()
    };
    sample.groups.iter().flat_map(of_group).collect()
}

/// Whether the inputs are parts of the data.
pub(super) fn names_files(sample: &Sample) -> bool {
    !sample.unreadable.is_empty() || common_key(sample).is_none()
}

/// A group's key, if a reader needs it.
fn written_key(group: &Group) -> Option<String> {
    let is_own = |key: &&String| group.is_table() && *key == "content";
    let key = group.text_key.as_ref().filter(|key| !is_own(key));
    key.filter(|_| group.has_fields()).cloned()
}

/// The key for all files, if one fits.
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

/// The ending of a name with that of its compression: `.jsonl.gz`; empty without one.
fn ending(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let packed = [".gz", ".zst", ".bz2", ".xz", ".lz4"];
    let bare = packed.iter().find_map(|packing| name.strip_suffix(packing));
    let at = bare.unwrap_or(&name).rfind('.').filter(|at| *at > 0);
    at.map_or(String::new(), |at| name[at..].to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn group(format: &str, text_key: Option<&str>, names: &[&str]) -> Group {
        Group {
            format: format.to_string(),
            text_key: text_key.map(str::to_string),
            is_chat: false,
            files: names
                .iter()
                .map(|name| Path::new("/d").join(name))
                .collect(),
            bytes: 1,
            fields: Vec::new(),
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
    fn broken_files_are_in_no_input() {
        let mut sample = sample_of(vec![group("parquet", None, &["a.parquet", "b.parquet"])]);
        let broken = PathBuf::from("/d/c.parquet");
        sample.all.push(broken.clone());
        sample.unreadable.push((broken, "x".to_string()));
        let want = ["/d/a.parquet parquet None", "/d/b.parquet parquet None"];
        assert_eq!(shown(&sample), want);
    }
}
