//! `chat`: a conversation with a model in the terminal.

use crate::generation::{Located, Message, ModelFiles, SamplingArgs, answer, encode};
use crate::log::print;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use std::io::{BufRead as _, IsTerminal as _};
use std::path::PathBuf;
use train::infer::GenerateOptions;

/// Flags of the verb.
#[derive(Args)]
pub(crate) struct ChatArgs {
    /// Job file, job's folder, checkpoint, folder of checkpoints, Hugging Face folder, or GGUF file.
    model: PathBuf,
    /// Override one key of the job.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Tokenizer. Default: the job's, or the one in or above the folder.
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// Chat template (Jinja). Default: the model's.
    #[arg(long, value_name = "FILE")]
    chat_template: Option<PathBuf>,
    /// Instructions in front of the conversation.
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    #[command(flatten)]
    sampling: SamplingArgs,
}

const COMMANDS: &str = "/reset forgets the conversation, /exit ends it";

/// The verb: a line of standard input is a message; the answer streams. The end of the input ends the conversation.
pub(crate) fn chat(args: &ChatArgs) -> Result<()> {
    let defaults = GenerateOptions {
        max_tokens: 512,
        ..GenerateOptions::default()
    };
    // before a model is read
    args.sampling.check(&defaults)?;
    let found = Located::find(&args.model, &args.set, args.tokenizer.as_deref(), "chat")?;
    let files = ModelFiles::read(found, args.chat_template.as_deref())?;
    let template = files.chat_template.as_ref().with_context(|| {
        let tokenizer = files.tokenizer.path().display();
        format!("found no chat template beside {tokenizer}; --chat-template FILE names one")
    })?;
    let mut engine = args.sampling.engine(&files)?;
    let is_terminal = std::io::stdin().is_terminal();
    if is_terminal {
        log!("chat: {} ({COMMANDS})", files.name);
    }
    let system = args.system.iter().map(|text| message("system", text));
    let mut messages: Vec<Message> = system.collect();
    let kept = messages.len();
    let mut input = std::io::stdin().lock();
    let mut left_out = 0;
    for number in 0.. {
        if is_terminal {
            print("> ")?;
        }
        let mut line = Vec::new();
        let read = input.read_until(b'\n', &mut line);
        if read.context("standard input")? == 0 {
            break;
        }
        let Ok(line) = std::str::from_utf8(&line) else {
            log!("chat: found a message that is not UTF-8; it is left out");
            left_out += 1;
            continue;
        };
        match line.trim() {
            "" => continue,
            "/exit" => break,
            "/reset" => {
                messages.truncate(kept);
                continue;
            }
            text => messages.push(message("user", text)),
        }
        let before = messages.clone();
        let mut options = args.sampling.options(&defaults, &files);
        options.seed = options.seed.wrapping_add(number);
        let limit = engine.max_length();
        let ids = loop {
            let prompt = template.prompt(&messages, false)?;
            let ids = encode(&files.tokenizer, &prompt, false)?;
            if ids.len() + options.max_tokens.min(limit / 4) <= limit || messages.len() <= kept + 1
            {
                break ids;
            }
            // the oldest question and its answer make room
            messages.drain(kept..(kept + 2).min(messages.len() - 1));
            log!("chat: the oldest messages are forgotten: the model sees {limit} tokens");
        };
        if ids.len() >= limit {
            log!(
                "chat: found {} tokens in the message and the instructions, want fewer than the {limit} that the model sees; \
                 the message is left out",
                ids.len()
            );
            left_out += 1;
            messages = before;
            messages.pop();
            continue;
        }
        options.max_tokens = options.max_tokens.min(limit - ids.len());
        let prompts = vec![(ids, options)];
        let answers = answer(
            &mut engine,
            &files,
            &args.sampling,
            prompts,
            &mut |_, text| print(text.unwrap_or("\n")),
        );
        let text = answers?.pop().map(|answer| answer.text).unwrap_or_default();
        messages.push(message("assistant", &text));
    }
    // nobody sees the messages above in a pipe
    if left_out > 0 && !is_terminal {
        bail!("standard input: {left_out} messages were left out");
    }
    Ok(())
}

fn message(role: &str, content: &str) -> Message {
    Message {
        role: role.to_owned(),
        content: content.to_owned(),
    }
}
