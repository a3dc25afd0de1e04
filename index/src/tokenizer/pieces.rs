//! Hybrid engine for tokenizers whose pre-tokenization the library cannot run, or runs with newer Unicode tables:
//! our code cuts text into words, the library's model encodes the words.
//!
//! The library (tokenizers 1.0.0-rc.3) reads only the `Split` patterns for which it has native code, no `ByteLevel`
//! before another step and none with a prefix space. Here the library's own steps run in sequence, each over the
//! words of the previous one, with patterns by fancy-regex; `ByteLevel` writes bytes in GPT-2's printable alphabet,
//! which is the input of later steps. Added tokens are found before that, as tokenizers 0.23.3 finds them: those that
//! are not normalised in the text, the others in the normalised text. Source: tokenizers 0.23.3
//! (facts), compared with it in `kinds.rs`.

use super::alphabet::byte_alphabet;
use super::special_tokens::{Added, Part, Search, options};
use super::unicode9;
use rustc_hash::FxHashMap;
use serde_json::Value;
use std::borrow::Cow;
use tokenizers::pipeline::{
    PipelinePreTokenizer, PipelineToken, PipelineTokenizer, PreTokenizer, PreTokenizerScratch,
    normalize_all,
};
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::SplitDelimiterBehavior;
use tokenizers::utils::recognize;

/// GPT-2's pattern, which `ByteLevel` cuts by.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// One pre-tokenization step.
enum Step {
    Cut(PipelinePreTokenizer),
    /// Optionally drops white space; isolates punctuation.
    Punctuation {
        drop_spaces: bool,
        behavior: SplitDelimiterBehavior,
    },
    /// `ByteLevel`: optional prefix space, optional GPT-2 split, then bytes as printable characters.
    Bytes {
        prefix_space: bool,
        words: Option<PipelinePreTokenizer>,
    },
    /// `Metaspace`: blanks become a character, optionally with one prepended, optionally with a cut before each.
    Metaspace {
        replacement: char,
        prepend: Prepend,
        cut: bool,
    },
}

/// Words to which `Metaspace` prepends its character, unless they begin with it. We differ, as the library does: a text
/// whose first characters the normalisers drop still has a first word here, and none in tokenizers 0.23.3.
#[derive(Clone, Copy, PartialEq)]
enum Prepend {
    /// Every word left by earlier steps.
    Always,
    /// The word at the start of the text.
    First,
    Never,
}

/// The hybrid encoder.
pub(super) struct Pieces {
    /// The file without its pre-tokenizer: normalisers and the decoder.
    whole: Box<PipelineTokenizer>,
    /// Its model alone.
    model: Box<PipelineTokenizer>,
    /// The library's tokenizer of the whole file, for texts without characters on which its newer tables differ;
    /// None if it cannot run the pre-tokenizer.
    native: Option<Box<PipelineTokenizer>>,
    steps: Vec<Step>,
    /// Tokens found in the text as it is, and in the normalised text.
    raw: Search,
    normalized: Search,
    alphabet: Vec<char>,
    /// Ids of words of one character that end with the model's suffix, which the library omits for such words.
    suffixed: FxHashMap<char, u32>,
}

/// Members of a `pre_tokenizer`, those of nested sequences among them.
fn members(pre: &Value) -> Vec<&Value> {
    match pre["pretokenizers"].as_array() {
        Some(all) if pre["type"] == "Sequence" => all.iter().flat_map(members).collect(),
        _ => vec![pre],
    }
}

/// Whether the library cannot run the file's pre-tokenizer.
pub(super) fn are_needed(value: &Value) -> bool {
    let pre = &value["pre_tokenizer"];
    let all = members(pre);
    let is_nested = pre["pretokenizers"]
        .as_array()
        .is_some_and(|steps| steps.iter().any(|s| s["type"] == "Sequence"));
    let is_native = |step: &Value| {
        let Some(pattern) = step["pattern"]["Regex"].as_str() else {
            return true;
        };
        let plain = step["behavior"] == "Isolated" && step["invert"] != true;
        let inverted = step["behavior"] == "Removed" && step["invert"] == true;
        recognize(pattern).is_some() && (plain || inverted)
    };
    let patterns: Vec<&str> = all
        .iter()
        .filter_map(|s| s["pattern"]["Regex"].as_str())
        .collect();
    let is_deepseek = matches!(patterns[..], [a, b, c] if tokenizers::utils::is_deepseek(a, b, c));
    let last = all.len() - 1;
    let bytes_cut = all.iter().enumerate().any(|(i, step)| {
        step["type"] == "ByteLevel" && (i < last || step["add_prefix_space"] == true)
    });
    is_nested || bytes_cut || !(is_deepseek || all.iter().all(|s| is_native(s)))
}

impl Pieces {
    /// From a `tokenizer.json`; `read` makes the library's tokenizer of such a text.
    pub(super) fn of(
        value: &Value,
        read: impl Fn(&str) -> Result<Box<PipelineTokenizer>, String>,
    ) -> Result<Pieces, String> {
        let steps = members(&value["pre_tokenizer"])
            .into_iter()
            .map(step)
            .collect::<Result<Vec<_>, _>>()?;
        let mut rest = value.clone();
        rest["pre_tokenizer"] = Value::Null;
        rest["post_processor"] = Value::Null;
        rest["truncation"] = Value::Null;
        rest["padding"] = Value::Null;
        let whole = read(&rest.to_string())?;
        // patterns that the library refuses run here
        let native = match are_needed(value) {
            true => None,
            false => read(&value.to_string()).ok(),
        };
        rest["normalizer"] = Value::Null;
        rest["added_tokens"] = Value::Array(Vec::new());
        let model = read(&rest.to_string())?;
        let (mut raw, mut normalized) = (Vec::new(), Vec::new());
        for token in value["added_tokens"].as_array().into_iter().flatten() {
            let Some((content, added)) = Added::of(token)? else {
                continue;
            };
            match token["normalized"] == true {
                false => raw.push((content, added)),
                true => {
                    let content = normalize(&whole, &content)?.into_owned();
                    normalized.push((content, added));
                }
            }
        }
        Ok(Pieces {
            whole,
            model,
            native,
            steps,
            raw: Search::of(&raw)?,
            normalized: Search::of(&normalized)?,
            alphabet: byte_alphabet(),
            suffixed: suffixed(&value["model"]),
        })
    }

    /// The library's tokenizer of the whole file, if it reads it.
    pub(super) fn into_native(self) -> Option<Box<PipelineTokenizer>> {
        self.native
    }

    /// For decoding.
    pub(super) fn library(&self) -> &PipelineTokenizer {
        &self.whole
    }

    /// Appends the ids of `text`; with `parse` names of special tokens become their ids.
    pub(super) fn encode_into(
        &self,
        text: &str,
        parse: bool,
        out: &mut Vec<u32>,
    ) -> Result<(), String> {
        if let Some(native) = self.native.as_ref().filter(|_| !unicode9::is_in(text)) {
            let mut tokens = Vec::new();
            native
                .encode_into(text, &options(parse), &mut tokens)
                .map_err(|e| e.to_string())?;
            out.extend_from_slice(PipelineToken::cast_slice(&tokens));
            return Ok(());
        }
        let mut scratch = PreTokenizerScratch::default();
        // nothing was found before the part
        let mut is_first = true;
        for part in self.raw.cut(text, parse) {
            match part {
                Part::Token(id) => out.push(id),
                Part::Text(text) => {
                    let text = normalize(&self.whole, text)?;
                    for part in self.normalized.cut(&text, parse) {
                        match part {
                            Part::Token(id) => out.push(id),
                            Part::Text(text) => {
                                self.encode_words(text, is_first, &mut scratch, out)?;
                            }
                        }
                        is_first = false;
                    }
                }
            }
            is_first = false;
        }
        Ok(())
    }

    /// The words of a normalised text, as the file's own steps cut it.
    #[cfg(test)]
    pub(super) fn words_of(&self, text: &str) -> Result<Vec<String>, String> {
        let text = normalize(&self.whole, text)?;
        let words = self.words(&text, true, &mut PreTokenizerScratch::default())?;
        Ok(words.into_iter().map(Cow::into_owned).collect())
    }

    /// The words of a normalised text; `is_first`: of the start of the whole one.
    fn words<'t>(
        &self,
        text: &'t str,
        mut is_first: bool,
        scratch: &mut PreTokenizerScratch,
    ) -> Result<Vec<Cow<'t, str>>, String> {
        let mut words: Vec<Cow<'t, str>> = vec![Cow::Borrowed(text)];
        for step in &self.steps {
            words = match step {
                Step::Cut(by) => cut(&words, by, scratch, &mut is_first)?,
                Step::Punctuation {
                    drop_spaces,
                    behavior,
                } => punctuation(&words, *drop_spaces, *behavior, &mut is_first),
                Step::Metaspace {
                    replacement,
                    prepend,
                    cut,
                } => metaspace(&words, *replacement, (*prepend, is_first), *cut),
                Step::Bytes {
                    prefix_space,
                    words: by,
                } => {
                    if *prefix_space {
                        for word in &mut words {
                            if !word.starts_with(' ') {
                                *word = Cow::Owned(format!(" {word}"));
                            }
                        }
                    }
                    if let Some(by) = by {
                        words = cut(&words, by, scratch, &mut is_first)?;
                    }
                    let printed = |word: &Cow<'_, str>| {
                        let letters = word.bytes().map(|b| self.alphabet[usize::from(b)]);
                        Cow::Owned(letters.collect::<String>())
                    };
                    words.iter().map(printed).collect()
                }
            };
        }
        Ok(words)
    }

    /// Splits a text that has no added tokens and encodes its words.
    fn encode_words(
        &self,
        text: &str,
        is_first: bool,
        scratch: &mut PreTokenizerScratch,
        out: &mut Vec<u32>,
    ) -> Result<(), String> {
        let words = self.words(text, is_first, scratch)?;
        let mut tokens = Vec::new();
        for word in words.iter().filter(|w| !w.is_empty()) {
            let mut letters = word.chars();
            if let (Some(letter), None) = (letters.next(), letters.next())
                && let Some(id) = self.suffixed.get(&letter)
            {
                out.push(*id);
                continue;
            }
            tokens.clear();
            self.model
                .encode_into(word, &options(false), &mut tokens)
                .map_err(|e| e.to_string())?;
            out.extend_from_slice(PipelineToken::cast_slice(&tokens));
        }
        Ok(())
    }
}

/// Ids of characters with the suffix, for a BPE model with `end_of_word_suffix`.
fn suffixed(model: &Value) -> FxHashMap<char, u32> {
    let suffix = model["end_of_word_suffix"].as_str().unwrap_or_default();
    let mut found = FxHashMap::default();
    for (token, id) in model["vocab"].as_object().into_iter().flatten() {
        let mut letters = token.strip_suffix(suffix).unwrap_or_default().chars();
        let (letter, more) = (letters.next(), letters.next());
        let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
        if let (false, Some(letter), None, Some(id)) = (suffix.is_empty(), letter, more, id) {
            found.insert(letter, id);
        }
    }
    found
}

/// Contents of Oniguruma's POSIX bracket classes, which cover Unicode.
const POSIX: [(&str, &str); 9] = [
    ("[:alpha:]", r"\p{L}\p{M}"),
    ("[:alnum:]", r"\p{L}\p{M}\p{Nd}"),
    ("[:digit:]", r"\p{Nd}"),
    ("[:lower:]", r"\p{Ll}"),
    ("[:upper:]", r"\p{Lu}"),
    ("[:space:]", r"\s"),
    ("[:word:]", r"\w"),
    ("[:blank:]", r"\p{Zs}\t"),
    ("[:punct:]", r"\p{P}\$\+<=>\^`\|\~"),
];

/// A pattern of Oniguruma, which tokenizers 0.23 runs, for fancy-regex: `^` and `$` are those of any line, and `{1,3}+` is
/// not possessive but repeats what `{1,3}` repeats.
fn pattern_of(regex: &str) -> String {
    if recognize(regex).is_some() {
        return regex.to_string();
    }
    let posix = POSIX
        .iter()
        .fold(regex.to_string(), |text, (from, to)| text.replace(from, to));
    let mut pattern = String::from("(?m)");
    let mut rest = posix.as_str();
    while let Some(at) = rest.find('{') {
        let (before, braces) = rest.split_at(at);
        pattern.push_str(before);
        let end = braces.find('}').map_or(braces.len(), |i| i + 1);
        let (range, behind) = braces.split_at(end);
        let repeats = match range.trim_matches(['{', '}']).split_once(',') {
            Some(("1", most)) if most.parse::<u32>().is_ok() => Some('+'),
            Some(("0" | "", most)) if most.parse::<u32>().is_ok() => Some('*'),
            _ => None,
        };
        match (repeats, behind.strip_prefix('+')) {
            (Some(sign), Some(behind)) => {
                pattern.push(sign);
                rest = behind;
            }
            _ => {
                pattern.push_str(range);
                rest = behind;
            }
        }
    }
    pattern + rest
}

fn normalize<'t>(tokenizer: &PipelineTokenizer, text: &'t str) -> Result<Cow<'t, str>, String> {
    let all = |text: &'t str| {
        normalize_all(tokenizer.get_normalizers(), text, 0).map_err(|e| e.to_string())
    };
    if !unicode9::is_in(text) {
        return all(text);
    }
    // characters that only the library's newer tables decompose stay unchanged
    let mut done = String::new();
    let mut from = 0;
    for (at, letter) in text
        .char_indices()
        .filter(|(_, c)| unicode9::is_unsettled(*c))
    {
        done.push_str(&all(&text[from..at])?);
        done.push(letter);
        from = at + letter.len_utf8();
    }
    done.push_str(&all(&text[from..])?);
    Ok(Cow::Owned(done))
}

/// Words with blanks replaced, and cut before each of them.
fn metaspace<'t>(
    words: &[Cow<'t, str>],
    replacement: char,
    (prepend, is_first): (Prepend, bool),
    cut: bool,
) -> Vec<Cow<'t, str>> {
    let mut made = Vec::with_capacity(words.len());
    for (at, word) in words.iter().enumerate().filter(|(_, w)| !w.is_empty()) {
        let mut text: String = word
            .chars()
            .map(|c| if c == ' ' { replacement } else { c })
            .collect();
        let is_asked = match prepend {
            Prepend::Always => true,
            Prepend::First => is_first && at == 0,
            Prepend::Never => false,
        };
        if is_asked && !text.starts_with(replacement) {
            text.insert(0, replacement);
        }
        if !cut {
            made.push(Cow::Owned(text));
            continue;
        }
        let mut from = 0;
        let starts = text.match_indices(replacement).map(|(start, _)| start);
        for start in starts.chain([text.len()]) {
            if from < start {
                made.push(Cow::Owned(text[from..start].to_string()));
            }
            from = start;
        }
    }
    made
}

/// Words cut at punctuation. `is_first` stays true if the first word begins where it did.
fn punctuation<'t>(
    words: &[Cow<'t, str>],
    drop_spaces: bool,
    behavior: SplitDelimiterBehavior,
    is_first: &mut bool,
) -> Vec<Cow<'t, str>> {
    let mut cut = Vec::new();
    for (number, word) in words.iter().enumerate() {
        let mut matches = Vec::new();
        let mut from = 0;
        for (at, letter) in word.char_indices() {
            let is_space = drop_spaces && letter.is_whitespace();
            if !is_space && !unicode9::is_punctuation(letter) {
                continue;
            }
            let end = at + letter.len_utf8();
            if from < at {
                matches.push(((from, at), false));
            }
            // dropped white space separates words but is no match
            if !is_space {
                matches.push(((at, end), true));
            }
            from = end;
        }
        if from < word.len() {
            matches.push(((from, word.len()), false));
        }
        let mut spans = Vec::new();
        tokenizers::pipeline::split_matches(&mut spans, matches, behavior);
        if number == 0 {
            *is_first &= spans.first().is_some_and(|span| span.range().start == 0);
        }
        cut.extend(spans.iter().map(|span| match word {
            Cow::Borrowed(text) => Cow::Borrowed(&text[span.range()]),
            Cow::Owned(text) => Cow::Owned(text[span.range()].to_string()),
        }));
    }
    cut
}

/// Applies a step to every word. `is_first` stays true if the first word begins where it did.
fn cut<'t>(
    words: &[Cow<'t, str>],
    by: &PipelinePreTokenizer,
    scratch: &mut PreTokenizerScratch,
    is_first: &mut bool,
) -> Result<Vec<Cow<'t, str>>, String> {
    let (mut spans, mut cut) = (Vec::new(), Vec::with_capacity(words.len()));
    for (number, word) in words.iter().enumerate().filter(|(_, w)| !w.is_empty()) {
        spans.clear();
        by.pre_tokenize(word, scratch, &mut spans)
            .map_err(|e| e.to_string())?;
        if number == 0 {
            *is_first &= spans.first().is_some_and(|span| span.range().start == 0);
        }
        for span in &spans {
            cut.push(match word {
                Cow::Borrowed(text) => Cow::Borrowed(&text[span.range()]),
                Cow::Owned(text) => Cow::Owned(text[span.range()].to_string()),
            });
        }
    }
    Ok(cut)
}

/// One member of the sequence.
fn step(step: &Value) -> Result<Step, String> {
    use tokenizers::pre_tokenizers as steps;
    let wrong = |wanted: &str| {
        let found: String = step.to_string().chars().take(120).collect();
        Err(format!("pre_tokenizer: found {found}, wanted {wanted}"))
    };
    let behavior = |default| match step["behavior"].as_str() {
        None => Ok(default),
        Some("Removed") => Ok(SplitDelimiterBehavior::Removed),
        Some("Isolated") => Ok(SplitDelimiterBehavior::Isolated),
        Some("MergedWithPrevious") => Ok(SplitDelimiterBehavior::MergedWithPrevious),
        Some("MergedWithNext") => Ok(SplitDelimiterBehavior::MergedWithNext),
        Some("Contiguous") => Ok(SplitDelimiterBehavior::Contiguous),
        Some(other) => Err(format!(
            "pre_tokenizer: found behavior {other:?}, wanted Isolated or its like"
        )),
    };
    let split = |pattern: SplitPattern, behavior, invert| {
        let split = Split::new(pattern, behavior, invert).map_err(|e| e.to_string())?;
        split
            .canonicalized_for_pipeline()
            .map(PipelinePreTokenizer::Split)
            .map_err(|e| e.to_string())
    };
    let flag = |key: &str, default: bool| step[key].as_bool().unwrap_or(default);
    Ok(Step::Cut(match step["type"].as_str() {
        None if step.is_null() => PipelinePreTokenizer::None,
        Some("ByteLevel") => {
            let words = match flag("use_regex", true) {
                true => Some(split(
                    SplitPattern::Regex(GPT2.into()),
                    SplitDelimiterBehavior::Isolated,
                    false,
                )?),
                false => None,
            };
            return Ok(Step::Bytes {
                prefix_space: flag("add_prefix_space", true),
                words,
            });
        }
        Some("Split") => {
            let pattern = &step["pattern"];
            let pattern = match (pattern["String"].as_str(), pattern["Regex"].as_str()) {
                (Some(literal), _) => SplitPattern::String(literal.into()),
                (None, Some(regex)) => SplitPattern::Regex(pattern_of(regex)),
                (None, None) => return wrong("a pattern"),
            };
            let behavior = behavior(SplitDelimiterBehavior::Isolated)?;
            split(pattern, behavior, flag("invert", false))?
        }
        Some("Metaspace") => {
            let replacement = step["replacement"].as_str().unwrap_or("\u{2581}");
            let mut letters = replacement.chars();
            let (Some(replacement), None) = (letters.next(), letters.next()) else {
                return wrong("a replacement of one character");
            };
            // the older form's flag takes precedence over the scheme
            let prepend = match (
                step["add_prefix_space"].as_bool(),
                step["prepend_scheme"].as_str(),
            ) {
                (Some(false), _) | (_, Some("never")) => Prepend::Never,
                (_, Some("first")) => Prepend::First,
                (_, Some("always") | None) => Prepend::Always,
                (_, Some(_)) => return wrong("prepend_scheme \"always\", \"first\" or \"never\""),
            };
            return Ok(Step::Metaspace {
                replacement,
                prepend,
                cut: flag("split", true),
            });
        }
        Some("Digits") => PipelinePreTokenizer::Digits(steps::digits::Digits::new(flag(
            "individual_digits",
            false,
        ))),
        Some("Punctuation") => {
            return Ok(Step::Punctuation {
                drop_spaces: false,
                behavior: behavior(SplitDelimiterBehavior::Isolated)?,
            });
        }
        Some("Whitespace") => PipelinePreTokenizer::Whitespace(steps::whitespace::Whitespace),
        Some("WhitespaceSplit") => {
            PipelinePreTokenizer::WhitespaceSplit(steps::whitespace::WhitespaceSplit)
        }
        Some("BertPreTokenizer") => {
            return Ok(Step::Punctuation {
                drop_spaces: true,
                behavior: SplitDelimiterBehavior::Isolated,
            });
        }
        Some("UnicodeScripts") => {
            PipelinePreTokenizer::UnicodeScripts(steps::unicode_scripts::UnicodeScripts::new())
        }
        Some("CharDelimiterSplit") => {
            let delimiter = step["delimiter"].as_str().and_then(|d| d.chars().next());
            let Some(delimiter) = delimiter else {
                return wrong("a delimiter");
            };
            PipelinePreTokenizer::Delimiter(steps::delimiter::CharDelimiterSplit::new(delimiter))
        }
        Some("FixedLength") => {
            let length = step["length"]
                .as_u64()
                .and_then(|n| usize::try_from(n).ok());
            let Some(length) = length.filter(|n| *n > 0) else {
                return wrong("a length");
            };
            PipelinePreTokenizer::FixedLength(steps::fixed_length::FixedLength::new(length))
        }
        _ => return wrong("a step that cuts text"),
    }))
}

#[cfg(test)]
mod tests {
    use super::pattern_of;

    #[test]
    fn patterns_of_oniguruma_mean_the_same_to_fancy_regex() {
        for (theirs, ours) in [
            (r"\p{N}{1,3}+|\s++$", r"(?m)\p{N}+|\s++$"),
            (r"a{0,2}+b{,4}+c{2,3}+", r"(?m)a*b*c{2,3}+"),
            (r"x{1,3}|[[:alpha:]]{2}", r"(?m)x{1,3}|[\p{L}\p{M}]{2}"),
            (super::GPT2, super::GPT2),
        ] {
            assert_eq!(pattern_of(theirs), ours);
        }
    }
}
