//! An S3 server in this process, with conditional puts.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use crate::server::listen;

/// The objects of a bucket by name.
pub(crate) type Objects = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Answer {
    Usual,
    /// This status; nothing is done.
    Refusal(u16),
    /// Half of a body, and the end of the connection; without a body as usual.
    Half,
    /// The request is done, and the connection ends without an answer.
    Silence,
}

/// Starts a server that answers as `choose` says by the method of each request; returns `HOST:PORT`.
pub(crate) fn serve(
    objects: Objects,
    choose: impl Fn(&str) -> Answer + Send + Sync + 'static,
) -> String {
    listen(move |stream| converse(stream, &objects, &choose))
}

fn converse(
    stream: TcpStream,
    objects: &Objects,
    choose: impl Fn(&str) -> Answer,
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
        let answer = choose(first.split(' ').next().unwrap());
        let response = match answer {
            Answer::Refusal(status) => Response::of(status),
            Answer::Usual | Answer::Half | Answer::Silence => {
                respond(&first, &headers, body, &mut objects.lock().unwrap())
            }
        };
        let Response {
            status,
            tag,
            sent,
            part,
        } = response;
        if answer == Answer::Silence {
            return out.shutdown(std::net::Shutdown::Both);
        }
        let is_head = first.starts_with("HEAD");
        write!(
            out,
            "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nETag: {tag}\r\nLast-Modified: Tue, 02 Jan 2024 00:00:00 GMT\r\n",
            sent.len()
        )?;
        if let Some(part) = part {
            write!(out, "Content-Range: bytes {part}\r\n")?;
        }
        write!(out, "\r\n")?;
        if is_head {
            continue;
        }
        if answer == Answer::Half && !sent.is_empty() {
            out.write_all(&sent[..sent.len() / 2])?;
            return out.shutdown(std::net::Shutdown::Both);
        }
        out.write_all(&sent)?;
    }
}

struct Response {
    status: u16,
    tag: String,
    sent: Vec<u8>,
    /// The bytes of the object that are sent, if they are not all.
    part: Option<String>,
}

impl Response {
    fn of(status: u16) -> Response {
        Response {
            status,
            tag: String::new(),
            sent: Vec::new(),
            part: None,
        }
    }
}

/// First byte of the range that is asked for, and the one behind it.
fn range(headers: &BTreeMap<String, String>, size: usize) -> Option<(usize, usize)> {
    let (first, last) = headers
        .get("range")?
        .strip_prefix("bytes=")?
        .split_once('-')?;
    let end = last.parse().map_or(size, |last: usize| size.min(last + 1));
    Some((first.parse().unwrap(), end))
}

fn tag_of(bytes: &[u8]) -> String {
    format!(
        "\"{:x}\"",
        bytes
            .iter()
            .fold(7u64, |h, b| h.wrapping_mul(31) + u64::from(*b))
    )
}

fn respond(
    first: &str,
    headers: &BTreeMap<String, String>,
    body: Vec<u8>,
    objects: &mut BTreeMap<String, Vec<u8>>,
) -> Response {
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
        return Response {
            sent: (list + "</ListBucketResult>").into_bytes(),
            ..Response::of(200)
        };
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
            return Response::of(412);
        }
        let tag = tag_of(&body);
        objects.insert(key, body);
        return Response {
            tag,
            ..Response::of(200)
        };
    }
    if method == "DELETE" {
        // as Google's and Azure's servers; S3 answers 204 either way
        let status = if objects.remove(&key).is_some() {
            204
        } else {
            404
        };
        return Response::of(status);
    }
    let Some(bytes) = there else {
        return Response::of(404);
    };
    let asked = range(headers, bytes.len());
    let (from, end) = asked.unwrap_or((0, bytes.len()));
    Response {
        status: if asked.is_some() { 206 } else { 200 },
        tag: tag_of(bytes),
        sent: bytes[from..end].to_vec(),
        part: asked.map(|_| format!("{from}-{}/{}", end - 1, bytes.len())),
    }
}
