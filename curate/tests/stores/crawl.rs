//! Common Crawl as an input, from a server in this process that has a small crawl, its index, and moods.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use curate::pipeline::{CurateConfig, Curator, shards, shards_kept};
use curate::read::{Format, Input, Shard, input_files, keep_crawl_lists, missing_inputs};

use crate::server::listen;

/// Misbehaviour of the server.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// Refuses the first request of every path with 503, and `Retry-After: 1` for lists.
    Busy,
    /// Refuses everything with 503.
    Closed,
    /// Breaks off in the middle of the first answer of every path.
    Cuts,
}

/// A request as it came.
#[derive(Clone, Debug)]
struct Request {
    path: String,
    range: Option<String>,
    agent: String,
    time: Instant,
}

struct Server {
    address: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

type Files = BTreeMap<String, Vec<u8>>;

/// Serves files, by path and query, until the test ends.
fn serve(files: Files, fault: Fault) -> Server {
    let requests = Arc::<Mutex<Vec<Request>>>::default();
    let seen = requests.clone();
    let address = listen(move |stream| answer(stream, &files, fault, &seen));
    Server { address, requests }
}

fn answer(
    stream: TcpStream,
    files: &Files,
    fault: Fault,
    seen: &Mutex<Vec<Request>>,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let mut out = stream;
    while let Some(first) = lines.next() {
        let first = first?;
        let mut words = first.split(' ');
        let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let mut request = Request {
            path: path.to_string(),
            range: None,
            agent: String::new(),
            time: Instant::now(),
        };
        for line in lines.by_ref() {
            let line = line?.to_ascii_lowercase();
            if let Some(range) = line.strip_prefix("range: bytes=") {
                request.range = Some(range.to_string());
            }
            if let Some(agent) = line.strip_prefix("user-agent: ") {
                request.agent = agent.to_string();
            }
            if line.is_empty() {
                break;
            }
        }
        let is_first = {
            let mut seen = seen.lock().unwrap();
            let is_first = seen.iter().all(|r| r.path != path);
            seen.push(request.clone());
            is_first
        };
        if fault == Fault::Closed || (fault == Fault::Busy && is_first) {
            let is_list = path.ends_with(".paths.gz") || path.ends_with("showNumPages=true");
            let wait = u8::from(fault == Fault::Busy && is_list);
            write!(
                out,
                "HTTP/1.1 503 Slow Down\r\nRetry-After: {wait}\r\nContent-Length: 9\r\n\r\nslow down"
            )?;
            continue;
        }
        let Some(whole) = files.get(path) else {
            let body = if path.contains("nobody.example") {
                "{\"message\": \"No Captures found for: *.nobody.example\"}"
            } else {
                "no such key"
            };
            write!(
                out,
                "HTTP/1.1 404 Not Found\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )?;
            continue;
        };
        let last = whole.len() - 1;
        let (from, to) = match request.range.as_deref().and_then(|r| r.split_once('-')) {
            None => (0, last),
            Some((from, to)) => (from.parse().unwrap(), to.parse().unwrap_or(last).min(last)),
        };
        let (status, body) = match request.range {
            None => ("200 OK", &whole[..]),
            Some(_) => ("206 Partial Content", &whole[from..=to]),
        };
        write!(
            out,
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nETag: \"{}\"\r\nContent-Range: bytes {from}-{to}/{}\r\n\r\n",
            body.len(),
            whole.len(),
            whole.len()
        )?;
        if method == "HEAD" {
            continue;
        }
        // the first request of a whole file is that for its head
        let cut = match fault == Fault::Cuts
            && seen
                .lock()
                .unwrap()
                .iter()
                .filter(|r| r.path == path)
                .count()
                <= 2
        {
            true => body.len() / 2,
            false => body.len(),
        };
        out.write_all(&body[..cut])?;
        if cut < body.len() {
            return out.shutdown(std::net::Shutdown::Both);
        }
    }
    Ok(())
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A WARC file of pages, each a gzip member of its own: its bytes, and the members' offsets and lengths.
fn pages(host: &str, count: usize) -> (Vec<u8>, Vec<(usize, usize)>) {
    let mut file = gzip(b"WARC/1.0\r\nWARC-Type: warcinfo\r\nContent-Length: 0\r\n\r\n\r\n\r\n");
    let mut members = Vec::new();
    for i in 0..count {
        // words that do not compress, so that members have some length
        let word = |n: usize| {
            format!(
                "{:x} ",
                (n * 31 + i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            )
        };
        let words: String = (0..400).map(word).collect();
        let body = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html><body><p>Page {i} of {host} says: {words}</p></body></html>"
        );
        let record = format!(
            "WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://{host}/{i}\r\nWARC-Date: 2025-01-12T00:00:0{}Z\r\n\
             WARC-Record-ID: <urn:uuid:00000000-0000-0000-0000-{i:012}>\r\nContent-Type: application/http; msgtype=response\r\n\
             Content-Length: {}\r\n\r\n{body}\r\n\r\n",
            i % 10,
            body.len()
        );
        let member = gzip(record.as_bytes());
        members.push((file.len(), member.len()));
        file.extend(member);
    }
    (file, members)
}

const SNAPSHOT: &str = "CC-MAIN-2025-05";

fn path_of(segment: &str, file: usize) -> String {
    format!("crawl-data/{SNAPSHOT}/segments/{segment}/warc/CC-{segment}-{file:05}.warc.gz")
}

/// A crawl of two segments with two files each, and an index of one domain in two pages.
fn crawl() -> Files {
    let mut files = Files::new();
    let mut paths = String::new();
    let mut index = Vec::new();
    for segment in ["1700.1", "1700.2"] {
        for i in 0..2 {
            let name = path_of(segment, i);
            let (bytes, members) = pages(&format!("{segment}-{i}.example.org"), 40);
            paths += &format!("{name}\n");
            for page in [0, 1, 3, 20] {
                let (offset, length) = members[page];
                index.push(format!(
                    "{{\"urlkey\": \"org,example)/{page}\", \"url\": \"http://{segment}-{i}.example.org/{page}\", \"filename\": \"{name}\", \"offset\": \"{offset}\", \"length\": \"{length}\", \"status\": \"200\"}}\n"
                ));
            }
            files.insert(format!("/{name}"), bytes);
        }
    }
    let robots = format!("crawl-data/{SNAPSHOT}/segments/1700.1/robotstxt/x.warc.gz");
    index.push(format!(
        "{{\"url\": \"http://example.org/robots.txt\", \"filename\": \"{robots}\", \"offset\": \"1\", \"length\": \"9\"}}\n"
    ));
    // a neighbour in the order of the index
    let other = path_of("1700.1", 0);
    index.push(format!(
        "{{\"url\": \"http://example.org.evil/\", \"filename\": \"{other}\", \"offset\": \"1\", \"length\": \"9\"}}\n"
    ));
    files.insert(
        format!("/crawl-data/{SNAPSHOT}/warc.paths.gz"),
        gzip(paths.as_bytes()),
    );
    let query = format!("/{SNAPSHOT}-index?url=*.example.org&output=json");
    // pages of an index come in the order of addresses, not of files
    index.reverse();
    let (first, second) = index.split_at(7);
    files.insert(
        format!("{query}&showNumPages=true"),
        b"{\"pages\": 2, \"pageSize\": 5, \"blocks\": 7}".to_vec(),
    );
    files.insert(format!("{query}&page=0"), first.concat().into_bytes());
    files.insert(format!("{query}&page=1"), second.concat().into_bytes());
    files
}

fn input(server: &Server, options: &str) -> Input {
    let at = format!("http://{}", server.address);
    Input {
        path: format!("cc:{SNAPSHOT}/warc?base={at}&index={at}&pause=0.01{options}"),
        format: Format::Warc,
        source: "crawl".to_string(),
        ..Input::default()
    }
}

/// The clean documents of an input, in order, and its records that are no documents.
fn curated(shards: &[Shard], config: &CurateConfig) -> (Vec<(String, String)>, u64) {
    let out = tempfile::tempdir().unwrap();
    let curator = Curator::new(config, None, None, 0).unwrap();
    let mut found = Vec::new();
    let mut bad = 0;
    for shard in shards {
        let report = curator
            .run_shard(shard, out.path(), &curate::Silent)
            .unwrap();
        bad += report.quarantined;
        for document in curate::corpus::documents(out.path(), shard.number).unwrap() {
            let document = document.unwrap();
            found.push((document.id, document.text));
        }
    }
    (found, bad)
}

fn config(input: Input) -> CurateConfig {
    CurateConfig {
        inputs: vec![input],
        step: serde_json::from_str(r#"[{"extract": {}}]"#).unwrap(),
        ..CurateConfig::default()
    }
}

/// The files of a crawl as a folder.
fn on_disk(files: &Files) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, bytes) in files.iter().filter(|(path, _)| !path.contains('?')) {
        let path = dir.path().join(&path[1..]);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    dir
}

/// Files of the shards, `1700.1/0`.
fn names(shards: &[Shard]) -> Vec<String> {
    let short = |shard: &Shard| {
        let path = shard.path.to_string_lossy().into_owned();
        let name = path.split("/warc/CC-").nth(1).unwrap();
        name.split(".warc.gz").next().unwrap().replace("-0000", "/")
    };
    shards.iter().map(short).collect()
}

#[test]
fn a_crawl_gives_the_documents_of_its_files_on_disk_in_every_mood_of_the_server() {
    let files = crawl();
    let dir = on_disk(&files);
    let folder = dir.path().join(format!("crawl-data/{SNAPSHOT}/segments"));
    let disk = config(Input {
        path: folder.to_string_lossy().into_owned(),
        format: Format::Warc,
        recursive: true,
        source: "crawl".to_string(),
        ..Input::default()
    });
    let want = curated(&shards(&disk).unwrap(), &disk);
    assert_eq!((want.0.len(), want.1), (160, 0));
    for fault in [Fault::None, Fault::Busy, Fault::Cuts] {
        let server = serve(files.clone(), fault);
        let config = config(input(&server, ""));
        let found = curated(&shards(&config).unwrap(), &config);
        assert!(found == want, "{fault:?}");
        let requests = server.requests.lock().unwrap();
        let agent = format!("millrace/{}", env!("CARGO_PKG_VERSION"));
        assert!(requests.iter().all(|r| r.agent == agent), "{requests:?}");
        let list = |r: &&Request| r.path.ends_with("warc.paths.gz");
        let lists: Vec<&Request> = requests.iter().filter(list).collect();
        if fault == Fault::Busy {
            let waited = lists[1].time - lists[0].time;
            assert!(waited >= Duration::from_secs(1), "{waited:?}");
        }
    }
    // a folder that has a copy of the crawl
    let at = format!("cc:{SNAPSHOT}/warc?base={}", dir.path().display());
    let config = config(Input {
        path: at,
        ..disk.inputs[0].clone()
    });
    assert!(curated(&shards(&config).unwrap(), &config) == want);
}

#[test]
fn segments_files_and_samples_are_the_same_in_every_run() {
    let server = serve(crawl(), Fault::None);
    let of = |options: &str| names(&input_files(&[input(&server, options)]).unwrap());
    assert_eq!(of(""), ["1700.1/0", "1700.1/1", "1700.2/0", "1700.2/1"]);
    assert_eq!(of("&segments=1"), ["1700.1/0", "1700.1/1"]);
    assert_eq!(of("&segments=1700.2&files=1"), ["1700.2/0"]);
    assert_eq!(of("&sample=0.6"), of("&sample=0.6"));
}

#[test]
fn captures_of_a_domain_are_fetched_as_ranges_in_the_order_of_the_files() {
    let files = crawl();
    let dir = on_disk(&files);
    // pages 0, 1, 3 and 20 of each file, by the records of the whole files
    let whole = config(Input {
        path: format!("cc:{SNAPSHOT}/warc?base={}", dir.path().display()),
        format: Format::Warc,
        source: "crawl".to_string(),
        ..Input::default()
    });
    let (all, _) = curated(&shards(&whole).unwrap(), &whole);
    let is_wanted = |(i, _): &(usize, &(String, String))| matches!(i % 40, 0 | 1 | 3 | 20);
    let want: Vec<String> = (all.iter().enumerate().filter(is_wanted))
        .map(|(_, (_, text))| text.clone())
        .collect();
    assert_eq!(want.len(), 16);
    for fault in [Fault::None, Fault::Busy, Fault::Cuts] {
        let server = serve(files.clone(), fault);
        let config = config(input(&server, "&domain=example.org"));
        let shards = shards(&config).unwrap();
        assert_eq!(
            names(&shards),
            ["1700.1/0", "1700.1/1", "1700.2/0", "1700.2/1"]
        );
        let (found, bad) = curated(&shards, &config);
        let texts: Vec<String> = found.into_iter().map(|(_, text)| text).collect();
        assert!(texts == want && bad == 0, "{fault:?}");
        if fault == Fault::None {
            // the first three are near each other and one request, the last is far from them
            let requests = server.requests.lock().unwrap();
            let of_files = requests.iter().filter(|r| r.path.contains("/warc/"));
            let ranges: Vec<String> = of_files.filter_map(|r| r.range.clone()).collect();
            let wanted = shards.iter().flat_map(|shard| {
                let path = shard.path.to_string_lossy().into_owned();
                let parts: Vec<&str> = path.split("#bytes=").nth(1).unwrap().split(',').collect();
                let first = parts[0].split('-').next().unwrap();
                let last = parts[2].split('-').nth(1).unwrap();
                [format!("{first}-{last}"), parts[3].to_string()]
            });
            assert_eq!(ranges, wanted.collect::<Vec<String>>());
        }
    }
}

#[test]
fn captures_that_are_no_pages_are_counted_and_lists_stay_as_they_are() {
    let out = tempfile::tempdir().unwrap();
    let server = serve(crawl(), Fault::None);
    let mut input = input(&server, "&domain=*.example.org&files=3");
    input.path = input.path.replace("http://", "http://me:secret@");
    let lists = keep_crawl_lists(std::slice::from_ref(&input), out.path()).unwrap();
    assert_eq!(
        (lists[0].files, lists[0].captures, lists[0].is_new),
        (3, 12, true)
    );
    assert_eq!(
        lists[0].left_out,
        BTreeMap::from([("robotstxt".to_string(), 1)])
    );
    let kept = std::fs::read_to_string(&lists[0].file).unwrap();
    assert!(
        kept.contains("me:***@") && !kept.contains("secret"),
        "{kept}"
    );
    let config = config(input.clone());
    let first = shards_kept(&config, out.path()).unwrap();
    // a run that goes on asks nothing
    let before = server.requests.lock().unwrap().len();
    let lists = keep_crawl_lists(&[input], out.path()).unwrap();
    assert!(!lists[0].is_new);
    assert_eq!(shards_kept(&config, out.path()).unwrap(), first);
    assert_eq!(server.requests.lock().unwrap().len(), before);
}

#[test]
fn wrong_snapshots_domains_and_closed_servers_are_named_with_what_to_do() {
    let server = serve(crawl(), Fault::None);
    let why = |input: Input| missing_inputs(&[input])[0].1.clone();
    for (options, wanted) in [
        (
            "",
            [
                "warc.paths.gz is not there (404)",
                "no snapshot CC-MAIN-1999-01",
                "collinfo.json lists",
            ],
        ),
        (
            "&domain=example.org",
            [
                "showNumPages",
                "no index of a snapshot CC-MAIN-1999-01",
                "collinfo.json lists",
            ],
        ),
    ] {
        let mut wrong = input(&server, options);
        wrong.path = wrong.path.replace(SNAPSHOT, "CC-MAIN-1999-01");
        let found = why(wrong);
        assert!(wanted.iter().all(|w| found.contains(w)), "{found}");
    }
    let found = why(input(&server, "&domain=nobody.example,example.org"));
    assert!(
        found.contains("no captures of nobody.example; another snapshot"),
        "{found}"
    );
    let closed = serve(crawl(), Fault::Closed);
    let found = why(input(&closed, "&domain=example.org"));
    for wanted in ["showNumPages", "503", "after 8 attempts", "pause=SECONDS"] {
        assert!(found.contains(wanted), "{found}");
    }
    assert_eq!(closed.requests.lock().unwrap().len(), 8);
}

#[test]
fn a_file_that_is_gone_is_an_error_of_its_shard() {
    let mut files = crawl();
    files.remove(&format!("/{}", path_of("1700.2", 0)));
    let server = serve(files, Fault::None);
    for options in ["", "&domain=example.org"] {
        let config = config(input(&server, options));
        let shards = shards(&config).unwrap();
        let out = tempfile::tempdir().unwrap();
        let curator = Curator::new(&config, None, None, 0).unwrap();
        let run = |shard: &Shard| curator.run_shard(shard, out.path(), &curate::Silent);
        let failed: Vec<bool> = shards.iter().map(|shard| run(shard).is_err()).collect();
        assert_eq!(failed, [false, false, true, false], "{options}");
        let why = run(&shards[2]).err().unwrap().to_string();
        assert!(
            why.contains("CC-1700.2-00000.warc.gz") && why.contains("404"),
            "{why}"
        );
        assert!(!Path::new(out.path()).join("clean/00002.jsonl.zst").exists());
    }
}
