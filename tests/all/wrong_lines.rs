//! Tests of wrong command lines: each is refused with its exit code and with exactly this message.

use crate::jobs::output;

#[test]
fn wrong_command_lines_are_answered_with_the_whole_message_that_helps() {
    let usage = "\n\nUsage: millrace [OPTIONS] <COMMAND>\n\nFor more information, try '--help'.\n";
    let help = "\n\nFor more information, try '--help'.\n";
    // (command line, exit code, message)
    let table: [(&[&str], i32, String); 8] = [
        (
            &["trian", "x"],
            2,
            format!(
                "error: unrecognized subcommand 'trian'\n\n  tip: a similar subcommand exists: 'train'{usage}"
            ),
        ),
        (
            &["new", "pretran", "x"],
            2,
            format!(
                "error: invalid value 'pretran' for '<KIND>'\n  [possible values: curate, tokenize, pretrain, finetune]\n\n  \
                 tip: a similar value exists: 'pretrain'{help}"
            ),
        ),
        (
            &["completions", "powershell"],
            2,
            format!(
                "error: invalid value 'powershell' for '<SHELL>'\n  [possible values: bash, zsh, fish]{help}"
            ),
        ),
        (
            &["explain", "stepz"],
            2,
            "error: \"stepz\" is no key, filter, rule or verb; `millrace filters` and pipelines/docs/keys.md list them; did you \
             mean \"step\" or \"steps\"?\n"
                .to_string(),
        ),
        (
            &["tokenize"],
            2,
            "error: tokenize: found neither a job file nor --input, wanted `millrace tokenize JOB` or `millrace tokenize --input \
             FILE... --tokenizer PATH --output-prefix PREFIX`\n"
                .to_string(),
        ),
        (
            &["tokenize", "--input", "a", "--output-prefix", "b/", "--tokenizer", "c"],
            2,
            "error: --output-prefix b/: found a folder, wanted a folder and the beginning of a file name, such as b/corpus\n"
                .to_string(),
        ),
        (
            &["merge", "x"],
            2,
            format!(
                "error: the following required arguments were not provided:\n  <PARTS>...\n\n\
                 Usage: millrace merge <OUT> <PARTS>...{help}"
            ),
        ),
        (
            &["run", "nowhere.toml"],
            2,
            "error: nowhere.toml: there is no such file; `millrace new pretrain DIR --from DATA` writes a job\n"
                .to_string(),
        ),
    ];
    for (args, code, message) in table {
        let printed = output(args);
        // the program under test has a name of its own
        let stderr =
            String::from_utf8_lossy(&printed.stderr).replace("millrace_under_test", "millrace");
        assert_eq!(stderr, message, "{args:?}");
        assert_eq!(printed.status.code(), Some(code), "{args:?}");
        assert!(printed.stdout.is_empty(), "{args:?}");
    }
}
