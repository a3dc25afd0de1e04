//! `millrace serve` as clients see it: OpenAI's routes, Megatron-LM's, bad input, clients that leave, the end by SIGTERM. The
//! client here is a socket; outside clients are in `tests/oracles/serve_clients.py`.

use crate::jobs::{millrace, root};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A server that ends with the test.
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
    folder: tempfile::TempDir,
}

/// An answer's status, headers and body.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    /// Events of a stream, without the last, which is `[DONE]`.
    pub(crate) fn events(&self) -> Vec<Value> {
        let events = self
            .body
            .split("\n\n")
            .filter_map(|part| part.strip_prefix("data: "));
        let events: Vec<&str> = events.collect();
        let (last, events) = events.split_last().unwrap();
        assert_eq!(*last, "[DONE]", "{}", self.body);
        events
            .iter()
            .map(|event| serde_json::from_str(event).unwrap())
            .collect()
    }
}

pub(crate) fn model() -> PathBuf {
    root().join("tests/data/lm_eval/model")
}

const TEMPLATE: &str = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}";

impl Server {
    pub(crate) fn start(args: &[&str]) -> Server {
        Server::of(&model(), args)
    }

    pub(crate) fn of(model: &Path, args: &[&str]) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let template = folder.path().join("template.jinja");
        std::fs::write(&template, TEMPLATE).unwrap();
        let file = folder.path().join("port");
        let model = model.display().to_string();
        let (template, port) = (template.display().to_string(), file.display().to_string());
        let mut all = vec!["serve", &model, "--port", "0", "--port-file", &port];
        all.extend(["--model-name", "tiny", "--chat-template", &template]);
        all.extend(args);
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let child = millrace(&all)
            .env_remove("MILLRACE_API_KEY")
            .stderr(Stdio::from(log))
            .spawn()
            .unwrap();
        let mut server = Server {
            child,
            port: 0,
            folder,
        };
        let until = Instant::now() + Duration::from_secs(60);
        while !file.exists() {
            let ended = server.child.try_wait().unwrap();
            assert!(
                ended.is_none() && Instant::now() < until,
                "{}",
                server.log()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        server.port = std::fs::read_to_string(&file)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        server
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        stream
    }

    /// Sends bytes as they are and reads to the end.
    pub(crate) fn raw(&self, bytes: &[u8]) -> Answer {
        let mut stream = self.connect();
        stream.write_all(bytes).unwrap();
        answer(&mut stream)
    }

    pub(crate) fn send(&self, method: &str, path: &str, body: &[u8]) -> Answer {
        self.raw(&request(method, path, "", body))
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send("GET", path, b"")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        let headers = "Content-Type: application/json\r\n";
        self.raw(&request("POST", path, headers, body.to_string().as_bytes()))
    }

    /// A good answer to a completion.
    pub(crate) fn complete(&self, body: &Value) -> Value {
        let answer = self.post("/v1/completions", body);
        assert_eq!(answer.status, 200, "{body}: {}", answer.body);
        answer.json()
    }

    /// A metric's value, whatever its labels.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let page = self.get("/metrics").body;
        let line = page
            .lines()
            .find(|line| line.starts_with(&format!("{name}{{")));
        let line = line.unwrap_or_else(|| panic!("no {name}: {page}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// Waits until no sequence runs or waits and no block is held.
    pub(crate) fn assert_idle(&self) {
        let names = [
            "num_requests_running",
            "num_requests_waiting",
            "kv_cache_usage_perc",
        ];
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let found = names.map(|name| self.metric(&format!("vllm:{name}")));
            if found == [0.0; 3] {
                return;
            }
            assert!(Instant::now() < until, "{found:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let done = std::process::Command::new("kill")
            .args([name, &pid])
            .status();
        assert!(done.unwrap().success());
    }

    pub(crate) fn ended(mut self) -> (ExitStatus, String) {
        let status = self.child.wait().unwrap();
        (status, self.log())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // it may have ended
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn request(method: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

pub(crate) fn answer(stream: &mut TcpStream) -> Answer {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no answer: {text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let body = match head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked")
    {
        true => unchunked(body),
        false => body.to_owned(),
    };
    Answer {
        status,
        head: head.to_owned(),
        body,
    }
}

fn unchunked(mut body: &str) -> String {
    let mut text = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        text.push_str(&rest[..size]);
        body = &rest[size + 2..];
    }
    text
}

#[test]
fn completions_have_openais_form() {
    let server = Server::start(&[]);
    let greedy = json!({"model": "tiny", "prompt": "The boat", "max_tokens": 8, "temperature": 0});
    let whole = server.complete(&greedy);
    assert_eq!(whole["object"], "text_completion");
    assert!(whole["id"].as_str().unwrap().starts_with("cmpl-"));
    let choice = &whole["choices"][0];
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!(whole["usage"]["completion_tokens"], 8);
    let text = choice["text"].as_str().unwrap();
    assert!(text.len() > 4, "{text:?}");

    // a stream is the same text in parts, then the tokens
    let mut asked = greedy.clone();
    asked["stream"] = true.into();
    asked["stream_options"] = json!({"include_usage": true});
    let streamed = server.post("/v1/completions", &asked);
    assert!(
        streamed.head.contains("text/event-stream"),
        "{}",
        streamed.head
    );
    let events = streamed.events();
    let parts = events
        .iter()
        .filter_map(|event| event["choices"][0]["text"].as_str());
    assert_eq!(parts.collect::<String>(), text);
    assert!(events.len() > 4);
    let last = events.last().unwrap();
    assert_eq!(
        (&last["choices"], &last["usage"]["completion_tokens"]),
        (&json!([]), &json!(8))
    );

    // ids and texts are the same prompt
    let ids = server
        .post("/tokenize", &json!({"prompt": "The boat"}))
        .json()["tokens"]
        .clone();
    let back = server.post("/detokenize", &json!({"tokens": ids})).json();
    assert_eq!(back["prompt"], "The boat");
    let many = json!({"prompt": [ids, ids], "max_tokens": 8, "temperature": 0});
    let many = server.complete(&many);
    for (index, choice) in many["choices"].as_array().unwrap().iter().enumerate() {
        assert_eq!(
            (&choice["index"], &choice["text"]),
            (&json!(index), &json!(text))
        );
    }
    assert_eq!(
        many["usage"]["prompt_tokens"],
        2 * ids.as_array().unwrap().len()
    );

    // answers of one seed differ by index and not by call
    let drawn = json!({"prompt": "The", "max_tokens": 12, "temperature": 1.5, "n": 3, "seed": 7});
    let [a, b] = [server.complete(&drawn), server.complete(&drawn)];
    assert_eq!(a["choices"], b["choices"]);
    assert_ne!(a["choices"][0]["text"], a["choices"][1]["text"]);
    let lone =
        server.complete(&json!({"prompt": "The", "max_tokens": 12, "temperature": 1.5, "seed": 7}));
    assert_eq!(lone["choices"][0]["text"], a["choices"][0]["text"]);

    // a stop string ends the text before it
    let end: String = text.chars().skip(3).take(4).collect();
    let mut stopped = greedy.clone();
    stopped["stop"] = json!([end]);
    let stopped = &server.complete(&stopped)["choices"][0];
    assert_eq!(
        stopped["text"].as_str().unwrap(),
        &text[..text.find(&end).unwrap()]
    );
    assert_eq!(
        (&stopped["finish_reason"], &stopped["stop_reason"]),
        (&json!("stop"), &json!(end))
    );
    server.assert_idle();
}

#[test]
fn echoed_log_probabilities_are_what_lm_eval_reads() {
    let server = Server::start(&[]);
    let prompt = [5_u32, 80, 81, 82, 300, 301];
    let body = json!({
        "model": "tiny", "prompt": [prompt, [5, 80]], "temperature": 0, "max_tokens": 1, "logprobs": 1,
        "seed": 1234, "echo": true,
    });
    let found = server.complete(&body);
    let logprobs = &found["choices"][0]["logprobs"];
    let of = |key: &str| logprobs[key].as_array().unwrap().clone();
    let (tokens, top) = (of("token_logprobs"), of("top_logprobs"));
    assert_eq!(
        (tokens.len(), top.len()),
        (prompt.len() + 1, prompt.len() + 1)
    );
    assert_eq!((&tokens[0], &top[0]), (&Value::Null, &Value::Null));
    // the answer's token is greedy: its value is the largest, to the bit
    let largest = |top: &Value| {
        let values = top
            .as_object()
            .unwrap()
            .values()
            .map(|value| value.as_f64().unwrap());
        values.fold(f64::NEG_INFINITY, f64::max)
    };
    assert_eq!(
        tokens[prompt.len()].as_f64().unwrap(),
        largest(&top[prompt.len()])
    );
    for (token, top) in tokens.iter().zip(&top).skip(1) {
        assert!(token.as_f64().unwrap() <= largest(top));
    }
    // no token is generated, and the prompt's values stay
    let mut scored = body.clone();
    scored["max_tokens"] = 0.into();
    let scored = server.complete(&scored);
    assert_eq!(
        scored["choices"][0]["logprobs"]["token_logprobs"]
            .as_array()
            .unwrap()[..],
        tokens[..prompt.len()]
    );
    assert_eq!(scored["usage"]["completion_tokens"], 0);
}

#[test]
fn conversations_follow_the_template() {
    let server = Server::start(&[]);
    let talk = json!([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]);
    // an answer without a text comes back as null
    let past = json!([
        {"role": "user", "content": "Hi"}, {"role": "assistant", "content": null}, {"role": "user", "content": "Hi"}
    ]);
    let again = json!({"model": "tiny", "messages": past, "max_completion_tokens": 2, "best_of": 1, "n": 1});
    let found = server.post("/v1/chat/completions", &again);
    assert_eq!(found.status, 200, "{}", found.body);
    let nothing = json!({"model": "tiny", "messages": [{"role": "user", "content": null}]});
    assert_eq!(server.post("/v1/chat/completions", &nothing).status, 400);
    let few =
        json!({"model": "tiny", "messages": talk, "max_completion_tokens": 2, "min_tokens": 3});
    let refused = server.post("/v1/chat/completions", &few);
    let message = "min_tokens: found 3, want at most the 2 of max_completion_tokens";
    assert_eq!(refused.json()["error"]["message"], message);
    let ask = json!({"model": "tiny", "messages": talk, "max_completion_tokens": 6, "temperature": 0, "logprobs": true, "top_logprobs": 2});
    let found = server.post("/v1/chat/completions", &ask).json();
    assert_eq!(found["object"], "chat.completion");
    let message = &found["choices"][0]["message"];
    assert_eq!(message["role"], "assistant");
    let text = message["content"].as_str().unwrap();
    let plain = json!({"prompt": "user: Hi\nassistant:", "max_tokens": 6, "temperature": 0});
    assert_eq!(server.complete(&plain)["choices"][0]["text"], text);
    let content = found["choices"][0]["logprobs"]["content"]
        .as_array()
        .unwrap()
        .clone();
    assert_eq!(content.len(), 6);
    assert_eq!(
        content[0]["logprob"],
        content[0]["top_logprobs"][0]["logprob"]
    );

    let mut streamed = ask.clone();
    streamed["stream"] = true.into();
    let events = server.post("/v1/chat/completions", &streamed).events();
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    let parts = events
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["content"].as_str());
    assert_eq!(parts.collect::<String>(), text);
    assert_eq!(
        events.last().unwrap()["choices"][0]["finish_reason"],
        "length"
    );
}

#[test]
fn megatrons_route_answers_as_megatron_does() {
    let server = Server::start(&["--api-max-tokens", "900"]);
    let put = |body: &Value| server.send("PUT", "/api", body.to_string().as_bytes());
    let ask = json!({"prompts": ["The boat", "The"], "tokens_to_generate": 4, "top_k": 1, "logprobs": true});
    let found = put(&ask).json();
    let texts = found["text"].as_array().unwrap();
    assert!(
        texts[0].as_str().unwrap().starts_with("The boat"),
        "{found}"
    );
    for number in 0..2 {
        let (segments, logprobs) = (&found["segments"][number], &found["logprobs"][number]);
        let segments = segments.as_array().unwrap();
        assert_eq!(logprobs.as_array().unwrap().len(), segments.len() - 1);
        let whole: String = segments.iter().map(|part| part.as_str().unwrap()).collect();
        assert_eq!(texts[number], whole);
    }
    // a rectangle: the shorter prompt goes on to the same length, unless it ended
    assert!(
        found["segments"][1].as_array().unwrap().len()
            <= found["segments"][0].as_array().unwrap().len()
    );
    let alone = put(&json!({"prompts": ["The boat"], "tokens_to_generate": 4, "top_k": 1})).json();
    assert_eq!(
        (&alone["text"][0], &alone["logprobs"]),
        (&texts[0], &Value::Null)
    );

    let beams = put(&json!({"prompts": ["The boat"], "tokens_to_generate": 4, "beam_width": 3, "stop_token": 0})).json();
    let scores: Vec<f64> = beams["scores"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s.as_f64().unwrap())
        .collect();
    assert!(
        scores.len() == 3 && scores.is_sorted_by(|a, b| a >= b),
        "{beams}"
    );
    let one = put(&json!({"prompts": ["The boat"], "tokens_to_generate": 4, "beam_width": 1, "stop_token": -1})).json();
    assert_eq!(one["text"][0], texts[0]);

    for (body, status, sentence) in [
        (json!({}), 400, "prompts argument required"),
        (
            json!({"prompts": ["a"], "top_k": -1}),
            200,
            "top_k must be equal to or greater than 0 and less than or equal to 1000",
        ),
        (
            json!({"prompts": ["a"], "tokens_to_generate": 320}),
            200,
            "Length of prompt + tokens_to_generate longer than allowed",
        ),
        (
            json!({"prompts": ["a", "b", "c"], "tokens_to_generate": 300}),
            200,
            "Too many tokens.  903 is greater than 900",
        ),
        (
            json!({"prompts": ["a"], "tokens_to_generate": 320, "beam_width": 1}),
            200,
            "context length + tokens_to_generate too large",
        ),
    ] {
        let answer = put(&body);
        assert_eq!(
            (answer.status, answer.json()),
            (status, json!(sentence)),
            "{body}"
        );
    }
    let broken = server.send("PUT", "/api", b"{");
    assert_eq!(broken.status, 400);
    assert!(broken.json()["message"].as_str().unwrap().contains("JSON"));
    let before = server.log().lines().count();
    let quiet = json!({"prompts": ["a"], "tokens_to_generate": 1, "no_log": true});
    assert_eq!(put(&quiet).status, 200);
    assert_eq!(server.log().lines().count(), before, "{}", server.log());
    assert!(!server.log().contains("boat"), "{}", server.log());
}

#[test]
fn bad_input_has_its_status_and_others_go_on() {
    let server = Server::start(&["--max-body", "20000"]);
    let path = "/v1/completions";
    let long = "word ".repeat(900);
    for (body, status, part) in [
        (&b"{\"prompt\": "[..], 400, "not valid JSON"),
        (b"\xff\xfe", 400, "not UTF-8"),
        (b"[]", 400, "want an object"),
        (b"{}", 400, "prompt: is required"),
        (b"{\"prompt\": []}", 400, "empty list"),
        (b"{\"prompt\": [1, \"a\"]}", 400, "prompt: want a string"),
        (b"{\"prompt\": [[1, 2], 3]}", 400, "prompt: want a string"),
        (b"{\"prompt\": [[]]}", 400, "no tokens"),
        (
            b"{\"prompt\": [600]}",
            400,
            "token id 600 is out of vocabulary",
        ),
        (b"{\"prompt\": {\"a\": 1}}", 400, "prompt: found an object"),
        (
            b"{\"prompt\": \"a\", \"temperature\": NaN}",
            400,
            "not valid JSON",
        ),
        (
            b"{\"prompt\": \"a\", \"temperature\": \"hot\"}",
            400,
            "temperature: found a string, want a number",
        ),
        (
            b"{\"prompt\": \"a\", \"max_tokens\": 1e9}",
            400,
            "maximum context length is 320",
        ),
        (b"{\"prompt\": \"a\", \"max_tokens\": 0}", 400, "max_tokens"),
        (
            b"{\"prompt\": \"a\", \"model\": \"gpt-4\"}",
            404,
            "The model `gpt-4` does not exist.",
        ),
        (
            b"{\"prompt\": \"a\", \"logprobs\": 21}",
            400,
            "logprobs: found 21, want at most 20",
        ),
        (
            b"{\"prompt\": \"a\", \"stream_options\": {}}",
            400,
            "stream_options",
        ),
        (
            b"{\"prompt\": \"a\", \"best_of\": 3}",
            400,
            "best_of: found 3, want the 1 of n",
        ),
        (
            b"{\"prompt\": \"a\", \"max_tokens\": 3, \"min_tokens\": 4}",
            400,
            "min_tokens: found 4, want at most the 3 of max_tokens",
        ),
        (
            b"{\"prompt\": \"a\", \"max_tokens\": 99999999999999999999}",
            400,
            "max_tokens: found an integer out of range",
        ),
        (
            format!("{{\"prompt\": {long:?}}}").as_bytes(),
            400,
            "maximum context length",
        ),
        (&vec![b' '; 20_001], 413, "more than 20000 bytes"),
    ] {
        let answer = server.send("POST", path, body);
        let error = &answer.json()["error"];
        assert_eq!(
            (answer.status, &error["code"]),
            (status, &json!(status)),
            "{}",
            answer.body
        );
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(server.get("/nowhere").status, 404);
    assert_eq!(server.get(path).status, 405);
    assert_eq!(server.get("/../../etc/passwd").status, 404);
    let headers = format!("X-Long: {}\r\n", "y".repeat(70_000));
    assert_eq!(
        server.raw(&request("POST", path, &headers, b"{}")).status,
        431
    );
    assert_eq!(server.raw(b"NONSENSE\r\n\r\n").status, 400);
    // a body without end, headers without end
    let endless =
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{";
    let headers = b"POST /v1/completions HTTP/1.1\r\nHost:";
    let hurried = Server::start(&["--read-timeout", "0.6"]);
    for bytes in [&endless[..], headers] {
        // a connection whose first bytes come too late is closed without an answer
        let answered = (0..20).find_map(|_| {
            let mut stream = hurried.connect();
            stream.write_all(bytes).ok()?;
            let mut text = String::new();
            stream.read_to_string(&mut text).ok()?;
            (!text.is_empty()).then_some(text)
        });
        let answered = answered.expect("an answer");
        assert!(answered.starts_with("HTTP/1.1 408 "), "{answered}");
    }
    // chunks beyond the limit, without a length
    let chunk = format!("2710\r\n{}\r\n", " ".repeat(10_000)).repeat(3);
    let chunked = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}"
    );
    assert_eq!(server.raw(chunked.as_bytes()).status, 413);
    // a client that closes its sending side has left
    let mut half = server.connect();
    let body = json!({"prompt": "The", "max_tokens": 300, "ignore_eos": true}).to_string();
    half.write_all(&request("POST", path, "", body.as_bytes()))
        .unwrap();
    half.shutdown(Shutdown::Write).unwrap();
    drop(half);
    let fine = server.complete(&json!({"prompt": "The", "max_tokens": 2, "unknown_field": [1]}));
    assert_eq!(fine["choices"][0]["finish_reason"], "length");
    server.assert_idle();
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn keys_and_pages_are_open_and_closed_as_documented() {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    std::fs::write(&keys, "first\nsecret\n").unwrap();
    let server = Server::start(&["--api-key-file", &keys.display().to_string()]);
    for path in ["/", "/health", "/version", "/metrics"] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    for path in ["/v1/models", "/tokenizer_info"] {
        assert_eq!(server.get(path).status, 401, "{path}");
    }
    for path in [
        "/v1/completions",
        "/api",
        "/tokenize",
        "/v1/chat/completions",
    ] {
        let answer = server.post(path, &json!({"prompt": "a", "prompts": ["a"]}));
        assert_eq!(answer.status, 401, "{path}");
        assert_eq!(answer.json()["error"]["type"], "AuthenticationError");
    }
    let with = request("GET", "/v1/models", "Authorization: Bearer secret\r\n", b"");
    let models = server.raw(&with).json();
    assert_eq!(
        (
            &models["data"][0]["id"],
            &models["data"][0]["max_model_len"]
        ),
        (&json!("tiny"), &json!(320))
    );
    let with = request(
        "GET",
        "/tokenizer_info",
        "Authorization: Bearer secret\r\n",
        b"",
    );
    let info = server.raw(&with).json();
    assert!(
        info["eos_token"].is_string() && info["chat_template"] == TEMPLATE,
        "{info}"
    );
}

/// Sixteen clients, of whom some leave: in the queue, in the middle of a stream.
#[test]
fn clients_that_leave_cost_nothing_and_change_nothing() {
    let server = Server::start(&["--max-sequences", "4", "--cache-tokens", "1600"]);
    let body = |client: usize| {
        json!({
            "prompt": format!("The boat {client} follows"), "max_tokens": 60 + client, "temperature": 0.9, "seed": client,
            "ignore_eos": true,
        })
    };
    let alone: Vec<Value> = (0..16)
        .map(|client| server.complete(&body(client))["choices"][0]["text"].clone())
        .collect();
    std::thread::scope(|scope| {
        for client in 0..16 {
            let (server, alone) = (&server, &alone);
            scope.spawn(move || {
                let mut asked = body(client);
                if client % 4 == 1 {
                    // leaves after the first bytes of a stream
                    asked["stream"] = true.into();
                    asked["max_tokens"] = 250.into();
                    let mut stream = server.connect();
                    let bytes =
                        request("POST", "/v1/completions", "", asked.to_string().as_bytes());
                    stream.write_all(&bytes).unwrap();
                    stream.read_exact(&mut [0; 200]).unwrap();
                    return;
                }
                if client % 4 == 3 {
                    // leaves while it waits
                    asked["max_tokens"] = 250.into();
                    let mut stream = server.connect();
                    let bytes =
                        request("POST", "/v1/completions", "", asked.to_string().as_bytes());
                    stream.write_all(&bytes).unwrap();
                    std::thread::sleep(Duration::from_millis(5 * client as u64));
                    return;
                }
                let text = &server.complete(&asked)["choices"][0]["text"];
                assert_eq!(text, &alone[client], "client {client}");
            });
        }
    });
    server.assert_idle();
    let page = server.get("/metrics").body;
    let aborted = page
        .lines()
        .find(|line| line.contains("finished_reason=\"abort\""));
    let aborted: f64 = aborted
        .unwrap()
        .rsplit(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!((1.0..=8.0).contains(&aborted), "{aborted}");
    let after = server.complete(&body(3))["choices"][0]["text"].clone();
    assert_eq!(after, alone[3]);
}
