//! PII step: finds personal data and secrets in text, and replaces or tags them or drops the document.
//!
//! Every kind has a rule that validates its matches: addresses must be global, cards must pass Luhn's sum, IBANs theirs,
//! national identity numbers those of their countries, telephone numbers their numbering plan. E-mail and IPv4 are datatrove
//! 0.10.1's rules (`PIIFormatter`), spans equal to its own with `standalone_ips = false`. We differ in the
//! replacements: each is chosen by the hash of the replaced text, so that neither order nor sharding changes it,
//! where datatrove cycles through a list from document to document. Replacements are names and numbers reserved for
//! examples: RFC 2606 (example.com), RFC 5737 and RFC 3849 (addresses), 555-01xx (telephones); kinds without such
//! numbers become tags.

mod boundary;
mod email;
mod ip;
mod kind;
mod luhn;
mod names;
mod national;
mod numbers;
mod phone;
mod secret;

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::check::Problem;
use crate::contract::{Draft, Filter, Opening, StepConfig, StepScratch};
use crate::error::Result;
use crate::verdict::{Judge, KEEP, Verdict, at_most};
use kind::KINDS;

pub use kind::{Found, PiiKind};
pub use names::{NameExamples, NameTraining, NamedSpan};

/// Action on matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PiiAction {
    /// A replacement of the same kind that belongs to nobody.
    #[default]
    Replace,
    /// The kind in angle brackets: `<EMAIL>`; of identity numbers the number's name, `<US_SSN>`.
    Tag,
    /// The document is dropped if it has more than `max_matches`.
    Drop,
}

/// The step's settings.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct PiiConfig {
    /// Kinds to look for. Default: datatrove's, e-mail and addresses.
    pub kinds: Vec<PiiKind>,
    /// Action on matches.
    pub action: PiiAction,
    /// Leave addresses alone that are not global: private, loopback, documentation.
    pub only_public_ips: bool,
    /// Leave numbers of four parts alone that are part of a longer one, such as an OID, or a version. `false`: datatrove's rule.
    pub standalone_ips: bool,
    /// Regions whose national telephone numbers are found, ISO 3166 codes, the preferred one first. Empty: those of the
    /// document's language, if a language step ran before (`de`: DE, AT, CH; `en`: US, GB, AU); else `US`.
    pub phone_regions: Vec<String>,
    /// Countries whose identity numbers are found, ISO 3166 codes. Empty: all.
    pub id_countries: Vec<String>,
    /// With `drop`: matches that a document may have.
    pub max_matches: u64,
}

impl Default for PiiConfig {
    fn default() -> Self {
        PiiConfig {
            kinds: vec![PiiKind::Email, PiiKind::Ip],
            action: PiiAction::Replace,
            only_public_ips: true,
            standalone_ips: true,
            phone_regions: Vec::new(),
            id_countries: Vec::new(),
            max_matches: 0,
        }
    }
}

/// Properties of a whole text that its parts are searched with.
struct Prepared {
    regions: phone::Regions,
    names: names::Names,
}

impl PiiConfig {
    /// Every match in a text of the language, in order, none overlapping another. The language is a code of ISO 639, or
    /// empty if it is not known.
    pub fn find(&self, text: &str, language: &str) -> Vec<Found> {
        let mut found: Vec<Found> = Vec::new();
        let prepared = Prepared {
            regions: self.regions(language),
            names: self.names(text, language),
        };
        for kind in KINDS.into_iter().filter(|k| self.kinds.contains(k)) {
            let mut new = Vec::new();
            let mut from = 0;
            for taken in &found {
                self.kind_in(kind, text, from..taken.span.start, &prepared, &mut new);
                from = taken.span.end;
            }
            self.kind_in(kind, text, from..text.len(), &prepared, &mut new);
            if !new.is_empty() {
                found.append(&mut new);
                found.sort_by_key(|f| f.span.start);
            }
        }
        found
    }

    /// Regions whose national telephone numbers are found in a text of the language.
    fn regions(&self, language: &str) -> phone::Regions {
        match self.phone_regions.as_slice() {
            _ if !self.kinds.contains(&PiiKind::Phone) => phone::Regions::default(),
            [] => phone::of_language(language),
            regions => phone::Regions::new(regions.iter().map(String::as_str)),
        }
    }

    /// Names and addresses, if they are wanted: one look at the text finds both.
    fn names(&self, text: &str, language: &str) -> names::Names {
        let is_wanted = self.kinds.contains(&PiiKind::PersonName)
            || self.kinds.contains(&PiiKind::StreetAddress);
        if is_wanted && names::reads(language) {
            return names::find(text);
        }
        names::Names::default()
    }

    fn kind_in(
        &self,
        kind: PiiKind,
        text: &str,
        range: Range<usize>,
        prepared: &Prepared,
        out: &mut Vec<Found>,
    ) {
        let mut spans = Vec::new();
        match kind {
            PiiKind::Secret => secret::find(text, range, &mut spans),
            PiiKind::Email => email::find(text, range, &mut spans),
            PiiKind::Ip => {
                let wanted = ip::Wanted {
                    public: self.only_public_ips,
                    standalone: self.standalone_ips,
                };
                ip::find(text, range, wanted, &mut spans);
            }
            PiiKind::Iban => numbers::ibans(text, range, &mut spans),
            PiiKind::CreditCard => numbers::cards(text, range, &mut spans),
            PiiKind::NationalId => return national::find(text, range, &self.id_countries, out),
            PiiKind::Phone => phone::find(text, range, &prepared.regions, &mut spans),
            PiiKind::PersonName => names::within(&prepared.names.persons, &range, &mut spans),
            PiiKind::StreetAddress => names::within(&prepared.names.addresses, &range, &mut spans),
        }
        out.extend(spans.into_iter().map(|span| Found {
            kind,
            rule: kind.rule(),
            tag: kind.tag(),
            span,
        }));
    }

    /// Judges a text of the language, or writes it to `out` with its matches replaced. Matches are counted by rule, `pii.email`.
    ///
    /// Returns whether `out` holds a new text.
    pub fn apply_to(
        &self,
        text: &str,
        language: &str,
        out: &mut String,
        count: &mut dyn FnMut(&'static str),
    ) -> std::ops::ControlFlow<crate::verdict::Reason, bool> {
        let found = self.find(text, language);
        found.iter().for_each(|f| count(f.rule));
        if self.action == PiiAction::Drop {
            self.judge(&found)?;
            return std::ops::ControlFlow::Continue(false);
        }
        if found.is_empty() {
            return std::ops::ControlFlow::Continue(false);
        }
        out.clear();
        let mut from = 0;
        for Found {
            kind, tag, span, ..
        } in &found
        {
            out.push_str(&text[from..span.start]);
            match self.action {
                PiiAction::Replace => kind.replace(&text[span.clone()], tag, out),
                PiiAction::Tag | PiiAction::Drop => out.push_str(tag),
            }
            from = span.end;
        }
        out.push_str(&text[from..]);
        std::ops::ControlFlow::Continue(true)
    }

    fn judge(&self, found: &[Found]) -> Verdict {
        let Some(first) = found.first() else {
            return KEEP;
        };
        // the rule is that of the first match, which shows the kind of document
        at_most(first.rule, found.len() as f64, self.max_matches as f64)
    }
}

impl StepConfig for PiiConfig {
    fn name(&self) -> &'static str {
        "pii"
    }

    fn check(&self, problem: Problem<'_>) {
        if self.kinds.is_empty() {
            problem("kinds", "[]".to_string(), "at least one kind");
        }
        for region in self.phone_regions.iter().filter(|r| !phone::is_region(r)) {
            problem(
                "phone_regions",
                region.clone(),
                "ISO 3166 codes of regions, such as \"US\"",
            );
        }
        for country in self
            .id_countries
            .iter()
            .filter(|c| !national::has_country(c))
        {
            problem(
                "id_countries",
                country.clone(),
                &format!("some of {}", national::countries()),
            );
        }
        if self.max_matches > 0 && self.action != PiiAction::Drop {
            problem(
                "max_matches",
                self.max_matches.to_string(),
                "0 unless action is \"drop\"",
            );
        }
    }

    fn open(&self, _: &Opening<'_>) -> Result<Box<dyn Filter>> {
        Ok(Box::new(self.clone()))
    }
}

impl Filter for PiiConfig {
    fn apply(&self, draft: &mut Draft, scratch: &mut StepScratch, _judge: &mut Judge) -> Verdict {
        let found = &mut draft.personal;
        let is_changed = self.apply_to(
            &draft.text,
            &draft.language,
            &mut scratch.rewritten,
            &mut |rule| {
                found.push(rule.to_string());
            },
        )?;
        if is_changed {
            draft.text.clone_from(&scratch.rewritten);
        }
        KEEP
    }
}

#[cfg(test)]
mod tests;
