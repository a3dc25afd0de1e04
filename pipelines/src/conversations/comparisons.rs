//! Comparisons: rows with a chosen and a rejected answer, for preference optimisation.
//!
//! Sources of the columns: TRL 0.2x `docs/source/dataset_formats.md` (preference with an explicit or an implicit prompt), and
//! Intel's `orca_dpo_pairs` (`system`, `question`).

use super::forms::{Example, INPUTS, alpaca, chat, check, kind};
use serde_json::{Map, Value, json};

/// Two conversations that differ in their answers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Comparison {
    pub(super) chosen: Example,
    pub(super) rejected: Example,
    /// Messages at the start that both have; what follows is compared. 0 of texts.
    pub(super) shared: usize,
}

/// The comparison of a row: columns `chosen` and `rejected` are two texts after a prompt, two lists of messages after one, or two
/// whole conversations (TRL's explicit and implicit prompts).
///
/// # Errors
/// The reason why it is none.
pub(super) fn comparison(row: &Map<String, Value>) -> Result<Comparison, String> {
    let both = ["chosen", "rejected"].map(|key| (key, row.get(key).unwrap_or(&Value::Null)));
    let [chosen, rejected] = match both {
        [(_, Value::String(chosen)), (_, Value::String(rejected))] => {
            [after_prompt(row, chosen)?, after_prompt(row, rejected)?]
        }
        [
            (of_chosen, Value::Array(chosen)),
            (of_rejected, Value::Array(rejected)),
        ] => [
            Example::Chat(whole(row, of_chosen, chosen)?),
            Example::Chat(whole(row, of_rejected, rejected)?),
        ],
        [(_, Value::Null), _] | [_, (_, Value::Null)] => {
            let columns: Vec<&str> = row.keys().map(String::as_str).collect();
            return Err(format!(
                "found the columns {}, want chosen and rejected",
                columns.join(", ")
            ));
        }
        [(_, chosen), (_, rejected)] => {
            return Err(format!(
                "found {} as chosen and {} as rejected, want two texts or two lists of messages",
                kind(chosen),
                kind(rejected)
            ));
        }
    };
    if chosen == rejected {
        return Err("chosen and rejected are the same".into());
    }
    let mut shared = 0;
    if let (Example::Chat(chosen), Example::Chat(rejected)) = (&chosen, &rejected) {
        let same = chosen.iter().zip(rejected).take_while(|(a, b)| a == b);
        shared = same.count();
        for (key, messages) in [("chosen", chosen), ("rejected", rejected)] {
            check(messages).map_err(|e| format!("{key}: {e}"))?;
            match messages.get(shared..) {
                Some([first, ..]) if first["role"] == "assistant" => {}
                Some([first, ..]) => {
                    return Err(format!(
                        "{key}: the first message that differs is of the {}, want one of the assistant",
                        first["role"].as_str().unwrap_or_default()
                    ));
                }
                _ => return Err(format!("{key}: ends where the other one goes on")),
            }
        }
    }
    Ok(Comparison {
        chosen,
        rejected,
        shared,
    })
}

/// Columns of questions whose answers are texts: those of chats, as in Orca's pairs.
const QUESTIONS: [&str; 2] = ["question", "instruction"];

/// An answer that is a text: `prompt` is one too, and no template changes them; `question` or `instruction` is said by a user.
fn after_prompt(row: &Map<String, Value>, answer: &str) -> Result<Example, String> {
    if answer.trim().is_empty() {
        return Err("an empty answer".into());
    }
    match row.get("prompt") {
        Some(Value::String(prompt)) => {
            return Ok(Example::Plain {
                prompt: prompt.clone(),
                completion: answer.to_owned(),
            });
        }
        Some(Value::Null) | None => {}
        Some(other) => {
            return Err(format!(
                "found {} as prompt of two texts, want a text",
                kind(other)
            ));
        }
    }
    let mut of_chat = row.clone();
    of_chat.retain(|key, _| {
        QUESTIONS.contains(&key.as_str()) || INPUTS.contains(&key.as_str()) || key == "system"
    });
    let Some(question) = QUESTIONS.into_iter().find_map(|key| of_chat.get(key)) else {
        return Err(
            "no prompt, question or instruction, of which chosen and rejected are answers".into(),
        );
    };
    of_chat.insert("instruction".into(), question.clone());
    of_chat.insert("output".into(), answer.into());
    alpaca(&of_chat)
}

/// A conversation of a comparison: messages of its own, or an answer after the prompt's.
fn whole(row: &Map<String, Value>, key: &str, list: &[Value]) -> Result<Vec<Value>, String> {
    let messages = chat(row, key, list)?;
    let first = messages.iter().find(|message| message["role"] != "system");
    if first.is_none_or(|first| first["role"] != "assistant") {
        return Ok(messages);
    }
    // without the row's system message, which the prompt has
    let answer = chat(&Map::new(), key, list)?;
    let mut all = match row.get("prompt") {
        Some(Value::Array(prompt)) => chat(row, "prompt", prompt)?,
        Some(Value::String(prompt)) => {
            let said = [json!({"role": "user", "content": prompt})];
            chat(row, "prompt", &said)?
        }
        Some(other) => {
            return Err(format!(
                "found {} as prompt, want a text or a list of messages",
                kind(other)
            ));
        }
        None => {
            return Err(format!(
                "{key} begins with the assistant and there is no prompt"
            ));
        }
    };
    all.extend(answer);
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(row: &Value) -> Result<Comparison, String> {
        comparison(row.as_object().unwrap())
    }

    fn said(role: &str, content: &str) -> Value {
        json!({"role": role, "content": content})
    }

    #[test]
    fn every_form_of_a_pair_is_the_same_comparison() {
        let prompt = [said("system", "Be brief."), said("user", "Hi")];
        let [good, bad] = [said("assistant", "Hello."), said("assistant", "No.")];
        let with = |answer: &Value| [&prompt[..], std::slice::from_ref(answer)].concat();
        let wanted = Comparison {
            chosen: Example::Chat(with(&good)),
            rejected: Example::Chat(with(&bad)),
            shared: 2,
        };
        for row in [
            json!({"chosen": with(&good), "rejected": with(&bad)}),
            json!({"prompt": prompt, "chosen": [good], "rejected": [bad]}),
            json!({"prompt": "Hi", "system": "Be brief.", "chosen": [good], "rejected": [bad]}),
            // the prompt of UltraFeedback's binarized form is in the conversations, too
            json!({"prompt": "Hi", "chosen": with(&good), "rejected": with(&bad), "score": 3}),
            json!({"question": "Hi", "system": "Be brief.", "chosen": "Hello.", "rejected": "No."}),
            json!({"chosen": [{"from": "system", "value": "Be brief."}, {"from": "human", "value": "Hi"},
                {"from": "gpt", "value": "Hello."}], "rejected": with(&bad)}),
        ] {
            assert_eq!(of(&row).as_ref(), Ok(&wanted), "{row}");
        }
        let texts = of(&json!({"prompt": "1 + 1 =", "chosen": " 2", "rejected": " 3"})).unwrap();
        let plain = |completion: &str| Example::Plain {
            prompt: "1 + 1 =".into(),
            completion: completion.into(),
        };
        assert_eq!((texts.chosen, texts.rejected), (plain(" 2"), plain(" 3")));
    }

    #[test]
    fn rows_that_compare_nothing_say_why() {
        let [hi, hello] = [said("user", "Hi"), said("assistant", "Hello.")];
        let bye = said("user", "Bye");
        for (row, wanted) in [
            (
                json!({"prompt": "a", "completion": "b"}),
                "found the columns prompt, completion, want chosen and rejected",
            ),
            (
                json!({"chosen": "a", "rejected": "b"}),
                "no prompt, question or instruction",
            ),
            (
                json!({"prompt": "a", "chosen": "b", "rejected": "b"}),
                "chosen and rejected are the same",
            ),
            (
                json!({"prompt": "a", "chosen": "b", "rejected": " "}),
                "an empty answer",
            ),
            (
                json!({"prompt": "a", "chosen": "b", "rejected": [hello]}),
                "found a text as chosen and a list as rejected",
            ),
            (
                json!({"prompt": 7, "chosen": "b", "rejected": "c"}),
                "found a number as prompt",
            ),
            (
                json!({"chosen": [hello], "rejected": [said("assistant", "c")]}),
                "chosen begins with the assistant and there is no prompt",
            ),
            (
                json!({"chosen": [hi, hello], "rejected": [bye, hello]}),
                "chosen: the first message that differs is of the user",
            ),
            (
                json!({"chosen": [hi, hello], "rejected": [hi, hello, bye, hello]}),
                "chosen: ends where the other one goes on",
            ),
            (
                json!({"chosen": [hi, hello], "rejected": [hi, said("assistant", "")]}),
                "rejected: message 1: an empty answer",
            ),
        ] {
            let found = of(&row).unwrap_err();
            assert!(found.starts_with(wanted), "{row}: {found}");
        }
    }
}
