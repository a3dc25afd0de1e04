//! Addresses of pages: the form in which they are compared, and their hosts.
//!
//! Addresses are compared as parsed by the WHATWG's rules (host in lower case and ASCII, `.` and `..` resolved, the
//! scheme's own port left out), without `http://` or `https://`, `www.`, the fragment, and slashes at the end of
//! the path, and a dot at the end of the host; one that starts with `//` is read as one of http. An unparsable address is
//! compared as it is, without white space at its ends.

use url::Url;

use super::suffixes;

/// The part of an address that is compared; with `sort_query` the parts of its query are put in order.
pub(crate) fn compared(address: &str, sort_query: bool) -> String {
    let address = address.trim();
    let Ok(mut url) = Url::parse(address).or_else(|e| match address.starts_with("//") {
        true => Url::parse(&format!("http:{address}")),
        false => Err(e),
    }) else {
        return address.to_string();
    };
    url.set_fragment(None);
    // the same host, named from the root of the domain names; one that the parser refuses stays as it is
    if let Some(host) = url.host_str().and_then(|host| host.strip_suffix('.')) {
        let host = host.to_string();
        let _refused = url.set_host(Some(&host));
    }
    if sort_query && let Some(query) = url.query() {
        let mut parts: Vec<&str> = query.split('&').filter(|p| !p.is_empty()).collect();
        parts.sort_unstable();
        let sorted = parts.join("&");
        url.set_query(Some(&sorted).filter(|q| !q.is_empty()).map(String::as_str));
    }
    let whole = url.as_str();
    let Some(rest) = whole
        .strip_prefix("https://")
        .or_else(|| whole.strip_prefix("http://"))
    else {
        return whole.to_string();
    };
    let rest = rest.strip_prefix("www.").unwrap_or(rest);
    match rest.split_once('?') {
        Some((path, query)) if !query.is_empty() => {
            format!("{}?{query}", path.trim_end_matches('/'))
        }
        Some((path, _)) => path.trim_end_matches('/').to_string(),
        None => rest.trim_end_matches('/').to_string(),
    }
}

/// Host of an address, in lower case, without `www.` and without a dot at its end. An address without a scheme has one if it
/// starts with `//`, or with a name of several labels before a slash, a port or the end: `example.org/page`.
pub(crate) fn host(address: &str) -> Option<String> {
    let address = address.trim();
    let url = match Url::parse(address) {
        // a name before a port reads as a scheme
        Ok(url) if url.host().is_none() && url.scheme().contains('.') => without_scheme(address)?,
        Ok(url) => url,
        Err(_) => without_scheme(address)?,
    };
    let host = url.host_str()?;
    let host = host.strip_suffix('.').unwrap_or(host);
    let host = host.strip_prefix("www.").unwrap_or(host);
    (!host.is_empty()).then(|| host.to_string())
}

/// An address without a scheme, read as one of http.
fn without_scheme(address: &str) -> Option<Url> {
    if let Some(rest) = address.strip_prefix("//") {
        return Url::parse(&format!("http://{rest}")).ok();
    }
    let end = address.find(['/', '?', '#']).unwrap_or(address.len());
    let (name, port) = address[..end]
        .split_once(':')
        .unwrap_or((&address[..end], "0"));
    let has_labels = name.trim_end_matches('.').contains('.') && !name.starts_with('.');
    let is_name =
        has_labels && !name.contains(|c: char| c.is_whitespace() || c == '@' || c == '\\');
    let is_port = port.bytes().all(|b| b.is_ascii_digit());
    (is_name && is_port).then(|| Url::parse(&format!("http://{address}")).ok())?
}

/// The public suffix of a host (`co.uk`); a host that is an address or has none is returned itself.
pub(crate) fn suffix(host: &str) -> &str {
    if host.parse::<std::net::Ipv4Addr>().is_ok() || host.starts_with('[') {
        return host;
    }
    suffixes::suffix(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_an_address_has_its_host() {
        for address in [
            "https://example.org/a",
            " HTTP://www.Example.ORG:8080/a ",
            "https://example.org./dot",
            "https://www.example.org.:443/",
            "//example.org/rel",
            "//user@example.org./rel",
            "example.org/noscheme",
            "example.org",
            "Example.org:8080/a",
            "www.example.org./?x",
        ] {
            assert_eq!(host(address).as_deref(), Some("example.org"), "{address}");
        }
        for (address, wanted) in [
            ("b\u{fc}cher.example/a", Some("xn--bcher-kva.example")),
            ("192.0.2.1/a", Some("192.0.2.1")),
            ("https://localhost/a", Some("localhost")),
            ("localhost/a", None),
            ("no address", None),
            ("A sentence. And more.", None),
            ("docs/readme.txt", None),
            (".hidden/a", None),
            ("mailto:a@example.org", None),
            ("a@example.org", None),
            ("urn:isbn:0451450523", None),
            ("example.org:path", None),
            ("https://./", None),
            ("", None),
        ] {
            assert_eq!(host(address).as_deref(), wanted, "{address}");
        }
    }

    #[test]
    fn addresses_and_odd_hosts_have_suffixes_too() {
        for (host, wanted) in [
            ("example.com", "com"),
            ("a.b.example.co.uk", "co.uk"),
            ("192.0.2.1", "192.0.2.1"),
            ("localhost", "localhost"),
            ("", ""),
        ] {
            assert_eq!(suffix(host), wanted);
        }
    }

    #[test]
    fn spellings_of_one_address_are_the_same_and_others_are_not() {
        let same = [
            "http://example.com/a",
            "https://www.example.com/a/",
            " HTTPS://Example.COM:443/a#part ",
            "http://example.com:80/b/../a?",
            "http://example.com/a/?#x",
            "https://example.com./a",
            "http://www.example.com.:80/a/",
            "//example.com/a",
        ];
        for address in same {
            assert_eq!(compared(address, false), "example.com/a", "{address}");
        }
        for other in [
            "http://example.com/A",
            "http://example.com:8080/a",
            "http://example.com/a?x",
            "http://m.example.com/a",
            "ftp://example.com/a",
            "example.com/a?",
        ] {
            assert_ne!(compared(other, false), "example.com/a", "{other}");
        }
        let (one, two) = ("http://e.org/?b=2&a=1&", "http://e.org?a=1&b=2");
        assert_ne!(compared(one, false), compared(two, false));
        assert_eq!(compared(one, true), compared(two, true));
        assert_eq!(compared("not an address", true), "not an address");
    }
}
