//! The job of a path: a job file, or the folder that a job wrote.

use crate::job::{Job, LoadError, load};
use crate::manifest;
use std::path::Path;

/// Loads the job. Of a folder it is the resolved job in it, and the folder is its `out`, wherever it has been moved to; in a
/// folder that `new` made, whose job has written elsewhere, that place stays its `out`.
///
/// # Errors
/// As loading a job file.
pub(crate) fn job_at(path: &Path, set: &[String]) -> Result<Job, LoadError> {
    if !path.is_dir() {
        return load(path, set);
    }
    let file = path.join("job.toml");
    if !file.exists() {
        return Err(LoadError::File {
            path: path.to_path_buf(),
            why: "found no job.toml, wanted a job file or the folder that a job has written".into(),
        });
    }
    let mut job = load(&file, set)?;
    let is_written = [manifest::NAME, "records"].map(|name| path.join(name).exists());
    let is_elsewhere = is_written == [false; 2] && job.out.join("job.toml").exists();
    if !is_elsewhere && !set.iter().any(|set| set.starts_with("out=")) {
        job.out = path.to_path_buf();
    }
    Ok(job)
}
