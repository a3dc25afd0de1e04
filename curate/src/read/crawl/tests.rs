//! Lists of a crawl in a folder: segments, numbers, samples, names.

use std::io::Write;

use super::*;
use crate::read::{Format, input_files};

/// A folder with the list of a crawl: four segments of three files.
fn mirror() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut lines = String::new();
    for segment in ["17.9", "17.10", "17.2", "18.1"] {
        for i in 0..3 {
            lines += &format!("crawl-data/CC-T/segments/{segment}/warc/{i:05}.warc.gz\n");
        }
    }
    put(&dir, "warc", &lines);
    dir
}

fn put(dir: &tempfile::TempDir, kind: &str, lines: &str) {
    let folder = dir.path().join("crawl-data/CC-T");
    std::fs::create_dir_all(&folder).unwrap();
    let file = std::fs::File::create(folder.join(format!("{kind}.paths.gz"))).unwrap();
    let mut encoder = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    encoder.write_all(lines.as_bytes()).unwrap();
    encoder.finish().unwrap();
}

fn input(dir: &tempfile::TempDir, options: &str) -> Input {
    Input {
        path: format!("cc:CC-T/warc?base={}{options}", dir.path().display()),
        format: Format::Auto,
        ..Input::default()
    }
}

/// `17.9/0` for the first file of the first segment.
fn chosen(input: &Input) -> Vec<String> {
    let files = find(input, None).unwrap();
    let name = |f: &Found| f.below.replace("warc/0000", "").replace(".warc.gz", "");
    files.iter().map(name).collect()
}

#[test]
fn segments_and_files_are_chosen_in_the_order_of_the_list() {
    let dir = mirror();
    let all = chosen(&input(&dir, ""));
    assert_eq!(all.len(), 12);
    assert_eq!(chosen(&input(&dir, "&segments=2")), all[..6]);
    assert_eq!(chosen(&input(&dir, "&segments=2..4")), all[6..]);
    // more than there are
    assert_eq!(chosen(&input(&dir, "&segments=3..9")), all[9..]);
    let named = [&all[..3], &all[6..9]].concat();
    assert_eq!(chosen(&input(&dir, "&segments=17.2,17.9")), named);
    assert_eq!(chosen(&input(&dir, "&files=2&segments=17.2")), all[6..8]);
    for (options, why) in [
        (
            "&segments=4..6",
            "wanted numbers of 4 segments, the first 17.9, 17.10, 17.2",
        ),
        ("&segments=17.3", "\"17.3\", wanted some of 4 segments"),
        ("&sample=1e-18", "none of 12 files"),
    ] {
        let found = find(&input(&dir, options), None).err().unwrap();
        assert!(found.contains(why), "{options}: {found}");
    }
}

#[test]
fn a_larger_sample_has_the_smaller_ones_and_another_place_of_the_files_changes_nothing() {
    let (dir, moved) = (mirror(), mirror());
    let at = |share: &str| chosen(&input(&dir, &format!("&sample={share}")));
    let (third, half, all) = (at("0.35"), at("0.5"), at("1"));
    assert!(!third.is_empty() && third.len() < half.len() && half.len() < all.len());
    assert!(third.iter().all(|file| half.contains(file)));
    assert_eq!(all.len(), 12);
    assert_eq!(chosen(&input(&moved, "&sample=0.5")), half);
}

#[test]
fn files_are_named_below_the_crawl_whatever_is_chosen_of_it() {
    let dir = mirror();
    for options in ["", "&segments=1", "&files=1"] {
        let shards = input_files(&[input(&dir, options)]).unwrap();
        assert_eq!(shards[0].name, "17.9/warc/00000", "{options}");
        assert_eq!(shards[0].input.format, Format::Warc);
        let whole = dir
            .path()
            .join("crawl-data/CC-T/segments/17.9/warc/00000.warc.gz");
        assert_eq!(shards[0].path, whole);
    }
}

#[test]
fn files_without_segments_are_named_below_the_crawl_and_without_the_place_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("crawl-data/CC-NEWS/2025/01");
    std::fs::create_dir_all(&folder).unwrap();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let line = "crawl-data/CC-NEWS/2025/01/CC-NEWS-20250101020153-00156.warc.gz\n";
    encoder.write_all(line.as_bytes()).unwrap();
    std::fs::write(folder.join("warc.paths.gz"), encoder.finish().unwrap()).unwrap();
    let input = Input {
        path: format!("cc:CC-NEWS/2025/01/warc?base={}", dir.path().display()),
        ..Input::default()
    };
    let found = find(&input, None).unwrap();
    assert_eq!(found[0].below, "CC-NEWS-20250101020153-00156.warc.gz");
}

#[test]
fn lists_that_lead_out_of_the_crawl_and_empty_or_missing_ones_are_refused() {
    let dir = mirror();
    for (lines, why) in [
        ("crawl-data/../../etc/passwd\n", "wanted paths below"),
        ("/etc/passwd\n", "wanted paths below"),
        ("crawl-data/x.gz?y=1\n", "wanted paths below"),
        ("\n", "a list without paths"),
    ] {
        put(&dir, "warc", lines);
        let found = find(&input(&dir, ""), None).err().unwrap();
        assert!(found.contains(why), "{lines:?}: {found}");
    }
    let mut wet = input(&dir, "");
    wet.path = wet.path.replace("/warc?", "/wet?");
    let found = find(&wet, None).err().unwrap();
    assert!(found.contains("wet.paths.gz is not there"), "{found}");
    assert!(found.contains("collinfo.json"), "{found}");
}

#[test]
fn a_kept_list_is_used_whatever_the_servers_say_later() {
    let (dir, out) = (mirror(), tempfile::tempdir().unwrap());
    let asked = input(&dir, "&segments=1");
    let kept = keep_crawl_lists(std::slice::from_ref(&asked), out.path()).unwrap();
    assert_eq!((kept[0].files, kept[0].is_new), (3, true));
    put(
        &dir,
        "warc",
        "crawl-data/CC-T/segments/99.1/warc/9.warc.gz\n",
    );
    let kept = keep_crawl_lists(std::slice::from_ref(&asked), out.path()).unwrap();
    assert_eq!((kept[0].files, kept[0].is_new), (3, false));
    let files = find(&asked, Some(out.path())).unwrap();
    assert_eq!(
        (files.len(), files[0].below.as_str()),
        (3, "17.9/warc/00000.warc.gz")
    );
    // another address has another list
    let other = find(&input(&dir, ""), Some(out.path())).unwrap();
    assert_eq!(other[0].below, "99.1/warc/9.warc.gz");
    std::fs::write(&kept[0].file, "{}").unwrap();
    let why = find(&asked, Some(out.path())).err().unwrap();
    assert!(why.contains("asked for anew"), "{why}");
}

#[cfg(not(feature = "object-store"))]
#[test]
fn a_build_without_http_says_which_build_has_it() {
    for options in ["", "?domain=example.org"] {
        let input = Input {
            path: format!("cc:CC-T/warc{options}"),
            ..Input::default()
        };
        let why = find(&input, None).err().unwrap();
        assert!(why.contains("`--features object-store`"), "{why}");
    }
}

#[test]
fn the_format_of_an_input_is_that_of_its_address() {
    let problems = |path: &str, format, prefix: &str| {
        let mut found = Vec::new();
        let input = Input {
            path: path.to_string(),
            format,
            prefix: prefix.to_string(),
            ..Input::default()
        };
        input.check(&mut |key, value, wanted| found.push(format!("{key}: {value}, {wanted}")));
        found
    };
    assert!(problems("cc:CC-T/wet", Format::Wet, "").is_empty());
    assert!(problems("cc:CC-T/wet", Format::Auto, "").is_empty());
    let wrong = problems("cc:CC-T/wet", Format::Jsonl, "s3://x/");
    assert_eq!(
        wrong[0],
        "format: \"jsonl\", \"wet\", as path says, or \"auto\""
    );
    assert!(
        wrong[1].starts_with("prefix: \"s3://x/\", none beside"),
        "{wrong:?}"
    );
    let wrong = problems("cc:CC-T/warc?segment=1", Format::Warc, "");
    assert!(
        wrong[0].starts_with("path: \"segment=1\", the options"),
        "{wrong:?}"
    );
}
