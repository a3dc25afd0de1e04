//! Secrets of stores and servers: which settings contain them, and how they are hidden in printed text.
//!
//! A secret comes from the environment, as for each cloud's own programs, or from a file that the setting names
//! (`file:PATH`). A secret written into the job itself works, but it is not printed, so the resolved job cannot be
//! run elsewhere.

use std::borrow::Cow;
use std::path::Path;

#[cfg(any(test, feature = "object-store"))]
use std::collections::BTreeMap;
#[cfg(any(test, feature = "object-store"))]
use std::io;

/// Printed in place of a secret.
pub const HIDDEN: &str = "***";
/// Before the path of a file that holds a secret.
const FILE: &str = "file:";

/// Whether a store's setting with this name contains a secret, by the names of the `object_store` crate.
pub fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let harmless = ["_id", "_file", "_path", "_endpoint", "_uri", "_enabled"];
    let telling = ["secret", "password", "token", "key", "sas"];
    !harmless.iter().any(|end| name.ends_with(end)) && telling.iter().any(|t| name.contains(t))
}

/// Whether a setting's value is the secret itself rather than its location.
pub fn is_written_out(name: &str, value: &str) -> bool {
    is_secret(name) && !value.starts_with(FILE)
}

/// Replaces secrets in files by the files' first lines.
///
/// # Errors
/// A file that cannot be read, with its path.
#[cfg(any(test, feature = "object-store"))]
pub(crate) fn resolved(options: &BTreeMap<String, String>) -> io::Result<BTreeMap<String, String>> {
    let each = options.iter().map(|(name, value)| {
        let file = value.strip_prefix(FILE).filter(|_| is_secret(name));
        let value = match file {
            None => value.clone(),
            Some(path) => {
                let named = |e: io::Error| io::Error::new(e.kind(), format!("{name}: {path}: {e}"));
                let text = std::fs::read_to_string(path).map_err(named)?;
                text.lines().next().unwrap_or_default().trim().to_string()
            }
        };
        Ok((name.clone(), value))
    });
    each.collect()
}

/// Text without the passwords of the URLs in it: `http://user:secret@host/` becomes `http://user:***@host/`; a
/// single field before the `@` is hidden as a whole.
pub fn without_passwords(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let (mut copied, mut from) = (0, 0);
    while let Some(scheme) = text[from..].find("://") {
        let start = from + scheme + 3;
        let ends = |c: char| c.is_whitespace() || "/?#\"'<>".contains(c);
        let end = text[start..].find(ends).map_or(text.len(), |i| start + i);
        from = start;
        let Some(at) = text[start..end].rfind('@') else {
            continue;
        };
        let user = text[start..start + at].find(':').map_or(0, |i| i + 1);
        out.push_str(&text[copied..start + user]);
        out.push_str(HIDDEN);
        copied = start + at;
        from = copied;
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

/// A path or URL for printing: without the password of a URL.
pub fn shown(path: &Path) -> String {
    without_passwords(&path.to_string_lossy()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_go_and_all_else_stays() {
        for (text, want) in [
            ("http://user:pa@ss:w@host/a@b", "http://user:***@host/a@b"),
            ("https://token@host", "https://***@host"),
            (
                "x: http://u:p@h/: gone; s3://b/k@v",
                "x: http://u:***@h/: gone; s3://b/k@v",
            ),
            ("(\"http://u:p@h\")", "(\"http://u:***@h\")"),
            ("a://b://c:d@e", "a://b://c:***@e"),
            ("/folder/a@b.gz", "/folder/a@b.gz"),
            ("http://host:80/x", "http://host:80/x"),
            ("://", "://"),
            ("", ""),
        ] {
            assert_eq!(without_passwords(text), want);
        }
    }

    #[test]
    fn names_of_secrets_are_known_and_those_of_identifiers_are_not() {
        for name in [
            "aws_secret_access_key",
            "secret_access_key",
            "AWS_SESSION_TOKEN",
            "azure_storage_account_key",
            "azure_storage_sas_token",
            "client_secret",
            "google_service_account_key",
            "aws_sse_customer_key_base64",
        ] {
            assert!(is_secret(name) && is_written_out(name, "x"), "{name}");
            assert!(!is_written_out(name, "file:/run/secrets/x"), "{name}");
        }
        for name in [
            "aws_access_key_id",
            "aws_region",
            "aws_endpoint",
            "aws_skip_signature",
            "aws_bucket_key_enabled",
            "azure_federated_token_file",
            "google_application_credentials",
            "allow_http",
        ] {
            assert!(!is_secret(name), "{name}");
        }
    }

    #[test]
    fn secrets_are_read_from_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        std::fs::write(&path, "abc\n").unwrap();
        let at = |value: String| BTreeMap::from([("aws_secret_access_key".to_string(), value)]);
        let secret = resolved(&at(format!("file:{}", path.display()))).unwrap();
        assert_eq!(secret, at("abc".to_string()));
        assert_eq!(resolved(&at("abc".to_string())).unwrap(), secret);
        let region = BTreeMap::from([("aws_region".to_string(), "file:x".to_string())]);
        assert_eq!(resolved(&region).unwrap(), region);
        let why = resolved(&at("file:/nowhere".to_string())).unwrap_err();
        assert!(why.to_string().contains("/nowhere"), "{why}");
    }
}
