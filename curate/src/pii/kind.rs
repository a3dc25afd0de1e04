//! Kinds of personal data: their names, tags and replacements.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

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
    /// Identity, tax and insurance numbers of persons in the USA, the United Kingdom, the European Union, Norway and
    /// Switzerland. Numbers whose form is not their own need one of their words near them. Each has its counter, such as
    /// `pii.national_id.us_ssn`.
    NationalId,
    /// Telephone numbers as libphonenumber finds them (leniency VALID): international, and national ones of `phone_regions`.
    Phone,
    /// Names of persons in English text, as a small tagger that is part of the program finds them. It misses some and takes others
    /// for names: `curate/docs/pii.md` tells how many.
    PersonName,
    /// Street addresses and post office boxes in English text, with the town and post code behind them, found by the same tagger.
    StreetAddress,
}

/// In order of precedence: text matched by one kind is skipped by the next.
pub(super) const KINDS: [PiiKind; 9] = [
    PiiKind::Secret,
    PiiKind::Email,
    PiiKind::Ip,
    PiiKind::Iban,
    PiiKind::CreditCard,
    PiiKind::NationalId,
    PiiKind::Phone,
    PiiKind::StreetAddress,
    PiiKind::PersonName,
];

/// A piece of personal data in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its kind.
    pub kind: PiiKind,
    /// Name of its counter and of the rule that drops: that of the kind, `pii.email`, or of the identity number.
    pub rule: &'static str,
    /// Replacement with `action = "tag"`.
    pub tag: &'static str,
    /// Bytes of the text.
    pub span: Range<usize>,
}

/// Two of RFC 5737's three documentation networks.
const NETWORKS: [&str; 2] = ["192.0.2", "203.0.113"];

impl PiiKind {
    /// Name of its counter and of the rule that drops. Identity numbers have names behind it.
    pub fn rule(self) -> &'static str {
        match self {
            PiiKind::Secret => "pii.secret",
            PiiKind::Email => "pii.email",
            PiiKind::Ip => "pii.ip",
            PiiKind::Iban => "pii.iban",
            PiiKind::CreditCard => "pii.credit_card",
            PiiKind::NationalId => "pii.national_id",
            PiiKind::Phone => "pii.phone",
            PiiKind::PersonName => "pii.person_name",
            PiiKind::StreetAddress => "pii.street_address",
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
            PiiKind::NationalId => "<NATIONAL_ID>",
            PiiKind::Phone => "<PHONE>",
            PiiKind::PersonName => "<PERSON>",
            PiiKind::StreetAddress => "<STREET_ADDRESS>",
        }
    }

    /// Appends the replacement for `found`: always the same for the same text.
    pub(super) fn replace(self, found: &str, tag: &str, out: &mut String) {
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
            PiiKind::Secret
            | PiiKind::Iban
            | PiiKind::CreditCard
            | PiiKind::NationalId
            | PiiKind::PersonName
            | PiiKind::StreetAddress => write!(out, "{tag}"),
        };
    }
}
