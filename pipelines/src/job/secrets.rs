//! Secrets of stores and servers in a job file: never printed, neither in `job.toml` nor in the report.

use super::table::{Executor, Job};
use curate::secrets::HIDDEN;
use curate::secrets::is_written_out;
use curate::secrets::without_passwords;
use std::collections::BTreeMap;

/// The job with placeholders in place of secrets.
pub(super) fn hidden(job: &Job) -> Job {
    let mut job = job.clone();
    let hide = |options: &mut BTreeMap<String, String>| {
        for (name, value) in options {
            if is_written_out(name, value) {
                *value = HIDDEN.to_string();
            }
        }
    };
    let hide_password = |url: &mut String| *url = without_passwords(url).into_owned();
    if let Some(store) = &mut job.store {
        hide(&mut store.options);
        hide_password(&mut store.url);
    }
    let curated = job.curate.iter_mut().flat_map(|c| &mut c.inputs);
    let tokenized = job.tokenize.iter_mut().flat_map(|t| &mut t.inputs);
    for input in curated.chain(tokenized) {
        hide(&mut input.options);
        hide_password(&mut input.path);
        hide_password(&mut input.prefix);
    }
    job
}

/// Reports placeholders, which come from a printed job, and secrets that would not reach an executor's tasks
/// because those read the printed job.
pub(super) fn check(job: &Job, add: &mut dyn FnMut(&str, String, &str)) {
    let is_handed_on = job.executor != Executor::Local;
    let mut options = |key: &str, options: &BTreeMap<String, String>| {
        for (name, value) in options.iter().filter(|(n, v)| is_written_out(n, v)) {
            let wanted = "a variable of the environment instead, or \"file:PATH\"";
            if value == HIDDEN {
                let found = format!("{HIDDEN:?}, as a printed job has it for a secret");
                add(&format!("{key}.{name}"), found, wanted);
            } else if is_handed_on {
                let found = "a secret, which tasks of the executor would not get".to_string();
                add(&format!("{key}.{name}"), found, wanted);
            }
        }
    };
    if let Some(store) = &job.store {
        options("store.options", &store.options);
    }
    let curated = job.curate.iter().map(|c| ("curate", &c.inputs));
    let tokenized = job.tokenize.iter().map(|t| ("tokenize", &t.inputs));
    let mut urls: Vec<(String, &str)> = Vec::new();
    urls.extend(
        job.store
            .iter()
            .map(|s| ("store.url".to_string(), s.url.as_str())),
    );
    for (table, inputs) in curated.chain(tokenized) {
        for (i, input) in inputs.iter().enumerate() {
            let key = format!("{table}.inputs[{i}]");
            options(&format!("{key}.options"), &input.options);
            urls.push((format!("{key}.path"), &input.path));
            urls.push((format!("{key}.prefix"), &input.prefix));
        }
    }
    for (key, url) in urls {
        let shown = without_passwords(url);
        let has_password = matches!(shown, std::borrow::Cow::Owned(_));
        if has_password && shown == url {
            let found = format!("{shown:?}, as a printed job has it for a password");
            add(&key, found, "the address with its password, or one without");
        } else if has_password && is_handed_on {
            let found = format!("{shown:?}: a password, which tasks of the executor would not get");
            add(&key, found, "an address without a password");
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::job::{LoadError, load};

    const JOB: &str = "name = 'x'\nout = 'o'\n[store]\nurl = 's3://b/r'\n[store.options]\naws_secret_access_key = 'SECRET1'\n\
        aws_region = 'eu'\n[curate]\ninputs = [{ path = 'http://me:SECRET2@host/x.jsonl', \
        options = { aws_session_token = 'SECRET3' } }, { path = 'a', options = { client_secret = 'file:/run/secrets/a' } }]\n";

    #[test]
    fn a_printed_job_holds_no_secret_and_says_so_when_it_is_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("job.toml");
        std::fs::write(&path, JOB).unwrap();
        let job = load(&path, &[]).unwrap();
        let printed = job.to_toml();
        assert!(!printed.contains("SECRET"), "{printed}");
        assert!(
            printed.contains("file:/run/secrets/a")
                && printed.contains("http://me:***@host/x.jsonl")
        );
        assert_eq!(
            job.store.as_ref().unwrap().options["aws_secret_access_key"],
            "SECRET1"
        );
        std::fs::write(&path, &printed).unwrap();
        let Err(LoadError::Problems { problems, .. }) = load(&path, &[]) else {
            panic!("a job without its secrets was taken")
        };
        let keys: Vec<&str> = problems.iter().map(|p| p.key.as_str()).collect();
        assert_eq!(
            keys,
            [
                "store.options.aws_secret_access_key",
                "curate.inputs[0].options.aws_session_token",
                "curate.inputs[0].path"
            ]
        );
        let files = JOB
            .replace("SECRET1", "file:/run/1")
            .replace("SECRET3", "file:/run/3")
            .replace("me:SECRET2@", "");
        std::fs::write(&path, files).unwrap();
        let job = load(&path, &[]).unwrap();
        std::fs::write(&path, job.to_toml()).unwrap();
        assert_eq!(load(&path, &[]).unwrap(), job);
    }

    #[test]
    fn tasks_of_an_executor_need_secrets_that_they_can_get() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("job.toml");
        std::fs::write(&path, format!("executor = 'slurm'\n{JOB}")).unwrap();
        let Err(LoadError::Problems { problems, .. }) = load(&path, &[]) else {
            panic!("a job was taken whose tasks would not have its secrets")
        };
        let message = format!("{problems:?}");
        assert_eq!(problems.len(), 3, "{message}");
        assert!(
            !message.contains("SECRET") && message.contains("file:PATH"),
            "{message}"
        );
    }
}
