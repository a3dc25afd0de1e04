//! Many objects of a store replaced at once: new ones are put below `takedown/staged/`, then `takedown/commit.json` is created, where
//! there is none, and lists them; from its phase `decided` on they are put in their places.
//!
//! A store has no lock. Two takedowns cannot both create the list, and only the one that has created it removes staged objects, so
//! that none loses them to another. A job that ran while the new objects were made has replaced `manifest.json`: then nothing is
//! done. A process that is killed before the phase `decided` changes nothing; after it the next start finishes.

use super::transaction::{Changes, New, STAGED};
use crate::context::PENDING;
use crate::machine::{checksum, checksum_bytes, hostname};
use crate::manifest::{self, NAME};
use anyhow::{Context as _, Result, bail};
use curate::store::{ObjectFolder, Put, is_inside};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The requests of a store that a takedown makes.
pub(super) trait Objects: Sync {
    /// Names and sizes in bytes of the objects below a folder, in name order.
    fn list(&self, below: &str) -> Result<Vec<(String, u64)>>;
    /// A small object and its version.
    fn read(&self, name: &str) -> Result<Option<Read>>;
    /// Copies an object into a file that appears whole; false if there is none.
    fn fetch(&self, name: &str, path: &Path) -> Result<bool>;
    fn put(&self, name: &str, file: &Path) -> Result<()>;
    fn put_if(&self, name: &str, bytes: &[u8], expected: Option<&str>) -> Result<Put>;
    /// An object that is not there counts as removed.
    fn remove(&self, name: &str) -> Result<()>;
    fn url(&self, name: &str) -> String;
}

/// A small object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Read {
    pub bytes: Vec<u8>,
    pub version: Option<String>,
}

impl Objects for ObjectFolder {
    fn list(&self, below: &str) -> Result<Vec<(String, u64)>> {
        Ok(ObjectFolder::list(self, below)?)
    }

    fn read(&self, name: &str) -> Result<Option<Read>> {
        let found = ObjectFolder::read(self, name)?;
        Ok(found.map(|(bytes, version)| Read { bytes, version }))
    }

    fn fetch(&self, name: &str, path: &Path) -> Result<bool> {
        manifest::fetch(self, name, path)
    }

    fn put(&self, name: &str, file: &Path) -> Result<()> {
        Ok(ObjectFolder::put(self, name, file)?)
    }

    fn put_if(&self, name: &str, bytes: &[u8], expected: Option<&str>) -> Result<Put> {
        Ok(ObjectFolder::put_if(self, name, bytes, expected)?)
    }

    fn remove(&self, name: &str) -> Result<()> {
        Ok(ObjectFolder::remove(self, name)?)
    }

    fn url(&self, name: &str) -> String {
        ObjectFolder::url(self, name)
    }
}

/// How far a transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Phase {
    /// Nothing is in its place, and may never be.
    Prepared,
    /// All will be put in their places.
    Decided,
    /// All are in their places, or nothing will be: staged objects are removed.
    Ended,
}

/// The list of new objects, `takedown/commit.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Commit {
    /// Folder of the objects below `takedown/staged/`, another one for every process.
    id: String,
    phase: Phase,
    files: Vec<New>,
    remove: Vec<String>,
}

impl Commit {
    fn new(phase: Phase, changes: Changes) -> Commit {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let nanos = since.map_or(0, |since| since.as_nanos());
        let process = format!("{} {} {nanos}", hostname(), std::process::id());
        Commit {
            id: checksum_bytes(process.as_bytes()),
            phase,
            files: changes.files,
            remove: changes.remove,
        }
    }

    fn staged(&self, file: &New) -> String {
        format!("{STAGED}/{}/{}", self.id, file.path)
    }

    fn text(&self) -> Result<Vec<u8>> {
        Ok((serde_json::to_string_pretty(self)? + "\n").into_bytes())
    }
}

/// Folders of this machine.
pub(super) struct Places<'a> {
    /// The job's folder, with copies of some objects.
    pub home: &'a Path,
    /// New files under their names; those that are not there are fetched.
    pub copy: &'a Path,
}

/// Replaces objects of a store. `manifest` is `manifest.json` as it was before the new files were made.
///
/// # Errors
/// If another process uses the store, which is as it was then; if the store takes no conditions (`If-None-Match`), or cannot be
/// reached.
pub(super) fn publish(
    objects: &impl Objects,
    places: &Places,
    changes: Changes,
    manifest: &Read,
) -> Result<()> {
    let commit = Commit::new(Phase::Prepared, changes);
    expect_conditions(objects, &format!("{STAGED}/{}.probe", commit.id))?;
    commit.files.par_iter().try_for_each(|file| {
        let path = places.copy.join(&file.path);
        objects.put(&commit.staged(file), &path)
    })?;
    let mut held = Held::create(objects, commit)?;
    let current = match held.verified(manifest) {
        Ok(current) => current,
        Err(why) => {
            held.end()?;
            return Err(why);
        }
    };
    held.set(Phase::Decided)?;
    if let Some(file) = held.commit.files.iter().find(|file| file.path == NAME) {
        let bytes = std::fs::read(places.copy.join(&file.path))
            .with_context(|| format!("cannot read {}", places.copy.join(NAME).display()))?;
        if !swap(objects, NAME, &bytes, current.version.as_deref())?.is_done() {
            // the first one that is put in its place, so that none is yet
            held.end()?;
            return Err(is_used(objects));
        }
    }
    held.finish(places)
}

/// Finishes what an earlier process has decided and not finished, and removes what one has left that decided nothing.
///
/// # Errors
/// If the store cannot be reached, or the staged objects are not those of the list.
pub(super) fn finish(objects: &impl Objects, places: &Places) -> Result<()> {
    let Some(Read { bytes, version }) = objects.read(PENDING)? else {
        if objects.list(STAGED)?.is_empty() {
            return Ok(());
        }
        let nothing = Commit::new(Phase::Ended, Changes::default());
        return Held::create(objects, nothing)?.end();
    };
    let commit: Commit = serde_json::from_slice(&bytes)
        .with_context(|| format!("{} is no list of new objects", objects.url(PENDING)))?;
    let names = commit.files.iter().map(|file| &file.path);
    for name in names.chain(&commit.remove) {
        if !is_inside(name) || name.is_empty() {
            bail!("{}: {name:?} is not in the folder", objects.url(PENDING));
        }
    }
    let held = Held {
        objects,
        commit,
        version,
    };
    match held.commit.phase {
        Phase::Decided => held.finish(places),
        Phase::Prepared | Phase::Ended => held.end(),
    }
}

/// Whether a takedown has not been finished.
pub(super) fn is_pending(objects: &impl Objects) -> Result<bool> {
    Ok(objects.read(PENDING)?.is_some())
}

/// The list of new objects that this process has created, or finishes.
struct Held<'a, O> {
    objects: &'a O,
    commit: Commit,
    version: Option<String>,
}

impl<O: Objects> Held<'_, O> {
    fn create(objects: &O, commit: Commit) -> Result<Held<'_, O>> {
        let text = commit.text()?;
        let Swap::Done(version) = swap(objects, PENDING, &text, None)? else {
            bail!(
                "{}: another takedown has not been finished; wait for its end, or run `millrace takedown` again to finish it",
                objects.url(PENDING)
            );
        };
        Ok(Held {
            objects,
            commit,
            version,
        })
    }

    /// Whether all new objects are there and the job's records are those of before, read anew.
    fn verified(&self, before: &Read) -> Result<Read> {
        let staged = self.objects.list(&format!("{STAGED}/{}", self.commit.id))?;
        let staged: BTreeMap<String, u64> = staged.into_iter().collect();
        let mut files = self.commit.files.iter();
        if let Some(file) =
            files.find(|file| staged.get(&self.commit.staged(file)) != Some(&file.bytes))
        {
            let url = self.objects.url(&self.commit.staged(file));
            bail!("{url} was removed by another takedown; run one at a time");
        }
        let current = self.objects.read(NAME)?.unwrap_or_default();
        if current.bytes != before.bytes {
            return Err(is_used(self.objects));
        }
        Ok(current)
    }

    fn set(&mut self, phase: Phase) -> Result<()> {
        self.commit.phase = phase;
        let text = self.commit.text()?;
        match swap(self.objects, PENDING, &text, self.version.as_deref())? {
            Swap::Done(version) => {
                self.version = version;
                Ok(())
            }
            Swap::Other => bail!(
                "{}: another takedown finishes this one; run one at a time",
                self.objects.url(PENDING)
            ),
        }
    }

    /// Puts the objects in their places.
    fn finish(self, places: &Places) -> Result<()> {
        let files = self.commit.files.par_iter();
        files.try_for_each(|file| self.place(file, places))?;
        let removed = self.commit.remove.par_iter();
        removed.try_for_each(|name| {
            self.objects.remove(name)?;
            remove_file(&places.home.join(name))
        })?;
        self.end()
    }

    /// Puts an object in its place, and the file in that of an old copy in the job's folder.
    fn place(&self, file: &New, places: &Places) -> Result<()> {
        let path = places.copy.join(&file.path);
        let is_whole = |path: &Path| {
            let metadata = std::fs::metadata(path);
            metadata.is_ok_and(|found| found.len() == file.bytes)
                && checksum(path).is_ok_and(|sum| sum == file.xxh3)
        };
        if !is_whole(&path) {
            let staged = self.commit.staged(file);
            let is_there = self.objects.fetch(&staged, &path)?;
            if !is_there || !is_whole(&path) {
                bail!(
                    "{} is not the object that {} names",
                    self.objects.url(&staged),
                    self.objects.url(PENDING)
                );
            }
        }
        self.objects.put(&file.path, &path)?;
        let old = places.home.join(&file.path);
        match old.exists() {
            true => std::fs::rename(&path, &old)
                .with_context(|| format!("cannot write {}", old.display())),
            false => Ok(()),
        }
    }

    /// Removes the staged objects of all processes, then the list, once no other process can take it for decided.
    fn end(mut self) -> Result<()> {
        if self.commit.phase != Phase::Ended {
            self.set(Phase::Ended)?;
        }
        let staged = self.objects.list(STAGED)?;
        let removed = staged.par_iter();
        removed.try_for_each(|(name, _)| self.objects.remove(name))?;
        self.objects.remove(PENDING)
    }
}

/// Result of a replacement.
enum Swap {
    /// In this version.
    Done(Option<String>),
    Other,
}

impl Swap {
    fn is_done(&self) -> bool {
        matches!(self, Swap::Done(_))
    }
}

/// Puts a small object in the place of the expected version. A request that was made again because its answer got lost finds the
/// object that it has put.
fn swap(objects: &impl Objects, name: &str, bytes: &[u8], expected: Option<&str>) -> Result<Swap> {
    match objects.put_if(name, bytes, expected)? {
        Put::Done(version) => Ok(Swap::Done(version)),
        Put::Other => Ok(match objects.read(name)? {
            Some(found) if found.bytes == bytes => Swap::Done(found.version),
            _ => Swap::Other,
        }),
    }
}

/// Tries on an object of this process alone whether the store replaces and keeps objects under conditions.
fn expect_conditions(objects: &impl Objects, probe: &str) -> Result<()> {
    let puts = || -> Result<bool> {
        let Swap::Done(version) = swap(objects, probe, b"1", None)? else {
            return Ok(false);
        };
        let is_replaced = swap(objects, probe, b"2", version.as_deref())?.is_done();
        let is_kept = objects.put_if(probe, b"3", None)? == Put::Other;
        Ok(is_replaced && is_kept)
    };
    let has_conditions = puts().with_context(|| {
        format!(
            "{}: the store does not put objects under conditions",
            objects.url("")
        )
    })?;
    objects.remove(probe)?;
    if !has_conditions {
        bail!(
            "{}: the store puts objects whatever the condition (If-None-Match, If-Match); wanted a store with conditional puts",
            objects.url("")
        );
    }
    Ok(())
}

fn is_used(objects: &impl Objects) -> anyhow::Error {
    anyhow::anyhow!(
        "{}: another process has replaced it in the meantime, and nothing was removed; run takedown while no job uses the store",
        objects.url(NAME)
    )
}

fn remove_file(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// A change of objects beside a request, by its number.
    type Beside = fn(usize, &mut BTreeMap<String, Vec<u8>>);

    /// A store in memory whose process is killed at a request.
    #[derive(Default)]
    struct Store(Mutex<State>);

    #[derive(Clone, Debug, Default)]
    struct State {
        objects: BTreeMap<String, Vec<u8>>,
        requests: usize,
        /// The request that is not answered, nor is one after it.
        kill: Option<usize>,
        /// Whether that one reaches the store.
        is_late: bool,
        has_no_conditions: bool,
        /// Called by each request with its number, before it is answered.
        beside: Option<Beside>,
    }

    fn version(bytes: &[u8]) -> String {
        checksum_bytes(bytes)
    }

    impl Store {
        fn of(objects: &[(&str, &str)]) -> Store {
            let objects = objects.iter();
            let objects = objects.map(|(name, text)| (name.to_string(), text.as_bytes().to_vec()));
            let objects = objects.collect();
            Store(Mutex::new(State {
                objects,
                ..State::default()
            }))
        }

        fn ask<T>(&self, request: impl FnOnce(&mut State) -> T) -> Result<T> {
            let mut state = self.0.lock().unwrap();
            let number = state.requests;
            state.requests += 1;
            if let Some(beside) = state.beside {
                beside(number, &mut state.objects);
            }
            match state.kill {
                Some(kill) if number > kill => bail!("killed"),
                Some(kill) if number == kill => {
                    if state.is_late {
                        request(&mut state);
                    }
                    bail!("killed")
                }
                _ => Ok(request(&mut state)),
            }
        }

        fn objects(&self) -> BTreeMap<String, String> {
            let state = self.0.lock().unwrap();
            let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).unwrap();
            let objects = state.objects.iter();
            objects.map(|(name, b)| (name.clone(), text(b))).collect()
        }
    }

    impl Objects for Store {
        fn list(&self, below: &str) -> Result<Vec<(String, u64)>> {
            let below = format!("{below}/");
            self.ask(|state| {
                let found = state.objects.iter();
                let found = found.filter(|(name, _)| name.starts_with(&below));
                found
                    .map(|(name, bytes)| (name.clone(), bytes.len() as u64))
                    .collect()
            })
        }

        fn read(&self, name: &str) -> Result<Option<Read>> {
            self.ask(|state| {
                let bytes = state.objects.get(name)?.clone();
                let version = Some(version(&bytes));
                Some(Read { bytes, version })
            })
        }

        fn fetch(&self, name: &str, path: &Path) -> Result<bool> {
            let found = self.ask(|state| state.objects.get(name).cloned())?;
            let Some(bytes) = found else { return Ok(false) };
            std::fs::create_dir_all(path.parent().unwrap())?;
            std::fs::write(path, bytes)?;
            Ok(true)
        }

        fn put(&self, name: &str, file: &Path) -> Result<()> {
            let bytes = std::fs::read(file)?;
            self.ask(|state| {
                state.objects.insert(name.to_string(), bytes);
            })
        }

        fn put_if(&self, name: &str, bytes: &[u8], expected: Option<&str>) -> Result<Put> {
            self.ask(|state| {
                let there = state.objects.get(name).map(|bytes| version(bytes));
                if there.as_deref() != expected && !state.has_no_conditions {
                    return Put::Other;
                }
                state.objects.insert(name.to_string(), bytes.to_vec());
                Put::Done(Some(version(bytes)))
            })
        }

        fn remove(&self, name: &str) -> Result<()> {
            self.ask(|state| {
                state.objects.remove(name);
            })
        }

        fn url(&self, name: &str) -> String {
            format!("s3://bucket/{name}")
        }
    }

    const BEFORE: [(&str, &str); 5] = [
        ("clean/00000.sig", "all"),
        ("clean/00001.sig", "others"),
        ("embeddings/00000", "vectors"),
        ("manifest.json", "{}"),
        ("report.html", "texts"),
    ];
    const AFTER: [(&str, &str); 4] = [
        ("clean/00000.sig", "few"),
        ("clean/00001.sig", "others"),
        ("manifest.json", "{\"curate\": 1}"),
        ("takedown/00001.json", "a record"),
    ];

    fn map(objects: &[(&str, &str)]) -> BTreeMap<String, String> {
        let objects = objects.iter();
        objects
            .map(|(name, text)| (name.to_string(), text.to_string()))
            .collect()
    }

    /// The folders of a machine; the job's has an old copy of an object.
    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new() -> Machine {
            let dir = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(dir.path().join("clean")).unwrap();
            std::fs::write(dir.path().join("clean/00000.sig"), "all").unwrap();
            std::fs::write(dir.path().join("report.html"), "texts").unwrap();
            Machine(dir)
        }

        fn copy(&self) -> std::path::PathBuf {
            self.0.path().join("takedown/copy")
        }

        /// Makes the new files and puts them into the store.
        fn publish(&self, store: &Store) -> Result<()> {
            let copy = self.copy();
            let mut changes = Changes {
                files: Vec::new(),
                remove: vec!["report.html".into(), "embeddings/00000".into()],
            };
            for (name, text) in AFTER.iter().filter(|object| !BEFORE.contains(object)) {
                let path = copy.join(name);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(&path, text).unwrap();
                changes.files.push(New {
                    path: name.to_string(),
                    bytes: text.len() as u64,
                    xxh3: checksum(&path).unwrap(),
                });
            }
            let manifest = Read {
                bytes: b"{}".to_vec(),
                version: None,
            };
            let home = self.0.path();
            publish(store, &Places { home, copy: &copy }, changes, &manifest)
        }

        fn finish(&self, store: &Store) -> Result<()> {
            let (home, copy) = (self.0.path(), self.copy());
            finish(store, &Places { home, copy: &copy })
        }
    }

    /// One thread, so that the requests before the one that fails are the same ones every time.
    fn alone<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        let one = rayon::ThreadPoolBuilder::new().num_threads(1);
        one.build().unwrap().install(work)
    }

    /// The store after a process that was killed at a request, if it was.
    fn killed(kill: usize, is_late: bool) -> Option<Store> {
        let store = Store::of(&BEFORE);
        let state = &mut store.0.lock().unwrap().clone();
        (state.kill, state.is_late) = (Some(kill), is_late);
        let store = Store(Mutex::new(state.clone()));
        // its copy is lost with it
        let machine = Machine::new();
        let done = alone(|| machine.publish(&store));
        let mut state = store.0.lock().unwrap().clone();
        (state.kill, state.requests) = (None, 0);
        done.is_err().then(|| Store(Mutex::new(state)))
    }

    #[test]
    fn a_kill_at_any_request_leaves_all_old_or_all_new_objects_or_a_list_that_is_finished() {
        let machine = Machine::new();
        let calm = Store::of(&BEFORE);
        alone(|| machine.publish(&calm)).unwrap();
        assert_eq!(calm.objects(), map(&AFTER));
        let old = std::fs::read_to_string(machine.0.path().join("clean/00000.sig")).unwrap();
        assert_eq!(old, "few", "the copy of the machine's folder is replaced");
        assert!(!machine.0.path().join("report.html").exists());
        let (mut kills, mut pending) = (0, 0);
        for is_late in [false, true] {
            for kill in 0.. {
                let Some(store) = killed(kill, is_late) else {
                    break;
                };
                kills += 1;
                let mut seen = store.objects();
                let is_refused = seen.contains_key(PENDING);
                seen.retain(|name, _| !name.starts_with("takedown/staged/"));
                let is_whole = seen == map(&BEFORE) || seen == map(&AFTER);
                assert!(is_refused || is_whole, "{kill}: {seen:?}");
                pending += usize::from(is_refused);
                // another machine, which may be killed as well
                for again in 0.. {
                    let twice = store.0.lock().unwrap().clone();
                    let twice = Store(Mutex::new(State {
                        kill: Some(again),
                        is_late,
                        ..twice
                    }));
                    let is_done = alone(|| Machine::new().finish(&twice)).is_ok();
                    twice.0.lock().unwrap().kill = None;
                    let machine = Machine::new();
                    alone(|| machine.finish(&twice)).unwrap();
                    if twice.objects() != map(&AFTER) {
                        assert_eq!(twice.objects(), map(&BEFORE), "{kill}, {again}");
                        alone(|| machine.publish(&twice)).unwrap();
                    }
                    assert_eq!(twice.objects(), map(&AFTER), "{kill}, {again}");
                    if is_done {
                        break;
                    }
                }
            }
        }
        assert!(
            kills >= 36 && pending > 20,
            "{kills} kills, {pending} lists"
        );
    }

    #[test]
    fn a_store_that_another_process_has_changed_is_left_to_it() {
        // while new objects are put, while the list is made, before it is decided and after
        let mut refused = 0;
        for (at, beside) in [
            (0, job_at::<0> as Beside),
            (5, job_at::<5>),
            (8, job_at::<8>),
            (9, job_at::<9>),
            (11, job_at::<11>),
        ] {
            let store = Store::of(&BEFORE);
            store.0.lock().unwrap().beside = Some(beside);
            let why = alone(|| Machine::new().publish(&store));
            store.0.lock().unwrap().beside = None;
            let mut wanted = map(&BEFORE);
            wanted.insert("manifest.json".into(), "of a job".into());
            if let Err(why) = why {
                assert!(why.to_string().contains("another process"), "{at}: {why}");
                assert_eq!(store.objects(), wanted, "{at}");
                refused += 1;
            }
        }
        assert_eq!(refused, 5);
    }

    fn job_at<const AT: usize>(number: usize, objects: &mut BTreeMap<String, Vec<u8>>) {
        if number == AT {
            objects.insert(NAME.into(), b"of a job".to_vec());
        }
    }

    #[test]
    fn of_two_takedowns_at_a_time_one_is_refused() {
        let store = Store::of(&BEFORE);
        store.0.lock().unwrap().kill = Some(11);
        // killed once its list is there
        alone(|| Machine::new().publish(&store)).unwrap_err();
        store.0.lock().unwrap().kill = None;
        assert!(is_pending(&store).unwrap());
        let before = store.objects();
        let why = alone(|| Machine::new().publish(&store)).unwrap_err();
        assert!(why.to_string().contains("another takedown"), "{why}");
        let mut after = store.objects();
        // but for what it has staged in a folder of its own
        after.retain(|name, _| before.contains_key(name));
        assert_eq!(after, before);
    }

    #[test]
    fn a_store_without_conditions_and_wrong_lists_are_refused() {
        let store = Store::of(&BEFORE);
        store.0.lock().unwrap().has_no_conditions = true;
        let why = alone(|| Machine::new().publish(&store)).unwrap_err();
        assert!(why.to_string().contains("conditional puts"), "{why}");
        assert_eq!(store.objects(), map(&BEFORE));
        for (list, wanted) in [
            ("{", "no list of new objects"),
            (
                r#"{"id":"x","phase":"decided","files":[{"path":"../x","bytes":1,"xxh3":""}],"remove":[]}"#,
                "is not in the folder",
            ),
            (
                r#"{"id":"x","phase":"decided","files":[{"path":"clean/x","bytes":1,"xxh3":""}],"remove":[]}"#,
                "is not the object that",
            ),
        ] {
            let store = Store::of(&[(PENDING, list), ("takedown/staged/x/clean/x", "other")]);
            let before = store.objects();
            let why = alone(|| Machine::new().finish(&store)).unwrap_err();
            assert!(why.to_string().contains(wanted), "{why}");
            assert_eq!(store.objects(), before);
        }
    }
}
