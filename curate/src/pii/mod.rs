//! PII step: finds personal data and secrets in text, and replaces or tags them or drops the document.
//!
//! Every kind has a rule that validates its matches: addresses must be global, cards must pass Luhn's sum, IBANs
//! theirs. E-mail and IPv4 are datatrove 0.10.1's rules (`PIIFormatter`), spans equal to its own. We differ in the
//! replacements: each is chosen by the hash of the replaced text, so that neither order nor sharding changes it,
//! where datatrove cycles through a list from document to document. Replacements are names and numbers reserved for
//! examples: RFC 2606 (example.com), RFC 5737 and RFC 3849 (addresses), 555-01xx (telephones); kinds without such
//! numbers become tags.

mod boundary;
mod email;
mod ip;
mod numbers;
mod secret;

use std::ops::Range;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::check::Problem;
use crate::contract::{Draft, Filter, Opening, StepConfig, StepScratch};
use crate::error::Result;
use crate::verdict::{Judge, KEEP, Verdict, at_most};

/// Kind of personal data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PiiKind {
    /// Keys of services, private keys, tokens, and values assigned to names such as `password`.
    Secret,
    /// E-mail addresses.
    Email,
    /// IPv4 and IPv6 addresses.
    Ip,
    /// International bank account numbers (ISO 13616).
    Iban,
    /// Payment cards (ISO/IEC 7812).
    CreditCard,
    /// Telephone numbers: international, and North American with separators.
    Phone,
}

/// In order of precedence: text matched by one kind is skipped by the next.
const KINDS: [PiiKind; 6] = [
    PiiKind::Secret,
    PiiKind::Email,
    PiiKind::Ip,
    PiiKind::Iban,
    PiiKind::CreditCard,
    PiiKind::Phone,
];

/// Action on matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PiiAction {
    /// A replacement of the same kind that belongs to nobody.
    #[default]
    Replace,
    /// The kind in angle brackets: `<EMAIL>`.
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
    /// With `drop`: matches that a document may have.
    pub max_matches: u64,
}

impl Default for PiiConfig {
    fn default() -> Self {
        PiiConfig {
            kinds: vec![PiiKind::Email, PiiKind::Ip],
            action: PiiAction::Replace,
            only_public_ips: true,
            max_matches: 0,
        }
    }
}

impl PiiConfig {
    /// Every match in `text`, in order, none overlapping another.
    pub fn find(&self, text: &str) -> Vec<(PiiKind, Range<usize>)> {
        let mut found: Vec<(PiiKind, Range<usize>)> = Vec::new();
        for kind in KINDS.into_iter().filter(|k| self.kinds.contains(k)) {
            let mut spans = Vec::new();
            let mut from = 0;
            for (_, taken) in &found {
                self.kind_in(kind, text, from..taken.start, &mut spans);
                from = taken.end;
            }
            self.kind_in(kind, text, from..text.len(), &mut spans);
            if !spans.is_empty() {
                found.extend(spans.into_iter().map(|span| (kind, span)));
                found.sort_by_key(|(_, span)| span.start);
            }
        }
        found
    }

    fn kind_in(&self, kind: PiiKind, text: &str, range: Range<usize>, out: &mut Vec<Range<usize>>) {
        match kind {
            PiiKind::Secret => secret::find(text, range, out),
            PiiKind::Email => email::find(text, range, out),
            PiiKind::Ip => ip::find(text, range, self.only_public_ips, out),
            PiiKind::Iban => numbers::ibans(text, range, out),
            PiiKind::CreditCard => numbers::cards(text, range, out),
            PiiKind::Phone => numbers::phones(text, range, out),
        }
    }

    /// Judges a text, or writes it to `out` with its matches replaced. Matches are counted by rule, `pii.email`.
    ///
    /// Returns whether `out` holds a new text.
    pub fn apply_to(
        &self,
        text: &str,
        out: &mut String,
        count: &mut dyn FnMut(&'static str),
    ) -> std::ops::ControlFlow<crate::verdict::Reason, bool> {
        let found = self.find(text);
        found.iter().for_each(|(kind, _)| count(kind.rule()));
        if self.action == PiiAction::Drop {
            self.judge(&found)?;
            return std::ops::ControlFlow::Continue(false);
        }
        if found.is_empty() {
            return std::ops::ControlFlow::Continue(false);
        }
        out.clear();
        let mut from = 0;
        for (kind, span) in &found {
            out.push_str(&text[from..span.start]);
            match self.action {
                PiiAction::Tag => out.push_str(kind.tag()),
                _ => kind.replace(&text[span.clone()], out),
            }
            from = span.end;
        }
        out.push_str(&text[from..]);
        std::ops::ControlFlow::Continue(true)
    }

    fn judge(&self, found: &[(PiiKind, Range<usize>)]) -> Verdict {
        let Some((kind, _)) = found.first() else {
            return KEEP;
        };
        // the rule is that of the first match, which shows the kind of document
        at_most(kind.rule(), found.len() as f64, self.max_matches as f64)
    }
}

/// Two of RFC 5737's three documentation networks.
const NETWORKS: [&str; 2] = ["192.0.2", "203.0.113"];

impl PiiKind {
    /// Name of its counter and of the rule that drops.
    pub fn rule(self) -> &'static str {
        match self {
            PiiKind::Secret => "pii.secret",
            PiiKind::Email => "pii.email",
            PiiKind::Ip => "pii.ip",
            PiiKind::Iban => "pii.iban",
            PiiKind::CreditCard => "pii.credit_card",
            PiiKind::Phone => "pii.phone",
        }
    }

    /// Replacement with `action = "tag"`.
    pub fn tag(self) -> &'static str {
        match self {
            PiiKind::Secret => "<SECRET>",
            PiiKind::Email => "<EMAIL>",
            PiiKind::Ip => "<IP_ADDRESS>",
            PiiKind::Iban => "<IBAN>",
            PiiKind::CreditCard => "<CREDIT_CARD>",
            PiiKind::Phone => "<PHONE>",
        }
    }

    /// Appends the replacement for `found`: always the same for the same text.
    fn replace(self, found: &str, out: &mut String) {
        use std::fmt::Write;
        let hash = xxh3_64(found.as_bytes());
        // writing to a string cannot fail
        let _ = match self {
            PiiKind::Email => match hash % 3 {
                0 => write!(out, "email@example.com"),
                1 => write!(out, "firstname.lastname@example.org"),
                _ => write!(out, "name@example.net"),
            },
            PiiKind::Ip if found.contains(':') => write!(out, "2001:db8::{:x}", 1 + hash % 0xfffe),
            PiiKind::Ip => {
                let network = NETWORKS[usize::from(hash & 1 == 1)];
                write!(out, "{network}.{}", 1 + (hash >> 1) % 254)
            }
            PiiKind::Phone if found.starts_with('+') => {
                write!(out, "+1 555-555-01{:02}", hash % 100)
            }
            PiiKind::Phone => write!(out, "555-555-01{:02}", hash % 100),
            PiiKind::Secret | PiiKind::Iban | PiiKind::CreditCard => write!(out, "{}", self.tag()),
        };
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
        let is_changed = self.apply_to(&draft.text, &mut scratch.rewritten, &mut |rule| {
            found.push(rule.to_string());
        })?;
        if is_changed {
            draft.text.clone_from(&scratch.rewritten);
        }
        KEEP
    }
}

#[cfg(test)]
mod tests;
