//! Jobs on parts of Common Crawl: the same corpus as from files, a list that stays, and `new --from cc:...`. The crawl is a folder here;
//! servers are tested in `curate/tests/stores/crawl.rs`.

use crate::jobs::{data, output, results, succeed};
use std::fs;
use std::path::{Path, PathBuf};

const SNAPSHOT: &str = "CC-MAIN-2025-05";

/// The records of the tiny job's archive as a crawl of two segments, its list beside them.
fn mirror(folder: &Path) -> PathBuf {
    let archive = fs::read(data("crawl-00000.warc.gz")).unwrap();
    let root = folder.join("mirror");
    for segment in ["1736703361941.29", "1736703362095.85"] {
        let folder = root.join(format!("crawl-data/{SNAPSHOT}/segments/{segment}/warc"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("CC-{segment}-00000.warc.gz")), &archive).unwrap();
    }
    write_list(&root, &["1736703361941.29", "1736703362095.85"]);
    root
}

fn write_list(root: &Path, segments: &[&str]) {
    let line = |segment: &&str| {
        format!("crawl-data/{SNAPSHOT}/segments/{segment}/warc/CC-{segment}-00000.warc.gz\n")
    };
    let list = root.join(format!("crawl-data/{SNAPSHOT}/warc.paths.gz"));
    let mut encoder =
        flate2::write::GzEncoder::new(fs::File::create(list).unwrap(), Default::default());
    let lines: String = segments.iter().map(line).collect();
    std::io::Write::write_all(&mut encoder, lines.as_bytes()).unwrap();
    encoder.finish().unwrap();
}

/// A curation of an input, with duplicates left in.
fn write_job(folder: &Path, name: &str, input: &str) -> (String, PathBuf) {
    let out = folder.join(name);
    let text = format!(
        "name = \"crawl\"\nout = {out:?}\n[curate]\nlimit = 40\ninputs = [{{ {input}, format = \"warc\", source = \"crawl\" }}]\n\
         step = [{{ extract = {{}} }}]\n"
    );
    let file = folder.join(format!("{name}.toml"));
    fs::write(&file, text).unwrap();
    (file.display().to_string(), out)
}

#[test]
fn a_crawl_gives_the_corpus_of_its_files_and_a_job_keeps_to_its_first_list() {
    let dir = tempfile::tempdir().unwrap();
    let root = mirror(dir.path());
    let segments = root.join(format!("crawl-data/{SNAPSHOT}/segments"));
    let files = format!("path = {segments:?}, recursive = true");
    let (job, want) = write_job(dir.path(), "files", &files);
    succeed(&["curate", &job]);
    let address = format!("cc:{SNAPSHOT}/warc?base={}", root.display());
    let (job, out) = write_job(dir.path(), "crawl", &format!("path = {address:?}"));
    let first = succeed(&["curate", &job]);
    let log = String::from_utf8_lossy(&first.stderr).into_owned();
    assert!(log.contains(&format!("{address}: 2 files")), "{log}");
    let clean = |out: &Path| -> Vec<(String, Vec<u8>)> {
        let found = results(out).into_iter();
        found
            .filter(|(name, _)| name.starts_with("clean/"))
            .collect()
    };
    assert!(!clean(&want).is_empty());
    assert!(clean(&out) == clean(&want));
    // the published list changes: the job goes on with its own
    write_list(&root, &["1736703362095.85"]);
    let again = succeed(&["curate", &job]);
    let log = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(log.contains("done before"), "{log}");
    assert_eq!(fs::read_dir(out.join("records/crawls")).unwrap().count(), 1);
}

#[test]
fn a_new_job_looks_at_a_crawl_and_reads_it() {
    let dir = tempfile::tempdir().unwrap();
    let root = mirror(dir.path());
    let address = format!("cc:{SNAPSHOT}/warc?files=1&base={}", root.display());
    let at = dir.path().join("new");
    succeed(&["new", "curate", at.to_str().unwrap(), "--from", &address]);
    let text = fs::read_to_string(at.join("job.toml")).unwrap();
    assert!(
        text.contains(&format!("path = \"{address}\", format = \"warc\"")),
        "{text}"
    );
    assert!(text.contains(&format!("source = \"{SNAPSHOT}\"")), "{text}");
    succeed(&["run", at.join("job.toml").to_str().unwrap(), "--check"]);
    let wrong = format!("cc:CC-MAIN-1999-01/warc?base={}", root.display());
    let to = dir.path().join("wrong");
    let printed = output(&["new", "curate", to.to_str().unwrap(), "--from", &wrong]);
    let why = String::from_utf8_lossy(&printed.stderr).into_owned();
    assert_eq!(printed.status.code(), Some(2), "{why}");
    assert!(
        why.contains("no snapshot CC-MAIN-1999-01") && why.contains("collinfo.json"),
        "{why}"
    );
}
