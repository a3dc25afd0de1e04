//! The counts of each source in the manifest and in the report: they are those of the input, whatever happens to the folder.

use crate::jobs::succeed;
use crate::takedown::{list, take_down};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// A text that the filter keeps, of words of its own.
fn text(name: &str) -> String {
    let words: Vec<String> = (0..20).map(|word| format!("{name}word{word}")).collect();
    words.join(" ")
}

/// Lines with ids `NAME-0` and on; a line that is no record stays as it is.
fn write_lines(folder: &Path, name: &str, texts: &[Option<String>]) {
    fs::create_dir_all(folder).unwrap();
    let line = |(i, text): (usize, &Option<String>)| match text {
        Some(text) => format!("{}\n", json!({"id": format!("{name}-{i}"), "text": text})),
        None => "no record\n".to_string(),
    };
    let lines: String = texts.iter().enumerate().map(line).collect();
    fs::write(folder.join(format!("{name}.jsonl")), lines).unwrap();
}

/// Source `a`: two files of together 11 records, 2 of them no records, 3 too short, one text twice. Source `b`: 6 records, one
/// too short, one too long, two texts that `a` has as well. Source `c`: one record.
fn write_inputs(folder: &Path) {
    let own = |name: &str| Some(text(name));
    let short = || Some("too short".to_string());
    let long = Some("word ".repeat(400));
    let first = [own("one"), None, short(), own("two"), own("one"), short()];
    write_lines(&folder.join("a"), "a", &first);
    let second = [own("three"), None, short(), own("four"), own("five")];
    write_lines(&folder.join("a"), "d", &second);
    let third = [
        own("six"),
        own("two"),
        own("four"),
        short(),
        long,
        own("seven"),
    ];
    write_lines(&folder.join("b"), "b", &third);
    write_lines(&folder.join("c"), "c", &[own("eight")]);
}

fn write_job(folder: &Path, sources: &[&str]) -> PathBuf {
    let inputs: Vec<String> = sources
        .iter()
        .map(|name| format!("{{ path = {:?}, source = \"{name}\" }}", folder.join(name)))
        .collect();
    let text = format!(
        "name = \"sources\"\nout = {:?}\n[curate]\ninputs = [{}]\n[[curate.step]]\n\
        length = {{ min_chars = 20, max_chars = 1000 }}\n[dedup]\nexact = {{}}\n",
        folder.join("out"),
        inputs.join(", ")
    );
    let path = folder.join("job.toml");
    fs::write(&path, text).unwrap();
    path
}

fn json_of(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The counts by source of the two stages.
fn counts(folder: &Path) -> [Value; 2] {
    let manifest = json_of(&folder.join("out/manifest.json"));
    ["curate", "dedup"].map(|stage| manifest[stage]["counts"]["by_source"].clone())
}

/// The report, made anew.
fn page(folder: &Path) -> String {
    succeed(&["report", folder.join("job.toml").to_str().unwrap()]);
    fs::read_to_string(folder.join("out/report.html")).unwrap()
}

fn bytes_of(names: &[&str]) -> usize {
    names.iter().map(|name| text(name).len()).sum()
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

/// A row of the table: records, kept ones and their share, unreadable ones, those that the step dropped, exact and near duplicates.
fn row(name: &str, cells: &str) -> String {
    let cells = cells.split(' ');
    let cells: Vec<String> = cells
        .map(|cell| format!("<td class=number>{cell}</td>"))
        .collect();
    format!("<td>{name}</td>{}", cells.concat())
}

#[test]
fn counts_by_source_are_those_of_the_input_and_add_up() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    write_inputs(folder);
    let job = write_job(folder, &["a", "b"]);
    succeed(&["run", job.to_str().unwrap()]);
    let of_a = ["one", "two", "one", "three", "four", "five"];
    let a_in = size(&folder.join("a/a.jsonl")) + size(&folder.join("a/d.jsonl"));
    let a = json!({"records": 11, "quarantined": 2, "kept": 6, "dropped": {"length.min_chars": 3},
        "bytes_in": a_in, "bytes_out": bytes_of(&of_a), "chars": bytes_of(&of_a)});
    let of_b = ["six", "two", "four", "seven"];
    let b = json!({"records": 6, "quarantined": 0, "kept": 4,
        "dropped": {"length.min_chars": 1, "length.max_chars": 1},
        "bytes_in": size(&folder.join("b/b.jsonl")), "bytes_out": bytes_of(&of_b), "chars": bytes_of(&of_b)});
    let after = json!({"a": {"documents": 6, "kept": 5, "exact": 1},
        "b": {"documents": 4, "kept": 2, "exact": 2}});
    assert_eq!(counts(folder), [json!({"a": a, "b": b}), after.clone()]);
    let page_of_two = page(folder);
    for row in [
        row("a", "11 5 45.5% 2 3 1 0"),
        row("b", "6 2 33.3% 0 2 2 0"),
        row("all", "17 7 41.2% 2 5 3 0"),
        "Every row adds up to its records, and the rows to the 17 of all.".to_string(),
        "<summary>b: 2 of 6 records kept, by rule</summary>".to_string(),
    ] {
        assert!(page_of_two.contains(&row), "{row}");
    }
    // a source more, in front of the others: its shard is the first one
    let job = write_job(folder, &["c", "a", "b"]);
    succeed(&["run", job.to_str().unwrap()]);
    let [curate, dedup] = counts(folder);
    assert_eq!((&curate["a"], &curate["b"]), (&a, &b));
    assert_eq!(curate["c"]["kept"], 1);
    assert_eq!((&dedup["a"], &dedup["b"]), (&after["a"], &after["b"]));
    assert!(page(folder).contains(&row("all", "18 8 44.4% 2 5 3 0")));
    // a takedown: one text of each source, of which one repeats another
    take_down(&list(folder, "id:a-0\nid:b-1\n"), &folder.join("out"));
    let [curate, dedup] = counts(folder);
    let dropped = json!({"length.min_chars": 3, "takedown": 1});
    assert_eq!(
        (&curate["a"]["kept"], &curate["a"]["dropped"]),
        (&json!(5), &dropped)
    );
    assert_eq!(curate["a"]["bytes_out"], bytes_of(&of_a[1..]));
    assert_eq!(dedup["a"], json!({"documents": 5, "kept": 4, "exact": 1}));
    assert_eq!(dedup["b"], json!({"documents": 3, "kept": 2, "exact": 1}));
    assert_eq!(dedup["c"], json!({"documents": 1, "kept": 1}));
    // the column behind that of the step `length` is of takedowns
    let page = page(folder);
    assert!(page.contains(&row("b", "6 2 33.3% 0 2 1 1 0")));
    assert!(page.contains("Every row adds up to its records, and the rows to the 18 of all."));
}

#[test]
fn folders_of_earlier_versions_are_shown_without_the_counts_and_completed_by_the_next_curation() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    write_inputs(folder);
    let job = write_job(folder, &["a", "b"]);
    let job = job.to_str().unwrap();
    succeed(&["run", job]);
    let wanted = counts(folder);
    // as an earlier version wrote them
    let manifest = folder.join("out/manifest.json");
    let mut old = json_of(&manifest);
    for stage in ["curate", "dedup"] {
        let counts = old[stage]["counts"].as_object_mut().unwrap();
        counts.remove("by_source");
        counts.remove("removed_per_shard");
    }
    fs::write(&manifest, old.to_string()).unwrap();
    for shard in 0..3 {
        let path = folder.join(format!("out/records/curate/0000{shard}.json"));
        let mut record = json_of(&path);
        record["counts"].as_object_mut().unwrap().remove("source");
        fs::write(&path, record.to_string()).unwrap();
    }
    let page_of_old = page(folder);
    assert!(page_of_old.contains("did not record them by source"));
    // another source: the shards of before are not curated again, and have their source all the same
    let job = write_job(folder, &["a", "b", "c"]);
    succeed(&["run", job.to_str().unwrap()]);
    let [mut curate, mut dedup] = counts(folder);
    for found in [&mut curate, &mut dedup] {
        assert!(found.as_object_mut().unwrap().remove("c").is_some());
    }
    assert_eq!([curate, dedup], wanted);
    assert!(page(folder).contains("Every row adds up to its records"));
}
