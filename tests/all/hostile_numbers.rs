//! Tests of files whose numbers claim more memory than the files could fill: every reader of tokenizers, indices,
//! sidecars, cached arrays and checkpoints runs on them under a limit of 50 times the input plus 256 MB.

use crate::jobs::{succeed, write_small_job};
use crate::megatron::write;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_64;

/// Runs `millrace ARGS` with `input_bytes` * 50 + 256 MB of writable memory (RLIMIT_DATA: heap, stacks, anonymous maps).
fn limited(input_bytes: u64, args: &[&str]) -> Output {
    let kib = (50 * input_bytes + (256 << 20)) >> 10;
    Command::new("bash")
        .args(["-c", &format!("ulimit -d {kib}; exec \"$0\" \"$@\"")])
        .arg(env!("CARGO_BIN_EXE_millrace_under_test"))
        .args(args)
        .output()
        .unwrap()
}

/// Asserts an orderly exit: no signal, no panic, no failed allocation.
fn assert_answers(what: &str, printed: &Output, wanted: Option<&str>) {
    let stderr = String::from_utf8_lossy(&printed.stderr);
    let code = printed.status.code();
    assert!(
        matches!(code, Some(0 | 1)),
        "{what}: {:?}: {stderr}",
        printed.status
    );
    assert!(
        !stderr.contains("panicked") && !stderr.contains("memory"),
        "{what}: {stderr}"
    );
    if let Some(wanted) = wanted {
        assert!(
            code == Some(1) && stderr.contains(wanted),
            "{what}: {code:?} {stderr}"
        );
    }
}

fn bytes_in(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap());
    entries
        .map(|e| match e.path().is_dir() {
            true => bytes_in(&e.path()),
            false => e.metadata().unwrap().len(),
        })
        .sum()
}

/// Tokenizes one text with the tokenizer at `file`.
fn tokenize(folder: &Path, file: &Path, what: &str, wanted: Option<&str>) {
    let texts = folder.join("texts.jsonl");
    std::fs::write(&texts, "{\"text\": \"a b\"}\n").unwrap();
    let job = folder.join("job.toml");
    let text = format!(
        "name = 't'\nout = {:?}\n[tokenize]\nappend_eod = false\ntokenizer = {{ file = {file:?} }}\ninputs = [{{ path = {texts:?}, source = 'x' }}]\n",
        folder.join("out"),
    );
    std::fs::write(&job, text).unwrap();
    let printed = limited(bytes_in(folder), &["tokenize", job.to_str().unwrap()]);
    assert_answers(what, &printed, wanted);
}

fn bpe() -> Value {
    let letters: serde_json::Map<String, Value> = (0u32..256)
        .map(|b| (char::from_u32(0x100 + b).unwrap().to_string(), json!(b)))
        .chain((0x21u32..0x7f).map(|b| (char::from_u32(b).unwrap().to_string(), json!(b + 300))))
        .collect();
    json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": null, "decoder": null,
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": letters, "merges": []}})
}

#[test]
fn tokenizers_whose_numbers_are_larger_than_their_files_do_not_take_the_memory() {
    let sparse = Some("wanted ids below");
    let changed = |key: &str, value: Value| {
        let mut file = bpe();
        *file.pointer_mut(key).unwrap() = value;
        file
    };
    let added = |id: u64| json!([{"id": id, "content": "<x>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}]);
    let mut vocab = bpe()["model"]["vocab"].clone();
    vocab["zz"] = json!(2_147_483_647u32);
    let unigram = |unk: u64| json!({"type": "Unigram", "unk_id": unk, "vocab": [["<unk>", 0.0], ["a", -1.0], ["b", -2.0]]});
    let files: Vec<(&str, Value, Option<&str>)> = vec![
        ("an id of 2^31 - 1", changed("/model/vocab", vocab), sparse),
        (
            "an added id of 2^31 - 1",
            changed("/added_tokens", added(2_147_483_647)),
            sparse,
        ),
        (
            "an added id of 2^32 - 1",
            changed("/added_tokens", added(4_294_967_295)),
            sparse,
        ),
        (
            "an added id of 2^63",
            changed("/added_tokens", added(1 << 63)),
            Some("wanted 0 to"),
        ),
        (
            "padding to 2^40",
            changed(
                "/padding",
                json!({"strategy": {"Fixed": 1u64 << 40}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0, "pad_token": "a"}),
            ),
            None,
        ),
        (
            "padding to multiples of 2^40",
            changed(
                "/padding",
                json!({"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": 1u64 << 40, "pad_id": 0, "pad_type_id": 0, "pad_token": "a"}),
            ),
            None,
        ),
        (
            "truncation at 2^62",
            changed(
                "/truncation",
                json!({"direction": "Right", "max_length": 1u64 << 62, "strategy": "LongestFirst", "stride": 1u64 << 61}),
            ),
            None,
        ),
        (
            "words of 2^60",
            changed(
                "/pre_tokenizer",
                json!({"type": "FixedLength", "length": 1u64 << 60}),
            ),
            None,
        ),
        (
            "a pattern of 10^12 states",
            changed(
                "/pre_tokenizer",
                json!({"type": "Split", "pattern": {"Regex": "((a{1000}){1000}){1000}"}, "behavior": "Isolated", "invert": false}),
            ),
            None,
        ),
        (
            "an unknown piece of 2^60",
            changed("/model", unigram(1 << 60)),
            None,
        ),
        (
            "an unknown piece of 2^31",
            changed("/model", unigram(1 << 31)),
            None,
        ),
    ];
    for (what, file, wanted) in files {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokenizer.json");
        std::fs::write(&path, file.to_string()).unwrap();
        tokenize(dir.path(), &path, what, wanted);
    }
    // the library's trie of WordPiece is as deep as its longest token
    for length in [5_000, 40_000, 1_000_000] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokenizer.json");
        let model = json!({"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": {"[UNK]": 0, "a": 1, "b".repeat(length): 2}});
        let mut file = changed("/model", model);
        file["pre_tokenizer"] = json!({"type": "Whitespace"});
        std::fs::write(&path, file.to_string()).unwrap();
        let wanted = Some("wanted at most 4096");
        tokenize(dir.path(), &path, "a long token of WordPiece", wanted);
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vocab.json");
    std::fs::write(&path, "{\"a\": 0, \"b\": 1, \"ab\": 2147483647}").unwrap();
    std::fs::write(dir.path().join("merges.txt"), "a b\n").unwrap();
    tokenize(
        dir.path(),
        dir.path(),
        "GPT-2's pair with an id of 2^31 - 1",
        sparse,
    );

    let bytes: Vec<String> = (0u8..=255).map(base64).collect();
    let ranks = |last: u64| {
        let lines = bytes.iter().enumerate();
        let lines = lines.map(|(i, b)| format!("{b} {}", if i == 255 { last } else { i as u64 }));
        lines.collect::<Vec<_>>().join("\n")
    };
    let tekken = |vocab_size: u64, special: u64| {
        let vocab = bytes
            .iter()
            .enumerate()
            .map(|(i, b)| json!({"rank": i, "token_bytes": b, "token_str": null}));
        json!({"config": {"pattern": "\\p{L}+|\\s", "num_vocab_tokens": 256, "default_vocab_size": vocab_size,
            "default_num_special_tokens": special, "version": "v3"}, "vocab": vocab.collect::<Vec<_>>()})
        .to_string()
    };
    for (name, text, wanted) in [
        ("cl100k.tiktoken", ranks(2_147_483_647), sparse),
        ("cl100k.tiktoken", ranks(4_294_967_295), sparse),
        ("tekken.json", tekken(276, 20), None),
        (
            "tekken.json",
            tekken(1 << 40, (1 << 40) - 256),
            Some("default_num_special_tokens"),
        ),
        (
            "tekken.json",
            tekken(1 << 62, 20),
            Some("default_vocab_size"),
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        tokenize(dir.path(), &path, name, wanted);
    }
    // lengths of a SentencePiece model: fields of 2^28 - 1 and 2^62 bytes in a file of a hundred
    for length in [
        &[0xff, 0xff, 0xff, 0x7f][..],
        &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40],
    ] {
        for field in [0x0a, 0x12, 0x1a] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("m.model");
            let file = [&[field][..], length, &[0; 90]].concat();
            std::fs::write(&path, file).unwrap();
            tokenize(
                dir.path(),
                &path,
                "a SentencePiece field longer than its file",
                Some("byte"),
            );
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let null = Path::new("null:2147483648");
    std::fs::write(dir.path().join("x"), "").unwrap();
    tokenize(dir.path(), null, "a vocabulary of 2^31 numbers", None);
}

fn base64(byte: u8) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let letter = |i: u8| char::from(LETTERS[usize::from(i)]);
    format!("{}{}==", letter(byte >> 2), letter((byte & 3) << 4))
}

#[test]
fn indices_whose_counts_are_larger_than_their_files_do_not_take_the_memory() {
    let dir = tempfile::tempdir().unwrap();
    let prefix = dir.path().join("x");
    write(&prefix, 1, 50);
    let good = std::fs::read(prefix.with_extension("idx")).unwrap();
    for (at, what) in [(18, "sequences"), (26, "documents")] {
        for number in [1u64 << 31, 1 << 40, 1 << 60, u64::MAX / 12, u64::MAX] {
            let mut bad = good.clone();
            bad[at..at + 8].copy_from_slice(&number.to_le_bytes());
            std::fs::write(prefix.with_extension("idx"), &bad).unwrap();
            let printed = limited(
                bytes_in(dir.path()),
                &["inspect", prefix.with_extension("idx").to_str().unwrap()],
            );
            assert_answers(&format!("{number} {what}"), &printed, Some("file size"));
        }
    }
    // a length that the .bin does not have
    let mut bad = good.clone();
    bad[34..38].copy_from_slice(&i32::MAX.to_le_bytes());
    std::fs::write(prefix.with_extension("idx"), &bad).unwrap();
    let printed = limited(
        bytes_in(dir.path()),
        &["inspect", prefix.with_extension("idx").to_str().unwrap()],
    );
    assert_answers("a length of 2^31 - 1", &printed, Some("sequence offset"));
}

/// Runs a job that blends the dataset at `prefix` with a cache; its error must contain `wanted`.
fn blend(folder: &Path, prefix: &Path, what: &str, wanted: Option<&str>) -> PathBuf {
    let job = folder.join("job.toml");
    let text = format!(
        "name = 'b'\nout = {:?}\n[blend]\nseq_length = 16\nsplit = '1'\ncache = {:?}\n[[blend.dataset]]\nname = 'x'\nweight = 1.0\nprefix = {prefix:?}\n",
        folder.join("out"),
        folder.join("cache"),
    );
    std::fs::write(&job, text).unwrap();
    let printed = limited(bytes_in(folder), &["blend", job.to_str().unwrap()]);
    assert_answers(what, &printed, wanted);
    folder.join("cache")
}

#[test]
fn sidecars_and_cached_arrays_whose_numbers_lie_do_not_take_the_memory() {
    let dir = tempfile::tempdir().unwrap();
    let prefix = dir.path().join("x");
    write(&prefix, 1, 50);
    let tokens = index::dataset::Dataset::open(&prefix).unwrap().tokens();
    let sidecar = |vocab: u64, documents: u64| {
        let text = json!({"dataset": {}, "tokenizer": {"vocab": vocab, "xxh3": "none", "encoder": "none", "end_of_document": 0},
            "dtype": "uint16", "documents": documents, "sequences": 50, "tokens": tokens, "text_bytes": u64::MAX});
        std::fs::write(prefix.with_extension("json"), text.to_string()).unwrap();
    };
    sidecar(1 << 60, 50);
    blend(dir.path(), &prefix, "a vocabulary of 2^60", None);
    sidecar(1000, 1 << 60);
    blend(dir.path(), &prefix, "2^60 documents", Some("documents"));
    sidecar(1000, 50);
    let cache = blend(dir.path(), &prefix, "a good set", None);
    for entry in std::fs::read_dir(&cache).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "npy") {
            continue;
        }
        let good = std::fs::read(&path).unwrap();
        let text = String::from_utf8_lossy(&good[10..128]).into_owned();
        for count in ["999999999999", "99999999999999999999"] {
            // the same header length: padding blanks before the line break are removed
            let from = text.find("'shape': (").unwrap() + "'shape': (".len();
            let to = from + text[from..].find(',').unwrap();
            let mut changed = format!("{}{count}{}", &text[..from], &text[to..]);
            while changed.len() > text.len() {
                let blank = changed.rfind(' ').unwrap();
                changed.remove(blank);
            }
            let bad = [&good[..10], changed.as_bytes(), &good[128..]].concat();
            std::fs::write(&path, bad).unwrap();
            blend(
                dir.path(),
                &prefix,
                &format!("{count} rows in {}", path.display()),
                None,
            );
            assert!(
                std::fs::read(&path).unwrap() == good,
                "{} is not mended",
                path.display()
            );
        }
    }
}

/// Writes a checkpoint's state with one number of its plan changed and its own checksum right.
fn set_in_state(path: &Path, good: &str, key: &str, number: u64) {
    let mut state: Value = serde_json::from_str(good).unwrap();
    let plan = state.pointer_mut("/plan").unwrap();
    let mut place = plan;
    for name in key.split('.') {
        place = &mut place[name];
    }
    *place = json!(number);
    state.as_object_mut().unwrap().shift_remove("xxh3");
    let mut text = serde_json::to_string_pretty(&state).unwrap();
    text.truncate(text.len() - "\n}".len());
    let seal = xxh3_64(text.as_bytes());
    text += &format!(",\n  \"xxh3\": \"{seal:016x}\"\n}}\n");
    std::fs::write(path, text).unwrap();
}

#[test]
fn checkpoints_whose_plans_lie_are_refused_quickly_by_key_with_little_memory() {
    let dir = tempfile::tempdir().unwrap();
    let job = write_small_job(dir.path()).display().to_string();
    succeed(&["run", &job]);
    let last = dir.path().join("out/checkpoints/step-00000012");
    let state = last.join("state.json");
    let good = std::fs::read_to_string(&state).unwrap();
    let last = last.to_str().unwrap();
    let bytes = bytes_in(Path::new(last));
    let hf = dir.path().join("hf").display().to_string();
    let tokenizer = dir.path().join("out/tokens/tokenizer.json");
    let tokenizer = tokenizer.display().to_string();
    for key in [
        "model.layers",
        "model.d_model",
        "model.heads",
        "model.d_ffn",
        "model.mtp_num_layers",
        "vocab",
        "seq_length",
        "model.moe.experts",
    ] {
        set_in_state(&state, &good, key, 1 << 40);
        let wanted =
            format!("state.json cannot be used: plan.{key}: found 1099511627776, want at most ");
        for args in [
            &["inspect", last][..],
            &["convert", "--checkpoint", last, &hf],
            &[
                "generate",
                "--checkpoint",
                last,
                "--tokenizer",
                &tokenizer,
                "--prompt",
                "a",
            ],
        ] {
            let start = Instant::now();
            let printed = limited(bytes, args);
            assert_answers(&format!("{key}: {args:?}"), &printed, Some(&wanted));
            let took = start.elapsed();
            assert!(took < Duration::from_secs(120), "{key}: {args:?}: {took:?}");
        }
    }
    // the job's verbs skip it
    let printed = limited(bytes_in(dir.path()), &["eval", &job]);
    let stderr = String::from_utf8_lossy(&printed.stderr);
    assert!(
        stderr.contains("checkpoint of step 12 is not used: ") && printed.status.success(),
        "{stderr}"
    );
    std::fs::write(&state, &good).unwrap();
    assert!(limited(bytes, &["inspect", last]).status.success());
}
