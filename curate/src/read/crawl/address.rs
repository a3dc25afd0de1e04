//! Addresses of crawls: `cc:CC-MAIN-2025-05/warc?segments=10&sample=0.1`.

use std::time::Duration;

/// Start of every address.
const SCHEME: &str = "cc:";
/// Server of the files.
const BASE: &str = "https://data.commoncrawl.org";
/// Server of the indexes.
const INDEX: &str = "https://index.commoncrawl.org";
/// Wait between two requests to the index server.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest such wait.
const MOST_PAUSE: f64 = 600.0;

/// Files of a crawl, as an address names them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Crawl {
    /// `CC-MAIN-2025-05`; of news `CC-NEWS/2025/01`.
    pub(super) snapshot: String,
    pub(super) kind: Kind,
    pub(super) segments: Segments,
    /// Only so many files, from the first.
    pub(super) files: Option<usize>,
    /// Only the files whose name has a hash below this share of all hashes.
    pub(super) sample: Option<f64>,
    /// Only the captures of these domains and of those below them.
    pub(super) domains: Vec<String>,
    /// URL or folder that has `crawl-data/`, without a slash at its end.
    pub(super) base: String,
    /// URL of the index server, without a slash at its end.
    pub(super) index: String,
    pub(super) pause: Duration,
}

/// Kinds of files of a crawl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Warc,
    Wet,
    Wat,
}

/// The segments that files are taken from.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Segments {
    All,
    /// By number in the order of the list of paths, from 0; the end is not included.
    Numbers(std::ops::Range<usize>),
    /// By name, such as `1736703361941.29`.
    Named(Vec<String>),
}

/// A fault of an address.
#[derive(Debug, PartialEq)]
pub(crate) struct Wrong {
    pub(crate) found: String,
    pub(crate) wanted: &'static str,
}

/// Whether an input's path is the address of a crawl.
pub(crate) fn is_crawl(path: &str) -> bool {
    path.starts_with(SCHEME)
}

/// The kind of files of a crawl.
///
/// # Errors
/// The first fault of the address.
pub(crate) fn kind_of_crawl(path: &str) -> Result<Kind, Wrong> {
    Ok(Crawl::parse(path)?.kind)
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Warc => "warc",
            Kind::Wet => "wet",
            Kind::Wat => "wat",
        }
    }
}

/// Letters, digits, `-`, `_` and `.`, not only dots.
fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    name.chars().all(plain) && name.chars().any(|c| c != '.')
}

impl Crawl {
    /// Reads an address; nothing is requested.
    ///
    /// # Errors
    /// The first fault.
    pub(super) fn parse(path: &str) -> Result<Crawl, Wrong> {
        let wrong = |found: &str, wanted| Wrong {
            found: format!("{found:?}"),
            wanted,
        };
        let rest = path.strip_prefix(SCHEME).unwrap_or(path);
        let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (snapshot, kind) = place.rsplit_once('/').unwrap_or((place, ""));
        if !snapshot.split('/').all(is_plain) {
            let wanted = "the name of a snapshot, as in cc:CC-MAIN-2025-05/warc; \
                          https://index.commoncrawl.org/collinfo.json lists them";
            return Err(wrong(snapshot, wanted));
        }
        let kind = match kind {
            "warc" => Kind::Warc,
            "wet" => Kind::Wet,
            "wat" => Kind::Wat,
            other => {
                let wanted = "cc:SNAPSHOT/warc, cc:SNAPSHOT/wet or cc:SNAPSHOT/wat";
                return Err(wrong(other, wanted));
            }
        };
        let mut crawl = Crawl {
            snapshot: snapshot.to_string(),
            kind,
            segments: Segments::All,
            files: None,
            sample: None,
            domains: Vec::new(),
            base: BASE.to_string(),
            index: INDEX.to_string(),
            pause: PAUSE,
        };
        let mut seen: Vec<&str> = Vec::new();
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            if seen.contains(&name) {
                return Err(wrong(option, "each option once"));
            }
            seen.push(name);
            let wanted = match name {
                "segments" => crawl.take_segments(value),
                "files" => crawl.take_files(value),
                "sample" => crawl.take_sample(value),
                "domain" => crawl.take_domains(value),
                "base" => crawl.take_base(value),
                "index" => crawl.take_index(value),
                "pause" => crawl.take_pause(value),
                _ => Err("the options segments, files, sample, domain, base, index and pause"),
            };
            wanted.map_err(|wanted| wrong(option, wanted))?;
        }
        if !crawl.domains.is_empty() && crawl.kind != Kind::Warc {
            let wanted =
                "cc:SNAPSHOT/warc beside domain: the index has the places of WARC records only";
            return Err(wrong(crawl.kind.name(), wanted));
        }
        if !crawl.domains.is_empty() && crawl.segments != Segments::All {
            let wanted = "no segments beside domain: an index is of all segments";
            return Err(wrong("segments", wanted));
        }
        Ok(crawl)
    }

    fn take_segments(&mut self, value: &str) -> Result<(), &'static str> {
        let wanted = "segments=10 (the first ten), segments=10..20 (from the eleventh to the twentieth), or \
                      segments=ID,ID by name, as in 1736703361941.29";
        let range = value.split_once("..");
        let numbers = match (value.parse::<usize>(), range) {
            (Ok(most), _) => Some(0..most),
            (Err(_), Some((start, end))) => match (start.parse(), end.parse()) {
                (Ok(start), Ok(end)) => Some(start..end),
                _ => return Err(wanted),
            },
            (Err(_), None) => None,
        };
        self.segments = match numbers {
            Some(numbers) if numbers.is_empty() => return Err(wanted),
            Some(numbers) => Segments::Numbers(numbers),
            None => {
                let names: Vec<String> = value.split(',').map(str::to_string).collect();
                let is_name = |name: &String| is_plain(name) && name.contains('.');
                if !names.iter().all(is_name) {
                    return Err(wanted);
                }
                Segments::Named(names)
            }
        };
        Ok(())
    }

    fn take_files(&mut self, value: &str) -> Result<(), &'static str> {
        let files = value.parse().ok().filter(|files| *files > 0);
        self.files = Some(files.ok_or("files=N, the first N files that the other options leave")?);
        Ok(())
    }

    fn take_sample(&mut self, value: &str) -> Result<(), &'static str> {
        let share = value.parse().ok();
        let share = share.filter(|share: &f64| *share > 0.0 && *share <= 1.0);
        self.sample = Some(share.ok_or("sample=SHARE, above 0 and at most 1, of the files")?);
        Ok(())
    }

    fn take_domains(&mut self, value: &str) -> Result<(), &'static str> {
        for domain in value.split(',') {
            let name = domain.strip_prefix("*.").unwrap_or(domain);
            // of letters beyond ASCII: the index has Punycode
            let Ok(url::Host::Domain(host)) = url::Host::parse(name) else {
                return Err("domain=example.org, or several as domain=example.org,example.net");
            };
            if !is_plain(&host) || !host.contains('.') {
                return Err("domain=example.org, or several as domain=example.org,example.net");
            }
            if !self.domains.contains(&host) {
                self.domains.push(host);
            }
        }
        Ok(())
    }

    fn take_base(&mut self, value: &str) -> Result<(), &'static str> {
        let base = value.trim_end_matches('/');
        if base.is_empty() || base.contains(['*', '?', '[', '#']) {
            return Err("base=URL (https, http, s3, gs, az) or base=FOLDER, which has crawl-data/");
        }
        self.base = base.to_string();
        Ok(())
    }

    fn take_index(&mut self, value: &str) -> Result<(), &'static str> {
        let url = url::Url::parse(value).ok();
        let url = url.filter(|url| matches!(url.scheme(), "http" | "https"));
        if url.is_none() || value.contains(['?', '#']) {
            return Err("index=URL (https, http) of a CDX server");
        }
        self.index = value.trim_end_matches('/').to_string();
        Ok(())
    }

    fn take_pause(&mut self, value: &str) -> Result<(), &'static str> {
        let seconds = value.parse().ok();
        let seconds = seconds.filter(|s: &f64| *s > 0.0 && *s <= MOST_PAUSE);
        let wanted =
            "pause=SECONDS between two requests to the index server, above 0 and at most 600";
        self.pause = Duration::from_secs_f64(seconds.ok_or(wanted)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(path: &str) -> Crawl {
        Crawl::parse(path).unwrap()
    }

    #[test]
    fn an_address_is_a_snapshot_a_kind_and_options() {
        let crawl = parsed("cc:CC-MAIN-2025-05/warc");
        assert_eq!(
            (crawl.snapshot.as_str(), crawl.kind),
            ("CC-MAIN-2025-05", Kind::Warc)
        );
        assert_eq!(
            (crawl.base.as_str(), crawl.index.as_str()),
            (
                "https://data.commoncrawl.org",
                "https://index.commoncrawl.org"
            )
        );
        assert_eq!(
            parsed("cc:CC-NEWS/2025/01/warc").snapshot,
            "CC-NEWS/2025/01"
        );
        assert_eq!(
            parsed("cc:X/wet?segments=10").segments,
            Segments::Numbers(0..10)
        );
        assert_eq!(
            parsed("cc:X/wat?segments=3..5").segments,
            Segments::Numbers(3..5)
        );
        let named = Segments::Named(vec!["17.2".to_string(), "18.90".to_string()]);
        assert_eq!(parsed("cc:X/warc?segments=17.2,18.90").segments, named);
        let crawl = parsed(
            "cc:X/warc?domain=*.Example.org,bücher.example,example.org&files=3&sample=0.5&pause=0.25&base=s3://commoncrawl/&index=http://localhost:80/",
        );
        assert_eq!(crawl.domains, ["example.org", "xn--bcher-kva.example"]);
        assert_eq!((crawl.files, crawl.sample), (Some(3), Some(0.5)));
        assert_eq!(crawl.pause, Duration::from_millis(250));
        assert_eq!(
            (crawl.base.as_str(), crawl.index.as_str()),
            ("s3://commoncrawl", "http://localhost:80")
        );
    }

    #[test]
    fn wrong_addresses_are_refused_by_what_is_wrong() {
        for (path, found, wanted) in [
            ("cc:", "\"\"", "collinfo.json"),
            ("cc:../warc", "\"..\"", "collinfo.json"),
            ("cc:a b/warc", "\"a b\"", "collinfo.json"),
            ("cc:CC-MAIN-2025-05", "\"\"", "cc:SNAPSHOT/warc"),
            ("cc:CC-MAIN-2025-05/text", "\"text\"", "cc:SNAPSHOT/wet"),
            (
                "cc:X/warc?segment=1",
                "\"segment=1\"",
                "the options segments, files",
            ),
            ("cc:X/warc?segments=0", "\"segments=0\"", "the first ten"),
            (
                "cc:X/warc?segments=5..5",
                "\"segments=5..5\"",
                "from the eleventh",
            ),
            ("cc:X/warc?segments=a", "\"segments=a\"", "by name"),
            ("cc:X/warc?files=0", "\"files=0\"", "files=N"),
            ("cc:X/warc?files=-1", "\"files=-1\"", "files=N"),
            ("cc:X/warc?sample=0", "\"sample=0\"", "above 0"),
            ("cc:X/warc?sample=1.5", "\"sample=1.5\"", "at most 1"),
            ("cc:X/warc?sample=NaN", "\"sample=NaN\"", "at most 1"),
            (
                "cc:X/warc?domain=org",
                "\"domain=org\"",
                "domain=example.org",
            ),
            (
                "cc:X/warc?domain=a.org/b",
                "\"domain=a.org/b\"",
                "domain=example.org",
            ),
            (
                "cc:X/warc?domain=127.0.0.1",
                "\"domain=127.0.0.1\"",
                "domain=example.org",
            ),
            (
                "cc:X/wet?domain=a.org",
                "\"wet\"",
                "cc:SNAPSHOT/warc beside domain",
            ),
            (
                "cc:X/warc?domain=a.org&segments=1",
                "\"segments\"",
                "no segments",
            ),
            ("cc:X/warc?files=1&files=2", "\"files=2\"", "once"),
            ("cc:X/warc?base=", "\"base=\"", "base=URL"),
            ("cc:X/warc?index=s3://x", "\"index=s3://x\"", "index=URL"),
            ("cc:X/warc?pause=0", "\"pause=0\"", "above 0"),
        ] {
            let wrong = Crawl::parse(path).unwrap_err();
            assert_eq!(wrong.found, found, "{path}");
            assert!(wrong.wanted.contains(wanted), "{path}: {}", wrong.wanted);
        }
    }
}
