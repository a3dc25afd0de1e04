//! URL filter: lists of domains and addresses, words of which one is enough, words of which several are needed.
//!
//! The kinds of lists are FineWeb's (Penedo et al. 2024, arXiv:2406.17557; datatrove 0.10.1 `URLFilter`), the files
//! those of UT1 (one domain or address a line, `#` comments; a folder holds `domains` and `urls` of every
//! category). We differ: a listed domain covers all hosts under it, where datatrove looks up the host and the
//! registered domain; words of an address are compared in lower case, where datatrove lowers its lists and not the
//! address.

use std::path::{Path, PathBuf};

use aho_corasick::AhoCorasick;
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::check::{self, Problem};
use crate::contract::{Draft, Filter, Opening, StepConfig, StepScratch};
use crate::error::{At, Error, Result};
use crate::verdict::{Judge, KEEP, Verdict, broken};

/// The step's settings. Lists may be given in the job, in files, or both.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct UrlConfig {
    /// Files of domains and addresses, or folders in UT1's layout.
    pub lists: Vec<String>,
    /// Domains; hosts under them count.
    pub domains: Vec<String>,
    /// Words of which one drops a page.
    pub words: Vec<String>,
    /// Words of which `soft_word_threshold` different ones drop a page.
    pub soft_words: Vec<String>,
    /// Number of soft words that drops a page.
    pub soft_word_threshold: usize,
    /// Parts of words: they match anywhere, after separators are removed.
    pub subwords: Vec<String>,
    /// Drop documents without an address.
    pub require: bool,
}

impl Default for UrlConfig {
    fn default() -> Self {
        UrlConfig {
            lists: Vec::new(),
            domains: Vec::new(),
            words: Vec::new(),
            soft_words: Vec::new(),
            soft_word_threshold: 2,
            subwords: Vec::new(),
            require: false,
        }
    }
}

/// Largest size of lists; UT1's category adult has 4.6 million domains in 100 MB.
const MOST_BYTES: u64 = 4 << 30;

/// The lists, ready.
#[derive(Debug, Default)]
pub struct UrlFilter {
    /// Hashes: a corpus of addresses meets a wrong one with probability n m / 2^64.
    domains: FxHashSet<u64>,
    /// Bytes of the longest domain.
    longest: usize,
    addresses: FxHashSet<u64>,
    words: FxHashSet<String>,
    soft: FxHashSet<String>,
    threshold: usize,
    subwords: Option<AhoCorasick>,
    require: bool,
}

impl UrlFilter {
    /// Reads the lists.
    ///
    /// # Errors
    /// `Io` for a file that cannot be read; `Input` for one that holds no list.
    pub fn open(config: &UrlConfig) -> Result<UrlFilter> {
        let normals = |words: &[String]| words.iter().map(|w| normal(w)).collect::<Vec<_>>();
        let subwords = normals(&config.subwords);
        let mut filter = UrlFilter {
            words: normals(&config.words).into_iter().collect(),
            soft: normals(&config.soft_words).into_iter().collect(),
            threshold: config.soft_word_threshold,
            subwords: match subwords.is_empty() {
                true => None,
                false => Some(AhoCorasick::new(&subwords).map_err(|e| Error::Config {
                    key: "url.subwords".into(),
                    found: e.to_string(),
                    wanted: "fewer and shorter words".into(),
                })?),
            },
            require: config.require,
            ..UrlFilter::default()
        };
        for domain in &config.domains {
            filter.entry(domain);
        }
        for list in &config.lists {
            for file in files_of(Path::new(list))? {
                filter.read(&file)?;
            }
        }
        Ok(filter)
    }

    fn read(&mut self, file: &Path) -> Result<()> {
        let length = std::fs::metadata(file).at(file)?.len();
        let wrong = |why: String| Error::Input {
            path: file.to_path_buf(),
            why,
        };
        if length > MOST_BYTES {
            return Err(wrong(format!(
                "{length} bytes are too many for a list of addresses"
            )));
        }
        let bytes = std::fs::read(file).at(file)?;
        for (number, line) in (1..).zip(bytes.split(|b| *b == b'\n')) {
            // lists are Latin-1 or UTF-8, domains neither: other bytes belong to paths
            let line = String::from_utf8_lossy(line);
            if line.contains(['\0', '\t']) {
                return Err(wrong(format!("line {number} is no domain or address")));
            }
            self.entry(&line);
        }
        Ok(())
    }

    /// A domain, or an address if it has a path.
    fn entry(&mut self, line: &str) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return;
        }
        let plain = plain(line);
        match plain.strip_suffix('/').unwrap_or(&plain) {
            host if !host.contains('/') => {
                self.longest = self.longest.max(host.len());
                self.domains.insert(xxh3_64(host.as_bytes()))
            }
            address => self.addresses.insert(xxh3_64(address.as_bytes())),
        };
    }

    /// Judges an address.
    pub fn judge(&self, address: Option<&str>) -> Verdict {
        let Some(address) = address else {
            return match self.require {
                true => Verdict::Break(broken("url.missing", "none", "an address")),
                false => KEEP,
            };
        };
        let plain = plain(address);
        let host = plain.split(['/', '?', '#']).next().unwrap_or_default();
        let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
        let mut domain = host;
        while !domain.is_empty() {
            // a domain longer than all listed ones need not be looked up
            if domain.len() <= self.longest && self.domains.contains(&xxh3_64(domain.as_bytes())) {
                return Verdict::Break(broken("url.domain", domain, "not listed"));
            }
            domain = domain.split_once('.').map_or("", |(_, parent)| parent);
        }
        let path = plain.strip_suffix('/').unwrap_or(&plain);
        if self.addresses.contains(&xxh3_64(path.as_bytes())) {
            return Verdict::Break(broken("url.address", path, "not listed"));
        }
        let mut soft = Vec::new();
        for word in plain.split(|c: char| !c.is_ascii_alphanumeric()) {
            if self.words.contains(word) {
                return Verdict::Break(broken("url.word", word, "not listed"));
            }
            if self.soft.contains(word) && !soft.contains(&word) {
                soft.push(word);
            }
        }
        if soft.len() >= self.threshold {
            return Verdict::Break(broken("url.soft_words", soft.join(" "), self.threshold));
        }
        if let Some(subwords) = &self.subwords {
            let all = normal(&plain);
            if let Some(found) = subwords.find(&all) {
                let found = &all[found.range()];
                return Verdict::Break(broken("url.subword", found, "not listed"));
            }
        }
        KEEP
    }
}

/// A file, or the `domains` and `urls` files of a folder and of the folders in it, in name order.
fn files_of(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let mut files = Vec::new();
    let mut folders = vec![path.to_path_buf()];
    for entry in std::fs::read_dir(path).at(path)? {
        let entry = entry.at(path)?.path();
        if entry.is_dir() {
            folders.push(entry);
        }
    }
    for folder in folders {
        let named = ["domains", "urls"].map(|name| folder.join(name));
        files.extend(named.into_iter().filter(|f| f.is_file()));
    }
    files.sort();
    if files.is_empty() {
        return Err(Error::Input {
            path: path.to_path_buf(),
            why: "the folder holds no file `domains` or `urls`, nor does a folder in it".into(),
        });
    }
    Ok(files)
}

/// An address in lower case without scheme, credentials and `www.`.
fn plain(address: &str) -> String {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let start = rest[..end].rfind('@').map_or(0, |at| at + 1);
    let rest = &rest[start..];
    let www = rest
        .get(..4)
        .is_some_and(|w| w.eq_ignore_ascii_case("www."));
    rest[if www { 4 } else { 0 }..].to_lowercase()
}

/// Letters and digits of ASCII, in lower case.
fn normal(word: &str) -> String {
    let kept = word.chars().filter(char::is_ascii_alphanumeric);
    kept.map(|c| c.to_ascii_lowercase()).collect()
}

impl StepConfig for UrlConfig {
    fn name(&self) -> &'static str {
        "url"
    }

    fn check(&self, problem: Problem<'_>) {
        let lists = [
            &self.lists,
            &self.domains,
            &self.words,
            &self.soft_words,
            &self.subwords,
        ];
        if lists.iter().all(|l| l.is_empty()) && !self.require {
            problem("lists", "[]".to_string(), "a list, or require = true");
        }
        for (key, words) in [
            ("words", &self.words),
            ("soft_words", &self.soft_words),
            ("subwords", &self.subwords),
        ] {
            for (i, word) in words.iter().enumerate() {
                if normal(word).is_empty() {
                    let key = format!("{key}[{i}]");
                    problem(&key, format!("{word:?}"), "letters or digits");
                }
            }
        }
        if self.soft_word_threshold == 0 {
            problem("soft_word_threshold", "0".to_string(), "at least 1");
        }
    }

    fn open(&self, _: &Opening<'_>) -> Result<Box<dyn Filter>> {
        Ok(Box::new(UrlFilter::open(self)?))
    }

    fn files(&self) -> Vec<PathBuf> {
        let files = |list: &String| files_of(Path::new(list)).unwrap_or_else(|_| vec![list.into()]);
        self.lists.iter().flat_map(files).collect()
    }

    fn check_files(&self, problem: Problem<'_>) {
        let wanted = "a file of domains and addresses, or a folder of such files in UT1's layout";
        for (i, list) in self.lists.iter().enumerate() {
            let key = format!("lists[{i}]");
            check::file_or_folder(problem, &key, list, wanted, check::is_text);
        }
    }

    fn metric_names(&self) -> Option<Vec<String>> {
        Some(Vec::new())
    }
}

impl Filter for UrlFilter {
    fn apply(&self, draft: &mut Draft, _scratch: &mut StepScratch, _judge: &mut Judge) -> Verdict {
        self.judge(draft.url.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(config: &UrlConfig, address: &str) -> String {
        match UrlFilter::open(config).unwrap().judge(Some(address)) {
            Verdict::Break(reason) => reason.rule,
            Verdict::Continue(()) => "kept".into(),
        }
    }

    #[test]
    fn each_kind_of_list_drops_what_it_names() {
        let list = |words: &[&str]| words.iter().map(|w| w.to_string()).collect::<Vec<_>>();
        let config = UrlConfig {
            domains: list(&["bad.example", "http://Half.example/only/this/"]),
            words: list(&["Casino"]),
            soft_words: list(&["free", "cams", "live"]),
            subwords: list(&["f-oo"]),
            ..UrlConfig::default()
        };
        for (address, wanted) in [
            ("http://bad.example/", "url.domain"),
            ("https://user@www.a.b.BAD.example:8080/x?y", "url.domain"),
            ("http://notbad.example/", "kept"),
            ("http://half.example/only/this", "url.address"),
            ("http://half.example/only/this/one", "kept"),
            ("http://x.org/best-casino.html", "url.word"),
            ("http://x.org/casinos", "kept"),
            ("http://x.org/free/live", "url.soft_words"),
            ("http://x.org/free/free", "kept"),
            ("http://x.org/a-f.o/o", "url.subword"),
            ("http://x.org/food", "url.subword"),
            ("", "kept"),
            ("\u{130}://\u{130}@\u{130}/", "kept"),
        ] {
            assert_eq!(rule(&config, address), wanted, "{address}");
        }
        assert!(UrlFilter::open(&config).unwrap().judge(None).is_continue());
        let config = UrlConfig {
            require: true,
            ..config
        };
        assert!(UrlFilter::open(&config).unwrap().judge(None).is_break());
    }

    #[test]
    fn a_folder_of_categories_is_one_list_and_what_is_none_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("ads/domains", "# of ads\nads.example\n\n");
        write("games/urls", "x.example/games\n");
        write("games/usage", "black\n");
        let config = |path: &Path| UrlConfig {
            lists: vec![path.display().to_string()],
            ..UrlConfig::default()
        };
        let lists = config(dir.path());
        assert_eq!(rule(&lists, "http://x.ads.example"), "url.domain");
        assert_eq!(rule(&lists, "http://x.example/games"), "url.address");
        assert_eq!(rule(&lists, "http://black/"), "kept");
        write("empty/x", "");
        let empty = UrlFilter::open(&config(&dir.path().join("empty"))).unwrap_err();
        assert!(empty.to_string().contains("no file `domains`"), "{empty}");
        write("list", "a.example\nb\0\n");
        let binary = UrlFilter::open(&config(&dir.path().join("list"))).unwrap_err();
        assert!(
            binary.to_string().contains("line 2 is no domain"),
            "{binary}"
        );
        assert!(UrlFilter::open(&config(&dir.path().join("absent"))).is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_address_makes_it_fail(address in "(http://|www\\.|[a-z0-9./?#@:]|\\PC){0,40}") {
            let config = UrlConfig { domains: vec!["a.b".into()], subwords: vec!["zz".into()], ..UrlConfig::default() };
            let _ = UrlFilter::open(&config).unwrap().judge(Some(&address));
        }
    }
}
