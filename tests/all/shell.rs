//! Tests of `millrace completions` and `millrace man`: every verb is named, and bash accepts the script and completes a verb.

use crate::jobs::output;
use std::process::Command;

/// The verbs, as `millrace --help` lists them.
fn verbs() -> Vec<String> {
    let help = String::from_utf8(output(&["--help"]).stdout).unwrap();
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    // a continued line is indented further
    let names = lines.filter(|line| !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| *name != "help")
        .map(String::from)
        .collect()
}

fn script(shell: &str) -> String {
    let printed = output(&["completions", shell]);
    assert!(printed.status.success());
    String::from_utf8(printed.stdout).unwrap()
}

#[test]
fn the_scripts_of_all_shells_name_every_verb() {
    let verbs = verbs();
    assert!(verbs.len() > 25, "{verbs:?}");
    for shell in ["bash", "zsh", "fish"] {
        let text = script(shell);
        for verb in &verbs {
            assert!(text.contains(verb.as_str()), "{shell}: {verb}");
        }
    }
}

#[test]
fn bash_accepts_its_script_and_completes_a_verb() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("millrace.bash");
    std::fs::write(&file, script("bash")).unwrap();
    let run = "bash -n \"$1\" && source \"$1\" && COMP_WORDS=(millrace tok) && COMP_CWORD=1 \
        && { _millrace millrace tok millrace || true; } && echo \"${COMPREPLY[@]}\"";
    let bash = Command::new("bash")
        .args(["-c", run, "bash"])
        .arg(&file)
        .output();
    // a machine without bash has nothing to check it with
    let Ok(bash) = bash else { return };
    let stderr = String::from_utf8_lossy(&bash.stderr);
    assert!(bash.status.success(), "{stderr}");
    assert_eq!(
        String::from_utf8_lossy(&bash.stdout).trim(),
        "tokenize",
        "{stderr}"
    );
}

#[test]
fn every_verb_has_a_manual_page_with_its_options() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("man");
    assert!(output(&["man", folder.to_str().unwrap()]).status.success());
    for verb in verbs() {
        let page = std::fs::read_to_string(folder.join(format!("millrace-{verb}.1"))).unwrap();
        assert!(page.contains(&format!("millrace {verb}")), "{verb}");
        assert!(
            page.contains(".SH OPTIONS") && page.contains(".SH DESCRIPTION"),
            "{verb}"
        );
    }
    let page = std::fs::read_to_string(folder.join("millrace.1")).unwrap();
    assert!(page.contains("tokenize"));
}
