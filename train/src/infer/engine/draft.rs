//! Guesses for the next tokens of answers in progress (speculative decoding): from a smaller model, or from the text
//! itself. A guess is checked by the batch that computes it, and counts only if it is the token chosen there.

use crate::error::Result;
use crate::infer::engine::rank::RankEngine;
use crate::infer::engine::request::{Event, Request};
use crate::infer::options::GenerateOptions;

/// Longest run of last tokens that is looked up, and the shortest.
const RUNS: [usize; 2] = [4, 2];

impl RankEngine {
    /// Gives guesses to every answer in progress.
    pub(super) fn propose(&mut self) -> Result<()> {
        let most = self.limits.draft_tokens;
        if most == 0 || self.is_encoder_decoder() {
            return Ok(());
        }
        let limit = self.max_length();
        let mut wanted = Vec::new();
        for (number, sequence) in self.running.iter_mut().enumerate() {
            sequence.drafts.clear();
            let (seen, left) = (sequence.text().len(), sequence.left());
            let room = most
                .min(left.saturating_sub(1))
                .min(limit - seen.min(limit));
            if sequence.missing() == 1 && sequence.is_past_prompt && room > 0 {
                wanted.push((number, room));
            }
        }
        let Some(draft) = &mut self.draft else {
            for (number, room) in wanted {
                let sequence = &mut self.running[number];
                sequence.drafts = lookup(sequence.text(), room).to_vec();
            }
            return Ok(());
        };
        let mut asked = Vec::new();
        for (number, room) in wanted {
            let seen = self.running[number].text();
            let options = GenerateOptions::greedy(room);
            let prompt = seen.to_vec();
            // a text that the smaller model cannot take is not guessed
            let request = Request {
                prompt,
                options,
                beginning: Vec::new(),
                slides: false,
                adapter: None,
            };
            if let Ok(id) = draft.submit(request) {
                asked.push((id, number));
            }
        }
        while !draft.is_idle() {
            for event in draft.step()? {
                let Event::Token { id, token, .. } = event else {
                    continue;
                };
                if let Some((_, number)) = asked.iter().find(|(asked, _)| *asked == id) {
                    self.running[*number].drafts.push(token);
                }
            }
        }
        Ok(())
    }
}

/// The tokens that followed the last occurrence of the text's last tokens, at most `room`.
fn lookup(text: &[u32], room: usize) -> &[u32] {
    let [longest, shortest] = RUNS;
    for run in (shortest..=longest.min(text.len().saturating_sub(1))).rev() {
        let (before, last) = (&text[..text.len() - 1], &text[text.len() - run..]);
        if let Some(at) = before.windows(run).rposition(|window| window == last) {
            let next = &text[at + run..];
            return &next[..next.len().min(room)];
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookup_continues_the_newest_longest_match() {
        let text = [1, 2, 3, 9, 1, 2, 4, 8, 1, 2];
        assert_eq!(lookup(&text, 2), [4, 8]);
        assert_eq!(lookup(&text, 9), [4, 8, 1, 2]);
        let text = [5, 1, 2, 7, 7, 6, 1, 2, 3, 5, 1, 2];
        assert_eq!(
            lookup(&text, 2),
            [7, 7],
            "three equal tokens beat two newer ones"
        );
        assert_eq!(lookup(&[1, 2, 3], 4), [0u32; 0]);
        assert_eq!(lookup(&[], 4), [0u32; 0]);
    }
}
