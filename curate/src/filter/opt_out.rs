//! Opt-outs: documents that a list names are dropped, so that a new crawl, or a corpus that is made anew, does not bring
//! back what was taken down. The list is that of `millrace takedown`: URLs, hosts, domains, ids and payload digests.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::check::{self, Problem};
use crate::contract::{Draft, Filter, Opening, StepConfig, StepScratch};
use crate::error::Result;
use crate::takedown_list::{FoundBy, TakedownList, Wanted};
use crate::verdict::{Judge, KEEP, Verdict, broken};

/// Documents to leave out.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct OptOut {
    /// File with an entry per line, as `millrace takedown` takes it.
    pub list: String,
}

struct Listed(TakedownList);

impl StepConfig for OptOut {
    fn name(&self) -> &'static str {
        "opt_out"
    }

    fn check(&self, problem: Problem<'_>) {
        if self.list.is_empty() {
            problem("list", "\"\"".to_string(), "a file");
        }
    }

    fn open(&self, _: &Opening<'_>) -> Result<Box<dyn Filter>> {
        Ok(Box::new(Listed(TakedownList::read(self.list.as_ref())?)))
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![PathBuf::from(&self.list)]
    }

    fn check_files(&self, problem: Problem<'_>) {
        let wanted = "a file with an entry per line";
        check::file(problem, "list", &self.list, wanted, check::is_text);
    }

    fn metric_names(&self) -> Option<Vec<String>> {
        Some(Vec::new())
    }
}

impl Filter for Listed {
    fn apply(&self, draft: &mut Draft, _: &mut StepScratch, _: &mut Judge) -> Verdict {
        let meta = draft.meta.as_ref();
        let digest = meta.and_then(|meta| meta.get("warc")?.get("payload_digest"));
        let wanted = Wanted {
            id: &draft.id,
            url: draft.url.as_deref(),
            digest: digest.and_then(Value::as_str),
        };
        let Some(hit) = self.0.find(&wanted) else {
            return KEEP;
        };
        let url = draft.url.as_deref().unwrap_or_default();
        let (rule, value) = match hit.by {
            FoundBy::Id => ("opt_out.id", draft.id.as_str()),
            FoundBy::Url => ("opt_out.url", url),
            FoundBy::Host => ("opt_out.host", url),
            FoundBy::Domain => ("opt_out.domain", url),
            FoundBy::Digest => ("opt_out.digest", wanted.digest.unwrap_or_default()),
        };
        Verdict::Break(broken(rule, value, format!("not line {}", hit.line)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn listed_documents_are_dropped_with_the_entry_that_names_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list");
        std::fs::write(
            &path,
            "# none\nhost:example.org\nmd5:5d5cae0f530a19558dc023bb866c326e\nid:a\n",
        )
        .unwrap();
        let config = OptOut {
            list: path.display().to_string(),
        };
        assert_eq!(config.files(), [path]);
        let before = Vec::new();
        let at = Opening {
            number: 0,
            before: &before,
            models: &crate::classifier::NoModels,
        };
        let filter = config.open(&at).unwrap();
        let apply = |mut draft: Draft| {
            let verdict = filter.apply(
                &mut draft,
                &mut StepScratch::default(),
                &mut Judge::strict(),
            );
            match verdict {
                Verdict::Continue(()) => String::new(),
                Verdict::Break(reason) => {
                    let limit = serde_json::to_value(&reason.limit).unwrap();
                    format!("{} {}", reason.rule, limit.as_str().unwrap())
                }
            }
        };
        let page = |url: &str, meta: Value| Draft {
            id: "b".to_string(),
            url: Some(url.to_string()),
            meta: Some(meta),
            ..Draft::default()
        };
        assert_eq!(
            apply(page("https://www.example.org/x", json!({}))),
            "opt_out.host not line 2"
        );
        let digest = json!({"warc": {"payload_digest": "MD5:5D5CAE0F530A19558DC023BB866C326E"}});
        assert_eq!(
            apply(page("https://example.com/", digest)),
            "opt_out.digest not line 3"
        );
        let id = Draft {
            id: "a".to_string(),
            ..Draft::default()
        };
        assert_eq!(apply(id), "opt_out.id not line 4");
        assert_eq!(apply(page("https://example.com/", json!({}))), "");
        assert_eq!(apply(Draft::default()), "");
    }
}
