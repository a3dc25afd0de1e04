//! The check of a request's `Host` and `Origin` in `serve` and `watch`, which is the defence against DNS rebinding and against pages of
//! other sites.
//!
//! A server on 127.0.0.1 is reached by this machine's programs alone, but a browser is one of them: a web page whose name is bound
//! anew to 127.0.0.1 has the server as its own origin and may read every answer. Such a request still carries the page's name
//! in `Host`, so a server on a loopback address answers loopback names only. Names of a proxy are allowed by `--allowed-host`.
//! A page under its own name may send requests whose answers it cannot read; a browser names the page in `Origin`.

use super::error::ApiError;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::Response;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// Bytes of the longest domain name (RFC 1035, section 2.3.4).
const LONGEST_NAME: usize = 253;

/// The hosts that a server answers for.
#[derive(Clone, Debug)]
pub(crate) struct AllowedHosts {
    /// Address that the server listens on.
    bound: IpAddr,
    /// Hosts given by `--allowed-host`.
    given: Vec<Host>,
}

impl AllowedHosts {
    /// Loopback names, `bound` and `given`; every host if `bound` is no loopback address and none is given.
    pub(crate) fn new(bound: IpAddr, given: Vec<Host>) -> AllowedHosts {
        let bound = bound.to_canonical();
        AllowedHosts { bound, given }
    }

    fn is_open(&self) -> bool {
        self.given.is_empty() && !self.bound.is_loopback()
    }

    fn has(&self, host: &Host) -> bool {
        host.is_loopback() || *host == Host::Address(self.bound) || self.given.contains(host)
    }

    /// Refuses the authority of a request, or of the page in `header` that sends it, whose host is not allowed.
    ///
    /// # Errors
    /// 403 for an authority of another host, or one that is malformed.
    fn check(&self, header: &str, authority: &str) -> Result<(), ApiError> {
        let host = Host::of_authority(authority);
        if host.as_ref().is_some_and(|host| self.has(host)) {
            return Ok(());
        }
        let message = match host {
            Some(host) => format!(
                "{header}: found {:?}, want localhost or another name that this server answers for; \
                 start it with --allowed-host {} to allow this one",
                host.text(),
                host.text()
            ),
            None => {
                let beginning: String = authority.chars().take(LONGEST_NAME).collect();
                format!("{header}: found {beginning:?}, want HOST or HOST:PORT")
            }
        };
        Err(ApiError::new(StatusCode::FORBIDDEN, message))
    }

    /// Refuses the origin of a page of another host, and one that a browser hides (`null`). Programs with schemes of their own, such as
    /// extensions of editors and browsers, are none.
    ///
    /// # Errors
    /// As `check`.
    fn check_origin(&self, origin: &str) -> Result<(), ApiError> {
        match origin.split_once("://") {
            Some((scheme, authority)) if ["http", "https"].contains(&scheme) => {
                self.check("Origin", authority)
            }
            Some(_) => Ok(()),
            None => self.check("Origin", origin),
        }
    }
}

/// Middleware that answers requests for the allowed hosts only. The host is that of the request's target and that of `Host`: both
/// must be allowed where both are there, and that of `Origin`, which browsers send with requests of other pages.
///
/// # Errors
/// 403 for another host or a page of one; 400 without a host in HTTP/1.1 (RFC 9112, section 3.2).
pub(crate) async fn host_is_allowed(
    State(allowed): State<Arc<AllowedHosts>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    if allowed.is_open() {
        return Ok(next.run(request).await);
    }
    let target = request.uri().authority();
    let mut has_host = target.is_some();
    if let Some(authority) = target {
        allowed.check("Host", authority.as_str())?;
    }
    for value in request.headers().get_all(header::HOST) {
        has_host = true;
        allowed.check("Host", &String::from_utf8_lossy(value.as_bytes()))?;
    }
    for value in request.headers().get_all(header::ORIGIN) {
        allowed.check_origin(&String::from_utf8_lossy(value.as_bytes()))?;
    }
    if !has_host && request.version() > Version::HTTP_10 {
        let message = "Host: found none, want the header in a request of HTTP/1.1";
        return Err(ApiError::bad(message));
    }
    Ok(next.run(request).await)
}

/// A host without its port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    /// Domain name in lower case, without a dot at its end.
    Name(String),
    /// Address; one of IPv4 in the form of IPv6 is one of IPv4.
    Address(IpAddr),
}

impl Host {
    /// A host as a flag gives it: a name, or an address with or without brackets. A port is refused, as it would not be compared.
    pub(crate) fn of_flag(text: &str) -> Option<Host> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Some(Host::Address(address.to_canonical()));
        }
        Host::of_uri_host(text)
    }

    /// The host of `HOST` or `HOST:PORT` (RFC 3986, section 3.2). A user's name before it is refused: no `Host` has one.
    fn of_authority(text: &str) -> Option<Host> {
        // the colons of an address of IPv6 are in brackets
        let after_address = text.rfind(']').map_or(0, |bracket| bracket + 1);
        let (host, port) = match text[after_address..].find(':') {
            Some(colon) => text.split_at(after_address + colon),
            None => (text, ""),
        };
        let is_port = port.bytes().skip(1).all(|byte| byte.is_ascii_digit());
        Host::of_uri_host(host).filter(|_| is_port)
    }

    fn of_uri_host(text: &str) -> Option<Host> {
        if let Some(rest) = text.strip_prefix('[') {
            let address: Ipv6Addr = rest.strip_suffix(']')?.parse().ok()?;
            return Some(Host::Address(IpAddr::V6(address).to_canonical()));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        if let Ok(address) = name.parse() {
            return Some(Host::Address(IpAddr::V4(address)));
        }
        let is_label = |label: &str| {
            let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            !label.is_empty() && label.bytes().all(is_part)
        };
        let is_name = name.len() <= LONGEST_NAME && name.split('.').all(is_label);
        is_name.then(|| Host::Name(name.to_ascii_lowercase()))
    }

    /// Whether the host is this machine by itself. `localhost` and the names below it never come from a name server
    /// (RFC 6761, section 6.3).
    fn is_loopback(&self) -> bool {
        match self {
            Host::Name(name) => name == "localhost" || name.ends_with(".localhost"),
            Host::Address(address) => address.is_loopback(),
        }
    }

    fn text(&self) -> String {
        match self {
            Host::Name(name) => name.clone(),
            Host::Address(address) => address.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(bound: &str, given: &[&str]) -> AllowedHosts {
        let given = given.iter().map(|text| Host::of_flag(text).unwrap());
        AllowedHosts::new(bound.parse().unwrap(), given.collect())
    }

    #[test]
    fn authorities_are_split_as_rfc_3986_says() {
        let name = |text: &str| Some(Host::Name(text.to_owned()));
        let address = |text: &str| Some(Host::Address(text.parse().unwrap()));
        let long = "a".repeat(254);
        for (text, wanted) in [
            ("localhost", name("localhost")),
            ("LocalHost:8000", name("localhost")),
            ("localhost.:8000", name("localhost")),
            ("localhost:", name("localhost")),
            ("my_host-1.example", name("my_host-1.example")),
            ("127.0.0.1:8000", address("127.0.0.1")),
            ("127.0.0.1.", address("127.0.0.1")),
            ("[::1]:8000", address("::1")),
            ("[::1]", address("::1")),
            ("[0:0:0:0:0:0:0:1]", address("::1")),
            ("[::ffff:127.0.0.1]:1", address("127.0.0.1")),
            ("[FE80::A]", address("fe80::a")),
            ("127.1", name("127.1")),
            ("", None),
            (":8000", None),
            (".", None),
            (".localhost", None),
            ("a..localhost", None),
            ("localhost..", None),
            ("me@localhost", None),
            ("me:secret@localhost", None),
            ("evil.example@a.localhost:80", None),
            ("evil.example/.localhost", None),
            ("evil.example#.localhost", None),
            ("evil.example .localhost", None),
            ("localhost,evil.example", None),
            ("localhost:80:80", None),
            ("localhost:http", None),
            ("localhost:-1", None),
            ("::1", None),
            ("[::1", None),
            ("::1]", None),
            ("[::1]x", None),
            ("[::1]]", None),
            ("[::1%lo]", None),
            ("[127.0.0.1]", None),
            ("[evil.example]", None),
            ("b\u{fc}cher.example", None),
            (long.as_str(), None),
        ] {
            assert_eq!(Host::of_authority(text), wanted, "{text:?}");
        }
    }

    #[test]
    fn flags_give_names_and_addresses_without_a_port() {
        for (text, wanted) in [
            ("Models.Example.", Some("models.example")),
            ("10.0.0.7", Some("10.0.0.7")),
            ("fe80::1", Some("fe80::1")),
            ("[fe80::1]", Some("fe80::1")),
            ("models.example:443", None),
            ("https://models.example", None),
            ("*.example", None),
            (" ", None),
            ("", None),
        ] {
            let found = Host::of_flag(text).map(|host| host.text());
            assert_eq!(found.as_deref(), wanted, "{text:?}");
        }
    }

    #[test]
    fn a_loopback_server_answers_loopback_names_and_those_given() {
        for bound in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            let allowed = allowed(bound, &["models.example", "10.0.0.7"]);
            for host in [
                "localhost:8000",
                "LOCALHOST",
                "a.b.localhost.",
                "127.0.0.1:1",
                "127.255.0.3",
                "[::1]:8000",
                "MODELS.example:443",
                "10.0.0.7",
            ] {
                assert!(allowed.check("Host", host).is_ok(), "{bound}: {host}");
            }
            for host in [
                "evil.example",
                "localhost.evil.example",
                "notlocalhost",
                "127.0.0.1.evil.example",
                "a.models.example",
                "0.0.0.0",
                "128.0.0.1",
                "[::2]",
                "[::]",
                "",
            ] {
                assert!(allowed.check("Host", host).is_err(), "{bound}: {host}");
            }
        }
        let refused = allowed("127.0.0.1", &[])
            .check("Host", "Evil.Example:80")
            .unwrap_err();
        assert_eq!(refused.status, StatusCode::FORBIDDEN);
        let message = refused.message;
        assert!(message.contains("found \"evil.example\""), "{message}");
        let flag = "--allowed-host evil.example";
        assert!(message.contains(flag), "{message}");
    }

    #[test]
    fn pages_of_other_hosts_are_refused_and_programs_are_no_pages() {
        let allowed = allowed("127.0.0.1", &["models.example"]);
        for (origin, is_allowed) in [
            ("http://localhost:8000", true),
            ("http://127.0.0.1", true),
            ("https://models.example", true),
            ("https://evil.example", false),
            ("http://localhost.evil.example:8000", false),
            ("null", false),
            ("", false),
            ("http://", false),
            ("chrome-extension://abcdef", true),
            ("vscode-webview://1f2e", true),
        ] {
            let found = allowed.check_origin(origin);
            assert_eq!(found.is_ok(), is_allowed, "{origin}");
            if let Err(refused) = found {
                assert_eq!(refused.status, StatusCode::FORBIDDEN, "{origin}");
                assert!(refused.message.starts_with("Origin: found"), "{origin}");
            }
        }
    }

    #[test]
    fn another_address_is_open_until_hosts_are_given() {
        for bound in ["0.0.0.0", "::", "192.0.2.5"] {
            assert!(allowed(bound, &[]).is_open(), "{bound}");
            let some = allowed(bound, &["models.example"]);
            assert!(!some.is_open(), "{bound}");
            for (host, is_allowed) in [
                ("models.example", true),
                ("localhost", true),
                ("evil.example", false),
                ("192.0.2.6", false),
                ("192.0.2.5:8000", bound == "192.0.2.5"),
            ] {
                assert_eq!(
                    some.check("Host", host).is_ok(),
                    is_allowed,
                    "{bound}: {host}"
                );
            }
        }
        assert!(!allowed("127.0.0.1", &[]).is_open());
    }
}
