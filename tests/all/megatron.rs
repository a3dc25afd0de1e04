//! Tests that GPT datasets, sample order, blends, items and cache files equal megatron-core's, bit for bit
//! (`data/megatron_samples.json`, 60 configurations).

use index::blend::{Blend, BlendRequest, Mixture, Source};
use index::cache::Cache;
use index::dataset::{Dataset, DatasetWriter, TokenType};
use index::numpy_random::RandomState;
use index::samples::{GptItem, ItemOptions};
use index::split::Part;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::Path;
use std::sync::Arc;

const GOLDEN: &str = include_str!("../data/megatron_samples.json");

/// The first 32 hex digits of SHA-256.
pub(crate) struct Hash(Sha256);

impl Hash {
    pub(crate) fn new() -> Hash {
        Hash(Sha256::new())
    }
    pub(crate) fn add(&mut self, bytes: &[u8]) -> &mut Hash {
        self.0.update(bytes);
        self
    }
    /// Numbers as i64.
    pub(crate) fn numbers(&mut self, numbers: impl IntoIterator<Item = i64>) -> &mut Hash {
        numbers
            .into_iter()
            .for_each(|n| self.0.update(n.to_le_bytes()));
        self
    }
    pub(crate) fn hex(&self) -> String {
        let digest = self.0.clone().finalize();
        digest[..16].iter().map(|b| format!("{b:02x}")).collect()
    }
}

fn golden() -> Value {
    serde_json::from_str(GOLDEN).unwrap()
}

/// The formula of `oracles/megatron_samples.py`.
pub(crate) fn write(prefix: &Path, seed: u32, documents: u64) {
    let mut random = RandomState::new(seed);
    let lengths: Vec<u64> = (0..documents).map(|_| random.bounded(38) + 1).collect();
    let mut writer = DatasetWriter::create(prefix, TokenType::U16).unwrap();
    for (i, length) in (0u64..).zip(lengths) {
        let token = |j| {
            if j + 1 == length {
                0
            } else {
                (31 * i + 7 * j + u64::from(seed)) % 997 + 1
            }
        };
        let tokens = (0..length).map(|j| u16::try_from(token(j)).unwrap());
        let bytes: Vec<u8> = tokens.flat_map(u16::to_le_bytes).collect();
        writer
            .documents(&bytes, &[u32::try_from(length).unwrap()])
            .unwrap();
    }
    writer.finish().unwrap();
}

fn write_all(golden: &Value, dir: &Path) {
    for (name, file) in golden["files"].as_object().unwrap() {
        let seed = u32::try_from(number(&file["seed"])).unwrap();
        write(&dir.join(name), seed, number(&file["documents"]));
    }
}

pub(crate) fn number(v: &Value) -> u64 {
    v.as_u64().unwrap_or_else(|| panic!("{v} is no number"))
}

fn is(v: &Value) -> bool {
    v.as_bool().unwrap()
}

#[test]
fn dataset_files_have_megatrons_bytes() {
    let golden = golden();
    let dir = tempfile::tempdir().unwrap();
    write_all(&golden, dir.path());
    for (name, file) in golden["files"].as_object().unwrap() {
        for suffix in ["bin", "idx"] {
            let bytes = std::fs::read(dir.path().join(format!("{name}.{suffix}"))).unwrap();
            assert_eq!(
                Hash::new().add(&bytes).hex(),
                file[suffix],
                "{name}.{suffix}"
            );
        }
    }
}

/// Datasets and weights of one part (`datasets`, `weights` or an entry of `per_split`).
fn sources(dir: &Path, names: &Value, weights: &Value) -> Vec<Source> {
    let names = names.as_array().map_or(&[][..], Vec::as_slice);
    let open = |n: &Value| Arc::new(Dataset::open(&dir.join(n.as_str().unwrap())).unwrap());
    let weight = |i: usize| weights[i].as_f64().unwrap_or(1.0);
    names
        .iter()
        .enumerate()
        .map(|(i, n)| (open(n), weight(i)))
        .collect()
}

/// One configuration, built part by part since parts may be mixed differently.
fn build(case: &Value, dir: &Path, cache: Option<&Cache>) -> index::Result<[Option<Blend>; 3]> {
    let mut parts = [None, None, None];
    for (i, part) in parts.iter_mut().enumerate() {
        let own = !case["per_split"].is_null();
        let (names, weights) = match own {
            true => (&case["per_split"][i][0], &case["per_split"][i][1]),
            false => (&case["datasets"], &case["weights"]),
        };
        let sources = sources(dir, names, weights);
        let size = case["samples"][i].as_u64();
        let seed = u32::try_from(number(&case["seed"])).unwrap();
        let mut samples = [Some(0); 3];
        samples[i] = size;
        let split = case["split"].as_str().unwrap_or("1");
        let mut r = BlendRequest::of(&sources, split, samples, number(&case["seq_length"]), seed);
        r.split = (!own).then_some(split);
        r.mixture = match (weights.is_null(), size) {
            (false, _) => Mixture::Weighted,
            (true, Some(_)) => Mixture::Proportional,
            (true, None) => Mixture::Exhaustive,
        };
        r.sample.extra_token = is(&case["extra_token"]);
        r.sample.drop_last = is(&case["drop_last"]);
        r.surplus = case["surplus"].as_f64().unwrap();
        r.cache = cache;
        *part = index::blend::build(&r)?[i].take();
    }
    Ok(parts)
}

#[test]
fn every_index_array_and_item_of_60_configurations_is_megatrons() {
    let golden = golden();
    let dir = tempfile::tempdir().unwrap();
    write_all(&golden, dir.path());
    let cases = golden["cases"].as_array().unwrap();
    assert!(cases.len() >= 60, "{} cases", cases.len());
    let mut compared = 0;
    for (c, case) in cases.iter().enumerate() {
        let built = build(case, dir.path(), None);
        if case["refused"] == true {
            let text = built.map(|_| ()).unwrap_err().to_string();
            assert!(text.contains("taken from"), "{c}: {text}");
            continue;
        }
        let parts = built.unwrap_or_else(|e| panic!("case {c}: {e}"));
        for (part, blend) in Part::ALL.into_iter().zip(&parts) {
            let want = &case["parts"][part.name()];
            let label = format!("{} of case {c}: {case}", part.name());
            let Some(blend) = blend.as_ref().filter(|b| !b.is_empty()) else {
                assert!(want.is_null(), "{label} is missing");
                continue;
            };
            assert_eq!(blend.len(), number(&want["len"]), "{label}: length");
            assert_eq!(index_hash(blend), want["index"], "{label}: index arrays");
            assert_eq!(items_hash(blend, case), want["items"], "{label}: items");
            assert_eq!(
                !blend.dataset_index().is_empty(),
                is(&want["mixed"]),
                "{label}"
            );
            compared += 1;
        }
    }
    assert_eq!(compared, 122, "parts compared");
}

fn index_hash(blend: &Blend) -> String {
    let mut hash = Hash::new();
    for d in blend.dataset_index() {
        hash.add(&d.to_le_bytes());
    }
    hash.numbers(blend.dataset_sample_index().iter().copied());
    for d in blend.datasets() {
        let i = d.indices();
        hash.add(i.document_index.bytes())
            .add(i.sample_index.bytes())
            .add(i.shuffle_index.bytes());
    }
    hash.hex()
}

fn items_hash(blend: &Blend, case: &Value) -> String {
    // a pad id that is also the end of documents is no pad id, unless the user insists
    let pad = case["pad"].as_u64().filter(|p| *p != 0);
    let options = ItemOptions {
        eod: 0,
        pad: pad.map(|p| u32::try_from(p).unwrap()),
        eod_mask_loss: is(&case["eod_mask"]),
        reset_position_ids: is(&case["positions"]),
        reset_attention_mask: is(&case["attention"]),
        inter_document: false,
    };
    let (mut hash, mut item) = (Hash::new(), GptItem::default());
    let n = blend.len();
    let mut places = vec![0, 1, 2, n / 2, n - 1];
    places.sort_unstable();
    places.dedup();
    for k in places.into_iter().filter(|k| *k < n) {
        let (d, sample) = blend.place(k).unwrap();
        blend.datasets()[d]
            .item(sample, &options, &mut item)
            .unwrap();
        let signed = |v: &[u32]| v.iter().map(|t| i64::from(*t)).collect::<Vec<_>>();
        hash.numbers(signed(&item.tokens))
            .numbers(signed(&item.labels));
        #[expect(clippy::cast_possible_truncation, reason = "0 or 1")]
        hash.numbers(item.loss_mask.iter().map(|m| *m as i64));
        hash.numbers(signed(&item.position_ids));
        if is(&case["mask"]) {
            let mask: Vec<u8> = item.attention_mask().into_iter().map(u8::from).collect();
            hash.add(&mask);
        }
    }
    hash.hex()
}

/// The cache of a case; prefixes are relative, as in the oracle script.
fn cache_for(case: &Value, tokenizer: &Value, folder: &Path) -> Cache {
    Cache::new(folder, case["split"].as_str(), tokenizer.clone()).unwrap()
}

#[test]
fn cache_files_have_the_names_that_megatron_gives_them() {
    let golden = golden();
    let dir = tempfile::tempdir().unwrap();
    write_all(&golden, dir.path());
    let mut compared = 0;
    for (c, case) in golden["cases"].as_array().unwrap().iter().enumerate() {
        if case["refused"] == true {
            continue;
        }
        let cache = cache_for(case, &golden["tokenizer"], dir.path());
        for (part, blend) in Part::ALL
            .into_iter()
            .zip(build(case, dir.path(), None).unwrap())
        {
            let want = case["parts"][part.name()]["md5"].clone();
            let Some(blend) = blend.filter(|b| !b.is_empty()) else {
                continue;
            };
            let name = |d: &index::samples::GptSamples| {
                d.dataset().prefix().file_name().unwrap().to_owned()
            };
            let mut got = Vec::new();
            if !blend.dataset_index().is_empty() {
                let all = blend.datasets().iter().map(|d| {
                    cache.identifiers("GPTDataset", Path::new(&name(d)), part, d.request())
                });
                let lengths = blend.weights().iter().sum::<f64>() > 1.5;
                let size = (!lengths).then_some(blend.len());
                got.push(
                    cache
                        .describe_blend(all.collect(), part, blend.weights(), size)
                        .md5,
                );
            }
            for d in blend.datasets() {
                got.push(
                    cache
                        .describe_gpt(Path::new(&name(d)), part, d.request())
                        .md5,
                );
            }
            assert_eq!(Value::from(got), want, "{} of case {c}", part.name());
            compared += 1;
        }
    }
    assert_eq!(compared, 122);
}

fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_cached_index_is_mapped_again_and_rebuilt_when_the_data_changed() {
    let golden = golden();
    let dir = tempfile::tempdir().unwrap();
    write_all(&golden, dir.path());
    let case = &golden["cases"][2];
    let folder = dir.path().join("cache");
    let cache = || cache_for(case, &golden["tokenizer"], &folder);
    let want = |part: Part| case["parts"][part.name()]["index"].clone();
    let run = |label: &str, notes: usize| {
        let cache = cache();
        let parts = build(case, dir.path(), Some(&cache)).unwrap();
        for (part, blend) in Part::ALL.into_iter().zip(&parts) {
            if let Some(b) = blend {
                assert_eq!(index_hash(b), want(part), "{label}");
            }
        }
        assert_eq!(cache.notes().len(), notes, "{label}: {:?}", cache.notes());
    };
    run("built", 0);
    let written = files(&folder);
    assert_eq!(written.len(), 4 * 5 + 2 * 4, "{written:?}");
    run("mapped", 0);
    assert_eq!(files(&folder), written);
    // Megatron's own files come without our record
    for name in written.iter().filter(|n| n.ends_with("millrace.json")) {
        std::fs::remove_file(folder.join(name)).unwrap();
    }
    run("without records", 0);
    // a flipped byte, a truncated file: rebuilt
    let named = |suffix: &str| written.iter().find(|n| n.ends_with(suffix)).unwrap();
    let sample_index = folder.join(named("sample_index.npy"));
    let mut bytes = std::fs::read(&sample_index).unwrap();
    let last = bytes.len() - 1;
    bytes[last - 8] ^= 1;
    std::fs::write(&sample_index, &bytes).unwrap();
    run("flipped", 1);
    std::fs::write(&sample_index, &bytes[..last]).unwrap();
    run("cut", 1);
    run("whole again", 0);
    // the same prefix, other documents
    write(&dir.path().join("a"), 77, 2000);
    let cache = cache();
    build(case, dir.path(), Some(&cache)).unwrap();
    let text = cache.notes().join("\n");
    assert!(
        text.contains("lengths: found") || text.contains("file size") || text.contains("header"),
        "{text}"
    );
}

#[test]
fn cached_arrays_that_are_not_the_order_are_built_again_and_named() {
    let golden = golden();
    let dir = tempfile::tempdir().unwrap();
    write_all(&golden, dir.path());
    let case = &golden["cases"][2];
    let folder = dir.path().join("cache");
    let run = |label: &str| -> Vec<String> {
        let cache = cache_for(case, &golden["tokenizer"], &folder);
        let parts = build(case, dir.path(), Some(&cache)).unwrap();
        for (part, blend) in Part::ALL.into_iter().zip(&parts) {
            if let Some(b) = blend {
                assert_eq!(
                    index_hash(b),
                    case["parts"][part.name()]["index"],
                    "{label}"
                );
                let tokens = usize::try_from(b.datasets()[0].sample_tokens());
                let mut tokens = vec![0; tokens.unwrap()];
                for k in 0..b.len() {
                    b.read(k, &mut tokens).unwrap();
                }
            }
        }
        cache.notes()
    };
    assert!(run("built").is_empty());
    let forget = || {
        for name in files(&folder) {
            if name.ends_with("millrace.json") {
                std::fs::remove_file(folder.join(name)).unwrap();
            }
        }
    };
    // 128 bytes of header; numbers of 2, 4 or 8 bytes
    type Damage<'a> = (&'a str, &'a dyn Fn(&mut [u8]));
    let faults: [Damage; 4] = [
        ("zeros", &|numbers| numbers.fill(0)),
        ("out of range", &|numbers| numbers.fill(0x7f)),
        ("negative", &|numbers| numbers.fill(0xff)),
        ("a number twice", &|numbers| numbers.copy_within(8..16, 0)),
    ];
    let mut damaged = 0;
    for array in files(&folder).iter().filter(|n| n.ends_with(".npy")) {
        let path = folder.join(array);
        let good = std::fs::read(&path).unwrap();
        for (fault, damage) in &faults {
            let mut bad = good.clone();
            damage(&mut bad[128..]);
            if bad == good {
                continue;
            }
            std::fs::write(&path, &bad).unwrap();
            forget();
            let label = format!("{fault} in {array}");
            let notes = run(&label);
            let set = array.rsplit_once('-').unwrap().0;
            assert_eq!(notes.len(), 1, "{label}: {notes:?}");
            assert!(
                notes[0].contains(set) && notes[0].contains("built again"),
                "{notes:?}"
            );
            assert!(std::fs::read(&path).unwrap() == good, "{label}: not mended");
            assert!(run(&label).is_empty(), "{label}: noted twice");
            damaged += 1;
        }
    }
    assert!(damaged >= 4 * 12, "{damaged} damaged arrays");
}

#[test]
fn cache_files_are_megatrons_byte_for_byte() {
    let golden = golden();
    let dir = tempfile::tempdir().unwrap();
    write_all(&golden, dir.path());
    let mut compared = 0;
    for case in golden["cases"].as_array().unwrap() {
        for part in Part::ALL {
            let want = &case["parts"][part.name()];
            let Some(npy) = want["npy"].as_array() else {
                continue;
            };
            let folder = dir.path().join(format!("cache{compared}"));
            let cache = cache_for(case, &golden["tokenizer"], &folder);
            build(case, dir.path(), Some(&cache)).unwrap();
            let all: Vec<String> = files(&folder)
                .iter()
                .filter(|n| n.ends_with(".npy"))
                .map(|n| {
                    Hash::new()
                        .add(&std::fs::read(folder.join(n)).unwrap())
                        .hex()
                })
                .collect();
            // descriptions hold absolute prefixes here: their hash is compared in the test above
            let arrays = npy.iter().enumerate().filter(|(i, _)| i % 4 != 0);
            for (i, hash) in arrays {
                assert!(all.iter().any(|h| h == hash), "file {i} of {}", part.name());
                compared += 1;
            }
        }
    }
    assert!(compared >= 30, "{compared} files");
}
