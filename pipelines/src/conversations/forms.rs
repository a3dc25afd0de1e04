//! Forms of rows: OpenAI's messages, ShareGPT, Alpaca (and Dolly), prompt and completion (TRL).
//!
//! Sources: OpenAI's chat format and its `weight` of an answer (fine-tuning guide, "multi-turn chat examples"); FastChat's `conversations` of `from` and `value`; `alpaca_data.json` of Stanford Alpaca and
//! `databricks-dolly-15k.jsonl` (names of columns); TRL 0.2x `docs/source/dataset_formats.md`.

use crate::job::ChatFormat;
use serde_json::{Map, Value, json};

/// A conversation to learn from.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Example {
    /// Messages for a chat template, each an object with `role` and `content`.
    Chat(Vec<Value>),
    /// Text that no template changes, and its answer.
    Plain { prompt: String, completion: String },
}

/// The conversation of a row.
///
/// # Errors
/// The reason why it is none.
pub(super) fn example(row: &Map<String, Value>, format: ChatFormat) -> Result<Example, String> {
    let format = match format {
        ChatFormat::Auto => detected(row)?,
        given => given,
    };
    let example = match format {
        ChatFormat::Messages | ChatFormat::Sharegpt | ChatFormat::Auto => {
            let (key, list) = messages(row)?;
            Example::Chat(chat(row, key, list)?)
        }
        ChatFormat::Alpaca => alpaca(row)?,
        ChatFormat::PromptCompletion => prompt_completion(row)?,
    };
    if let Example::Chat(messages) = &example {
        check(messages)?;
    }
    Ok(example)
}

/// Columns of conversations, by preference.
const CHATS: [&str; 3] = ["messages", "conversations", "conversation"];
/// Columns of Alpaca's and Dolly's answers.
const OUTPUTS: [&str; 2] = ["output", "response"];
/// Columns of what Alpaca's and Dolly's instructions are about.
pub(super) const INPUTS: [&str; 2] = ["input", "context"];

fn detected(row: &Map<String, Value>) -> Result<ChatFormat, String> {
    let has = |key: &str| row.contains_key(key);
    if CHATS.into_iter().any(has) {
        Ok(ChatFormat::Messages)
    } else if has("prompt") && has("completion") {
        Ok(ChatFormat::PromptCompletion)
    } else if has("instruction") && OUTPUTS.into_iter().any(has) {
        Ok(ChatFormat::Alpaca)
    } else {
        let columns: Vec<&str> = row.keys().map(String::as_str).collect();
        Err(format!(
            "found the columns {}, want messages, conversations, prompt and completion, or instruction and output",
            columns.join(", ")
        ))
    }
}

fn messages(row: &Map<String, Value>) -> Result<(&'static str, &Vec<Value>), String> {
    let found = CHATS.into_iter().find_map(|key| Some((key, row.get(key)?)));
    let Some((key, value)) = found else {
        return Err(format!("no column {}", CHATS.join(" or ")));
    };
    match value {
        Value::Array(list) => Ok((key, list)),
        other => Err(format!("{key}: found {}, want a list", kind(other))),
    }
}

/// Messages with the roles and keys of OpenAI's form.
pub(super) fn chat(
    row: &Map<String, Value>,
    key: &str,
    list: &[Value],
) -> Result<Vec<Value>, String> {
    let mut messages = Vec::with_capacity(list.len() + 1);
    if let Some(Value::String(system)) = row.get("system")
        && !system.is_empty()
    {
        messages.push(json!({"role": "system", "content": system}));
    }
    for (at, message) in list.iter().enumerate() {
        let at = format!("{key}[{at}]");
        let Value::Object(message) = message else {
            return Err(format!("{at}: found {}, want an object", kind(message)));
        };
        let role = message.get("role").or_else(|| message.get("from"));
        let role = match role {
            Some(Value::String(role)) if !role.is_empty() => known_role(role),
            Some(other) => return Err(format!("{at}: found the role {other}, want a name")),
            None => return Err(format!("{at}: no role")),
        };
        let content = message.get("content").or_else(|| message.get("value"));
        let content = text_of(content.unwrap_or(&Value::Null)).map_err(|e| format!("{at}: {e}"))?;
        let mut message = message.clone();
        message.remove("from");
        message.remove("value");
        message.insert("role".into(), role.into());
        message.insert("content".into(), content.into());
        messages.push(Value::Object(message));
    }
    Ok(messages)
}

/// Names of roles as ShareGPT's files have them, in OpenAI's terms.
fn known_role(role: &str) -> &str {
    match role {
        "human" => "user",
        "gpt" | "chatgpt" | "bing" | "bard" | "model" | "bot" => "assistant",
        "function_response" | "observation" => "tool",
        other => other,
    }
}

/// Text of a content: a text, its parts, or none beside calls of tools.
fn text_of(content: &Value) -> Result<String, String> {
    match content {
        Value::String(text) => Ok(text.clone()),
        Value::Null => Ok(String::new()),
        Value::Array(parts) => {
            let texts = parts.iter().map(|part| match part["text"].as_str() {
                Some(text) => Ok(text),
                None => Err(format!(
                    "found a part of type {}, want text",
                    part["type"].as_str().unwrap_or("unknown")
                )),
            });
            texts.collect()
        }
        other => Err(format!("found {} as content, want a text", kind(other))),
    }
}

pub(super) fn alpaca(row: &Map<String, Value>) -> Result<Example, String> {
    let text = |keys: &[&str]| {
        let found = keys.iter().find_map(|key| Some((*key, row.get(*key)?)));
        match found {
            Some((_, Value::String(text))) => Ok(text.as_str()),
            None | Some((_, Value::Null)) => Ok(""),
            Some((key, other)) => Err(format!("{key}: found {}, want a text", kind(other))),
        }
    };
    let instruction = text(&["instruction"])?;
    if instruction.trim().is_empty() {
        return Err("no instruction".into());
    }
    let input = text(&INPUTS)?;
    let user = match input.trim().is_empty() {
        true => instruction.to_owned(),
        false => format!("{instruction}\n\n{input}"),
    };
    let mut messages = Vec::new();
    let system = text(&["system"])?;
    if !system.is_empty() {
        messages.push(json!({"role": "system", "content": system}));
    }
    messages.push(json!({"role": "user", "content": user}));
    messages.push(json!({"role": "assistant", "content": text(&OUTPUTS)?}));
    Ok(Example::Chat(messages))
}

fn prompt_completion(row: &Map<String, Value>) -> Result<Example, String> {
    let both = ["prompt", "completion"].map(|key| (key, row.get(key).unwrap_or(&Value::Null)));
    match both {
        [(_, Value::String(prompt)), (_, Value::String(completion))] => {
            if completion.trim().is_empty() {
                return Err("completion: an empty answer".into());
            }
            Ok(Example::Plain {
                prompt: prompt.clone(),
                completion: completion.clone(),
            })
        }
        [
            (of_prompt, Value::Array(prompt)),
            (of_answer, Value::Array(answer)),
        ] => {
            let mut messages = chat(row, of_prompt, prompt)?;
            messages.extend(chat(&Map::new(), of_answer, answer)?);
            Ok(Example::Chat(messages))
        }
        [(_, prompt), (_, completion)] => Err(format!(
            "found {} as prompt and {} as completion, want two texts or two lists of messages",
            kind(prompt),
            kind(completion)
        )),
    }
}

/// Refuses conversations without an answer.
pub(super) fn check(messages: &[Value]) -> Result<(), String> {
    let is_answer = |message: &&Value| message["role"] == "assistant";
    let mut answers = messages.iter().enumerate().filter(|(_, m)| is_answer(m));
    let Some(first) = answers.next() else {
        return Err("no message of the assistant".into());
    };
    if first.0 == 0 {
        return Err("no message before the first of the assistant".into());
    }
    let is_empty = |message: &Value| {
        let text = message["content"].as_str().unwrap_or_default();
        text.trim().is_empty() && message["tool_calls"].as_array().is_none_or(Vec::is_empty)
    };
    let empty = std::iter::once(first).chain(answers);
    match empty.into_iter().find(|(_, message)| is_empty(message)) {
        Some((at, _)) => Err(format!("message {at}: an empty answer")),
        None => Ok(()),
    }
}

/// Whether each message of the assistant is to be learnt: `weight` of OpenAI's form, 0 or 1.
///
/// # Errors
/// Another weight.
pub(super) fn weights(messages: &[Value]) -> Result<Vec<bool>, String> {
    let answers = messages.iter().enumerate();
    let answers = answers.filter(|(_, message)| message["role"] == "assistant");
    let weights = answers.map(|(at, message)| match &message["weight"] {
        Value::Null => Ok(true),
        Value::Number(weight) if weight.as_f64() == Some(1.0) => Ok(true),
        Value::Number(weight) if weight.as_f64() == Some(0.0) => Ok(false),
        other => Err(format!("message {at}: weight: found {other}, want 0 or 1")),
    });
    weights.collect()
}

pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(row: &Value) -> Result<Example, String> {
        example(row.as_object().unwrap(), ChatFormat::Auto)
    }

    #[test]
    fn every_form_gives_the_same_conversation() {
        let want = Example::Chat(vec![
            json!({"role": "user", "content": "Hi"}),
            json!({"role": "assistant", "content": "Hello"}),
        ]);
        let messages =
            json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]);
        for row in [
            json!({"messages": messages, "id": 3}),
            json!({"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]}),
            json!({"conversation": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]},
                {"role": "model", "content": "Hello"}]}),
            json!({"instruction": "Hi", "input": "", "output": "Hello"}),
            json!({"instruction": "Hi", "context": null, "response": "Hello", "category": "open_qa"}),
            json!({"prompt": [messages[0]], "completion": [messages[1]]}),
        ] {
            assert_eq!(of(&row).unwrap(), want, "{row}");
        }
        let row = json!({"prompt": "Hi", "completion": " Hello"});
        let want = Example::Plain {
            prompt: "Hi".into(),
            completion: " Hello".into(),
        };
        assert_eq!(of(&row).unwrap(), want);
        let row = json!({"system": "Be brief.", "instruction": "Add.", "input": "1 and 2", "output": "3"});
        let Example::Chat(messages) = of(&row).unwrap() else {
            panic!("messages");
        };
        assert_eq!(messages[0]["content"], "Be brief.");
        assert_eq!(messages[1]["content"], "Add.\n\n1 and 2");
    }

    #[test]
    fn rows_that_are_no_conversations_say_why() {
        let user = json!({"role": "user", "content": "Hi"});
        for (row, wanted) in [
            (json!({"text": "a"}), "found the columns text, want"),
            (
                json!({"messages": "a"}),
                "messages: found a text, want a list",
            ),
            (
                json!({"messages": [3]}),
                "messages[0]: found a number, want an object",
            ),
            (
                json!({"messages": [{"content": "a"}]}),
                "messages[0]: no role",
            ),
            (
                json!({"messages": [{"role": 3}]}),
                "messages[0]: found the role 3, want a name",
            ),
            (
                json!({"messages": [{"role": "user", "content": 3}]}),
                "found a number as content",
            ),
            (
                json!({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
                "found a part of type image_url, want text",
            ),
            (json!({"messages": [user]}), "no message of the assistant"),
            (
                json!({"messages": [user, {"role": "assistant", "content": " "}]}),
                "message 1: an empty answer",
            ),
            (
                json!({"messages": [{"role": "assistant", "content": "a"}]}),
                "no message before the first of the assistant",
            ),
            (
                json!({"prompt": "a", "completion": ""}),
                "completion: an empty answer",
            ),
            (
                json!({"prompt": "a", "completion": 3}),
                "found a text as prompt and a number as completion",
            ),
            (json!({"instruction": " ", "output": "a"}), "no instruction"),
            (
                json!({"instruction": "a", "output": 3}),
                "output: found a number, want a text",
            ),
        ] {
            let why = of(&row).unwrap_err();
            assert!(why.contains(wanted), "{why}");
        }
        // a call of a tool is an answer
        let call = json!({"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f"}}]});
        of(&json!({"messages": [user, call]})).unwrap();
    }
}
