//! A conversation as tokens, and those of its answers.
//!
//! A chat template writes its own special tokens, so nothing is added to its text, as in transformers'
//! `apply_chat_template`. A prompt and its completion are one text, in front of which the tokenizer's post-processor puts what
//! it puts, and after which the token that ends documents stands, as in TRL. A token counts if any of its characters is of an
//! answer, as with transformers' `return_assistant_tokens_mask` (which leaves out the later tokens of an answer's last character
//! if it has several).

use super::forms::{Example, weights};
use crate::generation::{ChatTemplate, encode, ids_at_markers, text_of};
use crate::job::{at_last_marker, task_of};
use index::tokenizer::Tokenizer;
use serde_json::Value;
use std::collections::HashMap;
use std::ops::Range;
use train::config::TaskMarkers;
use train::data::is_virtual;

/// The settings of encoding.
#[derive(Clone, Copy)]
pub(crate) struct Encoding<'a> {
    pub(crate) tokenizer: &'a Tokenizer,
    /// `None`: only prompts and completions can be encoded.
    pub(crate) template: Option<&'a ChatTemplate>,
    /// Markers of task templates, by which prompts and completions are made; empty: markers are text.
    pub(crate) markers: &'a [TaskMarkers],
    /// Else every token counts.
    pub(crate) answer_only: bool,
}

/// Ids of a conversation, and the ranges of them that count.
#[derive(Debug, PartialEq)]
pub(super) struct Encoded {
    pub(super) ids: Vec<u32>,
    pub(super) answers: Vec<Range<usize>>,
}

impl Encoding<'_> {
    /// # Errors
    /// The reason why the conversation cannot be encoded.
    pub(super) fn encode(&self, example: &Example) -> Result<Encoded, String> {
        let mut encoded = match example {
            Example::Chat(messages) => {
                let template = self.template()?;
                let (text, mut spans) = template
                    .with_answers(messages)
                    .map_err(|e| format!("{e:#}"))?;
                self.keep_weighed(messages, &mut spans)?;
                self.with_spans(&text, &spans)?
            }
            Example::Plain { prompt, completion } => self.plain(prompt, completion)?,
        };
        if !self.answer_only {
            let is_of_text = |id: &u32| !is_virtual(*id);
            let mut at = 0;
            encoded.answers.clear();
            for run in encoded
                .ids
                .chunk_by(|a, b| is_virtual(*a) == is_virtual(*b))
            {
                let range = at..at + run.len();
                at = range.end;
                if run.first().is_some_and(is_of_text) {
                    encoded.answers.push(range);
                }
            }
        }
        Ok(encoded)
    }

    /// Ids of a text, and ranges of them for those of its bytes.
    fn with_spans(&self, text: &str, spans: &[Range<usize>]) -> Result<Encoded, String> {
        let ids = self.ids(text)?;
        let mut answers = Vec::with_capacity(spans.len());
        // beginnings of a few answers cost less than the marks
        let marks = match spans.len() < FEW {
            true => Marks::default(),
            false => self.marks(text, &ids)?,
        };
        let beginning = |end: usize| -> Result<Beginning, String> {
            let Mark { at, token } = marks.before(end);
            let rest = self.ids(&text[at..end])?;
            Ok(Beginning { token, rest })
        };
        for span in spans {
            let before = self.within(&ids, &beginning(span.start)?);
            let upto = self.within(&ids, &beginning(span.end)?);
            // a token that only begins in the answer counts
            let last = upto.tokens + usize::from(upto.is_short);
            answers.push(before.tokens.min(last)..last.min(ids.len()));
        }
        Ok(Encoded { ids, answers })
    }

    /// A prompt and its completion as one text, with the virtual tokens at the markers of the prompt.
    fn plain(&self, prompt: &str, completion: &str) -> Result<Encoded, String> {
        let around = self.tokenizer.around();
        let before = around.map_or(&[][..], |(before, _)| before);
        let (head, prompt) = match self.markers.is_empty() {
            true => ("", prompt),
            false => at_last_marker(prompt),
        };
        let mut ids = match head.is_empty() {
            true => before.to_vec(),
            false => {
                let task = task_of(head, self.markers)?;
                let ids = ids_at_markers(self.tokenizer, head, before, task);
                ids.map_err(|e| format!("{e:#}"))?
            }
        };
        let text = format!("{prompt}{completion}");
        let span = prompt.len()..text.len();
        let Encoded { ids: own, answers } = self.with_spans(&text, std::slice::from_ref(&span))?;
        let mut answers: Vec<Range<usize>> = (answers.into_iter())
            .map(|answer| answer.start + ids.len()..answer.end + ids.len())
            .collect();
        ids.extend(own);
        if let (Some(end), Some(answer)) = (self.tokenizer.end_of_document(), answers.last_mut()) {
            ids.push(end);
            answer.end = ids.len();
        }
        Ok(Encoded { ids, answers })
    }

    /// Text and ids up to the last answer, and that answer.
    ///
    /// # Errors
    /// As `encode`.
    pub(super) fn prompt(&self, example: &Example) -> Result<(String, Vec<u32>, String), String> {
        let failed = |e: anyhow::Error| format!("{e:#}");
        match example {
            Example::Chat(messages) => {
                let last = messages
                    .iter()
                    .rposition(|message| message["role"] == "assistant");
                let last = last.unwrap_or(0);
                let prompt = self.template()?.open(&messages[..last]).map_err(failed)?;
                let ids = encode(self.tokenizer, &prompt, false).map_err(failed)?;
                let answer = messages
                    .get(last)
                    .and_then(|message| message["content"].as_str());
                Ok((prompt, ids, answer.unwrap_or_default().to_owned()))
            }
            // the text up to the answer is cut where the answer's tokens begin
            Example::Plain { prompt, completion } if !self.markers.is_empty() => {
                let Encoded { mut ids, answers } = self.plain(prompt, completion)?;
                ids.truncate(answers.first().map_or(ids.len(), |answer| answer.start));
                Ok((prompt.clone(), ids, completion.clone()))
            }
            Example::Plain { prompt, completion } => {
                let before = self
                    .tokenizer
                    .around()
                    .map_or(&[][..], |(before, _)| before);
                let mut ids = before.to_vec();
                ids.extend(encode(self.tokenizer, prompt, false).map_err(failed)?);
                Ok((prompt.clone(), ids, completion.clone()))
            }
        }
    }

    /// Ids of a text that the user says first.
    ///
    /// # Errors
    /// As `encode`.
    pub(crate) fn said(&self, text: &str) -> Result<(String, Vec<u32>), String> {
        let example = match self.template.filter(|_| self.markers.is_empty()) {
            Some(_) => Example::Chat(vec![
                serde_json::json!({"role": "user", "content": text}),
                serde_json::json!({"role": "assistant", "content": Value::Null}),
            ]),
            None => Example::Plain {
                prompt: text.to_owned(),
                completion: String::new(),
            },
        };
        let (prompt, ids, _) = self.prompt(&example)?;
        Ok((prompt, ids))
    }

    /// Leaves out the spans of answers whose `weight` is 0.
    fn keep_weighed(
        &self,
        messages: &[Value],
        spans: &mut Vec<Range<usize>>,
    ) -> Result<(), String> {
        let weights = weights(messages)?;
        if weights.iter().all(|is_kept| *is_kept) {
            return Ok(());
        }
        if !self.answer_only {
            return Err(
                "weight: found 0 where every token counts (finetune.answer_only_loss = false)"
                    .into(),
            );
        }
        if weights.len() != spans.len() {
            return Err(format!(
                "weight: found 0, but the chat template marks {} answers in {} messages of the assistant",
                spans.len(),
                weights.len()
            ));
        }
        let mut kept = weights.iter();
        spans.retain(|_| kept.next().is_some_and(|is_kept| *is_kept));
        match spans.is_empty() {
            true => Err("weight: 0 for every answer".into()),
            false => Ok(()),
        }
    }

    fn ids(&self, text: &str) -> Result<Vec<u32>, String> {
        encode(self.tokenizer, text, false).map_err(|e| format!("{e:#}"))
    }

    /// The special tokens of a text, where its ids can be cut: those of everything from one special token to the next are the same
    /// alone as in the text. None if any of them is not.
    fn marks(&self, text: &str, all: &[u32]) -> Result<Marks, String> {
        let mut is_special: HashMap<u32, bool> = HashMap::new();
        let (mut marks, mut at) = (vec![Mark::default()], 0);
        for (token, id) in all.iter().enumerate() {
            let special = is_special.entry(*id).or_insert_with(|| {
                let text = self.tokenizer.decode_text(&[*id]);
                text.is_ok_and(|text| text.is_empty())
            });
            if !*special {
                continue;
            }
            let name = self.tokenizer.token(*id).unwrap_or_default();
            match text[at..].find(name).filter(|_| !name.is_empty()) {
                Some(found) => {
                    marks.push(Mark {
                        at: at + found,
                        token,
                    });
                    at += found + name.len();
                }
                None => return Ok(Marks::default()),
            }
        }
        let whole = Mark {
            at: text.len(),
            token: all.len(),
        };
        let ends = marks.iter().skip(1).chain([&whole]);
        for (mark, end) in marks.iter().zip(ends) {
            if self.ids(&text[mark.at..end.at])? != all[mark.token..end.token] {
                return Ok(Marks::default());
            }
        }
        Ok(Marks(marks))
    }

    /// The tokens of `all` within the beginning of its text. The end of a text may be cut into other tokens than the same characters
    /// before more text: GPT-2's words end with white space only where nothing follows.
    fn within(&self, all: &[u32], part: &Beginning) -> Within {
        let Beginning { token, rest } = part;
        let same = token + common(&all[*token..], rest);
        let end = token + rest.len();
        let mut found = Within {
            tokens: same,
            is_short: same < end,
        };
        let from = same.saturating_sub(BEFORE);
        // the ids of the beginning from there to `to`
        let own = |to: usize| -> Vec<u32> {
            let before = all[from.min(*token)..*token].iter();
            let after = rest[from.saturating_sub(*token)..to - token].iter();
            before.chain(after).copied().collect()
        };
        let text = |ids: &[u32]| text_of(self.tokenizer, ids, false).ok();
        let rest = || Some((text(&own(same))?, text(&own(end))?));
        let Some((before, whole)) = rest().filter(|_| found.is_short) else {
            return found;
        };
        let Some(rest) = whole.strip_prefix(&before) else {
            return found;
        };
        for end in same + 1..=all.len() {
            let longer = text(&all[from..end]);
            let piece = longer
                .as_deref()
                .and_then(|text| text.strip_prefix(&before));
            // a part of a character is three bytes of U+FFFD, which may be longer than the part
            let Some(piece) = piece.filter(|piece| piece.len() <= rest.len() + PART) else {
                break;
            };
            if rest.starts_with(piece) {
                found = Within {
                    tokens: end,
                    is_short: piece.len() < rest.len(),
                };
            }
        }
        found
    }

    fn template(&self) -> Result<&ChatTemplate, String> {
        self.template.ok_or_else(|| {
            "messages need a chat template: the tokenizer comes with none, and finetune.chat_template names none".into()
        })
    }
}

/// Answers from which on the beginnings of a text are cut at its special tokens: each whole one would be encoded from its start, which
/// takes the square of the length.
const FEW: usize = 8;

/// Tokens in front of a piece of text that is decoded: a decoder may treat the first of a text in its own way.
const BEFORE: usize = 6;

/// Bytes by which a text that ends within a character may be too long.
const PART: usize = 3;

/// A place where the ids of a text can be cut: in front of a special token, or of the whole text.
#[derive(Clone, Copy, Default)]
struct Mark {
    /// Byte of the text.
    at: usize,
    /// Number of the token.
    token: usize,
}

/// The marks of a text in order; none: only the whole text can be encoded.
#[derive(Default)]
struct Marks(Vec<Mark>);

impl Marks {
    /// The last but one in front of byte `end`, within the name of whose successor `end` may be; or the beginning of the text.
    fn before(&self, end: usize) -> Mark {
        let count = self.0.partition_point(|mark| mark.at < end);
        let number = count.saturating_sub(2);
        self.0.get(number).copied().unwrap_or_default()
    }
}

/// The ids of the beginning of a text: the first `token` of the text's, then `rest`.
struct Beginning {
    token: usize,
    rest: Vec<u32>,
}

/// Tokens within the beginning of a text.
struct Within {
    tokens: usize,
    /// The beginning has more characters than they.
    is_short: bool,
}

/// Length of the common beginning.
fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::super::tokens::{Tokens, is_answer};
    use super::*;
    use crate::generation::encode_marked;
    use crate::job::{FinetuneTable, TaskTemplates};
    use index::tokenizer::LoadOptions;
    use serde_json::json;

    /// transformers' ids and masks (tests/oracles/chat_masks.py).
    fn golden() -> Value {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/chat_masks.json");
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    /// Calls `each` with every tokenizer, its template's tokens and its cases.
    fn each_set(golden: &Value, mut each: impl FnMut(&Tokenizer, [&str; 2], &[Value])) {
        for set in golden["sets"].as_array().unwrap() {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("tokenizer.json");
            std::fs::write(&path, set["tokenizer"].to_string()).unwrap();
            let ends = [&set["bos"], &set["eos"]].map(|text| text.as_str().unwrap());
            let options = LoadOptions {
                eod: Some(ends[1].to_owned()),
                ..LoadOptions::default()
            };
            let tokenizer = Tokenizer::load_with(&path, &options).unwrap();
            each(&tokenizer, ends, set["cases"].as_array().unwrap());
        }
    }

    fn template(source: &str, [bos, eos]: [&str; 2]) -> ChatTemplate {
        ChatTemplate::new(source, Some(bos.into()), Some(eos.into())).unwrap()
    }

    fn mask(encoded: &Encoded) -> String {
        let mut tokens = Tokens::default();
        tokens.push(&encoded.ids, &encoded.answers);
        let bits = tokens.of(0).iter().map(|token| match is_answer(*token) {
            (_, true) => '1',
            (_, false) => '0',
        });
        bits.collect()
    }

    #[test]
    fn ids_and_answers_are_those_of_transformers() {
        let golden = golden();
        let mut compared = 0;
        each_set(&golden, |tokenizer, ends, cases| {
            for case in cases {
                let name = case["template"].as_str().unwrap();
                let source = golden["templates"][name].as_str().unwrap();
                let mut sources = vec![source.to_owned()];
                if name == "chatml" {
                    // of the others, white space or a role stands between the prompt of an answer and the block
                    let without = ["{% generation %}", "{% endgeneration %}"];
                    let without = without
                        .iter()
                        .fold(source.to_owned(), |text, mark| text.replace(mark, ""));
                    sources.push(without);
                }
                for source in sources {
                    let template = template(&source, ends);
                    let encoding = Encoding {
                        tokenizer,
                        template: Some(&template),
                        markers: &[],
                        answer_only: true,
                    };
                    let messages = case["messages"].as_array().unwrap();
                    let (text, _) = template.with_answers(messages).unwrap();
                    assert_eq!(text, case["text"].as_str().unwrap());
                    let example = Example::Chat(messages.clone());
                    let found = encoding.encode(&example).unwrap();
                    let ids: Vec<u32> = serde_json::from_value(case["ids"].clone()).unwrap();
                    assert_eq!(found.ids, ids, "{text}");
                    assert_eq!(mask(&found), case["mask"].as_str().unwrap(), "{text}");
                    compared += 1;
                }
            }
        });
        assert_eq!(compared, 4 * (2 * (2 + 1 + 1) + 1));
    }

    #[test]
    fn beginnings_that_are_cut_at_special_tokens_have_the_ids_of_whole_ones() {
        let golden = golden();
        let mut cut = 0;
        each_set(&golden, |tokenizer, ends, cases| {
            for case in cases {
                let name = case["template"].as_str().unwrap();
                let template = template(golden["templates"][name].as_str().unwrap(), ends);
                let encoding = Encoding {
                    tokenizer,
                    template: Some(&template),
                    markers: &[],
                    answer_only: true,
                };
                // the conversation, its turns once more, and so on: long enough for marks
                let messages = case["messages"].as_array().unwrap();
                let turns = messages.iter().filter(|one| one["role"] != "system");
                let turns: Vec<Value> = turns.cloned().collect();
                let mut long = messages.clone();
                (0..FEW).for_each(|_| long.extend(turns.clone()));
                let Ok((text, spans)) = template.with_answers(&long) else {
                    continue;
                };
                let all = encoding.ids(&text).unwrap();
                let marks = encoding.marks(&text, &all).unwrap();
                cut += usize::from(marks.0.len() > 2 * FEW);
                for (end, _) in text.char_indices() {
                    let Mark { at, token } = marks.before(end);
                    let mut found = all[..token].to_vec();
                    found.extend(encoding.ids(&text[at..end]).unwrap());
                    assert_eq!(
                        found,
                        encoding.ids(&text[..end]).unwrap(),
                        "{:?}",
                        &text[..end]
                    );
                }
                // each answer has the tokens that it has from whole beginnings
                let whole = |end: usize| Beginning {
                    token: 0,
                    rest: encoding.ids(&text[..end]).unwrap(),
                };
                let wanted = spans.iter().map(|span| {
                    let before = encoding.within(&all, &whole(span.start));
                    let upto = encoding.within(&all, &whole(span.end));
                    let last = upto.tokens + usize::from(upto.is_short);
                    before.tokens.min(last)..last.min(all.len())
                });
                let wanted: Vec<Range<usize>> = wanted.collect();
                let found = encoding.encode(&Example::Chat(long)).unwrap();
                assert_eq!(found.answers, wanted);
            }
        });
        assert!(cut > 0);
    }

    #[test]
    fn answers_of_weight_0_do_not_count() {
        let golden = golden();
        let source = ChatTemplate::built_in("chatml").unwrap();
        let talk = |first: Value, second: Value| {
            let one = serde_json::json!({"role": "user", "content": "Hi"});
            let answer = |text: &str, weight: Value| serde_json::json!({"role": "assistant", "content": text, "weight": weight});
            let both = [answer("Hello", first), answer("there", second)];
            let [first, second] = both;
            Example::Chat(vec![one.clone(), first, one, second])
        };
        each_set(&golden, |tokenizer, ends, _| {
            let template = template(source, ends);
            let mut encoding = Encoding {
                tokenizer,
                template: Some(&template),
                markers: &[],
                answer_only: true,
            };
            let all = encoding.encode(&talk(Value::Null, 1.into())).unwrap();
            let last = encoding.encode(&talk(0.into(), 1.0.into())).unwrap();
            assert_eq!(last.ids, all.ids);
            assert_eq!(last.answers, all.answers[1..]);
            let why = encoding.encode(&talk(0.into(), 0.into())).unwrap_err();
            assert_eq!(why, "weight: 0 for every answer");
            let why = encoding.encode(&talk(Value::Null, 0.5.into())).unwrap_err();
            assert_eq!(why, "message 3: weight: found 0.5, want 0 or 1");
            encoding.answer_only = false;
            let why = encoding.encode(&talk(0.into(), 1.into())).unwrap_err();
            assert!(why.contains("finetune.answer_only_loss"), "{why}");
        });
    }

    #[test]
    fn prompts_and_completions_end_with_the_end_of_documents() {
        let golden = golden();
        each_set(&golden, |tokenizer, _, _| {
            let mut encoding = Encoding {
                tokenizer,
                template: None,
                markers: &[],
                answer_only: true,
            };
            let example = Example::Plain {
                prompt: "The capital of".into(),
                completion: " France".into(),
            };
            let found = encoding.encode(&example).unwrap();
            let end = tokenizer.end_of_document().unwrap();
            assert_eq!(found.ids.last(), Some(&end));
            let [answer] = &found.answers[..] else {
                panic!("one answer");
            };
            assert_eq!(answer.end, found.ids.len());
            let text = tokenizer
                .decode(&found.ids[answer.start..answer.end - 1])
                .unwrap();
            let (_, ids, _) = encoding.prompt(&example).unwrap();
            // the byte-level vocabularies
            if tokenizer.id_of("<|im_end|>").is_some() {
                assert_eq!(text, " France");
                assert_eq!(ids, found.ids[..answer.start]);
            } else {
                // words are not kept apart: a token that holds both texts counts
                assert_eq!(text, "f France");
            }
            encoding.answer_only = false;
            let whole = encoding.encode(&example).unwrap();
            assert_eq!(whole.answers, vec![0..whole.ids.len()]);
            let chat = Example::Chat(vec![serde_json::json!({"role": "user", "content": "a"})]);
            let why = encoding.encode(&chat).unwrap_err();
            assert!(why.contains("finetune.chat_template"), "{why}");
        });
    }

    /// NeMo's ids, answers and masks (tests/oracles/task_templates.py), of a training with one template and of one with all.
    #[test]
    fn texts_of_task_templates_have_nemos_ids_and_answers() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../tests/data/task_templates.json"
        );
        let golden: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let tasks = golden["tasks"].as_array().unwrap().iter();
        let list: Vec<Value> = tasks
            .map(|task| json!({"name": task[0], "template": task[1], "splits": task[2], "answer_only_loss": task[5]}))
            .collect();
        let table = |key: &str, value: Value| -> FinetuneTable {
            serde_json::from_value(json!({"method": "prompt", key: value})).unwrap()
        };
        let all = table("templates", json!(list))
            .task_templates(None)
            .unwrap();
        let firsts: Vec<usize> = all.markers().iter().map(|own| own.first).collect();
        assert_eq!(firsts, [0, 15, 25, 28]);
        let mut count = 0;
        each_set_of(&golden, |tokenizer, case| {
            let (template, splits) = (&case["template"], &case["splits"]);
            let total: u64 = (splits.as_array().unwrap().iter())
                .map(|own| own.as_u64().unwrap())
                .sum();
            let alone = json!({"template": template, "splits": splits, "virtual_tokens": total});
            let alone = table("prompt", alone).task_templates(None).unwrap();
            let number = list.iter().position(|task| task["template"] == *template);
            let number = number.unwrap();
            for (tasks, first) in [(&alone, 0), (&all, firsts[number])] {
                expect_nemos(tokenizer, tasks, first, case);
            }
            count += 1;
        });
        assert_eq!(count, 32);
    }

    /// Checks the text of a case by templates of which its own has virtual tokens from `first` on.
    fn expect_nemos(tokenizer: &Tokenizer, tasks: &TaskTemplates, first: usize, case: &Value) {
        let row = case["row"].as_object().unwrap();
        let task = tasks.of_row(row).unwrap();
        let filled = task.fill(row, usize::MAX).unwrap();
        let example = Example::Plain {
            prompt: filled.prompt.clone(),
            completion: filled.answer,
        };
        let mut encoding = Encoding {
            tokenizer,
            template: None,
            markers: tasks.markers(),
            answer_only: true,
        };
        let found = encoding.encode(&example).unwrap();
        // virtual token i is -1 - i there
        let first = u32::try_from(first).unwrap();
        let id = |id: &Value| match id.as_i64().unwrap() {
            id if id < 0 => (1 << 30) + first + u32::try_from(-1 - id).unwrap(),
            id => u32::try_from(id).unwrap(),
        };
        let ids: Vec<u32> = case["ids"].as_array().unwrap().iter().map(id).collect();
        assert_eq!(found.ids, ids, "{case}");
        let answer = usize::try_from(case["answer"].as_u64().unwrap()).unwrap();
        assert_eq!(found.answers, vec![answer..ids.len()], "{case}");
        // a prompt is asked as it was learned
        let asked = encode_marked(tokenizer, &filled.prompt, true, tasks.markers()).unwrap();
        assert_eq!(asked, ids[..answer], "{case}");
        assert_eq!(encoding.prompt(&example).unwrap().1, ids[..answer]);
        assert_eq!(encoding.said(&filled.prompt).unwrap().1, ids[..answer]);
        let counted = |encoding: Encoding<'_>| -> Vec<usize> {
            let answers = encoding.encode(&example).unwrap().answers;
            answers.into_iter().flatten().collect()
        };
        if let Some(answer_only) = task.answer_only {
            encoding.answer_only = answer_only;
            let mask = case["loss_mask"].as_str().unwrap().bytes().enumerate();
            let wanted: Vec<usize> = mask.filter(|at| at.1 == b'1').map(|at| at.0).collect();
            assert_eq!(counted(encoding), wanted, "{case}");
        }
        // of all tokens the virtual ones do not count
        encoding.answer_only = false;
        let text: Vec<usize> = (0..ids.len()).filter(|at| ids[*at] < 1 << 30).collect();
        assert_eq!(counted(encoding), text, "{case}");
    }

    /// Calls `each` with every case of a golden and its tokenizer.
    fn each_set_of(golden: &Value, mut each: impl FnMut(&Tokenizer, &Value)) {
        for set in golden["sets"].as_array().unwrap() {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("tokenizer.json");
            std::fs::write(&path, set["tokenizer"].to_string()).unwrap();
            let options = LoadOptions {
                eod: Some(set["eos"].as_str().unwrap().to_owned()),
                ..LoadOptions::default()
            };
            let tokenizer = Tokenizer::load_with(&path, &options).unwrap();
            let cases = set["cases"].as_array().unwrap();
            cases.iter().for_each(|case| each(&tokenizer, case));
        }
    }

    #[test]
    fn what_a_tokenizer_puts_in_front_stands_behind_the_first_virtual_tokens() {
        let golden = golden();
        let mut set = golden["sets"][0]["tokenizer"].clone();
        set["post_processor"] = serde_json::json!({
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<|im_start|>": {"id": "<|im_start|>", "ids": [1], "tokens": ["<|im_start|>"]}}
        });
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokenizer.json");
        std::fs::write(&path, set.to_string()).unwrap();
        let tokenizer = Tokenizer::load(&path).unwrap();
        let own = |text: &str| encode(&tokenizer, text, false).unwrap();
        let (hello, there) = (own("Hello"), own(" there"));
        let virtual_ids = |range: Range<u32>| range.map(|id| (1 << 30) + id).collect::<Vec<u32>>();
        let two = [TaskMarkers {
            task: String::new(),
            first: 0,
            counts: vec![2, 1],
        }];
        for (text, adds, wanted) in [
            (
                "<|VIRTUAL_PROMPT_0|>Hello<|VIRTUAL_PROMPT_1|> there",
                true,
                [
                    virtual_ids(0..2),
                    vec![1],
                    hello.clone(),
                    virtual_ids(2..3),
                    there.clone(),
                ],
            ),
            (
                "Hello<|VIRTUAL_PROMPT_0|> there<|VIRTUAL_PROMPT_1|>",
                true,
                [
                    vec![1],
                    hello.clone(),
                    virtual_ids(0..2),
                    there.clone(),
                    virtual_ids(2..3),
                ],
            ),
            (
                "<|VIRTUAL_PROMPT_0|><|VIRTUAL_PROMPT_1|>",
                true,
                [virtual_ids(0..3), vec![1], vec![], vec![], vec![]],
            ),
            (
                "<|VIRTUAL_PROMPT_0|><|VIRTUAL_PROMPT_1|>Hello",
                false,
                [virtual_ids(0..3), hello.clone(), vec![], vec![], vec![]],
            ),
        ] {
            let found = encode_marked(&tokenizer, text, adds, &two).unwrap();
            assert_eq!(found, wanted.concat(), "{text}");
        }
        let encoding = Encoding {
            tokenizer: &tokenizer,
            template: None,
            markers: &two,
            answer_only: true,
        };
        let example = Example::Plain {
            prompt: "<|VIRTUAL_PROMPT_0|><|VIRTUAL_PROMPT_1|>".into(),
            completion: "Hello".into(),
        };
        let found = encoding.encode(&example).unwrap();
        assert_eq!(found.ids[..4], [virtual_ids(0..3), vec![1]].concat());
        assert_eq!(found.answers[0].start, 4);
        // models without markers read them as text, and others want theirs
        let text = "Hello<|VIRTUAL_PROMPT_0|>";
        assert_eq!(
            encode_marked(&tokenizer, text, false, &[]).unwrap(),
            own(text)
        );
        assert_eq!(
            encode_marked(&tokenizer, "Hello", false, &two).unwrap(),
            hello
        );
        let why = encode_marked(&tokenizer, text, false, &two).unwrap_err();
        let wanted = "found <|VIRTUAL_PROMPT_0|>, want <|VIRTUAL_PROMPT_0|> and <|VIRTUAL_PROMPT_1|>, each once and in order";
        assert_eq!(why.to_string(), wanted);
    }

    #[test]
    fn built_in_templates_mark_their_answers_and_others_are_refused_where_they_cannot() {
        let talk = |last: &str| {
            vec![
                serde_json::json!({"role": "user", "content": "Hi"}),
                serde_json::json!({"role": "assistant", "content": "Hello"}),
                serde_json::json!({"role": "user", "content": "Bye"}),
                serde_json::json!({"role": "assistant", "content": last}),
            ]
        };
        for (name, wanted) in [
            ("chatml", ["Hello<|im_end|>", "Bye.<|im_end|>"]),
            ("plain", [" Hello</s>", " Bye.</s>"]),
        ] {
            let source = ChatTemplate::built_in(name).unwrap();
            let template = template(source, ["<s>", "</s>"]);
            let (text, answers) = template.with_answers(&talk("Bye.")).unwrap();
            let found: Vec<&str> = answers.into_iter().map(|answer| &text[answer]).collect();
            assert_eq!(found, wanted);
            let open = template.open(&talk("Bye.")[..3]).unwrap();
            assert!(text.starts_with(&open), "{open}");
        }
        // earlier answers lose their end
        let forgets = "{% for m in messages %}{{ m.role + ':' + (m.content if loop.last or m.role == 'user' else m.content[:1]) }}{% endfor %}";
        let why = template(forgets, ["", ""])
            .with_answers(&talk("Bye"))
            .unwrap_err();
        assert!(
            format!("{why:#}").contains("message 1 otherwise when others follow"),
            "{why:#}"
        );
        let why = template("{{ messages[0].role }}\n{{ messages.foo.bar }}", ["", ""]);
        let why = format!("{:#}", why.with_answers(&talk("Bye")).unwrap_err());
        assert!(why.contains("line 2"), "{why}");
        let marked = template(ChatTemplate::built_in("plain").unwrap(), ["", ""]);
        let why = marked.with_answers(&talk("\u{fdd1}")).unwrap_err();
        assert!(why.to_string().contains("U+FDD0"), "{why:#}");
    }
}
