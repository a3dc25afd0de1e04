//! The definitions built into the program.

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("definitions/", $name, ".toml")))),*]
    };
}

/// Tasks built into the program: name and definition.
pub(super) const BUILT_IN: [(&str, &str); 36] = built_in![
    "anli_r1",
    "anli_r2",
    "anli_r3",
    "arc_challenge",
    "arc_easy",
    "association",
    "bbq",
    "boolq",
    "choices",
    "continuation",
    "copa",
    "crows_pairs_english",
    "gsm8k",
    "hans",
    "hans_study",
    "hellaswag",
    "lambada_megatron",
    "lambada_openai",
    "mmlu",
    "mnli",
    "openbookqa",
    "piqa",
    "qqp",
    "race",
    "rte",
    "schema",
    "sciq",
    "simple_cooccurrence_bias",
    "triviaqa",
    "wic",
    "wikitext",
    "wikitext103_megatron",
    "winobias",
    "winogender_all",
    "winogender_gotcha",
    "winogrande",
];
