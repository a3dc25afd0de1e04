//! The hosts that `serve` and `watch` answer for, as requests name them: the defence against pages that bind their own name to this
//! machine's address (DNS rebinding).

use crate::serve::{Answer, Server};
use crate::watch::Page;
use serde_json::json;
use std::path::Path;

/// Sends bytes as they are to a server.
type Raw<'a> = &'a dyn Fn(&[u8]) -> Answer;

/// The head of a request in `version` with `hosts`, each a header.
fn request(target: &str, version: &str, hosts: &[&str]) -> Vec<u8> {
    let hosts = hosts.iter().map(|host| format!("Host: {host}\r\n"));
    let hosts: String = hosts.collect();
    format!("GET {target} HTTP/{version}\r\n{hosts}Connection: close\r\n\r\n").into_bytes()
}

/// Asserts 403 in the form of the other errors, with the host and the flag in the message.
fn assert_refused(answer: &Answer, host: &str) {
    assert_eq!(answer.status, 403, "{host}: {}", answer.body);
    let error = &answer.json()["error"];
    assert_eq!(error["type"], "PermissionDeniedError", "{host}");
    assert_eq!(error["code"], 403, "{host}");
    let message = error["message"].as_str().unwrap();
    for part in [
        format!("Host: found {host:?}"),
        format!("--allowed-host {host}"),
    ] {
        assert!(message.contains(&part), "{part}: {message}");
    }
    let head = answer.head.to_lowercase();
    assert!(!head.contains("access-control-"), "{head}");
}

/// Asserts that a server on a loopback address answers loopback names and no others; `path` is one of its routes.
fn assert_loopback_names_only(path: &str, raw: Raw<'_>) {
    for host in [
        "localhost",
        "LOCALHOST:8000",
        "page.localhost:1",
        "127.0.0.1:8000",
        "[::1]:8000",
    ] {
        let answer = raw(&request(path, "1.1", &[host]));
        assert_eq!(answer.status, 200, "{host}: {}", answer.body);
    }
    // the host comes first, so that a page learns no paths either
    for target in [path, "/", "/nowhere"] {
        let answer = raw(&request(target, "1.1", &["Evil.Example:8000"]));
        assert_refused(&answer, "evil.example");
    }
    let refused = |target: &str, hosts: &[&str]| {
        let answer = raw(&request(target, "1.1", hosts));
        assert_eq!(answer.status, 403, "{target} {hosts:?}: {}", answer.body);
    };
    refused(path, &[""]);
    refused(path, &["evil.example@x.localhost"]);
    refused(path, &["localhost", "evil.example"]);
    let absolute = |host: &str| format!("http://{host}{path}");
    refused(&absolute("evil.example"), &["localhost"]);
    refused(&absolute("localhost"), &["evil.example"]);
    assert_eq!(
        raw(&request(&absolute("localhost"), "1.1", &["localhost"])).status,
        200
    );
    let of_page = |origin: &str| {
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nOrigin: {origin}\r\nConnection: close\r\n\r\n"
        );
        raw(head.as_bytes())
    };
    assert_eq!(of_page("http://localhost:8000").status, 200);
    for origin in ["https://evil.example", "null"] {
        let answer = of_page(origin);
        assert_eq!(answer.status, 403, "{origin}: {}", answer.body);
        assert!(answer.body.contains("Origin: found"), "{}", answer.body);
    }
    // clients of HTTP/1.0 need no host, those of HTTP/1.1 do
    assert_eq!(raw(&request(path, "1.0", &[])).status, 200);
    assert_eq!(raw(&request(path, "1.1", &[])).status, 400);
    let old = raw(&request(path, "1.0", &["evil.example"]));
    assert_refused(&old, "evil.example");
}

fn status(raw: Raw<'_>, path: &str, host: &str) -> u16 {
    raw(&request(path, "1.1", &[host])).status
}

#[test]
fn a_model_on_a_loopback_address_answers_loopback_names_and_those_allowed() {
    let server = Server::start(&["--allowed-host", "Models.Example", "--allowed-host", "::2"]);
    let raw = |bytes: &[u8]| server.raw(bytes);
    assert_loopback_names_only("/v1/models", &raw);
    for host in ["models.example", "models.example:443", "[::2]:80"] {
        assert_eq!(status(&raw, "/v1/models", host), 200, "{host}");
    }
    // an answer is not made for another host
    let body = json!({"prompt": "The boat", "max_tokens": 4}).to_string();
    for path in ["/v1/completions", "/v1/chat/completions", "/tokenize"] {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let answer = server.raw(&[head.as_bytes(), body.as_bytes()].concat());
        assert_refused(&answer, "evil.example");
    }
}

#[test]
fn curves_on_a_loopback_address_are_for_loopback_names() {
    let dir = tempfile::tempdir().unwrap();
    let page = Page::of(&[dir.path()]);
    assert_loopback_names_only("/api/runs", &|bytes| page.raw(bytes));
}

#[test]
fn servers_on_other_addresses_answer_every_host_until_some_are_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let model = Server::start(&["--host", "0.0.0.0"]);
    let curves = Page::with(&["--host", "0.0.0.0"], &[dir.path()]);
    let servers: [(&str, Raw<'_>); 2] = [
        ("/version", &|bytes| model.raw(bytes)),
        ("/api/runs", &|bytes| curves.raw(bytes)),
    ];
    for (path, raw) in servers {
        for host in ["evil.example", "10.0.0.7:80", "localhost", ""] {
            assert_eq!(status(raw, path, host), 200, "{path} {host:?}");
        }
    }
    drop((model, curves));

    let args = ["--host", "0.0.0.0", "--allowed-host", "models.example"];
    let model = Server::start(&args);
    let curves = Page::with(&args, &[dir.path()]);
    let servers: [(&str, Raw<'_>); 2] = [
        ("/version", &|bytes| model.raw(bytes)),
        ("/api/runs", &|bytes| curves.raw(bytes)),
    ];
    for (path, raw) in servers {
        for host in ["models.example:443", "localhost:8000", "127.0.0.1"] {
            assert_eq!(status(raw, path, host), 200, "{path} {host}");
        }
        let answer = raw(&request(path, "1.1", &["evil.example"]));
        assert_refused(&answer, "evil.example");
    }
}

#[test]
fn wrong_hosts_of_the_flag_are_reported_with_the_other_flags() {
    let model = crate::serve::model();
    for (verb, path) in [("serve", model.as_path()), ("watch", Path::new("runs"))] {
        let args = [
            "--allowed-host",
            "http://x.example",
            "--allowed-host",
            "x.example:80",
        ];
        let ended = crate::jobs::millrace(&[verb, "--port", "70000"])
            .args(args)
            .arg(path)
            .output()
            .unwrap();
        let text = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(2), "{text}");
        for part in [
            "3 wrong values",
            "--port: found \"70000\"",
            "--allowed-host: found \"http://x.example\", want a name or an address without a port",
            "--allowed-host: found \"x.example:80\"",
        ] {
            assert!(text.contains(part), "{verb}: {part}: {text}");
        }
    }
}
