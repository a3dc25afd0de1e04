//! Tests of wrong inputs that are no keys of a job: paths, data, names and flags. Each is refused with its exit code and with
//! exactly this message.

use crate::jobs::{millrace, root};
use std::path::Path;
use std::process::Stdio;

/// A wrong command line with its answer. `MODEL` and `DIR` stand for a model's folder and the working folder.
struct Wrong {
    args: &'static str,
    code: i32,
    /// Standard error behind `error: `.
    message: &'static str,
}

const fn wrong(args: &'static str, code: i32, message: &'static str) -> Wrong {
    Wrong {
        args,
        code,
        message,
    }
}

const HELP: &str = "\n\nFor more information, try '--help'.";
const FORMS: &str = "wanted a job file (.toml), a job's folder, a checkpoint, a folder of checkpoints, a Hugging Face folder or a GGUF file";

/// `FORMS` and `HELP` stand for the constants.
const TABLE: [Wrong; 56] = [
    wrong(
        "run empty",
        2,
        "empty: is a folder, wanted a job file (TOML)",
    ),
    wrong(
        "status empty",
        2,
        "empty: found no job.toml, wanted a job file or the folder that a job has written",
    ),
    wrong(
        "train curate.toml",
        2,
        "the job has no [blend] table, which says what a model is trained on; `millrace new pretrain DIR --from DATA` writes a \
         job with one, and `millrace explain blend` describes it",
    ),
    wrong(
        "run curate.toml --set curate",
        2,
        "curate.toml: 1 problem\n\n  file   curate.toml\n  key    --set curate\n  found  no '='\n  wanted table.key=value",
    ),
    wrong(
        "finetune curate.toml",
        2,
        "curate.toml: 1 problem\n\n  file   curate.toml\n  key    finetune\n  found  no table\n  \
         wanted a table; `millrace train` trains with [blend] or [classify]\n\n`millrace explain finetune` describes this key",
    ),
    wrong(
        "generate nowhere --prompt x",
        1,
        "nowhere: there is no such file or folder, FORMS",
    ),
    wrong(
        "generate empty --prompt x",
        1,
        "empty: found no model, FORMS",
    ),
    wrong("serve empty", 1, "empty: found no model, FORMS"),
    wrong(
        "generate MODEL --prompt x --temperature=-1",
        2,
        "--temperature: found -1, want a finite number, 0 or more",
    ),
    wrong(
        "generate MODEL --prompt x --temperature -1",
        2,
        "--temperature: found -1, want a finite number, 0 or more",
    ),
    wrong(
        "generate MODEL --prompt x --top-p 2",
        2,
        "--top-p: found 2, want above 0, at most 1",
    ),
    wrong(
        "generate MODEL --prompt x --samples 0",
        2,
        "invalid value '0' for '--samples <N>': want a whole number, 1 or moreHELP",
    ),
    wrong(
        "generate MODEL --prompt x --beam-width 0",
        2,
        "invalid value '0' for '--beam-width <N>': want a whole number, 1 or moreHELP",
    ),
    wrong(
        "generate MODEL --prompt x --beam-width 2 --length-penalty nan",
        2,
        "invalid value 'nan' for '--length-penalty <X>': want a finite numberHELP",
    ),
    wrong(
        "generate MODEL --prompt x --stop=",
        2,
        "--stop: found an empty string, which every text contains",
    ),
    wrong(
        "generate MODEL --prompt x --min-tokens 9 --max-tokens 4",
        2,
        "--min-tokens: found 9, want at most the 4 of --max-tokens",
    ),
    wrong(
        "generate MODEL --prompt x --stop-token 99999",
        2,
        "--stop-token: found 99999, want 0 to 511",
    ),
    wrong(
        "generate MODEL --prompt x --max-tokens -1",
        2,
        "invalid value '-1' for '--max-tokens <N>': invalid digit found in stringHELP",
    ),
    wrong(
        "eval MODEL --task piqa --data bad.jsonl --limit 0",
        2,
        "invalid value '0' for '--limit <N>': want a whole number, 1 or moreHELP",
    ),
    wrong(
        "eval MODEL --task piqa --data bad.jsonl --limit -1",
        2,
        "invalid value '-1' for '--limit <N>': want a whole number, 1 or moreHELP",
    ),
    wrong(
        "plan curate.toml --cluster dgx-h100 --devices -5",
        2,
        "invalid value '-5' for '--devices <DEVICES>': want a whole number, 1 or moreHELP",
    ),
    wrong(
        "plan curate.toml --cluster dgx-h100 --top 0",
        2,
        "invalid value '0' for '--top <TOP>': want a whole number, 1 or moreHELP",
    ),
    wrong(
        "serve MODEL --port -1",
        2,
        "1 wrong value\n  --port: found \"-1\", want an integer, 0 to 65535",
    ),
    wrong(
        "quantize MODEL --type q8_0 --to hf out",
        2,
        "--to hf: wants --type fp8, fp8-block, w8a8, int4, gptq or awq",
    ),
    wrong(
        "quantize MODEL --type int4 out.gguf",
        2,
        "--type fp8, fp8-block, w8a8, int4, gptq and awq: want --to hf",
    ),
    wrong(
        "quantize MODEL --type int4 --to hf --group-size 0 out",
        2,
        "invalid value '0' for '--group-size <N>': want a whole number, 1 or moreHELP",
    ),
    wrong(
        "quantize MODEL --type w8a8 --to hf --calibrate bad.jsonl --alpha 3 out",
        2,
        "invalid value '3' for '--alpha <X>': want a number, 0 to 1HELP",
    ),
    wrong(
        "quantize MODEL --type gptq --to hf --calibrate bad.jsonl --damping 0 out",
        2,
        "invalid value '0' for '--damping <X>': want a number above 0HELP",
    ),
    wrong(
        "convert --checkpoint MODEL --to millrace --tp 0 out",
        2,
        "invalid value '0' for '--tp <N>': want a whole number, 1 or moreHELP",
    ),
    wrong(
        "convert --checkpoint MODEL --to megatron --tp 2 out",
        2,
        "--tp and --pp: wants a checkpoint and --to millrace",
    ),
    wrong(
        "tokenize --input nowhere.jsonl --tokenizer x --output-prefix y",
        2,
        "input nowhere.jsonl: no such file or folder",
    ),
    wrong(
        "mixer nowhere.yaml",
        1,
        "nowhere.yaml: no such file or folder",
    ),
    wrong(
        "merge out/all nowhere",
        1,
        "nowhere.idx: no such file or folder",
    ),
    wrong(
        "serve MODEL --port 70000",
        2,
        "1 wrong value\n  --port: found \"70000\", want an integer, 0 to 65535",
    ),
    wrong(
        "serve MODEL --adapter sql",
        2,
        "invalid value 'sql' for '--adapter <NAME=PATH>': want NAME=PATHHELP",
    ),
    wrong(
        "eval MODEL --task hellaswg --data bad.jsonl",
        2,
        "no task \"hellaswg\"; did you mean \"hellaswag\"? `millrace eval PATH --task list` prints all",
    ),
    wrong(
        "eval MODEL --task hellaswag",
        2,
        "found 0 --data and 0 --shots-data, want one --data for each of hellaswag (Rowan/hellaswag, validation), and no \
         --shots-data or as many",
    ),
    wrong(
        "eval MODEL --task hellaswag --data nofile.jsonl",
        1,
        "nofile.jsonl: no such file; task hellaswag wants Rowan/hellaswag, validation",
    ),
    wrong(
        "eval MODEL --task hellaswag --data bad.jsonl",
        1,
        "bad.jsonl: row 1, column `activity_label`: found no such column among body, want a string",
    ),
    wrong(
        "quantize MODEL --type q4_0 empty",
        2,
        "empty: found a folder, want the name of a file",
    ),
    wrong(
        "quantize empty --type q4_0 out.gguf",
        1,
        "empty cannot be used: found neither state.json nor folders step-NNNNNNNN, want a checkpoint or a folder of checkpoints",
    ),
    wrong(
        "quantize MODEL --type q5 out.gguf",
        2,
        "invalid value 'q5' for '--type <TYPE>'\n  [possible values: f32, f16, bf16, q8_0, q6_k, q4_k_m, q4_0, fp8, fp8-block, \
         w8a8, int4, gptq, awq]HELP",
    ),
    wrong(
        "convert MODEL --to hf out",
        2,
        "unexpected argument 'out' found\n\nUsage: millrace convert [OPTIONS] --checkpoint <DIR> <OUT>HELP",
    ),
    wrong(
        "inspect nowhere",
        1,
        "nowhere: there is no such file or folder, wanted an archive or another file of documents, a token dataset or its \
         prefix, a tokenizer, a checkpoint, or a job's folder",
    ),
    wrong(
        "inspect lone.bin",
        1,
        "lone.bin: there is no lone.idx, which a token dataset has beside its .bin",
    ),
    wrong(
        "export curate.toml --to parquet exp",
        1,
        "out: the job is not finished: curate has not run; `millrace run` finishes it",
    ),
    wrong(
        "export curate.toml --to csv exp",
        2,
        "invalid value 'csv' for '--to <TO>'\n  [possible values: jsonl.zst, parquet, hf, tensorboard, wandb-jsonl, \
         otlp-jsonl]HELP",
    ),
    wrong(
        "takedown list.txt",
        2,
        "the following required arguments were not provided:\n  --corpus <JOB>...\n\n\
         Usage: millrace takedown --corpus <JOB>... <LIST>HELP",
    ),
    wrong(
        "plan --cluster dgx-h100 --size 99z",
        2,
        "invalid value '99z' for '--size <SIZE>': \"99z\" is no count such as 5B or 350MHELP",
    ),
    wrong("merge out.bin empty", 1, "empty: no file ends in .idx"),
    wrong(
        "new curate here --from nowhere",
        2,
        "nowhere: no such file or folder; name your data: millrace new curate here --from PATH",
    ),
    wrong(
        "new curate here --from empty",
        2,
        "input DIR/empty: a folder without files",
    ),
    wrong(
        "explain",
        2,
        "the following required arguments were not provided:\n  <NAME>\n\nUsage: millrace explain <NAME>HELP",
    ),
    wrong(
        "mixer bad.jsonl",
        1,
        "input bad.jsonl: configuration: found unknown field `body`, expected one of `streams`, `processes`, `work_dir`, \
         `shuffle`, `dryrun`, `debug`, wanted keys of dolma's mixer",
    ),
    wrong(
        "watch",
        2,
        "the following required arguments were not provided:\n  <OUT>...\n\nUsage: millrace watch <OUT>...HELP",
    ),
    wrong(
        "watch MODEL",
        2,
        "MODEL: found a Hugging Face folder, want a folder that a job writes (its `out`), a folder that holds such, or a job file",
    ),
];

/// A folder with files that are not what a verb wants.
fn write_inputs(folder: &Path) {
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    std::fs::create_dir(folder.join("empty")).unwrap();
    write("bad.jsonl", "{\"body\":\"x\"}\n");
    write("lone.bin", "xxxx");
    write(
        "curate.toml",
        "name = \"a\"\nout = \"out\"\n[curate]\ninputs = [{ path = \"nowhere/*.jsonl\" }]\n",
    );
}

#[test]
fn wrong_inputs_are_answered_with_what_was_found_and_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    write_inputs(&folder);
    let model = root().join("tests/data/lm_eval/model");
    let model = model.display().to_string();
    for Wrong {
        args,
        code,
        message,
    } in TABLE
    {
        let given: Vec<String> = args
            .split(' ')
            .map(|arg| arg.replace("MODEL", &model))
            .collect();
        let given: Vec<&str> = given.iter().map(String::as_str).collect();
        let printed = millrace(&given)
            .current_dir(&folder)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&printed.stderr)
            .replace("millrace_under_test", "millrace")
            .replace(&folder.display().to_string(), "DIR")
            .replace(&model, "MODEL");
        let message = message.replace("FORMS", FORMS).replace("HELP", HELP);
        assert_eq!(stderr, format!("error: {message}\n"), "{args}");
        assert_eq!(printed.status.code(), Some(code), "{args}");
        assert!(printed.stdout.is_empty(), "{args}");
    }
    // nothing was written
    let left = std::fs::read_dir(&folder).unwrap().flatten();
    let mut left: Vec<String> = left
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    left.sort();
    assert_eq!(left, ["bad.jsonl", "curate.toml", "empty", "lone.bin"]);
}

/// Flags that only mean something beside another, or that mean nothing beside it.
#[test]
fn flags_that_would_be_ignored_are_refused() {
    let beams = "generate nowhere --prompt x --beam-width 2";
    let plan = "plan curate.toml --cluster dgx-h100";
    let table = [
        (format!("{beams} --top-k 3"), "--top-k <K>"),
        (format!("{beams} --stop x"), "--stop <TEXT>"),
        (format!("{beams} --min-tokens 2"), "--min-tokens <N>"),
        (format!("{beams} --draft-tokens 2"), "--draft-tokens <N>"),
        (format!("{beams} --json --logprobs 2"), "--logprobs <N>"),
        (format!("{beams} --samples 2"), "--samples <N>"),
        (format!("{beams} --ignore-eos"), "--ignore-eos"),
        (format!("{plan} --input 5"), "--input goes with --serve"),
        (
            format!("{plan} --input 5 --top 3"),
            "--input goes with --serve",
        ),
        (
            format!("{plan} --output 5 --devices 8"),
            "--output goes with --serve",
        ),
        (
            format!("{plan} --max-ttft 5 --run 1"),
            "--max-ttft goes with --serve",
        ),
        (
            "doctor --architecture sm_80".into(),
            "--compile-kernels <DIR>",
        ),
        (
            "doctor --architecture sm_80 --measure x".into(),
            "--measure",
        ),
        ("doctor --memory 5".into(), "--node <DIR>"),
        ("doctor --memory 5 --measure x".into(), "--measure"),
        (
            "doctor --gpus 1 --compile-kernels x".into(),
            "--compile-kernels <DIR>",
        ),
    ];
    for (line, flag) in table {
        let args: Vec<&str> = line.split(' ').collect();
        let printed = millrace(&args).stdin(Stdio::null()).output().unwrap();
        let stderr = String::from_utf8_lossy(&printed.stderr);
        assert_eq!(printed.status.code(), Some(2), "{line}: {stderr}");
        let is_told = ["cannot be used with", "were not provided", "goes with"];
        let is_told = is_told.iter().any(|part| stderr.contains(part));
        assert!(is_told && stderr.contains(flag), "{line}: {stderr}");
    }
}
