//! Adapters beside a served model: chosen by the name in a request, loaded and unloaded while the server runs.

use crate::jobs::millrace;
use crate::serve::{Server, model};
use serde_json::{Value, json};
use std::path::Path;

/// A folder in PEFT's form with an adapter of rank 2 of the model's queries and down projections.
fn write_adapter(folder: &Path, seed: usize) {
    std::fs::create_dir_all(folder).unwrap();
    let config = json!({
        "peft_type": "LORA", "r": 2, "lora_alpha": 8, "target_modules": ["q_proj", "down_proj"],
        "base_model_name_or_path": model().display().to_string(),
    });
    std::fs::write(folder.join("adapter_config.json"), config.to_string()).unwrap();
    let (mut header, mut bytes) = (serde_json::Map::new(), Vec::new());
    for layer in 0..2 {
        for (module, out, input) in [("self_attn.q_proj", 48, 48), ("mlp.down_proj", 48, 96)] {
            for (part, dims) in [("A", [2, input]), ("B", [out, 2])] {
                let name =
                    format!("base_model.model.model.layers.{layer}.{module}.lora_{part}.weight");
                let start = bytes.len();
                for at in 0..dims[0] * dims[1] {
                    let value = ((at * 7919 + seed * 104_729 + layer * 31) % 1000) as f32;
                    bytes.extend((value / 2500.0 - 0.2).to_le_bytes());
                }
                let of =
                    json!({"dtype": "F32", "shape": dims, "data_offsets": [start, bytes.len()]});
                header.insert(name, of);
            }
        }
    }
    let header = Value::Object(header).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(bytes);
    std::fs::write(folder.join("adapter_model.safetensors"), file).unwrap();
}

#[test]
fn requests_choose_adapters_that_come_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let [sql, chat] = ["sql", "chat"].map(|name| folder.path().join(name));
    write_adapter(&sql, 1);
    write_adapter(&chat, 2);
    let arg = format!("sql={}", sql.display());
    let args = ["--adapter", &arg, "--allow-adapter-loading"];
    let server = Server::start(&[&args[..], &["--max-adapters", "2"]].concat());
    let ask = |model: &str| {
        let body = json!({"model": model, "prompt": "The city", "max_tokens": 12, "temperature": 0, "logprobs": 0});
        server.post("/v1/completions", &body)
    };
    let choice = |model: &str| {
        let answer = ask(model);
        assert_eq!(answer.status, 200, "{}", answer.body);
        let answer = answer.json();
        assert_eq!(answer["model"], model);
        answer["choices"][0].clone()
    };
    let (own, tuned) = (choice("tiny"), choice("sql"));
    assert_ne!(own["logprobs"], tuned["logprobs"]);
    // beside each other, and with the frozen model's answers as they were
    std::thread::scope(|scope| {
        let asked: Vec<_> = (0..8)
            .map(|number| {
                let name = ["tiny", "sql"][number % 2];
                (number, scope.spawn(move || choice(name)))
            })
            .collect();
        for (number, answer) in asked {
            let wanted = [&own, &tuned][number % 2];
            assert_eq!(&answer.join().unwrap(), wanted);
        }
    });
    // as the model that has the adapter merged
    let merged = Server::of(&sql, &[]);
    let body = json!({"prompt": "The city", "max_tokens": 12, "temperature": 0, "logprobs": 0});
    let wanted = merged.complete(&body)["choices"][0].clone();
    assert_eq!(tuned["text"], wanted["text"]);
    let logprobs = |choice: &Value| -> Vec<f64> {
        let list = choice["logprobs"]["token_logprobs"].as_array().unwrap();
        list.iter().map(|one| one.as_f64().unwrap()).collect()
    };
    let (found, wanted) = (logprobs(&tuned), logprobs(&wanted));
    assert_eq!((found.len(), wanted.len()), (12, 12));
    for (found, wanted) in found.iter().zip(&wanted) {
        assert!((found - wanted).abs() < 1e-4, "{found}, {wanted}");
    }
    // in streams and conversations
    let body = json!({"model": "sql", "prompt": "The", "max_tokens": 2, "stream": true});
    for event in server.post("/v1/completions", &body).events() {
        assert_eq!(event["model"], "sql");
    }
    let messages = json!([{"role": "user", "content": "hi"}]);
    for stream in [false, true] {
        let body = json!({"model": "sql", "messages": messages, "max_tokens": 2, "stream": stream});
        let answer = server.post("/v1/chat/completions", &body);
        let found = match stream {
            true => answer.events(),
            false => vec![answer.json()],
        };
        assert!(!found.is_empty());
        for part in found {
            assert_eq!(part["model"], "sql");
        }
    }
    let listed = || -> Vec<Value> {
        let list = server.get("/v1/models").json()["data"].clone();
        let list = list.as_array().unwrap().iter();
        list.map(|card| json!([card["id"], card["parent"]]))
            .collect()
    };
    assert_eq!(listed(), [json!(["tiny", null]), json!(["sql", "tiny"])]);
    let card = server.get("/v1/models/sql").json();
    assert_eq!(card["root"], sql.display().to_string());
    // loaded and unloaded while the server runs
    let load = |name: &str, path: &Path| {
        let body = json!({"lora_name": name, "lora_path": path.display().to_string()});
        server.post("/v1/load_lora_adapter", &body)
    };
    assert_eq!(ask("chat").status, 404);
    assert!(!server.log().contains("was made for"), "{}", server.log());
    let config = chat.join("adapter_config.json");
    let mut of_peft: Value = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
    of_peft["base_model_name_or_path"] = json!("someone/another");
    std::fs::write(&config, of_peft.to_string()).unwrap();
    let loaded = load("chat", &chat);
    let wanted = format!(
        "was made for someone/another, and {} is served",
        model().display()
    );
    assert!(server.log().contains(&wanted), "{}", server.log());
    assert_eq!(
        (loaded.status, loaded.body.as_str()),
        (200, "Success: LoRA adapter 'chat' added successfully.")
    );
    assert_ne!(choice("chat")["logprobs"], tuned["logprobs"]);
    for (name, path, part) in [
        ("chat", &chat, "has already been loaded"),
        ("tiny", &chat, "has already been loaded"),
        ("third", &chat, "want at most 2"),
    ] {
        let answer = load(name, path);
        assert_eq!(answer.status, 400, "{name}: {}", answer.body);
        assert!(answer.body.contains(part), "{name}: {}", answer.body);
    }
    // a page of another site can send a text, not JSON
    let text = json!({"lora_name": "sql"}).to_string();
    let answer = server.send("POST", "/v1/unload_lora_adapter", text.as_bytes());
    assert_eq!(answer.status, 415, "{}", answer.body);
    let unload = |name: &str| {
        let body = json!({"lora_name": name});
        server.post("/v1/unload_lora_adapter", &body)
    };
    assert_eq!(unload("sql").status, 200);
    assert_eq!((unload("sql").status, ask("sql").status), (404, 404));
    let answer = load("third", folder.path());
    assert_eq!(answer.status, 400, "{}", answer.body);
    assert_eq!(answer.json()["error"]["param"], "lora_path");
    assert_eq!(server.post("/v1/load_lora_adapter", &json!({})).status, 400);
    assert_eq!(load("sql", &sql).status, 200);
    assert_eq!(choice("sql"), tuned);
    assert_eq!(choice("tiny"), own);
    // without the flag clients load nothing; an adapter that cannot be loaded ends the start
    let closed = Server::start(&["--adapter", &arg]);
    let body = json!({"lora_name": "chat", "lora_path": chat.display().to_string()});
    for route in ["/v1/load_lora_adapter", "/v1/unload_lora_adapter"] {
        assert_eq!(closed.post(route, &body).status, 403);
    }
    // two ranks share the model and its adapters
    let split = Server::start(&["--adapter", &arg, "--tensor-parallel-size", "2"]);
    let body = json!({"model": "sql", "prompt": "The city", "max_tokens": 12, "temperature": 0, "logprobs": 0});
    let found = split.complete(&body)["choices"][0].clone();
    assert_eq!(found["text"], tuned["text"]);
    // a Hugging Face folder asks for no order of sums over ranks
    for (found, wanted) in logprobs(&found).iter().zip(&logprobs(&tuned)) {
        assert!((found - wanted).abs() < 1e-4, "{found}, {wanted}");
    }
    let model = model().display().to_string();
    for (args, code, part) in [
        (&["--adapter", "x=/nowhere"][..], 1, "--adapter x=/nowhere"),
        (&["--adapter", "x"], 2, "want NAME=PATH"),
        (&["--adapter", "x=a", "--adapter", "x=b"], 2, "\"x\" twice"),
        (
            &["--allow-adapter-loading", "--host", "0.0.0.0"],
            1,
            "found no key for clients of 0.0.0.0:0",
        ),
    ] {
        let all = [&["serve", &model, "--port", "0"], args].concat();
        let output = millrace(&all)
            .env_remove("MILLRACE_API_KEY")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(text.contains(part), "{text}");
    }
}
