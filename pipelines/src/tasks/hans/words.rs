//! Words that the generator of HANS fills its templates with: all our own choice.

/// People: singular and plural.
pub(super) const PEOPLE: [[&str; 2]; 24] = [
    ["baker", "bakers"],
    ["pilot", "pilots"],
    ["nurse", "nurses"],
    ["farmer", "farmers"],
    ["painter", "painters"],
    ["singer", "singers"],
    ["teacher", "teachers"],
    ["driver", "drivers"],
    ["sailor", "sailors"],
    ["writer", "writers"],
    ["dentist", "dentists"],
    ["gardener", "gardeners"],
    ["plumber", "plumbers"],
    ["dancer", "dancers"],
    ["waiter", "waiters"],
    ["tailor", "tailors"],
    ["mayor", "mayors"],
    ["chemist", "chemists"],
    ["poet", "poets"],
    ["guard", "guards"],
    ["cook", "cooks"],
    ["miner", "miners"],
    ["clerk", "clerks"],
    ["engineer", "engineers"],
];

/// Verbs of what one does to another: past tense, which is the participle as well, so that a passive has the same words.
pub(super) const TRANSITIVE: [&str; 16] = [
    "followed", "praised", "warned", "visited", "greeted", "blamed", "trusted", "invited",
    "helped", "hired", "ignored", "found", "annoyed", "thanked", "watched", "rescued",
];

/// Verbs of what one does alone, past tense.
pub(super) const INTRANSITIVE: [&str; 14] = [
    "slept", "laughed", "arrived", "cried", "smiled", "swam", "sneezed", "fell", "waited", "left",
    "knelt", "whistled", "yawned", "vanished",
];

/// Verbs that say that what follows is so.
pub(super) const FACTIVE: [&str; 6] = [
    "knew",
    "realized",
    "forgot",
    "remembered",
    "noticed",
    "learned",
];

/// Verbs that leave open whether what follows is so.
pub(super) const NOT_FACTIVE: [&str; 6] = [
    "said",
    "believed",
    "hoped",
    "claimed",
    "thought",
    "suspected",
];

/// Verbs that take a person or a clause after them.
pub(super) const PERSON_OR_CLAUSE: [&str; 5] =
    ["heard", "believed", "knew", "remembered", "understood"];

/// Verbs that take a person after them or nobody.
pub(super) const PERSON_OR_NOBODY: [&str; 5] = ["painted", "moved", "fought", "phoned", "paid"];

/// Verbs whose past tense is their participle, of what is done to people.
pub(super) const PAST_OR_PARTICIPLE: [&str; 5] = ["paid", "taught", "pushed", "served", "trained"];

/// What one can do something with or to, and the verb, past tense.
pub(super) const DOINGS: [[&str; 2]; 8] = [
    ["ate", "the bread"],
    ["drank", "the tea"],
    ["read", "the letter"],
    ["sang", "the song"],
    ["wrote", "the report"],
    ["cooked", "the soup"],
    ["studied", "the map"],
    ["cleaned", "the kitchen"],
];

/// Where somebody is by another.
pub(super) const NEAR: [&str; 6] = ["near", "behind", "beside", "next to", "in front of", "by"];

/// Where something happens.
pub(super) const PLACES: [&str; 8] = [
    "in the harbor",
    "at the market",
    "in the garden",
    "near the bridge",
    "on the roof",
    "in the tavern",
    "at the station",
    "by the well",
];

/// Adjectives of people.
pub(super) const ADJECTIVES: [&str; 10] = [
    "Tall", "Young", "Famous", "Tired", "Clever", "Quiet", "Proud", "Gentle", "Angry", "Lucky",
];

/// Adverbs after which a clause is so, and after which it may not be.
pub(super) const SURE: [&str; 5] = ["Clearly", "Certainly", "Luckily", "Obviously", "Suddenly"];
pub(super) const NOT_SURE: [&str; 5] = ["Perhaps", "Supposedly", "Maybe", "Probably", "Hopefully"];

/// Conjunctions before a clause that is so, and before one that may not be.
pub(super) const BECAUSE: [&str; 5] = ["because", "since", "although", "after", "while"];
pub(super) const IF: [&str; 3] = ["if", "unless", "whether or not"];
