//! Addresses of pages: the form in which they are compared, and their hosts.
//!
//! Addresses are compared as parsed by the WHATWG's rules (host in lower case and ASCII, `.` and `..` resolved, the
//! scheme's own port left out), without `http://` or `https://`, `www.`, the fragment, and slashes at the end of
//! the path. An unparsable address is compared as it is, without white space at its ends.

use url::Url;

use super::suffixes;

/// The part of an address that is compared; with `sort_query` the parts of its query are put in order.
pub(crate) fn compared(address: &str, sort_query: bool) -> String {
    let address = address.trim();
    let Ok(mut url) = Url::parse(address) else {
        return address.to_string();
    };
    url.set_fragment(None);
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

/// Host of an address, in lower case, without `www.`.
pub(crate) fn host(address: &str) -> Option<String> {
    let url = url::Url::parse(address).ok()?;
    let host = url.host_str()?;
    Some(host.strip_prefix("www.").unwrap_or(host).to_string())
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
