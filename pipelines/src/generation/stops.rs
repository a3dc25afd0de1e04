//! Stop strings: a text ends where the first of them begins.

/// Watches a text that arrives in pieces for stop strings. The end of a piece that may begin one is held back.
pub(crate) struct Stops {
    stops: Vec<String>,
    /// Whether the stop string stays in the text.
    includes: bool,
    held: String,
}

/// A piece of text that no stop string can change any more.
#[derive(Debug, PartialEq)]
pub(crate) struct Passed {
    pub(crate) text: String,
    /// The stop string that ended the text; nothing follows.
    pub(crate) stop: Option<String>,
}

impl Stops {
    /// Empty strings in `stops` are never found.
    pub(crate) fn new(stops: &[String], includes: bool) -> Stops {
        let stops = stops.iter().filter(|stop| !stop.is_empty());
        Stops {
            stops: stops.cloned().collect(),
            includes,
            held: String::new(),
        }
    }

    /// Adds a piece. The stop string that begins first wins, among those the first of the list.
    pub(crate) fn push(&mut self, piece: &str) -> Passed {
        self.held.push_str(piece);
        let found = self.stops.iter().filter_map(|stop| {
            let at = self.held.find(stop)?;
            Some((at, stop))
        });
        if let Some((at, stop)) = found.min_by_key(|(at, _)| *at) {
            let end = if self.includes { at + stop.len() } else { at };
            let stop = stop.clone();
            self.held.truncate(end);
            return Passed {
                text: std::mem::take(&mut self.held),
                stop: Some(stop),
            };
        }
        let keep = self.beginning();
        let rest = self.held.split_off(self.held.len() - keep);
        Passed {
            text: std::mem::replace(&mut self.held, rest),
            stop: None,
        }
    }

    /// The text held back, when nothing follows.
    pub(crate) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Bytes at the end of the text that may begin a stop string.
    fn beginning(&self) -> usize {
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        let from = self.held.len().saturating_sub(longest.saturating_sub(1));
        let starts = (from..self.held.len()).filter(|&at| self.held.is_char_boundary(at));
        let begins = |&at: &usize| {
            let end = &self.held[at..];
            self.stops.iter().any(|stop| stop.starts_with(end))
        };
        starts
            .into_iter()
            .find(begins)
            .map_or(0, |at| self.held.len() - at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stops(list: &[&str], includes: bool) -> Stops {
        let list: Vec<String> = list.iter().map(ToString::to_string).collect();
        Stops::new(&list, includes)
    }

    #[test]
    fn a_stop_string_over_several_pieces_ends_the_text_before_it() {
        let mut watched = stops(&["\n\n", "END"], false);
        assert_eq!(watched.push("one\n").text, "one");
        assert_eq!(watched.push("two E").text, "\ntwo ");
        let passed = watched.push("ND of");
        assert_eq!(passed.text, "");
        assert_eq!(passed.stop.as_deref(), Some("END"));
        assert_eq!(stops(&["b"], true).push("abc").text, "ab");
        assert_eq!(stops(&[""], false).push("abc").text, "abc");
    }

    proptest! {
        /// However a text is cut, the text before the first stop string comes out.
        #[test]
        fn pieces_change_nothing(text in "[abé]{0,24}", stop in "[abé]{1,3}", size in 1_usize..5) {
            let mut watched = stops(&[&stop], false);
            let mut found = String::new();
            let mut ended = false;
            let letters: Vec<char> = text.chars().collect();
            for piece in letters.chunks(size) {
                let passed = watched.push(&piece.iter().collect::<String>());
                found.push_str(&passed.text);
                if passed.stop.is_some() {
                    ended = true;
                    break;
                }
            }
            if !ended {
                found.push_str(&watched.finish());
            }
            let wanted = text.find(&stop).map_or(text.as_str(), |at| &text[..at]);
            prop_assert_eq!(found, wanted);
            prop_assert_eq!(ended, text.contains(&stop));
        }
    }
}
