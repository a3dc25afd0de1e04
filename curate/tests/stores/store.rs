//! A folder in an object store, on an S3 server in this process that refuses requests, breaks off and fails to
//! answer.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use curate::read::{Format, Input, input_files};
use curate::store::{ObjectFolder, Put};

use crate::server::listen;

/// Misbehaviour of the server.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// Answers every other request with 503.
    Busy,
    /// Closes the connection in the middle of every other body that it sends.
    Halves,
    /// Does what every other request asks for, and closes the connection instead of answering.
    Silent,
    /// Answers everything with 403.
    Forbidden,
}

type Objects = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

/// An S3 server until the test ends, and a folder in it.
fn serve(fault: Fault, settings: &[(&str, &str)]) -> (Objects, ObjectFolder) {
    let (objects, options) = listening(fault, settings);
    let folder = ObjectFolder::open("s3://bucket/runs/one/", &options).unwrap();
    (objects, folder)
}

/// An S3 server until the test ends, and the settings of its clients.
fn listening(fault: Fault, settings: &[(&str, &str)]) -> (Objects, BTreeMap<String, String>) {
    let objects = Objects::default();
    let (ours, count) = (objects.clone(), AtomicUsize::new(0));
    let address = listen(move |stream| answer(stream, &ours, fault, &count));
    let endpoint = format!("http://{address}");
    let mut options = BTreeMap::new();
    for (key, value) in [
        ("aws_endpoint", endpoint.as_str()),
        ("aws_allow_http", "true"),
        ("aws_region", "us-east-1"),
        ("aws_access_key_id", "test"),
        ("aws_secret_access_key", "test"),
    ]
    .iter()
    .chain(settings)
    {
        options.insert((*key).to_string(), (*value).to_string());
    }
    (objects, options)
}

fn answer(
    stream: TcpStream,
    objects: &Objects,
    fault: Fault,
    count: &AtomicUsize,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut out = stream;
    loop {
        let mut first = String::new();
        if reader.read_line(&mut first)? == 0 {
            return Ok(());
        }
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                break;
            };
            headers.insert(name.to_ascii_lowercase(), value.to_string());
        }
        let length = headers
            .get("content-length")
            .map_or(0, |n| n.parse().unwrap());
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let turn = count.fetch_add(1, Ordering::SeqCst);
        let (status, tag, sent) = match fault {
            Fault::Busy if turn.is_multiple_of(2) => (503, String::new(), Vec::new()),
            Fault::Forbidden => (403, String::new(), Vec::new()),
            _ => respond(&first, &headers, body, &mut objects.lock().unwrap()),
        };
        if fault == Fault::Silent && turn.is_multiple_of(2) {
            return out.shutdown(std::net::Shutdown::Both);
        }
        let is_head = first.starts_with("HEAD");
        write!(
            out,
            "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nETag: {tag}\r\nLast-Modified: Tue, 02 Jan 2024 00:00:00 GMT\r\n",
            sent.len()
        )?;
        if status == 206 {
            let from = first_byte(&headers);
            let size = from + sent.len();
            write!(out, "Content-Range: bytes {from}-{}/{size}\r\n", size - 1)?;
        }
        write!(out, "\r\n")?;
        if is_head {
            continue;
        }
        if fault == Fault::Halves && turn % 2 == 1 && !sent.is_empty() {
            out.write_all(&sent[..sent.len() / 2])?;
            return out.shutdown(std::net::Shutdown::Both);
        }
        out.write_all(&sent)?;
    }
}

fn first_byte(headers: &BTreeMap<String, String>) -> usize {
    let range = headers.get("range").and_then(|r| r.strip_prefix("bytes="));
    range.map_or(0, |r| r.trim_end_matches('-').parse().unwrap())
}

fn tag_of(bytes: &[u8]) -> String {
    format!(
        "\"{:x}\"",
        bytes
            .iter()
            .fold(7u64, |h, b| h.wrapping_mul(31) + u64::from(*b))
    )
}

/// Status, ETag and body.
fn respond(
    first: &str,
    headers: &BTreeMap<String, String>,
    body: Vec<u8>,
    objects: &mut BTreeMap<String, Vec<u8>>,
) -> (u16, String, Vec<u8>) {
    let mut words = first.split(' ');
    let (method, path) = (words.next().unwrap(), words.next().unwrap());
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let key = path
        .trim_start_matches("/bucket")
        .trim_start_matches('/')
        .to_string();
    if query.contains("list-type") {
        let prefix = query
            .split('&')
            .find_map(|part| part.strip_prefix("prefix="));
        let prefix = prefix.unwrap_or("").replace("%2F", "/");
        let mut list = String::from("<ListBucketResult><IsTruncated>false</IsTruncated>");
        for (key, bytes) in objects.iter().filter(|o| o.0.starts_with(&prefix)) {
            list += &format!(
                "<Contents><Key>{key}</Key><Size>{}</Size><LastModified>2024-01-02T00:00:00.000Z</LastModified></Contents>",
                bytes.len()
            );
        }
        return (
            200,
            String::new(),
            (list + "</ListBucketResult>").into_bytes(),
        );
    }
    let there = objects.get(&key);
    if method == "PUT" {
        let expected = headers.get("if-match");
        let is_met = match (there, expected) {
            (Some(_), None) => !headers.contains_key("if-none-match"),
            (None, None) => true,
            (there, Some(tag)) => there.is_some_and(|bytes| tag_of(bytes) == *tag),
        };
        if !is_met {
            return (412, String::new(), Vec::new());
        }
        let tag = tag_of(&body);
        objects.insert(key, body);
        return (200, tag, Vec::new());
    }
    if method == "DELETE" {
        // as Google's and Azure's servers; S3 answers 204 either way
        let status = if objects.remove(&key).is_some() {
            204
        } else {
            404
        };
        return (status, String::new(), Vec::new());
    }
    match there {
        None => (404, String::new(), Vec::new()),
        Some(bytes) => {
            let from = first_byte(headers);
            let status = if from > 0 { 206 } else { 200 };
            (status, tag_of(bytes), bytes[from..].to_vec())
        }
    }
}

#[test]
fn files_come_back_as_they_were_put_from_a_server_that_refuses_and_breaks_off() {
    for fault in [Fault::None, Fault::Busy, Fault::Halves] {
        let (objects, folder) = serve(fault, &[]);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let bytes: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
        std::fs::write(&path, &bytes).unwrap();
        folder.put("clean/00000.sig", &path).unwrap();
        assert_eq!(objects.lock().unwrap()["runs/one/clean/00000.sig"], bytes);
        let size = bytes.len() as u64;
        assert_eq!(folder.size("clean/00000.sig").unwrap(), Some(size));
        assert_eq!(folder.size("clean/00001.sig").unwrap(), None);
        let back = dir.path().join("back");
        let mut file = std::fs::File::create(&back).unwrap();
        assert!(folder.fetch("clean/00000.sig", &mut file).unwrap());
        assert_eq!(std::fs::read(&back).unwrap(), bytes, "{fault:?}");
        assert!(!folder.fetch("clean/00001.sig", &mut file).unwrap());
        let listed = folder.list("clean").unwrap();
        assert_eq!(listed, [("clean/00000.sig".to_string(), size)], "{fault:?}");
    }
}

#[test]
fn removed_objects_are_gone_also_those_that_were_not_there() {
    for fault in [Fault::None, Fault::Busy, Fault::Silent] {
        let (objects, folder) = serve(fault, &[]);
        let names = ["clean/00001.sig", "clean/00002.sig"];
        for name in names {
            let key = format!("runs/one/{name}");
            objects.lock().unwrap().insert(key, b"x".to_vec());
        }
        for name in [names[1], names[1], "clean/00003.sig"] {
            folder.remove(name).unwrap();
        }
        let left: Vec<String> = objects.lock().unwrap().keys().cloned().collect();
        assert_eq!(left, ["runs/one/clean/00001.sig"], "{fault:?}");
    }
}

#[test]
fn an_object_is_replaced_only_while_it_is_the_one_that_was_read() {
    let (_, folder) = serve(Fault::Busy, &[]);
    assert_eq!(folder.read("m").unwrap(), None);
    let Put::Done(Some(first)) = folder.put_if("m", b"one", None).unwrap() else {
        panic!("the first put was refused");
    };
    assert_eq!(folder.put_if("m", b"two", None).unwrap(), Put::Other);
    let (bytes, version) = folder.read("m").unwrap().unwrap();
    assert_eq!(
        (bytes.as_slice(), version.as_deref()),
        (&b"one"[..], Some(first.as_str()))
    );
    let second = folder.put_if("m", b"two", Some(&first)).unwrap();
    assert!(matches!(second, Put::Done(Some(_))));
    assert_eq!(
        folder.put_if("m", b"three", Some(&first)).unwrap(),
        Put::Other
    );
    assert_eq!(folder.read("m").unwrap().unwrap().0, b"two");
}

#[test]
fn a_store_without_conditions_is_written_to_all_the_same() {
    let (_, folder) = serve(Fault::None, &[("aws_conditional_put", "disabled")]);
    for text in [b"one", b"two"] {
        assert!(matches!(
            folder.put_if("m", text, None).unwrap(),
            Put::Done(_)
        ));
    }
    assert_eq!(folder.read("m").unwrap().unwrap().0, b"two");
}

#[test]
fn what_a_store_refuses_is_named() {
    let (_, folder) = serve(Fault::Forbidden, &[]);
    for message in [
        folder.read("a/b").unwrap_err().to_string(),
        folder.put_if("a/b", b"", None).unwrap_err().to_string(),
        folder.list("a/b").unwrap_err().to_string(),
        folder.remove("a/b").unwrap_err().to_string(),
    ] {
        assert!(
            message.starts_with("s3://bucket/runs/one/a/b: "),
            "{message}"
        );
    }
    let wrong = BTreeMap::from([("aws_colour".to_string(), "red".to_string())]);
    let message = ObjectFolder::open("s3://bucket/x", &wrong).err().unwrap();
    assert!(message.to_string().contains("aws_colour"), "{message}");
    assert!(ObjectFolder::open("bucket/x", &BTreeMap::new()).is_err());
}

#[test]
fn a_split_of_a_dataset_in_a_store_is_that_of_its_card_or_of_names() {
    let (objects, options) = listening(Fault::None, &[]);
    let put = |name: &str, text: &str| {
        let mut objects = objects.lock().unwrap();
        objects.insert(format!("sets/one/{name}"), text.as_bytes().to_vec());
    };
    for name in ["data/a.jsonl", "data/dev.jsonl", "data/train.jsonl"] {
        put(name, "{\"text\":\"a\"}\n");
    }
    put(".gitattributes", "x");
    put("README.md", "---\nlicense: mit\n---\n");
    let input = |path: &str, split: &str| Input {
        path: path.to_string(),
        format: Format::Jsonl,
        dataset_split: Some(split.to_string()),
        options: options.clone(),
        ..Input::default()
    };
    let files = |split: &str| -> Vec<String> {
        let files = input_files(&[input("s3://bucket/sets/one/", split)]).unwrap();
        assert!(
            files
                .iter()
                .all(|file| file.dataset_split.as_deref() == Some(split))
        );
        files.into_iter().map(|file| file.file).collect()
    };
    assert_eq!(files("train"), ["data/train.jsonl"]);
    assert_eq!(files("validation"), ["data/dev.jsonl"]);
    put(
        "README.md",
        "---\nconfigs:\n- config_name: c\n  data_files:\n  - split: own\n    path: data/[at]*.jsonl\n---\n",
    );
    assert_eq!(files("own"), ["data/a.jsonl", "data/train.jsonl"]);
    for (path, split, want) in [
        (
            "s3://bucket/sets/one/",
            "train",
            "no split \"train\"; there are own",
        ),
        (
            "s3://bucket/sets/one/data/a.jsonl",
            "own",
            "a URL that ends in `/`",
        ),
    ] {
        let why = input_files(&[input(path, split)]).unwrap_err().to_string();
        assert!(why.contains(want), "{why}");
    }
}
