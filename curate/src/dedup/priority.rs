//! Sources, best first.

use super::signature;
use crate::text::narrow;

/// A named source and subset; no subset: any.
struct Name {
    source: u32,
    subset: Option<u32>,
}

/// Lower and upper half.
fn halves(number: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = number.to_le_bytes();
    (
        u32::from_le_bytes([a, b, c, d]),
        u32::from_le_bytes([e, f, g, h]),
    )
}

impl Name {
    fn of(name: &str) -> Name {
        let (source, subset) = match name.split_once('/') {
            Some((source, subset)) => (source, Some(subset)),
            None => (name, None),
        };
        let (low, high) = halves(signature::source(source, subset));
        Name {
            source: low,
            subset: subset.map(|_| high),
        }
    }

    fn is(&self, source: u64) -> bool {
        let (low, high) = halves(source);
        self.source == low && self.subset.is_none_or(|subset| subset == high)
    }
}

/// The sources in the order in which their documents are kept.
pub(super) struct Priority(Vec<Name>);

impl Priority {
    /// Sources as a job names them, the best first.
    pub(super) fn of(sources: &[String]) -> Priority {
        Priority(sources.iter().map(|n| Name::of(n)).collect())
    }

    /// Rank of a source, from 1; last for one that is not named.
    pub(super) fn place(&self, source: u64) -> u32 {
        let found = self.0.iter().position(|name| name.is(source));
        1 + narrow(found.unwrap_or(self.0.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_a_subset_is_every_subset() {
        let books = signature::source("pile", Some("Books3"));
        let plain = signature::source("pile", None);
        assert!(Name::of("pile").is(books) && Name::of("pile").is(plain));
        assert!(Name::of("pile/Books3").is(books) && !Name::of("pile/Books3").is(plain));
        assert!(!Name::of("pile/ArXiv").is(books) && !Name::of("crawl").is(plain));
    }
}
