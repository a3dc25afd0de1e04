//! Tests of wrong job files: each message has line and column, the marked text, and the value wanted.

use crate::jobs::output;

/// A wrong job and its message.
struct Wrong {
    /// Lines after a name and a folder, which are lines 1 and 2.
    text: &'static str,
    /// `line:column`, and the characters that are marked.
    place: &'static str,
    marked: &'static str,
    key: &'static str,
    found: &'static str,
    wanted: &'static str,
}

const fn wrong(
    text: &'static str,
    [place, marked]: [&'static str; 2],
    [key, found, wanted]: [&'static str; 3],
) -> Wrong {
    Wrong {
        text,
        place,
        marked,
        key,
        found,
        wanted,
    }
}

const NUMBER: &str = "a whole number, 0 or more";
const BASE: &str = "[train]\n[model]\n[blend]\nseq_length = 8\n[[blend.dataset]]\nprefix = 'a'\n";

const TABLE: [Wrong; 32] = [
    wrong(
        "seeed = 1\n",
        ["3:1", "seeed"],
        ["seeed", "unknown key \"seeed\"; did you mean \"seed\"?", ""],
    ),
    wrong(
        "seed = 'one'\n",
        ["3:8", "'one'"],
        ["seed", "string \"one\"", NUMBER],
    ),
    wrong("seed = -1\n", ["3:8", "-1"], ["seed", "integer -1", NUMBER]),
    wrong(
        "threads = 1.5\n",
        ["3:11", "1.5"],
        ["threads", "float 1.5", NUMBER],
    ),
    wrong(
        "threads = 99999\n",
        ["3:11", "99999"],
        ["threads", "99999", ""],
    ),
    wrong(
        "device = 'gpu'\n",
        ["3:10", "'gpu'"],
        ["device", "\"gpu\"", "\"cpu\""],
    ),
    wrong(
        "determinism = 'lay'\n",
        ["3:15", "'lay'"],
        ["determinism", "\"lay\"", "\"layout\""],
    ),
    wrong(
        "executor = 'slrm'\n",
        ["3:12", "'slrm'"],
        ["executor", "did you mean \"slurm\"?", ""],
    ),
    wrong(
        "[trian]\nsteps = 5\n",
        ["3:2", "trian"],
        ["trian", "did you mean \"train\"?", ""],
    ),
    wrong(
        "[train]\nstep = 5\n",
        ["4:1", "step"],
        ["train.step", "did you mean", ""],
    ),
    wrong(
        "[train]\nsteps = 'many' # all\n",
        ["4:9", "'many'"],
        ["train.steps", "string \"many\"", NUMBER],
    ),
    wrong(
        "[train]\nlr = '6e-4'\n",
        ["4:6", "'6e-4'"],
        ["train.lr", "string \"6e-4\"", "a number"],
    ),
    wrong(
        "[train]\nreset_attention_mask = 1\n",
        ["4:24", "1"],
        ["train.reset_attention_mask", "integer 1", "true or false"],
    ),
    wrong(
        "[train]\noptimizer = 'adam'\n",
        ["4:13", "'adam'"],
        ["train.optimizer", "\"adam\"", "\"adamw\""],
    ),
    wrong(
        "[train]\nprecision = 'bf32'\n",
        ["4:13", "'bf32'"],
        ["train.precision", "\"bf32\"", "\"bf16\""],
    ),
    wrong(
        "[train]\nschedule = 'cosin'\n",
        ["4:12", "'cosin'"],
        ["train.schedule", "did you mean \"cosine\"?", ""],
    ),
    wrong(
        "[train]\ncheckpoint = 20\n",
        ["4:14", "20"],
        ["train.checkpoint", "integer 20", "a table"],
    ),
    wrong(
        "[train]\ncheckpoint = { evry = 20 }\n",
        ["4:16", "evry"],
        ["train.checkpoint.evry", "did you mean \"every\"?", ""],
    ),
    wrong(
        "[parallel]\ntp = '2'\n",
        ["4:6", "'2'"],
        ["parallel.tp", "string \"2\"", NUMBER],
    ),
    wrong(
        "[model]\nfamily = 'lama'\n",
        ["4:10", "'lama'"],
        ["model.family", "did you mean \"llama\"?", ""],
    ),
    wrong(
        "[model]\nlayers = [2]\n",
        ["4:10", "[2]"],
        ["model.layers", "array [2]", NUMBER],
    ),
    wrong(
        "[curate]\ninputs = [{ path = 'a' }, { pth = 'b' }]\n",
        ["4:29", "pth"],
        ["curate.inputs[1].pth", "did you mean \"path\"?", ""],
    ),
    wrong(
        "[[curate.step]]\ngofer_quality = {}\n",
        ["4:1", "gofer_quality"],
        [
            "curate.step[0].gofer_quality",
            "did you mean \"gopher_quality\"",
            "\"gopher_quality\"",
        ],
    ),
    wrong(
        "[[curate.step]]\nlength = { min_words = 'x' }\n",
        ["4:12", "min_words"],
        ["curate.step[0].length.min_words", "unknown key", ""],
    ),
    wrong(
        "[curate]\ninputs = [{ path = 'cc:CC-MAIN-2025-05', format = 'warc' }]\n",
        ["4:20", "'cc:CC-MAIN-2025-05'"],
        ["curate.inputs[0].path", "\"\"", "cc:SNAPSHOT/warc"],
    ),
    wrong(
        "[curate]\ninputs = [{ path = 'cc:CC-MAIN-2025-05/warc?segment=5', format = 'warc' }]\n",
        ["4:20", "'cc:CC-MAIN-2025-05/warc?segment=5'"],
        [
            "curate.inputs[0].path",
            "\"segment=5\"",
            "the options segments, files, sample, domain, base, index and pause",
        ],
    ),
    wrong(
        "[curate]\ninputs = [{ path = 'cc:CC-MAIN-2025-05/wet', format = 'warc' }]\n",
        ["4:55", "'warc'"],
        [
            "curate.inputs[0].format",
            "\"warc\"",
            "\"wet\", as path says, or \"auto\"",
        ],
    ),
    wrong(
        "[curate]\ninputs = 'a'\n[dedup.minhash]\nlanguage = 'document'\n",
        ["6:12", "'document'"],
        [
            "dedup.minhash.language",
            "\"document\" in a job without a step `language`",
            "a step `language` in curate.step",
        ],
    ),
    wrong(
        "[tokenize]\ninputs = [{ path = 'cc:CC-MAIN-2025-05/wet' }]\ntokenizer = { file = 'a' }\n",
        ["4:20", "'cc:CC-MAIN-2025-05/wet'"],
        ["tokenize.inputs[0].path", "cc:", "an input of [curate]"],
    ),
    wrong(
        "[dedup]\nexact = true\n",
        ["4:9", "true"],
        ["dedup.exact", "boolean true", "a table"],
    ),
    wrong(
        "[finetune]\nmethod = 'qlora'\n",
        ["4:10", "'qlora'"],
        ["finetune.method", "\"qlora\"", "\"lora\""],
    ),
    wrong(
        "[finetune]\ntrain = 'a.jsonl'\n",
        ["4:9", "'a.jsonl'"],
        ["finetune.train", "string \"a.jsonl\"", "a list"],
    ),
];

/// The message about a key: its place, and the lines after `key`.
fn told<'a>(message: &'a str, key: &str) -> Option<(&'a str, Vec<&'a str>)> {
    let (before, after) = message.split_once(&format!("\n  key    {key}\n"))?;
    let place = before.rsplit_once("job.toml:")?.1;
    Some((place, after.lines().take(4).collect()))
}

#[test]
fn wrong_jobs_are_answered_with_place_mark_value_and_what_to_write() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("job.toml");
    for case in &TABLE {
        std::fs::write(&path, format!("name = 'a'\nout = 'out'\n{}", case.text)).unwrap();
        let printed = output(&["run", path.to_str().unwrap(), "--check"]);
        let message = String::from_utf8_lossy(&printed.stderr).into_owned();
        assert_eq!(printed.status.code(), Some(2), "{}: {message}", case.text);
        let Some((place, lines)) = told(&message, case.key) else {
            panic!("{}: {message}", case.text);
        };
        let [found, wanted, line, marks] = lines[..] else {
            panic!("{}: {message}", case.text);
        };
        assert_eq!(place, case.place, "{message}");
        assert!(
            found.starts_with("  found ") && found.contains(case.found),
            "{message}"
        );
        assert!(
            wanted.starts_with("  wanted ") && wanted.contains(case.wanted),
            "{message}"
        );
        let start = marks.find('^').unwrap();
        assert_eq!(
            &line[start..=marks.rfind('^').unwrap()],
            case.marked,
            "{message}"
        );
    }
}

#[test]
fn contradictions_have_places_and_values_from_the_command_line_have_none() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("job.toml");
    let text = format!("name = 'a'\nout = 'out'\n{BASE}[parallel]\ntp = 3\npp = 0\n");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap();
    let message = |args: &[&str]| {
        let printed = output(&[&["run", path, "--check"][..], args].concat());
        assert_eq!(printed.status.code(), Some(2));
        String::from_utf8(printed.stderr).unwrap()
    };
    let text = message(&[]);
    let (place, lines) = told(&text, "parallel.pp").unwrap();
    assert_eq!((place, lines[2]), ("11:6", "  11 | pp = 0"));
    let text = message(&["--set", "parallel.pp=-1"]);
    assert!(text.contains("job.toml\n  key    parallel.pp\n"), "{text}");
    assert!(!text.contains("pp = 0"), "{text}");
}
