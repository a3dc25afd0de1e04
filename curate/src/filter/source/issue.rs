//! Issues and pull requests to text, as StarCoder was trained on them.
//!
//! Definition: bigcode-dataset bebec92, `filtering_issues.py` and `utils_issues.py`, in their order: replies by e-mail
//! lose what GitHub added, long comments their middle, comments of bots go, short issues and monologues are
//! dropped, names become `username_0` and so on. The layout is StarCoder 2's (Lozhkov et al. 2024, arXiv:2402.19173,
//! section 5.3): `<issue_start>Title: ...\nusername_0: ...<issue_comment>username_1: ...<issue_closed>`. We differ: the
//! calls of bots stay (there the branch that removes them fails). Of pull requests the conversation is written in the same
//! layout; their files, diffs and states are not.

use std::sync::LazyLock;

use regex::Regex;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::check::Problem;
use crate::contract::{Draft, Filter, Opening, StepConfig, StepScratch};
use crate::error::Result;
use crate::text::{chars, unicode};
use crate::verdict::{Judge, KEEP, Verdict, broken};

/// Turns issues into conversations. The text is the JSON list of an issue's events (`text_key = "events"` of the input), each with
/// `author`, `type`, `action`, `title`, and `comment`, `description` or `text`; or a list of GH Archive's events of one issue.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Issue {
    /// Fewest characters of all texts. StarCoder: 200.
    pub min_chars: usize,
    /// Most characters of an issue with one author. StarCoder: 7000.
    pub max_chars_alone: usize,
    /// Most events of an issue with one author. StarCoder: 10.
    pub max_events_alone: usize,
    /// Lines of a comment; of longer ones the last 20 and as many of the first as fit are kept. StarCoder: 80, StarCoder 2: 100.
    pub max_lines: usize,
    /// Whether comments of bots stay.
    pub keep_bots: bool,
    /// Whether names stay.
    pub keep_names: bool,
}

impl Default for Issue {
    fn default() -> Self {
        Issue {
            min_chars: 200,
            max_chars_alone: 7000,
            max_events_alone: 10,
            max_lines: 80,
            keep_bots: false,
            keep_names: false,
        }
    }
}

/// Authors whose comments go.
const BOTS: [&str; 15] = [
    "Apache-HBase",
    "AutorestCI",
    "CLAassistant",
    "cmsbuild",
    "codecov-io",
    "codecov-commenter",
    "coveralls",
    "danger-public",
    "dnfclas",
    "msftclas",
    "PyDocTeur",
    "SparkQA",
    "karma-pr-reporter",
    "claassistantio",
    "probot-stale",
];
/// Parts of such names, in any case.
const BOT_PARTS: [&str; 7] = [
    "[bot]",
    "botmanager",
    "bors-",
    "jenkins",
    "k8s-",
    "-test-",
    "travis",
];
/// Ends of such names, compared with the name in lower case: the last never matches, as there.
const BOT_ENDS: [&str; 13] = [
    "-automaton",
    "-automation",
    "-benchmark",
    "-build",
    "-deployer",
    "-cloud",
    "bot",
    "-ci",
    "-linter",
    "-teamcity",
    "-test",
    "-testing",
    "-Service-Account",
];
/// Last lines of a long comment.
const TAIL: usize = 20;

/// Replies by e-mail as a whole.
static EMAILS: LazyLock<[Regex; 3]> = LazyLock::new(|| {
    [
        r"(?s)\A(.*)From:.+Reply to this email directly.+view it on GitHub(.*)\n?(.*)",
        r"(?s)\A(.*)On.+notifications@github.com.+wrote:.+Reply to this email directly.+view it on GitHub(.*)\n?(.*)",
        r"(?s)\A(.*)Signed-off-by: .+<.+>(.*?)\n?(.*)",
    ]
    .map(|pattern| Regex::new(pattern).expect("the pattern is one"))
});
/// First line of a quoted e-mail, and a line across the page.
static DATE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\d+/\d+/\d+ \d{2}:\d{2} [AP]M.+wrote").expect("the pattern is one")
});
static ACROSS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("_{20,}").expect("the pattern is one"));

struct Event {
    author: String,
    /// `opened`, `created`, `closed`, `reopened` and so on.
    action: String,
    is_comment: bool,
    title: String,
    text: String,
}

impl Event {
    fn of(value: &Value) -> Event {
        let payload = value.get("payload");
        let text = |value: Option<&Value>, key: &str| {
            let found = value.and_then(|v| v.get(key)).and_then(Value::as_str);
            found.unwrap_or_default().to_string()
        };
        if let Some(payload) = payload {
            // GH Archive: the comment's text, else the issue's
            let issue = payload.get("issue").or_else(|| payload.get("pull_request"));
            let comment = payload.get("comment").or_else(|| payload.get("review"));
            return Event {
                author: text(value.get("actor"), "login"),
                action: text(Some(payload), "action"),
                is_comment: comment.is_some(),
                title: text(issue, "title"),
                text: text(comment.or(issue), "body"),
            };
        }
        let parts = ["comment", "description", "text"].map(|key| text(Some(value), key));
        Event {
            author: text(Some(value), "author"),
            action: text(Some(value), "action"),
            is_comment: text(Some(value), "type") == "comment",
            title: text(Some(value), "title"),
            text: parts
                .into_iter()
                .find(|p| !p.is_empty())
                .unwrap_or_default(),
        }
    }

    fn is_bot(&self) -> bool {
        let lower = self.author.to_lowercase();
        BOT_PARTS.iter().any(|part| lower.contains(part))
            || BOT_ENDS.iter().any(|end| lower.ends_with(end))
            || BOTS.contains(&self.author.as_str())
    }

    /// Cuts the middle of a long text.
    fn truncate(&mut self, most: usize) {
        let lines: Vec<&str> = self.text.split('\n').collect();
        if lines.len() > most {
            let first = lines[..most.saturating_sub(TAIL)].join("\n");
            let last = lines[lines.len() - TAIL.min(lines.len())..].join("\n");
            self.text = format!("{first}\n[Truncated]\n{last}");
        }
    }
}

/// Longest text whose e-mails are looked for as a whole.
const LONGEST_EMAIL: usize = 256 << 10;

/// A text without the parts of a reply by e-mail that its author did not write.
fn without_email(text: &str) -> String {
    let text = unicode::strip(text);
    let is_short = text.len() <= LONGEST_EMAIL;
    let whole = EMAILS
        .iter()
        .filter(|_| is_short)
        .find_map(|p| p.captures(text));
    let text = match whole {
        Some(found) => format!("{}{}", &found[1], &found[3]),
        None => {
            let lines: Vec<&str> = text.split('\n').collect();
            // an end of -1 there: nothing is cut
            let (mut start, mut end) = (0, None);
            for (i, line) in lines.iter().enumerate() {
                let line = unicode::strip(line);
                if line.contains("notifications@github.com") || DATE.is_match(line) {
                    start = i;
                }
                if line.contains("Reply to this email directly") {
                    end = if line.ends_with(':') {
                        Some(i + 1)
                    } else {
                        Some(i)
                    };
                }
                if line.starts_with('>') {
                    end = Some(i);
                }
            }
            let rest = end.map_or(0, |end| end + 1).min(lines.len());
            [&lines[..start], &lines[rest..]].concat().join("\n")
        }
    };
    unicode::strip(&ACROSS.replace_all(&text, "")).to_string()
}

impl Issue {
    /// Writes the conversation of a list of events to `out`.
    pub fn convert(&self, events: &[Value], out: &mut String) -> Verdict {
        let mut events: Vec<Event> = events.iter().map(Event::of).collect();
        for event in &mut events {
            event.text = without_email(&event.text);
            event.truncate(self.max_lines);
        }
        if !self.keep_bots {
            events.retain(|event| !event.is_bot());
        }
        if events.is_empty() {
            return Verdict::Break(broken("issue.bots", 0.0, 1.0));
        }
        let size: usize = events.iter().map(|event| chars(&event.text)).sum();
        let mut seen = FxHashSet::default();
        let authors = events.iter().map(|event| event.author.as_str());
        let names: Vec<&str> = authors.filter(|name| seen.insert(*name)).collect();
        let break_with =
            |rule: &str, value: usize, limit: usize| Verdict::Break(broken(rule, value, limit));
        if size < self.min_chars {
            return break_with("issue.min_chars", size, self.min_chars);
        }
        if names.len() < 2 && size > self.max_chars_alone {
            return break_with("issue.max_chars_alone", size, self.max_chars_alone);
        }
        if names.len() < 2 && events.len() > self.max_events_alone {
            return break_with(
                "issue.max_events_alone",
                events.len(),
                self.max_events_alone,
            );
        }
        let names: Vec<String> = names.into_iter().map(str::to_string).collect();
        self.write(&events, &names, out);
        KEEP
    }

    fn write(&self, events: &[Event], names: &[String], out: &mut String) {
        out.clear();
        let numbers: FxHashMap<&str, usize> = names.iter().map(String::as_str).zip(0..).collect();
        for (number, event) in events.iter().enumerate() {
            if event.action == "closed" {
                out.push_str("<issue_closed>");
                continue;
            }
            let opens = number == 0 && !event.is_comment;
            out.push_str(if opens {
                "<issue_start>"
            } else {
                "<issue_comment>"
            });
            if opens && !event.title.is_empty() {
                out.push_str("Title: ");
                out.push_str(&self.masked(&event.title, names));
                out.push('\n');
            }
            let at = numbers.get(event.author.as_str()).copied().unwrap_or(0);
            match self.keep_names {
                true => out.push_str(&event.author),
                false => out.push_str(&format!("username_{at}")),
            }
            out.push_str(": ");
            out.push_str(&self.masked(&event.text, names));
        }
    }

    /// A text with the authors' names replaced, one name after the other.
    fn masked(&self, text: &str, names: &[String]) -> String {
        let mut text = text.to_string();
        if self.keep_names {
            return text;
        }
        for (i, name) in names.iter().enumerate().take(MOST_NAMES) {
            if !name.is_empty() && text.contains(name.as_str()) {
                text = text.replace(name.as_str(), &format!("username_{i}"));
            }
        }
        text
    }
}

/// Names that are looked for in every text: an issue with more authors than this would take too long.
const MOST_NAMES: usize = 256;

impl StepConfig for Issue {
    fn name(&self) -> &'static str {
        "issue"
    }

    fn check(&self, problem: Problem<'_>) {
        if self.max_lines < TAIL {
            problem(
                "max_lines",
                self.max_lines.to_string(),
                "at least 20, the last lines that stay",
            );
        }
        if self.min_chars > self.max_chars_alone {
            let found = format!(
                "{} above max_chars_alone {}",
                self.min_chars, self.max_chars_alone
            );
            problem("min_chars", found, "at most max_chars_alone");
        }
    }

    fn open(&self, _: &Opening<'_>) -> Result<Box<dyn Filter>> {
        Ok(Box::new(self.clone()))
    }
}

impl Filter for Issue {
    fn apply(&self, draft: &mut Draft, scratch: &mut StepScratch, _: &mut Judge) -> Verdict {
        let events = match serde_json::from_str::<Vec<Value>>(&draft.text) {
            Ok(events) => events,
            Err(e) => {
                let wanted = "a list of events";
                return Verdict::Break(broken("issue.broken", e.to_string(), wanted));
            }
        };
        self.convert(&events, &mut scratch.rewritten)?;
        draft.text.clone_from(&scratch.rewritten);
        KEEP
    }

    fn metrics(&self) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(config: &str, events: &Value) -> Result<String, String> {
        let config: Issue = serde_json::from_str(config).unwrap();
        config.check(&mut |k, f, w| panic!("{k}: {f}: {w}"));
        let mut out = String::new();
        match config
            .convert(events.as_array().unwrap(), &mut out)
            .break_value()
        {
            Some(reason) => Err(reason.rule),
            None => Ok(out),
        }
    }

    #[test]
    fn a_conversation_has_speakers_and_events() {
        let events = json!([
            {"type": "issue", "action": "opened", "author": "ann", "title": "It fails", "description": "Since @bob's change."},
            {"type": "comment", "action": "created", "author": "ci[bot]", "comment": "built"},
            {"type": "comment", "action": "created", "author": "bob", "comment": "ann is right."},
            {"type": "issue", "action": "closed", "author": "bob"}]);
        assert_eq!(
            run(r#"{"min_chars": 10}"#, &events).unwrap(),
            "<issue_start>Title: It fails\nusername_0: Since @username_1's change.<issue_comment>username_1: username_0 is right.<issue_closed>"
        );
        assert_eq!(run("{}", &events), Err("issue.min_chars".to_string()));
        let kept = run(
            r#"{"min_chars": 10, "keep_bots": true, "keep_names": true}"#,
            &events,
        )
        .unwrap();
        assert!(
            kept.contains("<issue_comment>ci[bot]: built<issue_comment>bob: ann is right."),
            "{kept}"
        );
    }

    #[test]
    fn events_of_gh_archive_are_read() {
        let issue = json!({"title": "T", "body": "first text"});
        let events = json!([
            {"type": "IssuesEvent", "actor": {"login": "a"}, "payload": {"action": "opened", "issue": issue}},
            {"type": "IssueCommentEvent", "actor": {"login": "b"}, "payload": {"action": "created", "issue": issue, "comment": {"body": "second"}}}]);
        assert_eq!(
            run(r#"{"min_chars": 1}"#, &events).unwrap(),
            "<issue_start>Title: T\nusername_0: first text<issue_comment>username_1: second"
        );
    }

    #[test]
    fn monologues_are_bounded() {
        let one = |text: String| json!({"type": "comment", "action": "created", "author": "a", "comment": text});
        let long = json!([one("a ".repeat(3501))]);
        assert_eq!(run("{}", &long), Err("issue.max_chars_alone".to_string()));
        let many: Vec<Value> = (0..11).map(|_| one("b ".repeat(20))).collect();
        assert_eq!(
            run("{}", &many.into()),
            Err("issue.max_events_alone".to_string())
        );
        assert_eq!(
            run("{}", &json!([{"author": "x[bot]", "text": "a"}])),
            Err("issue.bots".to_string())
        );
    }
}
