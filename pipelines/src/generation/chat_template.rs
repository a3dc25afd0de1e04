//! Chat templates: the messages of a conversation as one prompt, by the Jinja template that comes with a tokenizer.
//!
//! The rules are those of Hugging Face transformers 4.57 (`utils/chat_template_utils.py`): blocks are trimmed, `break` and
//! `continue` are known, `raise_exception` refuses a conversation, `strftime_now` gives today's date (here in UTC), `tojson`
//! writes JSON as Python does, and Python's string methods work.

use anyhow::{Context as _, Result, anyhow, bail};
use minijinja::{Environment, Error, ErrorKind, State, Value, context};
use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::ser::Formatter;
use std::fmt::Write as _;
use std::ops::Range;

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Message {
    /// `system`, `user`, `assistant`, or another that the template knows.
    pub(crate) role: String,
    pub(crate) content: String,
}

/// A parsed template with the texts of the special tokens that it may name.
pub(crate) struct ChatTemplate {
    source: String,
    environment: Environment<'static>,
    bos: Option<String>,
    eos: Option<String>,
    /// Whether `{% generation %}` marks the answers.
    has_marks: bool,
}

/// Around answers in a text with marks: code points that no text has (Unicode's noncharacters).
const MARKS: [char; 2] = ['\u{fdd0}', '\u{fdd1}'];

const NAME: &str = "chat_template";

impl ChatTemplate {
    /// Parses a template. `bos` and `eos`: texts of the tokens that begin and end a text.
    ///
    /// # Errors
    /// The template's mistake with its line.
    pub(crate) fn new(
        source: &str,
        bos: Option<String>,
        eos: Option<String>,
    ) -> Result<ChatTemplate> {
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function(
            "raise_exception",
            |message: String| -> Result<Value, Error> {
                Err(Error::new(ErrorKind::InvalidOperation, message))
            },
        );
        environment.add_function("strftime_now", |format: &str| {
            let mut text = String::new();
            match write!(text, "{}", chrono::Utc::now().format(format)) {
                Ok(()) => Ok(text),
                Err(_) => Err(Error::new(
                    ErrorKind::InvalidOperation,
                    format!("no format of a date: {format:?}"),
                )),
            }
        });
        environment.add_filter("tojson", to_json);
        environment.add_filter(GENERATION, |state: &State<'_, '_>, text: String| {
            let is_marked = state.lookup("marks_generation");
            match is_marked.is_some_and(|value| value.is_true()) {
                true => format!("{}{text}{}", MARKS[0], MARKS[1]),
                false => text,
            }
        });
        let readable = with_generation_filter(source);
        let has_marks = readable != source;
        environment
            .add_template_owned(NAME, readable)
            .map_err(|e| anyhow!("{e:#}"))
            .context("the chat template is not valid")?;
        Ok(ChatTemplate {
            source: source.to_owned(),
            environment,
            bos,
            eos,
            has_marks,
        })
    }

    /// One of the templates that come with Millrace: `chatml`, and `plain`, whose roles are words of the text.
    pub(crate) fn built_in(name: &str) -> Option<&'static str> {
        match name {
            "chatml" => Some(CHATML),
            "plain" => Some(PLAIN),
            _ => None,
        }
    }

    /// The template's text.
    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// The prompt of a conversation, up to the beginning of the assistant's next answer; with `continues`, up to the end of
    /// the last message's content, so that the model goes on with it.
    ///
    /// # Errors
    /// Reason of the template, if it refuses the messages.
    pub(crate) fn prompt(&self, messages: &[Message], continues: bool) -> Result<String> {
        let mut text = self.render(messages, !continues, false)?;
        if continues {
            let last = messages.last().map_or("", |message| message.content.trim());
            let at = text
                .rfind(last)
                .context("the chat template drops the last message")?;
            text.truncate(at + last.len());
        }
        Ok(text)
    }

    /// The text of some messages in OpenAI's form, up to the beginning of the assistant's next answer.
    ///
    /// # Errors
    /// Reason of the template, if it refuses the messages.
    pub(crate) fn open(&self, messages: &[serde_json::Value]) -> Result<String> {
        self.render(messages, true, false)
    }

    /// The text of a whole conversation in OpenAI's form, and the bytes of the assistant's answers in it: those in
    /// `{% generation %}` blocks, as in transformers; of a template without them, everything from the prompt of an answer to
    /// the end of its message, but for white space there.
    ///
    /// # Errors
    /// Reason of the template, if it refuses the messages; a template without the blocks that writes a message otherwise when
    /// others follow, or an answer otherwise than it opens it.
    pub(crate) fn with_answers(
        &self,
        messages: &[serde_json::Value],
    ) -> Result<(String, Vec<Range<usize>>)> {
        if self.has_marks {
            return unmarked(&self.render(messages, false, true)?);
        }
        let whole = self.render(messages, false, false)?;
        let mut answers = Vec::new();
        for (at, message) in messages.iter().enumerate() {
            if message["role"] != "assistant" {
                continue;
            }
            let before = self.render(&messages[..at], true, false)?;
            let with = match at + 1 == messages.len() {
                true => whole.clone(),
                false => self.render(&messages[..=at], false, false)?,
            };
            if !with.starts_with(&before) || !whole.starts_with(&with) {
                bail!(
                    "the chat template writes message {at} otherwise {}; put its answers in {{% generation %}} blocks",
                    match with.starts_with(&before) {
                        true => "when others follow",
                        false => "than add_generation_prompt opens it",
                    }
                );
            }
            let end = with.trim_end().len().max(before.len());
            answers.push(before.len()..end);
        }
        Ok((whole, answers))
    }

    fn render(
        &self,
        messages: impl Serialize,
        adds_generation_prompt: bool,
        marks_generation: bool,
    ) -> Result<String> {
        let template = self.environment.get_template(NAME)?;
        let rendered = template.render(context! {
            messages => messages,
            bos_token => self.bos.as_deref().unwrap_or_default(),
            eos_token => self.eos.as_deref().unwrap_or_default(),
            add_generation_prompt => adds_generation_prompt,
            marks_generation => marks_generation,
        });
        rendered.map_err(|e| {
            let why = e.detail().map_or_else(|| e.to_string(), str::to_owned);
            match e.line() {
                Some(line) => anyhow!("the chat template, line {line}: {why}"),
                None => anyhow!("the chat template: {why}"),
            }
        })
    }

    /// Whether prompts begin with the token that begins a text, so that encoding must not add it.
    pub(crate) fn writes_bos(&self, prompt: &str) -> bool {
        self.bos
            .as_ref()
            .is_some_and(|bos| !bos.is_empty() && prompt.starts_with(bos.as_str()))
    }
}

/// The text without marks, and the bytes between them.
fn unmarked(marked: &str) -> Result<(String, Vec<Range<usize>>)> {
    let (mut text, mut answers, mut start) =
        (String::with_capacity(marked.len()), Vec::new(), None);
    for part in marked.split_inclusive(MARKS) {
        let end = part.chars().next_back();
        let mark = end.and_then(|end| MARKS.iter().position(|mark| *mark == end));
        text.push_str(part.trim_end_matches(MARKS));
        match (mark, start) {
            (Some(0), None) => start = Some(text.len()),
            (Some(1), Some(from)) => {
                answers.push(from..text.len());
                start = None;
            }
            (None, _) => {}
            _ => bail!(
                "the conversation holds the code point U+FDD0 or U+FDD1, which is no character"
            ),
        }
    }
    Ok((text, answers))
}

/// Filter in place of a `{% generation %}` block, which marks answers for training.
const GENERATION: &str = "generation_block";

fn with_generation_filter(source: &str) -> String {
    let begin = format!("filter {GENERATION}");
    let marks = [
        ("generation", begin.as_str()),
        ("endgeneration", "endfilter"),
    ];
    marks
        .into_iter()
        .fold(source.to_owned(), |text, (mark, tag)| {
            match Regex::new(&format!(r"\{{%(-?)\s*{mark}\s*(-?)%\}}")) {
                Ok(found) => found
                    .replace_all(&text, format!("{{%$1 {tag} $2%}}"))
                    .into_owned(),
                Err(_) => text,
            }
        })
}

/// The form of OpenAI's ChatML; its marks are special tokens of many vocabularies and text in others.
const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}{{ '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/// Roles as words, for vocabularies without special tokens for them; an answer ends with the token that ends documents.
const PLAIN: &str = "{% for message in messages %}{% if message['role'] == 'assistant' %}{{ 'Assistant:' }}{% generation %}{{ ' ' + message['content'] + eos_token }}{% endgeneration %}{{ '\n' }}{% elif message['role'] == 'user' %}{{ 'User: ' + message['content'] + '\n' }}{% else %}{{ message['content'] + '\n\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}";

/// JSON as Python's `json.dumps(value, ensure_ascii=False)` writes it, with `indent` if given.
fn to_json(value: Value, options: minijinja::value::Kwargs) -> Result<String, Error> {
    let failed = |e: &dyn std::fmt::Display| Error::new(ErrorKind::BadSerialization, e.to_string());
    let indent: Option<usize> = options.get("indent")?;
    options.assert_all_used()?;
    let mut out = Vec::new();
    let written = match indent {
        Some(indent) => {
            let indent = " ".repeat(indent);
            let pretty = serde_json::ser::PrettyFormatter::with_indent(indent.as_bytes());
            value.serialize(&mut serde_json::Serializer::with_formatter(
                &mut out, pretty,
            ))
        }
        None => value.serialize(&mut serde_json::Serializer::with_formatter(
            &mut out, Spaced,
        )),
    };
    written.map_err(|e| failed(&e))?;
    String::from_utf8(out).map_err(|e| failed(&e))
}

/// A blank after each comma and colon.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
    ) -> std::io::Result<()> {
        writer.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(list: &[(&str, &str)]) -> Vec<Message> {
        let message = |&(role, content): &(&str, &str)| Message {
            role: role.into(),
            content: content.into(),
        };
        list.iter().map(message).collect()
    }

    const INDENTED: &str = "{% for message in messages %}\n  {{ '<|im_start|>' + message['role'] + '\\n' + message.content.strip() + '<|im_end|>' + '\\n' }}\n{% endfor %}\n{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

    #[test]
    fn a_conversation_is_a_prompt() {
        let template = ChatTemplate::new(INDENTED, None, None).unwrap();
        let talk = messages(&[("system", "Be brief."), ("user", " Hi ")]);
        // transformers 4.57.6: tokenizer.apply_chat_template(talk, chat_template=INDENTED, add_generation_prompt=True)
        // the blanks stay: only those in front of a block are cut
        let wanted = "  <|im_start|>system\nBe brief.<|im_end|>\n\n  <|im_start|>user\nHi<|im_end|>\n\n<|im_start|>assistant\n";
        assert_eq!(template.prompt(&talk, false).unwrap(), wanted);
        let talk = messages(&[("user", "Hi"), ("assistant", "Hel")]);
        assert!(
            template
                .prompt(&talk, true)
                .unwrap()
                .ends_with("assistant\nHel")
        );
    }

    #[test]
    fn loops_of_a_template_end_early() {
        // Jinja2's extension `loopcontrols`: from the last message back to the first that is the user's
        let text = "{% for m in messages | reverse %}{% if m.role == 'tool' %}{% continue %}{% endif %}{{ m.content }}{% if m.role == 'user' %}{% break %}{% endif %}{% endfor %}";
        let template = ChatTemplate::new(text, None, None).unwrap();
        let talk = [
            ("user", "a"),
            ("user", "b"),
            ("tool", "t"),
            ("assistant", "c"),
        ];
        let found = template.prompt(&messages(&talk), false).unwrap();
        assert_eq!(found, "cb");
    }

    #[test]
    fn templates_refuse_and_write_json() {
        let refuses = "{% if messages[0].role != 'user' %}{{ raise_exception('begin with user') }}{% endif %}{% generation %}{{ messages | tojson }}{% endgeneration %}";
        let template = ChatTemplate::new(refuses, None, None).unwrap();
        let refused = template.prompt(&messages(&[("system", "x")]), false);
        assert!(format!("{:#}", refused.unwrap_err()).contains("begin with user"));
        let found = template
            .prompt(&messages(&[("user", "é\"")]), false)
            .unwrap();
        assert_eq!(found, r#"[{"role": "user", "content": "é\""}]"#);
        assert!(ChatTemplate::new("{% for %}", None, None).is_err());
        // transformers 4.57.6 as well
        let source = "{% for message in messages %}{% if message.role == 'user' %}{{ message.content | tojson }}{% else %}{{ message | tojson(indent=2) }}{% endif %}\n{% endfor %}";
        let template = ChatTemplate::new(source, None, None).unwrap();
        let talk = messages(&[("system", "Be é."), ("user", "<Hi> & 'x'")]);
        let wanted = "{\n  \"role\": \"system\",\n  \"content\": \"Be é.\"\n}\"<Hi> & 'x'\"";
        assert_eq!(template.prompt(&talk, false).unwrap(), wanted);
    }
}
