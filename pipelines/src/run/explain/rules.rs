//! Rules that are no limit of a step without settings: what they drop, by the names in `dropped/` and in the report. A test walks the
//! names in curate's sources and asks for each.

/// A rule, or a form of names: `NAME` stands for what a job or a list names.
pub(super) struct NamedRule {
    pub(super) name: &'static str,
    /// The documents that it drops, as a sentence.
    pub(super) meaning: &'static str,
}

const fn rule(name: &'static str, meaning: &'static str) -> NamedRule {
    NamedRule { name, meaning }
}

const NO_TEXT: &str =
    "The text is empty where the step begins, or nothing of it is left behind the step.";
const NO_LIST: &str =
    "The step has no list or limits for the document's language, which the step `language` found.";

/// The table, in the order of the steps.
pub(super) const RULES: [NamedRule; 69] = [
    rule("extract.empty", "The page has no main text."),
    rule(
        "language.keep",
        "The document is in a language that `keep` does not name.",
    ),
    rule("issue.broken", "The text is not a list of events as JSON."),
    rule("issue.bots", "All events of the issue are from bots."),
    rule(
        "notebook.broken",
        "The file is named as a notebook and is none: not JSON, or without cells.",
    ),
    rule("notebook.empty", "No cell of the notebook has text."),
    rule(
        "repository.broken",
        "The text is not a list of files with `path` and `content` as JSON.",
    ),
    rule("repository.empty", "The repository has no file."),
    rule(
        "license.keep",
        "The licence is not among those that are kept.",
    ),
    rule(
        "license.deny",
        "The licence is among those that are refused.",
    ),
    rule(
        "file_language.keep",
        "The file is in a language of programming that `keep` does not name.",
    ),
    rule(
        "file_language.kinds",
        "The file's language is of a kind that is not kept, such as data.",
    ),
    rule("source_code.empty", NO_TEXT),
    rule(
        "source_code.extension",
        "The file's extension is none that StarCoder includes.",
    ),
    rule(
        "source_code.generated",
        "The file was written by a program: a mark of GitHub's linguist or a phrase says so.",
    ),
    rule(
        "source_code.text_name",
        "A text file that is neither a README, requirements nor another name that StarCoder 2 keeps.",
    ),
    rule(
        "source_code.max_xml_declarations",
        "The file starts with an XML declaration, and is of a language that is not XML.",
    ),
    rule(
        "source_code.min_data_chars",
        "A file of JSON or YAML is shorter than data files that are kept.",
    ),
    rule(
        "source_code.max_data_chars",
        "A file of JSON or YAML is longer than data files that are kept.",
    ),
    rule(
        "source_code.min_comment_ratio",
        "Comments are a smaller share of the code than is wanted.",
    ),
    rule(
        "source_code.max_comment_ratio",
        "Comments are a larger share of the code than is wanted.",
    ),
    rule(
        "source_code.min_letters_per_token",
        "A token has fewer letters than is wanted (RedPajama's rule).",
    ),
    rule("gopher_quality.known_language", NO_LIST),
    rule("gopher_repetition.empty", NO_TEXT),
    rule("c4.lorem_ipsum", "The text has `lorem ipsum`."),
    rule(
        "c4.curly_bracket",
        "The text has a curly bracket, which code has and prose has not.",
    ),
    rule(
        "c4.javascript",
        "The text has the word `javascript` (dolma's form of the rule; C4's own removes the line).",
    ),
    rule("fineweb.empty", NO_TEXT),
    rule("fineweb2.known_language", NO_LIST),
    rule("dclm.empty", NO_TEXT),
    rule("dolma.empty", NO_TEXT),
    rule("nemo.empty", NO_TEXT),
    rule("massive_text.empty", NO_TEXT),
    rule("lines.empty", "No line of the text is left."),
    rule(
        "openwebtext.javascript",
        "A short text speaks of JavaScript, as pages do that need it.",
    ),
    rule(
        "openwebtext.foreign",
        "A short text is in another language than the one that is wanted.",
    ),
    rule(
        "openwebmath.address",
        "The address has a part that OpenWebMath refuses.",
    ),
    rule(
        "openwebmath.no_formula",
        "A page of a book at LibreTexts has no formula.",
    ),
    rule(
        "openwebmath.no_math",
        "The page has neither a formula nor a command of LaTeX.",
    ),
    rule(
        "bad_words.ratio",
        "More of the words than `max_ratio` are in the list of the document's language; a language without a list drops nothing.",
    ),
    rule(
        "redpajama.rps_doc_ldnoobw_words",
        "The number of words in the list of the language (LDNOOBW); needs the lists.",
    ),
    rule(
        "url.missing",
        "The document has no address, and `require` wants one.",
    ),
    rule("url.domain", "The host, or a domain above it, is listed."),
    rule("url.address", "The address is listed."),
    rule("url.word", "A word of the address is listed."),
    rule(
        "url.soft_words",
        "The address has several listed words of which one alone is no fault.",
    ),
    rule(
        "url.subword",
        "The address has a listed part, also inside a word.",
    ),
    rule(
        "opt_out.id",
        "The document's id is in a list of those who opted out; the limit names the line.",
    ),
    rule(
        "opt_out.url",
        "The address is in a list of those who opted out; the limit names the line.",
    ),
    rule(
        "opt_out.host",
        "The host is in a list of those who opted out; the limit names the line.",
    ),
    rule(
        "opt_out.domain",
        "The domain is in a list of those who opted out; the limit names the line.",
    ),
    rule(
        "opt_out.digest",
        "The checksum of the record is in a list of those who opted out; the limit names the line.",
    ),
    rule(
        "pii.NAME",
        "Personal data of this kind was found, and `action` drops documents that have some.",
    ),
    rule(
        "quality.NAME",
        "The score, or the bucket that follows from it, of the step's fastText model is below the limit.",
    ),
    rule(
        "classifier.NAME",
        "The label, score or bucket of the step's transformer is not among those that are kept.",
    ),
    rule(
        "perplexity.NAME",
        "The perplexity under the step's n-gram model, or the value that follows from it, is beyond the limit.",
    ),
    rule("dsir.words", "The text has fewer words than `min_words`."),
    rule(
        "dsir.weight",
        "A measure, not a rule: the logarithm of the importance weight.",
    ),
    rule(
        "dsir.key",
        "The document's draw, from its weight and the hash of its id, is below `min_key`.",
    ),
    rule(
        "expression.NAME",
        "The condition `keep` of the step with this name does not hold.",
    ),
    rule(
        "spans.invalid",
        "The list of spans has an element that is not `[start, end, score]` inside the text.",
    ),
    rule(
        "spans.with_value",
        "The expression that gives the replacement has no text as its value.",
    ),
    rule(
        "sample.NAME",
        "The draw of the step `sample` with this name left the document out: the hash of its id is above its weight.",
    ),
    rule(
        "decontaminate.NAME",
        "The text shares an n-gram with this evaluation set.",
    ),
    rule(
        "decontaminate.cut",
        "Little was left of the text when what it shares with evaluation sets was cut out.",
    ),
    rule(
        "sample",
        "The hash of the id is outside the share that `curate.sample` takes.",
    ),
    rule(
        "duplicate.NAME",
        "The dedup stage removed the document: `exact` (the same text), `near` (MinHash), `url` (the same address), `semantic` (embeddings), `earlier` (an index of earlier crawls has it), `hollow` (little was left when repeats were cut). The first of its kind stays.",
    ),
    rule(
        "quarantined",
        "Not a rule: the record cannot be read. `errors/` has its file, offset and reason.",
    ),
    rule(
        "kept",
        "Not a rule: documents that no rule dropped and that are no duplicates.",
    ),
];

/// The entry of this very name.
pub(super) fn exact(name: &str) -> Option<&'static NamedRule> {
    RULES.iter().find(|rule| rule.name == name)
}

/// The form that a name has.
pub(super) fn form(name: &str) -> Option<&'static NamedRule> {
    RULES.iter().find(|rule| {
        let start = rule.name.strip_suffix("NAME");
        start.is_some_and(|start| name.len() > start.len() && name.starts_with(start))
    })
}

/// The document that has more about a rule of no step.
pub(super) fn source(name: &str) -> &'static str {
    match name.split('.').next() {
        Some("decontaminate") => "curate/docs/decontamination.md",
        Some("duplicate" | "kept") => "curate/docs/dedup.md",
        Some(_) | None => "curate/docs/input.md",
    }
}
