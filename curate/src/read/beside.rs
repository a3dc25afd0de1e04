//! Files of a folder that are not among its data: the card and the notes of a dataset, lists of paths, and files whose names are
//! those of another format than the input's.
//!
//! A folder is a dataset as the Hugging Face Hub has them if its README.md starts with a head in YAML that has one of a card's
//! keys, and if data is beside it or in folders below: <https://huggingface.co/docs/hub/datasets-cards>. Such a folder is read
//! with the folders below it. Patterns and files that an input names are taken as they are.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::detect::detect;
use super::input::{Format, Input};
use super::splits::{Place, Wanted, places};
use super::storage::{Found, find, is_list, is_remote, open};

/// Keys of a card's head that only datasets have. Other files with a head, such as a blog's pages, have `title` or `tags`.
const CARD_KEYS: [&str; 12] = [
    "configs",
    "dataset_info",
    "license",
    "license_name",
    "license_link",
    "task_categories",
    "task_ids",
    "size_categories",
    "pretty_name",
    "source_datasets",
    "annotations_creators",
    "language_creators",
];
/// Bytes of a card that are searched for its keys; lists of features can be long.
const HEAD: u64 = 1 << 20;
/// The card's name.
const CARD: &str = "README.md";
/// Files that `datasets` writes beside its tables, and the Hub beside a card.
const NOTES: [&str; 3] = [
    "dataset_infos.json",
    "dataset_info.json",
    "dataset_dict.json",
];
/// Written beside `dataset_info.json`.
const STATE: &str = "state.json";
/// Names of a licence's text, in lower case.
const LICENCES: [&str; 6] = [
    "license",
    "license.txt",
    "license.md",
    "licence",
    "licence.txt",
    "licence.md",
];
/// Endings of compressions.
const PACKED: [&str; 5] = [".gz", ".zst", ".bz2", ".xz", ".lz4"];

/// Why a file of a folder is not read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum WhyLeftOut {
    /// The card of a dataset, or a file that describes it.
    Card,
    /// A list of paths, which is an input of its own.
    List,
    /// Its name and its bytes are those of another format.
    OtherFormat,
    /// It is of another split or configuration of a dataset, or of none.
    OtherSplit,
}

impl WhyLeftOut {
    /// In words, behind the number of files.
    pub fn in_words(self) -> &'static str {
        match self {
            WhyLeftOut::Card => "about a dataset",
            WhyLeftOut::List => {
                "with paths (to read what such a list names, give the list as `path`)"
            }
            WhyLeftOut::OtherFormat => {
                "of another format by name and content (`format = \"auto\"` reads all)"
            }
            WhyLeftOut::OtherSplit => "of other splits",
        }
    }
}

/// A file of a folder that is not read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeftOut {
    /// The file.
    pub path: PathBuf,
    /// The reason.
    pub why: WhyLeftOut,
}

/// A file that is read, and its place in a dataset.
pub(super) struct InFolder {
    pub(super) file: Found,
    pub(super) place: Place,
}

/// The files of a folder: those that are read, and the others.
pub(super) struct Listing {
    pub(super) files: Vec<InFolder>,
    pub(super) left_out: Vec<LeftOut>,
}

impl From<Vec<Found>> for Listing {
    fn from(files: Vec<Found>) -> Listing {
        let no_place = |file| InFolder {
            file,
            place: Place::default(),
        };
        Listing {
            files: files.into_iter().map(no_place).collect(),
            left_out: Vec::new(),
        }
    }
}

/// The files of an input; never empty.
///
/// # Errors
/// Why there are none, in words.
pub(super) fn list(input: &Input) -> Result<Listing, String> {
    let path = Path::new(&input.path);
    let is_asked = input.dataset_split.is_some() || input.dataset_config.is_some();
    if is_remote(path) && is_asked && input.path.ends_with('/') {
        return placed(without_remote_notes(find(input)?), input);
    }
    if is_remote(path) || !path.is_dir() {
        let files = find(input)?;
        if is_asked {
            let wanted = "a folder, or a URL that ends in `/`";
            return Err(format!(
                "`dataset_split` and `dataset_config` choose from the files of a folder: wanted {wanted}"
            ));
        }
        return Ok(files.into());
    }
    if !input.recursive && (is_asked || is_card(&path.join(CARD))) {
        // the data of a dataset may be in folders below its card
        let files = find(&Input {
            recursive: true,
            ..input.clone()
        })?;
        if is_asked || has_data(path, &files) {
            return placed(without_notes(files, input), input);
        }
    }
    placed(without_notes(find(input)?, input), input)
}

/// Finds the places of a folder's files in its dataset, and leaves out those of splits and configurations that are not wanted.
fn placed(listing: Listing, input: &Input) -> Result<Listing, String> {
    let card = Path::new(&input.path).join(CARD);
    let has_card =
        (listing.left_out.iter()).any(|left| left.path == card && left.why == WhyLeftOut::Card);
    // a card that cannot be read has no keys, so it is none
    let card = has_card.then(|| head_of(&card, input).unwrap_or_default());
    let below: Vec<&str> = listing.files.iter().map(|one| &*one.file.below).collect();
    let wanted = Wanted {
        split: input.dataset_split.as_deref(),
        config: input.dataset_config.as_deref(),
    };
    let places = places(&below, card.as_deref(), wanted)?;
    let mut listing_of = Listing {
        files: Vec::new(),
        left_out: listing.left_out,
    };
    for (one, place) in listing.files.into_iter().zip(places) {
        match place {
            Some(place) => listing_of.files.push(InFolder { place, ..one }),
            None => listing_of.left_out.push(LeftOut {
                path: one.file.path,
                why: WhyLeftOut::OtherSplit,
            }),
        }
    }
    Ok(listing_of)
}

/// The start of a card.
fn head_of(path: &Path, input: &Input) -> io::Result<String> {
    let mut head = Vec::new();
    let blob = open(path, &input.options)?;
    blob.take(HEAD).read_to_end(&mut head)?;
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// Takes what describes a dataset, by its name, out of the listing of a store.
fn without_remote_notes(files: Vec<Found>) -> Listing {
    let is_note = |file: &Found| {
        let name = file.path.file_name().unwrap_or_default().to_string_lossy();
        let is_hidden = file.below.split('/').any(|part| part.starts_with('.'));
        name == CARD
            || NOTES.contains(&&*name)
            || name == STATE
            || is_hidden
            || LICENCES.contains(&&*name.to_ascii_lowercase())
    };
    let (notes, files) = files.into_iter().partition(is_note);
    let notes: Vec<Found> = notes;
    let left = notes.into_iter().map(|file| LeftOut {
        path: file.path,
        why: WhyLeftOut::Card,
    });
    Listing {
        left_out: left.collect(),
        ..Listing::from(files)
    }
}

/// The name without the ending of a compression, in lower case.
fn bare_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.to_ascii_lowercase();
    let packed = PACKED.iter().find_map(|ending| name.strip_suffix(ending));
    packed.unwrap_or(&name).to_string()
}

/// Whether a name is that of data as datasets have it.
fn is_data(path: &Path) -> bool {
    let endings = [
        ".jsonl", ".json", ".ndjson", ".parquet", ".arrow", ".csv", ".tsv", ".txt",
    ];
    let name = bare_name(path);
    let is_note = NOTES.contains(&&*name) || LICENCES.contains(&&*name);
    !is_note && endings.iter().any(|ending| name.ends_with(ending))
}

/// Whether a file is the card of a dataset by its head.
fn is_card(path: &Path) -> bool {
    if path.file_name().is_none_or(|name| name != CARD) {
        return false;
    }
    let mut head = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(HEAD).read_to_end(&mut head));
    read.is_ok() && has_card_keys(&String::from_utf8_lossy(&head))
}

fn has_card_keys(text: &str) -> bool {
    let mut lines = text.trim_start_matches('\u{feff}').lines();
    if lines.next().map(str::trim_end) != Some("---") {
        return false;
    }
    let head = lines.take_while(|line| line.trim_end() != "---");
    let key = |line: &str| {
        let (key, _) = line.split_once(':')?;
        CARD_KEYS.contains(&key).then_some(())
    };
    head.into_iter().any(|line| key(line).is_some())
}

/// Whether a file of data is in this folder or below it.
fn has_data(folder: &Path, files: &[Found]) -> bool {
    files
        .iter()
        .any(|file| is_data(&file.path) && file.path.starts_with(folder))
}

/// Takes the files that are not among a folder's data out of its listing. If nothing else is there, all are data.
fn without_notes(files: Vec<Found>, input: &Input) -> Listing {
    let folders: Vec<PathBuf> = files
        .iter()
        .filter(|file| is_card(&file.path))
        .filter_map(|file| file.path.parent())
        .filter(|folder| has_data(folder, &files))
        .map(Path::to_path_buf)
        .collect();
    let described: Vec<PathBuf> = files
        .iter()
        .filter(|file| file.path.file_name().is_some_and(|name| name == NOTES[1]))
        .filter_map(|file| Some(file.path.parent()?.to_path_buf()))
        .collect();
    let why = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_in = |folders: &[PathBuf]| {
            path.parent()
                .is_some_and(|folder| folders.iter().any(|one| one == folder))
        };
        let is_note = NOTES.contains(&&*name)
            || name == STATE && is_in(&described)
            || is_in(&folders) && (name == CARD || LICENCES.contains(&&*name.to_ascii_lowercase()));
        if is_note {
            return Some(WhyLeftOut::Card);
        }
        if is_list(&name) {
            return Some(WhyLeftOut::List);
        }
        is_of_other_format(path, input).then_some(WhyLeftOut::OtherFormat)
    };
    let whys: Vec<Option<WhyLeftOut>> = files.iter().map(|file| why(&file.path)).collect();
    if whys.iter().all(Option::is_some) {
        return files.into();
    }
    let (mut data, mut left_out) = (Vec::new(), Vec::new());
    for (file, why) in files.into_iter().zip(whys) {
        match why {
            None => data.push(file),
            Some(why) => left_out.push(LeftOut {
                path: file.path,
                why,
            }),
        }
    }
    Listing {
        left_out,
        ..Listing::from(data)
    }
}

/// Whether both the name and the bytes of a file are those of another format than the input's.
fn is_of_other_format(path: &Path, input: &Input) -> bool {
    let named = formats_of(&bare_name(path));
    if named.is_empty() || named.contains(&input.format) {
        return false;
    }
    let wants_text = match input.format {
        // whatever is in a file
        Format::Auto => return false,
        // any text, also one that is marked up
        Format::Text | Format::Html => true,
        Format::Warc
        | Format::Wet
        | Format::Wat
        | Format::Jsonl
        | Format::Dolma
        | Format::Parquet
        | Format::Arrow
        | Format::Csv
        | Format::Tsv
        | Format::Wikipedia
        | Format::Epub
        | Format::Docx
        | Format::Odt
        | Format::Pdf
        | Format::Latex
        | Format::Wacz
        | Format::Zim => false,
    };
    let auto = Input {
        format: Format::Auto,
        ..input.clone()
    };
    let found: io::Result<Result<Format, &str>> = detect(path, &auto);
    match found {
        // the reader reports damage, and an empty file has only its name
        Err(_) => false,
        Ok(Err(_)) => true,
        Ok(Ok(found)) => {
            let is_text = matches!(
                found,
                Format::Text | Format::Html | Format::Jsonl | Format::Csv | Format::Tsv
            );
            let is_alike = found == input.format
                || matches!((found, input.format), (Format::Jsonl, Format::Dolma));
            !is_alike && (!wants_text || !is_text)
        }
    }
}

/// The formats that a name, without the ending of a compression, is one of; none of a name that tells nothing.
fn formats_of(name: &str) -> &'static [Format] {
    const NAMES: [(&str, &[Format]); 21] = [
        (".jsonl", &[Format::Jsonl, Format::Dolma]),
        (".ndjson", &[Format::Jsonl, Format::Dolma]),
        (".json", &[Format::Jsonl, Format::Dolma]),
        (".parquet", &[Format::Parquet]),
        (".arrow", &[Format::Arrow]),
        (".feather", &[Format::Arrow]),
        (".csv", &[Format::Csv, Format::Tsv]),
        (".tsv", &[Format::Csv, Format::Tsv]),
        (".warc", &[Format::Warc, Format::Wet, Format::Wat]),
        (".arc", &[Format::Warc]),
        (".html", &[Format::Html]),
        (".htm", &[Format::Html]),
        (".epub", &[Format::Epub]),
        (".docx", &[Format::Docx]),
        (".odt", &[Format::Odt]),
        (".pdf", &[Format::Pdf]),
        (".tex", &[Format::Latex]),
        (".wacz", &[Format::Wacz]),
        (".zim", &[Format::Zim]),
        (".txt", &[Format::Text]),
        (".md", &[Format::Text]),
    ];
    let named = NAMES.iter().find(|(ending, _)| name.ends_with(ending));
    named.map_or(&[], |(_, formats)| formats)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CARD_TEXT: &str = "---\nlicense: mit\nconfigs:\n- config_name: default\n---\n# Card\n";

    /// Makes files with their texts, and lists the folder: names of the data, and of what is left out with the reason.
    fn listed(
        files: &[(&str, &str)],
        format: Format,
        recursive: bool,
    ) -> (Vec<String>, Vec<(String, WhyLeftOut)>) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let listing = list(&Input {
            path: dir.path().to_string_lossy().into_owned(),
            recursive,
            ..Input::of(format)
        });
        let listing = listing.unwrap();
        let name = |path: &Path| {
            let below = path.strip_prefix(dir.path()).unwrap();
            below.to_string_lossy().into_owned()
        };
        let left = listing.left_out.iter();
        (
            listing
                .files
                .iter()
                .map(|one| name(&one.file.path))
                .collect(),
            left.map(|left| (name(&left.path), left.why)).collect(),
        )
    }

    #[test]
    fn a_folder_with_a_card_is_read_below_and_without_what_describes_it() {
        let lines = "{\"text\":\"a\"}\n";
        let files = [
            ("README.md", CARD_TEXT),
            ("LICENSE", "MIT"),
            (".gitattributes", "x"),
            ("dataset_infos.json", "{}"),
            ("data/train.jsonl", lines),
            ("data/README.md", "# Words about words"),
        ];
        for recursive in [false, true] {
            let (data, left) = listed(&files, Format::Auto, recursive);
            assert_eq!(data, ["data/README.md", "data/train.jsonl"]);
            let names: Vec<&str> = left.iter().map(|(name, _)| &**name).collect();
            assert_eq!(names, ["LICENSE", "README.md", "dataset_infos.json"]);
        }
        // a format leaves out the other text as well
        let (data, _) = listed(&files, Format::Jsonl, false);
        assert_eq!(data, ["data/train.jsonl"]);
        // a dataset among other folders
        let inner = [
            ("other/README.md", "A text."),
            ("set/README.md", CARD_TEXT),
            ("set/a.jsonl", lines),
        ];
        let (data, _) = listed(&inner, Format::Auto, true);
        assert_eq!(data, ["other/README.md", "set/a.jsonl"]);
    }

    #[test]
    fn texts_with_another_head_or_without_data_are_documents() {
        for (card, beside) in [
            ("---\ntitle: A page\ntags: [a]\n---\nWords", "a.jsonl"),
            ("# Card\nlicense: mit\n", "a.jsonl"),
            (CARD_TEXT, "notes.md"),
        ] {
            let files = [("README.md", card), (beside, "{\"text\":\"a\"}\n")];
            let (mut data, left) = listed(&files, Format::Auto, false);
            data.sort();
            assert_eq!(data, ["README.md", beside]);
            assert_eq!(left, []);
        }
    }

    #[test]
    fn lists_and_files_of_another_format_are_left_out_unless_nothing_else_is_there() {
        let lines = "{\"text\":\"a\"}\n";
        let files = [
            ("a.jsonl", lines),
            ("b.txt", lines),
            ("c.csv", "id,text\n1,a\n"),
            ("d", lines),
            ("e.paths", "gone/a.jsonl\n"),
        ];
        let (data, left) = listed(&files, Format::Jsonl, false);
        // a name of another format whose bytes are those of this one
        assert_eq!(data, ["a.jsonl", "b.txt", "d"]);
        let want = [
            ("c.csv".to_string(), WhyLeftOut::OtherFormat),
            ("e.paths".to_string(), WhyLeftOut::List),
        ];
        assert_eq!(left, want);
        let (data, left) = listed(&files, Format::Auto, false);
        assert_eq!((data.len(), left.len()), (4, 1));
        let (data, left) = listed(&files[2..3], Format::Jsonl, false);
        assert_eq!((data, left), (vec!["c.csv".to_string()], Vec::new()));
        // a text may have any words
        let (data, _) = listed(&files[..4], Format::Text, false);
        assert_eq!(data.len(), 4);
    }
}
