//! The thirty subcases of HANS: names as in McCoy et al. 2019 (arXiv:1902.01007), appendix A; the sentences of each are
//! templates of our own after its description there.
//!
//! Slots: `{a}`, `{b}`, `{c}` a person or several with "the", `{a!}` with a capital; `{A}` several without "the"; `{t}` a
//! verb with an object and `{u}` another, `{was a}` was or were; `{i}` a verb without an object. The others name a list of
//! words.

/// What a model that follows surface form would rely on.
pub(super) const HEURISTICS: [&str; 3] = ["lexical_overlap", "subsequence", "constituent"];

/// One subcase: the premise says the hypothesis or does not, and always has all of its words.
pub(super) struct Subcase {
    pub name: &'static str,
    /// Number in `HEURISTICS`.
    pub heuristic: usize,
    pub is_entailed: bool,
    /// Premise and hypothesis.
    pub templates: &'static [[&'static str; 2]],
}

const fn case(
    name: &'static str,
    heuristic: usize,
    is_entailed: bool,
    templates: &'static [[&'static str; 2]],
) -> Subcase {
    Subcase {
        name,
        heuristic,
        is_entailed,
        templates,
    }
}

pub(super) const SUBCASES: [Subcase; 30] = [
    case(
        "le_relative_clause",
        0,
        true,
        &[
            ["{a!} who {b} {t} {u} {c}.", "{b!} {t} {a}."],
            ["{a!} that {b} {t} {i}.", "{b!} {t} {a}."],
        ],
    ),
    case(
        "le_around_prepositional_phrase",
        0,
        true,
        &[
            ["{a!} {near} {b} {t} {c}.", "{a!} {t} {c}."],
            ["{a!} {near} {b} {i}.", "{a!} {i}."],
        ],
    ),
    case(
        "le_around_relative_clause",
        0,
        true,
        &[
            ["{a!} that {i} {t} {b}.", "{a!} {t} {b}."],
            ["{a!} who {t} {b} {u} {c}.", "{a!} {u} {c}."],
        ],
    ),
    case(
        "le_conjunction",
        0,
        true,
        &[
            ["{a!} and {b} {t} {c}.", "{a!} {t} {c}."],
            ["{a!} {t} {b} and {c}.", "{a!} {t} {c}."],
        ],
    ),
    case(
        "le_passive",
        0,
        true,
        &[["{a!} {was a} {t} by {b}.", "{b!} {t} {a}."]],
    ),
    case(
        "ln_subject/object_swap",
        0,
        false,
        &[["{a!} {t} {b}.", "{b!} {t} {a}."]],
    ),
    case(
        "ln_preposition",
        0,
        false,
        &[
            ["{a!} {near} {b} {t} {c}.", "{c!} {t} {b}."],
            ["{a!} {t} {b} {near} {c}.", "{c!} {t} {a}."],
        ],
    ),
    case(
        "ln_relative_clause",
        0,
        false,
        &[
            ["{a!} {t} {b} who {c} {u}.", "{b!} {t} {c}."],
            ["{a!} who {b} {t} {u} {c}.", "{c!} {t} {a}."],
        ],
    ),
    case(
        "ln_passive",
        0,
        false,
        &[["{a!} {was a} {t} by {b}.", "{a!} {t} {b}."]],
    ),
    case(
        "ln_conjunction",
        0,
        false,
        &[
            ["{a!} and {b} {t} {c}.", "{a!} {t} {b}."],
            ["{a!} {t} {b} and {c}.", "{b!} {t} {c}."],
        ],
    ),
    case(
        "se_conjunction",
        1,
        true,
        &[
            ["{a!} and {b} {t} {c}.", "{b!} {t} {c}."],
            ["{a!} {t} {b} and {c}.", "{a!} {t} {b}."],
        ],
    ),
    case(
        "se_adjective",
        1,
        true,
        &[
            ["{adjective} {A} {t} {b}.", "{A!} {t} {b}."],
            ["{adjective} {A} {i}.", "{A!} {i}."],
        ],
    ),
    case(
        "se_understood_argument",
        1,
        true,
        &[
            ["{a!} {doing} {thing}.", "{a!} {doing}."],
            ["{a!} and {b} {doing} {thing}.", "{a!} and {b} {doing}."],
        ],
    ),
    case(
        "se_relative_clause_on_obj",
        1,
        true,
        &[
            ["{a!} {t} {b} that {u} {c}.", "{a!} {t} {b}."],
            ["{a!} {t} {b} who {i}.", "{a!} {t} {b}."],
        ],
    ),
    case(
        "se_PP_on_obj",
        1,
        true,
        &[["{a!} {t} {b} {near} {c}.", "{a!} {t} {b}."]],
    ),
    case(
        "sn_NP/S",
        1,
        false,
        &[
            ["{a!} {heard} {b} {i}.", "{a!} {heard} {b}."],
            ["{a!} {heard} {b} {t} {c}.", "{a!} {heard} {b}."],
        ],
    ),
    case(
        "sn_PP_on_subject",
        1,
        false,
        &[
            ["{a!} {near} {b} {i}.", "{b!} {i}."],
            ["{a!} {near} {b} {t} {c}.", "{b!} {t} {c}."],
        ],
    ),
    case(
        "sn_relative_clause_on_subject",
        1,
        false,
        &[
            ["{a!} that {t} {b} {u} {c}.", "{b!} {u} {c}."],
            ["{a!} who {t} {b} {i}.", "{b!} {i}."],
        ],
    ),
    case(
        "sn_past_participle",
        1,
        false,
        &[
            ["{a!} {paid} {place} {i}.", "{a!} {paid} {place}."],
            ["{a!} {paid} {place} {t} {b}.", "{a!} {paid} {place}."],
        ],
    ),
    case(
        "sn_NP/Z",
        1,
        false,
        &[
            ["After {a} {moved} {b} {i}.", "{a!} {moved} {b}."],
            ["While {a} {moved} {b} {t} {c}.", "{a!} {moved} {b}."],
        ],
    ),
    case(
        "ce_embedded_under_since",
        2,
        true,
        &[
            ["{Because} {a} {i}, {b} {t} {c}.", "{a!} {i}."],
            ["{b!} {t} {c} {because} {a} {i}.", "{a!} {i}."],
        ],
    ),
    case(
        "ce_after_since_clause",
        2,
        true,
        &[
            ["{Because} {a} {i}, {b} {t} {c}.", "{b!} {t} {c}."],
            ["{Because} {a} {t} {b}, {c} {i}.", "{c!} {i}."],
        ],
    ),
    case(
        "ce_embedded_under_verb",
        2,
        true,
        &[
            ["{a!} {realized} that {b} {i}.", "{b!} {i}."],
            ["{a!} {realized} that {b} {t} {c}.", "{b!} {t} {c}."],
        ],
    ),
    case(
        "ce_conjunction",
        2,
        true,
        &[
            ["{a!} {i}, and {b} {t} {c}.", "{b!} {t} {c}."],
            ["{a!} {t} {b}, and {c} {i}.", "{a!} {t} {b}."],
        ],
    ),
    case(
        "ce_adverb",
        2,
        true,
        &[
            ["{sure} {a} {i}.", "{a!} {i}."],
            ["{sure} {a} {t} {b}.", "{a!} {t} {b}."],
        ],
    ),
    case(
        "cn_embedded_under_if",
        2,
        false,
        &[
            ["{If} {a} {i}, {b} {t} {c}.", "{a!} {i}."],
            ["{b!} {t} {c} {if} {a} {i}.", "{a!} {i}."],
        ],
    ),
    case(
        "cn_after_if_clause",
        2,
        false,
        &[
            ["Unless {a} {i}, {b} {t} {c}.", "{b!} {t} {c}."],
            ["Unless {a} {t} {b}, {c} {i}.", "{c!} {i}."],
        ],
    ),
    case(
        "cn_embedded_under_verb",
        2,
        false,
        &[
            ["{a!} {said} that {b} {i}.", "{b!} {i}."],
            ["{a!} {said} that {b} {t} {c}.", "{b!} {t} {c}."],
        ],
    ),
    case(
        "cn_disjunction",
        2,
        false,
        &[
            ["{a!} {i}, or {b} {t} {c}.", "{b!} {t} {c}."],
            ["{a!} {t} {b}, or {c} {i}.", "{a!} {t} {b}."],
        ],
    ),
    case(
        "cn_adverb",
        2,
        false,
        &[
            ["{unsure} {a} {i}.", "{a!} {i}."],
            ["{unsure} {a} {t} {b}.", "{a!} {t} {b}."],
        ],
    ),
];
