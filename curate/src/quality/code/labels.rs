//! Labels of the source code classifier, in the model's order.

/// Labels in the model's order: languages, other code, prose.
pub const CODE_LABELS: [&str; 15] = [
    "C",
    "C#",
    "C++",
    "Go",
    "Java",
    "JavaScript",
    "Lua",
    "PHP",
    "Python",
    "Ruby",
    "Rust",
    "Scala",
    "TypeScript",
    "other",
    "prose",
];

/// The label of code, markup and data in no language of the list.
pub(super) const OTHER: usize = 13;

/// The label of prose.
pub(super) const PROSE: usize = 14;
