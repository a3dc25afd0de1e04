//! `takedown` and token datasets: documents and checkpoints are named exactly, with conditions too.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use index::dataset::Dataset;
use index::tokenizer::Tokenizer;
use serde_json::{Value, json};

use crate::jobs::succeed;
use crate::takedown::{kept, list, run, take_down};

/// Documents of words, and some of digits alone, whose tokens no other document has.
fn marked_job(folder: &Path) -> PathBuf {
    let mut state = 7u32;
    let mut next = move |most: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % most
    };
    let mut lines = String::new();
    for i in 0..300 {
        let letters = if is_marked(i) {
            "0123456789"
        } else {
            "abcdefghij"
        };
        let words = 20 + next(60);
        let text: Vec<String> = (0..words)
            .map(|_| {
                (0..1 + next(8))
                    .map(|_| letters.as_bytes()[next(10)] as char)
                    .collect()
            })
            .collect();
        lines += &format!(
            "{}\n",
            json!({"id": format!("d{i}"), "text": text.join(" "), "url": format!("https://h{i}.example.org/")})
        );
    }
    let input = folder.join("texts.jsonl");
    fs::write(&input, lines).unwrap();
    let text = format!(
        r#"
name = "marked"
out = {out:?}
[curate]
split_mb = 1
inputs = [{{ path = {input:?}, source = "texts" }}]
[dedup]
exact = {{}}
[tokenize]
append_eod = false
tokenizer = {{ train = {{ kind = "bpe", vocab = 300 }} }}
[blend]
seq_length = 16
split = "100,0,0"
[[blend.dataset]]
name = "texts"
[model]
family = "llama"
layers = 1
d_model = 16
heads = 2
[train]
steps = 8
warmup_steps = 2
global_batch = 4
micro_batch = 2
checkpoint = {{ every = 1, keep = 8 }}
"#,
        out = folder.join("out")
    );
    let path = folder.join("job.toml");
    fs::write(&path, text).unwrap();
    path
}

fn is_marked(document: usize) -> bool {
    [3, 77, 78, 205].contains(&document)
}

#[test]
fn datasets_and_checkpoints_with_removed_documents_are_named_exactly() {
    let dir = tempfile::tempdir().unwrap();
    let job = marked_job(dir.path());
    run("run", &job);
    let out = dir.path().join("out");
    let dump = succeed(&["blend", job.to_str().unwrap(), "--dump", "32", "--json"]);
    let dump: Value = serde_json::from_slice(&dump.stdout).unwrap();
    let tokenizer = Tokenizer::load(&out.join("tokens/tokenizer.json")).unwrap();
    // whether each of the 32 samples of the 8 steps has tokens of digits
    let samples: Vec<bool> = dump["splits"]["train"]["samples"]
        .as_array()
        .unwrap()
        .iter()
        .map(|sample| {
            let tokens = sample["tokens"].as_array().unwrap();
            let ids: Vec<u32> = tokens
                .iter()
                .map(|t| u32::try_from(t.as_u64().unwrap()).unwrap())
                .collect();
            tokenizer
                .decode(&ids)
                .unwrap()
                .contains(|c: char| c.is_ascii_digit())
        })
        .collect();
    assert_eq!(samples.len(), 32);
    // first the documents of letters, so that numbers in the dataset are no longer those of the corpus
    let before: Vec<(String, String)> = kept(&out, 1);
    let letters = list(
        dir.path(),
        "id:d0\nid:d76\nid:d76\nid:nowhere\nhttps://www.h0.example.org\nhost:h76.example.org\n\
         domain:h0.example.org\nhost:absent.example\n",
    );
    let told = take_down(&letters, &out);
    assert_eq!(told[0]["datasets"][0]["documents"], 2, "{told:#}");
    assert_eq!(
        told[0]["takedowns"][0]["entries_without_documents"],
        json!([4, 8]),
        "every entry that names a document counts, not only the first"
    );
    // a new list; the letters that are gone are told as well, so the oracle looks for digits or those texts
    let digits = list(dir.path(), "id:d3\nid:d77\nid:d78\nid:d205\n");
    let told = take_down(&digits, &out);
    let dataset = &told[0]["datasets"][0];
    assert_eq!(
        (dataset["contains"].as_str(), dataset["documents"].as_u64()),
        (Some("yes"), Some(6))
    );
    let data = Dataset::open(&out.join("tokens/texts")).unwrap();
    for (file, ids) in [
        ("00001", &["d0", "d76"][..]),
        ("00002", &["d3", "d77", "d78", "d205"]),
    ] {
        let lines = fs::read_to_string(out.join(format!("takedown/{file}.jsonl"))).unwrap();
        let lines: Vec<Value> = lines
            .lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect();
        let found: Vec<&str> = lines.iter().map(|l| l["id"].as_str().unwrap()).collect();
        assert_eq!(found, ids);
        for line in lines {
            let number = line["datasets"]["texts"][0].as_u64().unwrap();
            let sequence = data.document(usize::try_from(number).unwrap()).start;
            let sequence = usize::try_from(sequence).unwrap();
            let mut tokens = vec![0; data.length(sequence) as usize];
            data.read(sequence, 0, &mut tokens).unwrap();
            let text = &before.iter().find(|(id, _)| line["id"] == **id).unwrap().1;
            assert_eq!(&tokenizer.decode(&tokens).unwrap(), text);
        }
    }
    // without the letters: the digits alone, in a corpus that was not touched before
    let fresh = tempfile::tempdir().unwrap();
    let job = marked_job(fresh.path());
    run("run", &job);
    let out = fresh.path().join("out");
    let told = take_down(&digits, &out);
    let checkpoints = told[0]["checkpoints"].as_array().unwrap();
    assert_eq!(checkpoints.len(), 8);
    let mut answers = BTreeSet::new();
    for (i, checkpoint) in checkpoints.iter().enumerate() {
        let used = &samples[..4 * (i + 1)];
        let count = used.iter().filter(|has| **has).count();
        let first = used
            .iter()
            .position(|has| *has)
            .map(|sample| sample / 4 + 1);
        assert_eq!(checkpoint["step"], i + 1);
        let contains = if count > 0 { "yes" } else { "no" };
        assert_eq!(checkpoint["contains"], contains, "step {}: {told:#}", i + 1);
        assert_eq!(checkpoint["samples"].as_u64().unwrap_or(0), count as u64);
        assert_eq!(
            checkpoint["first_step"].as_u64(),
            first.map(|step| step as u64)
        );
        answers.insert(contains);
    }
    assert_eq!(answers.len(), 2, "the oracle has both answers");
    // a training in another order is told as uncertain
    let text = fs::read_to_string(&job)
        .unwrap()
        .replace("seq_length = 16", "seq_length = 8");
    fs::write(&job, text).unwrap();
    let told = take_down(&digits, &job);
    assert_eq!(told[0]["checkpoints"][0]["contains"], "may", "{told:#}");
    assert!(
        told[0]["checkpoints"][0]["why"]
            .as_str()
            .unwrap()
            .contains("another order")
    );
}

/// The documents of a dataset that a takedown names hold the text of their ids; their number.
fn assert_numbers(out: &Path, file: &str, dataset: &str, texts: &[(String, String)]) -> usize {
    let tokenizer = Tokenizer::load(&out.join("tokens/tokenizer.json")).unwrap();
    let data = Dataset::open(&out.join("tokens").join(dataset)).unwrap();
    let lines = fs::read_to_string(out.join(format!("takedown/{file}.jsonl"))).unwrap();
    let mut count = 0;
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        for number in line["datasets"][dataset].as_array().into_iter().flatten() {
            let sequence = data
                .document(usize::try_from(number.as_u64().unwrap()).unwrap())
                .start;
            let sequence = usize::try_from(sequence).unwrap();
            let mut tokens = vec![0; data.length(sequence) as usize];
            data.read(sequence, 0, &mut tokens).unwrap();
            let text = &texts.iter().find(|(id, _)| line["id"] == **id).unwrap().1;
            assert_eq!(&tokenizer.decode(&tokens).unwrap(), text, "{line}");
            count += 1;
        }
    }
    count
}

#[test]
fn datasets_with_conditions_name_the_removed_documents_that_met_them() {
    let dir = tempfile::tempdir().unwrap();
    let job = marked_job(dir.path());
    let text = fs::read_to_string(&job).unwrap();
    let text = text.split("[blend]").next().unwrap().to_string()
        + r#"
[[tokenize.dataset]]
name = "all"
[[tokenize.dataset]]
name = "long"
where = "chars > 180"
[[tokenize.dataset]]
name = "digits"
where = 'matches(text, "^[0-9]")'
"#;
    fs::write(&job, text).unwrap();
    run("run", &job);
    let out = dir.path().join("out");
    let texts = kept(&out, 1);
    let length = |id: &str| {
        texts
            .iter()
            .find(|(of, _)| of == id)
            .unwrap()
            .1
            .chars()
            .count()
    };
    // several takedowns: the numbers in a dataset stay those that it was made with
    let mut known = [0; 3];
    for (file, ids) in [
        ("00001", vec!["d0", "d76", "d299"]),
        ("00002", vec!["d1", "d3", "d77", "d150"]),
        ("00003", vec!["d2", "d205"]),
    ] {
        let lines: String = ids.iter().map(|id| format!("id:{id}\n")).collect();
        let told = take_down(&list(dir.path(), &lines), &out);
        let marked = |id: &&&str| is_marked(id[1..].parse().unwrap());
        let wanted = [
            ids.len(),
            ids.iter().filter(|id| length(id) > 180).count(),
            ids.iter().filter(marked).count(),
        ];
        for (i, name) in ["all", "long", "digits"].into_iter().enumerate() {
            assert_eq!(
                assert_numbers(&out, file, name, &texts),
                wanted[i],
                "{name}: {told:#}"
            );
            known[i] += wanted[i];
            let datasets = told[0]["datasets"].as_array().unwrap();
            let dataset = datasets.iter().find(|d| d["name"] == name);
            match dataset {
                None => assert_eq!(known[i], 0, "{name}: {told:#}"),
                Some(dataset) => {
                    assert_eq!(dataset["contains"], "yes", "{told:#}");
                    assert_eq!(dataset["documents"], known[i], "{told:#}");
                    assert!(dataset["why"].is_null());
                }
            }
        }
    }
    assert!(known[1] > 0 && known[1] < 9, "both answers: {known:?}");
}
