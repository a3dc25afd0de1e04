//! Lists of opt-outs: pages to take down, by URL, host, domain, id or digest, and the search for them.
//!
//! One entry per line; empty lines and lines that start with `#` are skipped.
//!
//! | line | documents |
//! |---|---|
//! | `https://example.org/page` | of this address, as `text/address.rs` compares it: with http or https, with or without `www.`, a fragment or a slash at the end |
//! | `host:example.org` | of this host, with or without `www.` |
//! | `domain:example.org` | of this host and every host below it |
//! | `id:crawl/CC-MAIN-1/17` | with this id |
//! | `sha1:6D7K...` or `digest:sha1:6D7K...` | with this `WARC-Payload-Digest`, in base32 or hexadecimal digits; also `md5`, `sha256` and `sha512` |

use std::io::BufRead;
use std::ops::ControlFlow;
use std::path::Path;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::error::{At, Error, Result};
use crate::text::{address, excerpt};

/// A list, ready to search with.
#[derive(Clone, Debug, Default)]
pub struct TakedownList {
    /// Keys with the number of their line.
    urls: FxHashMap<String, u32>,
    hosts: FxHashMap<String, u32>,
    domains: FxHashMap<String, u32>,
    /// Bytes of the longest domain.
    longest_domain: usize,
    ids: FxHashMap<String, u32>,
    digests: FxHashMap<Digest, u32>,
    lines: u32,
}

/// Takes entries that name a document, one after the other, until it breaks.
type Take<'a> = dyn FnMut(Hit) -> ControlFlow<()> + 'a;

/// Algorithm and bytes of a digest.
type Digest = (Algorithm, Vec<u8>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Algorithm {
    Md5,
    Sha1,
    Sha256,
    Sha512,
}

/// The property by which an entry found a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FoundBy {
    /// Its id.
    Id,
    /// Its address.
    Url,
    /// The host of its address.
    Host,
    /// A domain that the host of its address belongs to.
    Domain,
    /// The digest of its payload.
    Digest,
}

/// The entry that found a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Line of the list, from 1.
    pub line: u32,
    /// The property.
    pub by: FoundBy,
}

/// The properties of a document that lists name.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted<'a> {
    /// Its id.
    pub id: &'a str,
    /// Its address.
    pub url: Option<&'a str>,
    /// `meta.warc.payload_digest`.
    pub digest: Option<&'a str>,
}

/// Wording of the accepted lines.
const WANTED: &str = "a URL with its scheme, host:NAME, domain:NAME, id:ID or sha1:DIGEST \
    (also md5:, sha256: and sha512:, with or without digest: in front)";
/// Longest line of a list.
const MOST_BYTES: usize = 64 << 10;
/// Characters of a wrong line that are shown.
const SHOWN: usize = 80;

impl TakedownList {
    /// Reads a list.
    ///
    /// # Errors
    /// `Io`; `Input` that names every line which is no entry, and for a list without entries.
    pub fn read(path: &Path) -> Result<TakedownList> {
        let file = std::fs::File::open(path).at(path)?;
        let mut reader = std::io::BufReader::with_capacity(1 << 16, file);
        let mut list = TakedownList::default();
        let (mut line, mut problems) = (Vec::new(), Vec::new());
        loop {
            line.clear();
            if reader.read_until(b'\n', &mut line).at(path)? == 0 {
                break;
            }
            list.lines = list.lines.saturating_add(1);
            if let Err(found) = list.add(&line) {
                problems.push(format!("line {}: found {found}", list.lines));
            }
        }
        if list.is_empty() && problems.is_empty() {
            problems.push("found no entry".to_string());
        }
        if problems.is_empty() {
            return Ok(list);
        }
        Err(Error::Input {
            path: path.to_path_buf(),
            why: format!("{}; wanted {WANTED}", problems.join("; ")),
        })
    }

    /// Number of entries; an entry that is listed twice counts once.
    pub fn len(&self) -> usize {
        let maps = [&self.urls, &self.hosts, &self.domains, &self.ids];
        maps.iter().map(|map| map.len()).sum::<usize>() + self.digests.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Numbers of the lines with entries, in order; of an entry that is listed twice the first.
    pub fn lines(&self) -> Vec<u32> {
        let maps = [&self.urls, &self.hosts, &self.domains, &self.ids];
        let lines = maps.iter().flat_map(|map| map.values());
        let mut lines: Vec<u32> = lines.chain(self.digests.values()).copied().collect();
        lines.sort_unstable();
        lines
    }

    fn add(&mut self, line: &[u8]) -> Result<(), String> {
        if line.len() > MOST_BYTES {
            return Err(format!("{} bytes", line.len()));
        }
        let text = std::str::from_utf8(line).map_err(|e| {
            let at = e.valid_up_to();
            format!("invalid UTF-8 at byte {at}")
        })?;
        let text = text.trim().trim_start_matches('\u{feff}');
        if text.is_empty() || text.starts_with('#') {
            return Ok(());
        }
        let wrong = || format!("{:?}", excerpt(text, SHOWN));
        let number = self.lines;
        if let Some(id) = text.strip_prefix("id:") {
            if id.is_empty() {
                return Err(wrong());
            }
            self.ids.entry(id.to_string()).or_insert(number);
        } else if let Some(host) = text.strip_prefix("host:") {
            let host = host_name(host).ok_or_else(wrong)?;
            self.hosts.entry(host).or_insert(number);
        } else if let Some(domain) = text.strip_prefix("domain:") {
            let domain = host_name(domain).ok_or_else(wrong)?;
            self.longest_domain = self.longest_domain.max(domain.len());
            self.domains.entry(domain).or_insert(number);
        } else if text.contains("://") {
            if address::host(text).is_none() {
                return Err(wrong());
            }
            let key = address::compared(text, false);
            self.urls.entry(key).or_insert(number);
        } else {
            let digest = text.strip_prefix("digest:").unwrap_or(text);
            let digest = parse_digest(digest).ok_or_else(wrong)?;
            self.digests.entry(digest).or_insert(number);
        }
        Ok(())
    }

    /// The entry that names a document; of several the one by id, then by URL, host, domain and digest.
    pub fn find(&self, document: &Wanted<'_>) -> Option<Hit> {
        let mut first = None;
        self.each(document, &mut |hit| {
            first = Some(hit);
            ControlFlow::Break(())
        });
        first
    }

    /// Every entry that names a document, in the same order; of its domains the longest first.
    pub fn find_all(&self, document: &Wanted<'_>) -> Vec<Hit> {
        let mut all = Vec::new();
        self.each(document, &mut |hit| {
            all.push(hit);
            ControlFlow::Continue(())
        });
        all
    }

    /// Passes entries that name a document to `take` until it breaks.
    fn each(&self, document: &Wanted<'_>, take: &mut Take<'_>) {
        // `?` leaves at the first break
        let _is_broken = self.each_by_kind(document, take);
    }

    fn each_by_kind(&self, document: &Wanted<'_>, take: &mut Take<'_>) -> ControlFlow<()> {
        let mut found = |line: Option<&u32>, by| match line {
            Some(line) => take(Hit { line: *line, by }),
            None => ControlFlow::Continue(()),
        };
        found(self.ids.get(document.id), FoundBy::Id)?;
        if let Some(url) = document.url {
            if !self.urls.is_empty() {
                found(self.urls.get(&address::compared(url, false)), FoundBy::Url)?;
            }
            self.each_host(url, &mut found)?;
        }
        let digest = document.digest.filter(|_| !self.digests.is_empty());
        match digest.and_then(parse_digest) {
            Some(digest) => found(self.digests.get(&digest), FoundBy::Digest),
            None => ControlFlow::Continue(()),
        }
    }

    fn each_host(
        &self,
        url: &str,
        found: &mut dyn FnMut(Option<&u32>, FoundBy) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if self.hosts.is_empty() && self.domains.is_empty() {
            return ControlFlow::Continue(());
        }
        let Some(host) = address::host(url) else {
            return ControlFlow::Continue(());
        };
        found(self.hosts.get(&host), FoundBy::Host)?;
        let mut rest = Some(host.as_str()).filter(|_| !self.domains.is_empty());
        while let Some(domain) = rest {
            // a host of very many labels has as many ends, whose hashes would take quadratic time
            let known = match domain.len() <= self.longest_domain {
                true => self.domains.get(domain),
                false => None,
            };
            found(known, FoundBy::Domain)?;
            rest = domain.split_once('.').map(|(_, above)| above);
        }
        ControlFlow::Continue(())
    }
}

/// A host in the form in which addresses have it, without `www.`.
fn host_name(text: &str) -> Option<String> {
    let name = text.trim();
    // a port, a path or a user would be silently left out
    if name.is_empty() || name.contains(['/', '@', '?', '#', ' ']) {
        return None;
    }
    let is_name = !name.contains(':') || name.starts_with('[') && name.ends_with(']');
    is_name.then(|| address::host(&format!("http://{name}/")))?
}

/// `sha1:DIGEST`, the digest in base32 or hexadecimal digits.
fn parse_digest(text: &str) -> Option<Digest> {
    let (name, digits) = text.trim().split_once(':')?;
    let (algorithm, bytes) = match name.to_ascii_lowercase().replace('-', "").as_str() {
        "md5" => (Algorithm::Md5, 16),
        "sha1" => (Algorithm::Sha1, 20),
        "sha256" => (Algorithm::Sha256, 32),
        "sha512" => (Algorithm::Sha512, 64),
        _ => return None,
    };
    let digits = digits.trim().trim_end_matches('=');
    let value = if digits.len() == 2 * bytes {
        digits_of(digits, 4)?
    } else {
        digits_of(digits, 5)?
    };
    (value.len() == bytes).then_some((algorithm, value))
}

/// Bytes of digits of `bits` bits each: 4 hexadecimal, 5 base32 (RFC 4648). The bits left over must be zero.
fn digits_of(digits: &str, bits: u32) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(digits.len() * 5 / 8);
    let (mut buffer, mut have) = (0u32, 0);
    for digit in digits.bytes() {
        let value = match (bits, digit.to_ascii_uppercase()) {
            (4, d @ b'0'..=b'9') => d - b'0',
            (4, d @ b'A'..=b'F') => d - b'A' + 10,
            (5, d @ b'A'..=b'Z') => d - b'A',
            (5, d @ b'2'..=b'7') => d - b'2' + 26,
            _ => return None,
        };
        buffer = buffer << bits | u32::from(value);
        have += bits;
        if have >= 8 {
            have -= 8;
            bytes.push(u8::try_from(buffer >> have).ok()?);
            buffer &= (1 << have) - 1;
        }
    }
    (buffer == 0 && have < bits).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Result<TakedownList> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list.txt");
        std::fs::write(&path, text).unwrap();
        TakedownList::read(&path)
    }

    fn page(url: &str) -> Wanted<'_> {
        Wanted {
            id: "a/b/1",
            url: Some(url),
            digest: None,
        }
    }

    #[test]
    fn entries_find_the_documents_they_name_and_no_others() {
        let list = list(
            "# opt-outs\n\nhttps://example.org/a/\nhost:WWW.Example.com\ndomain:example.net\r\n\
             id:pile/7\nsha1:P6CFO3AJVJN7FDT4AAB4IMCMBTQCE5PP\nhost:b\u{fc}cher.example\n",
        )
        .unwrap();
        assert_eq!((list.len(), list.lines()), (6, vec![3, 4, 5, 6, 7, 8]));
        for (url, wanted) in [
            ("http://www.example.org/a#top", Some((3, FoundBy::Url))),
            ("https://example.org/a/b", None),
            ("https://example.org/", None),
            ("https://example.com/x?y", Some((4, FoundBy::Host))),
            ("https://sub.example.com/", None),
            ("https://example.net/", Some((5, FoundBy::Domain))),
            ("https://a.b.example.net:8080/", Some((5, FoundBy::Domain))),
            ("https://notexample.net/", None),
            ("https://example.org./a", Some((3, FoundBy::Url))),
            ("https://example.com./dot", Some((4, FoundBy::Host))),
            ("example.com/noscheme", Some((4, FoundBy::Host))),
            ("//www.example.com/rel", Some((4, FoundBy::Host))),
            ("a.example.net:8080/noscheme", Some((5, FoundBy::Domain))),
            ("http://xn--bcher-kva.example/", Some((8, FoundBy::Host))),
            ("no address", None),
        ] {
            let found = list.find(&page(url)).map(|hit| (hit.line, hit.by));
            assert_eq!(found, wanted, "{url}");
        }
        let mut document = Wanted {
            id: "pile/7",
            ..Wanted::default()
        };
        let found = list.find(&document).unwrap();
        assert_eq!((found.line, found.by), (6, FoundBy::Id));
        document.id = "pile/77";
        assert_eq!(list.find(&document), None);
    }

    #[test]
    fn every_entry_that_names_a_document_is_found() {
        let list = list(
            "domain:org\nhost:a.example.org\nid:x\nsha1:5d5cae0f530a19558dc023bb866c326e5cf5d8e1\n\
             https://a.example.org/1\ndomain:example.org\nid:y\n",
        )
        .unwrap();
        let document = Wanted {
            id: "x",
            url: Some("http://www.a.example.org/1"),
            digest: Some("sha1:LVOK4D2TBIMVLDOAEO5YM3BSNZOPLWHB"),
        };
        let found: Vec<u32> = list
            .find_all(&document)
            .iter()
            .map(|hit| hit.line)
            .collect();
        assert_eq!(found, [3, 5, 2, 6, 1, 4]);
        assert_eq!(
            list.find(&document),
            list.find_all(&document).first().copied()
        );
    }

    #[test]
    fn a_digest_is_the_same_in_base32_and_in_hexadecimal_digits() {
        // printf 'some words' | sha1sum, and base64.b32encode of it
        let hexadecimal = "sha1:5d5cae0f530a19558dc023bb866c326e5cf5d8e1";
        let base32 = "SHA1:LVOK4D2TBIMVLDOAEO5YM3BSNZOPLWHB";
        let bytes = parse_digest(hexadecimal).unwrap();
        assert_eq!(bytes.1.len(), 20);
        assert_eq!(parse_digest(base32), Some(bytes));
        let list = list(&format!("digest:{base32}\n")).unwrap();
        let document = |digest| Wanted {
            id: "x",
            url: None,
            digest: Some(digest),
        };
        assert!(list.find(&document(hexadecimal)).is_some());
        assert!(list.find(&document("sha1:5d5c")).is_none());
        assert!(
            list.find(&document("md5:5d5cae0f530a19558dc023bb866c326e"))
                .is_none()
        );
    }

    #[test]
    fn every_wrong_line_is_named_at_once() {
        let error = list("id:1\nexample.org/a\nhost:a/b\nhost:\nsha1:xyz\nid:\nhttp://\n")
            .unwrap_err()
            .to_string();
        for wanted in [
            "line 2: found \"example.org/a\"",
            "line 3: found \"host:a/b\"",
            "line 4: found \"host:\"",
            "line 5: found \"sha1:xyz\"",
            "line 6: found \"id:\"",
            "line 7: found \"http://\"",
            "wanted a URL with its scheme, host:NAME",
        ] {
            assert!(error.contains(wanted), "{error}");
        }
        assert!(!error.contains("line 1"), "{error}");
        let error = list("# nothing\n").unwrap_err().to_string();
        assert!(error.contains("found no entry"), "{error}");
    }
}
