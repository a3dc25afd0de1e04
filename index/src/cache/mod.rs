//! Cache of index arrays on disk in Megatron's own files, so that Megatron and Millrace can use each other's.
//!
//! A set is `<md5>-<class>-<part>-` + `description.txt` and one `.npy` per array; md5 is of the description, a JSON
//! text of everything that Megatron takes to fix the arrays (class, path, samples, part, seed, length, split,
//! tokenizer). Arrays are read into memory and checked there, so later changes of the file have no effect. Source:
//! megatron-core 0.16.1 `megatron_dataset.py`, `gpt_dataset.py`, `blended_dataset.py` (facts). We differ: Megatron
//! reuses a set although the dataset under the same path, the extra token or the last partial sample changed. A
//! fourth file of ours, `<base>-millrace.json`, covers everything that really fixes the arrays (all lengths, both
//! flags) and has a checksum of each; a set that disagrees is rebuilt, with a log line on why. A set without it
//! (Megatron's) is used only if recomputing the walk over its document_index gives its sample_index. Every file is
//! written under a temporary name and renamed, the description last.

mod md5;
mod npy;
mod python_json;

use crate::array::Array;
use crate::dataset::read::Dataset;
use crate::error::{At, Error, Result};
use crate::samples::{GptIndices, Order, Places, Request, Sizes, Starts};
use crate::split::{Bounds, Part};
use npy::Element;
use serde_json::{Value, json};
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// A folder of cached index arrays, with the fields of Megatron's descriptions that are not in the request.
pub struct Cache {
    folder: PathBuf,
    /// The split as written and its bounds; none where every part has separate datasets.
    split: Option<(String, [Option<Bounds>; 3])>,
    /// `unique_identifiers` of Megatron's tokenizer object, in its order.
    tokenizer: Value,
    notes: Mutex<Vec<String>>,
}

/// A description and the md5 that names its files.
pub struct Description {
    /// The text of `description.txt`.
    pub text: String,
    /// Its md5 in hex.
    pub md5: String,
}

impl Description {
    fn of(value: &Value) -> Description {
        let text = python_json::dumps(value);
        let md5 = md5::hex(text.as_bytes());
        Description { text, md5 }
    }
}

/// One cached set of a GPT dataset.
pub(crate) struct GptEntry<'a> {
    cache: &'a Cache,
    base: String,
    description: Description,
    lengths: String,
    request: Request,
}

fn checksum(bytes: &[u8]) -> String {
    format!("{:032x}", xxhash_rust::xxh3::xxh3_128(bytes))
}

impl Cache {
    /// A cache in `folder`, which is made when something is stored.
    ///
    /// # Errors
    /// `Split`.
    pub fn new(folder: &Path, split: Option<&str>, tokenizer: Value) -> Result<Cache> {
        let split = match split {
            Some(s) => Some((s.to_string(), crate::split::parse(s)?)),
            None => None,
        };
        Ok(Cache {
            folder: folder.to_path_buf(),
            split,
            tokenizer,
            notes: Mutex::default(),
        })
    }

    /// Reasons why existing sets were not used, one line each.
    pub fn notes(&self) -> Vec<String> {
        self.notes.lock().map(|n| n.clone()).unwrap_or_default()
    }

    fn note(&self, base: &str, why: &str) {
        let folder = self.folder.display();
        self.say(format!("{folder}: {base}: built again: {why}"));
    }

    fn say(&self, line: String) {
        if let Ok(mut notes) = self.notes.lock() {
            notes.push(line);
        }
    }

    /// Megatron's `unique_identifiers` of a dataset of `class`, in its order.
    pub fn identifiers(&self, class: &str, prefix: &Path, part: Part, r: &Request) -> Value {
        let split = self.split.as_ref();
        // Python's sum of shares starts with the integer 0, and prints it as one
        let bounds = |(i, b): (usize, &Option<Bounds>)| match b {
            Some((_, to)) if i == 0 => json!([0, to]),
            Some((from, to)) => json!([from, to]),
            None => Value::Null,
        };
        let matrix: Option<Vec<Value>> =
            split.map(|s| s.1.iter().enumerate().map(bounds).collect());
        json!({
            "class": class,
            "dataset_path": prefix.display().to_string(),
            "num_samples": r.samples,
            "index_split": part.name(),
            "random_seed": r.seed,
            "sequence_length": r.seq_length,
            "split": split.map(|s| s.0.as_str()),
            "split_matrix": matrix,
            "tokenizer": self.tokenizer,
        })
    }

    /// The description of a GPT dataset.
    pub fn describe_gpt(&self, prefix: &Path, part: Part, r: &Request) -> Description {
        Description::of(&self.identifiers("GPTDataset", prefix, part, r))
    }

    /// The description of a blend of datasets with these identifiers; without a size the weights are lengths.
    pub fn describe_blend(
        &self,
        datasets: Vec<Value>,
        part: Part,
        weights: &[f64],
        size: Option<u64>,
    ) -> Description {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "lengths, counted in integers"
        )]
        let whole = |w: &f64| json!(*w as u64);
        let weights: Vec<Value> = match size {
            Some(_) => weights.iter().map(|w| json!(w)).collect(),
            None => weights.iter().map(whole).collect(),
        };
        Description::of(&json!({
            "class": "BlendedDataset",
            "datasets": datasets,
            "split": part.name(),
            "weights": weights,
            "size": size,
        }))
    }

    /// The description of a masked dataset (BERT, T5): `more` holds its own settings, in Megatron's order.
    pub fn describe_masked(
        &self,
        class: &str,
        prefix: &Path,
        part: Part,
        r: &Request,
        more: Value,
    ) -> Description {
        let mut all = self.identifiers(class, prefix, part, r);
        if let (Some(all), Value::Object(more)) = (all.as_object_mut(), more) {
            all.extend(more);
        }
        Description::of(&all)
    }

    pub(crate) fn gpt(&self, dataset: &Dataset, part: Part, request: &Request) -> GptEntry<'_> {
        let description = self.describe_gpt(dataset.prefix(), part, request);
        GptEntry {
            cache: self,
            base: format!("{}-GPTDataset-{}", description.md5, part.name()),
            description,
            lengths: checksum(dataset.lengths_bytes()),
            request: *request,
        }
    }

    fn path(&self, base: &str, affix: &str) -> PathBuf {
        self.folder.join(format!("{base}-{affix}"))
    }

    /// Writes one file whole or not at all.
    fn put(
        &self,
        base: &str,
        affix: &str,
        write: impl FnOnce(&mut dyn Write) -> Result<()>,
    ) -> Result<()> {
        let path = self.path(base, affix);
        std::fs::create_dir_all(&self.folder).at(&self.folder)?;
        let file = crate::dataset::atomic::temporary_in(&self.folder).at(&self.folder)?;
        let mut out = std::io::BufWriter::with_capacity(1 << 20, file);
        write(&mut out)?;
        let file = out
            .into_inner()
            .map_err(std::io::IntoInnerError::into_error)
            .at(&path)?;
        file.as_file().sync_all().at(&path)?;
        file.persist(&path).map_err(|e| e.error).at(&path)?;
        Ok(())
    }

    fn put_array<T: Element>(&self, base: &str, affix: &str, array: &[T]) -> Result<()> {
        let path = self.path(base, affix);
        self.put(base, affix, |mut out| npy::write(&mut out, array, &path))
    }

    /// Reads our own record beside a set; `None` if there is no readable file.
    fn record(&self, base: &str) -> Option<Value> {
        let text = std::fs::read_to_string(self.path(base, "millrace.json")).ok()?;
        Some(serde_json::from_str(&text).unwrap_or_default())
    }

    fn put_record(&self, base: &str, record: &Value) -> Result<()> {
        let text = format!("{record:#}\n");
        let path = self.path(base, "millrace.json");
        self.put(base, "millrace.json", |out| {
            out.write_all(text.as_bytes()).at(&path)
        })
    }

    fn put_description(&self, base: &str, description: &str) -> Result<()> {
        let path = self.path(base, "description.txt");
        self.put(base, "description.txt", |out| {
            out.write_all(description.as_bytes()).at(&path)
        })
    }

    /// Stores newly built arrays. If the folder is read-only they stay in memory only, with a log line.
    fn keep(&self, base: &str, store: impl FnOnce() -> Result<()>) -> Result<()> {
        use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
        match store() {
            Err(Error::Io { path, source })
                if matches!(source.kind(), PermissionDenied | ReadOnlyFilesystem) =>
            {
                self.say(format!(
                    "{}: {base}: not stored: {}: {source}",
                    self.folder.display(),
                    path.display()
                ));
                Ok(())
            }
            done => done,
        }
    }

    fn is_there(&self, base: &str, affixes: &[&str]) -> bool {
        affixes.iter().all(|a| self.path(base, a).is_file())
    }

    /// The two arrays of a blend of `size` samples, from the cache or by `build` and then stored.
    pub(crate) fn blend(
        &self,
        description: &Description,
        part: Part,
        size: usize,
        build: impl FnOnce() -> Result<(Array<i16>, Array<i64>)>,
    ) -> Result<(Array<i16>, Array<i64>)> {
        let base = format!("{}-BlendedDataset-{}", description.md5, part.name());
        let names = ["dataset_index.npy", "dataset_sample_index.npy"];
        let open = || -> Result<(Array<i16>, Array<i64>)> {
            Ok((
                npy::read(&self.path(&base, names[0]), size)?,
                npy::read(&self.path(&base, names[1]), size)?,
            ))
        };
        let record = |c: &(Array<i16>, Array<i64>)| json!({ "arrays": [checksum(c.0.bytes()), checksum(c.1.bytes())] });
        let store = |c: &(Array<i16>, Array<i64>)| {
            self.put_array(&base, names[0], &c.0)?;
            self.put_array(&base, names[1], &c.1)?;
            self.put_record(&base, &record(c))?;
            self.put_description(&base, &description.text)
        };
        let set = Set {
            cache: self,
            base: &base,
            files: &["description.txt", names[0], names[1]],
        };
        set.take_or_build(&open, &record, build, &store)
    }

    /// The sample index of a masked dataset of at least `samples` samples, from the cache or by `build` and then stored.
    pub(crate) fn masked(
        &self,
        (class, description): (&str, &Description),
        dataset: &Dataset,
        documents: &Range<u64>,
        samples: u64,
        build: impl FnOnce() -> Result<Vec<[u32; 3]>>,
    ) -> Result<Array<[u32; 3]>> {
        let base = format!("{}-{class}", description.md5);
        let path = self.path(&base, "sample_index.npy");
        // whole epochs are built, and a row has at least one sentence
        let most = samples.saturating_add(dataset.sequences());
        let open = || npy::read::<[u32; 3]>(&path, npy::rows::<[u32; 3]>(&path, most)?);
        let at = |d: u64| dataset.document(usize::try_from(d).unwrap_or(usize::MAX));
        let mut bounds = xxhash_rust::xxh3::Xxh3::new();
        documents
            .clone()
            .for_each(|d| bounds.update(&at(d).end.to_le_bytes()));
        let bounds = format!("{:032x}", bounds.digest128());
        let record = |rows: &Array<[u32; 3]>| {
            json!({
                "lengths": checksum(dataset.lengths_bytes()),
                "documents": bounds,
                "arrays": checksum(rows.bytes()),
            })
        };
        let store = |rows: &Array<[u32; 3]>| {
            self.put_array(&base, "sample_index.npy", rows)?;
            self.put_record(&base, &record(rows))?;
            self.put_description(&base, &description.text)
        };
        let set = Set {
            cache: self,
            base: &base,
            files: &["description.txt", "sample_index.npy"],
        };
        let build = || Ok(Array::from(build()?));
        set.take_or_build(&open, &record, build, &store)
    }
}

/// One set of files.
struct Set<'a> {
    cache: &'a Cache,
    base: &'a str,
    /// Affixes of the files of Megatron's set.
    files: &'a [&'a str],
}

impl Set<'_> {
    /// Loads the files if they are valid (ours and unchanged), else builds; invalid files are replaced, with a log
    /// line.
    fn take_or_build<T: PartialEq>(
        &self,
        open: &dyn Fn() -> Result<T>,
        record: &dyn Fn(&T) -> Value,
        build: impl FnOnce() -> Result<T>,
        store: &dyn Fn(&T) -> Result<()>,
    ) -> Result<T> {
        let (cache, base) = (self.cache, self.base);
        let mut foreign = None;
        if cache.is_there(base, self.files) {
            match (open(), cache.record(base)) {
                (Ok(found), Some(said)) => {
                    let is = record(&found);
                    if said == is {
                        return Ok(found);
                    }
                    cache.note(base, &difference(&said, &is));
                }
                (Ok(found), None) => foreign = Some(found),
                (Err(e), _) => cache.note(base, &e.to_string()),
            }
        }
        let built = build()?;
        match foreign {
            Some(found) if found == built => {
                // without the record the next start verifies again, as it must in a read-only folder
                let _ = cache.put_record(base, &record(&built));
                return Ok(built);
            }
            Some(_) => cache.note(base, "it differs from a rebuilt one"),
            None => {}
        }
        cache.keep(base, || store(&built))?;
        Ok(built)
    }
}

const ARRAYS: [&str; 3] = [
    "document_index.npy",
    "sample_index.npy",
    "shuffle_index.npy",
];

impl GptEntry<'_> {
    fn record(&self, arrays: Value) -> Value {
        json!({
            "lengths": self.lengths,
            "extra_token": self.request.extra_token,
            "drop_last": self.request.drop_last,
            "arrays": arrays,
        })
    }

    /// The arrays from the cache, or from `build` and then stored; the reason why a set is rejected is logged.
    pub(crate) fn indices(
        &self,
        documents: &Range<u64>,
        sizes: &Sizes,
        build: impl FnOnce() -> Result<GptIndices>,
    ) -> Result<GptIndices> {
        let set = Set {
            cache: self.cache,
            base: &self.base,
            files: &[ARRAYS[0], ARRAYS[1], ARRAYS[2], "description.txt"],
        };
        let record = |i: &GptIndices| self.record(sums(i));
        let open = || self.open(documents, sizes);
        set.take_or_build(&open, &record, build, &|built| self.store(built))
    }

    fn open(&self, documents: &Range<u64>, sizes: &Sizes) -> Result<GptIndices> {
        let Order { epochs, .. } = sizes.order;
        let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let path = |i: usize| self.cache.path(&self.base, ARRAYS[i]);
        let document_index: Array<i32> =
            npy::read(&path(0), size((documents.end - documents.start) * epochs))?;
        let rows = size(sizes.samples + 1);
        Ok(GptIndices {
            sample_index: match i32::try_from(document_index.len()) {
                Ok(_) => Starts::Narrow(npy::read(&path(1), rows)?),
                Err(_) => Starts::Wide(npy::read(&path(1), rows)?),
            },
            shuffle_index: match sizes.samples < u64::from(u32::MAX - 1) {
                true => Places::Narrow(npy::read(&path(2), rows - 1)?),
                false => Places::Wide(npy::read(&path(2), rows - 1)?),
            },
            document_index,
            order: sizes.order,
        })
    }

    fn store(&self, built: &GptIndices) -> Result<()> {
        let (cache, base) = (self.cache, &self.base);
        cache.put_array(base, ARRAYS[0], &built.document_index)?;
        match &built.sample_index {
            Starts::Narrow(a) => cache.put_array(base, ARRAYS[1], a)?,
            Starts::Wide(a) => cache.put_array(base, ARRAYS[1], a)?,
        }
        match &built.shuffle_index {
            Places::Narrow(a) => cache.put_array(base, ARRAYS[2], a)?,
            Places::Wide(a) => cache.put_array(base, ARRAYS[2], a)?,
        }
        cache.put_record(base, &self.record(sums(built)))?;
        cache.put_description(base, &self.description.text)
    }
}

fn sums(i: &GptIndices) -> Value {
    json!([
        checksum(i.document_index.bytes()),
        checksum(i.sample_index.bytes()),
        checksum(i.shuffle_index.bytes()),
    ])
}

/// The first field in which two records differ.
fn difference(found: &Value, wanted: &Value) -> String {
    let fields = ["lengths", "documents", "extra_token", "drop_last", "arrays"];
    let differs = fields.into_iter().find(|f| found[*f] != wanted[*f]);
    let f = differs.unwrap_or("lengths");
    format!("{f}: found {}, wanted {}", found[f], wanted[f])
}
