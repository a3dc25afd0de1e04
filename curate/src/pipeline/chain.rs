//! The chain of one record: extraction, steps and signatures.

use std::collections::BTreeMap;
use std::io::Write;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::classifier::{Logits, Models};
use crate::clock::{Clock, Spent};
use crate::contract::{Draft, Sought, StepScratch};
use crate::decontaminate::{Decontaminator, TaskHits};
use crate::dedup::{MinhashScratch, Minhasher, Signature, source, words_digest};
use crate::document::CleanDocument;
use crate::error::Result as Outside;
use crate::extract::{
    ExtractConfig, PageMeta, PageSource, extract_page, render_whole, robots_directives,
};
use crate::pipeline::CurateConfig;
use crate::pipeline::report::{Sample, ShownText, sample_hash};
use crate::read::{
    Batch, Composed, Content, Fields, Format, Html, Input, JsonScratch, Provenance, Raw, ReadRule,
    Shard, Unread, parse_page, read_fields,
};
use crate::statistics::{TextMetrics, measure};
use crate::steps::{Passage, Step, Steps};
use crate::text::languages::WordLanguage;
use crate::text::repair::Repairs;
use crate::text::words::WordRules;
use crate::text::{address, chars, excerpt, json, plain};
use crate::verdict::{Metric, Reason, Verdict, empty};

/// The steps every record goes through.
pub(crate) struct Chain {
    extract: ExtractConfig,
    steps: Steps,
    decontaminator: Option<Decontaminator>,
    minhasher: Option<Minhasher>,
    /// Exact duplicates have the same words, not the same bytes.
    is_normalized: bool,
    max_record_bytes: u64,
    /// Whose words statistics count, if there are any.
    statistics: Option<WordLanguage>,
    /// Documents whose id has a hash of at least this are not taken.
    sample: Option<u64>,
}

/// Buffers of one thread.
#[derive(Default)]
pub(crate) struct WorkScratch {
    steps: StepScratch,
    minhash: MinhashScratch,
    json: JsonScratch,
}

/// Result for a record.
#[derive(Serialize, Deserialize)]
pub(crate) enum Outcome {
    Kept(Box<Kept>),
    Dropped(Box<Dropped>),
    Bad(String),
    /// Outside of the sample.
    Unsampled,
}

/// A kept document, ready to be written.
#[derive(Serialize, Deserialize)]
pub(crate) struct Kept {
    /// JSON line with its line feed. The journal has the lines of a batch apart.
    #[serde(skip)]
    pub(crate) line: Vec<u8>,
    pub(crate) signature: Signature,
    pub(crate) text_bytes: u64,
    pub(crate) language: String,
    pub(crate) repairs: Repairs,
    pub(crate) personal: Vec<String>,
    /// Paragraphs that extraction left out as copies of the text.
    pub(crate) copies: u32,
    /// Headers, footers and page numbers that the reader left out.
    #[serde(default)]
    pub(crate) running_lines: u32,
    #[serde(default)]
    pub(crate) of_input: Sought,
    #[serde(default)]
    pub(crate) of_steps: Sought,
    pub(crate) metrics: Vec<Metric>,
    pub(crate) url: Option<String>,
    #[serde(with = "crate::statistics::boxed")]
    pub(crate) text_metrics: Option<Box<TextMetrics>>,
    pub(crate) host: Option<String>,
    /// Source, with the subset after a slash.
    pub(crate) source: String,
    pub(crate) sample: Sample,
    /// Names of groups and the document's values.
    pub(crate) groups: Vec<(String, String)>,
    /// Words between white space, if there are groups.
    pub(crate) words: u64,
}

/// A dropped document.
#[derive(Serialize, Deserialize)]
pub(crate) struct Dropped {
    pub(crate) id: String,
    pub(crate) url: Option<String>,
    pub(crate) language: String,
    pub(crate) repairs: Repairs,
    pub(crate) personal: Vec<String>,
    /// Paragraphs that extraction left out as copies of the text.
    pub(crate) copies: u32,
    /// Headers, footers and page numbers that the reader left out.
    #[serde(default)]
    pub(crate) running_lines: u32,
    #[serde(default)]
    pub(crate) of_input: Sought,
    #[serde(default)]
    pub(crate) of_steps: Sought,
    pub(crate) metrics: Vec<Metric>,
    #[serde(with = "crate::statistics::boxed")]
    pub(crate) text_metrics: Option<Box<TextMetrics>>,
    /// Source, with the subset after a slash.
    pub(crate) source: String,
    /// Something that has no limit dropped it.
    pub(crate) is_lost: bool,
    pub(crate) reason: Reason,
    /// Names of groups and the document's values.
    pub(crate) groups: Vec<(String, String)>,
    /// Start of the text.
    pub(crate) excerpt: String,
    /// The text, until it is known whether it is shown.
    #[serde(skip)]
    pub(crate) text: String,
    /// More of the text, if it may be shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) shown: Option<ShownText>,
}

/// A record, on its way or done.
pub(crate) enum RecordState {
    Done(Outcome),
    /// It waits for the model of a step.
    Waits {
        step: usize,
        passage: Box<Passage>,
    },
}

/// Why a record is no document.
enum Stop {
    Bad(String),
    Drop(Box<Draft>, Reason),
}

/// Characters shown of kept documents in reports.
const SAMPLE_CHARS: usize = 400;
/// Characters of a dropped document that are kept for inspection.
const EXCERPT_CHARS: usize = 300;

impl Chain {
    pub(crate) fn new(
        config: &CurateConfig,
        decontaminator: Option<Decontaminator>,
        minhasher: Option<Minhasher>,
        is_normalized: bool,
        models: &dyn Models,
    ) -> Outside<Chain> {
        let mut extract = ExtractConfig::default();
        for step in &config.step {
            if let Step::Extract(config) = step {
                extract.clone_from(config);
            }
        }
        Ok(Chain {
            extract,
            steps: Steps::open(&config.step, config.figures, models)?,
            decontaminator,
            minhasher,
            is_normalized,
            max_record_bytes: config.max_record_bytes,
            statistics: config.words_of_statistics(),
            sample: config.sample_limit(),
        })
    }

    /// Starts a record of a shard: to its end, or to a step with a model that looks at many texts together.
    pub(crate) fn start(
        &self,
        batch: &Batch,
        raw: &Raw,
        shard: &Shard,
        scratch: &mut WorkScratch,
    ) -> RecordState {
        match self.read(batch, raw, shard, scratch) {
            Ok(draft) => self.proceed(self.steps.begin(draft), &shard.input, scratch),
            Err(outcome) => RecordState::Done(outcome),
        }
    }

    /// Goes on with a record whose model has looked at it.
    pub(crate) fn go_on(
        &self,
        passage: Passage,
        shard: &Shard,
        scratch: &mut WorkScratch,
    ) -> RecordState {
        scratch.steps.clock.start();
        self.proceed(passage, &shard.input, scratch)
    }

    fn proceed(
        &self,
        mut passage: Passage,
        input: &Input,
        scratch: &mut WorkScratch,
    ) -> RecordState {
        if let Some(step) = self.steps.go_on(&mut passage, &mut scratch.steps) {
            let passage = Box::new(passage);
            return RecordState::Waits { step, passage };
        }
        let (draft, mut verdict) = self.steps.end(passage, &|text| self.after(text));
        if verdict.is_continue() {
            verdict = self.after(&draft.text);
            if self.decontaminator.is_some() {
                scratch.steps.clock.lap("decontaminate");
            }
        }
        RecordState::Done(match verdict {
            Verdict::Break(reason) => self.drop(draft, reason, input, scratch),
            Verdict::Continue(()) => self.keep(draft, input, scratch),
        })
    }

    /// Lets the model of a step look at these texts together. Its time is that of one thread, from the start to the end.
    pub(crate) fn measure(
        &self,
        step: usize,
        texts: &[&str],
        clock: &mut Clock,
    ) -> Outside<Vec<Logits>> {
        clock.start();
        let measured = self.steps.measure(step, texts);
        clock.lap(self.steps.name(step));
        measured
    }

    /// Reads a record: a document, or what else became of it.
    fn read(
        &self,
        batch: &Batch,
        raw: &Raw,
        shard: &Shard,
        scratch: &mut WorkScratch,
    ) -> Result<Draft, Outcome> {
        let (input, name) = (&shard.input, &shard.name);
        if let Some(why) = &raw.bad {
            return Err(Outcome::Bad(why.clone()));
        }
        scratch.steps.clock.start();
        let bytes = batch.bytes(raw);
        let draft = Draft {
            id: format!("{}/{name}/{}", input.source, batch.label(raw)),
            source: input.source.clone(),
            ..Draft::default()
        };
        if input.has_no_ids() && self.is_outside(&draft.id) {
            return Err(Outcome::Unsampled);
        }
        let read = match input.format {
            Format::Warc | Format::Wet | Format::Wacz => {
                let place = Place {
                    file: &shard.file,
                    offset: raw.offset,
                };
                self.read_page(input.format, bytes, place, draft)
            }
            Format::Html => self.extract(bytes, None, draft),
            Format::Zim => self.read_zim(bytes, &shard.file, draft),
            Format::Epub | Format::Docx | Format::Odt | Format::Pdf | Format::Latex => {
                self.read_composed(bytes, shard, draft)
            }
            Format::Wat
            | Format::Jsonl
            | Format::Dolma
            | Format::Parquet
            | Format::Arrow
            | Format::Csv
            | Format::Tsv
            | Format::Auto
            | Format::Wikipedia
            | Format::Text => match read_fields(input, bytes, &mut scratch.json) {
                Ok(fields) => Ok(with_fields(draft, fields)),
                Err(Unread::Bad(why)) => Err(Stop::Bad(why)),
                Err(Unread::Drop(fields, reason)) => Err(stop(with_fields(draft, *fields), reason)),
            },
        };
        // of an archive's records nearly all of this is extraction
        let is_page = matches!(input.format, Format::Warc | Format::Wacz | Format::Html);
        scratch
            .steps
            .clock
            .lap(if is_page { "extract" } else { "parse" });
        match read {
            Ok(draft) if self.is_outside(&draft.id) => Err(Outcome::Unsampled),
            Ok(draft) => Ok(in_dataset(draft, shard)),
            Err(Stop::Bad(why)) => Err(Outcome::Bad(why)),
            Err(Stop::Drop(draft, _)) if self.is_outside(&draft.id) => Err(Outcome::Unsampled),
            Err(Stop::Drop(draft, reason)) => Err(self.drop(*draft, reason, input, scratch)),
        }
    }

    /// Whether the sample leaves out the document with this id.
    fn is_outside(&self, id: &str) -> bool {
        self.sample
            .is_some_and(|limit| xxh3_64(id.as_bytes()) >= limit)
    }

    /// Reads a page of an archive; of HTML its main text and metadata.
    fn read_page(
        &self,
        format: Format,
        bytes: &[u8],
        place: Place<'_>,
        mut draft: Draft,
    ) -> Result<Draft, Stop> {
        let Some(page) = parse_page(format, bytes, self.max_record_bytes) else {
            return Err(Stop::Bad("WARC record with a broken header".to_string()));
        };
        draft.url = page.url;
        draft.meta = Some(of_archive(page.date, place, page.provenance));
        match page.content {
            Content::Bad(why) => Err(Stop::Bad(why)),
            Content::Drop(reason) => Err(stop(draft, reason)),
            Content::Text(text, robots) => {
                let robots = robots.map_or(Vec::new(), |sent| robots_directives(&sent));
                if let Some(Value::Object(meta)) = &mut draft.meta
                    && !robots.is_empty()
                {
                    meta.insert("robots".to_string(), robots.into());
                }
                draft.text = text;
                Ok(draft)
            }
            Content::Html(html) => self.extract(&html.body, Some(&html), draft),
        }
    }

    /// Renders a document that its reader composed; `meta.file` names the file, below its input's path, and the id the part.
    fn read_composed(&self, bytes: &[u8], shard: &Shard, mut draft: Draft) -> Result<Draft, Stop> {
        let composed: Composed<'_> = serde_json::from_slice(bytes)
            .map_err(|e| Stop::Bad(format!("a record that was not composed: {e}")))?;
        if !composed.part.is_empty() {
            draft.id = format!("{}/{}/{}", shard.input.source, shard.name, composed.part);
        }
        let mut meta = composed.meta;
        meta.insert("file".to_string(), shard.file.as_str().into());
        draft.running_lines = composed.running_lines;
        let mut text = composed.text.into_owned();
        let mut is_cut = false;
        let mut notes = 0;
        for part in &composed.parts {
            let rendered = render_whole(part, &self.extract, notes + 1);
            is_cut |= rendered.is_cut;
            notes += rendered.notes;
            if !text.is_empty() && !rendered.text.is_empty() {
                text.push_str("\n\n");
            }
            text.push_str(&rendered.text);
        }
        if is_cut {
            meta.insert("is_cut".to_string(), true.into());
        }
        draft.text = text;
        draft.meta = Some(meta.into());
        if let Some(lack) = composed.lacks {
            return Err(stop(draft, lack.reason()));
        }
        if draft.text.is_empty() {
            return Err(stop(draft, ReadRule::empty()));
        }
        Ok(draft)
    }

    /// Main text and metadata of a page of a ZIM file.
    fn read_zim(&self, bytes: &[u8], file: &str, mut draft: Draft) -> Result<Draft, Stop> {
        let composed: Composed<'_> = serde_json::from_slice(bytes)
            .map_err(|e| Stop::Bad(format!("a record that was not composed: {e}")))?;
        let mut meta = composed.meta;
        meta.insert("file".to_string(), file.into());
        draft.meta = Some(meta.into());
        let html = Html {
            body: composed.parts.concat().into_bytes().into(),
            content_type: Some("text/html; charset=utf-8".to_string()),
            robots: None,
        };
        self.extract(&html.body, Some(&html), draft)
    }

    /// Main text and metadata of a page; `sent` has the headers it was sent with.
    fn extract(
        &self,
        body: &[u8],
        sent: Option<&Html<'_>>,
        mut draft: Draft,
    ) -> Result<Draft, Stop> {
        let source = PageSource {
            bytes: body,
            content_type: sent.and_then(|html| html.content_type.as_deref()),
            robots: sent.and_then(|html| html.robots.as_deref()),
            url: draft.url.as_deref(),
        };
        let page = extract_page(&source, &self.extract);
        draft.text = page.text;
        draft.copies = page.copies;
        add_page_meta(&mut draft.meta, page.meta, page.is_cut);
        if draft.text.is_empty() {
            return Err(stop(draft, empty("extract.empty")));
        }
        Ok(draft)
    }

    /// Final conditions on the text, after all steps.
    fn after(&self, text: &str) -> Verdict {
        if let Some(decontaminator) = &self.decontaminator {
            decontaminator.judge(text)?;
        }
        if text.is_empty() {
            return Verdict::Break(ReadRule::empty());
        }
        Verdict::Continue(())
    }

    /// Values of the metadata that the steps' expressions name, each with its key.
    pub(crate) fn named_values(&self) -> Vec<(&str, &str)> {
        self.steps.named_values()
    }

    /// The evaluation sets that are looked for.
    pub(crate) fn evaluation_sets(&self) -> BTreeMap<String, TaskHits> {
        let sets = self.decontaminator.as_ref();
        sets.map(Decontaminator::sets).unwrap_or_default()
    }

    /// Adds the times of a thread's clock to a sum.
    pub(crate) fn spent(scratch: &mut WorkScratch, into: &mut Spent) {
        into.add(&mut scratch.steps.clock);
    }

    /// Metrics of a text, if they are requested and there is a text.
    fn text_metrics(&self, draft: &Draft, scratch: &mut WorkScratch) -> Option<Box<TextMetrics>> {
        let words = self.statistics.filter(|_| !draft.text.is_empty())?;
        scratch.steps.clock.start();
        let text = &mut scratch.steps.text;
        text.use_rules(words.rules(&draft.language));
        let text_metrics = measure(&draft.text, text);
        text.use_rules(WordRules::English);
        scratch.steps.clock.lap("statistics");
        Some(Box::new(text_metrics))
    }

    fn drop(
        &self,
        draft: Draft,
        reason: Reason,
        input: &Input,
        scratch: &mut WorkScratch,
    ) -> Outcome {
        let text_metrics = self.text_metrics(&draft, scratch);
        Outcome::Dropped(Box::new(Dropped {
            text_metrics,
            source: source_of(&draft, input),
            id: draft.id,
            url: draft.url,
            language: draft.language,
            repairs: draft.repairs,
            personal: draft.personal,
            copies: draft.copies,
            running_lines: draft.running_lines,
            of_input: draft.of_input,
            of_steps: draft.of_steps,
            metrics: draft.metrics,
            is_lost: draft.is_lost,
            reason,
            groups: draft.groups,
            excerpt: excerpt(&draft.text, EXCERPT_CHARS).to_string(),
            text: draft.text,
            shown: None,
        }))
    }

    fn keep(&self, draft: Draft, input: &Input, scratch: &mut WorkScratch) -> Outcome {
        let exact = if self.is_normalized {
            words_digest(&draft.text)
        } else {
            xxh3_128(draft.text.as_bytes())
        };
        let mut signature = Signature {
            exact,
            chars: chars(&draft.text) as u64,
            source: source(&input.source, draft.subset.as_deref()),
            quality: quality_of(draft.meta.as_ref()),
            keys: Vec::new(),
        };
        if let Some(minhasher) = &self.minhasher {
            let rules = minhasher.word_rules(&draft.language);
            let splitter = scratch.steps.text.splitter_of(rules);
            let (minhash, keys) = (&mut scratch.minhash, &mut signature.keys);
            minhasher.keys(&draft.text, splitter, minhash, keys);
        }
        scratch.steps.clock.lap("sign");
        let shown = excerpt(&draft.text, SAMPLE_CHARS);
        let sample = Sample {
            hash: sample_hash(&draft.id, shown),
            id: draft.id.clone(),
            rule: String::new(),
            value: None,
            limit: None,
            language: draft.language.clone(),
            excerpt: shown.to_string(),
            shown: None,
        };
        let text_metrics = self.text_metrics(&draft, scratch);
        let source = source_of(&draft, input);
        let host = draft.url.as_deref().and_then(address::host);
        let words = match draft.groups.is_empty() {
            true => 0,
            false => plain::words(&draft.text).count() as u64,
        };
        let document = CleanDocument {
            id: draft.id,
            text: draft.text,
            url: draft.url,
            source: input.source.clone(),
            subset: draft.subset,
            language: draft.language.clone(),
            meta: draft.meta,
        };
        let mut line = Vec::with_capacity(document.text.len() + 256);
        let written = json::write(&mut line, &document);
        if let Err(e) = written.and_then(|()| line.write_all(b"\n")) {
            return Outcome::Bad(format!("cannot be written as JSON: {e}"));
        }
        scratch.steps.clock.lap("write");
        Outcome::Kept(Box::new(Kept {
            line,
            signature,
            text_bytes: document.text.len() as u64,
            language: draft.language,
            repairs: draft.repairs,
            personal: draft.personal,
            copies: draft.copies,
            running_lines: draft.running_lines,
            of_input: draft.of_input,
            of_steps: draft.of_steps,
            metrics: draft.metrics,
            url: document.url,
            text_metrics,
            host,
            source,
            sample,
            groups: draft.groups,
            words,
        }))
    }
}

/// The position of an archive's record.
#[derive(Clone, Copy)]
struct Place<'a> {
    /// Path of the archive below its input's path.
    file: &'a str,
    /// Of the record, or of its gzip member.
    offset: u64,
}

/// The metadata of a record of an archive: its date, and all by which it is found again.
fn of_archive(date: Option<String>, place: Place<'_>, provenance: Provenance) -> Value {
    let mut meta = serde_json::Map::new();
    if let Some(date) = date {
        meta.insert("date".to_string(), date.into());
    }
    let mut warc = serde_json::Map::new();
    warc.insert("file".to_string(), place.file.into());
    warc.insert("offset".to_string(), place.offset.into());
    if let Ok(Value::Object(fields)) = serde_json::to_value(provenance) {
        warc.extend(fields);
    }
    meta.insert("warc".to_string(), warc.into());
    meta.into()
}

fn stop(draft: Draft, reason: Reason) -> Stop {
    Stop::Drop(Box::new(draft), reason)
}

/// `meta.quality`; not a number if there is none.
fn quality_of(meta: Option<&Value>) -> f32 {
    let quality = meta.and_then(|meta| meta.get("quality")?.as_f64());
    #[expect(
        clippy::cast_possible_truncation,
        reason = "six digits are enough to compare by"
    )]
    let quality = quality.map_or(f32::NAN, |quality| quality as f32);
    quality
}

/// Source, with the subset after a slash.
fn source_of(draft: &Draft, input: &Input) -> String {
    match &draft.subset {
        Some(subset) => format!("{}/{subset}", input.source),
        None => input.source.clone(),
    }
}

/// A draft with the split and the configuration of its dataset in `meta`, beside fields of the record that have these names.
fn in_dataset(mut draft: Draft, shard: &Shard) -> Draft {
    for (name, value) in [
        ("dataset_split", &shard.dataset_split),
        ("dataset_config", &shard.dataset_config),
    ] {
        let kept = shard.input.keep_fields.as_ref();
        let is_kept = kept.is_none_or(|names| names.iter().any(|kept| kept == name));
        let Some(value) = value.as_deref().filter(|_| is_kept) else {
            continue;
        };
        if let Value::Object(meta) = draft.meta.get_or_insert_with(|| json!({})) {
            meta.entry(name).or_insert_with(|| value.into());
        }
        let names = shard.input.named_fields();
        let place = |(key, field): &(&str, &str)| *key == "keep_fields" && *field == name;
        if let Some(number) = names.iter().position(place) {
            draft.of_input.note(number, true);
        }
    }
    draft
}

/// A draft with its record's fields.
fn with_fields(mut draft: Draft, fields: Fields) -> Draft {
    if let Some(id) = fields.id {
        draft.id = id;
    }
    draft.url = fields.url;
    draft.subset = fields.subset;
    draft.meta = fields.meta;
    draft.text = fields.text;
    draft.of_input = fields.named;
    draft
}

/// Adds a page's own metadata to a document's metadata.
fn add_page_meta(meta: &mut Option<Value>, page: PageMeta, is_cut: bool) {
    let Ok(Value::Object(found)) = serde_json::to_value(page) else {
        return;
    };
    if let Value::Object(meta) = meta.get_or_insert_with(|| json!({})) {
        meta.extend(found);
        if is_cut {
            meta.insert("is_cut".to_string(), Value::Bool(true));
        }
    }
}
