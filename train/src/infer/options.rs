//! Options of generation.

use crate::error::{Error, Result};

/// Sampling options and limits for the continuation of a prompt.
///
/// They apply in this order: `logit_bias`, `never_after` and `min_tokens` change logits, then the penalties, then the
/// temperature; `top_k`, `top_p` and `min_p` then cut the tail.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateOptions {
    /// Maximum number of tokens to add.
    pub max_tokens: usize,
    /// Divides the logits; 0: always the likeliest token, the lowest id among equals.
    pub temperature: f64,
    /// Choose among the `top_k` likeliest; 0: all.
    pub top_k: usize,
    /// Choose among the likeliest whose probabilities add up to this; 1: all.
    pub top_p: f64,
    /// Factor of `top_p` after each token (Megatron-LM's `top_p_decay`; Lee et al. 2022, arXiv:2206.04624); 0: none.
    pub top_p_decay: f64,
    /// `top_p` does not decay below this.
    pub top_p_bound: f64,
    /// Drops tokens whose probability is below this share of the likeliest one's (Nguyen et al. 2024,
    /// arXiv:2407.01082); 0: none.
    pub min_p: f64,
    /// Divides positive and multiplies negative logits of tokens that the prompt or the answer has (Keskar et al. 2019,
    /// arXiv:1909.05858); 1: none.
    pub repetition_penalty: f64,
    /// Subtracted from the logits of tokens that the answer has.
    pub presence_penalty: f64,
    /// Subtracted from the logit of a token for each time that the answer has it.
    pub frequency_penalty: f64,
    /// Added to the logits of these tokens.
    pub logit_bias: Vec<(u32, f64)>,
    /// Pairs of tokens of which the second never follows the first.
    pub never_after: Vec<[u32; 2]>,
    /// The same seed gives the same tokens.
    pub seed: u64,
    /// Sequences of tokens after any of which to stop, included in the result.
    pub stop: Vec<Vec<u32>>,
    /// Tokens before which no single-token stop is chosen.
    pub min_tokens: usize,
    /// Reports each new token's log-probability, and those of this many likeliest tokens.
    pub logprobs: Option<usize>,
    /// The same for the tokens of the prompt.
    pub prompt_logprobs: Option<usize>,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        GenerateOptions {
            max_tokens: 100,
            temperature: 0.8,
            top_k: 0,
            top_p: 0.95,
            top_p_decay: 0.0,
            top_p_bound: 0.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            never_after: Vec::new(),
            seed: 0,
            stop: Vec::new(),
            min_tokens: 0,
            logprobs: None,
            prompt_logprobs: None,
        }
    }
}

impl GenerateOptions {
    /// The likeliest tokens, `max_tokens` at most.
    pub fn greedy(max_tokens: usize) -> GenerateOptions {
        GenerateOptions {
            max_tokens,
            temperature: 0.0,
            top_p: 1.0,
            ..GenerateOptions::default()
        }
    }

    /// Refuses values out of range. # Errors `Request` with the option, its value and the range.
    pub fn check(&self) -> Result<()> {
        let from_zero = "a finite number, 0 or more";
        let finite = "a finite number";
        let up_to_one = "0 to 1";
        let rules = [
            (
                "temperature",
                self.temperature,
                self.temperature >= 0.0,
                from_zero,
            ),
            (
                "top_p",
                self.top_p,
                self.top_p > 0.0 && self.top_p <= 1.0,
                "above 0, at most 1",
            ),
            (
                "top_p_decay",
                self.top_p_decay,
                is_share(self.top_p_decay),
                up_to_one,
            ),
            (
                "top_p_bound",
                self.top_p_bound,
                is_share(self.top_p_bound),
                up_to_one,
            ),
            ("min_p", self.min_p, is_share(self.min_p), up_to_one),
            (
                "repetition_penalty",
                self.repetition_penalty,
                self.repetition_penalty > 0.0,
                "a finite number above 0",
            ),
            ("presence_penalty", self.presence_penalty, true, finite),
            ("frequency_penalty", self.frequency_penalty, true, finite),
        ];
        let biases = self.logit_bias.iter();
        let biases = biases.map(|&(_, bias)| ("logit_bias", bias, true, finite));
        for (what, found, is_in_range, wanted) in rules.into_iter().chain(biases) {
            if !(found.is_finite() && is_in_range) {
                return Err(Error::Request {
                    what,
                    found: found.to_string(),
                    wanted: wanted.to_owned(),
                });
            }
        }
        Ok(())
    }

    /// `top_p` for the token after `index` others.
    pub(crate) fn top_p_after(&self, index: u64) -> f64 {
        if self.top_p_decay == 0.0 {
            return self.top_p;
        }
        // token by token, as a running product
        let decayed = (0..index).fold(self.top_p, |p, _| {
            (p * self.top_p_decay).max(self.top_p_bound)
        });
        decayed.max(f64::MIN_POSITIVE)
    }
}

fn is_share(x: f64) -> bool {
    (0.0..=1.0).contains(&x)
}
