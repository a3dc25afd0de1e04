//! The end of the server: signals, requests that still run, wrong flags and models.

use crate::serve::{Server, model, request};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

#[test]
fn a_full_queue_is_429_and_sigterm_lets_the_running_finish() {
    let server = Server::start(&["--max-sequences", "1", "--max-queue", "0", "--drain", "60"]);
    let asked = json!({"prompt": "The", "max_tokens": 310, "temperature": 0, "ignore_eos": true, "stream": true});
    let bytes = request("POST", "/v1/completions", "", asked.to_string().as_bytes());
    // the first request may be over before the second comes
    let both = || {
        server.assert_idle();
        let mut running = server.connect();
        running.write_all(&bytes).unwrap();
        let mut first = [0; 300];
        running.read_exact(&mut first).unwrap();
        let full = server.post("/v1/completions", &json!({"prompt": "a"}));
        (running, full)
    };
    let (mut running, full) = (0..20)
        .map(|_| both())
        .find(|(_, full)| full.status == 429)
        .expect("a second request beside the first");
    let head = full.head.to_lowercase();
    assert!(head.contains("retry-after: 1"), "{head}");
    server.signal("-TERM");
    let until = Instant::now() + Duration::from_secs(60);
    while !server.log().contains("shutting down") {
        assert!(Instant::now() < until, "{}", server.log());
        std::thread::sleep(Duration::from_millis(5));
    }
    if let Ok(mut late) = TcpStream::connect(("127.0.0.1", server.port)) {
        // the running request may have finished in between
        let _ = late.write_all(&request(
            "POST",
            "/v1/completions",
            "",
            b"{\"prompt\": \"a\"}",
        ));
        let mut bytes = Vec::new();
        let _ = late.read_to_end(&mut bytes);
        let text = String::from_utf8_lossy(&bytes).to_lowercase();
        assert!(
            text.is_empty() || text.contains(" 503 ") && text.contains("retry-after"),
            "{text}"
        );
    }
    let mut rest = String::new();
    running.read_to_string(&mut rest).unwrap();
    assert!(
        rest.contains("\"finish_reason\":\"length\"") && rest.contains("[DONE]"),
        "{rest}"
    );
    let (status, log) = server.ended();
    assert_eq!(status.code(), Some(0), "{log}");
}

#[test]
fn requests_that_do_not_finish_are_cut_and_the_exit_code_says_so() {
    let server = Server::start(&["--drain", "0", "--max-batch-tokens", "1"]);
    let asked = json!({"prompt": "The", "max_tokens": 310, "ignore_eos": true, "n": 128});
    let mut running = server.connect();
    let bytes = request("POST", "/v1/completions", "", asked.to_string().as_bytes());
    running.write_all(&bytes).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while server.metric("vllm:num_requests_running") == 0.0 {
        assert!(Instant::now() < until, "{}", server.log());
        std::thread::sleep(Duration::from_millis(5));
    }
    // as many sequences again: more than 128 are there only while both requests are, also after some have ended
    let asked =
        json!({"prompt": "The", "max_tokens": 310, "ignore_eos": true, "n": 128, "stream": true});
    let mut streaming = server.connect();
    let bytes = request("POST", "/v1/completions", "", asked.to_string().as_bytes());
    streaming.write_all(&bytes).unwrap();
    while server.metric("vllm:num_requests_running") + server.metric("vllm:num_requests_waiting")
        < 129.0
    {
        assert!(Instant::now() < until, "{}", server.log());
        std::thread::sleep(Duration::from_millis(5));
    }
    server.signal("-INT");
    let (mut whole, mut stream) = (String::new(), String::new());
    running.read_to_string(&mut whole).unwrap();
    streaming.read_to_string(&mut stream).unwrap();
    let (status, log) = server.ended();
    assert_eq!(status.code(), Some(130), "{log}");
    assert!(log.contains("2 requests were cut off"), "{log}");
    assert!(!log.contains("the client left"), "{log}");
    let lower = whole.to_lowercase();
    assert!(
        lower.contains(" 503 ") && lower.contains("retry-after"),
        "{whole}"
    );
    for answer in [&whole, &stream] {
        assert!(answer.contains("the server is shutting down"), "{answer}");
    }
    assert!(stream.contains("data: [DONE]"), "{stream}");
}

#[test]
fn wrong_flags_and_models_end_the_program() {
    let model = model().display().to_string();
    let run = |args: &[&str]| {
        let out = crate::jobs::output(&[&["serve"], args].concat());
        (out.status.code(), String::from_utf8(out.stderr).unwrap())
    };
    let (code, text) = run(&[&model, "--port", "x", "--max-queue=-1", "--timeout", "0"]);
    assert!(code == Some(2) && text.contains("3 wrong values"), "{text}");
    let (code, text) = run(&["no/such/model", "--port", "0"]);
    assert!(code == Some(1) && text.contains("no/such/model"), "{text}");
    let busy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = busy.local_addr().unwrap().port().to_string();
    let (code, text) = run(&[&model, "--port", &port]);
    assert!(
        code == Some(1) && text.contains("cannot listen on"),
        "{text}"
    );
}
