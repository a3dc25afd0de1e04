//! Inputs behind HTTP and S3, from a server in this process that misbehaves on request.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use curate::read::{Format, Input, each_record, input_files};

use crate::server::listen;

/// Misbehaviour of the server.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// Closes the connection in the middle of each of the first three answers.
    Drops,
    /// Answers the first two requests with 503.
    Busy,
    /// Drops as above, and answers range requests with the whole object.
    NoRanges,
    /// Sends no ETag.
    NoTags,
    /// Always closes in the middle, at the same byte.
    Stuck,
}

struct Server {
    address: String,
    requests: Arc<AtomicUsize>,
}

/// Serves `files` by path until the test ends.
fn serve(files: BTreeMap<String, Vec<u8>>, fault: Fault) -> Server {
    let requests = Arc::new(AtomicUsize::new(0));
    let counter = requests.clone();
    let address = listen(move |stream| answer(stream, &files, fault, &counter));
    Server { address, requests }
}

fn answer(
    stream: TcpStream,
    files: &BTreeMap<String, Vec<u8>>,
    fault: Fault,
    counter: &AtomicUsize,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let mut out = stream;
    while let Some(first) = lines.next() {
        let first = first?;
        let mut words = first.split(' ');
        let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let mut from = 0;
        for line in lines.by_ref() {
            let line = line?.to_ascii_lowercase();
            if let Some(range) = line.strip_prefix("range: bytes=") {
                from = range.trim_end_matches('-').parse().unwrap_or(0);
            }
            if line.is_empty() {
                break;
            }
        }
        let number = counter.fetch_add(1, Ordering::SeqCst);
        if fault == Fault::Busy && number < 2 {
            write!(out, "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")?;
            continue;
        }
        if let Some(query) = path.split_once('?').map(|(_, query)| query) {
            let body = listing(files, query);
            write!(
                out,
                "HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )?;
            continue;
        }
        let Some(whole) = files.get(path) else {
            write!(out, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")?;
            continue;
        };
        let ranged = from > 0 && fault != Fault::NoRanges;
        let body = if ranged { &whole[from..] } else { &whole[..] };
        let status = if ranged {
            "206 Partial Content"
        } else {
            "200 OK"
        };
        write!(
            out,
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nLast-Modified: Tue, 02 Jan 2024 00:00:{:02} GMT\r\n",
            body.len(),
            state(whole)
        )?;
        if fault != Fault::NoTags {
            write!(out, "ETag: \"{}\"\r\n", state(whole))?;
        }
        if ranged {
            let size = from + body.len();
            write!(out, "Content-Range: bytes {from}-{}/{size}\r\n", size - 1)?;
        }
        write!(out, "\r\n")?;
        if method == "HEAD" {
            continue;
        }
        let drops = matches!(fault, Fault::Drops | Fault::NoRanges) && number < 4;
        let cut = if drops { body.len() / 2 } else { body.len() };
        let cut = if fault == Fault::Stuck {
            cut.min(1000 - from.min(1000))
        } else {
            cut
        };
        out.write_all(&body[..cut])?;
        if cut < body.len() {
            return out.shutdown(std::net::Shutdown::Both);
        }
    }
    Ok(())
}

/// Stands for the state of an object, in tags and as the second of its last change.
fn state(bytes: &[u8]) -> u64 {
    bytes.iter().map(|b| u64::from(*b)).sum::<u64>() % 60
}

/// S3's answer to a listing.
fn listing(files: &BTreeMap<String, Vec<u8>>, query: &str) -> String {
    let prefix = query
        .split('&')
        .find_map(|part| part.strip_prefix("prefix="))
        .unwrap_or("")
        .replace("%2F", "/");
    let mut body = String::from("<ListBucketResult><IsTruncated>false</IsTruncated>");
    for (path, bytes) in files {
        let key = path.trim_start_matches("/bucket/");
        if key.starts_with(&prefix) {
            body += &format!(
                "<Contents><Key>{key}</Key><Size>{}</Size><LastModified>2024-01-02T00:00:00.000Z</LastModified><ETag>\"{}\"</ETag></Contents>",
                bytes.len(),
                state(bytes)
            );
        }
    }
    body + "</ListBucketResult>"
}

fn data(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/archives");
    std::fs::read(folder.join(name)).unwrap()
}

/// Lines that do not compress, so that drops fall inside them.
fn lines() -> Vec<u8> {
    let line = |i: u64| {
        let word = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        format!("{{\"text\":\"document {i} {word:x}\"}}\n").into_bytes()
    };
    (0..40_000).flat_map(line).collect()
}

/// Blocks of the records, bad ones as their reason.
fn blocks(input: &Input) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for shard in input_files(std::slice::from_ref(input)).unwrap() {
        let read = each_record(&shard.path, &shard.input, None, 1 << 24, &mut |r| {
            found.push(
                r.bad
                    .map_or(r.block.to_vec(), |why| why.as_bytes().to_vec()),
            );
        });
        found.extend(read.err().map(|e| e.to_string().into_bytes()));
    }
    found
}

fn input(path: String, format: Format) -> Input {
    Input {
        path,
        format,
        ..Input::default()
    }
}

#[test]
fn drops_refusals_and_servers_without_ranges_lose_nothing() {
    let files = BTreeMap::from([
        ("/a/x.jsonl".to_string(), lines()),
        ("/a/x.warc.gz".to_string(), data("example.warc.gz")),
        ("/a/x.parquet".to_string(), data("sample.parquet")),
    ]);
    let mut want = Vec::new();
    for fault in [Fault::None, Fault::Drops, Fault::Busy, Fault::NoRanges] {
        for (i, (name, format)) in [
            ("x.jsonl", Format::Jsonl),
            ("x.warc.gz", Format::Warc),
            ("x.parquet", Format::Parquet),
        ]
        .into_iter()
        .enumerate()
        {
            let server = serve(files.clone(), fault);
            let url = format!("http://{}/a/{name}", server.address);
            let found = blocks(&input(url, format));
            if fault == Fault::None {
                want.push(found);
                continue;
            }
            let last = String::from_utf8_lossy(found.last().unwrap());
            assert_eq!(found.len(), want[i].len(), "{fault:?} {name}: {last}");
            assert!(found == want[i], "{fault:?} {name}");
            assert!(server.requests.load(Ordering::SeqCst) > 1);
        }
    }
    assert_eq!(
        (want[0].len(), want[1].len(), want[2].len()),
        (40_000, 6, 9)
    );
}

#[test]
fn a_server_that_never_goes_on_is_given_up_with_the_place() {
    let files = BTreeMap::from([("/x.jsonl".to_string(), lines())]);
    let server = serve(files, Fault::Stuck);
    let url = format!("http://{}/x.jsonl", server.address);
    let found = blocks(&input(url, Format::Jsonl));
    let last = String::from_utf8_lossy(found.last().unwrap()).into_owned();
    // an error of the whole shard: how many records came before does not matter
    assert!(last.contains("cannot read on"), "{last}");
}

#[test]
fn an_address_without_an_object_is_an_error_before_anything_runs() {
    let server = serve(BTreeMap::new(), Fault::None);
    let missing = input(
        format!("http://{}/gone.jsonl", server.address),
        Format::Jsonl,
    );
    let message = curate::read::missing_inputs(&[missing]);
    assert_eq!(message.len(), 1);
    assert!(message[0].1.contains("not found"), "{message:?}");
    let nobody = input("http://127.0.0.1:1/x?y=1".to_string(), Format::Jsonl);
    assert!(
        curate::read::missing_inputs(&[nobody])[0]
            .1
            .contains("query")
    );
}

#[test]
fn a_changed_object_of_the_same_size_has_another_version() {
    let versions = |body: &[u8], fault| -> Vec<Option<String>> {
        let files = BTreeMap::from([("/bucket/a/x.jsonl".to_string(), body.to_vec())]);
        let server = serve(files, fault);
        let endpoint = format!("http://{}", server.address);
        let paths = [
            format!("{endpoint}/bucket/a/x.jsonl"),
            "s3://bucket/a/x.jsonl".to_string(),
            "s3://bucket/a/".to_string(),
        ];
        let version = |path: &String| {
            let mut input = input(path.clone(), Format::Jsonl);
            if path.starts_with("s3") {
                input.options = of_s3(&endpoint);
            }
            let shards = input_files(&[input]).unwrap();
            assert_eq!((shards[0].bytes, shards[0].name.as_str()), (2, "x"));
            shards[0].version.clone()
        };
        paths.iter().map(version).collect()
    };
    for fault in [Fault::None, Fault::NoTags] {
        let [one, same, two] = [b"12", b"12", b"13"].map(|body| versions(body, fault));
        assert_eq!(one, same, "{fault:?}");
        for (one, two) in one.iter().zip(&two) {
            assert!(one.is_some() && one != two, "{fault:?} {one:?} {two:?}");
        }
    }
}

/// Options to read S3 from `endpoint` without credentials.
fn of_s3(endpoint: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        ("aws_endpoint".to_string(), endpoint.to_string()),
        ("aws_allow_http".to_string(), "true".to_string()),
        ("aws_skip_signature".to_string(), "true".to_string()),
        ("aws_region".to_string(), "us-east-1".to_string()),
    ])
}

#[test]
fn lists_and_buckets_give_their_objects() {
    let files = BTreeMap::from([
        (
            "/bucket/crawl/1.warc.gz".to_string(),
            data("example.warc.gz"),
        ),
        (
            "/bucket/crawl/2.warc.gz".to_string(),
            data("post-test.warc.gz"),
        ),
        ("/bucket/crawl/readme.txt".to_string(), b"x".to_vec()),
    ]);
    let server = serve(files, Fault::None);
    let endpoint = format!("http://{}", server.address);
    let options = of_s3(&endpoint);
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("warc.paths");
    std::fs::write(&list, "crawl/1.warc.gz\ncrawl/2.warc.gz\n").unwrap();
    for (path, prefix) in [
        ("s3://bucket/crawl/*.warc.gz".to_string(), String::new()),
        (list.display().to_string(), "s3://bucket/".to_string()),
        (list.display().to_string(), format!("{endpoint}/bucket/")),
    ] {
        let mut input = input(path.clone(), Format::Warc);
        input.prefix = prefix;
        if !input.prefix.starts_with("http") {
            input.options = options.clone();
        }
        assert_eq!(blocks(&input).len(), 12, "{path}");
    }
    let mut wrong = input("s3://bucket/crawl/".to_string(), Format::Warc);
    wrong.options = BTreeMap::from([("aws_colour".to_string(), "red".to_string())]);
    let message = curate::read::missing_inputs(&[wrong]);
    assert!(message[0].1.contains("aws_colour"), "{message:?}");
}
