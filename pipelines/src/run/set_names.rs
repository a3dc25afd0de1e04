//! Names of the validation sets of `[classify]` and `[finetune]`: `valid`, then those of their files without endings.

use anyhow::{Result, bail};
use std::path::Path;

/// The name of the set of a file after `others`, which are named already. `key`: that of the list of files.
///
/// # Errors
/// A name that another set has.
pub(super) fn set_name<T>(key: &str, others: &[(String, T)], path: &Path) -> Result<String> {
    if others.is_empty() {
        return Ok("valid".to_owned());
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.split('.').next().unwrap_or_default().to_owned();
    if others.iter().any(|(other, _)| *other == name) {
        bail!("{key}: found two sets named {name}, want different names of files");
    }
    Ok(name)
}
