//! Places of the captures of domains, from a CDX index server: which bytes of which files.
//!
//! The server (pywb, <https://pywb.readthedocs.io/en/latest/manual/cdxserver_api.html>) answers in pages of JSON lines, one line
//! a capture, with `filename`, `offset` and `length` of its record, which is a gzip member of its own.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;
use url::Url;

use super::address::Crawl;
use super::ask::Asker;
use super::list::List;
use crate::read::storage::with_parts;

/// Folders of a segment whose records are no pages: answers to `robots.txt`, and redirects and errors.
const NO_PAGES: [&str; 2] = ["/robotstxt/", "/crawldiagnostics/"];

/// Answer to `showNumPages=true`.
#[derive(Deserialize)]
struct Pages {
    pages: u64,
}

/// The captures found so far.
#[derive(Default)]
struct Captures {
    /// Offsets and lengths of records by file.
    places: BTreeMap<String, Places>,
    /// Those that are no pages, by the folder that has them.
    left_out: BTreeMap<&'static str, BTreeMap<String, Places>>,
}

/// Offset and length of each record of a file.
type Places = BTreeSet<(u64, u64)>;

/// The files with captures of the crawl's domains, in name order, each with its parts.
///
/// # Errors
/// In words, with the URL: a server that refuses, an answer that is no index, a domain without captures.
pub(super) fn of_domains(crawl: &Crawl) -> Result<List, String> {
    let mut asker = Asker::new(crawl.pause)?;
    let mut captures = Captures::default();
    let mut without: Vec<&str> = Vec::new();
    for domain in &crawl.domains {
        let mut is_there = false;
        let query = format!(
            "{}/{}-index?url=*.{domain}&output=json",
            crawl.index, crawl.snapshot
        );
        let url = format!("{query}&showNumPages=true");
        let pages = match answer(&mut asker, crawl, &url)? {
            Some(text) => {
                let pages: Pages = serde_json::from_str(text.trim()).map_err(|e| {
                    format!(
                        "{url}: found {:?}, wanted a number of pages: {e}",
                        start(&text)
                    )
                })?;
                pages.pages
            }
            None => 0,
        };
        for page in 0..pages {
            let url = format!("{query}&page={page}");
            let Some(text) = answer(&mut asker, crawl, &url)? else {
                continue;
            };
            for line in text.lines().filter(|line| !line.trim().is_empty()) {
                is_there |= captures
                    .take(line, domain)
                    .map_err(|why| format!("{url}: {why}: {:?}", start(line)))?;
            }
        }
        if !is_there {
            without.push(domain);
        }
    }
    if !without.is_empty() {
        return Err(format!(
            "{} has no captures of {}; another snapshot may, https://index.commoncrawl.org/collinfo.json lists them",
            crawl.snapshot,
            without.join(", ")
        ));
    }
    Ok(captures.into_list())
}

/// An answer of the server; None if it knows of no captures.
fn answer(asker: &mut Asker, crawl: &Crawl, url: &str) -> Result<Option<String>, String> {
    let answer = asker.get(url)?;
    match answer.status {
        200 => Ok(Some(answer.text)),
        404 if answer.text.contains("No Captures") => Ok(None),
        404 => Err(format!(
            "{url}: 404, there is no index of a snapshot {}; https://index.commoncrawl.org/collinfo.json lists the snapshots",
            crawl.snapshot
        )),
        status => Err(format!(
            "{url}: the server answers {status}: {:?}",
            start(&answer.text)
        )),
    }
}

/// First characters of an answer.
fn start(text: &str) -> String {
    text.chars().take(80).collect()
}

/// A number, which the server writes as a string.
fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

impl Captures {
    /// Takes a capture; false if it is of another domain, as a server sends whose index is in an order in which `www.` counts for
    /// nothing.
    fn take(&mut self, line: &str, domain: &str) -> Result<bool, String> {
        let fields: Value =
            serde_json::from_str(line).map_err(|e| format!("a line that is no JSON, {e}"))?;
        let file = fields["filename"].as_str();
        let place = number(&fields["offset"]).zip(number(&fields["length"]));
        let (Some(file), Some((offset, length))) = (file, place) else {
            return Err("a capture without filename, offset or length".to_string());
        };
        if length == 0 || offset.checked_add(length).is_none() {
            return Err(format!("a capture with the length {length}"));
        }
        let url = fields["url"].as_str().ok_or("a capture without url")?;
        let host = Url::parse(url).ok();
        let host = host.as_ref().and_then(Url::host_str).unwrap_or_default();
        let is_below = |rest: &str| rest.is_empty() || rest.ends_with('.');
        if !host.strip_suffix(domain).is_some_and(is_below) {
            return Ok(false);
        }
        let folder = NO_PAGES.into_iter().find(|folder| file.contains(folder));
        let places = match folder {
            Some(folder) => self.left_out.entry(folder).or_default(),
            None => &mut self.places,
        };
        let places = places.entry(file.to_string()).or_default();
        places.insert((offset, length));
        Ok(true)
    }

    fn into_list(self) -> List {
        let count = |places: &BTreeMap<String, Places>| -> u64 {
            places.values().map(|places| places.len() as u64).sum()
        };
        let left_out = self.left_out.iter();
        let left_out = left_out.map(|(folder, places)| (folder.replace('/', ""), count(places)));
        let (left_out, captures) = (left_out.collect(), count(&self.places));
        let file = |(file, places): (String, Places)| {
            let parts: Vec<_> = places.iter().map(|(at, n)| *at..at + n).collect();
            with_parts(&file, &parts)
        };
        List {
            files: self.places.into_iter().map(file).collect(),
            captures,
            left_out,
            ..List::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn captures_become_parts_of_files_in_order() {
        let mut captures = Captures::default();
        for (file, offset, length) in [
            (
                "crawl-data/S/segments/2.1/warc/b.warc.gz",
                "\"100\"",
                "\"50\"",
            ),
            ("crawl-data/S/segments/1.1/warc/a.warc.gz", "70", "30"),
            ("crawl-data/S/segments/1.1/warc/a.warc.gz", "0", "20"),
            (
                "crawl-data/S/segments/1.1/warc/a.warc.gz",
                "\"0\"",
                "\"20\"",
            ),
            ("crawl-data/S/segments/1.1/robotstxt/a.warc.gz", "0", "9"),
            (
                "crawl-data/S/segments/1.1/crawldiagnostics/a.warc.gz",
                "0",
                "9",
            ),
        ] {
            let line = format!(
                "{{\"url\": \"https://a.org/x\", \"filename\": \"{file}\", \"offset\": {offset}, \"length\": {length}}}"
            );
            // another domain whose captures these are, too
            assert_eq!(captures.take(&line, "a.org"), Ok(true));
            assert_eq!(captures.take(&line, "org"), Ok(true));
        }
        let list = captures.into_list();
        assert_eq!(
            list.files,
            [
                "crawl-data/S/segments/1.1/warc/a.warc.gz#bytes=0-19,70-99",
                "crawl-data/S/segments/2.1/warc/b.warc.gz#bytes=100-149"
            ]
        );
        assert_eq!(list.captures, 3);
        let left_out: Vec<_> = list.left_out.into_iter().collect();
        assert_eq!(
            left_out,
            [
                ("crawldiagnostics".to_string(), 1),
                ("robotstxt".to_string(), 1)
            ]
        );
    }

    #[test]
    fn captures_of_other_hosts_are_not_taken() {
        for (url, domain, is_taken) in [
            ("https://www.example.org/", "www.example.org", true),
            ("http://a.www.example.org:8080/x", "www.example.org", true),
            ("https://blog.example.org/", "www.example.org", false),
            ("https://example.org/", "www.example.org", false),
            ("https://WWW.Example.org/", "example.org", true),
            ("https://badexample.org/", "example.org", false),
            ("no address", "example.org", false),
        ] {
            let line = json!({"url": url, "filename": "x", "offset": 1, "length": "2"});
            let found = Captures::default().take(&line.to_string(), domain);
            assert_eq!(found, Ok(is_taken), "{url} {domain}");
        }
    }

    #[test]
    fn a_line_without_a_place_is_refused() {
        for (line, why) in [
            ("<html>", "no JSON"),
            (
                "{\"filename\": \"x\", \"offset\": \"1\"}",
                "without filename",
            ),
            (
                "{\"filename\": \"x\", \"offset\": \"1\", \"length\": \"-1\"}",
                "without filename",
            ),
            (
                "{\"filename\": \"x\", \"offset\": \"1\", \"length\": \"0\"}",
                "length 0",
            ),
            (
                "{\"filename\": \"x\", \"offset\": 18446744073709551615, \"length\": 9}",
                "length 9",
            ),
            (
                "{\"filename\": \"x\", \"offset\": 1, \"length\": 9}",
                "without url",
            ),
        ] {
            let found = Captures::default().take(line, "a.org").unwrap_err();
            assert!(found.contains(why), "{line}: {found}");
        }
    }
}
