//! Licence of source files and other documents, as metadata and as a condition.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::file::field;
use super::licenses::{self, Found, LicenseClass};
use crate::check::Problem;
use crate::contract::{Draft, Filter, Opening, StepConfig, StepScratch};
use crate::error::Result;
use crate::verdict::{Judge, KEEP, Verdict, broken};

/// Licences of a document: of a field of its metadata, else of its text (identifier lines of SPDX, texts and notices of common
/// licences). They are written to `meta.licenses`, their class (`permissive`, `copyleft`, `other`, `none`) to `meta.license_class`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct License {
    /// Classes to keep; empty: all, only label.
    pub keep: Vec<LicenseClass>,
    /// Licences that are kept whatever their class, as identifiers or expressions of SPDX.
    pub allow: Vec<String>,
    /// Licences that are dropped whatever their class.
    pub deny: Vec<String>,
    /// Field of `meta` with the licence of the repository, such as `max_stars_repo_licenses`: an expression of SPDX or a list of
    /// them. It counts where the text has none. Default: no field.
    pub license_key: String,
}

impl License {
    /// The licences of a document.
    fn of(&self, draft: &Draft) -> Found {
        let own = licenses::of_text(&draft.text);
        if !own.licenses.is_empty() || self.license_key.is_empty() {
            return own;
        }
        field(draft, &self.license_key).map_or(own, licenses::of_field)
    }
}

impl StepConfig for License {
    fn name(&self) -> &'static str {
        "license"
    }

    fn check(&self, problem: Problem<'_>) {
        for (key, list) in [("allow", &self.allow), ("deny", &self.deny)] {
            for (i, name) in list.iter().enumerate() {
                if spdx::Expression::parse_mode(name, spdx::ParseMode::LAX).is_err() {
                    let wanted = "an identifier or expression of SPDX, such as \"Apache-2.0\"";
                    problem(&format!("{key}[{i}]"), format!("{name:?}"), wanted);
                }
            }
        }
        if let Some(both) = self.allow.iter().find(|name| self.deny.contains(name)) {
            problem("deny", format!("{both:?}"), "no licence that allow has too");
        }
    }

    fn open(&self, _: &Opening<'_>) -> Result<Box<dyn Filter>> {
        Ok(Box::new(self.clone()))
    }
}

impl Filter for License {
    fn apply(&self, draft: &mut Draft, _: &mut StepScratch, _: &mut Judge) -> Verdict {
        let found = self.of(draft);
        let class = found.class();
        let named = |list: &[String]| found.licenses.iter().find(|l| list.contains(l)).cloned();
        if let Some(name) = named(&self.deny) {
            return Verdict::Break(broken("license.deny", name, self.deny.join(" ")));
        }
        if !self.keep.is_empty() && !self.keep.contains(&class) && named(&self.allow).is_none() {
            let names: Vec<&str> = self.keep.iter().map(|class| class.name()).collect();
            let value = format!("{} {}", class.name(), found.licenses.join(" "));
            return Verdict::Break(broken("license.keep", value.trim(), names.join(" ")));
        }
        draft.note("license_class", Value::String(class.name().to_string()));
        draft.note("licenses", json!(found.licenses));
        KEEP
    }

    fn metrics(&self) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(config: &str, text: &str, meta: Value) -> Result<Value, String> {
        let config: License = serde_json::from_str(config).unwrap();
        config.check(&mut |k, f, w| panic!("{k}: {f}: {w}"));
        let mut draft = Draft {
            text: text.to_string(),
            meta: Some(meta),
            ..Draft::default()
        };
        let verdict = config.apply(
            &mut draft,
            &mut StepScratch::default(),
            &mut Judge::strict(),
        );
        match verdict.break_value() {
            Some(reason) => Err(reason.rule),
            None => Ok(draft.meta.unwrap()),
        }
    }

    #[test]
    fn classes_and_names_decide() {
        let gpl = "SPDX-License-Identifier: GPL-3.0-only\n";
        let keep = r#"{"keep": ["permissive", "none"]}"#;
        assert_eq!(run(keep, gpl, json!({})), Err("license.keep".to_string()));
        let with = r#"{"keep": ["permissive"], "allow": ["GPL-3.0-only"]}"#;
        let want = json!({"license_class": "copyleft", "licenses": ["GPL-3.0-only"]});
        assert_eq!(run(with, gpl, json!({})), Ok(want));
        let want = json!({"license_class": "none", "licenses": []});
        assert_eq!(run(keep, "x", json!({})), Ok(want));
        let deny = r#"{"deny": ["MIT"]}"#;
        assert_eq!(
            run(deny, "SPDX-License-Identifier: MIT", json!({})),
            Err("license.deny".to_string())
        );
        let field = r#"{"keep": ["permissive"], "license_key": "repo.licenses"}"#;
        let meta = |list: Value| json!({"repo": {"licenses": list}});
        assert!(run(field, "x", meta(json!(["MIT", "Apache-2.0"]))).is_ok());
        assert!(run(field, "x", meta(json!(["MIT", "GPL-2.0"]))).is_err());
        assert!(run(field, "x", meta(json!([]))).is_err());
    }

    #[test]
    fn unknown_names_are_refused() {
        let config: License =
            serde_json::from_str(r#"{"allow": ["Mine", "MIT"], "deny": ["MIT"]}"#).unwrap();
        let mut found = Vec::new();
        config.check(&mut |k, f, _| found.push(format!("{k}: {f}")));
        assert_eq!(found, ["allow[0]: \"Mine\"", "deny: \"MIT\""]);
    }
}
